/* rubato-lr: linear models on sparse rows.
 *
 * A step gets the weights of its batch's keys and adds their gradients; the servers apply the
 * update rule. Weights without any Add are 0 and take no room, so any 64-bit key will do.
 *
 * Each worker announces the keys of its batches ahead. So under sparse_ssp, workers whose batches
 * share no keys need not wait for each other. Every step uses the bias, which is therefore a table
 * of its own. */
#include "apps/kit/app_validation.h"
#include "apps/kit/scores/app_read_ahead.h"
#include "apps/kit/scores/app_score.h"
#include "apps/lr/lr_job.h"

static const RubatoKey bias_key = 0;

/* A worker's tables and memory. */
typedef struct {
    RubatoWorker *worker;
    const LrJob *job;
    AppReadAhead *ahead;
    RubatoSparseKVClientTable *weights;
    RubatoKVTable *bias; /* NULL: none */
} Tables;

/* Asks for the bias and, while the answer is on its way, for the weights. */
static bool get(const Tables *tables, LrWorkspace *workspace, GError **error)
{
    RubatoTicket ticket = 0;

    if (tables->bias != NULL) {
        ticket =
            rubato_kv_table_get_async(tables->bias, &bias_key, 1, workspace->bias, NULL, error);
        if (ticket == 0)
            return false;
    }
    const bool good = rubato_sparse_kv_client_table_get(tables->weights, workspace->weights, error);
    /* In any case, because until then the bias may be written to. */
    return (ticket == 0 || rubato_worker_wait(tables->worker, ticket, good ? error : NULL)) && good;
}

/* Where rows are kept, the clock of the weights is not left to their next Get. */
static bool add(const Tables *tables, const LrWorkspace *workspace, bool keeps_rows, GError **error)
{
    if (tables->bias != NULL &&
        (!rubato_kv_table_add(tables->bias, &bias_key, 1, workspace->d_bias, error) ||
         !rubato_kv_table_clock(tables->bias, error)))
        return false;
    return rubato_sparse_kv_client_table_add(tables->weights, workspace->d_weights, error) &&
           (!keeps_rows || rubato_sparse_kv_client_table_clock(tables->weights, error));
}

