/* Removing expired rows, a slice of time at a time.
 *
 * Only tables that tasks use are swept: between tasks keys are listed, and snapshots are written,
 * a piece at a time, and rows must not change their order meanwhile. What has expired is absent in
 * any case.
 *
 * Thread: the server's owner. */
#include "engine/server/server_private.h"
#include "engine/server/server_replicas.h"

/* No table that counts seconds has replicas. */
static void tell_time(const ServerTable *table, uint64_t seconds)
{
    for (uint32_t part = 0; table != NULL && part < table->n_parts; part++) {
        RubatoShard *const shard = table->parts[part].shard;

        if (shard != NULL && shard_counts(shard, RUBATO_TIME_SECONDS))
            shard_reach_time(shard, seconds);
    }
}

/* False: the time is over. */
static bool sweep_shard(RubatoShard *shard, int64_t end_us)
{
    if (!shard_counts(shard, RUBATO_TIME_CLOCKS) && !shard_counts(shard, RUBATO_TIME_SECONDS))
        return true;
    while (shard_sweep(shard))
        if (g_get_monotonic_time() >= end_us)
            return false;
    return true;
}

bool server_sweep(Server *server, uint64_t seconds, int64_t most_us)
{
    const int64_t end_us = g_get_monotonic_time() + most_us;

    for (uint32_t i = 0; i < server->tables->len; i++)
        tell_time(server_find_table(server, i), seconds);
    for (guint i = 0; i < server->bindings->len; i++) {
        const ServerTable *const table =
            server_find_table(server, g_array_index(server->bindings, Binding, i).table);

        for (uint32_t part = 0; part < table->n_parts; part++) {
            const Replica *const replica = table->parts[part].replica;
            RubatoShard *const shard = replica != NULL ? replica->shard : table->parts[part].shard;

            if (shard != NULL && !sweep_shard(shard, end_us))
                return true;
        }
    }
    return false;
}
