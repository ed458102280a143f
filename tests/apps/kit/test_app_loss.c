/* Losses and their labels, compared with values computed by hand. */
#include <glib/gstdio.h>
#include <unistd.h>

#include "apps/kit/scores/app_loss.h"
#include "tests/support/runner.h"

static const struct {
    AppLossKind kind;
    float score, label;
    double loss, slope;
} points[] = {
    { APP_LOSS_LOGISTIC, 0, 1, G_LN2, -0.5 },
    { APP_LOSS_LOGISTIC, 0, -1, G_LN2, 0.5 },
    { APP_LOSS_LOGISTIC, 1, 1, 0.3132617, -0.2689414 },
    { APP_LOSS_LOGISTIC, 1, -1, 1.3132617, 0.7310586 },
    { APP_LOSS_LOGISTIC, -1, 1, 1.3132617, -0.7310586 },
    { APP_LOSS_LOGISTIC, 1e30F, 1, 0, 0 },
    { APP_LOSS_LOGISTIC, -1e30F, 1, 1e30, -1 },
    { APP_LOSS_LOGISTIC, 1e30F, -1, 1e30, 1 },
    { APP_LOSS_HINGE, 0, 1, 1, -1 },
    { APP_LOSS_HINGE, 0.5F, 1, 0.5, -1 },
    { APP_LOSS_HINGE, 2, 1, 0, 0 },
    { APP_LOSS_HINGE, 0.5F, -1, 1.5, 1 },
    { APP_LOSS_HINGE, -2, -1, 0, 0 },
    { APP_LOSS_SQUARED, 3, 1, 2, 2 },
    { APP_LOSS_SQUARED, -3, 1, 8, -4 },
    { APP_LOSS_SQUARED, 0.25F, 0.25F, 0, 0 },
};

START_TEST(loss_and_slope_of_a_score)
{
    const AppLoss loss = { .kind = points[_i].kind, .negative = -1, .positive = 1 };
    float slope;
    const double value = (double)app_loss_of(&loss, points[_i].score, points[_i].label, &slope);

    ck_assert_double_eq_tol(value, points[_i].loss, 1e-6 * (1 + points[_i].loss));
    ck_assert_double_eq_tol((double)slope, points[_i].slope, 1e-6);
}
END_TEST

START_TEST(score_is_right_on_the_side_of_its_label)
{
    AppLoss loss = { .kind = APP_LOSS_HINGE, .negative = 0, .positive = 1 };

    ck_assert(app_loss_is_right(&loss, 0.1F, 1));
    ck_assert(!app_loss_is_right(&loss, 0, 1));
    ck_assert(app_loss_is_right(&loss, 0, 0));
    ck_assert(!app_loss_is_right(&loss, 0.1F, 0));
    loss.kind = APP_LOSS_SQUARED;
    ck_assert(!app_loss_is_right(&loss, 1, 1));
}
END_TEST

START_TEST(labels_are_the_least_and_the_largest_of_the_rows)
{
    const RubatoDataSummary rows = { .n_rows = 9, .min_label = 1, .max_label = 4 };
    AppLoss loss = { .kind = APP_LOSS_LOGISTIC };

    ck_assert(app_loss_fit(&loss, &rows, NULL, "rows", NULL));
    ck_assert_double_eq(loss.negative, 1);
    ck_assert_double_eq(loss.positive, 4);
    ck_assert_double_eq(app_loss_start(&loss), 0);
    loss.kind = APP_LOSS_SQUARED;
    ck_assert_double_eq(app_loss_start(&loss), 2.5);
}
END_TEST

