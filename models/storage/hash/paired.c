/* Segments in which a key has two homes.
 *
 * Thread: the owner of the segment. */
#include "models/storage/hash/paired.h"

#include <string.h>

static uint32_t n_keys_of(BucketLayout layout, unsigned char *bucket)
{
    if (bucket_is_full(layout, bucket))
        return layout.n_slots;
    return bucket_slot(bucket_match(layout, bucket, BUCKET_EMPTY_KEY));
}

static size_t offset_in_bucket(BucketLayout layout, const Segment *segment,
                               const unsigned char *cell)
{
    return (size_t)(cell - segment->buckets) & (layout.bucket_bytes - 1);
}

static uint32_t slot_at(BucketLayout layout, size_t offset)
{
    return (uint32_t)(offset - layout.n_slots * sizeof(RubatoKey)) / layout.cell_bytes;
}

static unsigned char *take_slot(BucketLayout layout, const Segment *segment, unsigned char *bucket,
                                uint32_t slot, RubatoKey key)
{
    bucket_keys(bucket)[slot] = key;
    ++*segment_n_used(layout, segment);
    return bucket_cell(layout, bucket, slot);
}

unsigned char *paired_find(BucketLayout layout, const Segment *segment, uint64_t hash,
                           RubatoKey key)
{
    unsigned char *bucket = segment_home(segment, hash);
    uint32_t found = bucket_match(layout, bucket, key);

    if (found == 0) {
        bucket = segment_other_home(segment, hash);
        found = bucket_match(layout, bucket, key);
    }
    return found == 0 ? NULL : bucket_cell(layout, bucket, bucket_slot(found));
}

unsigned char *paired_insert(BucketLayout layout, const Segment *segment, uint64_t hash,
                             RubatoKey key)
{
    unsigned char *home = segment_home(segment, hash), *other = segment_other_home(segment, hash);
    const uint32_t n_here = n_keys_of(layout, home), n_there = n_keys_of(layout, other);

    if (n_there < n_here)
        return take_slot(layout, segment, other, n_there, key);
    return n_here == layout.n_slots ? NULL : take_slot(layout, segment, home, n_here, key);
}

/* Moves one of the keys of a full bucket to its other home, if that has room. */
static bool move_one(const SegmentSource *source, const Segment *segment, unsigned char *bucket)
{
    const BucketLayout layout = source->layout;

    for (uint32_t slot = 0; slot < layout.n_slots; slot++) {
        const RubatoKey key = bucket_keys(bucket)[slot];
        const uint64_t hash = key_hash(&source->key_hash, key);
        unsigned char *to = segment_home(segment, hash);
        unsigned char *cell = bucket_cell(layout, bucket, slot);

        if (to == bucket)
            to = segment_other_home(segment, hash);
        const uint32_t n = n_keys_of(layout, to);

        if (n == layout.n_slots)
            continue;
        memcpy(take_slot(layout, segment, to, n, key), cell, layout.cell_bytes);
        paired_erase(layout, segment, cell);
        return true;
    }
    return false;
}

bool paired_make_room(const SegmentSource *source, const Segment *segment, uint64_t hash)
{
    return move_one(source, segment, segment_home(segment, hash)) ||
           move_one(source, segment, segment_other_home(segment, hash));
}

unsigned char *paired_insert_copy(BucketLayout layout, const Segment *from,
                                  const unsigned char *bucket, const Segment *to, uint64_t hash,
                                  RubatoKey key)
{
    unsigned char *copy =
        segment_home(from, hash) == bucket ? segment_home(to, hash) : segment_other_home(to, hash);

    return take_slot(layout, to, copy, n_keys_of(layout, copy), key);
}

size_t paired_cells(BucketLayout layout, const Segment *segment, uint64_t hash,
                    unsigned char *cells[PAIRED_MAX_CELLS])
{
    unsigned char *const homes[] = { segment_home(segment, hash),
                                     segment_other_home(segment, hash) };
    size_t n = 0;

    for (int i = 0; i < (homes[0] == homes[1] ? 1 : 2); i++) {
        const uint32_t n_keys = n_keys_of(layout, homes[i]);

        for (uint32_t slot = 0; slot < n_keys; slot++)
            cells[n++] = bucket_cell(layout, homes[i], slot);
    }
    return n;
}

/* Keys that `to` has of `from`, and its own, which `from` has not. */
static void give_back(const SegmentSource *source, const Segment *to, const Segment *from)
{
    const BucketLayout layout = source->layout;
    unsigned char *const end = segment_end(layout, from);

    for (unsigned char *bucket = from->buckets; bucket < end; bucket += layout.bucket_bytes)
        for (uint32_t slot = 0; slot < n_keys_of(layout, bucket); slot++) {
            const RubatoKey key = bucket_keys(bucket)[slot];
            unsigned char *cell = paired_find(layout, to, key_hash(&source->key_hash, key), key);

            if (cell != NULL)
                paired_erase(layout, to, cell);
        }
}

bool paired_absorb(const SegmentSource *source, const Segment *to, const Segment *from)
{
    const BucketLayout layout = source->layout;
    unsigned char *const end = segment_end(layout, from);

    for (unsigned char *bucket = from->buckets; bucket < end; bucket += layout.bucket_bytes)
        for (uint32_t slot = 0; slot < n_keys_of(layout, bucket); slot++) {
            const RubatoKey key = bucket_keys(bucket)[slot];
            const uint64_t hash = key_hash(&source->key_hash, key);
            unsigned char *cell = paired_insert(layout, to, hash, key);

            if (cell == NULL && paired_make_room(source, to, hash))
                cell = paired_insert(layout, to, hash, key);
            if (cell == NULL) {
                give_back(source, to, from);
                return false;
            }
            memcpy(cell, bucket_cell(layout, bucket, slot), layout.cell_bytes);
        }
    return true;
}

RubatoKey paired_key(BucketLayout layout, const Segment *segment, const unsigned char *cell)
{
    const size_t offset = offset_in_bucket(layout, segment, cell);

    return bucket_keys((unsigned char *)(uintptr_t)cell - offset)[slot_at(layout, offset)];
}

void paired_rename(BucketLayout layout, const Segment *segment, const unsigned char *cell,
                   RubatoKey key)
{
    const size_t offset = offset_in_bucket(layout, segment, cell);
    unsigned char *bucket = (unsigned char *)(uintptr_t)cell - offset;

    bucket_keys(bucket)[slot_at(layout, offset)] = key;
}

void paired_erase(BucketLayout layout, const Segment *segment, unsigned char *cell)
{
    const size_t offset = offset_in_bucket(layout, segment, cell);
    const uint32_t slot = slot_at(layout, offset);
    unsigned char *bucket = cell - offset;
    const uint32_t last = n_keys_of(layout, bucket) - 1;

    if (slot != last) {
        bucket_keys(bucket)[slot] = bucket_keys(bucket)[last];
        memcpy(cell, bucket_cell(layout, bucket, last), layout.cell_bytes);
    }
    bucket_keys(bucket)[last] = BUCKET_EMPTY_KEY;
    --*segment_n_used(layout, segment);
}
