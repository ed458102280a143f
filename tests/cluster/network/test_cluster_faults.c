/* RUBATO_FAULTS on each transport: what is dropped is sent again, each Add counts once, and the
 * node that is to be killed is lost.
 *
 * docs/liveness.md: Faults on demand */
#include <signal.h>

#include "engine/engine_private.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/runner.h"

enum { N_NODES = 2, N_CLOCKS = 20, N_KEYS = 20 };

static bool count(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);
    float ones[N_KEYS], rows[N_KEYS];

    (void)user_data;
    for (int i = 0; i < N_KEYS; i++)
        ones[i] = 1;
    for (int clock = 0; table != NULL && clock < N_CLOCKS; clock++) {
        if (!rubato_kv_table_get_range(table, 0, N_KEYS, rows, error) ||
            !rubato_kv_table_add_range(table, 0, N_KEYS, ones, error) ||
            !rubato_kv_table_clock(table, error))
            return false;
        for (int i = 0; i < N_KEYS; i++)
            EXPECT(rows[i] == (float)(clock * N_NODES), "clock %d reads %g", clock,
                   (double)rows[i]);
    }
    return table != NULL;
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "t", .n_keys = N_KEYS, .model = "bsp" };
    const char *const tables[] = { "t", NULL };
    NetworkStats stats;

    (void)data;
    if (!rubato_engine_create_table(engine, &spec, error) ||
        !cluster_run_task(engine, "count", count, NULL, tables, error))
        return false;
    network_stats(engine->network, &stats);
    /* each packet is followed by its double on the same connection */
    EXPECT(stats.duplicates_dropped > 0, "of %" G_GUINT64_FORMAT " packets none came twice",
           stats.packets_received);
    return true;
}

static const struct {
    const char *over; /* the transport of the cluster file */
    bool encrypts;
    const char *faults;
} wires[] = {
    { "shm", false, "drop=0.02,double=1,reorder=0.05,seed=1" },
    { "tcp", false, "drop=0.02,double=1,reorder=0.05,seed=2" },
    { "zmq", false, "drop=0.02,double=1,reorder=0.05,seed=3" },
    { "ipc", false, "drop=0.02,double=1,reorder=0.05,seed=4" },
    { "shm", true, "drop=0.02,double=1,reorder=0.05,seed=5" },
    { "tcp", true, "double=1,delay=1ms,seed=6" },
#ifdef RUBATO_HAS_UCX
    { "ucx", false, "drop=0.02,double=1,reorder=0.05,seed=7" },
    { "ucx", true, "double=1,delay=1ms,seed=8" },
#endif
};

START_TEST(adds_count_once_on_each_transport_with_faults)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = N_NODES,
                                                       .nodes = { { 1, 1 }, { 1, 1 } },
                                                       .over = wires[_i].over,
                                                       .encrypts = wires[_i].encrypts });
    g_autofree char *announced =
        g_strdup_printf("FAULTS ON DEMAND: RUBATO_FAULTS=%s", wires[_i].faults);

    g_setenv(FAULTS_VARIABLE, wires[_i].faults, TRUE);
    cluster_start(run, play, NULL);
    cluster_expect_success(run);
    for (uint32_t i = 0; i < N_NODES; i++)
        cluster_expect_text(run, i, announced);
    cluster_run_free(run);
}
END_TEST

/* ---- a node that is killed ---- */

static bool wait_for_other(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    while (!rubato_worker_cancelled(worker))
        if (!rubato_worker_barrier(worker, error))
            return false;
    return true;
}

static bool play_on(RubatoEngine *engine, const void *data, GError **error)
{
    (void)data;
    return cluster_run_task(engine, "wait", wait_for_other, NULL, NULL, error);
}

/* Node 1 is killed after its engine was started, when this may be: before the rendezvous, or while
 * the task runs. The other one ends with an error that names it in either case. */
START_TEST(a_node_is_killed_when_its_time_comes)
{
    const ClusterShape shape = { .n_nodes = N_NODES,
                                 .nodes = { { 1, 1 }, { 1, 1 } },
                                 .heartbeat_ms = 100,
                                 .timeout_ms = cluster_short_timeout_ms() };
    ClusterRun *run = cluster_run_new(&shape);
    g_autofree char *faults = g_strdup_printf("kill=%u@1500ms", CLUSTER_IDS[1]);
    g_autofree char *name = g_strdup_printf("node %u (127.0.0.1:0)", CLUSTER_IDS[1]);

    g_setenv(FAULTS_VARIABLE, faults, TRUE);
    cluster_start(run, play_on, NULL);
    cluster_expect_end(run, 1, -SIGKILL);
    ck_assert_int_ne(cluster_wait_end(run, 0), 0);
    cluster_expect_text(run, 0, name);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster faults");
    TCase *wire = cluster_add_case(suite, "wire");
    TCase *death = cluster_add_case(suite, "death");

    tcase_add_loop_test(wire, adds_count_once_on_each_transport_with_faults, 0,
                        G_N_ELEMENTS(wires));
    tcase_add_test(death, a_node_is_killed_when_its_time_comes);
    return run_suite(suite);
}
