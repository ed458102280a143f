/* Tasks follow one another, so that one is nearly always about to begin or to end, and a node that
 * is a process is killed meanwhile. It has no workers, or the tasks continue without these: they go
 * on, and each Add of the others counts once.
 *
 * docs/liveness.md: A node that dies, with replicas. */
#include <signal.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/lossy_rounds.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N_NODES = 3, VICTIM = 2, OTHERS = 2, LOST_ROW = N_NODES, N_ROWS, BEFORE = 20, MORE = 5 };

static const RubatoTableSpec spec = {
    .name = "rows", .model = "bsp", .dtype = RUBATO_I64, .n_keys = N_ROWS, .replicas = 1
};

/* Each worker counts the task, and the first one tells all whether the node is lost. */
static bool count_task(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    const RubatoKey keys[] = { rank, LOST_ROW };
    const int64_t one[] = { 1, cluster_is_lost(user_data, VICTIM) };
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, spec.name, RUBATO_I64, error);

    return table != NULL && rubato_kv_table_add(table, keys, rank == 0 ? 2 : 1, one, error) &&
           rubato_kv_table_clock(table, error);
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    const bool *const continues = data;
    const char *const tables[] = { spec.name, NULL };
    const RubatoTask task = { .name = "count",
                              .run = count_task,
                              .user_data = engine,
                              .tables = tables,
                              .on_loss =
                                  *continues ? RUBATO_ON_LOSS_CONTINUE : RUBATO_ON_LOSS_FAIL };
    int64_t rows[N_ROWS] = { 0 };

    TRY(rubato_engine_create_table(engine, &spec, error));
    for (int64_t n = 1; rows[LOST_ROW] < MORE; n++) {
        TRY(rubato_engine_run(engine, &task, error) &&
            rubato_engine_get_range(engine, spec.name, 0, N_ROWS, rows, error));
        for (uint32_t rank = 0; rank < OTHERS; rank++)
            EXPECT(rows[rank] == n,
                   "worker %u has added %" G_GINT64_FORMAT " in %" G_GINT64_FORMAT " tasks", rank,
                   rows[rank], n);
        TRY(rubato_engine_barrier(engine, error)); /* all have read the same */
        if (n == BEFORE)
            cluster_say("busy");
    }
    return true;
}

START_TEST(tasks_begin_although_a_node_is_lost)
{
    const bool continues = _i % 2 == 1;
    ClusterRun *run = cluster_run_new(
        &(ClusterShape){ .n_nodes = N_NODES, .nodes = { { 1, 1 }, { 1, 1 }, { 1, continues } } });

    cluster_start(run, play, &continues);
    cluster_wait_for(run, 0, "busy");
    cluster_signal(run, VICTIM, SIGKILL);
    for (uint32_t i = 0; i < VICTIM; i++) {
        cluster_expect_end(run, i, 0);
        cluster_expect_text(run, i, "the run goes on, by part map 2");
    }
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster task start");
    TCase *cases = cluster_add_case(suite, "task start");

    tcase_add_loop_test(cases, tasks_begin_although_a_node_is_lost, 0, 6);
    return run_suite(suite);
}
