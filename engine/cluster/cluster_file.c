/* Reads the cluster file: text to Cluster, every fault refused with its line and what to write.
 *
 * Settings are read in cluster_setting.c. The text has passed cluster_syntax_check when libconfig
 * sees it (config_text.c), so what is left to check here is meaning: keys, types, ranges. What
 * entries may not say together is checked in cluster_check.c.
 *
 * Thread: any; no state beyond the call. */
#include "engine/cluster/cluster_file.h"

#include <assert.h>
#include <rubato/error.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cluster/cluster_check.h"
#include "engine/cluster/cluster_setting.h"
#include "engine/cluster/config_text.h"
#include "engine/collectives/backend/tensor_backend.h"
#include "engine/placement/placement.h"

#define DEFAULT_NAME "cluster"
#define DEFAULT_SERVERS 1u
#define DEFAULT_WORKERS 1u
#define DEFAULT_HEARTBEAT_MS 500u
#define DEFAULT_TIMEOUT_MS 3000u
#define DEFAULT_STALL_MS 10000u
#define DEFAULT_RENDEZVOUS_MS 30000u

#define MAX_NAME_BYTES 64u

static const char *const KNOWN_TRANSPORTS[] = { CLUSTER_AUTO_TRANSPORT, "shm", "ipc", "tcp", "ucx",
                                                CLUSTER_SHM_AND_UCX,    "zmq", NULL };

static const char *const ROOT_KEYS[] = { "cluster", NULL };
static const char *const CLUSTER_KEYS[] = {
    "name",     "scheduler",     "nodes",      "heartbeat_ms", "timeout_ms",
    "stall_ms", "rendezvous_ms", "transport",  "collectives",  "secret_file",
    "encrypt",  "authenticate",  "insecure",   "service_mib",  "placement",
    "limits",   "plugins",       "bind_cores", "numa",         NULL
};
static const char *const SCHEDULER_KEYS[] = { "host", "port", "node", NULL };
static const char *const NODE_KEYS[] = { "id",      "host",   "port",  "servers",
                                         "workers", "limits", "spare", NULL };
static const char *const LIMIT_KEYS[] = { "memory_mib", "network_mib", "queries", NULL };

/* The group `limits` of `group`, if it has one. A number that it leaves out stays as it is in
 * *limits. */
static bool read_limits(const ClusterFaults *faults, const config_setting_t *group,
                        const char *where, ClusterLimits *limits)
{
    const SettingNumber memory = { "memory_mib",       1,
                                   CLUSTER_MAX_MIB,    false,
                                   limits->memory_mib, "memory_mib = 4096;" };
    const SettingNumber network = { "network_mib",       1,
                                    CLUSTER_MAX_MIB,     false,
                                    limits->network_mib, "network_mib = 100;" };
    const SettingNumber queries = { "queries",           1,
                                    CLUSTER_MAX_QUERIES, false,
                                    limits->queries,     "queries = 1000000;" };
    g_autofree char *name = g_strdup_printf("the limits of %s", where);

    if (config_setting_get_member(group, "limits") == NULL)
        return true;
    const config_setting_t *const at =
        setting_find_group(faults, group, where, "limits", "limits = { memory_mib = 4096; };");
    return at != NULL && setting_check_keys(faults, at, name, LIMIT_KEYS) &&
           setting_read_number(faults, at, name, &memory, &limits->memory_mib) &&
           setting_read_number(faults, at, name, &network, &limits->network_mib) &&
           setting_read_number(faults, at, name, &queries, &limits->queries);
}

