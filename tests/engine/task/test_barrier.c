/* Barriers between the workers of a task: all meet, and see everything that was added before. */
#include <sched.h>
#include <stdatomic.h>

#include "engine/engine_private.h"
#include "engine/task/task_run_private.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/runner.h"

enum { MAX_WORKERS = 8, N_ROUNDS = 50 };

typedef struct {
    _Atomic uint32_t rounds[MAX_WORKERS]; /* how many each worker has come to */
} Meeting;

/* No worker leaves a barrier before the last one has reached it. */
static bool meet(RubatoWorker *worker, void *user_data, GError **error)
{
    Meeting *meeting = user_data;

    for (uint32_t round = 1; round <= N_ROUNDS; round++) {
        atomic_store(&meeting->rounds[rubato_worker_rank(worker)], round);
        TRY(rubato_worker_barrier(worker, error));
        for (uint32_t i = 0; i < rubato_worker_n_workers(worker); i++) {
            const uint32_t others = atomic_load(&meeting->rounds[i]);

            REQUIRE(others == round || others == round + 1, "(worker %u is in round %u of %u)", i,
                    others, round);
        }
    }
    return true;
}

START_TEST(nobody_goes_on_before_all_have_come)
{
    RubatoEngine *engine = engine_with_servers(2);

    for (uint32_t workers = 1; workers <= MAX_WORKERS; workers++) {
        Meeting meeting = { .rounds = { 0 } };

        run_ok(engine, workers, meet, &meeting, NULL);
    }
    rubato_engine_free(engine);
}
END_TEST

/* Each worker leaves after as many rounds as its rank says. */
static bool leave_one_by_one(RubatoWorker *worker, void *user_data, GError **error)
{
    Meeting *meeting = user_data;
    const uint32_t rank = rubato_worker_rank(worker);

    for (uint32_t round = 1; round <= rank * 3; round++) {
        atomic_store(&meeting->rounds[rank], round);
        TRY(rubato_worker_barrier(worker, error));
        for (uint32_t i = 0; i < rubato_worker_n_workers(worker); i++)
            REQUIRE(atomic_load(&meeting->rounds[i]) >= MIN(round, i * 3));
    }
    return true;
}

START_TEST(those_who_have_returned_are_not_waited_for)
{
    RubatoEngine *engine = engine_with_servers(1);

    for (int i = 0; i < 20; i++) {
        Meeting meeting = { .rounds = { 0 } };

        run_ok(engine, MAX_WORKERS, leave_one_by_one, &meeting, NULL);
    }
    rubato_engine_free(engine);
}
END_TEST

/* Under ASP a Get after a barrier sees every Add of any worker before it. */
static bool add_then_meet(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const uint32_t n_workers = rubato_worker_n_workers(worker);
    const int64_t ones[MAX_WORKERS] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    int64_t seen[MAX_WORKERS];

    (void)user_data;
    TRY(table != NULL);
    for (int64_t round = 1; round <= N_ROUNDS; round++) {
        TRY(rubato_kv_table_add_range(table, 0, MAX_WORKERS, ones, error));
        TRY(rubato_worker_barrier(worker, error));
        TRY(rubato_kv_table_get_range(table, 0, MAX_WORKERS, seen, error));
        for (int i = 0; i < MAX_WORKERS; i++)
            REQUIRE(seen[i] == round * n_workers, "(%d)", (int)seen[i]);
        TRY(rubato_worker_barrier(worker, error));
    }
    return true;
}

START_TEST(after_a_barrier_everybodys_adds_are_seen)
{
    RubatoEngine *engine = engine_with_servers(3);

    create_table(engine,
                 &(RubatoTableSpec){
                     .name = "t", .dtype = RUBATO_I64, .n_keys = MAX_WORKERS, .model = "asp" });
    run_ok(engine, 5, add_then_meet, NULL, "t");
    rubato_engine_free(engine);
}
END_TEST

