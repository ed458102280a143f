/* A task whose workers wait for one another fails and says so; one whose workers only wait goes on.
 *
 * docs/liveness.md: Workers that wait for one another */
#include <sched.h>
#include <stdatomic.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { STALL_MS = 20 };

static RubatoEngine *engine_of(const char *model, uint32_t staleness)
{
    RubatoEngine *engine =
        rubato_engine_new(&(RubatoEngineConfig){ .servers = 2, .stall_ms = STALL_MS }, NULL);
    const char *const names[] = { "rows", "others" };

    log_capture_start();
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++)
        create_table(engine, &(RubatoTableSpec){ .name = names[i],
                                                 .dtype = RUBATO_I64,
                                                 .n_keys = 4,
                                                 .model = model,
                                                 .staleness = staleness });
    return engine;
}

static const char *const tables[] = { "rows", "others", NULL };

/* ---- one in a barrier, one at a clock ---- */

static bool meet_or_get(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 0;
    int64_t value;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);

    (void)user_data;
    TRY(table != NULL);
    for (int clock = 0; clock < 2; clock++)
        TRY(rubato_kv_table_clock(table, error));
    if (rubato_worker_rank(worker) == 0)
        return rubato_worker_barrier(worker, error);
    TRY(rubato_kv_table_clock(table, error));
    TRY(rubato_kv_table_get(table, &key, 1, &value, error));
    return rubato_worker_barrier(worker, error);
}

static bool meet_or_wait_for_ticket(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 0;
    int64_t value;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, "rows", RUBATO_I64, error);
    RubatoTicket ticket;

    (void)user_data;
    TRY(table != NULL);
    for (int clock = 0; clock < 2; clock++)
        TRY(rubato_kv_table_clock(table, error));
    if (rubato_worker_rank(worker) == 0)
        return rubato_worker_barrier(worker, error);
    TRY(rubato_kv_table_clock(table, error));
    ticket = rubato_kv_table_get_async(table, &key, 1, &value, NULL, error);
    TRY(ticket != 0 && rubato_worker_wait(worker, ticket, error));
    return rubato_worker_barrier(worker, error);
}

static const RubatoTaskFunc meetings[] = { meet_or_get, meet_or_wait_for_ticket };
static const char *const models[] = { "bsp", "ssp", "sparse_ssp" };

START_TEST(a_barrier_and_a_clock_that_wait_for_each_other_fail_the_task)
{
    RubatoEngine *engine = engine_of(models[(size_t)_i / 2], 0);

    run_fails(
        engine,
        &(RubatoTask){
            .name = "stuck", .run = meetings[_i % 2], .tables = tables, .workers_per_node = 2 },
        RUBATO_ERROR_DEADLOCK,
        "task stuck is in a deadlock: ", "worker 0 (node 0) waits in a barrier for worker 1",
        "worker 1 (node 0) waits for clock 3 of table rows, where worker 0 is at 2", NULL);
    rubato_engine_free(engine);
}
END_TEST

/* The engine goes on: another task runs. */
static bool do_nothing(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    return rubato_worker_barrier(worker, error);
}

static bool get_crosswise(RubatoWorker *worker, void *user_data, GError **error)
{
    const char *ahead = rubato_worker_rank(worker) == 0 ? "rows" : "others";
    const RubatoKey key = 0;
    int64_t value;
    g_autoptr(RubatoKVTable) table = NULL;

    (void)user_data;
    if (rubato_worker_rank(worker) == 2) /* has nothing to do with it */
        return true;
    table = rubato_worker_open_kv_table(worker, ahead, RUBATO_I64, error);
    TRY(table != NULL && rubato_kv_table_clock(table, error));
    return rubato_kv_table_get(table, &key, 1, &value, error);
}

START_TEST(tables_that_are_clocked_crosswise_fail_the_task)
{
    RubatoEngine *engine = engine_of("bsp", 0);

    run_fails(engine,
              &(RubatoTask){
                  .name = "stuck", .run = get_crosswise, .tables = tables, .workers_per_node = 3 },
              RUBATO_ERROR_DEADLOCK, "waits for clock 1 of table rows, where worker 1 is at 0",
              "waits for clock 1 of table others, where worker 0 is at 0", NULL);
    run_ok(engine, 3, do_nothing, NULL, "rows");
    rubato_engine_free(engine);
}
END_TEST

/* BSP keeps too many Adds of one worker, and the other does not clock. */
static bool add_or_meet(RubatoWorker *worker, void *user_data, GError **error)
{
    const int64_t one = 1;
    const RubatoKey key = 0;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "kept", RUBATO_I64, error);

    (void)user_data;
    TRY(table != NULL);
    for (int clock = 0; rubato_worker_rank(worker) == 0 && clock < 10; clock++)
        TRY(rubato_kv_table_add(table, &key, 1, &one, error) &&
            rubato_kv_table_clock(table, error));
    return rubato_worker_barrier(worker, error);
}

