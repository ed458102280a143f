/* Hash storage that takes at most so many bytes: at the bound, a row is evicted for each new one.
 * Storage whose rows expire is of this kind, too, perhaps without a bound; see bounded_sweep.c.
 *
 * The storage is laid out and grows as in hash.c, except that a key lies in one of two buckets; see
 * paired.h. Each cell has a mark behind the row (or behind its number), which the order of eviction
 * reads and writes. When both buckets of a new key are full and no key there can move, the segment
 * grows, as long as max_bytes allows (is_its_turn). Then one of the rows in these buckets is
 * evicted, the one that the order of eviction chooses, and the new key takes its cell. No other
 * cell moves, and the buckets have been prefetched. In the end all buckets are full. As keys are
 * hashed, it is a choice among eight or more random rows, which comes close to the exact order.
 *
 * Rows in slabs may fill max_bytes while buckets have room. Then the choice is among at least
 * N_SAMPLED rows, whose keys lie from the home bucket on.
 *
 * The rows of one call must stay until its end: their marks have the bit HELD meanwhile. A segment
 * always has others. It has room for more keys than come in a call, or it may still grow: slabs
 * leave SEGMENT_BYTES to segments, with which all first segments can have the full size.
 *
 * The storage of a replica follows that of its primary, which says what leaves. With the same
 * cells, the row that leaves has room for the one that comes. A replica that was made later has
 * other cells; so it may have to grow beyond the bound. It evicts once it no longer follows.
 *
 * The row of key 0 is no segment's. Room is set aside for it, and it is never evicted.
 *
 * Thread: the shard's present owner. */
#include <math.h>
#include <rubato/error.h>

#include "models/spec.h"
#include "models/storage/eviction/eviction.h"
#include "models/storage/hash/bounded_private.h"
#include "models/storage/hash/paired.h"

#define HELD (UINT32_C(1) << EVICTION_MARK_BITS)
#define N_SAMPLED 8u
#define NO_CELL_BYTES (BUCKET_MAX_CELL_BYTES + sizeof(uint32_t)) /* a row or a number, and a mark */
#define N_NO_CELLS 8u
#define N_CELLS (N_SAMPLED + PAIRED_MAX_CELLS)
#define NO_BOUND (UINT64_MAX / 2)
#define SEGMENT_BYTES (UINT64_C(1) << 20) /* those of the first ones, and one that grows */

static uint32_t now_of(const BoundedStorage *bounded)
{
    return (uint32_t)(bounded->uses.n_uses >> bounded->time_shift) & EVICTION_MARK_MASK;
}

static uint32_t read_mark(const BoundedStorage *bounded, const unsigned char *cell)
{
    uint32_t mark;

    memcpy(&mark, cell + bounded->mark_offset, sizeof mark);
    return mark;
}

static void write_mark(const BoundedStorage *bounded, unsigned char *cell, uint32_t mark)
{
    memcpy(cell + bounded->mark_offset, &mark, sizeof mark);
}

static void use_cell(const BoundedStorage *bounded, unsigned char *cell, uint32_t bits)
{
    const uint32_t mark = read_mark(bounded, cell) & EVICTION_MARK_MASK;

    write_mark(bounded, cell, bounded->eviction->use(mark, now_of(bounded)) | bits);
}

/* What segments may still need while they are small. */
static uint64_t reserve_of(const BoundedStorage *bounded)
{
    const uint64_t n_bytes = segment_source_bytes(&bounded->hash.source);

    return n_bytes < SEGMENT_BYTES ? SEGMENT_BYTES - n_bytes : 0;
}

/* ---- eviction ---- */

/* The row of a cell is evicted. */
static void evict_row(BoundedStorage *bounded, const Segment *segment, const unsigned char *cell)
{
    if (bounded->evicted != NULL)
        bounded->evicted(bounded->evicted_user,
                         paired_key(bounded->hash.source.layout, segment, cell));
    bounded_forget_row(bounded, cell);
    bounded->uses.n_evicted++;
}

/* The one of some cells whose row has the lowest score. */
static unsigned char *choose_by_score(const BoundedStorage *bounded, unsigned char **cells,
                                      size_t n)
{
    unsigned char *chosen = cells[0];
    double lowest = INFINITY;

    for (size_t i = 0; i < n; i++) {
        const double score =
            bounded->score(bounded->score_user, hash_row_of_cell(&bounded->hash, cells[i]));

        if (score < lowest) {
            lowest = score;
            chosen = cells[i];
        }
    }
    return chosen;
}

