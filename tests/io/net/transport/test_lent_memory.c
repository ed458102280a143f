/* Memory from which other processes read: which block is lent, when it comes back, and what a
 * process may say of it. */
#include <string.h>
#include <unistd.h>

#include "io/net/transport/lent_memory.h"
#include "io/net/transport/shm/shm_ring.h"
#include "tests/support/runner.h"

static LentMemory *memory;
static BorrowedMemory *borrowed;
static uint32_t gone; /* the node whose process is */

static void setup(void)
{
    memory = lent_memory_new();
    ck_assert_ptr_nonnull(memory);
    borrowed = borrowed_memory_new(lent_memory_fd(memory));
    ck_assert_ptr_nonnull(borrowed);
    gone = UINT32_MAX;
}

static void teardown(void)
{
    borrowed_memory_unref(borrowed);
    lent_memory_free(memory);
}

static bool is_gone(void *user, uint32_t node, uint64_t incarnation)
{
    ck_assert_ptr_eq(user, &gone);
    ck_assert_uint_eq(incarnation, 10 + node);
    return node == gone;
}

static void *take(uint32_t node, LentPlace *place)
{
    return lent_memory_take(memory, node, 10 + node, is_gone, &gone, place);
}

START_TEST(what_is_written_is_read_and_comes_back)
{
    LentPlace place, next;
    uint8_t *const written = take(1, &place);

    ck_assert_ptr_nonnull(written);
    memset(written, 7, LENT_BLOCK_BYTES);
    lent_memory_sent(memory, place);
    const uint8_t *const read = borrowed_memory_at(borrowed, place, LENT_BLOCK_BYTES);
    ck_assert_mem_eq(read, written, LENT_BLOCK_BYTES);
    ck_assert_ptr_ne(take(1, &next), written);
    borrowed_memory_return(borrowed, place);
    ck_assert_ptr_eq(take(1, &next), written); /* the one that came back last */
    ck_assert_uint_ne(next.use, place.use);
}
END_TEST

START_TEST(all_blocks_are_lent_and_then_none)
{
    LentPlace places[LENT_BLOCKS], one;

    for (uint32_t i = 0; i < LENT_BLOCKS; i++) {
        ck_assert(lent_memory_has_room(memory));
        uint8_t *const values = take(1, &places[i]);
        ck_assert_ptr_nonnull(values);
        values[0] = values[LENT_BLOCK_BYTES - 1] = (uint8_t)i;
        lent_memory_sent(memory, places[i]);
    }
    ck_assert(!lent_memory_has_room(memory));
    ck_assert_ptr_null(take(1, &one));
    for (uint32_t i = 0; i < LENT_BLOCKS; i++) {
        const uint8_t *const values = borrowed_memory_at(borrowed, places[i], LENT_BLOCK_BYTES);
        ck_assert_uint_eq(values[0], i);
        ck_assert_uint_eq(values[LENT_BLOCK_BYTES - 1], i);
    }
    borrowed_memory_return(borrowed, places[LENT_BLOCKS - 1]); /* the newest, out of turn */
    ck_assert(lent_memory_has_room(memory));
    ck_assert_ptr_nonnull(take(2, &one));
    ck_assert_uint_eq(one.block, places[LENT_BLOCKS - 1].block);
}
END_TEST

START_TEST(blocks_of_a_process_that_is_gone_are_lent_again)
{
    LentPlace place, late = { 0 };

    for (uint32_t i = 0; i < LENT_BLOCKS; i++) {
        take(i % 2, &place);
        if (i == 0)
            late = place;
        if (i != 2) /* it is being written, whoever is gone */
            lent_memory_sent(memory, place);
    }
    ck_assert_ptr_null(take(2, &place));
    gone = 0;
    for (uint32_t i = 0; i < LENT_BLOCKS / 2 - 1; i++) {
        ck_assert_ptr_nonnull(take(2, &place));
        lent_memory_sent(memory, place);
    }
    ck_assert_ptr_null(take(2, &place));
    /* it was not gone, and says so late: the block's new use goes on */
    borrowed_memory_return(borrowed, late);
    ck_assert(!lent_memory_has_room(memory));
    /* or says so behind the end of that, which has not been seen yet */
    borrowed_memory_return(borrowed, (LentPlace){ late.block, late.reader, late.use + 1 });
    borrowed_memory_return(borrowed, late);
    ck_assert(lent_memory_has_room(memory));
}
END_TEST

