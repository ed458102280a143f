/* The four handles over several processes. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_private.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/runner.h"

static uint64_t messages_sent(const RubatoEngine *engine, MessageKind kind)
{
    NetworkStats stats;

    network_stats(engine->network, &stats);
    return stats.messages_sent[kind];
}

/* ---- the process cache ---- */

enum { N_CACHED = 10, N_REREADS = 50, CACHE_STALENESS = 3, N_CLOCKS = 30 };

static const RubatoCache caches[] = { RUBATO_CACHE_REMOTE, RUBATO_CACHE_ALL, RUBATO_CACHE_NONE };

/* Rows of the second server: the upper half of the keys. */
static bool reread(RubatoWorker *worker, void *user_data, GError **error)
{
    RubatoKey keys[N_CACHED];
    float values[N_CACHED];
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, "rows", RUBATO_F32, error);

    (void)user_data;
    if (table == NULL)
        return false;
    for (size_t i = 0; i < N_CACHED; i++)
        keys[i] = N_CACHED + i;
    for (int i = 0; i < N_REREADS; i++) {
        if (!rubato_kv_table_get(table, keys, N_CACHED, values, error))
            return false;
        for (size_t k = 0; k < N_CACHED; k++)
            EXPECT(values[k] == 0.5f, "key %zu is %g", k, (double)values[k]);
    }
    return true;
}

static bool play_rereading(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoCache cache = *(const RubatoCache *)data;
    const RubatoTableSpec spec = { .name = "rows",
                                   .n_keys = 2 * N_CACHED,
                                   .model = "ssp",
                                   .staleness = CACHE_STALENESS,
                                   .init_value = 0.5,
                                   .cache = cache };
    const char *const tables[] = { "rows", NULL };
    uint64_t before;

    if (!rubato_engine_create_table(engine, &spec, error))
        return false;
    before = messages_sent(engine, MESSAGE_GET);
    if (!cluster_run_task(engine, "reread", reread, NULL, tables, error))
        return false;
    const uint64_t n_gets = messages_sent(engine, MESSAGE_GET) - before;
    if (engine->self == 1)
        EXPECT(n_gets == 0, "%" G_GUINT64_FORMAT " Gets of a node without workers", n_gets);
    else if (cache == RUBATO_CACHE_NONE)
        EXPECT(n_gets == 2 * N_REREADS, "%" G_GUINT64_FORMAT " Gets", n_gets);
    else /* the second worker may ask for what the first one has not got yet: at most once */
        EXPECT(n_gets >= 1 && n_gets <= 2, "%" G_GUINT64_FORMAT " Gets", n_gets);
    return true;
}

START_TEST(client_reads_of_a_node_share_one_fetch)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 2 }, { 1, 0 } } });

    cluster_start(run, play_rereading, &caches[_i]);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

static bool get_now_or_later(RubatoWorker *worker, RubatoKVTable *table, const RubatoKey *keys,
                             size_t n, uint64_t clock, float *values, GError **error)
{
    RubatoTicket ticket;

    if (clock % 3 != 0)
        return rubato_kv_table_get(table, keys, n, values, error);
    ticket = rubato_kv_table_get_async(table, keys, n, values, NULL, error);
    return ticket != 0 && rubato_worker_wait(worker, ticket, error);
}

/* Reads twice in a clock, before and after its own Add. */
static bool count_through_cache(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t others = rubato_worker_n_workers(worker) - 1;
    RubatoKey keys[2 * N_CACHED];
    float ones[2 * N_CACHED], values[2 * N_CACHED];
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, "rows", RUBATO_F32, error);

    (void)user_data;
    if (table == NULL)
        return false;
    for (size_t i = 0; i < 2 * N_CACHED; i++) {
        keys[i] = i;
        ones[i] = 1;
    }
    for (uint64_t clock = 0; clock < N_CLOCKS; clock++) {
        const uint64_t behind = clock > CACHE_STALENESS ? clock - CACHE_STALENESS : 0;

        for (uint64_t own = clock; own <= clock + 1; own++) {
            const double low = (double)(own + others * behind);
            const double high = (double)(own + others * MIN(clock + CACHE_STALENESS + 1, N_CLOCKS));

            if (!get_now_or_later(worker, table, keys, 2 * N_CACHED, clock, values, error))
                return false;
            for (size_t i = 0; i < 2 * N_CACHED; i++)
                EXPECT(values[i] >= low && values[i] <= high,
                       "worker %u at clock %" G_GUINT64_FORMAT
                       " reads %g at key %zu, expected %g to %g",
                       rubato_worker_rank(worker), clock, (double)values[i], i, low, high);
            if (own == clock && !rubato_kv_table_add(table, keys, 2 * N_CACHED, ones, error))
                return false;
        }
        if (!rubato_kv_table_clock(table, error))
            return false;
    }
    return true;
}

