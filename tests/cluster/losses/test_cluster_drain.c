/* A node that is a process is drained while workers of others use its parts: each Add counts once,
 * nobody waits long, and then the node may be killed without a loss.
 *
 * docs/replication.md: A node that is drained. */
#include <signal.h>
#include <string.h>

#include "io/history/history.h"
#include "test_paths.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/lossy_rounds.h"
#include "tests/support/cluster/program_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

/* Node 3 has no workers. Part p of 8 is on server p mod 4, its replica on the next one. */
enum { N_NODES = 4, DRAINED = 3, N_KEYS = LOSSY_KEYS };

static const ClusterShape four = { .n_nodes = N_NODES,
                                   .nodes = { { 1, 2 }, { 1, 1 }, { 1, 1 }, { 1, 0 } },
                                   .scheduler = 0 };

static bool expect_refusal(RubatoEngine *engine, unsigned node, const char *text, GError **error)
{
    g_autoptr(GError) failure = NULL;

    EXPECT(!rubato_engine_drain_node(engine, node, &failure), "node %u was drained", node);
    EXPECT(strstr(failure->message, text) != NULL, "\"%s\", and not \"%s\"", failure->message,
           text);
    return true;
}

/* The task goes on meanwhile, and until the node has been killed. */
static bool drain(RubatoEngine *engine, GError **error)
{
    const unsigned drained = CLUSTER_IDS[DRAINED];

    TRY(expect_refusal(engine, 99, "there is no node 99 in this run", error) &&
        expect_refusal(engine, CLUSTER_IDS[0], "the scheduler runs there", error) &&
        rubato_engine_drain_node(engine, drained, error) &&
        rubato_engine_drain_node(engine, drained, error)); /* it has been */
    cluster_say("drained");
    return true;
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    static const uint32_t victims[] = { DRAINED };
    const char *names[LOSSY_TABLES];
    RubatoTableSpec spec = *(const RubatoTableSpec *)data;
    LossyRounds rounds = { engine,        &spec,        N_KEYS, victims, G_N_ELEMENTS(victims),
                           .calls = true, .lists = true };
    const RubatoTask task = {
        .name = "work", .run = lossy_rounds_work, .user_data = &rounds, .tables = names
    };

    spec.parts = 8;
    spec.replicas = 1;
    TRY(lossy_rounds_create(&rounds, names, error));
    RubatoTaskRun *const run = rubato_engine_start(engine, &task, error);
    TRY(run != NULL);
    const bool is_drained = rubato_engine_node(engine) != CLUSTER_IDS[0] || drain(engine, error);
    return is_drained && rubato_task_run_wait(run, error) &&
           lossy_rounds_check(&rounds, NULL, error) && rubato_engine_barrier(engine, error);
}

START_TEST(a_node_is_drained_while_workers_use_its_parts_and_ends_without_loss)
{
    ClusterShape shape = four;

    shape.over = lossy_cases[_i].over;
    ClusterRun *run = cluster_run_new(&shape);

    cluster_start(run, play, &lossy_cases[_i].spec);
    cluster_wait_for(run, 0, "drained\n");
    cluster_wait_for(run, 1, "busy");
    cluster_signal(run, DRAINED, SIGKILL);
    for (uint32_t i = 0; i < DRAINED; i++) {
        cluster_expect_end(run, i, 0);
        cluster_expect_text(run, i, "is drained; the run goes on, by part map 3");
        cluster_expect_text(run, i, "the run goes on, by part map 4\n"); /* no part has moved */
    }
    cluster_run_free(run);
}
END_TEST

/* ---- nodes that leave the run ---- */

enum { FIRST = 3, SECOND = 2 }; /* neither has workers */

static const ClusterShape leaving = { .n_nodes = N_NODES,
                                      .nodes = { { 1, 2 }, { 1, 1 }, { 1, 0 }, { 1, 0 } },
                                      .scheduler = 0,
                                      .handle_signals = true,
                                      .encrypts = true };

