/* What a consistency model implements: it decides when a shard answers.
 *
 * A model is a pure state machine over one shard for one task: requests and clocks go in, answers
 * come out. It starts no thread, uses no socket and never reads the time, so a test can drive it
 * through any interleaving. A model is created for a task and destroyed with it. When a part moves
 * to another server, the model moves with it: see destroy.
 *
 * A program, or a plug-in file, registers one of its own: plugin.h. A built-in one is a file
 * models/<name>.c that ends in its constant RubatoModelOps, and a line in the array of
 * models/model.c.
 *
 * Threads: the shard's present owner calls the ops, one thread at a time. None may block. */
#ifndef RUBATO_MODEL_OPS_H
#define RUBATO_MODEL_OPS_H

#include <rubato/request.h>
#include <rubato/table.h>

G_BEGIN_DECLS

typedef struct RubatoModelOps RubatoModelOps;
typedef struct RubatoProgress RubatoProgress;
typedef struct RubatoShard RubatoShard;

/* The base of every model: the first member of its struct. A model reads n_workers and adds to
 * n_ignored; the other members are for the library. */
typedef struct {
    const RubatoModelOps *ops;
    RubatoShard *shard;
    RubatoProgress *progress;  /* the clocks that the shard knows of; only read it */
    uint32_t n_workers;        /* of the task, over all nodes */
    uint64_t told_clock;       /* the min clock that the shard was told, by which its rows expire;
                                * RUBATO_CLOCK_RETIRED: it is told none */
    uint64_t n_ignored;        /* how many requests came that made no sense */
    uint64_t n_held;           /* keys of Gets not answered yet, and of kept requests */
    RubatoRequest **outbox;    /* requests that go back to their senders, chained from the newest */
    RubatoRequest *own_outbox; /* the outbox of a model whose owner has none for it */
    /* Gives a Get that has no `output` memory for all of its rows. False: there is no memory. NULL:
     * every Get has some. */
    bool (*make_room)(RubatoRequest *request, size_t n_bytes);
    /* Whether the answer to a Get may take its rows from where the storage has them. If they change
     * before they are sent, they are first copied to `output`. Only the Get that is being handled,
     * `lends`, may be answered like this; NULL: it may not. `lent` is this Get once it has been. */
    bool (*lend)(RubatoRequest *request, const void *rows, size_t n_bytes);
    RubatoRequest *lends;
    RubatoRequest *lent;
    RubatoRequest **dropped_end; /* in destroy: where the chain of dropped requests ends */
    RubatoRequest **kept_end;    /* in destroy, if its part moves: where the chain of its kept
                                  * requests ends; else NULL */
    GArray *lost;          /* workers of lost nodes, and their last whole clocks; NULL: none */
    uint64_t n_to_look_at; /* keys of other requests that a Get may have to look at first */
} RubatoModel;

typedef struct {
    const RubatoTableSpec *spec; /* outlives the model */
    uint32_t n_workers;          /* of the task, over all nodes */
    RubatoKey first_key;         /* dense storage: the shard's range of keys */
    uint64_t n_keys;
    uint64_t hash_seed; /* random, the same for the whole table: for hash tables by key */
} RubatoModelSetup;

/* The min clock: the clock of the slowest live worker; RUBATO_CLOCK_RETIRED when none is left. */
RUBATO_API uint64_t rubato_model_min_clock(const RubatoModel *model);

/* The clock of one source: a worker's rank if the traits say per_worker_clocks, else a node. */
RUBATO_API uint64_t rubato_model_clock(const RubatoModel *model, uint32_t source);

/* Reads the rows of a Get and sends it back. */
RUBATO_API void rubato_model_answer(RubatoModel *model, RubatoRequest *request);

/* Applies an Add or a tuning to the shard. */
RUBATO_API void rubato_model_apply(RubatoModel *model, const RubatoRequest *request);

/* Sends back an Add or an announcement that the model has handled or kept. The model must not use
 * the request any more. */
RUBATO_API void rubato_model_finish(RubatoModel *model, RubatoRequest *request);

/* Says that there is no memory for what a request needs. The task fails with RUBATO_ERROR_MEMORY
 * once the op has returned. The request is sent back; NULL if that has been done. */
RUBATO_API void rubato_model_starve(RubatoModel *model, RubatoRequest *request);

/* For a model that needs an Add or an announcement after the op that brought it. Returns a request
 * of the model's own with a copy of keys and input; the model frees it with rubato_model_discard.
 * The request that came must still be given to rubato_model_finish. NULL if there is no memory: the
 * task then fails as by rubato_model_starve. Of a handler's call it may be the request that came;
 * then its caller has the answer when the model has discarded it. (transfer full) */
RUBATO_API RubatoRequest *rubato_model_keep(RubatoModel *model, const RubatoRequest *request);
RUBATO_API void rubato_model_discard(RubatoModel *model, RubatoRequest *kept);

/* Whether a request that the model has kept is of a worker that was lost with its node, and of a
 * clock that the worker has not ended. A model that applies Adds by their clock must not apply it:
 * other parts may not have it. Only in tasks that continue without the workers of a lost node. */
RUBATO_API bool rubato_model_is_of_lost(const RubatoModel *model, const RubatoRequest *kept);

struct RubatoModelOps {
    const char *name;

    RubatoModelTraits traits;

    /* Makes a model. The caller fills in the base after create has returned. NULL with
     * RUBATO_ERROR_MEMORY if there is not enough memory. (transfer full) */
    RubatoModel *(*create)(const RubatoModelSetup *setup, GError **error);

    /* Frees the model. Before that it calls rubato_model_drop for each Get that it still holds, and
     * rubato_model_discard for each request that it keeps. If the part moves, these requests go to
     * the model of the same kind on the new server, at the same clocks and in the order of these
     * calls. So call them in an order in which that model can take the requests. */
    void (*destroy)(RubatoModel *model);

    /* A Get: answer it now, or keep the request itself and answer it in a later op. */
    void (*get)(RubatoModel *model, RubatoRequest *request);

    /* An Add or a tuning: apply it, or rubato_model_keep it for later; finish it in this call
     * either way. */
    void (*add)(RubatoModel *model, RubatoRequest *request);

    /* The clock of a source has gone up from `from` to `to`, and the min clock perhaps too. `to` is
     * RUBATO_CLOCK_RETIRED if the source has retired. NULL: the model does not need it. */
    void (*advance)(RubatoModel *model, uint32_t source, uint64_t from, uint64_t to);

    /* The keys that a worker will use in iteration request->clock; n may be 0. Many keys come in
     * several calls; request->n_announced then says how many in all. A request->clock of
     * RUBATO_CLOCK_RETIRED means that the worker will use no more keys. Finish the request in this
     * call. NULL: the model does not need it. */
    void (*announce)(RubatoModel *model, RubatoRequest *request);
};

/* In destroy: gives up a Get that is not answered. It goes back to its caller, who learns that the
 * task was cancelled, or goes to the new server if the part moves. */
RUBATO_API void rubato_model_drop(RubatoModel *model, RubatoRequest *request);

G_END_DECLS

#endif
