/* The memory of rows of different lengths.
 *
 * DESIGN NOTE
 *
 * A RaggedRow says by its upper 8 bits where the row's bytes are:
 *
 *     0            nowhere: the row has none
 *     1 to 7       in the RaggedRow itself, so many
 *     8 to 64      so many in a place of short_rows.h; the other bits are its number
 *     IN_BLOCK     in a block: the number of its segment, and where it begins there
 *
 * So a short row pays for no header and leaves no garbage. All below is about blocks.
 *
 * A block is 12 bytes of header (the row's length and its key) and the row's bytes, rounded up to
 * the room of its length. The room is a function of the length alone, so it is not stored: a
 * multiple of a 16th to a 32nd of the length. A row that keeps its room changes in place. So a row
 * to which little is appended at a time is copied once for every 16th of its length.
 *
 * A block whose key's row lies elsewhere is garbage. Thus nothing has to be marked, and compaction
 * needs no list: it goes over a segment from block to block, asks the storage where the key's row
 * is, and copies the block if that is here. A garbage block keeps its length, by which the next one
 * is found.
 *
 * Compaction takes the segment with the fewest used bytes. It begins when the closed segments have
 * more than a 5th of garbage over what is used; then the fewest are at most 5/6 of a segment. So
 * for 1 block that it frees it copies at most 5 and looks at 6. Each block that becomes garbage
 * pays for 8: compaction keeps up with any requests, as long as not more than MOST_WORK / 8 becomes
 * garbage between two calls of ragged_heap_compact. What is paid for and not done waits for later
 * calls, so after a peak memory shrinks again.
 *
 * A row longer than a 16th of a segment gets one of its own, which goes when the row does. The size
 * of segments follows that of all rows, so that a small table stays small.
 *
 * Thread: the shard's present owner. */
#include "models/ragged/ragged_heap.h"

#include <assert.h>
#include <string.h>

#include "io/memory_room.h"
#include "models/ragged/short_rows.h"

enum {
    INSIDE_MOST = 7,    /* bytes, which lie in the RaggedRow */
    IN_BLOCK = 255,     /* its upper 8 bits, if the row has a block */
    KIND_SHIFT = 56,    /* where those begin, */
    SEGMENT_SHIFT = 24, /* and where the number of the block's segment does */
    UNIT = 4,           /* bytes: blocks begin at multiples of it */
    NO_SEGMENT = -1,
    SEGMENTS_OF_ALL = 64, /* a segment is that part of all rows, */
    LONG_PART = 16,       /* and a row longer than that part of it has its own */
    GARBAGE_PART = 5,     /* of the used bytes may be garbage */
    WORK_OF_A_BYTE = 8,   /* and of RAGGED_BLOCK_WORK */
};

#define LEAST_SEGMENT ((size_t)4 << 10)
#define MOST_SEGMENT ((size_t)1 << 20)

typedef struct {
    uint32_t length;
    uint32_t key[2];
} Header;

G_STATIC_ASSERT(sizeof(Header) == 12);
G_STATIC_ASSERT(MOST_SEGMENT / UNIT < 1 << SEGMENT_SHIFT);
G_STATIC_ASSERT(INSIDE_MOST + 1 == SHORT_ROWS_LEAST);
G_STATIC_ASSERT(G_BYTE_ORDER == G_LITTLE_ENDIAN); /* the upper 8 bits are the last byte */

typedef struct {
    unsigned char *bytes; /* NULL: a free slot */
    uint32_t size;
    uint32_t end;      /* where the next block begins */
    uint32_t used;     /* bytes of blocks that are no garbage */
    int32_t next_free; /* of a free slot */
    bool is_shared;    /* by many blocks */
} Segment;

struct RaggedHeap {
    RaggedFind *find;
    void *user;

    ShortRows short_rows;
    GArray *segments; /* of Segment */
    int32_t first_free;
    int32_t open; /* the segment that gets new blocks; NO_SEGMENT: none */

    int32_t victim; /* the segment that is being compacted; NO_SEGMENT: none */
    uint32_t victim_at;

    uint64_t n_row_bytes;    /* of rows */
    uint64_t n_all_bytes;    /* of segments */
    uint64_t n_shared_bytes; /* of segments that share rows */
    uint64_t n_shared_used;  /* of those, of blocks that are no garbage */
    uint64_t owed; /* work of compaction that blocks have paid for, and that is not done */
    uint64_t most_work;
};

/* ---- rows ---- */

