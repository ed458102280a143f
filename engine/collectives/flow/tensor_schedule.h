/* Who sends what to whom in which round, where nodes pass on what they have got: allreduce by
 * doubling, halving or ring, among any number of nodes.
 *
 * A tensor is a block for each node: by doubling, the values that the node has for all of it; by
 * the others, its share. In each round a node sends some blocks to one node, and gets as many from
 * another one. Blocks are counted from one on, and behind the last one comes the first.
 *
 *   doubling  ⌈log₂ n⌉ rounds. After round k a node has the values of 2^(k+1) nodes, from itself
 *             on. In the end it has all, and combines them. (Bruck and others, Efficient algorithms
 *             for all-to-all communications, 1997; for powers of two as many messages of the same
 *             sizes as by recursive doubling.)
 *   halving   ⌈log₂ n⌉ rounds that combine, and as many that spread, with 2 (n - 1) blocks in all.
 *             A node that deals with m blocks keeps the first ⌈m/2⌉, sends the others to the node
 *             with whose block they begin, and gets its own from the one as far before it.
 *             Spreading is the reverse. (Rabenseifner, Optimization of collective reduction
 *             operations, 2004; for any number of nodes as in Träff, Optimal, non-pipelined
 *             reduce-scatter and allreduce algorithms, 2024.)
 *   ring      2 (n - 1) rounds of one block, each to the next node: the sum of a block goes around
 *             and ends at its node, and then goes around as the result. (Patarasuk and Yuan,
 *             Bandwidth optimal all-reduce algorithms, 2009.)
 *
 * Threads: any; the functions depend on their arguments only. */
#ifndef RUBATO_ENGINE_COLLECTIVES_FLOW_TENSOR_SCHEDULE_H
#define RUBATO_ENGINE_COLLECTIVES_FLOW_TENSOR_SCHEDULE_H

#include "engine/collectives/negotiation/tensor_cutovers.h"

typedef struct {
    TensorWay way; /* one of the three */
    uint32_t n_nodes, self;
} TensorSchedule;

typedef struct {
    uint32_t to, from;  /* nodes; they can be the same */
    uint32_t sent, got; /* the first blocks */
    uint32_t n;         /* blocks: of both */
    uint32_t last_use;  /* the last round for which what is got is needed; behind the last one: the
                         * end */
} TensorRound;

/* How many rounds there are, and how many of them come first in which who gets a block combines it
 * with its own. In the others blocks are passed on as they are. */
uint32_t tensor_schedule_rounds(const TensorSchedule *schedule);
uint32_t tensor_schedule_combining(const TensorSchedule *schedule);

TensorRound tensor_schedule_round(const TensorSchedule *schedule, uint32_t round);

/* Whether the block is one of n from `first` on. */
bool tensor_schedule_has(const TensorSchedule *schedule, uint32_t first, uint32_t n,
                         uint32_t block);

/* The most blocks of a round. */
uint32_t tensor_schedule_most(const TensorSchedule *schedule);

#endif
