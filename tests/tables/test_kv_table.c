/* KVTable: tickets, waiting and polling, callbacks, requests in flight at the end, and the
 * process cache at work between workers. */
#include <string.h>

#include "tables/process_cache.h"
#include "tables/worker.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

static RubatoKVTable *open_client(RubatoWorker *worker, GError **error)
{
    return rubato_worker_open_kv_table_cached(worker, "t", RUBATO_I64, error);
}

/* Two servers, SSP without slack: a Get of a worker that is ahead stays in flight. */
static RubatoEngine *make_engine(void)
{
    RubatoEngine *engine = engine_with_servers(2);

    create_table(engine, &(RubatoTableSpec){ .name = "t",
                                             .dtype = RUBATO_I64,
                                             .n_keys = 100,
                                             .model = "ssp",
                                             .cache = RUBATO_CACHE_NONE });
    return engine;
}

/* The arguments of a callback. */
typedef struct {
    Event called;
    RubatoTicket ticket;
    int code; /* -1: no error */
    pthread_t thread;
    Event *inside; /* raised by the callback, which then waits for go_on */
    Event *go_on;
} Told;

static void note_call(RubatoTicket ticket, const GError *error, void *user_data)
{
    Told *told = user_data;

    if (told->inside != NULL) {
        event_raise(told->inside);
        event_wait(told->go_on, 1);
    }
    told->ticket = ticket;
    told->code = error == NULL ? -1 : error->code;
    told->thread = pthread_self();
    event_raise(&told->called);
}

/* ---- tickets ---- */

static bool use_tickets(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = open_client(worker, error);
    RubatoKey keys[] = { 7, 99, 7 };
    int64_t deltas[] = { 1, 20, 3 }, values[3] = { 0 };
    RubatoTicket added, got;

    (void)user_data;
    TRY(table != NULL);
    added = rubato_kv_table_add_async(table, keys, 3, deltas, NULL, error);
    REQUIRE(added != 0);
    memset(deltas, 0x77, sizeof deltas); /* the caller's again */
    got = rubato_kv_table_get_async(table, keys, 3, values, NULL, error);
    REQUIRE(got != 0 && got != added);
    memset(keys, 0x77, sizeof keys);
    TRY(rubato_worker_wait(worker, got, error));
    REQUIRE(values[0] == 4 && values[1] == 20 && values[2] == 4);
    REQUIRE(rubato_worker_poll(worker, got));
    TRY(rubato_worker_wait(worker, added, error));
    TRY(rubato_worker_wait(worker, added, error)); /* once more does no harm */
    REQUIRE(!rubato_worker_wait(worker, 0, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "ticket 0 was never given out"));
    REQUIRE(!rubato_worker_wait(worker, got + 1, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "never given out"));
    return true;
}

START_TEST(tickets_end_in_any_order_and_are_waited_for_once_or_more)
{
    RubatoEngine *engine = make_engine();

    run_ok(engine, 1, use_tickets, NULL, "t");
    ck_assert_int_eq(read_i64(engine, "t", 7), 4);
    rubato_engine_free(engine);
}
END_TEST

/* Worker 0 is a clock ahead of worker 1, which waits for it. */
typedef struct {
    Event polled;
} Ahead;

static bool poll_ahead(RubatoWorker *worker, void *user_data, GError **error)
{
    Ahead *ahead = user_data;
    g_autoptr(RubatoKVTable) table = open_client(worker, error);
    const RubatoKey keys[] = { 0, 99 };
    int64_t values[2] = { -1, -1 };
    RubatoTicket ticket;

    TRY(table != NULL);
    if (rubato_worker_rank(worker) == 1) {
        const int64_t deltas[] = { 5, 6 };

        TRY(event_await(&ahead->polled, 1, worker, error));
        TRY(rubato_kv_table_add(table, keys, 2, deltas, error));
        return rubato_kv_table_clock(table, error);
    }
    TRY(rubato_kv_table_clock(table, error));
    ticket = rubato_kv_table_get_async(table, keys, 2, values, NULL, error);
    REQUIRE(ticket != 0);
    REQUIRE(!rubato_worker_poll(worker, ticket));
    event_raise(&ahead->polled);
    while (!rubato_worker_poll(worker, ticket))
        sched_yield();
    REQUIRE(values[0] == 5 && values[1] == 6); /* poll, too, makes them visible */
    return rubato_worker_wait(worker, ticket, error);
}

