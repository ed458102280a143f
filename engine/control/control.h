/* Control messages: what nodes and the scheduler say to one another. None of them is on the data
 * path.
 *
 * A message is a kind and what this kind carries. One row of the array in control_messages.c
 * describes each kind: its name, who may send it, its body, what is checked, who handles it. Within
 * a process a message is passed as this struct. Only a message to another node is encoded as bytes.
 *
 * Threads: any; a Control has one owner at a time. */
#ifndef RUBATO_ENGINE_CONTROL_CONTROL_H
#define RUBATO_ENGINE_CONTROL_CONTROL_H

#include <rubato/error.h>

typedef enum {
    /* Greetings are sent before there are links and may be lost, so HELLO is repeated until it is
     * answered. HELLO and REFUSE keep their numbers and bodies in all wire versions. A version may
     * only add members at the end, which other versions do not read. */
    CONTROL_HELLO = 1,
    CONTROL_WELCOME,  /* every node has said HELLO */
    CONTROL_REFUSE,   /* this node cannot take part, or the run cannot begin */
    CONTROL_FAREWELL, /* this node ends before the run has begun */

    CONTROL_BEAT, /* nothing but a sign of life; both ways */

    /* Node to scheduler. */
    CONTROL_PROPOSE,   /* this node makes its next collective call */
    CONTROL_READY,     /* after GO: my part of it is done, or why not */
    CONTROL_FAIL,      /* a worker of mine failed in the task */
    CONTROL_TASK_DONE, /* my workers have ended, all they sent has arrived */
    CONTROL_ARRIVE,    /* all live workers of mine wait in this barrier of the task */
    CONTROL_WAITS,     /* a worker has waited for some time */
    CONTROL_READER,    /* a worker of mine opened a reader of a dataset, and how it is split */
    CONTROL_INPUTS,    /* the inputs of a reader that I hold */
    CONTROL_WANT,      /* asks for more of a reader's blocks; tells what happened to earlier ones */
    CONTROL_ENQUEUE,   /* what my workers ask of collectives on tensors */
    CONTROL_INTERRUPT, /* cancel every running task */
    CONTROL_STOP,      /* cancel every running task, fail every waiting and further collective call:
                        * a signal has ended the run */
    CONTROL_LEAVE,     /* this node has nothing left to do, but still serves the others */

    /* Scheduler to node. */
    CONTROL_GO,       /* all nodes propose the same; do your part, then say READY */
    CONTROL_COMMIT,   /* how the call ended, the same on every node. After a GO it comes once this
                     * node has said READY; a failure then means: undo. Without a GO it is a refusal
                     * (a mismatch, a lost node), or a barrier passed */
    CONTROL_CANCEL,   /* the task has failed; its cause is the first one */
    CONTROL_TASK_END, /* every node has said TASK_DONE */
    CONTROL_RELEASE,  /* go on behind this barrier of the task */
    CONTROL_BLOCKS,   /* blocks to read */
    CONTROL_DECIDE,   /* which collectives on tensors run now, and which fail */
    CONTROL_LOST,     /* a node is lost; a node's own number tells it that it was given up */
    CONTROL_WAITING,  /* for the log: the nodes for which a call of this node still waits */
    CONTROL_LEFT,     /* every node has left or is lost: you may go */

    /* Node to scheduler. */
    CONTROL_BROKEN, /* another node is silent, or does not do what every node does */

    /* Greetings of a run that has no cluster file, before HELLO. ANNOUNCE is repeated until it is
     * answered with a PLACE that has one. */
    CONTROL_ANNOUNCE, /* a process wants to be a server or worker of the run */
    CONTROL_PLACE,    /* its place in the run, or for whom it waits */

    /* A node is lost, and the run goes on: see docs/replication.md. */
    CONTROL_RECOVER,   /* scheduler to node: do this step */
    CONTROL_RECOVERED, /* node to scheduler: it is done */

    CONTROL_MADE, /* a server has made replicas for lost ones; the scheduler tells all */

    CONTROL_RUNS, /* a server runs a handler for long, or no longer; the scheduler tells all */

    /* A snapshot that one node asks for, and that the scheduler leads all nodes through. */
    CONTROL_SNAPSHOT_ASK,  /* node to scheduler */
    CONTROL_SNAPSHOT_STEP, /* scheduler to node: do this step */
    CONTROL_SNAPSHOT_DONE, /* node to scheduler: it is done, or why not */
    CONTROL_SNAPSHOT_END,  /* scheduler to the node that asked: how it ended */

    /* Greetings while the run goes on without a lost node. JOIN is repeated until it is
     * answered. */
    CONTROL_JOIN,     /* a process wants to take the place of the lost node */
    CONTROL_ADMITTED, /* it has it: all nodes have links to the process */

    /* A node's parts are to go to others. Also greetings: DRAIN is repeated until it is answered
     * with the end. */
    CONTROL_DRAIN,   /* to the scheduler, of a node or from outside */
    CONTROL_DRAINED, /* its answer: how it has ended, or that it goes on. With the code of
                      * RUBATO_ERROR_SERVED, to the drained node: it may end, and says LEAVE */

    /* Greetings of a node that hears nothing of the scheduler. RESUME is repeated until the node
     * hears something. A scheduler that has lived on does not answer it. */
    CONTROL_RESUME,  /* who goes on as the scheduler? */
    CONTROL_RESUMED, /* this process does */
    CONTROL_BACK,    /* the node's first message to it */

    /* A process that has joined, and makes the calls of the run that came before: newcomer.h. */
    CONTROL_PAST,      /* scheduler to that process: how its call had ended */
    CONTROL_CAUGHT_UP, /* scheduler to all: its next call is one that others make, too */

    CONTROL_END_OF_KINDS,
} ControlKind;

