/* The part map of a table, and its senders.
 *
 * DESIGN NOTE
 *
 * A sender stores `sending`, then loads `state`. The mover stores `state`, then loads `sending`.
 * One of the two must see the other: either the sender sees that the map is closed, or the mover
 * sees that the sender sends, and waits for it. If all four are sequentially consistent, that
 * holds. But such a store would cost a sender more than the rest of its way to an idle local
 * server. So the usual sender has a relaxed store, and the mover executes the missing fence for all
 * threads of the process, by the system call membarrier: after it, each thread has passed a full
 * fence since the mover stored `state`. A sender whose store of `sending` comes before that fence
 * is seen by the mover; one whose store comes after it sees `state`.
 *
 * Where the kernel has no such call, the bit PART_MAP_FENCED is set in `state` from the beginning.
 * Senders then always take the slow way, whose store and load are sequentially consistent.
 *
 * Threads: see the header. */
#include "tables/part_map.h"

#include <errno.h>
#include <glib.h>
#include <linux/membarrier.h>
#include <sched.h>

#include "io/net/futex.h"

PartMap *part_map_new(uint32_t n_parts, uint32_t n_servers)
{
    PartMap *map = g_malloc0(sizeof *map + n_parts * sizeof map->servers[0]);
    const bool has_barrier =
        syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;

    map->n_parts = n_parts;
    atomic_init(&map->number, 1);
    atomic_init(&map->state, has_barrier ? 0 : PART_MAP_FENCED);
    pthread_mutex_init(&map->lock, NULL);
    for (uint32_t part = 0; part < n_parts; part++)
        atomic_init(&map->servers[part], part % n_servers);
    return map;
}

void part_map_free(PartMap *map)
{
    if (map == NULL)
        return;
    pthread_mutex_destroy(&map->lock);
    g_free(map->replicas);
    g_free(map);
}

void part_map_set_replicas(PartMap *map, uint32_t n, const uint32_t *servers)
{
    map->n_replicas = n;
    map->replicas = g_new(_Atomic uint32_t, (size_t)map->n_parts *n);
    for (size_t i = 0; i < (size_t)map->n_parts * n; i++)
        atomic_init(&map->replicas[i], servers[i]);
}

void part_map_replace_replicas(PartMap *map, uint32_t part, uint32_t n, const uint32_t *servers)
{
    for (uint32_t i = 0; i < map->n_replicas; i++)
        atomic_store_explicit(&map->replicas[(size_t)part * map->n_replicas + i],
                              i < n ? servers[i] : part_map_server(map, part),
                              memory_order_relaxed);
}

void part_map_join(PartMap *map, PartSender *sender)
{
    atomic_init(&sender->sending, 0);
    pthread_mutex_lock(&map->lock);
    sender->next = map->senders;
    map->senders = sender;
    pthread_mutex_unlock(&map->lock);
}

void part_map_leave(PartMap *map, PartSender *sender)
{
    PartSender **link = &map->senders;

    pthread_mutex_lock(&map->lock);
    while (*link != sender)
        link = &(*link)->next;
    *link = sender->next;
    pthread_mutex_unlock(&map->lock);
}

bool part_map_begin_slowly(PartMap *map, PartSender *sender)
{
    /* both seq_cst: against the store and the load in part_map_close, see the note; acquire: with
     * the store in part_map_open, for the servers */
    atomic_store_explicit(&sender->sending, 1, memory_order_seq_cst);
    if ((atomic_load_explicit(&map->state, memory_order_seq_cst) & PART_MAP_CLOSED) == 0)
        return true;
    part_map_end(sender);
    return false;
}

bool part_map_wait(PartMap *map, int timeout_ms)
{
    /* seq_cst: against the store in part_map_close. What the caller has posted before, comes before
     * what a mover posts that this does not see. acquire: with the store in part_map_open */
    const uint32_t state = atomic_load_explicit(&map->state, memory_order_seq_cst);

    if ((state & PART_MAP_CLOSED) == 0)
        return true;
    futex_wait(&map->state, state, timeout_ms);
    /* acquire: likewise */
    return (atomic_load_explicit(&map->state, memory_order_acquire) & PART_MAP_CLOSED) == 0;
}

/* How often the closer yields to a sender before it sleeps between two looks. */
#define YIELDS 64

/* A sender that posts to a server of its node may do that server's work: all that others have put
 * into its mailbox, up to 32 MiB of Adds for each worker. So this may take seconds, in which the
 * closer must not take a processor from it. */
static void wait_for_sender(PartMap *map, PartSender *sender, uint32_t closed)
{
    uint32_t n_looks = 0;

    /* acquire: with the store in part_map_end; seq_cst: against senders, see the note */
    while (atomic_load_explicit(&sender->sending, memory_order_seq_cst) != 0)
        if (n_looks++ < YIELDS)
            sched_yield();
        else /* nobody opens the map meanwhile: this sleeps for a millisecond */
            futex_wait(&map->state, closed, 1);
}

void part_map_close(PartMap *map)
{
    const uint32_t state = atomic_load_explicit(&map->state, memory_order_relaxed);
    const uint32_t closed = state | PART_MAP_CLOSED;

    /* seq_cst, and in the load: against senders, see the note */
    atomic_store_explicit(&map->state, closed, memory_order_seq_cst);
    if ((state & PART_MAP_FENCED) == 0 &&
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
        g_error("the kernel refuses a memory barrier that it offered: %s", g_strerror(errno));
    pthread_mutex_lock(&map->lock);
    for (PartSender *sender = map->senders; sender != NULL; sender = sender->next)
        wait_for_sender(map, sender, closed);
    pthread_mutex_unlock(&map->lock);
}

void part_map_set_server(PartMap *map, uint32_t part, uint32_t server)
{
    atomic_store_explicit(&map->servers[part], server, memory_order_relaxed);
}

void part_map_renumber(PartMap *map, uint32_t number)
{
    atomic_store_explicit(&map->number, number, memory_order_relaxed);
}

void part_map_reopen(PartMap *map)
{
    const uint32_t state = atomic_load_explicit(&map->state, memory_order_relaxed);

    /* release: to those who load the state before they look up a server */
    atomic_store_explicit(&map->state, state & ~(uint32_t)PART_MAP_CLOSED, memory_order_release);
    futex_wake(&map->state, G_MAXINT);
}

void part_map_open(PartMap *map, uint32_t part, uint32_t server, uint32_t number)
{
    part_map_set_server(map, part, server);
    part_map_renumber(map, number);
    part_map_reopen(map);
}
