/* Tables: creating and dropping them on every node. */
#include <errno.h>

#include "engine/control/told_table.h"
#include "engine/engine_private.h"
#include "io/kernel_random.h"
#include "models/shard/shard.h"
#include "models/spec.h"

typedef struct {
    Table *table;
    pthread_mutex_t lock;
    GError *error; /* guarded by lock: the first */
} Creation;

/* Whether a server has a part, or a replica of it. */
static bool is_here(const PartMap *map, uint32_t part, uint32_t server)
{
    bool is_here = part_map_server(map, part) == server;

    for (uint32_t i = 0; i < map->n_replicas; i++)
        is_here = is_here || part_map_replica(map, part, i) == server;
    return is_here;
}

static void add_shard(Server *server, const Table *table, uint32_t part, RubatoShard *shard)
{
    const PartMap *map = table->map;
    const uint32_t primary = part_map_server(map, part);

    if (primary != server->number) {
        server_add_replica(server, table->id, part, primary, shard);
        return;
    }
    server_add_shard(server, table->id, part, shard);
    if (map->n_replicas == 0)
        return;
    g_autofree uint32_t *replicas = g_new(uint32_t, map->n_replicas);
    for (uint32_t i = 0; i < map->n_replicas; i++)
        replicas[i] = part_map_replica(map, part, i);
    server_add_feed(server, table->id, part, replicas, map->n_replicas);
}

/* The shards of a server's parts. */
static void create_shards(Server *server, void *data)
{
    Creation *creation = data;
    const Table *table = creation->table;
    GError *error = NULL;

    MEMORY_HOME_SCOPE(server->home);
    server_add_table(server, table->id, table->map->n_parts);
    for (uint32_t part = 0; part < table->map->n_parts && error == NULL; part++) {
        RubatoShard *shard;
        RubatoKey first;
        uint64_t n;

        if (!is_here(table->map, part, server->number))
            continue;
        partition_range(&table->partition, part, &first, &n);
        shard = shard_new_seeded(table->spec, first, n, table->hash_seed, &error);
        if (shard == NULL)
            break;
        const uint64_t now = sweeper_seconds();

        server->seconds = MAX(server->seconds, now);
        if (shard_counts(shard, RUBATO_TIME_SECONDS) && table->map->n_replicas == 0)
            shard_reach_time(shard, server->seconds); /* to others it comes as an input */
        add_shard(server, table, part, shard);
    }
    if (error == NULL)
        return;
    pthread_mutex_lock(&creation->lock);
    if (creation->error == NULL)
        creation->error = g_steal_pointer(&error);
    pthread_mutex_unlock(&creation->lock);
    g_clear_error(&error);
}

static bool begin_sweeps(RubatoEngine *engine, const Table *table, GError **error)
{
    return spec_stamp_bytes(table->spec) == 0 ||
           sweeper_start(&engine->sweeper, engine->servers, engine->n_servers, error);
}

static bool perform_create(RubatoEngine *engine, const ControlGo *go, void *data, GError **error)
{
    Creation creation = { .table = data, .lock = PTHREAD_MUTEX_INITIALIZER };

    if (!engine_place_parts(engine, data, error))
        return false;
    if (!begin_sweeps(engine, creation.table, error))
        return false;
    creation.table->id = go->id;
    creation.table->hash_seed = go->hash_seed;
    servers_run(engine->servers, engine->n_servers, create_shards, &creation);
    if (creation.error == NULL)
        return true;
    servers_drop_table(engine->servers, engine->n_servers, creation.table->id);
    g_propagate_prefixed_error(error, creation.error, "node %u: ", engine->id);
    return false;
}

static void undo_create(RubatoEngine *engine, uint32_t id, void *data)
{
    (void)data;
    servers_drop_table(engine->servers, engine->n_servers, id);
}

/* The lock is held. */
static void commit_create(RubatoEngine *engine, void *data)
{
    g_ptr_array_add(engine->tables, data);
}

/* Programs that fill tables must not know the seed. */
static bool draw_seed(const RubatoTableSpec *spec, uint64_t *seed, GError **error)
{
    if (kernel_random(seed))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "table %s: the kernel gives no random bytes for the seed of its hash: %s",
                spec->name, g_strerror(errno));
    return false;
}

/* Whether a process may have joined, and the spec is not surely too long for a message. */
static bool may_be_told(const RubatoEngine *engine, const RubatoTableSpec *spec)
{
    const bool has_spares = engine->cluster != NULL && cluster_has_spares(engine->cluster);

    /* relaxed: set in an earlier call of this thread, or of one before it */
    return (has_spares || atomic_load_explicit(&engine->office.goes_on, memory_order_relaxed)) &&
           spec->n_bounds + spec->n_admit_keys <= CONTROL_MAX_FILE / 2;
}

