/* The pool of blocks below hash storage, and what fetches its pages. */
#include "models/storage/hash/segment_pool.h"

#include <glib.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

#define BLOCK_BYTES ((size_t)132 << 10)
#define MANY 420 /* some of them in huge pages */
#define MOST_AHEAD SEGMENT_POOL_MOST_AHEAD
#define PAGE_BYTES ((size_t)2 << 20)

static bool is_zero(const unsigned char *block)
{
    return block[0] == 0 && memcmp(block, block + 1, BLOCK_BYTES - 1) == 0;
}

/* Blocks are written from end to end while the next page is being fetched. */
START_TEST(blocks_are_zero_and_no_two_share_a_byte)
{
    static unsigned char *blocks[MANY];
    SegmentPool pool;

    segment_pool_init(&pool, BLOCK_BYTES, SEGMENT_POOL_HUGE_FROM, MOST_AHEAD);
    for (size_t i = 0; i < MANY; i++) {
        blocks[i] = segment_pool_take(&pool);
        require_msg((uintptr_t)blocks[i] % 4096 == 0, "block %zu begins within a page", i);
        require_msg(is_zero(blocks[i]), "block %zu is not fresh", i);
        memset(blocks[i], (int)(i % 255) + 1, BLOCK_BYTES);
    }
    for (size_t i = 0; i < MANY; i++)
        require_msg(blocks[i][0] == i % 255 + 1 &&
                        memcmp(blocks[i], blocks[i] + 1, BLOCK_BYTES - 1) == 0,
                    "block %zu was written by another's owner", i);
    segment_pool_clear(&pool);
    ck_assert_uint_eq(segment_pool_bytes(&pool), 0);
}
END_TEST

START_TEST(what_is_given_back_is_taken_again_as_zeros)
{
    SegmentPool pool;
    unsigned char *last = NULL, *again;
    size_t n_bytes;

    segment_pool_init(&pool, BLOCK_BYTES, SEGMENT_POOL_HUGE_FROM, MOST_AHEAD);
    for (size_t i = 0; i < MANY; i++)
        last = segment_pool_take(&pool);
    memset(last, 7, BLOCK_BYTES);
    n_bytes = segment_pool_bytes(&pool);
    segment_pool_give(&pool, last);
    again = segment_pool_take(&pool);
    ck_assert_ptr_eq(again, last);
    ck_assert(is_zero(again));
    ck_assert_uint_eq(segment_pool_bytes(&pool), n_bytes);
    segment_pool_clear(&pool);
}
END_TEST

static size_t n_shown;

static void count_shown(const MemoryHome *home, void *memory, size_t n_bytes)
{
    (void)home;
    (void)memory;
    n_shown += n_bytes;
}

/* Huge pages are shown with the whole region in which they are. */
START_TEST(all_blocks_are_shown_to_the_home_of_the_pool)
{
    const MemoryHome home = { count_shown };
    SegmentPool pool;

    {
        MEMORY_HOME_SCOPE(&home);
        segment_pool_init(&pool, BLOCK_BYTES, _i == 0 ? SIZE_MAX : 0, MOST_AHEAD);
    }
    for (size_t i = 0; i < MANY; i++) {
        (void)segment_pool_take(&pool);
        ck_assert_uint_ge(n_shown, segment_pool_bytes(&pool));
    }
    if (_i == 0)
        ck_assert_uint_eq(n_shown, MANY * BLOCK_BYTES);
    segment_pool_clear(&pool);
    n_shown = 0;
    ck_assert_ptr_nonnull(segment_pool_take(&pool)); /* it keeps its home */
    ck_assert_uint_ge(n_shown, BLOCK_BYTES);
    segment_pool_clear(&pool);
}
END_TEST

/* Small tables have few bytes, large ones no small mappings for ever. */
START_TEST(first_blocks_are_mapped_and_unmapped_one_by_one)
{
    static void *blocks[MANY];
    SegmentPool pool;

    segment_pool_init(&pool, BLOCK_BYTES, SEGMENT_POOL_HUGE_FROM, MOST_AHEAD);
    for (size_t i = 0; i < 10; i++)
        blocks[i] = segment_pool_take(&pool);
    ck_assert_uint_eq(segment_pool_bytes(&pool), 10 * BLOCK_BYTES);
    segment_pool_give(&pool, blocks[3]);
    ck_assert_uint_eq(segment_pool_bytes(&pool), 9 * BLOCK_BYTES);
    blocks[3] = segment_pool_take(&pool);

    for (size_t i = 10; i < MANY; i++)
        blocks[i] = segment_pool_take(&pool);
    const size_t n_bytes = segment_pool_bytes(&pool);
    ck_assert_uint_ge(n_bytes, MANY * BLOCK_BYTES);
    ck_assert_uint_le(n_bytes, MANY * BLOCK_BYTES * 11 / 10);
    for (size_t i = 0; i < 10; i++)
        segment_pool_give(&pool, blocks[i]);
    ck_assert_uint_eq(segment_pool_bytes(&pool), n_bytes - 10 * BLOCK_BYTES);
    segment_pool_clear(&pool);
}
END_TEST