/* What a collective call does. */
typedef enum {
    CONTROL_CALL_CREATE = 1,
    CONTROL_CALL_DROP,
    CONTROL_CALL_RUN,
    CONTROL_CALL_MOVE,
    CONTROL_CALL_BARRIER, /* never has a GO: when all are there, COMMIT says so */
    CONTROL_CALL_SNAPSHOT,
    CONTROL_CALL_RESTORE, /* the check of a snapshot; its rows */
    CONTROL_CALL_END,
} ControlCall;

/* What a node of a run without a cluster file does. */
typedef enum {
    CONTROL_ROLE_SERVER = 1,
    CONTROL_ROLE_WORKER,
    CONTROL_ROLE_NODE, /* both */
    CONTROL_ROLE_END,
} ControlRole;

/* What a worker waits for. */
typedef enum {
    CONTROL_WAIT_BARRIER = 1,
    CONTROL_WAIT_CLOCK,
    CONTROL_WAIT_COLLECTIVE, /* on tensors */
    CONTROL_WAIT_END,
} ControlWait;

#define CONTROL_MAX_WORKERS (1u << 22) /* of a task: all ranks are below this */
#define CONTROL_MAX_READERS 65536u     /* readers that a worker may open in a task */

/* The round of an ARRIVE from a node that has no worker left in the task, or never had one. */
#define CONTROL_NO_ROUND UINT64_MAX

/* Codes on the wire: 0 is success; the code of a RubatoError is its number plus 1. */
#define CONTROL_OK 0u
#define CONTROL_CODE(error_code) ((uint32_t)(error_code) + 1u)

#define CONTROL_MAX_TEXT 4096u    /* bytes of a text, except the next two; longer texts are cut */
#define CONTROL_MAX_LINES 65536u  /* bytes of a text of many lines */
#define CONTROL_MAX_FILE 1000000u /* bytes of a cluster file */
#define CONTROL_MAX_ENDPOINT 256u /* bytes of an endpoint, or of all endpoints of a node */
#define CONTROL_MAX_NODES 4096u   /* of a WELCOME */
#define CONTROL_MAX_BYTES (1u << 21) /* of a message */

/* How something ended. */
typedef struct {
    uint32_t code;    /* CONTROL_OK or CONTROL_CODE(…) */
    const char *text; /* for people: what failed */
} ControlOutcome;

/* ---- what each kind carries ---- */

typedef struct {
    uint32_t node_id;
    uint32_t number;         /* the node number that the sender believes to have */
    uint64_t incarnation;    /* random; distinguishes two processes with the same node id */
    const char *digest;      /* of the cluster file */
    const char *endpoints;   /* where the sender receives; commas separate several */
    const char *description; /* the process in words: "host pid 123" */
    const char *registered;  /* what it has registered: registry_describe */
} ControlHello;

