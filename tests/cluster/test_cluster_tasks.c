/* Tasks and collective calls over several processes: next to each other and one after the other,
 * with barriers between nodes and between workers. */
#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_private.h"
#include "tests/support/cluster/cluster_rows.h"
#include "tests/support/runner.h"

static const ClusterShape TWO_BY_TWO = { .n_nodes = 2, .nodes = { { 1, 2 }, { 1, 2 } } };
static const ClusterShape THREE = { .n_nodes = 3, .nodes = { { 1, 0 }, { 1, 2 }, { 0, 2 } } };

/* ---- next to each other ---- */

enum { N_TASKS = 4, N_CLOCKS = 20 };

typedef struct {
    const char *own;
    uint32_t n_clocks;
} TwoTables;

static bool add_to_two(RubatoWorker *worker, void *user_data, GError **error)
{
    const TwoTables *tables = user_data;

    return cluster_add_ones(worker, tables->own, tables->n_clocks, error) &&
           cluster_add_ones(worker, "shared", tables->n_clocks, error);
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
    if (!cluster_create_rows(engine, "shared", "bsp", error))
        return false;
    for (uint32_t i = 0; i < N_TASKS; i++) {
        if (!cluster_create_rows(engine, names[i], models[i], error))
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
        if (!cluster_expect_rows(engine, names[i], (float)(n_workers * scenes[i].n_clocks), error))
            return false;
    return cluster_expect_rows(engine, "shared", (float)total, error);
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
    return cluster_create_rows(engine, "a", "bsp", error);
}

static bool call_create_other_a(RubatoEngine *engine, GError **error)
{
    return cluster_create_rows(engine, "a", "ssp", error);
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
      "node 3 and node 7 create table a with different arguments: model ssp" },
};

static bool play_mismatch(RubatoEngine *engine, const void *data, GError **error)
{
    const int i = *(const int *)data;
    GError *found = NULL;

    if (!cluster_create_rows(engine, "old", "asp", error))
        return false;
    EXPECT(!mismatches[i].calls[engine->self](engine, &found), "different calls went well");
    /* In step again: nothing of it is left. */
    return cluster_expect_error(&found, RUBATO_ERROR_MISMATCH, mismatches[i].text, error) &&
           cluster_expect_rows(engine, "old", 0, error) &&
           cluster_create_rows(engine, "a", "bsp", error) &&
           cluster_expect_rows(engine, "a", 0, error) && call_run_b(engine, error);
}

