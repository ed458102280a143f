/* What workers do in each step.
 *
 * By tables, a worker gets all weights, takes the gradient over its rows of the step, and adds it.
 * The servers apply the rule; under bsp once in each step, to the sum of all gradients. The tables'
 * model decides how far workers may drift apart.
 *
 * By allreduce, each worker has all weights in arrays of its own, and the gradients of a step are
 * combined: a group of one tensor for each layer. All workers apply the rule to the same sums, so
 * their weights stay the same. The tables have weights, and what the rule keeps, before and after:
 * worker 0 writes them when it ends, and before each snapshot. Workers stop in the same step: one
 * that is to stop tells it beside its gradients. */
#include <rubato/mix.h>

#include "apps/kit/net/app_weights.h"
#include "apps/mlp/mlp_job.h"

/* A worker while it trains. */
typedef struct {
    MlpJob *job;
    AppWorker *self;
    RubatoWorker *worker;
    MlpShare *share;
    uint64_t steps_of_epoch, n_steps; /* n_steps: of all epochs */
    float scale;                      /* of a row's gradient */

    AppWeights arrays;
    float *labels; /* of the step */
    AppNetWorkspace workspace;
} Training;

/* What the worker did in a step. */
typedef struct {
    size_t n_rows;
    AppNetTally tally;
} Step;

/* ---- the worker's rows and arrays ---- */

/* All rows at once, so that an error names the file and the line. */
static bool check_labels(const MlpJob *job, const MlpShare *share, GError **error)
{
    const RubatoBatch labels = { .n_rows = share->rows.n_rows, .label = share->rows.labels };

    return app_loss_check(&job->loss, job->rows.train, &labels, error);
}

/* Reads the worker's rows, unless an earlier task did. */
static bool load_share(MlpJob *job, RubatoWorker *worker, GError **error)
{
    const RubatoReaderOptions options = { .epochs = 1,
                                          .batch_rows = 1024,
                                          .split = job->data.split };
    const uint32_t rank = rubato_worker_rank(worker);
    MlpShare *share = &job->shares[rank];

    return share->order != NULL ||
           (app_dense_read(&share->rows,
                           rubato_worker_open_reader(worker, job->rows.train, &options, error),
                           job->layers.shape.sizes[0], 0, app_rows_scaling(&job->rows), error) &&
            check_labels(job, share, error) &&
            mlp_share_init(share, rubato_mix64(job->app.seed) ^ rubato_mix64(rank + 1), error));
}

static void training_clear(Training *it)
{
    app_weights_clear(&it->arrays);
    g_free(it->labels);
    app_net_workspace_clear(&it->workspace);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Training, training_clear)

static bool training_begin(Training *it, GError **error)
{
    const MlpJob *const job = it->job;
    const uint64_t n_rows = job->rows.n_rows;
    const uint64_t n_batch = MIN(job->app.batch_size, n_rows);

    it->steps_of_epoch = (n_rows - 1) / n_batch + 1;
    it->n_steps = it->steps_of_epoch * job->app.epochs;
    it->scale = (float)((double)it->steps_of_epoch / (double)n_rows);
    if (!app_weights_open(&it->arrays, &job->layers, it->worker, error))
        return false;
    const size_t most = mlp_share_most(it->share, it->steps_of_epoch);
    it->labels = g_try_new(float, most);
    if (it->labels == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "no memory for the labels of a batch");
        return false;
    }
    return app_net_workspace_init(&it->workspace, &job->layers.shape, most, error);
}

/* ---- steps ---- */

/* By the step, since workers may have very different numbers of rows. */
static uint64_t rate_step_of(const Training *it, uint64_t step)
{
    return step * APP_RATE_STEPS / it->n_steps;
}

/* Writes the worker's part of the mean gradient of the step: parts add up to it. */
static Step take_gradient(Training *it, uint64_t step)
{
    Step taken;

    taken.n_rows =
        mlp_share_take(it->share, it->steps_of_epoch, step, it->workspace.outputs[0], it->labels);
    taken.tally = app_net_gradient(&it->workspace, it->arrays.weights, &it->job->loss, it->labels,
                                   taken.n_rows, it->scale, it->arrays.gradients);
    return taken;
}

