/* Hash storage: rows of any 64-bit keys, made as they are needed.
 *
 * Extendible hashing (Fagin, Nievergelt, Pippenger, Strong, ACM TODS 4(3), 1979) over small tables
 * of open addressing. The upper bits of a key's hash choose an entry of the directory, which knows a
 * segment; the lower ones choose the slot in it where a linear search begins.
 *
 *     directory   2^depth entries { slots, capacity, depth }: one line to read, and it stays cached
 *     segment     { n_used } and up to SEGMENT_SLOTS slots of { key, row } or { key, row number }
 *
 * A segment that is too full grows by three eighths or, at its full size, splits in two. So growth never
 * touches more than one segment (and, rarely, the directory), and tables are between 55 % and 75 %
 * full. Narrow rows lie in the slot, next to their key: one cache miss. Wide ones lie in slabs that
 * never move, and the slot has their number.
 *
 * Key 0 marks an empty slot, so its own row lies apart. Nothing is ever erased.
 *
 * Thread: the shard's present owner. A search is made over a block of keys at once: first the slots
 * of all are prefetched, then looked at. */
#include <assert.h>
#include <rubato/error.h>
#include <stdlib.h>
#include <string.h>

#include "models/mix.h"
#include "models/spec.h"
#include "models/storage.h"

#define EMPTY_KEY UINT64_C(0)
#define FIRST_SLOTS 64u
#define SEGMENT_SLOTS 4096u
#define MAX_DEPTH 32u        /* the upper half of the hash; the lower one is the slot's */
#define MAX_INLINE_BYTES 16u /* wider rows would make a search skip over too much */
#define SLAB_BYTES (1u << 20)
#define ALIGNMENT 64u

typedef struct {
    unsigned char *slots; /* behind the SegmentHeader */
    uint32_t capacity;
    uint32_t depth; /* how many upper bits all its keys have in common */
} Segment;

typedef struct {
    uint64_t n_used;
    uint64_t unused; /* keeps the slots aligned to 16 bytes */
} SegmentHeader;

typedef struct {
    RubatoStorage base;

    /* immutable */
    const RubatoInit *init;
    size_t row_bytes;
    size_t slot_bytes;
    bool is_inline;     /* rows lie in the slots */
    uint32_t slab_bits; /* a slab has 2^slab_bits rows */

    /* what grows */
    Segment *directory; /* 2^depth; a segment of lesser depth stands in it several times over */
    uint32_t depth;
    uint64_t n_rows;
    uint64_t n_bytes;
    unsigned char **slabs;
    uint32_t n_slabs;
    uint32_t n_slab_rows;
    void *row_of_empty_key; /* NULL: absent */
} HashStorage;

/* The salt sets this hash apart from the one that spread the keys over servers: were it the same,
 * one server's keys would share their upper bits. */
static inline uint64_t hash_of(RubatoKey key)
{
    return mix64(key ^ UINT64_C(0x8ebc6af09c88c6e3));
}

/* The upper `depth` bits. Two shifts, for one of 64 is undefined. */
static inline uint64_t upper_bits(uint64_t hash, uint32_t depth)
{
    return (hash >> 1) >> (63 - depth);
}

static inline Segment *segment_of(const HashStorage *hash, uint64_t h)
{
    return &hash->directory[upper_bits(h, hash->depth)];
}

static inline SegmentHeader *header_of(const Segment *segment)
{
    return (SegmentHeader *)(void *)segment->slots - 1;
}

static inline RubatoKey key_at(const unsigned char *slot)
{
    RubatoKey key;

    memcpy(&key, slot, sizeof(key));
    return key;
}

static inline unsigned char *home_slot(const HashStorage *hash, const Segment *segment, uint64_t h)
{
    return segment->slots + (((h & UINT32_MAX) * segment->capacity) >> 32) * hash->slot_bytes;
}

/* The slot that has the key, or the empty one where it would be. */
static inline unsigned char *search(const HashStorage *hash, const Segment *segment, uint64_t h,
                                    RubatoKey key)
{
    unsigned char *slot = home_slot(hash, segment, h);
    const unsigned char *end = segment->slots + segment->capacity * hash->slot_bytes;

    for (;;) {
        const RubatoKey found = key_at(slot);

        if (found == key || found == EMPTY_KEY)
            return slot;
        slot += hash->slot_bytes;
        if (slot == end)
            slot = segment->slots;
    }
}

