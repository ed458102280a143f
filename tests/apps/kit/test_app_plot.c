/* --plot: no number beside an axis stands in another one, whatever the ranges. Read from the
 * picture that gnuplot draws. */
#include <check.h>
#include <glib/gstdio.h>
#include <math.h>
#include <stdlib.h>

#include "apps/kit/app.h"
#include "apps/kit/report/app_gnuplot.h"
#include "tests/support/runner.h"

#define N_POINTS 41
#define CHARACTER_WIDTH 8.2 /* of a font of 14 points, about */
#define ABOVE_LINE 11
#define BELOW_LINE 3

/* A text of the picture, and the box around it. */
typedef struct {
    char *text;
    double left, right, top, bottom;
} Label;

static void label_clear(gpointer label)
{
    g_free(((Label *)label)->text);
}

/* All texts of a picture. (transfer full) */
static GArray *read_labels(const char *svg)
{
    GArray *labels = g_array_new(FALSE, FALSE, sizeof(Label));
    g_autoptr(GRegex) text = g_regex_new(
        "<g transform=\"translate\\(([-0-9.]+),([-0-9.]+)\\)\"[^>]*text-anchor=\"(\\w+)\"[^>]*>"
        "\\s*<text>(.*?)</text>",
        G_REGEX_DOTALL, 0, NULL);
    g_autoptr(GRegex) tag = g_regex_new("<[^>]*>", 0, 0, NULL);
    g_autoptr(GMatchInfo) match = NULL;

    ck_assert(text != NULL && tag != NULL);
    g_array_set_clear_func(labels, label_clear);
    for (g_regex_match(text, svg, 0, &match); g_match_info_matches(match);
         g_match_info_next(match, NULL)) {
        g_autofree char *x = g_match_info_fetch(match, 1);
        g_autofree char *y = g_match_info_fetch(match, 2);
        g_autofree char *anchor = g_match_info_fetch(match, 3);
        g_autofree char *inner = g_match_info_fetch(match, 4);
        g_autofree char *plain = g_regex_replace_literal(tag, inner, -1, 0, "", 0, NULL);
        Label label = { .text = g_strdup(g_strstrip(plain)) };
        const double width = (double)g_utf8_strlen(label.text, -1) * CHARACTER_WIDTH;
        const double share = g_str_equal(anchor, "start") ? 0 : g_str_equal(anchor, "end") ? 1 : .5;

        label.left = g_ascii_strtod(x, NULL) - share * width;
        label.right = label.left + width;
        label.top = g_ascii_strtod(y, NULL) - ABOVE_LINE;
        label.bottom = g_ascii_strtod(y, NULL) + BELOW_LINE;
        g_array_append_val(labels, label);
    }
    return labels;
}

static void check_apart(const GArray *labels)
{
    for (guint i = 0; i < labels->len; i++)
        for (guint k = 0; k < i; k++) {
            const Label *a = &g_array_index(labels, Label, i);
            const Label *b = &g_array_index(labels, Label, k);

            ck_assert_msg(a->left >= b->right || b->left >= a->right || a->top >= b->bottom ||
                              b->top >= a->bottom,
                          "\"%s\" stands in \"%s\"", a->text, b->text);
        }
}

/* Runs of so many seconds and epochs, with losses from `high` to `low`. The first half of the
 * epochs takes `first` of the time. */
static const struct {
    double seconds, epochs, high, low, first;
} ranges[] = {
    { 1, 3, 0.69, 0.3, 0.5 },           { 1e-5, 1, 0.300002, 0.300001, 0.5 },
    { 0.033, 7, 183, 0.1, 0.01 },       { 86399, 300, 1e-9, 0, 0.99 },
    { 9.87654e7, 12345, 1e30, 1, 0.5 }, { 4e12, 1e6, 500000, 499000, 0.001 },
    { 60, 10, 0.5, 0.5, 0.999 },        { 60, 0.4, -5, -6, 0.5 },
};

static void fill(App *app, guint range)
{
    const double seconds = ranges[range].seconds, first = ranges[range].first;

    for (int i = 0; i < N_POINTS; i++) {
        const double done = i / (N_POINTS - 1.0);
        const AppCurvePoint point = {
            .epoch = done * ranges[range].epochs,
            .seconds =
                seconds * (done < 0.5 ? done * 2 * first : first + (done - 0.5) * 2 * (1 - first)),
            .loss = ranges[range].high + done * (ranges[range].low - ranges[range].high),
            .metric = 0.5 + done / 3,
        };

        g_array_append_val(app->curve.points, point);
    }
    app->seconds = seconds;
}

START_TEST(numbers_of_a_plot_stand_apart)
{
    static const AppProgram program = { .name = "rubato-test", .metric = "accuracy", .epochs = 3 };
    char *arguments[] = { (char *)"rubato-test", NULL };
    g_autofree char *folder = g_dir_make_tmp("rubato-plot-XXXXXX", NULL);
    g_autofree char *path = g_build_filename(folder, "curve.svg", NULL);
    g_autofree char *svg = NULL;
    g_autoptr(GError) error = NULL;
    App app;

    ck_assert(app_parse(&app, &program, 1, arguments));
    app.curve.points = g_array_new(FALSE, FALSE, sizeof(AppCurvePoint));
    app.plot = g_strdup(path);
    fill(&app, (guint)_i);
    ck_assert_msg(app_plot(&app, &error), "%s", error != NULL ? error->message : "");
    ck_assert(g_file_get_contents(path, &svg, NULL, NULL));
    g_autoptr(GArray) labels = read_labels(svg);
    ck_assert_uint_ge(labels->len, 10); /* else they were not found */
    check_apart(labels);
    app_end(&app, NULL);
    g_unlink(path);
    g_rmdir(folder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("app_plot");
    TCase *cases = tcase_create("plot");

    if (app_gnuplot_check(NULL))
        tcase_add_loop_test(cases, numbers_of_a_plot_stand_apart, 0, (int)G_N_ELEMENTS(ranges));
    else
        g_print("skipped: cases of pictures; install gnuplot-nox\n");
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
