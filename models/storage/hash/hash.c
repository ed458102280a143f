/* Hash storage: rows of any 64-bit keys, made as they are needed.
 *
 * Keys are hashed by a seed that only the table's servers know: see key_hash.h. The seed changes
 * only the time that calls take.
 *
 * Extendible hashing (Fagin, Nievergelt, Pippenger, Strong, ACM TODS 4(3), 1979) over small tables
 * of open addressing. The upper half of a key's hash chooses an entry of the directory, which knows
 * a segment; some of its lower bits choose the bucket there in which the search begins.
 *
 *     directory   2^depth entries { buckets, home mask, size, depth }: small, it stays cached
 *     segment     2^size buckets that are homes, and some more for what spills over from the last
 *     bucket      a cache line or two: a few keys and their cells; see bucket.h
 *
 * A segment that is too full doubles its size or, at full size, splits in two. So growth never
 * changes more than one segment (and, rarely, the directory). If the keys were spread evenly over
 * the directory, all segments would split at about the same time, and all would be half empty
 * afterwards. So they are spread as in spiral storage (Martin, 1979): twice as dense at one end of
 * the directory as at the other. Then at any size some segments have just split and others are
 * about to, and the table as a whole stays about 60 % full.
 *
 * Narrow rows lie in their key's cell: one cache miss. Wide ones lie in slabs that never move, and
 * the cells have their numbers. Key 0 marks an empty slot, so the row of key 0 is stored apart.
 * Nothing is ever erased here; bounded.c evicts rows.
 *
 * If there is no memory to grow, nothing changes: all rows stay, and the new row is not created.
 *
 * Of ragged rows a table has here only where they are: 8 bytes for each, which is much beside a
 * short row. So the segments of such a table become fuller (SEGMENT_FILL_DENSE).
 *
 * Thread: the shard's present owner. A search handles several keys at once: first it prefetches the
 * home buckets of all, then it examines them. */
#include <rubato/error.h>
#include <string.h>

#include "models/spec.h"
#include "models/storage/admission/admission.h"
#include "models/storage/hash/hash.h"
#include "models/storage/hash/hash_private.h"
#include "models/storage/hash/paired.h"
#include "models/storage/storage.h"

#define FIRST_DEPTH 2u
#define DENSE_FIRST_DEPTH 4u /* so that few segments grow at the same time, in small tables too */
#define MAX_EMPTINESS 64u    /* entries of the directory for each segment; a few are usual */
#define PREFETCHED 64u       /* keys; enough to cover a miss, few enough to stay in the cache */
#define SLAB_BYTES (128u << 10) /* huge pages have room for several; but a row may be longer */
#define PAGE_BYTES ((size_t)4 << 10)
#define ALIGNMENT 64u

/* ---- growth ---- */

/* Enters a segment into the directory, in all entries whose upper bits are its own. */
static void enter_segment(HashStorage *hash, uint64_t place, const Segment *segment)
{
    const uint32_t spare = hash->depth - segment->depth;
    const uint64_t first = place >> (64 - segment->depth) << spare;

    for (uint64_t i = 0; i < UINT64_C(1) << spare; i++)
        hash->directory[first + i] = *segment;
}

static bool double_directory(HashStorage *hash)
{
    const uint64_t n = UINT64_C(1) << hash->depth;
    Segment *directory = g_try_new(Segment, 2 * n);

    if (directory == NULL)
        return false;
    for (uint64_t i = 0; i < n; i++)
        directory[2 * i] = directory[2 * i + 1] = hash->directory[i];
    g_free(hash->directory);
    hash->directory = directory;
    hash->depth++;
    hash->n_bytes += n * sizeof(Segment);
    return true;
}

static bool double_segment(HashStorage *hash, uint64_t place, const Segment *before)
{
    Segment after = segment_make(&hash->source, before->size_bits + 1u, before->depth);

    while (after.buckets != NULL && !segment_copy(&hash->source, before, 0, &after, NULL)) {
        const uint32_t size_bits = after.size_bits + 1u;

        segment_free(&hash->source, &after);
        after = segment_make(&hash->source, size_bits, before->depth);
    }
    if (after.buckets == NULL)
        return false;
    enter_segment(hash, place, &after);
    segment_free(&hash->source, before);
    return true;
}