START_TEST(one_label_is_enough_for_squared_loss_alone)
{
    const RubatoDataSummary rows = { .n_rows = 9, .min_label = 2, .max_label = 2 };
    AppLoss loss = { .kind = APP_LOSS_SQUARED };
    g_autoptr(GError) error = NULL;

    ck_assert(app_loss_fit(&loss, &rows, NULL, "rows", &error));
    loss.kind = APP_LOSS_HINGE;
    ck_assert(!app_loss_fit(&loss, &rows, NULL, "rows", &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
    ck_assert_str_eq(error->message,
                     "rows: expected two labels, such as -1 and 1; all rows have label 2");
}
END_TEST

START_TEST(no_rows_are_too_few)
{
    const RubatoDataSummary rows = { .n_rows = 0 };
    AppLoss loss = { .kind = APP_LOSS_SQUARED };
    g_autoptr(GError) error = NULL;

    ck_assert(!app_loss_fit(&loss, &rows, NULL, "rows", &error));
    ck_assert_str_eq(error->message, "rows: expected rows, found none");
}
END_TEST

START_TEST(third_label_is_refused_with_its_line)
{
    const float labels[] = { 1, 4, 3 };
    RubatoBatch batch = { .n_rows = 2, .label = labels };
    AppLoss loss = { .kind = APP_LOSS_LOGISTIC, .negative = 1, .positive = 4 };
    g_autofree char *path = NULL;
    g_autoptr(GError) error = NULL;
    const int fd = g_file_open_tmp("rubato-rows-XXXXXX", &path, NULL);
    const RubatoDataSpec spec = { .paths = (const char *const[]){ path, NULL } };

    close(fd);
    ck_assert(g_file_set_contents(path, "1 1:1\n\n4 1:1\n3 2:1\n", -1, NULL));
    g_autoptr(RubatoDataset) rows = rubato_dataset_open(&spec, NULL);
    g_autofree char *message =
        g_strdup_printf("%s:4: expected one of two labels, 1 or 4, found 3; --loss softmax "
                        "is for more",
                        path);
    ck_assert(app_loss_check(&loss, rows, &batch, &error));
    batch.n_rows = 3;
    ck_assert(!app_loss_check(&loss, rows, &batch, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
    ck_assert_str_eq(error->message, message);
    loss.kind = APP_LOSS_SQUARED;
    ck_assert(app_loss_check(&loss, rows, &batch, NULL));
    g_unlink(path);
}
END_TEST

/* Two words are two labels; three need another loss; no loss of numbers takes words. */
START_TEST(words_are_labels_of_two_classes)
{
    static const char *const words[] = { "eggs", "ham", "spam", NULL };
    const RubatoDataSummary rows = { .n_rows = 9, .min_label = 0, .max_label = 1 };
    RubatoDataKeys keys = { .format = "csv", .n_label_words = 2, .label_words = words };
    AppLoss loss = { .kind = APP_LOSS_LOGISTIC };
    g_autoptr(GError) three = NULL;
    g_autoptr(GError) squared = NULL;

    ck_assert(app_loss_fit(&loss, &rows, &keys, "rows", NULL));
    ck_assert_double_eq(loss.positive, 1);
    keys.n_label_words = 3;
    ck_assert(!app_loss_fit(&loss, &rows, &keys, "rows", &three));
    ck_assert_str_eq(three->message,
                     "rows: expected two labels, found 3: \"eggs\", \"ham\", \"spam\"; --loss "
                     "softmax is for more");
    loss.kind = APP_LOSS_SQUARED;
    ck_assert(!app_loss_fit(&loss, &rows, &keys, "rows", &squared));
    ck_assert_str_eq(squared->message,
                     "rows: labels are words, such as \"eggs\"; --loss squared needs numbers");
}
END_TEST

/* Three classes with scores 0, log 2 and 0: probabilities 1/4, 1/2 and 1/4. */
START_TEST(softmax_has_a_score_for_each_class)
{
    float classes[] = { -2, 3, 7 };
    const AppLoss loss = { .kind = APP_LOSS_SOFTMAX, .classes = classes, .n_classes = 3 };
    const double scores[] = { 1000, 1000 + G_LN2, 1000 };
    double probability;

    ck_assert_uint_eq(app_loss_n_scores(&loss), 3);
    ck_assert_uint_eq(app_loss_class_of(&loss, 7), 2);
    ck_assert_uint_eq(app_loss_class_of(&loss, 4), 3);
    ck_assert_uint_eq(app_loss_best_class(&loss, scores, &probability), 1);
    ck_assert_double_eq_tol(probability, 0.5, 1e-12);
    ck_assert_double_eq_tol(app_loss_of_row(&loss, scores, 3), G_LN2, 1e-9);
    ck_assert_double_eq_tol(app_loss_of_row(&loss, scores, -2), 2 * G_LN2, 1e-9);
}
END_TEST

static Suite *app_loss_suite(void)
{
    Suite *suite = suite_create("app_loss");
    TCase *tcase = tcase_create("app_loss");

    tcase_add_loop_test(tcase, loss_and_slope_of_a_score, 0, (int)G_N_ELEMENTS(points));
    tcase_add_test(tcase, score_is_right_on_the_side_of_its_label);
    tcase_add_test(tcase, labels_are_the_least_and_the_largest_of_the_rows);
    tcase_add_test(tcase, one_label_is_enough_for_squared_loss_alone);
    tcase_add_test(tcase, words_are_labels_of_two_classes);
    tcase_add_test(tcase, softmax_has_a_score_for_each_class);
    tcase_add_test(tcase, no_rows_are_too_few);
    tcase_add_test(tcase, third_label_is_refused_with_its_line);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_suite(app_loss_suite());
}
