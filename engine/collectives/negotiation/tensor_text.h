/* The negotiation between nodes, as lines of text: what a node tells the coordinator, and what the
 * coordinator has decided. They are the bodies of ENQUEUE and DECIDE.
 *
 * A reader takes a stranger's text: each number is checked against what there can be.
 *
 * Threads: any; the functions depend on their arguments only. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_TEXT_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_TEXT_H

#include "engine/collectives/negotiation/tensor_cutovers.h"
#include "engine/collectives/negotiation/tensor_slots.h"

typedef enum {
    TENSOR_NOTICE_ASK,
    TENSOR_NOTICE_JOIN,
    TENSOR_NOTICE_LEAVE, /* the worker has returned */
    TENSOR_NOTICE_GROUP, /* its next ASKs are a group */
    TENSOR_NOTICE_MAKE,  /* a set of workers */
    TENSOR_NOTICE_REMOVE,
    TENSOR_NOTICE_AGAIN, /* what is in a slot (tensor_slots.h) */
    TENSOR_NOTICE_CUT,   /* rank 0: other cut-overs (tensor_cutovers.h) are to hold */
    TENSOR_NOTICE_HEARD, /* of so many losses the node had heard before it told what follows */
    TENSOR_NOTICE_BACK,  /* the node has other workers in the place of lost ones, and knows nothing
                          * yet */
} TensorNoticeKind;

/* What a worker asks or does, as its node tells the coordinator. */
typedef struct {
    TensorNoticeKind kind;
    uint32_t rank;
    uint32_t set;                        /* of an ASK, a JOIN, a REMOVE and an AGAIN */
    uint32_t slot;                       /* of an AGAIN */
    uint32_t n;                          /* of a GROUP: how many; of a MAKE: how many ranks; of
                                          * HEARD: losses */
    TensorCutovers cutovers;             /* of a CUT */
    uint32_t *ranks;                     /* of a MAKE: rising (owned by a notice that was read) */
    TensorRequest request;               /* of an ASK */
    char name[RUBATO_TENSOR_NAME_BYTES]; /* the same */
} TensorNotice;

void tensor_notice_write(GString *text, const TensorNotice *notice);

/* Reads the first line, and moves *text behind it. False: it makes no sense. tensor_notice_clear
 * frees what it owns. */
bool tensor_notice_read(const char **text, uint32_t n_workers, TensorNotice *notice);
void tensor_notice_clear(TensorNotice *notice);

typedef enum {
    TENSOR_VERDICT_RUN,
    TENSOR_VERDICT_FAIL,
    TENSOR_VERDICT_JOINED, /* all workers have joined */
    TENSOR_VERDICT_CLOSED, /* nothing can be asked any more; what is pending fails */
    TENSOR_VERDICT_MADE,   /* the set for which all workers have asked */
    TENSOR_VERDICT_REMOVED,
    TENSOR_VERDICT_REFUSED,  /* workers asked for different changes of the sets */
    TENSOR_VERDICT_AGAIN,    /* all workers have asked again for what is in a slot: it runs */
    TENSOR_VERDICT_CUT,      /* these cut-overs hold for what is decided from now on */
    TENSOR_VERDICT_LOST,     /* a node: its workers' sets are without them from now on, and what was
                             * pending there fails. The first line of its message */
    TENSOR_VERDICT_REPLACED, /* a node: its workers' sets wait for others in their place, and what
                              * was pending there fails */
    TENSOR_VERDICT_SET,      /* to a node that is BACK alone: a set as it is */
    TENSOR_VERDICT_BACK,     /* the same: how many verdicts and losses there were. It has been told
                              * all sets */
} TensorVerdictKind;

typedef struct {
    TensorVerdictKind kind;
    uint64_t number;                     /* counts the verdicts of the task, from 1. BACK: the last
                                          * one; SET: 0 */
    uint32_t set;                        /* of workers; of REFUSED: 0 */
    uint32_t slot;                       /* of AGAIN; of RUN: that it fills, or TENSOR_NO_SLOT */
    uint32_t n;                          /* of AGAIN: names, each with a number of its own; of
                                          * LOST and REPLACED: which loss it is, from 1; of SET: how
                                          * many there were when it got its workers; of BACK: losses
                                          */
    uint32_t node;                       /* of LOST and REPLACED: its number */
    TensorCutovers cutovers;             /* of CUT; of BACK, if slot is not 0 */
    uint32_t last;                       /* of JOINED: the place that came last; of SET: which of
                                          * those that were made it is; of BACK: how many were */
    uint32_t code;                       /* of FAIL, CLOSED, REFUSED, LOST and REPLACED:
                                          * CONTROL_CODE(…); of SET: 0, or why it is closed; of
                                          * BACK: 0, or of the last loss */
    char name[RUBATO_TENSOR_NAME_BYTES]; /* of RUN and FAIL */
    char *ranks;                         /* of RUN: places that asked, as runs; NULL: all (owned).
                                          * Of SET: its workers of all of the task */
    char *error;                         /* of the same, for people (owned) */
} TensorVerdict;

void tensor_verdict_write(GString *text, const TensorVerdict *verdict);

/* As above. tensor_verdict_clear frees what it owns. */
bool tensor_verdict_read(const char **text, TensorVerdict *verdict);
void tensor_verdict_clear(TensorVerdict *verdict);

/* Whether the text begins with LOST, and of which node. */
bool tensor_verdict_tells_loss(const char *text, uint32_t *node);

/* Those that asked as runs; NULL: all did. (transfer full) */
char *tensor_ranks_write(void *const *tags, uint32_t n_workers);

/* Sets asked[rank] of each rank. ranks NULL: all. False: it makes no sense, or names none. */
bool tensor_ranks_read(const char *ranks, uint32_t n_workers, bool *asked);

/* "workers 0-3, 7", for people. (transfer full) */
char *tensor_ranks_describe(const uint32_t *ranks, uint32_t n);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(TensorNotice, tensor_notice_clear)
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(TensorVerdict, tensor_verdict_clear)

#endif
