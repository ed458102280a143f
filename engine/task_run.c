/* Tasks on this node.
 *
 * A task ends in three steps. Each worker that returns is retired: its clocks no longer hold anybody
 * back. The last one of the node fences: when every server has answered, all that this node's
 * workers sent has been taken in; it then says TASK_DONE. When all nodes have, the scheduler says
 * TASK_END and each node drops the task's models: nothing of the task can be under way any more.
 *
 * A task that fails takes the same way, but its models go at once, with what is parked in them, and
 * nobody fences. A worker that failed is not retired: what BSP kept of its unfinished clock must
 * not be applied. */
#include "engine/task_run.h"

#include <string.h>

#include "io/net/monotonic.h"
#include "models/model.h"
#include "models/shard.h"
#include "models/update.h"
#include "tables/process_cache.h"
#include "tables/worker.h"

typedef struct {
    RubatoWorker worker;
    RubatoTaskRun *run;
    pthread_t thread;
    bool started;
} WorkerThread;

struct RubatoTaskRun {
    /* immutable once prepared */
    RubatoEngine *engine;
    char *name;
    RubatoTaskFunc function;
    void *user_data;
    uint32_t epoch;
    uint32_t *workers_of; /* by node number */
    uint32_t n_workers;
    uint32_t first_rank; /* of this node's workers */
    Table **tables;
    TableRoute *routes;
    Clocks *clocks; /* by table */
    size_t n_tables;
    WorkerThread *workers; /* of this node */
    uint32_t n_local;

    _Atomic bool cancelled; /* set before post_office_cancel sweeps */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    bool prepared;
    uint32_t n_live;    /* workers that have not returned */
    uint32_t n_waiting; /* of them, in the barrier */
    uint64_t round;     /* of the barrier that they are, or will be, in */
    uint32_t end_code;  /* the first cause, CONTROL_OK where there is none */
    char *end_text;
    bool ended;       /* TASK_END has come */
    GPtrArray *feeds; /* of Feed, by reader; NULL between them */
    Call teardown;    /* of the models, once it has ended */
};

/* ---- making ---- */

static uint32_t *allocate_workers(RubatoEngine *engine, const RubatoTask *task, GError **error)
{
    g_autofree uint32_t *workers_of = g_new0(uint32_t, engine->n_nodes);
    uint64_t total = 0;

    for (size_t i = 0; i < task->n_allocation; i++) {
        const RubatoAllocation *asked = &task->allocation[i];
        uint32_t node = 0;

        while (node < engine->n_nodes && engine->node_ids[node] != asked->node)
            node++;
        if (node == engine->n_nodes) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "task %s: its allocation names node %u, which the run does not have",
                        task->name, asked->node);
            return NULL;
        }
        workers_of[node] = (uint32_t)MIN((uint64_t)workers_of[node] + asked->workers, UINT32_MAX);
    }
    for (uint32_t node = 0; node < engine->n_nodes; node++) {
        if (task->n_allocation == 0)
            workers_of[node] = task->workers_per_node == 0 || engine->workers_of[node] == 0
                                   ? engine->workers_of[node]
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

static bool find_tables(RubatoTaskRun *run, const RubatoTask *task, GError **error)
{
    RubatoEngine *engine = run->engine;
    bool ok = true;

    for (const char *const *name = task->tables; name != NULL && *name != NULL; name++)
        run->n_tables++;
    run->tables = g_new0(Table *, run->n_tables + 1);
    pthread_mutex_lock(&engine->lock);
    for (size_t i = 0; i < run->n_tables && ok; i++) {
        run->tables[i] = engine_find_table(engine, task->tables[i], error);
        ok = run->tables[i] != NULL;
        if (!ok)
            g_prefix_error(error, "task %s: ", task->name);
        for (size_t k = 0; k < i && ok; k++)
            if (run->tables[k] == run->tables[i]) {
                g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                            "task %s names table %s twice", task->name, task->tables[i]);
                ok = false;
            }
    }
    for (size_t i = 0; i < run->n_tables; i++)
        if (ok)
            run->tables[i]->n_tasks++;
        else
            run->tables[i] = NULL;
    pthread_mutex_unlock(&engine->lock);
    return ok;
}

