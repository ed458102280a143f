/* rubato-kmeans: its own flags. Runs on main's thread. */
#include "apps/kmeans/kmeans_job.h"

#define TOLERANCE 1e-4
#define DEFAULT_ROWS "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"

static bool take_flags(void *user_data, GError **error)
{
    static const char *const words[] = { "plus-plus", "parallel", NULL };
    KmeansJob *job = user_data;
    size_t seed = 0;

    if (job->tolerance == APP_NOT_GIVEN)
        job->tolerance = TOLERANCE;
    else if (job->app.batch_size != APP_WHOLE_BATCHES)
        return app_refuse(error, "--tolerance: has no effect here; it needs steps over all rows, "
                                 "without --batch-size");
    else if (job->app.model_traits->lead != RUBATO_LEAD_NONE)
        return app_refuse(error,
                          "--tolerance: has no effect here; it needs a model by which all workers "
                          "see the same, such as bsp, found %s",
                          job->app.model);
    if (!app_find_word("init", words, job->seed_name, &seed, error) ||
        !app_check_number("tolerance", job->tolerance, error))
        return false;
    job->seed = (KmeansSeed)seed;
    job->data.ignores_labels = true;
    if (!app_check_count("clusters", job->n_clusters, KMEANS_CLUSTERS_MAX, error))
        return false;
    if (app_data_validates(&job->data))
        return app_refuse(error, "--validate: has no effect here, since more clusters always fit "
                                 "better; --test FILE measures on other rows");
    if (job->app.load != NULL && job->seed_name != NULL)
        return app_refuse(error,
                          "--init: has no effect with --load, which gives the first centers");
    return true;
}

bool kmeans_parse(KmeansJob *job, int argc, char **argv)
{
    const GOptionEntry options[] = {
        { "clusters", 'k', 0, G_OPTION_ARG_INT, &job->n_clusters,
          "How many clusters (default 10, or those of the loaded model)", "K" },
        { "init", 0, 0, G_OPTION_ARG_STRING, &job->seed_name,
          "The first centers: plus-plus (default) or parallel, for many", "NAME" },
        { "tolerance", 0, 0, G_OPTION_ARG_DOUBLE, &job->tolerance,
          "Stop when so few of all rows change clusters (default 0.0001)", "X" },
        G_OPTION_ENTRY_NULL,
    };

    static const char *const of_training[] = { "init", "tolerance", NULL };

    *job = (KmeansJob){ .n_clusters = APP_COUNT_NOT_GIVEN,
                        .tolerance = APP_NOT_GIVEN,
                        .loss = { .kind = APP_LOSS_SQUARED },
                        .program = { .name = "rubato-kmeans",
                                     .summary = "Finds clusters of rows: k-means, Lloyd's or by "
                                                "mini-batches.",
                                     .options = options,
                                     .of_training = of_training,
                                     .data = &job->data,
                                     .default_train = DEFAULT_ROWS,
                                     .take_flags = take_flags,
                                     .user_data = job,
                                     .epochs = 300,
                                     .batch_size = APP_WHOLE_BATCHES,
                                     .learning_rate = APP_NO_LEARNING_RATE } };
    if (app_parse(&job->app, &job->program, argc, argv))
        return true;
    g_free(job->seed_name);
    return false;
}

int kmeans_end(KmeansJob *job, const GError *error)
{
    const int status = app_end(&job->app, error);

    for (uint32_t i = 0; i < job->n_shares; i++)
        kmeans_share_clear(&job->shares[i]);
    g_free(job->shares);
    kmeans_centres_clear(&job->final);
    app_rows_clear(&job->rows);
    g_free(job->seed_name);
    return status;
}
