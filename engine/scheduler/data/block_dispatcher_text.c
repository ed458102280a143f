/* The dispatcher in a snapshot: lines of numbers.
 *
 *     dispatcher EPOCHS SHUFFLE SEED RANDOM DONE
 *     input BYTES BLOCKS ANY_ORDER EPOCH NEXT ORDERED NAME   of each input, by number
 *     dEPOCH INPUT BLOCK FROM END                      of rows to be dealt before all others
 *
 * The rows of a block that are neither behind its input's place nor in such a line are done.
 *
 * Rows are in the text exactly if they are not done in the cut. A ticket that a node has, or gave
 * back, stands for the rows behind those that the node says to be done. Rows that were done in a
 * step that is not in the cut stand for themselves; where they meet the rest of their block, both
 * are one line. Tickets keep the order in which they were dealt. So if a single worker goes on, it
 * gets its rows in the order in which it would have got them.
 *
 * Threads: the scheduler's owner. */
#include <string.h>

#include "engine/scheduler/data/block_dispatcher_private.h"
#include "engine/task/block_ticket_codec.h"

/* ---- writing ---- */

void block_dispatcher_begin_cut(BlockDispatcher *dispatcher)
{
    g_array_set_size(dispatcher->done, 0);
    g_array_set_size(dispatcher->undone, 0);
}

static bool note(const BlockDispatcher *dispatcher, GArray *list, const BlockTicket *ticket)
{
    if (ticket->input >= dispatcher->inputs->len || ticket->epoch >= dispatcher->config.epochs)
        return false;
    g_array_append_val(list, *ticket);
    return true;
}

bool block_dispatcher_note_done(BlockDispatcher *dispatcher, const BlockTicket *ticket)
{
    return note(dispatcher, dispatcher->done, ticket);
}

bool block_dispatcher_note_undone(BlockDispatcher *dispatcher, const BlockTicket *rows)
{
    return rows->end > rows->n_read && note(dispatcher, dispatcher->undone, rows);
}

/* The rows of a block that are left, in `left`, that begin with that row; NULL: none do. */
static BlockTicket *find_from(const GArray *left, const BlockTicket *block, uint64_t row)
{
    for (guint i = 0; i < left->len; i++) {
        BlockTicket *const ticket = &g_array_index(left, BlockTicket, i);

        if (ticket->epoch == block->epoch && ticket->input == block->input &&
            ticket->block == block->block && ticket->n_read == row)
            return ticket;
    }
    return NULL;
}

static void add_left(const BlockDispatcher *dispatcher, const GArray *tickets, GArray *left)
{
    for (guint i = 0; i < tickets->len; i++) {
        BlockTicket ticket = g_array_index(tickets, BlockTicket, i);

        if (ticket.block >= g_array_index(dispatcher->inputs, InputEntry, ticket.input).n_blocks)
            continue; /* there is no such block */
        for (guint j = 0; j < dispatcher->done->len; j++) {
            const BlockTicket *const done = &g_array_index(dispatcher->done, BlockTicket, j);

            if (block_ticket_is_same(done, &ticket))
                ticket.n_read = MAX(ticket.n_read, done->n_read);
        }
        g_array_append_val(left, ticket);
    }
}

static int compare_rows(const void *a, const void *b)
{
    const BlockTicket *const left = a, *const right = b;

    return left->n_read < right->n_read ? 1 : left->n_read > right->n_read ? -1 : 0;
}

/* Those with the last rows come first, so each finds what follows it. Returns how many blocks are
 * left that were told to be read. */
static uint64_t add_undone(BlockDispatcher *dispatcher, GArray *left)
{
    uint64_t n = 0;

    g_array_sort(dispatcher->undone, compare_rows);
    for (guint i = 0; i < dispatcher->undone->len; i++) {
        const BlockTicket *const rows = &g_array_index(dispatcher->undone, BlockTicket, i);
        BlockTicket *const behind = find_from(left, rows, rows->end);

        if (behind != NULL) {
            behind->n_read = rows->n_read;
            continue;
        }
        g_array_prepend_val(left, *rows);
        n++;
    }
    return n;
}

static void write_input(GString *text, const InputEntry *entry)
{
    g_string_append_printf(text,
                           "input %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT
                           " %d %u %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT " %s\n",
                           entry->bytes, entry->n_blocks, entry->any_order, entry->epoch,
                           entry->next, entry->n_ordered, entry->name);
}

void block_dispatcher_write(BlockDispatcher *dispatcher, GString *text)
{
    const BlockDispatcherConfig *const config = &dispatcher->config;
    g_autoptr(GArray) left = g_array_new(FALSE, FALSE, sizeof(BlockTicket));
    uint64_t n_again;

    for (uint32_t node = 0; node < config->n_nodes; node++)
        add_left(dispatcher, dispatcher->dealt[node], left);
    add_left(dispatcher, dispatcher->returned, left);
    n_again = add_undone(dispatcher, left);
    g_string_append_printf(text,
                           "dispatcher %u %d %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT
                           " %" G_GUINT64_FORMAT "\n",
                           config->epochs, config->shuffle, config->seed, dispatcher->random.state,
                           dispatcher->n_done - MIN(dispatcher->n_done, n_again));
    for (guint i = 0; i < dispatcher->inputs->len; i++)
        write_input(text, &g_array_index(dispatcher->inputs, InputEntry, i));
    for (guint i = 0; i < left->len; i++)
        block_ticket_write(text, BLOCK_TICKET_DEALT, &g_array_index(left, BlockTicket, i));
    block_dispatcher_begin_cut(dispatcher);
}

