/* What workers do in each step: see softmax_train.h.
 *
 * By tables, a worker gets all weights, takes the gradient over its share of the step's images, and
 * adds it. The table's model decides how far workers may drift apart.
 *
 * By allreduce, each worker has all weights in an array of its own, and the gradients of a step are
 * combined. All add the same sum to the same weights, so these stay the same on all workers. The
 * table has the weights before and after: it is what is loaded, saved and tested. Worker 0 writes
 * them when it ends, and before each snapshot. Workers stop in the same step: one that is to stop
 * tells it beside its gradient. */
#include "apps/softmax/softmax_train.h"

#include "apps/softmax/softmax_batches.h"

/* A worker while it trains. */
typedef struct {
    const SoftmaxJob *job;
    AppWorker *self;
    RubatoWorker *worker;
    RubatoKVTable *table;
    size_t n_values;

    SoftmaxBatches batches;
    uint64_t *rows;           /* of the step */
    float *weights, *written; /* written: by allreduce: what the table has */
    float *delta;             /* one value more than weights: not 0 if a worker is to stop */
} Training;

/* What the worker does in a step. */
typedef struct {
    size_t n;
    SoftmaxTally tally;
} Step;

/* Writes the share of the step's change to the weights. Gradients are divided by the number of the
 * whole step's images, so that what the workers write adds up to one mean gradient. */
static Step take_gradient(Training *it, uint64_t step, uint64_t n_steps)
{
    const SoftmaxJob *const job = it->job;
    const double rate = app_learning_rate(&job->app, step, n_steps);
    uint64_t n_step;
    Step taken;

    taken.n = softmax_batches_take(&it->batches, step, it->rows, &n_step);
    taken.tally = softmax_gradient(it->weights, job->n_classes, job->train, it->rows, taken.n,
                                   (float)(-rate / (double)n_step), it->delta);
    return taken;
}

static bool end_step(const Training *it, const Step *step, GError **error)
{
    return app_worker_step(it->self, step->n, step->tally.loss, (double)step->tally.n_right, error);
}

static bool train_by_tables(Training *it, uint64_t begin, uint64_t end, uint64_t n_steps,
                            GError **error)
{
    const size_t n_inputs = it->job->n_inputs;

    for (uint64_t step = begin; step < end && app_worker_goes_on(it->self); step++) {
        if (!rubato_kv_table_get_range(it->table, 0, n_inputs, it->weights, error))
            return false;
        const Step taken = take_gradient(it, step, n_steps);
        if (!app_worker_checkpoint(it->self, error) ||
            !rubato_kv_table_add_range(it->table, 0, n_inputs, it->delta, error) ||
            !rubato_kv_table_clock(it->table, error) || !end_step(it, &taken, error))
            return false;
    }
    return true;
}

/* What the table has is taken away, and the weights are added to zeros: so it gets every bit. Both
 * Adds are of one worker, and are applied in their order. */
static bool write_weights(void *user_data, GError **error)
{
    Training *const it = user_data;
    const size_t n_inputs = it->job->n_inputs;

    for (size_t i = 0; i < it->n_values; i++)
        it->written[i] = -it->written[i];
    if (!rubato_kv_table_add_range(it->table, 0, n_inputs, it->written, error) ||
        !rubato_kv_table_add_range(it->table, 0, n_inputs, it->weights, error))
        return false;
    for (size_t i = 0; i < it->n_values; i++)
        it->written[i] = it->weights[i];
    return true;
}

static bool train_by_allreduce(Training *it, uint64_t begin, uint64_t end, uint64_t n_steps,
                               GError **error)
{
    const RubatoTensor gradient = { .name = "gradient",
                                    .dtype = RUBATO_F32,
                                    .n_dims = 1,
                                    .shape = { it->n_values + 1 },
                                    .input = it->delta,
                                    .output = it->delta };
    bool goes_on = true;

    if (!rubato_kv_table_get_range(it->table, 0, it->job->n_inputs, it->weights, error) ||
        !rubato_kv_table_get_range(it->table, 0, it->job->n_inputs, it->written, error))
        return false;
    app_worker_write_before_snapshots(it->self, write_weights, it);
    for (uint64_t step = begin; step < end && goes_on; step++) {
        const bool stops = !app_worker_goes_on(it->self);
        const Step taken = take_gradient(it, step, n_steps);

        it->delta[it->n_values] = stops;
        if (!app_worker_checkpoint(it->self, error) ||
            !rubato_worker_allreduce(it->worker, &gradient, /* reduce= */ NULL, error))
            return false;
        for (size_t i = 0; i < it->n_values; i++)
            it->weights[i] += it->delta[i];
        goes_on = it->delta[it->n_values] == 0;
        if (!end_step(it, &taken, error))
            return false;
    }
    return rubato_worker_rank(it->worker) > 0 || write_weights(it, error);
}

bool softmax_train(RubatoWorker *worker, void *user_data, GError **error)
{
    SoftmaxJob *const job = user_data;
    Training it = { .job = job, .worker = worker, .n_values = job->n_inputs * job->n_classes };

    g_autoptr(AppWorker) self = app_worker_new(&job->app, worker, error);
    g_autoptr(RubatoKVTable) table =
        self != NULL ? rubato_worker_open_kv_table(worker, job->table, RUBATO_F32, error) : NULL;
    if (table == NULL)
        return false;
    softmax_batches_init(&it.batches, job->train->n_images, job->app.batch_size,
                         rubato_worker_rank(worker), rubato_worker_n_workers(worker),
                         job->app.seed);
    const uint64_t per_epoch = softmax_batches_per_epoch(&it.batches);
    const uint64_t n_steps = per_epoch * job->app.epochs;
    const uint32_t only_epoch = job->app.only_epoch; /* from 1; 0: all */
    const uint64_t first = only_epoch > 0 ? per_epoch * (only_epoch - 1) : 0;
    const uint64_t begin = first + app_worker_first_step(self);
    const uint64_t end = only_epoch > 0 ? first + per_epoch : n_steps;
    g_autofree uint64_t *rows = g_new(uint64_t, softmax_batches_max(&it.batches));
    g_autofree float *weights = g_new(float, it.n_values);
    g_autofree float *delta = g_new(float, it.n_values + 1);
    g_autofree float *written = g_new(float, it.n_values);

    it.self = self;
    it.table = table;
    it.rows = rows;
    it.weights = weights;
    it.delta = delta;
    it.written = written;
    for (uint64_t step = first, n_step; step < begin; step++)
        app_worker_skip(self, softmax_batches_take(&it.batches, step, rows, &n_step));
    return job->app.by_allreduce ? train_by_allreduce(&it, begin, end, n_steps, error)
                                 : train_by_tables(&it, begin, end, n_steps, error);
}
