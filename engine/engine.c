/* The engine's life and the public calls on it.
 *
 * Threads start from the bottom up: servers and helper, then the network, then the rendezvous; they
 * stop the other way round. Tables and runs are in lists under the engine's lock. */
#include <errno.h>
#include <string.h>

#include "engine/node.h"
#include "engine/signals.h"
#include "engine/task_run.h"
#include "models/shard.h"
#include "models/update.h"
#include "tables/client.h"

/* ---- small things that the other files use ---- */

char *engine_node_text(const RubatoEngine *engine, uint32_t number)
{
    return g_strdup_printf("node %u (%s)", engine->node_ids[number], engine->node_names[number]);
}

void engine_wait_changed(RubatoEngine *engine, uint32_t ms)
{
    struct timespec deadline;

    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += ms / 1000;
    deadline.tv_nsec += (long)(ms % 1000) * 1000000L;
    if (deadline.tv_nsec >= 1000000000L) {
        deadline.tv_nsec -= 1000000000L;
        deadline.tv_sec++;
    }
    pthread_cond_timedwait(&engine->changed, &engine->lock, &deadline);
}

Table *engine_find_table(RubatoEngine *engine, const char *name, GError **error)
{
    g_autoptr(GString) known = NULL;

    for (guint i = 0; i < engine->tables->len; i++) {
        Table *table = g_ptr_array_index(engine->tables, i);

        if (strcmp(table->spec->name, name) == 0)
            return table;
    }
    known = g_string_new(engine->tables->len == 0 ? "there is none" : "there are");
    for (guint i = 0; i < engine->tables->len; i++)
        g_string_append_printf(known, "%s %s", i == 0 ? "" : ",",
                               ((Table *)g_ptr_array_index(engine->tables, i))->spec->name);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND, "no table %s; %s", name, known->str);
    return NULL;
}

/* ---- making ---- */

static void handle_for_helper(Actor *actor, Message *message)
{
    message->invoke(message, actor); /* frees the message */
}

static bool describe_single(RubatoEngine *engine, GError **error)
{
    const RubatoEngineConfig *config = &engine->config;

    if (config->servers > CLUSTER_MAX_THREADS || config->workers > CLUSTER_MAX_THREADS) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "%u servers and %u workers; ask for %u of each at most", config->servers,
                    config->workers, CLUSTER_MAX_THREADS);
        return false;
    }
    engine->n_nodes = 1;
    engine->node_ids = g_new0(uint32_t, 1);
    engine->node_names = g_new0(char *, 2);
    engine->node_names[0] = g_strdup("this process");
    engine->servers_of = g_new0(uint32_t, 1);
    engine->workers_of = g_new0(uint32_t, 1);
    engine->servers_of[0] = MAX(1, config->servers);
    engine->workers_of[0] = MAX(1, config->workers);
    engine->stall_ms = config->stall_ms;
    return true;
}

static bool describe_cluster(RubatoEngine *engine, GError **error)
{
    const Cluster *cluster = engine->cluster = cluster_read(engine->config.cluster_file, error);
    const uint32_t n = cluster == NULL ? 0 : cluster->n_nodes;

    if (cluster == NULL)
        return false;
    if (cluster_find(cluster, engine->config.node, &engine->self) == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                    "%s: there is no node %u in it; give --node one of its ids", cluster->path,
                    engine->config.node);
        return false;
    }
    engine->id = engine->config.node;
    engine->n_nodes = n;
    engine->node_ids = g_new0(uint32_t, n);
    engine->node_names = g_new0(char *, n + 1);
    engine->servers_of = g_new0(uint32_t, n);
    engine->workers_of = g_new0(uint32_t, n);
    for (uint32_t i = 0; i < n; i++) {
        const ClusterNode *node = &cluster->nodes[i];

        engine->node_ids[i] = node->id;
        engine->node_names[i] = g_strdup_printf("%s:%u", node->host, node->port);
        engine->servers_of[i] = node->servers;
        engine->workers_of[i] = node->workers;
    }
    engine->scheduler_node = cluster->scheduler_node;
    engine->heartbeat_ms = cluster->heartbeat_ms;
    engine->timeout_ms = cluster->timeout_ms;
    engine->stall_ms = engine->config.stall_ms != 0 ? engine->config.stall_ms : cluster->stall_ms;
    return true;
}