/* A half overflows no further than the whole did, so there is room. */
static bool split_segment(HashStorage *hash, uint64_t place, const Segment *before)
{
    const uint32_t depth = before->depth + 1u;
    const uint64_t bit = UINT64_C(1) << (64 - depth);
    const Segment lower = segment_make(&hash->source, before->size_bits, depth);
    const Segment upper = segment_make(&hash->source, before->size_bits, depth);

    if (lower.buckets == NULL || upper.buckets == NULL ||
        (before->depth == hash->depth && !double_directory(hash))) {
        segment_free(&hash->source, &lower);
        segment_free(&hash->source, &upper);
        return false;
    }
    (void)segment_copy(&hash->source, before, bit, &lower, &upper);
    enter_segment(hash, place & ~bit, &lower);
    enter_segment(hash, place | bit, &upper);
    segment_free(&hash->source, before);
    return true;
}

/* Whether the segment may split. If the places of its keys have so many bits in common that
 * splitting would need a huge directory, it gets larger instead. */
static bool splits(const HashStorage *hash, const Segment *segment)
{
    const bool may_split = segment->depth < hash->depth ||
                           (hash->depth < HASH_MAX_DEPTH &&
                            UINT64_C(2) << hash->depth <= MAX_EMPTINESS * hash->source.n_segments);

    return may_split && segment->size_bits >= segment_full_size_bits(&hash->source);
}

uint64_t hash_room_bytes(const HashStorage *hash, uint64_t h)
{
    const Segment *segment = hash_segment_of(hash, h);

    if (!splits(hash, segment))
        return segment_source_growth(&hash->source, segment->size_bits + 1u, 1);
    return segment_source_growth(&hash->source, segment->size_bits, 2) +
           (segment->depth == hash->depth ? sizeof(Segment) << (hash->depth + 1) : 0);
}

bool hash_make_room(HashStorage *hash, uint64_t h)
{
    const Segment segment = *hash_segment_of(hash, h);

    if (splits(hash, &segment))
        return split_segment(hash, segment_place(h), &segment);
    return double_segment(hash, segment_place(h), &segment);
}

/* In the segment that has more keys nothing moves. A segment splits when it is about full, so what
 * has just split does not merge. */
bool hash_merge(HashStorage *hash, uint64_t place)
{
    const SegmentSource *source = &hash->source;
    const Segment here = hash->directory[place >> (64 - hash->depth)];
    const uint64_t bit = UINT64_C(1) << (64 - here.depth);

    if (here.depth <= FIRST_DEPTH || here.size_bits != segment_full_size_bits(source))
        return false;

    const Segment other = hash->directory[(place ^ bit) >> (64 - hash->depth)];

    if (other.depth != here.depth || other.size_bits != here.size_bits)
        return false;

    const uint64_t n_here = *segment_n_used(source->layout, &here),
                   n_other = *segment_n_used(source->layout, &other);
    Segment both = n_here < n_other ? other : here;
    const Segment gone = n_here < n_other ? here : other;

    if (n_here + n_other > (uint64_t)source->layout.n_slots << here.size_bits >> 1 ||
        !paired_absorb(source, &both, &gone))
        return false;
    both.depth--;
    enter_segment(hash, place & ~bit, &both);
    segment_free(&hash->source, &gone);
    return true;
}

/* ---- rows ---- */

uint64_t hash_slab_bytes(const HashStorage *hash)
{
    return segment_pool_growth(&hash->pool, 1) + sizeof(unsigned char *);
}

/* A server has as many rows as there are numbers. */
bool hash_ensure_slab_row(HashStorage *hash)
{
    unsigned char **slabs, *slab;

    if (hash->n_slab_rows == UINT32_MAX)
        return false;
    if (hash->n_slab_rows >> hash->slab_bits < hash->n_slabs)
        return true;
    slabs = g_try_renew(unsigned char *, hash->slabs, hash->n_slabs + 1);
    if (slabs == NULL)
        return false;
    hash->slabs = slabs;
    slab = segment_pool_take(&hash->pool);
    if (slab == NULL)
        return false;
    hash->slabs[hash->n_slabs++] = slab;
    hash->n_bytes += sizeof(slab);
    return true;
}

