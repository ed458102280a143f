/* Where the rows of consecutive ranges of keys lie, so that one pass over keys in any order finds
 * the rows of several ranges.
 *
 * A row is at its key's offset from an origin, which the range decides. The origin is summed up by
 * masks: a branch could not be predicted, because keys come in any order.
 *
 * Places are numbers. Who reads or writes rows by them must know that they are still right; who
 * only has rows fetched into the cache need not.
 *
 * Threads: any; each owns its places. */
#ifndef RUBATO_IO_ROW_PLACES_H
#define RUBATO_IO_ROW_PLACES_H

#include <rubato/types.h>
#include <stddef.h>
#include <stdint.h>

#define ROW_PLACES_MOST 4u

typedef struct {
    size_t n; /* ranges; 0: nothing is known */
    size_t stride;
    RubatoKey first_key;              /* of the first range */
    uintptr_t origin;                 /* where its rows are */
    uint64_t bounds[ROW_PLACES_MOST]; /* first keys less that of the first range; none of that */
    /* From where the row of first_key would be, by the rows of the range before, to where it would
     * be by this one's: numbers, because no memory of theirs need be there. */
    uintptr_t steps[ROW_PLACES_MOST];
} RowPlaces;

/* n and stride: of the places, or the same as a constant. */
static inline __attribute__((always_inline)) unsigned char *row_place(const RowPlaces *places,
                                                                      size_t n, RubatoKey key,
                                                                      size_t stride)
{
    const uint64_t offset = key - places->first_key;
    uintptr_t origin = places->origin;

    for (size_t i = 1; i < n; i++)
        origin += places->steps[i] & -(uintptr_t)(offset >= places->bounds[i]);
    return (unsigned char *)(origin + offset * stride);
}

/* Has the first cache line of each row fetched. The places may be wrong. Always inline: a compiler
 * may find that a function which only fetches has no effect, and leave its calls out. */
static inline __attribute__((always_inline)) void row_places_fetch(const RowPlaces *places,
                                                                   const RubatoKey *keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        __builtin_prefetch(row_place(places, places->n, keys[i], places->stride));
}

#endif
