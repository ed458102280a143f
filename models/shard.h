/* A shard: one server's part of a table — a storage, an update rule and an initialiser, put
 * together from the table's spec. It answers and applies at once; when is the model's business.
 *
 * Calls take what a request carries: any of the three forms of RubatoKeys, and a flat array of rows
 * that is aligned for the table's dtype.
 *
 * Threads: the shard's present owner, one thread at a time. */
#ifndef RUBATO_MODELS_SHARD_H
#define RUBATO_MODELS_SHARD_H

#include <rubato/request.h>

#include "models/update/bad_gradients.h"

typedef struct RubatoShard RubatoShard;

/* Creates the part that one server holds of a table. spec has passed spec_check and outlives the
 * shard. Dense storage: the shard's keys are first_key .. first_key + n_keys - 1, and n_keys may be
 * 0; hash storage ignores both. What is found by a hash of keys goes by the seed, which is random
 * for each table. NULL with RUBATO_ERROR_MEMORY where the rows do not fit. (transfer full) */
RubatoShard *shard_new_seeded(const RubatoTableSpec *spec, RubatoKey first_key, uint64_t n_keys,
                              uint64_t hash_seed, GError **error);

/* The same with a seed that everybody knows. */
static inline RubatoShard *shard_new(const RubatoTableSpec *spec, RubatoKey first_key,
                                     uint64_t n_keys, GError **error)
{
    return shard_new_seeded(spec, first_key, n_keys, 0, error);
}

void shard_free(RubatoShard *shard);

/* The range of keys that it was made for. */
void shard_range(const RubatoShard *shard, RubatoKey *first_key, uint64_t *n_keys);

/* Whether the shard holds every one of the keys: what came over the wire is asked this first, the
 * other calls take it for granted. */
bool shard_keys_ok(const RubatoShard *shard, const RubatoKeys *keys);

/* Reads rows. An absent one has its initial values; it is created only if the table says so. */
void shard_get(RubatoShard *shard, const RubatoKeys *keys, void *values);

/* Applies deltas by the table's update rule; those of a repeated key one after the other. The first
 * counts bad ones as a worker's, the second as nobody's. */
void shard_add_by(RubatoShard *shard, uint32_t worker, const RubatoKeys *keys, const void *deltas);
void shard_add(RubatoShard *shard, const RubatoKeys *keys, const void *deltas);

/* Whether a row of a worker's deltas is to be applied: it is good, or nobody refuses bad ones,
 * which are counted. And the rule on n rows of deltas of different keys, about which that was
 * asked. */
bool shard_accepts(RubatoShard *shard, uint32_t worker, const void *deltas);
void shard_add_accepted(RubatoShard *shard, const RubatoKey *keys, size_t n, const void *deltas);

/* Another number for a hyper-parameter of the update rule, and whether it may have that. */
void shard_tune(RubatoShard *shard, const RubatoTuning *tuning);
bool shard_tuning_ok(const RubatoShard *shard, const RubatoTuning *tuning);

/* Past the update rule: rows get these values and the state of fresh ones; rows that are there
 * become as they were made; what the rule keeps beside each row. */
void shard_set(RubatoShard *shard, const RubatoKeys *keys, const void *values);
void shard_reset(RubatoShard *shard, const RubatoKeys *keys);
void shard_get_state(RubatoShard *shard, const RubatoKeys *keys, void *states);
void shard_set_state(RubatoShard *shard, const RubatoKeys *keys, const void *states);

/* The keys of n rows, from the first-th on: there are so many, and the shard can list them. The
 * order stays the same until a row is made. */
bool shard_can_list(const RubatoShard *shard);
void shard_list(const RubatoShard *shard, uint64_t first, size_t n, RubatoKey *keys);

/* The bad deltas that were counted: a list of BadCounts. */
const BadGradients *shard_bad_gradients(const RubatoShard *shard);

/* Where the shard says from now on, by true, that a request could not be done for want of memory,
 * or not in whole. The rows that were there before hold what they held, or what the request did to
 * them; of those that it asked for, some may have been made, others not. */
void shard_set_alarm(RubatoShard *shard, bool *alarm);
void shard_starve(RubatoShard *shard); /* says so */

/* The seed of what is hashed by key. */
uint64_t shard_hash_seed(const RubatoShard *shard);

/* What the shard was made of. */
const RubatoTableSpec *shard_spec(const RubatoShard *shard);

/* Bytes of a row: width × the size of the dtype. */
size_t shard_row_bytes(const RubatoShard *shard);

/* About how many values a row takes the time of: 1 at least. */
size_t shard_n_values(const RubatoShard *shard);

/* How many rows there are, and how many bytes they take in all. */
uint64_t shard_n_rows(const RubatoShard *shard);
void shard_size(const RubatoShard *shard, uint64_t *n_rows, uint64_t *n_bytes);

#endif
