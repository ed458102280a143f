/* What the loops of the update rules have in common.
 *
 * A rule defines its step on one row, for each real type; the macros make the loops over rows:
 *
 *     #define DEFINE_STEP(suffix, type) \
 *         RUBATO_UPDATE_STEP void step_##suffix(const RubatoUpdate *update, type *restrict row, \
 *                                        const type *restrict gradient, size_t width) { … }
 *     DEFINE_STEP(f32, float)
 *     DEFINE_STEP(f64, double)
 *     RUBATO_DEFINE_APPLY_ROWS
 *
 * Rows of one value have a loop of their own, in which the step's loop is unrolled.
 *
 * Threads: any; the functions depend on their arguments only. */
#ifndef RUBATO_UPDATE_LOOPS_H
#define RUBATO_UPDATE_LOOPS_H

#include <math.h>
#include <rubato/update_ops.h>

#include <rubato/vector_clones.h>

#define RUBATO_UPDATE_STEP static inline __attribute__((always_inline))

/* Before a loop over the values of a row and of its state: no value depends on another one's. The
 * state lies right behind the values, so without this the compiler looks whether a vector of values
 * reaches into the state, and rows of fewer than 16 values go one by one. */
#if defined(__GNUC__) && !defined(__clang__)
#define RUBATO_UPDATE_INDEPENDENT _Pragma("GCC ivdep")
#else
#define RUBATO_UPDATE_INDEPENDENT
#endif

#define RUBATO_DEFINE_ROWS_OF_TYPE(suffix, type)                                                  \
    RUBATO_VECTOR_CLONES static void rows_##suffix(const RubatoUpdate *update, void *const *rows, \
                                                   const type *gradients, const uint32_t *at,     \
                                                   size_t n)                                      \
    {                                                                                             \
        const size_t width = update->width;                                                       \
                                                                                                  \
        if (width == 1)                                                                           \
            for (size_t i = 0; i < n; i++)                                                        \
                step_##suffix(update, rows[i], gradients + (at == NULL ? i : at[i]), 1);          \
        else                                                                                      \
            for (size_t i = 0; i < n; i++)                                                        \
                step_##suffix(update, rows[i], gradients + (at == NULL ? i : at[i]) * width,      \
                              width);                                                             \
    }

/* The apply_rows of a rule for f32 and f64. */
#define RUBATO_DEFINE_APPLY_ROWS                                                                 \
    RUBATO_DEFINE_ROWS_OF_TYPE(f32, float)                                                       \
    RUBATO_DEFINE_ROWS_OF_TYPE(f64, double)                                                      \
                                                                                                 \
    static void apply_rows(const RubatoUpdate *update, void *const *rows, const void *gradients, \
                           const uint32_t *at, size_t n)                                         \
    {                                                                                            \
        if (update->dtype == RUBATO_F32)                                                         \
            rows_f32(update, rows, gradients, at, n);                                            \
        else                                                                                     \
            rows_f64(update, rows, gradients, at, n);                                            \
    }

/* The apply of a rule that keeps no state: a run of rows is one long row. */
#define RUBATO_DEFINE_APPLY                                                          \
    RUBATO_VECTOR_CLONES static void apply(const RubatoUpdate *update, void *values, \
                                           const void *gradients, size_t n_values)   \
    {                                                                                \
        if (update->dtype == RUBATO_F32)                                             \
            step_f32(update, values, gradients, n_values);                           \
        else                                                                         \
            step_f64(update, values, gradients, n_values);                           \
    }

/* Square roots by the name of the type. */
static inline float rubato_root_f32(float x)
{
    return sqrtf(x);
}

static inline double rubato_root_f64(double x)
{
    return sqrt(x);
}

/* The sum of squares, in eight lanes and in a fixed order, so that it vectorises and is the same
 * everywhere. The wide form cannot overflow for floats. */
#define RUBATO_DEFINE_SUM_OF_SQUARES(name, type, sum_type)           \
    static inline sum_type name(const type *x, size_t n)             \
    {                                                                \
        sum_type lanes[8] = { 0 }, sum = 0;                          \
        size_t i = 0;                                                \
                                                                     \
        for (; n - i >= 8; i += 8)                                   \
            for (size_t k = 0; k < 8; k++)                           \
                lanes[k] += (sum_type)x[i + k] * (sum_type)x[i + k]; \
        for (size_t k = 0; k < 8; k++)                               \
            sum += lanes[k];                                         \
        for (; i < n; i++)                                           \
            sum += (sum_type)x[i] * (sum_type)x[i];                  \
        return sum;                                                  \
    }

RUBATO_DEFINE_SUM_OF_SQUARES(rubato_sum_of_squares_f32, float, float)
RUBATO_DEFINE_SUM_OF_SQUARES(rubato_sum_of_squares_f64, double, double)
RUBATO_DEFINE_SUM_OF_SQUARES(rubato_wide_sum_of_squares_f32, float, double)
RUBATO_DEFINE_SUM_OF_SQUARES(rubato_wide_sum_of_squares_f64, double, double)

#endif
