/* Collectives on tensors between nodes whose network has faults on demand; and a node that is lost
 * while calls of every kind are pending: all of them end within two timeouts, and name it. */
#include <signal.h>
#include <string.h>

#include "engine/engine_private.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/tensor_suite.h"
#include "tests/support/runner.h"

/* ---- faults on demand ---- */

static const struct {
    const char *over; /* the transport of the cluster file */
    bool encrypts;
    const char *faults;
} wires[] = {
    { "shm", false, "drop=0.002,double=0.5,reorder=0.01,seed=1" },
    { "tcp", false, "drop=0.002,double=0.5,reorder=0.01,cut=20ms/400ms,seed=2" },
    { "zmq", false, "drop=0.002,double=0.5,reorder=0.01,seed=3" },
    { "tcp", true, "double=0.5,delay=1ms,cut=20ms/400ms,seed=4" },
};

static bool play_operations(RubatoEngine *engine, const void *data, GError **error)
{
    NetworkStats stats;

    (void)data;
    if (!tensor_suite_sets(engine, 3, error) || !tensor_suite_sums(engine, 3, error) ||
        !tensor_suite_repeats(engine, 3, error))
        return false;
    network_stats(engine->network, &stats);
    EXPECT(stats.duplicates_dropped > 0, "of %" G_GUINT64_FORMAT " packets none came twice",
           stats.packets_received);
    return true;
}

