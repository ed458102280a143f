/* The data of one collective on a tensor between the nodes that take part: what this node sends,
 * and what it does with what comes.
 *
 *   tensor_flow.c       one operation: what comes, what is to be done, when it is complete
 *   tensor_combining.c  allreduce, reduce_scatter, broadcast; …_values.c: their values; …_cut.c:
 *                       which node combines which
 *   tensor_relaying.c   allreduce in rounds, in which nodes pass on what they get; the rounds:
 *                       tensor_schedule.c
 *   tensor_gathering.c  allgather, alltoall; …_rows.c: their rows
 *   tensor_weighting.c  allreduce by Adasum
 *   tensor_flow_base.c  what these share
 *   tensor_segments.c   which values a node combines
 *   tensor_message.c    the bytes of a message
 *
 * A lower file of this list calls none above it.
 *
 * A state machine without a thread and without a socket: messages go in, and steps come out. A step
 * computes, copies and sends; several threads may do steps of one flow at the same time, in any
 * order. Messages of the other nodes may come in any order, too, except that the ROWS of a node
 * come behind its SIZES.
 *
 * DESIGN NOTE
 *
 * Values are cut into chunks. Each node combines a run of them, its segment, and gets for it the
 * sums of all other nodes (PART); it sends the result to the others (RESULT). So each node sends
 * and receives 2 (n - 1) / n of a tensor's bytes, as with a ring, whatever the number of nodes, but
 * in two steps instead of 2 (n - 1). A small tensor is one chunk that each node sends to all
 * others, and that all of them combine: one step.
 *
 * A message has the values of one chunk, or of several that follow one another in a segment, as the
 * node likes that sends it: where each message costs much, as over TCP, it has many bytes.
 *
 * Other ways are in rounds (tensor_relaying.c): they take more steps, but a node sends to one other
 * node at a time. Which way is taken, tensor_cutovers.h tells.
 *
 * A node adds up the values of its own workers in the order of their ranks, and a chunk's sums in
 * the order of the nodes, whatever came first. So the result does not depend on the order of
 * messages, nor on how a tensor is cut, and is the same on all nodes. By halving and ring the order
 * is another one, which depends on the nodes alone. What is narrower than the type in which values
 * are combined travels in a wider one where rounding or wrapping in between would show (halves as
 * floats, integers of which a mean is asked as i64). What is compressed travels as halves instead:
 * a node's own sums are rounded once, and so are results that travel, which those of a small tensor
 * do not. What is cut off stays in the tensor's residual. A node rounds its own part, too, and
 * takes results as they travel: so all nodes have the same.
 *
 * Several tensors that are combined together are one tensor to all of this: each chunk has values
 * of some of them, which are read from their inputs and written to their outputs.
 *
 * Adasum (tensor_adasum.h) needs the values of each worker, not their sums. So a PART has the
 * values of each of a node's workers; the node that has got all of a segment's tells all others the
 * dot products there (DOTS). From the dots of all segments each node computes the same weights, and
 * combines its segment by them.
 *
 * A broadcast is like a sum with one node that has values. For allgather and alltoall a node first
 * tells each other one how many rows come from each of its workers, and then sends them.
 *
 * Who carries the messages bounds what is under way to a node until it takes it in. So no step that
 * takes in what came, or that keeps it, may stand behind a step that waits for room to send: two
 * nodes would wait for each other for ever. Therefore such steps are a class of their own
 * (TENSOR_STEPS_WITHOUT_ROOM), which is given out first.
 *
 * Between hosts, where the carrier likes it, values are sent from where they lie with a worker, and
 * are not copied to a message: parts, and rows that are gathered, from its input, unless results
 * are written there, too, and results from its output, where nothing changes once a node's segment
 * is combined. The network may need them until the other node has acknowledged them, also behind
 * the end of the flow. So each such message is a part of a call of the worker's
 * (TensorPart.readers), for which it waits before its arrays are its own again: see
 * tensor_exchange_wait_readers.
 *
 * Threads: one at a time, except tensor_flow_do. */
