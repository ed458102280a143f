/* A shard with a consistency model over it, without servers, threads or messages: for tests and
 * tools that give it requests and clocks in an order of their own.
 *
 * A node tells a clock only after the Adds that its workers made before it; the caller keeps this
 * order. The caller owns each request. From the call that hands a request over until the request is
 * returned, its `next` belongs to the driver.
 *
 * Threads: one at a time. */
#ifndef RUBATO_MODEL_DRIVER_H
#define RUBATO_MODEL_DRIVER_H

#include <rubato/model_ops.h>

G_BEGIN_DECLS

typedef struct RubatoModelDriver RubatoModelDriver;

typedef struct {
    const RubatoTableSpec *spec; /* outlives the driver */
    RubatoKey first_key;         /* the shard's keys, if its storage holds a range */
    uint64_t n_keys;
    uint32_t n_workers; /* of the task */
    uint32_t n_nodes;   /* the sources of clocks, unless the model has per_worker_clocks */
} RubatoModelDriverSetup;

/* Begins a task on a new shard: every clock is 0. Errors: those of rubato_engine_create_table about
 * the spec, and RUBATO_ERROR_MEMORY. (transfer full) */
RUBATO_API RubatoModelDriver *rubato_model_driver_new(const RubatoModelDriverSetup *setup,
                                                      GError **error);

/* The task must have ended: rubato_model_driver_end. NULL is allowed. */
RUBATO_API void rubato_model_driver_free(RubatoModelDriver *driver);

/* Hands over a request whose worker, clock and keys are set. A Get has `output`, an Add has
 * `input`. */
RUBATO_API void rubato_model_driver_get(RubatoModelDriver *driver, RubatoRequest *request);
RUBATO_API void rubato_model_driver_add(RubatoModelDriver *driver, RubatoRequest *request);
RUBATO_API void rubato_model_driver_announce(RubatoModelDriver *driver, RubatoRequest *request);

/* A source of clocks has reached a clock. A source is a worker if the model has per_worker_clocks,
 * else a node. RUBATO_CLOCK_RETIRED: it has retired. */
RUBATO_API void rubato_model_driver_clock(RubatoModelDriver *driver, uint32_t source,
                                          uint64_t clock);

/* The requests that have come back since the last call, oldest first, chained by `next`; NULL if
 * there are none. */
RUBATO_API RubatoRequest *rubato_model_driver_take(RubatoModelDriver *driver);

/* The min clock, as the shard knows it. */
RUBATO_API uint64_t rubato_model_driver_min_clock(const RubatoModelDriver *driver);

/* Ends the task and returns the chain of parked Gets, which are not answered. The rows stay. */
RUBATO_API RubatoRequest *rubato_model_driver_end(RubatoModelDriver *driver);

/* Reads rows without asking the model. `values` is aligned for the table's dtype. */
RUBATO_API void rubato_model_driver_read(RubatoModelDriver *driver, const RubatoKeys *keys,
                                         void *values);

G_END_DECLS

#endif
