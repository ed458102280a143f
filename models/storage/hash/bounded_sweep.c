/* Removing rows from hash storage: those of some keys, or those that have expired.
 *
 * A sweep goes through the segments in the order of the directory, a few buckets at a time. Between
 * two calls rows are made and segments split, so a sweep may miss a row, or see it twice. What it
 * misses the next sweep sees.
 *
 * Segments that have become empty enough merge, two at a time, and slabs without rows give their
 * memory to the pool. So a table that has shrunk takes little more than one that has never grown;
 * but a slab stays while it has a single row.
 *
 * A removed key leaves its slot to the last key of its bucket. No other bucket changes; see
 * paired.h. So a bucket is looked through from its last slot on.
 *
 * Thread: the shard's present owner. */
#include "models/storage/hash/bounded_private.h"
#include "models/storage/hash/paired.h"

#define FIRST_PLACE (UINT64_C(1) << 62)
#define SLABS_PLACE UINT64_C(1) /* behind all segments: the slabs, of which n_bytes is a number */

/* ---- by key ---- */

static size_t erase_empty_key(HashStorage *hash)
{
    if (hash->row_of_empty_key == NULL)
        return 0;
    g_clear_pointer(&hash->row_of_empty_key, g_free);
    hash->n_rows--;
    hash->n_bytes -= hash->row_bytes;
    return 1;
}

size_t bounded_erase(RubatoStorage *storage, const RubatoKey *keys, size_t n)
{
    BoundedStorage *bounded = (BoundedStorage *)storage;
    HashStorage *hash = &bounded->hash;
    const BucketLayout layout = hash->source.layout;
    size_t n_erased = 0;

    for (size_t i = 0; i < n; i++) {
        const uint64_t h = key_hash(&hash->source.key_hash, keys[i]);
        const Segment *segment = hash_segment_of(hash, h);
        unsigned char *cell;

        if (keys[i] == BUCKET_EMPTY_KEY) {
            n_erased += erase_empty_key(hash);
            continue;
        }
        cell = paired_find(layout, segment, h, keys[i]);
        if (cell == NULL)
            continue;
        bounded_forget_row(bounded, cell);
        paired_erase(layout, segment, cell);
        n_erased++;
    }
    return n_erased;
}

/* ---- those that have expired ---- */

typedef struct {
    bool (*expires)(void *user, RubatoKey key, const void *row);
    void *user;
    uint32_t n_asked;
} Judge;

static bool judge_row(Judge *judge, RubatoKey key, const void *row)
{
    judge->n_asked++;
    return judge->expires(judge->user, key, row);
}

static uint64_t sweep_bucket(BoundedStorage *bounded, const Segment *segment, unsigned char *bucket,
                             Judge *judge)
{
    const BucketLayout layout = bounded->hash.source.layout;
    uint64_t n_removed = 0;

    for (uint32_t slot = layout.n_slots; slot-- > 0;) {
        const RubatoKey key = bucket_keys(bucket)[slot];
        unsigned char *cell = bucket_cell(layout, bucket, slot);

        if (key == BUCKET_EMPTY_KEY ||
            !judge_row(judge, key, hash_row_of_cell(&bounded->hash, cell)))
            continue;
        bounded_forget_row(bounded, cell);
        paired_erase(layout, segment, cell);
        n_removed++;
    }
    return n_removed;
}

static void prefetch_rows(const HashStorage *hash, const unsigned char *begin,
                          const unsigned char *end)
{
    const BucketLayout layout = hash->source.layout;

    for (; begin < end && !hash->is_inline; begin += layout.bucket_bytes)
        for (uint32_t slot = 0; slot < layout.n_slots; slot++) {
            unsigned char *bucket = (unsigned char *)(uintptr_t)begin;

            if (bucket_keys(bucket)[slot] != BUCKET_EMPTY_KEY)
                __builtin_prefetch(hash_row_of_cell(hash, bucket_cell(layout, bucket, slot)), 1);
        }
}

/* Where the segment behind this one begins; 0: it is the last. */
static uint64_t place_behind(uint64_t place, uint32_t depth)
{
    const uint64_t number = place >> (64 - depth);

    return (number + 1) << (64 - depth); /* the last one's wraps */
}

/* A segment has been swept: merges it with its neighbour, and what comes of it with the next one. A
 * neighbour that lies behind it is swept later, as a part of both. */
static void merge(BoundedStorage *bounded, uint64_t place)
{
    while (hash_merge(&bounded->hash, place))
        bounded->is_grown = false;
}

/* The last part of a sweep. */
static bool sweep_slabs(BoundedStorage *bounded, StorageCursor *at)
{
    const uint32_t next = bounded_release_slabs(bounded, (uint32_t)at->n_bytes);

    bounded->is_grown = false;
    *at = next == BOUNDED_NO_NUMBER ? (StorageCursor){ 0 } : (StorageCursor){ SLABS_PLACE, next };
    return at->place != 0;
}

bool bounded_sweep(RubatoStorage *storage, StorageCursor *at, uint32_t *n_looks,
                   bool (*expires)(void *user, RubatoKey key, const void *row), void *user,
                   uint64_t *n_removed)
{
    BoundedStorage *bounded = (BoundedStorage *)storage;
    HashStorage *hash = &bounded->hash;
    const BucketLayout layout = hash->source.layout;
    const uint32_t most_looks = *n_looks;
    Judge judge = { expires, user, 0 };

    *n_looks = 0;
    if (at->place == SLABS_PLACE)
        return sweep_slabs(bounded, at);
    if (at->place == 0) {
        at->place = FIRST_PLACE;
        at->n_bytes = 0;
        if (hash->row_of_empty_key != NULL &&
            judge_row(&judge, BUCKET_EMPTY_KEY, hash->row_of_empty_key))
            *n_removed += erase_empty_key(hash);
    }

    const Segment segment = hash->directory[at->place >> (64 - hash->depth)];
    const size_t n_all =
        segment.buckets == NULL ? 0 : (size_t)(segment_end(layout, &segment) - segment.buckets);
    const size_t begin = MIN(at->n_bytes, n_all);
    const size_t n_buckets = MAX(1, most_looks / layout.n_slots);
    const size_t end = MIN(begin + n_buckets * layout.bucket_bytes, n_all);

    if (begin < end)
        prefetch_rows(hash, segment.buckets + begin, segment.buckets + end);
    for (size_t i = begin; i < end; i += layout.bucket_bytes)
        *n_removed += sweep_bucket(bounded, &segment, segment.buckets + i, &judge);
    *n_looks = judge.n_asked;
    at->n_bytes = end;
    if (end == n_all) {
        const uint64_t swept = at->place;

        at->place = place_behind(swept, segment.depth);
        at->n_bytes = 0;
        merge(bounded, swept);
        if (at->place == 0 && bounded->n_slabs > 0)
            at->place = SLABS_PLACE;
    }
    return at->place != 0;
}
