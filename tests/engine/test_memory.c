/* Lack of memory. Every allocation of the library whose size comes from data fails in turn. Then
 * the task fails with RUBATO_ERROR_MEMORY and the table's name, no worker hangs, and earlier rows
 * keep their values. */
#include <rubato/error.h>
#include <stdlib.h>
#include <string.h>

#include "models/shard/shard.h"
#include "models/storage/hash/segment_pool.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/scarce_memory.h"
#include "tests/support/runner.h"

/* ---- hash storage ---- */

START_TEST(a_pool_gives_blocks_as_soon_as_there_is_memory_again)
{
    enum { N = 600, BLOCK_BYTES = 64 << 10 };
    SegmentPool pool;
    g_autofree unsigned char **blocks = g_new0(unsigned char *, N);
    unsigned n_without = 0;

    segment_pool_init(&pool, BLOCK_BYTES, SEGMENT_POOL_HUGE_FROM, SEGMENT_POOL_MOST_AHEAD);
    for (uint64_t i = 0; i < N; i++) {
        for (int way = 1; way <= 4 && blocks[i] == NULL;
             way++) { /* singles, regions, lists of them */
            scarce_memory_begin(0, (i + (unsigned)way) % 4, (uint64_t)way % 4);
            blocks[i] = segment_pool_take(&pool);
            n_without += blocks[i] == NULL;
        }
        scarce_memory_end();
        if (blocks[i] == NULL)
            blocks[i] = segment_pool_take(&pool);
        ck_assert_ptr_nonnull(blocks[i]);
        blocks[i][0] = blocks[i][BLOCK_BYTES - 1] = 1;
        for (size_t j = i % 64; j < i; j += 64)
            ck_assert_ptr_ne(blocks[i], blocks[j]);
    }
    ck_assert_uint_gt(n_without, 100);
    for (size_t i = 0; i < N; i++)
        segment_pool_give(&pool, blocks[i]);
    segment_pool_clear(&pool);
}
END_TEST

enum { N_KEYS = 12000, N_REQUEST = 300 };

static RubatoKey key_of(uint64_t i)
{
    return i % 2 == 0 ? i / 2 : i * UINT64_C(0x9e3779b97f4a7c15); /* key 0 among them */
}

/* Adds 1 to every key, request by request. Those that failed may have been done for some keys:
 * *most of them is then more than *least. */
static void add_all(RubatoShard *shard, const bool *alarm, uint32_t width, int64_t *least,
                    int64_t *most)
{
    g_autofree int64_t *ones = g_new(int64_t, N_REQUEST * width);
    RubatoKey keys[N_REQUEST];

    for (size_t i = 0; i < N_REQUEST * width; i++)
        ones[i] = 1;
    for (size_t begin = 0; begin < N_KEYS; begin += N_REQUEST) {
        const bool before = *alarm;

        for (size_t i = 0; i < N_REQUEST; i++)
            keys[i] = key_of(begin + i);
        *(bool *)(uintptr_t)alarm = false;
        shard_add(shard, &(RubatoKeys){ .keys = keys, .n = N_REQUEST }, ones);
        for (size_t i = begin; i < begin + N_REQUEST; i++) {
            least[i] += !*alarm;
            most[i]++;
        }
        *(bool *)(uintptr_t)alarm |= before;
    }
}

static void check_all(RubatoShard *shard, uint32_t width, const int64_t *least, const int64_t *most)
{
    g_autofree int64_t *row = g_new(int64_t, width);

    for (size_t i = 0; i < N_KEYS; i++) {
        const RubatoKey key = key_of(i);

        shard_get(shard, &(RubatoKeys){ .keys = &key, .n = 1 }, row);
        for (uint32_t j = 0; j < width; j++)
            require_msg(row[j] >= least[i] && row[j] <= most[i] && row[j] == row[0],
                        "key %zu has %d", i, (int)row[j]);
    }
}

