/* A node's view of the clocks of a task on a table.
 *
 * Order. A worker posts its Adds, then stores its clock here. The worker that moves the node's
 * clock has read that store (acquire) and tells the servers afterwards. Mailboxes and links keep
 * order. So when a shard hears the node's clock c, every Add that the node's workers made at clocks
 * < c has arrived. Two such messages may overtake one another when two threads send them; servers
 * ignore the older one.
 *
 * There is no lock, and usually no write to memory that others write. A worker stores its clock.
 * Then it checks whether it was among the slowest, and whether another one of those still is; if so
 * it returns. Otherwise it moves the node's clock. The stores and loads of all workers' clocks and
 * of the node's are sequentially consistent, so they have one order. Let m be the node's clock.
 * Some worker had clock m after m was stored, because the worker that stored m has checked again.
 * Consider the last of these workers to store a higher clock: it finds that it had m and that no
 * worker has it any more, and moves it. The node's clock only grows: no worker's clock is ever
 * below it, so the lowest clock that a search finds is not below it either. */
#include "tables/clocks.h"

#include <glib.h>

void clocks_init(Clocks *clocks, uint32_t self, uint32_t n_nodes, const uint32_t *workers_of)
{
    uint32_t rank = 0;

    *clocks = (Clocks){ .self = self,
                        .n_nodes = n_nodes,
                        .n_workers = workers_of[self],
                        .own = g_aligned_alloc0(1, sizeof(OwnClock), _Alignof(OwnClock)),
                        .workers = g_aligned_alloc0(workers_of[self], sizeof(WorkerClock),
                                                    _Alignof(WorkerClock)),
                        .first_ranks = g_new(uint32_t, n_nodes + 1),
                        .nodes = g_new0(NodeClock, n_nodes),
                        .named = n_nodes };
    pthread_mutex_init(&clocks->lock, NULL);
    atomic_init(&clocks->own->clock, workers_of[self] == 0 ? RUBATO_CLOCK_RETIRED : 0);
    atomic_init(&clocks->own->slowest, 0);
    atomic_init(&clocks->own->wanted, 0);
    atomic_init(&clocks->own->told, 0);
    for (uint32_t i = 0; i < clocks->n_workers; i++)
        atomic_init(&clocks->workers[i].clock, 0);
    for (uint32_t node = 0; node < n_nodes; rank += workers_of[node++]) {
        if (node == self)
            clocks->first_rank = rank;
        clocks->first_ranks[node] = rank;
        clocks->nodes[node].slowest = rank;
        if (workers_of[node] == 0)
            clocks->nodes[node].clock = RUBATO_CLOCK_RETIRED;
    }
    clocks->first_ranks[n_nodes] = rank;
    atomic_init(&clocks->own->told_slowest, clocks->first_rank);
}

void clocks_clear(Clocks *clocks)
{
    g_clear_pointer(&clocks->own, g_aligned_free);
    g_clear_pointer(&clocks->workers, g_aligned_free);
    g_clear_pointer(&clocks->first_ranks, g_free);
    g_clear_pointer(&clocks->nodes, g_free);
    pthread_mutex_destroy(&clocks->lock);
}

/* All sequentially consistent: see the top. */
static uint64_t worker_clock(const Clocks *clocks, uint32_t worker)
{
    return atomic_load(&clocks->workers[worker].clock);
}

uint64_t clocks_own(const Clocks *clocks)
{
    return atomic_load(&clocks->own->clock);
}

bool clocks_have_reached(const Clocks *clocks, uint64_t clock, uint32_t *n_passed)
{
    while (*n_passed < clocks->n_workers && worker_clock(clocks, *n_passed) >= clock)
        ++*n_passed;
    return *n_passed == clocks->n_workers;
}

const _Atomic uint64_t *clocks_own_address(const Clocks *clocks)
{
    return &clocks->own->clock;
}

uint64_t clocks_of_worker(const Clocks *clocks, uint32_t rank)
{
    return worker_clock(clocks, rank - clocks->first_rank);
}

