/* A node with workers is killed, and a process that takes its place runs the program from the
 * beginning: its calls end as those of the others had ended, what it sets again has no effect, and
 * from the call on that the others have yet to make it has its part in all, with its workers.
 *
 * docs/replication.md: A process that runs its program. */
#include <signal.h>
#include <stdatomic.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N_NODES = 3, VICTIM = 2, N_WORKERS = 5, N_KEYS = 100, ADDED_ONCE = N_KEYS, ROUNDS = 20 };

static const ClusterShape shape = { .n_nodes = N_NODES,
                                    .nodes = { { 1, 1 }, { 1, 2 }, { 1, 2 } },
                                    .catches_up = true };

/* Where no table of the run was lost with the first process. */
static const RubatoTableSpec specs[] = {
    { .name = "rows", .model = "bsp", .dtype = RUBATO_I64, .n_keys = N_KEYS + 1, .replicas = 1 },
    { .name = "rows",
      .model = "ssp",
      .staleness = 2,
      .dtype = RUBATO_I64,
      .storage = "hash",
      .replicas = 1 },
    { .name = "rows", .model = "asp", .dtype = RUBATO_I64, .storage = "hash", .replicas = 1 },
};

static atomic_int stops, goes_on;

static void stop(int number)
{
    (void)number;
    atomic_store(&stops, 1);
}

static void go_on(int number)
{
    (void)number;
    atomic_store(&goes_on, 1);
}

/* Adds 1 to all keys in each round. */
static bool add_rounds(RubatoWorker *worker, const char *name, int64_t n_rounds, GError **error)
{
    int64_t ones[N_KEYS], rows[N_KEYS];
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, name, RUBATO_I64, error);

    TRY(table != NULL);
    for (size_t i = 0; i < N_KEYS; i++)
        ones[i] = 1;
    for (int64_t round = 0; n_rounds > 0 ? round < n_rounds : atomic_load(&stops) == 0; round++) {
        TRY(rubato_kv_table_add_range(table, 0, N_KEYS, ones, error) &&
            rubato_kv_table_get_range(table, 0, N_KEYS, rows, error) &&
            rubato_kv_table_clock(table, error));
        if (round == 5 && n_rounds == 0)
            cluster_say("busy");
    }
    return true;
}

static bool work_long(RubatoWorker *worker, void *data, GError **error)
{
    (void)data;
    return add_rounds(worker, "rows", 0, error);
}

/* All workers are there again, and their collectives know it. */
static bool work_last(RubatoWorker *worker, void *data, GError **error)
{
    int64_t one = 1;
    const RubatoTensor ones = {
        .name = "ones", .dtype = RUBATO_I64, .input = &one, .output = &one
    };

    EXPECT(rubato_worker_n_workers(worker) == N_WORKERS, "%u workers",
           rubato_worker_n_workers(worker));
    TRY(add_rounds(worker, data, ROUNDS, error) && rubato_worker_barrier(worker, error));
    TRY(rubato_worker_allreduce(worker, &ones, NULL, error));
    EXPECT(one == N_WORKERS, "the sum is %" G_GINT64_FORMAT, one);
    return true;
}

static bool run(RubatoEngine *engine, const char *name, RubatoTaskFunc function, const char *table,
                GError **error)
{
    const char *const tables[] = { table, NULL };

    return rubato_engine_run(engine,
                             &(RubatoTask){ .name = name,
                                            .run = function,
                                            .user_data = (void *)(uintptr_t)table,
                                            .tables = tables,
                                            .on_loss = RUBATO_ON_LOSS_CONTINUE },
                             error);
}

static bool run_last(RubatoEngine *engine, const char *table, GError **error)
{
    int64_t before[N_KEYS], after[N_KEYS];

    if (rubato_engine_catches_up(engine)) /* the table may have been dropped */
        return rubato_engine_barrier(engine, error) &&
               run(engine, "last", work_last, table, error) && rubato_engine_barrier(engine, error);
    TRY(rubato_engine_get_range(engine, table, 0, N_KEYS, before, error) &&
        rubato_engine_barrier(engine, error) && run(engine, "last", work_last, table, error) &&
        rubato_engine_get_range(engine, table, 0, N_KEYS, after, error) &&
        rubato_engine_barrier(engine, error));
    for (size_t i = 0; i < N_KEYS; i++)
        EXPECT(after[i] - before[i] == N_WORKERS * ROUNDS, "key %zu: %" G_GINT64_FORMAT, i,
               after[i] - before[i]);
    return true;
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec *const spec = data;
    const RubatoKey key = ADDED_ONCE;
    const int64_t one = 1;
    RubatoTableSpec early = *spec, late = *spec;
    g_autoptr(GError) refused = NULL;
    int64_t added = 0;

    signal(SIGUSR1, stop);
    signal(SIGUSR2, go_on);
    early.name = "early";
    late.name = "late";
    TRY(rubato_engine_create_table(engine, spec, error) &&
        rubato_engine_create_table(engine, &early, error));
    EXPECT(!rubato_engine_create_table(engine, &early, &refused), "it is made twice");
    if (rubato_engine_node(engine) == CLUSTER_IDS[VICTIM])
        TRY(rubato_engine_add(engine, "rows", &key, 1, &one, error));
    TRY(rubato_engine_barrier(engine, error) && run_last(engine, "early", error) &&
        rubato_engine_drop_table(engine, "early", error));
    cluster_say("begins");
    TRY(run(engine, "long", work_long, "rows", error));
    while (rubato_engine_node(engine) != CLUSTER_IDS[VICTIM] && atomic_load(&goes_on) == 0)
        TRY(rubato_engine_get(engine, "rows", &key, 1, &added, error));
    TRY(rubato_engine_create_table(engine, &late, error) && run_last(engine, "late", error) &&
        run_last(engine, "rows", error) &&
        rubato_engine_get(engine, "rows", &key, 1, &added, error));
    EXPECT(added == 1, "added %" G_GINT64_FORMAT " times", added);
    cluster_say("done");
    return rubato_engine_barrier(engine, error);
}

