/* Handlers called by ticket: results and errors, what becomes of calls at the end of their task,
 * what they leave behind. */
#include <malloc.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/own_handlers.h"
#include "tests/support/runner.h"

enum { N_KEYS = 700, WIDTH = 3, N_CALLS = 200 };

/* ---- the handlers ---- */

/* Finds fault with what the parts say, on the helper thread alone. */
static bool reduce_torn(const RubatoHandlerSetting *setting, RubatoByteReader *arguments,
                        RubatoByteReader *results, size_t n, RubatoByteWriter *result,
                        GError **error)
{
    (void)setting;
    (void)arguments;
    (void)results;
    (void)n;
    (void)result;
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                        strcmp(name, "helper") == 0 ? "they do not fit together" : name);
    return false;
}

static void register_all(void)
{
    static const RubatoHandlerOps torn = { .name = "torn",
                                           .run = own_handler_echo,
                                           .reduce = reduce_torn };

    own_handlers_register();
    register_handlers(&torn, 1);
}

static RubatoEngine *make_engine(const char *model)
{
    RubatoEngine *const engine = engine_with_servers(2);
    const bool is_ssp = strcmp(model, "ssp") == 0;

    create_table(engine,
                 &(RubatoTableSpec){ .name = "t",
                                     .dtype = RUBATO_I64,
                                     .width = WIDTH,
                                     .n_keys = N_KEYS,
                                     .parts = 4,
                                     .model = model,
                                     .staleness = is_ssp ? 1 : 0,
                                     .cache = is_ssp ? RUBATO_CACHE_ALL : RUBATO_CACHE_REMOTE });
    return engine;
}

/* ---- results and errors ---- */

typedef struct {
    _Atomic int n_called, n_failed;
} CallbackCounts;

static void count_callback(RubatoTicket ticket, const GError *error, void *user_data)
{
    CallbackCounts *counts = user_data;

    (void)ticket;
    atomic_fetch_add(&counts->n_called, 1);
    atomic_fetch_add(&counts->n_failed, error != NULL && error->code == RUBATO_ERROR_HANDLER);
}

static RubatoTicket start_call(RubatoWorker *worker, uint32_t i, GBytes **result,
                               CallbackCounts *counts, GError **error)
{
    const RubatoRequestOptions options = {
        .callback = count_callback,
        .user_data = counts,
        .priority = i % 3 == 0 ? RUBATO_PRIORITY_HIGH : RUBATO_PRIORITY_NORMAL,
    };
    const bool on_keys = i % 10 == 1;
    uint32_t argument = i % 10 == 0 ? i % 4 : i; /* "fail" is told the part */
    RubatoKey keys[] = { N_KEYS - 1 - i, i };    /* of two parts, and not sorted */
    const RubatoHandlerCall asked = { .table = "t",
                                      .handler = i % 10 == 0 ? "fail"
                                                 : on_keys   ? "keys"
                                                             : "echo",
                                      .arguments = &argument,
                                      .n_argument_bytes = sizeof argument,
                                      .scope = on_keys ? RUBATO_SCOPE_KEYS : RUBATO_SCOPE_PART,
                                      .part = i % 4,
                                      .keys = keys,
                                      .n_keys = on_keys ? 2 : 0 };
    const RubatoTicket ticket =
        rubato_worker_call_handler_async(worker, &asked, result, &options, error);

    argument = 77777; /* they were copied */
    keys[0] = keys[1] = 0;
    return ticket;
}

