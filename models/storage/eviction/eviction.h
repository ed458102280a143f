/* Which row a table at its max_bytes evicts.
 *
 * A storage keeps a mark for each row. The order of eviction says what a use of the row makes of
 * its mark, and compares the marks of a few rows. A new order is a file models/storage/eviction/
 * <name>.c that ends in its constant EvictionOps, and a line in the array of eviction.c.
 *
 * A row is used by each Add, Set or other write; a Get is no use. So what a server evicts follows
 * from its inputs, and a Get writes nothing. (Many Gets are answered by a process cache, and no
 * server hears of them.)
 *
 * Time is counted in uses of any rows, and wraps. A table at its max_bytes counts about a thousand
 * units of time while as many uses come as it has room for rows. So a row is evicted long before
 * the time has wrapped once.
 *
 * Threads: any; the functions have no state. */
#ifndef RUBATO_MODELS_STORAGE_EVICTION_EVICTION_H
#define RUBATO_MODELS_STORAGE_EVICTION_EVICTION_H

#include <rubato/types.h>
#include <stddef.h>
#include <stdint.h>

#define EVICTION_MARK_BITS 31u
#define EVICTION_MARK_MASK ((UINT32_C(1) << EVICTION_MARK_BITS) - 1)
#define EVICTION_UNITS 1024u /* of time, for as many uses as there is room for rows */

typedef struct {
    const char *name; /* "lru" */

    /* The mark of a row that is used now; that of a new row is 0 before. `now` has
     * EVICTION_MARK_BITS, as marks have. */
    uint32_t (*use)(uint32_t mark, uint32_t now);

    /* The position of the mark whose row is evicted; n is at least 1. NULL: the row with the lowest
     * score is, by the table's expiry. */
    size_t (*choose)(const uint32_t *marks, size_t n, uint32_t now);
} EvictionOps;

/* NULL for an unknown name. */
const EvictionOps *eviction_find(const char *name);

/* The name of the i-th order of eviction, NULL past the last. */
const char *eviction_name(size_t i);

#endif
