/* A node's view of the clocks of a task on a table.
 *
 * Order. A worker posts its Adds, then advances its clock here; whichever worker moves the node's
 * clock tells the servers afterwards. The lock orders the first worker's posts before the second's
 * message, and mailboxes and links keep order: so when a shard hears the node's clock c, every Add
 * made by the node's workers at clocks < c has arrived. Two such messages may overtake one another
 * on their way out of two threads; servers ignore the older. */
#include "tables/clocks.h"

#include <glib.h>

void clocks_init(Clocks *clocks, uint32_t self, uint32_t n_nodes, const uint32_t *workers_of)
{
    uint32_t rank = 0;

    *clocks = (Clocks){ .self = self,
                        .n_nodes = n_nodes,
                        .n_workers = workers_of[self],
                        .n_at_minimum = workers_of[self],
                        .workers = g_new0(uint64_t, workers_of[self]),
                        .nodes = g_new0(NodeClock, n_nodes) };
    pthread_mutex_init(&clocks->lock, NULL);
    for (uint32_t node = 0; node < n_nodes; rank += workers_of[node++]) {
        if (node == self)
            clocks->first_rank = clocks->told_slowest = rank;
        clocks->nodes[node].slowest = rank;
        if (workers_of[node] == 0)
            clocks->nodes[node].clock = RUBATO_CLOCK_RETIRED;
    }
}

void clocks_clear(Clocks *clocks)
{
    g_clear_pointer(&clocks->workers, g_free);
    g_clear_pointer(&clocks->nodes, g_free);
    pthread_mutex_destroy(&clocks->lock);
}

/* Finds the slowest of this node's workers anew; the lock is held. */
static void recount(Clocks *clocks)
{
    NodeClock *own = &clocks->nodes[clocks->self];

    own->clock = RUBATO_CLOCK_RETIRED;
    clocks->n_at_minimum = 0;
    for (uint32_t i = 0; i < clocks->n_workers; i++) {
        if (clocks->workers[i] < own->clock) {
            own->clock = clocks->workers[i];
            own->slowest = clocks->first_rank + i;
            clocks->n_at_minimum = 0;
        }
        clocks->n_at_minimum += clocks->workers[i] == own->clock;
    }
}

bool clocks_advance(Clocks *clocks, uint32_t rank, uint64_t clock, NodeClock *news)
{
    uint64_t *worker = &clocks->workers[rank - clocks->first_rank];
    bool moved = false;

    pthread_mutex_lock(&clocks->lock);
    if (*worker == clocks->nodes[clocks->self].clock && clock > *worker)
        moved = --clocks->n_at_minimum == 0;
    *worker = clock;
    if (moved)
        recount(clocks);
    *news = clocks->nodes[clocks->self];
    if (moved)
        clocks->told_slowest = news->slowest;
    pthread_mutex_unlock(&clocks->lock);
    return moved;
}

void clocks_hear(Clocks *clocks, uint32_t node, NodeClock news)
{
    pthread_mutex_lock(&clocks->lock);
    if (node != clocks->self && news.clock >= clocks->nodes[node].clock)
        clocks->nodes[node] = news;
    pthread_mutex_unlock(&clocks->lock);
}

bool clocks_slowest(Clocks *clocks, NodeClock *slowest, uint32_t *node)
{
    *slowest = (NodeClock){ .clock = RUBATO_CLOCK_RETIRED };
    pthread_mutex_lock(&clocks->lock);
    recount(clocks); /* the node's clock stays; which worker is the slowest may have changed */
    for (uint32_t i = 0; i < clocks->n_nodes; i++)
        if (clocks->nodes[i].clock < slowest->clock) {
            *slowest = clocks->nodes[i];
            *node = i;
        }
    pthread_mutex_unlock(&clocks->lock);
    return slowest->clock != RUBATO_CLOCK_RETIRED;
}

bool clocks_has_news(Clocks *clocks, NodeClock *news)
{
    bool changed;

    pthread_mutex_lock(&clocks->lock);
    recount(clocks);
    *news = clocks->nodes[clocks->self];
    changed = news->slowest != clocks->told_slowest && news->clock != RUBATO_CLOCK_RETIRED;
    if (changed)
        clocks->told_slowest = news->slowest;
    pthread_mutex_unlock(&clocks->lock);
    return changed;
}
