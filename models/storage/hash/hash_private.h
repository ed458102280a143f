/* The inside of hash storage: what hash.c, which never removes a row, and bounded.c, which does,
 * share. See hash.c.
 *
 * Threads: the shard's present owner. */
#ifndef RUBATO_MODELS_STORAGE_HASH_HASH_PRIVATE_H
#define RUBATO_MODELS_STORAGE_HASH_HASH_PRIVATE_H

#include <rubato/storage_ops.h>
#include <string.h>

#include "models/storage/admission/admission.h"
#include "models/storage/hash/segment.h"

#define HASH_FIRST_ENTRY(depth) (UINT64_C(1) << (depth) >> 2) /* no key stands before it */
#define HASH_MAX_DEPTH 31u /* the bits of a hash that choose its place in the directory */

typedef struct HashStorage HashStorage;

/* Finds the cells of keys (for key 0 its row). False if one is absent; it is NULL then. */
typedef bool FindCells(const HashStorage *hash, const RubatoKey *keys, size_t n, void **cells);

struct HashStorage {
    RubatoStorage base;

    /* immutable */
    const RubatoInit *init;
    size_t row_bytes;
    size_t value_bytes; /* of a row, without the update rule's state */
    FindCells *find_cells;
    bool is_inline;     /* rows lie in the cells */
    uint32_t slab_bits; /* a slab has 2^slab_bits rows */

    /* what grows */
    Segment *directory; /* 2^depth; a segment of lesser depth has several entries */
    uint32_t depth;
    SegmentSource source;
    uint64_t n_rows;
    uint64_t n_bytes; /* besides those of the segments and slabs */
    SegmentPool pool; /* of slabs, if rows do not lie in the cells */
    unsigned char **slabs;
    uint32_t n_slabs;
    uint32_t n_slab_rows;
    void *row_of_empty_key; /* NULL: absent */

    bool has_unasked; /* rows that no admission was asked about */
    bool asks_first;  /* of the last call's keys, more than a third were refused */
};

static inline Segment *hash_segment_of(const HashStorage *hash, uint64_t h)
{
    return &hash->directory[segment_place(h) >> (64 - hash->depth)];
}

static inline void *hash_slab_row(const HashStorage *hash, uint32_t number)
{
    return hash->slabs[number >> hash->slab_bits] +
           (number & ((1u << hash->slab_bits) - 1)) * hash->row_bytes;
}

/* The row of a cell. An inline row begins the cell; else the number of the row does. */
static inline void *hash_row_of_cell(const HashStorage *hash, unsigned char *cell)
{
    uint32_t number;

    if (hash->is_inline)
        return cell;
    memcpy(&number, cell, sizeof(number));
    return hash_slab_row(hash, number);
}

/* Fills in a zeroed storage, whose cells have mark_bytes behind the row or its number. */
bool hash_storage_init(HashStorage *hash, const RubatoStorageSetup *setup, size_t mark_bytes,
                       size_t struct_bytes, GError **error);
void hash_storage_clear(HashStorage *hash);

/* Makes room for one more key of that hash; cells move. False if there is no memory. The second
 * function says how many bytes it takes at most, beyond those that the storage has. */
bool hash_make_room(HashStorage *hash, uint64_t h);
uint64_t hash_room_bytes(const HashStorage *hash, uint64_t h);

/* Of a storage whose keys have two homes: makes one segment of the one that has the place and its
 * neighbour, if both together are at most half full. False: nothing has changed. */
bool hash_merge(HashStorage *hash, uint64_t place);

/* Makes room in the slabs for the row with the next number. A new slab takes as many bytes as the
 * second function says. */
bool hash_ensure_slab_row(HashStorage *hash);
uint64_t hash_slab_bytes(const HashStorage *hash);

/* What a call that creates rows keeps. Its keys have been searched for, so what is absent is there
 * only if the call itself has made it since. Few keys come twice in a call. So the call keeps a
 * Bloom filter of a bit for each row that it makes, and searches again only where the filter does
 * not exclude it.
 *
 * A built-in admission is asked for all keys at once, before the first row is made: so it reads its
 * memory ahead, and no jump depends on an answer, which nobody can predict. Others are asked key by
 * key, since they might refuse a key that they have just admitted. */
