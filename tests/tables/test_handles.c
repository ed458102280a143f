/* Properties of all handles beyond the conformance suite: errors, empty calls, several handles on
 * one thread, update rules, initial values, partitions. */
#include <string.h>

#include "tables/worker.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/runner.h"

#define I64_TABLE(...)                                \
    &(RubatoTableSpec)                                \
    {                                                 \
        .name = "t", .dtype = RUBATO_I64, __VA_ARGS__ \
    }

/* ---- opening ---- */

static bool open_wrongly(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    REQUIRE(rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error) == NULL);
    REQUIRE(is_error(error, RUBATO_ERROR_TYPE, "holds i64; it cannot be opened as f32"));
    REQUIRE(rubato_worker_open_kv_table_cached(worker, "t", RUBATO_I32, error) == NULL);
    REQUIRE(is_error(error, RUBATO_ERROR_TYPE, "i64"));
    REQUIRE(rubato_worker_open_chunk_table(worker, "t", RUBATO_F64, error) == NULL);
    REQUIRE(is_error(error, RUBATO_ERROR_TYPE, "f64"));
    REQUIRE(rubato_worker_open_sparse_kv_client_table(worker, "t", RUBATO_F32, NULL, 0, error) ==
            NULL);
    REQUIRE(is_error(error, RUBATO_ERROR_TYPE, "f32"));
    REQUIRE(rubato_worker_open_kv_table(worker, "t", (RubatoDtype)77, error) == NULL);
    REQUIRE(is_error(error, RUBATO_ERROR_TYPE, "?"));

    REQUIRE(rubato_worker_open_kv_table(worker, "other", RUBATO_I64, error) == NULL);
    REQUIRE(is_error(error, RUBATO_ERROR_NOT_FOUND, "task case does not use a table other"));
    REQUIRE(rubato_worker_open_kv_table_cached(worker, "no", RUBATO_I64, error) == NULL);
    REQUIRE(is_error(error, RUBATO_ERROR_NOT_FOUND, "no"));
    REQUIRE(rubato_worker_open_chunk_table(worker, "no", RUBATO_I64, error) == NULL);
    REQUIRE(is_error(error, RUBATO_ERROR_NOT_FOUND, "no"));
    REQUIRE(rubato_worker_open_sparse_kv_client_table(worker, "no", RUBATO_I64, NULL, 0, error) ==
            NULL);
    REQUIRE(is_error(error, RUBATO_ERROR_NOT_FOUND, "no"));
    REQUIRE(rubato_worker_open_chunk_table(worker, "t", RUBATO_I64, error) == NULL);
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "chunks need \"dense\""));
    return true;
}

START_TEST(another_dtype_an_unknown_table_and_chunks_of_hash_storage_are_refused)
{
    RubatoEngine *engine = engine_with_servers(2);

    create_table(engine, I64_TABLE(.storage = "hash"));
    create_table(engine, &(RubatoTableSpec){ .name = "other", .dtype = RUBATO_I64 });
    run_ok(engine, 1, open_wrongly, NULL, "t");
    rubato_engine_free(engine);
}
END_TEST

/* ---- left open ---- */

/* The handles that a worker of each kind has left open. Their memory is freed after the task. */
typedef struct {
    uint32_t kind, n_handles;
    void *handles[3];
} LeftOpen;

typedef struct {
    void *(*open)(RubatoWorker *worker, GError **error);
    void (*free)(void *handle);
    const char *advice; /* what the log says */
} HandleKind;

#define HANDLE_KIND(prefix, Type, ...)                                                      \
    static void *leave_##prefix(RubatoWorker *worker, GError **error)                       \
    {                                                                                       \
        return rubato_worker_open_##prefix(worker, __VA_ARGS__, error);                     \
    }                                                                                       \
    static void free_##prefix(void *handle)                                                 \
    {                                                                                       \
        rubato_##prefix##_free(handle);                                                     \
    }                                                                                       \
    static const HandleKind of_##prefix = {                                                 \
        leave_##prefix, free_##prefix,                                                      \
        "call rubato_" #prefix "_free() before, or declare the handle g_autoptr(" #Type ")" \
    };

HANDLE_KIND(kv_table, RubatoKVTable, "t", RUBATO_I64)
HANDLE_KIND(chunk_table, RubatoChunkTable, "t", RUBATO_I64)
HANDLE_KIND(sparse_kv_client_table, RubatoSparseKVClientTable, "t", RUBATO_I64, NULL, 0)
HANDLE_KIND(ragged_table, RubatoRaggedTable, "ragged", RUBATO_I64)

