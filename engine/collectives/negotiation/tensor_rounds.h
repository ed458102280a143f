/* What all workers of a set ask again, agreed on among their nodes: rounds of bit vectors.
 *
 * In each round every node with workers tells all others a vector. It has a bit for each slot
 * (tensor_slots.h) for which all of its workers in the set have asked again, and another one for
 * each slot of which a worker has asked a name in full, or whose set a worker has joined in. Once a
 * node has the vectors of all nodes, it knows as all others do: a slot of which all nodes with
 * workers in the set have told the first bit runs, and one of which any node has told the second is
 * asked in full, at the coordinator. What is left is told again in the next round.
 *
 * A node begins a round when it has something new to tell, and otherwise tells its vector as soon
 * as another node's has come, or a little later: if others only ask again, and its own workers may
 * soon do so, too, it gives these some time (tensor_rounds_may_wait). A round without its bit would
 * decide nothing, and all vectors would have to be told once more. So a round waits for a worker no
 * longer than that time: it ends once each node has received the others' vectors, or one of them is
 * lost. And who comes last tells the bit with which a slot runs, because its own bit is new.
 *
 * A node that is lost tells no more, from the round on that is under way: this one ends without its
 * vector, and says nothing of sets that had workers there. Of other sets all nodes still know the
 * same, whether they have got that vector before or not, because it has no part in what becomes of
 * their slots. Such sets begin anew with another serial number, once their workers are left out.
 *
 * Vectors may come in any order. A node can be one round ahead of another, and not two.
 *
 * A pure state machine. Threads: one at a time. */
#ifndef RUBATO_ENGINE_COLLECTIVES_NEGOTIATION_TENSOR_ROUNDS_H
#define RUBATO_ENGINE_COLLECTIVES_NEGOTIATION_TENSOR_ROUNDS_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/collectives/negotiation/tensor_cutovers.h"

/* Numbers of operations that rounds decide have their highest bit set; behind it are the round, the
 * set and which name of the set it is in this round. */
#define TENSOR_ROUND_NUMBER (UINT64_C(1) << 63)
#define TENSOR_ROUNDS_END (UINT64_C(1) << 38) /* rounds are below; a year of 100 µs each */

enum {
    TENSOR_ROUND_SETS = 1 << 12,  /* ids of sets are below; others ask at the coordinator */
    TENSOR_ROUND_NAMES = 1 << 13, /* and names of a set in a round */
};

uint64_t tensor_round_number(uint64_t round, uint32_t set, uint32_t name);
uint64_t tensor_round_of(uint64_t number);

/* What a node tells of a set. */
typedef struct {
    uint32_t set;
    uint32_t n_words;
    uint64_t serial; /* of the set: its id may be used again */
    uint64_t is_joined;
    uint64_t *again, *in_full; /* n_words each; bits by slot */
} TensorBits;

typedef struct {
    uint32_t n_cuts; /* verdicts on cut-overs that the node has heard; 0: they are fixed */
    TensorCutovers cutovers;
    GArray *sets; /* of TensorBits, ids rising */
} TensorVector;

/* (transfer full) */
TensorVector *tensor_vector_new(uint32_t n_cuts, TensorCutovers cutovers);

/* NULL is allowed. */
void tensor_vector_free(TensorVector *vector);

/* The set behind those added before; its bits are 0. Valid until the next one is added. */
TensorBits *tensor_vector_add(TensorVector *vector, uint32_t set, uint64_t serial,
                              uint32_t n_slots);

static inline void tensor_bit_set(uint64_t *bits, uint32_t slot)
{
    bits[slot / 64] |= UINT64_C(1) << slot % 64;
}

/* (transfer full) */
GByteArray *tensor_vector_write(const TensorVector *vector);

/* Reads a stranger's bytes. NULL: they make no sense. (transfer full) */
TensorVector *tensor_vector_read(const void *bytes, size_t n);

typedef struct TensorRounds TensorRounds;

/* n_workers_of: by node; those without workers tell nothing. (transfer full) */
TensorRounds *tensor_rounds_new(const uint32_t *n_workers_of, uint32_t n_nodes, uint32_t self);

/* NULL is allowed. */
void tensor_rounds_free(TensorRounds *rounds);

/* The number of the round that is under way, from 1. */
uint64_t tensor_rounds_number(const TensorRounds *rounds);

/* A node's vector came. NULL, or what is wrong. */
const char *tensor_rounds_take(TensorRounds *rounds, uint32_t node, uint64_t round,
                               const void *bytes, size_t n);

/* The node is lost. What comes of it later is dropped. */
void tensor_rounds_lose(TensorRounds *rounds, uint32_t node);

/* Whether this node has not told its vector of this round, and another one has. */
bool tensor_rounds_awaited(const TensorRounds *rounds);

/* Whether those who have told vectors of this round wait for nothing but that workers of this node
 * ask again, too: each asks again for something, in sets that have workers here (says the
 * function), and tells nothing else. */
bool tensor_rounds_may_wait(const TensorRounds *rounds,
                            bool (*has_workers)(const void *user, const TensorBits *bits),
                            const void *user);

/* Whether this node has told its vector of this round. */
bool tensor_rounds_has_told(const TensorRounds *rounds);

/* This node tells its vector, which it has not in this round. Takes it. */
void tensor_rounds_tell(TensorRounds *rounds, TensorVector *own);

/* Whether all vectors of the round are there. If so, what they say, until tensor_rounds_end, which
 * begins the next round. */
bool tensor_rounds_is_complete(const TensorRounds *rounds);
void tensor_rounds_end(TensorRounds *rounds);

/* This node's own. */
const TensorVector *tensor_rounds_own(const TensorRounds *rounds);

typedef enum { TENSOR_ROUND_OPEN, TENSOR_ROUND_RUNS, TENSOR_ROUND_IN_FULL } TensorRoundOutcome;

/* What becomes of a slot. n_members_of: of the set, by node. Of a set that had workers on a lost
 * node nothing more runs. */
TensorRoundOutcome tensor_rounds_outcome(const TensorRounds *rounds, const TensorBits *own,
                                         uint32_t slot, const uint32_t *n_members_of);

/* Whether the slot, which this node has told, may run in this round, as far as other nodes' vectors
 * have come. */
bool tensor_rounds_may_run(const TensorRounds *rounds, const TensorBits *own, uint32_t slot,
                           const uint32_t *n_members_of);

/* The cut-overs that hold for what the round decides: those of the node that has heard the fewest.
 * False: they are fixed. */
bool tensor_rounds_cutovers(const TensorRounds *rounds, TensorCutovers *cutovers);

#endif
