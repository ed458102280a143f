/* The dispatcher of blocks in seeded simulations: nodes take tickets, read their rows, give some
 * back, find ends, and are given up; runs go on from snapshots.
 *
 * Every row of every epoch is read once by a node that holds its input, as long as there is such a
 * node. If what a lost node has read is to be read again until it is settled, a row may be left out
 * that it read before it gave the block back, and the dispatcher counts these blocks. A failure
 * prints its seed: SEED=n runs that one alone. */
#include "engine/scheduler/data/block_dispatcher.h"

#include <stdlib.h>
#include <string.h>

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

/* The run ends with a snapshot, and another one goes on from it, also where nodes have been lost:
 * what these had read counts as the snapshot says. Nodes that are lost are in no cut. */
static void interrupt_run(void)
{
    g_autoptr(GString) text = g_string_new(NULL);

    block_dispatcher_begin_cut(sim->dispatcher);
    for (uint32_t n = 0; n < sim->config.n_nodes; n++) {
        while (!sim->nodes[n].out && sim->nodes[n].tickets->len > 0)
            cut_ticket(n);
        g_array_free(sim->nodes[n].tickets, TRUE);
    }
    block_dispatcher_write(sim->dispatcher, text);
    block_dispatcher_free(sim->dispatcher);
    sim->dispatcher = block_dispatcher_read(&sim->config, text->str);
    sim_assert(sim->dispatcher != NULL, "%s", text->str);
    sim->n_torn = 0; /* the run that goes on counts anew */
    memset(sim->nodes, 0, sizeof sim->nodes);
    for (uint32_t n = 0; n < sim->config.n_nodes; n++)
        join(n);
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
        else if (chance(2))
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

int main(void)
{
    Suite *suite = suite_create("dispatcher_simulation");
    TCase *simulations = tcase_create("simulations");

    tcase_set_timeout(simulations, 20);
    tcase_add_loop_test(simulations, dispatcher_deals_every_row_once_in_each_epoch, 0, N_CASES);
    suite_add_tcase(suite, simulations);
    return run_suite(suite);
}
