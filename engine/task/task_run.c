/* A task's life on this node: it is created and prepared; the scheduler says that it is cancelled
 * or has ended; the thread that waits for it frees it. Its tables are in task_run_tables.c, its
 * workers in task_run_workers.c.
 *
 * A task ends in three steps. First, each worker that returns is retired: no worker waits for its
 * clock any more. Second, the last worker of the node fences: it asks every server that was sent
 * something since the last fence. When all have answered, the servers have handled everything that
 * this node's workers sent (io/net/fence.h). Once the calls of handlers that servers kept have
 * run, too, and the servers of this node count all workers as retired (task_end.c), the node says
 * TASK_DONE. Third, when all nodes have said so, the scheduler says TASK_END and each node drops
 * the task's models: no message of the task is under way any more.
 *
 * A task that fails ends in the same steps, but its models and the requests parked in them are
 * dropped at once, and no worker fences. A worker that failed is not retired, because the Adds that
 * BSP kept of its unfinished clock must not be applied.
 *
 * Threads: as task_run.h says.
 *
 * Invariant: its first cause of failure stays. */
#include "engine/cluster/cluster_file.h"
#include "engine/task/task_run_private.h"

#include <string.h>

/* ---- making ---- */

static uint32_t *allocate_workers(const TaskHost *host, const RubatoTask *task, GError **error)
{
    const PostOffice *const office = host->office;
    g_autofree uint32_t *workers_of = g_new0(uint32_t, office->n_nodes);
    uint64_t total = 0;

    for (size_t i = 0; i < task->n_allocation; i++) {
        const RubatoAllocation *asked = &task->allocation[i];
        uint32_t node = 0;

        while (node < office->n_nodes && office->node_ids[node] != asked->node)
            node++;
        if (node == office->n_nodes) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "task %s: its allocation names node %u, which the run does not have",
                        task->name, asked->node);
            return NULL;
        }
        workers_of[node] = (uint32_t)MIN((uint64_t)workers_of[node] + asked->workers, UINT32_MAX);
    }
    for (uint32_t node = 0; node < office->n_nodes; node++) {
        if (task->n_allocation == 0)
            workers_of[node] = task->workers_per_node == 0 || host->workers_of[node] == 0
                                   ? host->workers_of[node]
                                   : task->workers_per_node;
        total += workers_of[node];
    }
    if (total == 0 || total > CLUSTER_MAX_NODES * CLUSTER_MAX_THREADS) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    total == 0 ? "task %s has no worker on any node; give it one at least"
                               : "task %s asks for more workers than there can be threads",
                    task->name);
        return NULL;
    }
    return g_steal_pointer(&workers_of);
}

/* NULL: it is not there, or is empty. */
static const char *variable(const char *name)
{
    const char *const value = g_getenv(name);

    return value == NULL || *value == '\0' ? NULL : value;
}

/* (transfer full) */
static char *find_cutovers(const RubatoTask *task)
{
    if (task->cutovers == NULL)
        return g_strdup(variable(CUTOVERS_VARIABLE));
    return *task->cutovers == '\0' ? NULL : g_strdup(task->cutovers);
}

RubatoTaskRun *task_run_new(const TaskHost *host, const RubatoTask *task, Table *const *tables,
                            size_t n_tables, GError **error)
{
    RubatoTaskRun *run;

    run = g_aligned_alloc0(1, sizeof *run, _Alignof(RubatoTaskRun));
    run->host = host;
    run->name = g_strdup(task->name);
    run->node_readers = g_ptr_array_new();
    run->function = task->run;
    run->user_data = task->user_data;
    run->sets = task->sets;
    run->n_sets = task->n_sets;
    run->on_loss = task->on_loss;
    if (task->on_loss == RUBATO_ON_LOSS_REPLACE)
        run->replace_ms = task->replace_ms == 0 ? RUBATO_REPLACE_MS : task->replace_ms;
    run->fusion_bytes = task->fusion_bytes == 0 ? RUBATO_FUSION_BYTES : task->fusion_bytes;
    run->cutovers = find_cutovers(task);
    pthread_mutex_init(&run->lock, NULL);
    monotonic_cond_init(&run->changed);
    run->tables = g_memdup2(tables, n_tables * sizeof *tables);
    run->n_tables = n_tables;
    run->workers_of = allocate_workers(host, task, error);
    if (run->workers_of == NULL) {
        task_run_free(run);
        return NULL;
    }
    run->n_local = run->workers_of[host->office->self];
    run->returned = g_new0(_Atomic bool, run->n_local + 1);
    barrier_init(&run->barrier, run->n_local);
    run->steps = step_gate_new(run->name);
    run->fenced = fence_memory_new(host->office);
    return run;
}

