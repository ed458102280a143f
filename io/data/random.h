/* Seeded random numbers: a stream depends on its seed alone.
 *
 * SplitMix64 (G. Steele, D. Lea, C. Flood: Fast splittable pseudorandom number generators, 2014).
 *
 * Threads: any; a stream has one owner. */
#ifndef RUBATO_IO_DATA_RANDOM_H
#define RUBATO_IO_DATA_RANDOM_H

#include <rubato/mix.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t state;
} Random;

static inline uint64_t random_bits(Random *random)
{
    return rubato_mix64(random->state += UINT64_C(0x9e3779b97f4a7c15));
}

/* A stream of its own for each number. */
static inline Random random_stream(uint64_t seed, uint64_t number)
{
    Random random = { seed };

    random.state = random_bits(&random) ^ number;
    random.state = random_bits(&random);
    return random;
}

/* Below n, which is not 0 and below 2^32: the upper half of a product (D. Lemire: Fast random
 * integer generation in an interval, 2019, without the rejection: a bias below 2^-32). */
static inline uint32_t random_below(Random *random, uint32_t n)
{
    return (uint32_t)(((random_bits(random) >> 32) * n) >> 32);
}

/* 0 .. n - 1 in a random order (R. Fisher, F. Yates). */
static inline void random_order(Random *random, uint32_t *order, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t at = random_below(random, (uint32_t)i + 1);

        order[i] = order[at];
        order[at] = (uint32_t)i;
    }
}

#endif