/* They are in the run no more, and were not lost. */
static bool have_left(RubatoEngine *engine)
{
    size_t n;
    RubatoNodeState *const states = rubato_engine_list_nodes(engine, &n);
    bool is_right = n == N_NODES;

    for (size_t i = 0; i < n; i++)
        is_right =
            is_right && states[i].is_lost == (i >= SECOND) && states[i].is_drained == (i >= SECOND);
    rubato_node_states_free(states, n);
    return is_right;
}

/* The task goes on until both have left. A node that leaves has no more to say. */
static bool play_leaving(RubatoEngine *engine, const void *data, GError **error)
{
    static const uint32_t victims[] = { FIRST, SECOND };
    static const RubatoTableSpec spec = { .name = "rows",
                                          .model = "ssp",
                                          .staleness = 1,
                                          .dtype = RUBATO_I64,
                                          .n_keys = N_KEYS + 1,
                                          .parts = 8,
                                          .replicas = 1 };
    LossyRounds rounds = { engine, &spec, N_KEYS, victims, G_N_ELEMENTS(victims), .calls = true };

    (void)data;
    TRY(lossy_rounds_play(&rounds, NULL, error));
    EXPECT(have_left(engine), "a node has left, or was lost, where %s", "it should not have");
    return rubato_engine_barrier(engine, error);
}

/* Runs `rubato drain` of the run's file, which must end so and say that. */
static void drain_by_command(ClusterRun *run, const char *secret, const char *node, int status,
                             const char *text)
{
    const char *const argv[] = {
        TEST_BIN_DIR "/rubato", "drain", "--timeout=100", run->path, node, NULL
    };
    g_auto(GStrv) environment = g_environ_setenv(g_get_environ(), "RUBATO_SECRET", secret, TRUE);
    g_autoptr(GError) error = NULL;
    g_autofree char *said = NULL, *complained = NULL;
    int ended;

    if (!g_spawn_sync(NULL, (char **)(uintptr_t)argv, environment, G_SPAWN_DEFAULT, NULL, NULL,
                      &said, &complained, &ended, &error))
        cluster_fail(run, "%s", error->message);
    if (!WIFEXITED(ended) || WEXITSTATUS(ended) != status ||
        strstr(status == 0 ? said : complained, text) == NULL)
        cluster_fail(run, "rubato drain %s: status %d, \"%s%s\", and not \"%s\"", node, ended, said,
                     complained, text);
}

static void expect_left(ClusterRun *run, uint32_t node)
{
    g_autofree char *text = g_strdup_printf("error %d: node %u (127.0.0.1:0) was drained, and "
                                            "leaves the run\n",
                                            RUBATO_ERROR_SERVED, CLUSTER_IDS[node]);

    cluster_expect_end(run, node, CLUSTER_FAILED);
    cluster_expect_text(run, node, text);
}

/* One by the command, which others ask in vain; the other by SIGTERM. */
START_TEST(drained_nodes_leave_the_run_which_goes_on)
{
    ClusterRun *run = cluster_run_new(&leaving);
    const char *const liar = "1111111111111111111111111111111111111111111111111111111111111111";
    g_autofree char *first = g_strdup_printf("%u", CLUSTER_IDS[FIRST]);
    g_autofree char *scheduler = g_strdup_printf("%u", CLUSTER_IDS[0]);

    cluster_start(run, play_leaving, NULL);
    cluster_wait_for(run, 1, "busy");
    drain_by_command(run, liar, first, 1, "is its secret the one given here");
    drain_by_command(run, CLUSTER_SECRET, "99", 1, "there is no node 99 in this run");
    drain_by_command(run, CLUSTER_SECRET, scheduler, 1, "the scheduler runs there");
    drain_by_command(run, CLUSTER_SECRET, first, 0, "was drained, and has left the run");
    expect_left(run, FIRST);
    drain_by_command(run, CLUSTER_SECRET, first, 1, "was drained, and has left the run");
    cluster_signal(run, SECOND, SIGTERM);
    expect_left(run, SECOND);
    for (uint32_t i = 0; i < SECOND; i++) {
        cluster_expect_end(run, i, 0);
        cluster_expect_text(run, i, "was drained, and has left the run; the run goes on");
        cluster_expect_no_text(run, i, "was lost");
    }
    cluster_run_free(run);
}
END_TEST

