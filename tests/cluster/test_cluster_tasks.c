/* Tasks and collective calls over several processes: next to each other, one after the other,
 * failing and cancelled, with barriers between nodes and between workers. */
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "engine/node.h"
#include "tests/support/cluster_run.h"
#include "tests/support/runner.h"

static const ClusterShape TWO_BY_TWO = { .n_nodes = 2, .nodes = { { 1, 2 }, { 1, 2 } } };
static const ClusterShape THREE = { .n_nodes = 3, .nodes = { { 1, 0 }, { 1, 2 }, { 0, 2 } } };

static bool create(RubatoEngine *engine, const char *name, const char *model, GError **error)
{
    const RubatoTableSpec spec = { .name = name, .n_keys = 10, .model = model, .staleness = 1 };

    return rubato_engine_create_table(engine, &spec, error);
}

static bool expect_all(RubatoEngine *engine, const char *table, float expected, GError **error)
{
    float values[10];

    if (!rubato_engine_get_range(engine, table, 0, 10, values, error))
        return false;
    for (int i = 0; i < 10; i++)
        EXPECT(values[i] == expected, "table %s: key %d is %g, expected %g", table, i,
               (double)values[i], (double)expected);
    return true;
}

/* Adds 1 to all keys of a table in each of n clocks. */
static bool add_ones(RubatoWorker *worker, const char *name, uint32_t n_clocks, GError **error)
{
    const float ones[10] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    float values[10];
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, name, RUBATO_F32, error);

    if (table == NULL)
        return false;
    for (uint32_t i = 0; i < n_clocks; i++)
        if (!rubato_kv_table_get_range(table, 0, 10, values, error) ||
            !rubato_kv_table_add_range(table, 0, 10, ones, error) ||
            !rubato_kv_table_clock(table, error))
            return false;
    return true;
}

/* ---- next to each other ---- */

enum { N_TASKS = 4, N_CLOCKS = 20 };

typedef struct {
    const char *own;
    uint32_t n_clocks;
} TwoTables;

static bool add_to_two(RubatoWorker *worker, void *user_data, GError **error)
{
    const TwoTables *tables = user_data;

    return add_ones(worker, tables->own, tables->n_clocks, error) &&
           add_ones(worker, "shared", tables->n_clocks, error);
}

static bool play_together(RubatoEngine *engine, const void *data, GError **error)
{
    static const char *const names[N_TASKS] = { "a", "b", "c", "d" };
    static const char *const models[N_TASKS] = { "bsp", "ssp", "asp", "bsp" };
    const uint32_t n_workers = rubato_engine_n_workers(engine);
    RubatoTaskRun *runs[N_TASKS];
    TwoTables scenes[N_TASKS];
    uint32_t total = 0;

    (void)data;
    if (!create(engine, "shared", "bsp", error))
        return false;
    for (uint32_t i = 0; i < N_TASKS; i++) {
        if (!create(engine, names[i], models[i], error))
            return false;
        scenes[i] = (TwoTables){ names[i], N_CLOCKS + i };
        total += n_workers * scenes[i].n_clocks;
    }
    for (uint32_t i = 0; i < N_TASKS; i++) {
        const char *const tables[] = { "shared", names[i], NULL };
        const RubatoTask task = {
            .name = names[i], .run = add_to_two, .user_data = &scenes[i], .tables = tables
        };

        runs[i] = rubato_engine_start(engine, &task, error);
        if (runs[i] == NULL)
            return false;
    }
    /* Each node waits for them in another order. */
    for (uint32_t i = 0; i < N_TASKS; i++)
        if (!rubato_task_run_wait(runs[(i + engine->self) % N_TASKS], error))
            return false;
    for (uint32_t i = 0; i < N_TASKS; i++)
        if (!expect_all(engine, names[i], (float)(n_workers * scenes[i].n_clocks), error))
            return false;
    return expect_all(engine, "shared", (float)total, error);
}

