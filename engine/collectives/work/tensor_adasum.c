/* Adasum: see tensor_adasum.h.
 *
 * Values become doubles block by block; the loops over a block have no branch, so that the compiler
 * makes vectors of them, as in tensor_math.c. A dot has LANES sums, which are added up in a fixed
 * order: so it has the same bits, however wide the vectors of the processor are. */
#include "engine/collectives/work/tensor_adasum.h"

#include <glib.h>
#include <math.h>
#include <string.h>

#include <rubato/vector_clones.h>

#include "engine/collectives/work/tensor_halves.h"

enum { BLOCK_VALUES = 512, LANES = 8 };

/* A vector this much shorter than those that it is combined of is nothing but rounding errors. */
#define LEAST_PART 0x1p-20

typedef union {
    float f32[BLOCK_VALUES];
    double f64[BLOCK_VALUES];
    uint16_t halves[BLOCK_VALUES];
} Block;

/* ---- loops over one block ---- */

#define KEEP(x) (x)
#define STORE_F16(x) tensor_store_f16((float)(x))
#define STORE_BF16(x) tensor_store_bf16((float)(x))

#define WIDEN(name, type, load)                                                                   \
    RUBATO_VECTOR_CLONES static void widen_##name(double *restrict to, const type *restrict from, \
                                                  size_t n)                                       \
    {                                                                                             \
        for (size_t i = 0; i < n; i++)                                                            \
            to[i] = (double)load(from[i]);                                                        \
    }

#define NARROW(name, type, store)                                                                  \
    RUBATO_VECTOR_CLONES static void narrow_##name(type *restrict to, const double *restrict from, \
                                                   size_t n)                                       \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            to[i] = (type)store(from[i]);                                                          \
    }

WIDEN(f32, float, KEEP)
WIDEN(f64, double, KEEP)
WIDEN(f16, uint16_t, tensor_load_f16)
WIDEN(bf16, uint16_t, tensor_load_bf16)
NARROW(f32, float, KEEP)
NARROW(f64, double, KEEP)
NARROW(f16, uint16_t, STORE_F16)
NARROW(bf16, uint16_t, STORE_BF16)

/* Makes doubles of the values, and of what is behind them zeros. */
static void widen(RubatoDtype dtype, const void *vector, size_t begin, size_t n, double *to)
{
    if (dtype == RUBATO_F64)
        widen_f64(to, (const double *)vector + begin, n);
    else if (dtype == RUBATO_F32)
        widen_f32(to, (const float *)vector + begin, n);
    else if (dtype == RUBATO_F16)
        widen_f16(to, (const uint16_t *)vector + begin, n);
    else
        widen_bf16(to, (const uint16_t *)vector + begin, n);
    for (size_t i = n; i < BLOCK_VALUES; i++)
        to[i] = 0;
}

static void narrow(RubatoDtype dtype, const double *sums, Block *to, size_t n)
{
    if (dtype == RUBATO_F64)
        narrow_f64(to->f64, sums, n);
    else if (dtype == RUBATO_F32)
        narrow_f32(to->f32, sums, n);
    else if (dtype == RUBATO_F16)
        narrow_f16(to->halves, sums, n);
    else
        narrow_bf16(to->halves, sums, n);
}

RUBATO_VECTOR_CLONES static double dot(const double *restrict one, const double *restrict other)
{
    double sums[LANES] = { 0 };

    for (size_t i = 0; i < BLOCK_VALUES; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++)
            sums[lane] += one[i + lane] * other[i + lane];
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) +
           ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

RUBATO_VECTOR_CLONES static void add_scaled(double *restrict sums, const double *restrict values,
                                            double weight)
{
    for (size_t i = 0; i < BLOCK_VALUES; i++)
        sums[i] += weight * values[i];
}

/* ---- dots ---- */

uint64_t tensor_adasum_n_dots(uint32_t n)
{
    return (uint64_t)n * (n + 1) / 2;
}