static const HandleKind *const handle_kinds[] = { &of_kv_table, &of_chunk_table,
                                                  &of_sparse_kv_client_table, &of_ragged_table };

static bool leave_open(RubatoWorker *worker, void *user_data, GError **error)
{
    LeftOpen *const left = user_data;

    for (uint32_t i = 0; i < left->n_handles; i++) {
        left->handles[i] = handle_kinds[left->kind]->open(worker, error);
        TRY(left->handles[i] != NULL);
    }
    return true;
}

/* Neither handle has started a request. docs/threads.md: Who may call what */
START_TEST(a_handle_that_is_left_open_is_told_with_the_call_that_closes_it)
{
    const char *const tables[] = { "t", "ragged", NULL };
    const HandleKind *const kind = handle_kinds[_i];
    const char *const table = kind == &of_ragged_table ? "ragged" : "t";
    const uint32_t most = kind == &of_sparse_kv_client_table ? 1 : 3; /* that a worker may open */
    RubatoEngine *engine = engine_with_servers(1);

    create_table(engine, I64_TABLE(.n_keys = 10));
    create_table(engine, &(RubatoTableSpec){ .name = "ragged",
                                             .dtype = RUBATO_I64,
                                             .storage = "hash",
                                             .shape = RUBATO_SHAPE_RAGGED });
    log_capture_start();
    for (uint32_t n = 0; n <= most; n += n == 0 ? 1 : 2) {
        LeftOpen left = { .kind = (uint32_t)_i, .n_handles = n };
        const unsigned before = log_capture_count("has returned with");
        g_autofree char *line =
            g_strdup_printf("worker 0 of task case has returned with %s on table %s; %s",
                            n == 1 ? "an open handle" : "3 open handles", table, kind->advice);

        run_task_ok(engine, &(RubatoTask){ .name = "case",
                                           .run = leave_open,
                                           .user_data = &left,
                                           .tables = tables,
                                           .workers_per_node = 1 });
        ck_assert_uint_eq(log_capture_count("has returned with") - before, n == 0 ? 0 : 1);
        ck_assert_uint_eq(log_capture_count(line), n == 0 ? 0 : 1);
        for (uint32_t i = 0; i < n; i++)
            kind->free(left.handles[i]);
    }
    rubato_engine_free(engine);
}
END_TEST

static bool free_nothing(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)worker;
    (void)user_data;
    (void)error;
    rubato_kv_table_free(NULL);
    rubato_chunk_table_free(NULL);
    rubato_sparse_kv_client_table_free(NULL);
    return true;
}

START_TEST(freeing_null_is_allowed)
{
    RubatoEngine *engine = engine_with_servers(1);

    run_ok(engine, 1, free_nothing, NULL, NULL);
    rubato_engine_free(engine);
}
END_TEST

static bool use_null(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) kv = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    RubatoIteration iteration;
    int64_t value = -7;

    (void)user_data;
    TRY(kv != NULL);
    REQUIRE(rubato_worker_open_kv_table(NULL, "t", RUBATO_I64, NULL) == NULL);
    REQUIRE(rubato_worker_open_kv_table_cached(worker, NULL, RUBATO_I64, NULL) == NULL);
    REQUIRE(rubato_worker_open_sparse_kv_client_table(worker, "t", RUBATO_I64, NULL, 3, NULL) ==
            NULL);
    REQUIRE(rubato_worker_open_sparse_kv_client_table_with(worker, "t", RUBATO_I64, NULL, NULL,
                                                           NULL) == NULL);
    REQUIRE(!rubato_kv_table_get(NULL, NULL, 0, &value, NULL));
    REQUIRE(!rubato_kv_table_get(kv, NULL, 1, &value, NULL));
    REQUIRE(!rubato_kv_table_add(kv, NULL, 1, &value, NULL));
    REQUIRE(!rubato_kv_table_clock(NULL, NULL));
    REQUIRE(rubato_kv_table_width(NULL) == 0);
    REQUIRE(!rubato_kv_table_get(NULL, NULL, 0, &value, NULL));
    REQUIRE(rubato_kv_table_get_async(NULL, NULL, 0, &value, NULL, NULL) == 0);
    REQUIRE(!rubato_worker_wait_all(NULL, NULL));
    REQUIRE(!rubato_chunk_table_get_chunks(NULL, NULL, 0, &value, NULL));
    REQUIRE(!rubato_sparse_kv_client_table_get(NULL, &value, NULL));
    REQUIRE(!rubato_sparse_kv_client_table_next(NULL, &iteration));
    REQUIRE(value == -7);
    return true;
}

