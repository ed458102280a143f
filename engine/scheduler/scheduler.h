/* The scheduler: rendezvous, collective calls, the start and end of tasks, barriers, heartbeats.
 *
 * A pure state machine on one node of the run: control messages, greetings and ticks go in with the
 * time, control messages come out through SchedulerOutput. It has no thread, no socket, no wall
 * clock. The scheduler's own node is treated like every other: its messages go in through the same
 * functions, and messages for it come out through the same callbacks.
 *
 * What a node may count on:
 * - Messages to one node come out in the order in which they must reach it.
 * - A node makes its next collective call only after the COMMIT of the one before. Each PROPOSE
 *   gets one COMMIT, with the same code and text on every node that makes the call, however late.
 * - After GO, COMMIT comes only once the node has said READY.
 * - Each RUN whose COMMIT is a success ends in one TASK_END, once every node that still lives has
 *   said TASK_DONE. Before it comes at most one CANCEL, with the same cause. A RUN whose COMMIT is
 *   a failure has ended: neither message follows.
 * - Once a node is lost, or a STOP was said, every running task is cancelled, and every waiting and
 *   further collective call fails.
 * - After the loss of a node the run may go on (scheduler_recovery.c). Then another process may
 *   take the node's place. It serves: it makes no call, has no worker, and leaves when all others
 *   have.
 * - A spare node is absent at first: as if it had been lost, with nothing on it. A process may join
 *   the run as this node in the same way.
 *
 * Threads: one at a time. The callbacks run inside the calls below. They may call only
 * scheduler_receive and scheduler_greet again (when a node answers at once). */
#ifndef RUBATO_ENGINE_SCHEDULER_SCHEDULER_H
#define RUBATO_ENGINE_SCHEDULER_SCHEDULER_H

#include "engine/control/control.h"
#include "engine/scheduler/journal/scheduler_journal.h"
#include "engine/scheduler/rendezvous/roster.h"

typedef struct Scheduler Scheduler;

typedef struct {
    uint32_t n_nodes;
    uint32_t self;                 /* the number of the node that it runs on */
    const uint32_t *node_ids;      /* by node number */
    const char *const *node_names; /* by node number: "host:port", as the cluster file says */
    const bool *is_spare;   /* by node number: the run begins without it; NULL: no node is spare */
    const char *digest;     /* of the cluster file */
    const char *registered; /* models and more: registry_describe; NULL: nothing */
    uint16_t wire_version;
    uint32_t heartbeat_ms;  /* how often BEAT goes to every node; 0: never */
    uint32_t timeout_ms;    /* a node that is silent for so long is lost; 0: never */
    uint32_t rendezvous_ms; /* all nodes must have come within this time; 0: wait for ever */
    uint32_t stall_ms;      /* a node that waits so long is told for whom; 0: never */
    Roster *roster;         /* of a run without a cluster file; outlives the scheduler. Or NULL */
    bool single;            /* one process: no rendezvous, no beats, no node is ever lost */
    bool admits;            /* other processes may take the places of lost nodes */
    const SchedulerJournal *journal; /* copied; NULL: no other process can go on as the scheduler */
} SchedulerConfig;

typedef struct {
    /* To a node of the run, by its number; after WELCOME. */
    void (*send)(void *user, uint32_t node, const Control *control);

    /* WELCOME or REFUSE, to the process that said HELLO. `asker` came with the last HELLO of its
     * node. The process may have ended. */
    void (*greet)(void *user, uint64_t asker, const Control *control);
} SchedulerOutput;

/* Copies config and output. (transfer full) */
Scheduler *scheduler_new(const SchedulerConfig *config, const SchedulerOutput *output, void *user);
void scheduler_free(Scheduler *scheduler);

/* Of a new scheduler, before anything else: it goes on from what the journal of another process
 * has, in which it takes the place of that process. Nodes that live have to come back (RESUME,
 * BACK) within the timeout, or are lost. What they had not heard comes then, once and in order. The
 * process's own node has lost all that it had; it joins the run again as soon as it can.
 * RUBATO_ERROR_NODE_LOST: the run cannot go on without the process before. RUBATO_ERROR_FORMAT, or
 * that of the journal: it cannot be read. */
