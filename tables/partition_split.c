/* Splitting a list of keys in two: see partition_split.h.
 *
 * Each position is written to both lists, and stays in the list whose length then counts it. So
 * there is no branch, which could not be predicted. Processors with AVX-512 do so with sixteen
 * positions at a time. */
#include "tables/partition_split.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* The positions of sixteen keys, of which those in `valid` exist. Returns those that are above. */
static inline __attribute__((always_inline, target("avx512f,popcnt"))) uint32_t split_sixteen(
    const RubatoKey *keys, __mmask16 valid, __m512i first_key, __m512i bound)
{
    const __mmask8 low = (__mmask8)valid, high = (__mmask8)(valid >> 8);
    const __m512i left = _mm512_sub_epi64(_mm512_maskz_loadu_epi64(low, keys), first_key);
    const __m512i right = _mm512_sub_epi64(_mm512_maskz_loadu_epi64(high, keys + 8), first_key);

    return (uint32_t)_mm512_mask_cmpge_epu64_mask(low, left, bound) |
           (uint32_t)_mm512_mask_cmpge_epu64_mask(high, right, bound) << 8;
}

__attribute__((target("avx512f,popcnt"))) static size_t split_wide(const RubatoKey *keys, size_t n,
                                                                   RubatoKey first_key,
                                                                   uint64_t bound, uint32_t *below,
                                                                   uint32_t *above)
{
    const __m512i base = _mm512_set1_epi64((long long)first_key);
    const __m512i limit = _mm512_set1_epi64((long long)bound);
    __m512i at = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    size_t n_above = 0;

    for (size_t i = 0; i < n; i += 16) {
        const uint32_t valid = n - i < 16 ? (1u << (n - i)) - 1 : 0xffff;
        const uint32_t is_above = split_sixteen(keys + i, (__mmask16)valid, base, limit);

        _mm512_storeu_si512(below + i - n_above,
                            _mm512_maskz_compress_epi32((__mmask16)(valid & ~is_above), at));
        _mm512_storeu_si512(above + n_above, _mm512_maskz_compress_epi32((__mmask16)is_above, at));
        n_above += (size_t)__builtin_popcount(is_above);
        at = _mm512_add_epi32(at, _mm512_set1_epi32(16));
    }
    return n_above;
}
#endif

size_t partition_split_plain(const RubatoKey *keys, size_t n, RubatoKey first_key, uint64_t bound,
                             uint32_t *below, uint32_t *above)
{
    size_t n_above = 0;

    for (size_t i = 0; i < n; i++) {
        below[i - n_above] = above[n_above] = (uint32_t)i;
        n_above += keys[i] - first_key >= bound;
    }
    return n_above;
}

size_t partition_split(const RubatoKey *keys, size_t n, RubatoKey first_key, uint64_t bound,
                       uint32_t *below, uint32_t *above)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return split_wide(keys, n, first_key, bound, below, above);
#endif
    return partition_split_plain(keys, n, first_key, bound, below, above);
}