START_TEST(null_where_something_has_to_be_is_refused_in_the_log)
{
    RubatoEngine *engine = engine_with_servers(1);

    log_capture_start();
    create_table(engine, I64_TABLE(.n_keys = 4));
    run_ok(engine, 1, use_null, NULL, "t");
    ck_assert_uint_ge(log_capture_count("assertion 'table != NULL"), 8);
    rubato_engine_free(engine);
}
END_TEST

/* ---- keys outside ---- */

/* The last but one key is wrong; the others lie on both servers. */
static const RubatoKey half_wrong[] = { 10, 19, 12, 20, 11 };
#define OUTSIDE "key 20 is outside its range 10 to 19"

static bool use_wrong_keys(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) kv = NULL;
    g_autoptr(RubatoKVTable) client = NULL;
    g_autoptr(RubatoChunkTable) chunk = NULL;
    const RubatoIteration iterations[] = { { half_wrong, 5 } };
    const int64_t deltas[5] = { 1, 1, 1, 1, 1 };
    int64_t values[5] = { -7, -7, -7, -7, -7 };
    const uint64_t chunks[] = { 0, 5, 1 };

    (void)user_data;
    kv = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    client = rubato_worker_open_kv_table_cached(worker, "t", RUBATO_I64, error);
    chunk = rubato_worker_open_chunk_table(worker, "t", RUBATO_I64, error);
    TRY(kv != NULL && client != NULL && chunk != NULL);

#define REFUSED(call, text) \
    REQUIRE(!(call));       \
    REQUIRE(is_error(error, RUBATO_ERROR_RANGE, text))

    REFUSED(rubato_kv_table_get(kv, half_wrong, 5, values, error), OUTSIDE);
    REFUSED(rubato_kv_table_add(kv, half_wrong, 5, deltas, error), OUTSIDE);
    REFUSED(rubato_kv_table_get_range(kv, 16, 5, values, error), OUTSIDE);
    REFUSED(rubato_kv_table_add_range(kv, 16, 5, deltas, error), OUTSIDE);
    REFUSED(rubato_kv_table_get_range(kv, 9, 2, values, error), "key 9 is outside");
    REFUSED(rubato_kv_table_get(client, half_wrong, 5, values, error), OUTSIDE);
    REFUSED(rubato_kv_table_add(client, half_wrong, 5, deltas, error), OUTSIDE);
    REFUSED(rubato_kv_table_get_range(client, 16, 5, values, error), OUTSIDE);
    REFUSED(rubato_kv_table_add_range(client, 16, 5, deltas, error), OUTSIDE);
    REFUSED(rubato_kv_table_get_async(client, half_wrong, 5, values, NULL, error), OUTSIDE);
    REFUSED(rubato_kv_table_add_async(client, half_wrong, 5, deltas, NULL, error), OUTSIDE);
    REFUSED(rubato_chunk_table_get(chunk, half_wrong, 5, values, error), OUTSIDE);
    REFUSED(rubato_chunk_table_add(chunk, half_wrong, 5, deltas, error), OUTSIDE);
    REFUSED(rubato_chunk_table_get_chunks(chunk, chunks, 3, values, error),
            "chunk 5 is outside its chunks 0 to 4");
    REFUSED(rubato_chunk_table_add_chunks(chunk, chunks, 3, deltas, error), "chunk 5");
    REFUSED(
        rubato_worker_open_sparse_kv_client_table(worker, "t", RUBATO_I64, iterations, 1, error),
        OUTSIDE);
    for (size_t i = 0; i < 5; i++)
        REQUIRE(values[i] == -7, "(something was written)");
    return true;
}

START_TEST(a_key_outside_fails_the_whole_call_and_changes_nothing)
{
    RubatoEngine *engine = engine_with_servers(2);
    const int64_t deltas[5] = { 1, 1, 1, 1, 1 };
    int64_t values[5] = { -7, -7, -7, -7, -7 };
    GError *error = NULL;

    create_table(engine, I64_TABLE(.first_key = 10, .n_keys = 10, .chunk_size = 2));
    run_ok(engine, 1, use_wrong_keys, NULL, "t");
    ck_assert(!rubato_engine_get(engine, "t", half_wrong, 5, values, &error));
    check_error(&error, RUBATO_ERROR_RANGE, "table t", OUTSIDE, NULL);
    ck_assert(!rubato_engine_add(engine, "t", half_wrong, 5, deltas, &error));
    check_error(&error, RUBATO_ERROR_RANGE, OUTSIDE, NULL);
    ck_assert(!rubato_engine_add_range(engine, "t", 16, 5, deltas, &error));
    check_error(&error, RUBATO_ERROR_RANGE, OUTSIDE, NULL);
    ck_assert(!rubato_engine_get_range(engine, "t", UINT64_MAX, 5, values, &error));
    check_error(&error, RUBATO_ERROR_RANGE, NULL);
    for (RubatoKey key = 10; key < 20; key++)
        ck_assert_int_eq(read_i64(engine, "t", key), 0);
    ck_assert_int_eq(values[0], -7);
    rubato_engine_free(engine);
}
END_TEST

