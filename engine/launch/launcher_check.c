/* `rubato check`: what a cluster file would run where, and what would prevent it. The sockets that
 * try the ports stay open until all have been tried, so it also finds two entries that mean the
 * same port by different names of a host.
 *
 * Thread: the caller's. */
#include <errno.h>
#include <rubato/launcher.h>
#include <string.h>
#include <unistd.h>

#include "engine/cluster/cluster_file.h"
#include "engine/cluster/host.h"
#include "engine/cluster/secret_source.h"
#include "engine/launch/launcher_binding.h"

typedef struct {
    const Cluster *cluster;
    GArray *sockets; /* int */
    GString *faults; /* a line each */
} Check;

static void add_fault(Check *check, const char *text)
{
    if (check->faults->len > 0)
        g_string_append_c(check->faults, '\n');
    g_string_append(check->faults, text);
}

/* Tries one address and notes what is wrong with it. Returns what the table says of its port, and
 * in *starts_by how the launcher would start a process there. */
static const char *try_address(Check *check, const char *what, unsigned line, const char *host_name,
                               uint16_t port, const char **starts_by)
{
    g_autofree char *where = g_strdup_printf("%s:%u", check->cluster->path, line);
    g_autoptr(GError) error = NULL;
    Host host = { 0 };
    int fd = -1;

    *starts_by = "?";
    if (!host_resolve(&host, host_name, where, &error)) {
        add_fault(check, error->message);
        return "unknown host";
    }
    *starts_by = host.local ? "fork" : "ssh";

    const bool tried = host.local && port != 0;
    if (tried)
        fd = host_try_port(&host, port);
    const int failure = errno;
    host_clear(&host);
    if (!tried)
        return port == 0 ? "any" : "not tried";
    if (fd >= 0) {
        g_array_append_val(check->sockets, fd);
        return "free";
    }

    g_autofree char *fault =
        failure == EADDRINUSE
            ? g_strdup_printf("%s: the port %u of %s on %s is busy: a program, or another entry of "
                              "this file, has it; end that program, or write another port",
                              where, port, what, host_name)
            : g_strdup_printf("%s: the port %u of %s on %s cannot be opened: %s", where, port, what,
                              host_name, g_strerror(failure));
    add_fault(check, fault);
    return failure == EADDRINUSE ? "busy" : "refused";
}

static char *format_address(const char *host, uint16_t port)
{
    const bool bare_v6 = strchr(host, ':') != NULL;

    if (port == 0)
        return g_strdup_printf("%s%s%s:any", bare_v6 ? "[" : "", host, bare_v6 ? "]" : "");
    return g_strdup_printf("%s%s%s:%u", bare_v6 ? "[" : "", host, bare_v6 ? "]" : "", port);
}

static const char *plural(uint32_t n)
{
    return n == 1 ? "" : "s";
}

/* A text that two nodes share if and only if they are on one host. (transfer full) */
static char *host_key(const char *name)
{
    Host host = { 0 };
    char *key;

    if (!host_resolve(&host, name, "", NULL))
        return g_ascii_strdown(name, -1);
    key = host.local ? g_strdup("") : host_describe(&host);
    host_clear(&host);
    return key;
}

/* "shm", or how it differs from pair to pair. Notes pairs that the transport cannot connect.
 * (transfer full) */
static char *describe_transport(Check *check)
{
    const Cluster *cluster = check->cluster;
    const char *const far = cluster_far_transport(cluster);
    const bool shares = cluster_shares_memory_nearby(cluster);
    g_autoptr(GHashTable) hosts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    guint n_hosts;

    if (strcmp(cluster->transport, far) == 0)
        return g_strdup(far);
    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        const ClusterNode *node = &cluster->nodes[i];

        if (g_hash_table_add(hosts, host_key(node->host)) && i > 0 && !shares) {
            g_autofree char *fault = g_strdup_printf(
                "%s:%u: node %u is on another host than node %u, and \"%s\" connects processes of "
                "one host; leave 'transport' out, or write \"tcp\"",
                cluster->path, node->line, node->id, cluster->nodes[0].id, cluster->transport);
            add_fault(check, fault);
        }
    }
    n_hosts = g_hash_table_size(hosts);
    if (!shares)
        return g_strdup(cluster->transport);
    if (n_hosts == 1)
        return g_strdup("shm");
    return n_hosts == cluster->n_nodes
               ? g_strdup(far)
               : g_strdup_printf("shm within a host, %s between hosts", far);
}

