/* The rules by which the dispatcher of blocks chooses what a node reads next, what it refuses, and
 * what snapshots keep of it. test_block_dispatcher_simulation.c has its seeded simulations. */
#include "engine/scheduler/data/block_dispatcher.h"

#include <string.h>

#include "engine/task/block_ticket_codec.h"
#include "tests/support/runner.h"

static uint32_t add(BlockDispatcher *dispatcher, uint32_t node, const char *name, uint64_t n_blocks,
                    bool any_order)
{
    char *wrong = NULL;

    return block_dispatcher_add_input(
        dispatcher, node,
        &(BlockDispatcherInput){
            .name = name, .bytes = 10, .n_blocks = n_blocks, .any_order = any_order },
        &wrong);
}

START_TEST(dispatcher_gives_first_what_fewest_hold)
{
    BlockDispatcher *dispatcher = block_dispatcher_new(
        &(BlockDispatcherConfig){ .n_nodes = 2, .epochs = 1, .shuffle = true });
    BlockTicket tickets[4];

    const uint32_t both = add(dispatcher, 0, "both", 8, true);
    ck_assert_uint_eq(add(dispatcher, 1, "both", 8, true), both);
    const uint32_t own = add(dispatcher, 1, "own", 4, true);
    ck_assert_uint_ge(block_dispatcher_assign(dispatcher, 1, 3, tickets), 1);
    ck_assert_uint_eq(tickets[0].input, own);
    ck_assert_uint_ge(block_dispatcher_assign(dispatcher, 0, 1, tickets), 1);
    ck_assert_uint_eq(tickets[0].input, both);
    block_dispatcher_free(dispatcher);
}
END_TEST

START_TEST(dispatcher_leaves_a_packed_file_to_whoever_began_it)
{
    BlockDispatcher *dispatcher = block_dispatcher_new(
        &(BlockDispatcherConfig){ .n_nodes = 2, .epochs = 1, .shuffle = true });
    BlockTicket ticket;

    for (uint32_t node = 0; node < 2; node++) {
        add(dispatcher, node, "a", INPUT_BLOCKS_UNKNOWN, false);
        add(dispatcher, node, "b", INPUT_BLOCKS_UNKNOWN, false);
    }
    for (uint64_t block = 0; block < 3; block++)
        for (uint32_t node = 0; node < 2; node++) {
            ck_assert_uint_eq(block_dispatcher_assign(dispatcher, node, 1, &ticket), 1);
            ck_assert_uint_eq(ticket.input, node);
            ck_assert_uint_eq(ticket.block, block);
        }
    /* node 0 finds the end of its own and helps with the other */
    ck_assert_uint_eq(block_dispatcher_assign(dispatcher, 0, 1, &ticket), 1);
    ck_assert(block_dispatcher_absent(dispatcher, 0, &ticket));
    ck_assert_uint_eq(block_dispatcher_assign(dispatcher, 0, 1, &ticket), 1);
    ck_assert_uint_eq(ticket.input, 1);
    ck_assert_uint_eq(ticket.block, 3);
    block_dispatcher_free(dispatcher);
}
END_TEST

START_TEST(dispatcher_gives_less_at_the_end)
{
    BlockDispatcher *dispatcher =
        block_dispatcher_new(&(BlockDispatcherConfig){ .n_nodes = 2, .epochs = 1 });
    BlockTicket tickets[16];

    add(dispatcher, 0, "a", 32, true);
    ck_assert_uint_eq(block_dispatcher_assign(dispatcher, 0, 16, tickets), 8);
    ck_assert_uint_eq(block_dispatcher_assign(dispatcher, 0, 16, tickets), 6);
    for (unsigned left = 18; left > 4;)
        left -= (unsigned)block_dispatcher_assign(dispatcher, 0, 16, tickets);
    ck_assert_uint_eq(block_dispatcher_assign(dispatcher, 0, 16, tickets), 1);
    ck_assert_uint_eq(tickets[0].block, 28);
    block_dispatcher_free(dispatcher);
}
END_TEST

