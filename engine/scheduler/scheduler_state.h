/* What the scheduler's parts share. No other file includes this, except tests that count.
 *
 * Each part calls only parts that are listed below it (tests/project/test_knots.sh checks that). It
 * reaches parts above it through the scheduler's outbox:
 *
 *   scheduler_status.c                  what it tells of the run to those who ask
 *   journal/scheduler_resume.c          another process goes on as the scheduler
 *   scheduler.c                         birth and death, who gets which message, liveness
 *   journal/scheduler_as_bytes.c        all of it as bytes, with which the journal begins anew
 *   rendezvous/scheduler_rendezvous.c   HELLO until WELCOME, JOIN, refusals
 *   rendezvous/roster.c                 ANNOUNCE, PLACE: the nodes of a run without a cluster
 *                                       file
 *   recovery/scheduler_drain.c          DRAIN, DRAINED: the parts of a node go to others
 *   scheduler_snapshot.c                SNAPSHOT_ASK and so on: snapshots that a node asks for
 *   scheduler_collective.c              PROPOSE, GO, READY, COMMIT
 *   scheduler_task.c                    FAIL, CANCEL, TASK_DONE, TASK_END, barriers of a task
 *   recovery/scheduler_recovery.c       RECOVER: parts of a lost node get another primary; JOIN's
 *                                       steps
 *   recovery/scheduler_recovery_walk.c  what that knows of parts, as bytes
 *   recovery/scheduler_admission.c      which process takes the place of a lost node, and its
 *                                       ADMITTED
 *   tensors/scheduler_tensors.c         ENQUEUE, DECIDE: collectives on tensors
 *   tensors/scheduler_tensors_waits.c   and which of their workers wait for whom
 *   scheduler_waits.c                   WAITS: deadlocks among a task's workers
 *   data/scheduler_data.c               READER, INPUTS, WANT, BLOCKS: the data that a task's
 *                                       workers read
 *   data/scheduler_kept.c               what snapshots keep of readers
 *   scheduler_past.c                    PAST: the calls so far, for programs of processes that
 *                                       have joined
 *   scheduler_base.c                    the outbox, verdicts, names of nodes, finding and
 *                                       cancelling tasks, the order of a snapshot's steps
 *   journal/scheduler_record.c          what goes to the journal; messages for nodes that have to
 *                                       come back
 *
 * Each part changes its own members. A change that concerns several parts goes through the
 * functions of their headers, which stand beside them.
 *
 * Threads: as scheduler.h. */
#ifndef RUBATO_ENGINE_SCHEDULER_SCHEDULER_STATE_H
#define RUBATO_ENGINE_SCHEDULER_SCHEDULER_STATE_H

#include "engine/control/told_barriers.h"
#include "engine/scheduler/data/block_dispatcher.h"
#include "engine/scheduler/scheduler.h"

/* A code with its text: how something ended, or why it failed. */
typedef struct {
    uint32_t code;
    char *text; /* owned; NULL: none */
} Verdict;

typedef struct {
    /* immutable */
    uint32_t id;
    char *label; /* "node 1 (127.0.0.1:4102)" */

    bool here; /* has said HELLO */
    bool met;  /* has ever said it */
    bool left; /* has said LEAVE */
    bool lost; /* also a spare node as long as no process has joined as it: scheduler_is_absent */
    bool left_drained; /* it is, because it was drained and has left */
    bool serves;       /* its process has joined in the place of a lost one */
    bool drains;       /* its parts are to leave it, or have left it: none come to it any more */
    bool is_drained;   /* they have */
    bool ends;         /* it is to leave once they have, and none of its workers is in a task */
    uint64_t incarnation;
    uint64_t counted_from; /* as in its ADMITTED */
    uint64_t asker;        /* the way back to the process of its last HELLO, or JOIN */
    char *endpoint;
    char *description;
    char *refused; /* why a process that came for it was refused; NULL: none was */
    int64_t heard_ms;
    int64_t left_ms;
    uint64_t n_taken; /* messages that count (control_message_counts), of the process: from it, */
    uint64_t n_sent;  /* and to it */
    bool is_away;     /* has to come back to this scheduler's process: what goes to it is held */
    bool is_linked;   /* the same, and the link to it is open, or being opened */
    GQueue held;      /* of HeldMessage: what it may not have had */
    Verdict loss;     /* why it is lost, or was before another process took its place */
    uint64_t n_proposed;
    uint32_t n_before; /* processes that have had its place before */
    Control asks; /* of a process that serves: a PROPOSE that is to be answered; kind 0: none */
} SchedulerNode;

