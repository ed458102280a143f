/* A node is killed when all others have left the run: what those tell whoever started them. The run
 * has its results, so it has not failed, if it goes on without lost nodes at all.
 *
 * docs/liveness.md: A node that dies, with replicas. */
#include <signal.h>
#include <unistd.h>

#include "engine/launch/launcher_news.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N_NODES = 3, VICTIM = 2 };

/* They say soon that they wait for others to leave. */
static const ClusterShape shape = { .n_nodes = N_NODES,
                                    .nodes = { { 1, 1 }, { 1, 1 }, { 1, 1 } },
                                    .stall_ms = 100 };

static bool play(RubatoEngine *engine, const void *n_replicas, GError **error)
{
    const RubatoTableSpec rows = { .name = "rows",
                                   .n_keys = 10,
                                   .replicas = *(const uint32_t *)n_replicas };

    TRY(rubato_engine_create_table(engine, &rows, error) && rubato_engine_barrier(engine, error));
    while (rubato_engine_node(engine) == CLUSTER_IDS[VICTIM])
        (void)pause();
    return true;
}

START_TEST(a_node_that_is_killed_when_the_others_have_left_is_told)
{
    const uint32_t n_replicas = (uint32_t)_i;
    g_autofree char *lost = g_strdup_printf("rubato lost %u ", CLUSTER_IDS[VICTIM]);
    ClusterRun *const run = cluster_run_new(&shape);

    g_setenv(LAUNCHER_NEWS_VARIABLE, "1", TRUE);
    cluster_start(run, play, &n_replicas);
    for (uint32_t i = 0; i < VICTIM; i++)
        cluster_wait_for(run, i, "has nothing left to do and serves the others");
    cluster_signal(run, VICTIM, SIGKILL);
    for (uint32_t i = 0; i < VICTIM; i++) {
        cluster_expect_end(run, i, 0);
        (n_replicas > 0 ? cluster_expect_text : cluster_expect_no_text)(run, i, "rubato ended");
        (n_replicas > 0 ? cluster_expect_text : cluster_expect_no_text)(run, i, lost);
    }
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster end");
    TCase *cases = cluster_add_case(suite, "end");

    tcase_add_loop_test(cases, a_node_that_is_killed_when_the_others_have_left_is_told, 0, 2);
    return run_suite(suite);
}