START_TEST(dispatcher_believes_the_nearest_end_that_was_found)
{
    BlockDispatcher *dispatcher =
        block_dispatcher_new(&(BlockDispatcherConfig){ .n_nodes = 2, .epochs = 2 });
    BlockTicket tickets[4];

    add(dispatcher, 0, "a", INPUT_BLOCKS_UNKNOWN, true);
    add(dispatcher, 1, "a", INPUT_BLOCKS_UNKNOWN, true);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_uint_eq(block_dispatcher_assign(dispatcher, i % 2, 1, &tickets[i]), 1);
    ck_assert(block_dispatcher_absent(dispatcher, 0, &tickets[2]));
    ck_assert(block_dispatcher_absent(dispatcher, 1, &tickets[3])); /* as it has to be then */
    ck_assert(block_dispatcher_give_back(dispatcher, 0, &tickets[0]));
    for (uint32_t i = 0; i < 3; i++) { /* what came back, and the other epoch */
        ck_assert_uint_eq(block_dispatcher_assign(dispatcher, 0, 1, &tickets[0]), 1);
        ck_assert_uint_eq(tickets[0].epoch, i > 0);
        ck_assert_uint_eq(tickets[0].block, i == 2);
    }
    ck_assert_uint_eq(block_dispatcher_assign(dispatcher, 0, 1, &tickets[0]), 0);
    block_dispatcher_free(dispatcher);
}
END_TEST

START_TEST(dispatcher_gives_what_comes_back_in_its_own_epoch)
{
    BlockDispatcher *dispatcher =
        block_dispatcher_new(&(BlockDispatcherConfig){ .n_nodes = 2, .epochs = 2 });
    BlockTicket ticket;

    add(dispatcher, 0, "a", 1, true);
    add(dispatcher, 1, "a", 1, true);
    for (uint32_t epoch = 0; epoch < 2; epoch++) {
        ck_assert_uint_eq(block_dispatcher_assign(dispatcher, 1, 1, &ticket), 1);
        ck_assert_uint_eq(ticket.epoch, epoch);
    }
    ck_assert(block_dispatcher_give_back(dispatcher, 1, &ticket));
    add(dispatcher, 0, "b", 2, true);
    for (uint32_t block = 0; block < 2; block++) {
        ck_assert_uint_eq(block_dispatcher_assign(dispatcher, 0, 1, &ticket), 1);
        ck_assert_uint_eq(ticket.epoch, 0);
        ck_assert_uint_eq(ticket.block, block);
    }
    ck_assert_uint_eq(block_dispatcher_assign(dispatcher, 0, 1, &ticket), 1);
    ck_assert_uint_eq(ticket.epoch, 1);
    ck_assert_uint_eq(ticket.input, 0);
    block_dispatcher_free(dispatcher);
}
END_TEST

START_TEST(dispatcher_gives_nothing_to_a_node_that_is_out)
{
    BlockDispatcher *dispatcher =
        block_dispatcher_new(&(BlockDispatcherConfig){ .n_nodes = 3, .epochs = 1 });
    BlockTicket ticket;

    for (uint32_t node = 0; node < 3; node++)
        add(dispatcher, node, "a", 9, true);
    ck_assert_uint_eq(block_dispatcher_assign(dispatcher, 1, 1, &ticket), 1);
    for (int times = 0; times < 2; times++) { /* one that has left may die as well */
        block_dispatcher_node_out(dispatcher, 1);
        ck_assert_uint_eq(block_dispatcher_assign(dispatcher, 1, 1, &ticket), 0);
    }
    ck_assert_uint_eq(block_dispatcher_assign(dispatcher, 0, 1, &ticket), 1);
    ck_assert_uint_eq(ticket.block, 0);
    block_dispatcher_free(dispatcher);
}
END_TEST

/* The blocks of an epoch as node 0 of one gets them. */
static void deal_epoch(BlockDispatcher *dispatcher, uint32_t epoch, uint32_t n, uint64_t *blocks)
{
    BlockTicket ticket;

    for (uint32_t i = 0; i < n; i++) {
        require_msg(block_dispatcher_assign(dispatcher, 0, 1, &ticket) == 1, "block %u of %u", i,
                    epoch);
        require_msg(ticket.epoch == epoch, "epoch %u instead of %u", ticket.epoch, epoch);
        blocks[i] = ticket.block;
    }
}

