/* The dispatcher of blocks: seeded simulations of nodes that take tickets, read their rows, give
 * some back, find ends, and are given up; of runs that go on from snapshots; and the rules by which
 * it chooses.
 *
 * In each simulation every row of every epoch is read once by a node that holds its input, as long
 * as there is such a node. If what a lost node has read is to be read again until it is settled, a
 * row may be left out that it read before it gave the block back, and the dispatcher counts these
 * blocks. A failure prints its seed: SEED=n runs that one alone. */
#include "engine/scheduler/block_dispatcher.h"

#include <stdlib.h>
#include <string.h>

#include "engine/task/block_ticket_codec.h"
#include "tests/support/runner.h"

enum {
    MAX_NODES = 4,
    MAX_INPUTS = 5,
    MAX_BLOCKS = 12,
    MAX_EPOCHS = 3,
    ROWS = 4, /* of each block */
    SEEDS_PER_CASE = 200,
    N_CASES = 10,
    MOST_TICKETS = 6,
};

typedef struct {
    uint64_t n_blocks;
    bool packed; /* its end must be found */
    bool held[MAX_NODES];
} SimInput;

typedef struct {
    uint32_t numbers[MAX_INPUTS]; /* the dispatcher's, by our own */
    GArray *tickets;              /* with `input` as the dispatcher numbers it */
    bool ended, out;
    bool unsettled[MAX_EPOCHS][MAX_INPUTS][MAX_BLOCKS][ROWS]; /* rows that it has read */
    uint64_t n_begun; /* blocks that it gave back after it had read rows; since it was settled */
    bool begun[MAX_EPOCHS][MAX_INPUTS][MAX_BLOCKS][ROWS]; /* these rows */
} SimNode;

typedef struct {
    uint64_t seed;
    GRand *rand;
    BlockDispatcherConfig config;
    BlockDispatcher *dispatcher;
    uint32_t n_inputs;
    SimInput inputs[MAX_INPUTS];
    SimNode nodes[MAX_NODES];
    unsigned read[MAX_EPOCHS][MAX_INPUTS][MAX_BLOCKS][ROWS];
    bool lost[MAX_EPOCHS][MAX_INPUTS][MAX_BLOCKS][ROWS]; /* nobody can read them again */
    uint64_t n_torn;                                     /* blocks of such rows */
} Sim;

static Sim *sim;

#define sim_assert(condition, ...)                                                      \
    require_msg(condition, "seed %" G_GUINT64_FORMAT ": %s: %s", sim->seed, #condition, \
                g_strdup_printf(__VA_ARGS__))

static uint32_t draw(uint32_t n)
{
    return (uint32_t)g_rand_int_range(sim->rand, 0, (gint32)n);
}

static bool chance(unsigned percent)
{
    return draw(100) < percent;
}

/* Which of our inputs the dispatcher means. */
static uint32_t input_of(const SimNode *node, uint32_t number)
{
    uint32_t input = 0;

    while (input < sim->n_inputs && node->numbers[input] != number)
        input++;
    sim_assert(input < sim->n_inputs, "input %u is none of the node's", number);
    return input;
}

static void join(uint32_t number)
{
    SimNode *node = &sim->nodes[number];

    node->tickets = g_array_new(FALSE, FALSE, sizeof(BlockTicket));
    for (uint32_t i = 0; i < sim->n_inputs; i++) {
        const SimInput *input = &sim->inputs[i];
        g_autofree char *name = g_strdup_printf("input-%u", i);
        const bool knows = !input->packed || chance(30);
        char *wrong = NULL;

        node->numbers[i] = BLOCK_DISPATCHER_NO_INPUT;
        if (!input->held[number])
            continue;
        node->numbers[i] = block_dispatcher_add_input(
            sim->dispatcher, number,
            &(BlockDispatcherInput){ .name = name,
                                     .bytes = 100 + i,
                                     .n_blocks = knows ? input->n_blocks : INPUT_BLOCKS_UNKNOWN,
                                     .any_order = knows },
            &wrong);
        sim_assert(node->numbers[i] != BLOCK_DISPATCHER_NO_INPUT, "%s", wrong);
    }
}

