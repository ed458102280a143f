/* Values that are rounded: which they become, and what is said of the loss. */
#include <check.h>
#include <glib.h>
#include <math.h>
#include <string.h>

#include "io/store/rounding.h"
#include "tests/support/runner.h"

enum { WIDTH = 5, N_ROWS = 200 };

static const struct {
    double exact, stored;
} halves[] = {
    { 0, 0 },
    { -0.0, -0.0 },
    { 1, 1 },
    { 1.00390625, 1 },        /* 1 + 2^-8 lies between 1 and 1 + 2^-7: to the even one */
    { 1.01171875, 1.015625 }, /* 1 + 3 × 2^-8, likewise */
    { 1.0040, 1.0078125 },    /* a bit above the tie */
    { -3.14159265, -3.140625 },
    { 3.3e38, 3.296e38 }, /* near the largest f32; compared coarsely */
    { 3.4e38, INFINITY }, /* its upper half is rounded up */
    { INFINITY, INFINITY },
    { -INFINITY, -INFINITY },
};

START_TEST(upper_half_is_rounded_to_the_nearest)
{
    const RoundedRows rows = { ROUNDING_BF16, .width = 1, .value_bytes = 8 };
    const double exact = halves[_i].exact, stored = halves[_i].stored;
    RoundingLoss loss = { .n_values = 0 };
    uint64_t bytes;
    double back;

    ck_assert_uint_eq(rounding_bytes(&rows, 1), sizeof bytes);
    rounding_encode(&rows, 1, &exact, &bytes, &loss);
    rounding_decode(&rows, 1, &bytes, &back);
    ck_assert(back == stored || fabs(back - stored) < 1e-3 * fabs(stored));
    ck_assert_int_eq(signbit(back) != 0, signbit(exact) != 0);
    ck_assert(loss.largest == (back == exact ? 0 : fabs(back - exact)));
    ck_assert_uint_eq(loss.n_values, 1);
}
END_TEST

START_TEST(what_is_no_number_stays_none)
{
    const Rounding rounding = _i == 0 ? ROUNDING_BF16 : ROUNDING_8BIT;
    const RoundedRows rows = { rounding, .width = 2, .value_bytes = 4 };
    const float exact[] = { NAN, 1 };
    RoundingLoss loss = { .n_values = 0 };
    uint64_t bytes[4];
    float back[2];

    rounding_encode(&rows, 1, exact, bytes, &loss);
    rounding_decode(&rows, 1, bytes, back);
    ck_assert(isnan(back[0]));
    ck_assert(rounding == ROUNDING_BF16 ? back[1] == 1 && loss.largest == 0
                                        : isnan(back[1]) && isnan(loss.largest));
}
END_TEST

/* Rows of all sizes, the last one of zeros alone. */
START_TEST(loss_is_that_of_the_values)
{
    const Rounding rounding = _i % 2 == 0 ? ROUNDING_BF16 : ROUNDING_8BIT;
    const RoundedRows rows = { rounding, .width = WIDTH, .value_bytes = _i < 2 ? 4 : 8 };
    g_autoptr(GRand) random = g_rand_new_with_seed(7);
    g_autofree unsigned char *bytes = g_malloc((size_t)rounding_bytes(&rows, N_ROWS));
    union {
        float f32[N_ROWS * WIDTH];
        double f64[N_ROWS * WIDTH];
    } exact = { { 0 } }, back;
    RoundingLoss loss = { .n_values = 0 };
    double largest = 0, sum = 0;

    for (size_t i = 0; i < (size_t)(N_ROWS - 1) * WIDTH; i++) {
        const double value =
            g_rand_double_range(random, -1, 1) * pow(10, (double)(i / WIDTH % 40) - 20);

        if (rows.value_bytes == 4)
            exact.f32[i] = (float)value;
        else
            exact.f64[i] = value;
    }
    rounding_encode(&rows, N_ROWS, &exact, bytes, &loss);
    rounding_decode(&rows, N_ROWS, bytes, &back);
    for (size_t row = 0; row < N_ROWS; row++) {
        double most = 0;

        for (size_t i = row * WIDTH; i < (row + 1) * WIDTH; i++)
            most = fmax(most, fabs(_i < 2 ? (double)exact.f32[i] : exact.f64[i]));
        for (size_t i = row * WIDTH; i < (row + 1) * WIDTH; i++) {
            const double is = _i < 2 ? (double)exact.f32[i] : exact.f64[i];
            const double error = fabs((_i < 2 ? (double)back.f32[i] : back.f64[i]) - is);

            ck_assert_double_le(error,
                                (rounding == ROUNDING_BF16 ? fabs(is) / 256 : most / 253) + 1e-40);
            largest = fmax(largest, error);
            sum += error * error;
        }
    }
    ck_assert_uint_eq(loss.n_values, N_ROWS * WIDTH);
    ck_assert_double_eq_tol(loss.largest, largest, largest * 1e-5);
    ck_assert_double_eq_tol(loss.sum_of_squares, sum, sum * 1e-5);
    ck_assert_uint_le(rounding_bytes(&rows, N_ROWS),
                      N_ROWS * (rounding == ROUNDING_BF16 ? 2 * WIDTH : WIDTH + 4) + 7);
}
END_TEST

/* What was rounded once is rounded to the same. */
START_TEST(rounding_twice_is_rounding_once)
{
    const Rounding rounding = _i == 0 ? ROUNDING_BF16 : ROUNDING_8BIT;
    const RoundedRows rows = { rounding, .width = WIDTH, .value_bytes = 4 };
    float once[WIDTH] = { .1f, -.7f, 3.3f, 1e-9f, -2 }, twice[WIDTH];
    RoundingLoss loss = { .n_values = 0 }, second = { .n_values = 0 };
    uint64_t bytes[4];

    rounding_encode(&rows, 1, once, bytes, &loss);
    rounding_decode(&rows, 1, bytes, once);
    rounding_encode(&rows, 1, once, bytes, &second);
    rounding_decode(&rows, 1, bytes, twice);
    for (size_t i = 0; i < WIDTH; i++)
        ck_assert_float_eq_tol(once[i], twice[i], 1e-6f);
    ck_assert_double_gt(loss.largest, 1e-4);
    ck_assert_double_lt(second.largest, 1e-6);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rounding");
    TCase *cases = tcase_create("rounding");

    tcase_add_loop_test(cases, upper_half_is_rounded_to_the_nearest, 0, G_N_ELEMENTS(halves));
    tcase_add_loop_test(cases, what_is_no_number_stays_none, 0, 2);
    tcase_add_loop_test(cases, loss_is_that_of_the_values, 0, 4);
    tcase_add_loop_test(cases, rounding_twice_is_rounding_once, 0, 2);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
