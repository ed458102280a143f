/* The dispatcher's state: the inputs, each with the epoch and place of its next block; the tickets
 * that nodes have; the tickets that came back.
 *
 * Invariant: each block of an epoch of an input is in one of four states: behind the input's place,
 * with one node, come back, or read. A block that was read may come back as long as the node may be
 * lost with what it made of it. The rows that a node read of a block before it gave the block back
 * are not dealt again. If the node is lost with what it made of them, such blocks are counted. */
#include "engine/scheduler/data/block_dispatcher_private.h"

#include <string.h>

#define SHUFFLED_MAX (UINT64_C(1) << 24) /* blocks; a larger input keeps its own order */
#define ORDERED_MAX (UINT64_C(1) << 26) /* of all inputs; those that come too late keep their own */

static InputEntry *input_of(const BlockDispatcher *dispatcher, uint32_t input)
{
    return &g_array_index(dispatcher->inputs, InputEntry, input);
}

static void input_clear(InputEntry *entry)
{
    g_free(entry->name);
    g_free(entry->held);
    g_free(entry->order);
}

BlockDispatcher *block_dispatcher_new(const BlockDispatcherConfig *config)
{
    BlockDispatcher *dispatcher = g_new0(BlockDispatcher, 1);

    dispatcher->config = *config;
    dispatcher->inputs = g_array_new(FALSE, TRUE, sizeof(InputEntry));
    g_array_set_clear_func(dispatcher->inputs, (GDestroyNotify)input_clear);
    dispatcher->by_name = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    dispatcher->dealt = g_new(GArray *, config->n_nodes);
    dispatcher->finished = g_new(GArray *, config->n_nodes);
    dispatcher->n_begun = g_new0(uint64_t, config->n_nodes);
    for (uint32_t node = 0; node < config->n_nodes; node++) {
        dispatcher->dealt[node] = g_array_new(FALSE, FALSE, sizeof(BlockTicket));
        dispatcher->finished[node] = g_array_new(FALSE, FALSE, sizeof(BlockTicket));
    }
    dispatcher->returned = g_array_new(FALSE, FALSE, sizeof(BlockTicket));
    dispatcher->done = g_array_new(FALSE, FALSE, sizeof(BlockTicket));
    dispatcher->undone = g_array_new(FALSE, FALSE, sizeof(BlockTicket));
    dispatcher->random = random_stream(config->seed, config->n_nodes);
    return dispatcher;
}

void block_dispatcher_free(BlockDispatcher *dispatcher)
{
    if (dispatcher == NULL)
        return;
    for (uint32_t node = 0; node < dispatcher->config.n_nodes; node++) {
        g_array_free(dispatcher->dealt[node], TRUE);
        g_array_free(dispatcher->finished[node], TRUE);
    }
    g_free(dispatcher->dealt);
    g_free(dispatcher->finished);
    g_free(dispatcher->n_begun);
    g_array_free(dispatcher->inputs, TRUE);
    g_array_free(dispatcher->returned, TRUE);
    g_array_free(dispatcher->done, TRUE);
    g_array_free(dispatcher->undone, TRUE);
    g_hash_table_unref(dispatcher->by_name);
    g_free(dispatcher);
}

/* ---- inputs ---- */

static bool draw_order(const BlockDispatcher *dispatcher, InputEntry *entry, uint32_t input,
                       uint64_t n)
{
    entry->order = g_try_new(uint32_t, n);
    if (entry->order == NULL)
        return false;
    Random epochs = random_stream(dispatcher->config.seed, entry->epoch);
    Random blocks = random_stream(random_bits(&epochs), input);
    random_order(&blocks, entry->order, n);
    return true;
}

bool block_dispatcher_order(BlockDispatcher *dispatcher, InputEntry *entry, uint32_t input,
                            uint64_t n)
{
    g_clear_pointer(&entry->order, g_free);
    dispatcher->n_ordered -= entry->n_ordered;
    entry->n_ordered = 0;
    if (n > MIN(SHUFFLED_MAX, ORDERED_MAX - dispatcher->n_ordered))
        return false;
    if (n > 0 && !dispatcher->config.only_checks && !draw_order(dispatcher, entry, input, n))
        return false;
    entry->n_ordered = n;
    dispatcher->n_ordered += n;
    return true;
}

