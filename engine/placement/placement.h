/* Which server each part of a table lies on, so that no server is above a limit.
 *
 * A strategy chooses among the servers that have room for a part. A new strategy is a file
 * engine/placement/<name>.c that ends in its constant PlacementOps, and a line in the array of
 * placement.c.
 *
 * A plan follows from its arguments alone, so all nodes make the same one.
 *
 * Threads: any; the functions have no state. */
#ifndef RUBATO_ENGINE_PLACEMENT_PLACEMENT_H
#define RUBATO_ENGINE_PLACEMENT_PLACEMENT_H

#include "engine/placement/placement_load.h"

typedef struct {
    const char *table;
    const PlacementLoad *parts; /* what each of them needs; a replica needs the same */
    uint32_t n_parts;
    uint32_t n_replicas; /* of each part, on servers of other nodes */
    uint32_t most_parts; /* of this table that a server may have, besides replicas; 0: any number */
    bool no_split;       /* all parts lie on one server */
} PlacementRequest;

/* What a strategy chooses for: a part, or all parts of a table that is not split. */
typedef struct {
    const PlacementLoad *need;
    PlacementLoad total; /* of all servers: what they have and what the table brings */
    uint32_t turn;       /* the number of the part */
} PlacementLump;

typedef struct {
    const char *name;
    const char *description; /* what follows "each part goes to" */
    bool largest_first;      /* it takes the parts in this order, else in the order of numbers */

    /* Which of the n servers takes the lump, as a position; at least one of them has room. */
    uint32_t (*choose)(const PlacementServer *servers, uint32_t n, const bool *has_room,
                       const PlacementLump *lump);
} PlacementOps;

/* NULL for an unknown name. */
const PlacementOps *placement_find(const char *name);

/* The name of the i-th strategy, NULL past the last. The first is the default. */
const char *placement_name(size_t i);

/* Lays the parts of a table. places[p × (1 + n_replicas)] is the position, among the servers, of
 * part p's, and those of its replicas follow. Adds what they need to the servers. If a part fits on
 * no server: false with RUBATO_ERROR_INVALID, which has the sums, and nothing is changed.
 *
 * Parts are first laid as the strategy says. If that fails, they are laid largest first, each on
 * the fullest server that has room. Parts of equal needs without replicas are laid if that is
 * possible. Others may be refused although another plan would fit. */
bool placement_lay(const PlacementOps *strategy, PlacementServer *servers, uint32_t n_servers,
                   const PlacementRequest *request, uint32_t *places, GError **error);

#endif
