/* A node joins, and its program makes the calls of the run again, while the others go on: they drop
 * a table that it uses, they end the run while it reads, it comes to where they are in the middle
 * of one, and they restore the rows of nodes that only serve.
 *
 * The linker puts a function in the place of collective. */
#include <signal.h>
#include <stdatomic.h>

#include "engine/collective.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/program_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { NEWCOMER = 2, N_KEYS = 20 };

static const ClusterShape shape = { .n_nodes = 3,
                                    .nodes = { { 1, 1 }, { 1, 0 }, { 1, 0 } },
                                    .spares = 1u << NEWCOMER,
                                    .catches_up = true,
                                    .stall_ms = 100 };

static const RubatoTableSpec rows = {
    .name = "rows", .model = "asp", .dtype = RUBATO_I64, .n_keys = N_KEYS, .replicas = 1
};

static atomic_int goes_on;

static void go_on(int number)
{
    (void)number;
    atomic_store(&goes_on, 1);
}

/* Until the case lets this node go on. */
static void say_and_wait(const char *text)
{
    cluster_say("%s", text);
    while (atomic_load(&goes_on) == 0)
        g_usleep(1000); /* a function for signals can do no more than set a flag */
}

static bool is_newcomer(RubatoEngine *engine)
{
    return rubato_engine_node(engine) == CLUSTER_IDS[NEWCOMER];
}

static void let_others_go_on(ClusterRun *run)
{
    cluster_signal(run, 0, SIGUSR1);
    cluster_signal(run, 1, SIGUSR1);
}

/* The others have begun, and wait. */
static ClusterRun *begin(ClusterPlay play, const void *data)
{
    ClusterRun *const run = cluster_run_new(&shape);

    cluster_start(run, play, data);
    cluster_wait_for(run, 0, "ready");
    cluster_wait_for(run, 1, "ready");
    return run;
}

static void expect_others_end(ClusterRun *run)
{
    cluster_expect_end(run, 0, 0);
    cluster_expect_end(run, 1, 0);
}

/* ---- a table that the program uses ---- */

static bool do_nothing(RubatoWorker *worker, void *data, GError **error)
{
    (void)worker;
    (void)data;
    (void)error;
    return true;
}

static bool play_drop(RubatoEngine *engine, const void *data, GError **error)
{
    static const char *const tables[] = { "rows", NULL };
    const RubatoTask task = { .name = "task", .run = do_nothing, .tables = tables };

    (void)data;
    signal(SIGUSR1, go_on);
    TRY(rubato_engine_create_table(engine, &rows, error));
    RubatoTaskRun *const run = rubato_engine_start(engine, &task, error);
    TRY(run != NULL);
    if (is_newcomer(engine)) /* until the task is waited for, nobody drops its tables */
        say_and_wait("uses it");
    TRY(rubato_task_run_wait(run, error));
    if (!is_newcomer(engine))
        say_and_wait("ready");
    return rubato_engine_drop_table(engine, "rows", error);
}

START_TEST(others_drop_a_table_that_the_program_of_a_newcomer_uses)
{
    ClusterRun *const run = begin(play_drop, NULL);
    const uint32_t newcomer = cluster_start_joining(run, NEWCOMER, play_drop, NULL);

    cluster_wait_for(run, newcomer, "uses it");
    let_others_go_on(run);
    cluster_wait_for(run, newcomer, "cannot drop table rows yet: its program, which has yet to");
    cluster_signal(run, newcomer, SIGUSR1);
    expect_others_end(run);
    cluster_run_free(run);
}
END_TEST

/* ---- the end of the run ---- */

static bool play_end(RubatoEngine *engine, const void *data, GError **error)
{
    int64_t values[N_KEYS];

    (void)data;
    signal(SIGUSR1, go_on);
    TRY(rubato_engine_create_table(engine, &rows, error));
    say_and_wait("ready");
    return rubato_engine_get_range(engine, "rows", 0, N_KEYS, values, error);
}

START_TEST(the_program_of_a_newcomer_reads_no_more_when_the_run_has_ended)
{
    ClusterRun *const run = begin(play_end, NULL);
    const uint32_t newcomer = cluster_start_joining(run, NEWCOMER, play_end, NULL);

    cluster_wait_for(run, newcomer, "ready");
    let_others_go_on(run);
    expect_others_end(run);
    cluster_signal(run, newcomer, SIGUSR1);
    cluster_expect_end(run, newcomer, CLUSTER_FAILED);
    cluster_expect_text(run, newcomer, "which has joined the run: the run has ended meanwhile");
    cluster_run_free(run);
}
END_TEST

/* ---- a call of two parts ---- */

