/* The statistics of an engine.
 *
 * Threads: any. Each server counts the sizes of its own shards. */
#include "engine/engine_private.h"

static RubatoMessageCounts counts_of(const uint64_t *by_kind)
{
    RubatoMessageCounts counts = { .gets = by_kind[MESSAGE_GET],
                                   .adds = by_kind[MESSAGE_ADD],
                                   .clocks = by_kind[MESSAGE_CLOCK],
                                   .announcements = by_kind[MESSAGE_ANNOUNCE],
                                   .fences = by_kind[MESSAGE_FENCE],
                                   .replies = by_kind[MESSAGE_REPLY],
                                   .controls = by_kind[MESSAGE_CONTROL] };

    for (size_t kind = MESSAGE_FENCE + 1; kind < MESSAGE_N_WIRE_KINDS; kind++)
        counts.others += by_kind[kind];
    return counts;
}

void rubato_engine_stats(const RubatoEngine *engine, RubatoEngineStats *stats)
{
    NetworkStats network = { 0 };

    g_return_if_fail(engine != NULL && stats != NULL);
    if (engine->network != NULL)
        network_stats(engine->network, &network);
    *stats = (RubatoEngineStats){ .sent = counts_of(network.messages_sent),
                                  .received = counts_of(network.messages_received),
                                  .packets_sent = network.packets_sent,
                                  .packets_received = network.packets_received,
                                  .packets_resent = network.packets_resent,
                                  .bytes_sent = network.bytes_sent,
                                  .bytes_received = network.bytes_received };
}

/* Finds a table and keeps it from being dropped; NULL with RUBATO_ERROR_NOT_FOUND. */
static Table *hold_table(RubatoEngine *engine, const char *name, GError **error)
{
    Table *table;

    pthread_mutex_lock(&engine->lock);
    table = engine_hold_table(engine, name, error);
    engine_tell_deferred(engine);
    pthread_mutex_unlock(&engine->lock);
    return table;
}

static void let_table_go(RubatoEngine *engine, Table *table)
{
    pthread_mutex_lock(&engine->lock);
    engine_release_table(engine, table);
    pthread_mutex_unlock(&engine->lock);
}

typedef struct {
    uint32_t table;
    _Atomic uint64_t n_rows, n_bytes, n_evicted;
} Sizes;

static void add_size(Server *server, void *data)
{
    Sizes *sizes = data;
    uint64_t n_rows, n_bytes, n_evicted;

    server_table_size(server, sizes->table, &n_rows, &n_bytes, &n_evicted);
    /* Relaxed: read once all servers have answered, which orders it. */
    atomic_fetch_add_explicit(&sizes->n_rows, n_rows, memory_order_relaxed);
    atomic_fetch_add_explicit(&sizes->n_bytes, n_bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&sizes->n_evicted, n_evicted, memory_order_relaxed);
}

bool rubato_engine_table_stats(RubatoEngine *engine, const char *name, RubatoTableStats *stats,
                               GError **error)
{
    Table *table;
    Sizes sizes = { 0 };

    g_return_val_if_fail(engine != NULL && name != NULL && stats != NULL, false);
    table = hold_table(engine, name, error);
    if (table == NULL)
        return false;
    sizes.table = table->id;
    servers_run(engine->servers, engine->n_servers, add_size, &sizes);
    *stats = (RubatoTableStats){
        .n_rows = atomic_load_explicit(&sizes.n_rows, memory_order_relaxed),
        .n_bytes = atomic_load_explicit(&sizes.n_bytes, memory_order_relaxed),
        .row_bytes = table->row_bytes,
        .state_bytes = table->state_bytes,
        .n_evicted = atomic_load_explicit(&sizes.n_evicted, memory_order_relaxed),
    };
    let_table_go(engine, table);
    return true;
}