START_TEST(poll_tells_when_the_answer_has_come)
{
    RubatoEngine *engine = make_engine();
    Ahead ahead = { EVENT_INIT };

    run_ok(engine, 2, poll_ahead, &ahead, "t");
    rubato_engine_free(engine);
}
END_TEST

static bool wait_for_many(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = open_client(worker, error);
    enum { N = 200 };
    int64_t values[N];
    int64_t expected = 0;

    (void)user_data;
    TRY(table != NULL);
    for (int64_t i = 0; i < N; i++) {
        const RubatoKey key = (RubatoKey)i % 2 * 99;

        TRY(rubato_kv_table_add_async(table, &key, 1, &i, NULL, error));
        TRY(rubato_kv_table_get_async(table, &key, 1, &values[i], NULL, error));
    }
    TRY(rubato_worker_wait_all(worker, error));
    for (int64_t i = 0; i < N; i += 2) {
        expected += i;
        REQUIRE(values[i] == expected, "(%d: %d)", (int)i, (int)values[i]);
    }
    return rubato_worker_wait_all(worker, error); /* nothing is left */
}

START_TEST(wait_all_waits_for_all_and_requests_stay_in_order)
{
    RubatoEngine *engine = make_engine();

    run_ok(engine, 1, wait_for_many, NULL, "t");
    rubato_engine_free(engine);
}
END_TEST

/* ---- callbacks ---- */

static bool call_back_once(RubatoWorker *worker, void *user_data, GError **error)
{
    Told *told = user_data;
    g_autoptr(RubatoKVTable) table = open_client(worker, error);
    const RubatoKey key = 3;
    const int64_t one = 1;
    int64_t value = 0;
    RubatoTicket tickets[2];

    TRY(table != NULL);
    tickets[0] = rubato_kv_table_add_async(
        table, &key, 1, &one,
        &(RubatoRequestOptions){ .callback = note_call, .user_data = &told[0] }, error);
    tickets[1] = rubato_kv_table_get_async(
        table, &key, 1, &value,
        &(RubatoRequestOptions){ .callback = note_call, .user_data = &told[1] }, error);
    TRY(event_await(&told[1].called, 1, worker, error));
    REQUIRE(value == 1);
    for (int i = 0; i < 2; i++) {
        TRY(rubato_worker_wait(worker, tickets[i], error));
        REQUIRE(event_count(&told[i].called) == 1);
        REQUIRE(told[i].ticket == tickets[i]);
        REQUIRE(told[i].code == -1);
        REQUIRE(!pthread_equal(told[i].thread, pthread_self()));
    }
    REQUIRE(pthread_equal(told[0].thread, told[1].thread));
    return true;
}

START_TEST(a_callback_runs_once_on_the_helper_thread)
{
    RubatoEngine *engine = make_engine();
    Told told[2] = { { .called = EVENT_INIT }, { .called = EVENT_INIT } };

    run_ok(engine, 1, call_back_once, told, "t");
    ck_assert_uint_eq(event_count(&told[0].called), 1);
    ck_assert_uint_eq(event_count(&told[1].called), 1);
    rubato_engine_free(engine);
}
END_TEST

