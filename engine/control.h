/* Control messages: what nodes and the scheduler say to one another, none of it on the data path.
 *
 * One flat struct for all kinds. On the wire it is one GVariant of one type for all kinds and wire
 * versions, little-endian, in normal form: so a HELLO of another version can still be read and
 * refused by name.
 *
 * Threads: any; a Control has one owner at a time. */
#ifndef RUBATO_ENGINE_CONTROL_H
#define RUBATO_ENGINE_CONTROL_H

#include <rubato/error.h>

typedef enum {
    /* Greetings: sent before there are links, may be lost, so HELLO is repeated until answered. */
    CONTROL_HELLO = 1, /* node, number, digest, incarnation, endpoint, description */
    CONTROL_WELCOME,   /* run_id, n_nodes, endpoints, incarnations: every node has said HELLO */
    CONTROL_REFUSE,    /* code, text: this node cannot take part, or the run cannot begin */

    CONTROL_BEAT, /* nothing but a sign of life; both ways */

    /* Node to scheduler. */
    CONTROL_PROPOSE, /* op, what, text, digest, detail: this node makes its next collective call; of a
                      * CREATE round */
    CONTROL_READY,   /* op, code, text: after GO: my part of it is done, or why not */
    CONTROL_FAIL,    /* epoch, code, text: a worker of mine failed in the task */
    CONTROL_TASK_DONE, /* epoch: my workers have ended, all they sent has arrived */
    CONTROL_ARRIVE,    /* epoch, round: all live workers of mine wait in this barrier of the task */
    CONTROL_WAITS, /* epoch, number, what, round, id, op, text, detail: the worker of this rank has waited
                    * for some time: in barrier `round` of the task; or, `round` being the next one that
                    * it would come to, for clock `op` of the table `id` named `text`. detail: its own
                    * clocks, see wait_text.h */
    CONTROL_READER, /* epoch, id, what, op, round, text, digest: a worker of mine opened its reader `id`
                     * of a dataset, and how it is split */
    CONTROL_INPUTS, /* epoch, id, number, detail: the inputs of it that I hold, from number on */
    CONTROL_WANT, /* epoch, id, number, detail: so many more of its blocks; what became of others */
    CONTROL_INTERRUPT, /* text: cancel every running task */
    CONTROL_STOP,      /* text: cancel every running task, fail every waiting and further collective
                        * call: a signal has ended the run */
    CONTROL_LEAVE,     /* this node has nothing left to do, but still serves the others */

    /* Scheduler to node. */
    CONTROL_GO,     /* op, id: all nodes propose the same; do your part, then say READY. Of a CREATE
                       * round, as the node has it that proposed first */
    CONTROL_COMMIT, /* op, code, text: how the call ended, the same on every node. After a GO it
                       * comes once this node has said READY; code ≠ 0 then means: undo. Without a
                       * GO it is a refusal (a mismatch, a lost node), or a barrier passed */
    CONTROL_CANCEL, /* epoch, code, text: the task has failed; text is the first cause */
    CONTROL_TASK_END, /* epoch, code, text: every node has said TASK_DONE; the first cause, if any */
    CONTROL_RELEASE,  /* epoch, round: go on behind this barrier of the task */
    CONTROL_BLOCKS,   /* epoch, id, what, detail: blocks to read; what = 1: no more will come */
    CONTROL_LOST, /* number, text: a node is gone; sent with a node's own number if it still talks */
    CONTROL_WAITING, /* text, for the log: whom something that this node waits for is waiting for */
    CONTROL_LEFT,    /* every node has left or is lost: you may go */

    CONTROL_END_OF_KINDS,
} ControlKind;

/* What a collective call does. */
typedef enum {
    CONTROL_CREATE = 1, /* id of GO: the table's id, from 0 */
    CONTROL_DROP,       /* id of GO: 0 */
    CONTROL_RUN,        /* id of GO: the task's epoch, from 1 */
    CONTROL_BARRIER,    /* never has a GO: when all are there, COMMIT says so */
    CONTROL_END_OF_CALLS,
} ControlCall;

/* What a worker waits for. */
typedef enum {
    CONTROL_WAIT_BARRIER = 1,
    CONTROL_WAIT_CLOCK,
} ControlWait;

