/* The nodes of a run that has no cluster file: processes announce themselves until there are as
 * many servers and workers, or as many equal nodes, as were asked for. Then each gets its node id,
 * and all get the same text, which describes the run as a cluster file would. From there on the run
 * begins as with a file.
 *
 * A process repeats its ANNOUNCE until it has a place. One that stops doing so before all are here
 * is forgotten, so another may come in its place. Once all are here, ids and text stay. A process
 * that comes later may take the place of a lost node, or a spare place: the text has these as spare
 * nodes, for which the run does not wait. Otherwise it is refused. A place that was given to a
 * process is free again if the process neither joins the run nor asks for it in time.
 *
 * A pure state machine: no thread, no socket, no wall clock.
 *
 * Threads: one at a time. */
#ifndef RUBATO_ENGINE_SCHEDULER_RENDEZVOUS_ROSTER_H
#define RUBATO_ENGINE_SCHEDULER_RENDEZVOUS_ROSTER_H

#include "engine/control/control.h"

typedef struct Roster Roster;

typedef struct {
    /* How many nodes of each role are to come, beside the scheduler's own; together below
     * CONTROL_MAX_NODES. */
    uint32_t n_servers, n_workers, n_nodes;
    /* How many spare places there are beside these, and the server threads and workers of each.
     * They are for servers or, without servers, for equal nodes. */
    uint32_t n_spares, spare_servers, spare_workers;
    uint32_t servers, workers; /* of the scheduler's own node: server threads and workers */
    const char *host;          /* where the scheduler's own node receives */
    const char *listens;       /* where the scheduler listens; NULL: at the host */
    uint16_t port;
    const char *settings; /* further entries of the cluster file, such as "timeout_ms = 5000;" */
    uint16_t wire_version;
    uint32_t timeout_ms; /* a process silent for so long is forgotten */
} RosterConfig;

/* The config is copied. (transfer full) */
Roster *roster_new(const RosterConfig *config);
void roster_free(Roster *roster);

/* An ANNOUNCE came, with the wire version of its packet and the way back to its sender. *answer is
 * the PLACE or REFUSE to send back; its texts are the roster's, until its next call. */
void roster_hear(Roster *roster, int64_t now_ms, const ControlAnnounce *announce, uint16_t version,
                 uint64_t asker, Control *answer);

/* The same for a run that goes on without nodes that are lost, or that are spare. is_lost: by id,
 * of all nodes. A process that is not in the run gets the place of such a node of its role, of a
 * lost one first, or is told to wait while other processes have come for all of them. False: it is
 * not for one of them, or something is wrong with it; roster_hear answers. */
bool roster_replace(Roster *roster, int64_t now_ms, const ControlAnnounce *announce,
                    uint16_t version, uint64_t asker, const bool *is_lost, Control *answer);

/* Whether the process has a place, or waits for one. */
bool roster_knows(const Roster *roster, uint64_t incarnation);

/* A process joins the run as this node, so its place stays its own. */
void roster_note_joining(Roster *roster, int64_t now_ms, uint32_t id);

/* A process that has no place yet has said that it ends. */
void roster_forget(Roster *roster, uint64_t incarnation);

/* Forgets processes that have been silent for too long. */
void roster_tick(Roster *roster, int64_t now_ms);

/* Whether all are here. */
bool roster_is_full(const Roster *roster);

/* Those that are not here: "1 of 2 servers and 3 of 4 workers are here", or "2 of 4
 * nodes are here, and 1 and 3 are missing". (transfer none) */
const char *roster_missing(Roster *roster);

/* The run as a cluster file; NULL until all are here. (transfer none) */
const char *roster_file(const Roster *roster);

/* The run cannot begin, for this reason: every ANNOUNCE is refused from now on. */
void roster_give_up(Roster *roster, uint32_t code, const char *text);

/* From now on processes are given their places: before that, also those of a full roster are told
 * to wait. */
void roster_open(Roster *roster);

/* The ways back to all processes that are here. (element: uint64_t, transfer full) */
GArray *roster_askers(const Roster *roster);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(Roster, roster_free)

#endif
