/* Whether keys lie in a range.
 *
 * Threads: a function of its arguments alone. */
#ifndef RUBATO_IO_NET_LINK_KEY_RANGE_H
#define RUBATO_IO_NET_LINK_KEY_RANGE_H

#include <rubato/request.h>

/* The place of the first of n keys that does not lie in first_key .. first_key + n_keys - 1; n
 * where all do.
 *
 * A key outside has the uppermost bit in its offset or in what is left behind it. To look at these
 * bits alone is done for several keys at once, without a comparison of 64 bits, which not every
 * processor has for vectors; a range of more than half of all keys has them set too, and is looked
 * at again. */
static inline size_t key_range_find_outside(const RubatoKey *keys, size_t n, RubatoKey first_key,
                                            uint64_t n_keys)
{
    const uint64_t last = n_keys - 1;
    uint64_t outside = 0;

    for (size_t i = 0; i < n; i++) {
        const uint64_t offset = keys[i] - first_key;

        outside |= offset | (last - offset);
    }
    if (outside >> 63 == 0)
        return n;
    for (size_t i = 0; i < n; i++)
        if (keys[i] - first_key >= n_keys)
            return i;
    return n;
}

#endif