typedef enum {
    COLLECTIVE_GATHERING, /* not every node has proposed it */
    COLLECTIVE_WORKING,   /* GO has gone out, not every node is READY */
    COLLECTIVE_DECIDED,   /* COMMIT has gone out; kept for nodes that have not come to it */
} CollectivePhase;

/* A collective call. */
typedef struct {
    uint64_t number; /* among all of the run, from 1 */
    ControlCall what;
    uint32_t first; /* the node that proposed first; the members below are its own */
    char *name;     /* "table weights" */
    char *digest;
    char *arguments;
    char *workers; /* of a RUN: as ControlPropose.workers */
    char *told;    /* as ControlGo.told */
    bool survives; /* as ControlPropose.survives */
    uint32_t replace_ms;
    CollectivePhase phase;
    bool *proposed;     /* by node number */
    bool *ready;        /* by node number */
    uint32_t id;        /* as in GO */
    ControlStep step;   /* as in GO */
    uint64_t hash_seed; /* the first node's seed */
    Verdict verdict;
    int64_t since_ms; /* when its phase began */
} Collective;

typedef struct TensorCoordinator TensorCoordinator; /* scheduler_tensors.c */

typedef struct {
    uint32_t epoch;
    char *name;
    char *told;     /* engine/control/told_task.h */
    bool running;   /* its COMMIT was good */
    bool continues; /* when a node with workers is lost: without them, unless they are replaced */
    uint32_t replace_ms; /* how long it waits for that; 0: they are not */
    int64_t *lost_ms;    /* by node number: when its workers were lost that are to be replaced;
                          * INT64_MAX: there are none */
    bool *all;           /* all true, by node number: who hears of that wait */
    bool *again;         /* by node number: a process in the place of a lost one has its workers */
    bool has_lost;       /* workers that are not replaced */
    Verdict cause;
    Verdict effect;             /* a worker's failure whose cause is not told yet */
    int64_t effect_since_ms;    /* when it came */
    uint64_t round;             /* the barrier at which nodes now arrive */
    bool *waits;                /* by node number: in that barrier */
    BarrierRecord *passed;      /* those before it; NULL: lost workers are not replaced */
    bool *retired;              /* by node number: never waits again */
    bool *has_calls;            /* by node number: when it was retired, servers might keep calls of
                                 * its workers */
    bool *done;                 /* by node number: TASK_DONE */
    int64_t round_since_ms;     /* when the first node came to the barrier */
    int64_t retired_since_ms;   /* when the first node had no worker left */
    GPtrArray *waiting;         /* of Waiting: the last report of each worker that waits long */
    GPtrArray *readings;        /* of Reading, by reader; NULL between them */
    TensorCoordinator *tensors; /* NULL: the proposal did not say who has workers */
} SchedulerTask;

/* Something that nodes wait for, in words. */
typedef struct {
    char *text;
    const bool *waiting; /* by node number; NULL: those that have left */
    int64_t since_ms;
} Wait;

/* A process that takes the place of a lost node. */
typedef struct {
    bool opens; /* nodes open links to it, and it is not told so yet */
    uint32_t node;
    uint64_t incarnation;
    uint64_t counted_from;
    uint64_t asker;
    char *endpoint;
    char *description;
} Admission;

typedef enum {
    DRAIN_NONE,
    DRAIN_WAITS,      /* something else is under way */
    DRAIN_COPIES,     /* copies are made on other nodes: */
    DRAIN_HANDS_OVER, /* they take the place of what the node has */
    DRAIN_ENDS,       /* the node may end, and is to say LEAVE */
} DrainStage;

/* A node whose parts are to leave it. */
typedef struct {
    DrainStage stage;
    uint32_t node;
    int64_t since_ms;
    GArray *askers; /* of Asker: scheduler_drain.c */
    GArray *later;  /* the same: nodes that are to be drained after it */
    bool *told;     /* all true, by node number: who hears of a wait */
    GArray *heard;  /* of uint64_t: the numbers of the outside askers of the last that ended, */
    Verdict last;   /* and how it has */
} Drain;

/* A message that a node may not have had. */
typedef struct {
    uint64_t number; /* among those to its process; from 1 */
    Control control;
} HeldMessage;

