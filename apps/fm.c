/* rubato-fm: factorisation machines on sparse rows, plain or field-aware.
 *
 * A step gets the rows of its batch's keys and adds their gradients; the servers apply the update
 * rule. Rows that nobody has added to have their initial values, which follow from the seed: so a
 * table holds what the training rows use, and no more.
 *
 * The keys of a batch each worker tells ahead of time, so that under sparse_ssp workers whose
 * batches share none need not wait for each other. */
#include <string.h>

#include "apps/app_ahead.h"
#include "apps/fm_job.h"

#define RATE_CHANGES 50 /* of a run */

typedef struct {
    AppAhead *ahead;
    RubatoKVTable *bias;
    RubatoSparseKVClientTable *linear, *factors;
} Tables;

static const RubatoKey bias_key = FM_BIAS_KEY;
static const char *const table_names[] = { FM_BIAS, FM_LINEAR, FM_FACTORS, NULL };

static bool get(const Tables *tables, FmWorkspace *workspace, GError **error)
{
    return rubato_kv_table_get(tables->bias, &bias_key, 1, &workspace->bias, error) &&
           rubato_sparse_kv_client_table_get(tables->linear, workspace->linear, error) &&
           rubato_sparse_kv_client_table_get(tables->factors, workspace->factors, error);
}

static bool add(const Tables *tables, const FmWorkspace *workspace, GError **error)
{
    return rubato_kv_table_add(tables->bias, &bias_key, 1, &workspace->d_bias, error) &&
           rubato_kv_table_clock(tables->bias, error) &&
           rubato_sparse_kv_client_table_add(tables->linear, workspace->d_linear, error) &&
           rubato_sparse_kv_client_table_add(tables->factors, workspace->d_factors, error);
}

/* Worker 0 lowers the learning rate now and then, for everybody. Not that of "ftrl": it is part of how
 * weights follow from the gradients so far, and all of them would shrink. */
static bool lower_rate(const FmJob *job, RubatoWorker *worker, uint64_t step, GError **error)
{
    const uint64_t n_steps = MAX(1, job->n_rows * job->app.epochs / job->app.batch_size);

    if (rubato_worker_rank(worker) != 0 || step == 0 || step > n_steps ||
        step % (n_steps / RATE_CHANGES + 1) != 0 || strcmp(job->rule, "ftrl") == 0)
        return true;
    const double rate = app_learning_rate(&job->app, step, n_steps);
    for (size_t i = 0; table_names[i] != NULL; i++)
        if (!rubato_worker_tune(worker, table_names[i], RUBATO_LEARNING_RATE, rate, error))
            return false;
    return true;
}

static bool train_steps(FmJob *job, RubatoWorker *worker, const Tables *tables, AppWorker *self,
                        GError **error)
{
    g_auto(FmWorkspace) workspace = { 0 };
    const RubatoBatch *batch;

    for (uint64_t step = 0; app_worker_goes_on(self); step++) {
        if ((batch = app_ahead_batch(tables->ahead, step)) == NULL)
            return app_ahead_ended(tables->ahead, error);
        if (!fm_check_batch(job, batch, error) ||
            !fm_workspace_fit(&workspace, &job->model, batch, error) ||
            !lower_rate(job, worker, step, error) || !get(tables, &workspace, error))
            return false;
        /* Divided by the whole step's rows: the workers' gradients add up to their mean. */
        const FmTally tally =
            fm_gradient(&job->model, batch, &workspace, 1.0 / job->app.batch_size);
        if (!add(tables, &workspace, error) ||
            !app_worker_step(self, batch->n_rows, tally.loss, (double)tally.n_right, error))
            return false;
    }
    return true;
}

