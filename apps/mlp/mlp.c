/* rubato-mlp: multi-layer perceptrons on rows of classes, which the workers keep in memory as dense
 * matrices.
 *
 * Each layer is a dense table: a row for each of its units, with the unit's bias and a weight for
 * each input. mlp_train.c has what workers do with them. */
#include "apps/kit/app_validation.h"
#include "apps/kit/net/app_products.h"
#include "apps/kit/scores/app_score.h"
#include "apps/mlp/mlp_job.h"

/* ---- scores ---- */

/* Rows as a matrix. A key that is no column was never trained on, and counts for nothing. */
static void put_rows(const MlpJob *job, const RubatoBatch *batch, float *matrix)
{
    const size_t n_columns = job->layers.shape.sizes[0];

    for (size_t i = 0; i < batch->n_rows * n_columns; i++)
        matrix[i] = 0;
    for (size_t r = 0; r < batch->n_rows; r++)
        for (size_t e = batch->row_start[r]; e < batch->row_start[r + 1]; e++) {
            const RubatoKey key = batch->keys[batch->index[e]];

            if (key < n_columns)
                matrix[r * n_columns + key] += batch->value[e];
        }
}

/* An AppScoreFunc. The weights are fetched with the first batch, and forgotten when they change. */
static bool score(const RubatoBatch *batch, double *scores, void *user_data, GError **error)
{
    MlpJob *job = user_data;
    g_auto(AppNetWorkspace) workspace = { .shape = NULL };
    const bool good =
        app_net_workspace_init(&workspace, &job->layers.shape, batch->n_rows, error) &&
        app_layers_fetch(&job->layers, &job->app, job->weights, error);

    if (good) {
        put_rows(job, batch, workspace.outputs[0]);

        const float *found = app_net_scores(&workspace, job->weights, batch->n_rows);

        for (size_t i = 0; i < batch->n_rows * job->loss.n_classes; i++)
            scores[i] = (double)found[i];
    }
    return good;
}

/* An AppMeasureFunc. */
static bool validate(double *loss, void *user_data, GError **error)
{
    MlpJob *job = user_data;

    app_layers_forget(job->weights);
    return app_score_validation(&job->rows, &job->loss, score, job, loss, error);
}

static bool predict(const char *path, FILE *output, void *user_data, GError **error)
{
    MlpJob *job = user_data;

    return app_print_predictions(output, &job->data, &job->rows, path, &job->loss, score, job,
                                 error);
}

/* ---- the run ---- */

static bool train_model(MlpJob *job, const AppModel *model, GError **error)
{
    App *app = &job->app;
    const RubatoTask task = {
        .name = "mlp", .run = mlp_train, .user_data = job, .tables = job->tables
    };

    if (job->rows.train == NULL || app->epochs == 0)
        return true;
    job->n_shares = rubato_engine_n_workers(app->engine);
    job->shares = g_new0(MlpShare, job->n_shares);
    const bool good =
        app_train_validated(app, &task, job->rows.n_rows, model, validate, job, error);
    app_layers_forget(job->weights);
    return good;
}

static bool run(MlpJob *job, GError **error)
{
    App *app = &job->app;
    g_autofree char *classes = app_loss_classes_text(&job->loss);
    AppArray arrays[APP_LAYERS_TABLES_MAX + 1];
    size_t n_arrays = app_layers_describe(&job->layers, app, arrays);
    const AppSetting settings[] = {
        { "hidden", job->hidden },
        { "classes", classes },
        { app_rows_setting(&job->rows), "yes" },
        { NULL, NULL },
    };

    if (job->rows.standardised)
        arrays[n_arrays++] = (AppArray){ .name = APP_SCALING, .spec = app_features_table() };
    const AppModel model = {
        .arrays = arrays,
        .n_arrays = n_arrays,
        .settings = settings,
        .predict = predict,
        .user_data = job,
    };

    return app_create_model(app, &model, error) && app_rows_settle(&job->rows, app, error) &&
           train_model(job, &model, error) &&
           app_add_score_metrics(app, &job->rows, &job->loss, score, job, error) &&
           app_finish(app, &model, error);
}

int main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    MlpJob job;

    if (!mlp_parse(&job, argc, argv))
        return APP_EXIT_USAGE;
    app_products_begin();
    if (app_start(&job.app, &error) && mlp_load(&job, &error))
        (void)run(&job, &error); /* a failure is in error */
    return mlp_end(&job, error);
}
