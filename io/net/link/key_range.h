/* Whether keys lie in a range.
 *
 * Threads: any. The function depends on its arguments only. */
#ifndef RUBATO_IO_NET_LINK_KEY_RANGE_H
#define RUBATO_IO_NET_LINK_KEY_RANGE_H

#include <rubato/request.h>

/* The place of the first of n keys that is not in first_key .. first_key + n_keys - 1; n if all
 * are.
 *
 * For a key outside the range, the highest bit is set in its offset or in the remainder behind it.
 * The loop tests only these bits, for several keys at once: not every processor can compare vectors
 * of 64-bit numbers. In a range of more than half of all keys the bits are also set for keys
 * inside; these are checked again. */
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
