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
#include <rubato/table.h>

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

/* What a request asks, by its subject: a Get of ROWS, STATE, KEYS or BAD_GRADIENTS, an Add of any
 * but the last two. */
void shard_read(RubatoShard *shard, const RubatoRequest *request);
void shard_write(RubatoShard *shard, const RubatoRequest *request);

/* Bytes that belong to each key of a request. */
size_t shard_subject_bytes(const RubatoShard *shard, RubatoSubject subject);

/* Whether keys and value make sense as those of a RUBATO_SUBJECT_HYPER. */
bool shard_hyper_ok(const RubatoShard *shard, const RubatoKeys *keys, const void *value);

/* How much the shard has of what is asked for by number: of RUBATO_SUBJECT_KEYS rows, of
 * RUBATO_SUBJECT_BAD_GRADIENTS counts. */
uint64_t shard_n_listed(const RubatoShard *shard, RubatoSubject subject);

/* Whether keys are a run of such numbers that the shard has. */
bool shard_numbers_ok(const RubatoShard *shard, RubatoSubject subject, const RubatoKeys *keys);

/* Where the shard says from now on, by true, that a request could not be done for want of memory,
 * or not in whole. The rows that were there before hold what they held, or what the request did to
 * them; of those that it asked for, some may have been made, others not. */
void shard_set_alarm(RubatoShard *shard, bool *alarm);
void shard_starve(RubatoShard *shard); /* says so */

/* The seed of what is hashed by key. */
uint64_t shard_hash_seed(const RubatoShard *shard);

/* Bytes of a row: width × the size of the dtype. */
size_t shard_row_bytes(const RubatoShard *shard);

/* About how many values a row takes the time of: 1 at least. */
size_t shard_n_values(const RubatoShard *shard);

/* How many rows there are, and how many bytes they take in all. */
void shard_size(const RubatoShard *shard, uint64_t *n_rows, uint64_t *n_bytes);

#endif
