/* See tensor_gathered.h.
 *
 * Memory that is kept is only in the pool's list, and memory of a result only in that result. Who
 * frees a result has the last access to it before the lock, and who takes it the first one behind
 * it: so these are in order, whatever their threads. The lock is held for looking through the list
 * alone, and nothing else is locked or waited for meanwhile. */
#include "engine/collectives/work/tensor_gathered.h"

#include <glib.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define HAS_ASAN
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define HAS_ASAN
#endif
#ifdef HAS_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(memory, n_bytes) ((void)(memory), (void)(n_bytes))
#define ASAN_UNPOISON_MEMORY_REGION(memory, n_bytes) ((void)(memory), (void)(n_bytes))
#endif

#define HUGE_PAGE_BYTES ((uint64_t)2 << 20)

enum { MOST_KEPT = TENSOR_GATHERED_KEPT_BYTES / TENSOR_GATHERED_LARGE_BYTES };

typedef struct RubatoGatheredMemory Memory;

struct RubatoGatheredMemory {
    /* immutable */
    TensorGatheredPool *pool;
    void *values;
    uint64_t n_bytes; /* whole huge pages */
};

struct TensorGatheredPool {
    pthread_mutex_t lock;
    /* guarded by lock */
    Memory *kept[MOST_KEPT]; /* the one that has been there longest first */
    uint32_t n_kept;
    uint64_t n_bytes;   /* of these */
    uint64_t n_results; /* that have memory of it */
    bool is_closed;
};

TensorGatheredPool *tensor_gathered_pool_new(void)
{
    TensorGatheredPool *const pool = g_new0(TensorGatheredPool, 1);

    pthread_mutex_init(&pool->lock, NULL);
    return pool;
}

static void free_pool(TensorGatheredPool *pool)
{
    pthread_mutex_destroy(&pool->lock);
    g_free(pool);
}

static void free_memory(Memory *memory)
{
    ASAN_UNPOISON_MEMORY_REGION(memory->values, memory->n_bytes);
    g_free(memory->values);
    g_free(memory);
}

static void free_list(Memory *const *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        free_memory(list[i]);
}

/* ---- the lock is held ---- */

static Memory *remove_kept(TensorGatheredPool *pool, uint32_t i)
{
    Memory *const memory = pool->kept[i];

    pool->n_bytes -= memory->n_bytes;
    pool->n_kept--;
    memmove(pool->kept + i, pool->kept + i + 1, (pool->n_kept - i) * sizeof(Memory *));
    return memory;
}

/* Moves what has been kept longest to the list, until n_bytes fit: all, if they never do. Returns
 * how many it moved. Then the array has room, too: each in it has LARGE_BYTES at least. */
static uint32_t make_room(TensorGatheredPool *pool, uint64_t n_bytes, Memory **list)
{
    uint32_t n = 0;

    while (pool->n_kept > 0 && pool->n_bytes + n_bytes > TENSOR_GATHERED_KEPT_BYTES)
        list[n++] = remove_kept(pool, 0);
    return n;
}

/* The smallest one of at least n_bytes, of which at most a quarter is too much; of several the one
 * that was freed last. NULL: there is none. */
static Memory *take_kept(TensorGatheredPool *pool, uint64_t n_bytes)
{
    uint32_t best = pool->n_kept;

    for (uint32_t i = 0; i < pool->n_kept; i++) {
        const uint64_t has = pool->kept[i]->n_bytes;

        if (has >= n_bytes && has - n_bytes <= has / 4 &&
            (best == pool->n_kept || has <= pool->kept[best]->n_bytes))
            best = i;
    }
    return best == pool->n_kept ? NULL : remove_kept(pool, best);
}

/* ---- the lock is not held ---- */

/* Frees what is kept. */
static void empty(TensorGatheredPool *pool)
{
    Memory *list[MOST_KEPT];

    pthread_mutex_lock(&pool->lock);
    const uint32_t n = make_room(pool, TENSOR_GATHERED_KEPT_BYTES + 1, list);
    pthread_mutex_unlock(&pool->lock);
    free_list(list, n);
}

