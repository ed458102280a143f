/* A node that is a process is drained while workers of others use its parts: each Add counts once,
 * nobody waits long, and then the node may be killed without a loss.
 *
 * docs/replication.md: A node that is drained. */
#include <signal.h>
#include <string.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/lossy_rounds.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

/* Node 3 has no workers. Part p of 8 is on server p mod 4, its replica on the next one. */
enum { N_NODES = 4, DRAINED = 3, N_KEYS = 400 };

static const struct {
    const char *over;
    RubatoTableSpec spec;
} cases[] = {
    { "shm", { .name = "rows", .model = "asp", .dtype = RUBATO_I64, .n_keys = N_KEYS + 1 } },
    { "tcp", { .name = "rows", .model = "bsp", .dtype = RUBATO_I64, .storage = "hash" } },
    { "tcp",
      { .name = "rows",
        .model = "ssp",
        .staleness = 2,
        .dtype = RUBATO_I64,
        .n_keys = N_KEYS + 1 } },
};

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
    static const char *const names[] = { "rows", NULL };
    RubatoTableSpec spec = *(const RubatoTableSpec *)data;
    LossyRounds rounds = { engine, &spec, N_KEYS, victims, G_N_ELEMENTS(victims) };
    const RubatoTask task = {
        .name = "work", .run = lossy_rounds_work, .user_data = &rounds, .tables = names
    };

    spec.parts = 8;
    spec.replicas = 1;
    TRY(rubato_engine_create_table(engine, &spec, error));
    RubatoTaskRun *const run = rubato_engine_start(engine, &task, error);
    TRY(run != NULL);
    const bool is_drained = rubato_engine_node(engine) != CLUSTER_IDS[0] || drain(engine, error);
    return is_drained && rubato_task_run_wait(run, error) &&
           lossy_rounds_check(&rounds, NULL, error) && rubato_engine_barrier(engine, error);
}

START_TEST(a_node_is_drained_while_workers_use_its_parts_and_ends_without_loss)
{
    ClusterShape shape = four;

    shape.over = cases[_i].over;
    ClusterRun *run = cluster_run_new(&shape);

    cluster_start(run, play, &cases[_i].spec);
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
                        G_N_ELEMENTS(cases));
    tcase_add_loop_test(drained, a_node_keeps_parts_that_would_not_have_their_replicas_elsewhere, 0,
                        G_N_ELEMENTS(kept));
    return run_suite(suite);
}