static bool start_threads(RubatoEngine *engine, GError **error)
{
    uint32_t first = 0;
    bool started;

    for (uint32_t node = 0; node < engine->self; node++)
        first += engine->servers_of[node];
    engine->n_servers = engine->servers_of[engine->self];
    engine->servers = g_new0(Server, engine->n_servers + 1);
    for (uint32_t i = 0; i < engine->n_servers; i++) {
        server_init(&engine->servers[i], first + i, &engine->office);
        engine->office.servers[first + i].actor = &engine->servers[i].actor;
    }
    started = actor_start(&engine->helper, "helper");
    for (uint32_t i = 0; i < engine->n_servers && started; i++)
        started = server_start(&engine->servers[i]);
    if (!started)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "cannot start %u server threads: %s",
                    engine->n_servers, g_strerror(errno));
    return started;
}

static void interrupted(RubatoEngine *engine, int signal_number)
{
    g_autofree char *text = g_strdup_printf("node %u was ended by signal %d (%s)", engine->id,
                                            signal_number, strsignal(signal_number));
    bool running;

    pthread_mutex_lock(&engine->lock);
    running = engine->cluster == NULL || engine->welcome;
    pthread_mutex_unlock(&engine->lock);
    if (running)
        engine_tell_scheduler(engine, &(Control){ .kind = CONTROL_STOP, .text = text });
    else
        engine_break(engine, CONTROL_CODE(RUBATO_ERROR_CANCELLED), text);
}

static bool start(RubatoEngine *engine, GError **error)
{
    const bool described = engine->config.cluster_file != NULL ? describe_cluster(engine, error)
                                                               : describe_single(engine, error);

    if (!described)
        return false;
    if (engine->stall_ms == 0)
        engine->stall_ms = 10000;
    post_office_init(&engine->office, engine->self, engine->n_nodes, engine->node_ids,
                     engine->servers_of);
    dispatch_init(engine);
    if (engine->config.handle_signals)
        engine->signals = signal_watch_new(interrupted, engine);
    if (!start_threads(engine, error))
        return false;
    if (engine->cluster != NULL)
        return rendezvous(engine, error);
    dispatch_start_scheduler(engine);
    return true;
}