void *hash_find_or_create_empty_key(HashStorage *hash, HashCreation *creation)
{
    if (hash->row_of_empty_key != NULL)
        hash_note_repeated(creation);
    else if (hash_admits(creation, BUCKET_EMPTY_KEY)) {
        hash->row_of_empty_key = g_try_malloc(hash->row_bytes);
        if (hash->row_of_empty_key == NULL)
            return NULL;
        rubato_init_row(hash->init, BUCKET_EMPTY_KEY, hash->row_of_empty_key);
        hash->n_rows++;
        hash->n_bytes += hash->row_bytes;
    }
    return hash->row_of_empty_key;
}

/* The row of an absent key, created if `creation` admits it and has not made it. NULL if it
 * does not admit it, or if there is no memory for the row. */
static void *find_or_create_row(HashStorage *hash, RubatoKey key, HashCreation *creation)
{
    const uint64_t h = key_hash(&hash->source.key_hash, key);
    unsigned char *cell;
    void *row;

    if (key == BUCKET_EMPTY_KEY)
        return hash_find_or_create_empty_key(hash, creation);
    if (hash_may_have_made(creation, h)) { /* then the key comes twice */
        cell = bucket_search(hash->source.layout, segment_home(hash_segment_of(hash, h), h), key);
        if (cell != NULL) {
            hash_note_repeated(creation);
            return hash_row_of_cell(hash, cell);
        }
    }
    if (!hash_admits(creation, key))
        return NULL;
    if (!hash->is_inline && !hash_ensure_slab_row(hash))
        return NULL;
    while ((cell = segment_insert(&hash->source, hash_segment_of(hash, h), h, key)) == NULL) {
        if (!hash_make_room(hash, h))
            return NULL;
        creation->moved = true;
    }
    if (!hash->is_inline) {
        memcpy(cell, &hash->n_slab_rows, sizeof hash->n_slab_rows);
        hash->n_slab_rows++;
    }
    row = hash_row_of_cell(hash, cell);
    rubato_init_row(hash->init, key, row);
    hash->n_rows++;
    hash_note_made(creation, h);
    return row;
}

/* The functions that find cells, for each instruction set. */
#define FIND(name) name##_plain
#define FIND_TARGET
#define FIND_MATCH bucket_match
#define FIND_BITS BUCKET_BITS
#include "models/storage/hash/find_cells.h"

#ifdef BUCKET_HAS_WIDE
#define FIND(name) name##_avx2
#define FIND_TARGET BUCKET_AVX2
#define FIND_MATCH bucket_match_avx2
#define FIND_BITS 1
#include "models/storage/hash/find_cells.h"

#define FIND(name) name##_avx512
#define FIND_TARGET BUCKET_AVX512
#define FIND_MATCH bucket_match_avx512
#define FIND_BITS 1
#include "models/storage/hash/find_cells.h"
#endif

/* Finds rows. False if one is absent; it is NULL then. Prefetches n_bytes of each. The processor
 * itself fetches the third line of a long row and those behind it. */
static bool find_rows(const HashStorage *hash, const RubatoKey *keys, size_t n, void **rows,
                      size_t n_bytes)
{
    const bool all = hash->find_cells(hash, keys, n, rows);
    const size_t last = MIN(n_bytes - 1, ALIGNMENT);

    for (size_t i = 0; i < n && !hash->is_inline; i++)
        if (rows[i] != NULL && keys[i] != BUCKET_EMPTY_KEY) {
            rows[i] = hash_row_of_cell(hash, rows[i]);
            __builtin_prefetch(rows[i], 1);
            __builtin_prefetch((unsigned char *)rows[i] + last, 1);
        }
    return all;
}

void hash_storage_find(RubatoStorage *storage, const RubatoKey *keys, size_t n, void **rows)
{
    const HashStorage *hash = (const HashStorage *)storage;

    (void)find_rows(hash, keys, n, rows, hash->value_bytes);
}

static void begin_creation(HashCreation *creation, RubatoAdmission *admission)
{
    creation->admission = admission;
    creation->moved = creation->refused_last = false;
    creation->n_refused = creation->n_absent = 0;
    memset(creation->made, 0, sizeof creation->made);
}

