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
    char *later;      /* to a process that joins: why it is put off; NULL: it has not been */
    int64_t later_ms; /* when this last came */
} RendezvousAnswer;

/* Set: rubato_engine_new, as a node of a cluster file, takes the place of a lost node in a run that
 * goes on. */
#define JOIN_VARIABLE "RUBATO_JOIN"

/* Set: as catches_up of the config. */
#define CATCH_UP_VARIABLE "RUBATO_CATCH_UP"

/* Whether the environment asks for that. */
bool rendezvous_joins(void);
bool rendezvous_catches_up(void);

/* Opens the network and waits until all nodes of the cluster file are here, or until this process
 * has the place of a lost one. */
bool rendezvous(RubatoEngine *engine, GError **error);

#endif