RubatoEngine *rubato_engine_new(const RubatoEngineConfig *config, GError **error)
{
    RubatoEngine *engine = NULL;
    pthread_condattr_t monotonic;

    g_return_val_if_fail(config != NULL, NULL);
    if (posix_memalign((void **)&engine, _Alignof(RubatoEngine), sizeof *engine) != 0)
        g_error("no memory for an engine");
    memset(engine, 0, sizeof *engine);
    engine->config = *config;
    engine->config.cluster_file = NULL;
    engine->config.cluster_file = g_strdup(config->cluster_file);
    engine->tables = g_ptr_array_new_with_free_func((GDestroyNotify)table_free);
    engine->runs = g_ptr_array_new();
    pthread_mutex_init(&engine->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&engine->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    actor_init(&engine->helper, handle_for_helper, NULL);
    if (!start(engine, error))
        g_clear_pointer(&engine, rubato_engine_free);
    return engine;
}

/* ---- leaving ---- */

static void end_runs(RubatoEngine *engine)
{
    for (;;) {
        RubatoTaskRun *run = NULL;

        pthread_mutex_lock(&engine->lock);
        if (engine->runs->len > 0)
            run = g_ptr_array_index(engine->runs, 0);
        pthread_mutex_unlock(&engine->lock);
        if (run == NULL)
            return;
        rubato_engine_cancel(engine);
        rubato_task_run_wait(run, NULL);
    }
}

/* Says that this node has nothing left to do, and waits until that is true of all. */
static void leave(RubatoEngine *engine)
{
    uint32_t waited_ms = 0;

    engine_tell_scheduler(engine, &(Control){ .kind = CONTROL_LEAVE });
    pthread_mutex_lock(&engine->lock);
    while (!engine->left && !engine->scheduler_lost) {
        const int64_t before_ms = network_now_ms();

        engine_wait_changed(engine, engine->stall_ms);
        if (network_now_ms() - before_ms < engine->stall_ms)
            continue;
        waited_ms += engine->stall_ms;
        g_message("node %u has nothing left to do and serves the others until they leave too (for "
                  "%.1f s so far)",
                  engine->id, (double)waited_ms / 1000);
    }
    pthread_mutex_unlock(&engine->lock);
}

void rubato_engine_free(RubatoEngine *engine)
{
    if (engine == NULL)
        return;
    end_runs(engine);
    if (engine->welcome)
        leave(engine);
    if (engine->network != NULL)
        network_stop(engine->network);
    for (uint32_t i = 0; i < engine->n_servers; i++)
        server_stop(&engine->servers[i]);
    actor_stop(&engine->helper);
    signal_watch_free(engine->signals);
    for (uint32_t i = 0; i < engine->n_servers; i++)
        server_clear(&engine->servers[i]);
    network_free(engine->network);
    scheduler_free(engine->scheduler);
    if (engine->office.servers != NULL)
        post_office_clear(&engine->office);
    g_free(engine->servers);
    g_ptr_array_unref(engine->tables);
    g_ptr_array_unref(engine->runs);
    g_free((void *)(uintptr_t)engine->config.cluster_file);
    g_free(engine->node_ids);
    g_strfreev(engine->node_names);
    g_free(engine->servers_of);
    g_free(engine->workers_of);
    g_free(engine->refusal);
    g_free(engine->commit_text);
    g_free(engine->broken_text);
    pthread_cond_destroy(&engine->changed);
    pthread_mutex_destroy(&engine->lock);
    cluster_free(engine->cluster);
    free(engine);
}

/* ---- what it is ---- */

static uint32_t sum(const uint32_t *numbers, uint32_t n)
{
    uint32_t total = 0;

    for (uint32_t i = 0; i < n; i++)
        total += numbers[i];
    return total;
}

uint32_t rubato_engine_node(const RubatoEngine *engine)
{
    return engine->id;
}

uint32_t rubato_engine_n_nodes(const RubatoEngine *engine)
{
    return engine->n_nodes;
}

uint32_t rubato_engine_n_servers(const RubatoEngine *engine)
{
    return sum(engine->servers_of, engine->n_nodes);
}

uint32_t rubato_engine_n_workers(const RubatoEngine *engine)
{
    return sum(engine->workers_of, engine->n_nodes);
}

/* ---- tables ---- */

typedef struct {
    Table *table;
    pthread_mutex_t lock;
    GError *error; /* guarded by lock: the first */
} Creation;

static void create_shard(Server *server, void *data)
{
    Creation *creation = data;
    const Table *table = creation->table;
    GError *error = NULL;
    RubatoShard *shard;
    RubatoKey first;
    uint64_t n;

    partition_range(&table->partition, server->number, &first, &n);
    shard = shard_new(table->spec, first, n, &error);
    if (shard != NULL) {
        server_add_shard(server, table->id, shard);
        return;
    }
    pthread_mutex_lock(&creation->lock);
    if (creation->error == NULL)
        creation->error = g_steal_pointer(&error);
    pthread_mutex_unlock(&creation->lock);
    g_clear_error(&error);
}

static void drop_shard(Server *server, void *data)
{
    server_drop_shard(server, (uint32_t)(uintptr_t)data);
}

static void drop_shards(RubatoEngine *engine, uint32_t table)
{
    servers_run(engine->servers, engine->n_servers, drop_shard, (void *)(uintptr_t)table);
}

static bool perform_create(RubatoEngine *engine, uint64_t id, void *data, GError **error)
{
    Creation creation = { .table = data, .lock = PTHREAD_MUTEX_INITIALIZER };

    creation.table->id = (uint32_t)id;
    servers_run(engine->servers, engine->n_servers, create_shard, &creation);
    if (creation.error == NULL)
        return true;
    drop_shards(engine, creation.table->id);
    g_propagate_prefixed_error(error, creation.error, "node %u: ", engine->id);
    return false;
}

static void undo_create(RubatoEngine *engine, uint64_t id, void *data)
{
    (void)data;
    drop_shards(engine, (uint32_t)id);
}

bool rubato_engine_create_table(RubatoEngine *engine, const RubatoTableSpec *spec, GError **error)
{
    g_autoptr(Table) table = NULL;
    g_autofree char *text = NULL;
    g_autofree char *detail = NULL;
    bool exists;

    g_return_val_if_fail(engine != NULL && spec != NULL, false);
    table = table_new(spec, engine->office.n_servers, error);
    if (table == NULL)
        return false;
    pthread_mutex_lock(&engine->lock);
    exists = engine_find_table(engine, spec->name, NULL) != NULL;
    pthread_mutex_unlock(&engine->lock);
    if (exists) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_EXISTS,
                    "there is a table %s already; drop it first, or take another name", spec->name);
        return false;
    }
    text = g_strdup_printf("table %s", spec->name);
    detail = table_describe(table->spec);
    if (!collective(engine,
                    &(CollectiveCall){ .what = CONTROL_CREATE,
                                       .text = text,
                                       .detail = detail,
                                       .perform = perform_create,
                                       .undo = undo_create,
                                       .data = table },
                    error))
        return false;
    pthread_mutex_lock(&engine->lock);
    g_ptr_array_add(engine->tables, g_steal_pointer(&table));
    pthread_mutex_unlock(&engine->lock);
    return true;
}