/* The cell whose row goes; NULL: all are held. There are at most N_CELLS. */
static unsigned char *choose(const BoundedStorage *bounded, unsigned char **cells, size_t n)
{
    uint32_t marks[N_CELLS];
    size_t n_free = 0;

    for (size_t i = 0; i < n; i++) {
        const uint32_t mark = read_mark(bounded, cells[i]);

        if ((mark & HELD) != 0)
            continue;
        marks[n_free] = mark;
        cells[n_free++] = cells[i];
    }
    if (n_free == 0)
        return NULL;
    return bounded->score != NULL
               ? choose_by_score(bounded, cells, n_free)
               : cells[bounded->eviction->choose(marks, n_free, now_of(bounded))];
}

/* Evicts a row that was not asked for: one of some in a segment, from a home bucket on. False: all
 * are held. */
static bool evict_from(BoundedStorage *bounded, const Segment *segment, unsigned char *home)
{
    const BucketLayout layout = bounded->hash.source.layout;
    unsigned char *const end = segment_end(layout, segment), *bucket = home, *cell;
    unsigned char *cells[N_CELLS];
    size_t n = 0;

    do {
        for (uint32_t i = 0; i < layout.n_slots && bucket_keys(bucket)[i] != BUCKET_EMPTY_KEY; i++)
            if ((read_mark(bounded, bucket_cell(layout, bucket, i)) & HELD) == 0)
                cells[n++] = bucket_cell(layout, bucket, i);
        bucket =
            bucket + layout.bucket_bytes == end ? segment->buckets : bucket + layout.bucket_bytes;
    } while (n < N_SAMPLED && bucket != home);
    cell = choose(bounded, cells, n);
    if (cell == NULL)
        return false;
    evict_row(bounded, segment, cell);
    paired_erase(layout, segment, cell);
    return true;
}

/* Rows may be so large that there are few, and the segment of a hash has none. */
static bool evict_for_row(BoundedStorage *bounded, uint64_t h)
{
    const HashStorage *hash = &bounded->hash;
    const Segment *segment = hash_segment_of(hash, h);

    if (evict_from(bounded, segment, segment_home(segment, h)))
        return true;
    for (uint64_t i = HASH_FIRST_ENTRY(hash->depth); i < UINT64_C(1) << hash->depth; i++)
        if (evict_from(bounded, &hash->directory[i], hash->directory[i].buckets))
            return true;
    return false;
}

/* ---- new rows ---- */

/* A number of one that follows, whatever the bound. */
static uint32_t take_beyond(BoundedStorage *bounded)
{
    const uint64_t max_bytes = bounded->max_bytes;

    bounded->max_bytes = NO_BOUND;
    const uint32_t number = bounded_take_new(bounded, 0);
    bounded->max_bytes = max_bytes;
    return number;
}

/* A number for a row in the slabs; evicts a row for it if need be. BOUNDED_NO_NUMBER: there is
 * none. */
static uint32_t take_number(BoundedStorage *bounded, uint64_t h, HashCreation *creation)
{
    uint32_t number = bounded_take_free(bounded);

    if (number == BOUNDED_NO_NUMBER)
        number = bounded_take_new(bounded, reserve_of(bounded));
    if (number == BOUNDED_NO_NUMBER && bounded->leaves != NULL)
        return take_beyond(bounded);
    if (number == BOUNDED_NO_NUMBER && evict_for_row(bounded, h)) {
        creation->moved = true;
        number = bounded_take_free(bounded);
    }
    return number;
}

/* Evicts a row in whose place the key may lie, and gives it its cell. NULL: all are held. */
static unsigned char *replace_one(BoundedStorage *bounded, uint64_t h, RubatoKey key)
{
    HashStorage *hash = &bounded->hash;
    const BucketLayout layout = hash->source.layout;
    const Segment *segment = hash_segment_of(hash, h);
    unsigned char *cells[PAIRED_MAX_CELLS];
    const size_t n = paired_cells(layout, segment, h, cells);
    unsigned char *cell = choose(bounded, cells, n);

    if (cell == NULL)
        return NULL;
    evict_row(bounded, segment, cell);
    paired_rename(layout, segment, cell, key);
    return cell;
}

/* Whether segments cannot grow, and have so many keys on average that one more is not likely to
 * find room by moving another. The one's own count is not read: it lies in memory that nothing else
 * is needed of. */
