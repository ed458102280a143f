/* Tasks over several processes that end early: a node leaves, a worker fails, a node cancels, a
 * signal comes. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine_private.h"
#include "tests/support/cluster/cluster_rows.h"
#include "tests/support/runner.h"

static const ClusterShape TWO_BY_TWO = { .n_nodes = 2, .nodes = { { 1, 2 }, { 1, 2 } } };
static const ClusterShape THREE = { .n_nodes = 3, .nodes = { { 1, 0 }, { 1, 2 }, { 0, 2 } } };

enum { N_CLOCKS = 20 };

static bool do_nothing(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)worker;
    (void)user_data;
    (void)error;
    return true;
}

static bool run_b(RubatoEngine *engine, GError **error)
{
    return cluster_run_task(engine, "b", do_nothing, NULL, NULL, error);
}

/* ---- leaving early ---- */

static bool wait_for_cancellation(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    (void)error;
    if (rubato_worker_rank(worker) == 0)
        cluster_say("waiting");
    while (!rubato_worker_cancelled(worker))
        if (rubato_worker_rank(worker) == 0)
            g_thread_yield();
        else
            return rubato_worker_barrier(worker, error);
    return true;
}

static bool play_leaving_before_a_call(RubatoEngine *engine, const void *data, GError **error)
{
    GError *found = NULL;

    (void)data;
    if (!cluster_create_rows(engine, "a", "bsp", error) || engine->self == 1)
        return engine->self == 1;
    EXPECT(!run_b(engine, &found), "a task ran without node 7");
    if (!cluster_expect_error(&found, RUBATO_ERROR_MISMATCH,
                              "node 7 left the run while node 3 ran task b", error))
        return false;
    EXPECT(!rubato_engine_barrier(engine, &found), "a barrier without node 7");
    return cluster_expect_error(&found, RUBATO_ERROR_MISMATCH, "node 7 left the run", error);
}