static bool wait_while_called(RubatoWorker *worker, void *user_data, GError **error)
{
    Told *told = user_data;
    g_autoptr(RubatoKVTable) table = open_client(worker, error);
    const RubatoKey key = 3;
    const int64_t one = 1;
    RubatoTicket ticket;

    TRY(table != NULL);
    ticket = rubato_kv_table_add_async(
        table, &key, 1, &one, &(RubatoRequestOptions){ .callback = note_call, .user_data = told },
        error);
    TRY(event_await(told->inside, 1, worker, error));
    REQUIRE(!rubato_worker_poll(worker, ticket)); /* not before the callback returns */
    event_raise(told->go_on);
    TRY(rubato_worker_wait(worker, ticket, error));
    REQUIRE(event_count(&told->called) == 1);
    return true;
}

START_TEST(waiting_for_a_ticket_includes_its_callback)
{
    RubatoEngine *engine = make_engine();
    Event inside = EVENT_INIT, go_on = EVENT_INIT;
    Told told = { .called = EVENT_INIT, .inside = &inside, .go_on = &go_on };

    run_ok(engine, 1, wait_while_called, &told, "t");
    rubato_engine_free(engine);
}
END_TEST

static bool fail_while_in_flight(RubatoWorker *worker, void *user_data, GError **error)
{
    Told *told = user_data;
    g_autoptr(RubatoKVTable) table = NULL;
    const RubatoKey key = 3;
    int64_t value;
    RubatoTicket plain, with_callback;

    if (rubato_worker_rank(worker) == 1) { /* holds the clock back, then fails */
        TRY(event_await(told->inside, 1, worker, error));
        return false;
    }
    table = open_client(worker, error);
    TRY(table != NULL && rubato_kv_table_clock(table, error));
    plain = rubato_kv_table_get_async(table, &key, 1, &value, NULL, error);
    with_callback = rubato_kv_table_get_async(
        table, &key, 1, &value,
        &(RubatoRequestOptions){ .callback = note_call, .user_data = told + 1 }, error);
    event_raise(told->inside);
    REQUIRE(!rubato_worker_wait(worker, with_callback, error));
    REQUIRE(is_error(error, RUBATO_ERROR_CANCELLED, "task was cancelled"));
    REQUIRE(event_count(&told[1].called) == 1 && told[1].code == RUBATO_ERROR_CANCELLED);
    REQUIRE(!rubato_worker_wait(worker, plain, error));
    REQUIRE(is_error(error, RUBATO_ERROR_CANCELLED, NULL));
    /* whatever comes now is cancelled too */
    plain = rubato_kv_table_get_async(table, &key, 1, &value, NULL, error);
    REQUIRE(plain == 0 || !rubato_worker_wait(worker, plain, error));
    REQUIRE(is_error(error, RUBATO_ERROR_CANCELLED, NULL));
    REQUIRE(!rubato_kv_table_get(table, &key, 1, &value, error));
    REQUIRE(is_error(error, RUBATO_ERROR_CANCELLED, NULL));
    event_raise(told->go_on); /* all of this was so: the task fails in any case */
    return true;
}

START_TEST(a_cancelled_ticket_says_so_to_its_waiter_and_its_callback)
{
    RubatoEngine *engine = make_engine();
    Event inside = EVENT_INIT, checked = EVENT_INIT;
    Told told[2] = { { .inside = &inside, .go_on = &checked }, { .called = EVENT_INIT } };
    const char *const tables[] = { "t", NULL };

    run_fails(engine,
              &(RubatoTask){ .name = "failing",
                             .run = fail_while_in_flight,
                             .user_data = told,
                             .tables = tables,
                             .workers_per_node = 2 },
              RUBATO_ERROR_TASK_FAILED, "worker 1", NULL);
    ck_assert_uint_eq(event_count(&checked), 1);
    rubato_engine_free(engine);
}
END_TEST

