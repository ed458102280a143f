/* The pool of hash storage's segments, and of its slabs.
 *
 * When a table grows, its segments split one by one, and it gives back the blocks that it took
 * first. So blocks that were mapped singly go back to the kernel, and in the end the segments of a
 * large table are in huge pages alone. Slabs stay, the first ones on pages of 4 kB. When a table
 * shrinks, pages whose blocks have all come back are given to the kernel, and only their addresses
 * are kept.
 *
 * When a huge page is first accessed, the kernel has to clear all 2 MB of it. On a virtual machine
 * the host may have to find memory for it too, which takes milliseconds. A request would wait for
 * all of this. So a thread accesses the next pages beforehand, and then ends. It writes one byte of
 * each, the page's last, which belongs to no block; so the two threads share no memory. The larger
 * a pool is, the more pages it has ahead, and a thread is asked for several of them: on a busy
 * machine it may run late, and to start one costs its starter more than an access to memory that is
 * there, for it may lose its processor.
 *
 * If the thread is late, the request does not wait. Where the kernel has to move memory first, a
 * huge page can take it most of a second. The request takes another page instead, for which nobody
 * has asked, and those ahead stay. The kernel is asked for huge pages only by the thread, so that
 * page becomes small ones, of which each first access takes about a microsecond. The next thread
 * says that the kernel may put them together later.
 *
 * Thread: the shard's present owner. */
#include "models/storage/hash/segment_pool.h"

#include <glib.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "io/memory_room.h"

#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define MOST_CUT_BYTES (HUGE_PAGE_BYTES / 4) /* of larger blocks too few would fit into one */
#define FIRST_REGION_PAGES ((size_t)32)
#define MAX_REGION_PAGES ((size_t)4096)
#define PAGES_FOR_EACH_AHEAD ((size_t)32)

/* What a block that was returned begins with. */
typedef struct ReturnedBlock ReturnedBlock;
struct ReturnedBlock {
    ReturnedBlock *next, *before;
};

/* NULL if there is none. */
static unsigned char *map(size_t n_bytes)
{
    if (!memory_leaves_room(n_bytes))
        return NULL;

    void *memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

/* Addresses for pages that begin where a huge one may; NULL if there are none. */
static unsigned char *map_huge(size_t n_bytes, const MemoryHome *home)
{
    unsigned char *memory = map(n_bytes + HUGE_PAGE_BYTES);

    if (memory == NULL)
        return NULL;
    const size_t before = -(uintptr_t)memory & (HUGE_PAGE_BYTES - 1);

    if (before > 0)
        munmap(memory, before);
    munmap(memory + before + n_bytes, HUGE_PAGE_BYTES - before);
    memory += before;
    memory_home_take(home, memory, n_bytes);
    return memory;
}

static size_t region_pages(size_t i)
{
    return MIN(FIRST_REGION_PAGES << MIN(i, 16), MAX_REGION_PAGES);
}

/* ---- huge pages ---- */

/* Advice: it works without huge pages, slower. */
static void advise(unsigned char *page)
{
    (void)madvise(page, HUGE_PAGE_BYTES, MADV_HUGEPAGE);
}

static void access_page(unsigned char *page)
{
    *((volatile unsigned char *)page + HUGE_PAGE_BYTES - 1) = 0;
}

static void *fetch(void *user)
{
    SegmentPool *const pool = user;

    for (size_t i = 0; i < pool->n_fetched; i++) {
        advise(pool->fetched[i]);
        access_page(pool->fetched[i]);
        /* relaxed: who sees it takes over nothing but addresses */
        atomic_store_explicit(&pool->n_done, i + 1, memory_order_relaxed);
    }
    for (size_t i = 0; i < pool->n_late_advised; i++)
        advise(pool->late_advised[i]);
    return NULL;
}

/* How many pages ahead are there. Those of earlier threads are. */
static size_t n_ready(const SegmentPool *pool)
{
    return pool->n_asked + atomic_load_explicit(&pool->n_done, memory_order_relaxed) -
           pool->n_fetched;
}

/* Starts a thread that accesses the pages ahead that none has been asked for yet, unless the thread
 * before has not ended: on a busy machine it may not have run yet. Then the next one is asked for
 * them. */
static void fetch_ahead(SegmentPool *pool)
{
    const size_t n_unasked = pool->n_ahead - pool->n_asked;
    sigset_t all, before;

    if (n_unasked == 0 || 2 * n_unasked < pool->n_ahead ||
        (pool->is_fetching && pthread_tryjoin_np(pool->fetcher, NULL) != 0))
        return;
    pool->n_fetched = n_unasked;
    memcpy(pool->fetched, pool->ahead + pool->n_asked, n_unasked * sizeof *pool->fetched);
    atomic_store_explicit(&pool->n_done, 0, memory_order_relaxed);
    pool->n_late_advised = pool->n_late;
    memcpy(pool->late_advised, pool->late, pool->n_late * sizeof *pool->late);
    sigfillset(&all); /* signals are for threads that are there to stay */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pool->is_fetching = pthread_create(&pool->fetcher, NULL, fetch, pool) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pool->is_fetching) {
        pool->n_asked = pool->n_ahead;
        pool->n_late = 0;
    } else {
        pool->n_fetched = 0; /* nobody fetches them */
    }
}

