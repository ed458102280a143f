/* A run begins without its spare node, and a process joins as it while workers use tables: each Add
 * counts once, and tables that are made later have parts on the node, which is lost, replaced and
 * drained like any other.
 *
 * docs/replication.md: A node that was not there. */
#include <sched.h>
#include <signal.h>
#include <string.h>

#include "engine/join/journal_file.h"
#include "tests/support/cluster/counted_rounds.h"
#include "tests/support/cluster/program_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

/* Node 0 has workers alone. */
enum { N_NODES = 4, SPARE = 3, PARTS = 6, LATER_ROUNDS = 5 };

static const ClusterShape shape = { .n_nodes = N_NODES,
                                    .nodes = { { 0, 2 }, { 1, 0 }, { 1, 1 }, { 1, 2 } },
                                    .spares = 1u << SPARE };

/* Of six primaries and six replicas a third each. */
#define SHARE                                                                                    \
    "node 41 (127.0.0.1:0) has its share of the parts; the run goes on, by part map 3: node 41 " \
    "has "                                                                                       \
    "2 parts of table rows now"

static const struct {
    const char *over;
    bool encrypts;
    RubatoTableSpec spec;
} cases[] = {
    { "shm",
      false,
      { .name = "rows", .model = "asp", .dtype = RUBATO_I64, .n_keys = COUNTED_KEYS + 1 } },
    { "tcp", true, { .name = "rows", .model = "bsp", .dtype = RUBATO_I64, .storage = "hash" } },
};

static bool do_rounds(RubatoEngine *engine, const char *table, int64_t most, GError **error)
{
    return counted_rounds_play(engine, &(CountedRounds){ .table = table, .most = most }, error);
}

/* Whether the node is one of the run. Its workers are not in this count. */
static bool expect_nodes(RubatoEngine *engine, bool is_there, GError **error)
{
    size_t n;
    RubatoNodeState *const states = rubato_engine_list_nodes(engine, &n);
    const RubatoNodeState spare = states[SPARE];

    rubato_node_states_free(states, n);
    EXPECT(n == N_NODES && rubato_engine_n_nodes(engine) == N_NODES, "%zu nodes", n);
    EXPECT(rubato_engine_n_workers(engine) == 3, "%u workers", rubato_engine_n_workers(engine));
    EXPECT(spare.is_spare == !is_there && !spare.is_lost, "spare: %d, lost: %d", spare.is_spare,
           spare.is_lost);
    return true;
}

/* Before it has joined. */
static bool expect_absent(RubatoEngine *engine, const RubatoTableSpec *like, GError **error)
{
    g_autoptr(GError) failure = NULL;
    RubatoTableSpec plain = *like;

    plain.name = "plain";
    plain.replicas = 0;
    TRY(expect_nodes(engine, false, error) && rubato_engine_create_table(engine, &plain, error));
    EXPECT(!rubato_engine_move_part(engine, "plain", 0, 2, &failure), "a part has moved");
    TRY(cluster_expect_error(&failure, RUBATO_ERROR_NODE_LOST,
                             "node 41 is spare, and has not joined the run", error));
    EXPECT(!rubato_engine_drain_node(engine, CLUSTER_IDS[SPARE], &failure), "it was drained");
    TRY(cluster_expect_error(&failure, RUBATO_ERROR_NODE_LOST,
                             "is spare, and no process has joined the run as it yet", error));
    return rubato_engine_group_barrier(engine, &(RubatoAddressees){ .group = RUBATO_GROUP_ALL },
                                       60000, error);
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    RubatoTableSpec spec = *(const RubatoTableSpec *)data;

    signal(SIGUSR1, counted_rounds_stop);
    spec.parts = PARTS;
    spec.replicas = 1;
    TRY(expect_absent(engine, &spec, error) && rubato_engine_create_table(engine, &spec, error) &&
        do_rounds(engine, "rows", 0, error) && expect_nodes(engine, true, error));
    spec.name = "later";
    TRY(rubato_engine_create_table(engine, &spec, error) &&
        do_rounds(engine, "later", LATER_ROUNDS, error) &&
        rubato_engine_move_part(engine, "plain", 0, 2, error) &&
        do_rounds(engine, "plain", LATER_ROUNDS, error));
    return rubato_engine_barrier(engine, error);
}

static bool has_joined(RubatoEngine *engine)
{
    size_t n;
    RubatoNodeState *const states = rubato_engine_list_nodes(engine, &n);
    const bool is_spare = states[SPARE].is_spare;

    rubato_node_states_free(states, n);
    return !is_spare;
}

