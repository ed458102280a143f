/* rubato-fm: factorisation machines on sparse rows, plain or field-aware.
 *
 * A step gets the rows of its batch's keys and adds their gradients; the servers apply the update
 * rule. Rows without any Add have their initial values, which depend on the seed. So a table holds
 * only the rows that the training data use.
 *
 * Each worker announces the keys of its batches ahead. So under sparse_ssp, workers whose batches
 * share no keys need not wait for each other. */
#include "apps/fm/fm_job.h"
#include "apps/kit/app_validation.h"
#include "apps/kit/scores/app_read_ahead.h"
#include "apps/kit/scores/app_score.h"

/* Rows need fields that the model has. */
static bool check_fields(const FmModel *model, const RubatoBatch *batch, GError **error)
{
    if (model->n_fields > 0 && batch->field == NULL && batch->n_entries > 0) {
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                            "rows have no fields: --ffm needs them, as libffm, csv and ratings "
                            "have them");
        return false;
    }
    return model->n_fields == 0 || app_rows_check_fields(batch, model->n_fields, error);
}

/* A worker's tables and memory. */
typedef struct {
    AppReadAhead *ahead;
    RubatoKVTable *bias;
    RubatoSparseKVClientTable *weights;
} Tables;

static const RubatoKey bias_key = FM_BIAS_KEY;
static const char *const table_names[] = { FM_BIAS, FM_WEIGHTS, NULL };

static bool get(const Tables *tables, FmWorkspace *workspace, GError **error)
{
    return rubato_kv_table_get(tables->bias, &bias_key, 1, workspace->bias, error) &&
           rubato_sparse_kv_client_table_get(tables->weights, workspace->weights, error);
}

/* Where rows are kept, the clock of the weights is not left to their next Get. */
static bool add(const Tables *tables, const FmWorkspace *workspace, bool keeps_rows, GError **error)
{
    return rubato_kv_table_add(tables->bias, &bias_key, 1, workspace->d_bias, error) &&
           rubato_kv_table_clock(tables->bias, error) &&
           rubato_sparse_kv_client_table_add(tables->weights, workspace->d_weights, error) &&
           (!keeps_rows || rubato_sparse_kv_client_table_clock(tables->weights, error));
}

static bool train_steps(const FmJob *job, const Tables *tables, AppWorker *self, GError **error)
{
    g_auto(FmWorkspace) workspace = { 0 };
    const RubatoBatch *batch;

    for (uint64_t step = 0; app_worker_goes_on(self); step++) {
        if ((batch = app_read_ahead_batch(tables->ahead, step)) == NULL)
            return app_read_ahead_ended(tables->ahead, error);
        if (!app_loss_check(&job->model.loss, job->rows.train, batch, error) ||
            !check_fields(&job->model, batch, error) ||
            !fm_workspace_fit(&workspace, &job->model, batch, error) ||
            !get(tables, &workspace, error))
            return false;
        if (job->model.l2 > 0)
            app_features_shares(job->rows.features, batch, job->rows.n_rows, workspace.share);
        /* Gradients are divided by the number of the whole step's rows, so that the workers'
         * gradients add up to the mean. */
        const FmTally tally = fm_gradient(&job->model, batch, &workspace, job->rows.scale);
        if (!app_worker_checkpoint(self, error) ||
            (job->rate_falls && !app_worker_lower_rate(self, table_names, batch->epoch, error)) ||
            !app_worker_begin_adds(self, error) ||
            !add(tables, &workspace, app_worker_keeps_rows(self), error) ||
            !app_worker_end_adds(self, batch->n_rows, error) ||
            !app_worker_step(self, batch->n_rows, tally.loss, (double)tally.n_right, error))
            return false;
    }
    return true;
}

static bool train(RubatoWorker *worker, void *user_data, GError **error)
{
    FmJob *job = user_data;

    g_autoptr(AppWorker) self = app_worker_new(&job->app, worker, error);
    if (self == NULL)
        return false;
    g_autoptr(AppReadAhead) ahead =
        app_rows_read(&job->rows, &job->app, &job->data, worker, self, error);
    if (ahead == NULL)
        return false;
    g_autoptr(RubatoKVTable) bias = rubato_worker_open_kv_table(worker, FM_BIAS, RUBATO_F32, error);
    if (bias == NULL)
        return false;
    g_autoptr(RubatoSparseKVClientTable) weights = rubato_worker_open_sparse_kv_client_table_with(
        worker, FM_WEIGHTS, RUBATO_F32, app_read_ahead_tell, ahead, error);
    if (weights == NULL)
        return false;
    return train_steps(job, &(Tables){ ahead, bias, weights }, self, error);
}

