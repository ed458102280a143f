/* Exact sums of doubles. Threads: as exact_sum.h says. */
#include "models/handlers/exact_sum.h"

#include <math.h>
#include <rubato/vector_clones.h>

enum {
    LIMB_BITS = 32,
    LOWEST_EXPONENT = -1075, /* of limb 0's lowest bit */
    LEAST_EXPONENT = -1074,  /* of a double's lowest bit */
    DOUBLE_BITS = 53,
};

void exact_sum_init(ExactSum *sum)
{
    memset(sum, 0, sizeof *sum);
    sum->n_left = EXACT_SUM_TERMS;
}

void exact_sum_add_special(ExactSum *sum, double term)
{
    sum->special += term; /* infinities of both signs make a NaN */
}

/* Afterwards every limb but the last is in 0 .. 2^32 - 1; the last has the sign. */
void exact_sum_carry(ExactSum *sum)
{
    int64_t carry = 0;

    for (size_t i = 0; i + 1 < EXACT_SUM_LIMBS; i++) {
        const int64_t limb = sum->limbs[i] + carry;
        const int64_t low = limb & (int64_t)UINT32_MAX;

        carry = (limb - low) / (INT64_C(1) << LIMB_BITS); /* it is a multiple */
        sum->limbs[i] = low;
    }
    sum->limbs[EXACT_SUM_LIMBS - 1] += carry;
    sum->n_left = EXACT_SUM_TERMS;
}

/* ---- blocks ---- */

enum {
    LANES = 8,
    BLOCK_LOG = 8, /* of EXACT_SUM_BLOCK */

    /* Blocks of terms beyond these exponents are added one by one: what they are cut at would be
     * infinite, or denormal. */
    MOST_EXPONENT = 900,
    FEWEST_EXPONENT = -800,
};

G_STATIC_ASSERT(EXACT_SUM_BLOCK == 1 << BLOCK_LOG && EXACT_SUM_BLOCK % LANES == 0);

/* The sums of a block's upper and lower pieces, and whether something is left of a term. */
typedef struct {
    double upper, lower;
    bool has_rest;
} Pieces;

/* Some terms side by side, and their bits. */
typedef double Lanes __attribute__((vector_size(LANES * sizeof(double))));
typedef int64_t LaneBits __attribute__((vector_size(LANES * sizeof(double))));

#define SIZES_OF(lanes) ((LaneBits)(lanes)&INT64_MAX)

RUBATO_VECTOR_CLONES
static double find_largest(const double *terms)
{
    Lanes largest = { 0 };
    double found = 0;

    for (size_t i = 0; i < EXACT_SUM_BLOCK; i += LANES) {
        Lanes sizes;

        memcpy(&sizes, terms + i, sizeof sizes);
        sizes = (Lanes)SIZES_OF(sizes);
        const LaneBits is_larger = sizes > largest;

        largest = (Lanes)(((LaneBits)sizes & is_larger) | ((LaneBits)largest & ~is_larger));
    }
    for (size_t lane = 0; lane < LANES; lane++)
        found = largest[lane] > found ? largest[lane] : found;
    return found;
}

/* x + cut - cut is x rounded to a multiple of the last bit of `cut`. If all |x| are below 2^e and
 * cut is 1.5 × 2^(e + 8), this is a multiple of 2^(e - 44). So a sum of 256 of them has 52 bits at
 * most, and is exact in any order. What is left of each x is exact, and at most 2^(e - 45). */
RUBATO_VECTOR_CLONES
static Pieces cut_block(const double *terms, double upper_cut, double lower_cut)
{
    Lanes upper = { 0 }, lower = { 0 };
    LaneBits rest = { 0 };
    Pieces pieces = { 0 };

    for (size_t i = 0; i < EXACT_SUM_BLOCK; i += LANES) {
        Lanes term;

        memcpy(&term, terms + i, sizeof term);
        const Lanes high = (term + upper_cut) - upper_cut, left = term - high;
        const Lanes low = (left + lower_cut) - lower_cut;

        upper += high;
        lower += low;
        rest |= SIZES_OF(left - low);
    }
    for (size_t lane = 0; lane < LANES; lane++) {
        pieces.upper += upper[lane];
        pieces.lower += lower[lane];
        pieces.has_rest |= rest[lane] != 0;
    }
    return pieces;
}

static void add_each(ExactSum *sum, const double *terms, size_t n)
{
    for (size_t i = 0; i < n; i++)
        exact_sum_add(sum, terms[i]);
}