static bool use_wrong_runs(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) kv = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    int64_t values[4] = { 0 };

    (void)user_data;
    TRY(kv != NULL);
    REFUSED(rubato_kv_table_get_range(kv, UINT64_MAX - 1, 4, values, error), "past the last key");
    REFUSED(rubato_kv_table_add_range(kv, UINT64_MAX, 2, values, error), "past the last key");
    REQUIRE(!rubato_kv_table_get_range(kv, 0, (size_t)1 << 40, values, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "1099511627776 keys in one call"));
    REQUIRE(!rubato_kv_table_get(kv, (const RubatoKey *)values, (size_t)1 << 40, values, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "1099511627776 keys in one call"));
    return true;
}

START_TEST(runs_past_the_last_key_and_absurd_sizes_are_refused)
{
    RubatoEngine *engine = engine_with_servers(2);

    create_table(engine, I64_TABLE(.storage = "hash"));
    run_ok(engine, 1, use_wrong_runs, NULL, "t");
    rubato_engine_free(engine);
}
END_TEST

/* ---- the ends of the keys ---- */

static bool add_at_the_end(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) kv = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey keys[] = { UINT64_MAX, UINT64_MAX - 2, UINT64_MAX - 1 };
    const int64_t deltas[] = { 1, 3, 2 };
    int64_t values[3];

    (void)user_data;
    TRY(kv != NULL);
    TRY(rubato_kv_table_add(kv, keys, 3, deltas, error));
    TRY(rubato_kv_table_add_range(kv, UINT64_MAX - 2, 3, deltas, error));
    TRY(rubato_kv_table_get_range(kv, UINT64_MAX - 2, 3, values, error));
    REQUIRE(values[0] == 4 && values[1] == 5 && values[2] == 3);
    return true;
}

/* _i: storage and number of servers. */
START_TEST(the_last_key_there_is_is_a_key_like_others)
{
    RubatoEngine *engine = engine_with_servers(1 + (uint32_t)_i / 2);

    if (_i % 2 == 0)
        create_table(engine, I64_TABLE(.first_key = UINT64_MAX - 2, .n_keys = 3));
    else
        create_table(engine, I64_TABLE(.storage = "hash", .partition = "range"));
    run_ok(engine, 1, add_at_the_end, NULL, "t");
    ck_assert_int_eq(read_i64(engine, "t", UINT64_MAX), 3);
    rubato_engine_free(engine);
}
END_TEST

/* ---- empty calls ---- */

static bool call_with_nothing(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) kv = NULL;
    g_autoptr(RubatoKVTable) client = NULL;
    g_autoptr(RubatoChunkTable) chunk = NULL;
    g_autoptr(RubatoSparseKVClientTable) sparse = NULL;
    const RubatoIteration iterations[] = { { NULL, 0 }, { NULL, 0 } };
    RubatoTicket tickets[2];

    (void)user_data;
    kv = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    client = rubato_worker_open_kv_table_cached(worker, "t", RUBATO_I64, error);
    chunk = rubato_worker_open_chunk_table(worker, "t", RUBATO_I64, error);
    sparse =
        rubato_worker_open_sparse_kv_client_table(worker, "t", RUBATO_I64, iterations, 2, error);
    TRY(kv != NULL && client != NULL && chunk != NULL && sparse != NULL);
    TRY(rubato_kv_table_get(kv, NULL, 0, NULL, error));
    TRY(rubato_kv_table_add(kv, NULL, 0, NULL, error));
    TRY(rubato_kv_table_get_range(kv, 12345, 0, NULL, error));
    TRY(rubato_kv_table_add_range(kv, 12345, 0, NULL, error));
    TRY(rubato_kv_table_get(client, NULL, 0, NULL, error));
    TRY(rubato_kv_table_add(client, NULL, 0, NULL, error));
    TRY(rubato_kv_table_get_range(client, 12345, 0, NULL, error));
    TRY(rubato_kv_table_add_range(client, 12345, 0, NULL, error));
    tickets[0] = rubato_kv_table_get_async(client, NULL, 0, NULL, NULL, error);
    tickets[1] = rubato_kv_table_add_async(client, NULL, 0, NULL, NULL, error);
    REQUIRE(tickets[0] != 0 && tickets[1] != 0 && tickets[0] != tickets[1]);
    TRY(rubato_worker_wait_all(worker, error));
    TRY(rubato_chunk_table_get(chunk, NULL, 0, NULL, error));
    TRY(rubato_chunk_table_add(chunk, NULL, 0, NULL, error));
    TRY(rubato_chunk_table_get_chunks(chunk, NULL, 0, NULL, error));
    TRY(rubato_chunk_table_add_chunks(chunk, NULL, 0, NULL, error));
    TRY(rubato_sparse_kv_client_table_get(sparse, NULL, error));
    TRY(rubato_sparse_kv_client_table_add(sparse, NULL, error));
    TRY(rubato_sparse_kv_client_table_get(sparse, NULL, error));
    return true;
}

