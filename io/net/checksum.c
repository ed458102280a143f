/* The checksum, compiled for what vectors a processor may have: the widest one counts, for all of a
 * packet's bytes go through it. */
#include "io/net/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t checksum(const void *bytes, size_t size, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, size, seed);
}
