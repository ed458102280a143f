/* What workers do in each step.
 *
 * A worker gets the wide weights and the embeddings of its batch's keys, which lie in hash tables,
 * and takes the gradient over its rows. It adds that of its keys to the tables, whose servers apply
 * the rule once in each step, to the sum of all workers. The gradients of the net go to all workers
 * by allreduce, and each worker applies the rule to the net that it has (app_weights.h).
 *
 * Workers may have different numbers of rows. So one that has no more goes on without any, until no
 * worker has rows: beside the gradients they tell each other how many have, and how many are to
 * stop. */
#include "apps/kit/net/app_weights.h"
#include "apps/wide-deep/wide_deep_job.h"

/* What workers tell each other in a step, as sums. */
enum { WITH_ROWS, STOPPING, N_ROWS, N_TOLD };

/* A worker while it trains. */
typedef struct {
    const WideDeepJob *job;
    AppWorker *self;
    RubatoWorker *worker;
    AppReadAhead *ahead;
    RubatoKVTable *wide, *embeddings; /* NULL: the model has no such part */
    AppWeights layers;
    WideDeepWorkspace workspace;
    double rows_before; /* of all workers, in earlier epochs and in this task's steps so far */
    double told[N_TOLD];
} Training;

static void training_clear(Training *it)
{
    rubato_kv_table_free(it->wide);
    rubato_kv_table_free(it->embeddings);
    app_weights_clear(&it->layers);
    wide_deep_workspace_clear(&it->workspace);
    app_read_ahead_free(it->ahead);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Training, training_clear)

static bool open_table(const Training *it, const char *name, RubatoKVTable **table, GError **error)
{
    *table = rubato_worker_open_kv_table(it->worker, name, RUBATO_F32, error);
    return *table != NULL;
}

static bool count_before(Training *it, GError **error)
{
    const App *const app = &it->job->app;
    const uint64_t n_rows = it->job->rows.n_rows;
    const uint64_t epochs = app->only_epoch > 0 ? app->only_epoch - 1 : 0;
    double n_skipped = (double)app_worker_n_rows(it->self);
    const RubatoTensor tensor = {
        .name = "skipped", .dtype = RUBATO_F64, .input = &n_skipped, .output = &n_skipped
    };

    if (!rubato_worker_allreduce(it->worker, &tensor, /* reduce= */ NULL, error))
        return false;
    it->rows_before = (double)epochs * (double)n_rows + n_skipped;
    return true;
}

static bool begin(Training *it, GError **error)
{
    const WideDeepJob *const job = it->job;

    it->ahead = app_rows_read(&job->rows, &job->app, &job->data, it->worker, it->self, error);
    return it->ahead != NULL &&
           (!job->model.has_wide || open_table(it, WIDE_DEEP_WIDE, &it->wide, error)) &&
           (!job->model.has_deep || open_table(it, WIDE_DEEP_EMBEDDINGS, &it->embeddings, error)) &&
           app_weights_open(&it->layers, &job->layers, it->worker, error) &&
           app_weights_get(&it->layers, error) && app_weights_get_states(&it->layers, error) &&
           count_before(it, error);
}

/* ---- a step ---- */

/* A batch that has no rows if there are no more. NULL: an error. */
static const RubatoBatch *next_batch(const Training *it, uint64_t step, GError **error)
{
    static const size_t row_start[] = { 0 };
    static const RubatoBatch none = { .row_start = row_start };
    const RubatoBatch *const batch = app_read_ahead_batch(it->ahead, step);

    if (batch == NULL)
        return app_read_ahead_ended(it->ahead, error) ? &none : NULL;
    return app_loss_check(&it->job->model.loss, it->job->rows.train, batch, error) ? batch : NULL;
}

/* Asks for both tables' rows at once, and waits for all that was asked for. */
static bool get_rows(Training *it, const RubatoBatch *batch, GError **error)
{
    const struct {
        RubatoKVTable *table;
        const RubatoKey *keys;
        size_t n;
        float *rows;
    } gets[] = {
        { it->wide, it->workspace.wide_keys, it->workspace.n_wide, it->workspace.wide },
        { it->embeddings, batch->keys, batch->n_keys, it->workspace.embeddings },
    };
    RubatoTicket tickets[G_N_ELEMENTS(gets)] = { 0 };
    bool good = true;

    for (size_t i = 0; good && i < G_N_ELEMENTS(gets); i++) {
        if (gets[i].table == NULL || gets[i].n == 0)
            continue;
        tickets[i] = rubato_kv_table_get_async(gets[i].table, gets[i].keys, gets[i].n, gets[i].rows,
                                               /* options= */ NULL, error);
        good = tickets[i] != 0;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(gets); i++)
        if (tickets[i] != 0)
            good = rubato_worker_wait(it->worker, tickets[i], good ? error : NULL) && good;
    return good;
}