/* The table was told, if it is still there. */
static void note_past_create(RubatoEngine *engine, uint32_t id, const char *told, void *data)
{
    (void)id;
    (void)told;
    newcomer_note_table(engine, ((const Table *)data)->spec->name, /* is_there= */ true);
}

static bool is_listed(RubatoEngine *engine, Table *table)
{
    pthread_mutex_lock(&engine->lock);
    const bool is_listed = g_ptr_array_find(engine->tables, table, NULL);
    pthread_mutex_unlock(&engine->lock);
    return is_listed;
}

bool rubato_engine_create_table(RubatoEngine *engine, const RubatoTableSpec *spec, GError **error)
{
    g_autoptr(Table) table = NULL;
    g_autofree char *text = NULL;
    g_autofree char *detail = NULL;
    g_autoptr(GString) told = g_string_new(NULL);
    uint64_t seed;
    bool exists;

    g_return_val_if_fail(engine != NULL && spec != NULL, false);
    table = table_new(spec, &engine->server_count, error);
    if (table == NULL || !engine_check_replicas(engine, table->spec, error))
        return false;
    pthread_mutex_lock(&engine->lock);
    exists = engine_find_table(engine, spec->name, NULL) != NULL;
    pthread_mutex_unlock(&engine->lock);
    if (newcomer_catches_up(engine))
        exists = newcomer_has_table(engine, spec->name);
    if (exists) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_EXISTS,
                    "there is a table %s already; drop it first, or take another name", spec->name);
        return false;
    }
    if (!draw_seed(spec, &seed, error))
        return false;
    text = g_strdup_printf("table %s", spec->name);
    detail = table_describe(table->spec);
    if (may_be_told(engine, spec))
        told_table_write(told, table);
    if (!collective(engine,
                    &(CollectiveCall){ .what = CONTROL_CALL_CREATE,
                                       .text = text,
                                       .detail = detail,
                                       .told = told->str,
                                       .seed = seed,
                                       .survives = table->spec->replicas > 0,
                                       .perform = perform_create,
                                       .undo = undo_create,
                                       .commit = commit_create,
                                       .past = note_past_create,
                                       .data = table },
                    error))
        return false;
    if (is_listed(engine, table)) /* not if the call was made before this process joined */
        engine_note_table(engine, g_steal_pointer(&table));
    return true;
}

typedef struct {
    const char *name;
    Table *taken; /* out of the catalogue: no thread finds it from here on */
} Drop;

static bool perform_drop(RubatoEngine *engine, const ControlGo *go, void *data, GError **error)
{
    Drop *drop = data;
    Table *table;
    bool used;

    pthread_mutex_lock(&engine->lock);
    table = engine_find_table(engine, drop->name, error);
    if (table != NULL)
        newcomer_await_release(engine, table, go->call);
    used = table != NULL && table->n_holds > 0;
    if (table != NULL && !used) {
        guint i = 0;

        g_ptr_array_find(engine->tables, table, &i);
        drop->taken = g_ptr_array_steal_index(engine->tables, i);
    }
    pthread_mutex_unlock(&engine->lock);
    if (used)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "table %s cannot be dropped: a task uses it; wait for the task first",
                    drop->name);
    return drop->taken != NULL;
}

static void undo_drop(RubatoEngine *engine, uint32_t id, void *data)
{
    Drop *drop = data;

    (void)id;
    pthread_mutex_lock(&engine->lock);
    g_ptr_array_add(engine->tables, g_steal_pointer(&drop->taken));
    pthread_mutex_unlock(&engine->lock);
}

static void note_past_drop(RubatoEngine *engine, uint32_t id, const char *told, void *data)
{
    (void)id;
    (void)told;
    newcomer_note_table(engine, ((const Drop *)data)->name, /* is_there= */ false);
}

/* Whether there is a table to drop; *number: its number as text, unless it was dropped before this
 * process joined. */
static bool find_number(RubatoEngine *engine, const char *name, char **number, GError **error)
{
    const bool was_there = newcomer_catches_up(engine) && newcomer_has_table(engine, name);

    pthread_mutex_lock(&engine->lock);
    const Table *const table = engine_find_table(engine, name, was_there ? NULL : error);
    if (table != NULL)
        *number = g_strdup_printf("%u", table->id);
    pthread_mutex_unlock(&engine->lock);
    return table != NULL || was_there;
}