/* ---- reading ---- */

static bool read_word(const char **at, const char *word)
{
    const bool is_there = g_str_has_prefix(*at, word);

    *at += is_there ? strlen(word) : 0;
    return is_there;
}

static bool read_config(const char **at, BlockDispatcherConfig *config, uint64_t *random,
                        uint64_t *n_done)
{
    uint64_t epochs, shuffle;

    if (!read_word(at, "dispatcher ") || !block_ticket_read_number(at, ' ', UINT32_MAX, &epochs) ||
        !block_ticket_read_number(at, ' ', 1, &shuffle) ||
        !block_ticket_read_number(at, ' ', UINT64_MAX, &config->seed) ||
        !block_ticket_read_number(at, ' ', UINT64_MAX, random) ||
        !block_ticket_read_number(at, '\n', UINT64_MAX, n_done) || epochs == 0)
        return false;
    config->epochs = (uint32_t)epochs;
    config->shuffle = shuffle != 0;
    return true;
}

static bool read_input(BlockDispatcher *dispatcher, const char **at)
{
    BlockDispatcherInput input = { .name = NULL };
    uint64_t any_order, epoch, next, n_ordered;
    const char *end;
    char *wrong = NULL;

    if (!block_ticket_read_number(at, ' ', UINT64_MAX, &input.bytes) ||
        !block_ticket_read_number(at, ' ', UINT64_MAX, &input.n_blocks) ||
        !block_ticket_read_number(at, ' ', 1, &any_order) ||
        !block_ticket_read_number(at, ' ', dispatcher->config.epochs, &epoch) ||
        !block_ticket_read_number(at, ' ', input.n_blocks, &next) ||
        !block_ticket_read_number(at, ' ', UINT64_MAX, &n_ordered) ||
        (n_ordered > 0 && n_ordered < input.n_blocks) || (end = strchr(*at, '\n')) == NULL ||
        end == *at)
        return false;
    g_autofree char *name = g_strndup(*at, (size_t)(end - *at));
    if (g_hash_table_contains(dispatcher->by_name, name))
        return false;
    input.name = name;
    input.any_order = any_order != 0;
    *at = end + 1;
    const uint32_t number = block_dispatcher_add_input(dispatcher, NOBODY, &input, &wrong);
    g_free(wrong);
    if (number == BLOCK_DISPATCHER_NO_INPUT)
        return false;
    InputEntry *const entry = &g_array_index(dispatcher->inputs, InputEntry, number);
    entry->epoch = (uint32_t)epoch;
    entry->next = next;
    if (!block_dispatcher_order(dispatcher, entry, number, n_ordered))
        return false;
    block_dispatcher_end_epochs(dispatcher, entry, number);
    return true;
}

static bool read_ticket(BlockDispatcher *dispatcher, const char **at)
{
    BlockTicketEvent news;
    BlockTicket ticket;
    uint64_t clock;

    if (!block_ticket_read(at, &news, &clock, &ticket) || news != BLOCK_TICKET_DEALT ||
        (ticket.end > 0 && ticket.end <= ticket.n_read) ||
        ticket.input >= dispatcher->inputs->len || ticket.epoch >= dispatcher->config.epochs ||
        ticket.block >= g_array_index(dispatcher->inputs, InputEntry, ticket.input).n_blocks)
        return false;
    g_array_append_val(dispatcher->returned, ticket);
    return true;
}

BlockDispatcher *block_dispatcher_read(const BlockDispatcherConfig *config, const char *text)
{
    BlockDispatcherConfig own = *config;
    BlockDispatcher *dispatcher;
    const char *at = text;
    uint64_t random, n_done;
    bool ok = true;

    if (!read_config(&at, &own, &random, &n_done))
        return NULL;
    dispatcher = block_dispatcher_new(&own);
    dispatcher->random.state = random;
    dispatcher->n_done = n_done;
    while (ok && read_word(&at, "input "))
        ok = read_input(dispatcher, &at);
    while (ok && *at != '\0')
        ok = read_ticket(dispatcher, &at);
    dispatcher->is_restored = true;
    if (!ok)
        g_clear_pointer(&dispatcher, block_dispatcher_free);
    return dispatcher;
}

const char *block_dispatcher_find_missing(const BlockDispatcher *dispatcher)
{
    for (guint i = 0; i < dispatcher->inputs->len && dispatcher->is_restored; i++) {
        const InputEntry *const entry = &g_array_index(dispatcher->inputs, InputEntry, i);
        bool is_left = entry->epoch < dispatcher->config.epochs;

        for (guint j = 0; j < dispatcher->returned->len && !is_left; j++)
            is_left = g_array_index(dispatcher->returned, BlockTicket, j).input == i;
        if (is_left && entry->n_holders == 0)
            return entry->name;
    }
    return NULL;
}