static void begin_epoch(BlockDispatcher *dispatcher, InputEntry *entry, uint32_t input)
{
    const bool shuffles =
        dispatcher->config.shuffle && entry->any_order && entry->epoch < dispatcher->config.epochs;

    entry->next = 0;
    (void)block_dispatcher_order(dispatcher, entry, input, shuffles ? entry->n_blocks : 0);
}

void block_dispatcher_end_epochs(BlockDispatcher *dispatcher, InputEntry *entry, uint32_t input)
{
    while (entry->epoch < dispatcher->config.epochs && entry->next >= entry->n_blocks) {
        entry->epoch = entry->n_blocks > 0 ? entry->epoch + 1 : dispatcher->config.epochs;
        begin_epoch(dispatcher, entry, input);
    }
}

uint32_t block_dispatcher_add_input(BlockDispatcher *dispatcher, uint32_t node,
                                    const BlockDispatcherInput *input, char **wrong)
{
    uint32_t number = GPOINTER_TO_UINT(g_hash_table_lookup(dispatcher->by_name, input->name));

    if (number == 0) {
        InputEntry entry = { .name = g_strdup(input->name),
                             .bytes = input->bytes,
                             .n_blocks = input->n_blocks,
                             .any_order =
                                 input->any_order && input->n_blocks != INPUT_BLOCKS_UNKNOWN,
                             .held = g_new0(bool, dispatcher->config.n_nodes),
                             .last = NOBODY };

        if (dispatcher->is_restored || dispatcher->inputs->len >= BLOCK_DISPATCHER_MAX_INPUTS) {
            input_clear(&entry);
            *wrong = dispatcher->is_restored
                         ? g_strdup_printf("%s, which the snapshot does not have", input->name)
                         : g_strdup_printf("more than %u files", BLOCK_DISPATCHER_MAX_INPUTS);
            return BLOCK_DISPATCHER_NO_INPUT;
        }
        g_array_append_val(dispatcher->inputs, entry);
        number = dispatcher->inputs->len;
        g_hash_table_insert(dispatcher->by_name, g_strdup(input->name), GUINT_TO_POINTER(number));
        if (node != NOBODY) { /* else its reader says where it is */
            begin_epoch(dispatcher, input_of(dispatcher, number - 1), number - 1);
            block_dispatcher_end_epochs(dispatcher, input_of(dispatcher, number - 1), number - 1);
        }
    }

    InputEntry *entry = input_of(dispatcher, --number);
    if (entry->bytes != input->bytes) {
        *wrong = g_strdup_printf(
            "%s of %" G_GUINT64_FORMAT " bytes, where %s %" G_GUINT64_FORMAT, entry->name,
            input->bytes, entry->n_holders == 0 ? "the snapshot has" : "others see", entry->bytes);
        return BLOCK_DISPATCHER_NO_INPUT;
    }
    entry->any_order &= input->any_order;
    if (node != NOBODY && !entry->held[node]) {
        entry->held[node] = true;
        entry->n_holders++;
    }
    if (input->n_blocks < entry->n_blocks) {
        entry->n_blocks = input->n_blocks;
        block_dispatcher_end_epochs(dispatcher, entry, number);
    }
    return number;
}

/* ---- dealing ---- */

/* Finds the returned ticket of the lowest epoch that the node can read. Returns its place, or
 * len. */
static guint find_returned(const BlockDispatcher *dispatcher, uint32_t node)
{
    guint found = dispatcher->returned->len;
    uint32_t epoch = UINT32_MAX;

    for (guint i = 0; i < dispatcher->returned->len; i++) {
        const BlockTicket *ticket = &g_array_index(dispatcher->returned, BlockTicket, i);

        if (ticket->epoch < epoch && input_of(dispatcher, ticket->input)->held[node]) {
            epoch = ticket->epoch;
            found = i;
        }
    }
    return found;
}

/* Compares two entries: -1 if blocks of `a` are to be dealt before those of `b`, 0 if they are
 * equal, else 1. */
static int compare_inputs(const InputEntry *a, const InputEntry *b, uint32_t node)
{
    if (a->epoch != b->epoch)
        return a->epoch < b->epoch ? -1 : 1;
    if (a->n_holders != b->n_holders)
        return a->n_holders < b->n_holders ? -1 : 1;
    if (a->any_order != b->any_order)
        return a->any_order ? -1 : 1;
    if (a->any_order)
        return 0;
    /* an input that must be read from its beginning is best left to the node that has begun it */
    const int rank_a = a->last == node ? 0 : a->last == NOBODY ? 1 : 2;
    const int rank_b = b->last == node ? 0 : b->last == NOBODY ? 1 : 2;
    return rank_a - rank_b;
}

