/* The negotiation of collectives on tensors: which requests of the workers belong together, whether
 * they fit, and when each operation may begin.
 *
 * A pure state machine: requests go in, decisions come out. It has no thread and no socket, and
 * never reads the time. What it decides depends on the order in which requests come only where that
 * order is itself the question: which decision comes first, and who joined last.
 *
 * Of each name and worker:
 * - One request at most is pending. A second one is refused, and nothing of its group is taken in.
 * - Each request that was taken in is told in one decision: it runs, or fails. Every worker that
 *   asked gets the same decision.
 * - An operation is decided once each worker has asked for it, or has joined. It runs if all
 *   requests fit the first one and name the same group.
 * - Members of a group are decided together, once each of them could be: all run, or all fail.
 *
 * Threads: one at a time. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_MATCHER_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_MATCHER_H

#include "engine/collectives/negotiation/tensor_slots.h"

typedef struct TensorMatcher TensorMatcher;

/* (transfer full) */
TensorMatcher *tensor_matcher_new(uint32_t n_workers);

/* Texts call the workers by these numbers, by rank, which stay as long as the matcher. Else they
 * call them by their ranks. */
void tensor_matcher_name_workers(TensorMatcher *matcher, const uint32_t *ranks);

/* NULL is allowed. */
void tensor_matcher_free(TensorMatcher *matcher);

/* A request and what the caller knows it by. */
typedef struct {
    const char *name;
    TensorRequest request;
    void *tag; /* not NULL */
} TensorAsk;

/* A worker asks for n tensors; for more than one they are a group. All of them are taken in, or
 * none. RUBATO_ERROR_EXISTS: one of the names is pending, or twice in the list; _NOT_FOUND: a
 * worker has left; _INVALID: the worker has joined. */
bool tensor_matcher_ask(TensorMatcher *matcher, uint32_t rank, const TensorAsk *asks, size_t n,
                        GError **error);

/* The worker takes part with nothing until all have joined. Errors as above; _EXISTS: it has
 * joined. */
bool tensor_matcher_join(TensorMatcher *matcher, uint32_t rank, GError **error);

/* The worker takes part in nothing any more, because of `why` ("has returned"). All that is pending
 * fails, joins included, and so do all further requests. */
void tensor_matcher_leave(TensorMatcher *matcher, uint32_t rank, const char *why);

/* All that is pending fails with this error, and so do all further requests. */
void tensor_matcher_cancel(TensorMatcher *matcher, const GError *why);

/* What became of the requests for a name. */
typedef struct {
    char *name;          /* NULL: of the join */
    const GError *error; /* NULL: it runs */
    void *const *tags;   /* by rank; NULL: the worker has not asked (it has joined, or has left) */
    uint32_t last;       /* of a join: the rank that came last */
    uint64_t number;     /* counts the decisions, from 1 */
    size_t n_group; /* names that it is decided with, itself included; they follow one another */
    const TensorRequest *requests; /* by rank, of those that have tags; NULL: of a join */
} TensorDecision;

/* The oldest decision that was not taken yet; NULL: there is none. (transfer full,
 * tensor_decision_free) */
TensorDecision *tensor_matcher_next(TensorMatcher *matcher);
void tensor_decision_free(TensorDecision *decision);

/* Whether nobody asks for any of the names, nobody has joined, and it is not closed. */
bool tensor_matcher_is_idle(const TensorMatcher *matcher, char *const *names, size_t n);

/* Why nothing can be asked any more; NULL: it can. */
const GError *tensor_matcher_closed(const TensorMatcher *matcher);

/* A name that is pending. Valid until the next call that changes the matcher. */
typedef struct {
    const char *name;
    const TensorRequest *request; /* what the first worker by rank asks */
    void *const *tags;            /* by rank; NULL: the worker has not asked */
} TensorPending;

/* The name that has been pending longest, if *at is NULL, else the one behind it. False: there is
 * none. */
bool tensor_matcher_pending(const TensorMatcher *matcher, const void **at, TensorPending *pending);

/* By rank; NULL: nobody has joined. */
const bool *tensor_matcher_joined(const TensorMatcher *matcher);

/* The worker has asked for the name elsewhere, so that it is what it asked for last. */
void tensor_matcher_note(TensorMatcher *matcher, uint32_t rank, const char *name);

/* "worker 2 (which last asked for grad/6) and worker 5 (which has not asked for anything)": for
 * whom the pending name waits. NULL: it is not pending, or waits for others of its group only. The
 * name NULL: the join. (transfer full) */
char *tensor_matcher_missing(const TensorMatcher *matcher, const char *name);

/* The same of what was asked for elsewhere. tags: by rank; NULL: the worker has not asked.
 * (transfer full) */
char *tensor_matcher_without(const TensorMatcher *matcher, void *const *tags);

/* Walks through all of it (through a new one if it reads), between two calls, when all decisions
 * have been taken. */
void tensor_matcher_walk(StateWalk *walk, TensorMatcher *matcher, TensorTagWalk tag);

#endif