static bool wait_for_all_of_a_failing_task(RubatoWorker *worker, void *user_data, GError **error)
{
    Told *told = user_data;
    g_autoptr(RubatoKVTable) table = NULL;
    const RubatoKey key = 3;
    int64_t values[3];

    if (rubato_worker_rank(worker) == 1) { /* holds the clock back, then fails */
        TRY(event_await(told->inside, 1, worker, error));
        return false;
    }
    table = open_client(worker, error);
    TRY(table != NULL && rubato_kv_table_clock(table, error));
    for (size_t i = 0; i < G_N_ELEMENTS(values); i++)
        REQUIRE(rubato_kv_table_get_async(table, &key, 1, &values[i], NULL, error) != 0);
    event_raise(told->inside);
    REQUIRE(!rubato_worker_wait_all(worker, error));
    REQUIRE(is_error(error, RUBATO_ERROR_CANCELLED, "task was cancelled"));
    TRY(rubato_worker_wait_all(worker, error)); /* it was said, and nothing is left */
    event_raise(told->go_on);                   /* all of this was so: the task fails in any case */
    return true;
}

START_TEST(wait_all_says_what_went_wrong)
{
    RubatoEngine *engine = make_engine();
    Event inside = EVENT_INIT, checked = EVENT_INIT;
    Told told = { .inside = &inside, .go_on = &checked };
    const char *const tables[] = { "t", NULL };

    run_fails(engine,
              &(RubatoTask){ .name = "failing",
                             .run = wait_for_all_of_a_failing_task,
                             .user_data = &told,
                             .tables = tables,
                             .workers_per_node = 2 },
              RUBATO_ERROR_TASK_FAILED, "worker 1", NULL);
    ck_assert_uint_eq(event_count(&checked), 1);
    rubato_engine_free(engine);
}
END_TEST

/* ---- freeing ---- */

static bool free_in_flight(RubatoWorker *worker, void *user_data, GError **error)
{
    Told *told = user_data;
    RubatoKVTable *table = open_client(worker, error);
    const RubatoKey keys[] = { 0, 99 };
    const int64_t ones[] = { 1, 1 };
    int64_t values[50][2];
    bool ok = table != NULL;

    for (int i = 0; i < 50 && ok; i++)
        ok = rubato_kv_table_add_async(
                 table, keys, 2, ones,
                 &(RubatoRequestOptions){ .callback = i % 2 == 0 ? note_call : NULL,
                                          .user_data = told },
                 error) != 0 &&
             rubato_kv_table_get_async(
                 table, keys, 2, values[i],
                 &(RubatoRequestOptions){ .callback = i % 3 == 0 ? note_call : NULL,
                                          .user_data = told },
                 error) != 0;
    rubato_kv_table_free(table);
    TRY(ok);
    REQUIRE(event_count(&told->called) == 25 + 17);
    for (int i = 0; i < 50; i++)
        REQUIRE(values[i][0] == i + 1 && values[i][1] == i + 1);
    return true;
}

START_TEST(freeing_the_handle_waits_for_what_is_in_flight)
{
    RubatoEngine *engine = make_engine();
    Told told = { .called = EVENT_INIT };

    run_ok(engine, 1, free_in_flight, &told, "t");
    ck_assert_int_eq(read_i64(engine, "t", 99), 50);
    rubato_engine_free(engine);
}
END_TEST

static bool free_when_cancelled(RubatoWorker *worker, void *user_data, GError **error)
{
    Told *told = user_data;
    g_autoptr(RubatoKVTable) table = NULL;
    const RubatoKey key = 3;
    static int64_t values[20];

    if (rubato_worker_rank(worker) == 1) {
        TRY(event_await(told->inside, 1, worker, error));
        return false;
    }
    table = open_client(worker, error);
    TRY(table != NULL && rubato_kv_table_clock(table, error));
    for (int i = 0; i < 20; i++)
        TRY(rubato_kv_table_get_async(
            table, &key, 1, &values[i],
            &(RubatoRequestOptions){ .callback = i % 2 == 0 ? note_call : NULL,
                                     .user_data = told + 1 },
            error));
    event_raise(told->inside);
    return true; /* frees the handle, whose requests only the cancellation ends */
}

