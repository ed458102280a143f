/* Partitions: even ranges, the caller's own ranges, or a hash, and the cutting of keys.
 *
 * If a single part holds everything or the keys are sorted, a cut is one pass. Otherwise it is a
 * sort of positions. No key is copied. */
#include "tables/partition.h"

#include <rubato/error.h>
#include <rubato/mix.h>
#include <rubato/vector_clones.h>
#include <string.h>

#include "io/net/link/key_range.h"
#include "tables/partition_split.h"

/* Up to this many parts, one pass over all keys for each part is faster than a counting sort. */
#define FEW_PARTS 4

/* Whether keys are sorted is looked at one by one for so many, then in runs of so many. */
#define LOOKED_AT_FIRST ((size_t)8)
#define LOOKED_AT_ONCE ((size_t)256)

static bool take_own_bounds(Partition *partition, const RubatoTableSpec *spec, GError **error)
{
    if (spec->n_bounds + 1 != partition->n_parts) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "table %s: %zu bounds divide the keys among %zu parts, but there are %u; "
                    "give one bound less than there are parts",
                    spec->name, spec->n_bounds, spec->n_bounds + 1, partition->n_parts);
        return false;
    }
    for (size_t i = 0; i < spec->n_bounds; i++) {
        const bool descends = i > 0 && spec->bounds[i] < spec->bounds[i - 1];
        const bool outside =
            partition->dense && (spec->bounds[i] < partition->first_key ||
                                 spec->bounds[i] - partition->first_key > partition->n_keys);

        if (descends || outside) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "table %s: bound %zu, key %" G_GUINT64_FORMAT ", %s", spec->name, i,
                        spec->bounds[i],
                        descends ? "is below the one before it; sort the bounds"
                                 : "lies outside the table's range of keys");
            return false;
        }
        partition->bounds[i + 1] = spec->bounds[i];
    }
    return true;
}

static bool set_even_bounds(Partition *partition, const RubatoTableSpec *spec, GError **error)
{
    const uint32_t n_parts = partition->n_parts;
    const uint64_t chunk = spec->chunk_size == 0 ? 1 : spec->chunk_size;
    const uint64_t n_chunks = partition->dense
                                  ? partition->n_keys / chunk + (partition->n_keys % chunk != 0)
                                  : UINT64_MAX / chunk;

    for (uint32_t i = 1; i < n_parts; i++) {
        /* the first n_chunks % n_parts parts have one chunk more */
        const uint64_t chunks_before =
            n_chunks / n_parts * i + MIN((uint64_t)i, n_chunks % n_parts);
        const uint64_t keys_before =
            chunks_before > UINT64_MAX / chunk ? UINT64_MAX : chunks_before * chunk;

        partition->bounds[i] =
            partition->first_key +
            (partition->dense ? MIN(keys_before, partition->n_keys) : keys_before);
    }
    (void)error; /* these fit */
    return true;
}

/* Those that a spec may name. The first part begins with the first key; set_bounds sets where the
 * others begin. NULL: parts are no ranges. */
static const struct {
    const char *name;
    bool (*set_bounds)(Partition *partition, const RubatoTableSpec *spec, GError **error);
} partitions[] = {
    { "range", set_even_bounds },
    { "bounds", take_own_bounds },
    { "hash", NULL },
};

bool partition_init(Partition *partition, const RubatoTableSpec *spec, PartitionKeys keys,
                    uint32_t n_parts, GError **error)
{
    const bool dense = keys == PARTITION_KEYS_RANGE;
    Partition made = { .kind = PARTITION_HASH,
                       .dense = dense,
                       .first_key = dense ? spec->first_key : 0,
                       .n_keys = spec->n_keys,
                       .n_parts = n_parts };
    size_t i = 0;

    while (strcmp(partitions[i].name, spec->partition) != 0) /* the spec was checked */
        i++;
    if (partitions[i].set_bounds != NULL) {
        made.kind = PARTITION_RANGE;
        made.bounds = g_new0(RubatoKey, n_parts);
        made.bounds[0] = made.first_key;
        if (!partitions[i].set_bounds(&made, spec, error)) {
            partition_clear(&made);
            return false;
        }
    }
    *partition = made;
    return true;
}