START_TEST(tasks_on_shared_tables_have_clocks_of_their_own)
{
    ClusterRun *run = cluster_run_new(&TWO_BY_TWO);

    cluster_start(run, play_together, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- allocation and what a worker is told ---- */

static bool check_worker(RubatoWorker *worker, void *user_data, GError **error)
{
    static const uint32_t nodes[] = { 3, 3, 3, 20 };
    const uint32_t rank = rubato_worker_rank(worker);

    (void)user_data;
    EXPECT(rubato_worker_n_workers(worker) == 4 && rank < 4, "rank %u", rank);
    EXPECT(rubato_worker_node(worker) == nodes[rank], "rank %u on node %u", rank,
           rubato_worker_node(worker));
    EXPECT(rubato_worker_local_rank(worker) == (rank < 3 ? rank : 0), "rank %u is %u there", rank,
           rubato_worker_local_rank(worker));
    EXPECT(rubato_worker_n_local_workers(worker) == (rank < 3 ? 3 : 1), "rank %u", rank);
    return true;
}

static bool play_allocation(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoAllocation allocation[] = { { 20, 1 }, { 3, 3 } };
    const RubatoAllocation unknown[] = { { 4, 1 } };
    RubatoTask task = { .name = "listed",
                        .run = check_worker,
                        .allocation = allocation,
                        .n_allocation = G_N_ELEMENTS(allocation) };
    GError *found = NULL;

    (void)data;
    if (!rubato_engine_run(engine, &task, error))
        return false;
    task.allocation = unknown;
    task.n_allocation = 1;
    EXPECT(!rubato_engine_run(engine, &task, &found), "there is no node 4");
    return cluster_expect_error(&found, RUBATO_ERROR_INVALID,
                                "its allocation names node 4, which the run does not have", error);
}

START_TEST(an_allocation_gives_nodes_their_workers)
{
    ClusterRun *run = cluster_run_new(&THREE);

    cluster_start(run, play_allocation, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- mismatches ---- */

static bool do_nothing(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)worker;
    (void)user_data;
    (void)error;
    return true;
}

static bool call_create_a(RubatoEngine *engine, GError **error)
{
    return create(engine, "a", "bsp", error);
}

static bool call_create_other_a(RubatoEngine *engine, GError **error)
{
    return create(engine, "a", "ssp", error);
}

static bool call_run_b(RubatoEngine *engine, GError **error)
{
    return cluster_run_task(engine, "b", do_nothing, NULL, NULL, error);
}

static bool call_run_c(RubatoEngine *engine, GError **error)
{
    return cluster_run_task(engine, "c", do_nothing, NULL, NULL, error);
}

static bool call_drop_old(RubatoEngine *engine, GError **error)
{
    return rubato_engine_drop_table(engine, "old", error);
}

typedef bool (*Call1)(RubatoEngine *engine, GError **error);

static const struct {
    Call1 calls[2]; /* of nodes 3 and 7 */
    const char *text;
} mismatches[] = {
    { { call_create_a, call_run_b }, "node 7 ran task b while node 3 created table a" },
    { { call_run_c, call_run_b }, "node 7 ran task b while node 3 ran task c" },
    { { call_drop_old, rubato_engine_barrier },
      "node 7 waited in a barrier while node 3 dropped table old" },
    { { call_create_other_a, call_create_a },
      "node 3 and node 7 create table a with different arguments: " },
};

static bool play_mismatch(RubatoEngine *engine, const void *data, GError **error)
{
    const int i = *(const int *)data;
    GError *found = NULL;

    if (!create(engine, "old", "asp", error))
        return false;
    EXPECT(!mismatches[i].calls[engine->self](engine, &found), "different calls went well");
    /* In step again: nothing of it is left. */
    return cluster_expect_error(&found, RUBATO_ERROR_MISMATCH, mismatches[i].text, error) &&
           expect_all(engine, "old", 0, error) && create(engine, "a", "bsp", error) &&
           expect_all(engine, "a", 0, error) && call_run_b(engine, error);
}

START_TEST(different_calls_are_an_error_on_every_node_with_both_sides)
{
    ClusterRun *run = cluster_run_new(&TWO_BY_TWO);

    cluster_start(run, play_mismatch, &_i);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

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
    if (!create(engine, "a", "bsp", error) || engine->self == 1)
        return engine->self == 1;
    EXPECT(!call_run_b(engine, &found), "a task ran without node 7");
    if (!cluster_expect_error(&found, RUBATO_ERROR_MISMATCH,
                              "node 7 left the run while node 3 ran task b", error))
        return false;
    EXPECT(!rubato_engine_barrier(engine, &found), "a barrier without node 7");
    return cluster_expect_error(&found, RUBATO_ERROR_MISMATCH, "node 7 left the run", error);
}

/* And waits, for its servers are needed, until the others leave, too. docs/liveness.md: The end */
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
    IN_GET,
    IN_BARRIER,
    IN_TICKET,
    IN_NOTHING,
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
    case IN_GET:
        return rubato_kv_table_get(table, &key, 1, &value, error);
    case IN_BARRIER:
        return rubato_worker_barrier(worker, error);
    case IN_TICKET: {
        g_autoptr(RubatoKVClientTable) client =
            rubato_worker_open_kv_client_table(worker, "rows", RUBATO_F32, error);
        const RubatoTicket ticket =
            rubato_kv_client_table_get_async(client, &key, 1, &value, NULL, NULL, error);
        return ticket != 0 && rubato_kv_client_table_wait(client, ticket, error);
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
    EXPECT(!block(worker, scene->place, table, &found) || scene->place == IN_NOTHING,
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
    return add_ones(worker, "rows", N_CLOCKS, error);
}

static bool play_failing(RubatoEngine *engine, const void *data, GError **error)
{
    const char *const tables[] = { "rows", NULL };
    const Failing scene = { *(const Place *)data, engine };
    const uint32_t n_workers = rubato_engine_n_workers(engine);
    GError *found = NULL;

    if (!create(engine, "rows", "bsp", error))
        return false;
    for (uint32_t i = 1; i <= 3; i++) {
        EXPECT(!cluster_run_task(engine, "weak", fail_one, &scene, tables, &found), "it went well");
        if (!cluster_expect_error(&found, RUBATO_ERROR_TASK_FAILED,
                                  "task weak: worker 1 (node 7) failed: no paper in the printer",
                                  error))
            return false;
        /* Nobody begins anew before all have read. Their first clock was over, the second not. */
        if (!expect_all(engine, "rows", (float)(i * n_workers), error) ||
            !rubato_engine_barrier(engine, error))
            return false;
    }
    return cluster_run_task(engine, "strong", add_ones_to_rows, NULL, tables, error) &&
           expect_all(engine, "rows", (float)((3 + N_CLOCKS) * n_workers), error);
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
        g_thread_yield();
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
    shape.timeout_ms = 1000 * cluster_slowness();
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

/* ---- barriers ---- */

enum { N_ROUNDS = 15 };

/* Under ASP nothing but the barrier orders anything. */
static bool meet_again_and_again(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t n_workers = rubato_worker_n_workers(worker);
    const float ones[10] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    float values[10];
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_F32, error);

    (void)user_data;
    if (table == NULL)
        return false;
    for (uint32_t round = 1; round <= N_ROUNDS; round++) {
        if (!rubato_kv_table_add_range(table, 0, 10, ones, error) ||
            !rubato_worker_barrier(worker, error) ||
            !rubato_kv_table_get_range(table, 0, 10, values, error) ||
            !rubato_worker_barrier(worker, error))
            return false;
        for (int i = 0; i < 10; i++)
            EXPECT(values[i] == (float)(n_workers * round), "key %d is %g in round %u", i,
                   (double)values[i], round);
    }
    return true;
}

static bool play_barriers(RubatoEngine *engine, const void *data, GError **error)
{
    const char *const tables[] = { "rows", NULL };
    const RubatoKey own = engine->self;
    float values[3];

    (void)data;
    if (!create(engine, "rows", "asp", error) || !create(engine, "marks", "asp", error) ||
        !cluster_run_task(engine, "meet", meet_again_and_again, NULL, tables, error))
        return false;
    for (uint32_t round = 1; round <= N_ROUNDS; round++) {
        const float one = 1;

        if (!rubato_engine_add(engine, "marks", &own, 1, &one, error) ||
            !rubato_engine_barrier(engine, error) ||
            !rubato_engine_get_range(engine, "marks", 0, 3, values, error) ||
            !rubato_engine_barrier(engine, error))
            return false;
        for (uint32_t node = 0; node < engine->n_nodes; node++)
            EXPECT(values[node] == (float)round, "the mark of node number %u is %g in round %u",
                   node, (double)values[node], round);
    }
    return true;
}

START_TEST(what_was_added_before_a_barrier_is_seen_after_it)
{
    ClusterRun *run = cluster_run_new(_i == 0 ? &TWO_BY_TWO : &THREE);

    cluster_start(run, play_barriers, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* Workers leave one by one; those that stay meet without them. */
static bool leave_one_by_one(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    for (uint32_t i = 0; i < rubato_worker_rank(worker); i++)
        if (!rubato_worker_barrier(worker, error))
            return false;
    return true;
}

/* Some return before they have done anything, some never call clock. */
static bool be_lazy(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);

    (void)user_data;
    if (rank == 0)
        return true;
    if (rank == 1) {
        const float ones[10] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
        g_autoptr(RubatoKVTable) table =
            rubato_worker_open_kv_table(worker, "rows", RUBATO_F32, error);

        return table != NULL && rubato_kv_table_add_range(table, 0, 10, ones, error);
    }
    return add_ones(worker, "rows", N_CLOCKS, error);
}

static bool play_lazy(RubatoEngine *engine, const void *data, GError **error)
{
    const char *const tables[] = { "rows", NULL };

    return create(engine, "rows", data, error) &&
           cluster_run_task(engine, "leave", leave_one_by_one, NULL, NULL, error) &&
           cluster_run_task(engine, "lazy", be_lazy, NULL, tables, error) &&
           expect_all(engine, "rows", 2 * N_CLOCKS + 1, error);
}

START_TEST(workers_that_return_early_hold_nobody_back)
{
    static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp" };
    ClusterRun *run = cluster_run_new(&TWO_BY_TWO);

    cluster_start(run, play_lazy, models[_i]);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- a thousand tasks ---- */

enum { N_MANY = 1000, N_WARM = 100, WORKERS_OF_MANY = 10 };

typedef struct {
    long threads, fds, rss_kb;
} Usage;

static long status_number(const char *label)
{
    g_autofree char *text = NULL;
    const char *at;

    if (!g_file_get_contents("/proc/self/status", &text, NULL, NULL) ||
        (at = strstr(text, label)) == NULL)
        return -1;
    return strtol(at + strlen(label), NULL, 10);
}

static Usage measure(void)
{
    Usage usage = { status_number("Threads:"), 0, status_number("VmRSS:") };
    DIR *dir = opendir("/proc/self/fd");

    while (dir != NULL && readdir(dir) != NULL)
        usage.fds++;
    closedir(dir);
    return usage;
}

static bool add_a_little(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    return add_ones(worker, "rows", 1, error);
}

static bool play_many_tasks(RubatoEngine *engine, const void *data, GError **error)
{
    const char *const tables[] = { "rows", NULL };
    const RubatoTask task = { .name = "little",
                              .run = add_a_little,
                              .tables = tables,
                              .workers_per_node = WORKERS_OF_MANY / 2 };
    const uint32_t n_tasks = N_MANY / cluster_slowness();
    Usage warm = { 0 }, at_last;

    (void)data;
    if (!create(engine, "rows", "ssp", error))
        return false;
    for (uint32_t i = 0; i < n_tasks; i++) {
        if (i == N_WARM)
            warm = measure();
        if (!rubato_engine_run(engine, &task, error))
            return false;
    }
    at_last = measure();
    EXPECT(at_last.threads <= warm.threads, "%ld threads after %u tasks, %ld after %u",
           at_last.threads, n_tasks, warm.threads, N_WARM);
    EXPECT(at_last.fds <= warm.fds, "%ld descriptors, %ld", at_last.fds, warm.fds);
    /* A kilobyte for each task would show. What a sanitizer keeps for itself is none of ours. */
    if (cluster_slowness() == 1)
        EXPECT(at_last.rss_kb <= warm.rss_kb + 512, "%ld kB, %ld", at_last.rss_kb, warm.rss_kb);
    return expect_all(engine, "rows", (float)(n_tasks * WORKERS_OF_MANY), error);
}

START_TEST(a_thousand_tasks_leave_threads_descriptors_and_memory_as_they_were)
{
    ClusterRun *run = cluster_run_new(&TWO_BY_TWO);

    cluster_start(run, play_many_tasks, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- workers that wait for one another ---- */

/* The first worker of each node comes to a barrier; the last of all wants its clock before. */
static bool meet_or_get(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 0;
    float value;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_F32, error);

    (void)user_data;
    if (table == NULL)
        return false;
    if (rubato_worker_rank(worker) == rubato_worker_n_workers(worker) - 1 &&
        (!rubato_kv_table_clock(table, error) ||
         !rubato_kv_table_get(table, &key, 1, &value, error)))
        return false;
    return rubato_worker_barrier(worker, error);
}

static bool add_to_rows(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    return add_ones(worker, "rows", 3, error);
}

static bool play_deadlock(RubatoEngine *engine, const void *data, GError **error)
{
    const char *const tables[] = { "rows", NULL };
    g_autoptr(GError) found = NULL;

    (void)data;
    if (!create(engine, "rows", "bsp", error))
        return false;
    EXPECT(!cluster_run_task(engine, "stuck", meet_or_get, NULL, tables, &found), "%s", "it ended");
    EXPECT(strstr(found->message, "waits in a barrier for worker 3") != NULL, "%s", found->message);
    if (!cluster_expect_error(&found, RUBATO_ERROR_DEADLOCK,
                              "worker 3 (node 7) waits for clock 1 of table rows, where worker",
                              error))
        return false;
    /* The engine and its tables go on. */
    return cluster_run_task(engine, "adds", add_to_rows, NULL, tables, error);
}

START_TEST(a_deadlock_between_nodes_fails_the_task_on_all)
{
    ClusterRun *run = cluster_run_new(&TWO_BY_TWO);

    cluster_start(run, play_deadlock, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

static Suite *tasks_suite(void)
{
    Suite *suite = suite_create("tasks over several processes");
    TCase *together = cluster_add_case(suite, "together");
    TCase *calls = cluster_add_case(suite, "calls");
    TCase *failing = cluster_add_case(suite, "failing");
    TCase *cancelling = cluster_add_case(suite, "cancelling");
    TCase *barriers = cluster_add_case(suite, "barriers");
    TCase *many = cluster_add_case(suite, "many");

    tcase_add_test(together, tasks_on_shared_tables_have_clocks_of_their_own);
    tcase_add_test(together, an_allocation_gives_nodes_their_workers);
    tcase_add_loop_test(calls, different_calls_are_an_error_on_every_node_with_both_sides, 0,
                        (int)G_N_ELEMENTS(mismatches));
    tcase_add_test(calls, a_node_that_leaves_early_fails_the_calls_of_the_others);
    tcase_add_test(calls, a_node_that_leaves_in_a_task_cancels_it);
    tcase_add_test(calls, a_deadlock_between_nodes_fails_the_task_on_all);
    tcase_add_loop_test(failing, a_failing_worker_is_named_on_every_node_and_the_next_task_runs, 0,
                        N_PLACES);
    tcase_add_test(cancelling, a_worker_may_cancel_the_tasks_of_all_nodes);
    tcase_add_loop_test(cancelling, a_signal_to_one_node_ends_the_run_in_order, 0,
                        (int)G_N_ELEMENTS(signals));
    tcase_add_loop_test(cancelling, a_second_signal_ends_a_node_at_once, 0, 2);
    tcase_add_loop_test(barriers, what_was_added_before_a_barrier_is_seen_after_it, 0, 2);
    tcase_add_loop_test(barriers, workers_that_return_early_hold_nobody_back, 0, 4);
    tcase_add_test(many, a_thousand_tasks_leave_threads_descriptors_and_memory_as_they_were);
    return suite;
}

int main(void)
{
    return run_suite(tasks_suite());
}
