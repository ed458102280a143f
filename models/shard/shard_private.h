/* The inside of a shard: what shard.c and shard_state.c share.
 *
 * Threads: the shard's present owner, one thread at a time. */
#ifndef RUBATO_MODELS_SHARD_SHARD_PRIVATE_H
#define RUBATO_MODELS_SHARD_SHARD_PRIVATE_H

#include <assert.h>
#include <string.h>

#include "models/init.h"
#include "models/keys.h"
#include "models/ragged/ragged_heap.h"
#include "models/shard/found_rows.h"
#include "models/shard/image_private.h"
#include "models/shard/shard.h"
#include "models/shard/shard_roles.h"
#include "models/storage/admission/admission.h"
#include "models/storage/expiry/expiry.h"
#include "models/update/updater.h"

#define BLOCK RUBATO_STORAGE_BLOCK

typedef struct ShardLeaving ShardLeaving;   /* shard_roles.c */
typedef struct ShardAhead ShardAhead;       /* shard_ahead.c */
typedef struct ShardMade ShardMade;         /* shard_made.c */
typedef struct ShardFailures ShardFailures; /* shard_failures.c */

struct RubatoShard {
    /* immutable */
    const RubatoTableSpec *spec;
    size_t row_bytes; /* of a row's values */
    size_t stride;    /* the same with its state and its stamp: from one row to the next */
    uint64_t hash_seed;
    bool create_on_get;
    bool is_dense;
    RubatoKey first_key;
    uint64_t n_keys;
    const RubatoStorageOps *ops;
    const BoundedStorageOps *bounded; /* NULL: the storage has no bound, and rows stay */
    const RubatoExpiryOps *expiry;    /* NULL: rows do not expire */
    RubatoInit init;
    RubatoAdmission *admission; /* NULL: every Add makes its rows */
    uint64_t admission_seed;    /* that of the table, or of the table that it was restored from */
    void *refused_rows;         /* take the deltas of keys that were not admitted */
    size_t n_refused_rows;      /* a power of two */
    bool rows_stay;             /* each where it is */
    unsigned char *rows; /* the row of first_key, followed by all others; NULL: ask the storage */

    Updater updater;
    RubatoStorage *storage;
    FoundRows found;    /* if rows stay */
    RaggedHeap *ragged; /* of a table whose rows have different lengths: the storage has a RaggedRow
                         * for each key; else NULL */
    ShardImage *image;  /* NULL: none is being read */
    ShardChanges *changes;    /* NULL: nobody asks which rows change */
    ShardAhead *ahead;        /* NULL: no rows are sent ahead of a move */
    bool is_watched;          /* there is one of the three */
    uint64_t n_ragged_writes; /* to rows of different lengths, that have run; if there is a
                               * history */

    /* of a table whose rows expire */
    StorageUses *uses;   /* the storage's; NULL: rows do not expire */
    StorageCursor swept; /* where the present sweep is */
    uint64_t swept_at;   /* the time when the last one began */
    bool is_sweeping;
    bool holds_sweeps; /* the rows are read in slices */

    /* of a part with replicas: shard_roles.h */
    ShardRole role;
    ShardLeaving *leaving; /* NULL: no row is evicted of which another shard is told */
    GArray *wanted;        /* of RubatoKey: absent rows that Gets would create, if it leads;
                            * NULL: no Get is to create any */
    ShardMade *made; /* of which rows another shard is told, or is to make; NULL: all that it can */
    bool by_place;   /* in the present input rows are made by shard_find_by_place */
    ShardFailures *failures; /* of rows of different lengths: of which failures another shard is
                              * told, or is told itself; NULL: of none */

    bool *alarm; /* set when a request fails for lack of memory */
    bool own_alarm;
    ShardPlace place;
};

/* Makes the admission of the shard's table, if it has one. */
bool shard_make_admission(RubatoShard *shard, GError **error);
uint64_t shard_admission_bytes(const RubatoShard *shard);