static bool is_full(const BoundedStorage *bounded, const Segment *segment)
{
    return bounded->is_grown && segment->size_bits >= bounded->full_size_bits &&
           bounded->hash.n_rows >= bounded->full_rows;
}

/* Whether a key is likely to find room by moving another. In a fuller segment it seldom does. */
static bool may_move(const BoundedStorage *bounded, const Segment *segment)
{
    const SegmentSource *source = &bounded->hash.source;

    return !is_full(bounded, segment) &&
           *segment_n_used(source->layout, segment) < segment_max_keys(source, segment);
}

/* Whether max_bytes has no room for the two halves of a full segment. It has none until memory is
 * freed, so no more is computed for each insert. */
static bool is_grown(BoundedStorage *bounded, const Segment *segment)
{
    const SegmentSource *source = &bounded->hash.source;

    if (segment->size_bits < bounded->full_size_bits)
        return false;
    if (!bounded->is_grown &&
        !bounded_has_room_for(bounded, segment_source_growth(source, bounded->full_size_bits, 2))) {
        bounded->is_grown = true;
        bounded->full_rows = segment_max_keys(source, segment) * source->n_segments;
    }
    return bounded->is_grown;
}

/* Whether a segment whose rows lie in the cells may grow before others: if max_bytes has room for
 * all that are before it, and itself, with twice its size, for the rest with its size, and for
 * itself once more, since its rows are copied. That is the order in which segments grow while keys
 * come in any order, for the first are the densest (segment_place). So rows that come in the order
 * of the segments, as those of a part that moves, leave the later ones as many bytes as these
 * had. */
static bool is_its_turn(const BoundedStorage *bounded, const Segment *segment, uint64_t h)
{
    const HashStorage *const hash = &bounded->hash;
    const BucketLayout layout = hash->source.layout;
    const uint64_t n_bytes =
        (uint64_t)(segment_end(layout, segment) - segment->buckets) + layout.bucket_bytes;
    const uint64_t n_all = UINT64_C(1) << segment->depth, first = HASH_FIRST_ENTRY(segment->depth);
    const uint64_t n_until = (segment_place(h) >> (64 - segment->depth)) + 1;

    return !hash->is_inline || bounded->max_bytes == NO_BOUND ||
           hash->n_bytes + (n_all - first + n_until - first + 1) * n_bytes <= bounded->max_bytes;
}

/* Both buckets are full of rows that lie in the cells, in a table that cannot grow: nearly every
 * new key of a table at its max_bytes comes here. Does what replace_one does, in one go, and with
 * constant layouts; the cell becomes zero. NULL: all rows are held. */
BUCKET_INLINE unsigned char *replace_in_pair(BoundedStorage *bounded, BucketLayout layout,
                                             unsigned char *const *homes, RubatoKey key)
{
    uint32_t marks[PAIRED_MAX_CELLS], places[PAIRED_MAX_CELLS];
    size_t n = 0;

    for (uint32_t place = 0; place < 2 * layout.n_slots; place++) {
        unsigned char *const home = homes[place / layout.n_slots];

        marks[n] = read_mark(bounded, bucket_cell(layout, home, place % layout.n_slots));
        places[n] = place;
        n += (marks[n] & HELD) == 0;
    }
    if (n == 0)
        return NULL;

    const uint32_t chosen = places[bounded->eviction->choose(marks, n, now_of(bounded))];
    unsigned char *const home = homes[chosen / layout.n_slots];
    RubatoKey *const old = &bucket_keys(home)[chosen % layout.n_slots];
    unsigned char *const cell = bucket_cell(layout, home, chosen % layout.n_slots);

    if (bounded->evicted != NULL)
        bounded->evicted(bounded->evicted_user, *old);
    bounded->uses.n_evicted++;
    bounded->hash.n_rows--;
    *old = key;
    memset(cell, 0, layout.cell_bytes);
    return cell;
}

static unsigned char *replace_in_full(BoundedStorage *bounded, unsigned char *const *homes,
                                      RubatoKey key)
{
    const BucketLayout layout = bounded->hash.source.layout;

    return layout.cell_bytes == 8    ? replace_in_pair(bounded, bucket_layout(8), homes, key)
           : layout.cell_bytes == 12 ? replace_in_pair(bounded, bucket_layout(12), homes, key)
                                     : replace_in_pair(bounded, bucket_layout(16), homes, key);
}

