/* "balance": the largest part first, each to the server that is then the least full.
 *
 * How full a server is, its scarcest resource says (placement_fullness). Graham, "Bounds on
 * multiprocessing timing anomalies" (1969): with one resource and equal limits, the fullest server
 * then has at most a third more than in the best plan.
 *
 * Threads: any. */
#include "engine/placement/placement.h"

static uint32_t choose(const PlacementServer *servers, uint32_t n, const bool *has_room,
                       const PlacementLump *lump)
{
    uint32_t chosen = n;
    double least = 0;

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = (lump->turn + i) % n;
        double fullness;

        if (!has_room[at])
            continue;
        fullness = placement_fullness(&servers[at], lump->need, &lump->total);
        if (chosen == n || fullness < least ||
            (fullness <= least && servers[at].n_parts < servers[chosen].n_parts)) {
            chosen = at;
            least = fullness;
        }
    }
    return chosen;
}

extern const PlacementOps balance_placement;
const PlacementOps balance_placement = {
    .name = "balance",
    .description = "the server that is then the least full, the largest parts first",
    .largest_first = true,
    .choose = choose,
};