void partition_clear(Partition *partition)
{
    g_clear_pointer(&partition->bounds, g_free);
}

void partition_range(const Partition *partition, uint32_t part, RubatoKey *first, uint64_t *n)
{
    if (partition->kind == PARTITION_HASH) {
        *first = 0;
        *n = UINT64_MAX;
        return;
    }
    *first = partition->bounds[part];
    if (part + 1 < partition->n_parts)
        *n = partition->bounds[part + 1] - *first;
    else
        *n = partition->dense ? partition->first_key + partition->n_keys - *first
                              : UINT64_MAX - *first;
}

/* Compares keys by their distance from first_key. The end of the last range may be 2^64; the bound
 * of an empty part behind it is then 0. */
static inline bool lies_below(const Partition *partition, RubatoKey key, uint32_t part)
{
    return key - partition->first_key < partition->bounds[part] - partition->first_key;
}

static inline uint32_t range_part(const Partition *partition, RubatoKey key)
{
    uint32_t low = 0, high = partition->n_parts;

    if (high <= 8) { /* without a branch to mispredict */
        uint32_t part = 0;

        for (uint32_t i = 1; i < high; i++)
            part += !lies_below(partition, key, i);
        return part;
    }
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;

        if (lies_below(partition, key, middle))
            high = middle;
        else
            low = middle;
    }
    return low;
}

uint64_t partition_digest(const Partition *partition)
{
    uint64_t digest = rubato_mix64(partition->n_parts * UINT64_C(4) + partition->kind);

    for (uint32_t i = 0; partition->kind == PARTITION_RANGE && i < partition->n_parts; i++)
        digest = rubato_mix64(digest ^ partition->bounds[i]);
    return MAX(1, digest);
}

uint32_t partition_part(const Partition *partition, RubatoKey key)
{
    if (partition->n_parts == 1)
        return 0;
    if (partition->kind == PARTITION_RANGE)
        return range_part(partition, key);
    /* the high half of a 32-bit product scales the hash to 0 .. n_parts - 1 */
    return (uint32_t)(((rubato_mix64(key) >> 32) * partition->n_parts) >> 32);
}

void slicer_init(Slicer *slicer, const Partition *partition)
{
    *slicer = (Slicer){ .slices = g_new0(Slice, partition->n_parts) };
}

void slicer_clear(Slicer *slicer)
{
    g_clear_pointer(&slicer->slices, g_free);
    g_clear_pointer(&slicer->at, g_free);
    g_clear_pointer(&slicer->parts_of, g_free);
    g_clear_pointer(&slicer->run, g_free);
}

static bool ensure_capacity(Slicer *slicer, size_t n)
{
    const size_t capacity = MAX(n, slicer->capacity * 2);

    if (n <= slicer->capacity)
        return true;
    slicer->capacity = 0;
    g_free(slicer->at);
    g_free(slicer->parts_of);
    /* see sort_for_few and sort_for_two */
    slicer->at = g_try_new(uint32_t, 2 * (capacity + PARTITION_SPLIT_SPARE));
    slicer->parts_of = g_try_new(uint32_t, capacity);
    if (slicer->at == NULL || slicer->parts_of == NULL)
        return false;
    slicer->capacity = capacity;
    return true;
}

/* Not 0 if one of n + 1 keys is below the one before it. No early exit: several are compared at
 * once. */
RUBATO_VECTOR_CLONES static uint64_t find_descents(const RubatoKey *keys, size_t n)
{
    uint64_t found = 0;

    for (size_t i = 0; i < n; i++)
        found |= keys[i + 1] < keys[i];
    return found;
}

/* n > 0. Most lists that are not sorted show it soon. */
static bool is_ascending(const RubatoKey *keys, size_t n)
{
    size_t i = 1;

    for (; i < MIN(n, LOOKED_AT_FIRST); i++)
        if (keys[i] < keys[i - 1])
            return false;
    for (; i < n; i += LOOKED_AT_ONCE)
        if (find_descents(keys + i - 1, MIN(n - i, LOOKED_AT_ONCE)) != 0)
            return false;
    return true;
}

