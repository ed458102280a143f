/* What the scheduler's parts share. No other file includes this, except tests that count.
 *
 * Each part calls only parts that are listed below it (tests/project/test_knots.sh checks that). It
 * reaches parts above it through the scheduler's outbox:
 *
 *   scheduler_status.c                  what it tells of the run to those who ask
 *   journal/scheduler_resume.c          another process goes on as the scheduler
 *   scheduler.c                         birth and death, who gets which message, liveness
 *   journal/scheduler_state.c           all of it as bytes, with which the journal begins anew
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
 * functions below.
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

/* scheduler_record.c */

/* Before what follows from it is delivered: a message of a node, a greeting, the loss of a node, a
 * worker's failure whose cause is not told (the task fails with it), a tick from which something
 * followed, the nodes of the run that begins, readers that were restored, and the process that goes
 * on as the scheduler. Nothing while the journal is replayed. */
void record_message(Scheduler *scheduler, uint32_t node, const Control *control);
void record_greeting(Scheduler *scheduler, const Control *greeting, uint16_t version,
                     uint64_t asker);
void record_gone(Scheduler *scheduler, uint32_t node, const char *text);
void record_effect(Scheduler *scheduler, uint32_t epoch);
void record_tick(Scheduler *scheduler);
void record_begin(Scheduler *scheduler);
void record_readers(Scheduler *scheduler, GHashTable *readers);
void record_process(Scheduler *scheduler, const SchedulerProcess *process);

/* The journal begins anew, with the state. If that is not possible, it goes on as it is. */
void record_state(Scheduler *scheduler, const void *state, size_t size);

/* What a record says. */
typedef enum {
    RECORD_MESSAGE = 1,
    RECORD_GREETING,
    RECORD_GONE,
    RECORD_EFFECT,
    RECORD_TICK,
    RECORD_BEGIN,
    RECORD_READERS,
    RECORD_PROCESS,
    RECORD_STATE, /* in the place of all records before it: the first one, if there is one */
} RecordKind;
typedef struct {
    RecordKind kind;
    int64_t now_ms;
    uint64_t asker;
    uint32_t node; /* of an EFFECT: the epoch */
    uint16_t version;
    Control control;   /* of MESSAGE, GREETING, BEGIN (a WELCOME) and PROCESS (a JOIN) */
    const char *text;  /* of a GONE; borrowed, as the next one is */
    const char *names; /* of READERS: pairs of a name and a text, each with a zero byte behind */
    size_t names_bytes;
    const void *state; /* of a STATE: borrowed, too */
    size_t state_bytes;
} Record;

/* Whether it makes sense. control_clear frees its message. */
bool record_read(const void *bytes, size_t size, Record *record);

/* A message is about to leave. False: it is held, or the process that it is for has ended. */
bool record_lets_go(Scheduler *scheduler, uint32_t node, const Control *control);

/* The node has had so many of the messages to it. */
void record_was_heard(SchedulerNode *node, uint64_t n);

/* Another process has the node's place: nothing was sent to it yet. */
void record_forget_sent(SchedulerNode *node);

/* scheduler_base.c */

/* Queue a message; it is copied. Not to lost nodes. */
void scheduler_send(Scheduler *scheduler, uint32_t node, const Control *control);
void scheduler_send_all(Scheduler *scheduler, const Control *control);
void scheduler_send_greeting(Scheduler *scheduler, uint64_t asker, const Control *control);

/* The same to a lost node. */
void scheduler_send_last_word(Scheduler *scheduler, uint32_t node, const Control *control);

/* Hands what is queued to the callbacks, unless one of them runs. */
void scheduler_deliver(Scheduler *scheduler);
void scheduler_clear_outbox(Scheduler *scheduler);

/* Whether it holds a message that counts. */
bool scheduler_outbox_counts(const Scheduler *scheduler);

/* Whether no process has ever been this node: it is spare. */
bool scheduler_is_absent(const Scheduler *scheduler, uint32_t node);

/* Whether the node takes part in what follows. */
bool scheduler_counts_on(const Scheduler *scheduler, uint32_t node);

/* Whether the node makes calls and may have workers, or did until it left. */
bool scheduler_has_program(const Scheduler *scheduler, uint32_t node);

/* Whether the node does its part of a call that all nodes with programs have proposed. */
bool scheduler_does_part(const Scheduler *scheduler, uint32_t node);

/* Sets a verdict that is not set yet; the first one stays. */
void verdict_set(Verdict *verdict, uint32_t code, const char *text);
void verdict_clear(Verdict *verdict);

