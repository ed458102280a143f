/* A pool of equal blocks of memory, for the segments of hash storage and for its slabs.
 *
 * The first blocks are mapped one by one, so that a small table takes little more than it uses.
 * Later blocks are cut from huge pages, which avoid most misses of the translation buffer for
 * random reads. A page whose blocks have all been returned goes back to the kernel.
 *
 * Threads: one at a time. */
#ifndef RUBATO_MODELS_STORAGE_HASH_SEGMENT_POOL_H
#define RUBATO_MODELS_STORAGE_HASH_SEGMENT_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "models/storage/memory_home.h"

/* Memory mapped for huge pages. */
typedef struct {
    unsigned char *memory;
    uint16_t *n_returned; /* of each page: its blocks that were returned */
} PoolRegion;

/* A large pool has so many huge pages ahead of those that it uses, a 32nd at most. Half of them are
 * enough for a thread that runs 30 ms late while a table grows by 10 M rows of 24 bytes a second.
 */
#define SEGMENT_POOL_MOST_AHEAD ((size_t)8)

typedef struct {
    /* immutable */
    size_t block_bytes;
    size_t huge_from;       /* bytes of blocks, from which on they come from huge pages */
    size_t most_ahead;      /* pages */
    const MemoryHome *home; /* of the shard; NULL: none */

    void **singles; /* blocks with a mapping of their own */
    size_t n_singles;
    struct ReturnedBlock *returned; /* blocks of huge pages */
    size_t n_returned;

    PoolRegion *regions; /* each twice as large as the one before it */
    size_t n_regions;
    size_t n_unused;            /* pages of the last region that are still to come */
    unsigned char **free_pages; /* others, whose blocks were all returned */
    size_t n_free_pages;
    size_t n_pages;       /* that are in use, those ahead included */
    unsigned char *fresh; /* the rest of the page from which blocks are cut */
    size_t n_fresh;       /* bytes */

    /* The pages after it, the next one first; none until there are huge pages. A thread was asked
     * to access the first n_asked of them. */
    unsigned char *ahead[SEGMENT_POOL_MOST_AHEAD];
    size_t n_ahead, n_asked;
    pthread_t fetcher; /* has the kernel make pages */
    bool is_fetching;
    unsigned char *fetched[SEGMENT_POOL_MOST_AHEAD]; /* by this thread, which alone reads them */
    size_t n_fetched;
    _Atomic size_t n_done; /* of these: are there */

    /* Pages that were needed before the thread had those ahead; of them the kernel has not been
     * advised yet, or is by the thread, as of the fetched ones. */
    unsigned char *late[SEGMENT_POOL_MOST_AHEAD], *late_advised[SEGMENT_POOL_MOST_AHEAD];
    size_t n_late, n_late_advised;
} SegmentPool;

/* Larger tables use huge pages: for them, two unused ones matter little, and smaller ones have few
 * misses of the translation buffer. */
#define SEGMENT_POOL_HUGE_FROM ((size_t)16 << 20)

/* Takes no memory yet. Blocks are whole pages of 4 kB. Those of more than 512 kB never come from
 * huge pages. most_pages: that the pool has ahead, from 1 to SEGMENT_POOL_MOST_AHEAD. */
void segment_pool_init(SegmentPool *pool, size_t block_bytes, size_t huge_from, size_t most_pages);
void segment_pool_clear(SegmentPool *pool);

/* A block of zeros, at the beginning of a page; NULL if there is no memory. */
void *segment_pool_take(SegmentPool *pool);
void segment_pool_give(SegmentPool *pool, void *block);

/* The bytes that the pool takes of the machine's memory. */
size_t segment_pool_bytes(const SegmentPool *pool);

/* At most so many more bytes are taken for n more blocks; n is at most 2. */
size_t segment_pool_growth(const SegmentPool *pool, size_t n);

#endif
