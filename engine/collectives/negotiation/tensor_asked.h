/* What a worker that waits has asked for in its sets of workers and what of it is not decided, as
 * its node tells the scheduler, which looks for workers that wait for one another
 * (engine/scheduler/scheduler_waits.c).
 *
 * Whether a worker has asked for what another one waits for cannot be told by the name, since
 * names come again. So each set counts what was decided in it. The coordinator and the rounds of
 * the nodes decide in an order that is the same on all nodes. If a worker's node has heard of no
 * more decisions than that of the other worker, it has heard of none that the other one lacks. So
 * the worker does not have behind it what the other one waits for: it has asked for it and waits,
 * too, or it has not asked.
 *
 * Threads: any; a value is used by one at a time. */
#ifndef RUBATO_ENGINE_COLLECTIVES_NEGOTIATION_TENSOR_ASKED_H
#define RUBATO_ENGINE_COLLECTIVES_NEGOTIATION_TENSOR_ASKED_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- writing ---- */

/* A set of which the worker is a member. */
typedef struct {
    uint32_t id;
    uint32_t made;       /* it is this one of those that were made, */
    uint32_t generation; /* since so many losses: it has begun anew with the last of them */
    uint32_t n;          /* its members */
    uint64_t n_verdicts; /* what was decided by the coordinator, or on the node; */
    uint64_t n_rounds;   /* by nodes among themselves */
} TensorAskedSet;

/* What the worker has asked for. */
typedef enum {
    TENSOR_ASKED_NAME,
    TENSOR_ASKED_JOIN,
    TENSOR_ASKED_CHANGE, /* of the sets; it belongs to set 0 */
    TENSOR_ASKED_END,
} TensorAskedKind;

/* The text is all sets, each with what is not decided in it, and the end. The name NULL: of a join
 * or a change. waits: the worker waits for this one now. */
void tensor_asked_add_set(GString *text, const TensorAskedSet *set);
void tensor_asked_add(GString *text, TensorAskedKind kind, const char *name, bool waits);
void tensor_asked_end(GString *text);

/* ---- reading ---- */

typedef struct TensorAsked TensorAsked;

/* NULL: it is no such text. An empty one, or NULL: nothing is known. (transfer full) */
TensorAsked *tensor_asked_read(const char *text);

/* NULL is allowed. */
void tensor_asked_free(TensorAsked *asked);

/* Whether the worker waits for something that is not decided. */
bool tensor_asked_waits(const TensorAsked *asked);

/* Whether one has not asked for what the other waits for, so that the other one cannot go on before
 * it does. */
bool tensor_asked_holds(const TensorAsked *one, const TensorAsked *other);

/* The members of the set in which the other one waits; whether one was told to be a member. */
uint32_t tensor_asked_n_members(const TensorAsked *other);
bool tensor_asked_is_member(const TensorAsked *one, const TensorAsked *other);

/* Adds what the worker waits for: "the collective grad/7", "a join of set 2". */
void tensor_asked_describe(const TensorAsked *asked, GString *text);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(TensorAsked, tensor_asked_free)

#endif
