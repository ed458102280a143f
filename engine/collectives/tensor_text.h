/* The negotiation between nodes, as lines of text: what a node tells the coordinator, and what the
 * coordinator has decided. They are the bodies of ENQUEUE and DECIDE.
 *
 * A reader takes a stranger's text: each number is checked against what there can be.
 *
 * Threads: any; the functions depend on their arguments only. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_TEXT_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_TEXT_H

#include "engine/collectives/tensor_request.h"

typedef enum {
    TENSOR_WISH_ASK,
    TENSOR_WISH_JOIN,
    TENSOR_WISH_LEAVE, /* the worker has returned */
    TENSOR_WISH_GROUP, /* its next ASKs are a group */
} TensorWishKind;

/* What a worker wants, told to the coordinator. */
typedef struct {
    TensorWishKind kind;
    uint32_t rank;
    uint32_t n;                          /* of a GROUP: how many */
    TensorRequest request;               /* of an ASK */
    char name[RUBATO_TENSOR_NAME_BYTES]; /* the same */
} TensorWish;

void tensor_wish_write(GString *text, const TensorWish *wish);

/* Reads the first line, and moves *text behind it. False: it makes no sense. */
bool tensor_wish_read(const char **text, uint32_t n_workers, TensorWish *wish);

typedef enum {
    TENSOR_VERDICT_RUN,
    TENSOR_VERDICT_FAIL,
    TENSOR_VERDICT_JOINED, /* all workers have joined */
    TENSOR_VERDICT_CLOSED, /* nothing can be asked any more; what is pending fails */
} TensorVerdictKind;

typedef struct {
    TensorVerdictKind kind;
    uint64_t number;                     /* counts the verdicts of the task, from 1 */
    uint32_t last;                       /* of JOINED: the rank that came last */
    uint32_t code;                       /* of FAIL and CLOSED: CONTROL_CODE(…) */
    char name[RUBATO_TENSOR_NAME_BYTES]; /* of RUN and FAIL */
    char *ranks;                         /* of RUN: those that asked, as runs; NULL: all (owned) */
    char *error;                         /* of FAIL and CLOSED, for people (owned) */
} TensorVerdict;

void tensor_verdict_write(GString *text, const TensorVerdict *verdict);

/* As above. tensor_verdict_clear frees what it owns. */
bool tensor_verdict_read(const char **text, TensorVerdict *verdict);
void tensor_verdict_clear(TensorVerdict *verdict);

/* Those that asked as runs; NULL: all did. (transfer full) */
char *tensor_ranks_write(void *const *tags, uint32_t n_workers);

/* Sets asked[rank] of each rank. ranks NULL: all. False: it makes no sense, or names none. */
bool tensor_ranks_read(const char *ranks, uint32_t n_workers, bool *asked);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(TensorVerdict, tensor_verdict_clear)

#endif
