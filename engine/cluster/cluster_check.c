/* Checks over several entries of a cluster file. An error names the line of the wrong entry. If two
 * entries contradict each other, it names the later one and says where the other is. No state
 * beyond the call. */
#include "engine/cluster/cluster_check.h"

#include <string.h>

bool cluster_check_ids(const ClusterFaults *faults, const Cluster *cluster)
{
    for (uint32_t i = 1; i < cluster->n_nodes; i++) {
        const ClusterNode *a = &cluster->nodes[i - 1];
        const ClusterNode *b = &cluster->nodes[i];

        if (a->id == b->id)
            return cluster_refuse(
                faults, MAX(a->line, b->line),
                "id %u is given to two nodes, also on line %u; give each node its own", a->id,
                MIN(a->line, b->line));
    }
    return true;
}

/* A host:port in a form that can be compared: all names of loopback are the same. */
static char *address_key(const char *host, uint16_t port)
{
    g_autofree char *lower = g_ascii_strdown(host, -1);

    return g_strdup_printf("%s:%u", strcmp(lower, "localhost") == 0 ? "127.0.0.1" : lower, port);
}

bool cluster_check_addresses(const ClusterFaults *faults, const Cluster *cluster)
{
    g_autoptr(GHashTable) lines = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);

    g_hash_table_insert(lines, address_key(cluster->scheduler_host, cluster->scheduler_port),
                        GUINT_TO_POINTER(cluster->scheduler_line));
    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        const ClusterNode *node = &cluster->nodes[i];
        if (node->port == 0)
            continue; /* any free one */

        char *key = address_key(node->host, node->port);
        const unsigned other = GPOINTER_TO_UINT(g_hash_table_lookup(lines, key));
        if (other != 0) {
            g_free(key);
            return cluster_refuse(faults, MAX(node->line, other),
                                  "%s:%u is used twice, also on line %u; give each node, and the "
                                  "scheduler, a port of its own (0: any free one)",
                                  node->host, node->port, MIN(node->line, other));
        }
        g_hash_table_insert(lines, key, GUINT_TO_POINTER(node->line));
    }
    return true;
}

bool cluster_check_roles(const ClusterFaults *faults, const Cluster *cluster, unsigned nodes_line)
{
    uint32_t servers = 0;

    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        const ClusterNode *node = &cluster->nodes[i];

        servers += node->spare ? 0 : node->servers;
        if (node->spare && i == cluster->scheduler_node)
            return cluster_refuse(faults, node->line,
                                  "the scheduler runs on node %u, which is spare; a run cannot "
                                  "begin without it: leave 'spare' out, or name another node in "
                                  "'scheduler'",
                                  node->id);
        if (node->servers == 0 && node->workers == 0 && i != cluster->scheduler_node)
            return cluster_refuse(
                faults, node->line,
                "node %u has no servers and no workers; give it one of them, or leave "
                "the node out",
                node->id);
    }
    if (servers == 0)
        return cluster_refuse(
            faults, nodes_line,
            "no node has a server, so no table would have a place; write servers = 1; "
            "for one of them that is not spare");
    return true;
}