/* node->limits are those of the cluster so far. */
static bool read_node(const ClusterFaults *faults, const config_setting_t *entry, uint32_t place,
                      ClusterNode *node)
{
    static const SettingNumber id_rule = { "id", 0, CLUSTER_MAX_NODE_ID, true, 0, "id = 0;" };
    static const SettingNumber port_rule = { "port", 0, UINT16_MAX, true, 0, "port = 4101;" };
    static const SettingNumber servers_rule = { "servers",           0,
                                                CLUSTER_MAX_THREADS, false,
                                                DEFAULT_SERVERS,     "servers = 1;" };
    static const SettingNumber workers_rule = { "workers",           0,
                                                CLUSTER_MAX_THREADS, false,
                                                DEFAULT_WORKERS,     "workers = 2;" };
    g_autofree char *entry_name = g_strdup_printf("entry %u of 'nodes'", place + 1);
    uint32_t port = 0;

    node->line = setting_line(entry);
    if (!config_setting_is_group(entry))
        return cluster_refuse(faults, setting_line(entry),
                              "%s is %s; write a group, as in { id = %u; host = \"127.0.0.1\"; "
                              "port = %u; servers = 1; workers = 2; }",
                              entry_name, setting_type_name(entry), place, 4101 + place);
    if (!setting_check_keys(faults, entry, entry_name, NODE_KEYS) ||
        !setting_read_number(faults, entry, entry_name, &id_rule, &node->id))
        return false;

    /* From here on it has a name of its own. */
    g_autofree char *name = g_strdup_printf("node %u", node->id);
    if (!setting_read_host(faults, entry, name, &node->host) ||
        !setting_read_number(faults, entry, name, &port_rule, &port) ||
        !setting_read_number(faults, entry, name, &servers_rule, &node->servers) ||
        !setting_read_number(faults, entry, name, &workers_rule, &node->workers) ||
        !read_limits(faults, entry, name, &node->limits) ||
        !setting_read_truth(faults, entry, name, "spare", &node->spare))
        return false;
    node->port = (uint16_t)port;
    return true;
}

static int compare_ids(const void *a, const void *b)
{
    const uint32_t left = ((const ClusterNode *)a)->id;
    const uint32_t right = ((const ClusterNode *)b)->id;

    return left < right ? -1 : left > right;
}

static bool read_nodes(const ClusterFaults *faults, const config_setting_t *group, Cluster *cluster)
{
    static const char example[] = "nodes = ( { id = 0; host = \"127.0.0.1\"; port = 4101; } );";
    const config_setting_t *list = config_setting_get_member(group, "nodes");
    ClusterLimits limits = { 0 };

    if (!read_limits(faults, group, "the cluster", &limits))
        return false;

    if (list == NULL)
        return cluster_refuse(faults, setting_line(group), "the cluster has no 'nodes'; write %s",
                              example);
    if (!config_setting_is_list(list))
        return cluster_refuse(faults, setting_line(list),
                              "'nodes' is %s; write a list in ( ), as in %s",
                              setting_type_name(list), example);

    const int n = config_setting_length(list);
    if (n == 0)
        return cluster_refuse(faults, setting_line(list),
                              "'nodes' is empty; write at least one, as in %s", example);
    if (n > (int)CLUSTER_MAX_NODES)
        return cluster_refuse(faults, setting_line(list),
                              "'nodes' has %d entries; write at most %u", n, CLUSTER_MAX_NODES);

    cluster->nodes = g_new0(ClusterNode, (size_t)n);
    for (uint32_t i = 0; i < (uint32_t)n; i++) {
        cluster->n_nodes = i + 1;
        cluster->nodes[i].limits = limits;
        if (!read_node(faults, config_setting_get_elem(list, i), i, &cluster->nodes[i]))
            return false;
    }
    qsort(cluster->nodes, cluster->n_nodes, sizeof *cluster->nodes, compare_ids);
    return true;
}

static bool read_scheduler(const ClusterFaults *faults, const config_setting_t *group,
                           Cluster *cluster)
{
    static const SettingNumber port_rule = { "port", 1, UINT16_MAX, true, 0, "port = 4100;" };
    static const SettingNumber node_rule = {
        "node", 0, CLUSTER_MAX_NODE_ID, false, 0, "node = 0;"
    };
    const config_setting_t *scheduler =
        setting_find_group(faults, group, "the cluster", "scheduler",
                           "scheduler = { host = \"127.0.0.1\"; port = 4100; };");
    uint32_t port = 0;
    uint32_t id = 0;

    if (scheduler == NULL ||
        !setting_check_keys(faults, scheduler, "'scheduler'", SCHEDULER_KEYS) ||
        !setting_read_host(faults, scheduler, "'scheduler'", &cluster->scheduler_host) ||
        !setting_read_number(faults, scheduler, "'scheduler'", &port_rule, &port) ||
        !setting_read_number(faults, scheduler, "'scheduler'", &node_rule, &id))
        return false;
    cluster->scheduler_line = setting_line(scheduler);
    cluster->scheduler_port = (uint16_t)port;
    cluster->scheduler_node = 0;

    const config_setting_t *node = config_setting_get_member(scheduler, "node");
    if (node != NULL && cluster_find(cluster, id, &cluster->scheduler_node) == NULL)
        return cluster_refuse(
            faults, setting_line(node),
            "'node' of 'scheduler' is %u, which no entry of 'nodes' has as its id; write "
            "one of theirs, or leave it out for the lowest (%u)",
            id, cluster->nodes[0].id);
    return true;
}