/* Scores of a batch by the weights as they are between tasks; an AppScoreFunc. */
static bool score(const RubatoBatch *batch, double *scores, void *user_data, GError **error)
{
    const FmJob *job = user_data;
    RubatoEngine *engine = job->app.engine;
    g_auto(FmWorkspace) workspace = { 0 };

    if (!check_fields(&job->model, batch, error) ||
        !fm_workspace_fit(&workspace, &job->model, batch, error) ||
        !rubato_engine_get(engine, FM_BIAS, &bias_key, 1, workspace.bias, error) ||
        !rubato_engine_get(engine, FM_WEIGHTS, batch->keys, batch->n_keys, workspace.weights,
                           error))
        return false;
    fm_score(&job->model, batch, &workspace, scores);
    return true;
}

/* An AppMeasureFunc. */
static bool validate(double *loss, void *user_data, GError **error)
{
    FmJob *job = user_data;

    return app_score_validation(&job->rows, &job->model.loss, score, job, loss, error);
}

static bool predict(const char *path, FILE *output, void *user_data, GError **error)
{
    FmJob *job = user_data;

    return app_print_predictions(output, &job->data, &job->rows, path, &job->model.loss, score, job,
                                 error);
}

enum { BIAS, WEIGHTS, SCALING, N_TABLES };

static void describe_tables(const FmJob *job, AppArray arrays[N_TABLES])
{
    const double scale = job->rows.scale;

    arrays[BIAS] = (AppArray){ .name = FM_BIAS,
                               .spec = app_rule_bias(&job->app, FM_BIAS, &job->rule, scale,
                                                     &job->model.loss) };
    arrays[WEIGHTS] =
        (AppArray){ .name = FM_WEIGHTS,
                    .spec = app_rule_table(&job->app, FM_WEIGHTS, &job->rule, scale) };
    arrays[SCALING] = (AppArray){ .name = APP_SCALING, .spec = app_features_table() };
    arrays[BIAS].spec.width = app_loss_n_scores(&job->model.loss);
    arrays[WEIGHTS].spec.width = (uint32_t)fm_width(&job->model);
    arrays[WEIGHTS].spec.init = "zero_normal"; /* linear terms begin at 0, those of each class */
    if (job->model.loss.kind == APP_LOSS_SOFTMAX)
        arrays[WEIGHTS].spec.init_zero_every = 1 + job->model.n_factors;
    arrays[WEIGHTS].spec.init_stddev = job->init_stddev;
    arrays[WEIGHTS].spec.max_bytes = (uint64_t)job->max_mib << 20;
    arrays[WEIGHTS].spec.evict = job->evict;
    if (job->admit_count > 0) {
        arrays[WEIGHTS].spec.admit = "count";
        arrays[WEIGHTS].spec.admit_count = (uint32_t)job->admit_count;
    }
}

static bool run(FmJob *job, GError **error)
{
    App *app = &job->app;
    AppRows *rows = &job->rows;
    AppArray arrays[N_TABLES];
    char n_factors[16];
    g_autofree char *classes = app_loss_classes_text(&job->model.loss);
    const bool has_classes = job->model.loss.kind == APP_LOSS_SOFTMAX;
    const char *const scaling = app_rows_setting(rows); /* NULL: there is none */
    const AppSetting settings[] = {
        { "loss", app_loss_names[job->model.loss.kind] },
        { "factors", n_factors },
        { "field_aware", job->model.n_fields > 0 ? "yes" : "no" },
        { has_classes ? "classes" : scaling, has_classes ? classes : "yes" },
        { has_classes ? scaling : NULL, "yes" },
        { NULL, NULL },
    };
    const AppNumber numbers[] = {
        { "negative", &job->model.loss.negative },
        { "positive", &job->model.loss.positive },
        { NULL, NULL },
    };
    const AppModel model = {
        .arrays = arrays,
        .n_arrays = rows->standardised ? N_TABLES : SCALING,
        .settings = settings,
        .numbers = numbers,
        .predict = predict,
        .user_data = job,
    };
    const RubatoTask task = { .name = "fm", .run = train, .user_data = job, .tables = table_names };

    g_snprintf(n_factors, sizeof n_factors, "%u", job->model.n_factors);
    describe_tables(job, arrays);
    return app_create_model(app, &model, error) && app_rows_settle(rows, app, error) &&
           (rows->train == NULL ||
            app_train_validated(app, &task, rows->n_rows, &model, validate, job, error)) &&
           app_add_score_metrics(app, rows, &job->model.loss, score, job, error) &&
           app_finish(app, &model, error);
}

int main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    FmJob job;

    if (!fm_parse(&job, argc, argv))
        return APP_EXIT_USAGE;
    if (app_start(&job.app, &error) && fm_load(&job, &error))
        (void)run(&job, &error); /* a failure is in error */
    return fm_end(&job, error);
}
