/* Values of any dtype.
 *
 * Thread: any. */
#include "tests/kit/values.h"

#include <math.h>
#include <rubato/mix.h>
#include <string.h>

static bool is_real(RubatoDtype dtype)
{
    return dtype == RUBATO_F32 || dtype == RUBATO_F64;
}

static int64_t load_integer(RubatoDtype dtype, const void *values, size_t i)
{
    return dtype == RUBATO_I32 ? ((const int32_t *)values)[i] : ((const int64_t *)values)[i];
}

void values_fill(RubatoDtype dtype, void *values, size_t n, uint32_t mark)
{
    for (size_t i = 0; i < n; i++) {
        const int number = (int)(rubato_mix64(((uint64_t)mark << 32) + i + 1) % 129) - 64;

        if (is_real(dtype))
            value_put(dtype, values, i, number / 64.0);
        else if (dtype == RUBATO_I32)
            ((int32_t *)values)[i] = number;
        else
            ((int64_t *)values)[i] = number;
    }
}

double value_number(RubatoDtype dtype, const void *values, size_t i)
{
    if (dtype == RUBATO_F32)
        return (double)((const float *)values)[i];
    if (dtype == RUBATO_F64)
        return ((const double *)values)[i];
    return (double)load_integer(dtype, values, i);
}

void value_put(RubatoDtype dtype, void *values, size_t i, double number)
{
    if (dtype == RUBATO_F32)
        ((float *)values)[i] = (float)number;
    else
        ((double *)values)[i] = number;
}

size_t values_differ(RubatoDtype dtype, const void *a, const void *b, size_t n)
{
    const size_t size = rubato_dtype_size(dtype);
    const unsigned char *first = a, *second = b;

    if (memcmp(a, b, n * size) == 0)
        return n;
    for (size_t i = 0; i < n; i++)
        if (memcmp(first + i * size, second + i * size, size) != 0 &&
            !(is_real(dtype) && isnan(value_number(dtype, a, i)) &&
              isnan(value_number(dtype, b, i))))
            return i;
    return n;
}

char *value_text(RubatoDtype dtype, const void *values, size_t i)
{
    if (is_real(dtype))
        return g_strdup_printf(dtype == RUBATO_F32 ? "%.9g" : "%.17g",
                               value_number(dtype, values, i));
    return g_strdup_printf("%" G_GINT64_FORMAT, load_integer(dtype, values, i));
}
