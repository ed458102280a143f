/* The limits that a cluster file sets, as plans count them.
 *
 * Threads: any. */
#include "engine/placement/cluster_limits.h"

static uint64_t limit_of(uint32_t limit, uint64_t unit)
{
    return limit == 0 ? PLACEMENT_UNLIMITED : limit * unit;
}

PlacementLoad cluster_server_limit(const Cluster *cluster, uint32_t node)
{
    const ClusterLimits none = { 0 };
    const ClusterLimits *const limits = cluster == NULL ? &none : &cluster->nodes[node].limits;

    return (PlacementLoad){ {
        [PLACEMENT_MEMORY] = limit_of(limits->memory_mib, 1 << 20),
        [PLACEMENT_NETWORK] = limit_of(limits->network_mib, 1 << 20),
        [PLACEMENT_QUERIES] = limit_of(limits->queries, 1),
    } };
}
