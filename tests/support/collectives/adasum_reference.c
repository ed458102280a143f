/* Adasum in double: see adasum_reference.h. */
#include "tests/support/collectives/adasum_reference.h"

#include <math.h>
#include <stdbool.h>

#include "engine/collectives/work/tensor_math.h"

enum { MOST_VECTORS = 64 };

static double dot(const double *one, const double *other, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += one[i] * other[i];
    return sum;
}

/* parts: the lengths of what a vector was combined of. What is left of them by rounding alone
 * counts as zero. */
static void combine(double *one, double *part, const double *other, double other_part, size_t n)
{
    const double square = dot(one, one, n), other_square = dot(other, other, n);
    const double both = dot(one, other, n);
    const bool are_two =
        sqrt(square) > *part * 0x1p-20 && sqrt(other_square) > other_part * 0x1p-20;
    const double weight = are_two ? 1 - both / (2 * square) : 1;
    const double other_weight = are_two ? 1 - both / (2 * other_square) : 1;

    for (size_t i = 0; i < n; i++)
        one[i] = weight * one[i] + other_weight * other[i];
    *part = fabs(weight) * *part + fabs(other_weight) * other_part;
}

void adasum_reference(double *vectors, uint32_t n, size_t n_values)
{
    double parts[MOST_VECTORS];

    for (uint32_t i = 0; i < n; i++)
        parts[i] = sqrt(dot(vectors + i * n_values, vectors + i * n_values, n_values));
    while (n > 1) {
        uint32_t n_left = 0;

        for (uint32_t i = 0; i < n; i += 2) {
            double *const one = vectors + i * n_values, *const to = vectors + n_left * n_values;

            if (i + 1 < n)
                combine(one, &parts[i], one + n_values, parts[i + 1], n_values);
            for (size_t k = 0; k < n_values; k++)
                to[k] = one[k];
            parts[n_left++] = parts[i];
        }
        n = n_left;
    }
}

/* ---- values ---- */

void adasum_put(RubatoDtype dtype, void *values, size_t i, double value)
{
    if (dtype == RUBATO_F64)
        ((double *)values)[i] = value;
    else if (dtype == RUBATO_F32)
        ((float *)values)[i] = (float)value;
    else
        ((uint16_t *)values)[i] = dtype == RUBATO_F16 ? tensor_f16_from_float((float)value)
                                                      : tensor_bf16_from_float((float)value);
}

double adasum_get(RubatoDtype dtype, const void *values, size_t i)
{
    if (dtype == RUBATO_F64)
        return ((const double *)values)[i];
    if (dtype == RUBATO_F32)
        return (double)((const float *)values)[i];
    const uint16_t half = ((const uint16_t *)values)[i];
    return (double)(dtype == RUBATO_F16 ? tensor_float_from_f16(half)
                                        : tensor_float_from_bf16(half));
}
