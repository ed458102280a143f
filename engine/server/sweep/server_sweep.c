/* Removing expired rows, a slice of time at a time. Each slice begins where the last one ended:
 * next_swept counts the parts of the tables of all bindings.
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

static bool counts_time(const RubatoShard *shard)
{
    return shard_counts(shard, RUBATO_TIME_CLOCKS) || shard_counts(shard, RUBATO_TIME_SECONDS);
}

typedef enum {
    SWEEP_DONE,  /* nothing more is to be done with the shard */
    SWEEP_ENDED, /* the same, and the time is over */
    SWEEP_GOES_ON,
} SweepState;

static SweepState sweep_shard(RubatoShard *shard, int64_t end_us)
{
    bool goes_on;

    do {
        goes_on = shard_sweep(shard);
        if (g_get_monotonic_time() >= end_us)
            return goes_on ? SWEEP_GOES_ON : SWEEP_ENDED;
    } while (goes_on);
    return SWEEP_DONE;
}

/* The shards that may be swept: those of a task's table, part by part, then those of the next. */
static uint32_t count_parts(const Server *server)
{
    uint32_t n = 0;

    for (guint i = 0; i < server->bindings->len; i++)
        n += server_find_table(server, g_array_index(server->bindings, Binding, i).table)->n_parts;
    return n;
}

/* Number i of them; NULL: it is not here, or its rows do not expire. */
static RubatoShard *find_swept(const Server *server, uint32_t i)
{
    for (guint k = 0; k < server->bindings->len; k++) {
        const ServerTable *const table =
            server_find_table(server, g_array_index(server->bindings, Binding, k).table);

        if (i < table->n_parts) {
            const Replica *const replica = table->parts[i].replica;
            RubatoShard *const shard = replica != NULL ? replica->shard : table->parts[i].shard;

            return shard != NULL && counts_time(shard) ? shard : NULL;
        }
        i -= table->n_parts;
    }
    return NULL;
}

/* A shard may have a new sweep as soon as one ends, because time passes. So slices go around. */
bool server_sweep(Server *server, uint64_t seconds, int64_t most_us)
{
    const int64_t end_us = g_get_monotonic_time() + most_us;
    const uint32_t n = count_parts(server);

    for (uint32_t i = 0; i < server->tables->len; i++)
        tell_time(server_find_table(server, i), seconds);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = (server->next_swept + i) % n;
        RubatoShard *const shard = find_swept(server, at);
        const SweepState state = shard == NULL ? SWEEP_DONE : sweep_shard(shard, end_us);

        if (state == SWEEP_DONE)
            continue;
        server->next_swept = state == SWEEP_GOES_ON ? at : (at + 1) % n;
        return true;
    }
    return false;
}
