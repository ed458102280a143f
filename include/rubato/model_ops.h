/* What a consistency model implements: when a shard answers.
 *
 * A model is a pure state machine over one shard for one task: requests and clocks go in, answers
 * come out. It starts no thread, uses no socket and never reads a clock on the wall, so a test can
 * drive it through any interleaving. A model is created for a task and destroyed with it.
 *
 * A program, or a plug-in file, registers one of its own: plugin.h. A built-in one is a file
 * models/<name>.c that ends in its constant RubatoModelOps, and a line in the array of
 * models/model.c.
 *
 * Threads: every op is called by the shard's present owner, one thread at a time; none may
 * block. */
#ifndef RUBATO_MODEL_OPS_H
#define RUBATO_MODEL_OPS_H

#include <rubato/request.h>
#include <rubato/table.h>

G_BEGIN_DECLS

typedef struct RubatoModelOps RubatoModelOps;
typedef struct RubatoProgress RubatoProgress;
typedef struct RubatoShard RubatoShard;

/* The base of every model: the first member of its struct. */
typedef struct {
    const RubatoModelOps *ops;
    RubatoShard *shard;
    RubatoProgress *progress;  /* the clocks that the shard knows of; only read it */
    uint32_t n_workers;        /* of the task, over all nodes */
    uint64_t n_ignored;        /* what came in and made no sense */
    uint64_t n_held;           /* keys of Gets not answered yet, and of kept requests */
    RubatoRequest **outbox;    /* requests that go back to their senders, chained from the newest */
    RubatoRequest *own_outbox; /* where its owner has none for it */
    /* Gives a Get without `output` memory for all of its rows; false: there is none. NULL: all have
     * some. */
    bool (*make_room)(RubatoRequest *request, size_t n_bytes);
    /* Whether the answer to a Get may take its rows where the storage has them; `output` is memory
     * for a copy, if they change first. Only for `lends`, a Get that is being handled; NULL: there
     * is none. `lent` is the same Get once it is answered in this way. */
    bool (*lend)(RubatoRequest *request, const void *rows, size_t n_bytes);
    RubatoRequest *lends;
    RubatoRequest *lent;
    RubatoRequest **dropped_end; /* in destroy: where the chain of dropped requests ends */
    RubatoRequest **kept_end;    /* in destroy, if the model is taken apart: where the chain of its
                                  * kept requests ends; else NULL */
} RubatoModel;

typedef struct {
    const RubatoTableSpec *spec; /* outlives the model */
    uint32_t n_workers;          /* of the task, over all nodes */
    RubatoKey first_key;         /* dense storage: the shard's range of keys */
    uint64_t n_keys;
    uint64_t hash_seed; /* of the table, random: for what is hashed by key */
} RubatoModelSetup;

/* The min clock: that of the slowest live worker; RUBATO_CLOCK_RETIRED when none is left. */
RUBATO_API uint64_t rubato_model_min_clock(const RubatoModel *model);

/* The clock of one source: of a worker by its rank, under a model whose traits say
 * per_worker_clocks. */
RUBATO_API uint64_t rubato_model_clock(const RubatoModel *model, uint32_t source);

/* Reads the rows of a Get and sends it back. */
RUBATO_API void rubato_model_answer(RubatoModel *model, RubatoRequest *request);

/* Applies an Add or a tuning to the shard. */
RUBATO_API void rubato_model_apply(RubatoModel *model, const RubatoRequest *request);

/* Sends back an Add or an announcement that has been taken in: it is gone for the model. */
RUBATO_API void rubato_model_finish(RubatoModel *model, RubatoRequest *request);

/* There is no memory for what a request needs: the task fails, with RUBATO_ERROR_MEMORY, once the
 * op has returned. Sends back the request, or if it is NULL none. */
RUBATO_API void rubato_model_starve(RubatoModel *model, RubatoRequest *request);

/* For a model that holds an Add or an announcement beyond the call that brought it: returns a
 * request of the model's own with a copy of keys and values, to be given to
 * rubato_model_discard, and leaves the one that came to rubato_model_finish. NULL if there is no
 * memory: the task fails, as by rubato_model_starve. (transfer full) */
RUBATO_API RubatoRequest *rubato_model_keep(RubatoModel *model, const RubatoRequest *request);
RUBATO_API void rubato_model_discard(RubatoModel *model, RubatoRequest *kept);

struct RubatoModelOps {
    const char *name;

    RubatoModelTraits traits;

    /* The base is filled in by the caller after create has returned. NULL with
     * RUBATO_ERROR_MEMORY if what the setup asks for does not fit. (transfer full) */
    RubatoModel *(*create)(const RubatoModelSetup *setup, GError **error);

    /* Frees the model. First it gives parked Gets back with rubato_model_drop, and what it keeps
     * with rubato_model_discard. If the model is taken apart, both go to another model of this kind
     * over the same part, at the same clocks: so they come in an order in which that one takes
     * them. */
    void (*destroy)(RubatoModel *model);

    /* A Get: answer it now, or keep the request itself and answer it in a later op. */
    void (*get)(RubatoModel *model, RubatoRequest *request);

    /* An Add or a tuning: apply it, or rubato_model_keep it for later; finish it in this call
     * either way. */
    void (*add)(RubatoModel *model, RubatoRequest *request);

    /* The clock of a source has gone from `from` to `to` (RUBATO_CLOCK_RETIRED: it has retired),
     * and the min clock with it. NULL: the model does not care. */
    void (*advance)(RubatoModel *model, uint32_t source, uint64_t from, uint64_t to);

    /* The keys that a worker will use in iteration request->clock; n may be 0. Many keys come in
     * several calls; request->n_announced then says how many in all. RUBATO_CLOCK_RETIRED means
     * that the worker will use no more keys. Finish it in this call. NULL: the model does not
     * care. */
    void (*announce)(RubatoModel *model, RubatoRequest *request);
};

/* In destroy: sends back a parked Get unanswered; its caller learns that the task was cancelled. */
RUBATO_API void rubato_model_drop(RubatoModel *model, RubatoRequest *request);

G_END_DECLS

#endif
