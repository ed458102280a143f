/* rubato-gbdt: gradient-boosted trees.
 *
 * A first task reads the rows. In a second one an epoch is a round: a tree for each score of a row,
 * from histograms that are summed in a table (gbdt_train.c). */
#include "apps/gbdt/gbdt_job.h"

#include <string.h>

#include "apps/kit/app_validation.h"
#include "apps/kit/scores/app_score.h"

/* ---- scores ---- */

/* An AppScoreFunc. */
static bool score(const RubatoBatch *batch, double *scores, void *user_data, GError **error)
{
    GbdtJob *job = user_data;
    const uint32_t n_columns = job->bins.n_columns, n_scores = app_loss_n_scores(&job->loss);
    g_autofree float *values = g_new(float, batch->n_rows *n_columns);

    if ((job->forest.starts == NULL && !gbdt_read_forest(job, &job->forest, error)) ||
        !rubato_batch_fill_matrix(batch, 0, n_columns, NAN, values, error))
        return false;
    for (size_t row = 0; row < batch->n_rows; row++) {
        for (uint32_t k = 0; k < n_scores; k++)
            scores[row * n_scores + k] = app_loss_start(&job->loss);
        gbdt_forest_score(&job->forest, values + row * n_columns, n_scores,
                          scores + row * n_scores);
    }
    return true;
}

/* The same for rows that come in the same order after each round: job->forest has the trees that
 * their scores lack. */
static bool score_further(const RubatoBatch *batch, double *scores, void *user_data, GError **error)
{
    GbdtJob *job = user_data;
    GbdtValidation *validation = &job->validation;
    const uint32_t n_columns = job->bins.n_columns, n_scores = app_loss_n_scores(&job->loss);
    const size_t n = batch->n_rows * n_scores, from = validation->row * n_scores;
    g_autofree float *values = g_new(float, batch->n_rows *n_columns);

    if (!rubato_batch_fill_matrix(batch, 0, n_columns, NAN, values, error))
        return false;
    while (validation->scores->len < from + n)
        g_array_append_val(validation->scores, (double){ app_loss_start(&job->loss) });
    double *kept = &g_array_index(validation->scores, double, from);
    for (size_t row = 0; row < batch->n_rows; row++)
        gbdt_forest_score(&job->forest, values + row * n_columns, n_scores, kept + row * n_scores);
    if (n > 0)
        memcpy(scores, kept, n * sizeof *scores);
    validation->row += batch->n_rows;
    return true;
}

/* An AppMeasureFunc. */
static bool validate(double *loss, void *user_data, GError **error)
{
    GbdtJob *job = user_data;
    GbdtValidation *validation = &job->validation;
    const uint64_t n_trees = (job->n_loaded + job->app.only_epoch) * app_loss_n_scores(&job->loss);

    gbdt_forest_clear(&job->forest);
    if (validation->scores == NULL) { /* a loaded model's trees may be deeper */
        validation->scores = g_array_new(FALSE, FALSE, sizeof(double));
        if (!gbdt_read_forest(job, &job->forest, error))
            return false;
    } else if (!gbdt_read_trees(job, validation->n_trees, n_trees, &job->forest, error)) {
        return false;
    }
    validation->row = 0;
    validation->n_trees = n_trees;
    return app_score_validation(&job->rows, &job->loss, score_further, job, loss, error);
}

static bool predict(const char *path, FILE *output, void *user_data, GError **error)
{
    GbdtJob *job = user_data;

    return app_print_predictions(output, &job->data, &job->rows, path, &job->loss, score, job,
                                 error);
}

/* ---- the run ---- */

/* Trees of rounds after the best one add nothing; on the reporting node. */
static bool cut_trees(GbdtJob *job, GError **error)
{
    const App *app = &job->app;
    const uint64_t n_rounds = job->n_loaded + app->validated.best_epoch;
    const RubatoKey first = gbdt_node_key(n_rounds * app_loss_n_scores(&job->loss), 0);
    g_autofree RubatoKey *keys = NULL;
    size_t n, n_kept = 0;

    gbdt_forest_clear(&job->forest);
    if (app->validated.best_epoch == 0)
        return true;
    if (!rubato_engine_list_keys(app->engine, GBDT_TREES, &keys, &n, error))
        return false;
    while (n_kept < n && keys[n_kept] < first)
        n_kept++;
    return rubato_engine_reset(app->engine, GBDT_TREES, keys + n_kept, n - n_kept, error);
}

static bool train_model(GbdtJob *job, const AppModel *model, GError **error)
{
    static const char *const tables[] = { GBDT_TREES, GBDT_HISTOGRAMS, NULL };
    App *app = &job->app;
    const RubatoTableSpec histograms = {
        .name = GBDT_HISTOGRAMS,
        .dtype = RUBATO_I64,
        .width = (uint32_t)GBDT_HISTOGRAM_WIDTH(gbdt_bins_n(&job->bins)),
        .n_keys = UINT64_C(1) << (job->depth - 1),
        .model = "bsp",
        .parts = app->parts,
    };
    const RubatoTask reading = { .name = "gbdt-read", .run = gbdt_read_share, .user_data = job };
    const RubatoTask task = {
        .name = "gbdt", .run = gbdt_train, .user_data = job, .tables = tables
    };

    job->n_shares = rubato_engine_n_workers(app->engine);
    job->shares = g_new0(GbdtShare, job->n_shares);
    return app_create_table(app, &histograms, error) &&
           rubato_engine_run(app->engine, &reading, error) &&
           app_train_validated(app, &task, job->rows.n_rows, model, validate, job, error) &&
           (!app_reports(app) || cut_trees(job, error));
}

static bool run(GbdtJob *job, GError **error)
{
    App *app = &job->app;
    g_autofree char *classes = app_loss_classes_text(&job->loss);
    char n_columns[16];
    const AppArray arrays[] = {
        { .name = GBDT_TREES,
          .spec = { .name = GBDT_TREES,
                    .dtype = RUBATO_F32,
                    .width = GBDT_NODE_WIDTH,
                    .storage = "hash" } },
        { .name = APP_SCALING, .spec = app_features_table() },
    };
    const AppSetting settings[] = {
        { "loss", app_loss_names[job->loss.kind] },
        { "columns", n_columns },
        { job->loss.kind == APP_LOSS_SOFTMAX ? "classes" : NULL, classes },
        { NULL, NULL },
    };
    const AppNumber numbers[] = {
        { "negative", &job->loss.negative },
        { "positive", &job->loss.positive },
        { NULL, NULL },
    };
    const AppModel model = {
        .arrays = arrays,
        .n_arrays = 1,
        .settings = settings,
        .numbers = numbers,
        .predict = predict,
        .user_data = job,
    };

    g_snprintf(n_columns, sizeof n_columns, "%u", job->bins.n_columns);
    return app_create_model(app, &model, error) && gbdt_count_loaded(job, error) &&
           (job->rows.train == NULL || app->epochs == 0 || train_model(job, &model, error)) &&
           app_add_score_metrics(app, &job->rows, &job->loss, score, job, error) &&
           app_finish(app, &model, error);
}

int main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    GbdtJob job;

    if (!gbdt_parse(&job, argc, argv))
        return APP_EXIT_USAGE;
    if (gbdt_register_handlers(&error) && app_start(&job.app, &error) && gbdt_load(&job, &error))
        (void)run(&job, &error); /* a failure is in error */
    return gbdt_end(&job, error);
}