typedef struct PastCalls PastCalls; /* scheduler_past.c */
typedef struct Recovery Recovery;   /* scheduler_recovery.c */
typedef struct Snapshots Snapshots; /* scheduler_snapshot.c */

struct Scheduler {
    /* immutable */
    SchedulerConfig config; /* its pointers are not used after scheduler_new */
    SchedulerOutput output;
    void *user;
    char *digest;
    char *registered;

    SchedulerJournal journal; /* no functions: there is none, or none any more */
    bool replays;             /* what the journal has is done again: nothing leaves */
    uint64_t journal_begins;  /* bytes of the state that it begins with, */
    uint64_t journal_grown;   /* and of the records behind it */

    /* This process, if another one was the scheduler before; no endpoint: none was. */
    struct {
        uint64_t incarnation, counted_from;
        char *endpoint, *description;
        int64_t silent_ms; /* from the last decision of the one before until it began */
        bool was_refused;  /* its node cannot join the run */
    } own;

    int64_t now_ms; /* of the call that is running */
    SchedulerNode *nodes;
    bool begun;      /* WELCOME has gone out */
    bool ended;      /* LEFT has gone out, or `refusal` */
    Verdict refusal; /* why the run could not begin */
    Verdict doom;    /* why no collective call can succeed any more: a lost node, a STOP */

    /* Rendezvous and liveness. */
    uint64_t run_id;
    bool ticked; /* the next three hold a time */
    int64_t start_ms;
    int64_t last_tick_ms;
    int64_t last_beat_ms;

    /* By number, oldest first: at most the last one is not decided. */
    GQueue collectives;
    PastCalls *past; /* those that are decided */
    uint64_t n_calls;
    uint32_t next_table;
    GHashTable *tables;  /* id → name, "table weights": of those that are there */
    bool goes_on;        /* a table has had replicas: the loss of a node does not end the run */
    uint32_t map_number; /* of the newest part map */
    Recovery *recovery;
    bool recovers; /* nodes do its steps; no call begins until they have done the last one */
    Drain drain;
    Admission admission;
    uint64_t n_admitted; /* admissions that have begun, ever */
    int64_t put_off_ms;  /* when a snapshot last put off a process that is to join; 0: none did */
    GArray *former;      /* of uint64_t: incarnations whose place others have taken */
    Snapshots *snapshots;
    bool takes_snapshot; /* the same */

    /* Readers in snapshots, name → text (scheduler_kept.c). */
    GHashTable *kept; /* of the restored one, until their first block is dealt */
    GHashTable *cut;  /* of the newest cut */
    bool cut_is_torn; /* since it began, a task that had such readers failed and has ended */
    char *cut_spec;   /* what it is to hold (snapshot_text.h); NULL: it is not known */

    GPtrArray *tasks; /* from GO to TASK_END */
    uint32_t next_epoch;

    GQueue outbox;   /* messages not yet given to the callbacks */
    bool delivering; /* a callback is running */
};

/* Of scheduler.c. */

/* Messages about the node itself, and about the run. Each function with a node and a Control
 * handles a message of that node, and returns whether it made sense. */
bool scheduler_hears_beat(Scheduler *scheduler, uint32_t node, const Control *control);
bool scheduler_hears_made(Scheduler *scheduler, uint32_t node, const Control *control);
bool scheduler_hears_runs(Scheduler *scheduler, uint32_t node, const Control *control);
bool scheduler_hears_interrupt(Scheduler *scheduler, uint32_t node, const Control *control);
bool scheduler_hears_stop(Scheduler *scheduler, uint32_t node, const Control *control);
bool scheduler_hears_leave(Scheduler *scheduler, uint32_t node, const Control *control);
bool scheduler_hears_broken(Scheduler *scheduler, uint32_t node, const Control *control);

/* All that nodes wait for now, of Wait. (transfer full) */
GArray *scheduler_list_waits(const Scheduler *scheduler);

/* What follows from an event for snapshots, drains, and nodes that leave. */
void scheduler_go_on(Scheduler *scheduler);

/* The process before this one, of the scheduler's own node, is lost. */
void scheduler_lose_own(Scheduler *scheduler);

/* The same of a process that has the place of a lost node, and does not know it. */
void scheduler_lose_newcomer(Scheduler *scheduler, uint32_t node);

/* A tick, as far as it follows from the journal. */
void scheduler_tick_again(Scheduler *scheduler);

#endif