/* A storage that follows puts rows where the one that it follows does, as long as it has room for
 * them: so both have about the same cells. */
static bool make_room_beyond(BoundedStorage *bounded, const Segment *segment, uint64_t h)
{
    return bounded->leaves != NULL && (paired_make_room(&bounded->hash.source, segment, h) ||
                                       hash_make_room(&bounded->hash, h));
}

static unsigned char *insert(BoundedStorage *bounded, uint64_t h, RubatoKey key,
                             HashCreation *creation)
{
    HashStorage *hash = &bounded->hash;
    const BucketLayout layout = hash->source.layout;
    const Segment *segment = hash_segment_of(hash, h);
    unsigned char *const homes[] = { segment_home(segment, h), segment_other_home(segment, h) };
    unsigned char *cell;

    if (bounded->replaces_in_full && is_full(bounded, segment) &&
        bucket_is_full(layout, homes[0]) && bucket_is_full(layout, homes[1]))
        return replace_in_full(bounded, homes, key);
    while ((cell = paired_insert(layout, hash_segment_of(hash, h), h, key)) == NULL) {
        const bool made_room =
            (may_move(bounded, segment) && paired_make_room(&hash->source, segment, h)) ||
            (!is_grown(bounded, segment) && is_its_turn(bounded, segment, h) &&
             bounded_has_room_for(bounded, hash_room_bytes(hash, h)) && hash_make_room(hash, h)) ||
            make_room_beyond(bounded, segment, h);

        if (!made_room)
            return bounded->leaves != NULL ? NULL : replace_one(bounded, h, key);
        creation->moved = true;
        segment = hash_segment_of(hash, h);
    }
    return cell;
}

/* ---- one that follows ---- */

static bool is_home_of(const BoundedStorage *bounded, uint64_t h, const unsigned char *cell)
{
    const Segment *segment = hash_segment_of(&bounded->hash, h);
    const size_t n_bytes = bounded->hash.source.layout.bucket_bytes;

    return (size_t)(cell - segment_home(segment, h)) < n_bytes ||
           (size_t)(cell - segment_other_home(segment, h)) < n_bytes;
}

/* The rows leave that are to leave for the new one. It gets the cell of one of them if it may lie
 * there: then no other cell moves. NULL: it has none yet. */
static unsigned char *take_place(BoundedStorage *bounded, uint64_t h, RubatoKey key,
                                 HashCreation *creation)
{
    HashStorage *hash = &bounded->hash;
    const BucketLayout layout = hash->source.layout;
    bool has_place = false;
    RubatoKey leaving;

    while (bounded->leaves(bounded->leaves_user, &leaving)) {
        const uint64_t from = key_hash(&hash->source.key_hash, leaving);
        const Segment *segment = hash_segment_of(hash, from);
        unsigned char *cell =
            leaving == BUCKET_EMPTY_KEY ? NULL : paired_find(layout, segment, from, leaving);

        bounded->uses.n_evicted++;
        if (cell == NULL || (read_mark(bounded, cell) & HELD) != 0)
            continue; /* a sweep has removed it; no row of this call leaves */
        bounded_forget_row(bounded, cell);
        if (hash->is_inline && !has_place && is_home_of(bounded, h, cell)) {
            paired_rename(layout, segment, cell, key);
            has_place = true;
            continue;
        }
        paired_erase(layout, segment, cell);
        creation->moved = true;
    }
    return has_place ? paired_find(layout, hash_segment_of(hash, h), h, key) : NULL;
}

/* The cell of an absent key (for key 0 its row), created if `creation` admits it and has not
 * made it. Its row is held then. */
