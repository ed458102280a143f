/* Splitting a list of keys in two: see partition_split.h.
 *
 * Each position is written to both lists, and stays in the list whose length then counts it. So
 * there is no branch, which could not be predicted. Processors with AVX-512 do so with sixteen
 * positions at a time, those with AVX2 with four. */
#include "tables/partition_split.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* The keys from `begin` on, of which n_above before it are above. */
static inline size_t split_from(size_t begin, size_t n_above, const RubatoKey *keys, size_t n,
                                RubatoKey first_key, uint64_t bound, uint32_t *below,
                                uint32_t *above)
{
    for (size_t i = begin; i < n; i++) {
        below[i - n_above] = above[n_above] = (uint32_t)i;
        n_above += keys[i] - first_key >= bound;
    }
    return n_above;
}

#if defined(__x86_64__)

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

/* The bytes of a position. */
#define PLACE(i) 4 * (i), 4 * (i) + 1, 4 * (i) + 2, 4 * (i) + 3

/* For each set of four positions: the bytes that bring those in it to the front, in their order.
 * What follows them does not matter. */
static const _Alignas(16) int8_t to_front[16][16] = {
    { PLACE(0), PLACE(0), PLACE(0), PLACE(0) }, { PLACE(0), PLACE(0), PLACE(0), PLACE(0) },
    { PLACE(1), PLACE(0), PLACE(0), PLACE(0) }, { PLACE(0), PLACE(1), PLACE(0), PLACE(0) },
    { PLACE(2), PLACE(0), PLACE(0), PLACE(0) }, { PLACE(0), PLACE(2), PLACE(0), PLACE(0) },
    { PLACE(1), PLACE(2), PLACE(0), PLACE(0) }, { PLACE(0), PLACE(1), PLACE(2), PLACE(0) },
    { PLACE(3), PLACE(0), PLACE(0), PLACE(0) }, { PLACE(0), PLACE(3), PLACE(0), PLACE(0) },
    { PLACE(1), PLACE(3), PLACE(0), PLACE(0) }, { PLACE(0), PLACE(1), PLACE(3), PLACE(0) },
    { PLACE(2), PLACE(3), PLACE(0), PLACE(0) }, { PLACE(0), PLACE(2), PLACE(3), PLACE(0) },
    { PLACE(1), PLACE(2), PLACE(3), PLACE(0) }, { PLACE(0), PLACE(1), PLACE(2), PLACE(3) },
};

/* Which of four keys are above. AVX2 compares signed numbers alone, so both sides have their
 * highest bit turned; `bound` has it already. */
static inline __attribute__((always_inline, target("avx2,popcnt"))) uint32_t split_four(
    __m256i keys, __m256i first_key, __m256i bound)
{
    const __m256i highest = _mm256_set1_epi64x(INT64_MIN);
    const __m256i distance = _mm256_xor_si256(_mm256_sub_epi64(keys, first_key), highest);
    const __m256i below = _mm256_cmpgt_epi64(bound, distance);

    return (uint32_t)_mm256_movemask_pd(_mm256_castsi256_pd(below)) ^ 0xf;
}

static inline __attribute__((always_inline, target("avx2,popcnt"))) void put_four(uint32_t *to,
                                                                                  __m128i at,
                                                                                  uint32_t which)
{
    const __m128i order = _mm_load_si128((const __m128i *)(const void *)to_front[which]);

    _mm_storeu_si128((__m128i *)(void *)to, _mm_shuffle_epi8(at, order));
}

__attribute__((target("avx2,popcnt"))) static size_t split_by_four(const RubatoKey *keys, size_t n,
                                                                   RubatoKey first_key,
                                                                   uint64_t bound, uint32_t *below,
                                                                   uint32_t *above)
{
    const __m256i base = _mm256_set1_epi64x((long long)first_key);
    const __m256i limit =
        _mm256_xor_si256(_mm256_set1_epi64x((long long)bound), _mm256_set1_epi64x(INT64_MIN));
    __m128i at = _mm_setr_epi32(0, 1, 2, 3);
    size_t n_above = 0, i = 0;

    for (; i + 4 <= n; i += 4) {
        const __m256i some = _mm256_loadu_si256((const __m256i *)(const void *)(keys + i));
        const uint32_t is_above = split_four(some, base, limit);

        put_four(below + i - n_above, at, is_above ^ 0xf);
        put_four(above + n_above, at, is_above);
        n_above += (size_t)__builtin_popcount(is_above);
        at = _mm_add_epi32(at, _mm_set1_epi32(4));
    }
    return split_from(i, n_above, keys, n, first_key, bound, below, above);
}
#endif

size_t partition_split_plain(const RubatoKey *keys, size_t n, RubatoKey first_key, uint64_t bound,
                             uint32_t *below, uint32_t *above)
{
    return split_from(0, 0, keys, n, first_key, bound, below, above);
}

size_t partition_split_narrow(const RubatoKey *keys, size_t n, RubatoKey first_key, uint64_t bound,
                              uint32_t *below, uint32_t *above)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return split_by_four(keys, n, first_key, bound, below, above);
#endif
    return partition_split_plain(keys, n, first_key, bound, below, above);
}

size_t partition_split(const RubatoKey *keys, size_t n, RubatoKey first_key, uint64_t bound,
                       uint32_t *below, uint32_t *above)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return split_wide(keys, n, first_key, bound, below, above);
#endif
    return partition_split_narrow(keys, n, first_key, bound, below, above);
}
