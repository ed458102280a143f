/* The checksum, with the widest vectors that the processor has. Both ends compute it over all bytes
 * between nodes of one host, and wider vectors take less than half of the time. */
#include "io/net/link/checksum.h"

#include "io/net/link/checksum_variants.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t checksum_plain(const void *bytes, size_t size, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, size, seed);
}

#if CHECKSUM_HAS_VARIANTS

#define MIN_WIDE_BYTES 512 /* below, vectors do not matter */

uint64_t checksum(const void *bytes, size_t size, uint64_t seed)
{
    if (size >= MIN_WIDE_BYTES && __builtin_cpu_supports("avx512f"))
        return checksum_avx512(bytes, size, seed);
    if (size >= MIN_WIDE_BYTES && __builtin_cpu_supports("avx2"))
        return checksum_avx2(bytes, size, seed);
    return checksum_plain(bytes, size, seed);
}

#else

uint64_t checksum(const void *bytes, size_t size, uint64_t seed)
{
    return checksum_plain(bytes, size, seed);
}

#endif
