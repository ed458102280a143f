/* Which server has each part of a table, and the number of the map, which grows with each move.
 *
 * A sender loads the number, looks up servers, posts, and loads the number again. If the number has
 * changed, the message may be late: see engine/server/server_parts.c.
 *
 * Threads: any may read a map; part_map_move from the thread that moves the part, one at a time. */
#ifndef RUBATO_TABLES_PART_MAP_H
#define RUBATO_TABLES_PART_MAP_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct {
    uint32_t n_parts;
    _Atomic uint32_t number;    /* from 1 */
    _Atomic uint32_t servers[]; /* by part; numbers over all nodes */
} PartMap;

/* The map of a new table: part i is on server i mod n_servers. (transfer full) */
PartMap *part_map_new(uint32_t n_parts, uint32_t n_servers);
void part_map_free(PartMap *map);

/* seq_cst: against part_map_move. A server looked up afterwards is from this number's map or a
 * later one. */
static inline uint32_t part_map_number(const PartMap *map)
{
    return atomic_load_explicit(&map->number, memory_order_seq_cst);
}

/* relaxed: the load of the number before it orders it */
static inline uint32_t part_map_server(const PartMap *map, uint32_t part)
{
    return atomic_load_explicit(&map->servers[part], memory_order_relaxed);
}

/* Puts the part on that server, and increases the number. */
void part_map_move(PartMap *map, uint32_t part, uint32_t server);

#endif
