/* A mixer of 64 bits: every bit of the input sways every bit of the output.
 *
 * Threads: any. */
#ifndef RUBATO_MODELS_MIX_H
#define RUBATO_MODELS_MIX_H

#include <stdint.h>

/* The finaliser of splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number
 * generators", OOPSLA 2014, with the constants of Stafford's variant 13. A bijection; 0 stays 0. */
static inline uint64_t mix64(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

#endif