START_TEST(dispatcher_shuffles_each_epoch_by_its_seed)
{
    enum { N = 20 };
    uint64_t blocks[3][2][N]; /* of seeds 5, 5 and 6 */

    for (int run = 0; run < 3; run++) {
        BlockDispatcher *dispatcher = block_dispatcher_new(&(BlockDispatcherConfig){
            .n_nodes = 1, .epochs = 2, .shuffle = true, .seed = run < 2 ? 5 : 6 });

        add(dispatcher, 0, "a", N, true);
        for (uint32_t epoch = 0; epoch < 2; epoch++) {
            uint32_t n_ascents = 0;

            deal_epoch(dispatcher, epoch, N, blocks[run][epoch]);
            for (uint32_t i = 1; i < N; i++)
                n_ascents += blocks[run][epoch][i] == blocks[run][epoch][i - 1] + 1;
            ck_assert_uint_lt(n_ascents, N / 2);
        }
        block_dispatcher_free(dispatcher);
    }
    ck_assert_mem_eq(blocks[0], blocks[1], sizeof blocks[0]);
    ck_assert_mem_ne(blocks[0][0], blocks[0][1], sizeof blocks[0][0]);
    ck_assert_mem_ne(blocks[0][0], blocks[2][0], sizeof blocks[0][0]);
}
END_TEST

/* Of 1 + 9 blocks a tenth of the seeds begins with the one. */
START_TEST(dispatcher_gives_each_block_the_same_chance)
{
    unsigned n_of_small = 0;

    for (uint64_t seed = 0; seed < 500; seed++) {
        BlockDispatcher *dispatcher = block_dispatcher_new(
            &(BlockDispatcherConfig){ .n_nodes = 1, .epochs = 1, .shuffle = true, .seed = seed });
        BlockTicket ticket;

        add(dispatcher, 0, "small", 1, true);
        add(dispatcher, 0, "large", 9, true);
        require_msg(block_dispatcher_assign(dispatcher, 0, 1, &ticket) == 1, "nothing is dealt");
        n_of_small += ticket.input == 0;
        block_dispatcher_free(dispatcher);
    }
    ck_assert_uint_ge(n_of_small, 25);
    ck_assert_uint_le(n_of_small, 75);
}
END_TEST

START_TEST(dispatcher_minds_no_number_of_blocks)
{
    const BlockDispatcherInput inputs[] = {
        { .name = "a", .n_blocks = UINT64_C(1) << 63, .any_order = true },
        { .name = "b", .n_blocks = UINT64_C(1) << 63, .any_order = true },
    };
    BlockDispatcher *dispatcher = block_dispatcher_new(
        &(BlockDispatcherConfig){ .n_nodes = 1, .epochs = 1, .shuffle = true });
    BlockTicket tickets[8];
    char *wrong = NULL;

    for (size_t i = 0; i < G_N_ELEMENTS(inputs); i++)
        ck_assert_uint_eq(block_dispatcher_add_input(dispatcher, 0, &inputs[i], &wrong), i);
    ck_assert_uint_eq(block_dispatcher_assign(dispatcher, 0, G_N_ELEMENTS(tickets), tickets),
                      G_N_ELEMENTS(tickets));
    block_dispatcher_free(dispatcher);
}
END_TEST

START_TEST(dispatcher_refuses_files_that_differ)
{
    BlockDispatcher *dispatcher =
        block_dispatcher_new(&(BlockDispatcherConfig){ .n_nodes = 2, .epochs = 1 });
    g_autofree char *wrong = NULL;

    add(dispatcher, 0, "day 1", 4, true);
    ck_assert_uint_eq(block_dispatcher_add_input(
                          dispatcher, 1,
                          &(BlockDispatcherInput){ .name = "day 1", .bytes = 11, .n_blocks = 4 },
                          &wrong),
                      BLOCK_DISPATCHER_NO_INPUT);
    ck_assert_str_eq(wrong, "day 1 of 11 bytes, where others see 10");
    block_dispatcher_free(dispatcher);
}
END_TEST

