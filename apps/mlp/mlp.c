/* rubato-mlp: multi-layer perceptrons on rows of classes, which the workers keep in memory as dense
 * matrices.
 *
 * Each layer is a dense table: a row for each of its units, with the unit's bias and a weight for
 * each input. mlp_train.c has what workers do with them. */
#include <math.h>
#include <rubato/mix.h>

#include "apps/kit/app_validation.h"
#include "apps/kit/scores/app_score.h"
#include "apps/mlp/mlp_job.h"
#include "apps/mlp/mlp_products.h"

/* ---- scores ---- */

static void free_weights(float **weights)
{
    for (uint32_t l = 0; l < MLP_LAYERS_MAX; l++)
        g_free(weights[l]);
}

/* The weights as they are between tasks; free_weights in any case. */
static bool get_weights(const MlpJob *job, float **weights, GError **error)
{
    for (uint32_t l = 0; l < job->shape.n_layers; l++) {
        weights[l] = g_try_new(float, mlp_layer_values(&job->shape, l));
        if (weights[l] == NULL) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no memory for %s",
                        job->layers[l]);
            return false;
        }
        if (!rubato_engine_get_range(job->app.engine, job->layers[l], 0, job->shape.sizes[l + 1],
                                     weights[l], error))
            return false;
    }
    return true;
}

/* Rows as a matrix. A key that is no column was never trained on, and counts for nothing. */
static void put_rows(const MlpJob *job, const RubatoBatch *batch, float *matrix)
{
    const size_t n_columns = job->shape.sizes[0];

    for (size_t i = 0; i < batch->n_rows * n_columns; i++)
        matrix[i] = 0;
    for (size_t r = 0; r < batch->n_rows; r++)
        for (size_t e = batch->row_start[r]; e < batch->row_start[r + 1]; e++) {
            const RubatoKey key = batch->keys[batch->index[e]];

            if (key < n_columns)
                matrix[r * n_columns + key] += batch->value[e];
        }
}

/* An AppScoreFunc. */
static bool score(const RubatoBatch *batch, double *scores, void *user_data, GError **error)
{
    const MlpJob *job = user_data;
    float *weights[MLP_LAYERS_MAX] = { NULL };
    g_auto(MlpWorkspace) workspace = { .shape = NULL };
    const bool good = mlp_workspace_init(&workspace, &job->shape, batch->n_rows, error) &&
                      get_weights(job, weights, error);

    if (good) {
        put_rows(job, batch, workspace.outputs[0]);

        const float *found = mlp_scores(&workspace, weights, batch->n_rows);

        for (size_t i = 0; i < batch->n_rows * job->loss.n_classes; i++)
            scores[i] = (double)found[i];
    }
    free_weights(weights);
    return good;
}

/* An AppMeasureFunc. */
static bool validate(double *loss, void *user_data, GError **error)
{
    MlpJob *job = user_data;

    return app_score_validation(&job->rows, &job->loss, score, job, loss, error);
}

static bool predict(const char *path, FILE *output, void *user_data, GError **error)
{
    MlpJob *job = user_data;

    return app_print_predictions(output, &job->data, &job->rows, path, &job->loss, score, job,
                                 error);
}

/* ---- tables ---- */

/* Weights begin as numbers around 0 whose variance is 2 / inputs (He and others: Delving Deep into
 * Rectifiers, ICCV 2015), biases as 0. */
static RubatoTableSpec layer_spec(const MlpJob *job, uint32_t layer)
{
    const uint32_t n_inputs = job->shape.sizes[layer];
    RubatoTableSpec spec = {
        .name = job->layers[layer],
        .dtype = RUBATO_F32,
        .width = n_inputs + 1,
        .n_keys = job->shape.sizes[layer + 1],
        .init = "zero_normal",
        .init_stddev = sqrt(2.0 / n_inputs),
        .seed = rubato_mix64(job->app.seed + rubato_mix64(layer + 1)),
    };

    if (job->by_allreduce) {
        spec.model = "asp";
        spec.update = "assign";
        return spec;
    }
    spec.update = mlp_rule_names[job->rule];
    spec.rule.learning_rate = job->app.learning_rate;
    if (job->app.model_traits->applies_by_clock)
        spec.aggregate = RUBATO_AGGREGATE_SUM;
    return spec;
}

/* By allreduce: what the rule keeps, for snapshots. */
static bool create_states(const MlpJob *job, GError **error)
{
    const uint32_t n_states = job->by_allreduce ? mlp_rule_n_states(job->rule) : 0;

    for (uint32_t l = 0; n_states > 0 && l < job->shape.n_layers; l++) {
        const RubatoTableSpec spec = {
            .name = job->states[l],
            .dtype = RUBATO_F32,
            .width = job->shape.sizes[l] + 1,
            .n_keys = (uint64_t)n_states * job->shape.sizes[l + 1],
            .parts = job->app.parts,
            .model = "asp",
            .update = "assign",
        };

        if (!app_create_table(&job->app, &spec, error))
            return false;
    }
    return true;
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
    return create_states(job, error) &&
           app_train_validated(app, &task, job->rows.n_rows, model, validate, job, error);
}

static bool run(MlpJob *job, GError **error)
{
    App *app = &job->app;
    g_autofree char *classes = app_loss_classes_text(&job->loss);
    AppArray arrays[MLP_LAYERS_MAX + 1];
    size_t n_arrays = 0;
    const AppSetting settings[] = {
        { "hidden", job->hidden },
        { "classes", classes },
        { app_rows_setting(&job->rows), "yes" },
        { NULL, NULL },
    };

    for (uint32_t l = 0; l < job->shape.n_layers; l++)
        arrays[n_arrays++] = (AppArray){ job->layers[l], layer_spec(job, l) };
    if (job->rows.standardised)
        arrays[n_arrays++] = (AppArray){ APP_SCALING, app_features_table() };
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
    mlp_products_begin();
    if (app_start(&job.app, &error) && mlp_load(&job, &error))
        (void)run(&job, &error); /* a failure is in error */
    return mlp_end(&job, error);
}