typedef struct {
    uint64_t incarnation;
    const char *endpoints, *description; /* as in a JOIN */
} SchedulerProcess;
bool scheduler_resume(Scheduler *scheduler, int64_t now_ms, const SchedulerProcess *process,
                      GError **error);

/* What it has learned, in words for the log. (transfer full) */
char *scheduler_describe_resumed(const Scheduler *scheduler);

/* A link of that process to another node of the run. */
typedef struct {
    uint32_t node; /* number */
    const char *endpoints;
    uint64_t incarnation, counted_from;
} SchedulerLink;

/* Whether the node lives, and what a link to it is then. The pointers are the scheduler's. */
bool scheduler_find_link(const Scheduler *scheduler, uint32_t node, SchedulerLink *link);
uint64_t scheduler_run_id(const Scheduler *scheduler);

/* After a RESUME that made sense: whether the link to its node is to be opened now. Once for each
 * node. */
bool scheduler_opens_link(Scheduler *scheduler, const Control *resume, SchedulerLink *link);

/* A greeting came. version is the wire version of its packet; `asker` is the way back to its
 * sender. Each HELLO is answered as soon as there is an answer, however often it comes. Returns
 * whether it made sense. A greeting that makes no sense is ignored; the caller counts and logs
 * it. */
bool scheduler_greet(Scheduler *scheduler, int64_t now_ms, const Control *greeting,
                     uint16_t version, uint64_t asker);

/* A message came from a node of the run, by its number. Returns as above. */
bool scheduler_receive(Scheduler *scheduler, int64_t now_ms, uint32_t node, const Control *control);

/* Time has passed: sends beats, and finds nodes that are lost or never came. Call it every
 * heartbeat or more often. */
void scheduler_tick(Scheduler *scheduler, int64_t now_ms);

/* A longer time between two ticks means that this node got no processor. */
int64_t scheduler_longest_tick_ms(uint32_t heartbeat_ms, uint32_t timeout_ms);

/* Something other than a message for the scheduler came from the node at that time. It is a sign of
 * life too, because the node's beat may be queued behind other data. Call this before a tick. */
void scheduler_heard(Scheduler *scheduler, uint32_t node, int64_t heard_ms);

/* A node is known to be dead before its silence shows it. text says how ("its process has
 * ended"). */
void scheduler_node_gone(Scheduler *scheduler, int64_t now_ms, uint32_t node, const char *text);

/* What a snapshot keeps of a task's readers, by their names in it (RubatoReaderOptions.kept_as):
 * which rows of which files are not done, as text. */

/* Those of the snapshot whose cut is the newest. (transfer full) */
GHashTable *scheduler_cut_readers(const Scheduler *scheduler);

/* A snapshot has been restored: the next readers with these names go on from it. (transfer full) */
void scheduler_restore_readers(Scheduler *scheduler, GHashTable *readers);

/* Whether such a text makes sense. Any thread. */
bool scheduler_check_kept_reader(const char *text);

/* Whether the rendezvous is over: WELCOME has gone out. */
bool scheduler_has_begun(const Scheduler *scheduler);

/* Whether LEFT has gone out, or the rendezvous has failed: no message follows. */
bool scheduler_has_ended(const Scheduler *scheduler);

/* The nodes that have not come to the rendezvous: "node 1 (127.0.0.1:4102)" and so on; NULL if all
 * have come. (transfer full) */
char *scheduler_missing(const Scheduler *scheduler);

/* Who waits for whom, one line each; NULL if nobody waits. (transfer full) */
char *scheduler_waiting(Scheduler *scheduler, int64_t now_ms);

/* The run as the scheduler sees it now: its nodes, its tasks with what their workers read, and who
 * waits for whom. (transfer floating) */
GVariant *scheduler_status(Scheduler *scheduler, int64_t now_ms);

#endif