/* It joins before the first call, while no table has replicas. */
static bool play_early(RubatoEngine *engine, const void *data, GError **error)
{
    RubatoTableSpec spec = *(const RubatoTableSpec *)data;
    RubatoTableSpec plain = spec;

    signal(SIGUSR1, counted_rounds_stop);
    while (!has_joined(engine))
        sched_yield();
    spec.parts = PARTS;
    spec.replicas = 1;
    plain.name = "plain";
    TRY(rubato_engine_create_table(engine, &plain, error) &&
        do_rounds(engine, "plain", LATER_ROUNDS, error));
    return rubato_engine_create_table(engine, &spec, error) &&
           do_rounds(engine, "rows", 0, error) && rubato_engine_barrier(engine, error);
}

/* The table is used until a signal comes, and again after the node was drained. */
static bool play_rows(RubatoEngine *engine, const void *data, GError **error)
{
    RubatoTableSpec spec = *(const RubatoTableSpec *)data;

    signal(SIGUSR1, counted_rounds_stop);
    spec.parts = PARTS;
    spec.replicas = 1;
    TRY(rubato_engine_create_table(engine, &spec, error) && do_rounds(engine, "rows", 0, error) &&
        rubato_engine_barrier(engine, error));
    if (rubato_engine_node(engine) == CLUSTER_IDS[0])
        TRY(rubato_engine_drain_node(engine, CLUSTER_IDS[SPARE], error));
    return rubato_engine_barrier(engine, error) && do_rounds(engine, "rows", LATER_ROUNDS, error) &&
           rubato_engine_barrier(engine, error);
}

static ClusterRun *begin(const ClusterShape *of, int i, ClusterPlay function)
{
    ClusterShape with = *of;

    with.over = cases[i].over;
    with.encrypts = cases[i].encrypts;
    ClusterRun *const run = cluster_run_new(&with);

    cluster_start(run, function, &cases[i].spec);
    cluster_wait_for(run, 0, "busy");
    return run;
}

static uint32_t join(ClusterRun *run)
{
    return cluster_start_joining(run, SPARE, play, &cases[0].spec);
}

static void end(ClusterRun *run, uint32_t joined)
{
    for (uint32_t i = 0; i < SPARE; i++)
        if (!run->processes[i].ended)
            cluster_signal(run, i, SIGUSR1);
    for (uint32_t i = 0; i < SPARE; i++)
        if (!run->processes[i].ended || run->processes[i].status != -SIGKILL)
            cluster_expect_end(run, i, 0);
    cluster_expect_end(run, joined, CLUSTER_NOT_STARTED);
    cluster_expect_text(run, joined, " until the run ended");
    cluster_run_free(run);
}

START_TEST(process_joins_as_a_node_that_was_not_there)
{
    ClusterRun *const run = begin(&shape, _i, play);
    const uint32_t joined = join(run);

    cluster_wait_for(run, 0, "joins the run as node 41 (127.0.0.1:0); the run goes on, by part");
    cluster_wait_for(run, joined, "node 41 has joined the run, and serves until the run ends");
    cluster_wait_for(run, 0, "node 41 has 2 parts of table rows now");
    end(run, joined);
}
END_TEST

static void kill_node(ClusterRun *run, uint32_t process)
{
    cluster_signal(run, process, SIGKILL);
    cluster_expect_end(run, process, -SIGKILL);
}

/* It has the parts: a node that had them before is lost, and nothing with it. */
START_TEST(parts_of_others_live_on_the_node)
{
    ClusterRun *const run = begin(&shape, _i, play_rows);
    const uint32_t joined = join(run);

    cluster_wait_for(run, 0, SHARE);
    cluster_wait_for(run, 2, SHARE);
    kill_node(run, 1);
    cluster_wait_for(run, 0, "the run goes on, by part map 4");
    cluster_wait_for(run, joined, "replicas of its parts on other nodes");
    g_string_truncate(run->processes[1].text, 0);
    cluster_signal(run, 0, SIGUSR1);
    cluster_signal(run, 2, SIGUSR1);
    cluster_expect_end(run, 0, CLUSTER_FAILED);
    cluster_expect_text(run, 0, "node 41 cannot be drained: part "); /* there is one other node */
    cluster_run_free(run);
}
END_TEST