StepGate *task_run_steps(const RubatoTaskRun *run)
{
    return run->steps;
}

bool task_run_continues(const RubatoTaskRun *run)
{
    bool continues = run->on_loss != RUBATO_ON_LOSS_FAIL;

    for (size_t i = 0; i < run->n_tables; i++)
        continues = continues && run->tables[i]->map->n_replicas > 0;
    return continues;
}

uint32_t task_run_n_local(const RubatoTaskRun *run)
{
    return run->n_local;
}

uint32_t task_run_replace_ms(const RubatoTaskRun *run)
{
    return run->replace_ms;
}

char *task_run_workers(const RubatoTaskRun *run)
{
    GString *text = g_string_new(NULL);

    for (uint32_t node = 0; node < run->host->office->n_nodes; node++)
        g_string_append_printf(text, "%s%u", node > 0 ? " " : "", run->workers_of[node]);
    return g_string_free(text, FALSE);
}

char *task_run_describe(const RubatoTaskRun *run)
{
    GString *text = g_string_new("workers");

    for (uint32_t node = 0; node < run->host->office->n_nodes; node++)
        g_string_append_printf(text, " %u", run->workers_of[node]);
    if (run->on_loss == RUBATO_ON_LOSS_CONTINUE)
        g_string_append(text, ", continues after a loss");
    if (run->replace_ms > 0)
        g_string_append_printf(text, ", replaces lost workers within %u ms", run->replace_ms);
    if (run->fusion_bytes == RUBATO_FUSION_OFF)
        g_string_append(text, ", tensors alone");
    else if (run->fusion_bytes != RUBATO_FUSION_BYTES)
        g_string_append_printf(text, ", tensors together up to %" G_GUINT64_FORMAT " bytes",
                               run->fusion_bytes);
    g_string_append(text, ", tables");
    for (size_t i = 0; i < run->n_tables; i++)
        g_string_append_printf(text, " %s", run->tables[i]->spec->name);
    return g_string_free(text, FALSE);
}

static void close_node_readers(RubatoTaskRun *run)
{
    for (guint i = 0; i < run->node_readers->len; i++) {
        NodeReader *node_reader = run->node_readers->pdata[i];

        if (node_reader == NULL)
            continue;
        node_reader_close(node_reader);
        node_reader_unref(node_reader);
    }
    g_ptr_array_free(run->node_readers, TRUE);
}

void task_run_free(RubatoTaskRun *run)
{
    close_node_readers(run);
    if (run->is_linked)
        tensor_router_remove(run->host->tensors, run->epoch);
    tensor_exchange_free(run->tensors);
    tensor_tuning_free(run->tuning);
    g_free(run->cutovers);
    task_run_clear_routes(run);
    g_free(run->tables);
    pthread_cond_destroy(&run->changed);
    pthread_mutex_destroy(&run->lock);
    g_free(run->workers);
    g_free(run->returned);
    g_free(run->first_clocks);
    g_free(run->heard_clocks);
    g_free(run->had_until);
    g_free(run->repeated);
    if (run->steps != NULL)
        step_gate_unref(run->steps);
    fence_memory_free(run->fenced);
    g_free(run->workers_of);
    g_free(run->end_text);
    g_free(run->name);
    g_aligned_free(run);
}

/* ---- preparing ---- */

/* Ranks go from node to node, and leave none out. */
static bool rank_workers(RubatoTaskRun *run, const bool *lost, GError **error)
{
    const PostOffice *const office = run->host->office;

    for (uint32_t node = 0; node < office->n_nodes; node++) {
        if (lost[node])
            run->workers_of[node] = 0;
        run->had_losses |= lost[node];
        if (node == office->self)
            run->first_rank = run->n_workers;
        run->n_workers += run->workers_of[node];
    }
    if (run->n_workers == 0) /* not before: it was counted with all nodes */
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST,
                    "task %s: all nodes with workers are lost", run->name);
    return run->n_workers > 0;
}

/* The node of rank 0 has them, if there are others with workers. */
static bool prepare_cutovers(RubatoTaskRun *run, GError **error)
{
    const char *const way = variable(WAY_VARIABLE);
    uint32_t n_nodes = 0;

    for (uint32_t node = 0; node < run->host->office->n_nodes; node++)
        n_nodes += run->workers_of[node] > 0;
    if ((run->cutovers == NULL && way == NULL) || n_nodes < 2 || run->n_local == 0 ||
        run->first_rank > 0)
        return true;
    run->tuning = tensor_tuning_new(run->cutovers, way, run->name, n_nodes,
                                    tensor_flow_cutovers(n_nodes), error);
    if (run->tuning == NULL)
        g_prefix_error(error, "task %s: its cut-overs: ", run->name);
    return run->tuning != NULL;
}