START_TEST(empty_calls_do_nothing)
{
    static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp" };
    RubatoEngine *engine = engine_with_servers(3);

    const RubatoTableSpec spec =
        fitting_spec(*I64_TABLE(.n_keys = 10, .model = models[_i], .speculation = 1));

    create_table(engine, &spec);
    run_ok(engine, 2, call_with_nothing, NULL, "t");
    ck_assert(rubato_engine_get(engine, "t", NULL, 0, NULL, NULL));
    ck_assert(rubato_engine_add(engine, "t", NULL, 0, NULL, NULL));
    rubato_engine_free(engine);
}
END_TEST

/* ---- several handles on one thread ---- */

static bool use_all_at_once(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) kv = NULL;
    g_autoptr(RubatoKVTable) same = NULL;
    g_autoptr(RubatoKVTable) client = NULL;
    g_autoptr(RubatoChunkTable) chunk = NULL;
    g_autoptr(RubatoKVTable) other_client = NULL;
    g_autoptr(RubatoSparseKVClientTable) sparse = NULL;
    const RubatoKey keys[] = { 0, 1 };
    const RubatoIteration iterations[] = { { keys, 2 }, { keys, 2 }, { keys, 2 } };
    const int64_t ones[2] = { 1, 1 };
    const float halves[2] = { 0.5f, 0.5f };
    const uint64_t chunk_0 = 0;
    int64_t seen[2];
    float half_seen[2];

    (void)user_data;
    kv = rubato_worker_open_kv_table(worker, "a", RUBATO_I64, error);
    same = rubato_worker_open_kv_table(worker, "a", RUBATO_I64, error);
    client = rubato_worker_open_kv_table_cached(worker, "a", RUBATO_I64, error);
    chunk = rubato_worker_open_chunk_table(worker, "a", RUBATO_I64, error);
    other_client = rubato_worker_open_kv_table_cached(worker, "b", RUBATO_F32, error);
    sparse =
        rubato_worker_open_sparse_kv_client_table(worker, "c", RUBATO_I64, iterations, 3, error);
    TRY(kv != NULL && same != NULL && client != NULL && chunk != NULL && other_client != NULL &&
        sparse != NULL);
    REQUIRE(rubato_kv_table_width(kv) == 1 && rubato_kv_table_width(client) == 1 &&
            rubato_chunk_table_width(chunk) == 1 &&
            rubato_sparse_kv_client_table_width(sparse) == 1);
    for (uint64_t t = 0; t < 3; t++) {
        int64_t own;

        /* four handles on table a: one clock, one order */
        TRY(rubato_kv_table_add(kv, keys, 2, ones, error));
        TRY(rubato_kv_table_add(same, keys, 2, ones, error));
        TRY(rubato_kv_table_add_async(client, keys, 2, ones, NULL, error) != 0);
        TRY(rubato_chunk_table_add_chunks(chunk, &chunk_0, 1, ones, error));
        TRY(rubato_kv_table_get(same, keys, 2, seen, error));
        own = 4 * ((int64_t)t + 1);
        /* the two others may be a clock ahead */
        REQUIRE(seen[0] >= own && seen[0] <= own + 2 * (own + 4), "(%" G_GINT64_FORMAT ")",
                seen[0]);
        TRY(rubato_kv_table_get(client, keys, 2, seen, error));
        REQUIRE(seen[1] >= own);
        REQUIRE(rubato_chunk_table_clock_value(chunk) == t);
        TRY(t == 0   ? rubato_kv_table_clock(kv, error)
            : t == 1 ? rubato_kv_table_clock(client, error)
                     : rubato_chunk_table_clock(chunk, error));
        REQUIRE(rubato_kv_table_clock_value(kv) == t + 1 &&
                rubato_kv_table_clock_value(same) == t + 1 &&
                rubato_kv_table_clock_value(client) == t + 1 &&
                rubato_chunk_table_clock_value(chunk) == t + 1);
        /* the others have their own */
        REQUIRE(rubato_kv_table_clock_value(other_client) == 0);
        TRY(rubato_kv_table_add(other_client, keys, 2, halves, error));
        TRY(rubato_kv_table_get(other_client, keys, 2, half_seen, error));
        TRY(rubato_sparse_kv_client_table_get(sparse, seen, error));
        REQUIRE(rubato_sparse_kv_client_table_clock_value(sparse) == t);
        TRY(rubato_sparse_kv_client_table_add(sparse, ones, error));
    }
    return rubato_worker_wait_all(worker, error);
}