RubatoTaskRun *task_run_new(RubatoEngine *engine, const RubatoTask *task, GError **error)
{
    RubatoTaskRun *run;

    if (task->name == NULL || task->name[0] == '\0' || task->run == NULL ||
        (task->n_allocation > 0 && task->allocation == NULL)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "a task needs a name and a function");
        return NULL;
    }
    run = g_new0(RubatoTaskRun, 1);
    run->engine = engine;
    run->name = g_strdup(task->name);
    run->feeds = g_ptr_array_new();
    run->function = task->run;
    run->user_data = task->user_data;
    pthread_mutex_init(&run->lock, NULL);
    monotonic_cond_init(&run->changed);
    run->workers_of = allocate_workers(engine, task, error);
    if (run->workers_of == NULL || !find_tables(run, task, error)) {
        task_run_free(run);
        return NULL;
    }
    for (uint32_t node = 0; node < engine->n_nodes; node++) {
        if (node == engine->self)
            run->first_rank = run->n_workers;
        run->n_workers += run->workers_of[node];
    }
    run->n_local = run->n_live = run->workers_of[engine->self];
    return run;
}

char *task_run_describe(const RubatoTaskRun *run)
{
    GString *text = g_string_new("workers");

    for (uint32_t node = 0; node < run->engine->n_nodes; node++)
        g_string_append_printf(text, " %u", run->workers_of[node]);
    g_string_append(text, ", tables");
    for (size_t i = 0; i < run->n_tables; i++)
        g_string_append_printf(text, " %s", run->tables[i]->spec->name);
    return g_string_free(text, FALSE);
}

/* Nobody uses what the run made for its tables any more. */
static void clear_routes(RubatoTaskRun *run)
{
    for (size_t i = 0; i < run->n_tables && run->routes != NULL; i++) {
        process_cache_free(table_route_cache(&run->routes[i]));
        clocks_clear(&run->clocks[i]);
    }
    g_clear_pointer(&run->routes, g_free);
    g_clear_pointer(&run->clocks, g_free);
}

static void close_feeds(RubatoTaskRun *run)
{
    for (guint i = 0; i < run->feeds->len; i++) {
        Feed *feed = run->feeds->pdata[i];

        if (feed == NULL)
            continue;
        feed_close(feed);
        feed_unref(feed);
    }
    g_ptr_array_free(run->feeds, TRUE);
}

void task_run_free(RubatoTaskRun *run)
{
    RubatoEngine *engine = run->engine;

    clear_routes(run);
    close_feeds(run);
    pthread_mutex_lock(&engine->lock);
    for (size_t i = 0; i < run->n_tables; i++)
        if (run->tables[i] != NULL)
            run->tables[i]->n_tasks--;
    pthread_mutex_unlock(&engine->lock);
    pthread_cond_destroy(&run->changed);
    pthread_mutex_destroy(&run->lock);
    g_free(run->workers);
    g_free(run->tables);
    g_free(run->workers_of);
    g_free(run->end_text);
    g_free(run->name);
    g_free(run);
}

/* ---- models on the servers ---- */

typedef struct {
    RubatoTaskRun *run;
    pthread_mutex_t lock;
    GError *error; /* guarded by lock: the first */
} Beginning;

static void begin_models(Server *server, void *data)
{
    Beginning *beginning = data;
    RubatoTaskRun *run = beginning->run;

    for (size_t i = 0; i < run->n_tables; i++) {
        const Table *table = run->tables[i];
        RubatoModelSetup setup = { .spec = table->spec, .n_workers = run->n_workers };
        GError *error = NULL;

        partition_range(&table->partition, server->number, &setup.first_key, &setup.n_keys);
        if (server_begin_task(server, run->epoch, table->id, &setup, run->engine->n_nodes,
                              run->workers_of, &error))
            continue;
        pthread_mutex_lock(&beginning->lock);
        if (beginning->error == NULL)
            beginning->error = g_steal_pointer(&error);
        pthread_mutex_unlock(&beginning->lock);
        g_clear_error(&error);
    }
}

