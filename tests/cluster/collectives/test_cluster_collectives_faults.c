/* Collectives on tensors between nodes whose network has faults on demand; and a node that is lost
 * while calls of every kind are pending: all of them end within two timeouts, and name it. */
#include <signal.h>
#include <string.h>

#include "engine/engine_private.h"
#include "tests/support/cluster/pending_calls.h"
#include "tests/support/collectives/tensor_suite.h"
#include "tests/support/engine/engine_fixture.h"
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

enum { N_LENT = 1 << 19 }; /* so that pieces are sent from the workers' arrays */

/* Its arrays are its own again when the call has ended: a sanitizer sees who still reads them. */
static bool sum_once(RubatoWorker *worker, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), n = rubato_worker_n_workers(worker);
    g_autofree float *input = g_new(float, N_LENT);
    g_autofree float *output = g_new(float, N_LENT);
    const RubatoTensor tensor = { .name = "lent",
                                  .dtype = RUBATO_F32,
                                  .n_dims = 1,
                                  .shape = { N_LENT },
                                  .input = input,
                                  .output = output };

    for (size_t i = 0; i < N_LENT; i++)
        input[i] = (float)(rank + i % 97);
    TRY(rubato_worker_allreduce(worker, &tensor, NULL, error));
    for (size_t i = 0; i < N_LENT; i++)
        REQUIRE(output[i] == (float)(n * (n - 1) / 2 + n * (i % 97)), "(%g)", output[i]);
    memset(input, 0xff, N_LENT * sizeof *input);
    memset(output, 0xff, N_LENT * sizeof *output);
    return true;
}

static bool sum_some(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    for (uint32_t i = 0; i < 3; i++)
        TRY(sum_once(worker, error));
    return true;
}

static bool play_operations(RubatoEngine *engine, const void *data, GError **error)
{
    NetworkStats stats;

    if (!tensor_suite_sets(engine, 3, error) || !tensor_suite_sums(engine, 3, error) ||
        !tensor_suite_repeats(engine, 3, error) ||
        !cluster_run_task(engine, "lent", sum_some, NULL, NULL, error))
        return false;
    network_stats(engine->network, &stats);
    EXPECT(stats.duplicates_dropped > 0, "of %" G_GUINT64_FORMAT " packets none came twice",
           stats.packets_received);
    EXPECT(!*(const bool *)data || stats.direct_reads > 0,
           "no values of lent pieces were read to their place");
    return true;
}

START_TEST(operations_are_right_on_each_transport_with_faults)
{
    const bool reads_direct = strcmp(wires[_i].over, "tcp") == 0 && !wires[_i].encrypts;
    ClusterRun *const run = cluster_run_new(&(ClusterShape){ .n_nodes = 2,
                                                             .nodes = { { 1, 1 }, { 0, 2 } },
                                                             .over = wires[_i].over,
                                                             .encrypts = wires[_i].encrypts });

    g_setenv(FAULTS_VARIABLE, wires[_i].faults, TRUE);
    cluster_start(run, play_operations, &reads_direct);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- a lost node ---- */

enum { N_NODES = PENDING_NODES, LOST = PENDING_LOST, N_VALUES = 1 << 18 };

static bool is_named(const GError *failure)
{
    g_autofree char *name = g_strdup_printf("node %u ", CLUSTER_IDS[LOST]);

    return g_error_matches(failure, RUBATO_ERROR, RUBATO_ERROR_CANCELLED) &&
           strstr(failure->message, name) != NULL;
}

static bool wait_for_lost(RubatoWorker *worker, void *user_data, GError **error)
{
    PendingCalls *const calls = pending_calls_new(N_VALUES);
    const bool has_begun = rubato_worker_named_barrier(worker, "begin", error);
    g_autoptr(GError) failure = NULL;

    if (rubato_worker_rank(worker) == LOST) /* which lasts for longer than the worker runs */
        return has_begun && pending_calls_be_lost(worker, calls, *(const int *)user_data, error);
    if (has_begun && pending_calls_fail(worker, calls, is_named, &failure, error))
        g_propagate_error(error, g_steal_pointer(&failure));
    pending_calls_free(calls);
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

/* ---- a node that is lost while it gets what lies in arrays ---- */

static bool sum_for_ever(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    for (uint32_t i = 0; sum_once(worker, error); i++)
        if (i == 3)
            cluster_say("sums");
    return false;
}

static bool play_sums(RubatoEngine *engine, const void *data, GError **error)
{
    g_autoptr(GError) found = NULL;
    g_autofree char *name = g_strdup_printf("node %u ", CLUSTER_IDS[LOST]);

    (void)data;
    EXPECT(!cluster_run_task(engine, "lost", sum_for_ever, NULL, NULL, &found), "it went on");
    return cluster_expect_error(&found, RUBATO_ERROR_NODE_LOST, name, error);
}

START_TEST(arrays_are_the_workers_again_when_a_node_was_lost)
{
    const ClusterShape shape = { .n_nodes = N_NODES,
                                 .nodes = { { 1, 1 }, { 0, 1 }, { 0, 1 } },
                                 .over = "tcp",
                                 .timeout_ms = cluster_short_timeout_ms() };
    ClusterRun *const run = cluster_run_new(&shape);

    cluster_start(run, play_sums, NULL);
    for (uint32_t node = 0; node < N_NODES; node++)
        cluster_wait_for(run, node, "sums");
    cluster_signal(run, LOST, losses[_i]);
    cluster_expect_end(run, 0, 0);
    cluster_expect_end(run, 2, 0);
    if (losses[_i] == SIGSTOP)
        cluster_signal(run, LOST, SIGKILL);
    cluster_expect_end(run, LOST, -SIGKILL);
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
    tcase_add_loop_test(loss, arrays_are_the_workers_again_when_a_node_was_lost, 0,
                        G_N_ELEMENTS(losses));
    return run_suite(suite);
}