START_TEST(several_handles_of_any_kind_live_on_one_thread)
{
    RubatoEngine *engine = engine_with_servers(2);
    const char *const tables[] = { "a", "b", "c", NULL };
    const RubatoKey key = 1;
    float half;

    create_table(engine, &(RubatoTableSpec){ .name = "a",
                                             .dtype = RUBATO_I64,
                                             .n_keys = 4,
                                             .chunk_size = 2,
                                             .model = "ssp",
                                             .staleness = 1,
                                             .cache = RUBATO_CACHE_ALL });
    create_table(engine, &(RubatoTableSpec){ .name = "b", .model = "asp" });
    create_table(engine, &(RubatoTableSpec){ .name = "c",
                                             .dtype = RUBATO_I64,
                                             .n_keys = 4,
                                             .model = "sparse_ssp",
                                             .speculation = 1 });
    run_task_ok(engine, &(RubatoTask){ .name = "many",
                                       .run = use_all_at_once,
                                       .tables = tables,
                                       .workers_per_node = 3 });
    ck_assert_int_eq(read_i64(engine, "a", 0), 3 * 3 * 4);
    ck_assert_int_eq(read_i64(engine, "c", 1), 3 * 3);
    ck_assert(rubato_engine_get(engine, "b", &key, 1, &half, NULL));
    ck_assert_float_eq(half, 4.5f);
    rubato_engine_free(engine);
}
END_TEST

/* Worker 1's second Add is under way while worker 0 makes the cache and fills it: it has looked for
 * a cache before there was one. */
static bool add_past_the_cache(RubatoWorker *worker, void *user_data, GError **error)
{
    Event *filled = user_data;
    TableRoute *route = &worker->routes[0];
    g_autoptr(RubatoKVTable) kv = NULL;
    g_autoptr(RubatoKVTable) client = NULL;
    const RubatoKey key = 3;
    const int64_t one = 1;
    ProcessCache *cache;
    int64_t seen;

    if (rubato_worker_rank(worker) == 0) {
        client = rubato_worker_open_kv_table_cached(worker, "t", RUBATO_I64, error);
        TRY(client != NULL && rubato_kv_table_get(client, &key, 1, &seen, error));
        event_raise(filled);
        return true;
    }
    TRY(event_await(filled, 1, worker, error));
    kv = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    cache = atomic_exchange(&route->cache, NULL);
    TRY(kv != NULL && cache != NULL && rubato_kv_table_add(kv, &key, 1, &one, error));
    atomic_store(&route->cache, cache);
    client = rubato_worker_open_kv_table_cached(worker, "t", RUBATO_I64, error);
    TRY(client != NULL && rubato_kv_table_get(client, &key, 1, &seen, error));
    REQUIRE(seen == 1);
    return true;
}

START_TEST(a_worker_that_added_before_it_opened_a_caching_handle_sees_its_adds)
{
    RubatoEngine *engine = engine_with_servers(1);
    Event filled = EVENT_INIT;

    create_table(engine,
                 I64_TABLE(.n_keys = 4, .model = "ssp", .staleness = 5, .cache = RUBATO_CACHE_ALL));
    run_ok(engine, 2, add_past_the_cache, &filled, "t");
    rubato_engine_free(engine);
}
END_TEST

/* ---- clocks without Gets ---- */

static bool only_add(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) kv = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey key = rubato_worker_rank(worker);
    int64_t seen;

    (void)user_data;
    TRY(kv != NULL);
    for (int64_t t = 1; t <= 20; t++) {
        TRY(rubato_kv_table_add(kv, &key, 1, &t, error));
        TRY(rubato_kv_table_clock(kv, error));
    }
    REQUIRE(rubato_kv_table_clock_value(kv) == 20);
    TRY(rubato_kv_table_get(kv, &key, 1, &seen, error));
    REQUIRE(seen == 210);
    return true;
}

