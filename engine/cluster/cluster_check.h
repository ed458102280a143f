/* Checks over several entries of a cluster file, each of which is right by itself.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_CLUSTER_CLUSTER_CHECK_H
#define RUBATO_ENGINE_CLUSTER_CLUSTER_CHECK_H

#include "engine/cluster/cluster_fault.h"
#include "engine/cluster/cluster_file.h"

/* No two nodes have one id; they are sorted by it. */
bool cluster_check_ids(const ClusterFaults *faults, const Cluster *cluster);

/* No two of the nodes and the scheduler have one host:port. */
bool cluster_check_addresses(const ClusterFaults *faults, const Cluster *cluster);

/* Each node has something to do, and some node has a server. nodes_line: where the list begins. */
bool cluster_check_roles(const ClusterFaults *faults, const Cluster *cluster, unsigned nodes_line);

#endif
