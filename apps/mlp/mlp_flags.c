/* rubato-mlp: its own flags, and its layers. Runs on main's thread. */
#include <string.h>

#include "apps/mlp/mlp_job.h"

#define HIDDEN "128"
#define DEFAULT_ROWS "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"

/* They were found on Fashion-MNIST with the other defaults. */
static const double learning_rates[APP_NET_N_RULES] = {
    [APP_NET_RULE_ADAM] = 0.003, [APP_NET_RULE_MOMENTUM] = 0.1, [APP_NET_RULE_SGD] = 0.4
};

/* ---- layers ---- */

/* The columns of the rows to train on, or of the loaded model; then the rows may not have more. */
static bool settle_columns(MlpJob *job, GError **error)
{
    uint64_t n_units;
    uint32_t n_columns = 0, width;

    if (job->rows.train != NULL &&
        !app_dense_columns(job->rows.train, "--train", &n_columns, error))
        return false;
    job->layers.shape.sizes[0] = n_columns;
    if (job->app.load == NULL)
        return true;
    if (!app_model_shape(&job->app, job->layers.names[0], &width, &n_units, error))
        return false;
    job->layers.shape.sizes[0] =
        MAX(width, 2) - 1; /* others are refused when the model is loaded */
    if (n_columns <= job->layers.shape.sizes[0])
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                "--train: keys go up to %u, and the model in %s has columns up to %u; train anew "
                "without --load",
                n_columns - 1, job->app.load, job->layers.shape.sizes[0] - 1);
    return false;
}

static bool settle_classes(MlpJob *job, GError **error)
{
    if (job->loss.n_classes == 0)
        return app_refuse(error, "--load %s: the model's description names no classes",
                          job->app.load);
    job->layers.shape.sizes[job->layers.shape.n_layers] = job->loss.n_classes;
    return true;
}

bool mlp_load(MlpJob *job, GError **error)
{
    if (!app_loss_follow(&job->loss, &job->app, "softmax", error) ||
        !app_layers_settle(&job->layers, &job->app, &job->hidden, HIDDEN, error))
        return false;
    app_layers_name(&job->layers, job->tables);
    return app_rows_open(&job->rows, &job->app, &job->data, &job->loss, /* l2= */ NULL, error) &&
           settle_columns(job, error) && settle_classes(job, error);
}

/* ---- flags ---- */

static bool take_flags(void *user_data, GError **error)
{
    MlpJob *job = user_data;
    AppNetShape shape;
    size_t rule = 0;

    if (!app_find_word("rule", app_net_rule_names, job->rule_name, &rule, error) ||
        (job->hidden != NULL && !app_layers_parse(&shape, job->hidden, error)))
        return false;
    job->layers.rule = (AppNetRule)rule;
    job->layers.of_workers = job->app.by_allreduce;
    if (job->app.learning_rate <= 0)
        job->app.learning_rate = learning_rates[rule];
    return true;
}

static void clear(MlpJob *job)
{
    for (uint32_t i = 0; i < job->n_shares; i++)
        mlp_share_clear(&job->shares[i]);
    g_free(job->shares);
    app_layers_forget(job->weights);
    app_rows_clear(&job->rows);
    app_loss_clear(&job->loss);
    g_free(job->hidden);
    g_free(job->by);
    g_free(job->rule_name);
}

bool mlp_parse(MlpJob *job, int argc, char **argv)
{
    const GOptionEntry options[] = {
        { "hidden", 0, 0, G_OPTION_ARG_STRING, &job->hidden,
          "Units of the hidden layers (default " HIDDEN ", or the loaded model's)", "N,..." },
        { "by", 0, 0, G_OPTION_ARG_STRING, &job->by,
          "How workers combine gradients: tables (default) or allreduce", "WAY" },
        { "rule", 0, 0, G_OPTION_ARG_STRING, &job->rule_name,
          "adam (default; rate 0.003), momentum (0.1) or sgd (0.4)", "NAME" },
        G_OPTION_ENTRY_NULL,
    };
    static const char *const of_training[] = { "by", "rule", NULL };

    *job = (MlpJob){ .loss = { .kind = APP_LOSS_SOFTMAX },
                     .program = { .name = "rubato-mlp",
                                  .summary = "Trains multi-layer perceptrons, which find the "
                                             "classes of rows.",
                                  .options = options,
                                  .by = &job->by,
                                  .of_training = of_training,
                                  .data = &job->data,
                                  .default_train = DEFAULT_ROWS,
                                  .take_flags = take_flags,
                                  .user_data = job,
                                  .metric = "accuracy",
                                  .epochs = 5,
                                  .batch_size = 128,
                                  .has_steps = true } };
    if (app_parse(&job->app, &job->program, argc, argv))
        return true;
    clear(job);
    return false;
}

int mlp_end(MlpJob *job, const GError *error)
{
    const int status = app_end(&job->app, error);

    clear(job);
    return status;
}