START_TEST(an_add_that_waits_for_a_worker_in_a_barrier_fails_the_task)
{
    const char *const kept[] = { "kept", NULL };
    RubatoEngine *engine = engine_of("asp", 0);

    create_table(engine, &(RubatoTableSpec){ .name = "kept",
                                             .dtype = RUBATO_I64,
                                             .n_keys = 4,
                                             .model = "bsp",
                                             .max_kept_bytes = 200 });
    run_fails(
        engine,
        &(RubatoTask){ .name = "stuck", .run = add_or_meet, .tables = kept, .workers_per_node = 2 },
        RUBATO_ERROR_DEADLOCK, "worker 1 (node 0) waits in a barrier for worker 0",
        "worker 0 (node 0) waits for clock 1 of table kept, where worker 1 is at 0", NULL);
    rubato_engine_free(engine);
}
END_TEST

/* ---- one in a collective ---- */

/* What worker 0 waits for, while worker 1 waits for its clock. */
typedef enum {
    WAIT_SUM,
    WAIT_SUM_AGAIN,
    WAIT_TICKET,
    WAIT_SUM_OF_SET,
    WAIT_JOIN,
    WAIT_NEW_SET,
    WAIT_N
} Wait;

static bool sum(RubatoWorker *worker, const char *name, uint32_t set, GError **error)
{
    double value = 1;
    const RubatoTensor tensor = {
        .name = name, .dtype = RUBATO_F64, .input = &value, .output = &value, .set = set
    };

    return rubato_worker_allreduce(worker, &tensor, /* reduce= */ NULL, error);
}

static bool wait_for_others(RubatoWorker *worker, Wait wait, GError **error)
{
    const uint32_t ranks[] = { 0 };
    double values[2] = { 1, 1 };
    RubatoTensor tensors[] = { { .name = "x", .dtype = RUBATO_F64, .input = &values[0] },
                               { .name = "y", .dtype = RUBATO_F64, .input = &values[1] } };
    RubatoTicket ticket = 0;
    uint32_t got;

    switch (wait) {
    case WAIT_TICKET: /* the other one has asked for y alone */
        for (size_t i = 0; i < G_N_ELEMENTS(tensors); i++) {
            tensors[i].output = &values[i];
            ticket = rubato_worker_allreduce_async(worker, &tensors[i], NULL, NULL, error);
            TRY(ticket != 0);
        }
        return rubato_worker_wait_all(worker, error);
    case WAIT_SUM_OF_SET:
        return sum(worker, "x", 1, error);
    case WAIT_JOIN:
        return rubato_worker_join(worker, &got, error);
    case WAIT_NEW_SET:
        return rubato_worker_make_set(worker, ranks, 1, &got, error);
    default:
        return sum(worker, "x", 0, error);
    }
}

static bool sum_or_get(RubatoWorker *worker, void *user_data, GError **error)
{
    const Wait wait = *(const Wait *)user_data;
    const RubatoKey key = 0;
    int64_t value;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);

    TRY(table != NULL);
    for (int i = 0; wait == WAIT_SUM_AGAIN && i < 3; i++) /* it comes by the same name */
        TRY(sum(worker, "x", 0, error));
    if (rubato_worker_rank(worker) == 0)
        return wait_for_others(worker, wait, error);
    if (wait == WAIT_TICKET) {
        double own = 1;
        const RubatoTensor tensor = {
            .name = "y", .dtype = RUBATO_F64, .input = &own, .output = &own
        };

        TRY(rubato_worker_allreduce_async(worker, &tensor, NULL, NULL, error) != 0);
        TRY(rubato_kv_table_clock(table, error));
        return rubato_kv_table_get(table, &key, 1, &value, error);
    }
    TRY(rubato_kv_table_clock(table, error));
    return rubato_kv_table_get(table, &key, 1, &value, error);
}

static const char *const wait_texts[WAIT_N] = {
    [WAIT_SUM] = "worker 0 (node 0) waits in the collective x for worker 1",
    [WAIT_SUM_AGAIN] = "worker 0 (node 0) waits in the collective x for worker 1",
    [WAIT_TICKET] = "worker 0 (node 0) waits in the collective x for worker 1",
    [WAIT_SUM_OF_SET] = "worker 0 (node 0) waits in the collective x of set 1 for worker 1",
    [WAIT_JOIN] = "worker 0 (node 0) waits in a join for worker 1",
    [WAIT_NEW_SET] = "worker 0 (node 0) waits in a change of the sets of workers for worker 1",
};

