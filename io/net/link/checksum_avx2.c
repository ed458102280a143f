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

#endif
