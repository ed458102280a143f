/* Several shards of one table in one pass over the keys: no cut of the keys for each of them.
 *
 * For dense shards, whose rows lie one behind the other in the order of their keys. Such shards are
 * parts of a table that is cut into ranges.
 *
 * Threads: one that owns all of these shards; joint_shards_…_read_beside also one that the owners'
 * gates let in. */
#ifndef RUBATO_MODELS_SHARD_JOINT_SHARDS_H
#define RUBATO_MODELS_SHARD_JOINT_SHARDS_H

#include <rubato/request.h>
#include <stdbool.h>
#include <stddef.h>

#include "io/row_places.h"

typedef struct RubatoShard RubatoShard;

#define JOINT_SHARDS_MOST 4u

/* Whether the calls below can read shards of such a table, or add to them. n_shards is at most
 * JOINT_SHARDS_MOST. Between two calls of an owner the answer may change: rows begin to be watched,
 * and a hyper-parameter may be told. */
bool joint_shards_can_get(RubatoShard *const *shards, size_t n_shards);
bool joint_shards_can_add(RubatoShard *const *shards, size_t n_shards);

/* As shard_get and shard_add_by. All keys are in the shards, which are consecutive parts in the
 * order of their keys. */
void joint_shards_get(RubatoShard *const *shards, size_t n_shards, const RubatoKey *keys, size_t n,
                      void *values);

/* The same beside an owner that changes rows, each by one atomic store. Rows have a single value of
 * 4 or 8 bytes, and nothing beside it. */
bool joint_shards_can_read_beside(RubatoShard *const *shards, size_t n_shards);
void joint_shards_read_beside(RubatoShard *const *shards, size_t n_shards, const RubatoKey *keys,
                              size_t n, void *values);

/* Where the rows are now. */
void joint_shards_find(RubatoShard *const *shards, size_t n_shards, RowPlaces *places);

void joint_shards_add(RubatoShard *const *shards, size_t n_shards, uint32_t worker,
                      const RubatoKey *keys, size_t n, const void *deltas);

#endif