static inline Segment *segment_at(const RaggedHeap *heap, int32_t i)
{
    return &g_array_index(heap->segments, Segment, i);
}

static inline uint32_t kind_of(RaggedRow row)
{
    return (uint32_t)(row >> KIND_SHIFT);
}

static inline RaggedRow block_row(int32_t segment, uint32_t at)
{
    return (uint64_t)IN_BLOCK << KIND_SHIFT | (uint64_t)(uint32_t)segment << SEGMENT_SHIFT |
           at / UNIT;
}

static inline int32_t segment_of(RaggedRow row)
{
    return (int32_t)(uint32_t)(row >> SEGMENT_SHIFT);
}

static inline Header *header_of(const RaggedHeap *heap, RaggedRow row)
{
    const Segment *segment = segment_at(heap, segment_of(row));
    const size_t at = row & ((UINT64_C(1) << SEGMENT_SHIFT) - 1);

    return (Header *)(void *)(segment->bytes + at * UNIT);
}

static inline RaggedRow short_row(size_t length, uint64_t place)
{
    return (uint64_t)length << KIND_SHIFT | place;
}

static inline uint64_t place_of(RaggedRow row)
{
    return row & ((UINT64_C(1) << KIND_SHIFT) - 1);
}

static inline bool is_short(size_t length)
{
    return length >= SHORT_ROWS_LEAST && length <= SHORT_ROWS_MOST;
}

/* Of a row in a block. */
static size_t room_of(size_t length)
{
    const size_t part = (size_t)1 << (g_bit_storage(length) - 1) >> 4;

    return (length + part - 1) / part * part;
}

static size_t block_bytes(size_t length)
{
    return sizeof(Header) + room_of(length);
}

size_t ragged_heap_length(const RaggedHeap *heap, RaggedRow row)
{
    const uint32_t kind = kind_of(row);

    return kind == IN_BLOCK ? header_of(heap, row)->length : kind;
}

void ragged_heap_prefetch(const RaggedHeap *heap, RaggedRow row)
{
    const uint32_t kind = kind_of(row);

    if (kind == IN_BLOCK)
        __builtin_prefetch(header_of(heap, row));
    else if (kind > INSIDE_MOST)
        __builtin_prefetch(short_rows_at(&heap->short_rows, short_rows_room(kind), place_of(row)));
}

void *ragged_heap_bytes(const RaggedHeap *heap, RaggedRow *row)
{
    const uint32_t kind = kind_of(*row);

    if (kind == IN_BLOCK)
        return header_of(heap, *row) + 1;
    if (kind > INSIDE_MOST)
        return short_rows_at(&heap->short_rows, short_rows_room(kind), place_of(*row));
    return kind == 0 ? NULL : row;
}

/* ---- segments ---- */

/* A segment for many blocks, or for one alone. Returns NO_SEGMENT if there is no memory. */
static int32_t new_segment(RaggedHeap *heap, size_t size, bool is_shared)
{
    const Segment segment = { .bytes = memory_try_malloc(size),
                              .size = (uint32_t)size,
                              .is_shared = is_shared };
    int32_t slot = heap->first_free;

    if (segment.bytes == NULL)
        return NO_SEGMENT;
    if (slot != NO_SEGMENT) {
        heap->first_free = segment_at(heap, slot)->next_free;
        *segment_at(heap, slot) = segment;
    } else {
        slot = (int32_t)heap->segments->len;
        g_array_append_val(heap->segments, segment);
    }
    heap->n_all_bytes += size;
    if (is_shared)
        heap->n_shared_bytes += size;
    return slot;
}

static void free_segment(RaggedHeap *heap, int32_t i)
{
    Segment *segment = segment_at(heap, i);

    heap->n_all_bytes -= segment->size;
    if (segment->is_shared)
        heap->n_shared_bytes -= segment->size;
    g_free(segment->bytes);
    *segment = (Segment){ .next_free = heap->first_free };
    heap->first_free = i;
    if (heap->victim == i)
        heap->victim = NO_SEGMENT;
    if (heap->open == i)
        heap->open = NO_SEGMENT;
}

static size_t segment_size(const RaggedHeap *heap)
{
    return CLAMP(heap->n_row_bytes / SEGMENTS_OF_ALL, LEAST_SEGMENT, MOST_SEGMENT) / UNIT * UNIT;
}

/* ---- blocks ---- */