static bool play_cached_counting(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "rows",
                                   .n_keys = 2 * N_CACHED,
                                   .model = "ssp",
                                   .staleness = CACHE_STALENESS,
                                   .cache = *(const RubatoCache *)data };
    const char *const tables[] = { "rows", NULL };
    const float expected = (float)(rubato_engine_n_workers(engine) * N_CLOCKS);
    float values[2 * N_CACHED];

    if (!rubato_engine_create_table(engine, &spec, error) ||
        !cluster_run_task(engine, "count", count_through_cache, NULL, tables, error) ||
        !rubato_engine_get_range(engine, "rows", 0, 2 * N_CACHED, values, error))
        return false;
    for (size_t i = 0; i < 2 * N_CACHED; i++)
        EXPECT(values[i] == expected, "key %zu is %g", i, (double)values[i]);
    return true;
}

START_TEST(client_cache_keeps_the_staleness_bound_and_shows_own_adds)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 3, .nodes = { { 1, 2 }, { 1, 2 }, { 0, 1 } } });

    cluster_start(run, play_cached_counting, &caches[_i]);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- tickets ---- */

enum { N_TICKETS = 300 };

static void count_callback(RubatoTicket ticket, const GError *error, void *user_data)
{
    (void)ticket;
    if (error == NULL)
        atomic_fetch_add((_Atomic uint32_t *)user_data, 1);
}

static bool use_tickets(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey base = rubato_worker_rank(worker) * N_TICKETS;
    const int32_t delta = (int32_t)rubato_worker_rank(worker) + 1;
    _Atomic uint32_t n_added = 0, n_read = 0;
    RubatoTicket tickets[N_TICKETS];
    int32_t values[N_TICKETS];
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, "rows", RUBATO_I32, error);

    (void)user_data;
    if (table == NULL)
        return false;
    for (uint32_t i = 0; i < N_TICKETS; i++) {
        const RubatoKey key = base + i;

        if (rubato_kv_table_add_async(
                table, &key, 1, &delta,
                &(RubatoRequestOptions){ .callback = count_callback, .user_data = &n_added },
                error) == 0)
            return false;
    }
    if (!rubato_worker_wait_all(worker, error))
        return false;
    EXPECT(n_added == N_TICKETS, "%u callbacks of Adds", n_added);
    for (uint32_t i = 0; i < N_TICKETS; i++) {
        const RubatoKey key = base + i;

        tickets[i] = rubato_kv_table_get_async(
            table, &key, 1, &values[i],
            &(RubatoRequestOptions){ .callback = count_callback, .user_data = &n_read }, error);
        if (tickets[i] == 0)
            return false;
    }
    for (uint32_t i = N_TICKETS; i-- > 0;) {
        if (!rubato_worker_wait(worker, tickets[i], error))
            return false;
        EXPECT(rubato_worker_poll(worker, tickets[i]), "ticket %u was waited for", i);
        EXPECT(values[i] == delta, "value %u is %d", i, values[i]);
    }
    EXPECT(n_read == N_TICKETS, "%u callbacks of Gets", n_read);
    return true;
}

static bool play_tickets(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "rows", .dtype = RUBATO_I32, .storage = "hash" };
    const char *const tables[] = { "rows", NULL };
    int32_t values[6 * N_TICKETS];

    (void)data;
    if (!rubato_engine_create_table(engine, &spec, error) ||
        !cluster_run_task(engine, "tickets", use_tickets, NULL, tables, error) ||
        !rubato_engine_get_range(engine, "rows", 0, 6 * N_TICKETS, values, error))
        return false;
    for (int i = 0; i < 6 * N_TICKETS; i++)
        EXPECT(values[i] == i / N_TICKETS + 1, "key %d is %d", i, values[i]);
    return true;
}