START_TEST(dispatcher_takes_no_ticket_that_it_did_not_give)
{
    BlockDispatcher *dispatcher =
        block_dispatcher_new(&(BlockDispatcherConfig){ .n_nodes = 2, .epochs = 1 });
    BlockTicket ticket;

    add(dispatcher, 0, "a", 4, true);
    add(dispatcher, 1, "a", 4, true);
    ck_assert_uint_eq(block_dispatcher_assign(dispatcher, 0, 1, &ticket), 1);
    ck_assert(!block_dispatcher_finish(dispatcher, 1, &ticket));
    ticket.block++;
    ck_assert(!block_dispatcher_give_back(dispatcher, 0, &ticket));
    ck_assert(!block_dispatcher_absent(dispatcher, 0, &ticket));
    ticket.block--;
    ck_assert(block_dispatcher_give_back(dispatcher, 0, &ticket));
    ck_assert(!block_dispatcher_give_back(dispatcher, 0, &ticket));
    block_dispatcher_free(dispatcher);
}
END_TEST

/* ---- in snapshots ---- */

START_TEST(dispatcher_goes_on_from_its_text)
{
    const BlockDispatcherConfig config = { .n_nodes = 1, .epochs = 1 }, two = { .n_nodes = 2 };
    BlockDispatcher *dispatcher = block_dispatcher_new(&config);
    g_autoptr(GString) text = g_string_new(NULL);
    BlockTicket tickets[4];
    char *wrong = NULL;

    (void)add(dispatcher, 0, "a", 8, true);
    ck_assert_uint_eq(block_dispatcher_assign(dispatcher, 0, 4, tickets), 4);
    ck_assert(block_dispatcher_finish(dispatcher, 0, &tickets[0]));
    ck_assert(block_dispatcher_finish(dispatcher, 0, &tickets[1]));
    tickets[2].n_read = 7;
    ck_assert(block_dispatcher_note_done(dispatcher, &tickets[2]));
    ck_assert(block_dispatcher_note_undone(dispatcher, &(BlockTicket){ 0, 0, 2, 3, 7 }));
    ck_assert(block_dispatcher_note_undone(dispatcher, &(BlockTicket){ 0, 0, 0, 5, 9 }));
    ck_assert(!block_dispatcher_note_undone(dispatcher, &(BlockTicket){ 0, 1, 0, 5, 9 }));
    block_dispatcher_write(dispatcher, text);
    ck_assert(
        g_str_has_suffix(text->str, "input 10 8 1 0 4 0 a\nd0 0 0 5 9\nd0 0 2 3\nd0 0 3 0\n"));
    block_dispatcher_free(dispatcher);

    dispatcher = block_dispatcher_read(&two, text->str);
    ck_assert_ptr_nonnull(dispatcher);
    ck_assert_str_eq(block_dispatcher_find_missing(dispatcher), "a");
    ck_assert_uint_eq(add(dispatcher, 1, "a", 8, true), 0);
    ck_assert_ptr_null(block_dispatcher_find_missing(dispatcher));
    ck_assert_uint_eq(
        block_dispatcher_add_input(dispatcher, 1, &(BlockDispatcherInput){ .name = "b" }, &wrong),
        BLOCK_DISPATCHER_NO_INPUT);
    ck_assert_str_eq(wrong, "b, which the snapshot does not have");
    for (size_t i = 0; i < 4; i++)
        ck_assert_uint_eq(block_dispatcher_assign(dispatcher, 1, 1, &tickets[i]), 1);
    ck_assert(tickets[0].block == 0 && tickets[0].n_read == 5 && tickets[0].end == 9);
    ck_assert(tickets[1].block == 2 && tickets[1].n_read == 3 && tickets[1].end == 0);
    ck_assert(tickets[2].block == 3 && tickets[2].n_read == 0);
    ck_assert(tickets[3].block == 4 && tickets[3].n_read == 0);
    /* parts of one block are not each other */
    ck_assert(!block_dispatcher_finish(dispatcher, 1, &(BlockTicket){ 0, 0, 0, 9, 0 }));
    ck_assert(block_dispatcher_finish(dispatcher, 1, &(BlockTicket){ 0, 0, 0, 9, 9 }));
    block_dispatcher_free(dispatcher);
    g_free(wrong);
}
END_TEST

/* ---- tickets as text ---- */

