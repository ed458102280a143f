/* The dispatcher's state as bytes: all that it needs to deal what it would have dealt.
 *
 * The order of an input's blocks is drawn again: it follows from the seed, the epoch and the number
 * of blocks that there were when it was drawn.
 *
 * Threads: the scheduler's owner. */
#include "engine/scheduler/data/block_dispatcher_private.h"

void block_ticket_walk(StateWalk *walk, void *ticket)
{
    BlockTicket *const it = ticket;

    WALK(walk, it->epoch);
    WALK(walk, it->input);
    WALK(walk, it->block);
    WALK(walk, it->n_read);
    WALK(walk, it->end);
}

static void walk_input(StateWalk *walk, BlockDispatcher *dispatcher, uint32_t number)
{
    InputEntry *const input = &g_array_index(dispatcher->inputs, InputEntry, number);
    const uint32_t n_nodes = dispatcher->config.n_nodes;

    if (walk_reads(walk))
        *input = (InputEntry){ .held = g_new0(bool, n_nodes) };
    walk_text(walk, &input->name);
    WALK(walk, input->bytes);
    WALK(walk, input->n_blocks);
    WALK(walk, input->any_order);
    walk_flags(walk, input->held, n_nodes);
    WALK(walk, input->n_holders);
    WALK(walk, input->last);
    WALK(walk, input->epoch);
    WALK(walk, input->next);
    const uint64_t n_ordered = walk_number(walk, input->order == NULL ? 0 : input->n_ordered);

    walk->is_wrong |= input->name == NULL || (n_ordered > 0 && input->next >= n_ordered);
    if (!walk_reads(walk) || walk->is_wrong)
        return;
    if (n_ordered > 0)
        walk->is_wrong = !block_dispatcher_order(dispatcher, input, number, n_ordered);
    g_hash_table_insert(dispatcher->by_name, g_strdup(input->name), GUINT_TO_POINTER(number + 1));
}

static void walk_tickets(StateWalk *walk, BlockDispatcher *dispatcher, GArray *tickets)
{
    walk_array(walk, tickets, block_ticket_walk);
    for (guint i = 0; i < tickets->len; i++)
        walk->is_wrong |= g_array_index(tickets, BlockTicket, i).input >= dispatcher->inputs->len;
}

BlockDispatcher *block_dispatcher_walk(StateWalk *walk, BlockDispatcher *dispatcher,
                                       uint32_t n_nodes)
{
    BlockDispatcherConfig config = { .n_nodes = n_nodes };

    if (walk_number(walk, dispatcher != NULL) == 0)
        return NULL;
    if (dispatcher != NULL)
        config = dispatcher->config;
    WALK(walk, config.epochs);
    WALK(walk, config.shuffle);
    WALK(walk, config.seed);
    WALK(walk, config.keeps_finished);
    if (dispatcher == NULL)
        dispatcher = block_dispatcher_new(&config);
    const size_t n_inputs = walk_count(walk, dispatcher->inputs->len);

    for (uint32_t i = 0; i < n_inputs && !walk->is_wrong; i++) {
        if (walk_reads(walk))
            g_array_set_size(dispatcher->inputs, i + 1);
        walk_input(walk, dispatcher, i);
    }
    for (uint32_t node = 0; node < n_nodes; node++) {
        walk_tickets(walk, dispatcher, dispatcher->dealt[node]);
        walk_tickets(walk, dispatcher, dispatcher->finished[node]);
    }
    walk_u64s(walk, dispatcher->n_begun, n_nodes);
    walk_tickets(walk, dispatcher, dispatcher->returned);
    WALK(walk, dispatcher->n_orphans);
    WALK(walk, dispatcher->n_torn);
    WALK(walk, dispatcher->n_done);
    WALK(walk, dispatcher->random.state);
    WALK(walk, dispatcher->is_restored);
    walk_tickets(walk, dispatcher, dispatcher->done);
    walk_tickets(walk, dispatcher, dispatcher->undone);
    return dispatcher;
}