static bool read_times(const ClusterFaults *faults, const config_setting_t *group, Cluster *cluster)
{
    static const SettingNumber heartbeat = { "heartbeat_ms",       1,
                                             CLUSTER_MAX_MS,       false,
                                             DEFAULT_HEARTBEAT_MS, "heartbeat_ms = 500;" };
    static const SettingNumber timeout = { "timeout_ms",       1,
                                           CLUSTER_MAX_MS,     false,
                                           DEFAULT_TIMEOUT_MS, "timeout_ms = 3000;" };
    static const SettingNumber stall = { "stall_ms",       1,
                                         CLUSTER_MAX_MS,   false,
                                         DEFAULT_STALL_MS, "stall_ms = 10000;" };
    static const SettingNumber rendezvous = { "rendezvous_ms",       1,
                                              CLUSTER_MAX_MS,        false,
                                              DEFAULT_RENDEZVOUS_MS, "rendezvous_ms = 30000;" };

    if (!setting_read_number(faults, group, "the cluster", &heartbeat, &cluster->heartbeat_ms) ||
        !setting_read_number(faults, group, "the cluster", &timeout, &cluster->timeout_ms) ||
        !setting_read_number(faults, group, "the cluster", &stall, &cluster->stall_ms) ||
        !setting_read_number(faults, group, "the cluster", &rendezvous, &cluster->rendezvous_ms))
        return false;
    if (cluster->timeout_ms > cluster->heartbeat_ms)
        return true;

    const config_setting_t *at = config_setting_get_member(group, "timeout_ms");
    if (at == NULL)
        at = config_setting_get_member(group, "heartbeat_ms");
    return cluster_refuse(
        faults, setting_line(at),
        "timeout_ms (%u) is not above heartbeat_ms (%u), so every node would count as "
        "lost; write several heartbeats, as in timeout_ms = %u;",
        cluster->timeout_ms, cluster->heartbeat_ms, MIN(6 * cluster->heartbeat_ms, CLUSTER_MAX_MS));
}

static bool read_bounds(const ClusterFaults *faults, const config_setting_t *group,
                        Cluster *cluster)
{
    static const SettingNumber service = {
        "service_mib", 1, CLUSTER_MAX_MIB, false, CLUSTER_USUAL_SERVICE_MIB, "service_mib = 1024;"
    };

    return setting_read_number(faults, group, "the cluster", &service, &cluster->service_mib);
}

static bool read_binding(const ClusterFaults *faults, const config_setting_t *group,
                         Cluster *cluster)
{
    return setting_read_truth(faults, group, "the cluster", "bind_cores", &cluster->bind_cores) &&
           setting_read_truth(faults, group, "the cluster", "numa", &cluster->numa);
}

static bool refuse_placement(const ClusterFaults *faults, unsigned line, const char *name)
{
    g_autofree char *shown = g_strescape(name, NULL);
    g_autoptr(GString) known = g_string_new(NULL);

    for (size_t i = 0; placement_name(i) != NULL; i++)
        g_string_append_printf(known, "%s%s", i == 0 ? "" : ", ", placement_name(i));
    return cluster_refuse(faults, line, "unknown placement \"%.40s\"; known: %s", shown,
                          known->str);
}

/* How messages of collectives cross between nodes. */
static bool read_collectives(const ClusterFaults *faults, const config_setting_t *group,
                             Cluster *cluster)
{
    const char *name = TENSOR_BACKEND_OWN;
    g_autoptr(GString) known = g_string_new(NULL);
    bool is_known = false;

    if (!setting_read_text(faults, group, "the cluster", "collectives", /* required= */ false,
                           "collectives = \"mpi\";", &name))
        return false;
    for (size_t i = 0; tensor_backend_name(i) != NULL; i++) {
        is_known |= strcmp(tensor_backend_name(i), name) == 0;
        g_string_append_printf(known, "%s%s", i == 0 ? "" : ", ", tensor_backend_name(i));
    }
    const config_setting_t *const at = config_setting_get_member(group, "collectives");
    if (!is_known) {
        g_autofree char *shown = g_strescape(name, NULL);
        return cluster_refuse(faults, setting_line(at),
                              "unknown backend of collectives \"%.40s\"; known: %s", shown,
                              known->str);
    }
    if (strcmp(name, TENSOR_BACKEND_OWN) != 0 && (cluster->encrypt || cluster->authenticate))
        return cluster_refuse(faults, setting_line(at),
                              "collectives = \"%s\" neither encrypts nor authenticates what it "
                              "sends; leave %s out, or 'collectives'",
                              name, cluster->encrypt ? "encrypt" : "authenticate");
    if (strcmp(name, TENSOR_BACKEND_OWN) != 0 && cluster_has_spares(cluster))
        return cluster_refuse(faults, setting_line(at),
                              "collectives = \"%s\" needs all nodes from the beginning, and some "
                              "are spare; leave 'spare' out, or 'collectives'",
                              name);
    cluster->collectives = g_strdup(name);
    return true;
}