typedef struct {
    RubatoAdmission *admission; /* NULL: all keys are admitted */
    bool moved;                 /* other rows have, for a new one */
    bool refused_last;          /* the key that was asked for last */
    bool has_chosen;            /* the admission, for all absent keys */
    size_t n_refused, n_absent;
    uint64_t made[32]; /* a bit of each hash */
    /* positions of the call's keys: those left out, and those whose rows are made, unless they are
     * there meanwhile, or the admission is asked and refuses */
    uint16_t refused[RUBATO_STORAGE_BLOCK], absent[RUBATO_STORAGE_BLOCK];
} HashCreation;

/* Finds the rows or cells of keys by `find`, sets those of the others to NULL, and says in
 * `creation` what is to be made. True: nothing is. What comes of it does not depend on whether the
 * admission is asked first; the last call's answers decide that. */
bool hash_find_some(HashStorage *hash, FindCells *find, RubatoAdmission *admission,
                    const RubatoKey *keys, size_t n, void **rows, HashCreation *creation);

/* The position of the k-th absent key. Keys of which an admission that is asked key by key fetches
 * what it reads, before it is asked for the first of them: enough to cover a miss. Where all of a
 * call's keys are fetched at once, the processor waits. */
#define HASH_ADMISSION_AHEAD 16u

static inline void hash_fetch_admission(const HashCreation *creation, const RubatoKey *keys,
                                        size_t k)
{
    void *const absent = NULL;

    if (creation->admission != NULL && !creation->has_chosen && k < creation->n_absent)
        rubato_admission_prefetch(creation->admission, &keys[creation->absent[k]], 1, &absent);
}

static inline size_t hash_take_absent(const HashCreation *creation, const RubatoKey *keys, size_t k)
{
    hash_fetch_admission(creation, keys, k + HASH_ADMISSION_AHEAD);
    return creation->absent[k];
}

/* Whether the call may have made a row with this hash. The second function says that it does. */
static inline bool hash_may_have_made(const HashCreation *creation, uint64_t h)
{
    return (creation->made[h >> 6 & 31] >> (h & 63) & 1) != 0;
}

static inline void hash_note_made(HashCreation *creation, uint64_t h)
{
    creation->made[h >> 6 & 31] |= UINT64_C(1) << (h & 63);
}

/* Whether the row of an absent key is made. */
static inline bool hash_admits(HashCreation *creation, RubatoKey key)
{
    creation->refused_last = creation->admission != NULL && !creation->has_chosen &&
                             !rubato_admission_admits(creation->admission, key);
    return !creation->refused_last;
}

/* The key was admitted, but another position has made its row meanwhile. */
static inline void hash_note_repeated(HashCreation *creation)
{
    if (creation->has_chosen)
        creation->admission->n_admitted--;
}

/* Whether the position has no row because its key, the last one, was refused. False: there was no
 * memory for it. */
static inline bool hash_leaves_out(HashCreation *creation, size_t position)
{
    if (creation->refused_last)
        creation->refused[creation->n_refused++] = (uint16_t)position;
    return creation->refused_last;
}

/* Rows of refused positions are NULL again after all rows were found once more: a later position
 * may have made them. */
void hash_leave_out_refused(const HashCreation *creation, void **rows);

void *hash_find_or_create_empty_key(HashStorage *hash, HashCreation *creation);

/* Ops. */
void hash_storage_find(RubatoStorage *storage, const RubatoKey *keys, size_t n, void **rows);
void *hash_storage_run(RubatoStorage *storage, RubatoKey first, size_t n);
void hash_storage_list(const RubatoStorage *storage, uint64_t first, size_t n, RubatoKey *keys);
bool hash_storage_walk(const RubatoStorage *storage, uint64_t *place, GArray *keys);
void hash_storage_size(const RubatoStorage *storage, uint64_t *n_rows, uint64_t *n_bytes);

#endif
