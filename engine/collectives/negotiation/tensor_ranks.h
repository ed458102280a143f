/* The ranks of a set's workers, rising.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_RANKS_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* For qsort. */
static inline int tensor_ranks_compare(const void *one, const void *other)
{
    const uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;

    return (a > b) - (a < b);
}

/* Whether the worker of this rank is one of the n, and how many of them come before. */
static inline bool tensor_ranks_find(const uint32_t *ranks, uint32_t n, uint32_t rank,
                                     uint32_t *place)
{
    if (rank < n && ranks[rank] == rank) { /* as where the set is all workers */
        *place = rank;
        return true;
    }
    const uint32_t *const found = bsearch(&rank, ranks, n, sizeof rank, tensor_ranks_compare);

    if (found != NULL)
        *place = (uint32_t)(found - ranks);
    return found != NULL;
}

#endif