static void append_summary(Check *check, GString *report)
{
    const Cluster *cluster = check->cluster;
    g_autofree char *transport = describe_transport(check);
    const uint32_t n_first = cluster_first_nodes(cluster);
    const uint32_t servers = cluster_first_servers(cluster);
    uint32_t workers = 0;

    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        workers += cluster->nodes[i].spare ? 0 : cluster->nodes[i].workers;
    g_string_append_printf(report, "%s: %u node%s, %u server%s, %u worker%s", cluster->name,
                           n_first, plural(n_first), servers, plural(servers), workers,
                           plural(workers));
    if (n_first < cluster->n_nodes)
        g_string_append_printf(report, ", and %u spare node%s", cluster->n_nodes - n_first,
                               plural(cluster->n_nodes - n_first));
    g_string_append_printf(report, ", over %s\n\n", transport);
}

static void append_table(Check *check, GString *report)
{
    const Cluster *cluster = check->cluster;
    const ClusterNode *first = &cluster->nodes[cluster->scheduler_node];
    g_autofree char *scheduler = format_address(cluster->scheduler_host, cluster->scheduler_port);
    size_t width = strlen("address"), length = strlen(scheduler);
    const char *starts_by;

    width = MAX(width, length);
    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        g_autofree char *text = format_address(cluster->nodes[i].host, cluster->nodes[i].port);
        length = strlen(text);
        width = MAX(width, length);
    }
    g_string_append_printf(report, "%9s  %-*s  %7s  %7s  %-9s  %s\n", "node", (int)width, "address",
                           "servers", "workers", "starts by", "port");

    const char *state = try_address(check, "the scheduler", cluster->scheduler_line,
                                    cluster->scheduler_host, cluster->scheduler_port, &starts_by);
    g_autofree char *runs_on = g_strdup_printf("node %u", first->id);
    g_string_append_printf(report, "%9s  %-*s  %7s  %7s  %-9s  %s\n", "scheduler", (int)width,
                           scheduler, "", "", runs_on, state);

    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        const ClusterNode *node = &cluster->nodes[i];
        g_autofree char *address = format_address(node->host, node->port);
        g_autofree char *name = g_strdup_printf("node %u", node->id);

        state = try_address(check, name, node->line, node->host, node->port, &starts_by);
        if (node->spare)
            starts_by = "--join";
        g_string_append_printf(report, "%9u  %-*s  %7u  %7u  %-9s  %s\n", node->id, (int)width,
                               address, node->servers, node->workers, starts_by, state);
    }
}

/* Tells how the nodes will prove who they are. */
static void append_security(Check *check, GString *report)
{
    const Cluster *const cluster = check->cluster;
    const char *const encrypted =
        cluster->encrypt ? "; what crosses between nodes is encrypted" : "";
    g_autofree char *path = secret_file_path(cluster);
    g_autoptr(GError) error = NULL;
    g_auto(RunSecret) secret = { { 0 } };

    if (path != NULL) {
        g_string_append_printf(report, "the secret of a run is that of %s%s\n", path, encrypted);
        if (!secret_read_file(path, &secret, &error))
            add_fault(check, error->message);
    } else if (secret_check_cluster(cluster, SECRET_ORIGIN_NONE, &error)) {
        g_string_append_printf(report,
                               "rubato run makes a secret for each run; nodes started "
                               "otherwise %s\n",
                               cluster->insecure ? "may do without (insecure)" : "need none");
    } else {
        g_string_append_printf(report,
                               "rubato run makes a secret for each run; nodes started otherwise "
                               "need secret_file or " SECRET_VARIABLE "%s\n",
                               encrypted);
    }
}

/* Which threads would be bound to which cores of this machine. */
static void append_binding(Check *check, GString *report)
{
    g_autoptr(GError) error = NULL;

    if ((check->cluster->bind_cores || check->cluster->numa) &&
        !binding_report(check->cluster, report, &error))
        add_fault(check, error->message);
}

bool rubato_launch_check(const char *cluster_file, GString *report, GError **error)
{
    g_return_val_if_fail(cluster_file != NULL && report != NULL, false);

    g_autoptr(Cluster) cluster = cluster_read(cluster_file, error);
    if (cluster == NULL)
        return false;

    g_autoptr(GArray) sockets = g_array_new(FALSE, FALSE, sizeof(int));
    g_autoptr(GString) faults = g_string_new(NULL);
    Check check = { .cluster = cluster, .sockets = sockets, .faults = faults };

    append_summary(&check, report);
    append_table(&check, report);
    g_string_append_printf(report,
                           "\na heartbeat each %u ms; a node is lost after %u ms of silence; "
                           "a stalled call says so after %u ms\n",
                           cluster->heartbeat_ms, cluster->timeout_ms, cluster->stall_ms);
    append_security(&check, report);
    append_binding(&check, report);
    for (guint i = 0; i < sockets->len; i++)
        close(g_array_index(sockets, int, i));
    if (faults->len == 0)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK, "%s", faults->str);
    return false;
}