void task_run_note_losses(RubatoTaskRun *run)
{
    run->had_losses = true;
}

/* Its workers are counted. */
static void begin(RubatoTaskRun *run, uint32_t epoch, bool returns)
{
    run->tensors = tensor_exchange_new(&(TensorPlace){
        .task = run->name,
        .n_nodes = run->host->office->n_nodes,
        .self = run->host->office->self,
        .node_ids = run->host->office->node_ids,
        .workers_of = run->workers_of,
        .stall_ms = run->host->stall_ms,
        .fusion_bytes = run->fusion_bytes == RUBATO_FUSION_OFF ? 0 : run->fusion_bytes,
        .continues = run->on_loss == RUBATO_ON_LOSS_CONTINUE,
        .replaces = run->replace_ms > 0,
        .returns = returns,
        .epoch = epoch,
        .timeline = run->host->timeline,
        .tuning = run->tuning,
        .report_wait = task_run_report_collective,
        .run = run });
    run->epoch = epoch;
    task_run_make_routes(run, task_run_report_wait, task_run_settle);
    run->is_linked = run->n_local > 0 && run->n_local < run->n_workers;
    if (run->is_linked)
        tensor_router_add(run->host->tensors, epoch, run->tensors);
}

bool task_run_prepare(RubatoTaskRun *run, uint32_t epoch, const bool *lost, GError **error)
{
    if (!rank_workers(run, lost, error) || !prepare_cutovers(run, error))
        return false;
    begin(run, epoch, /* returns= */ false);
    return task_run_begin_models(run, error);
}

bool task_run_take_over(RubatoTaskRun *run, const ToldTask *told, GError **error)
{
    const PostOffice *const office = run->host->office;
    g_autofree bool *lost = g_new0(bool, office->n_nodes);

    if (told->workers_of[office->self] != run->n_local) {
        g_set_error(
            error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
            "task %s: node %u, in the place of a lost process, has %u workers, and that had "
            "%u",
            run->name, task_host_id(run->host), run->n_local, told->workers_of[office->self]);
        return false;
    }
    memcpy(run->workers_of, told->workers_of, office->n_nodes * sizeof *run->workers_of);
    run->had_losses = true;
    if (!rank_workers(run, lost, error))
        return false;
    begin(run, told->epoch, /* returns= */ true);
    return true;
}

void task_run_abandon(RubatoTaskRun *run)
{
    bool is_torn_down;

    task_run_end_models(run);
    /* The run may have been cancelled, or ended for all, before a node failed to begin the task.
     * Then servers still answer for the teardown: an answer may come behind a later one. */
    pthread_mutex_lock(&run->lock);
    is_torn_down = run->ended || task_run_is_cancelled(run);
    if (is_torn_down && !run->ended)
        call_sent(&run->teardown);
    run->ended = true;
    pthread_mutex_unlock(&run->lock);
    if (is_torn_down)
        call_wait(&run->teardown, -1);
    task_run_wait_end(run);
}

/* ---- the data that its workers read ---- */

NodeReader *task_run_node_reader(RubatoTaskRun *run, uint32_t id, RubatoDataset *dataset,
                                 const RubatoReaderOptions *options, GError **error)
{
    const NodeReaderPlace place = { .host = run->host,
                                    .task = run->name,
                                    .epoch = run->epoch,
                                    .id = id,
                                    .first_rank = run->first_rank,
                                    .n_apart = run->replace_ms > 0 ? run->n_local : 0 };
    NodeReader *node_reader;
    bool made;

    pthread_mutex_lock(&run->lock);
    if (id >= run->node_readers->len)
        g_ptr_array_set_size(run->node_readers, (gint)id + 1);
    made = run->node_readers->pdata[id] == NULL;
    if (made)
        run->node_readers->pdata[id] = node_reader_new(&place, dataset, options);
    node_reader = run->node_readers->pdata[id];
    if (made && task_run_is_cancelled(run))
        node_reader_cancel(node_reader);
    pthread_mutex_unlock(&run->lock);
    if (made)
        node_reader_announce(node_reader);
    return made || node_reader_check(node_reader, dataset, options, error) ? node_reader : NULL;
}