static inline void *row_of_slot(const HashStorage *hash, unsigned char *slot)
{
    uint32_t number;

    if (hash->is_inline)
        return slot + sizeof(RubatoKey);
    memcpy(&number, slot + sizeof(RubatoKey), sizeof(number));
    return hash->slabs[number >> hash->slab_bits] +
           (number & ((1u << hash->slab_bits) - 1)) * hash->row_bytes;
}

static size_t segment_bytes(const HashStorage *hash, uint32_t capacity)
{
    return sizeof(SegmentHeader) + capacity * hash->slot_bytes;
}

/* A segment of empty slots. */
static Segment make_segment(HashStorage *hash, uint32_t capacity, uint32_t depth)
{
    SegmentHeader *header = g_malloc0(segment_bytes(hash, capacity));
    unsigned char *slots = (unsigned char *)(header + 1);

    hash->n_bytes += segment_bytes(hash, capacity);
    return (Segment){ .slots = slots, .capacity = capacity, .depth = depth };
}

static void free_segment(HashStorage *hash, const Segment *segment)
{
    hash->n_bytes -= segment_bytes(hash, segment->capacity);
    g_free(header_of(segment));
}

/* Copies a slot into a segment that does not have its key. */
static void copy_slot(const HashStorage *hash, const Segment *to, uint64_t h,
                      const unsigned char *slot)
{
    memcpy(search(hash, to, h, key_at(slot)), slot, hash->slot_bytes);
    header_of(to)->n_used++;
}

/* Makes the directory know a segment by all the entries whose upper bits are its own. */
static void enter_segment(HashStorage *hash, uint64_t h, const Segment *segment)
{
    const uint32_t spare = hash->depth - segment->depth;
    const uint64_t first = upper_bits(h, segment->depth) << spare;

    for (uint64_t i = 0; i < UINT64_C(1) << spare; i++)
        hash->directory[first + i] = *segment;
}

static void grow_segment(HashStorage *hash, uint64_t h)
{
    const Segment before = *segment_of(hash, h);
    const uint64_t larger = before.capacity < 1024
                                ? before.capacity * UINT64_C(2)
                                : before.capacity + before.capacity * UINT64_C(3) / 8;
    const Segment after = make_segment(hash, (uint32_t)MIN(larger, UINT32_MAX), before.depth);

    for (uint32_t i = 0; i < before.capacity; i++) {
        const unsigned char *slot = before.slots + i * hash->slot_bytes;

        if (key_at(slot) != EMPTY_KEY)
            copy_slot(hash, &after, hash_of(key_at(slot)), slot);
    }
    enter_segment(hash, h, &after);
    free_segment(hash, &before);
}

static void double_directory(HashStorage *hash)
{
    const uint64_t n = UINT64_C(1) << hash->depth;
    Segment *directory = g_new(Segment, 2 * n);

    for (uint64_t i = 0; i < n; i++)
        directory[2 * i] = directory[2 * i + 1] = hash->directory[i];
    g_free(hash->directory);
    hash->directory = directory;
    hash->depth++;
    hash->n_bytes += n * sizeof(Segment);
}

static void split_segment(HashStorage *hash, uint64_t h)
{
    const Segment before = *segment_of(hash, h);
    const uint32_t depth = before.depth + 1;
    const uint64_t bit = UINT64_C(1) << (64 - depth);
    uint32_t n_upper = 0;

    if (before.depth == hash->depth)
        double_directory(hash);
    for (uint32_t i = 0; i < before.capacity; i++) {
        const RubatoKey key = key_at(before.slots + i * hash->slot_bytes);

        n_upper += key != EMPTY_KEY && (hash_of(key) & bit) != 0;
    }

    const uint32_t n_lower = (uint32_t)header_of(&before)->n_used - n_upper;
    const Segment lower = make_segment(hash, MAX(FIRST_SLOTS, n_lower / 5 * 8 + 8), depth);
    const Segment upper = make_segment(hash, MAX(FIRST_SLOTS, n_upper / 5 * 8 + 8), depth);
    for (uint32_t i = 0; i < before.capacity; i++) {
        const unsigned char *slot = before.slots + i * hash->slot_bytes;
        const uint64_t slot_hash = hash_of(key_at(slot));

        if (key_at(slot) != EMPTY_KEY)
            copy_slot(hash, (slot_hash & bit) != 0 ? &upper : &lower, slot_hash, slot);
    }
    enter_segment(hash, h & ~bit, &lower);
    enter_segment(hash, h | bit, &upper);
    free_segment(hash, &before);
}

