/* A shard: one server's part of a table — a storage, an update rule and an initialiser, put together
 * from the table's spec. It answers and applies at once; when is the model's business.
 *
 * Calls take what a request carries: any of the three forms of RubatoKeys, and a flat array of rows
 * that is aligned for the table's dtype.
 *
 * Threads: the shard's present owner, one thread at a time. */
#ifndef RUBATO_MODELS_SHARD_H
#define RUBATO_MODELS_SHARD_H

#include <rubato/request.h>
#include <rubato/table.h>

typedef struct RubatoShard RubatoShard;

/* Creates the part that one server holds of a table. spec has passed spec_check and outlives the
 * shard. Dense storage: the shard's keys are first_key .. first_key + n_keys - 1, and n_keys may be
 * 0; hash storage ignores both. NULL with RUBATO_ERROR_MEMORY where the rows do not fit.
 * (transfer full) */
RubatoShard *shard_new(const RubatoTableSpec *spec, RubatoKey first_key, uint64_t n_keys,
                       GError **error);
void shard_free(RubatoShard *shard);

/* Whether the shard holds every one of the keys: what came over the wire is asked this first, the
 * other calls take it for granted. */
bool shard_keys_ok(const RubatoShard *shard, const RubatoKeys *keys);

/* Reads rows. An absent one has its initial values; it is created only if the table says so. */
void shard_get(RubatoShard *shard, const RubatoKeys *keys, void *values);

/* Applies deltas by the table's update rule; those of a repeated key one after the other. */
void shard_add(RubatoShard *shard, const RubatoKeys *keys, const void *deltas);

/* Whether the keys of its rows can be listed. */
bool shard_can_list(const RubatoShard *shard);

/* Where they can: writes the keys of n rows from the first-th on, of which there are so many, in an order that stays
 * the same until the next Add. */
void shard_list(const RubatoShard *shard, uint64_t first, size_t n, RubatoKey *keys);

/* Bytes of a row: width × the size of the dtype. */
size_t shard_row_bytes(const RubatoShard *shard);

/* How many rows there are, and how many bytes they take in all. */
void shard_size(const RubatoShard *shard, uint64_t *n_rows, uint64_t *n_bytes);

#endif