START_TEST(a_hash_shard_without_memory_loses_nothing_but_the_failed_request)
{
    const uint32_t width = _i % 2 == 0 ? 1 : 40;
    const uint64_t in_a_row = _i < 2 ? 1 : 1000;
    const uint64_t step = width == 1 ? 7 : 61;
    bool failed = true;

    for (uint64_t first = 1; failed; first += step) {
        RubatoTableSpec spec = {
            .name = "t", .dtype = RUBATO_I64, .width = width, .storage = "hash"
        };
        g_autofree int64_t *least = g_new0(int64_t, N_KEYS);
        g_autofree int64_t *most = g_new0(int64_t, N_KEYS);
        RubatoShard *shard = shard_new(&spec, 0, 0, NULL);
        uint64_t n_rows, n_bytes;
        bool alarm = false;

        shard_set_alarm(shard, &alarm);
        scarce_memory_begin(0, first, in_a_row);
        add_all(shard, &alarm, width, least, most);
        failed = scarce_memory_end();
        /* where a region of huge pages is too much, a block will do: not every failure is one */
        ck_assert(failed || !alarm);
        check_all(shard, width, least, most);
        alarm = false;
        add_all(shard, &alarm, width, least, most);
        ck_assert(!alarm);
        check_all(shard, width, least, most);
        shard_size(shard, &n_rows, &n_bytes);
        ck_assert_uint_eq(n_rows, N_KEYS);
        shard_free(shard);
    }
}
END_TEST

START_TEST(a_hash_shard_is_made_or_not)
{
    bool failed = true;

    for (uint64_t first = 1; failed; first++) {
        RubatoTableSpec spec = {
            .name = "t", .dtype = RUBATO_F32, .storage = "hash", .update = "momentum"
        };
        g_autoptr(GError) error = NULL;
        RubatoShard *shard;

        scarce_memory_begin(0, first, 1);
        shard = shard_new(&spec, 0, 0, &error);
        failed = scarce_memory_end();
        ck_assert(failed == (shard == NULL));
        if (failed)
            check_error(&error, RUBATO_ERROR_MEMORY, "table t", NULL);
        shard_free(shard);
    }
}
END_TEST

/* ---- tasks ---- */

enum { N_WORKERS = 2, N_ROUNDS = 6, N_CALL = 200 };

static const RubatoTableSpec specs[] = {
    { .name = "rows", .dtype = RUBATO_I64, .storage = "hash", .width = 3, .model = "asp" },
    { .name = "rows", .dtype = RUBATO_I64, .storage = "hash", .width = 40, .model = "bsp" },
    { .name = "rows",
      .dtype = RUBATO_I64,
      .storage = "hash",
      .width = 3,
      .model = "ssp",
      .staleness = 1,
      .cache = RUBATO_CACHE_ALL },
    { .name = "rows",
      .dtype = RUBATO_F64,
      .storage = "hash",
      .width = 3,
      .model = "bsp",
      .update = "sgd",
      .aggregate = RUBATO_AGGREGATE_SUM },
    { .name = "rows",
      .dtype = RUBATO_I64,
      .storage = "hash",
      .width = 3,
      .model = "sparse_ssp",
      .staleness = 1,
      .speculation = 2 },
};

/* Keys in no order, so that they have to be sorted by server; others in each round. */
static void choose(RubatoKey *keys, uint64_t round)
{
    for (uint64_t i = 0; i < N_CALL; i++)
        keys[i] = (round * N_CALL + i) * UINT64_C(0xd1342543de82ef95);
}

static bool use_sparsely(RubatoWorker *worker, GError **error)
{
    int64_t values[N_CALL * 3];
    RubatoKey keys[N_ROUNDS][N_CALL];
    RubatoIteration iterations[N_ROUNDS];

    for (uint64_t i = 0; i < N_ROUNDS; i++) {
        choose(keys[i], i);
        iterations[i] = (RubatoIteration){ .keys = keys[i], .n = N_CALL };
    }
    g_autoptr(RubatoSparseKVClientTable) table = rubato_worker_open_sparse_kv_client_table(
        worker, "rows", RUBATO_I64, iterations, N_ROUNDS, error);
    if (table == NULL)
        return false;
    for (uint64_t i = 0; i < N_ROUNDS; i++) {
        TRY(rubato_sparse_kv_client_table_get(table, values, error));
        TRY(rubato_sparse_kv_client_table_add(table, values, error));
    }
    return true;
}

/* Blocking calls and tickets in turn. */
static bool use_tickets(RubatoWorker *worker, const RubatoTableSpec *spec, GError **error)
{
    g_autofree void *values = g_malloc0((size_t)N_CALL * spec->width * 8);
    RubatoKey keys[N_CALL];
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, "rows", spec->dtype, error);

    if (table == NULL)
        return false;
    for (uint64_t round = 0; round < N_ROUNDS; round++) {
        choose(keys, round);
        if (round % 2 == 0) {
            TRY(rubato_kv_table_get(table, keys, N_CALL, values, error));
            TRY(rubato_kv_table_add(table, keys, N_CALL, values, error));
        } else {
            TRY(rubato_kv_table_get_async(table, keys, N_CALL, values, NULL, error));
            TRY(rubato_worker_wait_all(worker, error));
            TRY(rubato_kv_table_add_async(table, keys, N_CALL, values, NULL, error));
        }
        TRY(rubato_kv_table_add_range(table, round * 1000, N_CALL, values, error));
        TRY(rubato_kv_table_clock(table, error));
    }
    return rubato_worker_wait_all(worker, error);
}