static bool check_call(RubatoWorker *worker, uint32_t i, RubatoTicket ticket, GBytes **result,
                       GError **error)
{
    GError *found = NULL;
    const bool ok = rubato_worker_wait(worker, ticket, &found);
    g_autoptr(GBytes) bytes = g_steal_pointer(result);

    REQUIRE(ok == (i % 10 != 0) && rubato_worker_poll(worker, ticket));
    if (!ok) {
        REQUIRE(bytes == NULL);
        REQUIRE(strstr(found->message, "it does not like this part") != NULL, "%s", found->message);
        REQUIRE(is_error(&found, RUBATO_ERROR_HANDLER, "handler fail failed on part"), "the code");
        return rubato_worker_wait(worker, ticket, error); /* it was told */
    }
    RubatoByteReader reader = rubato_byte_reader_of(bytes);
    if (i % 10 == 1) {
        REQUIRE(rubato_read_u64(&reader) == i && rubato_read_i64(&reader) == 0);
        REQUIRE(rubato_read_u64(&reader) == N_KEYS - 1 - i && rubato_read_i64(&reader) == 0);
    } else {
        REQUIRE(rubato_read_u32(&reader) == i % 4 && rubato_read_u64(&reader) == sizeof i);
        REQUIRE(rubato_read_u32(&reader) == i);
    }
    REQUIRE(rubato_byte_reader_left(&reader) == 0);
    return true;
}

/* Many at once, each with arguments of its own; one in ten fails. */
static bool call_many(RubatoWorker *worker, void *user_data, GError **error)
{
    CallbackCounts counts = { 0 };
    RubatoTicket tickets[N_CALLS];
    GBytes *results[N_CALLS] = { 0 };

    (void)user_data;
    for (uint32_t i = 0; i < N_CALLS; i++) {
        tickets[i] = start_call(worker, i, &results[i], &counts, error);
        REQUIRE(tickets[i] != 0);
    }
    for (uint32_t i = 0; i < N_CALLS; i++)
        TRY(check_call(worker, i, tickets[i], &results[i], error));
    REQUIRE(atomic_load(&counts.n_called) == N_CALLS);
    REQUIRE(atomic_load(&counts.n_failed) == N_CALLS / 10);
    return rubato_worker_wait_all(worker, error);
}

START_TEST(calls_by_ticket_end_each_with_its_own_result_or_error)
{
    static const char *const models[] = { "asp", "bsp", "ssp" };
    g_autoptr(RubatoEngine) engine = make_engine(models[_i]);

    run_ok(engine, 2, call_many, NULL, "t");
}
END_TEST

static bool call_wrongly(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoHandlerCall absent = { .table = "t", .handler = "no-such" },
                            torn = { .table = "t", .handler = "torn" };
    GError *found = NULL;
    GBytes *result = NULL;

    (void)user_data;
    REQUIRE(rubato_worker_call_handler_async(worker, &absent, &result, NULL, &found) == 0);
    REQUIRE(is_error(&found, RUBATO_ERROR_NOT_FOUND, "no handler no-such"), "the code");
    const RubatoTicket ticket =
        rubato_worker_call_handler_async(worker, &torn, &result, NULL, error);
    REQUIRE(ticket != 0);
    REQUIRE(!rubato_worker_wait_all(worker, &found));
    REQUIRE(is_error(&found, RUBATO_ERROR_HANDLER, "handler torn cannot become one: they do not"),
            "the code");
    REQUIRE(result == NULL);
    /* one that fails, and that nobody asks about */
    return rubato_worker_call_handler_async(worker, &torn, &result, NULL, error) != 0;
}

START_TEST(calls_by_ticket_that_are_wrong_say_so)
{
    g_autoptr(RubatoEngine) engine = make_engine("asp");

    run_ok(engine, 2, call_wrongly, NULL, "t");
}
END_TEST

static bool see_own_write(RubatoWorker *worker, void *user_data, GError **error)
{
    const double factor = 2;
    const RubatoKey key = 100 + rubato_worker_rank(worker);
    const RubatoHandlerCall write = { .table = "f",
                                      .handler = "scale",
                                      .arguments = &factor,
                                      .n_argument_bytes = sizeof factor,
                                      .scope = RUBATO_SCOPE_KEYS,
                                      .keys = &key,
                                      .n_keys = 1 };
    const double one = 1;
    double value, expected = 1;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, "f", RUBATO_F64, error);

    (void)user_data;
    REQUIRE(table != NULL);
    TRY(rubato_kv_table_add(table, &key, 1, &one, error));
    for (int i = 0; i < 5; i++) {
        TRY(rubato_kv_table_get(table, &key, 1, &value, error));
        REQUIRE(value == expected, "(%g, not %g)", value, expected);
        /* nobody waits for it */
        REQUIRE(rubato_worker_call_handler_async(worker, &write, NULL, NULL, error) != 0);
        expected *= 2;
    }
    return true;
}