static inline unsigned char *shard_dense_row(const RubatoShard *shard, RubatoKey key)
{
    assert(key - shard->first_key < shard->n_keys);
    return shard->rows + (key - shard->first_key) * shard->stride;
}

/* Copies one row. A constant size is copied by one instruction. */
static inline void shard_copy_row(unsigned char *to, const unsigned char *from, size_t bytes)
{
    if (bytes == 4)
        memcpy(to, from, 4);
    else if (bytes == 8)
        memcpy(to, from, 8);
    else
        memcpy(to, from, bytes);
}

/* The next block of a request's keys as an array: in their own memory, or copied to `block`. */
static inline const RubatoKey *shard_take_block(const RubatoKeys *keys, size_t begin, size_t n,
                                                RubatoKey *block)
{
    if (keys->keys != NULL && keys->at == NULL)
        return keys->keys + begin;
    for (size_t i = 0; i < n; i++)
        block[i] = keys_get(keys, begin + i);
    return block;
}

static inline void shard_find_dense(const RubatoShard *shard, const RubatoKey *keys, size_t n,
                                    void **rows)
{
    for (size_t i = 0; i < n; i++)
        rows[i] = shard_dense_row(shard, keys[i]);
}

/* shard_roles.c: frees what the role needs; a row was evicted; a Get has found rows, or none. */
void shard_clear_role(RubatoShard *shard);
void shard_note_eviction(RubatoShard *shard, RubatoKey key);
void shard_note_wanted(RubatoShard *shard, const RubatoKey *keys, size_t n, void *const *rows);

/* shard_admission.c: for shard_made.c. The numbers of the words that change at most when a key is
 * asked for; of those that have changed besides, since so many Adds were refused. */
void shard_list_asked_words(const RubatoShard *shard, RubatoKey key, GArray *words);
void shard_list_refused_words(const RubatoShard *shard, uint64_t n_before, GArray *words);

/* shard_made.c: for shard_roles.c. Whether a shard that leads notes which rows it makes; whether
 * one that follows is told. Rows are made as ever again; the places of an input begin; the words
 * that it has changed are read; the places end, also those of which it was told. */
void shard_note_made(RubatoShard *shard, bool notes);
bool shard_await_made(RubatoShard *shard, bool awaits);
void shard_forget_made(RubatoShard *shard);
void shard_begin_places(RubatoShard *shard);
void shard_read_words(RubatoShard *shard);
void shard_end_places(RubatoShard *shard);

/* shard_failures.c: for shard_roles.c. Failures are noted, or told, from now on, or no longer; an
 * input begins; it ends. */
void shard_open_failures(RubatoShard *shard);
void shard_close_failures(RubatoShard *shard);
void shard_begin_failures(RubatoShard *shard);
void shard_end_failures(RubatoShard *shard);

/* What a request that writes ragged rows is to do, as far as the shard is told. */
typedef struct {
    bool is_told;       /* what does not fit a row is left out, without a failure */
    uint64_t n_rows;    /* it fails behind so many rows; UINT64_MAX: it is not told to fail */
    const char *reason; /* then; the shard's */
} ShardFate;

/* Whether some of the rows, which have different lengths, are still to come. */
static inline bool shard_lacks_ragged_rows(const RubatoShard *shard)
{
    return shard->failures != NULL && shard->role == SHARD_FOLLOWS;
}

/* Such a request begins; it has failed behind so many rows. */
ShardFate shard_begin_write(RubatoShard *shard);
void shard_note_failure(RubatoShard *shard, uint64_t n_rows, const char *reason);

/* Whether a bounded storage tells what it evicts follows from who wants to know. */
void shard_hear_evictions(RubatoShard *shard);

/* Makes those rows, if the shard has none. False: there is no memory. */
bool shard_make_refused(RubatoShard *shard);

