/* Who will use which key: what the workers of a SparseSSP task have told of unfinished iterations.
 *
 * Two kinds: "hash" for any keys, "dense" with an array over the shard's range. Both chain the uses
 * of a key and differ only in how they find the chain.
 *
 * Threads: the shard's present owner, one thread at a time. */
#ifndef RUBATO_MODELS_RECORD_H
#define RUBATO_MODELS_RECORD_H

#include <rubato/model_ops.h>

#include "models/key_hash.h"

typedef struct Record Record;

/* A worker uses a key in an iteration. */
typedef struct {
    RubatoKey key;
    uint64_t iteration;
    uint32_t worker;
    uint32_t next; /* in the chain; the record's own */
} RecordUse;

/* The kind's part: chains[chain_of(record, key)] is where a key's uses begin. */
typedef struct {
    const char *name;
    bool wants_range; /* only for a storage that holds a range of keys */

    /* Makes record->chains and record->n_chains; false with RUBATO_ERROR_MEMORY. */
    bool (*create)(Record *record, const RubatoModelSetup *setup, GError **error);

    size_t (*chain_of)(const Record *record, RubatoKey key);

    /* The record now holds n_uses: more chains, if the kind wants them. May be NULL. */
    void (*grow)(Record *record, uint32_t n_uses);
} RecordOps;

struct Record {
    const RecordOps *ops;
    RubatoKey first_key;
    uint64_t n_chains;
    KeyHash key_hash;
    uint32_t *chains; /* indices of uses, RECORD_END where there is none */

    RecordUse *uses;
    uint32_t n_uses;      /* in chains */
    uint32_t n_touched;   /* entries of `uses` that were ever in use */
    uint32_t n_allocated; /* entries of `uses` */
    uint32_t first_free;  /* chain of entries that are free again */
};

/* The most keys of one iteration: a run of any length can be told in a few bytes. */
#define RECORD_MAX_KEYS ((size_t)1 << 26)

#define RECORD_END 0u /* entry 0 of `uses` is never used, so that fresh pages are empty chains */

/* The kind of that name, NULL where there is none; and the i-th kind's name, NULL past the last. */
const RecordOps *record_find_ops(const char *name);
const char *record_name(size_t i);

/* NULL with RUBATO_ERROR_MEMORY. (transfer full) */
Record *record_new(const RecordOps *ops, const RubatoModelSetup *setup, GError **error);
void record_free(Record *record);

/* Enters that a worker uses the keys in an iteration. False, and nothing is entered, where they are
 * more than RECORD_MAX_KEYS or the memory is not there. */
bool record_add(Record *record, uint32_t worker, uint64_t iteration, const RubatoKeys *keys);

/* Takes the same out again. */
void record_remove(Record *record, uint32_t worker, uint64_t iteration, const RubatoKeys *keys);

/* A use of one of the keys in an iteration up to `last` by another worker than `reader`; NULL where
 * there is none. The pointer holds until the record changes. */
const RecordUse *record_find(const Record *record, const RubatoKeys *keys, uint64_t last,
                             uint32_t reader);

#endif
