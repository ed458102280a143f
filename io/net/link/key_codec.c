/* Differences of ascending keys in groups of four. See the header for the form.
 *
 * Reads and writes whole words if there is room for one, and masks the excess bytes. */
#include "io/net/link/key_codec.h"

#include <string.h>

/* Fewer keys are not worth encoding. */
enum { MIN_KEYS = 16, GROUP = 4 };

static const uint8_t length_of_code[] = { 1, 2, 4, 8 };
static const uint64_t mask_of_code[] = { 0xff, 0xffff, 0xffffffff, UINT64_MAX };

static inline RubatoKey key_at(const RubatoKeys *keys, size_t i)
{
    return keys->keys[keys->at == NULL ? i : keys->at[i]];
}

static inline unsigned code_of(uint64_t difference)
{
    return (unsigned)(difference > 0xff) + (difference > 0xffff) + (difference > 0xffffffff);
}

size_t key_codec_size(const RubatoKeys *keys)
{
    const size_t n_differences = keys->n - 1;
    size_t size = (n_differences + GROUP - 1) / GROUP;
    RubatoKey before;

    if (keys->n < MIN_KEYS)
        return 0;
    before = key_at(keys, 0);
    for (size_t i = 1; i < keys->n; i++) {
        const RubatoKey key = key_at(keys, i);

        if (key < before)
            return 0;
        size += length_of_code[code_of(key - before)];
        before = key;
    }
    return size <= keys->n * sizeof(RubatoKey) * 3 / 4 ? size : 0;
}

/* The word may reach beyond the difference's own bytes, but not beyond `end`: what follows is
 * written later. */
static inline uint8_t *write_difference(uint8_t *at, const uint8_t *end, unsigned code,
                                        uint64_t difference)
{
    if ((size_t)(end - at) >= sizeof difference)
        memcpy(at, &difference, sizeof difference);
    else
        memcpy(at, &difference, length_of_code[code]);
    return at + length_of_code[code];
}

void key_codec_encode(const RubatoKeys *keys, uint8_t *bytes, size_t size)
{
    const RubatoKeys list = *keys; /* a copy, which no byte written may alter */
    const uint8_t *const end = bytes + size;
    RubatoKey before = key_at(&list, 0);

    for (size_t i = 1; i < list.n; i += GROUP) {
        const size_t n = MIN(GROUP, list.n - i);
        uint8_t *const first = bytes++;
        unsigned lengths = 0;

        for (size_t k = 0; k < n; k++) {
            const RubatoKey key = key_at(&list, i + k);
            const unsigned code = code_of(key - before);

            lengths |= code << (2 * k);
            bytes = write_difference(bytes, end, code, key - before);
            before = key;
        }
        *first = (uint8_t)lengths;
    }
}

bool key_codec_is_possible(uint64_t n, uint64_t size)
{
    const uint64_t n_differences = n - 1;
    const uint64_t n_groups = n_differences / GROUP + (n_differences % GROUP != 0);

    if (n == 0 || n_differences > size)
        return false;
    return size >= n_groups + n_differences && size - n_groups <= n_differences * sizeof(uint64_t);
}

/* The next difference. The word may reach beyond the difference's own bytes, but not beyond
 * `end`. */
static inline bool read_difference(const uint8_t **at, const uint8_t *end, unsigned code,
                                   uint64_t *difference)
{
    const size_t left = (size_t)(end - *at);
    uint64_t word = 0;

    if (left >= sizeof word)
        memcpy(&word, *at, sizeof word);
    else if (left >= length_of_code[code])
        memcpy(&word, *at, length_of_code[code]);
    else
        return false;
    *difference = word & mask_of_code[code];
    *at += length_of_code[code];
    return true;
}

bool key_codec_decode(const uint8_t *bytes, size_t size, RubatoKey first, size_t n, RubatoKey *keys)
{
    const uint8_t *at = bytes, *const end = bytes + size;
    RubatoKey key = first;

    keys[0] = key;
    for (size_t i = 1; i < n;) {
        unsigned lengths;

        if (at == end)
            return false;
        lengths = *at++;
        for (size_t last = MIN(n, i + GROUP); i < last; i++, lengths >>= 2) {
            uint64_t difference;

            if (!read_difference(&at, end, lengths & 3, &difference) ||
                difference > UINT64_MAX - key)
                return false;
            key += difference;
            keys[i] = key;
        }
    }
    return at == end;
}