#ifndef RUBATO_ENGINE_COLLECTIVES_FLOW_TENSOR_FLOW_H
#define RUBATO_ENGINE_COLLECTIVES_FLOW_TENSOR_FLOW_H

#include "engine/collectives/flow/tensor_message.h"
#include "engine/collectives/negotiation/tensor_cutovers.h"
#include "engine/collectives/work/tensor_compression.h"
#include "engine/collectives/work/tensor_work.h"

typedef struct TensorFlow TensorFlow;

/* What a flow needs of who carries its messages. */
typedef struct {
    /* Room for a message to the node with so many bytes behind its header, and where these go.
     * NULL: there is no memory. Any thread. */
    void *(*new_message)(void *user, uint32_t node, const TensorMessage *message, void **bytes);

    /* A message to the node with the same bytes as `first`, which new_message made for another one
     * and which is not sent yet: what is written there, both read. NULL: it cannot be, and
     * new_message has to be called. The function may be NULL, too. Any thread. */
    void *(*share_message)(void *user, uint32_t node, const TensorMessage *message, void *first);

    /* As new_message, of one whose bytes stay where they are (message->bytes), and are not written
     * to until a part of `readers` has ended, which this adds. NULL: new_message has to be called.
     * The function may be NULL, too. Any thread. */
    void *(*lend_message)(void *user, uint32_t node, const TensorMessage *message, Call *readers);

    /* Sends it to that node; the same with the next one that this thread sends there, which follows
     * at once (NULL: it makes no difference); forgets it. Any thread. */
    void (*send)(void *user, uint32_t node, void *message);
    void (*send_with_next)(void *user, uint32_t node, void *message);
    void (*forget)(void *user, uint32_t node, void *message);

    /* How many bytes of values a message to the node has best. NULL: as few as a chunk. Any
     * thread. */
    size_t (*best_bytes)(void *user, uint32_t node);

    /* A message that came is kept until others have come, or until there is room to send. Returns
     * it, perhaps moved: *bytes are then elsewhere. NULL: that of its node would be more than is
     * kept of one, and it is dropped. */
    void *(*keep)(void *user, void *message, const void **bytes);

    /* Gives a message that came back. Any thread. */
    void (*drop)(void *user, void *message);
} TensorCarrier;

typedef struct {
    uint64_t number; /* of the operation */
    uint32_t n_ranks;
    uint32_t n_asking; /* of them; the others have joined */

    /* The nodes with workers that have asked, in the order of their ranks; two at least. */
    uint32_t n_nodes;
    uint32_t self;               /* among them */
    const uint32_t *nodes;       /* their numbers */
    const uint32_t *first_ranks; /* of each */
    const uint32_t *n_ranks_of;  /* workers of each, whether they have asked or not */

    TensorPart *const *parts; /* of this node's workers, by local rank; NULL: it has joined */
    TensorResidual *const *residuals; /* by tensor, if they are compressed; nobody else has them */
    uint32_t n_tensors; /* more than one: allreduces of one dtype and reduction, which all
                               * workers have asked for; their parts follow one another */
    const TensorCutovers *cutovers; /* NULL: as it is fixed */
    bool was_sent; /* what tensor_flow_ahead tells of what this node sends of its own, before */

    const TensorCarrier *carrier;
    void *user; /* the carrier's */
} TensorFlowPlan;

/* A step. */
typedef struct {
    uint32_t what; /* the flow's own */
    uint32_t node; /* the same: among the nodes of the flow */
    uint64_t place;
    uint32_t n;    /* the same: how many from that place on; 0: one */
    void *message; /* the same: that came; it is dropped behind the step */
    const uint8_t *bytes;
    size_t n_bytes;
} TensorStep;

/* Parts stay as long as the flow; all else of the plan is copied. The requests fit each other.
 * (transfer full) */
TensorFlow *tensor_flow_new(const TensorFlowPlan *plan);