/* Consecutive ascending keys are sent as a run. */
static RubatoKeys list_or_run(const RubatoKey *keys, size_t n)
{
    bool side_by_side = keys[n - 1] - keys[0] == n - 1;

    for (size_t i = 1; side_by_side && i < n; i++)
        side_by_side = keys[i] == keys[i - 1] + 1;
    if (side_by_side)
        return (RubatoKeys){ .first = keys[0], .n = n };
    return (RubatoKeys){ .keys = keys, .n = n };
}

static uint32_t cut_ascending(Slicer *slicer, const Partition *partition, const RubatoKey *keys,
                              size_t n)
{
    uint32_t n_slices = 0;
    size_t begin = 0;

    for (uint32_t part = range_part(partition, keys[0]); begin < n; part++) {
        size_t low = begin, high = n; /* the first key of a later part is in low .. high */

        if (part + 1 == partition->n_parts)
            low = n;
        while (low < high) {
            const size_t middle = low + (high - low) / 2;

            if (lies_below(partition, keys[middle], part + 1))
                low = middle + 1;
            else
                high = middle;
        }
        if (low == begin)
            continue;
        slicer->slices[n_slices++] = (Slice){ part, list_or_run(keys + begin, low - begin), begin };
        begin = low;
    }
    return n_slices;
}

/* The part of each key, for few parts: one pass for each bound can use vector instructions. */
static void find_parts(const Partition *partition, const RubatoKey *restrict keys, size_t n,
                       uint32_t *restrict parts_of)
{
    if (partition->kind != PARTITION_RANGE) {
        for (size_t i = 0; i < n; i++)
            parts_of[i] = partition_part(partition, keys[i]);
        return;
    }
    memset(parts_of, 0, n * sizeof *parts_of);
    for (uint32_t part = 1; part < partition->n_parts; part++) {
        const uint64_t first_key = partition->first_key;
        const uint64_t bound = partition->bounds[part] - first_key; /* see lies_below */

        for (size_t i = 0; i < n; i++)
            parts_of[i] += keys[i] - first_key >= bound;
    }
}

/* Sorts the keys' positions for two parts. The second list has the upper half of the memory. */
static void sort_for_two(Slicer *slicer, const Partition *partition, const RubatoKey *restrict keys,
                         size_t n)
{
    uint32_t *restrict first = slicer->at;
    uint32_t *restrict second = first + slicer->capacity + PARTITION_SPLIT_SPARE;
    size_t n_second = 0;

    if (partition->kind == PARTITION_RANGE) {
        const RubatoKey first_key = partition->first_key;

        n_second = partition_split(keys, n, first_key, partition->bounds[1] - first_key, first,
                                   second); /* see lies_below */
    } else {
        for (size_t i = 0; i < n; i++) { /* as partition_split does */
            first[i - n_second] = second[n_second] = (uint32_t)i;
            n_second += partition_part(partition, keys[i]);
        }
    }
    slicer->slices[0].keys.at = first;
    slicer->slices[0].keys.n = n - n_second;
    slicer->slices[1].keys.at = second;
    slicer->slices[1].keys.n = n_second;
}

/* The same for a few more parts. Each part's pass goes through all keys, without a branch and
 * without a count in memory for which the next key would have to wait. */
static void sort_for_few(Slicer *slicer, const Partition *partition, size_t n)
{
    const uint32_t *restrict parts_of = slicer->parts_of;
    uint32_t *restrict at = slicer->at;
    size_t end = 0;

    for (uint32_t part = 0; part < partition->n_parts; part++) {
        const size_t begin = end;

        for (size_t i = 0; i < n; i++) {
            at[end] = (uint32_t)i; /* kept if the next line counts it */
            end += parts_of[i] == part;
        }
        slicer->slices[part].keys.at = at + begin;
        slicer->slices[part].keys.n = end - begin;
    }
}

