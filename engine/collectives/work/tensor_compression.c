/* Floats that travel as halves: see tensor_compression.h. */
#include "engine/collectives/work/tensor_compression.h"

#include <float.h>
#include <math.h>
#include <rubato/vector_clones.h>

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <immintrin.h>
#define HAS_F16C
#endif

#include "engine/collectives/work/tensor_halves.h"

TensorResidual *tensor_residual_new(uint64_t n_values, const RubatoReduce *reduce)
{
    TensorResidual *const residual = g_new0(TensorResidual, 1);

    residual->n_values = n_values;
    residual->reduce = *reduce;
    residual->part = g_try_new0(float, n_values + 1);
    residual->result = g_try_new0(float, n_values + 1); /* what is not used takes no memory */
    if (residual->part != NULL && residual->result != NULL)
        return residual;
    tensor_residual_free(residual);
    return NULL;
}

void tensor_residual_free(TensorResidual *residual)
{
    if (residual == NULL)
        return;
    g_free(residual->part);
    g_free(residual->result);
    g_free(residual);
}

RubatoDtype tensor_compressed_dtype(RubatoCompression compression)
{
    return compression == RUBATO_COMPRESSION_F16 ? RUBATO_F16 : RUBATO_BF16;
}

/* ---- by loops ---- */

/* An infinity or a NaN that was left behind would spoil the value for ever. */
#define COMPRESS(name, store, load)                                                             \
    RUBATO_VECTOR_CLONES static void compress_##name(                                           \
        float *restrict values, float *restrict residuals, uint16_t *restrict halves, size_t n) \
    {                                                                                           \
        for (size_t i = 0; i < n; i++) {                                                        \
            const float value = values[i] + residuals[i];                                       \
            const uint16_t half = store(value);                                                 \
            const float rest = value - load(half);                                              \
                                                                                                \
            halves[i] = half;                                                                   \
            residuals[i] = fabsf(rest) <= FLT_MAX ? rest : 0;                                   \
        }                                                                                       \
    }

COMPRESS(f16, tensor_store_f16, tensor_load_f16)
COMPRESS(bf16, tensor_store_bf16, tensor_load_bf16)

/* ---- by instructions ---- */

#ifdef HAS_F16C

/* The processor's own conversions are faster than the loop, and give the same bits but for what is
 * no number. Returns how many values it has done: up to the first eight with such a one. */
__attribute__((target("avx2,f16c"))) static size_t compress_f16_by_f16c(const float *values,
                                                                        float *residuals,
                                                                        uint16_t *halves, size_t n)
{
    const __m256 sign = _mm256_set1_ps(-0.0f), most = _mm256_set1_ps(FLT_MAX);
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        const __m256 value =
            _mm256_add_ps(_mm256_loadu_ps(values + i), _mm256_loadu_ps(residuals + i));
        if (_mm256_movemask_ps(_mm256_cmp_ps(value, value, _CMP_UNORD_Q)) != 0)
            break;
        const __m128i half = _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
        const __m256 rest = _mm256_sub_ps(value, _mm256_cvtph_ps(half));
        const __m256 is_finite = _mm256_cmp_ps(_mm256_andnot_ps(sign, rest), most, _CMP_LE_OQ);

        _mm_storeu_si128((__m128i *)(void *)(halves + i), half);
        _mm256_storeu_ps(residuals + i, _mm256_and_ps(rest, is_finite));
    }
    return i;
}

static size_t compress_by_instructions(RubatoCompression compression, const float *values,
                                       float *residuals, uint16_t *halves, size_t n)
{
    return compression == RUBATO_COMPRESSION_F16 && __builtin_cpu_supports("avx2") &&
                   __builtin_cpu_supports("f16c")
               ? compress_f16_by_f16c(values, residuals, halves, n)
               : 0;
}

#else

static size_t compress_by_instructions(RubatoCompression compression, const float *values,
                                       float *residuals, uint16_t *halves, size_t n)
{
    (void)compression;
    (void)values;
    (void)residuals;
    (void)halves;
    (void)n;
    return 0;
}

#endif

void tensor_compress(RubatoCompression compression, float *values, float *residuals,
                     uint16_t *halves, size_t n)
{
    const size_t done = compress_by_instructions(compression, values, residuals, halves, n);

    if (compression == RUBATO_COMPRESSION_F16)
        compress_f16(values + done, residuals + done, halves + done, n - done);
    else
        compress_bf16(values, residuals, halves, n);
}
