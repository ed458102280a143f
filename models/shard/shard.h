/* A shard: one server's part of a table — a storage, an update rule and an initialiser, as the
 * table's spec says. It answers and applies at once; the model decides when to call it.
 *
 * Calls take keys in any of the three forms of RubatoKeys, and a flat array of rows that is aligned
 * for the table's dtype.
 *
 * Threads: the shard's present owner, one thread at a time. */
#ifndef RUBATO_MODELS_SHARD_SHARD_H
#define RUBATO_MODELS_SHARD_SHARD_H

#include <rubato/request.h>

#include <rubato/expiry_ops.h>

#include "models/storage/bounded.h"
#include "models/update/bad_gradients.h"

typedef struct RubatoShard RubatoShard;

/* Creates the part that one server holds of a table. spec has passed spec_check and outlives the
 * shard. Dense storage: the shard's keys are first_key .. first_key + n_keys - 1, and n_keys may be
 * 0; hash storage ignores both. Hashes of keys use the seed, which is random for each table. NULL
 * with RUBATO_ERROR_MEMORY if there is no memory for the rows. (transfer full) */
RubatoShard *shard_new_seeded(const RubatoTableSpec *spec, RubatoKey first_key, uint64_t n_keys,
                              uint64_t hash_seed, GError **error);

/* The same with a fixed, public seed. */
static inline RubatoShard *shard_new(const RubatoTableSpec *spec, RubatoKey first_key,
                                     uint64_t n_keys, GError **error)
{
    return shard_new_seeded(spec, first_key, n_keys, 0, error);
}

void shard_free(RubatoShard *shard);

/* The shard's range of keys. */
void shard_range(const RubatoShard *shard, RubatoKey *first_key, uint64_t *n_keys);

/* Whether the shard holds all of the keys. Requests of other nodes are checked by this first; the
 * other calls do not check again. */
bool shard_keys_ok(const RubatoShard *shard, const RubatoKeys *keys);

/* Reads rows. An absent one has its initial values; it is created only if the table says so. */
void shard_get(RubatoShard *shard, const RubatoKeys *keys, void *values);

/* The same rows where they lie, if they lie together with nothing between them; else NULL. */
const void *shard_find_run(const RubatoShard *shard, const RubatoKeys *keys);

/* Where the row of the first key is, if those of all keys follow it, `stride` bytes from one to the
 * next; else NULL. */
void *shard_memory(const RubatoShard *shard, size_t *stride);

/* Applies deltas by the table's update rule; those of a repeated key one after the other. The first
 * function counts bad deltas for a worker, the second for no worker. */
void shard_add_by(RubatoShard *shard, uint32_t worker, const RubatoKeys *keys, const void *deltas);
void shard_add(RubatoShard *shard, const RubatoKeys *keys, const void *deltas);

/* shard_accepts: whether to apply a row of a worker's deltas: it is good, or the table does not
 * refuse bad rows. Counts a bad row. The second function is true if n rows are all good; it counts
 * nothing. The third applies the rule to n accepted rows of deltas of different keys, the fourth to
 * those of these whose mark is not SHARD_LEFT_OUT; without marks to all. The keys are no
 * selection. */
bool shard_accepts(RubatoShard *shard, uint32_t worker, const void *deltas);
bool shard_accepts_all(const RubatoShard *shard, const void *deltas, size_t n);
void shard_add_accepted(RubatoShard *shard, const RubatoKey *keys, size_t n, const void *deltas);
void shard_add_unmarked(RubatoShard *shard, const RubatoKeys *keys, const void *deltas,
                        const uint8_t *marks);
#define SHARD_LEFT_OUT UINT8_MAX

/* Gives a hyper-parameter of the update rule another number. The second function returns whether it
 * may have that number. */
void shard_tune(RubatoShard *shard, const RubatoTuning *tuning);
bool shard_tuning_ok(const RubatoShard *shard, const RubatoTuning *tuning);

/* Without the update rule: sets rows to these values with the state of new rows; resets existing
 * rows to their initial values; reads and writes the rule's state beside each row, and when it was
 * written if rows expire. One that has expired reads as a new row that was written when it was. */
void shard_set(RubatoShard *shard, const RubatoKeys *keys, const void *values);
void shard_reset(RubatoShard *shard, const RubatoKeys *keys);
void shard_get_state(RubatoShard *shard, const RubatoKeys *keys, void *states);
void shard_set_state(RubatoShard *shard, const RubatoKeys *keys, const void *states);

/* The keys of n rows from row number `first` on. These rows must exist, and the shard must be able
 * to list them. The order stays the same until a row is created. */
bool shard_can_list(const RubatoShard *shard);
void shard_list(const RubatoShard *shard, uint64_t first, size_t n, RubatoKey *keys);

/* Of keys, keeps those that have rows, in their order. Returns how many these are. */
size_t shard_leave_out_absent(RubatoShard *shard, RubatoKey *keys, size_t n);

/* Whether a hyper-parameter has another number than the spec says, and which. */
bool shard_tuned(const RubatoShard *shard, RubatoHyper hyper, double *value);

/* Replaces n counts of bad deltas, from number `first` on. */
void shard_set_bad_gradients(RubatoShard *shard, uint32_t first, uint32_t n,
                             const BadCounts *counts);

/* The bad deltas that were counted: a list of BadCounts. */
const BadGradients *shard_bad_gradients(const RubatoShard *shard);

