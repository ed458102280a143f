/* The nodes that share the cores of this host: see core_users.h. */
#include "engine/binding/core_users.h"

#include <string.h>

#include "engine/launch/launcher_hosts.h"

/* Nodes that follow one another often have the same host; it is looked up once. */
typedef struct {
    const char *name;
    bool is_here;
} LastHost;

static bool is_here(LastHost *last, const char *name)
{
    Host host = { 0 };

    if (last->name != NULL && strcmp(last->name, name) == 0)
        return last->is_here;
    *last = (LastHost){ .name = name };
    if (host_resolve(&host, name, "", NULL)) {
        last->is_here = host.local;
        host_clear(&host);
    }
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

bool core_users_are_apart(const CoreTopology *topology, bool is_announced)
{
    return is_announced && topology->n_cores < topology->n_machine_cores;
}