/* What is sent ahead to a node, in the order of its messages. */
typedef struct {
    /* how many rows are for each of its workers; they are copied. NULL: no SIZES go before */
    const uint64_t *sizes;
    uint32_t n_sizes;

    /* values of the worker's input: a message of that kind for that place */
    TensorMessageKind kind;
    uint64_t place;
    const uint8_t *bytes;
    size_t n_bytes; /* 0: that node gets none */

    const uint8_t *fetched; /* bytes that are soon read or written */
    size_t n_fetched;       /* 0: there are none */
    uint64_t n_rows;        /* where *sizes may be: the struct stays where it is */
} TensorAhead;

/* Whether all that a node with one worker sends of its own for such an operation, if cut-overs are
 * fixed, is the worker's input, in one message to each of the others, or in several, of which the
 * first one is soon needed: to node `to` of the plan what is written to *ahead. Such messages may
 * be sent before it is decided that the operation runs, all of them or none: then its plan says so.
 * Of the plan are used the nodes, with which it goes if it runs, the only part, and the carrier. */
bool tensor_flow_ahead(const TensorFlowPlan *plan, uint32_t to, TensorAhead *ahead);

/* NULL is allowed. No step is being done. */
void tensor_flow_free(TensorFlow *flow);

/* Whether all of it is so little that any thread may do its steps at once. */
bool tensor_flow_is_small(const TensorFlow *flow);

/* Those that hold for so many nodes if no others do. */
TensorCutovers tensor_flow_cutovers(uint32_t n_nodes);

/* Of an operation whose cut-overs may be others: the class of its size, and the way it goes.
 * TENSOR_CLASSES: of one of another kind. */
uint32_t tensor_flow_class(const TensorFlow *flow, TensorWay *way);

/* A message came from the node with that number; takes it over if nothing is wrong with it. NULL,
 * or what is wrong. */
const char *tensor_flow_take(TensorFlow *flow, uint32_t node, const TensorMessage *message,
                             void *owner);

/* Where the bytes of such a message, which are not there yet, may be written meanwhile: in an array
 * of a worker. Then they are taken there. NULL: nowhere, so they have to be copied. Nothing is
 * changed. */
uint8_t *tensor_flow_place(const TensorFlow *flow, uint32_t node, const TensorMessage *message);

/* Which steps a thread may do. Each class has those above it, which go first. */
typedef enum {
    TENSOR_STEPS_WITHOUT_ROOM, /* what came is taken in: they are short, and send nothing */
    TENSOR_STEPS_OF_MESSAGES,  /* what came made them possible: they are short, and may send */
    TENSOR_STEPS_ALL,          /* they take long, or wait for no message */
} TensorSteps;

/* The next step that can be done; false: there is none now. */
bool tensor_flow_next(TensorFlow *flow, TensorSteps which, TensorStep *step);
bool tensor_flow_has_step(const TensorFlow *flow);

/* Whether several steps that take long can be done now: work for several threads. */
bool tensor_flow_has_long_steps(const TensorFlow *flow);

/* The nodes, by number, to which the step sends values: calls for each of them. */
void tensor_flow_each_target(const TensorFlow *flow, const TensorStep *step,
                             void (*call)(void *user, uint32_t node), void *user);

/* Does a step. False: there was no memory for it. Any thread. */
bool tensor_flow_do(TensorFlow *flow, const TensorStep *step);

/* The step was done. */
void tensor_flow_did(TensorFlow *flow, TensorStep *step, bool ok);

/* How it ended: all steps are done, or it has failed (also with a FAILURE that came). */
bool tensor_flow_has_ended(const TensorFlow *flow);
const GError *tensor_flow_error(const TensorFlow *flow);

/* Whether it failed for a reason that the other nodes do not know, and tells it to them. */
bool tensor_flow_tell_failure(const TensorFlow *flow);

/* It fails. The first error stays. */
void tensor_flow_fail(TensorFlow *flow, const GError *error);

/* The same for a reason that the other nodes do not know. Takes the error; NULL: there was no
 * memory. */
void tensor_flow_fail_here(TensorFlow *flow, GError *error);

/* Whether the node of that number has a part in it. */
bool tensor_flow_has_node(const TensorFlow *flow, uint32_t node);

/* The node for which it waits, by number; false: it waits for none. */
bool tensor_flow_waits_for(const TensorFlow *flow, uint32_t *node);

#endif
