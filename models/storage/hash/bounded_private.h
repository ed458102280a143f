/* The inside of hash storage that forgets rows: what bounded.c, which evicts them, and
 * bounded_sweep.c, which removes those that have expired, share.
 *
 * Threads: the shard's present owner. */
#ifndef RUBATO_MODELS_STORAGE_HASH_BOUNDED_PRIVATE_H
#define RUBATO_MODELS_STORAGE_HASH_BOUNDED_PRIVATE_H

#include "models/storage/bounded.h"
#include "models/storage/eviction/eviction.h"
#include "models/storage/hash/hash_private.h"

#define BOUNDED_NO_NUMBER UINT32_MAX

typedef struct {
    HashStorage hash;

    /* immutable */
    const EvictionOps *eviction;
    uint64_t max_bytes; /* without the row of key 0 */
    size_t mark_offset; /* in a cell */
    uint32_t time_shift;

    StorageUses uses;
    uint32_t free_number; /* the first of the list */
    bool is_grown;        /* no segment of the full size may split any more */
} BoundedStorage;

static inline void bounded_give_number(BoundedStorage *bounded, uint32_t number)
{
    memcpy(hash_slab_row(&bounded->hash, number), &bounded->free_number,
           sizeof bounded->free_number);
    bounded->free_number = number;
}

/* The cell's row is no longer there. The caller removes the key. */
static inline void bounded_forget_row(BoundedStorage *bounded, const unsigned char *cell)
{
    uint32_t number;

    if (!bounded->hash.is_inline) {
        memcpy(&number, cell, sizeof number);
        bounded_give_number(bounded, number);
    }
    bounded->hash.n_rows--;
}

/* Ops. */
size_t bounded_erase(RubatoStorage *storage, const RubatoKey *keys, size_t n);
bool bounded_sweep(RubatoStorage *storage, StorageCursor *at,
                   bool (*expires)(void *user, RubatoKey key, const void *row), void *user,
                   uint64_t *n_removed);

#endif