START_TEST(freeing_the_handle_of_a_cancelled_task_comes_to_an_end)
{
    RubatoEngine *engine = make_engine();
    Event inside = EVENT_INIT;
    Told told[2] = { { .inside = &inside }, { .called = EVENT_INIT } };
    const char *const tables[] = { "t", NULL };

    run_fails(engine,
              &(RubatoTask){ .name = "failing",
                             .run = free_when_cancelled,
                             .user_data = told,
                             .tables = tables,
                             .workers_per_node = 2 },
              RUBATO_ERROR_TASK_FAILED, "worker 1", NULL);
    ck_assert_uint_eq(event_count(&told[1].called), 10);
    rubato_engine_free(engine);
}
END_TEST

/* ---- async Adds and the models ---- */

static bool add_async_then_clock(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = open_client(worker, error);
    const RubatoKey key = 50;
    const int64_t one = 1;

    (void)user_data;
    TRY(table != NULL);
    for (int64_t t = 0; t < 30; t++) {
        int64_t seen;

        TRY(rubato_kv_table_get(table, &key, 1, &seen, error));
        REQUIRE(seen == t * rubato_worker_n_workers(worker), "(%d at clock %d)", (int)seen, (int)t);
        TRY(rubato_kv_table_add_async(table, &key, 1, &one, NULL, error) != 0);
        TRY(rubato_kv_table_clock(table, error)); /* behind the Add, which is in flight */
    }
    return true;
}

START_TEST(a_clock_comes_behind_the_asynchronous_adds_before_it)
{
    RubatoEngine *engine = engine_with_servers(2);

    create_table(engine, &(RubatoTableSpec){
                             .name = "t", .dtype = RUBATO_I64, .n_keys = 100, .model = "bsp" });
    run_ok(engine, 4, add_async_then_clock, NULL, "t");
    ck_assert_int_eq(read_i64(engine, "t", 50), 120);
    rubato_engine_free(engine);
}
END_TEST

/* ---- the process cache ---- */

typedef struct {
    Event read;
    ProcessCacheStats stats;
} CacheUse;

static bool share_rows(RubatoWorker *worker, void *user_data, GError **error)
{
    CacheUse *use = user_data;
    const uint32_t rank = rubato_worker_rank(worker);
    g_autoptr(RubatoKVTable) table = open_client(worker, error);
    RubatoKey keys[10];
    int64_t values[10];

    TRY(table != NULL);
    for (RubatoKey i = 0; i < 10; i++)
        keys[i] = i * 11;
    TRY(event_await(&use->read, rank, worker, error)); /* one after the other */
    TRY(rubato_kv_table_get(table, keys, 10, values, error));
    if (rank == 2)
        process_cache_stats(table_route_cache(&worker->routes[0]), &use->stats);
    event_raise(&use->read);
    TRY(event_await(&use->read, 3, worker, error)); /* nobody's cache goes away before */
    return true;
}

START_TEST(workers_of_a_node_read_a_row_once)
{
    RubatoEngine *engine = engine_with_servers(2);
    CacheUse use = { .read = EVENT_INIT };

    create_table(engine, &(RubatoTableSpec){ .name = "t",
                                             .dtype = RUBATO_I64,
                                             .n_keys = 100,
                                             .model = "ssp",
                                             .staleness = 1,
                                             .cache = RUBATO_CACHE_ALL });
    run_ok(engine, 3, share_rows, &use, "t");
    ck_assert_uint_eq(use.stats.misses, 10);
    ck_assert_uint_eq(use.stats.hits, 20);
    rubato_engine_free(engine);
}
END_TEST

static bool has_no_cache(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = open_client(worker, error);

    (void)user_data;
    TRY(table != NULL);
    REQUIRE(table_route_cache(&worker->routes[0]) == NULL);
    return true;
}

