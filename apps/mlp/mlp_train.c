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

#include "apps/mlp/mlp_job.h"

#define RATE_STEPS 64 /* in which the learning rate falls: a straight line, near enough */

/* A worker while it trains. */
typedef struct {
    MlpJob *job;
    AppWorker *self;
    RubatoWorker *worker;
    MlpShare *share;
    uint64_t steps_of_epoch, n_steps; /* n_steps: of all epochs */
    uint64_t rate_step;               /* by tables: of RATE_STEPS, that the servers have */
    float scale;                      /* of a row's gradient */

    RubatoKVTable *tables[MLP_LAYERS_MAX];
    RubatoKVTable *states_tables[MLP_LAYERS_MAX]; /* NULL: none */
    float *weights[MLP_LAYERS_MAX], *gradients[MLP_LAYERS_MAX];
    float *states[MLP_LAYERS_MAX]; /* NULL: the rule keeps none, or the servers do */
    float *labels;                 /* of the step */
    MlpWorkspace workspace;
} Training;

/* What the worker did in a step. */
typedef struct {
    size_t n_rows;
    MlpTally tally;
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
                           job->shape.sizes[0], 0, app_rows_scaling(&job->rows), error) &&
            check_labels(job, share, error) &&
            mlp_share_init(share, rubato_mix64(job->app.seed) ^ rubato_mix64(rank + 1), error));
}

static void training_clear(Training *it)
{
    for (uint32_t l = 0; l < MLP_LAYERS_MAX; l++) {
        rubato_kv_table_free(it->tables[l]);
        rubato_kv_table_free(it->states_tables[l]);
        g_free(it->weights[l]);
        g_free(it->gradients[l]);
        g_free(it->states[l]);
    }
    g_free(it->labels);
    mlp_workspace_clear(&it->workspace);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Training, training_clear)

static bool open_layer(Training *it, uint32_t l, GError **error)
{
    const MlpJob *const job = it->job;
    const size_t n = mlp_layer_values(&job->shape, l);
    const uint32_t n_states = job->by_allreduce ? mlp_rule_n_states(job->rule) : 0;

    it->tables[l] = rubato_worker_open_kv_table(it->worker, job->layers[l], RUBATO_F32, error);
    if (it->tables[l] == NULL)
        return false;
    it->weights[l] = g_try_new(float, n);
    it->gradients[l] = g_try_new(float, n);
    if (n_states > 0) {
        it->states_tables[l] =
            rubato_worker_open_kv_table(it->worker, job->states[l], RUBATO_F32, error);
        if (it->states_tables[l] == NULL)
            return false;
        it->states[l] = g_try_new(float, n_states *n);
    }
    if (it->weights[l] != NULL && it->gradients[l] != NULL &&
        (n_states == 0 || it->states[l] != NULL))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no memory for %s, of %zu weights",
                job->layers[l], n);
    return false;
}

static bool training_begin(Training *it, GError **error)
{
    const MlpJob *const job = it->job;
    const uint64_t n_rows = job->rows.n_rows;
    const uint64_t n_batch = MIN(job->app.batch_size, n_rows);

    it->steps_of_epoch = (n_rows - 1) / n_batch + 1;
    it->n_steps = it->steps_of_epoch * job->app.epochs;
    it->scale = (float)((double)it->steps_of_epoch / (double)n_rows);
    for (uint32_t l = 0; l < job->shape.n_layers; l++)
        if (!open_layer(it, l, error))
            return false;
    const size_t most = mlp_share_most(it->share, it->steps_of_epoch);
    it->labels = g_try_new(float, most);
    if (it->labels == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "no memory for the labels of a batch");
        return false;
    }
    return mlp_workspace_init(&it->workspace, &job->shape, most, error);
}

/* ---- steps ---- */

/* By the step, since workers may have very different numbers of rows. */
static uint64_t rate_step_of(const Training *it, uint64_t step)
{
    return step * RATE_STEPS / it->n_steps;
}

static double rate_of(const Training *it, uint64_t step)
{
    return app_learning_rate(&it->job->app, rate_step_of(it, step), RATE_STEPS);
}

/* Writes the worker's part of the mean gradient of the step: parts add up to it. */
static Step take_gradient(Training *it, uint64_t step)
{
    Step taken;

    taken.n_rows =
        mlp_share_take(it->share, it->steps_of_epoch, step, it->workspace.outputs[0], it->labels);
    taken.tally = mlp_gradient(&it->workspace, it->weights, &it->job->loss, it->labels,
                               taken.n_rows, it->scale, it->gradients);
    return taken;
}

static bool end_step(const Training *it, const Step *step, GError **error)
{
    return app_worker_step(it->self, step->n_rows, step->tally.loss, (double)step->tally.n_right,
                           error);
}

/* Asks for all layers, and then waits for their answers. Those that were asked for are waited for
 * in any case, because until then their arrays may be written to. */