START_TEST(each_task_has_its_own_barriers)
{
    RubatoEngine *engine = engine_with_servers(1);
    Meeting meetings[3] = { { .rounds = { 0 } }, { .rounds = { 0 } }, { .rounds = { 0 } } };
    RubatoTaskRun *runs[3];

    for (uint32_t i = 0; i < 3; i++) {
        runs[i] = rubato_engine_start(engine,
                                      &(RubatoTask){ .name = "meet",
                                                     .run = i == 2 ? leave_one_by_one : meet,
                                                     .user_data = &meetings[i],
                                                     .workers_per_node = 2 + i },
                                      NULL);
        ck_assert_ptr_nonnull(runs[i]);
    }
    for (int i = 0; i < 3; i++)
        ck_assert(rubato_task_run_wait(runs[i], NULL));
    rubato_engine_free(engine);
}
END_TEST

/* Barriers while the iterations go on: they order nothing else. */
static bool meet_now_and_then(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey key = 0;
    const int64_t one = 1;
    int64_t seen;

    (void)user_data;
    TRY(table != NULL);
    for (int t = 0; t < 60; t++) {
        TRY(rubato_kv_table_get(table, &key, 1, &seen, error));
        TRY(rubato_kv_table_add(table, &key, 1, &one, error));
        TRY(rubato_kv_table_clock(table, error));
        if (t % 7 == 3)
            TRY(rubato_worker_barrier(worker, error));
    }
    return true;
}

START_TEST(barriers_and_clocks_go_together)
{
    static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp" };
    RubatoEngine *engine = engine_with_servers(2);

    const RubatoTableSpec spec = fitting_spec((RubatoTableSpec){
        .name = "t", .dtype = RUBATO_I64, .n_keys = 2, .model = models[_i], .staleness = 1 });

    create_table(engine, &spec);
    run_ok(engine, 4, meet_now_and_then, NULL, "t");
    ck_assert_int_eq(read_i64(engine, "t", 0), 240);
    rubato_engine_free(engine);
}
END_TEST

/* ---- what a barrier and a task's end wait for ---- */

/* The server is kept from handling anything while the workers add and reach the barrier, or
 * return. */
typedef struct {
    bool meets;
    Event begin, inside, go_on;
    RubatoTaskRun *run;
    _Atomic bool let_go;
    _Atomic bool passed; /* a barrier, or the task's end */
} Held;

static void hold(Server *server, void *data)
{
    Held *held = data;

    (void)server;
    event_raise(&held->inside);
    event_wait(&held->go_on, 1);
}

static bool add_and_go_on(RubatoWorker *worker, void *user_data, GError **error)
{
    Held *held = user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey key = 0;
    const int64_t one = 1;

    TRY(table != NULL && event_await(&held->begin, 1, worker, error));
    TRY(rubato_kv_table_add(table, &key, 1, &one, error));
    if (!held->meets)
        return true;
    TRY(rubato_worker_barrier(worker, error));
    atomic_store(&held->passed, true);
    REQUIRE(atomic_load(&held->let_go));
    return true;
}

static void *wait_for_end(void *data)
{
    Held *held = data;
    const bool ok = rubato_task_run_wait(held->run, NULL);

    atomic_store(&held->passed, true);
    return ok ? held : NULL;
}

