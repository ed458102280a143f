/* The blocks that workers were given: a list for each.
 *
 * A worker reads its blocks one after the other. So what became of a block is mostly asked of the
 * one behind the last that was asked for: each list is looked through from there.
 *
 * Threads: see the header. */
#include "engine/scheduler/data/dealt_blocks.h"

#include <glib.h>

#include "engine/scheduler/data/block_dispatcher.h"

typedef struct {
    BlockTicket ticket;
    bool is_over;   /* it was told what became of it, */
    bool is_behind; /* by a lost process, and the present one has not told it */
} Dealt;

typedef struct {
    GArray *blocks; /* of Dealt */
    guint n_given;  /* to the present process */
    guint looked;   /* the block behind the one that was asked for last */
    bool is_again;  /* its process is in the place of a lost one */
    bool has_ended;
} OfWorker;

struct DealtBlocks {
    uint32_t n_workers;
    OfWorker workers[];
};

DealtBlocks *dealt_blocks_new(uint32_t n_workers)
{
    DealtBlocks *const dealt = g_malloc0(sizeof *dealt + n_workers * sizeof dealt->workers[0]);

    dealt->n_workers = n_workers;
    for (uint32_t i = 0; i < n_workers; i++)
        dealt->workers[i].blocks = g_array_new(FALSE, FALSE, sizeof(Dealt));
    return dealt;
}

void dealt_blocks_free(DealtBlocks *dealt)
{
    for (uint32_t i = 0; dealt != NULL && i < dealt->n_workers; i++)
        g_array_unref(dealt->workers[i].blocks);
    g_free(dealt);
}

void dealt_blocks_note(DealtBlocks *dealt, uint32_t rank, const BlockTicket *tickets, size_t n)
{
    OfWorker *const it = &dealt->workers[rank];

    for (size_t i = 0; i < n; i++)
        g_array_append_val(it->blocks, ((Dealt){ .ticket = tickets[i] }));
    it->n_given = it->blocks->len;
    it->has_ended |= n == 0;
}

size_t dealt_blocks_repeat(DealtBlocks *dealt, uint32_t rank, size_t n, BlockTicket *tickets,
                           bool *has_ended)
{
    OfWorker *const it = &dealt->workers[rank];
    const size_t n_now = MIN(n, it->blocks->len - it->n_given);

    for (size_t i = 0; i < n_now; i++)
        tickets[i] = g_array_index(it->blocks, Dealt, it->n_given + i).ticket;
    it->n_given += (guint)n_now;
    *has_ended = n_now == 0 && it->has_ended;
    return n_now;
}

void dealt_blocks_begin_again(DealtBlocks *dealt, uint32_t rank)
{
    OfWorker *const it = &dealt->workers[rank];

    it->n_given = it->looked = 0;
    it->is_again = true;
    for (guint i = 0; i < it->blocks->len; i++) {
        Dealt *const one = &g_array_index(it->blocks, Dealt, i);

        one->is_behind = one->is_over;
    }
}

bool dealt_blocks_are_behind(const DealtBlocks *dealt, uint32_t rank)
{
    const OfWorker *const it = &dealt->workers[rank];

    if (it->is_again && it->blocks->len > 0 && it->n_given == 0)
        return true;
    for (guint i = 0; i < it->blocks->len; i++)
        if (g_array_index(it->blocks, Dealt, i).is_behind)
            return true;
    return false;
}

DealtVerdict dealt_blocks_end(DealtBlocks *dealt, uint32_t rank, const BlockTicket *ticket)
{
    OfWorker *const it = &dealt->workers[rank];

    for (guint i = 0; i < it->n_given; i++) {
        const guint at = (it->looked + i) % it->n_given;
        Dealt *const one = &g_array_index(it->blocks, Dealt, at);
        const bool was_over = one->is_over;

        if (!block_ticket_is_same(&one->ticket, ticket))
            continue;
        it->looked = at + 1;
        one->is_behind = false;
        one->is_over = true;
        return was_over ? DEALT_IS_KNOWN : DEALT_IS_NEW;
    }
    return DEALT_IS_WRONG;
}

static void walk_dealt(StateWalk *walk, void *element)
{
    Dealt *const dealt = element;

    block_ticket_walk(walk, &dealt->ticket);
    WALK(walk, dealt->is_over);
    WALK(walk, dealt->is_behind);
}

void dealt_blocks_walk(StateWalk *walk, DealtBlocks *dealt)
{
    for (uint32_t i = 0; i < dealt->n_workers; i++) {
        OfWorker *const it = &dealt->workers[i];

        walk_array(walk, it->blocks, walk_dealt);
        WALK(walk, it->n_given);
        WALK(walk, it->looked);
        WALK(walk, it->is_again);
        WALK(walk, it->has_ended);
        walk->is_wrong |= it->n_given > it->blocks->len;
    }
}