static void end_models(Server *server, void *data)
{
    server_end_task(server, (uint32_t)(uintptr_t)data);
}

static void make_routes(RubatoTaskRun *run)
{
    RubatoEngine *engine = run->engine;

    run->routes = g_new0(TableRoute, run->n_tables + 1);
    run->clocks = g_new0(Clocks, run->n_tables + 1);
    for (size_t i = 0; i < run->n_tables; i++) {
        const Table *table = run->tables[i];
        TableRoute *route = &run->routes[i];

        clocks_init(&run->clocks[i], engine->self, engine->n_nodes, run->workers_of);
        route->spec = table->spec;
        route->partition = &table->partition;
        route->update = update_find(table->spec->update);
        route->table = table->id;
        route->epoch = run->epoch;
        route->row_bytes = table->row_bytes;
        route->per_worker_clocks = model_per_worker_clocks(table->spec);
        route->clocks = &run->clocks[i];
        route->office = &engine->office;
        route->cancelled = &run->cancelled;
        route->stall_ms = engine->stall_ms;
    }
}

bool task_run_prepare(RubatoTaskRun *run, uint32_t epoch, GError **error)
{
    RubatoEngine *engine = run->engine;
    Beginning beginning = { .run = run, .lock = PTHREAD_MUTEX_INITIALIZER };

    run->epoch = epoch;
    make_routes(run);
    servers_run(engine->servers, engine->n_servers, begin_models, &beginning);
    if (beginning.error != NULL) {
        servers_run(engine->servers, engine->n_servers, end_models, (void *)(uintptr_t)epoch);
        g_propagate_error(error, beginning.error);
        return false;
    }
    pthread_mutex_lock(&engine->lock);
    run->prepared = true;
    g_ptr_array_add(engine->runs, run);
    pthread_mutex_unlock(&engine->lock);
    return true;
}

void task_run_abandon(RubatoTaskRun *run)
{
    RubatoEngine *engine = run->engine;

    pthread_mutex_lock(&engine->lock);
    g_ptr_array_remove(engine->runs, run);
    pthread_mutex_unlock(&engine->lock);
    servers_run(engine->servers, engine->n_servers, end_models, (void *)(uintptr_t)run->epoch);
}

/* ---- workers ---- */

static bool is_cancelled(const RubatoTaskRun *run)
{
    return atomic_load_explicit(&run->cancelled, memory_order_seq_cst);
}

/* Returns when every server has taken in what this node's workers sent before, or the task is
 * cancelled. */
static void fence(RubatoTaskRun *run)
{
    RubatoEngine *engine = run->engine;
    PostOffice *office = &engine->office;
    g_autofree Message *messages = g_new0(Message, office->n_servers);
    uint32_t waited_ms = 0;
    Call call;

    call_begin(&call, NULL);
    call_add_parts(&call, office->n_servers);
    for (uint32_t server = 0; server < office->n_servers; server++) {
        messages[server] = (Message){ .kind = MESSAGE_FENCE,
                                      .epoch = run->epoch,
                                      .table = MESSAGE_NO_TABLE,
                                      .server = server,
                                      .node = office->self,
                                      .call = &call,
                                      .end = message_end_call };
        post_office_ask(office, &messages[server], 0);
    }
    post_office_flush(office);
    if (is_cancelled(run)) /* as cancel_if_late in tables/client.c */
        post_office_cancel(office, run->epoch);
    call_sent(&call);
    while (!call_wait(&call, (int)engine->stall_ms)) {
        uint32_t node = office->self;

        waited_ms += engine->stall_ms;
        post_office_waits_for(office, &call, &node);
        g_message("task %s waits for node %u to take in what was sent to its servers (for %.1f s "
                  "so far)",
                  run->name, office->node_ids[node], (double)waited_ms / 1000);
    }
}