static bool read_names(const ClusterFaults *faults, const config_setting_t *group, Cluster *cluster)
{
    const char *name = DEFAULT_NAME;
    const char *transport = KNOWN_TRANSPORTS[0];
    const char *placement = placement_name(0);

    if (!setting_read_text(faults, group, "the cluster", "name", /* required= */ false,
                           "name = \"pair\";", &name) ||
        !setting_read_text(faults, group, "the cluster", "transport", /* required= */ false,
                           "transport = \"tcp\";", &transport) ||
        !setting_read_text(faults, group, "the cluster", "placement", /* required= */ false,
                           "placement = \"balance\";", &placement))
        return false;
    if (strlen(name) > MAX_NAME_BYTES || !g_utf8_validate(name, -1, NULL) ||
        strpbrk(name, "\n\r\t\f\033") != NULL)
        return cluster_refuse(
            faults, setting_line(config_setting_get_member(group, "name")),
            "'name' of the cluster is no short text; write at most %u letters on one line",
            MAX_NAME_BYTES);
    if (!g_strv_contains(KNOWN_TRANSPORTS, transport)) {
        g_autofree char *known = g_strjoinv(", ", (char **)KNOWN_TRANSPORTS);
        g_autofree char *shown = g_strescape(transport, NULL);
        return cluster_refuse(faults, setting_line(config_setting_get_member(group, "transport")),
                              "unknown transport \"%.40s\"; known: %s", shown, known);
    }
    if (placement_find(placement) == NULL)
        return refuse_placement(faults, setting_line(config_setting_get_member(group, "placement")),
                                placement);
    cluster->name = g_strdup(name);
    cluster->placement = g_strdup(placement);
    cluster->transport = g_strdup(transport);
    return true;
}

static bool read_security(const ClusterFaults *faults, const config_setting_t *group,
                          Cluster *cluster)
{
    const config_setting_t *const encrypt = config_setting_get_member(group, "encrypt");
    const config_setting_t *const authenticate = config_setting_get_member(group, "authenticate");
    const char *secret_file = NULL;

    if (!setting_read_text(faults, group, "the cluster", "secret_file", /* required= */ false,
                           "secret_file = \"/home/me/run.secret\";", &secret_file) ||
        !setting_read_truth(faults, group, "the cluster", "encrypt", &cluster->encrypt) ||
        !setting_read_truth(faults, group, "the cluster", "authenticate", &cluster->authenticate) ||
        !setting_read_truth(faults, group, "the cluster", "insecure", &cluster->insecure))
        return false;
    cluster->secret_file = g_strdup(secret_file);
    cluster->encrypt_line = encrypt != NULL ? setting_line(encrypt) : 0;
    cluster->authenticate_line = authenticate != NULL ? setting_line(authenticate) : 0;
    return true;
}

/* The files of `plugins`; those with relative names lie in the cluster file's folder. */
static bool read_plugins(const ClusterFaults *faults, const config_setting_t *group,
                         Cluster *cluster)
{
    static const char example[] = "plugins = ( \"quorum.so\" );";
    const config_setting_t *const list = config_setting_get_member(group, "plugins");
    g_autofree char *path = g_canonicalize_filename(cluster->path, NULL);
    g_autofree char *folder = g_path_get_dirname(path);

    if (list == NULL)
        return true;
    if (!config_setting_is_list(list))
        return cluster_refuse(faults, setting_line(list),
                              "'plugins' is %s; write a list in ( ), as in %s",
                              setting_type_name(list), example);
    cluster->plugins = g_new0(char *, (size_t)config_setting_length(list) + 1);
    for (int i = 0; i < config_setting_length(list); i++) {
        const config_setting_t *const entry = config_setting_get_elem(list, (unsigned)i);
        const char *const file = config_setting_get_string(entry);

        if (file == NULL || *file == '\0')
            return cluster_refuse(faults, setting_line(entry),
                                  "entry %d of 'plugins' is %s; write the name of a file, as in %s",
                                  i + 1, file == NULL ? setting_type_name(entry) : "empty",
                                  example);
        cluster->plugins[i] = g_canonicalize_filename(file, folder);
    }
    return true;
}