static bool is_in_memory(unsigned char *page)
{
    unsigned char is_there = 0;

    ck_assert_int_eq(mincore(page + PAGE_BYTES - 4096, 4096, &is_there), 0);
    return (is_there & 1) != 0;
}

/* Takes blocks until one is cut from another page. */
static void take_page(SegmentPool *pool)
{
    const unsigned char *const next = pool->ahead[0];

    do
        (void)segment_pool_take(pool);
    while (pool->fresh < next || pool->fresh > next + PAGE_BYTES);
}

static void end_fetcher(SegmentPool *pool)
{
    if (pool->is_fetching)
        ck_assert_int_eq(pthread_join(pool->fetcher, NULL), 0);
    pool->is_fetching = false;
}

/* Also those for which no thread could be asked, because the one before had not ended. */
START_TEST(large_pools_have_several_pages_ahead_and_all_are_fetched)
{
    const size_t most = (size_t)_i;
    SegmentPool pool;
    size_t n_bytes, growth;

    segment_pool_init(&pool, BLOCK_BYTES, 0, most);
    (void)segment_pool_take(&pool);
    ck_assert_uint_eq(pool.n_ahead, 1);
    while (pool.n_pages < 70) {
        n_bytes = segment_pool_bytes(&pool);
        growth = segment_pool_growth(&pool, 1);
        (void)segment_pool_take(&pool);
        ck_assert_uint_le(segment_pool_bytes(&pool), n_bytes + growth);
    }
    take_page(&pool);
    ck_assert_uint_eq(pool.n_ahead, MIN(most, 2));
    end_fetcher(&pool);
    take_page(&pool); /* a thread is asked for all that have not been asked for */
    ck_assert_uint_eq(pool.n_asked, pool.n_ahead);
    end_fetcher(&pool);
    for (size_t i = 0; i < pool.n_ahead; i++)
        ck_assert(is_in_memory(pool.ahead[i]));
    segment_pool_clear(&pool);
}
END_TEST

static void *wait_for_end(void *pool_is_done)
{
    event_wait(pool_is_done, 1);
    return NULL;
}

/* The kernel takes long for the pages ahead: small ones do meanwhile, and those ahead stay for
 * later. */
START_TEST(a_block_does_not_wait_for_pages_that_are_fetched)
{
    Event go_on = EVENT_INIT;
    unsigned char *late, *ahead;
    SegmentPool pool;

    segment_pool_init(&pool, BLOCK_BYTES, 0, MOST_AHEAD);
    (void)segment_pool_take(&pool);
    end_fetcher(&pool);
    ahead = pool.ahead[0];
    atomic_store(&pool.n_done, 0); /* as if the thread had not come to it */
    ck_assert_int_eq(pthread_create(&pool.fetcher, NULL, wait_for_end, &go_on), 0);
    pool.is_fetching = true;
    while (pool.n_fresh > BLOCK_BYTES)
        (void)segment_pool_take(&pool);
    late = segment_pool_take(&pool);
    ck_assert_ptr_ne(late, ahead);
    ck_assert_ptr_eq(pool.ahead[0], ahead);
    ck_assert(is_in_memory(late)); /* so it is small pages, where only advice brings huge ones */
    event_raise(&go_on);
    end_fetcher(&pool);
    atomic_store(&pool.n_done, 1);
    while (pool.ahead[0] == ahead)
        (void)segment_pool_take(&pool);
    ck_assert_ptr_eq(pool.fresh - BLOCK_BYTES, ahead);
    ck_assert_uint_eq(pool.n_late, 0); /* the kernel is told */
    segment_pool_clear(&pool);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("segment pool");
    TCase *tcase = tcase_create("segment pool");

    tcase_add_test(tcase, blocks_are_zero_and_no_two_share_a_byte);
    tcase_add_loop_test(tcase, all_blocks_are_shown_to_the_home_of_the_pool, 0, 2);
    tcase_add_test(tcase, what_is_given_back_is_taken_again_as_zeros);
    tcase_add_test(tcase, first_blocks_are_mapped_and_unmapped_one_by_one);
    tcase_add_loop_test(tcase, large_pools_have_several_pages_ahead_and_all_are_fetched, 1, 3);
    tcase_add_test(tcase, a_block_does_not_wait_for_pages_that_are_fetched);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
