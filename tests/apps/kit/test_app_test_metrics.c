/* Metrics of scores, compared with values computed by hand. */
#include <check.h>
#include <math.h>

#include "apps/kit/scores/app_test_metrics.h"
#include "tests/support/runner.h"

#define N_MAX 6

/* The AUC is the share of pairs of a positive and a negative row in the right order, a tie half. */
static const struct {
    size_t n;
    double scores[N_MAX];
    float labels[N_MAX];
    double auc, accuracy;
} sets[] = {
    { 2, { -1, 1 }, { -1, 1 }, 1, 1 },
    { 2, { -1, 1 }, { 1, -1 }, 0, 0 },
    { 2, { 3, 3 }, { -1, 1 }, 0.5, 0.5 },
    { 4, { 1, 2, 3, 4 }, { -1, 1, -1, 1 }, 0.75, 0.5 },
    { 4, { 4, 2, 3, 1 }, { 1, 1, 0, 0 }, 0.75, 0.5 },
    { 5, { 1, 1, 1, 2, -1 }, { 1, -1, 1, -1, -1 }, 0.5, 0.6 },
    { 6, { -3, -2, -1, 1, 2, 3 }, { 0, 0, 1, 0, 1, 1 }, 8.0 / 9, 4.0 / 6 },
};

START_TEST(test_metrics_count_pairs_and_sides)
{
    AppTestMetrics metrics;

    ck_assert(app_test_metrics_of(sets[_i].scores, sets[_i].labels, 1, sets[_i].n, &metrics, NULL));
    ck_assert_double_eq_tol(metrics.auc, sets[_i].auc, 1e-12);
    ck_assert_double_eq_tol(metrics.accuracy, sets[_i].accuracy, 1e-12);
}
END_TEST

START_TEST(test_metrics_have_no_auc_where_all_labels_are_the_same)
{
    const double scores[] = { 1, 2 };
    const float labels[] = { 1, 1 };
    AppTestMetrics metrics;

    ck_assert(app_test_metrics_of(scores, labels, 1, 2, &metrics, NULL));
    ck_assert(isnan(metrics.auc));
    ck_assert_double_eq(metrics.accuracy, 1);
}
END_TEST

START_TEST(logloss_is_the_mean_and_survives_any_score)
{
    const double scores[] = { 0, 2000, -2000, 1 };
    const float labels[] = { 1, 1, -1, -1 };
    AppTestMetrics metrics;

    ck_assert(app_test_metrics_of(scores, labels, 1, 4, &metrics, NULL));
    ck_assert_double_eq_tol(metrics.logloss, (log(2) + log(1 + exp(1))) / 4, 1e-12);
    ck_assert(app_test_metrics_of((const double[]){ -2000 }, labels, 1, 1, &metrics, NULL));
    ck_assert_double_eq_tol(metrics.logloss, 2000, 1e-9);
}
END_TEST

START_TEST(rmse_is_the_root_of_the_mean_square)
{
    ck_assert_double_eq_tol(
        app_test_rmse((const double[]){ 1, 2, 5 }, (const float[]){ 1, 4, 4 }, 3), sqrt(5.0 / 3),
        1e-12);
}
END_TEST

static Suite *app_test_metrics_suite(void)
{
    Suite *suite = suite_create("app_test_metrics");
    TCase *tcase = tcase_create("app_test_metrics");

    tcase_add_loop_test(tcase, test_metrics_count_pairs_and_sides, 0, (int)G_N_ELEMENTS(sets));
    tcase_add_test(tcase, test_metrics_have_no_auc_where_all_labels_are_the_same);
    tcase_add_test(tcase, logloss_is_the_mean_and_survives_any_score);
    tcase_add_test(tcase, rmse_is_the_root_of_the_mean_square);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_suite(app_test_metrics_suite());
}
