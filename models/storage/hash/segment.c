/* Segments of hash storage.
 *
 * The count of a segment's keys stands in the last bytes of its last bucket, behind all slots.
 *
 * Thread: the shard's present owner. */
#include "models/storage/hash/segment.h"

#include <glib.h>
#include <stdlib.h>
#include <string.h>

#include "io/memory_room.h"
#include "models/storage/hash/paired.h"

#define FIRST_HOME_BYTES ((size_t)1 << 10)
#define FULL_HOME_BYTES ((size_t)128 << 10)
#define HOMES_PER_SPARE 32u
#define ALIGNMENT 64u
#define DENSE_HUGE_FROM ((size_t)128 << 20) /* of which the two unused huge pages are a 32nd */

/* The buckets that are no home. */
static size_t n_spare(uint32_t size_bits)
{
    return MAX(2, ((size_t)1 << size_bits) / HOMES_PER_SPARE);
}

static size_t bytes_of(BucketLayout layout, uint32_t size_bits)
{
    return (((size_t)1 << size_bits) + n_spare(size_bits)) * layout.bucket_bytes;
}

unsigned char *segment_end(BucketLayout layout, const Segment *segment)
{
    return segment->buckets + bytes_of(layout, segment->size_bits) - layout.bucket_bytes;
}

uint64_t *segment_n_used(BucketLayout layout, const Segment *segment)
{
    return (uint64_t *)(void *)(segment_end(layout, segment) + layout.bucket_bytes) - 1;
}

/* Fuller ones would have long searches. */
uint64_t segment_max_keys(const SegmentSource *source, const Segment *segment)
{
    const uint64_t n_slots = (uint64_t)source->layout.n_slots << segment->size_bits;

    return source->fill == SEGMENT_FILL_DENSE ? 15 * n_slots / 16 : 6 * n_slots / 7;
}

static uint32_t size_bits_for(BucketLayout layout, size_t home_bytes)
{
    return (uint32_t)__builtin_ctzll(home_bytes / layout.bucket_bytes);
}

uint32_t segment_first_size_bits(const SegmentSource *source)
{
    return size_bits_for(source->layout, FIRST_HOME_BYTES);
}

uint32_t segment_full_size_bits(const SegmentSource *source)
{
    return size_bits_for(source->layout, FULL_HOME_BYTES);
}

void segment_source_init(SegmentSource *source, size_t cell_bytes, bool is_paired, SegmentFill fill,
                         uint64_t seed)
{
    *source = (SegmentSource){ .layout = bucket_layout(cell_bytes),
                               .key_hash = key_hash_make(seed),
                               .is_paired = is_paired,
                               .fill = fill };
    segment_pool_init(&source->pool, bytes_of(source->layout, segment_full_size_bits(source)),
                      fill == SEGMENT_FILL_DENSE ? DENSE_HUGE_FROM : SEGMENT_POOL_HUGE_FROM,
                      is_paired ? 1 : SEGMENT_POOL_MOST_AHEAD);
}

void segment_source_clear(SegmentSource *source)
{
    segment_pool_clear(&source->pool);
}

uint64_t segment_source_bytes(const SegmentSource *source)
{
    return segment_pool_bytes(&source->pool) + source->n_other_bytes;
}

uint64_t segment_source_growth(const SegmentSource *source, uint32_t size_bits, size_t n)
{
    if (size_bits == segment_full_size_bits(source))
        return segment_pool_growth(&source->pool, n);
    return n * bytes_of(source->layout, size_bits);
}

Segment segment_make(SegmentSource *source, uint32_t size_bits, uint32_t depth)
{
    const size_t n_bytes = bytes_of(source->layout, size_bits);
    const uint64_t last_home = source->layout.bucket_bytes * ((UINT64_C(1) << size_bits) - 1);
    unsigned char *buckets;

    if (last_home > UINT32_MAX) /* as many keys with the same hash as no memory holds */
        return (Segment){ 0 };
    if (size_bits == segment_full_size_bits(source))
        buckets = segment_pool_take(&source->pool);
    else
        buckets = memory_leaves_room(n_bytes) ? aligned_alloc(ALIGNMENT, n_bytes) : NULL;
    if (buckets == NULL)
        return (Segment){ 0 };
    if (size_bits != segment_full_size_bits(source)) {
        memset(buckets, 0, n_bytes);
        source->n_other_bytes += n_bytes;
    }
    source->n_segments++;
    return (Segment){ .buckets = buckets,
                      .home_mask = (uint32_t)last_home,
                      .size_bits = (uint16_t)size_bits,
                      .depth = (uint16_t)depth };
}

void segment_free(SegmentSource *source, const Segment *segment)
{
    if (segment->buckets == NULL)
        return;
    if (segment->size_bits == segment_full_size_bits(source)) {
        segment_pool_give(&source->pool, segment->buckets);
    } else {
        free(segment->buckets);
        source->n_other_bytes -= bytes_of(source->layout, segment->size_bits);
    }
    source->n_segments--;
}

unsigned char *segment_insert(const SegmentSource *source, const Segment *segment, uint64_t hash,
                              RubatoKey key)
{
    const BucketLayout layout = source->layout;
    uint64_t *n_used = segment_n_used(layout, segment);
    unsigned char *bucket = segment_home(segment, hash);
    uint32_t slot;

    if (*n_used >= segment_max_keys(source, segment))
        return NULL;
    while (bucket_is_full(layout, bucket))
        bucket += layout.bucket_bytes;
    if (bucket == segment_end(layout, segment))
        return NULL;
    slot = bucket_slot(bucket_match(layout, bucket, BUCKET_EMPTY_KEY));
    bucket_keys(bucket)[slot] = key;
    ++*n_used;
    return bucket_cell(layout, bucket, slot);
}

bool segment_copy(const SegmentSource *source, const Segment *from, uint64_t bit,
                  const Segment *lower, const Segment *upper)
{
    const BucketLayout layout = source->layout;
    unsigned char *end = segment_end(layout, from);

    for (unsigned char *bucket = from->buckets; bucket < end; bucket += layout.bucket_bytes)
        for (uint32_t slot = 0; slot < layout.n_slots; slot++) {
            const RubatoKey key = bucket_keys(bucket)[slot];
            const uint64_t hash = key_hash(&source->key_hash, key);
            unsigned char *cell;

            if (key == BUCKET_EMPTY_KEY)
                break;
            const Segment *to = (segment_place(hash) & bit) != 0 ? upper : lower;

            cell = source->is_paired ? paired_insert_copy(layout, from, bucket, to, hash, key)
                                     : segment_insert(source, to, hash, key);
            if (cell == NULL)
                return false;
            memcpy(cell, bucket_cell(layout, bucket, slot), layout.cell_bytes);
        }
    return true;
}

size_t segment_list(BucketLayout layout, const Segment *segment, uint64_t *skip, size_t n,
                    RubatoKey *keys)
{
    const unsigned char *end = segment_end(layout, segment);
    size_t n_listed = 0;

    if (*skip >= *segment_n_used(layout, segment)) {
        *skip -= *segment_n_used(layout, segment);
        return 0;
    }
    for (unsigned char *bucket = segment->buckets; bucket < end; bucket += layout.bucket_bytes)
        for (uint32_t slot = 0; slot < layout.n_slots && n_listed < n; slot++) {
            const RubatoKey key = bucket_keys(bucket)[slot];

            if (key == BUCKET_EMPTY_KEY)
                break;
            if (*skip > 0)
                --*skip;
            else
                keys[n_listed++] = key;
        }
    return n_listed;
}
