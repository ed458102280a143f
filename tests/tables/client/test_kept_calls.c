/* Calls of handlers that BSP keeps until their clock has ended: who is told, and when, if one fails
 * then; and what becomes of calls whose worker has returned. */
#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/own_handlers.h"
#include "tests/support/runner.h"

enum { N_KEYS = 40, N_PARTS = 4, N_WORKERS = 3 };

static const char *const table_list[] = { "t", NULL };

static void register_all(void)
{
    static const RubatoHandlerOps fail = { .name = "fail-to-write",
                                           .access = RUBATO_ACCESS_WRITES,
                                           .run = own_handler_fail };

    own_handlers_register();
    register_handlers(&fail, 1);
}

static RubatoEngine *make_engine(void)
{
    RubatoEngine *const engine = engine_with_servers(2);

    create_table(
        engine,
        &(RubatoTableSpec){
            .name = "t", .dtype = RUBATO_I64, .n_keys = N_KEYS, .parts = N_PARTS, .model = "bsp" });
    return engine;
}

/* ---- calls ---- */

typedef enum { WAY_BLOCKING, WAY_TICKET, N_WAYS } Way;

/* The call itself succeeds: nothing has run yet. Its arguments may change at once. */
static bool call(RubatoWorker *worker, Way way, const char *handler, void *arguments, size_t n,
                 GError **error)
{
    const RubatoHandlerCall asked = {
        .table = "t", .handler = handler, .arguments = arguments, .n_argument_bytes = n
    };
    const RubatoRequestOptions borrowed = { .buffers = RUBATO_BUFFERS_BORROWED };
    g_autoptr(GBytes) result = NULL;

    if (way == WAY_BLOCKING) {
        TRY(rubato_worker_call_handler(worker, &asked, &result, error));
    } else {
        const RubatoTicket ticket =
            rubato_worker_call_handler_async(worker, &asked, &result, &borrowed, error);

        REQUIRE(ticket != 0);
        TRY(rubato_worker_wait(worker, ticket, error));
    }
    REQUIRE(result != NULL && g_bytes_get_size(result) == 0);
    memset(arguments, 0xff, n);
    return true;
}

static bool call_failing(RubatoWorker *worker, Way way, uint32_t part, GError **error)
{
    return call(worker, way, "fail-to-write", &part, sizeof part, error);
}

static bool increase(RubatoWorker *worker, Way way, int64_t by, GError **error)
{
    return call(worker, way, "increase", &by, sizeof by, error);
}

/* The clock fails, and says these. The next one does not. */
static bool clock_is_told(RubatoKVTable *table, const char *text, const char *other, GError **error)
{
    GError *found = NULL;

    REQUIRE(!rubato_kv_table_clock(table, &found));
    REQUIRE(strstr(found->message, other) != NULL, "%s", found->message);
    REQUIRE(is_error(&found, RUBATO_ERROR_HANDLER, text), "the code");
    return rubato_kv_table_clock(table, error);
}

/* ---- its caller alone is told ---- */

/* Worker 1 makes calls that fail. No worker reads before the end. */
static bool fail_and_go_on(RubatoWorker *worker, void *user_data, GError **error)
{
    const Way way = *(const Way *)user_data;
    const bool calls = rubato_worker_rank(worker) == 1;
    const RubatoKey key = 7;
    int64_t value;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);

    REQUIRE(table != NULL);
    TRY(increase(worker, way, 1, error));
    TRY(!calls || call_failing(worker, way, 2, error));
    TRY(rubato_kv_table_clock(table, error));
    TRY(!calls || (call_failing(worker, way, 0, error) && call_failing(worker, way, 3, error)));
    TRY(increase(worker, way, 10, error));
    if (calls) {
        TRY(clock_is_told(table, "table t: handler fail-to-write failed on part 2 (node 0): it",
                          "worker 1 called it at clock 0)", error));
        TRY(clock_is_told(table, "handler fail-to-write failed on part 0 (node 0): it",
                          "worker 1 called it at clock 1; another one failed, too)", error));
    } else {
        TRY(rubato_kv_table_clock(table, error) && rubato_kv_table_clock(table, error));
    }
    TRY(rubato_kv_table_get(table, &key, 1, &value, error));
    REQUIRE(value == 11 * N_WORKERS);
    return true;
}

