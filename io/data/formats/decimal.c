/* Reads decimal numbers fast.
 *
 * Most numbers in data files have a few digits: these come from one multiplication or division of
 * two doubles that are exact, whose result is therefore the correctly rounded double (W. Clinger,
 * How to read floating point numbers accurately, 1990, the fast path). All others go to strtod.
 * Runs on the caller's thread, keeps nothing. */
#include "io/data/formats/decimal.h"

#include <float.h>
#include <glib.h>
#include <math.h>
#include <stdbool.h>

#define EXACT_MAX (UINT64_C(1) << 53)
#define EXACT_POWER_MAX 22
#define MANTISSA_DIGITS_MAX 19
#define EXPONENT_MAX 100000

static const double powers_of_ten[EXACT_POWER_MAX + 1] = {
    1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
};

static inline bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

DecimalStatus decimal_read_key(const char *text, const char **end, uint64_t *number)
{
    const char *at = text;
    uint64_t value = 0;
    bool fits = true;

    if (!is_digit(*at))
        return DECIMAL_NO_NUMBER;
    for (; is_digit(*at); at++) {
        const uint64_t digit = (uint64_t)(*at - '0');

        fits = fits &&
               (value < UINT64_MAX / 10 || (value == UINT64_MAX / 10 && digit <= UINT64_MAX % 10));
        value = value * 10 + digit;
    }
    *end = at;
    if (!fits)
        return DECIMAL_TOO_LARGE;
    *number = value;
    return DECIMAL_OK;
}

/* Digits of a mantissa; digits that do not fit are counted but not kept. */
static const char *read_digits(const char *at, uint64_t *mantissa, unsigned *n_digits)
{
    for (; is_digit(*at); at++) {
        if (*n_digits < MANTISSA_DIGITS_MAX)
            *mantissa = *mantissa * 10 + (uint64_t)(*at - '0');
        if (*mantissa != 0 && *n_digits < UINT32_MAX)
            (*n_digits)++;
    }
    return at;
}

/* The exponent after an e, where digits follow it; otherwise the e is not part of the number. */
static const char *read_exponent(const char *at, int *exponent)
{
    const char *from = at + 1;
    const bool negative = *from == '-';
    int value = 0;

    if (*from == '+' || *from == '-')
        from++;
    if (!is_digit(*from))
        return at;
    for (; is_digit(*from); from++)
        if (value < EXPONENT_MAX)
            value = value * 10 + (*from - '0');
    *exponent = negative ? -value : value;
    return from;
}

DecimalStatus decimal_read_float(const char *text, const char **end, float *number)
{
    const char *at = text;
    const bool negative = *at == '-';
    uint64_t mantissa = 0;
    unsigned n_digits = 0;
    ptrdiff_t n_read, n_behind_point = 0;
    int exponent = 0;
    double value;

    if (*at == '+' || *at == '-')
        at++;
    const char *digits = at;
    at = read_digits(at, &mantissa, &n_digits);
    n_read = at - digits;
    if (*at == '.') {
        const char *behind = at + 1;

        at = read_digits(behind, &mantissa, &n_digits);
        n_behind_point = at - behind;
        n_read += n_behind_point;
    }
    if (n_read == 0)
        return DECIMAL_NO_NUMBER;
    if (*at == 'e' || *at == 'E')
        at = read_exponent(at, &exponent);

    const ptrdiff_t power = (ptrdiff_t)exponent - n_behind_point;
    if (n_digits <= MANTISSA_DIGITS_MAX && mantissa <= EXACT_MAX && power <= EXACT_POWER_MAX &&
        power >= -EXACT_POWER_MAX) {
        value = power < 0 ? (double)mantissa / powers_of_ten[-power]
                          : (double)mantissa * powers_of_ten[power];
        if (negative)
            value = -value;
    } else {
        value = g_ascii_strtod(text, NULL); /* reads the same grammar, up to `at` */
    }
    *end = at;

    if (fabs(value) > (double)FLT_MAX)
        return DECIMAL_TOO_LARGE;
    *number = (float)value;
    return DECIMAL_OK;
}
