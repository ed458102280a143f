/* Which server has each part of a table.
 *
 * Threads: any may read one. */
#ifndef RUBATO_TABLES_PART_MAP_H
#define RUBATO_TABLES_PART_MAP_H

#include <stdint.h>

typedef struct {
    uint32_t n_parts;
    uint32_t servers[]; /* by part; numbers over all nodes */
} PartMap;

/* The map of a new table: part i is on server i mod n_servers. (transfer full) */
PartMap *part_map_new(uint32_t n_parts, uint32_t n_servers);
void part_map_free(PartMap *map);

static inline uint32_t part_map_server(const PartMap *map, uint32_t part)
{
    return map->servers[part];
}

#endif
