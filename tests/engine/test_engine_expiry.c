/* Whole engines whose tables forget: servers remove what has expired while a task goes on. */
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N = 5000, N_SERVERS = 2 };

static bool add_all(RubatoKVTable *table, GError **error)
{
    g_autofree float *ones = g_new(float, N);

    for (int i = 0; i < N; i++)
        ones[i] = 1;
    return rubato_kv_table_add_range(table, 0, N, ones, error);
}

/* The wait ends because the sweeper asks the servers again and again, and time passes. */
static bool wait_for_expiry(RubatoEngine *engine, uint64_t n, GError **error)
{
    RubatoTableStats stats;

    do {
        g_usleep(1000); /* only so that others may run */
        TRY(rubato_engine_table_stats(engine, "t", &stats, error));
        REQUIRE(stats.n_rows + stats.n_expired == n, "%u rows, %u expired", (unsigned)stats.n_rows,
                (unsigned)stats.n_expired);
    } while (stats.n_rows > 0);
    REQUIRE(stats.n_expired == n, "%u have expired", (unsigned)stats.n_expired);
    return true;
}

/* Clocks of one node come with its Gets, but not here: nobody gets anything meanwhile. */
static bool forget_by_clocks(RubatoWorker *worker, void *user_data, GError **error)
{
    RubatoKey keys[] = { 1, N - 1 };
    float values[2];

    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);
    if (table == NULL || !add_all(table, error))
        return false;
    for (int clock = 0; clock < 3; clock++)
        TRY(rubato_kv_table_clock(table, error));
    TRY(wait_for_expiry(user_data, N, error));
    TRY(rubato_kv_table_get(table, keys, 2, values, error));
    REQUIRE(values[0] == 7 && values[1] == 7, "%g %g", (double)values[0], (double)values[1]);
    TRY(add_all(table, error));
    TRY(rubato_kv_table_clock(table, error));
    TRY(rubato_kv_table_get(table, keys, 2, values, error));
    REQUIRE(values[0] == 8 && values[1] == 8, "%g %g", (double)values[0], (double)values[1]);
    return true;
}

static const char *const models[] = { "asp", "bsp", "ssp" };

START_TEST(servers_remove_rows_whose_clocks_have_passed)
{
    RubatoEngine *engine = engine_with_servers(N_SERVERS);

    create_table(engine, &(RubatoTableSpec){ .name = "t",
                                             .model = models[_i],
                                             .init_value = 7,
                                             .expire = "clocks",
                                             .expire_after = 2 });
    run_ok(engine, 1, forget_by_clocks, engine, "t");
    rubato_engine_free(engine);
}
END_TEST

static bool forget_by_seconds(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);
    return table != NULL && add_all(table, error) && wait_for_expiry(user_data, N, error);
}

START_TEST(servers_remove_rows_whose_seconds_have_passed)
{
    RubatoEngine *engine = engine_with_servers(N_SERVERS);

    create_table(engine, &(RubatoTableSpec){ .name = "t", .expire = "seconds", .expire_after = 1 });
    run_ok(engine, 1, forget_by_seconds, engine, "t");
    rubato_engine_free(engine);
}
END_TEST

/* The time of a table goes on from task to task; between tasks no row is removed, so that lists of
 * keys stay as they are. */
static bool clock_once(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 1;
    const float one = 1;

    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);
    return table != NULL &&
           (user_data == NULL || rubato_kv_table_add(table, &key, 1, &one, error)) &&
           rubato_kv_table_clock(table, error);
}

START_TEST(rows_grow_old_over_several_tasks)
{
    RubatoEngine *engine = engine_with_servers(N_SERVERS);
    const RubatoKey key = 1;
    float value;

    create_table(engine, &(RubatoTableSpec){ .name = "t", .expire = "clocks", .expire_after = 3 });
    run_ok(engine, 2, clock_once, &value, "t");
    run_ok(engine, 2, clock_once, NULL, "t");
    ck_assert(rubato_engine_get(engine, "t", &key, 1, &value, NULL));
    ck_assert_float_eq(value, 2);
    run_ok(engine, 2, clock_once, NULL, "t");
    run_ok(engine, 2, clock_once, NULL, "t");
    ck_assert(rubato_engine_get(engine, "t", &key, 1, &value, NULL));
    ck_assert_float_eq(value, 0);
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_expiry");
    TCase *tcase = tcase_create("expiry");

    tcase_add_loop_test(tcase, servers_remove_rows_whose_clocks_have_passed, 0,
                        G_N_ELEMENTS(models));
    tcase_add_test(tcase, servers_remove_rows_whose_seconds_have_passed);
    tcase_add_test(tcase, rows_grow_old_over_several_tasks);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