static bool add_region(SegmentPool *pool)
{
    const size_t n_pages = region_pages(pool->n_regions);
    PoolRegion *regions = g_try_renew(PoolRegion, pool->regions, pool->n_regions + 1);
    PoolRegion region;

    if (regions == NULL)
        return false;
    pool->regions = regions;
    region.n_returned = g_try_new0(uint16_t, n_pages);
    region.memory =
        region.n_returned == NULL ? NULL : map_huge(n_pages * HUGE_PAGE_BYTES, pool->home);
    if (region.memory == NULL) {
        g_free(region.n_returned);
        return false;
    }
    pool->regions[pool->n_regions++] = region;
    pool->n_unused = n_pages;
    return true;
}

/* For which the kernel has not been advised. */
static unsigned char *take_new_page(SegmentPool *pool)
{
    if (pool->n_unused == 0 && !add_region(pool))
        return NULL;
    pool->n_pages++;
    return pool->regions[pool->n_regions - 1].memory +
           (region_pages(pool->n_regions - 1) - pool->n_unused--) * HUGE_PAGE_BYTES;
}

static unsigned char *take_page(SegmentPool *pool)
{
    if (pool->n_free_pages == 0)
        return take_new_page(pool);
    pool->n_pages++;
    return pool->free_pages[--pool->n_free_pages];
}

/* The last byte of a page belongs to no block. */
static size_t blocks_of_page(const SegmentPool *pool)
{
    return (HUGE_PAGE_BYTES - 1) / pool->block_bytes;
}

/* How many pages the pool has ahead once it has cut a block from a new one. */
static size_t most_ahead(const SegmentPool *pool)
{
    return CLAMP(pool->n_pages / PAGES_FOR_EACH_AHEAD, 1, pool->most_ahead);
}

static unsigned char *take_first_ahead(SegmentPool *pool)
{
    unsigned char *const page = pool->ahead[0];

    pool->n_ahead--;
    pool->n_asked -= pool->n_asked > 0;
    memmove(pool->ahead, pool->ahead + 1, pool->n_ahead * sizeof *pool->ahead);
    return page;
}

/* A page that nobody fetches becomes small ones with its first access, which it gets here: so
 * advice does not change that later. */
static unsigned char *use_small_pages(SegmentPool *pool, unsigned char *page)
{
    access_page(page);
    if (pool->n_late < SEGMENT_POOL_MOST_AHEAD)
        pool->late[pool->n_late++] = page;
    return page;
}

/* A page from which blocks are cut next; NULL if there is none. */
static unsigned char *take_next_page(SegmentPool *pool)
{
    if (pool->n_ahead > 0 && n_ready(pool) > 0)
        return take_first_ahead(pool);
    unsigned char *const page =
        pool->n_ahead > 0 && pool->n_asked == 0 ? take_first_ahead(pool) : take_new_page(pool);

    if (page != NULL)
        return use_small_pages(pool, page);
    return pool->n_ahead > 0 ? take_first_ahead(pool) : take_page(pool);
}

static unsigned char *cut_block(SegmentPool *pool)
{
    unsigned char *block;

    if (pool->n_fresh <= pool->block_bytes) { /* the last byte stays */
        const size_t most = most_ahead(pool);
        unsigned char *page = take_next_page(pool);

        if (page == NULL)
            return NULL;
        pool->fresh = page;
        pool->n_fresh = HUGE_PAGE_BYTES;
        while (pool->n_ahead < most && (page = take_page(pool)) != NULL)
            pool->ahead[pool->n_ahead++] = page;
        fetch_ahead(pool);
    }
    block = pool->fresh;
    pool->fresh += pool->block_bytes;
    pool->n_fresh -= pool->block_bytes;
    return block;
}

/* ---- returned blocks ---- */

/* The count of its page's returned blocks, and where the page begins. The block is of a huge
 * page. */
static uint16_t *count_of(const SegmentPool *pool, const void *block, unsigned char **page)
{
    for (size_t i = pool->n_regions; i-- > 0;) {
        unsigned char *const memory = pool->regions[i].memory;
        const uintptr_t offset = (uintptr_t)block - (uintptr_t)memory;

        if (offset >= region_pages(i) * HUGE_PAGE_BYTES)
            continue;
        *page = memory + offset / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        return &pool->regions[i].n_returned[offset / HUGE_PAGE_BYTES];
    }
    g_assert_not_reached();
}

static void link_block(SegmentPool *pool, ReturnedBlock *block)
{
    *block = (ReturnedBlock){ .next = pool->returned };
    if (pool->returned != NULL)
        pool->returned->before = block;
    pool->returned = block;
    pool->n_returned++;
}