/* "node 1 (127.0.0.1:4102) [last heard 0.2 s ago] and node 2 (…" of the numbers in the list.
 * (transfer full) */
char *scheduler_name_nodes(const Scheduler *scheduler, const GArray *numbers, bool with_heard);

/* Adds a Wait; takes the text. */
void wait_add(GArray *waits, char *text, const bool *waiting, int64_t since_ms);

/* task_find: the task of an epoch; NULL if there is none. The other: whether there was such a task,
 * so that a message about it is only late. */
SchedulerTask *task_find(const Scheduler *scheduler, uint64_t epoch);
bool task_is_late(const Scheduler *scheduler, uint64_t epoch);

/* The first cause wins. */
void task_cancel(Scheduler *scheduler, SchedulerTask *task, uint32_t code, const char *text);
void task_send_cancel(Scheduler *scheduler, const SchedulerTask *task);

/* The step of a snapshot that follows another one, which is not FORGET: that comes last. */
ControlStep snapshot_step_after(ControlStep step, bool failed);

/* scheduler.c */

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

/* scheduler_state.c */

/* (transfer full) */
GByteArray *state_write(Scheduler *scheduler);

/* Into a new scheduler of the same configuration. False: it makes no sense; then the scheduler can
 * only be freed. */
bool state_read(Scheduler *scheduler, const void *bytes, size_t size);

/* Nothing of an event is left to be delivered: the journal begins anew if it has grown enough. */
void state_keep(Scheduler *scheduler);

/* scheduler_resume.c */

/* A node looks for the scheduler, and asks whether this process goes on as it. */
void resume_greet(Scheduler *scheduler, const Control *control, uint16_t version, uint64_t asker);

/* It has left its link to the process before. */
bool resume_hears_back(Scheduler *scheduler, uint32_t node, const Control *control);

/* scheduler_rendezvous.c */
void rendezvous_hello(Scheduler *scheduler, const Control *control, uint16_t version,
                      uint64_t asker);

/* A node that is here ends before the run has begun: then the run cannot begin. */
void rendezvous_farewell(Scheduler *scheduler, const Control *farewell, uint16_t version,
                         uint64_t asker);

/* The same for the scheduler's own node. */
void rendezvous_stop(Scheduler *scheduler, const char *text);

/* A process wants to take the place of a lost node. */
void rendezvous_join(Scheduler *scheduler, const Control *join, uint16_t version, uint64_t asker);

/* A process of a run without a cluster file asks for its place, again or too late. */
void rendezvous_announce(Scheduler *scheduler, const Control *control, uint16_t version,
                         uint64_t asker);
void rendezvous_tick(Scheduler *scheduler);

/* A spare node: the run begins without it. */
void rendezvous_leave_out(SchedulerNode *node);

/* All nodes are here that are not spare. The same again, by the journal. */
void rendezvous_begin(Scheduler *scheduler);
void rendezvous_begin_again(Scheduler *scheduler, const ControlWelcome *welcome);

/* The scheduler's own node joins the run, if that can begin now. */
void rendezvous_admit_own(Scheduler *scheduler);
void rendezvous_node_gone(Scheduler *scheduler, uint32_t node);

/* scheduler_collective.c */
bool collective_propose(Scheduler *scheduler, uint32_t node, const Control *control);
bool collective_ready(Scheduler *scheduler, uint32_t node, const Control *control);

/* Fails everything that runs, that waits, and that comes later. */
void scheduler_doom(Scheduler *scheduler, uint32_t code, const char *text);

/* A node is lost, and the run goes on: the open call fails, unless it needs no more than the nodes
 * that live. */
void collectives_lose_node(Scheduler *scheduler, uint32_t node, const char *text);

/* What kept a call from beginning has ended: all parts have their primaries, or a snapshot is
 * written. */
void collectives_go_on(Scheduler *scheduler);

/* Whether nodes do their part of a call. */
bool collectives_work(const Scheduler *scheduler);

/* The scheduler's doom has been set. */
void collectives_doomed(Scheduler *scheduler);

/* The node has left or is lost. */
void collectives_node_out(Scheduler *scheduler, uint32_t node);
void collectives_add_waits(const Scheduler *scheduler, GArray *waits);
void collectives_clear(Scheduler *scheduler);

/* scheduler_task.c */
void task_prepare(Scheduler *scheduler, const Collective *call);

/* The RUN of the task has ended: it runs, or there is no such task any more. */
void task_decided(Scheduler *scheduler, uint32_t epoch, bool runs);

