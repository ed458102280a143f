/* Where the rows lie is asked as the owner of each server. The thread then only names memory to the
 * kernel, and reads and writes none: so nothing happens if a part's memory goes meanwhile, because
 * its node counts as lost. */
#include "engine/parts/ready_memory.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/net/processors.h"
#include "models/shard/shard.h"

/* Less takes about as long as the thread. */
#define LEAST_BYTES ((size_t)16 << 20)

/* So much at a time, between looks at whether to stop: about a millisecond, and several where the
 * kernel itself has to get memory first. */
#define PIECE_BYTES ((size_t)2 << 20)

typedef struct {
    unsigned char *bytes;
    size_t n;
} Range;

struct ReadyMemory {
    /* immutable */
    GArray *ranges; /* of Range: of whole pages, in the order of their keys */
    pthread_t thread;

    _Atomic bool stops;
};

/* ---- where the rows lie ---- */

typedef struct {
    const Table *table;
    uint32_t part;
    RubatoKey first, last;
    GArray *ranges;
} Looking;

static void add_range(GArray *ranges, unsigned char *rows, size_t n_bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t)rows + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)rows + n_bytes) / page * page;
    const Range range = { rows + (begin - (uintptr_t)rows), end > begin ? end - begin : 0 };

    if (range.n > 0)
        g_array_append_val(ranges, range);
}

/* As the server's owner. */
static void look(Server *server, void *data)
{
    const Looking *const looking = data;
    const RubatoShard *const shard = server_find_shard(server, looking->table->id, looking->part);
    size_t stride = 0;
    unsigned char *const rows = shard == NULL ? NULL : shard_memory(shard, &stride);
    RubatoKey first;
    uint64_t n;

    if (rows == NULL)
        return;
    shard_range(shard, &first, &n);
    if (n == 0 || looking->last < first || looking->first > first + (n - 1))
        return;

    const RubatoKey from = MAX(first, looking->first);
    const RubatoKey to = MIN(first + (n - 1), looking->last);

    add_range(looking->ranges, rows + (from - first) * stride, (to - from + 1) * stride);
}

/* In the order in which parts are filled. */
static GArray *find_ranges(RubatoEngine *engine, const Table *table, RubatoKey first, uint64_t n)
{
    GArray *const ranges = g_array_new(FALSE, FALSE, sizeof(Range));
    Looking looking = { table, .first = first, .last = first + (n - 1), .ranges = ranges };

    for (looking.part = 0; looking.part < table->map->n_parts; looking.part++)
        for (uint32_t i = 0; i < engine->n_servers; i++)
            if (engine->servers[i].number == part_map_server(table->map, looking.part))
                server_run_here(&engine->servers[i], look, &looking);
    return ranges;
}

static bool is_worth_it(const GArray *ranges)
{
    size_t n = 0;

    for (guint i = 0; i < ranges->len; i++)
        n += g_array_index(ranges, Range, i).n;
    return n >= LEAST_BYTES && processors_count() > 1;
}

/* ---- the thread ---- */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* kernels before 5.14 refuse it, and pages come one by one */
#endif

/* From the last range on. */
static void fill(const GArray *ranges, bool (*stops)(const void *user), const void *user)
{
    for (guint i = ranges->len; i > 0; i--) {
        const Range *const range = &g_array_index(ranges, Range, i - 1);

        for (size_t left = range->n; left > 0;) {
            const size_t n = MIN(left, PIECE_BYTES);

            left -= n;
            if (stops(user) || madvise(range->bytes + left, n, MADV_POPULATE_WRITE) != 0)
                return;
            (void)sched_yield(); /* nobody waits for this thread, but maybe for its processor */
        }
    }
}

static bool is_stopped(const void *user)
{
    /* relaxed: nothing else is passed on */
    return atomic_load_explicit(&((const ReadyMemory *)user)->stops, memory_order_relaxed);
}

static void *make_ready(void *data)
{
    const ReadyMemory *const ready = data;

    fill(ready->ranges, is_stopped, ready);
    return NULL;
}

void ready_memory_fill(const RubatoShard *shard, bool (*stops)(const void *user), const void *user)
{
    g_autoptr(GArray) ranges = g_array_new(FALSE, FALSE, sizeof(Range));
    size_t stride = 0;
    unsigned char *const rows = shard_memory(shard, &stride);
    RubatoKey first;
    uint64_t n;

    shard_range(shard, &first, &n);
    if (rows != NULL && n * stride >= LEAST_BYTES)
        add_range(ranges, rows, n * stride);
    fill(ranges, stops, user);
}

ReadyMemory *ready_memory_start(RubatoEngine *engine, const Table *table, RubatoKey first,
                                uint64_t n)
{
    GArray *const ranges = find_ranges(engine, table, first, n);
    ReadyMemory *const ready = g_new0(ReadyMemory, 1);

    ready->ranges = ranges;
    if (is_worth_it(ranges) && pthread_create(&ready->thread, NULL, make_ready, ready) == 0)
        return ready;
    g_array_unref(ranges);
    g_free(ready);
    return NULL;
}

void ready_memory_stop(ReadyMemory *ready)
{
    if (ready == NULL)
        return;
    atomic_store_explicit(&ready->stops, true, memory_order_relaxed); /* see is_stopped */
    pthread_join(ready->thread, NULL);
    g_array_unref(ready->ranges);
    g_free(ready);
}