static bool use(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoTableSpec *spec = user_data;

    return strcmp(spec->model, "sparse_ssp") == 0 ? use_sparsely(worker, error)
                                                  : use_tickets(worker, spec, error);
}

/* If any allocation fails, the task fails on all its workers and says why; the next task
 * succeeds. */
START_TEST(a_task_without_memory_fails_with_the_name_of_the_table)
{
    const RubatoTableSpec *spec = &specs[_i];
    const char *const tables[] = { "rows", NULL };
    const RubatoTask task = { .name = "use",
                              .run = use,
                              .user_data = (void *)(uintptr_t)spec,
                              .tables = tables,
                              .workers_per_node = N_WORKERS };
    uint64_t n_tasks_failed = 0;
    bool failed = true;

    for (uint64_t first = 1, step = 1; failed; first += step, step += first / 20) {
        RubatoEngine *engine = engine_with_servers(2);
        g_autoptr(GError) error = NULL;

        create_table(engine, spec);
        scarce_memory_begin(0, first, first % 3 == 0 ? 100 : 1);
        const bool ok = rubato_engine_run(engine, &task, &error);
        failed = scarce_memory_end();
        if (!ok) {
            n_tasks_failed++;
            check_error(&error, RUBATO_ERROR_MEMORY, "table rows", NULL);
        }
        ck_assert(ok || failed);
        run_task_ok(engine, &task);
        rubato_engine_free(engine);
    }
    ck_assert_uint_gt(n_tasks_failed, 5);
}
END_TEST

/* Between tasks the engine's own call fails, and can be repeated. */
START_TEST(an_engine_call_without_memory_fails_alone)
{
    enum { N = 5000 };
    const RubatoTableSpec spec = { .name = "rows", .dtype = RUBATO_I64, .storage = "hash" };
    g_autofree RubatoKey *keys = g_new(RubatoKey, N);
    g_autofree int64_t *values = g_new(int64_t, N);
    unsigned n_calls_failed = 0;
    bool failed = true;

    for (uint64_t i = 0; i < N; i++) {
        keys[i] = key_of(i);
        values[i] = (int64_t)i;
    }
    for (uint64_t first = 1; failed; first++) {
        RubatoEngine *engine = engine_with_servers(2);
        g_autoptr(GError) error = NULL;

        create_table(engine, &spec);
        scarce_memory_begin(0, first, 1);
        const bool ok = rubato_engine_set(engine, "rows", keys, N, values, &error);
        failed = scarce_memory_end();
        if (!ok)
            check_error(&error, RUBATO_ERROR_MEMORY, "table rows", NULL);
        ck_assert(ok || failed);
        n_calls_failed += !ok;
        ck_assert(rubato_engine_set(engine, "rows", keys, N, values, NULL));
        ck_assert_int_eq(read_i64(engine, "rows", keys[N - 1]), N - 1);
        ck_assert_uint_eq(count_rows(engine, "rows"), N);
        rubato_engine_free(engine);
    }
    ck_assert_uint_gt(n_calls_failed, 5);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("memory");
    TCase *storage = tcase_create("storage");
    TCase *tasks = tcase_create("tasks");

    tcase_add_test(storage, a_pool_gives_blocks_as_soon_as_there_is_memory_again);
    tcase_add_loop_test(storage, a_hash_shard_without_memory_loses_nothing_but_the_failed_request,
                        0, 4);
    tcase_add_test(storage, a_hash_shard_is_made_or_not);
    tcase_set_timeout(storage, 30);
    suite_add_tcase(suite, storage);

    tcase_add_loop_test(tasks, a_task_without_memory_fails_with_the_name_of_the_table, 0,
                        G_N_ELEMENTS(specs));
    tcase_add_test(tasks, an_engine_call_without_memory_fails_alone);
    tcase_set_timeout(tasks, 30);
    suite_add_tcase(suite, tasks);
    return run_suite(suite);
}
