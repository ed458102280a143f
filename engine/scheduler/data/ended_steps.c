/* Rows of ended workers' last steps: a list for each node that lives, and one of those that are
 * lost.
 *
 * Threads: see the header. */
#include "engine/scheduler/data/ended_steps.h"

#include <glib.h>

typedef struct {
    uint64_t clock;
    BlockTicket rows;
} Step;

struct EndedSteps {
    GArray *lost; /* of Step */
    bool are_lost;
    uint32_t n_nodes;
    GArray *of_nodes[]; /* of Step */
};

EndedSteps *ended_steps_new(uint32_t n_nodes)
{
    EndedSteps *const ended = g_malloc0(sizeof *ended + n_nodes * sizeof ended->of_nodes[0]);

    ended->n_nodes = n_nodes;
    ended->lost = g_array_new(FALSE, FALSE, sizeof(Step));
    for (uint32_t node = 0; node < n_nodes; node++)
        ended->of_nodes[node] = g_array_new(FALSE, FALSE, sizeof(Step));
    return ended;
}

void ended_steps_free(EndedSteps *ended)
{
    if (ended == NULL)
        return;
    g_array_unref(ended->lost);
    for (uint32_t node = 0; node < ended->n_nodes; node++)
        g_array_unref(ended->of_nodes[node]);
    g_free(ended);
}

void ended_steps_add(EndedSteps *ended, uint32_t node, uint64_t clock, const BlockTicket *rows)
{
    g_array_append_val(ended->of_nodes[node], ((Step){ clock, *rows }));
}

void ended_steps_begin_again(EndedSteps *ended, uint32_t node)
{
    g_array_set_size(ended->of_nodes[node], 0);
}

void ended_steps_lose(EndedSteps *ended, uint32_t node)
{
    GArray *const steps = ended->of_nodes[node];

    ended->are_lost = true;
    g_array_append_vals(ended->lost, steps->data, steps->len);
    g_array_set_size(steps, 0);
}

bool ended_steps_are_lost(const EndedSteps *ended)
{
    return ended->are_lost;
}

void ended_steps_cut(EndedSteps *ended, uint64_t clock, BlockDispatcher *dispatcher)
{
    guint n = 0;

    for (guint i = 0; i < ended->lost->len; i++) {
        const Step step = g_array_index(ended->lost, Step, i);

        if (step.clock < clock)
            continue;
        (void)block_dispatcher_note_undone(dispatcher, &step.rows); /* looked at when it came */
        g_array_index(ended->lost, Step, n++) = step;
    }
    g_array_set_size(ended->lost, n);
}

static void walk_step(StateWalk *walk, void *element)
{
    Step *const step = element;

    WALK(walk, step->clock);
    block_ticket_walk(walk, &step->rows);
}

void ended_steps_walk(StateWalk *walk, EndedSteps *ended)
{
    walk_array(walk, ended->lost, walk_step);
    WALK(walk, ended->are_lost);
    for (uint32_t node = 0; node < ended->n_nodes; node++)
        walk_array(walk, ended->of_nodes[node], walk_step);
}
