/* A task's life on this node: it is made and prepared, the scheduler says that it is cancelled or has
 * ended, and whoever waits for it frees it. Its workers are in task_run_workers.c.
 *
 * A task ends in three steps. Each worker that returns is retired: its clocks no longer hold anybody
 * back. The last one of the node fences: when every server has answered, all that this node's
 * workers sent has been taken in; it then says TASK_DONE. When all nodes have, the scheduler says
 * TASK_END and each node drops the task's models: nothing of the task can be under way any more.
 *
 * A task that fails takes the same way, but its models go at once, with what is parked in them, and
 * nobody fences. A worker that failed is not retired: what BSP kept of its unfinished clock must
 * not be applied.
 *
 * Threads: as task_run.h and node.h say.
 *
 * Invariants: the run is in the engine's list from prepare to the end of its wait, so that whoever
 * finds it there under the engine's lock may use it while holding that lock; its first cause stays. */
#include "engine/task_run_private.h"

#include "models/model.h"
#include "models/rule.h"
#include "models/shard.h"
#include "models/update.h"
#include "tables/process_cache.h"

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
        route->replayable = rule_is_replayable(table->spec);
        route->check_tuning = rule_check_tuning;
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

/* ---- the data that its workers read ---- */

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
    if (made && task_run_is_cancelled(run))
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
    if (task_run_is_cancelled(run) || run->ended) {
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

void task_run_end(RubatoTaskRun *run, uint32_t code, const char *text)
{
    RubatoEngine *engine = run->engine;

    pthread_mutex_lock(&run->lock);
    if (!run->ended) {
        if (run->end_code == CONTROL_OK && code != CONTROL_OK) {
            run->end_code = code;
            run->end_text = g_strdup(text);
        }
        if (!task_run_is_cancelled(run)) {
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

        task_run_wait_changed(run, stall_ms);
        if (run->ended || network_now_ms() - before_ms < stall_ms)
            continue;
        waited_ms += stall_ms;
        if (task_run_is_cancelled(run) && run->n_live > 0)
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
    task_run_join_workers(run);
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
