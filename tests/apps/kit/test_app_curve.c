/* The curve of a training run: smoothing and thinning. */
#include "apps/kit/report/app_curve.h"

#include <math.h>

#include "tests/support/runner.h"

static const AppCurvePoint *last_point(const AppCurve *curve)
{
    ck_assert_uint_gt(curve->points->len, 0);
    return &g_array_index(curve->points, AppCurvePoint, curve->points->len - 1);
}

START_TEST(a_loss_that_stays_is_shown_as_it_is)
{
    AppCurve curve = { .points = NULL };

    app_curve_init(&curve, 800);
    for (int i = 1; i <= 40; i++)
        app_curve_take(&curve, i, i * 20, i * 20 * 0.75, i * 20 * 0.5);
    for (guint i = 0; i < curve.points->len; i++) {
        const AppCurvePoint *point = &g_array_index(curve.points, AppCurvePoint, i);

        ck_assert_double_eq_tol(point->loss, 0.75, 1e-12);
        ck_assert_double_eq_tol(point->metric, 0.5, 1e-12);
        ck_assert_double_eq_tol(point->epoch, point->seconds * 20 / 800, 1e-12);
    }
    app_curve_clear(&curve);
}
END_TEST

/* After a jump the shown loss goes there with the rows, however they are cut into reports. */
START_TEST(what_is_older_weighs_less)
{
    static const int reports[] = { 1, 10, 100 };
    const double window = 100, n_after = 200;
    AppCurve curve = { .points = NULL };

    app_curve_init(&curve, 800); /* an eighth of it is the window */
    app_curve_take(&curve, 1, 100000, 100000, 0);
    for (int i = 1; i <= reports[_i]; i++)
        app_curve_take(&curve, 1 + i, 100000 + n_after * i / reports[_i], 100000, 0);
    ck_assert_double_eq_tol(app_curve_loss(&curve), exp(-n_after / window), 1e-9);
    app_curve_clear(&curve);
}
END_TEST

START_TEST(no_loss_is_told_before_an_eighth_of_an_epoch)
{
    AppCurve curve = { .points = NULL };

    app_curve_init(&curve, 800);
    app_curve_take(&curve, 1, 99, 9.9, 0);
    ck_assert(isnan(app_curve_loss(&curve)));
    app_curve_take(&curve, 2, 100, 10, 0);
    ck_assert_double_eq_tol(app_curve_loss(&curve), 0.1, 1e-12);
    app_curve_clear(&curve);
}
END_TEST

START_TEST(a_long_run_has_few_points_and_a_last_one)
{
    AppCurve curve = { .points = NULL };
    const int n = 100000;

    app_curve_init(&curve, 1000);
    app_curve_take(&curve, 0, 0, 0, 0); /* nothing to show yet */
    ck_assert_uint_eq(curve.points->len, 0);
    for (int i = 1; i <= n; i++)
        app_curve_take(&curve, i * 0.1, i, i, 0);
    ck_assert_uint_lt(curve.points->len, 1500);
    app_curve_end(&curve, n * 0.1 + 0.01, n + 1, n + 1, 0);
    ck_assert_double_eq(last_point(&curve)->seconds, n * 0.1 + 0.01);
    ck_assert_double_eq_tol(last_point(&curve)->epoch, (n + 1) / 1000.0, 1e-9);
    app_curve_clear(&curve);
    app_curve_clear(&curve);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("app curve");
    TCase *cases = tcase_create("curve");

    tcase_add_test(cases, a_loss_that_stays_is_shown_as_it_is);
    tcase_add_loop_test(cases, what_is_older_weighs_less, 0, 3);
    tcase_add_test(cases, no_loss_is_told_before_an_eighth_of_an_epoch);
    tcase_add_test(cases, a_long_run_has_few_points_and_a_last_one);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