static bool play_restore(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoSnapshotSpec taken = { .directory = data };
    const RubatoRestoreSpec restored = { .directory = data };
    const int64_t sevens[] = { 7, 7, 7 };
    int64_t values[] = { 8, 8, 8 };

    signal(SIGUSR1, go_on);
    TRY(rubato_engine_create_table(engine, &rows, error));
    if (rubato_engine_node(engine) == CLUSTER_IDS[0])
        TRY(rubato_engine_set_range(engine, "rows", 0, 3, sevens, error));
    TRY(rubato_engine_snapshot(engine, &taken, NULL, error));
    if (rubato_engine_node(engine) == CLUSTER_IDS[0])
        TRY(rubato_engine_set_range(engine, "rows", 0, 3, values, error));
    TRY(rubato_engine_restore(engine, &restored, NULL, error) &&
        rubato_engine_get_range(engine, "rows", 0, 3, values, error));
    for (size_t i = 0; i < G_N_ELEMENTS(values); i++)
        EXPECT(values[i] == 7, "row %zu is %" G_GINT64_FORMAT, i, values[i]);
    return rubato_engine_barrier(engine, error);
}

bool __real_collective(RubatoEngine *engine, const CollectiveCall *call, GError **error);
bool __wrap_collective(RubatoEngine *engine, const CollectiveCall *call, GError **error);

/* The others have checked the snapshot, and wait before they restore its rows. */
bool __wrap_collective(RubatoEngine *engine, const CollectiveCall *call, GError **error)
{
    if (g_str_has_prefix(call->text, "the rows of snapshot ") && !is_newcomer(engine))
        say_and_wait("ready");
    return __real_collective(engine, call, error);
}

START_TEST(a_newcomer_comes_to_where_the_others_are_in_the_middle_of_a_restore)
{
    g_autofree char *folder = make_folder();
    ClusterRun *const run = begin(play_restore, folder);
    const uint32_t newcomer = cluster_start_joining(run, NEWCOMER, play_restore, folder);

    cluster_wait_for(run, newcomer, "has come to where the others are");
    let_others_go_on(run);
    expect_others_end(run);
    cluster_expect_end(run, newcomer, 0);
    cluster_run_free(run);
    remove_folder(folder);
}
END_TEST

/* ---- nodes that only serve ---- */

static bool play_served(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoSnapshotSpec taken = { .directory = data };
    const RubatoRestoreSpec restored = { .directory = data };
    int64_t values[N_KEYS];

    signal(SIGUSR1, go_on);
    for (int64_t i = 0; i < N_KEYS; i++)
        values[i] = i;
    TRY(rubato_engine_create_table(engine, &rows, error));
    if (rubato_engine_node(engine) == CLUSTER_IDS[0])
        TRY(rubato_engine_set_range(engine, "rows", 0, N_KEYS, values, error));
    TRY(rubato_engine_snapshot(engine, &taken, NULL, error));
    say_and_wait("begins");
    if (rubato_engine_node(engine) == CLUSTER_IDS[0])
        TRY(rubato_engine_add_range(engine, "rows", 0, N_KEYS, values, error));
    TRY(rubato_engine_restore(engine, &restored, NULL, error) &&
        rubato_engine_get_range(engine, "rows", 0, N_KEYS, values, error));
    for (int64_t i = 0; i < N_KEYS; i++)
        EXPECT(values[i] == i, "row %d is %" G_GINT64_FORMAT, (int)i, values[i]);
    return rubato_engine_barrier(engine, error);
}

/* Node 2 has joined, and has rows; the scheduler's process is another one. Neither runs the
 * program. */
START_TEST(rows_of_nodes_that_only_serve_are_restored_by_others_than_the_scheduler_s)
{
    enum { SCHEDULER = 3 };
    g_autofree char *folder = make_folder();
    g_autofree char *journal = g_build_filename(folder, "journal", NULL);
    g_autofree char *snapshots = g_build_filename(folder, "snapshots", NULL);
    ClusterShape serves = shape;

    serves.n_nodes = 4;
    serves.scheduler = SCHEDULER;
    serves.catches_up = false;
    g_setenv("RUBATO_JOURNAL", journal, TRUE);
    ClusterRun *const run = cluster_run_new(&serves);
    cluster_start(run, play_served, snapshots);
    for (uint32_t i = 0; i < 2; i++)
        cluster_wait_for(run, i, "begins");
    cluster_start_joining(run, NEWCOMER, play_served, snapshots);
    cluster_wait_for(run, 0, "has its share of the parts; the run goes on, by part map 3");
    cluster_signal(run, SCHEDULER, SIGKILL);
    cluster_expect_end(run, SCHEDULER, -SIGKILL);
    cluster_start_joining(run, SCHEDULER, play_served, snapshots);
    cluster_wait_for(run, 0, "takes the place of node");
    let_others_go_on(run);
    expect_others_end(run);
    cluster_run_free(run);
    g_unsetenv("RUBATO_JOURNAL");
    remove_folder(folder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster newcomer calls");
    TCase *cases = cluster_add_case(suite, "newcomer calls");

    tcase_add_test(cases, others_drop_a_table_that_the_program_of_a_newcomer_uses);
    tcase_add_test(cases, the_program_of_a_newcomer_reads_no_more_when_the_run_has_ended);
    tcase_add_test(cases, a_newcomer_comes_to_where_the_others_are_in_the_middle_of_a_restore);
    tcase_add_test(cases,
                   rows_of_nodes_that_only_serve_are_restored_by_others_than_the_scheduler_s);
    return run_suite(suite);
}
