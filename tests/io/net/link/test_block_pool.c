/* Block pools: blocks are reused, each has the requested size, and not too many are kept. */
#include <pthread.h>
#include <string.h>

#include "io/net/link/block_pool.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

#define LARGE ((size_t)100 << 10)

START_TEST(a_block_that_came_back_is_used_again)
{
    BlockPool *pool = block_pool_new();
    void *first = block_pool_take(pool, LARGE), *second = block_pool_take(pool, LARGE);

    ck_assert_ptr_ne(first, second);
    block_pool_give(pool, first, LARGE);
    ck_assert_uint_ge(block_pool_kept_bytes(pool), LARGE);
    ck_assert_ptr_eq(block_pool_take(pool, LARGE + 1), first); /* of the same doubling */
    block_pool_give(pool, first, LARGE + 1);
    block_pool_give(pool, second, LARGE);
    ck_assert_uint_ge(block_pool_kept_bytes(pool), 2 * LARGE);
    ck_assert_ptr_eq(block_pool_take(pool, LARGE), second);
    ck_assert_ptr_eq(block_pool_take(pool, LARGE), first);
    ck_assert_uint_eq(block_pool_kept_bytes(pool), 0);
    block_pool_give(pool, first, LARGE);
    block_pool_give(pool, second, LARGE);
    block_pool_free(pool);
}
END_TEST

/* Writing all of a block shows to the address sanitizer whether it is as large as was asked. */
START_TEST(blocks_worth_keeping_are_kept)
{
    static const struct {
        size_t size;
        bool kept;
    } blocks[] = { { BLOCK_POOL_LEAST_BYTES - 1, false },
                   { BLOCK_POOL_LEAST_BYTES, true },
                   { BLOCK_POOL_MOST_BYTES / 2 + 1, true },
                   { BLOCK_POOL_MOST_BYTES, true },
                   { BLOCK_POOL_MOST_BYTES + 1, false } };
    BlockPool *pool = block_pool_new();

    block_pool_give(pool, block_pool_take(pool, blocks[_i].size), blocks[_i].size);
    ck_assert_int_eq(block_pool_kept_bytes(pool) > 0, blocks[_i].kept);
    block_pool_free(pool);
}
END_TEST

START_TEST(blocks_of_all_sizes_have_their_room)
{
    BlockPool *pool = _i == 0 ? NULL : block_pool_new();

    for (int round = 0; round < 2; round++)
        for (size_t size = 1; size < (size_t)4 << 20; size = size * 3 / 2 + 1) {
            char *block = block_pool_take(pool, size);

            ck_assert_ptr_nonnull(block);
            memset(block, round, size);
            block_pool_give(pool, block, size);
        }
    block_pool_give(pool, NULL, LARGE);
    block_pool_free(pool);
}
END_TEST

/* What it does not keep it frees: that the leak checker sees. */
START_TEST(a_pool_keeps_no_more_than_it_may)
{
    enum { MOST = 2 * BLOCK_POOL_KEPT_BYTES / LARGE };
    BlockPool *pool = block_pool_new();
    void *blocks[MOST];

    for (size_t i = 0; i < MOST; i++)
        blocks[i] = block_pool_take(pool, LARGE);
    for (size_t i = 0; i < MOST; i++)
        block_pool_give(pool, blocks[i], LARGE);
    ck_assert_uint_le(block_pool_kept_bytes(pool), BLOCK_POOL_KEPT_BYTES);
    ck_assert_uint_gt(block_pool_kept_bytes(pool), BLOCK_POOL_KEPT_BYTES / 2);
    block_pool_free(pool);
}
END_TEST

enum { N_THREADS = 3, N_ROUNDS = 500 };

static void *take_and_give(void *user)
{
    BlockPool *pool = user;
    uint64_t random = (uint64_t)(uintptr_t)&random;

    for (int i = 0; i < N_ROUNDS; i++) {
        const size_t size = LARGE + random_below(&random, 1000);
        uint64_t *block = block_pool_take(pool, size);

        block[size / sizeof *block - 1] = random;
        block_pool_give(pool, block, size);
    }
    return NULL;
}

/* The thread sanitizer sees two that have the same block. */
START_TEST(no_two_threads_have_the_same_block)
{
    BlockPool *pool = block_pool_new();
    pthread_t threads[N_THREADS];

    for (int i = 0; i < N_THREADS; i++)
        pthread_create(&threads[i], NULL, take_and_give, pool);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    block_pool_free(pool);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("block_pool");
    TCase *cases = tcase_create("block_pool");

    tcase_add_test(cases, a_block_that_came_back_is_used_again);
    tcase_add_loop_test(cases, blocks_of_all_sizes_have_their_room, 0, 2);
    tcase_add_loop_test(cases, blocks_worth_keeping_are_kept, 0, 5);
    tcase_add_test(cases, a_pool_keeps_no_more_than_it_may);
    tcase_add_test(cases, no_two_threads_have_the_same_block);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
