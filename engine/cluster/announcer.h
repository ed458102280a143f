/* A node of a run without a cluster file, while the nodes gather: what it was told, where it and
 * the scheduler receive, and a network of its own, which has no links. announce.c uses it.
 *
 * Threads: that of the engine's calls. The network's handler, on its I/O thread, takes greetings.
 * What both touch is guarded by the engine's lock. */
#ifndef RUBATO_ENGINE_CLUSTER_ANNOUNCER_H
#define RUBATO_ENGINE_CLUSTER_ANNOUNCER_H

#include "engine/cluster/secret_source.h"
#include "engine/control/refusals.h"
#include "engine/engine_private.h"

typedef struct {
    /* immutable */
    RubatoEngine *engine;
    const RubatoAnnouncement *announcement;
    Cluster *own; /* of this node's settings alone */
    uint64_t incarnation;
    char *host;      /* of RUBATO_SCHEDULER */
    uint16_t port;   /* the same */
    char *address;   /* where this node receives */
    char *listens;   /* the scheduler: where it listens for those who announce themselves */
    char *scheduler; /* its endpoint; NULL: the host has no address yet */
    Network *network;

    /* guarded by the engine's lock */
    uint32_t id; /* 0: no place yet */
    bool joins;  /* it is that of a lost node, or a spare one */
    char *file;
    char *missing; /* for whom the scheduler waits; NULL: it has not answered */
    char *refusal;
    uint32_t refusal_code;
    Refusals refusals; /* the scheduler's */
} Announcer;

bool announcer_is_scheduler(const Announcer *announcer);

/* Takes HOST and PORT from RUBATO_SCHEDULER. */
bool announcer_split_scheduler(Announcer *announcer, GError **error);

/* Reads this node's own settings: how long it waits, and where its secret is. */
bool announcer_read_settings(Announcer *announcer, GError **error);

/* Finds where the scheduler listens, and where its node receives. It listens at its host, if that
 * is this machine's: so nodes may meet in one network, and receive in that of their interfaces. */
bool announcer_find_own_address(Announcer *announcer, GError **error);

/* Looks for the scheduler's address, and for this node's own. The name may not be known yet: then
 * *failure says so, and this is called again. False with an error that will not go away. */
bool announcer_find_scheduler(Announcer *announcer, char **failure, GError **error);

/* Finds the run's secret, and whether a node at this node's address may do without one. */
bool announcer_find_secret(const Announcer *announcer, RunSecret *secret, SecretOrigin *origin,
                           GError **error);

/* Opens the network; the scheduler's listens at its address. */
bool announcer_open_network(Announcer *announcer, GError **error);

/* Sends a greeting to the scheduler. */
void announcer_say(Announcer *announcer, const Control *control);

/* Answers a greeting, on the scheduler's node. */
void announcer_answer(Announcer *announcer, uint64_t asker, const Control *control);

/* Closes the network. */
void announcer_clear(Announcer *announcer);

#endif
