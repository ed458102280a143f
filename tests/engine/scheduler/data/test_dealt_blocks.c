/* The blocks that workers were given: one in the place of a lost one gets the same, in their
 * order. */
#include "engine/scheduler/data/dealt_blocks.h"
#include "tests/support/runner.h"

enum { N_WORKERS = 2, MOST = 8 };

static DealtBlocks *dealt;

static void begin(void)
{
    dealt = dealt_blocks_new(N_WORKERS);
}

static void end(void)
{
    dealt_blocks_free(dealt);
}

static BlockTicket ticket(uint64_t block)
{
    return (BlockTicket){ .block = block };
}

static void give(uint32_t rank, uint64_t block)
{
    dealt_blocks_note(dealt, rank, &(BlockTicket){ .block = block }, 1);
}

static void expect_repeated(uint32_t rank, size_t wanted, const uint64_t *blocks, size_t n)
{
    BlockTicket tickets[MOST];
    bool has_ended;

    ck_assert_uint_eq(dealt_blocks_repeat(dealt, rank, wanted, tickets, &has_ended), n);
    for (size_t i = 0; i < n; i++)
        ck_assert_uint_eq(tickets[i].block, blocks[i]);
    ck_assert(!has_ended);
}

static void expect_end(uint32_t rank, uint64_t block, DealtVerdict verdict)
{
    const BlockTicket it = ticket(block);

    ck_assert_int_eq(dealt_blocks_end(dealt, rank, &it), verdict);
}

START_TEST(a_worker_gets_what_the_lost_one_was_given)
{
    static const uint64_t blocks[] = { 7, 3, 5 };

    for (uint32_t i = 0; i < 3; i++) {
        expect_repeated(0, MOST, NULL, 0); /* it is the first */
        give(0, blocks[i]);
        give(1, 10 + i);
    }
    dealt_blocks_begin_again(dealt, 0);
    expect_repeated(1, MOST, NULL, 0);
    expect_repeated(0, 2, blocks, 2);
    expect_repeated(0, 2, blocks + 2, 1);
    expect_repeated(0, 2, NULL, 0);
    give(0, 8);
    expect_repeated(0, 2, NULL, 0);
    dealt_blocks_begin_again(dealt, 0);
    expect_repeated(0, MOST, (const uint64_t[]){ 7, 3, 5, 8 }, 4);
}
END_TEST

START_TEST(what_becomes_of_a_block_counts_once)
{
    for (uint64_t block = 0; block < 4; block++)
        give(0, block);
    give(1, 9);
    expect_end(0, 9, DEALT_IS_WRONG);
    expect_end(0, 0, DEALT_IS_NEW);
    expect_end(0, 2, DEALT_IS_NEW); /* one whose end nobody has told comes before it */
    dealt_blocks_begin_again(dealt, 0);
    expect_end(0, 0, DEALT_IS_WRONG); /* the process has not got it yet */
    expect_repeated(0, MOST, (const uint64_t[]){ 0, 1, 2, 3 }, 4);
    expect_end(0, 0, DEALT_IS_KNOWN);
    expect_end(0, 1, DEALT_IS_NEW);
    expect_end(0, 2, DEALT_IS_KNOWN);
    expect_end(0, 3, DEALT_IS_NEW);
    expect_end(0, 3, DEALT_IS_KNOWN);
}
END_TEST

/* Blocks that have come back since then are not for it: it makes the calls of the lost one. */
START_TEST(an_end_is_repeated_too)
{
    BlockTicket tickets[MOST];
    bool has_ended;

    give(0, 4);
    dealt_blocks_note(dealt, 0, NULL, 0);
    dealt_blocks_begin_again(dealt, 0);
    expect_repeated(0, MOST, (const uint64_t[]){ 4 }, 1);
    ck_assert_uint_eq(dealt_blocks_repeat(dealt, 0, MOST, tickets, &has_ended), 0);
    ck_assert(has_ended);
    ck_assert_uint_eq(dealt_blocks_repeat(dealt, 1, MOST, tickets, &has_ended), 0);
    ck_assert(!has_ended);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dealt_blocks");
    TCase *cases = tcase_create("dealt_blocks");

    tcase_add_checked_fixture(cases, begin, end);
    tcase_add_test(cases, a_worker_gets_what_the_lost_one_was_given);
    tcase_add_test(cases, what_becomes_of_a_block_counts_once);
    tcase_add_test(cases, an_end_is_repeated_too);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