/* Another one comes in its place. */
START_TEST(process_may_be_killed_while_parts_are_copied_to_it)
{
    ClusterRun *const run = begin(&shape, _i, play_rows);
    uint32_t joined = join(run);

    cluster_wait_for(run, 0, "copies of 4 parts are made, and take the place of others");
    kill_node(run, joined);
    cluster_wait_for(run, 0, "was lost: ");
    g_string_truncate(run->processes[0].text, 0);
    joined = join(run);
    cluster_wait_for(run, 0, " takes the place of node 41");
    cluster_wait_for(run, 0, "node 41 has 2 parts of table rows now");
    end(run, joined);
}
END_TEST

/* The next scheduler knows of the node. Node 2 is the scheduler's. */
START_TEST(scheduler_may_be_killed_when_the_node_has_joined)
{
    ClusterShape alone = { .n_nodes = N_NODES,
                           .nodes = { { 1, 2 }, { 1, 1 }, { 0, 0 }, { 1, 0 } },
                           .spares = 1u << SPARE,
                           .scheduler = 2 };
    g_autofree char *folder = make_folder();
    g_autofree char *journal = g_build_filename(folder, "journal", NULL);

    g_setenv(JOURNAL_VARIABLE, journal, TRUE);
    ClusterRun *const run = begin(&alone, _i, play_rows);
    const uint32_t joined = join(run);
    if (_i == 0)
        cluster_wait_for(run, 2, "copies of 4 parts are made");
    else
        cluster_wait_for(run, 0, "node 41 has 2 parts of table rows now");
    kill_node(run, 2);
    const uint32_t again = cluster_start_joining(run, 2, play_rows, &cases[_i].spec);
    cluster_wait_for(run, again, "goes on as the scheduler, by the journal");
    cluster_wait_for(run, 0, "takes the place of node 20");
    cluster_wait_for(run, 0, "node 41 has 2 parts of table rows now");
    end(run, joined);
}
END_TEST

/* It comes at once, and waits until the run has begun. */
START_TEST(process_may_come_before_the_run_begins)
{
    ClusterRun *const run = cluster_run_new(&shape);
    const uint32_t joined = join(run);

    cluster_start(run, play_early, &cases[0].spec);
    cluster_wait_for(run, 0, "joins the run as node 41");
    cluster_wait_for(run, 0, "busy");
    cluster_wait_for(run, 2, "busy");
    end(run, joined);
}
END_TEST

/* ---- who is refused ---- */

static void expect_refused(ClusterRun *run, uint32_t process, const char *text)
{
    cluster_expect_end(run, process, CLUSTER_NOT_STARTED);
    cluster_expect_text(run, process, text);
}

/* Nothing else changes: the run goes on, and a right one joins after that. */
START_TEST(liars_are_refused)
{
    ClusterRun *const run = begin(&shape, 1, play_rows);
    g_autofree char *text = cluster_file_text(run);
    g_autofree char *other = g_strconcat(text, "# another file\n", NULL);

    g_setenv("RUBATO_JOIN", "1", TRUE);
    const uint32_t of_other =
        cluster_start_other(run, CLUSTER_IDS[SPARE], cluster_add_file(run, other), play_rows, NULL);
    const uint32_t unknown = cluster_start_other(run, 99, run->path, play_rows, NULL);
    const uint32_t taken = cluster_start_other(run, CLUSTER_IDS[1], run->path, play_rows, NULL);
    g_unsetenv("RUBATO_JOIN");
    expect_refused(run, of_other, "runs with another cluster file than the scheduler");
    expect_refused(run, unknown, "there is no node 99 in it");
    expect_refused(run, taken, "and not lost, so ");

    const uint32_t joined = join(run);
    cluster_wait_for(run, 0, "node 41 has 2 parts of table rows now");
    const uint32_t late = join(run);
    expect_refused(run, late, "and not lost, so ");
    end(run, joined);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster spare");
    TCase *spare = cluster_add_case(suite, "spare");

    tcase_add_loop_test(spare, process_joins_as_a_node_that_was_not_there, 0, G_N_ELEMENTS(cases));
    tcase_add_test(spare, process_may_come_before_the_run_begins);
    tcase_add_test(spare, liars_are_refused);
    tcase_add_loop_test(spare, parts_of_others_live_on_the_node, 0, G_N_ELEMENTS(cases));
    tcase_add_loop_test(spare, process_may_be_killed_while_parts_are_copied_to_it, 0,
                        G_N_ELEMENTS(cases));
    tcase_add_loop_test(spare, scheduler_may_be_killed_when_the_node_has_joined, 0,
                        G_N_ELEMENTS(cases));
    return run_suite(suite);
}
