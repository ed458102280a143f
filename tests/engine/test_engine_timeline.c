/* The timeline of an engine: what its workers do in a task, in the file that the environment
 * names. */
#include <glib/gstdio.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/trace_file.h"
#include "tests/support/runner.h"

enum { FIRST_PID = 10000000, WORKERS = 3 };

static char *folder, *path;

static void make_folder(void)
{
    folder = g_dir_make_tmp("timeline-XXXXXX", NULL);
    path = g_strdup_printf("%s/trace.json", folder);
    g_setenv("RUBATO_TIMELINE", path, TRUE);
}

static void remove_folder(void)
{
    g_unlink(path);
    g_rmdir(folder);
    g_free(path);
    g_free(folder);
}

static bool sum(RubatoWorker *worker, const char *name, size_t n, GError **error)
{
    float values[8] = { 0 };
    const RubatoTensor tensor = { .name = name,
                                  .dtype = RUBATO_F32,
                                  .n_dims = 1,
                                  .shape = { n },
                                  .input = values,
                                  .output = values };

    return rubato_worker_allreduce(worker, &tensor, NULL, error);
}

static bool reduce(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    TRY(sum(worker, "grad/7", 8, error));
    REQUIRE(!sum(worker, "differs", 1 + rubato_worker_rank(worker), error));
    g_clear_error(error);
    return true;
}

START_TEST(collectives_of_each_worker_are_recorded)
{
    RubatoEngine *const engine = engine_with_servers(1);

    run_ok(engine, WORKERS, reduce, NULL, NULL);
    rubato_engine_free(engine);

    g_auto(TraceFile) trace = trace_file_read(path);
    for (int pid = FIRST_PID; pid < FIRST_PID + WORKERS; pid++) {
        g_autofree char *tick = g_strdup_printf("rank %d", pid - FIRST_PID);
        JsonObject *const whole = trace_find(&trace, "b", "grad/7", pid);

        ck_assert_int_eq(trace_number(whole, "bytes"), 32);
        ck_assert_int_eq(trace_number(whole, "failed"), 0);
        ck_assert_int_eq(trace_number(trace_find(&trace, "b", "differs", pid), "failed"), 1);
        ck_assert_uint_eq(trace_count(&trace, "n", tick, -1), 2); /* of both tensors */
        ck_assert_uint_eq(trace_count(&trace, "b", "negotiate", pid), 2);
        ck_assert_uint_eq(trace_count(&trace, "b", "queue", pid), 2);
        ck_assert_uint_eq(trace_count(&trace, "b", "allreduce", pid), 2);
        ck_assert_uint_eq(trace_count(&trace, "X", "allreduce grad/7", pid), 1);
        ck_assert_uint_eq(trace_count(&trace, "X", "allreduce differs", pid), 1);
        ck_assert_uint_eq(trace_count(&trace, "M", "process_name", pid), 1);
    }
}
END_TEST

/* Each clock's Get waits for the other worker; a Get with a ticket besides. */
static bool use_table(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey keys[] = { 1, 5 };
    float values[2] = { 1, 1 };

    (void)user_data;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, "counts", RUBATO_F32, error);
    TRY(table != NULL);
    for (int i = 0; i < 3; i++) {
        TRY(rubato_kv_table_get(table, keys, 2, values, error));
        TRY(rubato_kv_table_add(table, keys, 2, values, error));
        TRY(rubato_kv_table_clock(table, error));
    }
    TRY(rubato_kv_table_get_range(table, 3, 4, (float[4]){ 0 }, error));
    TRY(rubato_kv_table_add_range(table, 3, 4, (float[4]){ 0 }, error));
    TRY(rubato_kv_table_add_get(table, keys, 2, values, values, error));
    const RubatoTicket ticket = rubato_kv_table_get_async(table, keys, 2, values, NULL, error);
    TRY(ticket != 0 && rubato_worker_wait(worker, ticket, error));
    return rubato_worker_barrier(worker, error);
}

static RubatoEngine *engine_with_counts(void)
{
    RubatoEngine *const engine = engine_with_servers(2);

    create_table(engine, &(RubatoTableSpec){ .name = "counts",
                                             .dtype = RUBATO_F32,
                                             .width = 1,
                                             .n_keys = 10,
                                             .storage = "dense",
                                             .model = "bsp" });
    return engine;
}

START_TEST(requests_to_tables_are_recorded)
{
    RubatoEngine *const engine = engine_with_counts();

    run_ok(engine, 2, use_table, NULL, "counts");
    rubato_engine_free(engine);

    g_auto(TraceFile) trace = trace_file_read(path);
    for (int pid = FIRST_PID; pid < FIRST_PID + 2; pid++) {
        ck_assert_uint_eq(trace_count(&trace, "X", "Get counts", pid), 4);
        ck_assert_uint_eq(trace_count(&trace, "X", "Add counts", pid), 4);
        ck_assert_uint_eq(trace_count(&trace, "X", "AddGet counts", pid), 1);
        ck_assert_uint_eq(trace_count(&trace, "X", "Clock counts", pid), 3);
        ck_assert_uint_eq(trace_count(&trace, "b", "Get counts", pid), 1);
        ck_assert_uint_eq(trace_count(&trace, "X", "barrier", pid), 1);
        ck_assert_int_eq(trace_number(trace_find(&trace, "X", "Get counts", pid), "keys"), 2);
    }
}
END_TEST