/* 0 if there is no memory. */
static RaggedRow new_block(RaggedHeap *heap, RubatoKey key, size_t length)
{
    const size_t size = block_bytes(length);
    const bool is_shared = size <= segment_size(heap) / LONG_PART;
    int32_t i = is_shared ? heap->open : NO_SEGMENT;

    if (i == NO_SEGMENT || size > segment_at(heap, i)->size - segment_at(heap, i)->end) {
        i = new_segment(heap, is_shared ? segment_size(heap) : size, is_shared);
        if (i == NO_SEGMENT)
            return 0;
        if (is_shared)
            heap->open = i;
    }
    Segment *const segment = segment_at(heap, i);
    const RaggedRow row = block_row(i, segment->end);
    Header *const header = header_of(heap, row);

    header->length = (uint32_t)length;
    memcpy(header->key, &key, sizeof key);
    segment->end += (uint32_t)size;
    segment->used += (uint32_t)size;
    if (is_shared)
        heap->n_shared_used += size;
    return row;
}

/* The block becomes garbage. A segment without other blocks is freed. */
static void drop_block(RaggedHeap *heap, RaggedRow row)
{
    const size_t size = block_bytes(header_of(heap, row)->length);
    Segment *const segment = segment_at(heap, segment_of(row));

    segment->used -= (uint32_t)size;
    if (segment->is_shared)
        heap->n_shared_used -= size;
    if (segment->used == 0)
        free_segment(heap, segment_of(row));
}

/* ---- rows of all lengths ---- */

/* A row of n bytes that are not set. False if there is no memory. */
static bool new_row(RaggedHeap *heap, RubatoKey key, size_t n, RaggedRow *row)
{
    uint64_t place;

    if (n <= INSIDE_MOST) {
        *row = short_row(n, 0);
        return true;
    }
    if (!is_short(n)) {
        *row = new_block(heap, key, n);
        return *row != 0;
    }
    if (!short_rows_take(&heap->short_rows, short_rows_room(n), key, &place))
        return false;
    *row = short_row(n, place);
    return true;
}

/* The row's place is another row's now; the storage hears of this. */
static void drop_short(RaggedHeap *heap, RaggedRow row)
{
    const size_t room = short_rows_room(kind_of(row));
    RaggedRow *moved_row;
    RubatoKey moved;
    uint64_t from;

    if (!short_rows_drop(&heap->short_rows, room, place_of(row), &moved, &from))
        return;
    heap->find(heap->user, &moved, 1, &moved_row);
    assert(moved_row != NULL && place_of(*moved_row) == from &&
           short_rows_room(kind_of(*moved_row)) == room);
    *moved_row = short_row(kind_of(*moved_row), place_of(row));
}

static void drop_row(RaggedHeap *heap, RaggedRow row, size_t length)
{
    if (kind_of(row) == IN_BLOCK) {
        heap->owed += WORK_OF_A_BYTE * (uint64_t)(RAGGED_BLOCK_WORK + block_bytes(length));
        drop_block(heap, row);
    } else if (kind_of(row) > INSIDE_MOST) {
        drop_short(heap, row);
    }
}

/* Whether a row can take its new length where it is; then it does. */
static bool resize_in_place(RaggedHeap *heap, RaggedRow *row, size_t n, size_t before)
{
    if (is_short(n) && is_short(before) && short_rows_room(n) == short_rows_room(before))
        *row = short_row(n, place_of(*row));
    else if (n > SHORT_ROWS_MOST && before > SHORT_ROWS_MOST && room_of(n) == room_of(before))
        header_of(heap, *row)->length = (uint32_t)n;
    else
        return false;
    return true;
}

bool ragged_heap_resize(RaggedHeap *heap, RubatoKey key, RaggedRow *row, size_t n, size_t kept)
{
    const size_t before = ragged_heap_length(heap, *row);
    RaggedRow after;

    assert(n <= RUBATO_RAGGED_MOST_ROW_BYTES && kept <= MIN(n, before));
    if (!resize_in_place(heap, row, n, before)) {
        RaggedRow old = *row;

        if (!new_row(heap, key, n, &after))
            return false;
        if (kept > 0)
            memcpy(ragged_heap_bytes(heap, &after), ragged_heap_bytes(heap, &old), kept);
        *row = after; /* before the old row's place becomes another one's */
        drop_row(heap, old, before);
    }
    heap->n_row_bytes += n - before;
    return true;
}

/* ---- compaction ---- */

/* The closed segment with the largest part of garbage; NO_SEGMENT if there is too little garbage in
 * all of them. */