START_TEST(tickets_come_back_from_text)
{
    const BlockTicket ticket = { UINT32_MAX, UINT32_MAX, UINT64_MAX, 3, UINT64_MAX };
    g_autoptr(GString) text = g_string_new(NULL);
    BlockTicketEvent news;
    BlockTicket read;
    uint64_t clock;

    block_ticket_write(text, BLOCK_TICKET_GIVEN_BACK, &ticket);
    ck_assert_uint_le(text->len, BLOCK_TICKET_TEXT_MAX);
    block_ticket_write(text, BLOCK_TICKET_DEALT, &(BlockTicket){ 0 });
    const char *at = text->str;
    ck_assert(block_ticket_read(&at, &news, &clock, &read));
    ck_assert_int_eq(news, BLOCK_TICKET_GIVEN_BACK);
    ck_assert(read.epoch == ticket.epoch && read.input == ticket.input &&
              read.block == ticket.block && read.n_read == ticket.n_read && read.end == ticket.end);
    ck_assert(block_ticket_read(&at, &news, &clock, &read));
    ck_assert_int_eq(news, BLOCK_TICKET_DEALT);
    ck_assert_uint_eq(clock, 0);
    ck_assert_int_eq(*at, '\0');
}
END_TEST

START_TEST(tickets_come_back_with_their_clock)
{
    const BlockTicket ticket = { UINT32_MAX, UINT32_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX };
    g_autoptr(GString) text = g_string_new(NULL);
    BlockTicketEvent news;
    BlockTicket read;
    uint64_t clock;

    block_ticket_write_clock(text, BLOCK_TICKET_ENDED, UINT64_MAX, &ticket);
    ck_assert_uint_le(text->len, BLOCK_TICKET_TEXT_MAX);
    const char *at = text->str;
    ck_assert(block_ticket_read(&at, &news, &clock, &read));
    ck_assert_int_eq(news, BLOCK_TICKET_ENDED);
    ck_assert_uint_eq(clock, UINT64_MAX);
    ck_assert(block_ticket_is_same(&read, &ticket) && read.n_read == ticket.n_read);
    ck_assert_int_eq(*at, '\0');
}
END_TEST

/* What a lost node may not have made use of is not done. */
START_TEST(dispatcher_takes_back_what_was_done_by_a_node_that_is_out)
{
    BlockDispatcher *dispatcher = block_dispatcher_new(
        &(BlockDispatcherConfig){ .n_nodes = 2, .epochs = 2, .keeps_finished = true });
    BlockDispatcherProgress progress;
    BlockTicket tickets[2][2];

    for (uint32_t node = 0; node < 2; node++)
        add(dispatcher, node, "a", 4, true);
    for (uint32_t node = 0; node < 2; node++)
        for (uint32_t i = 0; i < 2; i++)
            ck_assert_uint_eq(block_dispatcher_assign(dispatcher, node, 1, &tickets[node][i]), 1);
    for (uint32_t node = 0; node < 2; node++)
        ck_assert(block_dispatcher_finish(dispatcher, node, &tickets[node][0]));
    progress = block_dispatcher_progress(dispatcher);
    ck_assert_uint_eq(progress.epoch, 1);
    ck_assert_uint_eq(progress.n_done, 2);
    ck_assert_uint_eq(progress.n_dealt, 2);
    ck_assert_uint_eq(progress.n_left, 4);
    block_dispatcher_node_out(dispatcher, 1);
    progress = block_dispatcher_progress(dispatcher);
    ck_assert_uint_eq(progress.epoch, 0);
    ck_assert_uint_eq(progress.n_done, 1);
    ck_assert_uint_eq(progress.n_dealt, 1);
    ck_assert_uint_eq(progress.n_left, 6);
    block_dispatcher_settle(dispatcher, 0);
    block_dispatcher_node_out(dispatcher, 0);
    ck_assert_uint_eq(block_dispatcher_progress(dispatcher).n_done, 1);
    block_dispatcher_free(dispatcher);
}
END_TEST

