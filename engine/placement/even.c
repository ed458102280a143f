/* "even": all servers have equally many parts of a table, as far as limits allow.
 *
 * Without limits part i lies on server i modulo the number of servers.
 *
 * Threads: any. */
#include "engine/placement/placement.h"

static uint32_t choose(const PlacementServer *servers, uint32_t n, const bool *has_room,
                       const PlacementLump *lump)
{
    uint32_t chosen = n;

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = (lump->turn + i) % n;

        if (has_room[at] && (chosen == n || servers[at].n_primaries < servers[chosen].n_primaries))
            chosen = at;
    }
    return chosen;
}

extern const PlacementOps even_placement;
const PlacementOps even_placement = {
    .name = "even",
    .description = "the server with the fewest parts of the table, of those that have room",
    .choose = choose,
};