static bool check_unused(RubatoEngine *engine, uint64_t id, void *data, GError **error)
{
    const Table *table = data;
    bool used;

    (void)id;
    pthread_mutex_lock(&engine->lock);
    used = table->n_tasks > 0;
    pthread_mutex_unlock(&engine->lock);
    if (used)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "table %s cannot be dropped: a task uses it; wait for the task first",
                    table->spec->name);
    return !used;
}

bool rubato_engine_drop_table(RubatoEngine *engine, const char *name, GError **error)
{
    g_autofree char *text = NULL;
    Table *table;

    g_return_val_if_fail(engine != NULL && name != NULL, false);
    pthread_mutex_lock(&engine->lock);
    table = engine_find_table(engine, name, error);
    pthread_mutex_unlock(&engine->lock);
    if (table == NULL)
        return false;
    text = g_strdup_printf("table %s", name);
    if (!collective(engine,
                    &(CollectiveCall){ .what = CONTROL_DROP,
                                       .text = text,
                                       .detail = "",
                                       .perform = check_unused,
                                       .data = table },
                    error))
        return false;
    drop_shards(engine, table->id);
    pthread_mutex_lock(&engine->lock);
    g_ptr_array_remove(engine->tables, table);
    pthread_mutex_unlock(&engine->lock);
    return true;
}

/* ---- tasks ---- */

static bool perform_run(RubatoEngine *engine, uint64_t id, void *data, GError **error)
{
    (void)engine;
    return task_run_prepare(data, (uint32_t)id, error);
}

static void undo_run(RubatoEngine *engine, uint64_t id, void *data)
{
    (void)engine;
    (void)id;
    task_run_abandon(data);
}

RubatoTaskRun *rubato_engine_start(RubatoEngine *engine, const RubatoTask *task, GError **error)
{
    g_autofree char *text = NULL;
    g_autofree char *detail = NULL;
    RubatoTaskRun *run;

    g_return_val_if_fail(engine != NULL && task != NULL, NULL);
    run = task_run_new(engine, task, error);
    if (run == NULL)
        return NULL;
    text = g_strdup_printf("task %s", task->name);
    detail = task_run_describe(run);
    if (!collective(engine,
                    &(CollectiveCall){ .what = CONTROL_RUN,
                                       .text = text,
                                       .detail = detail,
                                       .perform = perform_run,
                                       .undo = undo_run,
                                       .data = run },
                    error)) {
        task_run_free(run);
        return NULL;
    }
    task_run_start_workers(run);
    return run;
}