START_TEST(tickets_call_back_once_each_across_nodes)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 3, .nodes = { { 1, 2 }, { 2, 2 }, { 1, 2 } } });

    cluster_start(run, play_tickets, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- an Add and a Get in one ---- */

enum { N_LONG = 300000 };

/* In one message, in a few pieces, and in many. Not all keys differ. */
static const int lengths[] = { 1000, N_LONG / 12, N_LONG / 6, N_LONG / 3, N_LONG };

/* Each key comes several times, and not only in one message. Each place shows all of its deltas. */
static bool add_and_get_keys(RubatoWorker *worker, RubatoKVTable *table, RubatoKey first, int n,
                             GError **error)
{
    const int n_different = n / 4 - 1;
    g_autofree RubatoKey *keys = g_new(RubatoKey, (size_t)n);
    g_autofree int32_t *deltas = g_new(int32_t, (size_t)n);
    g_autofree int32_t *values = g_new(int32_t, (size_t)n);
    g_autofree int32_t *sums = g_new0(int32_t, (size_t)n_different);
    RubatoTicket ticket;

    for (int32_t i = 0; i < n; i++) {
        keys[i] = first + (RubatoKey)(i % n_different);
        deltas[i] = i % 7 + 1;
        sums[i % n_different] += deltas[i];
    }
    if (!rubato_kv_table_add_get(table, keys, (size_t)n, deltas, values, error))
        return false;
    for (int i = 0; i < n; i++)
        EXPECT(values[i] == sums[i % n_different], "place %d of %d shows %d, not %d", i, n,
               values[i], sums[i % n_different]);
    ticket = rubato_kv_table_add_get_range_async(table, first, (size_t)n_different, sums, values,
                                                 NULL, error);
    if (ticket == 0 || !rubato_worker_wait(worker, ticket, error))
        return false;
    for (int i = 0; i < n_different; i++)
        EXPECT(values[i] == 2 * sums[i], "key %d is %d, not %d", i, values[i], 2 * sums[i]);
    return true;
}

/* The rows are another node's. */
static bool add_and_get(RubatoWorker *worker, void *user_data, GError **error)
{
    RubatoKey first = (RubatoKey)((rubato_worker_rank(worker) + 1) % 3) * N_LONG;

    (void)user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_I32, error);
    if (table == NULL)
        return false;
    for (size_t i = 0; i < G_N_ELEMENTS(lengths); i++) {
        if (!add_and_get_keys(worker, table, first, lengths[i], error))
            return false;
        first += (RubatoKey)lengths[i] / 4;
    }
    return true;
}

static bool play_add_and_get(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "rows", .dtype = RUBATO_I32, .n_keys = 3 * N_LONG };
    const char *const tables[] = { "rows", NULL };

    (void)data;
    return rubato_engine_create_table(engine, &spec, error) &&
           cluster_run_task(engine, "add and get", add_and_get, NULL, tables, error);
}

