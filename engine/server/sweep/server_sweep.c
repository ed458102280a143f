/* Removing expired rows, a slice of time at a time. Each slice begins where the last one ended:
 * sweeps.next counts the parts of the tables of all bindings.
 *
 * Within a slice rows are looked at a piece at a time, and the time is read after each piece. What
 * a look costs depends on the table: its rule may be a function of the user's. So the first piece
 * of a part is the smallest there is, and pieces grow as long as they are short: a piece takes
 * PIECE_US at most if looks cost what they did in the piece before. If they cost more, it ends
 * later by as much, and the next piece is the smaller for it. What counts is how many rows were
 * looked at: where a storage has few rows, a piece is over sooner, and the next may be of many.
 *
 * Only tables that tasks use are swept: between tasks keys are listed, and snapshots are written,
 * a piece at a time, and rows must not change their order meanwhile. What has expired is absent in
 * any case.
 *
 * Thread: the server's owner. */
#include "engine/server/replicas/server_feed.h"
#include "engine/server/replicas/server_inputs.h"
#include "engine/server/replicas/server_replicas.h"
#include "engine/server/server_private.h"

/* Parts with replicas hear it with their inputs, and before they are swept. */
static void tell_time(const ServerTable *table, uint64_t seconds)
{
    for (uint32_t part = 0; table != NULL && part < table->n_parts; part++) {
        RubatoShard *const shard = table->parts[part].shard;

        if (shard != NULL && table->parts[part].fed == NULL &&
            shard_counts(shard, RUBATO_TIME_SECONDS))
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

enum {
    PIECE_US = 50,
    LEAST_LOOKS = 1, /* a bucket of a storage */
    MOST_LOOKS = 512,
};

/* How many looks the next piece may have, if one that might have had n_looks had n_seen, and took
 * that long. */
static uint32_t next_looks(uint32_t n_looks, uint32_t n_seen, int64_t took_us)
{
    if (n_seen == 0)
        return n_looks;

    const uint64_t whole_us = (uint64_t)MAX(took_us, 0) * n_looks / n_seen;
    if (whole_us > PIECE_US)
        return (uint32_t)MAX(LEAST_LOOKS, n_looks * (uint64_t)PIECE_US / whole_us);
    return whole_us > PIECE_US / 2 ? n_looks : MIN(2 * n_looks, MOST_LOOKS);
}

static SweepState sweep_shard(SweepPace *pace, RubatoShard *shard, int64_t end_us)
{
    bool goes_on;

    for (int64_t before_us = pace->now_us(), now_us;; before_us = now_us) {
        uint32_t n_seen;

        pace->n_looks = MAX(LEAST_LOOKS, pace->n_looks);
        n_seen = pace->n_looks;
        goes_on = shard_sweep(shard, &n_seen);
        now_us = pace->now_us();
        pace->n_looks = next_looks(pace->n_looks, n_seen, now_us - before_us);
        if (now_us >= end_us)
            return goes_on ? SWEEP_GOES_ON : SWEEP_ENDED;
        if (!goes_on)
            return SWEEP_DONE;
    }
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
static RubatoShard *find_swept(Server *server, uint32_t i)
{
    for (guint k = 0; k < server->bindings->len; k++) {
        const ServerTable *const table =
            server_find_table(server, g_array_index(server->bindings, Binding, k).table);

        if (i < table->n_parts) {
            const Replica *const replica = table->parts[i].replica;
            RubatoShard *const shard = replica != NULL ? replica->shard : table->parts[i].shard;

            /* a task uses the table, so all replicas are there */
            if (table->parts[i].fed != NULL)
                server_feed_time(server, table->parts[i].fed, shard);
            return shard != NULL && counts_time(shard) ? shard : NULL;
        }
        i -= table->n_parts;
    }
    return NULL;
}

/* A shard may have a new sweep as soon as one ends, because time passes. So slices go around. */
bool server_sweep(Server *server, uint64_t seconds, int64_t most_us)
{
    SweepPace *const pace = &server->sweeps;
    const int64_t end_us = pace->now_us() + most_us;
    const uint32_t n = count_parts(server);

    server->seconds = MAX(server->seconds, seconds);
    for (uint32_t i = 0; i < server->tables->len; i++)
        tell_time(server_find_table(server, i), seconds);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = (pace->next + i) % n;
        RubatoShard *const shard = find_swept(server, at);
        const SweepState state = shard == NULL ? SWEEP_DONE : sweep_shard(pace, shard, end_us);

        if (state != SWEEP_GOES_ON)
            pace->n_looks = 0; /* the next one's may cost more */
        if (state == SWEEP_DONE)
            continue;
        pace->next = state == SWEEP_GOES_ON ? at : (at + 1) % n;
        return true;
    }
    return false;
}
