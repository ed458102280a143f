/* Statistics of an engine in one process: sizes of tables, and no messages. */
#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

START_TEST(a_dense_table_has_all_its_rows_from_the_start)
{
    RubatoEngine *engine = engine_with_servers(3);
    RubatoTableStats stats;

    create_table(engine, &(RubatoTableSpec){ .name = "t", .width = 5, .n_keys = 1000 });
    ck_assert(rubato_engine_table_stats(engine, "t", &stats, NULL));
    ck_assert_uint_eq(stats.n_rows, 1000);
    ck_assert_uint_eq(stats.row_bytes, 20);
    ck_assert_uint_ge(stats.n_bytes, 1000 * 20);
    ck_assert_uint_le(stats.n_bytes, 1000 * 20 + 3 * 256);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(a_hashed_table_has_the_rows_that_were_written_on_all_servers)
{
    enum { N = 500 };
    RubatoEngine *engine = engine_with_servers(3);
    RubatoTableStats empty, stats;
    RubatoKey keys[N];
    int64_t deltas[N];

    create_table(engine, &(RubatoTableSpec){ .name = "t", .dtype = RUBATO_I64 });
    ck_assert(rubato_engine_table_stats(engine, "t", &empty, NULL));
    ck_assert_uint_eq(empty.n_rows, 0);
    for (uint64_t i = 0; i < N; i++) {
        keys[i] = i * UINT64_C(0x9e3779b97f4a7c15);
        deltas[i] = 1;
    }
    ck_assert(rubato_engine_add(engine, "t", keys, N, deltas, NULL));
    ck_assert(rubato_engine_table_stats(engine, "t", &stats, NULL));
    ck_assert_uint_eq(stats.n_rows, N);
    ck_assert_uint_eq(stats.row_bytes, 8);
    ck_assert_uint_ge(stats.n_bytes, N * 16);
    ck_assert_uint_gt(stats.n_bytes, empty.n_bytes);
    rubato_engine_free(engine);
}
END_TEST

/* The servers have two parts each, and as many bytes for both as max_bytes says. */
START_TEST(a_table_with_max_bytes_tells_how_many_rows_it_has_evicted)
{
    enum { N = 10000, N_SERVERS = 2 };
    const uint64_t max_bytes = 4 << 20, n_all = 700000;
    RubatoEngine *engine = engine_with_servers(N_SERVERS);
    g_autofree float *ones = g_new0(float, N);
    RubatoTableStats stats;

    create_table(engine, &(RubatoTableSpec){ .name = "t", .parts = 4, .max_bytes = max_bytes });
    for (uint64_t first = 0; first < n_all; first += N)
        ck_assert(rubato_engine_add_range(engine, "t", first, N, ones, NULL));
    ck_assert(rubato_engine_table_stats(engine, "t", &stats, NULL));
    ck_assert_uint_le(stats.n_bytes, N_SERVERS * max_bytes);
    ck_assert_uint_gt(stats.n_bytes, N_SERVERS * max_bytes / 2);
    ck_assert_uint_gt(stats.n_evicted, n_all / 10);
    ck_assert_uint_eq(stats.n_rows + stats.n_evicted, n_all);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(a_part_may_not_have_too_few_bytes)
{
    RubatoEngine *engine = engine_with_servers(1);
    const RubatoTableSpec spec = { .name = "t", .parts = 4, .max_bytes = 4 << 20 };
    GError *error = NULL;

    ck_assert(!rubato_engine_create_table(engine, &spec, &error));
    check_error(&error, RUBATO_ERROR_INVALID, "max_bytes is 4194304, of which a part has 1048576",
                NULL);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(the_size_of_an_unknown_table_is_an_error_and_changes_nothing)
{
    RubatoEngine *engine = engine_with_servers(1);
    RubatoTableStats stats = { .n_rows = 7 };
    GError *error = NULL;

    ck_assert(!rubato_engine_table_stats(engine, "nowhere", &stats, &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "nowhere", NULL);
    ck_assert_uint_eq(stats.n_rows, 7);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(a_table_can_be_dropped_after_its_size_was_asked)
{
    RubatoEngine *engine = engine_with_servers(2);
    RubatoTableStats stats;

    create_table(engine, &(RubatoTableSpec){ .name = "t", .n_keys = 10 });
    ck_assert(rubato_engine_table_stats(engine, "t", &stats, NULL));
    ck_assert(rubato_engine_drop_table(engine, "t", NULL));
    ck_assert(!rubato_engine_table_stats(engine, "t", &stats, NULL));
    rubato_engine_free(engine);
}
END_TEST

static bool get_one(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);
    RubatoEngineStats stats;
    const RubatoKey key = 1;
    float value;

    TRY(table != NULL && rubato_kv_table_get(table, &key, 1, &value, error));
    rubato_engine_stats(user_data, &stats);
    REQUIRE(stats.sent.gets == 0);
    return true;
}

START_TEST(requests_inside_a_process_are_no_messages)
{
    const RubatoEngineStats none = { 0 };
    RubatoEngine *engine = engine_with_servers(2);
    RubatoEngineStats stats = { .sent = { .gets = 1 } };

    create_table(engine, &(RubatoTableSpec){ .name = "t", .n_keys = 10 });
    run_ok(engine, 2, get_one, engine, "t");
    rubato_engine_stats(engine, &stats);
    ck_assert_mem_eq(&stats, &none, sizeof none);
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_stats");
    TCase *tcase = tcase_create("engine_stats");

    tcase_add_test(tcase, a_dense_table_has_all_its_rows_from_the_start);
    tcase_add_test(tcase, a_hashed_table_has_the_rows_that_were_written_on_all_servers);
    tcase_add_test(tcase, a_table_with_max_bytes_tells_how_many_rows_it_has_evicted);
    tcase_add_test(tcase, a_part_may_not_have_too_few_bytes);
    tcase_add_test(tcase, the_size_of_an_unknown_table_is_an_error_and_changes_nothing);
    tcase_add_test(tcase, a_table_can_be_dropped_after_its_size_was_asked);
    tcase_add_test(tcase, requests_inside_a_process_are_no_messages);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