START_TEST(an_add_and_get_of_many_keys_shows_all_of_its_deltas_in_each_place)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 3, .nodes = { { 1, 1 }, { 1, 1 }, { 1, 1 } } });

    cluster_start(run, play_add_and_get, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- chunks, and several handles at once ---- */

enum { CHUNK = 7, N_CHUNK_KEYS = 100, FIRST_CHUNK_KEY = 1000 };
enum { N_CHUNKS = (N_CHUNK_KEYS + CHUNK - 1) / CHUNK };

/* Chunk i gets i + 1 from every worker, in an order of its own; chunk 3 once more, by elements. */
static bool add_chunks(RubatoWorker *worker, RubatoChunkTable *chunks, GError **error)
{
    const RubatoKey third[] = { FIRST_CHUNK_KEY + 3 * CHUNK, FIRST_CHUNK_KEY + 4 * CHUNK - 1 };
    const int64_t tens[] = { 10, 10 };
    uint64_t order[N_CHUNKS];
    int64_t deltas[N_CHUNK_KEYS];
    size_t filled = 0;

    for (uint64_t i = 0; i < N_CHUNKS; i++) {
        order[i] = (i * 4 + rubato_worker_rank(worker)) % N_CHUNKS;
        for (uint32_t k = 0; k < rubato_chunk_table_chunk_length(chunks, order[i]); k++)
            deltas[filled++] = (int64_t)order[i] + 1;
    }
    EXPECT(filled == N_CHUNK_KEYS, "the chunks have %zu keys", filled);
    return rubato_chunk_table_add_chunks(chunks, order, N_CHUNKS, deltas, error) &&
           rubato_chunk_table_add(chunks, third, 2, tens, error) &&
           rubato_chunk_table_clock(chunks, error);
}

static int64_t expected_of_chunks(uint64_t key_index, uint32_t n_workers)
{
    const bool extra = key_index == 3 * CHUNK || key_index == 4 * CHUNK - 1;

    return (int64_t)n_workers * ((int64_t)(key_index / CHUNK) + 1 + (extra ? 10 : 0));
}

/* All handles of the worker share its clock: one clock() on any of them ends the iteration. */
static bool use_all_handles(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t n_workers = rubato_worker_n_workers(worker);
    const uint64_t last = N_CHUNKS - 1;
    int64_t values[N_CHUNK_KEYS];
    g_autoptr(RubatoChunkTable) chunks =
        rubato_worker_open_chunk_table(worker, "chunks", RUBATO_I64, error);
    g_autoptr(RubatoKVTable) kv = rubato_worker_open_kv_table(worker, "chunks", RUBATO_I64, error);
    g_autoptr(RubatoKVTable) client =
        rubato_worker_open_kv_table_cached(worker, "chunks", RUBATO_I64, error);

    (void)user_data;
    if (chunks == NULL || kv == NULL || client == NULL)
        return false;
    EXPECT(rubato_chunk_table_chunk_length(chunks, last) == N_CHUNK_KEYS % CHUNK,
           "the last chunk has %u keys", rubato_chunk_table_chunk_length(chunks, last));
    if (!add_chunks(worker, chunks, error))
        return false;
    EXPECT(rubato_kv_table_clock_value(kv) == 1, "the handles have clocks of their own");
    if (!rubato_kv_table_get_range(kv, FIRST_CHUNK_KEY, N_CHUNK_KEYS, values, error))
        return false;
    for (uint64_t i = 0; i < N_CHUNK_KEYS; i++)
        EXPECT(values[i] == expected_of_chunks(i, n_workers), "key %d is %d", (int)i,
               (int)values[i]);
    memset(values, 0, sizeof values);
    if (!rubato_chunk_table_get_chunks(chunks, (const uint64_t[]){ last, 3 }, 2, values, error))
        return false;
    EXPECT(values[0] == expected_of_chunks(last * CHUNK, n_workers), "%d", (int)values[0]);
    EXPECT(values[N_CHUNK_KEYS % CHUNK] == expected_of_chunks(3 * CHUNK, n_workers), "%d",
           (int)values[N_CHUNK_KEYS % CHUNK]);
    const RubatoKey key = FIRST_CHUNK_KEY + last * CHUNK;
    int64_t one;
    if (!rubato_kv_table_get(client, &key, 1, &one, error))
        return false;
    EXPECT(one == values[0], "the handles differ: %d", (int)one);
    return true;
}

static bool play_chunks(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "chunks",
                                   .dtype = RUBATO_I64,
                                   .first_key = FIRST_CHUNK_KEY,
                                   .n_keys = N_CHUNK_KEYS,
                                   .model = "bsp",
                                   .chunk_size = CHUNK };
    const char *const tables[] = { "chunks", NULL };

    (void)data;
    return rubato_engine_create_table(engine, &spec, error) &&
           cluster_run_task(engine, "chunks", use_all_handles, NULL, tables, error);
}

