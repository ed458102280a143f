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

uint64_t checksum_apart_plain(const void *head, size_t n_head, const void *rest, size_t n_rest,
                              uint64_t seed)
{
    XXH3_state_t state;

    XXH3_INITSTATE(&state);
    XXH3_64bits_reset_withSeed(&state, seed);
    XXH3_64bits_update(&state, head, n_head);
    XXH3_64bits_update(&state, rest, n_rest);
    return XXH3_64bits_digest(&state);
}

void checksum_add_plain(void *state, const void *bytes, size_t size)
{
    XXH3_64bits_update(state, bytes, size);
}

_Static_assert(sizeof(XXH3_state_t) <= sizeof(ChecksumPieces) &&
                   _Alignof(XXH3_state_t) <= _Alignof(ChecksumPieces),
               "there is room for the state of xxHash");

void checksum_begin(ChecksumPieces *pieces, uint64_t seed)
{
    XXH3_state_t *const state = (void *)pieces->state;

    XXH3_INITSTATE(state);
    XXH3_64bits_reset_withSeed(state, seed);
}

uint64_t checksum_end(const ChecksumPieces *pieces)
{
    return XXH3_64bits_digest((const void *)pieces->state);
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

uint64_t checksum_apart(const void *head, size_t n_head, const void *rest, size_t n_rest,
                        uint64_t seed)
{
    if (n_rest >= MIN_WIDE_BYTES && __builtin_cpu_supports("avx512f"))
        return checksum_apart_avx512(head, n_head, rest, n_rest, seed);
    if (n_rest >= MIN_WIDE_BYTES && __builtin_cpu_supports("avx2"))
        return checksum_apart_avx2(head, n_head, rest, n_rest, seed);
    return checksum_apart_plain(head, n_head, rest, n_rest, seed);
}

void checksum_add(ChecksumPieces *pieces, const void *bytes, size_t size)
{
    if (size >= MIN_WIDE_BYTES && __builtin_cpu_supports("avx512f"))
        checksum_add_avx512(pieces->state, bytes, size);
    else if (size >= MIN_WIDE_BYTES && __builtin_cpu_supports("avx2"))
        checksum_add_avx2(pieces->state, bytes, size);
    else
        checksum_add_plain(pieces->state, bytes, size);
}

#else

uint64_t checksum(const void *bytes, size_t size, uint64_t seed)
{
    return checksum_plain(bytes, size, seed);
}

uint64_t checksum_apart(const void *head, size_t n_head, const void *rest, size_t n_rest,
                        uint64_t seed)
{
    return checksum_apart_plain(head, n_head, rest, n_rest, seed);
}

void checksum_add(ChecksumPieces *pieces, const void *bytes, size_t size)
{
    checksum_add_plain(pieces->state, bytes, size);
}

#endif
