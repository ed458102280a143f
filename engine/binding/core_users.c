/* The nodes that share the cores of this host: see core_users.h. */
#include "engine/binding/core_users.h"

#include <string.h>

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

/* Nodes that follow one another often have the same host; it is looked up once. */
typedef struct {
    const char *name;
    bool is_here;
} LastHost;

static bool is_here(LastHost *last, const char *name)
{
    if (last->name != NULL && strcmp(last->name, name) == 0)
        return last->is_here;
    *last = (LastHost){ .name = name, .is_here = core_users_host_is_here(name) };
    return last->is_here;
}

CoreUser *core_users_of(const Cluster *cluster, uint32_t number, uint32_t *n, uint32_t *self)
{
    CoreUser *const users = g_new0(CoreUser, cluster->n_nodes);
    LastHost last = { .name = NULL };

    *n = 0;
    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        const ClusterNode *const node = &cluster->nodes[i];

        if (i != number && !is_here(&last, node->host))
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
    uint32_t n = 1, self = 0;

    if (node->cluster == NULL)
        return core_plan_new(topology, &node->single, 1, 0);
    users = core_users_of(node->cluster, node->number, &n, &self);
    return core_users_are_apart(topology, node->is_announced)
               ? core_plan_new(topology, &users[self], 1, 0)
               : core_plan_new(topology, users, n, self);
}

bool core_users_are_apart(const CoreTopology *topology, bool is_announced)
{
    return is_announced && topology->n_cores < topology->n_machine_cores;
}
