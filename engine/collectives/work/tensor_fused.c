/* Sums that are written to several arrays: see tensor_fused.h. The order of operations is that of
 * tensor_math.c: the sum, the quotient, the product. */
#include "engine/collectives/work/tensor_fused.h"

#include <glib.h>

#include "engine/collectives/work/tensor_stream.h"

enum { LINE_BYTES = 64, MOST_RUNS = 4 };

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define EACH_RUN _Pragma("GCC unroll 4") for (size_t r = 0; r < n_runs; r++)

/* Where a run has the value `at` of the first one. */
#define AT(type, array, at) ((type *)(array) + (at) + r * (TENSOR_STREAM_RUN / sizeof(type)))

/* Where sums go, and what they become before. */
typedef struct {
    void *const *arrays;
    double divisor, scale;
    bool finishes;
} Sums;

/* Several runs of lines are added at a time, because inputs are read from memory (tensor_stream.h).
 * All of them are read before one is written: a load that follows a store to the same place of
 * another page waits for it. Callers give constants for the usual numbers of arrays: a loop that
 * counts them reads less ahead. */
#define FUSED(name, type, bits, suffix, vector, processor)                                         \
    __attribute__((target(processor), always_inline)) static inline void name##_runs(              \
        const void *const *inputs, const uint32_t n_inputs, size_t from, const Sums *sums,         \
        const uint32_t n_near, const uint32_t n_far, size_t to, const size_t n_runs)               \
    {                                                                                              \
        vector each[MOST_RUNS];                                                                    \
                                                                                                   \
        EACH_RUN each[r] = _mm##bits##_loadu_##suffix(AT(const type, inputs[0], from));            \
        for (uint32_t k = 1; k < n_inputs; k++)                                                    \
            EACH_RUN each[r] = _mm##bits##_add_##suffix(                                           \
                each[r], _mm##bits##_loadu_##suffix(AT(const type, inputs[k], from)));             \
        if (sums->finishes)                                                                        \
            EACH_RUN each[r] = _mm##bits##_mul_##suffix(                                           \
                _mm##bits##_div_##suffix(each[r], _mm##bits##_set1_##suffix((type)sums->divisor)), \
                _mm##bits##_set1_##suffix((type)sums->scale));                                     \
        for (uint32_t k = 0; k < n_near; k++)                                                      \
            EACH_RUN _mm##bits##_storeu_##suffix(AT(type, sums->arrays[k], to), each[r]);          \
        for (uint32_t k = n_near; k < n_near + n_far; k++)                                         \
            EACH_RUN _mm##bits##_stream_##suffix(AT(type, sums->arrays[k], to), each[r]);          \
    }                                                                                              \
                                                                                                   \
    __attribute__((target(processor), always_inline)) static inline void name##_by(                \
        const void *const *inputs, const uint32_t n_inputs, size_t begin, const Sums *sums,        \
        const uint32_t n_near, const uint32_t n_far, size_t first, size_t n, const size_t n_runs)  \
    {                                                                                              \
        const size_t step = sizeof(vector) / sizeof(type);                                         \
        const size_t run = TENSOR_STREAM_RUN / sizeof(type);                                       \
        size_t at = 0;                                                                             \
                                                                                                   \
        for (; n - at >= run * n_runs; at += run * n_runs)                                         \
            for (size_t i = at; i < at + run; i += step)                                           \
                name##_runs(inputs, n_inputs, begin + i, sums, n_near, n_far, first + i, n_runs);  \
        for (; at < n; at += step)                                                                 \
            name##_runs(inputs, n_inputs, begin + at, sums, n_near, n_far, first + at, 1);         \
    }                                                                                              \
                                                                                                   \
    __attribute__((target(processor))) static void name(                                           \
        const void *const *inputs, uint32_t n_inputs, size_t begin,                                \
        const TensorFusedOutputs *outputs, size_t n)                                               \
    {                                                                                              \
        const Sums sums = { outputs->arrays, outputs->divisor, outputs->scale,                     \
                            outputs->divisor != 1 || outputs->scale != 1 };                        \
        const uint32_t n_near = outputs->n - outputs->n_streamed, n_far = outputs->n_streamed;     \
        const size_t first = outputs->offset / sizeof(type);                                       \
                                                                                                   \
        if (n_inputs == 2 && n_near == 0 && n_far == 2) /* two workers of a process */             \
            name##_by(inputs, 2, begin, &sums, 0, 2, first, n, 2);                                 \
        else if (n_inputs == 2 && n_near == 1 && n_far == 1) /* two nodes */                       \
            name##_by(inputs, 2, begin, &sums, 1, 1, first, n, 4);                                 \
        else if (n_far == 1) /* more nodes: one of the inputs is read from memory */               \
            name##_by(inputs, n_inputs, begin, &sums, n_near, 1, first, n, 4);                     \
        else                                                                                       \
            name##_by(inputs, n_inputs, begin, &sums, n_near, n_far, first, n, 1);                 \
    }

FUSED(add_f32_avx512, float, 512, ps, __m512, "avx512f")
FUSED(add_f64_avx512, double, 512, pd, __m512d, "avx512f")
FUSED(add_f32_avx, float, 256, ps, __m256, "avx")
FUSED(add_f64_avx, double, 256, pd, __m256d, "avx")

static bool has_loops(void)
{
    return __builtin_cpu_supports("avx");
}

void tensor_fused_add(RubatoDtype dtype, const void *const *inputs, uint32_t n_inputs, size_t begin,
                      const TensorFusedOutputs *outputs, size_t n)
{
    const bool is_wide = __builtin_cpu_supports("avx512f");

    if (dtype == RUBATO_F64)
        (is_wide ? add_f64_avx512 : add_f64_avx)(inputs, n_inputs, begin, outputs, n);
    else
        (is_wide ? add_f32_avx512 : add_f32_avx)(inputs, n_inputs, begin, outputs, n);
}
#else
static bool has_loops(void)
{
    return false;
}

void tensor_fused_add(RubatoDtype dtype, const void *const *inputs, uint32_t n_inputs, size_t begin,
                      const TensorFusedOutputs *outputs, size_t n)
{
    (void)dtype;
    (void)inputs;
    (void)n_inputs;
    (void)begin;
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