static bool train_steps(const Tables *tables, AppWorker *self, GError **error)
{
    const LrJob *job = tables->job;
    g_auto(LrWorkspace) workspace = { 0 };
    const RubatoBatch *batch;

    for (uint64_t step = 0; app_worker_goes_on(self); step++) {
        if ((batch = app_read_ahead_batch(tables->ahead, step)) == NULL)
            return app_read_ahead_ended(tables->ahead, error);
        if (!app_loss_check(&job->model.loss, job->rows.train, batch, error) ||
            !lr_workspace_fit(&workspace, &job->model, batch, error) ||
            !get(tables, &workspace, error))
            return false;
        /* Gradients are divided by the number of the whole step's rows, so that the workers'
         * gradients add up to the mean. */
        if (job->model.l2 > 0)
            app_features_shares(job->rows.features, batch, job->rows.n_rows, workspace.share);
        const LrTally tally = lr_gradient(&job->model, batch, &workspace, job->rows.scale);
        if (!app_worker_checkpoint(self, error) ||
            (job->rate_falls && !app_worker_lower_rate(self, job->tables, batch->epoch, error)) ||
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
    LrJob *job = user_data;
    g_autoptr(RubatoKVTable) bias = NULL;

    g_autoptr(AppWorker) self = app_worker_new(&job->app, worker, error);
    if (self == NULL)
        return false;
    g_autoptr(AppReadAhead) ahead =
        app_rows_read(&job->rows, &job->app, &job->data, worker, self, error);
    if (ahead == NULL)
        return false;
    if (job->has_bias) {
        bias = rubato_worker_open_kv_table_cached(worker, LR_BIAS, RUBATO_F32, error);
        if (bias == NULL)
            return false;
    }
    g_autoptr(RubatoSparseKVClientTable) weights = rubato_worker_open_sparse_kv_client_table_with(
        worker, LR_WEIGHTS, RUBATO_F32, app_read_ahead_tell, ahead, error);
    return weights != NULL &&
           train_steps(&(Tables){ worker, job, ahead, weights, bias }, self, error);
}

/* Scores of a batch by the weights as they are between tasks; an AppScoreFunc. */
static bool score(const RubatoBatch *batch, double *scores, void *user_data, GError **error)
{
    const LrJob *job = user_data;
    RubatoEngine *engine = job->app.engine;
    g_auto(LrWorkspace) workspace = { 0 };

    if (!lr_workspace_fit(&workspace, &job->model, batch, error) ||
        (job->has_bias &&
         !rubato_engine_get(engine, LR_BIAS, &bias_key, 1, workspace.bias, error)) ||
        !rubato_engine_get(engine, LR_WEIGHTS, batch->keys, batch->n_keys, workspace.weights,
                           error))
        return false;
    lr_score(batch, &workspace, scores);
    return true;
}

/* Calls a handler on the weights. */
static bool call_on_weights(const LrJob *job, const char *handler, RubatoByteReader *reader,
                            GBytes **result, GError **error)
{
    const RubatoHandlerCall call = { .table = LR_WEIGHTS, .handler = handler };

    if (!rubato_engine_call_handler(job->app.engine, &call, result, error))
        return false;
    *reader = rubato_byte_reader_of(*result);
    return true;
}

/* How large the model is: the servers find out, and no weight moves. */
static bool add_weight_metrics(LrJob *job, GError **error)
{
    g_autoptr(GBytes) norm = NULL;
    g_autoptr(GBytes) counts = NULL;
    RubatoByteReader reader;

    if (!app_reports(&job->app) || (job->rows.train == NULL && job->rows.test == NULL))
        return true;
    if (!call_on_weights(job, "norm", &reader, &norm, error))
        return false;
    app_add_metric(&job->app, "weights_norm", rubato_read_f64(&reader));
    if (!call_on_weights(job, "count", &reader, &counts, error))
        return false;
    (void)rubato_read_u64(&reader); /* rows */
    app_add_metric(&job->app, "nonzero_weights", (double)rubato_read_u64(&reader));
    return true;
}

/* An AppMeasureFunc. */
static bool validate(double *loss, void *user_data, GError **error)
{
    LrJob *job = user_data;

    return app_score_validation(&job->rows, &job->model.loss, score, job, loss, error);
}

static bool predict(const char *path, FILE *output, void *user_data, GError **error)
{
    LrJob *job = user_data;

    return app_print_predictions(output, &job->data, &job->rows, path, &job->model.loss, score, job,
                                 error);
}

static bool run(LrJob *job, GError **error)
{
    App *app = &job->app;
    AppRows *rows = &job->rows;
    g_autofree char *classes = app_loss_classes_text(&job->model.loss);
    size_t n_arrays = 0;
    const AppRule bias_rule = { .kind = job->rule.kind,
                                .name = job->rule.name }; /* it has no penalty */
    AppArray arrays[3];
    AppSetting settings[5] = {
        { "loss", app_loss_names[job->model.loss.kind] },
        { "bias", job->has_bias ? "yes" : "no" },
    };
    size_t n_settings = 2;
    const AppNumber numbers[] = {
        { "negative", &job->model.loss.negative },
        { "positive", &job->model.loss.positive },
        { NULL, NULL },
    };

    arrays[n_arrays++] =
        (AppArray){ .name = LR_WEIGHTS,
                    .spec = app_rule_table(app, LR_WEIGHTS, &job->rule, rows->scale) };
    if (job->has_bias)
        arrays[n_arrays++] = (AppArray){ .name = LR_BIAS,
                                         .spec = app_rule_bias(app, LR_BIAS, &bias_rule,
                                                               rows->scale, &job->model.loss) };
    for (size_t i = 0; i < n_arrays; i++)
        arrays[i].spec.width = app_loss_n_scores(&job->model.loss);
    if (job->model.loss.kind == APP_LOSS_SOFTMAX)
        settings[n_settings++] = (AppSetting){ "classes", classes };
    if (rows->standardised) {
        settings[n_settings++] = (AppSetting){ app_rows_setting(rows), "yes" };
        arrays[n_arrays++] = (AppArray){ .name = APP_SCALING, .spec = app_features_table() };
    }
    const AppModel model = {
        .arrays = arrays,
        .n_arrays = n_arrays,
        .settings = settings,
        .numbers = numbers,
        .predict = predict,
        .user_data = job,
    };
    const RubatoTask task = { .name = "lr", .run = train, .user_data = job, .tables = job->tables };

    return app_create_model(app, &model, error) && app_rows_settle(rows, app, error) &&
           (rows->train == NULL ||
            app_train_validated(app, &task, rows->n_rows, &model, validate, job, error)) &&
           app_add_score_metrics(app, rows, &job->model.loss, score, job, error) &&
           add_weight_metrics(job, error) && app_finish(app, &model, error);
}

int main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    LrJob job;

    if (!lr_parse(&job, argc, argv))
        return APP_EXIT_USAGE;
    if (app_start(&job.app, &error) && lr_load(&job, &error))
        (void)run(&job, &error); /* a failure is in error */
    return lr_end(&job, error);
}