static int32_t find_victim(const RaggedHeap *heap)
{
    const uint64_t open_bytes = heap->open == NO_SEGMENT ? 0 : segment_at(heap, heap->open)->size;
    int32_t victim = NO_SEGMENT;
    double least = 1;

    if (heap->n_shared_bytes - open_bytes <=
        heap->n_shared_used + heap->n_shared_used / GARBAGE_PART)
        return NO_SEGMENT;
    for (int32_t i = 0; i < (int32_t)heap->segments->len; i++) {
        const Segment *segment = segment_at(heap, i);

        if (segment->bytes == NULL || !segment->is_shared || i == heap->open)
            continue;
        if ((double)segment->used / segment->size < least) {
            least = (double)segment->used / segment->size;
            victim = i;
        }
    }
    return victim;
}

/* Copies a block of the victim. False if there is no memory. */
static bool move_block(RaggedHeap *heap, RubatoKey key, RaggedRow *row)
{
    RaggedRow from = *row;
    const size_t length = ragged_heap_length(heap, from);

    *row = new_block(heap, key, length);
    if (*row == 0) {
        *row = from;
        return false;
    }
    memcpy(ragged_heap_bytes(heap, row), ragged_heap_bytes(heap, &from), length);
    drop_block(heap, from); /* the last one frees the victim */
    return true;
}

/* Some blocks of the victim. Returns the work that it was; 0 if there is no memory. */
static uint64_t compact_blocks(RaggedHeap *heap)
{
    const int32_t victim = heap->victim;
    const Segment *const segment = segment_at(heap, victim);
    RubatoKey keys[RAGGED_FIND_MOST];
    RaggedRow blocks[RAGGED_FIND_MOST], *rows[RAGGED_FIND_MOST];
    uint64_t work = 0;
    size_t n = 0;

    assert(heap->victim_at < segment->end); /* else it would be empty, and free */
    while (n < RAGGED_FIND_MOST && heap->victim_at < segment->end) {
        blocks[n] = block_row(victim, heap->victim_at);
        const Header *const header = header_of(heap, blocks[n]);

        memcpy(&keys[n++], header->key, sizeof keys[0]);
        heap->victim_at += (uint32_t)block_bytes(header->length);
    }
    heap->find(heap->user, keys, n, rows);
    for (size_t i = 0; i < n; i++) {
        work += RAGGED_BLOCK_WORK;
        if (rows[i] == NULL || *rows[i] != blocks[i])
            continue;
        work += ragged_heap_length(heap, blocks[i]);
        if (!move_block(heap, keys[i], rows[i])) {
            heap->victim = NO_SEGMENT; /* what is left of it is looked at again */
            return 0;
        }
    }
    return work;
}

void ragged_heap_compact(RaggedHeap *heap)
{
    const uint64_t most = MIN(RAGGED_MOST_WORK, heap->owed);
    uint64_t work = 0;

    while (work < most) {
        if (heap->victim == NO_SEGMENT) {
            heap->victim = find_victim(heap);
            heap->victim_at = 0;
        }
        if (heap->victim == NO_SEGMENT) {
            heap->owed = 0; /* there is nothing to pay for */
            break;
        }
        const uint64_t some = compact_blocks(heap);

        if (some == 0)
            break;
        work += some;
    }
    heap->owed -= MIN(heap->owed, work);
    heap->most_work = MAX(heap->most_work, work);
}

/* ---- the heap ---- */

RaggedHeap *ragged_heap_new(RaggedFind *find, void *user)
{
    RaggedHeap *heap = g_new0(RaggedHeap, 1);

    heap->find = find;
    heap->user = user;
    heap->segments = g_array_new(FALSE, FALSE, sizeof(Segment));
    heap->first_free = heap->open = heap->victim = NO_SEGMENT;
    return heap;
}

void ragged_heap_free(RaggedHeap *heap)
{
    if (heap == NULL)
        return;
    for (guint i = 0; i < heap->segments->len; i++)
        g_free(g_array_index(heap->segments, Segment, i).bytes);
    g_array_unref(heap->segments);
    short_rows_clear(&heap->short_rows);
    g_free(heap);
}

uint64_t ragged_heap_row_bytes(const RaggedHeap *heap)
{
    return heap->n_row_bytes;
}

uint64_t ragged_heap_all_bytes(const RaggedHeap *heap)
{
    return heap->n_all_bytes + heap->short_rows.n_bytes + heap->segments->len * sizeof(Segment) +
           sizeof *heap;
}

uint64_t ragged_heap_most_work(const RaggedHeap *heap)
{
    return heap->most_work;
}