START_TEST(what_was_sent_before_is_taken_in_before_anybody_goes_on)
{
    static const char *const tables[] = { "t", NULL };
    Held held = {
        .meets = _i == 0, .begin = EVENT_INIT, .inside = EVENT_INIT, .go_on = EVENT_INIT
    };
    RubatoEngine *engine;
    pthread_t waiter;
    void *ok;
    Call call;

    log_capture_start();
    engine = rubato_engine_new(&(RubatoEngineConfig){ .servers = 1, .stall_ms = 20 }, NULL);
    create_table(engine, &(RubatoTableSpec){
                             .name = "t", .dtype = RUBATO_I64, .n_keys = 1, .model = "asp" });
    held.run = rubato_engine_start(engine,
                                   &(RubatoTask){ .name = "held",
                                                  .run = add_and_go_on,
                                                  .user_data = &held,
                                                  .tables = tables,
                                                  .workers_per_node = 2 },
                                   NULL);
    ck_assert_ptr_nonnull(held.run);
    call_begin(&call, NULL);
    servers_post(engine->servers, 1, hold, &held, &call);
    call_sent(&call);
    event_wait(&held.inside, 1);
    pthread_create(&waiter, NULL, wait_for_end, &held);
    event_raise(&held.begin);
    while (log_capture_count("task held waits for node 0 to take in what was sent") == 0 &&
           !atomic_load(&held.passed))
        sched_yield();
    ck_assert(!atomic_load(&held.passed));
    atomic_store(&held.let_go, true);
    event_raise(&held.go_on);
    call_wait(&call, -1);
    pthread_join(waiter, &ok);
    ck_assert_ptr_nonnull(ok);
    ck_assert_int_eq(read_i64(engine, "t", 0), 2);
    rubato_engine_free(engine);
}
END_TEST

/* ---- a worker that fails is no worker that has come ---- */

typedef struct {
    Event go_on;         /* worker 1 may fail */
    _Atomic bool passed; /* worker 0 has passed the barrier */
} Failing;

static bool fail_or_meet(RubatoWorker *worker, void *user_data, GError **error)
{
    Failing *failing = user_data;

    if (rubato_worker_rank(worker) == 1) {
        event_wait(&failing->go_on, 1);
        return false;
    }
    TRY(rubato_worker_barrier(worker, error));
    atomic_store(&failing->passed, true);
    return true;
}

/* The scheduler does not hear of the failure before the other worker has retired. */
START_TEST(a_barrier_is_not_passed_because_a_worker_has_failed)
{
    Failing failing = { .go_on = EVENT_INIT };
    RubatoEngine *engine = engine_with_servers(1);
    Actor *scheduler = &engine->control;
    RubatoTaskRun *run;
    GError *error = NULL;

    run = rubato_engine_start(
        engine,
        &(RubatoTask){
            .name = "fail", .run = fail_or_meet, .user_data = &failing, .workers_per_node = 2 },
        NULL);
    ck_assert_ptr_nonnull(run);
    /* The test owns the scheduler's actor for a while: it takes the token as an owner does. */
    for (uint32_t nobody = 0; !atomic_compare_exchange_weak(&scheduler->owned, &nobody, 1);
         nobody = 0)
        sched_yield();
    event_raise(&failing.go_on);
    while (mailbox_is_empty(&scheduler->mailbox)) /* until the failure is told */
        sched_yield();
    while (barrier_n_live(&run->barrier) >
           1) /* until its worker is about to complete the barrier */
        sched_yield();
    for (int i = 0; i < 1000; i++) /* a barrier that is passed now would be passed soon */
        sched_yield();
    atomic_store(&scheduler->owned, 0);
    rubato_engine_cancel(engine); /* handles what has been told before */
    ck_assert(!rubato_task_run_wait(run, &error));
    ck_assert_int_eq(error->code, RUBATO_ERROR_TASK_FAILED);
    ck_assert(!atomic_load(&failing.passed));
    g_error_free(error);
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("barrier");
    TCase *cases = tcase_create("barrier");

    tcase_add_test(cases, nobody_goes_on_before_all_have_come);
    tcase_add_test(cases, those_who_have_returned_are_not_waited_for);
    tcase_add_test(cases, after_a_barrier_everybodys_adds_are_seen);
    tcase_add_test(cases, each_task_has_its_own_barriers);
    tcase_add_loop_test(cases, barriers_and_clocks_go_together, 0, 4);
    tcase_add_loop_test(cases, what_was_sent_before_is_taken_in_before_anybody_goes_on, 0, 2);
    tcase_add_test(cases, a_barrier_is_not_passed_because_a_worker_has_failed);
    tcase_set_timeout(cases, 15);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
