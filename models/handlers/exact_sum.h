/* Sums of doubles without a rounding error before the last: the sum does not depend on the order of
 * its terms, nor on how they were divided among parts.
 *
 * Source: R. M. Neal, "Fast exact summation using small and large superaccumulators", 2015, section
 * 2: the small one. The sum is one long fixed-point number in limbs of 32 bits, each of which is
 * kept in 64 so that carries can wait. Blocks of terms are added in doubles first, without an
 * error: each term is cut at bits that are the same for the whole block (S. M. Rump, T. Ogita, S.
 * Oishi, "Accurate floating-point summation part I", 2008, section 3).
 *
 * Threads: a sum belongs to one thread. */
#ifndef RUBATO_MODELS_HANDLERS_EXACT_SUM_H
#define RUBATO_MODELS_HANDLERS_EXACT_SUM_H

#include <rubato/bytes.h>
#include <string.h>

enum {
    EXACT_SUM_LIMBS = 67, /* a double's bits reach into limb 65; the last ones take carries */

    /* A term adds less than 2^53 to a limb, so carries must be done after this many terms. */
    EXACT_SUM_TERMS = 512,
};

typedef struct {
    int64_t limbs[EXACT_SUM_LIMBS]; /* limb i counts 2^(32 i - 1075) */
    uint32_t n_left;                /* terms that may be added before the carries */
    double special;                 /* sum of the infinite terms and NaNs; 0: there were none */
} ExactSum;

void exact_sum_init(ExactSum *sum);

/* Adds an infinite term, or a NaN. */
void exact_sum_add_special(ExactSum *sum, double term);

/* Hands all carries on. */
void exact_sum_carry(ExactSum *sum);

static inline void exact_sum_add(ExactSum *sum, double term)
{
    uint64_t bits;

    memcpy(&bits, &term, sizeof bits);
    const unsigned exponent = (unsigned)(bits >> 52) & 0x7ff;
    const uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);

    if (G_UNLIKELY(exponent == 0x7ff)) {
        exact_sum_add_special(sum, term);
        return;
    }
    /* a denormal has no leading bit, and the exponent of the smallest normal number */
    const uint64_t mantissa = fraction | (uint64_t)(exponent != 0) << 52;
    const unsigned at = exponent + (exponent == 0);
    const unsigned shift = at & 31;
    const int64_t low = (int64_t)((mantissa << shift) & UINT32_MAX);
    const int64_t high = (int64_t)(mantissa >> (32 - shift));
    const int64_t sign = -(int64_t)(bits >> 63); /* -1, or 0 */

    sum->limbs[at >> 5] += (low ^ sign) - sign;
    sum->limbs[(at >> 5) + 1] += (high ^ sign) - sign;
    if (G_UNLIKELY(--sum->n_left == 0))
        exact_sum_carry(sum);
}

/* Adds up to EXACT_SUM_BLOCK terms: the same, and several times as fast. */
enum { EXACT_SUM_BLOCK = 256 };
void exact_sum_add_block(ExactSum *sum, const double *terms, size_t n);

/* Adds another sum. */
void exact_sum_merge(ExactSum *sum, ExactSum *other);

/* The sum, rounded once: to nearest, ties to even. */
double exact_sum_round(ExactSum *sum);

/* As bytes, for parts whose sums are merged elsewhere. The second one returns false if they cannot
 * be those of a sum. */
void exact_sum_write(ExactSum *sum, RubatoByteWriter *writer);
bool exact_sum_read(ExactSum *sum, RubatoByteReader *reader);

#endif
