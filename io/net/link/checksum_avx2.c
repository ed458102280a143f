/* The checksum with vectors of 256 bits. This file alone is compiled with -mavx2
 * (io/CMakeLists.txt), so everything that it includes must stay static. Otherwise other files would
 * get code that their processor cannot run. */
#include "io/net/link/checksum_variants.h"

#if CHECKSUM_HAS_VARIANTS

#ifndef __AVX2__
#error "this file is to be compiled with -mavx2"
#endif

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t checksum_avx2(const void *bytes, size_t size, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, size, seed);
}

uint64_t checksum_apart_avx2(const void *head, size_t n_head, const void *rest, size_t n_rest,
                             uint64_t seed)
{
    XXH3_state_t state;

    XXH3_INITSTATE(&state);
    XXH3_64bits_reset_withSeed(&state, seed);
    XXH3_64bits_update(&state, head, n_head);
    XXH3_64bits_update(&state, rest, n_rest);
    return XXH3_64bits_digest(&state);
}

void checksum_add_avx2(void *state, const void *bytes, size_t size)
{
    XXH3_64bits_update(state, bytes, size);
}

#endif