START_TEST(add_and_clock_need_no_get_between)
{
    static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp" };
    RubatoEngine *engine = engine_with_servers(2);

    create_table(engine, I64_TABLE(.n_keys = 10, .model = models[_i]));
    run_ok(engine, 3, only_add, NULL, "t");
    for (RubatoKey key = 0; key < 3; key++)
        ck_assert_int_eq(read_i64(engine, "t", key), 210);
    rubato_engine_free(engine);
}
END_TEST

/* ---- update rules ---- */

static bool write_repeatedly(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) kv = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey keys[] = { 5, 2, 5, 9, 5 };
    const int64_t deltas[] = { 1, 10, 2, 100, 4 };

    (void)user_data;
    TRY(kv != NULL && rubato_kv_table_add(kv, keys, 5, deltas, error));
    return rubato_kv_table_add(kv, keys, 2, deltas, error);
}

START_TEST(repeated_keys_accumulate_or_the_last_one_stays)
{
    const bool assigns = _i % 2 == 1;
    RubatoEngine *engine = engine_with_servers(3);

    create_table(engine, I64_TABLE(.n_keys = _i / 2 == 0 ? 10 : 0, .model = "bsp",
                                   .update = assigns ? "assign" : "add"));
    run_ok(engine, 1, write_repeatedly, NULL, "t");
    ck_assert_int_eq(read_i64(engine, "t", 5), assigns ? 1 : 8);
    ck_assert_int_eq(read_i64(engine, "t", 2), assigns ? 10 : 20);
    ck_assert_int_eq(read_i64(engine, "t", 9), 100);
    ck_assert_int_eq(read_i64(engine, "t", 0), 0);
    rubato_engine_free(engine);
}
END_TEST

/* ---- initial values ---- */

#define INIT_KEYS 24
#define INIT_WIDTH 5

static void read_initial(uint32_t servers, const RubatoTableSpec *spec, void *values)
{
    RubatoEngine *engine = engine_with_servers(servers);
    RubatoKey keys[INIT_KEYS];

    for (RubatoKey i = 0; i < INIT_KEYS; i++)
        keys[i] = INIT_KEYS - 1 - i;
    create_table(engine, spec);
    ck_assert(rubato_engine_get(engine, "t", keys, INIT_KEYS, values, NULL));
    rubato_engine_free(engine);
}

/* _i: dtype × initialiser × storage. */
START_TEST(initial_values_do_not_depend_on_servers_or_storage)
{
    static const char *const inits[] = { "constant", "uniform", "normal" };
    const RubatoDtype dtype = (RubatoDtype)(_i % 4);
    const size_t n_bytes = INIT_KEYS * INIT_WIDTH * rubato_dtype_size(dtype);
    RubatoTableSpec spec = fitting_spec((RubatoTableSpec){ .name = "t",
                                                           .dtype = dtype,
                                                           .width = INIT_WIDTH,
                                                           .init = inits[_i / 4],
                                                           .init_value = 3,
                                                           .init_low = -50,
                                                           .init_high = 50,
                                                           .init_mean = 7,
                                                           .init_stddev = 40,
                                                           .seed = 99 });
    _Alignas(8) char first[INIT_KEYS * INIT_WIDTH * 8], next[sizeof first];

    read_initial(1, &spec, first);
    if (_i < 4)
        ck_assert_int_eq(value_load(dtype, first, 17), 3);
    else
        ck_assert_int_ne(value_load(dtype, first, 0) + value_load(dtype, first, 1) * 1000,
                         value_load(dtype, first, 7) + value_load(dtype, first, 8) * 1000);
    for (uint32_t servers = 1; servers <= 4; servers++)
        for (int dense = 0; dense < 2; dense++) {
            memset(next, 0x33, sizeof next);
            spec.n_keys = dense == 1 ? INIT_KEYS : 0;
            read_initial(servers, &spec, next);
            ck_assert_mem_eq(first, next, n_bytes);
        }
    spec.seed = 100;
    read_initial(2, &spec, next);
    ck_assert((memcmp(first, next, n_bytes) == 0) == (_i < 4));
}
END_TEST

static bool read_absent(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) kv = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey keys[] = { 1, 1000, 77 };
    int64_t seen[3];

    (void)user_data;
    TRY(kv != NULL && rubato_kv_table_get(kv, keys, 3, seen, error));
    REQUIRE(seen[0] == 6 && seen[1] == 6 && seen[2] == 6);
    return true;
}