/* Also rows that were cached. */
START_TEST(a_worker_sees_what_its_calls_by_ticket_wrote)
{
    g_autoptr(RubatoEngine) engine = engine_with_servers(2);

    create_table(engine, &(RubatoTableSpec){ .name = "f",
                                             .dtype = RUBATO_F64,
                                             .n_keys = N_KEYS,
                                             .model = "ssp",
                                             .staleness = 3,
                                             .cache = RUBATO_CACHE_ALL });
    run_ok(engine, 3, see_own_write, NULL, "f");
}
END_TEST

/* ---- the end of the task ---- */

/* The worker's function returns while its calls are under way. */
static bool call_and_leave(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoHandlerCall count = { .table = "t", .handler = "count" };
    GBytes **results = user_data;

    for (uint32_t i = 0; i < N_CALLS; i++)
        REQUIRE(rubato_worker_call_handler_async(worker, &count, &results[i], NULL, error) != 0);
    return true;
}

START_TEST(calls_by_ticket_end_before_their_task)
{
    g_autoptr(RubatoEngine) engine = make_engine("asp");
    GBytes *results[N_CALLS] = { 0 };

    run_ok(engine, 1, call_and_leave, results, "t");
    for (uint32_t i = 0; i < N_CALLS; i++) {
        ck_assert_ptr_nonnull(results[i]);
        g_bytes_unref(results[i]);
    }
}
END_TEST

static void run_until_failure(RubatoEngine *engine, RubatoTaskFunc function, void *user_data)
{
    const char *const tables[] = { "t", NULL };

    run_fails(engine,
              &(RubatoTask){ .name = "w",
                             .run = function,
                             .user_data = user_data,
                             .tables = tables,
                             .workers_per_node = 2 },
              RUBATO_ERROR_TASK_FAILED, "worker 1 has had enough", NULL);
    /* the engine and the table can be used as before */
    g_bytes_unref(call_handler(engine, &(RubatoHandlerCall){ .table = "t", .handler = "count" }));
}

static bool have_enough(GError **error)
{
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "worker 1 has had enough");
    return false;
}

/* Worker 0 is two clocks ahead, so its calls wait for worker 1. */
static bool wait_or_fail(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoHandlerCall count = { .table = "t", .handler = "count" };
    Event *const has_called = user_data;
    GBytes *results[3] = { NULL };
    RubatoTicket tickets[3];
    GError *found = NULL;

    if (rubato_worker_rank(worker) == 1) {
        TRY(event_await(has_called, 1, worker, error));
        return have_enough(error);
    }
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    REQUIRE(table != NULL);
    TRY(rubato_kv_table_clock(table, error) && rubato_kv_table_clock(table, error));
    for (int i = 0; i < 3; i++) {
        tickets[i] = rubato_worker_call_handler_async(worker, &count, &results[i], NULL, error);
        REQUIRE(tickets[i] != 0);
    }
    event_raise(has_called);
    REQUIRE(!rubato_worker_wait(worker, tickets[1], &found));
    REQUIRE(results[1] == NULL);
    REQUIRE(is_error(&found, RUBATO_ERROR_CANCELLED, "table t: the task was cancelled"), "");
    (void)rubato_worker_wait_all(worker, NULL); /* the other two */
    /* nor can another one begin */
    REQUIRE(rubato_worker_call_handler_async(worker, &count, NULL, NULL, &found) == 0);
    REQUIRE(is_error(&found, RUBATO_ERROR_CANCELLED, "table t: the task was cancelled"), "");
    return true;
}

START_TEST(a_task_that_fails_ends_calls_that_wait_for_a_clock)
{
    g_autoptr(RubatoEngine) engine = make_engine("ssp");
    Event has_called = EVENT_INIT;

    run_until_failure(engine, wait_or_fail, &has_called);
}
END_TEST

