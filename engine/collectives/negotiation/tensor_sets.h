/* The sets of a task's workers that make collectives among themselves: a matcher (tensor_matcher.h)
 * for each set, how sets are made and removed, and one queue of what was decided.
 *
 * Set 0 is all workers. All of them make a set together, and remove it together: a change is
 * decided once each worker has asked for it. If they ask for different changes, nothing changes,
 * and each is told both sides. A new set gets the lowest id that is free.
 *
 * A set is named by its id, and its workers by their rank in the task. Tags of decisions lie by
 * place: the number of workers of the set with lower ranks.
 *
 * Workers may be lost with their node. This is decided like all else, at one place among the other
 * decisions: what is decided before belongs to all workers, and what comes behind to those that
 * live. The losses are counted; their number is the generation of what is decided.
 *
 * A pure state machine, like the matcher. Threads: one at a time. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_SETS_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_SETS_H

#include "engine/collectives/negotiation/tensor_matcher.h"
#include "engine/collectives/negotiation/tensor_slots.h"

typedef struct TensorSets TensorSets;

/* (transfer full) */
TensorSets *tensor_sets_new(uint32_t n_workers);

/* NULL is allowed. */
void tensor_sets_free(TensorSets *sets);

/* What a caller knows requests by that come again (tensor_slots.h). */
typedef struct {
    /* The tag of one of the slot's names, of a worker that asks again by `held`, if it turns out
     * that the request is not the same for all. */
    void *(*tag)(void *user, const TensorSlot *slot, uint32_t name, uint32_t place, void *held);

    /* No tag is asked for from it any more; before a call that failed returns, it takes back the
     * tags, too. */
    void (*drop)(void *user, void *held);
    void (*untag)(void *user, void *tag);
} TensorRecall;

/* From now on requests may come again. Before a worker asks. */
void tensor_sets_recall(TensorSets *sets, const TensorRecall *recall, void *user);

/* A worker asks again for what is in the slot of the set. Takes `held` on success. Errors as those
 * of tensor_sets_ask; _INVALID: there is no such slot. */
bool tensor_sets_again(TensorSets *sets, uint32_t set, uint32_t rank, uint32_t slot, void *held,
                       GError **error);

/* What was asked again and is not decided goes to the matchers, which can then say who is missing.
 */
void tensor_sets_ask_in_full(TensorSets *sets);

/* As tensor_matcher_ask and tensor_matcher_join, in a set. RUBATO_ERROR_INVALID: there is no such
 * set, or the worker is not in it. */
bool tensor_sets_ask(TensorSets *sets, uint32_t set, uint32_t rank, const TensorAsk *asks, size_t n,
                     GError **error);
bool tensor_sets_join(TensorSets *sets, uint32_t set, uint32_t rank, GError **error);

/* A worker asks for a set of these workers: n ranks, rising, all below n_workers; one at least.
 * RUBATO_ERROR_EXISTS: it has asked for a change that is not decided; _INVALID: one of them was
 * lost; and why nothing can be asked any more. */
bool tensor_sets_make(TensorSets *sets, uint32_t rank, const uint32_t *ranks, uint32_t n,
                      GError **error);

/* A worker asks for the removal of a set. What is pending in it then fails with
 * RUBATO_ERROR_CANCELLED. Errors as above; _INVALID: there is no such set, or it is set 0. */
bool tensor_sets_remove(TensorSets *sets, uint32_t rank, uint32_t set, GError **error);

/* The workers of these ranks, from `first` to before `end`, are lost: the task goes on without
 * them. In each set that has one of them all that is pending fails with this error, joins included,
 * and so do all changes. Such a set then has the others of its workers, by places among these, and
 * nothing of what they have asked before; it is open again if it was closed, unless one of them has
 * left; without any it ends. Other sets do not notice. One worker at least is left. */
void tensor_sets_lose(TensorSets *sets, uint32_t first, uint32_t end, const GError *why);

