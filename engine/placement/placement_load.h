/* What parts of tables need of a server, and what a server has of it.
 *
 * Threads: any; the functions have no state. */
#ifndef RUBATO_ENGINE_PLACEMENT_PLACEMENT_LOAD_H
#define RUBATO_ENGINE_PLACEMENT_PLACEMENT_LOAD_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum {
    PLACEMENT_MEMORY,  /* bytes */
    PLACEMENT_NETWORK, /* bytes a second */
    PLACEMENT_QUERIES, /* requests a second */
    PLACEMENT_N_RESOURCES,
} PlacementResource;

#define PLACEMENT_UNLIMITED UINT64_MAX

typedef struct {
    uint64_t of[PLACEMENT_N_RESOURCES];
} PlacementLoad;

typedef struct {
    uint32_t number; /* among the servers of all nodes */
    uint32_t node;   /* any number that is different for each node */
    PlacementLoad limit, used;
    uint32_t n_parts; /* of all tables, replicas too */

    /* of the table that is laid; placement_lay counts them */
    uint32_t n_here;      /* replicas too */
    uint32_t n_primaries; /* without them */
} PlacementServer;

/* Whether the server has room for that. */
bool placement_has_room(const PlacementServer *server, const PlacementLoad *need);

/* Sums that end at the largest number. */
void placement_add(PlacementLoad *load, const PlacementLoad *more);

/* How full the server is with what it has and `need`: the largest share of a resource. Where it has
 * no limit, the share is that of `total`. */
double placement_fullness(const PlacementServer *server, const PlacementLoad *need,
                          const PlacementLoad *total);

/* "memory 512.0 MiB, queries 1000/s"; resources of which `load` has nothing are left out.
 * (transfer full) */
char *placement_load_text(const PlacementLoad *load);

/* "memory 512.0 MiB of 1024.0 MiB (50 %), queries 1000/s": of each resource what is used, with its
 * limit if it has one. (transfer full) */
char *placement_server_text(const PlacementServer *server);

/* A sum that ends at the largest number. */
uint64_t placement_sum(uint64_t a, uint64_t b);

/* How much of a resource the server has left; PLACEMENT_UNLIMITED: it has no limit. */
uint64_t placement_left(const PlacementServer *server, size_t resource);

/* "512.0 MiB". (transfer full) */
char *placement_amount_text(PlacementResource resource, uint64_t amount);

/* "memory". (transfer none) */
const char *placement_resource_name(size_t resource);

#endif