/* Blocks that are left of an entry's epoch, limited so that the sum over all inputs cannot
 * overflow. */
static uint64_t left_of(const InputEntry *entry)
{
    return MIN(entry->n_blocks - entry->next, UINT32_MAX);
}

/* The entry from which to deal. If blocks are shuffled, one of several equal entries is drawn at
 * random; each block has the same chance. NULL: none. */
static InputEntry *choose_input(BlockDispatcher *dispatcher, uint32_t node)
{
    InputEntry *chosen = NULL;
    uint64_t n_before = 0;

    for (guint i = 0; i < dispatcher->inputs->len; i++) {
        InputEntry *entry = input_of(dispatcher, i);

        if (!entry->held[node] || entry->epoch >= dispatcher->config.epochs)
            continue;
        const int order = chosen != NULL ? compare_inputs(entry, chosen, node) : -1;
        const uint64_t n_left = left_of(entry);
        if (order < 0) {
            chosen = entry;
            n_before = n_left;
        } else if (order == 0 && dispatcher->config.shuffle && entry->any_order) {
            n_before += n_left;
            if (random_bits(&dispatcher->random) % n_before < n_left)
                chosen = entry;
        }
    }
    return chosen;
}

/* Blocks that the node may still get; UINT64_MAX if that is unknown. */
static uint64_t count_left(const BlockDispatcher *dispatcher, uint32_t node)
{
    uint64_t n_left = 0;

    for (guint i = 0; i < dispatcher->inputs->len; i++) {
        const InputEntry *entry = input_of(dispatcher, i);
        const uint64_t epochs = dispatcher->config.epochs - entry->epoch;

        if (!entry->held[node] || epochs == 0)
            continue;
        if (epochs > 1 || entry->n_blocks == INPUT_BLOCKS_UNKNOWN)
            return UINT64_MAX;
        n_left += left_of(entry);
    }
    return n_left;
}

static bool deal_one(BlockDispatcher *dispatcher, uint32_t node, BlockTicket *ticket)
{
    const guint returned = find_returned(dispatcher, node);
    InputEntry *entry = choose_input(dispatcher, node);

    if (returned < dispatcher->returned->len) {
        *ticket = g_array_index(dispatcher->returned, BlockTicket, returned);
        if (entry == NULL || ticket->epoch <= entry->epoch) {
            g_array_remove_index(dispatcher->returned, returned);
            dispatcher->n_orphans -= returned < dispatcher->n_orphans;
            return true;
        }
    }
    if (entry == NULL)
        return false;
    const uint32_t input = (uint32_t)(entry - input_of(dispatcher, 0));
    *ticket = (BlockTicket){
        .epoch = entry->epoch,
        .input = input,
        .block = entry->order != NULL ? entry->order[entry->next] : entry->next,
    };
    entry->last = node;
    entry->next++;
    block_dispatcher_end_epochs(dispatcher, entry, input);
    return true;
}

size_t block_dispatcher_assign(BlockDispatcher *dispatcher, uint32_t node, size_t wanted,
                               BlockTicket *tickets)
{
    /* The last blocks are dealt in smaller and smaller portions, so that all nodes end at about the
     * same time (C. Polychronopoulos, D. Kuck: Guided self-scheduling, 1987). */
    const uint64_t share =
        count_left(dispatcher, node) / (2 * (uint64_t)dispatcher->config.n_nodes);
    const size_t n_most = (size_t)MIN(wanted, MAX(share, 1));
    size_t n = 0;

    while (n < n_most && deal_one(dispatcher, node, &tickets[n])) {
        g_array_append_val(dispatcher->dealt[node], tickets[n]);
        n++;
    }
    return n;
}

/* ---- what becomes of tickets ---- */

/* Takes a ticket from a node. (was: as it was dealt) */
static bool take_ticket(BlockDispatcher *dispatcher, uint32_t node, const BlockTicket *ticket,
                        BlockTicket *was)
{
    GArray *dealt = dispatcher->dealt[node];

    for (guint i = 0; i < dealt->len; i++) {
        const BlockTicket *own = &g_array_index(dealt, BlockTicket, i);

        if (!block_ticket_is_same(own, ticket))
            continue;
        if (ticket->n_read < own->n_read)
            return false;
        *was = *own;
        g_array_remove_index(dealt, i); /* they stay in the order in which they were dealt */
        return true;
    }
    return false;
}