START_TEST(operations_are_right_on_each_transport_with_faults)
{
    ClusterRun *const run = cluster_run_new(&(ClusterShape){ .n_nodes = 2,
                                                             .nodes = { { 1, 1 }, { 0, 2 } },
                                                             .over = wires[_i].over,
                                                             .encrypts = wires[_i].encrypts });

    g_setenv(FAULTS_VARIABLE, wires[_i].faults, TRUE);
    cluster_start(run, play_operations, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- a lost node ---- */

enum { N_NODES = 3, LOST = 1, N_VALUES = 1 << 18, N_TICKETS = 7 };

typedef struct {
    float input[N_VALUES], output[N_TICKETS][N_VALUES];
    RubatoGathered gathered[2];
} Arrays;

static RubatoTensor tensor_of(Arrays *arrays, const char *name, uint32_t i)
{
    return (RubatoTensor){ .name = name,
                           .dtype = RUBATO_F32,
                           .n_dims = 1,
                           .shape = { N_VALUES },
                           .input = arrays->input,
                           .output = arrays->output[i] };
}

/* The worker's calls with tickets, of which the last one is asked by the lost node, too. */
static bool ask_all(RubatoWorker *worker, Arrays *arrays, RubatoTicket *tickets, GError **error)
{
    const RubatoReduce adasum = { .reduction = RUBATO_REDUCTION_ADASUM };
    const uint64_t splits[N_NODES] = { N_VALUES, 0, 0 };
    const RubatoTensor all[] = {
        tensor_of(arrays, "allreduce", 0), tensor_of(arrays, "scattered", 1),
        tensor_of(arrays, "adasum", 2),    tensor_of(arrays, "broadcast", 3),
        tensor_of(arrays, "rows", 4),      tensor_of(arrays, "dealt", 5),
        tensor_of(arrays, "running", 6),
    };

    tickets[0] = rubato_worker_allreduce_async(worker, &all[0], NULL, NULL, error);
    tickets[1] = rubato_worker_reduce_scatter_async(worker, &all[1], NULL, NULL, error);
    tickets[2] = rubato_worker_allreduce_async(worker, &all[2], &adasum, NULL, error);
    tickets[3] = rubato_worker_broadcast_async(worker, &all[3], LOST, NULL, error);
    tickets[4] = rubato_worker_allgather_async(worker, &all[4], &arrays->gathered[0], NULL, error);
    tickets[5] =
        rubato_worker_alltoall_async(worker, &all[5], splits, &arrays->gathered[1], NULL, error);
    tickets[6] = rubato_worker_allreduce_async(worker, &all[6], NULL, NULL, error);
    for (uint32_t i = 0; i < N_TICKETS; i++)
        TRY(tickets[i] != 0);
    return true;
}

static bool is_named(const GError *failure)
{
    g_autofree char *name = g_strdup_printf("node %u ", CLUSTER_IDS[LOST]);

    return g_error_matches(failure, RUBATO_ERROR, RUBATO_ERROR_CANCELLED) &&
           strstr(failure->message, name) != NULL;
}

/* Worker 0 waits for a set besides, and worker 2 has joined. */
static bool fail_at_all(RubatoWorker *worker, Arrays *arrays, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    g_autoptr(GError) failure = NULL;
    RubatoTicket tickets[N_TICKETS] = { 0 };
    uint32_t set, last;

    TRY(ask_all(worker, arrays, tickets, error));
    REQUIRE(!(rank == 0 ? rubato_worker_make_set(worker, &rank, 1, &set, &failure)
                        : rubato_worker_join(worker, &last, &failure)));
    REQUIRE(is_named(failure), "(%s)", failure->message);
    for (uint32_t i = 0; i < N_TICKETS; i++) {
        g_autoptr(GError) of_ticket = NULL;

        REQUIRE(!rubato_worker_wait(worker, tickets[i], &of_ticket), "(ticket %u)", i);
        REQUIRE(is_named(of_ticket), "(ticket %u: %s)", i, of_ticket->message);
    }
    cluster_say("ended at %" G_GINT64_FORMAT, cluster_now_ms());
    g_propagate_error(error, g_steal_pointer(&failure));
    return false;
}

static bool wait_for_lost(RubatoWorker *worker, void *user_data, GError **error)
{
    Arrays *const arrays = g_new0(Arrays, 1); /* of a worker that is lost for longer than it runs */

    TRY(rubato_worker_named_barrier(worker, "begin", error));
    if (rubato_worker_rank(worker) != LOST) {
        const bool ok = fail_at_all(worker, arrays, error);

        g_free(arrays);
        return ok;
    }
    const RubatoTensor running = tensor_of(arrays, "running", 0);
    TRY(rubato_worker_allreduce_async(worker, &running, NULL, NULL, error) != 0);
    cluster_say("gone at %" G_GINT64_FORMAT, cluster_now_ms());
    raise(*(const int *)user_data);
    return false;
}

static bool play_loss(RubatoEngine *engine, const void *data, GError **error)
{
    g_autoptr(GError) found = NULL;
    g_autofree char *name = g_strdup_printf("node %u ", CLUSTER_IDS[LOST]);

    EXPECT(!cluster_run_task(engine, "lost", wait_for_lost, data, NULL, &found), "it went on");
    return cluster_expect_error(&found, RUBATO_ERROR_NODE_LOST, name, error);
}

static const int losses[] = { SIGKILL, SIGSTOP };

START_TEST(lost_node_ends_calls_of_every_kind_within_two_timeouts)
{
    const ClusterShape shape = { .n_nodes = N_NODES,
                                 .nodes = { { 1, 1 }, { 0, 1 }, { 0, 1 } },
                                 .timeout_ms = cluster_short_timeout_ms() };
    ClusterRun *const run = cluster_run_new(&shape);

    cluster_start(run, play_loss, &losses[_i]);
    cluster_expect_end(run, 0, 0);
    cluster_expect_end(run, 2, 0);
    if (losses[_i] == SIGSTOP)
        cluster_signal(run, LOST, SIGKILL);
    cluster_expect_end(run, LOST, -SIGKILL);
    g_autofree char *gone = cluster_text_after(run, LOST, "gone at ");
    for (uint32_t node = 0; node < N_NODES; node += 2) {
        g_autofree char *ended = cluster_text_after(run, node, "ended at ");

        ck_assert_int_le(g_ascii_strtoll(ended, NULL, 10) - g_ascii_strtoll(gone, NULL, 10),
                         2 * shape.timeout_ms);
    }
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("cluster_collectives_faults");
    TCase *const wire = cluster_add_case(suite, "wire");
    TCase *const loss = cluster_add_case(suite, "loss");

    tcase_add_loop_test(wire, operations_are_right_on_each_transport_with_faults, 0,
                        G_N_ELEMENTS(wires));
    tcase_add_loop_test(loss, lost_node_ends_calls_of_every_kind_within_two_timeouts, 0,
                        G_N_ELEMENTS(losses));
    return run_suite(suite);
}
