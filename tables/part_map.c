/* The part map of a table.
 *
 * Threads: see the header. */
#include "tables/part_map.h"

#include <glib.h>

PartMap *part_map_new(uint32_t n_parts, uint32_t n_servers)
{
    PartMap *map = g_malloc0(sizeof *map + n_parts * sizeof map->servers[0]);

    map->n_parts = n_parts;
    atomic_init(&map->number, 1);
    for (uint32_t part = 0; part < n_parts; part++)
        atomic_init(&map->servers[part], part % n_servers);
    return map;
}

void part_map_free(PartMap *map)
{
    g_free(map);
}

/* seq_cst: against part_map_number, after a message was posted; release: of the server before it */
void part_map_move(PartMap *map, uint32_t part, uint32_t server)
{
    const uint32_t number = atomic_load_explicit(&map->number, memory_order_relaxed);

    atomic_store_explicit(&map->servers[part], server, memory_order_relaxed);
    atomic_store_explicit(&map->number, number + 1, memory_order_seq_cst);
}