/* Of the keys whose rows are NULL. */
static void list_absent(HashCreation *creation, RubatoAdmission *admission, const RubatoKey *keys,
                        size_t n, void *const *rows)
{
    begin_creation(creation, admission);
    for (size_t i = 0; i < n; i++) {
        creation->absent[creation->n_absent] = (uint16_t)i;
        creation->n_absent += rows[i] == NULL;
    }
    creation->has_chosen = admission != NULL && admission_can_choose(admission);
    if (creation->has_chosen) {
        const size_t n_asked = creation->n_absent;

        creation->n_absent =
            admission_choose(admission, keys, creation->absent, n_asked, creation->refused);
        creation->n_refused = n_asked - creation->n_absent;
    }
    for (size_t k = 0; k < HASH_ADMISSION_AHEAD; k++)
        hash_fetch_admission(creation, keys, k);
}

/* Asks for all of a call's keys, and sets `kept` to those that were admitted; returns how many. */
static size_t ask_first(HashCreation *creation, RubatoAdmission *admission, const RubatoKey *keys,
                        size_t n, RubatoKey *kept)
{
    begin_creation(creation, admission);
    creation->has_chosen = true;
    for (size_t i = 0; i < n; i++)
        creation->absent[i] = (uint16_t)i;
    creation->n_absent = admission_choose(admission, keys, creation->absent, n, creation->refused);
    creation->n_refused = n - creation->n_absent;
    for (size_t k = 0; k < creation->n_absent; k++)
        kept[k] = keys[creation->absent[k]];
    return creation->n_absent;
}

/* Sets rows by what was found of those. Nothing was asked about rows that are there: they are not
 * counted as admitted. */
static void place_found(HashCreation *creation, void *const *found, size_t n, void **rows)
{
    const size_t n_kept = creation->n_absent;
    size_t n_absent = 0;

    memset(rows, 0, n * sizeof *rows);
    for (size_t k = 0; k < n_kept; k++) {
        const uint16_t i = creation->absent[k];

        rows[i] = found[k];
        creation->absent[n_absent] = i;
        n_absent += found[k] == NULL;
    }
    creation->n_absent = n_absent;
    creation->admission->n_admitted -= n_kept - n_absent;
}

/* Whether the admission is asked first, and only what it admits is searched for. That is right if
 * it admits each key that has a row, and it saves the search for the others: it pays where an Add's
 * keys are mostly refused. */
static bool asks_first(const HashStorage *hash, const RubatoAdmission *admission)
{
    return hash->asks_first && admission != NULL && !hash->has_unasked &&
           admission_admits_rows(admission);
}

bool hash_find_some(HashStorage *hash, FindCells *find, RubatoAdmission *admission,
                    const RubatoKey *keys, size_t n, void **rows, HashCreation *creation)
{
    RubatoKey kept[RUBATO_STORAGE_BLOCK];
    void *found[RUBATO_STORAGE_BLOCK];

    creation->n_absent = creation->n_refused = 0;
    if (asks_first(hash, admission)) {
        (void)find(hash, kept, ask_first(creation, admission, keys, n, kept), found);
        place_found(creation, found, n, rows);
    } else if (!find(hash, keys, n, rows)) {
        list_absent(creation, admission, keys, n, rows);
    }
    hash->has_unasked |= admission == NULL && creation->n_absent > 0;
    hash->asks_first = 3 * creation->n_refused > n;
    return creation->n_absent == 0;
}

void hash_leave_out_refused(const HashCreation *creation, void **rows)
{
    for (size_t i = 0; i < creation->n_refused; i++)
        rows[creation->refused[i]] = NULL;
}

static bool find_whole_rows(const HashStorage *hash, const RubatoKey *keys, size_t n, void **rows)
{
    return find_rows(hash, keys, n, rows, hash->row_bytes);
}

static bool find_or_admit(RubatoStorage *storage, RubatoAdmission *admission, const RubatoKey *keys,
                          size_t n, void **rows)
{
    HashStorage *hash = (HashStorage *)storage;
    HashCreation creation;
    bool all = true;

    if (hash_find_some(hash, find_whole_rows, admission, keys, n, rows, &creation))
        return true;
    for (size_t k = 0; k < creation.n_absent && all; k++) {
        const size_t i = hash_take_absent(&creation, keys, k);

        rows[i] = find_or_create_row(hash, keys[i], &creation);
        all = rows[i] != NULL || hash_leaves_out(&creation, i);
    }
    if (creation.moved) {
        (void)find_whole_rows(hash, keys, n, rows);
        hash_leave_out_refused(&creation, rows);
    }
    return all;
}

