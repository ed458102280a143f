/* A free list for each size. The block given back last is taken first, because it is still in the
 * caches. The pool keeps as many blocks as were once in use at a time, up to
 * BLOCK_POOL_KEPT_BYTES. */
#include "io/net/link/block_pool.h"

#include <glib.h>
#include <pthread.h>

#include "io/memory_room.h"

typedef struct Block Block;
struct Block {
    Block *next;
};

struct BlockPool {
    pthread_mutex_t lock;
    /* guarded by lock */
    Block *free_blocks[BLOCK_POOL_N_SIZES];
    size_t kept_bytes;
};

BlockPool *block_pool_new(void)
{
    BlockPool *pool = g_new0(BlockPool, 1);

    pthread_mutex_init(&pool->lock, NULL);
    return pool;
}

void block_pool_free(BlockPool *pool)
{
    if (pool == NULL)
        return;
    for (size_t i = 0; i < BLOCK_POOL_N_SIZES; i++)
        for (Block *block = pool->free_blocks[i], *next; block != NULL; block = next) {
            next = block->next;
            g_free(block);
        }
    pthread_mutex_destroy(&pool->lock);
    g_free(pool);
}

G_STATIC_ASSERT(BLOCK_POOL_LEAST_BYTES << (BLOCK_POOL_N_SIZES - 1) == BLOCK_POOL_MOST_BYTES);

/* The list for blocks of that size, and their real size; BLOCK_POOL_N_SIZES: no list, use
 * malloc. */
static size_t find_list(const BlockPool *pool, size_t size, size_t *real_size)
{
    size_t i = 0;

    *real_size = BLOCK_POOL_LEAST_BYTES;
    if (pool == NULL || size < BLOCK_POOL_LEAST_BYTES)
        i = BLOCK_POOL_N_SIZES;
    for (; i < BLOCK_POOL_N_SIZES && *real_size < size; i++)
        *real_size *= 2;
    if (i == BLOCK_POOL_N_SIZES)
        *real_size = size;
    return i;
}

void *block_pool_take(BlockPool *pool, size_t size)
{
    size_t real_size;
    const size_t i = find_list(pool, size, &real_size);
    Block *block = NULL;

    if (i < BLOCK_POOL_N_SIZES) {
        pthread_mutex_lock(&pool->lock);
        block = pool->free_blocks[i];
        if (block != NULL) {
            pool->free_blocks[i] = block->next;
            pool->kept_bytes -= real_size;
        }
        pthread_mutex_unlock(&pool->lock);
    }
    return block != NULL ? block : memory_try_malloc_briefly(real_size);
}

void block_pool_give(BlockPool *pool, void *memory, size_t size)
{
    size_t real_size;
    const size_t i = find_list(pool, size, &real_size);
    Block *block = memory;

    if (i < BLOCK_POOL_N_SIZES && block != NULL) {
        pthread_mutex_lock(&pool->lock);
        if (pool->kept_bytes + real_size <= BLOCK_POOL_KEPT_BYTES) {
            block->next = pool->free_blocks[i];
            pool->free_blocks[i] = block;
            pool->kept_bytes += real_size;
            block = NULL;
        }
        pthread_mutex_unlock(&pool->lock);
    }
    g_free(block);
}

size_t block_pool_kept_bytes(BlockPool *pool)
{
    pthread_mutex_lock(&pool->lock);
    const size_t kept_bytes = pool->kept_bytes;
    pthread_mutex_unlock(&pool->lock);
    return kept_bytes;
}