static void arrive(RubatoTaskRun *run, uint64_t round)
{
    engine_tell_scheduler(
        run->engine, &(Control){ .kind = CONTROL_ARRIVE, .epoch = run->epoch, .round = round });
}

/* Waits on `changed` for ms at most; the run's lock is held. */
static void wait_changed(RubatoTaskRun *run, uint32_t ms)
{
    monotonic_wait(&run->changed, &run->lock, monotonic_ms() + ms);
}

static bool barrier(RubatoWorker *worker, GError **error)
{
    RubatoTaskRun *run = worker->engine_data;
    const uint32_t stall_ms = run->engine->stall_ms;
    uint64_t round;
    bool last;

    pthread_mutex_lock(&run->lock);
    round = run->round;
    last = ++run->n_waiting == run->n_live;
    if (last) {
        pthread_mutex_unlock(&run->lock);
        fence(run);
        arrive(run, round);
        pthread_mutex_lock(&run->lock);
    }
    for (uint32_t waited_ms = 0; run->round == round && !is_cancelled(run);) {
        const int64_t before_ms = network_now_ms();

        wait_changed(run, stall_ms);
        if (run->round != round || network_now_ms() - before_ms < stall_ms)
            continue;
        waited_ms += stall_ms;
        g_message("worker %u waits in a barrier of task %s with %u of this node's %u workers that "
                  "have not returned (for %.1f s so far)",
                  worker->rank, run->name, run->n_waiting, run->n_live, (double)waited_ms / 1000);
    }
    pthread_mutex_unlock(&run->lock);
    if (run->cancelled) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "task %s was cancelled",
                    run->name);
        return false;
    }
    return true;
}

/* A worker's function has returned. */
static void retire(RubatoTaskRun *run, uint32_t rank, bool failed)
{
    bool last, completes_barrier;
    uint64_t round;

    if (!failed)
        for (size_t i = 0; i < run->n_tables; i++)
            table_route_retire(&run->routes[i], rank);
    pthread_mutex_lock(&run->lock);
    last = --run->n_live == 0;
    completes_barrier = !last && run->n_waiting == run->n_live;
    round = run->round;
    pthread_mutex_unlock(&run->lock);
    if (!last && !completes_barrier)
        return;
    if (!is_cancelled(run))
        fence(run);
    arrive(run, last ? CONTROL_NO_ROUND : round);
    if (last)
        engine_tell_scheduler(run->engine,
                              &(Control){ .kind = CONTROL_TASK_DONE, .epoch = run->epoch });
}

static void report_failure(RubatoTaskRun *run, const RubatoWorker *worker, const GError *error)
{
    /* not by this node: that of a server has given up the task, and may be unable to say so */
    const bool cancelled = g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED);
    const uint32_t code = cancelled ? RUBATO_ERROR_CANCELLED : RUBATO_ERROR_TASK_FAILED;
    g_autofree char *text = g_strdup_printf(
        "task %s: worker %u (node %u) %s: %s", run->name, worker->rank, worker->node_id,
        cancelled ? "was cancelled" : "failed",
        error == NULL ? "its function returned false and set no error" : error->message);

    engine_tell_scheduler(run->engine, &(Control){ .kind = CONTROL_FAIL,
                                                   .epoch = run->epoch,
                                                   .code = CONTROL_CODE(code),
                                                   .text = text });
}

static void *work(void *user)
{
    WorkerThread *self = user;
    RubatoTaskRun *run = self->run;
    RubatoWorker *worker = &self->worker;
    g_autoptr(GError) error = NULL;
    const bool ok = run->function(worker, run->user_data, &error);

    /* after a cancellation every call fails: that is not the cause */
    if (!ok && !(is_cancelled(run) && g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED)))
        report_failure(run, worker, error);
    worker_close_tables(worker);
    retire(run, worker->rank, !ok);
    return NULL;
}