static bool end_step(const Training *it, const Step *step, GError **error)
{
    return app_worker_step(it->self, step->n_rows, step->tally.loss, (double)step->tally.n_right,
                           error);
}

static bool add_gradients(const Training *it, GError **error)
{
    const AppNetShape *const shape = &it->job->layers.shape;

    for (uint32_t l = 0; l < shape->n_layers; l++)
        if (!rubato_kv_table_add_range(it->arrays.tables[l], 0, shape->sizes[l + 1],
                                       it->arrays.gradients[l], error) ||
            !rubato_kv_table_clock(it->arrays.tables[l], error))
            return false;
    return true;
}

static bool train_by_tables(Training *it, uint64_t begin, uint64_t end, GError **error)
{
    for (uint64_t step = begin; step < end && app_worker_goes_on(it->self); step++) {
        if (!app_weights_get(&it->arrays, error))
            return false;
        const Step taken = take_gradient(it, step);
        if (!app_worker_checkpoint(it->self, error) ||
            !app_worker_lower_rate_to(it->self, it->job->tables, rate_step_of(it, step), error) ||
            !add_gradients(it, error) || !end_step(it, &taken, error))
            return false;
    }
    return true;
}

/* ---- by allreduce ---- */

static bool train_by_allreduce(Training *it, uint64_t begin, uint64_t end, GError **error)
{
    RubatoTensor tensors[APP_NET_LAYERS_MAX + 1];
    float n_stopping = 0;
    const size_t n_layers = app_weights_tensors(&it->arrays, tensors);
    const size_t n_tensors = n_layers + 1;

    tensors[n_layers] = (RubatoTensor){
        .name = "stop", .dtype = RUBATO_F32, .input = &n_stopping, .output = &n_stopping
    };

    if (!app_weights_get(&it->arrays, error) || !app_weights_get_states(&it->arrays, error))
        return false;
    app_worker_write_before_snapshots(it->self, app_weights_write, &it->arrays);
    for (uint64_t step = begin; step < end && n_stopping <= 0; step++) {
        n_stopping = !app_worker_goes_on(it->self);
        const Step taken = take_gradient(it, step);

        if (!app_worker_checkpoint(it->self, error) ||
            !rubato_worker_allreduce_group(it->worker, tensors, n_tensors, /* reduce= */ NULL,
                                           error))
            return false;
        app_weights_step(&it->arrays,
                         app_learning_rate(&it->job->app, rate_step_of(it, step), APP_RATE_STEPS));
        if (!end_step(it, &taken, error))
            return false;
    }
    return rubato_worker_rank(it->worker) > 0 || app_weights_write(&it->arrays, error);
}

bool mlp_train(RubatoWorker *worker, void *user_data, GError **error)
{
    MlpJob *const job = user_data;
    g_autoptr(AppWorker) self = app_worker_new(&job->app, worker, error);
    g_auto(Training) it = { .job = job,
                            .self = self,
                            .worker = worker,
                            .share = &job->shares[rubato_worker_rank(worker)] };

    if (self == NULL || !load_share(job, worker, error) || !training_begin(&it, error))
        return false;
    const uint32_t only_epoch = job->app.only_epoch; /* from 1; 0: all */
    const uint64_t first = only_epoch > 0 ? it.steps_of_epoch * (only_epoch - 1) : 0;
    const uint64_t begin = first + app_worker_first_step(self);
    const uint64_t end = only_epoch > 0 ? first + it.steps_of_epoch : it.n_steps;

    for (uint64_t step = first; step < begin; step++)
        app_worker_skip(self, mlp_share_count(it.share, it.steps_of_epoch, step));
    return job->app.by_allreduce ? train_by_allreduce(&it, begin, end, error)
                                 : train_by_tables(&it, begin, end, error);
}
