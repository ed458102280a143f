/* The arithmetic of rubato-mf. */
#include <glib.h>
#include <math.h>
#include <string.h>

#include "apps/mf/mf_model.h"
#include "tests/support/runner.h"

#define WIDTH_MAX MF_WIDTH(64)
#define TINY 1e-3

/* With loops of constant length, with lanes that are not full, and with none. */
static const uint32_t factors[] = { 1, 7, 8, 13, 16, 32, 64 };

static void fill(float *row, size_t n, guint32 seed)
{
    GRand *random = g_rand_new_with_seed(seed);

    for (size_t i = 0; i < n; i++)
        row[i] = (float)g_rand_double_range(random, 0.2, 1);
    g_rand_free(random);
}

/* Half the square of the error, and the penalties. */
static double objective(const MfModel *model, const float *user, const float *item, double rating)
{
    const double error = rating - mf_score(model, user, item);
    double sum = error * error / 2;

    for (size_t i = MF_FACTORS; i < MF_WIDTH(model->n_factors); i++)
        sum +=
            model->l2 / 2 * ((double)user[i] * (double)user[i] + (double)item[i] * (double)item[i]);
    return sum + model->l2_bias / 2 *
                     ((double)user[MF_BIAS] * (double)user[MF_BIAS] +
                      (double)item[MF_BIAS] * (double)item[MF_BIAS]);
}

/* The slope of the objective along one number. */
static double slope(const MfModel *model, const float *user, const float *item, bool of_user,
                    size_t i, double rating)
{
    float moved[WIDTH_MAX];
    double values[2];

    for (int side = 0; side < 2; side++) {
        memcpy(moved, of_user ? user : item, MF_WIDTH(model->n_factors) * sizeof *moved);
        moved[i] += side == 0 ? (float)-TINY : (float)TINY;
        values[side] =
            of_user ? objective(model, moved, item, rating) : objective(model, user, moved, rating);
    }
    return (values[1] - values[0]) / (2 * TINY);
}

/* A step goes against the gradient: by the rate, or by adagrad's share of it. */
START_TEST(mf_step_goes_against_the_gradient)
{
    const bool even = _i % 2 == 0;
    const MfModel model = {
        .n_factors = factors[_i / 2], .mean = 1, .l2 = 0.3, .l2_bias = 0.2, .steps_are_even = even
    };
    const MfRating rating = { .rating = 2.5f };
    const size_t width = MF_WIDTH(model.n_factors);
    const double rate = 0.01;
    float rows[2][WIDTH_MAX], before[2][WIDTH_MAX];
    double squares[2] = { 0, 0 };

    fill(rows[0], width, 1);
    fill(rows[1], width, 2);
    memcpy(before, rows, sizeof before);
    const double loss = mf_learn(&model, rate, &rating, 1, rows[0], rows[1]);
    const double error = 2.5 - mf_score(&model, before[0], before[1]);
    ck_assert_double_eq_tol(loss, error * error / 2, 1e-4 * (loss + 1));
    for (int side = 0; side < 2; side++) {
        for (size_t i = MF_FACTORS; i < width; i++) {
            const double g = slope(&model, before[0], before[1], side == 0, i, 2.5);

            squares[side] += g * g / model.n_factors;
        }
        const double sum = (double)before[side][MF_SQUARES] + squares[side];
        ck_assert_double_eq_tol((double)rows[side][MF_SQUARES],
                                even ? (double)before[side][MF_SQUARES] : sum, 0.01 * sum);
        for (size_t i = MF_FACTORS; i < width; i++) {
            const double g = slope(&model, before[0], before[1], side == 0, i, 2.5);
            const double step = even ? rate : rate / sqrt(sum);

            ck_assert_double_eq_tol((double)rows[side][i] - (double)before[side][i], -step * g,
                                    0.01 * step * fabs(g) + 1e-6);
        }
        const double g = slope(&model, before[0], before[1], side == 0, MF_BIAS, 2.5);
        const double bias_step =
            even ? rate : rate / sqrt((double)before[side][MF_BIAS_SQUARES] + g * g);
        ck_assert_double_eq_tol((double)rows[side][MF_BIAS] - (double)before[side][MF_BIAS],
                                -bias_step * g, 0.01 * bias_step * fabs(g) + 1e-6);
    }
}
END_TEST

START_TEST(mf_new_rows_begin_once_and_by_their_keys)
{
    const MfModel model = { .n_factors = 8, .init_stddev = 0.5, .seed = 3 };
    const RubatoKey keys[] = { 5, 9, 5 };
    float rows[3 * MF_WIDTH(8)] = { 0 }, again[3 * MF_WIDTH(8)];
    double squares = 0;

    mf_begin_rows(&model, keys, 3, rows);
    for (size_t i = 0; i < MF_WIDTH(8); i++)
        ck_assert_float_eq(rows[i], rows[2 * MF_WIDTH(8) + i]);
    for (size_t i = MF_FACTORS; i < MF_WIDTH(8); i++) {
        ck_assert_float_ne(rows[i], rows[MF_WIDTH(8) + i]);
        squares += (double)rows[i] * (double)rows[i];
    }
    ck_assert_double_gt(squares, 0.05);
    ck_assert_double_lt(squares, 10);
    ck_assert_float_eq(rows[MF_BIAS], 0);
    ck_assert_float_eq(rows[MF_SQUARES], 1);
    memcpy(again, rows, sizeof again);
    mf_begin_rows(&(MfModel){ .n_factors = 8, .init_stddev = 1, .seed = 4 }, keys, 3, again);
    ck_assert_mem_eq(again, rows, sizeof again);
}
END_TEST

/* What was never learned adds nothing. */
START_TEST(mf_score_of_unknown_rows_is_the_mean)
{
    const MfModel model = { .n_factors = 8, .mean = 3.5 };
    const float none[MF_WIDTH(8)] = { 0 };
    float known[MF_WIDTH(8)];

    fill(known, MF_WIDTH(8), 1);
    ck_assert_double_eq(mf_score(&model, none, none), 3.5);
    ck_assert_double_eq_tol(mf_score(&model, known, none), 3.5 + (double)known[MF_BIAS], 1e-6);
}
END_TEST

static Suite *mf_model_suite(void)
{
    Suite *suite = suite_create("mf model");
    TCase *tcase = tcase_create("mf model");

    tcase_add_loop_test(tcase, mf_step_goes_against_the_gradient, 0,
                        2 * (int)G_N_ELEMENTS(factors));
    tcase_add_test(tcase, mf_new_rows_begin_once_and_by_their_keys);
    tcase_add_test(tcase, mf_score_of_unknown_rows_is_the_mean);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_suite(mf_model_suite());
}
