/* A request to a server, as models see it.
 *
 * Threads: the shard's present owner; see model_ops.h. */
#ifndef RUBATO_REQUEST_H
#define RUBATO_REQUEST_H

#include <rubato/table.h>

G_BEGIN_DECLS

/* The clock of a worker that has retired: no worker waits for it. */
#define RUBATO_CLOCK_RETIRED UINT64_MAX

/* The keys of a request, and which row of its flat values belongs to each. For i in 0 .. n - 1:
 *   a list:     keys != NULL, at == NULL   key keys[i],     row i
 *   a selection: keys != NULL, at != NULL   key keys[at[i]], row at[i]
 *   a run:      keys == NULL               key first + i,   row i
 * A selection names one server's part of a caller's unsorted keys without copying them. */
typedef struct {
    const RubatoKey *keys;
    const uint32_t *at;
    RubatoKey first;
    size_t n;
} RubatoKeys;

/* The kinds of requests to a model. A model treats a tuning as an Add, and the call of a handler as
 * a Get or an Add: the same rules hold for both. The call of a handler on all rows of the part has
 * no keys. */
typedef enum {
    RUBATO_REQUEST_GET,      /* the rows of keys */
    RUBATO_REQUEST_ADD,      /* deltas for keys, which go through the update rule */
    RUBATO_REQUEST_TUNE,     /* another number for a hyper-parameter of the update rule */
    RUBATO_REQUEST_ANNOUNCE, /* the keys of an iteration to come */
    RUBATO_REQUEST_READ,     /* a handler reads the rows of keys, or all; a model sees a Get */
    RUBATO_REQUEST_WRITE,    /* a handler changes the rows of keys, or all; a model sees an Add */
} RubatoRequestKind;

typedef struct {
    RubatoHyper hyper;
    double value;
} RubatoTuning;

typedef struct RubatoRequest RubatoRequest;
struct RubatoRequest {
    RubatoRequest *next;    /* for the request's owner: a model may chain those it keeps */
    RubatoRequestKind kind; /* set when the request comes to a model */
    uint32_t worker;        /* its rank in the task; UINT32_MAX between tasks */
    uint64_t clock;         /* the worker's when it asked; of an announcement: the iteration */
    RubatoKeys keys;        /* a tuning has none: n is 0 */
    const void *input;      /* the keys' input, such as an Add's deltas; NULL: none */
    void *output;           /* what the keys are asked for, a Get's rows; NULL: nothing, or there is
                             * no memory for it yet */
    union {
        RubatoTuning tuning; /* RUBATO_REQUEST_TUNE */
        /* For a RUBATO_REQUEST_ANNOUNCE that comes as several requests, in the order of its keys:
         * how many keys these have together. 0: the request is the whole announcement. */
        uint64_t n_announced;
        /* The library's. RUBATO_REQUEST_READ, RUBATO_REQUEST_WRITE: what is called. */
        struct HandlerCall *handler_call;
        /* Of such a call that another node has sent, until all of its bytes have come: the bytes
         * number keys.first and so on of n_bytes, and which call of that node it is. */
        struct {
            uint64_t serial, n_bytes;
        } piece;
    };

    /* the library's, of a Get that has come to a model */
    bool is_out;  /* the model has given it back */
    bool is_held; /* it has not yet, and the Get is counted among those that wait */
};

G_END_DECLS

#endif
