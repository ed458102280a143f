/* The scheduler: rendezvous, collective calls, the start and end of tasks, barriers, heartbeats.
 *
 * A pure state machine on one node of the run: control messages, greetings and ticks go in with the
 * time, control messages come out through SchedulerOutput. No thread, no socket, no wall clock.
 * The scheduler's own node talks to it like every other: its messages go in through the same
 * functions, and what is meant for it comes out through the same callbacks.
 *
 * What a node may count on:
 * - Messages to one node come out in the order in which they are to reach it.
 * - A node makes its next collective call only after the COMMIT of the one before. Each PROPOSE
 *   gets one COMMIT, with the same code and text on every node that makes the call, whenever it
 *   makes it.
 * - After GO, COMMIT comes only once the node has said READY.
 * - Each RUN whose COMMIT is good ends in one TASK_END, once every node that still lives has said
 *   TASK_DONE; before it comes at most one CANCEL, with the same cause. A RUN whose COMMIT is not
 *   good is dead: neither follows.
 * - Once a node is lost, or a STOP was said, every running task is cancelled, and every waiting and
 *   further collective call fails.
 *
 * Threads: one at a time. The callbacks run inside the calls below; they may call
 * scheduler_receive and scheduler_greet again (a node that answers at once), nothing else. */
#ifndef RUBATO_ENGINE_SCHEDULER_SCHEDULER_H
#define RUBATO_ENGINE_SCHEDULER_SCHEDULER_H

#include "engine/control.h"

typedef struct Scheduler Scheduler;

typedef struct {
    uint32_t n_nodes;
    uint32_t self;                 /* the number of the node that it runs on */
    const uint32_t *node_ids;      /* by node number */
    const char *const *node_names; /* by node number: "host:port", as the cluster file says */
    const char *digest;            /* of the cluster file */
    uint16_t wire_version;
    uint32_t heartbeat_ms;  /* how often BEAT goes to every node; 0: never */
    uint32_t timeout_ms;    /* a node silent for so long is lost; 0: never */
    uint32_t rendezvous_ms; /* all nodes must have come within this time; 0: wait for ever */
    uint32_t stall_ms;      /* what waits so long is told whom it waits for; 0: never */
    bool single;            /* one process: no rendezvous, no beats, nobody is ever lost */
} SchedulerConfig;

typedef struct {
    /* To a node of the run, by its number; after WELCOME. */
    void (*send)(void *user, uint32_t node, const Control *control);

    /* WELCOME or REFUSE, to whoever said a HELLO: by the asker that came with the last one of its
     * node. It may have gone. */
    void (*greet)(void *user, uint64_t asker, const Control *control);
} SchedulerOutput;

/* Copies config and output. (transfer full) */
Scheduler *scheduler_new(const SchedulerConfig *config, const SchedulerOutput *output, void *user);
void scheduler_free(Scheduler *scheduler);

/* A greeting came; version is the wire version of the packet that brought it, and `asker` the way
 * back to whoever said it. Each HELLO is answered as soon as there is an answer, however often it
 * comes. Returns whether it made sense; what did not is ignored, and the caller counts and logs
 * it. */
bool scheduler_greet(Scheduler *scheduler, int64_t now_ms, const Control *greeting,
                     uint16_t version, uint64_t asker);

/* A message came from a node of the run, by its number. Returns as above. */
bool scheduler_receive(Scheduler *scheduler, int64_t now_ms, uint32_t node, const Control *control);

/* Time has passed: sends beats, finds who is lost or never came. Call it every heartbeat or
 * oftener. */
void scheduler_tick(Scheduler *scheduler, int64_t now_ms);

/* Something else than a message for the scheduler came from the node at that time: a sign of life
 * too, for what a node has to say may stand behind much that it has sent before. To be told before
 * a tick. */
void scheduler_heard(Scheduler *scheduler, uint32_t node, int64_t heard_ms);

/* A node is known to be dead, before its silence tells: text says how ("its process has ended"). */
void scheduler_node_gone(Scheduler *scheduler, int64_t now_ms, uint32_t node, const char *text);

/* Whether the rendezvous is over: WELCOME has gone out. */
bool scheduler_has_begun(const Scheduler *scheduler);

/* Whether LEFT has gone out, or the rendezvous has failed: no more is to come. */
bool scheduler_has_ended(const Scheduler *scheduler);

/* The nodes that have not come to the rendezvous: "node 1 (127.0.0.1:4102)" and so on; NULL when
 * all are here. (transfer full) */
char *scheduler_missing(const Scheduler *scheduler);

/* What waits for whom, a line each; NULL when nothing does. (transfer full) */
char *scheduler_waiting(Scheduler *scheduler, int64_t now_ms);

#endif
