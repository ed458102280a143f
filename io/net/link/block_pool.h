/* Large blocks of memory that are reused.
 *
 * malloc often gives large blocks back to the kernel at once. The next block then costs a page
 * fault for each 4 kB, which takes longer than copying 4 kB. A pool keeps a few blocks.
 *
 * Threads: any, a lock inside; block_pool_new and _free from the owner. */
#ifndef RUBATO_IO_NET_LINK_BLOCK_POOL_H
#define RUBATO_IO_NET_LINK_BLOCK_POOL_H

#include <stddef.h>

/* Blocks of these sizes are worth keeping; there is a list for each doubling. The largest holds the
 * largest piece of a request with its headers. */
#define BLOCK_POOL_LEAST_BYTES ((size_t)32 << 10)
#define BLOCK_POOL_MOST_BYTES ((size_t)1 << 20)
#define BLOCK_POOL_N_SIZES 6

/* The most bytes that a pool keeps for later. */
#define BLOCK_POOL_KEPT_BYTES ((size_t)16 << 20)

typedef struct BlockPool BlockPool;

/* (transfer full) */
BlockPool *block_pool_new(void);

/* All blocks have been given back. NULL is allowed. */
void block_pool_free(BlockPool *pool);

/* A block of at least so many bytes, not initialised, aligned as by malloc; NULL if there is no
 * memory. A NULL pool uses malloc. The caller gives it back to the same pool with the same size. */
void *block_pool_take(BlockPool *pool, size_t size);

/* Takes a block back; NULL is none. */
void block_pool_give(BlockPool *pool, void *block, size_t size);

/* The bytes that the pool keeps at present. */
size_t block_pool_kept_bytes(BlockPool *pool);

#endif