/* Others read what is left of it. */
START_TEST(dispatcher_counts_blocks_of_which_a_node_that_is_out_had_read_rows)
{
    BlockDispatcher *dispatcher = block_dispatcher_new(
        &(BlockDispatcherConfig){ .n_nodes = 3, .epochs = 1, .keeps_finished = true });
    BlockTicket tickets[3];

    for (uint32_t node = 0; node < 3; node++)
        add(dispatcher, node, "a", 3, true);
    for (uint32_t node = 0; node < 3; node++)
        ck_assert_uint_eq(block_dispatcher_assign(dispatcher, node, 1, &tickets[node]), 1);
    tickets[0].n_read = 2; /* rows that are settled below */
    tickets[1].n_read = 2;
    for (uint32_t node = 0; node < 3; node++) /* node 2 has read none */
        ck_assert(block_dispatcher_give_back(dispatcher, node, &tickets[node]));
    block_dispatcher_settle(dispatcher, 0);
    for (uint32_t node = 0; node < 2; node++)
        block_dispatcher_node_out(dispatcher, node);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(block_dispatcher_assign(dispatcher, 2, 1, &tickets[0]), 1);
        ck_assert_uint_eq(tickets[0].n_read, i < 2 ? 2 : 0);
        ck_assert(block_dispatcher_finish(dispatcher, 2, &tickets[0]));
    }
    ck_assert_uint_eq(block_dispatcher_n_orphans(dispatcher), 1);
    block_dispatcher_free(dispatcher);
}
END_TEST

START_TEST(dispatcher_knows_that_it_does_not_know_what_is_left)
{
    BlockDispatcher *dispatcher =
        block_dispatcher_new(&(BlockDispatcherConfig){ .n_nodes = 1, .epochs = 3 });
    BlockTicket tickets[2];

    add(dispatcher, 0, "a", INPUT_BLOCKS_UNKNOWN, true);
    add(dispatcher, 0, "b", UINT64_MAX / 4, true);
    ck_assert_uint_eq(block_dispatcher_progress(dispatcher).n_left, UINT64_MAX);
    ck_assert_uint_eq(block_dispatcher_progress(dispatcher).epoch, 0);
    ck_assert_uint_eq(block_dispatcher_assign(dispatcher, 0, 2, tickets), 2);
    ck_assert_uint_eq(block_dispatcher_progress(dispatcher).n_dealt, 2);
    block_dispatcher_free(dispatcher);
}
END_TEST

static const char *const no_tickets[] = {
    "",
    "x1 2 3 4\n",
    "d1 2 3\n",
    "d1 2 3 4",
    "d-1 2 3 4\n",
    "d4294967296 2 3 4\n",
    "d1 2 99999999999999999999 4\n",
    "d1 2 111111111111111111111 4\n",
    "d1  2 3 4\n",
    "k1 2 3 4\n",
    "d7 1 2 3 4 5\n",
};

START_TEST(text_that_is_no_ticket_is_refused)
{
    const char *at = no_tickets[_i];
    BlockTicketEvent news;
    BlockTicket read;
    uint64_t clock;

    ck_assert(!block_ticket_read(&at, &news, &clock, &read));
    ck_assert_ptr_eq(at, no_tickets[_i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dispatcher");
    TCase *rules = tcase_create("rules");

    tcase_add_test(rules, dispatcher_gives_first_what_fewest_hold);
    tcase_add_test(rules, dispatcher_leaves_a_packed_file_to_whoever_began_it);
    tcase_add_test(rules, dispatcher_gives_less_at_the_end);
    tcase_add_test(rules, dispatcher_believes_the_nearest_end_that_was_found);
    tcase_add_test(rules, dispatcher_gives_what_comes_back_in_its_own_epoch);
    tcase_add_test(rules, dispatcher_gives_nothing_to_a_node_that_is_out);
    tcase_add_test(rules, dispatcher_shuffles_each_epoch_by_its_seed);
    tcase_add_test(rules, dispatcher_gives_each_block_the_same_chance);
    tcase_add_test(rules, dispatcher_minds_no_number_of_blocks);
    tcase_add_test(rules, dispatcher_refuses_files_that_differ);
    tcase_add_test(rules, dispatcher_takes_no_ticket_that_it_did_not_give);
    tcase_add_test(rules, dispatcher_takes_back_what_was_done_by_a_node_that_is_out);
    tcase_add_test(rules, dispatcher_counts_blocks_of_which_a_node_that_is_out_had_read_rows);
    tcase_add_test(rules, dispatcher_knows_that_it_does_not_know_what_is_left);
    tcase_add_test(rules, dispatcher_goes_on_from_its_text);
    tcase_add_test(rules, tickets_come_back_from_text);
    tcase_add_test(rules, tickets_come_back_with_their_clock);
    tcase_add_loop_test(rules, text_that_is_no_ticket_is_refused, 0, G_N_ELEMENTS(no_tickets));
    suite_add_tcase(suite, rules);
    return run_suite(suite);
}