static bool get_weights(const Training *it, GError **error)
{
    const MlpShape *const shape = &it->job->shape;
    RubatoTicket tickets[MLP_LAYERS_MAX];
    uint32_t n_asked = 0;
    bool good = true;

    for (; good && n_asked < shape->n_layers; n_asked += good) {
        tickets[n_asked] = rubato_kv_table_get_range_async(
            it->tables[n_asked], 0, shape->sizes[n_asked + 1], it->weights[n_asked], NULL, error);
        good = tickets[n_asked] != 0;
    }
    for (uint32_t l = 0; l < n_asked; l++)
        good = rubato_worker_wait(it->worker, tickets[l], good ? error : NULL) && good;
    return good;
}

/* Worker 0 tells the servers, before the step's Adds. */
static bool lower_rate(Training *it, uint64_t step, GError **error)
{
    if (rubato_worker_rank(it->worker) > 0 || rate_step_of(it, step) == it->rate_step)
        return true;
    it->rate_step = rate_step_of(it, step);
    for (uint32_t l = 0; l < it->job->shape.n_layers; l++)
        if (!rubato_worker_tune(it->worker, it->job->layers[l], RUBATO_HYPER_LEARNING_RATE,
                                rate_of(it, step), error))
            return false;
    return true;
}

static bool add_gradients(const Training *it, GError **error)
{
    const MlpShape *const shape = &it->job->shape;

    for (uint32_t l = 0; l < shape->n_layers; l++)
        if (!rubato_kv_table_add_range(it->tables[l], 0, shape->sizes[l + 1], it->gradients[l],
                                       error) ||
            !rubato_kv_table_clock(it->tables[l], error))
            return false;
    return true;
}

static bool train_by_tables(Training *it, uint64_t begin, uint64_t end, GError **error)
{
    for (uint64_t step = begin; step < end && app_worker_goes_on(it->self); step++) {
        if (!get_weights(it, error))
            return false;
        const Step taken = take_gradient(it, step);
        if (!app_worker_checkpoint(it->self, error) || !lower_rate(it, step, error) ||
            !add_gradients(it, error) || !end_step(it, &taken, error))
            return false;
    }
    return true;
}

/* ---- by allreduce ---- */

static bool get_states(const Training *it, GError **error)
{
    const MlpShape *const shape = &it->job->shape;
    const uint32_t n_states = mlp_rule_n_states(it->job->rule);

    for (uint32_t l = 0; l < shape->n_layers; l++)
        if (it->states[l] != NULL &&
            !rubato_kv_table_get_range(it->states_tables[l], 0,
                                       (size_t)n_states * shape->sizes[l + 1], it->states[l],
                                       error))
            return false;
    return true;
}

/* These tables take what is added instead of what they have. */
static bool write_all(void *user_data, GError **error)
{
    const Training *const it = user_data;
    const MlpShape *const shape = &it->job->shape;
    const uint32_t n_states = mlp_rule_n_states(it->job->rule);

    for (uint32_t l = 0; l < shape->n_layers; l++)
        if (!rubato_kv_table_add_range(it->tables[l], 0, shape->sizes[l + 1], it->weights[l],
                                       error) ||
            (it->states[l] != NULL &&
             !rubato_kv_table_add_range(it->states_tables[l], 0,
                                        (size_t)n_states * shape->sizes[l + 1], it->states[l],
                                        error)))
            return false;
    return true;
}

/* The group of a step: the gradients of the layers, and how many workers are to stop. */
static size_t make_group(const Training *it, RubatoTensor *tensors, float *n_stopping)
{
    const MlpJob *const job = it->job;
    const uint32_t n = job->shape.n_layers;

    for (uint32_t l = 0; l < n; l++)
        tensors[l] = (RubatoTensor){ .name = job->layers[l],
                                     .dtype = RUBATO_F32,
                                     .n_dims = 1,
                                     .shape = { mlp_layer_values(&job->shape, l) },
                                     .input = it->gradients[l],
                                     .output = it->gradients[l] };
    tensors[n] = (RubatoTensor){
        .name = "stop", .dtype = RUBATO_F32, .input = n_stopping, .output = n_stopping
    };
    return n + 1;
}

static bool train_by_allreduce(Training *it, uint64_t begin, uint64_t end, GError **error)
{
    const MlpJob *const job = it->job;
    RubatoTensor tensors[MLP_LAYERS_MAX + 1];
    float n_stopping = 0;
    const size_t n_tensors = make_group(it, tensors, &n_stopping);

    if (!get_weights(it, error) || !get_states(it, error))
        return false;
    app_worker_write_before_snapshots(it->self, write_all, it);
    for (uint64_t step = begin; step < end && n_stopping <= 0; step++) {
        n_stopping = !app_worker_goes_on(it->self);
        const Step taken = take_gradient(it, step);

        if (!app_worker_checkpoint(it->self, error) ||
            !rubato_worker_allreduce_group(it->worker, tensors, n_tensors, /* reduce= */ NULL,
                                           error))
            return false;
        for (uint32_t l = 0; l < job->shape.n_layers; l++)
            mlp_rule_step(job->rule, rate_of(it, step), step, mlp_layer_values(&job->shape, l),
                          it->gradients[l], it->weights[l], it->states[l]);
        if (!end_step(it, &taken, error))
            return false;
    }
    return rubato_worker_rank(it->worker) > 0 || write_all(it, error);
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
    return job->by_allreduce ? train_by_allreduce(&it, begin, end, error)
                             : train_by_tables(&it, begin, end, error);
}