/* A process that serves makes the calls of the others from now on: it has no part in the tasks that
 * run, unless it has workers of theirs again. */
void tasks_catch_up(Scheduler *scheduler, uint32_t node);

/* The program of a process that serves comes to a task that runs. If the task waits for it, it
 * has the workers of the lost one from now on, and this is what it is told of the task. NULL
 * otherwise. (transfer full) */
char *task_replace(Scheduler *scheduler, uint32_t node, uint32_t epoch);

/* Whether it waits for a process that has lost workers again. */
bool task_awaits_any(const Scheduler *scheduler, const SchedulerTask *task);

/* Why there is no snapshot yet: what lost workers have changed is in its tables, and not yet done
 * by others in their place. OK: there may be one. Nothing in it is allocated. spec: as in
 * snapshot_text.h. */
Verdict tasks_find_awaited(const Scheduler *scheduler, const char *spec);
bool task_fail(Scheduler *scheduler, uint32_t node, const Control *control);
bool task_done(Scheduler *scheduler, uint32_t node, const Control *control);
bool task_arrive(Scheduler *scheduler, uint32_t node, const Control *control);
void tasks_cancel(Scheduler *scheduler, uint32_t code, const char *text);
void tasks_tick(Scheduler *scheduler);

/* The task fails by a worker's failure, whose cause nobody has told. */
void task_fail_by_effect(Scheduler *scheduler, uint32_t epoch);

/* The scheduler's node stood still for so long. */
void tasks_leave_out_pause(Scheduler *scheduler, int64_t pause_ms);
void tasks_node_out(Scheduler *scheduler, uint32_t node);
void tasks_add_waits(const Scheduler *scheduler, GArray *waits);
void tasks_clear(Scheduler *scheduler);

/* Tasks whose workers on the node have not ended, or begun, fail with this, unless they can go on
 * without. */
void tasks_lose_node(Scheduler *scheduler, uint32_t node, const char *text);

/* The name of a task whose workers on the node have not ended; NULL: there is none. */
const char *tasks_name_busy(const Scheduler *scheduler, uint32_t node);

/* Tasks that have gone on without lost workers may end, if all parts have their primaries now. */
void tasks_go_on(Scheduler *scheduler);

/* scheduler_recovery.c */
Recovery *recovery_new(uint32_t n_nodes);
void recovery_free(Recovery *recovery);

/* The node is lost, and the run goes on. */
void recovery_begin(Scheduler *scheduler, uint32_t node, const char *text);
bool recovery_hears_done(Scheduler *scheduler, uint32_t node, const Control *control);

/* A node says that it has made n replicas, and could not make n_missing. False: it was not to make
 * so many. */
bool recovery_hears_made(Scheduler *scheduler, uint32_t node, uint32_t n, uint32_t n_missing);

/* The process of the admission takes the place of its node. Nothing else is under way. */
void recovery_admit(Scheduler *scheduler);
void recovery_check(Scheduler *scheduler);
void recovery_add_waits(const Scheduler *scheduler, GArray *waits);

/* The steps by which parts leave a node: cause DRAIN or HAND_OVER. Nothing else is under way.
 * what: "is drained", for the log. */
void recovery_drain(Scheduler *scheduler, ControlCause cause, uint32_t node, const char *what);

/* Copies on a node that has joined take the place of others, if there are some and all are made.
 * Nothing else is under way. */
void recovery_balance(Scheduler *scheduler);

/* After the last steps: whether they were those of a HAND_OVER; why nodes cannot be drained (NULL:
 * they can); whether replicas that were to be made are not there yet. */
bool recovery_has_handed_over(const Scheduler *scheduler);
const char *recovery_drain_fault(const Scheduler *scheduler);
bool recovery_awaits_copies(const Scheduler *scheduler);

/* scheduler_drain.c */

/* A node asks for one; a process outside the run. */
bool drain_hears_ask(Scheduler *scheduler, uint32_t node, const Control *control);
void rendezvous_drain(Scheduler *scheduler, const Control *control, uint16_t version,
                      uint64_t asker);

/* After each event: its next stage, or its end; parts for a node that has joined. */
void drain_go_on(Scheduler *scheduler);
void drain_add_waits(const Scheduler *scheduler, GArray *waits);

/* Whether the node was told that it may end, and says LEAVE now. */
bool drain_awaits_leave(const Scheduler *scheduler, uint32_t node);
void drain_clear(Scheduler *scheduler);

