/* What the files of gathering share. See tensor_gathering.c.
 *
 * Threads: as in tensor_flow.h. */
#ifndef RUBATO_ENGINE_COLLECTIVES_FLOW_TENSOR_GATHERING_PRIVATE_H
#define RUBATO_ENGINE_COLLECTIVES_FLOW_TENSOR_GATHERING_PRIVATE_H

#include "engine/collectives/flow/tensor_flow_private.h"

/* Of each node: what comes from it, and the stream that goes to it. Of this node itself: the blocks
 * from its workers to its workers, which an allgather sends to all others, too. */
typedef struct {
    uint64_t *rows;           /* by block: those that come; NULL: none of its SIZES has come */
    uint8_t *sizes_have_come; /* by piece of them */
    uint64_t n_sizes;         /* pieces of them that have not */
    uint64_t n_in;            /* bytes that come, */
    uint64_t n_pieces_in;
    uint8_t *has_come;          /* by piece */
    uint64_t n_out;             /* and bytes of the stream, */
    uint64_t n_to_send, n_sent; /* and pieces of it: an allgather's go to all from one of these */
    uint32_t most_pieces;       /* of a message there */
} GatheringSide;

struct TensorGathering {
    bool is_alltoall;
    bool is_sized;     /* this node's SIZES are sent */
    bool is_allocated; /* all SIZES have come */
    uint64_t row_bytes;
    GatheringSide *sides;         /* by node */
    uint32_t turn;                /* the node whose turn it is, from the one behind this one */
    uint64_t n_to_copy, n_copied; /* pieces of the stream of this node that it does not copy when
                                    * it sends them */
    uint32_t n_sizes;             /* nodes whose SIZES have not come */
    uint64_t **begins;     /* by worker of this node, by rank: the row at which that rank's begin */
    uint64_t **out_begins; /* the same of the rows that it sends in an alltoall */
    GQueue early;          /* of TensorStep: pieces that came before the arrays were allocated */
};

/* Bytes of the stream of this node to a node, or of that from it. */
typedef struct {
    uint32_t node;
    uint64_t begin, end;
} GatheringRange;

/* ---- tensor_gathering_rows.c ---- */

/* How many blocks the streams have: each has a size. */
uint64_t gathering_blocks_from(const TensorFlow *flow, uint32_t node);
uint64_t gathering_blocks_to(const TensorFlow *flow, uint32_t node);

/* The rows of a block that goes to the node. */
uint64_t gathering_rows_to(const TensorFlow *flow, uint32_t node, uint64_t block);

/* Adds up once, of an alltoall, where rows begin in the inputs: each piece asks for those of all
 * blocks. */
void gathering_find_out_begins(const TensorFlow *flow);

/* Allocates what the workers of this node gather. False: there is no memory, and the flow fails. */
bool gathering_allocate(TensorFlow *flow);

/* Where the values of such a range lie with a worker of this node, one behind another, and the call
 * of which a message is a part that is sent from there. NULL: in several places. */
const void *gathering_input(const TensorFlow *flow, const GatheringRange *range, Call **readers);

/* Where those of a range that comes go, if it is one place of a worker; NULL: it is not. The arrays
 * are allocated. */
uint8_t *gathering_place(const TensorFlow *flow, const GatheringRange *range);

/* Copies what is sent to each of the places. copies_own: and to the workers of this node, which
 * gather it, too. */
void gathering_make_piece(const TensorFlow *flow, const GatheringRange *range, void *const *places,
                          uint32_t n_places, bool copies_own);

/* Copies what has come to the workers of this node. */
void gathering_take_piece(const TensorFlow *flow, const GatheringRange *range,
                          const uint8_t *bytes);

#endif
