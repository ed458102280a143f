/* Whether keys lie in a range: see key_range.h.
 *
 * For a key outside the range, the highest bit is set in its offset or in the remainder behind it.
 * The loop gathers only these bits, for several keys at once: not every processor can compare
 * vectors of 64-bit numbers. In a range of more than half of all keys the bits are also set for
 * keys inside; these are checked again. */
#include "io/net/link/key_range.h"

#include <rubato/vector_clones.h>

RUBATO_VECTOR_CLONES static uint64_t outside_bits(const RubatoKey *keys, size_t n,
                                                  RubatoKey first_key, uint64_t last)
{
    uint64_t outside = 0;

    for (size_t i = 0; i < n; i++) {
        const uint64_t offset = keys[i] - first_key;

        outside |= offset | (last - offset);
    }
    return outside;
}

size_t key_range_find_outside(const RubatoKey *keys, size_t n, RubatoKey first_key, uint64_t n_keys)
{
    if (outside_bits(keys, n, first_key, n_keys - 1) >> 63 == 0)
        return n;
    for (size_t i = 0; i < n; i++)
        if (keys[i] - first_key >= n_keys)
            return i;
    return n;
}
