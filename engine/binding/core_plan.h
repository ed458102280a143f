/* Which cores the threads of a node run on. A plan follows from the topology and the numbers of
 * threads alone, so all nodes of a host know it of each other without asking.
 *
 *   nodes    The nodes of a host share its cores out, in the order of their ids: each has cores
 *            that are neighbours, in proportion to its threads, and no other node has them. Only if
 *            there are fewer cores than nodes, several nodes have the same core.
 *   servers  Each server has a core of its own, and they lie as far apart as they can, so each NUMA
 *            node has as many servers as its share of the cores.
 *   workers  Each worker may run on those cores of one NUMA node on which no server runs. It is not
 *            bound to one core, because threads that it starts, such as a reader's, or those of a
 *            library for linear algebra, are bound as it is. If there are too few cores, workers
 *            run on those of servers, too.
 *   others   may run on all cores of their node.
 *
 * Threads: any; a plan is immutable. */
#ifndef RUBATO_ENGINE_BINDING_CORE_PLAN_H
#define RUBATO_ENGINE_BINDING_CORE_PLAN_H

#include "engine/binding/core_topology.h"

/* A node of this host. */
typedef struct {
    uint32_t servers, workers;
} CoreUser;

typedef struct {
    CoreList all;      /* of the node */
    CoreList *servers; /* of each of its servers: one core */
    CoreList *workers; /* of each of its workers */
    uint32_t n_servers, n_workers;

    /* What there are too few cores for; false: there are enough. */
    bool nodes_share, servers_share, workers_share;
    uint32_t n_users; /* for which there were these cores */
} CorePlan;

/* The plan of user number `self` of n. The topology has a core at least. (transfer full) */
CorePlan *core_plan_new(const CoreTopology *topology, const CoreUser *users, uint32_t n,
                        uint32_t self);
void core_plan_free(CorePlan *plan);

/* The plan on a line: "server 2 on processor 0; workers 0-1 on processors 1-3; …". The first server
 * of the node has this number in the run. (transfer full) */
char *core_plan_describe(const CorePlan *plan, const CoreTopology *topology, uint32_t first_server);

/* What there are too few cores for. NULL: nothing. (transfer full) */
char *core_plan_shortage(const CorePlan *plan);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(CorePlan, core_plan_free)

#endif
