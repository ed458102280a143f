/* Segments of hash storage: small tables of open addressing.
 *
 * A segment has 2^size_bits home buckets and, behind them, some more for overflow from the last
 * ones. So a search goes on from bucket to bucket and never wraps around. The very last bucket
 * stays empty; every search ends there.
 *
 * Threads: one at a time. */
#ifndef RUBATO_MODELS_STORAGE_HASH_SEGMENT_H
#define RUBATO_MODELS_STORAGE_HASH_SEGMENT_H

#include "io/key_hash.h"
#include "models/storage/hash/bucket.h"
#include "models/storage/hash/segment_pool.h"

typedef struct {
    unsigned char *buckets;
    uint32_t home_mask; /* what a hash has of its home bucket's offset */
    uint16_t size_bits;
    uint16_t depth; /* how many upper bits the places of all its keys have in common */
} Segment;

/* How full segments become, before they grow or split. */
typedef enum {
    SEGMENT_FILL_FAST,  /* searches are short */
    SEGMENT_FILL_DENSE, /* memory counts more: a tenth less of it, more buckets to search in */
} SegmentFill;

/* What segments are made from. */
typedef struct {
    /* immutable */
    BucketLayout layout;
    KeyHash key_hash;
    bool is_paired; /* each key has two homes, and lies nowhere else: paired.h */
    SegmentFill fill;

    SegmentPool pool; /* of segments of the full size */
    uint64_t n_segments;
    uint64_t n_other_bytes; /* of all other segments */
} SegmentSource;

/* Where a hash stands among all segments, as a fraction: y² for an even y between 1/2 and 1. Its
 * density, 1/2y, falls by half from there to the end. The first quarter stays empty. The upper 31
 * bits of the hash choose the place; other bits choose the home bucket. */
static inline uint64_t segment_place(uint64_t hash)
{
    const uint64_t y = hash >> 33 | UINT64_C(1) << 31;

    return y * y;
}

static inline unsigned char *segment_home(const Segment *segment, uint64_t hash)
{
    return segment->buckets + (hash & segment->home_mask);
}

/* The other bucket in which a key may lie, if segments are paired. Its bits of the hash are neither
 * those of the first nor, in segments of the full size, those of the place. */
static inline unsigned char *segment_other_home(const Segment *segment, uint64_t hash)
{
    return segment->buckets + (hash >> 16 & segment->home_mask);
}

/* Keys are hashed by the seed. */
void segment_source_init(SegmentSource *source, size_t cell_bytes, bool is_paired, SegmentFill fill,
                         uint64_t seed);
void segment_source_clear(SegmentSource *source); /* its segments have been freed */
uint64_t segment_source_bytes(const SegmentSource *source);

/* At most so many more bytes are taken for n more segments of that size; n is at most 2. */
uint64_t segment_source_growth(const SegmentSource *source, uint32_t size_bits, size_t n);

/* The size of the first segments, and the size from which segments split instead of growing. */
uint32_t segment_first_size_bits(const SegmentSource *source);
uint32_t segment_full_size_bits(const SegmentSource *source);

/* A segment without keys; its `buckets` are NULL if there is no memory. */
Segment segment_make(SegmentSource *source, uint32_t size_bits, uint32_t depth);
void segment_free(SegmentSource *source, const Segment *segment); /* NULL buckets: does nothing */

/* Gives an absent key a cell; NULL if there is no room. */
unsigned char *segment_insert(const SegmentSource *source, const Segment *segment, uint64_t hash,
                              RubatoKey key);

/* The keys that a segment has, and how many it may have. */
uint64_t *segment_n_used(BucketLayout layout, const Segment *segment);
uint64_t segment_max_keys(const SegmentSource *source, const Segment *segment);

/* The bucket behind all that have keys. */
unsigned char *segment_end(BucketLayout layout, const Segment *segment);

/* Copies the keys of a segment and their cells to others; those whose place has the bit go to
 * `upper`. False if one of them has no room. */
bool segment_copy(const SegmentSource *source, const Segment *from, uint64_t bit,
                  const Segment *lower, const Segment *upper);

/* Skips the segment's first *skip keys, writes up to n of the following ones, and returns how many
 * it wrote. The order stays the same until the next key is inserted. *skip becomes the number still
 * to skip in later segments. */
size_t segment_list(BucketLayout layout, const Segment *segment, uint64_t *skip, size_t n,
                    RubatoKey *keys);

#endif
