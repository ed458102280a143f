/* Hosts of a cluster file whose names become known only after the nodes have started. The resolver
 * is the test's own: the linker replaces getaddrinfo. */
#include <netdb.h>
#include <signal.h>
#include <string.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/runner.h"

#define LATE_SCHEDULER "scheduler.late.invalid"
#define LATE_NODE "node.late.invalid"
#define NEVER "never.invalid"

/* How often a late name is unknown in each process. */
#define N_UNKNOWN 2

__typeof__(getaddrinfo) __real_getaddrinfo, __wrap_getaddrinfo;

/* The names are looked up by the thread of the engine's calls alone, so the counters need no
 * lock. */
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **found)
{
    static struct {
        const char *name;
        unsigned n_asked;
    } late[] = { { LATE_SCHEDULER, 0 }, { LATE_NODE, 0 } };

    if (host != NULL && strcmp(host, NEVER) == 0)
        return EAI_NONAME;
    for (size_t i = 0; i < G_N_ELEMENTS(late); i++) {
        if (host == NULL || strcmp(host, late[i].name) != 0)
            continue;
        if (late[i].n_asked++ < N_UNKNOWN)
            return i == 0 ? EAI_NONAME : EAI_AGAIN;
        host = "127.0.0.1";
    }
    return __real_getaddrinfo(host, service, hints, found);
}

static bool meet(RubatoEngine *engine, const void *data, GError **error)
{
    (void)data;
    return rubato_engine_barrier(engine, error);
}

static ClusterRun *run_new(void)
{
    return cluster_run_new(
        &(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } }, .handle_signals = true });
}

/* A file of nodes 3, which is the scheduler's, and 7. (transfer none) */
static const char *add_file(ClusterRun *run, const char *scheduler, const char *node,
                            unsigned rendezvous_ms)
{
    g_autofree char *text = g_strdup_printf(
        "cluster: { insecure = true; stall_ms = 100; timeout_ms = 60000; rendezvous_ms = %u;\n"
        "scheduler = { host = \"%s\"; port = %u; };\n"
        "nodes = ( { id = 3; host = \"127.0.0.1\"; port = 0; },\n"
        "{ id = 7; host = \"%s\"; port = 0; } ); };\n",
        rendezvous_ms, scheduler, run->port, node);

    return cluster_add_file(run, text);
}

static void expect_not_started(ClusterRun *run, uint32_t process, RubatoError code,
                               const char *text)
{
    g_autofree char *start = g_strdup_printf("error %d: ", (int)code);

    cluster_expect_end(run, process, CLUSTER_NOT_STARTED);
    cluster_expect_text(run, process, start);
    cluster_expect_text(run, process, text);
}

START_TEST(hosts_that_appear_late_are_found)
{
    ClusterRun *run = run_new();
    const char *const path = add_file(run, LATE_SCHEDULER, LATE_NODE, 60000);

    cluster_start_node_with(run, 0, path, meet, NULL);
    cluster_start_node_with(run, 1, path, meet, NULL);
    cluster_expect_success(run);
    cluster_expect_text(run, 0, "node 3 waits: cannot resolve the host " LATE_SCHEDULER);
    cluster_expect_text(run, 1, "node 7 waits: cannot resolve the host " LATE_SCHEDULER);
    cluster_expect_text(run, 1, "node 7 waits: cannot resolve the host " LATE_NODE);
    cluster_run_free(run);
}
END_TEST

START_TEST(a_host_that_does_not_appear_is_named_when_the_time_is_over)
{
    ClusterRun *run = run_new();
    const bool of_scheduler = _i == 0;
    const char *const path =
        add_file(run, of_scheduler ? NEVER : "127.0.0.1", of_scheduler ? "127.0.0.1" : NEVER, 300);

    cluster_start_node_with(run, 1, path, meet, NULL);
    expect_not_started(run, 1, RUBATO_ERROR_NETWORK,
                       "s: cannot resolve the host " NEVER ": Name or service not known");
    cluster_expect_text(run, 1, "node 7: after ");
    cluster_run_free(run);
}
END_TEST

START_TEST(a_signal_ends_the_wait_for_a_host)
{
    ClusterRun *run = run_new();

    cluster_start_node_with(run, 1, add_file(run, NEVER, "127.0.0.1", 60000), meet, NULL);
    cluster_wait_for(run, 1, "node 7 waits: cannot resolve the host " NEVER);
    cluster_signal(run, 1, SIGTERM);
    expect_not_started(run, 1, RUBATO_ERROR_CANCELLED, "node 7 was ended by signal 15");
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("late_hosts");
    TCase *late = cluster_add_case(suite, "late");

    tcase_add_test(late, hosts_that_appear_late_are_found);
    tcase_add_loop_test(late, a_host_that_does_not_appear_is_named_when_the_time_is_over, 0, 2);
    tcase_add_test(late, a_signal_ends_the_wait_for_a_host);
    return run_suite(suite);
}
