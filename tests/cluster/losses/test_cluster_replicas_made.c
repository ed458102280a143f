/* Nodes that are processes are killed one after the other. Each part has one replica, and gets
 * another one in the place of a lost one, on a node that lives, while workers use it: so the second
 * loss loses nothing either.
 *
 * docs/liveness.md: A node that dies, with replicas. */
#include <signal.h>
#include <string.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/lossy_rounds.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

/* Nodes 2 and 3 have no workers. Part p of 8 is on server p mod 4, its replica on the next one. */
enum { N_NODES = 4, FIRST_VICTIM = 3, SECOND_VICTIM = 2, N_KEYS = LOSSY_KEYS };

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    static const uint32_t victims[] = { FIRST_VICTIM, SECOND_VICTIM };
    RubatoTableSpec spec = *(const RubatoTableSpec *)data;
    LossyRounds rounds = { engine,        &spec,        N_KEYS, victims, G_N_ELEMENTS(victims),
                           .calls = true, .lists = true };
    RubatoEngineStats stats;

    spec.parts = 8;
    spec.replicas = 1;
    TRY(lossy_rounds_play(&rounds, NULL, error));
    rubato_engine_stats(engine, &stats);
    EXPECT(stats.new_replicas >= 4, "%" G_GUINT64_FORMAT " new replicas", stats.new_replicas);
    return rubato_engine_barrier(engine, error);
}

START_TEST(parts_have_replicas_again_before_the_next_loss)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = N_NODES,
                                         .nodes = { { 1, 2 }, { 1, 1 }, { 1, 0 }, { 1, 0 } },
                                         .scheduler = 0,
                                         .over = lossy_cases[_i].over });

    cluster_start(run, play, &lossy_cases[_i].spec);
    cluster_wait_for(run, 0, "busy");
    cluster_wait_for(run, 1, "busy");
    cluster_signal(run, FIRST_VICTIM, SIGKILL);
    /* those of the parts of the lost node, which are on node 0 now, and those that it had: of each
     * of two tables */
    cluster_wait_for(run, 0, "server 0 has made 4 replicas of its parts on other nodes");
    cluster_wait_for(run, 2, "server 2 has made 4 replicas of its parts on other nodes");
    cluster_signal(run, SECOND_VICTIM, SIGKILL);
    for (uint32_t i = 0; i < SECOND_VICTIM; i++) {
        cluster_expect_end(run, i, 0);
        cluster_expect_text(run, i, "the run goes on, by part map 3");
    }
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster replicas made");
    TCase *made = cluster_add_case(suite, "made");

    tcase_add_loop_test(made, parts_have_replicas_again_before_the_next_loss, 0, N_LOSSY_CASES);
    lossy_rounds_register();
    return run_suite(suite);
}