typedef struct {
    uint64_t run_id; /* distinguishes this run's packets from those of another run */
    uint32_t n_nodes;
    const char *const *endpoints; /* by node number */
    const uint64_t *incarnations; /* by node number */

    /* The next members are those of an ADMITTED, in which a lost node has an empty endpoint. */
    uint64_t counted_from; /* as NetworkPeer.counted_from, for all others */
    uint32_t n_before;     /* processes that have had the node's place before */
} ControlWelcome;

typedef struct {
    uint32_t node_id;
    uint64_t incarnation;
    const char *text; /* why it ends */
} ControlFarewell;

/* A collective call is identified by its number. Each node counts its calls from 1. */
typedef struct {
    uint64_t call;
    ControlCall what;
    uint64_t hash_seed;    /* of a CREATE: of the table's hash; of a SNAPSHOT: its random number */
    const char *name;      /* "table weights", "task lr" */
    const char *digest;    /* of all arguments of the call */
    const char *arguments; /* in words, for the message that compares them */
    const char *workers;   /* of a RUN: how many each node has, by node number: "2 0 1" */
    const char *told; /* for a process that serves: of a CREATE the table (told_table.h), of a DROP
                       * its number, of a RUN the tables' numbers (told_task.h), of a MOVE all of it
                       * (told_move.h), of a SNAPSHOT likewise (snapshot_text.h) */
    bool survives;    /* of a CREATE: the table has replicas, so the run outlives nodes;
                            * of a RUN: the task outlives the workers of a lost node */
    uint32_t replace_ms; /* of a RUN that does: how long it waits for a process that has these
                          * workers again; 0: it goes on without them */
} ControlPropose;

/* The steps of a MOVE, and of a SNAPSHOT: each begins when all nodes are READY with the one before.
 * What they do is told in engine/server/server_parts.c and engine/snapshot/snapshot_cut.c. Their
 * numbers ascend. All other calls have one step, of number 0. */
typedef enum {
    CONTROL_STEP_PREPARE, /* of a SNAPSHOT, as CUT and the last three are; and of a MOVE */
    CONTROL_STEP_AHEAD,   /* of a MOVE */
    CONTROL_STEP_CLOSE,
    CONTROL_STEP_CUT,
    CONTROL_STEP_SEND, /* of a MOVE, like the next one */
    CONTROL_STEP_INSTALL,
    CONTROL_STEP_OPEN,
    CONTROL_STEP_TAKE_BACK, /* in place of INSTALL and OPEN, if a step before them failed */
    CONTROL_STEP_REOPEN,
    CONTROL_STEP_WRITE,
    CONTROL_STEP_COMMIT,
    CONTROL_STEP_FORGET, /* it has ended, well or not */
    CONTROL_STEP_END,
} ControlStep;

/* A GO for each step of a call. The last two members are for processes that serve: they have not
 * proposed it. */
typedef struct {
    uint64_t call;
    uint64_t hash_seed; /* as the node said that proposed first */
    uint32_t id;        /* of a CREATE the table's, from 0; of a RUN the task's epoch, from 1; of a
                         * MOVE the number of the new part map, from 2 */
    uint32_t step;      /* a ControlStep */
    ControlCall what;
    const char *told; /* as in the first proposal; of a RUN the whole task */
} ControlGo;

/* The steps that follow the loss of a node, or a process that takes its place, and by which the
 * parts of a node leave it. Each begins when all nodes have done the one before. */
typedef enum {
    CONTROL_RECOVER_ADMIT,  /* such a process: nodes open links to it; */
    CONTROL_RECOVER_TABLES, /* it makes the tables that there are */
    CONTROL_RECOVER_CLOSE,
    CONTROL_RECOVER_SETTLE, /* if parts leave a node: their primaries there take no more inputs */
    CONTROL_RECOVER_PROMOTE,
    CONTROL_RECOVER_OPEN,
    CONTROL_RECOVER_EXPECT, /* if replicas are to be made: nodes make room for them, */
    CONTROL_RECOVER_COPY,   /* and primaries begin to copy their parts */
    CONTROL_RECOVER_END,
} ControlRecoverStep;