static void start_worker(RubatoTaskRun *run, uint32_t local_rank)
{
    WorkerThread *thread = &run->workers[local_rank];
    const uint32_t rank = run->first_rank + local_rank;
    char name[16];

    *thread = (WorkerThread){ .worker = { .id = ((uint64_t)run->epoch << 32) | rank,
                                          .rank = rank,
                                          .local_rank = local_rank,
                                          .node_id = run->engine->id,
                                          .n_workers = run->n_workers,
                                          .n_local_workers = run->n_local,
                                          .task = run->name,
                                          .routes = run->routes,
                                          .n_routes = run->n_tables,
                                          .helper = &run->engine->helper,
                                          .cancelled = &run->cancelled,
                                          .barrier = barrier,
                                          .engine_data = run },
                              .run = run };
    thread->worker.clients = g_new0(TableClient *, run->n_tables + 1);
    thread->started = pthread_create(&thread->thread, NULL, work, thread) == 0;
    if (thread->started) {
        g_snprintf(name, sizeof name, "worker %u", rank);
        pthread_setname_np(thread->thread, name);
        return;
    }
    report_failure(run, &thread->worker,
                   &(GError){ .message = (char *)"its thread could not be started" });
    worker_close_tables(&thread->worker);
    retire(run, rank, /* failed= */ true);
}

void task_run_start_workers(RubatoTaskRun *run)
{
    run->workers = g_new0(WorkerThread, run->n_local + 1);
    for (uint32_t i = 0; i < run->n_local; i++)
        start_worker(run, i);
    if (run->n_local == 0) {
        arrive(run, CONTROL_NO_ROUND);
        engine_tell_scheduler(run->engine,
                              &(Control){ .kind = CONTROL_TASK_DONE, .epoch = run->epoch });
    }
}

/* ---- the data that they read ---- */

Feed *task_run_feed(RubatoTaskRun *run, uint32_t id, RubatoDataset *dataset,
                    const RubatoReaderOptions *options, GError **error)
{
    const FeedPlace place = { run->engine, run->name, run->epoch, id };
    Feed *feed;
    bool made;

    pthread_mutex_lock(&run->lock);
    if (id >= run->feeds->len)
        g_ptr_array_set_size(run->feeds, (gint)id + 1);
    made = run->feeds->pdata[id] == NULL;
    if (made)
        run->feeds->pdata[id] = feed_new(&place, dataset, options);
    feed = run->feeds->pdata[id];
    if (made && is_cancelled(run))
        feed_cancel(feed);
    pthread_mutex_unlock(&run->lock);
    if (made)
        feed_announce(feed);
    return made || feed_check(feed, dataset, options, error) ? feed : NULL;
}

/* ---- what the scheduler says of it ---- */

void task_run_cancel(RubatoTaskRun *run, uint32_t code, const char *text)
{
    RubatoEngine *engine = run->engine;

    pthread_mutex_lock(&run->lock);
    if (is_cancelled(run) || run->ended) {
        pthread_mutex_unlock(&run->lock);
        return;
    }
    run->end_code = code;
    run->end_text = g_strdup(text);
    /* seq_cst: before the sweep; whoever asks another node looks at it after registering */
    atomic_store_explicit(&run->cancelled, true, memory_order_seq_cst);
    call_begin(&run->teardown, NULL);
    servers_post(engine->servers, engine->n_servers, end_models, (void *)(uintptr_t)run->epoch,
                 &run->teardown);
    for (guint i = 0; i < run->feeds->len; i++)
        if (run->feeds->pdata[i] != NULL)
            feed_cancel(run->feeds->pdata[i]);
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
    post_office_cancel(&engine->office, run->epoch);
    if (engine->network != NULL)
        network_wake_waiters(engine->network);
}

void task_run_blocks(RubatoTaskRun *run, const Control *blocks)
{
    Feed *feed = NULL;

    pthread_mutex_lock(&run->lock);
    if (blocks->id < run->feeds->len)
        feed = run->feeds->pdata[blocks->id];
    if (feed != NULL)
        feed_receive(feed, blocks);
    pthread_mutex_unlock(&run->lock);
}

