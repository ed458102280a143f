/* Exact sums: the same for every order, in blocks and one by one, merged and as bytes; and
 * correctly rounded, by an integer of 128 bits where one can hold the sum. */
#include "models/handlers/exact_sum.h"

#include <math.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N_TERMS = 4 * EXACT_SUM_BLOCK + 37, SPREADS = 6 };

/* Terms with exponents in ranges of different width, up to all that doubles have. */
static void draw(uint64_t seed, double *terms)
{
    static const uint32_t spreads[SPREADS] = { 1, 20, 60, 200, 1000, 2090 };
    const uint32_t spread = spreads[seed % SPREADS];
    uint64_t state = seed;

    for (size_t i = 0; i < N_TERMS; i++) {
        const int exponent = (int)random_below(&state, spread) - (int)(spread / 2) - 40;

        terms[i] = ldexp((double)(int64_t)next_random(&state), exponent);
    }
    terms[seed % N_TERMS] = 0;
}

static double sum_each(const double *terms, size_t n)
{
    ExactSum sum;

    exact_sum_init(&sum);
    for (size_t i = 0; i < n; i++)
        exact_sum_add(&sum, terms[i]);
    return exact_sum_round(&sum);
}

static void add_blocks(ExactSum *sum, const double *terms, size_t n)
{
    for (size_t begin = 0; begin < n; begin += EXACT_SUM_BLOCK)
        exact_sum_add_block(sum, terms + begin, MIN(n - begin, (size_t)EXACT_SUM_BLOCK));
}

static void shuffle(double *terms, uint64_t seed)
{
    uint64_t state = seed;

    for (uint32_t i = N_TERMS; i-- > 1;) {
        const uint32_t j = random_below(&state, i + 1);
        const double held = terms[i];

        terms[i] = terms[j];
        terms[j] = held;
    }
}

START_TEST(neither_order_nor_division_changes_a_bit)
{
    double terms[N_TERMS];
    g_auto(RubatoByteWriter) writer = rubato_byte_writer_new(SIZE_MAX);
    ExactSum sum, other, read;

    for (uint64_t seed = 0; seed < 30 * SPREADS; seed++) {
        draw(seed, terms);
        const double expected = sum_each(terms, N_TERMS);

        shuffle(terms, seed);
        ck_assert(memcmp(&(double){ sum_each(terms, N_TERMS) }, &expected, sizeof expected) == 0);
        exact_sum_init(&sum);
        add_blocks(&sum, terms, N_TERMS);
        ck_assert(memcmp(&(double){ exact_sum_round(&sum) }, &expected, sizeof expected) == 0);

        exact_sum_init(&sum);
        exact_sum_init(&other);
        add_blocks(&sum, terms, seed);
        add_blocks(&other, terms + seed, N_TERMS - seed);
        writer.n = 0;
        exact_sum_write(&other, &writer);
        RubatoByteReader reader = rubato_byte_reader_new(writer.bytes, writer.n);
        ck_assert(exact_sum_read(&read, &reader));
        ck_assert(rubato_byte_reader_finish(&reader, "a sum", NULL));
        exact_sum_merge(&sum, &read);
        ck_assert(memcmp(&(double){ exact_sum_round(&sum) }, &expected, sizeof expected) == 0);
    }
}
END_TEST

/* The compiler converts an __int128 as IEEE 754 says. */
START_TEST(sum_is_rounded_once_to_nearest)
{
    uint64_t state = 1;

    for (int round = 0; round < 20000; round++) {
        const uint32_t n = 1 + random_below(&state, 5);
        __int128 exact = 0;
        double terms[5];

        for (uint32_t i = 0; i < n; i++) {
            const int64_t whole = (int64_t)next_random(&state) >> random_below(&state, 63);
            const int shift = (int)random_below(&state, 55);
            const int64_t part = whole >> 11; /* 53 bits: a double */

            terms[i] = ldexp((double)part, shift);
            exact += part * ((__int128)1 << shift);
        }
        QUICK_ASSERT(sum_each(terms, n) == (double)exact);
    }
}
END_TEST