/* How a reader's blocks are split, as bits. */
typedef enum {
    CONTROL_SPLIT_DYNAMIC = 1, /* INPUTS and WANT follow */
    CONTROL_SPLIT_SHUFFLED = 2,
} ControlSplit;

#define CONTROL_MAX_WORKERS (1u << 22) /* of a task: their ranks are below it */
#define CONTROL_MAX_READERS 65536u     /* that a worker opens in a task */

/* The round of an ARRIVE from a node of whose workers none is left in the task, or none ever
 * was. */
#define CONTROL_NO_ROUND UINT64_MAX

/* Codes on the wire: 0 is success, a RubatoError is itself plus 1. */
#define CONTROL_OK 0u
#define CONTROL_CODE(error_code) ((uint32_t)(error_code) + 1u)

#define CONTROL_MAX_TEXT 4096u    /* bytes of a string, but for the next two; longer ones are cut */
#define CONTROL_MAX_DETAIL 65536u /* bytes of `detail` */
#define CONTROL_MAX_ENDPOINT 256u /* bytes of an endpoint, or of all of a node */
#define CONTROL_MAX_NODES 4096u   /* of a WELCOME */
#define CONTROL_MAX_BYTES (1u << 21) /* of a message */

/* The GVariant's type: the members of Control from kind to incarnations, in their order. */
#define CONTROL_TYPE "(yuuuuttttttsssssasat)"

/* NULL strings travel as empty ones; after control_decode no string is NULL. */
typedef struct {
    ControlKind kind;
    uint32_t node;   /* HELLO: the sender's node id */
    uint32_t number; /* HELLO: the sender's node number; LOST: that of the node which is gone */
    uint32_t what;   /* PROPOSE: a ControlCall; READER: a ControlSplit; BLOCKS: whether it is all;
                      * WAITS: a ControlWait */
    uint32_t code;   /* CONTROL_OK or CONTROL_CODE(…) */

    uint64_t op;    /* the node's collective calls, counted from 1; READER: epochs of data */
    uint64_t id;    /* GO: the new table's id or the new task's epoch; data: the reader's number
                           * among those that a worker opens, from 0 */
    uint64_t epoch; /* which task */
    uint64_t round; /* ARRIVE, RELEASE: the task's barriers, counted from 0; READER: seed; PROPOSE,
                     * GO of a CREATE: the seed of the table's hash */
    uint64_t incarnation; /* HELLO: random, tells two processes with one node id apart */
    uint64_t run_id;      /* WELCOME: tells this run's packets from another's */

    const char *text;   /* PROPOSE: "table weights", "task lr"; else for people */
    const char *digest; /* HELLO: of the cluster file; PROPOSE: of all arguments of the call */
    const char *detail; /* PROPOSE: those arguments in words, for the message that compares them */
    const char *endpoint;    /* HELLO: where the sender receives; several have commas between */
    const char *description; /* HELLO: what people know the process by: "host pid 123" */

    const char *const *endpoints; /* WELCOME: n_nodes of them, by node number */
    const uint64_t *incarnations; /* WELCOME: n_nodes of them, by node number */
    uint32_t n_nodes;

    /* Owns what a decoded message's pointers point to. NULL in one that was put together, and in
     * one of numbers alone. */
    GVariant *backing;
} Control;

/* The message as a GVariant of CONTROL_TYPE. Text that is too long is cut, what is no UTF-8 in it
 * replaced: so what is encoded can always be decoded. Not floating. (transfer full) */
GVariant *control_encode(const Control *control);

/* Reads a message that came from outside: every member is checked, and nothing about the sender is
 * believed. RUBATO_ERROR_FORMAT. control_clear frees it. */
bool control_decode(GVariant *body, Control *control, GError **error);
bool control_decode_bytes(const void *data, size_t size, Control *control, GError **error);

/* Frees what a decoded message owns; does nothing to one that was put together. */
void control_clear(Control *control);

/* "HELLO" and so on, "?" for what is no kind. */
const char *control_kind_name(ControlKind kind);

/* The code of an error (any domain: what is not ours is RUBATO_ERROR_INVALID), CONTROL_OK for
 * NULL. */
uint32_t control_code_of(const GError *error);

/* Sets *error from code and text. Returns whether the code says success: then nothing is set. */
bool control_check(const Control *control, GError **error);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Control, control_clear)

#endif
