/* What the files of this folder share. See tensor_flow.h.
 *
 * Threads: as there. */
#ifndef RUBATO_ENGINE_COLLECTIVES_FLOW_TENSOR_FLOW_PRIVATE_H
#define RUBATO_ENGINE_COLLECTIVES_FLOW_TENSOR_FLOW_PRIVATE_H

#include <stdatomic.h>

#include "engine/collectives/flow/tensor_flow.h"

/* Of a worker's input that is sent before it is decided. It is copied with a lock held. */
enum { TENSOR_AHEAD_BYTES = 128 << 10 };

/* How a class of operations flows. */
typedef struct {
    void (*begin)(TensorFlow *flow);
    void (*end)(TensorFlow *flow);

    /* NULL, or what is wrong. The message is a step's, or kept, or dropped. */
    const char *(*take)(TensorFlow *flow, uint32_t from, const TensorMessage *message, void *owner);

    /* The next step that sends without waiting for a message. */
    bool (*next)(TensorFlow *flow, TensorStep *step);
    bool (*has_next)(const TensorFlow *flow);

    /* Whether the step sends values to that node. */
    bool (*sends_to)(const TensorFlow *flow, const TensorStep *step, uint32_t to);
    bool (*run)(TensorFlow *flow, const TensorStep *step);
    void (*did)(TensorFlow *flow, const TensorStep *step);
} TensorFlowOps;

extern const TensorFlowOps tensor_combining_ops;
extern const TensorFlowOps tensor_relaying_ops;
extern const TensorFlowOps tensor_gathering_ops;
extern const TensorFlowOps tensor_weighting_ops;

typedef struct TensorCombining TensorCombining;
typedef struct TensorGathering TensorGathering;
typedef struct TensorWeighting TensorWeighting;

struct TensorFlow {
    TensorFlowPlan plan; /* its lists are the flow's */
    TensorRequest request;
    const TensorFlowOps *ops;

    /* tensor_flow_place, of a message from one of its other nodes. NULL: nowhere, ever. Set when
     * the flow begins */
    uint8_t *(*find_place)(const TensorFlow *flow, uint32_t from, const TensorMessage *message);

    bool is_small;
    TensorWay way;
    uint32_t size_class; /* tensor_flow_class */
    uint32_t n_local;    /* workers of this node, also those that have joined */

    GQueue possible[TENSOR_STEPS_ALL + 1]; /* of TensorStep, by class */
    _Atomic uint32_t n_sent;               /* messages; see tensor_flow_send */
    uint64_t n_left;                       /* steps that are not done */
    uint64_t *n_awaited;                   /* by node: messages that have not come */
    GError *error;
    bool is_own_fault; /* the other nodes do not know it */

    union {
        TensorCombining *combining;
        TensorGathering *gathering;
        TensorWeighting *weighting;
    };
};

/* tensor_flow_ahead, of allgather and alltoall (tensor_gathering.c). */
bool gathering_ahead(const TensorFlowPlan *plan, uint32_t to, TensorAhead *ahead);

/* ---- tensor_flow_base.c ---- */

/* Adds a step of that class that can be done. */
void tensor_flow_add_step(TensorFlow *flow, TensorSteps which, const TensorStep *step);

/* A message on its way out. */
typedef struct {
    void *message;
    void *bytes; /* NULL: they are lent, or those of a message before it */
    uint32_t to; /* among the nodes of the flow */
    bool is_lent;
} TensorOutgoing;

/* False: there is no memory for it. */
bool tensor_flow_begin_message(const TensorFlow *flow, TensorMessageKind kind, uint64_t place,
                               size_t n_bytes, uint32_t to, TensorOutgoing *outgoing);

/* What a node answers to a message may be written to the arrays from which the message was made.
 * That it comes behind the reads is known by way of the other process alone; n_sent says so within
 * this one. */
void tensor_flow_send(TensorFlow *flow, const TensorOutgoing *outgoing);
void tensor_flow_forget(const TensorFlow *flow, const TensorOutgoing *outgoing);

/* Messages of a step (TensorOutgoing), one to each node to which it sends, first the next one.
 * False: there was no memory, and there are none. */
bool tensor_flow_begin_messages(const TensorFlow *flow, const TensorStep *step,
                                TensorMessageKind kind, size_t n_bytes, GArray *messages);

/* The same with values that are sent from where they lie, which the carrier need not do: messages
 * to the nodes for which it does not are as before. readers NULL: to none. */
bool tensor_flow_lend_messages(const TensorFlow *flow, const TensorStep *step,
                               TensorMessageKind kind, const void *values, size_t n_bytes,
                               Call *readers, GArray *messages);

/* Where the bytes of those messages go that are not lent; returns how many there are. Messages that
 * share theirs have one place. */
uint32_t tensor_flow_places_of(const GArray *messages, void **places);
bool tensor_flow_any_lent(const GArray *messages);
void tensor_flow_send_messages(TensorFlow *flow, const GArray *messages);
void tensor_flow_forget_messages(const TensorFlow *flow, const GArray *messages);

/* How many pieces of so many bytes this node sends in one message, where what is sent to all nodes
 * is cut alike: as many as suits the way to each of them, and at least one. */
uint32_t tensor_flow_most_pieces(const TensorFlow *flow, size_t piece_bytes);

/* The same of what is sent to one node; to this one itself: to all others. */
uint32_t tensor_flow_most_pieces_to(const TensorFlow *flow, uint32_t to, size_t piece_bytes);

/* Whether TENSOR_AHEAD_BYTES of a larger tensor are sent before it is decided (tensor_flow_ahead):
 * to nodes to which no message has more bytes, so that it is one of many, as to those of the host.
 * It is copied. Where messages have more, as over TCP, they are sent from where the values lie, and
 * to copy their beginning took longer than it saved. */
bool tensor_flow_is_first_ahead(const TensorFlowPlan *plan);

/* Keeps a message that came. NULL: too much would be kept, and the flow fails. */
void *tensor_flow_keep(TensorFlow *flow, void *owner, const void **bytes);
void tensor_flow_drop(const TensorFlow *flow, void *owner);

#endif