static void begin(uint64_t seed)
{
    sim->seed = seed;
    sim->rand = g_rand_new_with_seed_array((const guint32[]){ (guint32)seed, 23 }, 2);
    sim->config = (BlockDispatcherConfig){ .n_nodes = 1 + draw(MAX_NODES),
                                           .epochs = 1 + draw(MAX_EPOCHS),
                                           .shuffle = chance(50),
                                           .seed = seed,
                                           .keeps_finished = chance(50) };
    sim->dispatcher = block_dispatcher_new(&sim->config);
    sim->n_inputs = 1 + draw(MAX_INPUTS);
    for (uint32_t i = 0; i < sim->n_inputs; i++) {
        sim->inputs[i].n_blocks = draw(MAX_BLOCKS + 1);
        sim->inputs[i].packed = chance(40);
        /* node 0 is never given up and has every input, so no row can be left */
        for (uint32_t n = 0; n < sim->config.n_nodes; n++)
            sim->inputs[i].held[n] = n == 0 || chance(60);
    }
    for (uint32_t n = 0; n < sim->config.n_nodes; n++)
        join(n);
}

static void ask(uint32_t number)
{
    SimNode *node = &sim->nodes[number];
    BlockTicket tickets[MOST_TICKETS];
    const uint32_t wanted = 1 + draw(MOST_TICKETS);
    const size_t n = block_dispatcher_assign(sim->dispatcher, number, wanted, tickets);

    sim_assert(n <= wanted, "%zu tickets", n);
    node->ended = n == 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t input = input_of(node, tickets[i].input);

        sim_assert(sim->inputs[input].held[number], "node %u", number);
        sim_assert(tickets[i].epoch < sim->config.epochs, "epoch %u", tickets[i].epoch);
        sim_assert(sim->inputs[input].packed || tickets[i].block < sim->inputs[input].n_blocks,
                   "block %" G_GUINT64_FORMAT, tickets[i].block);
        g_array_append_val(node->tickets, tickets[i]);
    }
}

/* Reads the first ticket, or some of its rows. */
static void read_some(uint32_t number, bool all)
{
    SimNode *node = &sim->nodes[number];
    BlockTicket ticket = g_array_index(node->tickets, BlockTicket, 0);
    const uint32_t input = input_of(node, ticket.input);
    const uint32_t rows = ticket.end > 0 ? (uint32_t)ticket.end : ROWS;
    bool sensible;

    g_array_remove_index(node->tickets, 0);
    if (ticket.block >= sim->inputs[input].n_blocks) {
        sensible = block_dispatcher_absent(sim->dispatcher, number, &ticket);
    } else {
        const uint64_t from = ticket.n_read;
        const uint64_t end = all ? rows : ticket.n_read + draw(rows + 1 - (uint32_t)ticket.n_read);

        for (; ticket.n_read < end; ticket.n_read++) {
            sim->read[ticket.epoch][input][ticket.block][ticket.n_read]++;
            node->unsettled[ticket.epoch][input][ticket.block][ticket.n_read] = true;
            node->begun[ticket.epoch][input][ticket.block][ticket.n_read] = end < rows;
        }
        node->n_begun += end < rows && end > from;
        sensible = ticket.n_read == rows
                       ? block_dispatcher_finish(sim->dispatcher, number, &ticket)
                       : block_dispatcher_give_back(sim->dispatcher, number, &ticket);
    }
    sim_assert(sensible, "node %u", number);
    sim_assert(!block_dispatcher_finish(sim->dispatcher, number, &ticket), "twice");
}

/* What the node has read will not be read again. */
static void settle(uint32_t number)
{
    SimNode *node = &sim->nodes[number];

    block_dispatcher_settle(sim->dispatcher, number);
    memset(node->unsettled, 0, sizeof node->unsettled);
    memset(node->begun, 0, sizeof node->begun);
    node->n_begun = 0;
}

/* The node dies: what it has read and not reported is unknown. What it has read and is not settled
 * counts as not read, if the dispatcher is to have it read again. */
static void give_up(uint32_t number)
{
    SimNode *node = &sim->nodes[number];
    const bool *const unsettled = &node->unsettled[0][0][0][0];
    const bool *const begun = &node->begun[0][0][0][0];

    for (size_t i = 0; sim->config.keeps_finished && i < sizeof node->unsettled; i++) {
        (&sim->read[0][0][0][0])[i] -= unsettled[i];
        (&sim->lost[0][0][0][0])[i] |= begun[i];
    }
    sim->n_torn += sim->config.keeps_finished ? node->n_begun : 0;
    node->out = true;
    block_dispatcher_node_out(sim->dispatcher, number);
}