/* Whether one more key would make the segment of a hash too full. */
static bool is_full(const HashStorage *hash, uint64_t h)
{
    const Segment *segment = segment_of(hash, h);

    return header_of(segment)->n_used + 1 > segment->capacity / 4u * 3u;
}

/* Makes room for one more key; slots move. A capacity above SEGMENT_SLOTS comes up only where keys
 * have their whole upper half of the hash in common. */
static void make_room(HashStorage *hash, uint64_t h)
{
    const Segment *segment = segment_of(hash, h);

    if (segment->capacity < SEGMENT_SLOTS || segment->depth == MAX_DEPTH)
        grow_segment(hash, h);
    else
        split_segment(hash, h);
}

/* The number of a fresh row in the slabs. */
static uint32_t make_slab_row(HashStorage *hash)
{
    const uint32_t number = hash->n_slab_rows;

    if (number == UINT32_MAX)
        g_error("a hash storage has more than %u rows; use more servers", UINT32_MAX);
    if (number >> hash->slab_bits == hash->n_slabs) {
        const size_t n_bytes = hash->row_bytes << hash->slab_bits;
        unsigned char *slab = aligned_alloc(ALIGNMENT, n_bytes / ALIGNMENT * ALIGNMENT + ALIGNMENT);

        if (slab == NULL)
            g_error("no memory for %zu bytes of rows", n_bytes);
        hash->slabs = g_renew(unsigned char *, hash->slabs, hash->n_slabs + 1);
        hash->slabs[hash->n_slabs++] = slab;
        hash->n_bytes += n_bytes + sizeof(slab);
    }
    hash->n_slab_rows++;
    return number;
}

/* Takes an empty slot for a key, with its initial row. */
static void take_slot(HashStorage *hash, uint64_t h, RubatoKey key, unsigned char *slot)
{
    memcpy(slot, &key, sizeof(key));
    if (!hash->is_inline) {
        const uint32_t number = make_slab_row(hash);

        memcpy(slot + sizeof(key), &number, sizeof(number));
    }
    rubato_init_row(hash->init, key, row_of_slot(hash, slot));
    header_of(segment_of(hash, h))->n_used++;
    hash->n_rows++;
}

static void *find_or_create_empty_key(HashStorage *hash)
{
    if (hash->row_of_empty_key == NULL) {
        hash->row_of_empty_key = g_malloc(hash->row_bytes);
        rubato_init_row(hash->init, EMPTY_KEY, hash->row_of_empty_key);
        hash->n_rows++;
        hash->n_bytes += hash->row_bytes;
    }
    return hash->row_of_empty_key;
}

static void hash_and_prefetch(const HashStorage *hash, const RubatoKey *keys, size_t n,
                              uint64_t *hashes)
{
    for (size_t i = 0; i < n; i++) {
        hashes[i] = hash_of(keys[i]);
        __builtin_prefetch(home_slot(hash, segment_of(hash, hashes[i]), hashes[i]), 1);
    }
}

static void search_block(const HashStorage *hash, const RubatoKey *keys, size_t n,
                         const uint64_t *hashes, void **rows)
{
    for (size_t i = 0; i < n; i++) {
        if (keys[i] == EMPTY_KEY) {
            rows[i] = hash->row_of_empty_key;
            continue;
        }

        unsigned char *slot = search(hash, segment_of(hash, hashes[i]), hashes[i], keys[i]);
        rows[i] = key_at(slot) == EMPTY_KEY ? NULL : row_of_slot(hash, slot);
        if (!hash->is_inline)
            __builtin_prefetch(rows[i], 1);
    }
}

static void find(RubatoStorage *storage, const RubatoKey *keys, size_t n, void **rows)
{
    const HashStorage *hash = (HashStorage *)storage;
    uint64_t hashes[RUBATO_STORAGE_BLOCK];

    assert(n <= RUBATO_STORAGE_BLOCK);
    hash_and_prefetch(hash, keys, n, hashes);
    search_block(hash, keys, n, hashes, rows);
}

