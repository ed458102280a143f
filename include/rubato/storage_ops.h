/* What a storage implements: the rows of one shard, found by key.
 *
 * A storage turns keys into pointers to rows. It knows nothing of workers, clocks, or what an Add
 * means. A program, or a plug-in file, registers one of its own: plugin.h. A built-in one is a file
 * models/storage/<name>.c that ends in its constant RubatoStorageOps, and a line in the array of
 * models/storage/storage.c.
 *
 * Threads: the shard's present owner calls the ops, one thread at a time. None may block. */
#ifndef RUBATO_STORAGE_OPS_H
#define RUBATO_STORAGE_OPS_H

#include <rubato/admission_ops.h>

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
    size_t row_bytes;       /* of a row's values and the update rule's state after them */
    const RubatoInit *init; /* outlives the storage */
    uint64_t hash_seed;     /* random, the same for the whole table: with it nobody can choose keys
                             * whose hashes collide */
} RubatoStorageSetup;

/* Writes the initial values of a key's row, and the state after them. */
RUBATO_API void rubato_init_row(const RubatoInit *init, RubatoKey key, void *row);

/* The same for the rows of n consecutive keys. */
RUBATO_API void rubato_init_run(const RubatoInit *init, RubatoKey first, uint64_t n, void *rows);

/* Whether the initial values and state of every key are zero. Then zeroed memory needs no
 * rubato_init_row. */
RUBATO_API bool rubato_init_is_zero(const RubatoInit *init);

struct RubatoStorageOps {
    const char *name;

    /* True: it holds all rows of the shard's range of keys from the start. False: it holds rows of
     * any keys, and creates them on demand. */
    bool holds_range;

    /* Whether a table with this spec may have this storage; the error says what to write instead.
     * May be NULL. */
    bool (*check)(const RubatoTableSpec *spec, GError **error);

    /* Makes a storage. The caller fills in the base after create has returned. NULL with
     * RUBATO_ERROR_MEMORY if the rows do not fit into memory. (transfer full) */
    RubatoStorage *(*create)(const RubatoStorageSetup *setup, GError **error);
    void (*destroy)(RubatoStorage *storage);

    /* Sets rows[i] to the row of keys[i], or to NULL if it is absent. n is at most
     * RUBATO_STORAGE_BLOCK. The pointers are valid until the next call of find_or_create. */
    void (*find)(RubatoStorage *storage, const RubatoKey *keys, size_t n, void **rows);

    /* The same, but absent rows are created with their initial values. The pointers are valid until
     * the next call. False if there is no memory for a row: rows that were there are unharmed, and
     * some of the absent rows may have been created. */
    bool (*find_or_create)(RubatoStorage *storage, const RubatoKey *keys, size_t n, void **rows);

    /* The same for an Add of a table that does not admit all keys: the row of an absent key is
     * created only if rubato_admission_admits says so for its position, and is NULL otherwise. A
     * key that is created for one position is there for those behind it. May be NULL: then tables
     * cannot have `admit`. */
    bool (*find_or_admit)(RubatoStorage *storage, RubatoAdmission *admission, const RubatoKey *keys,
                          size_t n, void **rows);

    /* Whether each row stays where it is for as long as the storage lives. Then an Add may use the
     * pointers that a Get has found, however many rows were created meanwhile. May be NULL: no. */
    bool (*rows_stay)(const RubatoStorage *storage);

    /* The rows of n consecutive keys, if they are consecutive in memory; else NULL. A storage that
     * returns its shard's whole range like this must never move it: the shard then uses only this
     * pointer, and both find ops may be NULL. */
    void *(*run)(RubatoStorage *storage, RubatoKey first, size_t n);

    /* Writes the keys of n rows, from row number `first` on, counted from 0. n is at least 1, and
     * these rows exist. The rows may be in any order that stays the same until the next row is
     * created. May be NULL: then the keys of a table cannot be listed and its parts cannot be
     * moved, unless the storage holds a range. */
    void (*list)(const RubatoStorage *storage, uint64_t first, size_t n, RubatoKey *keys);

    /* For snapshots of a table while rows are created. Each key has a place, which never changes.
     * The first op tells it. The second appends to `keys` (of RubatoKey), in any order, the keys of
     * all rows from *place up to some higher place: some thousand, perhaps none. *place becomes
     * that place. False: there are no rows behind, and *place is above all of them. Both may be
     * NULL: then Adds wait while a snapshot is written, unless the storage holds a range. */
    uint64_t (*place_of)(const RubatoStorage *storage, RubatoKey key);
    bool (*walk)(const RubatoStorage *storage, uint64_t *place, GArray *keys);

    /* How many rows there are, and how many bytes the storage takes in all. */
    void (*size)(const RubatoStorage *storage, uint64_t *n_rows, uint64_t *n_bytes);
};

/* The most keys that one call of find or find_or_create gets. */
#define RUBATO_STORAGE_BLOCK 256

G_END_DECLS

#endif
