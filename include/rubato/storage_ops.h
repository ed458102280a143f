/* What a storage implements: the rows of one shard, found by key.
 *
 * A storage knows neither workers nor clocks nor what an Add means: it turns keys into pointers to
 * rows. A new one is a file models/storage/<name>.c that ends in its constant RubatoStorageOps, and
 * a line in the array of models/storage/storage.c.
 *
 * Threads: every op is called by the shard's present owner, one thread at a time; none may
 * block. */
#ifndef RUBATO_STORAGE_OPS_H
#define RUBATO_STORAGE_OPS_H

#include <rubato/table.h>

G_BEGIN_DECLS

typedef struct RubatoStorageOps RubatoStorageOps;
typedef struct RubatoInit RubatoInit;

/* The base of every storage: the first member of its struct. */
typedef struct {
    const RubatoStorageOps *ops;
} RubatoStorage;

typedef struct {
    const RubatoTableSpec *spec; /* valid only during create */
    RubatoKey first_key;         /* dense: the shard's keys first_key .. first_key + n_keys - 1 */
    uint64_t n_keys;
    size_t row_bytes;       /* of a row's values and the update rule's state behind them */
    const RubatoInit *init; /* outlives the storage */
    uint64_t hash_seed;     /* of the table, random: what is hashed by it meets by chance alone */
} RubatoStorageSetup;

/* Writes the initial values of a key's row, and the state behind them. */
RUBATO_API void rubato_init_row(const RubatoInit *init, RubatoKey key, void *row);

/* The same for the rows of n consecutive keys. */
RUBATO_API void rubato_init_run(const RubatoInit *init, RubatoKey first, uint64_t n, void *rows);

/* Whether all of this is zero for every key, so that fresh pages will do. */
RUBATO_API bool rubato_init_is_zero(const RubatoInit *init);

struct RubatoStorageOps {
    const char *name;

    /* It holds the rows of a range of keys, the shard's, all of them from the start; otherwise rows
     * of any keys, which come and go. */
    bool holds_range;

    /* Whether a table may have this storage; the error says what to write instead. May be NULL. */
    bool (*check)(const RubatoTableSpec *spec, GError **error);

    /* (transfer full) NULL with RUBATO_ERROR_MEMORY where the rows do not fit. */
    RubatoStorage *(*create)(const RubatoStorageSetup *setup, GError **error);
    void (*destroy)(RubatoStorage *storage);

    /* Points rows[i] at the row of keys[i], at NULL where it is absent. n is at most
     * RUBATO_STORAGE_BLOCK. The pointers hold until the next call of find_or_create. */
    void (*find)(RubatoStorage *storage, const RubatoKey *keys, size_t n, void **rows);

    /* The same, creating what is absent with its initial values. The pointers hold until the next
     * call of it. False where there is no memory for a row: what was there before still is, and
     * some of the absent rows may have been made. */
    bool (*find_or_create)(RubatoStorage *storage, const RubatoKey *keys, size_t n, void **rows);

    /* The rows of n consecutive keys, where they lie one after the other in memory; NULL where
     * they do not. A storage that so gives out the whole of its shard's range never moves it: the
     * shard then goes by this pointer alone, and both find ops may be NULL. */
    void *(*run)(RubatoStorage *storage, RubatoKey first, size_t n);

    /* Writes the keys of n rows, at least one, from the first-th on; there are so many. Any order
     * will do that stays the same until the next row is made. May be NULL: the keys of such a table
     * cannot be listed, unless it is "dense". */
    void (*list)(const RubatoStorage *storage, uint64_t first, size_t n, RubatoKey *keys);

    /* How many rows there are, and how many bytes the storage takes in all. */
    void (*size)(const RubatoStorage *storage, uint64_t *n_rows, uint64_t *n_bytes);
};

/* The most keys that one call of find or find_or_create gets. */
#define RUBATO_STORAGE_BLOCK 256

G_END_DECLS

#endif