/* The same by a counting sort. */
static void sort_for_many(Slicer *slicer, const Partition *partition, const RubatoKey *keys,
                          size_t n)
{
    Slice *slices = slicer->slices;
    size_t begin = 0;

    for (size_t i = 0; i < n; i++) {
        slicer->parts_of[i] = partition_part(partition, keys[i]);
        slices[slicer->parts_of[i]].keys.n++;
    }
    for (uint32_t part = 0; part < partition->n_parts; part++) {
        slices[part].row = begin; /* for the loop below: the place of the part's next position */
        slices[part].keys.at = slicer->at + begin;
        begin += slices[part].keys.n;
    }
    for (size_t i = 0; i < n; i++)
        slicer->at[slices[slicer->parts_of[i]].row++] = (uint32_t)i;
}

/* Parts that select their keys by position. */
static uint32_t cut_unsorted(Slicer *slicer, const Partition *partition, const RubatoKey *keys,
                             size_t n)
{
    const uint32_t n_parts = partition->n_parts;
    Slice *slices = slicer->slices;
    uint32_t n_slices = 0;

    if (!ensure_capacity(slicer, n))
        return SLICER_NO_MEMORY;
    for (uint32_t part = 0; part < n_parts; part++)
        slices[part] = (Slice){ .part = part, .keys = { .keys = keys } };
    if (n_parts == 2) {
        sort_for_two(slicer, partition, keys, n);
    } else if (n_parts <= FEW_PARTS) {
        find_parts(partition, keys, n, slicer->parts_of);
        sort_for_few(slicer, partition, n);
    } else {
        sort_for_many(slicer, partition, keys, n);
    }
    for (uint32_t part = 0; part < n_parts; part++)
        if (slices[part].keys.n > 0) {
            slices[n_slices] = slices[part];
            slices[n_slices++].row = 0;
        }
    return n_slices;
}

uint32_t slicer_cut_parts(Slicer *slicer, const Partition *partition, const RubatoKey *keys,
                          size_t n)
{
    if (partition->kind == PARTITION_RANGE && is_ascending(keys, n))
        return cut_ascending(slicer, partition, keys, n);
    return cut_unsorted(slicer, partition, keys, n);
}

/* A run over a hashed table becomes a list like any other. */
static uint32_t cut_hashed_run(Slicer *slicer, const Partition *partition, RubatoKey first,
                               size_t n)
{
    RubatoKey *run = g_try_renew(RubatoKey, slicer->run, n);

    if (run == NULL)
        return SLICER_NO_MEMORY;
    slicer->run = run;
    for (size_t i = 0; i < n; i++)
        slicer->run[i] = first + i;
    return cut_unsorted(slicer, partition, slicer->run, n);
}

uint32_t slicer_cut_run(Slicer *slicer, const Partition *partition, RubatoKey first, size_t n)
{
    uint32_t n_slices = 0;
    size_t begin = 0;

    if (n == 0)
        return 0;
    if (partition->n_parts == 1) {
        slicer->slices[0] = (Slice){ 0, { .first = first, .n = n }, 0 };
        return 1;
    }
    if (partition->kind == PARTITION_HASH)
        return cut_hashed_run(slicer, partition, first, n);
    for (uint32_t part = range_part(partition, first); begin < n; part++) {
        size_t slice = n - begin;

        if (part + 1 < partition->n_parts)
            slice = (size_t)MIN((uint64_t)slice, partition->bounds[part + 1] - (first + begin));
        if (slice == 0)
            continue;
        slicer->slices[n_slices++] = (Slice){ part, { .first = first + begin, .n = slice }, begin };
        begin += slice;
    }
    return n_slices;
}

bool partition_holds_all(const Partition *partition, const RubatoKey *keys, size_t n,
                         RubatoKey *wrong)
{
    const size_t i = key_range_find_outside(keys, n, partition->first_key, partition->n_keys);

    if (i == n)
        return true;
    *wrong = keys[i];
    return false;
}

bool partition_holds_run(const Partition *partition, RubatoKey first, size_t n, RubatoKey *wrong)
{
    const uint64_t offset = first - partition->first_key;

    if (n > 0 && first > UINT64_MAX - (n - 1)) {
        *wrong = UINT64_MAX;
        return false;
    }
    if (!partition->dense || n == 0)
        return true;
    if (offset < partition->n_keys && n <= partition->n_keys - offset)
        return true;
    *wrong = offset >= partition->n_keys ? first : partition->first_key + partition->n_keys;
    return false;
}
