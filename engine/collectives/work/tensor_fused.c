/* Sums that are written to several arrays: see tensor_fused.h. The order of operations is that of
 * tensor_math.c: the sum, the quotient, the product. */
#include "engine/collectives/work/tensor_fused.h"

#include <glib.h>

enum { LINE_BYTES = 64 };

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define HAS_LOOPS 1

#define FUSED(name, type, bits, suffix, vector, processor)                                     \
    __attribute__((target(processor))) static void name(                                       \
        const type *one, const type *other, const TensorFusedOutputs *outputs, size_t n)       \
    {                                                                                          \
        const size_t step = sizeof(vector) / sizeof(type);                                     \
        const size_t first = outputs->offset / sizeof(type);                                   \
        const uint32_t n_near = outputs->n - outputs->n_streamed;                              \
        const bool finishes = outputs->divisor != 1 || outputs->scale != 1;                    \
        const vector divisor = _mm##bits##_set1_##suffix((type)outputs->divisor);              \
        const vector scale = _mm##bits##_set1_##suffix((type)outputs->scale);                  \
                                                                                               \
        for (size_t i = 0; i < n; i += step) {                                                 \
            vector sum = _mm##bits##_add_##suffix(_mm##bits##_loadu_##suffix(one + i),         \
                                                  _mm##bits##_loadu_##suffix(other + i));      \
            if (finishes)                                                                      \
                sum = _mm##bits##_mul_##suffix(_mm##bits##_div_##suffix(sum, divisor), scale); \
            for (uint32_t k = 0; k < n_near; k++)                                              \
                _mm##bits##_storeu_##suffix((type *)outputs->arrays[k] + first + i, sum);      \
            for (uint32_t k = n_near; k < outputs->n; k++)                                     \
                _mm##bits##_stream_##suffix((type *)outputs->arrays[k] + first + i, sum);      \
        }                                                                                      \
    }

FUSED(add_f32_avx512, float, 512, ps, __m512, "avx512f")
FUSED(add_f64_avx512, double, 512, pd, __m512d, "avx512f")
FUSED(add_f32_avx, float, 256, ps, __m256, "avx")
FUSED(add_f64_avx, double, 256, pd, __m256d, "avx")

static bool has_loops(void)
{
    return __builtin_cpu_supports("avx");
}

void tensor_fused_add(RubatoDtype dtype, const void *one, const void *other,
                      const TensorFusedOutputs *outputs, size_t n)
{
    const bool is_wide = __builtin_cpu_supports("avx512f");

    if (dtype == RUBATO_F64)
        (is_wide ? add_f64_avx512 : add_f64_avx)(one, other, outputs, n);
    else
        (is_wide ? add_f32_avx512 : add_f32_avx)(one, other, outputs, n);
}
#else
static bool has_loops(void)
{
    return false;
}

void tensor_fused_add(RubatoDtype dtype, const void *one, const void *other,
                      const TensorFusedOutputs *outputs, size_t n)
{
    (void)dtype;
    (void)one;
    (void)other;
    (void)outputs;
    g_assert(n == 0);
}
#endif

size_t tensor_fused_values(RubatoDtype dtype, const TensorFusedOutputs *outputs, size_t n)
{
    const size_t line_values = LINE_BYTES / rubato_dtype_size(dtype);

    if ((dtype != RUBATO_F32 && dtype != RUBATO_F64) || outputs->n_streamed == 0 || !has_loops())
        return 0;
    for (uint32_t i = outputs->n - outputs->n_streamed; i < outputs->n; i++)
        if (((uintptr_t)outputs->arrays[i] + outputs->offset) % LINE_BYTES != 0)
            return 0;
    return n / line_values * line_values;
}