GPtrArray *task_run_hold_readers(RubatoTaskRun *run)
{
    GPtrArray *const readers = g_ptr_array_new_with_free_func((GDestroyNotify)node_reader_unref);

    pthread_mutex_lock(&run->lock);
    for (guint i = 0; i < run->node_readers->len; i++)
        if (run->node_readers->pdata[i] != NULL)
            g_ptr_array_add(readers, node_reader_ref(run->node_readers->pdata[i]));
    pthread_mutex_unlock(&run->lock);
    return readers;
}

/* ---- what the scheduler says of the task ---- */

void task_run_cancel(RubatoTaskRun *run, uint32_t code, const char *text)
{
    PostOffice *const office = run->host->office;

    pthread_mutex_lock(&run->lock);
    if (task_run_is_cancelled(run) || run->ended) {
        pthread_mutex_unlock(&run->lock);
        return;
    }
    run->end_code = code;
    run->end_text = g_strdup(text);
    /* seq_cst: before the sweep; a thread that asks another node reads the flag after it
     * registers */
    atomic_store_explicit(&run->cancelled, true, memory_order_seq_cst);
    task_run_post_end_models(run);
    task_run_cancel_end(run);
    for (guint i = 0; i < run->node_readers->len; i++)
        if (run->node_readers->pdata[i] != NULL)
            node_reader_cancel(run->node_readers->pdata[i]);
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
    barrier_cancel(&run->barrier);
    tensor_exchange_cancel(run->tensors, text);
    post_office_cancel(office, run->epoch);
    services_cancel(run->host->services, run->epoch);
    if (office->network != NULL)
        network_wake_waiters(office->network);
}

void task_run_blocks(RubatoTaskRun *run, const ControlBlocks *blocks)
{
    NodeReader *node_reader = NULL;

    pthread_mutex_lock(&run->lock);
    if (blocks->reader < run->node_readers->len)
        node_reader = run->node_readers->pdata[blocks->reader];
    if (node_reader != NULL)
        node_reader_receive(node_reader, blocks);
    pthread_mutex_unlock(&run->lock);
}

void task_run_end(RubatoTaskRun *run, uint32_t code, const char *text)
{
    pthread_mutex_lock(&run->lock);
    if (!run->ended) {
        if (run->end_code == CONTROL_OK && code != CONTROL_OK) {
            run->end_code = code;
            run->end_text = g_strdup(text);
        }
        if (!task_run_is_cancelled(run))
            task_run_post_end_models(run);
        call_sent(&run->teardown);
        run->ended = true;
        pthread_cond_broadcast(&run->changed);
    }
    pthread_mutex_unlock(&run->lock);
}

/* ---- waiting for the task ---- */

static void wait_for_end(RubatoTaskRun *run)
{
    StallClock clock;

    stall_clock_start(&clock, run->host->stall_ms);
    pthread_mutex_lock(&run->lock);
    while (!run->ended)
        if (stall_clock_wait(&clock, &run->changed, &run->lock) && !run->ended &&
            task_run_is_cancelled(run) && barrier_n_live(&run->barrier) > 0)
            g_message("task %s was cancelled; %u workers of node %u have not returned yet (for "
                      "%.1f s so far)",
                      run->name, barrier_n_live(&run->barrier), task_host_id(run->host),
                      stall_clock_s(&clock));
    pthread_mutex_unlock(&run->lock);
}

void task_run_finish(RubatoTaskRun *run)
{
    wait_for_end(run);
    task_run_join_workers(run);
    call_wait(&run->teardown, -1);
    task_run_wait_end(run);
}

bool task_run_check(const RubatoTaskRun *run, GError **error)
{
    return control_check(run->end_code, run->end_text, error);
}

/* ---- questions about the task ---- */

const char *task_run_name(const RubatoTaskRun *run)
{
    return run->name;
}

bool task_run_has_first_worker(const RubatoTaskRun *run)
{
    return run->n_local > 0 && run->first_rank == 0;
}

void task_run_set_past(RubatoTaskRun *run, uint32_t epoch)
{
    run->past_epoch = epoch;
}

uint32_t task_run_past(const RubatoTaskRun *run)
{
    return run->past_epoch;
}

void task_run_set_data(RubatoTaskRun *run, void *data)
{
    run->data = data;
}

void *task_run_data(const RubatoTaskRun *run)
{
    return run->data;
}

uint32_t task_run_epoch(const RubatoTaskRun *run)
{
    return run->epoch;
}

const TaskHost *task_run_host(const RubatoTaskRun *run)
{
    return run->host;
}

Table *const *task_run_tables(const RubatoTaskRun *run, size_t *n)
{
    *n = run->n_tables;
    return run->tables;
}
