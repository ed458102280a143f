/* Which server has each part of a table, and the number of that map. Each node has a copy. The
 * scheduler numbers the maps: every move of a part makes a new one.
 *
 * A map is closed while a part moves. A sender that could not send a message again says when it
 * sends: part_map_begin, look up servers, post, part_map_end. While the map is closed it waits in
 * front of part_map_begin. part_map_close returns when no such sender is left between the two. So
 * everything that was sent by the old map has been posted by then, and nothing is sent by the new
 * map before part_map_open. What may be sent again, a Get for which its worker waits, looks up the
 * server without this: a server that has no such part any more answers CALL_MOVED.
 *
 * Sending costs a sender two stores to its own memory and a load, and no fence. part_map_close
 * makes up for the fence: see part_map.c.
 *
 * Threads: part_map_close and part_map_open from the thread that moves a part, one at a time. A
 * PartSender belongs to one thread. The rest any. */
#ifndef RUBATO_TABLES_PART_MAP_H
#define RUBATO_TABLES_PART_MAP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A thread that sends to the parts of a table. */
typedef struct PartSender PartSender;
struct PartSender {
    _Atomic uint32_t sending; /* 1: it may have looked up a server, and not posted yet */
    PartSender *next;         /* the map's */
};

enum {
    PART_MAP_CLOSED = 1, /* a part moves */
    PART_MAP_FENCED =
        2, /* senders need a fence of their own: the kernel has none for all threads */
};

typedef struct {
    uint32_t n_parts;
    uint32_t n_replicas;        /* of each part */
    _Atomic uint32_t *replicas; /* servers of those of part p: from p × n_replicas on. That of its
                                 * primary: there is one less */
    _Atomic uint32_t number;    /* from 1 */
    _Atomic uint32_t state;     /* PART_MAP_CLOSED, PART_MAP_FENCED */
    pthread_mutex_t lock;
    PartSender *senders;        /* guarded by lock */
    _Atomic uint32_t servers[]; /* by part; numbers over all nodes */
} PartMap;

/* The map of a new table: part i is on server i mod n_servers. (transfer full) */
PartMap *part_map_new(uint32_t n_parts, uint32_t n_servers);
void part_map_free(PartMap *map);

/* Each part has n replicas, on these servers. Before any other thread knows the map. */
void part_map_set_replicas(PartMap *map, uint32_t n, const uint32_t *servers);

/* The server of replica i of a part. relaxed: what depends on it is in order through messages */
static inline uint32_t part_map_replica(const PartMap *map, uint32_t part, uint32_t i)
{
    return atomic_load_explicit(&map->replicas[(size_t)part * map->n_replicas + i],
                                memory_order_relaxed);
}

/* The part has n replicas on these servers now, and no more than at first. Any thread, one at a
 * time. */
void part_map_replace_replicas(PartMap *map, uint32_t part, uint32_t n, const uint32_t *servers);

/* The parts that have replicas: all of the map's, or none. */
static inline uint32_t part_map_n_replicated(const PartMap *map)
{
    return map->n_replicas > 0 ? map->n_parts : 0;
}

/* relaxed: a sender that must see the newest server is ordered by part_map_begin, any other one by
 * the answer CALL_MOVED */
static inline uint32_t part_map_server(const PartMap *map, uint32_t part)
{
    return atomic_load_explicit(&map->servers[part], memory_order_relaxed);
}

/* relaxed: its callers have seen that the map was opened, or use the number for messages only, or
 * have a fence before it */
static inline uint32_t part_map_number(const PartMap *map)
{
    return atomic_load_explicit(&map->number, memory_order_relaxed);
}

/* A sender is known to the map from join to leave. */
void part_map_join(PartMap *map, PartSender *sender);
void part_map_leave(PartMap *map, PartSender *sender);

/* The sender has posted its messages. */
static inline void part_map_end(PartSender *sender)
{
    /* release: to the acquire in part_map_close, so that what was posted comes first */
    atomic_store_explicit(&sender->sending, 0, memory_order_release);
}

/* Whether the sender may look up servers and post. If not, part_map_begin_slowly may say so. */
static inline bool part_map_begin(PartMap *map, PartSender *sender)
{
    /* relaxed, as the fences of part_map_close order the store before the load; the compiler must
     * not change the two */
    atomic_store_explicit(&sender->sending, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    /* acquire: with the store in part_map_open, for the servers */
    return atomic_load_explicit(&map->state, memory_order_acquire) == 0;
}

/* The slow form of part_map_begin, for when that returned false. False: the map is closed, and the
 * sender must not send. */
bool part_map_begin_slowly(PartMap *map, PartSender *sender);

/* Waits while the map is closed, up to timeout_ms. Returns whether it is open. */
bool part_map_wait(PartMap *map, int timeout_ms);

/* Closes the map, and waits until no sender is between part_map_begin and part_map_end. These wait
 * for nothing; but one of them may be doing the work of a server. */
void part_map_close(PartMap *map);

/* Puts the part on that server, gives the map its number, and opens it. */
void part_map_open(PartMap *map, uint32_t part, uint32_t server, uint32_t number);

/* The same in steps, while the map is closed. */
void part_map_set_server(PartMap *map, uint32_t part, uint32_t server);
void part_map_renumber(PartMap *map, uint32_t number);
void part_map_reopen(PartMap *map);

#endif