static void add_whole_block(ExactSum *sum, const double *terms)
{
    const double largest = find_largest(terms); /* of a block with NaNs it is any number */
    int exponent;

    if (largest == 0 || !isfinite(largest)) {
        add_each(sum, terms, EXACT_SUM_BLOCK);
        return;
    }
    (void)frexp(largest, &exponent); /* largest < 2^exponent */
    const double upper_cut = ldexp(1.5, exponent + BLOCK_LOG);
    const double lower_cut = ldexp(1.5, exponent - 44 + BLOCK_LOG);
    const Pieces pieces = cut_block(terms, upper_cut, lower_cut);

    if (exponent > MOST_EXPONENT || exponent < FEWEST_EXPONENT || !isfinite(pieces.upper)) {
        add_each(sum, terms, EXACT_SUM_BLOCK);
        return;
    }
    exact_sum_add(sum, pieces.upper);
    exact_sum_add(sum, pieces.lower);
    for (size_t i = 0; i < EXACT_SUM_BLOCK && pieces.has_rest; i++) {
        const double left = terms[i] - ((terms[i] + upper_cut) - upper_cut);

        exact_sum_add(sum, left - ((left + lower_cut) - lower_cut));
    }
}

void exact_sum_add_block(ExactSum *sum, const double *terms, size_t n)
{
    if (n == EXACT_SUM_BLOCK)
        add_whole_block(sum, terms);
    else
        add_each(sum, terms, n);
}

/* ---- sums of sums, and their end ---- */

void exact_sum_merge(ExactSum *sum, ExactSum *other)
{
    exact_sum_carry(sum);
    exact_sum_carry(other);
    for (size_t i = 0; i < EXACT_SUM_LIMBS; i++)
        sum->limbs[i] += other->limbs[i];
    sum->special += other->special;
    exact_sum_carry(sum);
}

/* Rounds `value` × 2^exponent; `more`: something below its last bit is not zero. The value has more
 * than DOUBLE_BITS bits if `more`. */
static double round_bits(unsigned __int128 value, int exponent, bool more)
{
    const uint64_t high = (uint64_t)(value >> 64), low = (uint64_t)value;
    const int n_bits = high != 0 ? 128 - __builtin_clzll(high) : 64 - __builtin_clzll(low);
    const int dropped = MAX(MAX(n_bits - DOUBLE_BITS, LEAST_EXPONENT - exponent), 0);

    if (dropped == 0)
        return ldexp((double)low, exponent);
    if (dropped > n_bits)
        return 0; /* less than half of the smallest double */
    const unsigned __int128 half = (unsigned __int128)1 << (dropped - 1);
    const unsigned __int128 rest = value & ((half << 1) - 1);
    uint64_t kept = (uint64_t)(value >> dropped);

    if (rest > half || (rest == half && (more || (kept & 1) != 0)))
        kept++;
    return ldexp((double)kept, exponent + dropped);
}

double exact_sum_round(ExactSum *sum)
{
    ExactSum positive;
    size_t top = EXACT_SUM_LIMBS - 1;
    bool is_negative, more = false;

    exact_sum_carry(sum);
    if (sum->special != 0)
        return sum->special;
    positive = *sum;
    is_negative = sum->limbs[top] < 0;
    if (is_negative) {
        for (size_t i = 0; i < EXACT_SUM_LIMBS; i++)
            positive.limbs[i] = -positive.limbs[i];
        exact_sum_carry(&positive);
    }
    while (top > 0 && positive.limbs[top] == 0)
        top--;
    if (positive.limbs[top] == 0)
        return 0;
    const size_t bottom = top > 2 ? top - 2 : 0;
    unsigned __int128 value = 0;

    for (size_t i = top + 1; i-- > bottom;)
        value = value << LIMB_BITS | (uint64_t)positive.limbs[i];
    for (size_t i = 0; i < bottom && !more; i++)
        more = positive.limbs[i] != 0;
    const double rounded = round_bits(value, LOWEST_EXPONENT + LIMB_BITS * (int)bottom, more);

    return is_negative ? -rounded : rounded;
}

/* ---- as bytes: which limbs are not zero, and these; most sums have few ---- */

void exact_sum_write(ExactSum *sum, RubatoByteWriter *writer)
{
    size_t first = 0, end = EXACT_SUM_LIMBS;

    exact_sum_carry(sum);
    while (first < end && sum->limbs[first] == 0)
        first++;
    while (end > first && sum->limbs[end - 1] == 0)
        end--;
    rubato_write_f64(writer, sum->special);
    rubato_write_u32(writer, (uint32_t)first);
    rubato_write_u32(writer, (uint32_t)(end - first));
    for (size_t i = first; i < end; i++)
        rubato_write_i64(writer, sum->limbs[i]);
}

bool exact_sum_read(ExactSum *sum, RubatoByteReader *reader)
{
    exact_sum_init(sum);
    sum->special = rubato_read_f64(reader);

    const uint32_t first = rubato_read_u32(reader), n = rubato_read_u32(reader);

    if (first > EXACT_SUM_LIMBS || n > EXACT_SUM_LIMBS - first)
        return false;
    for (uint32_t i = first; i < first + n; i++) {
        sum->limbs[i] = rubato_read_i64(reader);
        /* so that merging many of them cannot overflow */
        if (sum->limbs[i] < -(INT64_C(1) << 52) || sum->limbs[i] > INT64_C(1) << 52)
            return false;
    }
    return !reader->failed;
}
