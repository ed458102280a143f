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
    *stats = (RubatoEngineStats){
        .sent = counts_of(network.messages_sent),
        .received = counts_of(network.messages_received),
        .packets_sent = network.packets_sent,
        .packets_received = network.packets_received,
        .packets_resent = network.packets_resent,
        .bytes_sent = network.bytes_sent,
        .bytes_received = network.bytes_received,
        .new_replicas = atomic_load_explicit(&engine->n_new_replicas, memory_order_relaxed),
        .missed_versions = atomic_load_explicit(&engine->n_missed_versions, memory_order_relaxed)
    };
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
    pthread_mutex_t lock;
    RubatoTableStats sum; /* under the lock */
} TableSum;

static void add_server(Server *server, void *data)
{
    TableSum *table = data;

    pthread_mutex_lock(&table->lock);
    server_sum_table(server, table->table, &table->sum);
    pthread_mutex_unlock(&table->lock);
}

bool rubato_engine_table_stats(RubatoEngine *engine, const char *name, RubatoTableStats *stats,
                               GError **error)
{
    Table *table;
    TableSum sum = { .lock = PTHREAD_MUTEX_INITIALIZER };

    g_return_val_if_fail(engine != NULL && name != NULL && stats != NULL, false);
    table = hold_table(engine, name, error);
    if (table == NULL)
        return false;
    sum.table = table->id;
    servers_run(engine->servers, engine->n_servers, add_server, &sum);
    pthread_mutex_destroy(&sum.lock);
    *stats = sum.sum; /* all servers have answered */
    stats->row_bytes = table->row_bytes;
    stats->state_bytes = table->state_bytes;
    let_table_go(engine, table);
    return true;
}
