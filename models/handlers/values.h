/* What the built-in handlers share: values of any dtype, and exact sums of them.
 *
 * Threads: any. */
#ifndef RUBATO_MODELS_HANDLERS_VALUES_H
#define RUBATO_MODELS_HANDLERS_VALUES_H

#include <math.h>
#include <rubato/handler_ops.h>

#include "models/handlers/exact_sum.h"
#include "models/spec.h"

/* Value i of a row as a double; an int64_t may be rounded. */
static inline double value_as_double(RubatoDtype dtype, const void *row, size_t i)
{
    switch (dtype) {
    case RUBATO_F32:
        return (double)((const float *)row)[i];
    case RUBATO_F64:
        return ((const double *)row)[i];
    case RUBATO_I32:
        return ((const int32_t *)row)[i];
    case RUBATO_I64:
        return (double)((const int64_t *)row)[i];
    case RUBATO_U8:  /* in ragged rows alone */
    case RUBATO_F16: /* the rest: of tensors alone */
    case RUBATO_BF16:
    case RUBATO_I8:
    case RUBATO_I16:
    case RUBATO_BOOL:
        break;
    }
    return 0;
}

/* Adds n values, or the products of n values of two arrays, of one dtype. No product is rounded,
 * unless it or its error is out of the range of doubles. */
void exact_sum_add_values(ExactSum *sum, RubatoDtype dtype, const void *values, size_t n);
void exact_sum_add_dot(ExactSum *sum, RubatoDtype dtype, const void *a, const void *b, size_t n);

/* A `reduce` for parts whose results are exact sums: makes one of them, which it rounds. */
bool exact_sum_reduce(RubatoByteReader *results, size_t n, double *total, GError **error);

/* Refuses arguments where there may be none. */
bool handler_has_no_arguments(const RubatoHandlerSetting *setting, RubatoByteReader *arguments,
                              GError **error);

#endif