START_TEST(a_get_creates_rows_only_if_the_table_says_so)
{
    const bool creates = _i == 1;
    RubatoEngine *engine = engine_with_servers(2);
    const RubatoKey key = 5;
    const int64_t one = 1;

    create_table(engine, I64_TABLE(.storage = "hash", .init_value = 6, .create_on_get = creates));
    run_ok(engine, 1, read_absent, NULL, "t");
    ck_assert_uint_eq(count_rows(engine, "t"), creates ? 3 : 0);
    ck_assert(rubato_engine_add(engine, "t", &key, 1, &one, NULL));
    ck_assert_uint_eq(count_rows(engine, "t"), creates ? 4 : 1);
    ck_assert_int_eq(read_i64(engine, "t", 5), 7);
    rubato_engine_free(engine);
}
END_TEST

/* ---- partitions ---- */

START_TEST(each_server_holds_its_part)
{
    static const RubatoKey bounds[] = { 3, 3, 9 };
    RubatoEngine *engine = engine_with_servers(4);
    GError *error = NULL;
    const int64_t ones[12] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };

    create_table(engine,
                 I64_TABLE(.n_keys = 12, .partition = "bounds", .bounds = bounds, .n_bounds = 3));
    ck_assert_uint_eq(count_rows_of(engine, "t", 0), 3);
    ck_assert_uint_eq(count_rows_of(engine, "t", 1), 0);
    ck_assert_uint_eq(count_rows_of(engine, "t", 2), 6);
    ck_assert_uint_eq(count_rows_of(engine, "t", 3), 3);
    ck_assert(rubato_engine_add_range(engine, "t", 0, 12, ones, NULL));
    for (RubatoKey key = 0; key < 12; key++)
        ck_assert_int_eq(read_i64(engine, "t", key), 1);
    ck_assert(rubato_engine_drop_table(engine, "t", NULL));

    create_table(engine, I64_TABLE(.storage = "hash", .partition = "bounds", .bounds = bounds,
                                   .n_bounds = 3));
    ck_assert(rubato_engine_add_range(engine, "t", 0, 12, ones, NULL));
    ck_assert_uint_eq(count_rows_of(engine, "t", 0), 3);
    ck_assert_uint_eq(count_rows_of(engine, "t", 1), 0);
    ck_assert_uint_eq(count_rows_of(engine, "t", 2), 6);
    ck_assert_uint_eq(count_rows_of(engine, "t", 3), 3);
    ck_assert(rubato_engine_drop_table(engine, "t", NULL));

    ck_assert(!rubato_engine_create_table(
        engine, I64_TABLE(.n_keys = 12, .partition = "bounds", .bounds = bounds, .n_bounds = 2),
        &error));
    check_error(&error, RUBATO_ERROR_INVALID, "2 bounds", "there are 4", NULL);
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("handles");
    TCase *cases = tcase_create("handles");

    tcase_add_test(cases, another_dtype_an_unknown_table_and_chunks_of_hash_storage_are_refused);
    tcase_add_loop_test(cases, a_handle_that_is_left_open_is_told_with_the_call_that_closes_it, 0,
                        G_N_ELEMENTS(handle_kinds));
    tcase_add_test(cases, freeing_null_is_allowed);
    tcase_add_test(cases, null_where_something_has_to_be_is_refused_in_the_log);
    tcase_add_test(cases, a_key_outside_fails_the_whole_call_and_changes_nothing);
    tcase_add_test(cases, runs_past_the_last_key_and_absurd_sizes_are_refused);
    tcase_add_loop_test(cases, the_last_key_there_is_is_a_key_like_others, 0, 8);
    tcase_add_loop_test(cases, empty_calls_do_nothing, 0, 4);
    tcase_add_test(cases, several_handles_of_any_kind_live_on_one_thread);
    tcase_add_test(cases, a_worker_that_added_before_it_opened_a_caching_handle_sees_its_adds);
    tcase_add_loop_test(cases, add_and_clock_need_no_get_between, 0, 4);
    tcase_add_loop_test(cases, repeated_keys_accumulate_or_the_last_one_stays, 0, 4);
    tcase_add_loop_test(cases, initial_values_do_not_depend_on_servers_or_storage, 0, 12);
    tcase_add_loop_test(cases, a_get_creates_rows_only_if_the_table_says_so, 0, 2);
    tcase_add_test(cases, each_server_holds_its_part);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