START_TEST(different_calls_are_an_error_on_every_node_with_both_sides)
{
    ClusterRun *run = cluster_run_new(&TWO_BY_TWO);

    cluster_start(run, play_mismatch, &_i);
    cluster_expect_success(run);
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
    if (!cluster_create_rows(engine, "rows", "asp", error) ||
        !cluster_create_rows(engine, "marks", "asp", error) ||
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

/* Some workers return at once, some never call clock. */
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
    return cluster_add_ones(worker, "rows", N_CLOCKS, error);
}

static bool play_lazy(RubatoEngine *engine, const void *data, GError **error)
{
    const char *const tables[] = { "rows", NULL };

    return cluster_create_rows(engine, "rows", data, error) &&
           cluster_run_task(engine, "leave", leave_one_by_one, NULL, NULL, error) &&
           cluster_run_task(engine, "lazy", be_lazy, NULL, tables, error) &&
           cluster_expect_rows(engine, "rows", 2 * N_CLOCKS + 1, error);
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
    return cluster_add_ones(worker, "rows", 1, error);
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
    if (!cluster_create_rows(engine, "rows", "ssp", error))
        return false;
    for (uint32_t i = 0; i < n_tasks; i++) {
        if (i == N_WARM)
            warm = measure();
        if (!rubato_engine_run(engine, &task, error))
            return false;
    }
    do /* a thread that was joined is counted a little longer: the case's time is the bound */
        at_last = measure();
    while (at_last.threads > warm.threads && sched_yield() == 0);
    EXPECT(at_last.threads <= warm.threads, "%ld threads after %u tasks, %ld after %u",
           at_last.threads, n_tasks, warm.threads, N_WARM);
    EXPECT(at_last.fds <= warm.fds, "%ld descriptors, %ld", at_last.fds, warm.fds);
    /* A kilobyte for each task would show. What a sanitizer keeps for itself is none of ours, nor
     * are UCX's pools, which grow for longer than this (by 800 kB; not more in 5,000 tasks). */
    if (cluster_slowness() == 1 && g_strcmp0(g_getenv("RUBATO_TEST_TRANSPORT"), "ucx") != 0)
        EXPECT(at_last.rss_kb <= warm.rss_kb + 512, "%ld kB, %ld", at_last.rss_kb, warm.rss_kb);
    return cluster_expect_rows(engine, "rows", (float)(n_tasks * WORKERS_OF_MANY), error);
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
    return cluster_add_ones(worker, "rows", 3, error);
}

static bool play_deadlock(RubatoEngine *engine, const void *data, GError **error)
{
    const char *const tables[] = { "rows", NULL };
    g_autoptr(GError) found = NULL;

    (void)data;
    if (!cluster_create_rows(engine, "rows", "bsp", error))
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

/* The sum comes by the same name again and again: nodes agree on it among themselves. */
static bool sum_or_get(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 0;
    const bool is_last = rubato_worker_rank(worker) == rubato_worker_n_workers(worker) - 1;
    float row;
    double value = 1;
    const RubatoTensor tensor = {
        .name = "x", .dtype = RUBATO_F64, .input = &value, .output = &value
    };
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_F32, error);

    (void)user_data;
    if (table == NULL)
        return false;
    for (unsigned i = 0; i < (is_last ? 5 : 6); i++)
        if (!rubato_worker_allreduce(worker, &tensor, /* reduce= */ NULL, error))
            return false;
    return rubato_kv_table_clock(table, error) && rubato_kv_table_get(table, &key, 1, &row, error);
}

static bool play_deadlock_in_collective(RubatoEngine *engine, const void *data, GError **error)
{
    const char *const tables[] = { "rows", NULL };
    g_autoptr(GError) found = NULL;

    (void)data;
    if (!cluster_create_rows(engine, "rows", "bsp", error))
        return false;
    EXPECT(!cluster_run_task(engine, "stuck", sum_or_get, NULL, tables, &found), "%s", "it ended");
    EXPECT(strstr(found->message, "waits in the collective x for worker 3") != NULL, "%s",
           found->message);
    if (!cluster_expect_error(&found, RUBATO_ERROR_DEADLOCK,
                              "worker 3 (node 7) waits for clock 1 of table rows, where worker",
                              error))
        return false;
    return cluster_run_task(engine, "adds", add_to_rows, NULL, tables, error);
}

START_TEST(a_deadlock_in_a_collective_between_nodes_fails_the_task_on_all)
{
    ClusterRun *run = cluster_run_new(&TWO_BY_TWO);

    cluster_start(run, play_deadlock_in_collective, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

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
    TCase *barriers = cluster_add_case(suite, "barriers");
    TCase *many = cluster_add_case(suite, "many");

    tcase_add_test(together, tasks_on_shared_tables_have_clocks_of_their_own);
    tcase_add_test(together, an_allocation_gives_nodes_their_workers);
    tcase_add_loop_test(calls, different_calls_are_an_error_on_every_node_with_both_sides, 0,
                        (int)G_N_ELEMENTS(mismatches));
    tcase_add_test(calls, a_deadlock_between_nodes_fails_the_task_on_all);
    tcase_add_test(calls, a_deadlock_in_a_collective_between_nodes_fails_the_task_on_all);
    tcase_add_loop_test(barriers, what_was_added_before_a_barrier_is_seen_after_it, 0, 2);
    tcase_add_loop_test(barriers, workers_that_return_early_hold_nobody_back, 0, 4);
    tcase_add_test(many, a_thousand_tasks_leave_threads_descriptors_and_memory_as_they_were);
    return suite;
}

int main(void)
{
    return run_suite(tasks_suite());
}