static void *find_or_create_cell(BoundedStorage *bounded, RubatoKey key, HashCreation *creation)
{
    HashStorage *hash = &bounded->hash;
    const uint64_t h = key_hash(&hash->source.key_hash, key);
    uint32_t number = BOUNDED_NO_NUMBER;
    unsigned char *cell = NULL;

    if (key == BUCKET_EMPTY_KEY)
        return hash_find_or_create_empty_key(hash, creation);
    if (hash_may_have_made(creation, h)) { /* then the key comes twice */
        cell = paired_find(hash->source.layout, hash_segment_of(hash, h), h, key);
        if (cell != NULL) {
            hash_note_repeated(creation);
            return cell;
        }
    }
    if (!hash_admits(creation, key))
        return NULL;
    if (bounded->leaves != NULL)
        cell = take_place(bounded, h, key, creation);
    if (!hash->is_inline && (number = take_number(bounded, h, creation)) == BOUNDED_NO_NUMBER)
        return NULL;
    if (cell == NULL)
        cell = insert(bounded, h, key, creation);
    if (cell == NULL) {
        if (number != BOUNDED_NO_NUMBER)
            bounded_give_number(bounded, number);
        return NULL;
    }
    if (!hash->is_inline)
        memcpy(cell, &number, sizeof number);
    rubato_init_row(hash->init, key, hash_row_of_cell(hash, cell));
    write_mark(bounded, cell, 0);
    use_cell(bounded, cell, HELD);
    hash->n_rows++;
    bounded->n_made++;
    hash_note_made(creation, h);
    return cell;
}

static void mark_all(const BoundedStorage *bounded, const RubatoKey *keys, size_t n, void **cells,
                     uint32_t bits)
{
    for (size_t i = 0; i < n; i++)
        if (cells[i] != NULL && keys[i] != BUCKET_EMPTY_KEY)
            use_cell(bounded, cells[i], bits);
}

/* Without a jump: which keys a table has, or admits, nobody can predict. Instead of a cell without
 * a mark one of some others is written: a write to the one that was written just before would wait.
 */
static void release_all(const BoundedStorage *bounded, const RubatoKey *keys, size_t n,
                        void **cells)
{
    unsigned char none[N_NO_CELLS][NO_CELL_BYTES] = { 0 };

    for (size_t i = 0; i < n; i++) {
        const uintptr_t marked = -(uintptr_t)((cells[i] != NULL) & (keys[i] != BUCKET_EMPTY_KEY));
        unsigned char *const cell =
            (void *)(((uintptr_t)cells[i] & marked) | ((uintptr_t)none[i % N_NO_CELLS] & ~marked));

        write_mark(bounded, cell, read_mark(bounded, cell) & EVICTION_MARK_MASK);
    }
}

/* Creates absent rows; all others are held. */
static bool create_absent(BoundedStorage *bounded, HashCreation *creation, const RubatoKey *keys,
                          size_t n, void **cells)
{
    const HashStorage *hash = &bounded->hash;
    bool all = true;

    for (size_t k = 0; k < creation->n_absent && all; k++) {
        const size_t i = hash_take_absent(creation, keys, k);

        cells[i] = find_or_create_cell(bounded, keys[i], creation);
        all = cells[i] != NULL || hash_leaves_out(creation, i);
    }
    if (creation->moved)
        (void)hash->find_cells(hash, keys, n, cells);
    release_all(bounded, keys, n, cells);
    hash_leave_out_refused(creation, cells);
    return all;
}

/* ---- the ops ---- */

static bool find_or_admit(RubatoStorage *storage, RubatoAdmission *admission, const RubatoKey *keys,
                          size_t n, void **rows)
{
    BoundedStorage *bounded = (BoundedStorage *)storage;
    HashStorage *hash = &bounded->hash;
    HashCreation creation;
    bool all;

    all = hash_find_some(hash, hash->find_cells, admission, keys, n, rows, &creation);
    bounded->uses.n_uses += n;
    mark_all(bounded, keys, n, rows, all ? 0 : HELD);
    all = all || create_absent(bounded, &creation, keys, n, rows);
    for (size_t i = 0; i < n && !hash->is_inline; i++)
        if (rows[i] != NULL && keys[i] != BUCKET_EMPTY_KEY) {
            rows[i] = hash_row_of_cell(hash, rows[i]);
            __builtin_prefetch(rows[i], 1);
        }
    return all;
}

static bool find_or_create(RubatoStorage *storage, const RubatoKey *keys, size_t n, void **rows)
{
    return find_or_admit(storage, NULL, keys, n, rows);
}

/* Rows of 8-byte values stay aligned. */
static size_t mark_bytes_of(const RubatoTableSpec *spec)
{
    const size_t value_bytes = rubato_dtype_size(spec->dtype);

    return MAX(sizeof(uint32_t), value_bytes);
}

/* In slabs: so many rows that one is there to be evicted whatever a call holds; half a slab may
 * stay unused. */