static bool read_cluster(const ClusterFaults *faults, const config_setting_t *root, void *data)
{
    Cluster *const cluster = data;

    if (!setting_check_keys(faults, root, "the file", ROOT_KEYS))
        return false;

    const config_setting_t *group = setting_find_group(
        faults, root, "the file", "cluster", "cluster: { scheduler = ...; nodes = ...; };");
    return group != NULL && setting_check_keys(faults, group, "the cluster", CLUSTER_KEYS) &&
           read_names(faults, group, cluster) && read_nodes(faults, group, cluster) &&
           cluster_check_ids(faults, cluster) && read_scheduler(faults, group, cluster) &&
           cluster_check_addresses(faults, cluster) &&
           cluster_check_roles(faults, cluster,
                               setting_line(config_setting_get_member(group, "nodes"))) &&
           read_times(faults, group, cluster) && read_bounds(faults, group, cluster) &&
           read_binding(faults, group, cluster) && read_plugins(faults, group, cluster) &&
           read_security(faults, group, cluster) && read_collectives(faults, group, cluster);
}

Cluster *cluster_parse(const char *text, size_t length, const char *path, GError **error)
{
    const ClusterFaults faults = { path, error };
    g_autoptr(Cluster) cluster = g_new0(Cluster, 1);

    cluster->path = g_strdup(path);
    cluster->digest = g_compute_checksum_for_data(G_CHECKSUM_SHA256, (const guchar *)text, length);
    if (!config_text_parse(text, length, "cluster file", &faults, read_cluster, cluster))
        return NULL;
    return g_steal_pointer(&cluster);
}

Cluster *cluster_read(const char *path, GError **error)
{
    size_t length;
    g_autofree char *text = config_text_load(path, "cluster file", &length, error);

    return text == NULL ? NULL : cluster_parse(text, length, path, error);
}

void cluster_free(Cluster *cluster)
{
    if (cluster == NULL)
        return;
    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        g_free(cluster->nodes[i].host);
    g_free(cluster->nodes);
    g_free(cluster->path);
    g_free(cluster->name);
    g_free(cluster->scheduler_host);
    g_free(cluster->transport);
    g_free(cluster->collectives);
    g_free(cluster->placement);
    g_strfreev(cluster->plugins);
    g_free(cluster->secret_file);
    g_free(cluster->digest);
    g_free(cluster);
}

const ClusterNode *cluster_find(const Cluster *cluster, uint32_t id, uint32_t *number)
{
    const ClusterNode wanted = { .id = id };

    assert(cluster->nodes != NULL);

    const ClusterNode *node =
        bsearch(&wanted, cluster->nodes, cluster->n_nodes, sizeof wanted, compare_ids);

    if (node != NULL && number != NULL)
        *number = (uint32_t)(node - cluster->nodes);
    return node;
}

uint32_t cluster_first_nodes(const Cluster *cluster)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        n += !cluster->nodes[i].spare;
    return n;
}

bool cluster_has_spares(const Cluster *cluster)
{
    return cluster_first_nodes(cluster) < cluster->n_nodes;
}

uint32_t cluster_first_servers(const Cluster *cluster)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        n += cluster->nodes[i].spare ? 0 : cluster->nodes[i].servers;
    return n;
}

uint32_t cluster_first_server_nodes(const Cluster *cluster)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        n += cluster->nodes[i].servers > 0 && !cluster->nodes[i].spare;
    return n;
}

const char *cluster_far_transport(const Cluster *cluster)
{
    static const char *const far[] = { "zmq", "ucx" };

    for (size_t i = 0; i < G_N_ELEMENTS(far); i++)
        if (strcmp(cluster->transport, far[i]) == 0)
            return far[i];
    return strcmp(cluster->transport, CLUSTER_SHM_AND_UCX) == 0 ? "ucx" : "tcp";
}

bool cluster_shares_memory_nearby(const Cluster *cluster)
{
    return strcmp(cluster->transport, CLUSTER_AUTO_TRANSPORT) == 0 ||
           strcmp(cluster->transport, CLUSTER_SHM_AND_UCX) == 0;
}