/* The node that leaves has asked something before. */
static bool play_recorded(RubatoEngine *engine, const void *data, GError **error)
{
    static const uint32_t victims[] = { SECOND };
    static const RubatoTableSpec spec = {
        .name = "rows", .model = "asp", .dtype = RUBATO_I64, .n_keys = N_KEYS + 1, .replicas = 1
    };
    static const RubatoTableSpec other = {
        .name = "other", .model = "asp", .dtype = RUBATO_I64, .n_keys = 9, .replicas = 1
    };
    LossyRounds rounds = { engine, &spec, N_KEYS, victims, G_N_ELEMENTS(victims), .calls = true };

    (void)data;
    return rubato_engine_create_table(engine, &other, error) &&
           rubato_engine_add(engine, "other", &(RubatoKey){ 1 }, 1, &(int64_t){ 1 }, error) &&
           lossy_rounds_play(&rounds, NULL, error) && rubato_engine_barrier(engine, error);
}

/* Nothing is missing of it, nor of a spare node that does not come. */
START_TEST(the_history_of_a_node_that_leaves_is_whole)
{
    g_autofree char *folder = make_folder();
    const char *const argv[] = { TEST_BIN_DIR "/rubato", "history", "check", folder, NULL };
    g_autofree char *said = NULL;
    ClusterShape shape = leaving;
    int status;

    shape.spares = 1u << FIRST;
    g_setenv(HISTORY_VARIABLE, folder, TRUE);
    ClusterRun *run = cluster_run_new(&shape);
    cluster_start(run, play_recorded, NULL);
    cluster_wait_for(run, 1, "busy");
    cluster_signal(run, SECOND, SIGTERM);
    expect_left(run, SECOND);
    for (uint32_t i = 0; i < SECOND; i++)
        cluster_expect_end(run, i, 0);
    cluster_run_free(run);
    g_unsetenv(HISTORY_VARIABLE);
    ck_assert(g_spawn_sync(NULL, (char **)(uintptr_t)argv, NULL, G_SPAWN_DEFAULT, NULL, NULL, &said,
                           NULL, &status, NULL));
    ck_assert_msg(status == 0 && strstr(said, "; 0 not compared\nnothing wrong\n") != NULL,
                  "status %d: %s", status, said);
    remove_folder(folder);
}
END_TEST

static bool play_ending(RubatoEngine *engine, const void *data, GError **error)
{
    static const uint32_t nobody[] = { 0 };
    const RubatoTableSpec spec = { .name = "rows",
                                   .model = "asp",
                                   .dtype = RUBATO_I64,
                                   .n_keys = N_KEYS + 1,
                                   .replicas = *(const uint32_t *)data };
    LossyRounds rounds = { engine, &spec, N_KEYS, nobody, G_N_ELEMENTS(nobody), .calls = true };

    return lossy_rounds_play(&rounds, NULL, error);
}

/* With replicas, too, if it gets the signal that ends the scheduler's node. */
START_TEST(without_replicas_or_on_the_scheduler_sigterm_ends_the_run)
{
    ClusterShape shape = leaving;
    const uint32_t replicas = (uint32_t)_i, node = _i == 0 ? SECOND : 0;

    shape.n_nodes = 3;
    ClusterRun *run = cluster_run_new(&shape);

    cluster_start(run, play_ending, &replicas);
    cluster_wait_for(run, 1, "busy");
    cluster_signal(run, node, SIGTERM);
    g_autofree char *text =
        g_strdup_printf("error 12: node %u was ended by signal 15 (Terminated)", CLUSTER_IDS[node]);
    for (uint32_t i = 0; i < 3; i++) {
        cluster_expect_end(run, i, CLUSTER_FAILED);
        cluster_expect_text(run, i, text);
    }
    cluster_run_free(run);
}
END_TEST