/* It waits until the others leave too, because its servers are needed. docs/liveness.md: The end */
START_TEST(a_node_that_leaves_early_fails_the_calls_of_the_others)
{
    ClusterRun *run = cluster_run_new(&TWO_BY_TWO);

    cluster_start(run, play_leaving_before_a_call, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* Node 20 frees its engine while its own worker and the others' are in the task. */
static bool play_leaving_in_a_task(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTask task = { .name = "long", .run = wait_for_cancellation };
    RubatoTaskRun *started = rubato_engine_start(engine, &task, error);
    GError *found = NULL;

    (void)data;
    if (started == NULL)
        return false;
    if (engine->self == 2)
        return true; /* and the engine is freed with its run */
    EXPECT(!rubato_task_run_wait(started, &found), "the task went well");
    return cluster_expect_error(&found, RUBATO_ERROR_CANCELLED, "node 20 cancelled its tasks",
                                error);
}

START_TEST(a_node_that_leaves_in_a_task_cancels_it)
{
    ClusterRun *run = cluster_run_new(&THREE);

    cluster_start(run, play_leaving_in_a_task, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- failing ---- */

typedef enum {
    PLACE_GET,
    PLACE_BARRIER,
    PLACE_TICKET,
    PLACE_NOTHING,
    N_PLACES,
} Place;

typedef struct {
    Place place;
    RubatoEngine *engine;
} Failing;

static bool block(RubatoWorker *worker, Place place, RubatoKVTable *table, GError **error)
{
    const RubatoKey key = 9; /* of the last server */
    float value;

    switch (place) {
    case PLACE_GET:
        return rubato_kv_table_get(table, &key, 1, &value, error);
    case PLACE_BARRIER:
        return rubato_worker_barrier(worker, error);
    case PLACE_TICKET: {
        g_autoptr(RubatoKVTable) client =
            rubato_worker_open_kv_table_cached(worker, "rows", RUBATO_F32, error);
        const RubatoTicket ticket = rubato_kv_table_get_async(client, &key, 1, &value, NULL, error);
        return ticket != 0 && rubato_worker_wait(worker, ticket, error);
    }
    default:
        return wait_for_cancellation(worker, NULL, error);
    }
}

/* Worker 1 fails in its second clock, after an Add that must not count; the others wait for it. */
static bool fail_one(RubatoWorker *worker, void *user_data, GError **error)
{
    const Failing *scene = user_data;
    const bool fails = rubato_worker_rank(worker) == 1;
    const float ones[10] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    GError *found = NULL;
    float values[10];
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_F32, error);

    if (table == NULL || !rubato_kv_table_add_range(table, 0, 10, ones, error) ||
        !rubato_kv_table_clock(table, error) ||
        !rubato_kv_table_get_range(table, 0, 10, values, error) ||
        !rubato_kv_table_add_range(table, 0, 10, ones, error))
        return false;
    if (fails) {
        if (!rubato_worker_barrier(worker, error))
            return false;
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "no paper in the printer");
        return false;
    }
    if (!rubato_kv_table_clock(table, error) || !rubato_worker_barrier(worker, error))
        return false;
    EXPECT(!block(worker, scene->place, table, &found) || scene->place == PLACE_NOTHING,
           "nobody waited");
    if (found != NULL && !cluster_expect_error(&found, RUBATO_ERROR_CANCELLED, "", error))
        return false;
    /* So does every later call. */
    EXPECT(!rubato_kv_table_get_range(table, 0, 10, values, &found), "a Get in a failed task");
    return cluster_expect_error(&found, RUBATO_ERROR_CANCELLED, "", error);
}

static bool add_ones_to_rows(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    return cluster_add_ones(worker, "rows", N_CLOCKS, error);
}

static bool play_failing(RubatoEngine *engine, const void *data, GError **error)
{
    const char *const tables[] = { "rows", NULL };
    const Failing scene = { *(const Place *)data, engine };
    const uint32_t n_workers = rubato_engine_n_workers(engine);
    GError *found = NULL;

    if (!cluster_create_rows(engine, "rows", "bsp", error))
        return false;
    for (uint32_t i = 1; i <= 3; i++) {
        EXPECT(!cluster_run_task(engine, "weak", fail_one, &scene, tables, &found), "it went well");
        if (!cluster_expect_error(&found, RUBATO_ERROR_TASK_FAILED,
                                  "task weak: worker 1 (node 7) failed: no paper in the printer",
                                  error))
            return false;
        /* No node begins again before all have read. Their first clock was over, the second was
         * not. */
        if (!cluster_expect_rows(engine, "rows", (float)(i * n_workers), error) ||
            !rubato_engine_barrier(engine, error))
            return false;
    }
    return cluster_run_task(engine, "strong", add_ones_to_rows, NULL, tables, error) &&
           cluster_expect_rows(engine, "rows", (float)((3 + N_CLOCKS) * n_workers), error);
}

START_TEST(a_failing_worker_is_named_on_every_node_and_the_next_task_runs)
{
    const Place place = (Place)_i;
    ClusterRun *run = cluster_run_new(&THREE);

    cluster_start(run, play_failing, &place);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- cancelling ---- */

static bool cancel_from_inside(RubatoWorker *worker, void *user_data, GError **error)
{
    if (rubato_worker_rank(worker) == 3)
        rubato_engine_cancel(user_data);
    return wait_for_cancellation(worker, NULL, error);
}

static bool play_cancelling(RubatoEngine *engine, const void *data, GError **error)
{
    GError *found = NULL;

    (void)data;
    EXPECT(!cluster_run_task(engine, "long", cancel_from_inside, engine, NULL, &found), "it ended");
    return cluster_expect_error(&found, RUBATO_ERROR_CANCELLED, "node 20 cancelled its tasks",
                                error) &&
           cluster_run_task(engine, "short", do_nothing, NULL, NULL, error);
}

START_TEST(a_worker_may_cancel_the_tasks_of_all_nodes)
{
    ClusterRun *run = cluster_run_new(&THREE);

    cluster_start(run, play_cancelling, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

static bool play_until_signalled(RubatoEngine *engine, const void *data, GError **error)
{
    (void)data;
    return cluster_run_task(engine, "long", wait_for_cancellation, NULL, NULL, error);
}

static const struct {
    int number;
    uint32_t node;
    const char *text;
} signals[] = {
    { SIGINT, 1, "error 12: node 7 was ended by signal 2 (Interrupt)\n" },
    { SIGTERM, 0, "error 12: node 3 was ended by signal 15 (Terminated)\n" },
    { SIGTERM, 2, "error 12: node 20 was ended by signal 15 (Terminated)\n" },
};

START_TEST(a_signal_to_one_node_ends_the_run_in_order)
{
    ClusterShape shape = THREE;
    ClusterRun *run;

    shape.handle_signals = true;
    run = cluster_run_new(&shape);
    cluster_start(run, play_until_signalled, NULL);
    cluster_wait_for(run, 1, "waiting"); /* worker 0 is there */
    cluster_signal(run, signals[_i].node, signals[_i].number);
    for (uint32_t i = 0; i < 3; i++) {
        cluster_expect_end(run, i, CLUSTER_FAILED);
        cluster_expect_text(run, i, signals[_i].text);
    }
    cluster_run_free(run);
}
END_TEST

static bool ignore_cancellation(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t *victim = user_data;

    (void)error;
    cluster_say("working");
    while (!rubato_worker_cancelled(worker))
        g_thread_yield();
    if (rubato_worker_node(worker) != CLUSTER_IDS[*victim]) {
        cluster_say("told");
        return true;
    }
    cluster_say("cancelled, but I have time");
    for (;;)
        pause();
}

static bool play_stubborn(RubatoEngine *engine, const void *data, GError **error)
{
    return cluster_run_task(engine, "stubborn", ignore_cancellation, data, NULL, error);
}

/* The first one has told the other node why. docs/liveness.md: An interrupt */
START_TEST(a_second_signal_ends_a_node_at_once)
{
    const uint32_t victim = (uint32_t)_i;
    ClusterShape shape = TWO_BY_TWO;
    ClusterRun *run;
    g_autofree char *text =
        g_strdup_printf("error 12: node %u was ended by signal 2", CLUSTER_IDS[victim]);

    shape.handle_signals = true;
    shape.heartbeat_ms = 100;
    shape.timeout_ms = cluster_short_timeout_ms();
    run = cluster_run_new(&shape);
    cluster_start(run, play_stubborn, &victim);
    for (uint32_t node = 0; node < 2; node++)
        cluster_wait_for(run, node, "working");
    cluster_signal(run, victim, SIGINT);
    cluster_wait_for(run, victim, "cancelled, but I have time");
    cluster_wait_for(run, 1 - victim, "told"); /* what is on its way may die with its sender */
    cluster_signal(run, victim, SIGINT);
    cluster_expect_end(run, victim, 128 + SIGINT);
    cluster_expect_end(run, 1 - victim, CLUSTER_FAILED);
    cluster_expect_text(run, 1 - victim, text);
    cluster_run_free(run);
}
END_TEST

static Suite *cancel_suite(void)
{
    Suite *suite = suite_create("cancelled tasks");
    TCase *leaving = cluster_add_case(suite, "leaving");
    TCase *failing = cluster_add_case(suite, "failing");
    TCase *cancelling = cluster_add_case(suite, "cancelling");

    tcase_add_test(leaving, a_node_that_leaves_early_fails_the_calls_of_the_others);
    tcase_add_test(leaving, a_node_that_leaves_in_a_task_cancels_it);
    tcase_add_loop_test(failing, a_failing_worker_is_named_on_every_node_and_the_next_task_runs, 0,
                        N_PLACES);
    tcase_add_test(cancelling, a_worker_may_cancel_the_tasks_of_all_nodes);
    tcase_add_loop_test(cancelling, a_signal_to_one_node_ends_the_run_in_order, 0,
                        (int)G_N_ELEMENTS(signals));
    tcase_add_loop_test(cancelling, a_second_signal_ends_a_node_at_once, 0, 2);
    return suite;
}

int main(void)
{
    return run_suite(cancel_suite());
}
