/* Makes numbers that look random from numbers that do not: seeds from seeds, scattered keys from
 * row numbers.
 *
 * Threads: any. */
#ifndef RUBATO_MIX_H
#define RUBATO_MIX_H

#include <stdint.h>

/* Each bit of x changes about half of the result's bits. Different numbers have different results;
 * 0 stays 0. The function is easy to invert, so it protects no hash table from chosen keys.
 *
 * The finaliser of SplitMix64: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number
 * generators", OOPSLA 2014, with the constants of Stafford's variant 13. */
static inline uint64_t rubato_mix64(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

#endif