/* A table without replicas keeps the node: it says so, and the run ends as before. */
static bool play_kept_at_signal(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec other = { .name = "other", .model = "asp", .n_keys = 9 };
    const uint32_t replicas = 1;

    (void)data;
    return rubato_engine_create_table(engine, &other, error) &&
           play_ending(engine, &replicas, error);
}

START_TEST(a_node_that_cannot_be_drained_at_sigterm_says_why_and_ends_the_run)
{
    ClusterRun *run = cluster_run_new(&leaving);

    cluster_start(run, play_kept_at_signal, NULL);
    cluster_wait_for(run, 1, "busy");
    cluster_signal(run, SECOND, SIGTERM);
    for (uint32_t i = 0; i < N_NODES; i++)
        cluster_expect_end(run, i, CLUSTER_FAILED);
    cluster_expect_text(run, SECOND,
                        "keeps its parts: node 20 cannot be drained: table other has "
                        "no replicas");
    cluster_expect_text(run, 0, "error 12: node 20 was ended by signal 15 (Terminated)");
    cluster_run_free(run);
}
END_TEST

/* ---- what cannot leave ---- */

static const struct {
    uint32_t n_nodes, replicas;
    const char *text;
} kept[] = {
    { 2, 1,
      "and its replicas need servers on 2 other nodes, within their limits, and there are 1" },
    { 3, 2,
      "and its replicas need servers on 3 other nodes, within their limits, and there are 2" },
    { 3, 0, "table rows has no replicas" },
};

static bool play_kept(RubatoEngine *engine, const void *data, GError **error)
{
    const int i = *(const int *)data;
    const RubatoTableSpec spec = { .name = "rows",
                                   .model = "asp",
                                   .dtype = RUBATO_I64,
                                   .n_keys = 12,
                                   .parts = 6,
                                   .replicas = kept[i].replicas };
    const RubatoKey key = 3;
    const int64_t one = 1;
    int64_t row = 0;

    TRY(rubato_engine_create_table(engine, &spec, error));
    if (rubato_engine_node(engine) == CLUSTER_IDS[1]) /* it asks for itself */
        TRY(expect_refusal(engine, CLUSTER_IDS[1], kept[i].text, error));
    TRY(rubato_engine_barrier(engine, error) &&
        rubato_engine_add(engine, "rows", &key, 1, &one, error) &&
        rubato_engine_barrier(engine, error) &&
        rubato_engine_get(engine, "rows", &key, 1, &row, error));
    EXPECT(row == kept[i].n_nodes, "%" G_GINT64_FORMAT " of %u Adds", row, kept[i].n_nodes);
    return rubato_engine_barrier(engine, error);
}

START_TEST(a_node_keeps_parts_that_would_not_have_their_replicas_elsewhere)
{
    ClusterShape shape = four;
    const int i = _i;

    shape.n_nodes = kept[_i].n_nodes;
    ClusterRun *run = cluster_run_new(&shape);

    cluster_start(run, play_kept, &i);
    for (uint32_t node = 0; node < shape.n_nodes; node++)
        cluster_expect_end(run, node, 0);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster drain");
    TCase *drained = cluster_add_case(suite, "drained");

    tcase_add_loop_test(drained,
                        a_node_is_drained_while_workers_use_its_parts_and_ends_without_loss, 0,
                        N_LOSSY_CASES);
    tcase_add_test(drained, drained_nodes_leave_the_run_which_goes_on);
    tcase_add_test(drained, the_history_of_a_node_that_leaves_is_whole);
    tcase_add_loop_test(drained, without_replicas_or_on_the_scheduler_sigterm_ends_the_run, 0, 2);
    tcase_add_test(drained, a_node_that_cannot_be_drained_at_sigterm_says_why_and_ends_the_run);
    tcase_add_loop_test(drained, a_node_keeps_parts_that_would_not_have_their_replicas_elsewhere, 0,
                        G_N_ELEMENTS(kept));
    lossy_rounds_register();
    return run_suite(suite);
}
