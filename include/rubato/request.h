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
 *   a list:      keys != NULL, at == NULL   key keys[i],     row i
 *   a selection: keys != NULL, at != NULL   key keys[at[i]], row at[i]
 *   a run:       keys == NULL               key first + i,   row i
 * A selection names those of a caller's unsorted keys that one part has, without copying them. */
typedef struct {
    const RubatoKey *keys;
    const uint32_t *at;
    RubatoKey first;
    size_t n;
} RubatoKeys;

/* The kinds of requests to a model. A model treats a tuning like an Add, and the call of a handler
 * like a Get or an Add: the same rules hold. The call of a handler on all rows of the part has no
 * keys. */
typedef enum {
    RUBATO_REQUEST_GET,      /* the rows of keys */
    RUBATO_REQUEST_ADD,      /* deltas for keys, which go through the update rule */
    RUBATO_REQUEST_TUNE,     /* another number for a hyper-parameter of the update rule */
    RUBATO_REQUEST_ANNOUNCE, /* the keys of an iteration to come */
    RUBATO_REQUEST_READ,     /* a handler reads the rows of keys, or all; comes to a model's get */
    RUBATO_REQUEST_WRITE,    /* a handler changes the rows of keys, or all; comes to its add */
} RubatoRequestKind;

typedef struct {
    RubatoHyper hyper;
    double value;
} RubatoTuning;

typedef struct RubatoRequest RubatoRequest;
struct RubatoRequest {
    RubatoRequest *next;    /* for whoever holds the request: a model may chain those it holds */
    RubatoRequestKind kind; /* set when the request comes to a model */
    uint32_t worker;        /* its rank in the task; UINT32_MAX between tasks */
    uint64_t clock;         /* the worker's when it asked; of an announcement: the iteration */
    RubatoKeys keys;        /* a tuning has none: n is 0 */
    const void *input;      /* what comes with the keys, such as an Add's deltas; NULL: nothing */
    void *output;           /* memory for the result, such as a Get's rows; NULL: there is no
                             * result, or no memory for it yet */
    union {
        RubatoTuning tuning; /* RUBATO_REQUEST_TUNE */
        /* RUBATO_REQUEST_ANNOUNCE. A long announcement comes as several requests, in the order of
         * its keys; this is how many keys they have together. 0: this request is all of it. */
        uint64_t n_announced;
        /* RUBATO_REQUEST_READ, RUBATO_REQUEST_WRITE: what is called. For the library only. */
        struct HandlerCall *handler_call;
        /* For the library only: a piece of a handler's call from another node. The piece has the
         * bytes from number keys.first on, of n_bytes in all; serial is the number of the call. */
        struct {
            uint64_t serial, n_bytes;
        } piece;
    };

    /* for the library only, of a Get that has come to a model */
    bool is_out;  /* the model has given it back */
    bool is_held; /* the model has not given it back, and n_held counts its keys */
    /* for the library only, of an Add: a model that keeps it needs no copy; see model.h */
    bool is_lent;
};

G_END_DECLS

#endif