/* The handler runs on its server while worker 1 fails. */
static bool loop_or_fail(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoHandlerCall loop = { .table = "t", .handler = "loop", .scope = RUBATO_SCOPE_PART };
    GBytes **const result = user_data;

    if (rubato_worker_rank(worker) == 1) {
        TRY(event_await(&own_handler_entered, 1, worker, error));
        return have_enough(error);
    }
    REQUIRE(rubato_worker_call_handler_async(worker, &loop, result, NULL, error) != 0);
    return rubato_worker_wait_all(worker, error);
}

/* Lets the handler go once the worker has said what it waits for. */
static void *let_go(void *data)
{
    (void)data;
    g_free(log_capture_wait("worker 0 waits", "handler loop"));
    event_raise(&own_handler_leave);
    return NULL;
}

START_TEST(a_task_that_fails_waits_for_a_handler_that_runs_and_names_it)
{
    const RubatoEngineConfig config = { .servers = 1, .stall_ms = 30 };
    g_autoptr(GBytes) result = NULL;
    pthread_t thread;

    log_capture_start();
    g_autoptr(RubatoEngine) engine = rubato_engine_new(&config, NULL);
    ck_assert_ptr_nonnull(engine);
    create_table(engine, &(RubatoTableSpec){ .name = "t", .dtype = RUBATO_I64, .n_keys = N_KEYS });
    ck_assert_int_eq(pthread_create(&thread, NULL, let_go, NULL), 0);
    run_until_failure(engine, loop_or_fail, &result);
    pthread_join(thread, NULL);
}
END_TEST

/* ---- what they leave behind ---- */

/* Calls that nobody waits for. What is kept of those that were under way at once is below 1 MB;
 * eight bytes for each that ever was would be 2.2 MB. */
static bool forget_calls(RubatoWorker *worker, void *user_data, GError **error)
{
    enum { N_ROUND = 20000, N_ROUNDS = 15, MOST_GROWTH = 1 << 20 };
    const RubatoKey key = 5;
    const RubatoHandlerCall asked = {
        .table = "t", .handler = "keys", .scope = RUBATO_SCOPE_KEYS, .keys = &key, .n_keys = 1
    };
    size_t n_bytes = 0;

    (void)user_data;
    for (int round = 0; round < N_ROUNDS; round++) {
        for (int i = 0; i < N_ROUND; i++)
            TRY(rubato_worker_call_handler_async(worker, &asked, NULL, NULL, error) != 0);
        TRY(rubato_worker_wait_all(worker, error));
        /* a new ticket frees what many at once have left */
        TRY(rubato_worker_call_handler_async(worker, &asked, NULL, NULL, error) != 0);
        TRY(rubato_worker_wait_all(worker, error));
        if (round == 0)
            n_bytes = mallinfo2().uordblks;
    }
    /* a sanitizer's own memory is not counted here; then both numbers are the same */
    REQUIRE(mallinfo2().uordblks < n_bytes + MOST_GROWTH, "(%zu bytes became %zu)", n_bytes,
            (size_t)mallinfo2().uordblks);
    return true;
}

START_TEST(calls_by_ticket_leave_nothing_behind)
{
    g_autoptr(RubatoEngine) engine = make_engine("asp");

    run_ok(engine, 1, forget_calls, NULL, "t");
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("handler tickets");
    TCase *const cases = tcase_create("cases");

    tcase_add_checked_fixture(cases, register_all, NULL);
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, calls_by_ticket_end_each_with_its_own_result_or_error, 0, 3);
    tcase_add_test(cases, calls_by_ticket_that_are_wrong_say_so);
    tcase_add_test(cases, a_worker_sees_what_its_calls_by_ticket_wrote);
    tcase_add_test(cases, calls_by_ticket_end_before_their_task);
    tcase_add_test(cases, a_task_that_fails_ends_calls_that_wait_for_a_clock);
    tcase_add_test(cases, a_task_that_fails_waits_for_a_handler_that_runs_and_names_it);
    tcase_add_test(cases, calls_by_ticket_leave_nothing_behind);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