/* Why nodes do these steps. */
typedef enum {
    CONTROL_CAUSE_LOSS,
    CONTROL_CAUSE_JOIN,  /* a process takes the place of a lost node */
    CONTROL_CAUSE_DRAIN, /* parts of a node are to leave it: copies of them are made elsewhere, */
    CONTROL_CAUSE_HAND_OVER, /* and take their place */
    CONTROL_CAUSE_LEAVE,     /* a node that was drained has left: as a loss, but nothing is lost */
    CONTROL_CAUSE_BALANCE,   /* copies on a node that has joined take the place of others */
    CONTROL_CAUSE_END,
} ControlCause;

/* Whether the node is in the run no more. */
static inline bool control_cause_is_loss(uint32_t cause)
{
    return cause == CONTROL_CAUSE_LOSS || cause == CONTROL_CAUSE_LEAVE;
}

/* Whether copies take the place of primaries that live: SETTLE follows CLOSE. */
static inline bool control_cause_hands_over(uint32_t cause)
{
    return cause == CONTROL_CAUSE_HAND_OVER || cause == CONTROL_CAUSE_BALANCE;
}

/* RECOVER, RECOVERED. */
typedef struct {
    uint32_t map;      /* the number of the new part map */
    uint32_t step;     /* a ControlRecoverStep */
    uint32_t node;     /* of a RECOVER: the number of the node that was lost last, whose place
                        * another process takes, or which parts leave */
    uint32_t cause;    /* of a RECOVER: a ControlCause */
    const char *text;  /* of a CLOSE: how it was lost; of RECOVERED with ADMIT: why the process
                        * cannot take the place; empty: it can; of RECOVERED with OPEN, by the
                        * scheduler's node: why nodes cannot be drained; empty: they can */
    const char *lines; /* of RECOVERED with ADMIT, by the scheduler's node: the tables that there
                        * are; of TABLES: these, and the tasks that run; of CLOSE: the numbers of
                        * nodes that parts leave or have left; of RECOVERED with CLOSE: the parts
                        * that the node has; of SETTLE, PROMOTE and OPEN: where parts are from now
                        * on; of RECOVERED with OPEN, by the scheduler's node, and of EXPECT and
                        * COPY: where they are, and where replicas are to be. See
                        * engine/control/place_text.h */

    uint64_t incarnation;  /* of ADMIT: of the process; of the others: of the node's last one */
    uint64_t counted_from; /* of ADMIT, as NetworkPeer has it; and the process's */
    const char *endpoints;
} ControlRecover;

/* SNAPSHOT_ASK, _STEP, _DONE, _END. */
typedef struct {
    uint64_t number;  /* of ASK and END among what the node has asked for, of STEP and DONE among
                       * the snapshots of the run; from 1 */
    uint32_t step;    /* of STEP and DONE: a ControlStep */
    uint32_t asker;   /* of STEP: the number of the node that asked, */
    uint64_t asked;   /* and the number of what it asked for */
    uint32_t epoch;   /* the task for which it is made, and with which it fails; 0: none */
    uint64_t seed;    /* the snapshot's random number */
    uint64_t written; /* of END, and of DONE with COMMIT: the number that the snapshot has in its
                       * directory */
    ControlOutcome outcome; /* of DONE and END; of STEP with FORGET */
    const char *spec;       /* of ASK and STEP: engine/snapshot/snapshot_text.h */
} ControlSnapshot;

/* READY, COMMIT. */
typedef struct {
    uint64_t call;
    ControlOutcome outcome;
} ControlCallEnd;

/* PAST. The outcome is that of the call; a task that began has another one. */
typedef struct {
    uint64_t call;
    uint32_t id;  /* as in GO */
    bool goes_on; /* the task has not ended: its TASK_END comes */
    ControlOutcome outcome;
    ControlOutcome end; /* of a task that has ended */
    const char *told;   /* of a task in which the process gets the workers of the lost one: as in
                         * GO; empty: it is no such task */
} ControlPast;

/* CAUGHT_UP. */
typedef struct {
    uint32_t number;   /* of its node */
    const char *lines; /* the numbers of the nodes that serve only, with a blank between each two */
} ControlCaughtUp;