/* What decides which rows a shard with max_bytes evicts, and when the rows of a shard expire: a
 * mark for each row, and what counts for the whole shard. Another shard that gets them, and the
 * rows with their state, evicts by the same order. Marks of absent rows are ignored. */
bool shard_is_bounded(const RubatoShard *shard);
void shard_get_marks(RubatoShard *shard, const RubatoKeys *keys, uint32_t *marks);
void shard_set_marks(RubatoShard *shard, const RubatoKeys *keys, const uint32_t *marks);
StorageUses shard_uses(const RubatoShard *shard); /* all 0 if it is not bounded */
void shard_set_uses(RubatoShard *shard, const StorageUses *uses);

/* Removes the rows of these keys that are there, of a shard that is bounded. */
void shard_remove(RubatoShard *shard, const RubatoKeys *keys);

/* Of a table whose rows expire, and whose time is counted in that unit. The others of these calls
 * are for such tables alone. */
bool shard_counts(const RubatoShard *shard, RubatoTimeUnit unit);

/* So much time has passed; or it is that time now. It never goes back, and ends at 2^32 - 1. */
void shard_pass_time(RubatoShard *shard, uint64_t n);
void shard_reach_time(RubatoShard *shard, uint64_t time);

/* Removes expired rows: looks at up to *n_looks rows, or at some if that is less than ten. *n_looks
 * becomes how many it has looked at. False: nothing more is to be done until time has passed. Rows
 * are listed in another order afterwards. */
bool shard_sweep(RubatoShard *shard, uint32_t *n_looks);

/* Sweeps remove nothing until they are released, so that rows can be listed in slices. */
void shard_hold_sweeps(RubatoShard *shard);
void shard_release_sweeps(RubatoShard *shard);

/* Of a table that does not admit all keys: how many rows Adds have made, and how many of their rows
 * were left out. All 0 for another table. */
typedef struct {
    uint64_t n_admitted, n_refused;
} ShardAdmissions;

ShardAdmissions shard_admissions(const RubatoShard *shard);

/* What it answers from, with these counts and its seed, as words: for a part that moves, and for
 * snapshots. They are set from the first one on. 0 words: it admits all keys. */
size_t shard_n_admission_words(const RubatoShard *shard);
void shard_get_admission(const RubatoShard *shard, size_t first, size_t n, uint64_t *words);
void shard_set_admission(RubatoShard *shard, size_t first, size_t n, const uint64_t *words);

/* Whether it is known which of these words a request changes. */
bool shard_knows_admission_words(const RubatoShard *shard);

/* Some of these words of one of the parts that a table had. */
typedef struct {
    size_t n_all; /* that the part had */
    size_t first, n;
    const uint64_t *words;
    bool is_same; /* it had the keys of this part, and no others */
    bool counts;  /* its counts belong to this part */
} ShardAdmissionWords;

/* For a shard that gets such words of one part or of several: forgets its own; then adds them.
 * Those of the same part are taken as they are if they are as many. Else a key is counted at least
 * as many times as by any of them. False: these words mean nothing for another part. */
void shard_reset_admission(RubatoShard *shard);
bool shard_merge_admission(RubatoShard *shard, const ShardAdmissionWords *words);

/* From now on the shard sets *alarm to true when a request was not, or not wholly, done for lack of
 * memory. Rows that existed before have their old values, or those that the request gave them. Of
 * the rows that the request needed, some may have been created. */
void shard_set_alarm(RubatoShard *shard, bool *alarm);
void shard_starve(RubatoShard *shard); /* says so */

/* Where a shard is, for the handlers that run on it. All zero, as at first: nowhere. */
typedef struct {
    uint32_t table; /* its number; its name is in the spec */
    uint32_t part;  /* of its table */
    uint32_t node;  /* the id of its server's node */
    void *server;
    /* The same part of another table on that server; NULL: it is not there. *exists: whether the
     * server has any part of a table of that name. */
    RubatoShard *(*find_shard)(void *server, const char *table, uint32_t part, bool *exists);
    _Atomic(const char *) *running; /* names the handler that the server runs now */

    /* The stream of a history that has what handlers change in the table here; NULL: no history is
     * kept. And the ids of nodes, by number. */
    struct HistoryStream *(*find_stream)(void *server, uint32_t table, const RubatoTableSpec *spec);
    const uint32_t *node_ids;

    /* Called when the shard gets a worker's first delta that is infinite or not a number; worker
     * BAD_GRADIENTS_NO_WORKER: the engine's. NULL: nobody is told. */
    void (*say_no_number)(void *server, uint32_t table, const char *name, uint32_t worker);

    /* Gets the error text of a request whose sender no longer waits; the alarm is set, too, but of
     * a part with replicas. The first text stays until the server takes it. */
    char **complaint;
} ShardPlace;

void shard_set_place(RubatoShard *shard, const ShardPlace *place);
void shard_complain(RubatoShard *shard, const char *text);

/* The seed of hashes of keys. */
uint64_t shard_hash_seed(const RubatoShard *shard);

/* The spec of the shard. */
const RubatoTableSpec *shard_spec(const RubatoShard *shard);

/* Bytes of a row: width × the size of the dtype. */
size_t shard_row_bytes(const RubatoShard *shard);

/* A rough estimate of the time for a row, in values: at least 1. */
size_t shard_n_values(const RubatoShard *shard);

/* How many rows there are, and how many bytes they take in all. */
uint64_t shard_n_rows(const RubatoShard *shard);
void shard_size(const RubatoShard *shard, uint64_t *n_rows, uint64_t *n_bytes);

#endif