bool rubato_engine_drop_table(RubatoEngine *engine, const char *name, GError **error)
{
    g_autofree char *text = NULL;
    g_autofree char *number = NULL; /* what is told is UTF-8; a name need not be */
    Drop drop = { .name = name };

    g_return_val_if_fail(engine != NULL && name != NULL, false);
    if (!find_number(engine, name, &number, error))
        return false;
    engine_note_drop(engine, name);
    text = g_strdup_printf("table %s", name);
    if (!collective(engine,
                    &(CollectiveCall){ .what = CONTROL_CALL_DROP,
                                       .text = text,
                                       .detail = "",
                                       .told = number,
                                       .perform = perform_drop,
                                       .undo = undo_drop,
                                       .past = note_past_drop,
                                       .data = &drop },
                    error))
        return false;
    if (drop.taken == NULL) /* the call was made before this process joined */
        return true;
    engine_measure_table(engine, drop.taken);
    servers_drop_table(engine->servers, engine->n_servers, drop.taken->id);
    table_free(drop.taken);
    return true;
}

/* ---- in a process that serves ---- */

static void add_table(Server *server, void *data)
{
    const Table *const table = data;

    server_add_table(server, table->id, table->map->n_parts);
}

bool engine_take_table(RubatoEngine *engine, const char **lines, GError **error)
{
    Table *const table = told_table_read(lines, &engine->server_count, error);

    if (table == NULL || !begin_sweeps(engine, table, error)) {
        table_free(table);
        return false;
    }
    servers_run(engine->servers, engine->n_servers, add_table, table);
    pthread_mutex_lock(&engine->lock);
    g_ptr_array_add(engine->tables, table);
    pthread_mutex_unlock(&engine->lock);
    return true;
}

Table *engine_find_told_table(const RubatoEngine *engine, uint32_t id)
{
    for (guint i = 0; i < engine->tables->len; i++)
        if (((const Table *)g_ptr_array_index(engine->tables, i))->id == id)
            return g_ptr_array_index(engine->tables, i);
    return NULL;
}

typedef struct {
    const char *told;
    Table *table; /* NULL: not yet, or the engine's */
    Drop drop;
} ToldCall;

/* The number of the table is told. */
static bool perform_told_drop(RubatoEngine *engine, const ControlGo *go, ToldCall *call,
                              GError **error)
{
    guint64 number;

    if (!g_ascii_string_to_unsigned(call->told, 10, 0, UINT32_MAX, &number, NULL)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "node %u, which has joined the run, was told to drop a table without a number",
                    engine->id);
        return false;
    }
    const Table *const table = engine_find_told_table(engine, (uint32_t)number);
    if (table == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                    "node %u, which has joined the run, was told to drop table %u, which it does "
                    "not have",
                    engine->id, (unsigned)number);
        return false;
    }
    call->drop.name = table->spec->name;
    return perform_drop(engine, go, &call->drop, error);
}

static bool perform_told(RubatoEngine *engine, const ControlGo *go, void *data, GError **error)
{
    ToldCall *const call = data;
    const char *at = call->told;

    if (go->what == CONTROL_CALL_DROP)
        return perform_told_drop(engine, go, call, error);
    if (go->what == CONTROL_CALL_CREATE && *at != '\0')
        call->table = told_table_read(&at, &engine->server_count, error);
    else
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST,
                    "node %u has joined the run: it %s", engine->id,
                    go->what == CONTROL_CALL_CREATE
                        ? "cannot be told a table with lists of so many keys"
                        : "does no part of this call");
    return call->table != NULL && perform_create(engine, go, call->table, error);
}

static void undo_told(RubatoEngine *engine, uint32_t id, void *data)
{
    ToldCall *const call = data;

    if (call->drop.taken != NULL)
        undo_drop(engine, id, &call->drop);
    else
        undo_create(engine, id, call->table);
}

/* The lock is held. */
static void commit_told(RubatoEngine *engine, void *data)
{
    ToldCall *const call = data;

    if (call->table != NULL)
        commit_create(engine, g_steal_pointer(&call->table));
}

void engine_serve_tables(RubatoEngine *engine, const ControlGo *go, const bool *lost,
                         GError **error)
{
    g_autofree char *told = g_strdup(go->told);
    ToldCall data = { .told = told };
    const CollectiveCall call = { .what = go->what,
                                  .text = "a call of the other nodes",
                                  .detail = "",
                                  .perform = perform_told,
                                  .undo = undo_told,
                                  .commit = commit_told,
                                  .data = &data };
    const bool ok = collective_serve(engine, &call, go, lost, error);

    if (ok && data.drop.taken != NULL)
        servers_drop_table(engine->servers, engine->n_servers, data.drop.taken->id);
    if (ok)
        table_free(data.drop.taken);
    table_free(data.table);
}
