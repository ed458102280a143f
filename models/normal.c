/* Normal deviates: Box and Muller, "A note on the generation of random normal deviates", 1958, the
 * cosine half.
 *
 * A table draws the values of each new row, and of each absent row that is read. So the logarithm
 * and the cosine are computed here, for several columns at once, by loops without a branch that
 * become vectors. Both are power series, exact to a few units of the last place. They have only
 * operations whose results IEEE 754 defines, in the order of the source: so all processors give the
 * same bits, which libraries of mathematical functions do not promise.
 *
 * Thread: any. */
#include "models/normal.h"

#include <math.h>
#include <rubato/vector_clones.h>
#include <string.h>

#include "models/column_bits.h"

#define INLINE static inline __attribute__((always_inline))

/* The last bits of 2^52 + x, rounded to a whole number, are x. */
#define ROUNDER 0x1.8p52

INLINE uint64_t bits_of(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

INLINE double double_of(uint64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A double in [0, 1) from 64 mixed bits: their upper 53 as a fraction. The two halves of these are
 * made doubles by their exponents, because not every vector unit converts 64-bit integers. */
INLINE double unit(uint64_t bits)
{
    const uint64_t upper = bits >> 43, lower = bits >> 11 & UINT32_MAX;

    return ((double_of(upper | bits_of(0x1p84)) - 0x1p84) +
            (double_of(lower | bits_of(0x1p52)) - 0x1p52)) *
           0x1p-53;
}

/* The logarithm of x in (0, 1], normal.
 *
 * x = m × 2^k, with m between √½ and √2; log m = 2 artanh s = 2 (s + s³/3 + s⁵/5 + …) for
 * s = (m - 1) / (m + 1), which is at most 0.172. */
INLINE double log_of(double x)
{
    const uint64_t least = bits_of(0x1.6a09e667f3bcdp-1); /* √½ */
    const uint64_t bits = bits_of(x) + (bits_of(1.0) - least);
    const double k = double_of(bits >> 52 | bits_of(0x1p52)) - (0x1p52 + 1023);
    const double m = double_of((bits & UINT64_C(0xfffffffffffff)) + least);
    const double s = (m - 1) / (m + 1), z = s * s;
    double series = 1.0 / 21;

    series = series * z + 1.0 / 19;
    series = series * z + 1.0 / 17;
    series = series * z + 1.0 / 15;
    series = series * z + 1.0 / 13;
    series = series * z + 1.0 / 11;
    series = series * z + 1.0 / 9;
    series = series * z + 1.0 / 7;
    series = series * z + 1.0 / 5;
    series = series * z + 1.0 / 3;
    return k * 0x1.62e42fefa39efp-1 + 2 * (s + s * z * series); /* k × log 2 */
}

/* The cosine of 2π t for t in [0, 1).
 *
 * t = q/4 + r, with r between -1/8 and 1/8; then it is the cosine or the sine of 2π r, or its
 * negative. */
INLINE double cos_of_turn(double t)
{
    const double rounded = 4 * t + ROUNDER;
    const uint64_t q = bits_of(rounded);
    const double x = 2 * 0x1.921fb54442d18p+1 * (t - (rounded - ROUNDER) / 4), z = x * x;
    double even = 1.0 / 20922789888000, odd = 1.0 / 1307674368000; /* of 16!, 15! */

    even = even * z - 1.0 / 87178291200;
    even = even * z + 1.0 / 479001600;
    even = even * z - 1.0 / 3628800;
    even = even * z + 1.0 / 40320;
    even = even * z - 1.0 / 720;
    even = even * z + 1.0 / 24;
    even = even * z - 1.0 / 2;
    even = even * z + 1;
    odd = odd * -z + 1.0 / 6227020800;
    odd = odd * z - 1.0 / 39916800;
    odd = odd * z + 1.0 / 362880;
    odd = odd * z - 1.0 / 5040;
    odd = odd * z + 1.0 / 120;
    odd = odd * z - 1.0 / 6;
    odd = x + x * z * odd;

    const uint64_t is_odd = -(q & 1), sign = (q + 1) << 62 & UINT64_C(1) << 63;

    return double_of(((bits_of(odd) & is_odd) | (bits_of(even) & ~is_odd)) ^ sign);
}

RUBATO_VECTOR_CLONES
static void draw_normal(uint64_t row_bits, size_t first, size_t n, double *deviates)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t bits = column_bits(row_bits, first + i);
        const double radius = sqrt(-2.0 * log_of(1.0 - unit(bits)));

        deviates[i] = radius * cos_of_turn(unit(rubato_mix64(bits ^ UINT64_C(0xd1b54a32d192ed03))));
    }
}

void normal_draw(uint64_t row_bits, size_t first, size_t n, double *deviates)
{
    draw_normal(row_bits, first, n, deviates);
}