static void find_or_create(RubatoStorage *storage, const RubatoKey *keys, size_t n, void **rows)
{
    HashStorage *hash = (HashStorage *)storage;
    uint64_t hashes[RUBATO_STORAGE_BLOCK];
    bool has_moved = false;

    assert(n <= RUBATO_STORAGE_BLOCK);
    hash_and_prefetch(hash, keys, n, hashes);
    for (size_t i = 0; i < n; i++) {
        const uint64_t h = hashes[i];

        if (keys[i] == EMPTY_KEY) {
            rows[i] = find_or_create_empty_key(hash);
            continue;
        }

        unsigned char *slot = search(hash, segment_of(hash, h), h, keys[i]);
        if (key_at(slot) == EMPTY_KEY) {
            while (is_full(hash, h)) {
                make_room(hash, h);
                has_moved = true;
                slot = search(hash, segment_of(hash, h), h, keys[i]);
            }
            take_slot(hash, h, keys[i], slot);
        }
        rows[i] = row_of_slot(hash, slot);
        if (!hash->is_inline)
            __builtin_prefetch(rows[i], 1);
    }
    if (has_moved && hash->is_inline)
        search_block(hash, keys, n, hashes, rows);
}

static RubatoStorage *create(const RubatoStorageSetup *setup, GError **error)
{
    HashStorage *hash = g_new0(HashStorage, 1);

    (void)error;
    hash->init = setup->init;
    hash->row_bytes = setup->row_bytes;
    hash->is_inline = setup->row_bytes <= MAX_INLINE_BYTES;
    hash->slot_bytes = sizeof(RubatoKey) + (hash->is_inline ? setup->row_bytes : sizeof(uint32_t));
    while ((setup->row_bytes << (hash->slab_bits + 1)) <= SLAB_BYTES)
        hash->slab_bits++;
    hash->directory = g_new(Segment, 1);
    hash->directory[0] = make_segment(hash, FIRST_SLOTS, 0);
    hash->n_bytes += sizeof(*hash) + sizeof(Segment);
    return &hash->base;
}

static void destroy(RubatoStorage *storage)
{
    HashStorage *hash = (HashStorage *)storage;

    for (uint64_t i = 0; i < UINT64_C(1) << hash->depth;) {
        const Segment segment = hash->directory[i];

        i += UINT64_C(1) << (hash->depth - segment.depth);
        free_segment(hash, &segment);
    }
    for (uint32_t i = 0; i < hash->n_slabs; i++)
        free(hash->slabs[i]);
    g_free(hash->slabs);
    g_free(hash->directory);
    g_free(hash->row_of_empty_key);
    g_free(hash);
}

static void *run(RubatoStorage *storage, RubatoKey first, size_t n)
{
    (void)storage;
    (void)first;
    (void)n;
    return NULL;
}

static void list(const RubatoStorage *storage, uint64_t first, size_t n, RubatoKey *keys)
{
    const HashStorage *hash = (const HashStorage *)storage;
    const RubatoKey *end = keys + n;

    if (hash->row_of_empty_key != NULL) {
        if (first > 0)
            first--;
        else if (keys < end)
            *keys++ = EMPTY_KEY;
    }
    for (uint64_t i = 0; keys < end && i < UINT64_C(1) << hash->depth;) {
        const Segment *segment = &hash->directory[i];

        i += UINT64_C(1) << (hash->depth - segment->depth);
        if (first >= header_of(segment)->n_used) {
            first -= header_of(segment)->n_used;
            continue;
        }
        for (uint32_t s = 0; keys < end && s < segment->capacity; s++) {
            const RubatoKey key = key_at(segment->slots + s * hash->slot_bytes);

            if (key == EMPTY_KEY)
                continue;
            if (first > 0)
                first--;
            else
                *keys++ = key;
        }
    }
}

static void size(const RubatoStorage *storage, uint64_t *n_rows, uint64_t *n_bytes)
{
    const HashStorage *hash = (const HashStorage *)storage;

    *n_rows = hash->n_rows;
    *n_bytes = hash->n_bytes;
}

const RubatoStorageOps hash_storage_ops = {
    .name = "hash",
    .create = create,
    .destroy = destroy,
    .find = find,
    .find_or_create = find_or_create,
    .run = run,
    .list = list,
    .size = size,
};
