/* Which server has each part of a table, and the number of the map: it grows with each move.
 *
 * A sender loads the number, looks up servers, posts, and loads the number again. If that is
 * another one, what it posted may be late: see engine/server/server_parts.c.
 *
 * Threads: any may read one; part_map_move whoever moves the part, one at a time. */
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

/* seq_cst: against part_map_move. A server that is looked up afterwards is of this number's map or
 * of a later one's. */
static inline uint32_t part_map_number(const PartMap *map)
{
    return atomic_load_explicit(&map->number, memory_order_seq_cst);
}

/* relaxed: the load of the number before it orders it */
static inline uint32_t part_map_server(const PartMap *map, uint32_t part)
{
    return atomic_load_explicit(&map->servers[part], memory_order_relaxed);
}

/* From here on the part is on that server, and the number is the next. */
void part_map_move(PartMap *map, uint32_t part, uint32_t server);

#endif