START_TEST(sums_at_the_ends_of_the_range)
{
    const double least = 0x1p-1074, most = 0x1.fffffffffffffp1023;
    const struct {
        double terms[4], sum;
    } cases[] = {
        { { 0, -0.0, 0, 0 }, 0 },
        { { least, 0, 0, 0 }, least },
        { { least, -least, 0, 0 }, 0 },
        { { 1, least, -1, 0 }, least },
        { { most, 0, 0, 0 }, most },
        { { most, most, -most, 0 }, most },
        { { most, most, 0, 0 }, INFINITY },
        { { -most, -most, 0, 0 }, -INFINITY },
        { { most, 0x1p969, 0, 0 }, most },         /* less than half of its last bit */
        { { most, 0x1p970, 0, 0 }, INFINITY },     /* just half: to even */
        { { 1, 0x1p-53, 0, 0 }, 1 },               /* a tie */
        { { 1, 0x1p-53, least, 0 }, 1 + 0x1p-52 }, /* and a little more */
        { { 1, 0x1p-53, -least, 0 }, 1 },
        { { -1, -0x1p-53, -least, 0 }, -1 - 0x1p-52 },
        { { INFINITY, 1, most, most }, INFINITY },
        { { -INFINITY, 1, 2, 3 }, -INFINITY },
        { { 0x1p-1022, -least, 0, 0 }, 0x0.fffffffffffffp-1022 },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        double block[EXACT_SUM_BLOCK] = { 0 };
        ExactSum sum;

        require_msg(sum_each(cases[i].terms, 4) == cases[i].sum, "case %zu is %a", i,
                    sum_each(cases[i].terms, 4));
        memcpy(block + 100, cases[i].terms, sizeof cases[i].terms);
        exact_sum_init(&sum);
        exact_sum_add_block(&sum, block, EXACT_SUM_BLOCK);
        require_msg(exact_sum_round(&sum) == cases[i].sum, "case %zu in a block", i);
    }
    ck_assert(isnan(sum_each((double[]){ INFINITY, -INFINITY }, 2)));
    double with_nan[EXACT_SUM_BLOCK] = { 1, 2, NAN };
    ExactSum sum;
    exact_sum_init(&sum);
    exact_sum_add_block(&sum, with_nan, EXACT_SUM_BLOCK);
    ck_assert(isnan(exact_sum_round(&sum)));
}
END_TEST

/* What another node sends may be anything. */
START_TEST(bytes_that_are_no_sum_are_refused)
{
    static const struct {
        uint32_t first, n;
        int64_t limb;
        size_t cut;
        bool ok;
    } cases[] = {
        { 0, 0, 0, 0, true },
        { 3, 1, 7, 0, true },
        { 3, 1, 7, 1, false },
        { EXACT_SUM_LIMBS - 1, 1, -1, 0, true },
        { EXACT_SUM_LIMBS, 1, 0, 0, false },
        { 0, EXACT_SUM_LIMBS + 1, 0, 0, false },
        { UINT32_MAX, 2, 0, 0, false },
        { 0, 1, INT64_MAX, 0, false },
        { 0, 1, INT64_MIN, 0, false },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_auto(RubatoByteWriter) writer = rubato_byte_writer_new(SIZE_MAX);
        ExactSum sum;

        rubato_write_f64(&writer, 0);
        rubato_write_u32(&writer, cases[i].first);
        rubato_write_u32(&writer, cases[i].n);
        for (uint32_t j = 0; j < cases[i].n; j++)
            rubato_write_i64(&writer, cases[i].limb);
        RubatoByteReader reader = rubato_byte_reader_new(writer.bytes, writer.n - cases[i].cut);
        require_msg(exact_sum_read(&sum, &reader) == cases[i].ok, "case %zu", i);
    }
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("exact_sum");
    TCase *const cases = tcase_create("exact_sum");

    tcase_add_test(cases, neither_order_nor_division_changes_a_bit);
    tcase_add_test(cases, sum_is_rounded_once_to_nearest);
    tcase_add_test(cases, sums_at_the_ends_of_the_range);
    tcase_add_test(cases, bytes_that_are_no_sum_are_refused);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