/* As those of a forked process are, in which the timeline's lock may be held for ever. */
static bool call_wrongly(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 10; /* behind the last one */
    float value = 0;

    (void)user_data;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, "counts", RUBATO_F32, error);
    TRY(table != NULL);
    REQUIRE(!rubato_kv_table_get(table, &key, 1, &value, NULL));
    REQUIRE(!rubato_kv_table_add(table, &key, 1, &value, NULL));
    REQUIRE(!rubato_kv_table_add_get(table, &key, 1, &value, &value, NULL));
    return rubato_kv_table_clock(table, error);
}

START_TEST(refused_calls_are_not_recorded)
{
    RubatoEngine *const engine = engine_with_counts();

    run_ok(engine, 1, call_wrongly, NULL, "counts");
    rubato_engine_free(engine);

    g_auto(TraceFile) trace = trace_file_read(path);
    ck_assert_uint_eq(trace_count(&trace, "X", "Get counts", FIRST_PID), 0);
    ck_assert_uint_eq(trace_count(&trace, "X", "Add counts", FIRST_PID), 0);
    ck_assert_uint_eq(trace_count(&trace, "X", "AddGet counts", FIRST_PID), 0);
    ck_assert_uint_eq(trace_count(&trace, "X", "Clock counts", FIRST_PID), 1);
}
END_TEST

typedef struct {
    RubatoEngine *engine;
    bool has_waited; /* rank 0 */
    Event is_asking;
} Waiting;

/* Rank 0 records its Get, which waits for the clock of rank 1, and nothing else. */
static bool wait_for_other(RubatoWorker *worker, void *user_data, GError **error)
{
    Waiting *const waiting = user_data;
    const RubatoKey key = 1;
    RubatoWorkerStats stats;
    float value;

    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, "counts", RUBATO_F32, error);
    TRY(table != NULL);
    if (rubato_worker_rank(worker) == 1) {
        TRY(event_await(&waiting->is_asking, 1, worker, error));
        return rubato_kv_table_clock(table, error);
    }
    TRY(rubato_kv_table_clock(table, error));
    TRY(rubato_engine_start_timeline(waiting->engine, path, error));
    event_raise(&waiting->is_asking);
    TRY(rubato_kv_table_get(table, &key, 1, &value, error));
    TRY(rubato_engine_stop_timeline(waiting->engine, error));
    TRY(rubato_kv_table_clock(table, error));
    TRY(rubato_worker_stats(worker, NULL, &stats, error));
    waiting->has_waited = stats.get_wait_ns > 0;
    return true;
}

START_TEST(a_part_of_a_task_is_recorded_with_its_waits)
{
    Waiting waiting = { .is_asking = EVENT_INIT };

    g_unsetenv("RUBATO_TIMELINE");
    waiting.engine = engine_with_counts();
    run_ok(waiting.engine, 2, wait_for_other, &waiting, "counts");
    rubato_engine_free(waiting.engine);

    g_auto(TraceFile) trace = trace_file_read(path);
    ck_assert_uint_eq(trace_count(&trace, "X", "Get counts", FIRST_PID), 1);
    ck_assert_uint_eq(trace_count(&trace, "X", "Clock counts", FIRST_PID), 0);
    ck_assert_uint_eq(trace_count(&trace, "M", "process_name", FIRST_PID), 1);
    /* rank 1 may have come meanwhile: then the wait is for the server alone */
    const unsigned n_for_clock = trace_count(&trace, "X", "wait for clock of counts", FIRST_PID);
    const unsigned n_for_server = trace_count(&trace, "X", "wait for counts", FIRST_PID);
    ck_assert_int_eq(n_for_clock + n_for_server > 0, waiting.has_waited);
    if (n_for_clock > 0)
        ck_assert_int_eq(
            trace_number(trace_find(&trace, "X", "wait for clock of counts", -1), "clock"), 1);
}
END_TEST

START_TEST(a_file_that_cannot_be_made_is_refused)
{
    g_autofree char *below = g_strdup_printf("%s/no/trace.json", folder);
    const RubatoEngineConfig config = { .servers = 1 };
    GError *error = NULL;

    g_setenv("RUBATO_TIMELINE", below, TRUE);
    ck_assert_ptr_null(rubato_engine_new(&config, &error));
    check_error(&error, RUBATO_ERROR_IO, "RUBATO_TIMELINE", below, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine timeline");
    TCase *tcase = tcase_create("environment");

    tcase_add_checked_fixture(tcase, make_folder, remove_folder);
    tcase_add_test(tcase, collectives_of_each_worker_are_recorded);
    tcase_add_test(tcase, requests_to_tables_are_recorded);
    tcase_add_test(tcase, refused_calls_are_not_recorded);
    tcase_add_test(tcase, a_part_of_a_task_is_recorded_with_its_waits);
    tcase_add_test(tcase, a_file_that_cannot_be_made_is_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