START_TEST(chunks_lie_over_all_servers_and_other_handles_see_them)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 2 }, { 2, 2 } } });

    cluster_start(run, play_chunks, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- keys told ahead ---- */

enum { SPECULATION = 2, MOST_TOLD = 12000, TOLD_WIDTH = 32 };

/* Also with rows so wide that fewer of them than are told of go into one message. */
static const struct {
    const char *record;
    uint32_t width;
    size_t n_keys; /* of each worker */
} told[] = {
    { "hash", 1, 1 },
    { "dense", 1, 1 },
    { "dense", TOLD_WIDTH, MOST_TOLD },
};

G_STATIC_ASSERT(MOST_TOLD *TOLD_WIDTH * sizeof(float) > POST_OFFICE_MAX_VALUE_BYTES);

static bool are_all(const float *values, size_t n, float value)
{
    for (size_t i = 0; i < n; i++)
        if (values[i] != value)
            return false;
    return true;
}

/* Worker 0, on one node, runs ahead of worker 1, on the other. Worker 1 uses other keys, and does
 * not clock before it has seen that worker 0 has come as far as speculation allows. */
static bool speculate(RubatoWorker *worker, void *user_data, GError **error)
{
    const int shape = *(const int *)user_data;
    const bool ahead = rubato_worker_rank(worker) == 0;
    const size_t n_keys = told[shape].n_keys, n_values = n_keys * told[shape].width;
    g_autofree RubatoKey *keys = g_new(RubatoKey, n_keys);
    g_autofree float *values = g_new0(float, n_values), *ones = g_new(float, n_values);
    RubatoIteration iterations[SPECULATION + 2];
    const float one = 1;
    const RubatoKey flag = 0;
    float is_up = 0;

    for (size_t i = 0; i < n_keys; i++)
        keys[i] = 2 * i + ahead; /* not a run */
    for (size_t i = 0; i < n_values; i++)
        ones[i] = 1;
    for (size_t i = 0; i < G_N_ELEMENTS(iterations); i++)
        iterations[i] = (RubatoIteration){ keys, n_keys };
    g_autoptr(RubatoKVTable) flags =
        rubato_worker_open_kv_table(worker, "flags", RUBATO_F32, error);
    g_autoptr(RubatoSparseKVClientTable) rows = rubato_worker_open_sparse_kv_client_table(
        worker, "rows", RUBATO_F32, iterations, G_N_ELEMENTS(iterations), error);
    if (flags == NULL || rows == NULL)
        return false;
    for (uint64_t i = 0; i < G_N_ELEMENTS(iterations); i++) {
        if (!rubato_sparse_kv_client_table_get(rows, values, error) ||
            !rubato_sparse_kv_client_table_add(rows, ones, error))
            return false;
        EXPECT(are_all(values, n_values, (float)i), "iteration %d reads %g", (int)i,
               (double)values[0]);
        if (ahead && i == SPECULATION && !rubato_kv_table_add(flags, &flag, 1, &one, error))
            return false;
        while (!ahead && i == 0 && is_up == 0)
            if (!rubato_kv_table_get(flags, &flag, 1, &is_up, error))
                return false;
    }
    return true;
}

static bool play_speculation(RubatoEngine *engine, const void *data, GError **error)
{
    int shape = *(const int *)data;
    const RubatoTableSpec flags = { .name = "flags", .n_keys = 1 };
    const RubatoTableSpec rows = { .name = "rows",
                                   .n_keys = 2 * MOST_TOLD,
                                   .width = told[shape].width,
                                   .model = "sparse_ssp",
                                   .speculation = SPECULATION,
                                   .record = told[shape].record };
    const char *const tables[] = { "flags", "rows", NULL };

    return rubato_engine_create_table(engine, &flags, error) &&
           rubato_engine_create_table(engine, &rows, error) &&
           cluster_run_task(engine, "speculate", speculate, &shape, tables, error);
}

START_TEST(workers_of_two_nodes_speculate_on_different_keys)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } } });

    cluster_start(run, play_speculation, &_i);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- dtypes ---- */

static const RubatoDtype dtypes[] = { RUBATO_F32, RUBATO_F64, RUBATO_I32, RUBATO_I64 };

enum { DTYPE_WIDTH = 5, N_DTYPE_KEYS = 33 };

