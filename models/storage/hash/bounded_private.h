/* The inside of hash storage that forgets rows: what these files share.
 *
 *   bounded.c        new rows, and eviction
 *   bounded_slabs.c  which rows of slabs are free
 *   bounded_sweep.c  removing rows
 *
 * Threads: the shard's present owner. */
#ifndef RUBATO_MODELS_STORAGE_HASH_BOUNDED_PRIVATE_H
#define RUBATO_MODELS_STORAGE_HASH_BOUNDED_PRIVATE_H

#include "models/storage/bounded.h"
#include "models/storage/eviction/eviction.h"
#include "models/storage/hash/hash_private.h"

#define BOUNDED_NO_NUMBER UINT32_MAX

/* A slab: which of its rows are free. */
typedef struct {
    uint32_t first; /* number of a free row; each begins with the next one's */
    uint32_t n_free;
    uint32_t next, before; /* slabs in the same list */
} BoundedSlab;

typedef struct {
    HashStorage hash;

    /* immutable */
    const EvictionOps *eviction;
    double (*score)(const void *user, const void *row); /* NULL: marks decide */
    const void *score_user;
    void (*evicted)(void *user, RubatoKey key); /* NULL: nobody is told */
    void *evicted_user;
    bool (*leaves)(void *user, RubatoKey *key); /* NULL: it evicts by itself */
    void *leaves_user;
    uint64_t max_bytes; /* without the row of key 0 */
    size_t mark_offset; /* in a cell */
    uint32_t time_shift;
    uint32_t full_size_bits; /* of segments */
    bool replaces_in_full;   /* rows lie in the cells, and marks alone say which one goes */

    StorageUses uses;
    uint64_t n_made;    /* rows */
    bool is_grown;      /* no segment of the full size may split, as long as none merge */
    uint64_t full_rows; /* if it is grown: from so many rows on a key seldom finds room */

    /* of rows in slabs: see bounded_slabs.c */
    BoundedSlab *slabs; /* as many as the storage has */
    uint32_t n_slabs;
    uint32_t first_free;  /* the slabs with free rows; BOUNDED_NO_NUMBER: there is none */
    uint32_t first_empty; /* those without memory */
} BoundedStorage;

/* A number for a row of a slab that has free ones. BOUNDED_NO_NUMBER: none has. */
uint32_t bounded_take_free(BoundedStorage *bounded);

/* A number for a row of a new slab, or one that has had its memory taken. BOUNDED_NO_NUMBER: there
 * is no memory, or max_bytes has no room. */
uint32_t bounded_take_new(BoundedStorage *bounded, uint64_t reserve);

void bounded_give_number(BoundedStorage *bounded, uint32_t number);

/* Looks at some slabs from number `from` on, and gives the memory of those whose rows are all free
 * to the pool. Returns where to go on; BOUNDED_NO_NUMBER: it was the end. */
uint32_t bounded_release_slabs(BoundedStorage *bounded, uint32_t from);

/* Whether max_bytes has room for so many more bytes. */
bool bounded_has_room_for(const BoundedStorage *bounded, uint64_t n_bytes);

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
bool bounded_sweep(RubatoStorage *storage, StorageCursor *at, uint32_t *n_looks,
                   bool (*expires)(void *user, RubatoKey key, const void *row), void *user,
                   uint64_t *n_removed);

#endif