START_TEST(a_kept_call_that_fails_says_so_to_its_caller_alone)
{
    g_autoptr(RubatoEngine) engine = make_engine();
    const Way way = (Way)_i;

    run_ok(engine, N_WORKERS, fail_and_go_on, (void *)(uintptr_t)&way, "t");
}
END_TEST

/* ---- the end of its worker ---- */

static bool fail_and_return(RubatoWorker *worker, void *user_data, GError **error)
{
    return call_failing(worker, *(const Way *)user_data, 2, error) &&
           rubato_worker_barrier(worker, error);
}

START_TEST(a_kept_call_that_fails_after_its_worker_fails_the_task_by_name)
{
    g_autoptr(RubatoEngine) engine = make_engine();
    const Way way = (Way)_i;

    run_fails(engine,
              &(RubatoTask){ .name = "w",
                             .run = fail_and_return,
                             .user_data = (void *)(uintptr_t)&way,
                             .tables = table_list,
                             .workers_per_node = 2 },
              RUBATO_ERROR_TASK_FAILED, "table t", "handler fail-to-write", "part 2", "node 0",
              "called it at clock 0", NULL);
    (void)call_handler_f64(engine, &(RubatoHandlerCall){ .table = "t", .handler = "norm" });
}
END_TEST

/* Worker 0 returns at once. Its call waits for worker 1, which waits in a barrier for worker 0 to
 * have returned, and then reads what the call wrote. */
static bool return_or_wait(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 0;
    int64_t value;

    if (rubato_worker_rank(worker) == 0)
        return increase(worker, *(const Way *)user_data, 5, error);
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    REQUIRE(table != NULL);
    TRY(rubato_worker_barrier(worker, error) && rubato_kv_table_clock(table, error) &&
        rubato_kv_table_get(table, &key, 1, &value, error));
    REQUIRE(value == 5);
    return true;
}

START_TEST(a_worker_that_returns_before_its_call_has_run_holds_nobody_back)
{
    g_autoptr(RubatoEngine) engine = make_engine();
    const Way way = (Way)_i;

    run_ok(engine, 2, return_or_wait, (void *)(uintptr_t)&way, "t");
}
END_TEST

/* ---- a task that fails ---- */

typedef struct {
    Way way;
    Event has_called;
} Scene;

/* The calls of worker 0 have not run when worker 1 fails. */
static bool wait_or_fail(RubatoWorker *worker, void *user_data, GError **error)
{
    Scene *const scene = user_data;
    GError *found = NULL;

    if (rubato_worker_rank(worker) == 1) {
        TRY(event_await(&scene->has_called, 1, worker, error));
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "worker 1 has had enough");
        return false;
    }
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    REQUIRE(table != NULL);
    TRY(increase(worker, scene->way, 1, error) && rubato_kv_table_clock(table, error) &&
        increase(worker, scene->way, 1, error));
    event_raise(&scene->has_called);
    REQUIRE(!rubato_kv_table_clock(table, &found)); /* it waits for worker 1 */
    REQUIRE(is_error(&found, RUBATO_ERROR_CANCELLED, "table t: the task was cancelled"), "");
    return true;
}

START_TEST(a_task_that_fails_drops_kept_calls)
{
    g_autoptr(RubatoEngine) engine = make_engine();
    Scene scene = { (Way)_i, EVENT_INIT };

    run_fails(engine,
              &(RubatoTask){ .name = "w",
                             .run = wait_or_fail,
                             .user_data = &scene,
                             .tables = table_list,
                             .workers_per_node = 2 },
              RUBATO_ERROR_TASK_FAILED, "worker 1 has had enough", NULL);
    ck_assert_int_eq(read_i64(engine, "t", 0), 0);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("kept calls");
    TCase *const cases = tcase_create("kept calls");

    tcase_add_checked_fixture(cases, register_all, NULL);
    tcase_add_loop_test(cases, a_kept_call_that_fails_says_so_to_its_caller_alone, 0, N_WAYS);
    tcase_add_loop_test(cases, a_kept_call_that_fails_after_its_worker_fails_the_task_by_name, 0,
                        N_WAYS);
    tcase_add_loop_test(cases, a_worker_that_returns_before_its_call_has_run_holds_nobody_back, 0,
                        N_WAYS);
    tcase_add_loop_test(cases, a_task_that_fails_drops_kept_calls, 0, N_WAYS);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