static uint32_t own_slowest(const Clocks *clocks)
{
    /* Relaxed: a hint, and a name for messages to the user. */
    return atomic_load_explicit(&clocks->own->slowest, memory_order_relaxed);
}

static NodeClock own_news(const Clocks *clocks)
{
    return (NodeClock){ clocks_own(clocks), clocks->first_rank + own_slowest(clocks) };
}

/* Finds a worker that has this clock, which is the node's. The search begins with the worker that
 * had it last, so it passes each worker once while the clock stays. False: there is none. */
static bool find_slowest(Clocks *clocks, uint64_t clock)
{
    const uint32_t begin = own_slowest(clocks);

    for (uint32_t i = 0, at = begin; i < clocks->n_workers; i++, at++) {
        at = at < clocks->n_workers ? at : 0;
        if (worker_clock(clocks, at) <= clock) {
            atomic_store_explicit(&clocks->own->slowest, at, memory_order_relaxed);
            return true;
        }
    }
    return false;
}

/* The lowest clock of the workers. */
static uint64_t find_lowest(const Clocks *clocks)
{
    uint64_t lowest = RUBATO_CLOCK_RETIRED;

    for (uint32_t i = 0; i < clocks->n_workers; i++) {
        const uint64_t clock = worker_clock(clocks, i); /* once: MIN would load it twice */

        lowest = MIN(lowest, clock);
    }
    return lowest;
}

/* Whether a worker has left the node's clock and may be the last that had it. */
static bool may_be_last(const Clocks *clocks, uint64_t left)
{
    const uint64_t clock = clocks_own(clocks);

    return left <= clock && worker_clock(clocks, own_slowest(clocks)) > clock;
}

bool clocks_advance(Clocks *clocks, uint32_t rank, uint64_t clock, NodeClock *news)
{
    _Atomic uint64_t *const own = &clocks->workers[rank - clocks->first_rank].clock;
    const uint64_t left = atomic_load_explicit(own, memory_order_relaxed); /* ours */
    bool moved = false;

    atomic_store(own, clock);
    if (may_be_last(clocks, left)) {
        uint64_t node = clocks_own(clocks);

        while (node != RUBATO_CLOCK_RETIRED && !find_slowest(clocks, node)) {
            const uint64_t lowest = find_lowest(clocks);

            if (atomic_compare_exchange_strong(&clocks->own->clock, &node, lowest)) {
                node = lowest;
                moved = true;
            }
        }
    }
    *news = own_news(clocks);
    if (moved)
        atomic_store_explicit(&clocks->own->told_slowest, news->slowest, memory_order_relaxed);
    return moved;
}

void clocks_tell(Clocks *clocks, uint64_t clock)
{
    uint64_t told = atomic_load_explicit(&clocks->own->told, memory_order_relaxed);

    /* Release: pairs with clocks_told, so that what the servers were told comes first. */
    while (told < clock &&
           !atomic_compare_exchange_weak_explicit(&clocks->own->told, &told, clock,
                                                  memory_order_release, memory_order_relaxed))
        ;
}

uint64_t clocks_told(const Clocks *clocks)
{
    return atomic_load_explicit(&clocks->own->told, memory_order_acquire); /* see clocks_tell */
}

/* A Get that waits for a clock is not forgotten. One thread stores the clock that it wants and then
 * loads the node's clock; the other stores the node's clock and then loads the wanted one; all are
 * sequentially consistent. So either the Get carries a clock that is high enough, or the other
 * thread sees that it is wanted. The clock told last is loaded relaxed: an old value only costs one
 * more message. */
uint64_t clocks_await(Clocks *clocks, uint64_t clock)
{
    uint64_t wanted = atomic_load_explicit(&clocks->own->wanted, memory_order_relaxed);

    while (wanted < clock && !atomic_compare_exchange_weak(&clocks->own->wanted, &wanted, clock))
        ;
    return clocks_own(clocks);
}

bool clocks_are_awaited(const Clocks *clocks)
{
    return atomic_load(&clocks->own->wanted) >
           atomic_load_explicit(&clocks->own->told, memory_order_relaxed);
}

