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
    tcase_add_test(tcase, a_file_that_cannot_be_made_is_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