/* Also without rows a worker clocks, so that it holds up nobody. */
static bool add_rows(const Training *it, const RubatoBatch *batch, GError **error)
{
    const bool adds = batch->n_rows > 0;

    return (it->wide == NULL ||
            ((!adds || rubato_kv_table_add(it->wide, it->workspace.wide_keys, it->workspace.n_wide,
                                           it->workspace.d_wide, error)) &&
             rubato_kv_table_clock(it->wide, error))) &&
           (it->embeddings == NULL ||
            ((!adds || rubato_kv_table_add(it->embeddings, batch->keys, batch->n_keys,
                                           it->workspace.d_embeddings, error)) &&
             rubato_kv_table_clock(it->embeddings, error)));
}

static bool combine(Training *it, GError **error)
{
    RubatoTensor tensors[APP_NET_LAYERS_MAX + 1];
    const size_t n = app_weights_tensors(&it->layers, tensors);

    tensors[n] = (RubatoTensor){ .name = "told",
                                 .dtype = RUBATO_F64,
                                 .n_dims = 1,
                                 .shape = { N_TOLD },
                                 .input = it->told,
                                 .output = it->told };
    return rubato_worker_allreduce_group(it->worker, tensors, n + 1, /* reduce= */ NULL, error);
}

/* By the rows of all workers; so the rate does not depend on time, nor on who has which rows. */
static uint64_t rate_step(const Training *it)
{
    const double all = (double)it->job->rows.n_rows * it->job->app.epochs;

    return (uint64_t)(MIN(it->rows_before / all, 1) * APP_RATE_STEPS);
}

static bool take_step(Training *it, uint64_t step, GError **error)
{
    const WideDeepJob *const job = it->job;
    const bool stops = !app_worker_goes_on(it->self);
    const RubatoBatch *const batch = next_batch(it, step, error);

    if (batch == NULL || !app_rows_check_fields(batch, job->model.n_fields, error) ||
        !wide_deep_workspace_fit(&it->workspace, &job->model, batch, error) ||
        (batch->n_rows > 0 && !get_rows(it, batch, error)))
        return false;
    const WideDeepTally tally =
        wide_deep_gradient(&job->model, batch, &it->workspace, it->layers.weights,
                           (float)job->rows.scale, it->layers.gradients);
    it->told[WITH_ROWS] = batch->n_rows > 0;
    it->told[STOPPING] = stops;
    it->told[N_ROWS] = (double)batch->n_rows;
    if (!app_worker_checkpoint(it->self, error) ||
        !app_worker_lower_rate_to(it->self, job->hash_tables, rate_step(it), error) ||
        !app_worker_begin_adds(it->self, error) || !add_rows(it, batch, error) ||
        !app_worker_end_adds(it->self, batch->n_rows, error) || !combine(it, error))
        return false;
    app_weights_step(&it->layers, app_learning_rate(&job->app, rate_step(it), APP_RATE_STEPS));
    it->rows_before += it->told[N_ROWS];
    return app_worker_step(it->self, batch->n_rows, tally.loss, (double)tally.n_right, error);
}

bool wide_deep_train(RubatoWorker *worker, void *user_data, GError **error)
{
    WideDeepJob *const job = user_data;
    g_autoptr(AppWorker) self = app_worker_new(&job->app, worker, error);
    g_auto(Training) it = { .job = job, .self = self, .worker = worker };

    if (self == NULL || !begin(&it, error))
        return false;
    app_worker_write_before_snapshots(self, app_weights_write, &it.layers);
    it.told[WITH_ROWS] = 1;
    for (uint64_t step = 0; it.told[WITH_ROWS] > 0 && it.told[STOPPING] <= 0; step++)
        if (!take_step(&it, step, error))
            return false;
    return rubato_worker_rank(worker) > 0 || app_weights_write(&it.layers, error);
}