/* The same, but others take their place: the sets keep all of their workers. What these workers had
 * done is forgotten, also that one of them had left. */
void tensor_sets_replace(TensorSets *sets, uint32_t first, uint32_t end, const GError *why);

/* How many losses there were. What was asked before the last one that concerns the set is late,
 * where `heard` is how many of them the worker's node had heard of when it told the request. */
uint32_t tensor_sets_generation(const TensorSets *sets);
bool tensor_sets_is_late(const TensorSets *sets, uint32_t set, uint32_t heard);

/* How many sets were ever made. Of a set: which one of them it is, from 1 (set 0: 0), and how many
 * losses there were when it got its present workers. */
uint32_t tensor_sets_n_made(const TensorSets *sets);
void tensor_sets_age(const TensorSets *sets, uint32_t set, uint32_t *made, uint32_t *generation);

/* The worker takes part in nothing any more: its sets close, and no set can be made or removed. */
void tensor_sets_leave(TensorSets *sets, uint32_t rank, const char *why);

/* All sets close. */
void tensor_sets_cancel(TensorSets *sets, const GError *why);

typedef enum {
    TENSOR_OUTCOME_NAME,   /* requests for a name */
    TENSOR_OUTCOME_AGAIN,  /* all workers have asked again for what is in a slot: it runs */
    TENSOR_OUTCOME_JOIN,   /* of all workers of a set */
    TENSOR_OUTCOME_CLOSED, /* nothing can be asked in a set any more; what was pending has failed */
    TENSOR_OUTCOME_MADE,   /* a set is there */
    TENSOR_OUTCOME_REMOVED,  /* and is there no more; what was pending has failed */
    TENSOR_OUTCOME_REFUSED,  /* a change */
    TENSOR_OUTCOME_LOST,     /* workers: from now on their sets are without them */
    TENSOR_OUTCOME_REPLACED, /* the same, but their sets wait for others in their place */
} TensorOutcomeKind;

/* What was decided. */
typedef struct {
    TensorOutcomeKind kind;
    uint32_t set;             /* of REFUSED: 0 */
    uint32_t n_members;       /* of the set */
    uint32_t slot;            /* of AGAIN; of a NAME that fills one; else TENSOR_NO_SLOT */
    uint32_t n_names;         /* of AGAIN: in the slot */
    void **held;              /* the same: by place */
    TensorDecision *decision; /* of NAME and JOIN */
    GError *error;            /* of CLOSED, REFUSED, LOST and REPLACED */
    bool is_by_loss;          /* it has failed by the LOST or REPLACED that follows */
} TensorOutcome;

/* The oldest that was not taken yet; NULL: there is none. (transfer full, tensor_outcome_free) */
TensorOutcome *tensor_sets_next(TensorSets *sets);
bool tensor_sets_has_next(const TensorSets *sets);
void tensor_outcome_free(TensorOutcome *outcome);

/* Ids are below this. */
uint32_t tensor_sets_end(const TensorSets *sets);

/* The set's matcher, and the ranks of its workers; NULL: there is no such set. Valid until the next
 * call. */
const TensorMatcher *tensor_sets_matcher(const TensorSets *sets, uint32_t set,
                                         const uint32_t **ranks, uint32_t *n_members);

/* What some of the set's workers have asked for again, and the others not yet: the slot for which
 * they have waited longest; NULL: there is none. Valid until the next call. */
const TensorSlot *tensor_sets_first_held(const TensorSets *sets, uint32_t set);

/* Whether the worker asks for a change that is not decided. */
bool tensor_sets_changes(const TensorSets *sets, uint32_t rank);

/* For whom the change waits: "worker 2 and worker 5". NULL: nobody has asked for one. (transfer
 * full) */
char *tensor_sets_missing(const TensorSets *sets);

/* Walks through all of it (through new sets if it reads), between two calls, when all outcomes have
 * been taken. tag: of what requests are known by. */
void tensor_sets_walk(StateWalk *walk, TensorSets *sets, TensorTagWalk tag);

#endif