/* scheduler_admission.c */

/* Why the run admits no process at all; NULL: it does. *code goes with it. */
const char *admission_find_obstacle(const Scheduler *scheduler, uint32_t *code);

/* Whether a process of the run has, or had, this incarnation. */
bool admission_knows(const Scheduler *scheduler, uint64_t incarnation);

/* Begins one: the process that said JOIN, for a lost node. False: there were too many. */
bool admission_begin(Scheduler *scheduler, uint32_t node, const ControlHello *join, uint64_t asker);

/* The scheduler's own node is lost, and joins the run as that of this process as soon as nothing
 * else is under way. */
bool admission_awaits_own(const Scheduler *scheduler);

/* A snapshot has put off a process that is to join, and it asks again soon. Until then no other one
 * begins: where one follows another, it would never be admitted. If it does not ask, that ends. */
bool admission_is_due(const Scheduler *scheduler);

/* Why there is no snapshot if it is lost and cannot join. */
#define SCHEDULER_LACKS_OWN "the scheduler's node, which completes snapshots, has left the run"

/* The same for this process, whose links nodes have already. */
void admission_begin_own(Scheduler *scheduler);

/* A number from which bytes are counted, which nobody had. 0: there is none left. */
uint64_t admission_count_from(Scheduler *scheduler);

/* All nodes have links to the process: it is the node from now on. */
void admission_install(Scheduler *scheduler);

/* Tells the process so. It may ask again. */
void admission_answer(Scheduler *scheduler, uint32_t node);

/* It makes the same calls as the others from now on. Tells all nodes. */
void admission_catch_up(Scheduler *scheduler, uint32_t node);

/* It is given up, or is over. */
void admission_end(Scheduler *scheduler);

/* scheduler_snapshot.c */
Snapshots *snapshots_new(uint32_t n_nodes);
void snapshots_free(Snapshots *snapshots);
bool snapshots_hear_ask(Scheduler *scheduler, uint32_t node, const Control *control);
bool snapshots_hear_done(Scheduler *scheduler, uint32_t node, const Control *control);

/* After each event: begins what can begin, and ends what waits for nobody any more. */
void snapshots_go_on(Scheduler *scheduler);

/* A node is lost, and the run goes on. */
void snapshots_lose_node(Scheduler *scheduler, uint32_t node, const char *text);
void snapshots_add_waits(const Scheduler *scheduler, GArray *waits);

/* scheduler_tensors.c */

/* workers: as ControlPropose.workers. NULL: it says nothing that makes sense. (transfer full) */
TensorCoordinator *tensors_new(const Scheduler *scheduler, const char *workers);
void tensors_free(TensorCoordinator *it);
bool tensors_enqueue(Scheduler *scheduler, uint32_t node, const Control *control);

/* The node has no worker left in the task. */
void tensors_retire(Scheduler *scheduler, SchedulerTask *task, uint32_t node);

/* The node is lost, and the task goes on: its workers' sets are without them. */
void tensors_lose(Scheduler *scheduler, SchedulerTask *task, uint32_t node, const char *text);

/* The same, but another process is to have its workers: their sets wait for these. */
void tensors_replace(Scheduler *scheduler, SchedulerTask *task, uint32_t node, const char *text);

/* The first rank of the node's workers in the task, and how many they are; of the node behind the
 * last one, the number of all workers. Whether any worker has asked for a collective. */
uint32_t tensors_first_rank(const TensorCoordinator *it, uint32_t node);
uint32_t tensors_n_workers(const TensorCoordinator *it, uint32_t node);
bool tensors_are_used(const TensorCoordinator *it);

/* scheduler_tensors_waits.c */
void tensors_add_wait(const SchedulerTask *task, GArray *waits);

/* scheduler_waits.c */
void waits_init(SchedulerTask *task);
void waits_clear(SchedulerTask *task);

/* The node's workers have ended, or are lost: they hold nobody any more. */
void waits_node_out(SchedulerTask *task, uint32_t node);
bool task_waits(Scheduler *scheduler, uint32_t node, const Control *control);

/* scheduler_kept.c */
void kept_init(Scheduler *scheduler);
void kept_clear(Scheduler *scheduler);

/* Whether the task uses a table of a snapshot, or of the one that is cut: nodes cut the readers of
 * such tasks alone (hold_steps in engine/snapshot/snapshot_cut.c). True if it is not known. spec:
 * as in snapshot_text.h; what makes no sense there fails on the nodes. */