static bool find_or_create(RubatoStorage *storage, const RubatoKey *keys, size_t n, void **rows)
{
    return find_or_admit(storage, NULL, keys, n, rows);
}

/* ---- the ops ---- */

/* Slabs do; cells do not, and the rows of narrow tables lie in them. */
static bool rows_stay(const RubatoStorage *storage)
{
    return !((const HashStorage *)storage)->is_inline;
}

bool hash_storage_use(RubatoStorage *storage, HashInstructions instructions)
{
    HashStorage *hash = (HashStorage *)storage;
    const size_t cell_bytes = hash->source.layout.cell_bytes;
    const bool is_paired = hash->source.is_paired;

#ifdef BUCKET_HAS_WIDE
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
    const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f");

    if (instructions == HASH_WIDEST)
        instructions = has_avx512 ? HASH_AVX512 : has_avx2 ? HASH_AVX2 : HASH_PLAIN;
    if (instructions == HASH_AVX512)
        hash->find_cells = has_avx512 ? choose_find_avx512(cell_bytes, is_paired) : NULL;
    else if (instructions == HASH_AVX2)
        hash->find_cells = has_avx2 ? choose_find_avx2(cell_bytes, is_paired) : NULL;
    else
        hash->find_cells = choose_find_plain(cell_bytes, is_paired);
#else
    hash->find_cells = instructions == HASH_PLAIN || instructions == HASH_WIDEST
                           ? choose_find_plain(cell_bytes, is_paired)
                           : NULL;
#endif
    if (hash->find_cells != NULL)
        return true;
    hash->find_cells = choose_find_plain(cell_bytes, is_paired);
    return false;
}

void hash_storage_clear(HashStorage *hash)
{
    for (uint64_t i = HASH_FIRST_ENTRY(hash->depth); i < UINT64_C(1) << hash->depth;) {
        const Segment segment = hash->directory[i];

        i += UINT64_C(1) << (hash->depth - segment.depth);
        segment_free(&hash->source, &segment);
    }
    segment_source_clear(&hash->source);
    segment_pool_clear(&hash->pool);
    g_free(hash->slabs);
    g_free(hash->directory);
    g_free(hash->row_of_empty_key);
}

static void destroy(RubatoStorage *storage)
{
    HashStorage *hash = (HashStorage *)storage;

    hash_storage_clear(hash);
    g_free(hash);
}

static bool check(const RubatoTableSpec *spec, GError **error)
{
    if (spec->first_key > 0)
        return spec_refuse_idle(spec, "first_key", "the storage \"dense\"", error);
    return spec->n_keys == 0 || spec_refuse_idle(spec, "n_keys", "the storage \"dense\"", error);
}

