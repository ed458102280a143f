/* How the nodes of a run without a cluster file gather.
 *
 * Threads: that of the engine's calls. */
#ifndef RUBATO_ENGINE_CLUSTER_ANNOUNCE_H
#define RUBATO_ENGINE_CLUSTER_ANNOUNCE_H

#include <rubato/engine.h>

/* Waits until all nodes for which the scheduler waits have announced themselves to it. Then
 * engine->cluster describes the run, config.node is this node's id, and on the scheduler's node
 * engine->roster answers those who ask later. */
bool announce(RubatoEngine *engine, GError **error);

/* What a node that has no id yet is called: "the scheduler", "this server" or "this worker". */
const char *announce_name(const RubatoAnnouncement *announcement);

#endif
