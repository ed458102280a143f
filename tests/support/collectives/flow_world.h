/* Simulated nodes with a flow each (engine/collectives/flow/tensor_flow.h), for tests: messages are
 * on their way until they are delivered, and steps are done, in an order that depends on a seed.
 *
 * Some messages come straight to the place that the flow names for them. Some of their bytes may
 * have been written there before, and be wrong.
 *
 * Some messages have their values with a worker. They are read there when the message is delivered,
 * and once more before it is acknowledged, as if it was sent again; both times they are what was
 * sent. The arrays of a worker whose operation has ended are its own again once nobody reads them:
 * then they are freed, and what is in them moves elsewhere.
 *
 * One thread. */
#ifndef TESTS_SUPPORT_COLLECTIVES_FLOW_WORLD_H
#define TESTS_SUPPORT_COLLECTIVES_FLOW_WORLD_H

#include "engine/collectives/flow/tensor_flow.h"

enum { FLOW_WORLD_NODES = 7, FLOW_WORLD_LOCAL = 3, FLOW_WORLD_RANKS = 300 };

/* Values of a message that stay with a worker until the other node has acknowledged them. */
typedef struct {
    uint32_t from, to;     /* among the nodes */
    const uint8_t *values; /* the worker's, or the copy */
    uint8_t *copy;         /* NULL: there is none */
    uint8_t *sent;         /* as they were when they were sent; NULL: they were not */
    size_t n_bytes;
    Call *readers;
    bool is_delivered;
} FlowLoan;

/* A message on its way, or kept. */
typedef struct FlowParcel FlowParcel;
struct FlowParcel {
    uint32_t from, to;
    TensorMessage message;
    FlowLoan *loan;               /* NULL: it has its bytes alone */
    const FlowParcel *shared;     /* one sent just before it has its bytes; NULL: none has */
    bool has_begun;               /* to arrive, before its connection broke */
    _Alignas(16) uint8_t bytes[]; /* of values of any type */
};

typedef struct FlowWorld FlowWorld;

typedef struct {
    FlowWorld *world;
    uint32_t number;          /* among the nodes */
    uint32_t n_until_starved; /* messages for which there is memory; 0: for all */
    bool keeps_nothing;
    bool is_lost;
    bool has_forgotten, has_failed; /* where another node is lost: its network, and its flow */
    bool has_ended;                 /* its workers' operation */
    bool is_over;                   /* their arrays are their own again */
    size_t best_bytes;              /* of a message; each node has its own opinion */
    TensorFlow *flow;
    GArray *steps; /* of TensorStep: taken, and not done */
} FlowNode;

struct FlowWorld {
    uint64_t random;
    uint32_t n_nodes, n_ranks, n_asking;
    uint32_t ids[FLOW_WORLD_NODES], first_ranks[FLOW_WORLD_NODES], n_ranks_of[FLOW_WORLD_NODES];
    FlowNode nodes[FLOW_WORLD_NODES];
    TensorRequest requests[FLOW_WORLD_RANKS];
    TensorPart parts[FLOW_WORLD_RANKS];
    TensorPart *list[FLOW_WORLD_RANKS]; /* NULL: it has joined */
    uint8_t *inputs[FLOW_WORLD_RANKS];  /* as they were */
    double *adasum;                     /* the reference's result; NULL: not asked for */
    Call readers[FLOW_WORLD_RANKS];     /* of each worker's arrays */
    GPtrArray *parcels;                 /* of FlowParcel: on their way */
    GPtrArray *loans;                   /* of FlowLoan: that are not acknowledged */
    bool has_no_copies;                 /* there is no memory for them */
    uint32_t n_until_loss;              /* moves; 0: no node is lost */
    uint32_t loses;                     /* which */
    uint32_t n_lent;                    /* messages, */
    uint32_t n_outlived;                /* and those that were read behind the operation's end */
    uint32_t n_parcels;                 /* that exist */
    uint32_t n_direct;                  /* that came straight to their place, */
    uint32_t n_shared;                  /* and that had the bytes of another one */
    uint32_t n_ahead;                   /* nodes that have sent before they had a flow, */
    uint32_t n_ahead_of[TENSOR_OPERATIONS];   /* by operation */
    uint32_t n_fetched_of[TENSOR_OPERATIONS]; /* messages beside which something was fetched */
    uint32_t n_ahead_shares; /* and of these, those that sent each node its share */
};

/* Nodes, workers, a request of them and how it goes, all as the seed says. */
FlowWorld *flow_world_new(uint64_t seed);

/* Nodes with these numbers of workers, all of whom make the request, and messages of that size. */
FlowWorld *flow_world_of(const TensorRequest *request, const uint32_t *n_ranks_of, uint32_t n_nodes,
                         size_t best_bytes);

/* All messages that there were have been dropped. */
void flow_world_free(FlowWorld *world);

/* An allreduce of so many values. */
TensorRequest flow_world_adasum(uint64_t n);

/* Whole numbers whose sums are exact in every dtype but i8 and bool, and do not fit into an i8. */
int64_t flow_world_value(uint32_t rank, uint64_t i);
void flow_world_put(RubatoDtype dtype, void *values, uint64_t i, int64_t value);

/* For a world of one's own: a node all of whose workers ask; a worker's part; then all flows.
 * TENSOR_WAYS: which way they go is fixed. */
FlowWorld *flow_world_begin(uint64_t seed);
void flow_world_add_node(FlowWorld *world, uint32_t n_workers);
void flow_world_make_part(FlowWorld *world, uint32_t rank, const TensorRequest *request,
                          bool in_place);
void flow_world_make_flows(FlowWorld *world, TensorWay way);

/* The node does what it can, and nothing comes. */
void flow_world_do_steps(FlowNode *node);

/* Until nothing can be done any more. Then all workers whose operation has ended have their arrays
 * again. */
void flow_world_run(FlowWorld *world, uint64_t seed);

#endif
