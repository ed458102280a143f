/* How a node finds the others.
 *
 * Threads: that of the engine's calls. */
#ifndef RUBATO_ENGINE_CLUSTER_RENDEZVOUS_H
#define RUBATO_ENGINE_CLUSTER_RENDEZVOUS_H

#include <rubato/engine.h>

/* What the scheduler has answered. Guarded by the engine's lock. */
typedef struct {
    bool welcome;
    char *refusal; /* NULL: none came */
    uint32_t refusal_code;
} RendezvousAnswer;

/* Opens the network and waits until all nodes of the cluster file are here. */
bool rendezvous(RubatoEngine *engine, GError **error);

#endif
