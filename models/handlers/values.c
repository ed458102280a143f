/* What the built-in handlers share. Threads: any. */
#include "models/handlers/values.h"

#include <rubato/error.h>

/* Makes blocks of terms of n values and adds them. */
#define ADD_BLOCKS(sum, n, term)                                           \
    do {                                                                   \
        double terms_[EXACT_SUM_BLOCK];                                    \
                                                                           \
        for (size_t begin_ = 0; begin_ < (n); begin_ += EXACT_SUM_BLOCK) { \
            const size_t some_ = MIN((n)-begin_, (size_t)EXACT_SUM_BLOCK); \
                                                                           \
            for (size_t j_ = 0; j_ < some_; j_++) {                        \
                const size_t i = begin_ + j_;                              \
                                                                           \
                terms_[j_] = (term);                                       \
            }                                                              \
            exact_sum_add_block((sum), terms_, some_);                     \
        }                                                                  \
    } while (0)

/* Values of i64 are two terms each, exactly. */
#define LOW(value) ((double)((value) & (int64_t)UINT32_MAX))
#define HIGH(value) ((double)((value) - ((value) & (int64_t)UINT32_MAX)))

/* ---- sums ---- */

static void sum_f32(ExactSum *sum, const float *values, size_t n)
{
    ADD_BLOCKS(sum, n, (double)values[i]);
}

static void sum_f64(ExactSum *sum, const double *values, size_t n)
{
    ADD_BLOCKS(sum, n, values[i]);
}

static void sum_i32(ExactSum *sum, const int32_t *values, size_t n)
{
    ADD_BLOCKS(sum, n, (double)values[i]);
}

static void sum_i64(ExactSum *sum, const int64_t *values, size_t n)
{
    ADD_BLOCKS(sum, n, LOW(values[i]));
    ADD_BLOCKS(sum, n, HIGH(values[i]));
}

void exact_sum_add_values(ExactSum *sum, RubatoDtype dtype, const void *values, size_t n)
{
    switch (dtype) {
    case RUBATO_F32:
        sum_f32(sum, values, n);
        break;
    case RUBATO_F64:
        sum_f64(sum, values, n);
        break;
    case RUBATO_I32:
        sum_i32(sum, values, n);
        break;
    case RUBATO_I64:
        sum_i64(sum, values, n);
        break;
    case RUBATO_U8:  /* in ragged rows alone */
    case RUBATO_F16: /* the rest: of tensors alone */
    case RUBATO_BF16:
    case RUBATO_I8:
    case RUBATO_I16:
    case RUBATO_BOOL:
        break;
    }
}

/* ---- sums of products ---- */

/* The product of two floats is a double, exactly; so is that of halves of integers. */
static void dot_f32(ExactSum *sum, const float *a, const float *b, size_t n)
{
    ADD_BLOCKS(sum, n, (double)a[i] * (double)b[i]);
}

/* A product of doubles is two doubles, unless it is out of their range. */
static double error_of(double a, double b)
{
    const double product = a * b;

    return isfinite(product) ? fma(a, b, -product) : 0;
}

static void dot_f64(ExactSum *sum, const double *a, const double *b, size_t n)
{
    ADD_BLOCKS(sum, n, a[i] * b[i]);
    ADD_BLOCKS(sum, n, error_of(a[i], b[i]));
}

static double product_i32(int32_t a, int32_t b, bool is_low)
{
    const int64_t product = (int64_t)a * b;

    return is_low ? LOW(product) : HIGH(product);
}

static void dot_i32(ExactSum *sum, const int32_t *a, const int32_t *b, size_t n)
{
    ADD_BLOCKS(sum, n, product_i32(a[i], b[i], /* is_low= */ true));
    ADD_BLOCKS(sum, n, product_i32(a[i], b[i], /* is_low= */ false));
}

/* Products of halves have up to 64 bits, so they have errors too. */
static void dot_halves(ExactSum *sum, double a, double b)
{
    exact_sum_add(sum, a * b);
    exact_sum_add(sum, error_of(a, b));
}

static void dot_i64(ExactSum *sum, const int64_t *a, const int64_t *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dot_halves(sum, LOW(a[i]), LOW(b[i]));
        dot_halves(sum, LOW(a[i]), HIGH(b[i]));
        dot_halves(sum, HIGH(a[i]), LOW(b[i]));
        dot_halves(sum, HIGH(a[i]), HIGH(b[i]));
    }
}

void exact_sum_add_dot(ExactSum *sum, RubatoDtype dtype, const void *a, const void *b, size_t n)
{
    switch (dtype) {
    case RUBATO_F32:
        dot_f32(sum, a, b, n);
        break;
    case RUBATO_F64:
        dot_f64(sum, a, b, n);
        break;
    case RUBATO_I32:
        dot_i32(sum, a, b, n);
        break;
    case RUBATO_I64:
        dot_i64(sum, a, b, n);
        break;
    case RUBATO_U8:  /* in ragged rows alone */
    case RUBATO_F16: /* the rest: of tensors alone */
    case RUBATO_BF16:
    case RUBATO_I8:
    case RUBATO_I16:
    case RUBATO_BOOL:
        break;
    }
}

bool exact_sum_reduce(RubatoByteReader *results, size_t n, double *total, GError **error)
{
    ExactSum all, one;

    exact_sum_init(&all);
    for (size_t i = 0; i < n; i++) {
        if (!exact_sum_read(&one, &results[i])) {
            g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                                "a part's sum cannot be read");
            return false;
        }
        if (!rubato_byte_reader_finish(&results[i], "a part's sum", error))
            return false;
        exact_sum_merge(&all, &one);
    }
    *total = exact_sum_round(&all);
    return true;
}

bool handler_has_no_arguments(const RubatoHandlerSetting *setting, RubatoByteReader *arguments,
                              GError **error)
{
    (void)setting;
    return rubato_byte_reader_finish(arguments, "its arguments, of which there are none,", error);
}
