/* A call that blocks for long logs for whom it waits.
 *
 * docs/liveness.md: A call that waits */
#include <string.h>

#include "engine/engine_private.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { STALL_MS = 20 };

typedef struct {
    RubatoEngine *engine;
    RubatoTaskRun *run;
    Event go_on;
} Stall;

static void start(Stall *stall, const RubatoTableSpec *spec, RubatoTaskFunc function,
                  uint32_t workers)
{
    static const char *const tables[] = { "weights", NULL };

    log_capture_start();
    stall->engine =
        rubato_engine_new(&(RubatoEngineConfig){ .servers = 2, .stall_ms = STALL_MS }, NULL);
    create_table(stall->engine, spec);
    stall->run = rubato_engine_start(stall->engine,
                                     &(RubatoTask){ .name = "stalling",
                                                    .run = function,
                                                    .user_data = stall,
                                                    .tables = tables,
                                                    .workers_per_node = workers },
                                     NULL);
    ck_assert_ptr_nonnull(stall->run);
}

/* Waits for the line twice, and then for the task's end. */
static void expect(Stall *stall, const char *text, const char *other)
{
    g_autofree char *line = log_capture_wait(text, other);
    GError *error = NULL;
    bool ok;

    ck_assert_ptr_nonnull(strstr(line, " s so far)"));
    while (log_capture_count(text) < 2)
        sched_yield();
    event_raise(&stall->go_on);
    ok = rubato_task_run_wait(stall->run, &error);
    ck_assert_msg(ok, "%s", error == NULL ? "" : error->message);
    rubato_engine_free(stall->engine);
}

/* ---- a worker that never clocks ---- */

static bool get_ahead_or_never_clock(RubatoWorker *worker, void *user_data, GError **error)
{
    Stall *stall = user_data;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, "weights", RUBATO_I64, error);
    const RubatoKey key = 0;
    int64_t value;

    TRY(table != NULL);
    if (rubato_worker_rank(worker) == 1)
        return event_await(&stall->go_on, 1, worker, error);
    for (int t = 0; t < 7; t++)
        TRY(rubato_kv_table_clock(table, error));
    return rubato_kv_table_get(table, &key, 1, &value, error);
}

static const struct {
    const char *model;
    uint32_t staleness;
    const char *waits_for;
} gets[] = {
    { "ssp", 0, "worker 0 waits for clock 7 of table weights" },
    { "ssp", 3, "worker 0 waits for clock 4 of table weights" },
    { "bsp", 0, "worker 0 waits for clock 7 of table weights" },
    { "sparse_ssp", 2, "worker 0 waits for clock 5 of table weights" },
};

START_TEST(a_get_names_the_clock_the_table_and_the_slowest_worker)
{
    Stall stall = { .go_on = EVENT_INIT };

    start(&stall,
          &(RubatoTableSpec){ .name = "weights",
                              .dtype = RUBATO_I64,
                              .n_keys = 4,
                              .model = gets[_i].model,
                              .staleness = gets[_i].staleness },
          get_ahead_or_never_clock, 2);
    expect(&stall, gets[_i].waits_for, "slowest is worker 1 (node 0) at 0");
}
END_TEST

/* ---- the other handles ---- */

static bool wait_for_ticket(RubatoWorker *worker, void *user_data, GError **error)
{
    Stall *stall = user_data;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, "weights", RUBATO_I64, error);
    const RubatoKey key = 0;
    int64_t value;

    TRY(table != NULL);
    if (rubato_worker_rank(worker) == 0)
        return event_await(&stall->go_on, 1, worker, error);
    TRY(rubato_kv_table_clock(table, error));
    if (rubato_worker_rank(worker) == 2)
        return rubato_kv_table_get(table, &key, 1, &value, error);
    TRY(rubato_kv_table_get_async(table, &key, 1, &value, NULL, error) != 0);
    return rubato_worker_wait_all(worker, error);
}

START_TEST(waiting_for_a_ticket_says_so_too)
{
    Stall stall = { .go_on = EVENT_INIT };
    g_autofree char *other = NULL;

    start(&stall,
          &(RubatoTableSpec){ .name = "weights",
                              .dtype = RUBATO_I64,
                              .n_keys = 4,
                              .model = "ssp",
                              .cache = _i == 0 ? RUBATO_CACHE_NONE : RUBATO_CACHE_ALL },
          wait_for_ticket, 3);
    other = log_capture_wait("worker 2 waits for clock 1 of table weights",
                             "slowest is worker 0 (node 0) at 0");
    expect(&stall, "worker 1 waits for clock 1 of table weights",
           "slowest is worker 0 (node 0) at 0");
}
END_TEST

static bool collide(RubatoWorker *worker, void *user_data, GError **error)
{
    Stall *stall = user_data;
    const RubatoKey key = 1;
    const RubatoIteration iterations[] = { { &key, 1 }, { &key, 1 } };
    g_autoptr(RubatoSparseKVClientTable) table = NULL;
    int64_t value;

    table = rubato_worker_open_sparse_kv_client_table(worker, "weights", RUBATO_I64, iterations, 2,
                                                      error);
    TRY(table != NULL);
    if (rubato_worker_rank(worker) == 1)
        return event_await(&stall->go_on, 1, worker, error);
    return rubato_sparse_kv_client_table_get(table, &value, error) &&
           rubato_sparse_kv_client_table_get(table, &value, error);
}