void clocks_hear(Clocks *clocks, uint32_t node, NodeClock news)
{
    pthread_mutex_lock(&clocks->lock);
    if (node != clocks->self && news.clock >= clocks->nodes[node].clock)
        clocks->nodes[node] = news;
    pthread_mutex_unlock(&clocks->lock);
}

void clocks_lose(Clocks *clocks, uint32_t node)
{
    clocks_hear(clocks, node, (NodeClock){ RUBATO_CLOCK_RETIRED, clocks->first_ranks[node] });
}

void clocks_hear_common(Clocks *clocks, NodeClock common)
{
    pthread_mutex_lock(&clocks->lock);
    if (common.clock >= clocks->common.clock) {
        clocks->common = common;
        for (uint32_t node = 0; node < clocks->n_nodes; node++) {
            clocks->nodes[node].clock = MAX(clocks->nodes[node].clock, common.clock);
            if (common.slowest < clocks->first_ranks[node] ||
                common.slowest >= clocks->first_ranks[node + 1])
                continue;
            clocks->nodes[node].slowest = common.slowest;
            clocks->named = node;
        }
    }
    pthread_mutex_unlock(&clocks->lock);
}

/* Of several nodes with the lowest clock, the one that the root has named is the slowest: for each
 * other one this node knows only that it has reached that clock. The lock is held. */
static bool find_slowest_node(Clocks *clocks, NodeClock *slowest, uint32_t *node)
{
    *slowest = (NodeClock){ .clock = RUBATO_CLOCK_RETIRED };
    /* the node's clock stays; which worker is the slowest may have changed */
    find_slowest(clocks, clocks_own(clocks));
    for (uint32_t i = 0; i < clocks->n_nodes; i++) {
        const NodeClock one = i == clocks->self ? own_news(clocks) : clocks->nodes[i];

        if (one.clock < slowest->clock ||
            (one.clock == slowest->clock && i == clocks->named && i != clocks->self &&
             one.clock != RUBATO_CLOCK_RETIRED)) {
            *slowest = one;
            *node = i;
        }
    }
    return slowest->clock != RUBATO_CLOCK_RETIRED;
}

bool clocks_slowest(Clocks *clocks, NodeClock *slowest, uint32_t *node)
{
    bool found;

    pthread_mutex_lock(&clocks->lock);
    found = find_slowest_node(clocks, slowest, node);
    pthread_mutex_unlock(&clocks->lock);
    return found;
}

/* Both threads that may change the lowest clock come here afterwards: the one that hears a clock
 * and the worker that moves the node's own. The second of them to take the lock sees both. If no
 * worker is left, the common clock is RUBATO_CLOCK_RETIRED, and the last name stays. */
void clocks_spread(Clocks *clocks, ClocksSpread what, bool (*tell)(void *user, NodeClock common),
                   void *user)
{
    NodeClock slowest;
    uint32_t node;

    pthread_mutex_lock(&clocks->lock);
    if (!find_slowest_node(clocks, &slowest, &node))
        slowest.slowest = clocks->common.slowest;
    if (slowest.clock > clocks->common.clock ||
        (what == CLOCKS_NEWS && (clocks->is_late || slowest.slowest != clocks->common.slowest))) {
        clocks->common = slowest;
        clocks->is_late = !tell(user, slowest);
    }
    pthread_mutex_unlock(&clocks->lock);
}

bool clocks_all_have_retired(Clocks *clocks)
{
    bool all;

    pthread_mutex_lock(&clocks->lock);
    all = clocks->common.clock == RUBATO_CLOCK_RETIRED;
    pthread_mutex_unlock(&clocks->lock);
    return all;
}

NodeClock clocks_news(Clocks *clocks)
{
    find_slowest(clocks, clocks_own(clocks));
    return own_news(clocks);
}

bool clocks_has_news(Clocks *clocks, NodeClock *news)
{
    *news = clocks_news(clocks);
    if (news->clock == RUBATO_CLOCK_RETIRED)
        return false;
    /* Relaxed: a name for messages to the user. */
    return atomic_exchange_explicit(&clocks->own->told_slowest, news->slowest,
                                    memory_order_relaxed) != news->slowest;
}
