/* The part map of a table.
 *
 * Threads: see the header. */
#include "tables/part_map.h"

#include <glib.h>

PartMap *part_map_new(uint32_t n_parts, uint32_t n_servers)
{
    PartMap *map = g_malloc0(sizeof *map + n_parts * sizeof map->servers[0]);

    map->n_parts = n_parts;
    for (uint32_t part = 0; part < n_parts; part++)
        map->servers[part] = part % n_servers;
    return map;
}

void part_map_free(PartMap *map)
{
    g_free(map);
}