/* TASK_DONE. */
typedef struct {
    uint32_t epoch;
} ControlTask;

/* FAIL, CANCEL, TASK_END. */
typedef struct {
    uint32_t epoch;
    ControlOutcome outcome;
} ControlTaskEnd;

/* ARRIVE, RELEASE. */
typedef struct {
    uint32_t epoch;
    uint64_t round;     /* number of the task's barrier, from 0 */
    bool has_calls;     /* of an ARRIVE with no round: servers may keep calls of workers that have
                         * returned */
    const char *clocks; /* of an ARRIVE at a round, if lost workers are to be replaced: at which
                         * those of the node came (engine/control/told_barriers.h) */
} ControlBarrier;

typedef struct {
    uint32_t epoch;
    uint32_t rank;
    ControlWait what;
    uint64_t round;         /* of the barrier in which it waits, or else of its next barrier */
    uint32_t table;         /* the table for whose clock it waits */
    uint64_t clock;         /* that it waits for */
    const char *table_name; /* of that table */
    const char *own_clocks; /* the worker's, on all tables: see wait_text.h */
    const char *asked;      /* of its sets of workers: see tensor_asked.h; NULL: it is not told */
} ControlWaits;

/* A reader's number counts the readers that a worker opens in the task, from 0. */
typedef struct {
    uint32_t epoch;
    uint32_t reader;
    uint32_t n_epochs; /* of data */
    bool is_dynamic;   /* INPUTS and WANT follow */
    bool is_shuffled;
    uint64_t seed;           /* of the shuffle */
    const char *kept_as;     /* its name in snapshots; NULL: none keeps it */
    const char *description; /* "2 epochs, shuffled by seed 7, …" */
    const char *digest;      /* of the files that it reads */
} ControlReader;

typedef struct {
    uint32_t epoch;
    uint32_t reader;
    uint32_t first;    /* the number of the input in the first line, among the node's inputs */
    const char *lines; /* an input each */
} ControlInputs;

typedef struct {
    uint32_t epoch;
    uint32_t reader;
    uint32_t n_blocks;
    const char *events; /* the results of earlier tickets, one ticket a line */
    uint32_t worker;    /* its rank, if lost workers are to be replaced: its own tickets; else 0 */
    bool ends;          /* it has told all results: answered as if there were no blocks left */
} ControlWant;

typedef struct {
    uint32_t epoch;
    uint32_t reader;
    bool is_last;        /* no more will come */
    const char *tickets; /* a line each */
    uint32_t worker;     /* for whom: as it was asked */
} ControlBlocks;

/* ENQUEUE, DECIDE. */
typedef struct {
    uint32_t epoch;
    const char *lines; /* engine/collectives/negotiation/tensor_text.h: notices, verdicts */
} ControlTensors;

/* BROKEN, LOST. */
typedef struct {
    uint32_t number; /* of the node that is gone */
    const char *text;
    uint64_t incarnation; /* of a BROKEN: of the process that is meant */
} ControlLost;

/* INTERRUPT, STOP, WAITING. */
typedef struct {
    const char *text; /* for people */
} ControlText;

typedef struct {
    uint64_t incarnation;
    ControlRole role;
    uint32_t servers;        /* server threads; a worker has none */
    uint32_t workers;        /* of a task that names no number; a server has none */
    uint32_t wanted_id;      /* the node id that it wants; 0: any */
    const char *host;        /* where it will receive: a number, no name */
    const char *description; /* the process in words: "host process 123" */
} ControlAnnounce;

typedef struct {
    uint64_t incarnation; /* of whom this is for */
    uint32_t node_id;     /* 0: it has none yet, because others are missing */
    const char *missing;  /* for people: those others */
    const char *file;     /* the run, as a cluster file would describe it */
    bool joins;           /* it is the place of a lost node, in a run that goes on */
} ControlPlace;

typedef struct {
    uint32_t server;     /* its number in the run */
    const char *handler; /* its name; empty: none */
} ControlRuns;

typedef struct {
    uint32_t server;    /* its number in the run */
    uint32_t n;         /* replicas */
    uint32_t n_missing; /* that it was to make, too, and could not */
} ControlMade;