static uint32_t start_joining(ClusterRun *run, ClusterPlay other, const void *data)
{
    g_setenv("RUBATO_JOIN", "1", TRUE);
    const uint32_t process = cluster_start_other(run, CLUSTER_IDS[VICTIM], run->path, other, data);
    g_unsetenv("RUBATO_JOIN");
    return process;
}

static ClusterRun *kill_victim(const void *data)
{
    ClusterRun *const run = cluster_run_new(&shape);

    cluster_start(run, play, data);
    for (uint32_t i = 0; i < N_NODES; i++)
        cluster_wait_for(run, i, "busy");
    cluster_signal(run, VICTIM, SIGKILL);
    cluster_wait_for(run, 0, "the run goes on, by part map 2");
    return run;
}

static void signal_others(ClusterRun *run, int number)
{
    for (uint32_t i = 0; i < VICTIM; i++)
        cluster_signal(run, i, number);
}

/* The others make no call before it has come to the one that they make next. */
static void expect_whole_run(ClusterRun *run, uint32_t newcomer)
{
    cluster_wait_for(run, newcomer, "begins");
    signal_others(run, SIGUSR1);
    cluster_wait_for(run, newcomer, "has come to where the others are");
    signal_others(run, SIGUSR2);
    for (uint32_t i = 0; i < VICTIM; i++)
        cluster_expect_end(run, i, 0);
    cluster_expect_end(run, newcomer, 0);
    cluster_expect_text(run, newcomer, "done");
    cluster_run_free(run);
}

START_TEST(a_process_makes_the_calls_of_the_run_and_has_workers_again)
{
    ClusterRun *const run = kill_victim(&specs[_i]);

    expect_whole_run(run, start_joining(run, play, &specs[_i]));
}
END_TEST

/* It is killed again when it has workers again: it is lost like any other node, and another one
 * comes. */
START_TEST(a_process_may_be_lost_and_replaced_again)
{
    ClusterRun *const run = kill_victim(&specs[0]);

    g_string_truncate(run->processes[0].text, 0);
    const uint32_t newcomer = start_joining(run, play, &specs[0]);
    cluster_wait_for(run, newcomer, "begins");
    cluster_signal(run, newcomer, SIGKILL);
    cluster_wait_for(run, 0, "node 20 (127.0.0.1:0) was lost: ");
    expect_whole_run(run, start_joining(run, play, &specs[0]));
}
END_TEST

/* ---- calls that differ ---- */

static bool play_otherwise(RubatoEngine *engine, const void *data, GError **error)
{
    RubatoTableSpec spec = *(const RubatoTableSpec *)data;

    spec.n_keys += 7;
    return rubato_engine_create_table(engine, &spec, error);
}

/* The others do not notice. Its servers serve until they end. */
START_TEST(a_process_with_other_calls_is_told_so)
{
    ClusterRun *const run = kill_victim(&specs[0]);
    const uint32_t newcomer = start_joining(run, play_otherwise, &specs[0]);

    cluster_wait_for(run, newcomer,
                     "and call 1 of its program is to create table rows; that of the "
                     "others was to create table rows, with other arguments");
    signal_others(run, SIGUSR1);
    signal_others(run, SIGUSR2);
    cluster_wait_for(run, 0, "3 workers"); /* it checks that there are five */
    cluster_expect_end(run, newcomer, CLUSTER_FAILED);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster newcomer");
    TCase *cases = cluster_add_case(suite, "newcomer");

    tcase_add_loop_test(cases, a_process_makes_the_calls_of_the_run_and_has_workers_again, 0,
                        G_N_ELEMENTS(specs));
    tcase_add_test(cases, a_process_may_be_lost_and_replaced_again);
    tcase_add_test(cases, a_process_with_other_calls_is_told_so);
    return run_suite(suite);
}