void task_run_release(RubatoTaskRun *run, uint64_t round)
{
    pthread_mutex_lock(&run->lock);
    if (round == run->round) {
        run->round++;
        run->n_waiting = 0;
        pthread_cond_broadcast(&run->changed);
    }
    pthread_mutex_unlock(&run->lock);
}

void task_run_end(RubatoTaskRun *run, uint32_t code, const char *text)
{
    RubatoEngine *engine = run->engine;

    pthread_mutex_lock(&run->lock);
    if (!run->ended) {
        if (run->end_code == CONTROL_OK && code != CONTROL_OK) {
            run->end_code = code;
            run->end_text = g_strdup(text);
        }
        if (!is_cancelled(run)) {
            call_begin(&run->teardown, NULL);
            servers_post(engine->servers, engine->n_servers, end_models,
                         (void *)(uintptr_t)run->epoch, &run->teardown);
        }
        call_sent(&run->teardown);
        run->ended = true;
        pthread_cond_broadcast(&run->changed);
    }
    pthread_mutex_unlock(&run->lock);
}

void task_run_tell_news(RubatoTaskRun *run)
{
    PostOffice *office = &run->engine->office;

    for (size_t i = 0; i < run->n_tables; i++) {
        NodeClock news;

        /* what it says is old to the servers; only messages to the user are better for it */
        if (clocks_has_news(&run->clocks[i], &news))
            post_office_tell_clock(office, run->epoch, run->routes[i].table,
                                   run->routes[i].per_worker_clocks ? news.slowest : office->self,
                                   news.clock, news.clock, news.slowest);
    }
    post_office_flush(office);
}

void task_run_hear_clock(RubatoTaskRun *run, uint32_t node, const WireHeader *header)
{
    for (size_t i = 0; i < run->n_tables; i++)
        if (run->routes[i].table == header->table)
            clocks_hear(&run->clocks[i], node,
                        (NodeClock){ header->first_key, (uint32_t)header->request_id });
}

/* ---- waiting for it ---- */

static void wait_for_end(RubatoTaskRun *run)
{
    const uint32_t stall_ms = run->engine->stall_ms;

    pthread_mutex_lock(&run->lock);
    for (uint32_t waited_ms = 0; !run->ended;) {
        const int64_t before_ms = network_now_ms();

        wait_changed(run, stall_ms);
        if (run->ended || network_now_ms() - before_ms < stall_ms)
            continue;
        waited_ms += stall_ms;
        if (is_cancelled(run) && run->n_live > 0)
            g_message("task %s was cancelled; %u workers of node %u have not returned yet (for "
                      "%.1f s so far)",
                      run->name, run->n_live, run->engine->id, (double)waited_ms / 1000);
    }
    pthread_mutex_unlock(&run->lock);
}

bool rubato_task_run_wait(RubatoTaskRun *run, GError **error)
{
    RubatoEngine *engine;
    Control end;
    bool ok;

    g_return_val_if_fail(run != NULL, false);
    engine = run->engine;
    wait_for_end(run);
    for (uint32_t i = 0; i < run->n_local; i++)
        if (run->workers[i].started)
            pthread_join(run->workers[i].thread, NULL);
    call_wait(&run->teardown, -1);
    pthread_mutex_lock(&engine->lock);
    g_ptr_array_remove(engine->runs, run);
    pthread_mutex_unlock(&engine->lock);
    end = (Control){ .code = run->end_code, .text = run->end_text };
    ok = control_check(&end, error);
    task_run_free(run);
    return ok;
}

RubatoTaskRun *task_run_find(RubatoEngine *engine, uint64_t epoch)
{
    for (guint i = 0; i < engine->runs->len; i++) {
        RubatoTaskRun *run = g_ptr_array_index(engine->runs, i);

        if (run->epoch == epoch)
            return run;
    }
    return NULL;
}