/* DRAIN, DRAINED. */
typedef struct {
    uint64_t number;        /* of the ask, among those of its node; of a greeting, a random one */
    uint32_t node_id;       /* that is to be drained */
    bool ends;              /* of a DRAIN: the node is to leave the run after that */
    bool goes_on;           /* of a DRAINED that answers a greeting: it has not ended */
    ControlOutcome outcome; /* of a DRAINED */
} ControlDrain;

/* BEAT. */
typedef struct {
    uint64_t n_taken; /* of the scheduler's: how many messages of the node it will never forget; of
                       * a node's: how many of the scheduler's it has had */
} ControlBeat;

typedef struct {
    uint32_t node_id;
    uint64_t incarnation;
    uint64_t run_id;
    uint64_t scheduler; /* the incarnation of its process, as the node knows it */
} ControlResume;

typedef struct {
    uint64_t incarnation; /* of whom this is for */
    uint64_t scheduler;   /* of this process */
    uint64_t counted_from;
    const char *endpoints;  /* of this process */
    uint64_t n_taken;       /* messages of the node that the scheduler has had: it says the others
                             * again */
    ControlOutcome outcome; /* why the node is not of the run any more */
} ControlResumed;

typedef struct {
    uint64_t n_taken; /* messages that the node has had of the scheduler */
} ControlBack;

/* A NULL text is sent as an empty one. After control_decode and control_copy no text is NULL. */
typedef struct {
    ControlKind kind;
    union { /* by kind; LEAVE and LEFT carry nothing */
        ControlBeat beat;
        ControlResume resume;
        ControlResumed resumed;
        ControlBack back;
        ControlHello hello;
        ControlWelcome welcome;
        ControlOutcome refuse;
        ControlFarewell farewell;
        ControlPropose propose;
        ControlCallEnd ready;
        ControlTaskEnd fail;
        ControlTask task_done;
        ControlBarrier arrive;
        ControlWaits waits;
        ControlReader reader;
        ControlInputs inputs;
        ControlWant want;
        ControlTensors enqueue;
        ControlText interrupt;
        ControlText stop;
        ControlLost broken;
        ControlGo go;
        ControlCallEnd commit;
        ControlPast past;
        ControlCaughtUp caught_up;
        ControlTaskEnd cancel;
        ControlTaskEnd task_end;
        ControlBarrier release;
        ControlBlocks blocks;
        ControlTensors decide;
        ControlLost lost;
        ControlText waiting;
        ControlRecover recover;
        ControlSnapshot snapshot;
        ControlAnnounce announce;
        ControlPlace place;
        ControlMade made;
        ControlDrain drain;
        ControlRuns runs;
    };

    /* These own what the texts and lists point to. NULL in a message that a caller built, and when
     * there is nothing to own. */
    char *texts;
    void *lists;
} Control;

/* The bytes of a message for another node. Text that is too long is cut, and invalid UTF-8 is
 * replaced. So every encoded message can be decoded. (transfer full) */
GByteArray *control_encode(const Control *control);

/* Reads a message that came from outside: every member is checked, and nothing that the message
 * says of its sender is trusted. RUBATO_ERROR_FORMAT. control_clear frees it. */
bool control_decode(const void *data, size_t size, Control *control, GError **error);

/* The same for greetings, which travel as a GVariant of bytes. control_greeting: (transfer full) */
GVariant *control_greeting(const Control *control);
bool control_decode_greeting(GVariant *greeting, Control *control, GError **error);

/* Copies a message within this process: the result is what control_decode would give, without
 * encoding. control_clear frees it. */
void control_copy(Control *copy, const Control *control);

/* Frees what a decoded or copied message owns; does nothing to a message that a caller built. */
void control_clear(Control *control);

/* "HELLO" and so on; "?" for an unknown kind. */
const char *control_kind_name(ControlKind kind);

/* The code of an error; CONTROL_OK for NULL. An error of another domain is RUBATO_ERROR_INVALID. */
uint32_t control_code_of(const GError *error);

/* Sets *error from a code and a text. Returns true if the code says success; then nothing is
 * set. */
bool control_check(uint32_t code, const char *text, GError **error);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Control, control_clear)

#endif