static uint64_t least_bytes(const RubatoTableSpec *spec, size_t row_bytes)
{
    const uint64_t n_rows = 2 * RUBATO_STORAGE_BLOCK;

    if (row_bytes + mark_bytes_of(spec) <= BUCKET_MAX_CELL_BYTES)
        return 2 * SEGMENT_BYTES;
    return 4 * SEGMENT_BYTES + n_rows * row_bytes;
}

static StorageUses *uses(RubatoStorage *storage)
{
    return &((BoundedStorage *)storage)->uses;
}

static void find_marks(RubatoStorage *storage, const RubatoKey *keys, size_t n, void **marks)
{
    const BoundedStorage *bounded = (const BoundedStorage *)storage;

    (void)bounded->hash.find_cells(&bounded->hash, keys, n, marks);
    for (size_t i = 0; i < n; i++)
        if (keys[i] == BUCKET_EMPTY_KEY)
            marks[i] = NULL;
        else if (marks[i] != NULL)
            marks[i] = (unsigned char *)marks[i] + bounded->mark_offset;
}

static bool replaces_in_full(const BoundedStorage *bounded)
{
    return bounded->hash.is_inline && bounded->eviction->choose != NULL && bounded->score == NULL &&
           bounded->leaves == NULL;
}

static void set_score(RubatoStorage *storage, double (*score)(const void *user, const void *row),
                      const void *user)
{
    BoundedStorage *bounded = (BoundedStorage *)storage;

    bounded->score = score;
    bounded->replaces_in_full = replaces_in_full(bounded);
    bounded->score_user = user;
}

static void set_leaves(RubatoStorage *storage, bool (*leaves)(void *user, RubatoKey *key),
                       void *user)
{
    BoundedStorage *bounded = (BoundedStorage *)storage;

    bounded->leaves = leaves;
    bounded->leaves_user = user;
    bounded->replaces_in_full = replaces_in_full(bounded);
    bounded->is_grown = false; /* it may have grown beyond its bound: this is found out anew */
}

static uint64_t n_made(const RubatoStorage *storage)
{
    return ((const BoundedStorage *)storage)->n_made;
}

static void set_evicted(RubatoStorage *storage, void (*evicted)(void *user, RubatoKey key),
                        void *user)
{
    BoundedStorage *bounded = (BoundedStorage *)storage;

    bounded->evicted = evicted;
    bounded->evicted_user = user;
}

static void destroy(RubatoStorage *storage)
{
    BoundedStorage *bounded = (BoundedStorage *)storage;

    hash_storage_clear(&bounded->hash);
    g_free(bounded->slabs);
    g_free(bounded);
}

static RubatoStorage *create(const RubatoStorageSetup *setup, GError **error)
{
    const RubatoTableSpec *spec = setup->spec;
    BoundedStorage *bounded = g_new0(BoundedStorage, 1);

    if (!hash_storage_init(&bounded->hash, setup, mark_bytes_of(spec), sizeof *bounded, error)) {
        g_free(bounded);
        return NULL;
    }
    bounded->eviction = eviction_find(spec_evict_name(spec));
    bounded->max_bytes = spec->max_bytes == 0 ? NO_BOUND : spec->max_bytes - setup->row_bytes;
    bounded->mark_offset = bounded->hash.is_inline ? setup->row_bytes : sizeof(uint32_t);
    bounded->full_size_bits = segment_full_size_bits(&bounded->hash.source);
    bounded->replaces_in_full = replaces_in_full(bounded);
    bounded->first_free = bounded->first_empty = BOUNDED_NO_NUMBER;

    const uint64_t n_rows = spec->max_bytes / (setup->row_bytes + 3 * sizeof(RubatoKey) / 2);

    while (n_rows >> bounded->time_shift > EVICTION_UNITS)
        bounded->time_shift++;
    return &bounded->hash.base;
}

extern const BoundedStorageOps bounded_hash_storage_ops;

const BoundedStorageOps bounded_hash_storage_ops = {
    .base = { .name = "hash",
              .create = create,
              .destroy = destroy,
              .find = hash_storage_find,
              .find_or_create = find_or_create,
              .find_or_admit = find_or_admit,
              .run = hash_storage_run,
              .list = hash_storage_list,
              .walk = hash_storage_walk,
              .size = hash_storage_size },
    .least_bytes = least_bytes,
    .uses = uses,
    .find_marks = find_marks,
    .set_score = set_score,
    .set_evicted = set_evicted,
    .set_leaves = set_leaves,
    .n_made = n_made,
    .erase = bounded_erase,
    .sweep = bounded_sweep,
};