START_TEST(what_is_not_sent_is_taken_back)
{
    LentPlace place, next;
    const void *const values = take(1, &place);

    lent_memory_take_back(memory, place);
    ck_assert_ptr_eq(take(1, &next), values);
}
END_TEST

/* One is done with it, one is gone, and one never heard of it. */
START_TEST(a_block_that_several_read_comes_back_with_the_last)
{
    LentPlace places[LENT_READERS], one;
    uint8_t *const values = take(0, &places[0]);

    for (uint32_t i = 1; i < LENT_READERS; i++) {
        ck_assert(lent_memory_share(memory, places[0], i, 10 + i, &places[i]));
        ck_assert_ptr_eq(borrowed_memory_at(borrowed, places[i], LENT_BLOCK_BYTES),
                         borrowed_memory_at(borrowed, places[0], LENT_BLOCK_BYTES));
    }
    ck_assert(!lent_memory_share(memory, places[0], LENT_READERS, 10 + LENT_READERS, &one));
    lent_memory_take_back(memory, places[3]);
    for (uint32_t i = 0; i < LENT_READERS; i++)
        if (i != 3)
            lent_memory_sent(memory, places[i]);
    for (uint32_t i = LENT_READERS; i-- > 1;)
        if (i != 3 && i != 5)
            borrowed_memory_return(borrowed, places[i]);
    for (uint32_t i = 1; i < LENT_BLOCKS; i++)
        ck_assert_ptr_nonnull(take(0, &one)); /* of which none is sent */
    ck_assert_ptr_null(take(0, &one));
    gone = 5;
    ck_assert_ptr_null(take(0, &one));
    borrowed_memory_return(borrowed, places[0]);
    ck_assert_ptr_eq(take(0, &one), values);
}
END_TEST

START_TEST(places_that_there_are_not_are_refused)
{
    ck_assert_ptr_null(borrowed_memory_at(borrowed, (LentPlace){ LENT_BLOCKS, 0, 1 }, 1));
    ck_assert_ptr_null(borrowed_memory_at(borrowed, (LentPlace){ UINT16_MAX, 0, 1 }, 1));
    ck_assert_ptr_null(borrowed_memory_at(borrowed, (LentPlace){ 0, LENT_READERS, 1 }, 1));
    ck_assert_ptr_null(borrowed_memory_at(borrowed, (LentPlace){ 0, 0, 1 }, LENT_BLOCK_BYTES + 1));
    ck_assert_ptr_nonnull(borrowed_memory_at(
        borrowed, (LentPlace){ LENT_BLOCKS - 1, LENT_READERS - 1, 1 }, LENT_BLOCK_BYTES));
}
END_TEST

START_TEST(other_memory_is_refused)
{
    const int fd = shm_memory_new(4096);

    ck_assert_ptr_null(borrowed_memory_new(fd));
    close(fd);
    ck_assert_ptr_null(borrowed_memory_new(STDERR_FILENO));
}
END_TEST

START_TEST(what_is_read_stays_while_somebody_reads)
{
    LentPlace place;
    uint8_t *const values = take(1, &place);
    BorrowedMemory *const reader = borrowed_memory_ref(borrowed);

    values[0] = 5;
    borrowed_memory_unref(borrowed);
    borrowed = NULL;
    ck_assert_uint_eq(*(const uint8_t *)borrowed_memory_at(reader, place, 1), 5);
    borrowed_memory_unref(reader);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("lent memory");
    TCase *const all = tcase_create("blocks");

    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, what_is_written_is_read_and_comes_back);
    tcase_add_test(all, all_blocks_are_lent_and_then_none);
    tcase_add_test(all, blocks_of_a_process_that_is_gone_are_lent_again);
    tcase_add_test(all, what_is_not_sent_is_taken_back);
    tcase_add_test(all, a_block_that_several_read_comes_back_with_the_last);
    tcase_add_test(all, places_that_there_are_not_are_refused);
    tcase_add_test(all, other_memory_is_refused);
    tcase_add_test(all, what_is_read_stays_while_somebody_reads);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
