/* What a storage has to offer beyond RubatoStorageOps, if a table's max_bytes may bound it, or its
 * rows may expire.
 *
 * Threads: the shard's present owner. */
#ifndef RUBATO_MODELS_STORAGE_BOUNDED_H
#define RUBATO_MODELS_STORAGE_BOUNDED_H

#include <rubato/storage_ops.h>

typedef struct {
    uint64_t n_uses; /* of rows: the time of marks */
    uint64_t n_evicted;
    uint64_t n_expired; /* rows that were removed for it */
    uint64_t time;      /* of the table, by which rows expire; below 2^32 */
} StorageUses;

/* How far rows have been looked through. All zero at the start. */
typedef struct {
    uint64_t place;
    size_t n_bytes;
} StorageCursor;

typedef struct {
    /* Its size never says more bytes than max_bytes, if that is not 0. find_or_create evicts rows
     * instead, and never those of the same call; it fails only if the machine has no memory for the
     * very first rows. */
    RubatoStorageOps base;

    /* The least max_bytes that a shard of the table can have, whose rows have that many bytes with
     * their state. */
    uint64_t (*least_bytes)(const RubatoTableSpec *spec, size_t row_bytes);

    /* The counts of the whole storage. */
    StorageUses *(*uses)(RubatoStorage *storage);

    /* Finds the marks of rows, which decide when they are evicted; NULL for rows without one. A
     * mark may not be aligned. The pointers are valid until the next call of find_or_create. */
    void (*find_marks)(RubatoStorage *storage, const RubatoKey *keys, size_t n, void **marks);

    /* Says how much a row is worth now, for an order of eviction that goes by it. Called before the
     * first row is made. user outlives the storage. */
    void (*set_score)(RubatoStorage *storage, double (*score)(const void *user, const void *row),
                      const void *user);

    /* From now on calls `evicted` for each row that is evicted. user outlives the storage. */
    void (*set_evicted)(RubatoStorage *storage, void (*evicted)(void *user, RubatoKey key),
                        void *user);

    /* Somebody else says from now on which rows leave: for each row that is made, `leaves` is
     * called first, until it is false. The storage evicts none by itself, and makes rows beyond its
     * bound if it must; without memory find_or_create fails. NULL: it evicts again. user outlives
     * the storage. */
    void (*set_leaves)(RubatoStorage *storage, bool (*leaves)(void *user, RubatoKey *key),
                       void *user);

    /* How many rows have been made, without those of key 0. */
    uint64_t (*n_made)(const RubatoStorage *storage);

    /* Removes the rows of these keys that are there. Returns how many. Pointers to other rows are
     * no longer valid. */
    size_t (*erase)(RubatoStorage *storage, const RubatoKey *keys, size_t n);

    /* Looks at up to *n_looks rows from *at on, or at those of the first bucket if these are more,
     * and removes those of which `expires` says so; adds their number to *n_removed. *n_looks
     * becomes how many it has looked at, perhaps none, and *at where the next call goes on. False:
     * it was the end, and *at is the start again. Memory that is no longer needed is freed on the
     * way. A row that is made, or moves, between two calls may be left out or be seen twice. */
    bool (*sweep)(RubatoStorage *storage, StorageCursor *at, uint32_t *n_looks,
                  bool (*expires)(void *user, RubatoKey key, const void *row), void *user,
                  uint64_t *n_removed);
} BoundedStorageOps;

/* The one of the storage with that name; NULL: it cannot be bounded. */
const BoundedStorageOps *storage_find_bounded(const char *name);

#endif
