/* Sums over a clock: what its files share.
 *
 *   aggregate.c         any Adds: sums by key, found by a hash table
 *   aggregate_sorted.c  a few Adds with sorted keys: sums in their own memory
 *
 * Thread: the shard's present owner. */
#ifndef RUBATO_MODELS_AGGREGATE_PRIVATE_H
#define RUBATO_MODELS_AGGREGATE_PRIVATE_H

#include <stdint.h>

#include "io/key_hash.h"
#include "models/aggregate.h"

typedef struct {
    uint32_t n_workers;
    uint32_t last_worker;
} Senders;

struct Aggregate {
    /* immutable */
    RubatoShard *shard;
    RubatoDtype dtype;
    uint32_t width;
    size_t row_bytes;
    bool is_mean;
    KeyHash key_hash;

    /* by number */
    size_t n;
    size_t n_allocated;
    RubatoKey *keys;
    Senders *senders;
    unsigned char *sums;

    uint32_t *slots; /* numbers; EMPTY: none */
    size_t n_slots;  /* a power of 2, at least twice n */

    uint8_t *marks; /* of rows of sorted Adds: see aggregate_sorted.c */
    size_t n_marks_allocated;
};

/* Inline, because rows are short. */
static inline void aggregate_add_row(const Aggregate *aggregate, void *restrict sum,
                                     const void *restrict deltas)
{
    if (aggregate->dtype == RUBATO_F32) {
        float *const to = sum;
        const float *const from = deltas;

        for (size_t i = 0; i < aggregate->width; i++)
            to[i] += from[i];
    } else {
        double *const to = sum;
        const double *const from = deltas;

        for (size_t i = 0; i < aggregate->width; i++)
            to[i] += from[i];
    }
}

void aggregate_divide_row(const Aggregate *aggregate, void *sum, uint32_t divisor);

#endif