/* The node's first ticket at a cut: some rows are done, and some of these are not in the cut. If
 * all are done, the node has told so. */
static void cut_ticket(uint32_t number)
{
    SimNode *node = &sim->nodes[number];
    BlockTicket ticket = g_array_index(node->tickets, BlockTicket, 0), undone = ticket;
    const uint32_t input = input_of(node, ticket.input);
    const uint32_t rows = ticket.end > 0 ? (uint32_t)ticket.end : ROWS;
    const uint64_t from = ticket.n_read;

    g_array_remove_index(node->tickets, 0);
    if (ticket.block >= sim->inputs[input].n_blocks || chance(30))
        return;
    ticket.n_read += draw(rows + 1 - (uint32_t)from);
    undone.n_read = from + draw((uint32_t)(ticket.n_read - from) + 1);
    undone.end = ticket.n_read;
    for (uint64_t row = from; row < undone.n_read; row++)
        sim->read[ticket.epoch][input][ticket.block][row]++;
    sim_assert(ticket.n_read == rows ? block_dispatcher_finish(sim->dispatcher, number, &ticket)
                                     : block_dispatcher_note_done(sim->dispatcher, &ticket),
               "node %u", number);
    for (; undone.n_read < undone.end; undone.n_read++) { /* row by row: they are put together */
        const BlockTicket one = { undone.epoch, undone.input, undone.block, undone.n_read,
                                  undone.n_read + 1 };

        sim_assert(block_dispatcher_note_undone(sim->dispatcher, &one), "node %u", number);
    }
}

/* The run ends with a snapshot, and another one goes on from it. */
static void interrupt_run(void)
{
    g_autoptr(GString) text = g_string_new(NULL);

    block_dispatcher_begin_cut(sim->dispatcher);
    for (uint32_t n = 0; n < sim->config.n_nodes; n++) {
        while (sim->nodes[n].tickets->len > 0)
            cut_ticket(n);
        g_array_free(sim->nodes[n].tickets, TRUE);
    }
    block_dispatcher_write(sim->dispatcher, text);
    block_dispatcher_free(sim->dispatcher);
    sim->dispatcher = block_dispatcher_read(&sim->config, text->str);
    sim_assert(sim->dispatcher != NULL, "%s", text->str);
    memset(sim->nodes, 0, sizeof sim->nodes);
    for (uint32_t n = 0; n < sim->config.n_nodes; n++)
        join(n);
}

static bool is_any_out(void)
{
    for (uint32_t i = 0; i < sim->config.n_nodes; i++)
        if (sim->nodes[i].out)
            return true;
    return false;
}

static bool is_over(void)
{
    for (uint32_t i = 0; i < sim->config.n_nodes; i++)
        if (!sim->nodes[i].out && (!sim->nodes[i].ended || sim->nodes[i].tickets->len > 0))
            return false;
    return true;
}

static void check_all_read(void)
{
    const uint64_t n_orphans = block_dispatcher_n_orphans(sim->dispatcher);

    sim_assert(n_orphans == sim->n_torn, "%" G_GUINT64_FORMAT " instead of %" G_GUINT64_FORMAT,
               n_orphans, sim->n_torn);
    for (uint32_t epoch = 0; epoch < sim->config.epochs; epoch++)
        for (uint32_t i = 0; i < sim->n_inputs; i++)
            for (uint64_t block = 0; block < sim->inputs[i].n_blocks; block++)
                for (unsigned row = 0; row < ROWS; row++)
                    sim_assert(sim->read[epoch][i][block][row] == !sim->lost[epoch][i][block][row],
                               "row %u of block %" G_GUINT64_FORMAT
                               " of input %u was read %u times in epoch %u",
                               row, block, i, sim->read[epoch][i][block][row], epoch);
}