/* Rows that are NULL become one that nobody reads. */
void shard_fill_refused(RubatoShard *shard, void **rows, size_t n);

/* Of a table whose rows expire: has the storage evict by their score, if the table says so. */
void shard_set_score(RubatoShard *shard);

/* Rows that have expired become NULL. */
void shard_hide_expired(const RubatoShard *shard, const RubatoKey *keys, size_t n, void **rows);

/* Finds rows that are about to change, of a table whose rows expire: removes those that have, and
 * creates absent ones if they are admitted. Then all are written now. False: there is no memory. */
bool shard_find_to_write(RubatoShard *shard, RubatoAdmission *admission, const RubatoKey *keys,
                         size_t n, void **rows);

/* Rows have got stamps from elsewhere: the time is no earlier than any of them. */
void shard_reach_stamps(RubatoShard *shard, void *const *rows, size_t n);

/* The second row gets the stamp of the first. */
void shard_copy_stamp(const RubatoShard *shard, const void *from, void *to);

/* These rows, none of which has expired, are written now. */
void shard_stamp(RubatoShard *shard, void *const *rows, size_t n);

/* The rows of a block of keys; NULL for absent ones. */
static inline void shard_find(RubatoShard *shard, const RubatoKey *keys, size_t n, void **rows)
{
    if (shard->rows != NULL)
        shard_find_dense(shard, keys, n, rows);
    else
        shard->ops->find(shard->storage, keys, n, rows);
    if (G_UNLIKELY(shard->expiry != NULL))
        shard_hide_expired(shard, keys, n, rows);
}

/* The same; creates absent rows. What changes has been watched. False if there is no memory; the
 * alarm is then set. */
static inline bool shard_find_or_create_watched(RubatoShard *shard, const RubatoKey *keys, size_t n,
                                                void **rows)
{
    if (shard->rows != NULL)
        shard_find_dense(shard, keys, n, rows);
    else if (G_UNLIKELY(shard->expiry != NULL))
        return shard_find_to_write(shard, /* admission= */ NULL, keys, n, rows);
    else if (!shard->ops->find_or_create(shard->storage, keys, n, rows)) {
        shard_starve(shard);
        return false;
    }
    return true;
}

/* shard_made.c: the rows to write to, where a shard notes which rows it makes, or is told which.
 * What is not made is a row that nobody reads. False: there is no memory. */
bool shard_find_by_place(RubatoShard *shard, RubatoAdmission *admission, const RubatoKey *keys,
                         size_t n, void **rows);

/* The same for rows that are all about to change. */
static inline bool shard_find_or_create(RubatoShard *shard, const RubatoKey *keys, size_t n,
                                        void **rows)
{
    if (G_UNLIKELY(shard->by_place))
        return shard_find_by_place(shard, /* admission= */ NULL, keys, n, rows);
    if (G_UNLIKELY(shard->is_watched))
        shard_watch(shard, &(RubatoKeys){ .keys = keys, .n = n });
    return shard_find_or_create_watched(shard, keys, n, rows);
}

/* The same for Adds: rows of absent keys that are not admitted are NULL. */
bool shard_find_or_admit(RubatoShard *shard, const RubatoKey *keys, size_t n, void **rows);
bool shard_find_or_admit_watched(RubatoShard *shard, const RubatoKey *keys, size_t n, void **rows);

/* The rows of a block of keys to add to. */
static inline bool shard_find_to_add(RubatoShard *shard, const RubatoKey *keys, size_t n,
                                     void **rows)
{
    if (shard->admission == NULL)
        return shard_find_or_create(shard, keys, n, rows);
    if (G_UNLIKELY(shard->by_place))
        return shard_find_by_place(shard, shard->admission, keys, n, rows);
    if (!shard_find_or_admit(shard, keys, n, rows))
        return false;
    shard_fill_refused(shard, rows, n);
    return true;
}

#endif
