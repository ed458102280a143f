/* The memory of rows of different lengths, of one shard.
 *
 * The shard's storage has a RaggedRow for each key, which says where the row's bytes are. Up to 7
 * of them lie in the RaggedRow itself; up to 64 have a place of their own (short_rows.h). Longer
 * rows are blocks, which follow one another in segments; a long block has a segment of its own. A
 * block that is no longer used stays as garbage until its segment is compacted: the blocks that are
 * still used are copied. Each step of this copies a bounded number of bytes.
 *
 * Besides the storage's memory, this takes nothing for rows of up to 7 bytes, 8 bytes for each row
 * of up to 64, and for longer ones at most about 1.3 × their bytes and 15 bytes for each.
 *
 * Threads: the shard's present owner. */
#ifndef RUBATO_MODELS_RAGGED_RAGGED_HEAP_H
#define RUBATO_MODELS_RAGGED_RAGGED_HEAP_H

#include <rubato/ragged_table.h>

/* Where a row is, or what it is; 0: it has no bytes. */
typedef uint64_t RaggedRow;

/* The most keys that one call of `find` gets. */
#define RAGGED_FIND_MOST 64

/* Finds the rows of keys in the storage; NULL for absent ones. */
typedef void RaggedFind(void *user, const RubatoKey *keys, size_t n, RaggedRow **rows);

typedef struct RaggedHeap RaggedHeap;

/* (transfer full) */
RaggedHeap *ragged_heap_new(RaggedFind *find, void *user);
void ragged_heap_free(RaggedHeap *heap);

/* The bytes of a row: how many, and where they lie, at any alignment; they may lie in *row.
 * They stay there until a row changes its length, or until the next step of compaction. */
size_t ragged_heap_length(const RaggedHeap *heap, RaggedRow row);
void *ragged_heap_bytes(const RaggedHeap *heap, RaggedRow *row);

/* Fetches the row's length into the cache. */
void ragged_heap_prefetch(const RaggedHeap *heap, RaggedRow row);

/* Gives the row of a key n bytes; n is at most RUBATO_RAGGED_MOST_ROW_BYTES. The first `kept` ones
 * are those that it had; kept is at most the length before and after. The bytes of other rows may
 * move. False if there is no memory: then nothing has changed. */
bool ragged_heap_resize(RaggedHeap *heap, RubatoKey key, RaggedRow *row, size_t n, size_t kept);

/* Compacts segments if there is too much garbage. The work is in proportion to what was allocated
 * since the last call, and never takes more than a few milliseconds. Rows move. */
void ragged_heap_compact(RaggedHeap *heap);

/* The bytes of all rows; the bytes that the heap takes in all. */
uint64_t ragged_heap_row_bytes(const RaggedHeap *heap);
uint64_t ragged_heap_all_bytes(const RaggedHeap *heap);

/* The most work that one call of ragged_heap_compact has done: bytes that it copied, and
 * RAGGED_BLOCK_WORK for each block that it looked at. For tests. */
uint64_t ragged_heap_most_work(const RaggedHeap *heap);
#define RAGGED_BLOCK_WORK 128
#define RAGGED_MOST_WORK ((uint64_t)4 << 20)

#endif