static void unlink_block(SegmentPool *pool, const ReturnedBlock *block)
{
    if (block->next != NULL)
        block->next->before = block->before;
    if (block->before != NULL)
        block->before->next = block->next;
    else
        pool->returned = block->next;
    pool->n_returned--;
}

/* All blocks of a page are there: gives its memory to the kernel. Without room for a note of it
 * the blocks stay. */
static void release_page(SegmentPool *pool, unsigned char *page, uint16_t *n_returned)
{
    unsigned char **pages = g_try_renew(unsigned char *, pool->free_pages, pool->n_free_pages + 1);

    if (pages == NULL)
        return;
    pool->free_pages = pages;
    for (size_t i = 0; i < *n_returned; i++)
        unlink_block(pool, (ReturnedBlock *)(void *)(page + i * pool->block_bytes));
    (void)madvise(page, HUGE_PAGE_BYTES, MADV_DONTNEED); /* of mapped memory: it cannot fail */
    *n_returned = 0;
    pool->free_pages[pool->n_free_pages++] = page;
    pool->n_pages--;
}

/* ---- blocks ---- */

void segment_pool_init(SegmentPool *pool, size_t block_bytes, size_t huge_from, size_t most_pages)
{
    g_assert(most_pages >= 1 && most_pages <= SEGMENT_POOL_MOST_AHEAD);
    *pool = (SegmentPool){ .block_bytes = block_bytes,
                           .huge_from = huge_from,
                           .most_ahead = most_pages,
                           .home = memory_home() };
}

static unsigned char *map_single(SegmentPool *pool)
{
    void **singles = g_try_renew(void *, pool->singles, pool->n_singles + 1);
    unsigned char *block;

    if (singles == NULL)
        return NULL;
    pool->singles = singles;
    block = map(pool->block_bytes);
    memory_home_take(pool->home, block, pool->block_bytes);
    if (block != NULL)
        pool->singles[pool->n_singles++] = block;
    return block;
}

static bool uses_huge_pages(const SegmentPool *pool)
{
    return pool->block_bytes <= MOST_CUT_BYTES &&
           (pool->n_ahead > 0 || pool->n_singles * pool->block_bytes >= pool->huge_from);
}

void *segment_pool_take(SegmentPool *pool)
{
    unsigned char *block = NULL, *page;

    if (pool->returned != NULL) {
        ReturnedBlock *const returned = pool->returned;

        unlink_block(pool, returned);
        --*count_of(pool, returned, &page);
        return memset(returned, 0, pool->block_bytes);
    }
    if (uses_huge_pages(pool))
        block = cut_block(pool);
    /* If there is no room for a region, there may still be room for a block. */
    return block != NULL ? block : map_single(pool);
}

void segment_pool_give(SegmentPool *pool, void *block)
{
    for (size_t i = 0; i < pool->n_singles; i++)
        if (pool->singles[i] == block) {
            munmap(block, pool->block_bytes);
            pool->singles[i] = pool->singles[--pool->n_singles];
            return;
        }

    unsigned char *page;
    uint16_t *const n_returned = count_of(pool, block, &page);

    link_block(pool, block);
    if (++*n_returned == blocks_of_page(pool))
        release_page(pool, page, n_returned);
}

size_t segment_pool_bytes(const SegmentPool *pool)
{
    return pool->n_singles * pool->block_bytes + pool->n_pages * HUGE_PAGE_BYTES;
}

/* A block that is cut from a new page brings the pages ahead of it, too. One page has room for two
 * blocks and more. */
size_t segment_pool_growth(const SegmentPool *pool, size_t n)
{
    const size_t n_cut = pool->n_fresh == 0 ? 0 : (pool->n_fresh - 1) / pool->block_bytes;
    const size_t n_needed = 1 + most_ahead(pool);
    const size_t n_pages = n_needed - MIN(pool->n_ahead, n_needed);

    if (pool->n_returned >= n)
        return 0;
    n -= pool->n_returned;
    if (uses_huge_pages(pool))
        return n <= n_cut ? 0 : n_pages * HUGE_PAGE_BYTES;
    if (n == 2 && pool->block_bytes <= MOST_CUT_BYTES &&
        (pool->n_singles + 1) * pool->block_bytes >= pool->huge_from)
        return pool->block_bytes + 2 * HUGE_PAGE_BYTES;
    return n * pool->block_bytes;
}

void segment_pool_clear(SegmentPool *pool)
{
    if (pool->is_fetching)
        pthread_join(pool->fetcher, NULL);
    for (size_t i = 0; i < pool->n_singles; i++)
        munmap(pool->singles[i], pool->block_bytes);
    for (size_t i = 0; i < pool->n_regions; i++) {
        munmap(pool->regions[i].memory, region_pages(i) * HUGE_PAGE_BYTES);
        g_free(pool->regions[i].n_returned);
    }
    g_free(pool->free_pages);
    g_free(pool->singles);
    g_free(pool->regions);
    *pool = (SegmentPool){ .block_bytes = pool->block_bytes,
                           .huge_from = pool->huge_from,
                           .most_ahead = pool->most_ahead,
                           .home = pool->home };
}
