/* The limits that a cluster file sets, as plans count them.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_PLACEMENT_CLUSTER_LIMITS_H
#define RUBATO_ENGINE_PLACEMENT_CLUSTER_LIMITS_H

#include "engine/cluster/cluster_file.h"
#include "engine/placement/placement.h"

/* Those of each server of the node of that number. NULL, no cluster: there are none. */
PlacementLoad cluster_server_limit(const Cluster *cluster, uint32_t node);

#endif