bool rubato_engine_run(RubatoEngine *engine, const RubatoTask *task, GError **error)
{
    RubatoTaskRun *run = rubato_engine_start(engine, task, error);

    return run != NULL && rubato_task_run_wait(run, error);
}

bool rubato_engine_barrier(RubatoEngine *engine, GError **error)
{
    g_return_val_if_fail(engine != NULL, false);
    return collective(
        engine, &(CollectiveCall){ .what = CONTROL_BARRIER, .text = "a barrier", .detail = "" },
        error);
}

void rubato_engine_cancel(RubatoEngine *engine)
{
    g_autofree char *text = NULL;

    g_return_if_fail(engine != NULL);
    text = g_strdup_printf("node %u cancelled its tasks", engine->id);
    engine_tell_scheduler(engine, &(Control){ .kind = CONTROL_INTERRUPT, .text = text });
}

/* ---- reading and writing between tasks ---- */

static bool begin_access(RubatoEngine *engine, const char *name, TableRoute *route, GError **error)
{
    Table *table;
    bool ok;

    pthread_mutex_lock(&engine->lock);
    table = engine_find_table(engine, name, error);
    ok = table != NULL && engine_check(engine, error);
    if (ok)
        table->n_tasks++; /* it cannot be dropped meanwhile */
    pthread_mutex_unlock(&engine->lock);
    if (ok)
        *route = (TableRoute){ .spec = table->spec,
                               .partition = &table->partition,
                               .update = update_find(table->spec->update),
                               .table = table->id,
                               .row_bytes = table->row_bytes,
                               .office = &engine->office,
                               .cancelled = &engine->broken,
                               .stall_ms = engine->stall_ms };
    return ok;
}

static void end_access(RubatoEngine *engine, const TableRoute *route)
{
    pthread_mutex_lock(&engine->lock);
    engine_find_table(engine, route->spec->name, NULL)->n_tasks--;
    pthread_mutex_unlock(&engine->lock);
}

typedef struct {
    bool adds;
    const RubatoKey *keys; /* NULL: the run from first */
    RubatoKey first;
    size_t n;
    void *values;
} Access;

static bool access_rows(TableClient *client, const Access *access, GError **error)
{
    if (access->adds) /* the fence: the servers have applied it when this returns */
        return (access->keys != NULL
                    ? table_client_add(client, access->keys, access->n, access->values, error)
                    : table_client_add_run(client, access->first, access->n, access->values,
                                           error)) &&
               table_client_fence(client, error);
    return access->keys != NULL
               ? table_client_get(client, access->keys, access->n, access->values, error)
               : table_client_get_run(client, access->first, access->n, access->values, error);
}

static bool access_table(RubatoEngine *engine, const char *name, const Access *access,
                         GError **error)
{
    TableRoute route;
    TableClient *client;
    bool ok;

    if (!begin_access(engine, name, &route, error))
        return false;
    client = table_client_new(&route, UINT32_MAX);
    ok = access_rows(client, access, error);
    table_client_free(client);
    end_access(engine, &route);
    return ok;
}

bool rubato_engine_get(RubatoEngine *engine, const char *table, const RubatoKey *keys, size_t n,
                       void *values, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL && (keys != NULL || n == 0), false);
    return access_table(engine, table, &(Access){ .keys = keys, .n = n, .values = values }, error);
}

bool rubato_engine_get_range(RubatoEngine *engine, const char *table, RubatoKey first, size_t n,
                             void *values, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL, false);
    return access_table(engine, table, &(Access){ .first = first, .n = n, .values = values },
                        error);
}

bool rubato_engine_add(RubatoEngine *engine, const char *table, const RubatoKey *keys, size_t n,
                       const void *deltas, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL && (keys != NULL || n == 0), false);
    return access_table(
        engine, table,
        &(Access){ .adds = true, .keys = keys, .n = n, .values = (void *)(uintptr_t)deltas },
        error);
}

bool rubato_engine_add_range(RubatoEngine *engine, const char *table, RubatoKey first, size_t n,
                             const void *deltas, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL, false);
    return access_table(
        engine, table,
        &(Access){ .adds = true, .first = first, .n = n, .values = (void *)(uintptr_t)deltas },
        error);
}