/* Value i of n in the dtype. It is too large for the next narrower dtype. */
static void store_number(RubatoDtype dtype, void *values, size_t i, int factor)
{
    switch (dtype) {
    case RUBATO_F32:
        ((float *)values)[i] = (float)factor * ((float)i + 0.25f);
        break;
    case RUBATO_F64:
        ((double *)values)[i] = factor * ((double)i + 0x1p-40);
        break;
    case RUBATO_I32:
        ((int32_t *)values)[i] = factor * ((int32_t)i - 1000003);
        break;
    case RUBATO_I64:
        ((int64_t *)values)[i] = factor * ((int64_t)i - (INT64_C(1) << 40));
        break;
    case RUBATO_U8:  /* in ragged rows alone */
    case RUBATO_F16: /* the rest: of tensors alone */
    case RUBATO_BF16:
    case RUBATO_I8:
    case RUBATO_I16:
    case RUBATO_BOOL:
        break;
    }
}

static bool add_numbers(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoDtype dtype = *(const RubatoDtype *)user_data;
    int64_t deltas[N_DTYPE_KEYS * DTYPE_WIDTH], values[N_DTYPE_KEYS * DTYPE_WIDTH];
    RubatoKey keys[N_DTYPE_KEYS];
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", dtype, error);

    if (table == NULL)
        return false;
    for (size_t i = 0; i < N_DTYPE_KEYS; i++)
        keys[i] = i;
    for (size_t i = 0; i < N_DTYPE_KEYS * DTYPE_WIDTH; i++)
        store_number(dtype, deltas, i, 1);
    return rubato_kv_table_add(table, keys, N_DTYPE_KEYS, deltas, error) &&
           rubato_kv_table_get(table, keys, N_DTYPE_KEYS, values, error);
}

static bool play_dtype(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoDtype dtype = *(const RubatoDtype *)data;
    const size_t bytes = N_DTYPE_KEYS * DTYPE_WIDTH * rubato_dtype_size(dtype);
    const RubatoTableSpec spec = {
        .name = "rows", .dtype = dtype, .width = DTYPE_WIDTH, .n_keys = N_DTYPE_KEYS
    };
    const char *const tables[] = { "rows", NULL };
    const int n_workers = (int)rubato_engine_n_workers(engine);
    int64_t expected[N_DTYPE_KEYS * DTYPE_WIDTH], values[N_DTYPE_KEYS * DTYPE_WIDTH];

    if (!rubato_engine_create_table(engine, &spec, error) ||
        !cluster_run_task(engine, "numbers", add_numbers, &dtype, tables, error) ||
        !rubato_engine_get_range(engine, "rows", 0, N_DTYPE_KEYS, values, error))
        return false;
    for (size_t i = 0; i < N_DTYPE_KEYS * DTYPE_WIDTH; i++)
        store_number(dtype, expected, i, n_workers);
    EXPECT(memcmp(values, expected, bytes) == 0, "the sums are wrong");
    return true;
}

START_TEST(rows_of_every_dtype_cross_unchanged)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 2 }, { 1, 2 } } });

    cluster_start(run, play_dtype, &dtypes[_i]);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

static Suite *handles_suite(void)
{
    Suite *suite = suite_create("handles over several processes");
    TCase *cache = cluster_add_case(suite, "cache");
    TCase *tickets = cluster_add_case(suite, "tickets");
    TCase *chunks = cluster_add_case(suite, "chunks");
    TCase *sparse = cluster_add_case(suite, "sparse");
    TCase *rows = cluster_add_case(suite, "rows");

    tcase_add_loop_test(cache, client_reads_of_a_node_share_one_fetch, 0,
                        (int)G_N_ELEMENTS(caches));
    tcase_add_loop_test(cache, client_cache_keeps_the_staleness_bound_and_shows_own_adds, 0,
                        (int)G_N_ELEMENTS(caches));
    tcase_add_test(tickets, tickets_call_back_once_each_across_nodes);
    tcase_add_test(tickets, an_add_and_get_of_many_keys_shows_all_of_its_deltas_in_each_place);
    tcase_add_test(chunks, chunks_lie_over_all_servers_and_other_handles_see_them);
    tcase_add_loop_test(sparse, workers_of_two_nodes_speculate_on_different_keys, 0,
                        (int)G_N_ELEMENTS(told));
    tcase_add_loop_test(rows, rows_of_every_dtype_cross_unchanged, 0, (int)G_N_ELEMENTS(dtypes));
    return suite;
}

int main(void)
{
    return run_suite(handles_suite());
}
