/* Buckets of hash storage: a cache line (two for cells above 8 bytes) of some keys and, behind
 * them, a cell for each. A cell has the key's row, or the number of the row.
 *
 *     key 0 … key n-1 | cell 0 … cell n-1 | rest
 *
 * Keys fill a bucket from the left and stay where they are. A full bucket overflows into the next
 * one; the last bucket is never full. All keys of a bucket are compared at once: a branch for each
 * key could not be predicted, and would cost more than the comparisons.
 *
 * With constant layouts the compiler unrolls the loops; so all of this is inline.
 *
 * Threads: the owner of the buckets. */
#ifndef RUBATO_MODELS_STORAGE_HASH_BUCKET_H
#define RUBATO_MODELS_STORAGE_HASH_BUCKET_H

#include <rubato/types.h>
#include <stdbool.h>
#if defined(__x86_64__)
#include <immintrin.h>
#define BUCKET_HAS_WIDE 1 /* comparisons by AVX2 and AVX-512, for processors that have these */
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#define BUCKET_EMPTY_KEY UINT64_C(0)
#define BUCKET_MAX_CELL_BYTES 16u /* wider ones would leave too few to a bucket */
#define BUCKET_BITS 4u            /* for each slot, in what a comparison finds */

typedef struct {
    uint32_t bucket_bytes, n_slots, cell_bytes;
} BucketLayout;

#define BUCKET_INLINE static inline __attribute__((always_inline))

BUCKET_INLINE BucketLayout bucket_layout(size_t cell_bytes)
{
    const uint32_t bucket_bytes = cell_bytes <= 8 ? 64 : 128;

    return (BucketLayout){ bucket_bytes, bucket_bytes / (8u + (uint32_t)cell_bytes),
                           (uint32_t)cell_bytes };
}

BUCKET_INLINE RubatoKey *bucket_keys(unsigned char *bucket)
{
    return (RubatoKey *)(void *)bucket;
}

/* Which slots have the key: for slot i, bit BUCKET_BITS × i is set, and perhaps more bits below the
 * next slot's. */
#ifdef __SSE2__
/* By halves of 32 bits: not every such processor can compare 64 bits at once. */
BUCKET_INLINE __m128i bucket_match_pair(const RubatoKey *keys, __m128i key)
{
    const __m128i halves = _mm_cmpeq_epi32(_mm_load_si128((const void *)keys), key);

    return _mm_and_si128(halves, _mm_shuffle_epi32(halves, _MM_SHUFFLE(2, 3, 0, 1)));
}

BUCKET_INLINE uint32_t bucket_match(BucketLayout layout, unsigned char *bucket, RubatoKey key)
{
    const RubatoKey *keys = bucket_keys(bucket);
    const __m128i both = _mm_set1_epi64x((long long)key);
    uint32_t found = (uint32_t)_mm_movemask_epi8(
        _mm_packs_epi32(bucket_match_pair(keys, both), bucket_match_pair(keys + 2, both)));

    for (uint32_t i = 4; i < layout.n_slots; i++)
        found |= (uint32_t)(keys[i] == key) << (i * BUCKET_BITS);
    return found;
}
#else
BUCKET_INLINE uint32_t bucket_match(BucketLayout layout, unsigned char *bucket, RubatoKey key)
{
    const RubatoKey *keys = bucket_keys(bucket);
    uint32_t found = 0;

    for (uint32_t i = 0; i < layout.n_slots; i++)
        found |= (uint32_t)(keys[i] == key) << (i * BUCKET_BITS);
    return found;
}
#endif

#ifdef BUCKET_HAS_WIDE
#define BUCKET_AVX2 __attribute__((target("avx2,bmi,bmi2")))
#define BUCKET_AVX512 __attribute__((target("avx2,bmi,bmi2,avx512f")))

/* As bucket_match, but with one bit for each slot. */
BUCKET_INLINE BUCKET_AVX2 uint32_t bucket_match_avx2(BucketLayout layout, unsigned char *bucket,
                                                     RubatoKey key)
{
    const RubatoKey *keys = bucket_keys(bucket);
    const __m256i four = _mm256_cmpeq_epi64(_mm256_load_si256((const void *)keys),
                                            _mm256_set1_epi64x((long long)key));
    uint32_t found = (uint32_t)_mm256_movemask_pd(_mm256_castsi256_pd(four));

    for (uint32_t i = 4; i < layout.n_slots; i++)
        found |= (uint32_t)(keys[i] == key) << i;
    return found;
}

/* No bucket has more than eight slots, so all its keys lie in its first 64 bytes. */
BUCKET_INLINE BUCKET_AVX512 uint32_t bucket_match_avx512(BucketLayout layout, unsigned char *bucket,
                                                         RubatoKey key)
{
    const __mmask8 slots = (__mmask8)((1u << layout.n_slots) - 1);

    return _mm512_mask_cmpeq_epi64_mask(slots, _mm512_load_si512((const void *)bucket),
                                        _mm512_set1_epi64((long long)key));
}
#endif

/* The first of some slots that match; there is one. */
BUCKET_INLINE uint32_t bucket_slot(uint32_t found)
{
    return (uint32_t)__builtin_ctz(found) / BUCKET_BITS;
}

BUCKET_INLINE bool bucket_is_full(BucketLayout layout, unsigned char *bucket)
{
    return bucket_keys(bucket)[layout.n_slots - 1] != BUCKET_EMPTY_KEY;
}

BUCKET_INLINE unsigned char *bucket_cell(BucketLayout layout, unsigned char *bucket, uint32_t slot)
{
    return bucket + layout.n_slots * sizeof(RubatoKey) + slot * layout.cell_bytes;
}

/* The cell of a key, NULL if it is absent; searched from its home bucket on. */
BUCKET_INLINE unsigned char *bucket_search(BucketLayout layout, unsigned char *bucket,
                                           RubatoKey key)
{
    for (;; bucket += layout.bucket_bytes) {
        const uint32_t found = bucket_match(layout, bucket, key);

        if (found != 0)
            return bucket_cell(layout, bucket, bucket_slot(found));
        if (!bucket_is_full(layout, bucket))
            return NULL;
    }
}

#endif