START_TEST(a_colliding_reader_names_whom_it_waits_for)
{
    Stall stall = { .go_on = EVENT_INIT };

    start(&stall,
          &(RubatoTableSpec){ .name = "weights",
                              .dtype = RUBATO_I64,
                              .n_keys = 4,
                              .model = "sparse_ssp",
                              .speculation = 2 },
          collide, 2);
    expect(&stall, "worker 0 waits for clock 1 of table weights",
           "slowest is worker 1 (node 0) at 0");
}
END_TEST

/* ---- a table that takes no changes ---- */

static void *reopen_when_said(void *user)
{
    const char *const text = "waits until table weights takes changes again";
    char *const line = log_capture_wait(text, "");

    while (log_capture_count(text) < 2)
        sched_yield();
    part_map_reopen(user);
    return line;
}

START_TEST(a_call_of_the_engine_is_not_taken_for_a_worker)
{
    const RubatoEngineConfig config = { .servers = 2, .stall_ms = STALL_MS };
    const RubatoKey key = 1;
    const int64_t one = 1;
    pthread_t other;
    void *line;

    log_capture_start();
    RubatoEngine *const engine = rubato_engine_new(&config, NULL);
    create_table(engine, &(RubatoTableSpec){ .name = "weights", .dtype = RUBATO_I64, .n_keys = 4 });
    PartMap *const map = ((Table *)g_ptr_array_index(engine->tables, 0))->map;

    part_map_close(map); /* as while one of its parts moves */
    pthread_create(&other, NULL, reopen_when_said, map);
    ck_assert(rubato_engine_add(engine, "weights", &key, 1, &one, NULL));
    pthread_join(other, &line);
    ck_assert_msg(g_str_has_prefix(line, "the engine waits"), "%s", (char *)line);
    g_free(line);
    rubato_engine_free(engine);
}
END_TEST

/* ---- barriers ---- */

static bool miss_the_barrier(RubatoWorker *worker, void *user_data, GError **error)
{
    Stall *stall = user_data;

    if (rubato_worker_rank(worker) == 0)
        return event_await(&stall->go_on, 1, worker, error);
    return rubato_worker_barrier(worker, error);
}

START_TEST(a_barrier_says_how_many_have_come)
{
    Stall stall = { .go_on = EVENT_INIT };

    start(&stall, &(RubatoTableSpec){ .name = "weights" }, miss_the_barrier, 3);
    expect(&stall, "waits in a barrier of task stalling", "2 of this node's 3 workers");
}
END_TEST

/* ---- the end ---- */

static bool ignore_the_cancellation(RubatoWorker *worker, void *user_data, GError **error)
{
    Stall *stall = user_data;

    (void)error;
    if (rubato_worker_rank(worker) == 0)
        event_wait(&stall->go_on, 1);
    return rubato_worker_rank(worker) == 0;
}

static void *wait_in_thread(void *user)
{
    Stall *stall = user;

    rubato_task_run_wait(stall->run, NULL);
    return NULL;
}

START_TEST(a_cancelled_task_names_the_workers_that_do_not_return)
{
    Stall stall = { .go_on = EVENT_INIT };
    g_autofree char *line = NULL;
    pthread_t waiter;

    start(&stall, &(RubatoTableSpec){ .name = "weights" }, ignore_the_cancellation, 2);
    pthread_create(&waiter, NULL, wait_in_thread, &stall);
    line = log_capture_wait("task stalling was cancelled", "1 workers of node 0");
    event_raise(&stall.go_on);
    pthread_join(waiter, NULL);
    rubato_engine_free(stall.engine);
}
END_TEST

/* ---- nothing to say ---- */

static bool never_stall(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, "weights", RUBATO_I64, error);
    const RubatoKey key = 0;
    int64_t value;

    (void)user_data;
    TRY(table != NULL);
    for (int t = 0; t < 100; t++) {
        TRY(rubato_kv_table_get(table, &key, 1, &value, error));
        TRY(rubato_kv_table_clock(table, error));
    }
    return true;
}

START_TEST(who_does_not_stall_says_nothing)
{
    RubatoEngine *engine;

    log_capture_start();
    engine = engine_with_servers(1); /* ten seconds */
    create_table(engine,
                 &(RubatoTableSpec){ .name = "weights", .dtype = RUBATO_I64, .model = "bsp" });
    run_ok(engine, 3, never_stall, NULL, "weights");
    ck_assert_uint_eq(log_capture_count(""), 0);
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stall");
    TCase *cases = tcase_create("stall");

    tcase_add_loop_test(cases, a_get_names_the_clock_the_table_and_the_slowest_worker, 0,
                        G_N_ELEMENTS(gets));
    tcase_add_loop_test(cases, waiting_for_a_ticket_says_so_too, 0, 2);
    tcase_add_test(cases, a_colliding_reader_names_whom_it_waits_for);
    tcase_add_test(cases, a_call_of_the_engine_is_not_taken_for_a_worker);
    tcase_add_test(cases, a_barrier_says_how_many_have_come);
    tcase_add_test(cases, a_cancelled_task_names_the_workers_that_do_not_return);
    tcase_add_test(cases, who_does_not_stall_says_nothing);
    tcase_set_timeout(cases, 10);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
