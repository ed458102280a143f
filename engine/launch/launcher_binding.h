/* What `rubato check` says of cores, NUMA nodes, and the threads that would be bound to them.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_LAUNCH_LAUNCHER_BINDING_H
#define RUBATO_ENGINE_LAUNCH_LAUNCHER_BINDING_H

#include "engine/binding/core_users.h"

/* What a node of this environment would be. */
typedef struct {
    CoreNode node;
    bool is_asked; /* to bind threads */
    bool numa;     /* and rows */
} BindingNeeds;

/* Adds findings: NUMA nodes, and what is bound where, or would be if it were asked for. */
void binding_check(GPtrArray *findings, const BindingNeeds *needs);

/* Appends a line for each node of the cluster that is on this host. RUBATO_ERROR_INVALID: threads
 * cannot be bound here. */
bool binding_report(const Cluster *cluster, GString *report, GError **error);

#endif