START_TEST(only_ssp_caches_and_only_what_the_table_says)
{
    static const RubatoTableSpec specs[] = {
        { .model = "asp" },
        { .model = "bsp" },
        { .model = "sparse_ssp" },
        { .model = "ssp", .cache = RUBATO_CACHE_NONE },
        { .model = "ssp", .cache = RUBATO_CACHE_REMOTE }, /* there are no other nodes */
    };
    RubatoEngine *engine = engine_with_servers(1);
    RubatoTableSpec spec = specs[_i];

    spec.name = "t";
    spec.dtype = RUBATO_I64;
    create_table(engine, &spec);
    run_ok(engine, 1, has_no_cache, NULL, "t");
    rubato_engine_free(engine);
}
END_TEST

/* ---- a handle that is left open ---- */

static int64_t late_value;
static RubatoKVTable *left_open;

/* Worker 0 returns with a Get in flight that waits for worker 1's clock on the table, who waits for
 * worker 0's clock on the other. */
static bool return_early(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 3;
    const int64_t one = 1;
    int64_t seen;

    (void)user_data;
    if (rubato_worker_rank(worker) == 0) {
        left_open = open_client(worker, error);
        TRY(left_open != NULL && rubato_kv_table_clock(left_open, error));
        return rubato_kv_table_get_async(left_open, &key, 1, &late_value, NULL, error) != 0;
    }
    g_autoptr(RubatoKVTable) other = rubato_worker_open_kv_table(worker, "u", RUBATO_I64, error);
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    TRY(other != NULL && table != NULL && rubato_kv_table_clock(other, error));
    TRY(rubato_kv_table_get(other, &key, 1, &seen, error));
    TRY(rubato_kv_table_add(table, &key, 1, &one, error));
    return rubato_kv_table_clock(table, error);
}

START_TEST(a_worker_that_returns_with_a_ticket_in_flight_waits_for_it_and_is_told)
{
    RubatoEngine *engine = make_engine();
    const char *const tables[] = { "t", "u", NULL };

    log_capture_start();
    create_table(engine, &(RubatoTableSpec){
                             .name = "u", .dtype = RUBATO_I64, .n_keys = 100, .model = "ssp" });
    run_task_ok(engine,
                &(RubatoTask){
                    .name = "case", .run = return_early, .tables = tables, .workers_per_node = 2 });
    ck_assert_int_eq(late_value, 1);
    ck_assert_uint_eq(log_capture_count("worker 0 of task case has returned with an open"), 1);
    rubato_kv_table_free(left_open);
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kv_table");
    TCase *cases = tcase_create("kv_table");

    tcase_add_test(cases, tickets_end_in_any_order_and_are_waited_for_once_or_more);
    tcase_add_test(cases, a_worker_that_returns_with_a_ticket_in_flight_waits_for_it_and_is_told);
    tcase_add_test(cases, poll_tells_when_the_answer_has_come);
    tcase_add_test(cases, wait_all_waits_for_all_and_requests_stay_in_order);
    tcase_add_test(cases, a_callback_runs_once_on_the_helper_thread);
    tcase_add_test(cases, waiting_for_a_ticket_includes_its_callback);
    tcase_add_test(cases, a_cancelled_ticket_says_so_to_its_waiter_and_its_callback);
    tcase_add_test(cases, wait_all_says_what_went_wrong);
    tcase_add_test(cases, freeing_the_handle_waits_for_what_is_in_flight);
    tcase_add_test(cases, freeing_the_handle_of_a_cancelled_task_comes_to_an_end);
    tcase_add_test(cases, a_clock_comes_behind_the_asynchronous_adds_before_it);
    tcase_add_test(cases, workers_of_a_node_read_a_row_once);
    tcase_add_loop_test(cases, only_ssp_caches_and_only_what_the_table_says, 0, 5);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
