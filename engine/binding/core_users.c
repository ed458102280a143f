/* The nodes that share the cores of this host: see core_users.h. */
#include "engine/binding/core_users.h"

#include "engine/cluster/host.h"

bool core_users_host_is_here(const char *name)
{
    g_autoptr(GError) error = NULL;
    Host host = { 0 };

    if (!host_resolve(&host, name, "bind_cores: ", &error)) {
        g_warning("%s; its nodes count as those of another host, which have other cores",
                  error->message);
        return false;
    }
    const bool is_here = host.local;

    host_clear(&host);
    return is_here;
}

bool *core_users_hosts_here(const Cluster *cluster)
{
    g_autoptr(GHashTable) known = g_hash_table_new(g_str_hash, g_str_equal);
    bool *const here = g_new0(bool, cluster->n_nodes);

    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        char *const name = cluster->nodes[i].host;
        void *found;

        if (!g_hash_table_lookup_extended(known, name, NULL, &found)) {
            found = GINT_TO_POINTER(core_users_host_is_here(name));
            g_hash_table_insert(known, name, found);
        }
        here[i] = found != NULL;
    }
    return here;
}

CoreUser *core_users_of(const Cluster *cluster, uint32_t number, const bool *is_here, uint32_t *n,
                        uint32_t *self)
{
    CoreUser *const users = g_new0(CoreUser, cluster->n_nodes);

    *n = 0;
    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        const ClusterNode *const node = &cluster->nodes[i];

        if (i != number && !is_here[i])
            continue;
        if (i == number)
            *self = *n;
        users[(*n)++] = (CoreUser){ node->servers, node->workers };
    }
    return users;
}

CorePlan *core_users_plan(const CoreTopology *topology, const CoreNode *node)
{
    g_autofree CoreUser *users = NULL;
    g_autofree bool *found = NULL;
    const bool *is_here = node->is_here;
    uint32_t n = 1, self = 0;

    if (node->cluster == NULL)
        return core_plan_new(topology, &node->single, 1, 0);
    if (is_here == NULL)
        is_here = found = core_users_hosts_here(node->cluster);
    for (uint32_t i = 0; node->is_announced && found != NULL && i < node->cluster->n_nodes; i++)
        found[i] &= !node->cluster->nodes[i].spare; /* where they will be, nobody knows */
    users = core_users_of(node->cluster, node->number, is_here, &n, &self);
    return core_users_are_apart(topology, node->is_announced)
               ? core_plan_new(topology, &users[self], 1, 0)
               : core_plan_new(topology, users, n, self);
}

bool core_users_are_apart(const CoreTopology *topology, bool is_announced)
{
    return is_announced && topology->n_cores < topology->n_machine_cores;
}