void tensor_gathered_pool_close(TensorGatheredPool *pool)
{
    Memory *list[MOST_KEPT];

    pthread_mutex_lock(&pool->lock);
    pool->is_closed = true;
    const uint32_t n = make_room(pool, TENSOR_GATHERED_KEPT_BYTES + 1, list);
    const bool is_last = pool->n_results == 0;
    pthread_mutex_unlock(&pool->lock);
    free_list(list, n);
    if (is_last)
        free_pool(pool);
}

uint64_t tensor_gathered_pool_bytes(TensorGatheredPool *pool)
{
    pthread_mutex_lock(&pool->lock);
    const uint64_t n_bytes = pool->n_bytes;
    pthread_mutex_unlock(&pool->lock);
    return n_bytes;
}

/* NULL: there is no memory. */
static Memory *new_memory(TensorGatheredPool *pool, uint64_t n_bytes)
{
    void *values = NULL;

    if (posix_memalign(&values, HUGE_PAGE_BYTES, n_bytes) != 0)
        return NULL;
    (void)madvise(values, n_bytes, MADV_HUGEPAGE); /* advice: it works without them, slower */
    Memory *const memory = g_new(Memory, 1);
    *memory = (Memory){ .pool = pool, .values = values, .n_bytes = n_bytes };
    return memory;
}

bool tensor_gathered_allocate(TensorGatheredPool *pool, RubatoGathered *result, uint64_t n_bytes)
{
    if (pool == NULL || n_bytes < TENSOR_GATHERED_LARGE_BYTES || n_bytes > INT64_MAX) {
        result->values = n_bytes > INT64_MAX ? NULL : g_try_malloc(n_bytes);
        return result->values != NULL;
    }
    n_bytes = (n_bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    pthread_mutex_lock(&pool->lock);
    Memory *memory = take_kept(pool, n_bytes);
    pool->n_results++;
    pthread_mutex_unlock(&pool->lock);
    if (memory == NULL)
        memory = new_memory(pool, n_bytes);
    if (memory == NULL) { /* perhaps what is kept is what is missing */
        empty(pool);
        memory = new_memory(pool, n_bytes);
    }
    if (memory == NULL) {
        pthread_mutex_lock(&pool->lock);
        pool->n_results--; /* the task has not ended */
        pthread_mutex_unlock(&pool->lock);
        return false;
    }
    ASAN_UNPOISON_MEMORY_REGION(memory->values, memory->n_bytes);
    result->values = memory->values;
    result->memory = memory;
    return true;
}

/* Keeps it, or frees it. */
static void give_back(Memory *memory)
{
    TensorGatheredPool *const pool = memory->pool;
    Memory *list[MOST_KEPT + 1];
    uint32_t n = 0;

    /* nobody reads it now: a check of addresses finds who does */
    ASAN_POISON_MEMORY_REGION(memory->values, memory->n_bytes);
    pthread_mutex_lock(&pool->lock);
    if (pool->is_closed || memory->n_bytes > TENSOR_GATHERED_KEPT_BYTES) {
        list[n++] = memory;
    } else {
        n = make_room(pool, memory->n_bytes, list);
        pool->kept[pool->n_kept++] = memory;
        pool->n_bytes += memory->n_bytes;
    }
    const bool is_last = --pool->n_results == 0 && pool->is_closed;
    pthread_mutex_unlock(&pool->lock);
    free_list(list, n);
    if (is_last)
        free_pool(pool);
}

/* Its caller has taken the values out. */
static void forget(Memory *memory)
{
    TensorGatheredPool *const pool = memory->pool;

    pthread_mutex_lock(&pool->lock);
    const bool is_last = --pool->n_results == 0 && pool->is_closed;
    pthread_mutex_unlock(&pool->lock);
    g_free(memory);
    if (is_last)
        free_pool(pool);
}

void rubato_gathered_clear(RubatoGathered *gathered)
{
    if (gathered == NULL)
        return;
    if (gathered->memory != NULL && gathered->memory->values == gathered->values) {
        give_back(gathered->memory);
    } else {
        if (gathered->memory != NULL)
            forget(gathered->memory);
        g_free(gathered->values);
    }
    g_free(gathered->rows);
    *gathered = (RubatoGathered){ 0 };
}
