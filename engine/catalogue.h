/* The catalogue: the tables of an engine, by name and by id.
 *
 * Threads: the owner of the engine's lock. Any thread may read a Table's members marked
 * immutable. */
#ifndef RUBATO_ENGINE_CATALOGUE_H
#define RUBATO_ENGINE_CATALOGUE_H

#include "engine/placement/placement.h"
#include "tables/part_map.h"
#include "tables/partition.h"

typedef struct {
    /* immutable */
    uint32_t id;
    RubatoTableSpec
        *spec; /* a copy with every name and number given; max_bytes is that of a part */
    RubatoTableSpec *given; /* as the table's maker gave it */
    uint64_t hash_seed;     /* the same on all servers */
    Partition partition;
    PartMap *map;
    size_t row_bytes;    /* of a row's values */
    size_t state_bytes;  /* bytes that the update rule keeps beside them */
    uint32_t most_parts; /* with max_bytes: how many parts a server may have */
    int64_t made_us;     /* when it was made here: g_get_monotonic_time */

    unsigned n_holds; /* guarded by the engine's lock: tasks and calls that prevent its drop */
} Table;

/* How many servers the run may have, and has at its beginning: those of spare nodes come later, or
 * never. */
typedef struct {
    uint32_t n, n_first;
} ServerCount;

/* Checks the spec, and fills in its defaults: a part for each of the n servers. What a server may
 * take is shared by its parts as if there were the first servers alone. (transfer full) */
Table *table_new(const RubatoTableSpec *spec, const ServerCount *servers, GError **error);
void table_free(Table *table);

/* What a part needs of its server. */
PlacementLoad table_part_load(const Table *table, uint32_t part);

/* Whether a table may have its replicas where n_nodes have servers. RUBATO_ERROR_INVALID. */
bool table_check_replicas(const RubatoTableSpec *spec, uint32_t n_nodes, GError **error);

/* Lays the table's parts (see placement_lay). RUBATO_ERROR_INVALID also if a server's memory is
 * limited, and what the table takes is not known. */
bool table_lay(const Table *table, const PlacementOps *strategy, uint32_t n_replicas,
               PlacementServer *servers, uint32_t n_servers, uint32_t *places, GError **error);

/* Everything in which two nodes' specs must agree, as text. (transfer full) */
char *table_describe(const RubatoTableSpec *spec);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(Table, table_free)

#endif