bool kept_has_table_of(const Scheduler *scheduler, const char *spec, const SchedulerTask *task);
bool kept_cuts_table_of(const Scheduler *scheduler, const SchedulerTask *task);

/* A cut begins, which has what was restored; gets a reader, instead of the restored one of its
 * name. */
void kept_begin_cut(Scheduler *scheduler, const char *spec);
void kept_put(Scheduler *scheduler, const char *name, const char *description,
              BlockDispatcher *dispatcher);

/* The dispatcher of a reader that is kept, of the restored snapshot or a new one. NULL, and the
 * task is cancelled: it cannot go on from there. (transfer full) */
BlockDispatcher *kept_find(Scheduler *scheduler, SchedulerTask *task, const ControlReader *reader,
                           const BlockDispatcherConfig *config);

/* Cancels the task if no node has a file from which blocks are left. */
void kept_check_files(Scheduler *scheduler, SchedulerTask *task, const BlockDispatcher *dispatcher);

/* scheduler_past.c */
PastCalls *past_new(void);
void past_free(PastCalls *past);

/* A call is decided; a task has ended, well or not. */
void past_note(Scheduler *scheduler, const Collective *call);
void past_note_end(Scheduler *scheduler, uint32_t epoch, const Verdict *cause);

/* The epoch of the task that such a call has begun, and that has not ended; 0: it is no such
 * call. */
uint32_t past_find_task(const Scheduler *scheduler, const ControlPropose *propose);

/* Answers a call of a process that serves. told: as in ControlPast; NULL: nothing. False: the run
 * has not made that call yet. */
bool past_answer(Scheduler *scheduler, uint32_t node, const ControlPropose *propose,
                 const char *told);

/* scheduler_data.c */

/* All nodes are told that step of a snapshot. spec: what it is to hold; NULL: it is not known. */
void data_hear_step(Scheduler *scheduler, ControlStep step, const char *spec);

/* The task is about to be freed. */
void data_forget(Scheduler *scheduler, const SchedulerTask *task);

/* Why what CUT found of the tables may not fit what is kept of readers; OK: it does. Nothing in it
 * is allocated. */
Verdict data_find_tear(const Scheduler *scheduler);

/* Whether snapshots keep a reader of the task. */
bool data_has_kept(const SchedulerTask *task);

bool data_reader(Scheduler *scheduler, uint32_t node, const Control *control);
bool data_inputs(Scheduler *scheduler, uint32_t node, const Control *control);
bool data_want(Scheduler *scheduler, uint32_t node, const Control *control);

/* The node's workers have ended, and replicas have what they have added. So the blocks that they
 * have read need not be read again if the node is lost. Before that nobody knows what they have
 * made of a block: their readers read ahead. */
void data_settle(SchedulerTask *task, uint32_t node);

/* Another process is to have the node's workers: they get the same blocks once more. */
void data_await(SchedulerTask *task, uint32_t node);

/* Why its workers cannot read the data without those of a lost node; NULL: they can. */
const char *data_needs_all(const SchedulerTask *task);

/* How many blocks of lost nodes no other has read as a whole, although some worker has read all
 * there was. */
uint64_t data_n_unread(const SchedulerTask *task);
void data_node_out(SchedulerTask *task, uint32_t node);

/* The node is lost, and its workers had ended. */
void data_lose_ended(SchedulerTask *task, uint32_t node);

/* What the task's workers read, and how far they are: the member `readers` of its status. */
void data_add_status(const Scheduler *scheduler, const SchedulerTask *task, GVariantBuilder *list);
void data_clear(SchedulerTask *task);

/* ---- as bytes: each part walks through what it alone knows (engine/control/state_walk.h) ---- */

void verdict_walk(StateWalk *walk, Verdict *verdict);
void past_walk(StateWalk *walk, PastCalls *past);
void kept_walk(StateWalk *walk, Scheduler *scheduler);
void data_walk(StateWalk *walk, const Scheduler *scheduler, SchedulerTask *task);
void waits_walk(StateWalk *walk, SchedulerTask *task);
TensorCoordinator *tensors_walk(StateWalk *walk, TensorCoordinator *it, uint32_t n_nodes);
void recovery_walk(StateWalk *walk, Scheduler *scheduler);
void tasks_walk(StateWalk *walk, Scheduler *scheduler);
void collectives_walk(StateWalk *walk, Scheduler *scheduler);
void snapshots_walk(StateWalk *walk, Scheduler *scheduler);
void drain_walk(StateWalk *walk, Scheduler *scheduler);

#endif