/* Each block of each epoch is done, dealt or left: exactly, if no end has to be found. */
static void check_progress(bool is_over_now)
{
    const BlockDispatcherProgress progress = block_dispatcher_progress(sim->dispatcher);
    uint64_t n_all = 0, n_dealt = 0;
    bool knows_all = true;

    for (uint32_t i = 0; i < sim->n_inputs; i++) {
        n_all += sim->inputs[i].n_blocks * sim->config.epochs;
        knows_all &= !sim->inputs[i].packed;
    }
    for (uint32_t n = 0; n < sim->config.n_nodes; n++) {
        const uint64_t own = block_dispatcher_n_dealt(sim->dispatcher, n);

        sim_assert(own == (sim->nodes[n].out ? 0 : sim->nodes[n].tickets->len),
                   "node %u has %" G_GUINT64_FORMAT, n, own);
        n_dealt += own;
    }
    sim_assert(progress.n_dealt == n_dealt, "%" G_GUINT64_FORMAT, progress.n_dealt);
    sim_assert(progress.epoch < sim->config.epochs, "epoch %u", progress.epoch);
    if (knows_all)
        sim_assert(progress.n_done + progress.n_dealt + progress.n_left == n_all,
                   "%" G_GUINT64_FORMAT " done, %" G_GUINT64_FORMAT " dealt, %" G_GUINT64_FORMAT
                   " left of %" G_GUINT64_FORMAT,
                   progress.n_done, progress.n_dealt, progress.n_left, n_all);
    if (is_over_now)
        sim_assert(progress.n_done == n_all && progress.n_left == 0 &&
                       progress.epoch == sim->config.epochs - 1,
                   "%" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT, progress.n_done, n_all);
}

static void simulate(uint64_t seed)
{
    Sim run = { 0 };

    sim = &run;
    begin(seed);
    for (unsigned step = 0; !is_over(); step++) {
        const uint32_t number = draw(sim->config.n_nodes);
        SimNode *node = &sim->nodes[number];

        sim_assert(step < 100000, "it hangs");
        if (node->out)
            continue;
        if (number > 0 && chance(1))
            give_up(number);
        else if (chance(2))
            settle(number);
        else if (chance(2) && !is_any_out())
            interrupt_run();
        else if (node->tickets->len == 0 || (!node->ended && chance(30)))
            ask(number);
        else
            read_some(number, /* all= */ node->ended || chance(80));
        check_progress(false);
        /* what came back after the end is asked for again, by the node that has everything */
        if (is_over())
            ask(0);
    }
    check_all_read();
    check_progress(true);
    block_dispatcher_free(sim->dispatcher);
    for (uint32_t n = 0; n < sim->config.n_nodes; n++)
        g_array_free(sim->nodes[n].tickets, TRUE);
    g_rand_free(sim->rand);
}

START_TEST(dispatcher_deals_every_row_once_in_each_epoch)
{
    const char *const seed = getenv("SEED");

    if (seed != NULL) {
        simulate(strtoull(seed, NULL, 10));
        return;
    }
    for (uint64_t i = 0; i < SEEDS_PER_CASE; i++)
        simulate((uint64_t)_i * SEEDS_PER_CASE + i);
}
END_TEST

/* ---- the rules ---- */

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

    block_ticket_write(text, BLOCK_TICKET_GIVEN_BACK, &ticket);
    ck_assert_uint_le(text->len, BLOCK_TICKET_TEXT_MAX);
    block_ticket_write(text, BLOCK_TICKET_DEALT, &(BlockTicket){ 0 });
    const char *at = text->str;
    ck_assert(block_ticket_read(&at, &news, &read));
    ck_assert_int_eq(news, BLOCK_TICKET_GIVEN_BACK);
    ck_assert(read.epoch == ticket.epoch && read.input == ticket.input &&
              read.block == ticket.block && read.n_read == ticket.n_read && read.end == ticket.end);
    ck_assert(block_ticket_read(&at, &news, &read));
    ck_assert_int_eq(news, BLOCK_TICKET_DEALT);
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
};

START_TEST(text_that_is_no_ticket_is_refused)
{
    const char *at = no_tickets[_i];
    BlockTicketEvent news;
    BlockTicket read;

    ck_assert(!block_ticket_read(&at, &news, &read));
    ck_assert_ptr_eq(at, no_tickets[_i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dispatcher");
    TCase *simulations = tcase_create("simulations"), *rules = tcase_create("rules");

    tcase_set_timeout(simulations, 20);
    tcase_add_loop_test(simulations, dispatcher_deals_every_row_once_in_each_epoch, 0, N_CASES);
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
    tcase_add_loop_test(rules, text_that_is_no_ticket_is_refused, 0, G_N_ELEMENTS(no_tickets));
    suite_add_tcase(suite, simulations);
    suite_add_tcase(suite, rules);
    return run_suite(suite);
}
