/* The nodes that share the cores of this host.
 *
 * Threads: any; may block for as long as the resolver does. */
#ifndef RUBATO_ENGINE_BINDING_CORE_USERS_H
#define RUBATO_ENGINE_BINDING_CORE_USERS_H

#include "engine/binding/core_plan.h"
#include "engine/cluster/cluster_file.h"

/* A node, and the others of its run. */
typedef struct {
    const Cluster
        *cluster;      /* that has the other nodes; NULL: they are not known, or there are none, */
    CoreUser single;   /* and this is what the node has */
    uint32_t number;   /* of the node in the cluster */
    bool is_announced; /* the run has no cluster file */
    const bool *is_here; /* as core_users_hosts_here; NULL: it is called for the node */
} CoreNode;

/* Whether a host is this machine. One that cannot be resolved is not, which the log says. */
bool core_users_host_is_here(const char *name);

/* For each node of the cluster whether its host is this machine. A host's name is looked up once.
 * (transfer full) */
bool *core_users_hosts_here(const Cluster *cluster);

/* The nodes of the cluster whose hosts are this machine, by their ids; the one of this number, and
 * where it stands among them. It is among them whatever its host is. (transfer full) */
CoreUser *core_users_of(const Cluster *cluster, uint32_t number, const bool *is_here, uint32_t *n,
                        uint32_t *self);

/* Whether this node alone uses the cores that it may use. It is so in a run without a cluster file
 * if these are not all of the machine: then whoever started the node, such as a job system, has
 * given it these, and others to the others. Nodes that `rubato run` starts all have what it has. */
bool core_users_are_apart(const CoreTopology *topology, bool is_announced);

/* The cores that the node shares with the others of this host, and where its threads run.
 * (transfer full) */
CorePlan *core_users_plan(const CoreTopology *topology, const CoreNode *node);

#endif