static size_t whole_pages(size_t n_bytes)
{
    return (n_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

bool hash_storage_init(HashStorage *hash, const RubatoStorageSetup *setup, size_t mark_bytes,
                       size_t struct_bytes, GError **error)
{
    const bool is_dense = setup->spec->shape == RUBATO_SHAPE_RAGGED;
    const uint32_t depth = is_dense ? DENSE_FIRST_DEPTH : FIRST_DEPTH;
    bool all = true;

    hash->init = setup->init;
    hash->row_bytes = setup->row_bytes;
    hash->value_bytes = spec_row_bytes(setup->spec);
    hash->is_inline = setup->row_bytes + mark_bytes <= BUCKET_MAX_CELL_BYTES;
    segment_source_init(&hash->source,
                        (hash->is_inline ? setup->row_bytes : sizeof(uint32_t)) + mark_bytes,
                        /* is_paired= */ mark_bytes > 0,
                        is_dense ? SEGMENT_FILL_DENSE : SEGMENT_FILL_FAST, setup->hash_seed);
    (void)hash_storage_use(&hash->base, HASH_WIDEST);
    while ((setup->row_bytes << (hash->slab_bits + 1)) <= SLAB_BYTES)
        hash->slab_bits++;
    segment_pool_init(&hash->pool, whole_pages(hash->row_bytes << hash->slab_bits),
                      SEGMENT_POOL_HUGE_FROM, mark_bytes > 0 ? 1 : SEGMENT_POOL_MOST_AHEAD);
    hash->depth = depth;
    hash->directory = g_new0(Segment, 1u << depth);
    hash->n_bytes = struct_bytes + (sizeof(Segment) << depth);
    for (uint64_t i = HASH_FIRST_ENTRY(depth); i < 1u << depth; i++) {
        hash->directory[i] =
            segment_make(&hash->source, segment_first_size_bits(&hash->source), depth);
        hash->directory[i].depth = (uint16_t)depth; /* also of one that there is no memory for */
        all &= hash->directory[i].buckets != NULL;
    }
    if (!all) {
        hash_storage_clear(hash);
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "table %s: no memory for the first rows of its hash storage",
                    setup->spec->name);
    }
    return all;
}

static RubatoStorage *create(const RubatoStorageSetup *setup, GError **error)
{
    HashStorage *hash = g_new0(HashStorage, 1);

    if (hash_storage_init(hash, setup, /* mark_bytes= */ 0, sizeof *hash, error))
        return &hash->base;
    g_free(hash);
    return NULL;
}

void *hash_storage_run(RubatoStorage *storage, RubatoKey first, size_t n)
{
    (void)storage;
    (void)first;
    (void)n;
    return NULL;
}

void hash_storage_list(const RubatoStorage *storage, uint64_t first, size_t n, RubatoKey *keys)
{
    const HashStorage *hash = (const HashStorage *)storage;
    const RubatoKey *end = keys + n;

    if (hash->row_of_empty_key != NULL) {
        if (first > 0)
            first--;
        else
            *keys++ = BUCKET_EMPTY_KEY;
    }
    for (uint64_t i = HASH_FIRST_ENTRY(hash->depth);
         keys < end && i < UINT64_C(1) << hash->depth;) {
        const Segment *segment = &hash->directory[i];

        i += UINT64_C(1) << (hash->depth - segment->depth);
        keys += segment_list(hash->source.layout, segment, &first, (size_t)(end - keys), keys);
    }
}

/* Key 0 stands in front of all others. */
static uint64_t place_of(const RubatoStorage *storage, RubatoKey key)
{
    const HashStorage *hash = (const HashStorage *)storage;

    return key == BUCKET_EMPTY_KEY ? 0 : segment_place(key_hash(&hash->source.key_hash, key));
}

/* The keys of the segment that has the place. When it splits later, both halves stay between its
 * bounds. Bounded storage may merge it with the one behind it, which has been walked through partly
 * then, or not at all: all of both comes again. */
bool hash_storage_walk(const RubatoStorage *storage, uint64_t *place, GArray *keys)
{
    const HashStorage *hash = (const HashStorage *)storage;
    const uint64_t first = HASH_FIRST_ENTRY(hash->depth) << (64 - hash->depth);
    const Segment *segment;
    uint64_t skip = 0, width;
    guint n;

    if (*place == 0 && hash->row_of_empty_key != NULL) {
        const RubatoKey empty = BUCKET_EMPTY_KEY;

        g_array_append_val(keys, empty);
    }
    *place = MAX(*place, first);
    segment = &hash->directory[*place >> (64 - hash->depth)];
    n = keys->len;
    g_array_set_size(keys, n + (guint)*segment_n_used(hash->source.layout, segment));
    if (keys->len > n) /* an empty array has no memory */
        (void)segment_list(hash->source.layout, segment, &skip, keys->len - n,
                           &g_array_index(keys, RubatoKey, n));
    width = UINT64_C(1) << (64 - segment->depth);
    if (*place >= UINT64_MAX - width + 1) {
        *place = UINT64_MAX;
        return false;
    }
    *place = *place / width * width + width;
    return true;
}

void hash_storage_size(const RubatoStorage *storage, uint64_t *n_rows, uint64_t *n_bytes)
{
    const HashStorage *hash = (const HashStorage *)storage;

    *n_rows = hash->n_rows;
    *n_bytes =
        hash->n_bytes + segment_source_bytes(&hash->source) + segment_pool_bytes(&hash->pool);
}

const RubatoStorageOps hash_storage_ops = {
    .name = "hash",
    .check = check,
    .create = create,
    .destroy = destroy,
    .find = hash_storage_find,
    .find_or_create = find_or_create,
    .find_or_admit = find_or_admit,
    .rows_stay = rows_stay,
    .run = hash_storage_run,
    .list = hash_storage_list,
    .place_of = place_of,
    .walk = hash_storage_walk,
    .size = hash_storage_size,
};