void tensor_adasum_add_dots(RubatoDtype dtype, const void *const *vectors, uint32_t n, size_t begin,
                            size_t end, double *dots)
{
    double one[BLOCK_VALUES], other[BLOCK_VALUES];

    for (size_t n_values; begin < end; begin += n_values) {
        double *next = dots;

        n_values = MIN(end - begin, BLOCK_VALUES);
        for (uint32_t i = 0; i < n; next += n - i++) {
            if (vectors[i] == NULL)
                continue;
            widen(dtype, vectors[i], begin, n_values, one);
            next[0] += dot(one, one);
            for (uint32_t j = i + 1; j < n; j++) {
                if (vectors[j] == NULL)
                    continue;
                widen(dtype, vectors[j], begin, n_values, other);
                next[j - i] += dot(one, other);
            }
        }
    }
}

/* ---- weights ---- */

static double dot_of(const double *dots, uint32_t n, uint32_t i, uint32_t j)
{
    const uint64_t low = MIN(i, j), high = MAX(i, j);

    return dots[low * n - low * (low + 1) / 2 + high];
}

/* The vectors first … end - 1 with their weights are one vector by now. */
typedef struct {
    uint32_t first, end;
} Range;

static double dot_of_ranges(const double *dots, uint32_t n, const double *weights, Range one,
                            Range other)
{
    double sum = 0;

    for (uint32_t i = one.first; i < one.end; i++)
        for (uint32_t j = other.first; j < other.end; j++)
            sum += weights[i] * weights[j] * dot_of(dots, n, i, j);
    return sum;
}

/* Up to this square of its length the range counts as zero. */
static double least_square(const double *dots, uint32_t n, const double *weights, Range range)
{
    double length = 0;

    for (uint32_t i = range.first; i < range.end; i++)
        length += fabs(weights[i]) * sqrt(dot_of(dots, n, i, i));
    return range.end - range.first == 1 ? 0 : length * LEAST_PART * (length * LEAST_PART);
}

static void scale_range(double *weights, Range range, double scale)
{
    for (uint32_t i = range.first; i < range.end; i++)
        weights[i] *= scale;
}

static void combine_ranges(const double *dots, uint32_t n, double *weights, Range one, Range other)
{
    const double square = dot_of_ranges(dots, n, weights, one, one);
    const double other_square = dot_of_ranges(dots, n, weights, other, other);
    const double both = dot_of_ranges(dots, n, weights, one, other);

    if (!isfinite(square) || !isfinite(other_square) || !isfinite(both)) {
        scale_range(weights, one, (double)NAN);
        scale_range(weights, other, (double)NAN);
        return;
    }
    if (square <= least_square(dots, n, weights, one) ||
        other_square <= least_square(dots, n, weights, other))
        return;
    scale_range(weights, one, 1 - both / square / 2);
    scale_range(weights, other, 1 - both / other_square / 2);
}

void tensor_adasum_weigh(const double *dots, uint32_t n, double scale, double *weights)
{
    for (uint32_t i = 0; i < n; i++)
        weights[i] = 1;
    for (uint64_t width = 1; width < n; width *= 2)
        for (uint64_t first = 0; first + width < n; first += 2 * width) {
            const uint32_t middle = (uint32_t)(first + width);
            const uint32_t end = (uint32_t)MIN(first + 2 * width, n);

            combine_ranges(dots, n, weights, (Range){ (uint32_t)first, middle },
                           (Range){ middle, end });
        }
    scale_range(weights, (Range){ 0, n }, scale);
}

/* ---- the sum ---- */

void tensor_adasum_combine(RubatoDtype dtype, const void *const *vectors, uint32_t n,
                           const double *weights, void *const *outputs, uint32_t n_outputs,
                           size_t begin, size_t end)
{
    const size_t size = rubato_dtype_size(dtype);
    double sums[BLOCK_VALUES], values[BLOCK_VALUES];
    Block block;

    for (size_t n_values; begin < end; begin += n_values) {
        n_values = MIN(end - begin, BLOCK_VALUES);
        memset(sums, 0, sizeof sums);
        for (uint32_t i = 0; i < n; i++) {
            if (vectors[i] == NULL)
                continue;
            widen(dtype, vectors[i], begin, n_values, values);
            add_scaled(sums, values, weights[i]);
        }
        narrow(dtype, sums, &block, n_values);
        for (uint32_t i = 0; i < n_outputs; i++)
            memcpy((char *)outputs[i] + begin * size, &block, n_values * size);
    }
}