bool block_dispatcher_finish(BlockDispatcher *dispatcher, uint32_t node, const BlockTicket *ticket)
{
    BlockTicket was;

    if (!take_ticket(dispatcher, node, ticket, &was))
        return false;
    dispatcher->n_done++;
    if (dispatcher->config.keeps_finished)
        g_array_append_val(dispatcher->finished[node], was);
    return true;
}

void block_dispatcher_settle(BlockDispatcher *dispatcher, uint32_t node)
{
    g_array_set_size(dispatcher->finished[node], 0);
    dispatcher->n_begun[node] = 0;
}

bool block_dispatcher_give_back(BlockDispatcher *dispatcher, uint32_t node,
                                const BlockTicket *ticket)
{
    BlockTicket was;

    if (!take_ticket(dispatcher, node, ticket, &was))
        return false;
    if (dispatcher->config.keeps_finished && ticket->n_read > was.n_read)
        dispatcher->n_begun[node]++;
    g_array_append_val(dispatcher->returned, *ticket);
    return true;
}

bool block_dispatcher_absent(BlockDispatcher *dispatcher, uint32_t node, const BlockTicket *ticket)
{
    BlockTicket was;

    if (!take_ticket(dispatcher, node, ticket, &was))
        return false;
    InputEntry *entry = input_of(dispatcher, ticket->input);
    entry->n_blocks = MIN(entry->n_blocks, ticket->block);
    block_dispatcher_end_epochs(dispatcher, entry, ticket->input);
    return true;
}

/* Those of a node that is out come back in front. */
static void return_all(BlockDispatcher *dispatcher, GArray *tickets)
{
    g_array_prepend_vals(dispatcher->returned, tickets->data, tickets->len);
    dispatcher->n_orphans += tickets->len;
    g_array_set_size(tickets, 0);
}

void block_dispatcher_node_out(BlockDispatcher *dispatcher, uint32_t node)
{
    dispatcher->n_done -= dispatcher->finished[node]->len;
    return_all(dispatcher, dispatcher->dealt[node]);
    return_all(dispatcher, dispatcher->finished[node]);
    dispatcher->n_torn += dispatcher->n_begun[node];
    dispatcher->n_begun[node] = 0;
    for (guint i = 0; i < dispatcher->inputs->len; i++) {
        InputEntry *entry = input_of(dispatcher, i);

        if (entry->held[node]) {
            entry->held[node] = false;
            entry->n_holders--;
        }
    }
}

uint64_t block_dispatcher_n_orphans(const BlockDispatcher *dispatcher)
{
    uint64_t n = dispatcher->n_orphans + dispatcher->n_torn;

    for (guint i = 0; i < dispatcher->inputs->len; i++) {
        const InputEntry *entry = input_of(dispatcher, i);

        n += entry->n_holders == 0 && entry->epoch < dispatcher->config.epochs;
    }
    return n;
}

BlockDispatcherProgress block_dispatcher_progress(const BlockDispatcher *dispatcher)
{
    const uint32_t n_epochs = dispatcher->config.epochs;
    BlockDispatcherProgress progress = { .n_inputs = dispatcher->inputs->len,
                                         .epoch = n_epochs - 1,
                                         .n_done = dispatcher->n_done,
                                         .n_left = dispatcher->returned->len };

    for (uint32_t node = 0; node < dispatcher->config.n_nodes; node++)
        progress.n_dealt += dispatcher->dealt[node]->len;
    for (guint i = 0; i < dispatcher->returned->len; i++) {
        const BlockTicket *const ticket = &g_array_index(dispatcher->returned, BlockTicket, i);

        progress.epoch = MIN(progress.epoch, ticket->epoch);
    }
    for (guint i = 0; i < dispatcher->inputs->len; i++) {
        const InputEntry *const entry = input_of(dispatcher, i);
        const uint32_t epochs = n_epochs - entry->epoch;

        if (epochs == 0)
            continue;
        progress.epoch = MIN(progress.epoch, entry->epoch);
        if (progress.n_left == UINT64_MAX || entry->n_blocks > UINT64_MAX / 2 / n_epochs ||
            progress.n_left > UINT64_MAX / 2)
            progress.n_left = UINT64_MAX;
        else
            progress.n_left += entry->n_blocks * epochs - entry->next;
    }
    return progress;
}

uint64_t block_dispatcher_n_dealt(const BlockDispatcher *dispatcher, uint32_t node)
{
    return dispatcher->dealt[node]->len;
}
