/* What a server is asked, as models, storages and rules see it.
 *
 * Threads: whoever owns the shard; see model_ops.h. */
#ifndef RUBATO_REQUEST_H
#define RUBATO_REQUEST_H

#include <rubato/types.h>

G_BEGIN_DECLS

/* The clock of a worker that has retired: nobody waits for it. */
#define RUBATO_CLOCK_RETIRED UINT64_MAX

/* The keys of a request, and which row of its flat values belongs to each. For i in 0 .. n - 1:
 *   a list:     keys != NULL, at == NULL   key keys[i],     row i
 *   a selection: keys != NULL, at != NULL   key keys[at[i]], row at[i]
 *   a run:      keys == NULL               key first + i,   row i
 * A selection is how one server's part of a caller's unsorted keys is told without copying them. */
typedef struct {
    const RubatoKey *keys;
    const uint32_t *at;
    RubatoKey first;
    size_t n;
} RubatoKeys;

/* What of a table a request reads or writes. A model gets ROWS and HYPER; what holds for an Add
 * holds for both. The others come between tasks, past any model. */
typedef enum {
    RUBATO_SUBJECT_ROWS,    /* values; an Add's deltas go through the update rule */
    RUBATO_SUBJECT_HYPER,   /* Add: a hyper-parameter of the update rule, keys.first (a RubatoHyper;
                             * n is 1), gets the double at `values` */
    RUBATO_SUBJECT_VALUES,  /* Add: rows get these values, and the state of fresh ones */
    RUBATO_SUBJECT_STATE,   /* what the update rule keeps beside each row */
    RUBATO_SUBJECT_INITIAL, /* Add, without values: rows as they were made, and their state */
    RUBATO_SUBJECT_KEYS,    /* Get: the keys themselves of the shard's rows number keys.first and so
                             * on, in an order that stays the same until a row is made */
    RUBATO_SUBJECT_BAD_GRADIENTS, /* Get: the counts of bad deltas number keys.first and so on */
} RubatoSubject;

/* A Get, an Add, or an announcement of keys. */
typedef struct RubatoRequest RubatoRequest;
struct RubatoRequest {
    RubatoRequest
        *next;       /* belongs to whoever holds the request: a model may chain those it keeps */
    uint32_t worker; /* its rank in the task; UINT32_MAX between tasks */
    RubatoSubject subject;
    uint64_t clock; /* the worker's clock when it asked; of an announcement: the iteration */
    RubatoKeys keys;
    /* Of an announcement that comes as several requests, in the order of its keys: how many keys
     * these have together; 0: the request is the whole of it. */
    uint64_t n_all;
    void *values; /* Get: filled with rows; Add: the deltas, only read */
};

G_END_DECLS

#endif