START_TEST(a_collective_and_a_clock_that_wait_for_each_other_fail_the_task)
{
    const uint32_t ranks[] = { 0, 1 };
    const RubatoWorkerSet set = { ranks, 2 };
    Wait wait = (Wait)_i;
    RubatoEngine *engine = engine_of("bsp", 0);

    run_fails(engine,
              &(RubatoTask){ .name = "stuck",
                             .run = sum_or_get,
                             .user_data = &wait,
                             .tables = tables,
                             .workers_per_node = 2,
                             .sets = &set,
                             .n_sets = 1 },
              RUBATO_ERROR_DEADLOCK, "task stuck is in a deadlock: ", wait_texts[wait],
              "worker 1 (node 0) waits for clock 1 of table rows, where worker 0 is at 0", NULL);
    rubato_engine_free(engine);
}
END_TEST

static bool sum_or_meet(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    return rubato_worker_rank(worker) == 0 ? sum(worker, "x", 0, error)
                                           : rubato_worker_barrier(worker, error);
}

START_TEST(a_collective_and_a_barrier_that_wait_for_each_other_fail_the_task)
{
    RubatoEngine *engine = engine_of("asp", 0);

    run_fails(engine, &(RubatoTask){ .name = "stuck", .run = sum_or_meet, .workers_per_node = 3 },
              RUBATO_ERROR_DEADLOCK, "worker 0 (node 0) waits in the collective x for worker ",
              "waits in a barrier for worker 0", NULL);
    rubato_engine_free(engine);
}
END_TEST

/* ---- no deadlocks ---- */

typedef struct {
    Event go_on;
    _Atomic unsigned n_called_back;
} Scene;

static void call_back(RubatoTicket ticket, const GError *error, void *user_data)
{
    Scene *scene = user_data;

    (void)ticket;
    (void)error;
    atomic_fetch_add(&scene->n_called_back, 1);
}

/* One waits in a barrier, one for a clock, one for a callback's ticket, and the last computes. */
static bool wait_for_the_last(RubatoWorker *worker, void *user_data, GError **error)
{
    Scene *scene = user_data;
    const RubatoKey key = 0;
    int64_t value;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, "rows", RUBATO_I64, error);

    TRY(table != NULL);
    if (rubato_worker_rank(worker) == 3)
        TRY(event_await(&scene->go_on, 1, worker, error));
    if (rubato_worker_rank(worker) != 0)
        TRY(rubato_kv_table_clock(table, error));
    if (rubato_worker_rank(worker) == 2)
        TRY(rubato_kv_table_get_async(
                table, &key, 1, &value,
                &(RubatoRequestOptions){ .callback = call_back, .user_data = scene }, error) != 0 &&
            rubato_worker_wait_all(worker, error));
    if (rubato_worker_rank(worker) == 1)
        TRY(rubato_kv_table_get(table, &key, 1, &value, error));
    if (rubato_worker_rank(worker) == 0) {
        TRY(rubato_kv_table_clock(table, error));
        return true;
    }
    return rubato_worker_barrier(worker, error);
}

START_TEST(workers_that_wait_for_one_that_computes_go_on_when_it_does)
{
    Scene scene = { .go_on = EVENT_INIT };
    RubatoEngine *engine = engine_of("bsp", 0);
    RubatoTaskRun *run = rubato_engine_start(engine,
                                             &(RubatoTask){ .name = "long",
                                                            .run = wait_for_the_last,
                                                            .user_data = &scene,
                                                            .tables = tables,
                                                            .workers_per_node = 4 },
                                             NULL);
    GError *error = NULL;
    bool ok;

    ck_assert_ptr_nonnull(run);
    g_free(log_capture_wait("worker 1 waits for clock 1 of table rows", ""));
    g_free(log_capture_wait("worker 2 waits for clock 1 of table rows", ""));
    while (log_capture_count("worker 1 waits for clock 1") < 3)
        sched_yield();
    event_raise(&scene.go_on);
    ok = rubato_task_run_wait(run, &error);
    ck_assert_msg(ok, "%s", error == NULL ? "" : error->message);
    ck_assert_uint_eq(atomic_load(&scene.n_called_back), 1);
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("deadlock");
    TCase *cases = tcase_create("deadlock");

    tcase_add_loop_test(cases, a_barrier_and_a_clock_that_wait_for_each_other_fail_the_task, 0,
                        (int)(G_N_ELEMENTS(models) * G_N_ELEMENTS(meetings)));
    tcase_add_test(cases, tables_that_are_clocked_crosswise_fail_the_task);
    tcase_add_loop_test(cases, a_collective_and_a_clock_that_wait_for_each_other_fail_the_task, 0,
                        WAIT_N);
    tcase_add_test(cases, a_collective_and_a_barrier_that_wait_for_each_other_fail_the_task);
    tcase_add_test(cases, an_add_that_waits_for_a_worker_in_a_barrier_fails_the_task);
    tcase_add_test(cases, workers_that_wait_for_one_that_computes_go_on_when_it_does);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