static bool train(RubatoWorker *worker, void *user_data, GError **error)
{
    FmJob *job = user_data;
    const RubatoReaderOptions options =
        app_data_reader_options(&job->app, &job->data, rubato_worker_n_workers(worker));

    g_autoptr(AppWorker) self = app_worker_new(&job->app, worker, error);
    if (self == NULL)
        return false;
    g_autoptr(AppAhead) ahead =
        app_ahead_new(rubato_worker_open_reader(worker, job->train, &options, error),
                      MAX(1, job->app.speculation));
    if (ahead == NULL)
        return false;
    g_autoptr(RubatoKVTable) bias = rubato_worker_open_kv_table(worker, FM_BIAS, RUBATO_F32, error);
    if (bias == NULL)
        return false;
    g_autoptr(RubatoSparseKVClientTable) linear = rubato_worker_open_sparse_kv_client_table_with(
        worker, FM_LINEAR, RUBATO_F32, app_ahead_tell, ahead, error);
    if (linear == NULL)
        return false;
    g_autoptr(RubatoSparseKVClientTable) factors = rubato_worker_open_sparse_kv_client_table_with(
        worker, FM_FACTORS, RUBATO_F32, app_ahead_tell, ahead, error);
    if (factors == NULL)
        return false;
    return train_steps(job, worker, &(Tables){ ahead, bias, linear, factors }, self, error);
}

enum { BIAS, LINEAR, FACTORS, N_TABLES };

static void describe_tables(const FmJob *job, AppArray arrays[N_TABLES])
{
    const App *app = &job->app;
    const RubatoTableSpec common = {
        .dtype = RUBATO_F32,
        .update = job->rule,
        .rule = { .learning_rate = app->learning_rate, .l1 = job->l1 },
        .aggregate = strcmp(app->model, "bsp") == 0 ? RUBATO_AGGREGATE_SUM : RUBATO_AGGREGATE_NONE,
        .seed = app->seed,
    };

    for (size_t i = 0; i < N_TABLES; i++) {
        arrays[i] = (AppArray){ .name = table_names[i], .spec = common };
        arrays[i].spec.name = table_names[i];
        arrays[i].spec.storage = i == BIAS ? "dense" : "hash";
    }
    arrays[BIAS].spec.n_keys = 1;
    arrays[BIAS].spec.init_value = job->start;
    if (strcmp(app->model, "sparse_ssp") == 0) { /* every step uses it, which would hold all up */
        arrays[BIAS].spec.model = "ssp";
        arrays[BIAS].spec.staleness = app->staleness + app->speculation;
    }
    arrays[FACTORS].spec.width = (uint32_t)fm_width(&job->model);
    arrays[FACTORS].spec.init = "normal";
    arrays[FACTORS].spec.init_stddev = job->init_stddev;
}

static bool run(FmJob *job, GError **error)
{
    App *app = &job->app;
    AppArray arrays[N_TABLES];
    char n_factors[16];
    const AppSetting settings[] = {
        { "loss", job->model.loss == FM_LOGISTIC ? "logistic" : "squared" },
        { "factors", n_factors },
        { "field_aware", job->model.n_fields > 0 ? "yes" : "no" },
        { NULL, NULL },
    };
    const AppNumber numbers[] = {
        { "negative", &job->negative },
        { "positive", &job->positive },
        { NULL, NULL },
    };
    const AppModel model = {
        .arrays = arrays,
        .n_arrays = N_TABLES,
        .settings = settings,
        .numbers = numbers,
        .predict = fm_predict,
        .user_data = job,
    };
    const RubatoTask task = { .name = "fm", .run = train, .user_data = job, .tables = table_names };

    g_snprintf(n_factors, sizeof n_factors, "%u", job->model.n_factors);
    describe_tables(job, arrays);
    return app_start(app, error) && app_create_model(app, &model, error) &&
           (job->train == NULL || (app_train(app, &task, job->n_rows, error) &&
                                   (!app_speaks(app) || fm_evaluate(job, error)))) &&
           app_finish(app, &model, error);
}

int main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    FmJob job;

    if (!fm_parse(&job, argc, argv))
        return APP_EXIT_USAGE;
    if (fm_load(&job, &error))
        (void)run(&job, &error); /* what fails is in error */
    return fm_end(&job, error);
}
