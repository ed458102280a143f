/* A shard without a model: a storage, an update rule and an initialiser, as the spec of a table
 * names them. For tests and tools that use these without a cluster.
 *
 * Keys come in any of the three forms of RubatoKeys. If the storage holds a range, they must lie in
 * it. Arrays of values are aligned for the table's dtype.
 *
 * Threads: one at a time. */
#ifndef RUBATO_SHARD_DRIVER_H
#define RUBATO_SHARD_DRIVER_H

#include <rubato/engine.h>
#include <rubato/request.h>
#include <rubato/storage_ops.h>
#include <rubato/update_ops.h>

G_BEGIN_DECLS

typedef struct RubatoShardDriver RubatoShardDriver;

typedef struct {
    const RubatoTableSpec *spec; /* outlives the driver */
    RubatoKey first_key;         /* the shard's keys, if its storage holds a range */
    uint64_t n_keys;
    uint64_t hash_seed; /* for RubatoStorageSetup */
} RubatoShardDriverSetup;

/* Errors: those of rubato_engine_create_table about the spec, and RUBATO_ERROR_MEMORY. (transfer
 * full) */
RUBATO_API RubatoShardDriver *rubato_shard_driver_new(const RubatoShardDriverSetup *setup,
                                                      GError **error);

/* NULL is allowed. */
RUBATO_API void rubato_shard_driver_free(RubatoShardDriver *driver);

/* Reads rows, as a Get does. */
RUBATO_API void rubato_shard_driver_get(RubatoShardDriver *driver, const RubatoKeys *keys,
                                        void *values);

/* Applies the deltas of a worker by the update rule. False: there was not enough memory. */
RUBATO_API bool rubato_shard_driver_add(RubatoShardDriver *driver, uint32_t worker,
                                        const RubatoKeys *keys, const void *deltas);

/* As rubato_engine_set, _get_state, _set_state and _reset. False: there was not enough memory. */
RUBATO_API bool rubato_shard_driver_set(RubatoShardDriver *driver, const RubatoKeys *keys,
                                        const void *values);
RUBATO_API bool rubato_shard_driver_get_state(RubatoShardDriver *driver, const RubatoKeys *keys,
                                              void *states);
RUBATO_API bool rubato_shard_driver_set_state(RubatoShardDriver *driver, const RubatoKeys *keys,
                                              const void *states);
RUBATO_API void rubato_shard_driver_reset(RubatoShardDriver *driver, const RubatoKeys *keys);

/* As rubato_engine_tune. */
RUBATO_API bool rubato_shard_driver_tune(RubatoShardDriver *driver, RubatoHyper hyper, double value,
                                         GError **error);

/* The bad deltas that were counted for a worker. */
RUBATO_API RubatoBadGradients rubato_shard_driver_bad_gradients(const RubatoShardDriver *driver,
                                                                uint32_t worker);

/* What the shard is made of. The driver owns it. (transfer none) */
RUBATO_API RubatoStorage *rubato_shard_driver_storage(RubatoShardDriver *driver);
RUBATO_API const RubatoInit *rubato_shard_driver_init(const RubatoShardDriver *driver);
RUBATO_API const RubatoUpdateOps *rubato_shard_driver_update_ops(const RubatoShardDriver *driver);
RUBATO_API const RubatoUpdate *rubato_shard_driver_update(const RubatoShardDriver *driver);

G_END_DECLS

#endif
