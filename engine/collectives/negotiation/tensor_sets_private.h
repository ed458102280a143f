/* What the files of tensor_sets.h share:
 *
 *   tensor_sets_changes.c  how sets are made and removed
 *   tensor_sets_ends.c     how they close, and lose workers
 *   tensor_sets_walk.c     the state as bytes
 *   tensor_sets.c          all else: what is asked in them, and what was decided
 *
 * Threads: as tensor_sets.h says. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_SETS_PRIVATE_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_SETS_PRIVATE_H

#include "engine/collectives/negotiation/tensor_sets.h"

typedef struct {
    uint32_t n_members;
    uint32_t made;       /* it is this one of those that were made, from 1; set 0: 0 */
    uint32_t generation; /* since when it has these */
    TensorMatcher *matcher;
    TensorSlots *slots;
    uint32_t filling; /* the slot that the decisions of a group fill; TENSOR_NO_SLOT: none */
    size_t n_to_come; /* of this group */
    uint32_t ranks[]; /* of the members, rising */
} WorkerSet;

/* The change that a worker asks for. */
typedef struct {
    uint32_t set;     /* that is to be removed; 0: one is to be made */
    uint32_t n_ranks; /* of the new one */
    uint32_t ranks[];
} SetChange;

struct TensorSets {
    uint32_t n_workers;
    GPtrArray *sets;     /* of WorkerSet, by id; NULL: the id is free */
    SetChange **changes; /* by rank; NULL: it has not asked for one */
    uint32_t n_changes;
    char **left;                /* by rank: why; NULL: it has not */
    bool *lost;                 /* by rank */
    uint32_t n_living;          /* not lost */
    uint32_t generation;        /* losses, so far */
    uint32_t n_made;            /* sets that were ever made */
    GQueue outcomes;            /* of TensorOutcome */
    const TensorRecall *recall; /* NULL: nothing is asked again */
    void *user;                 /* its */
};

/* ---- tensor_sets.c ---- */

/* A set of n workers; ranks NULL: those below n. (transfer full) */
WorkerSet *sets_new_set(const uint32_t *ranks, uint32_t n, uint32_t generation, uint32_t made);

/* NULL is allowed. */
void sets_free_set(WorkerSet *set);

/* NULL: there is none with this id. */
WorkerSet *sets_find(const TensorSets *sets, uint32_t id);

/* Whether the worker is in the set, and at which place. */
bool sets_is_member(const WorkerSet *set, uint32_t rank, uint32_t *place);

/* One more, of which the caller may fill in the rest. Takes the decision and the error. */
TensorOutcome *sets_add_outcome(TensorSets *sets, TensorOutcomeKind kind, uint32_t id,
                                uint32_t n_members, TensorDecision *decision, GError *error);

/* What the set's matcher has decided. */
void sets_take_decisions(TensorSets *sets, uint32_t id);

/* The set's matcher takes all that was asked again. */
void sets_ask_all_held(TensorSets *sets, uint32_t id);

/* ---- tensor_sets_changes.c ---- */

/* No worker asks for a change any more; they are told why. Takes the error. */
void sets_refuse_changes(TensorSets *sets, GError *error);

/* The same, set 0 being closed, if a worker asks for one. */
void sets_end_changes(TensorSets *sets);

#endif
