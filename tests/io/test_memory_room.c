/* Data leave room for what a process cannot do without. The kernel sets the limit, on the addresses
 * that the process may use. */
#include "io/memory_room.h"

#include <stdio.h>
#include <sys/resource.h>

#include "io/net/link/block_pool.h"
#include "models/ragged/ragged_heap.h"
#include "tests/support/runner.h"

#define MIB ((size_t)1 << 20)

static void limit(size_t spare_bytes)
{
    unsigned long n_pages = 0;
    FILE *const file = fopen("/proc/self/statm", "r");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%lu", &n_pages), 1);
    fclose(file);
    const struct rlimit limit = { (rlim_t)n_pages * 4096 + spare_bytes, RLIM_INFINITY };
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
}

static void unlimit(void)
{
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &(struct rlimit){ RLIM_INFINITY, RLIM_INFINITY }), 0);
}

START_TEST(what_is_taken_leaves_room)
{
    limit(64 * MIB);
    ck_assert(memory_leaves_room(48 * MIB));
    ck_assert(!memory_leaves_room(60 * MIB));
    ck_assert(!memory_leaves_room(SIZE_MAX));
    ck_assert(memory_leaves_room(48 * MIB)); /* the room was not taken */
}
END_TEST

/* So that many small pieces come to an end as well. */
START_TEST(small_pieces_are_counted)
{
    size_t taken = 0;

    limit(MIB); /* less than the room */
    while (taken < 16 * MIB && memory_leaves_room(1000))
        taken += 1000;
    ck_assert_uint_gt(taken, 0);
    ck_assert_uint_lt(taken, MIB);
    ck_assert(!memory_leaves_room(1000));
    limit(64 * MIB);
    ck_assert(memory_leaves_room(1000));
}
END_TEST

/* What rows leave is there for what comes, except the last of it. */
START_TEST(what_goes_soon_leaves_less_room)
{
    void *memory;

    limit(7 * MIB);
    ck_assert_ptr_null(memory_try_malloc(2 * MIB));
    memory = memory_try_malloc_briefly(2 * MIB);
    ck_assert_ptr_nonnull(memory);
    g_free(memory);
    ck_assert_ptr_null(memory_try_malloc_briefly(6 * MIB));
    ck_assert_ptr_null(memory_try_malloc_briefly(SIZE_MAX));
}
END_TEST

/* Ragged rows and parcels ask so. */
START_TEST(data_ask_for_room)
{
    BlockPool *const pool = block_pool_new();
    RaggedHeap *const heap = ragged_heap_new(NULL, NULL);
    RaggedRow row = 0;
    void *block;

    limit(7 * MIB);
    ck_assert(!ragged_heap_resize(heap, 1, &row, 2 * MIB, 0));
    ck_assert_ptr_null(block_pool_take(pool, 6 * MIB));
    block = block_pool_take(pool, 2 * MIB);
    ck_assert_ptr_nonnull(block);
    block_pool_give(pool, block, 2 * MIB);
    unlimit();
    ck_assert(ragged_heap_resize(heap, 1, &row, 2 * MIB, 0));
    ragged_heap_free(heap);
    block_pool_free(pool);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("memory room");
    TCase *const room = tcase_create("room");

    tcase_add_checked_fixture(room, NULL, unlimit);
    tcase_add_test(room, what_is_taken_leaves_room);
    tcase_add_test(room, small_pieces_are_counted);
    tcase_add_test(room, what_goes_soon_leaves_less_room);
    tcase_add_test(room, data_ask_for_room);
    suite_add_tcase(suite, room);
    return run_suite(suite);
}
