/* --plot: loss and, if the program has one, its metric over the seconds of training, with the
 * epochs along the upper edge. */
#include "apps/kit/app.h"
#include "apps/kit/report/app_gnuplot.h"

#include <math.h>

#define EPOCH_MARKS_MOST 10

/* Of a digit of a mark, as a share of the upper edge, which is at least 500 of the picture's 860
 * points long. */
#define DIGIT_WIDTH (9.0 / 500)

static const AppCurvePoint *point(const App *app, guint i)
{
    return &g_array_index(app->curve.points, AppCurvePoint, i);
}

/* The time at which this many epochs were done, from the points before and after. */
static double time_of_epoch(const App *app, double epoch)
{
    AppCurvePoint before = { 0 };

    for (guint i = 0; i < app->curve.points->len; i++) {
        const AppCurvePoint *after = point(app, i);

        if (after->epoch >= epoch && after->epoch > before.epoch)
            return before.seconds + (after->seconds - before.seconds) * (epoch - before.epoch) /
                                        (after->epoch - before.epoch);
        before = *after;
    }
    return before.seconds;
}

/* Numbers as gnuplot reads them, whatever the locale; it leaves out what is "nan". */
static void append_number(GString *script, double value)
{
    char text[G_ASCII_DTOSTR_BUF_SIZE];

    g_string_append(script,
                    isfinite(value) ? g_ascii_formatd(text, sizeof text, "%.6g", value) : "nan");
    g_string_append_c(script, ' ');
}

static void append_points(GString *script, const App *app)
{
    g_string_append(script, "$curve << end\n");
    for (guint i = 0; i < app->curve.points->len; i++) {
        append_number(script, point(app, i)->seconds);
        append_number(script, point(app, i)->loss);
        append_number(script, point(app, i)->metric);
        g_string_append_c(script, '\n');
    }
    g_string_append(script, "end\n");
}

static bool is_validated(const App *app)
{
    return app->validated.epochs != NULL && app->validated.epochs->len > 0;
}

static void append_validation(GString *script, const App *app)
{
    g_string_append(script, "$validation << end\n");
    for (guint i = 0; i < app->validated.epochs->len; i++) {
        const AppValidatedEpoch *epoch =
            &g_array_index(app->validated.epochs, AppValidatedEpoch, i);

        append_number(script, epoch->seconds);
        append_number(script, epoch->loss);
        g_string_append_c(script, '\n');
    }
    g_string_append(script, "end\n");
}

/* Where the mark behind this one may stand: a mark is in the middle of its number, and there is the
 * room of a digit between two. */
static double end_of_mark(const App *app, double seconds, double epoch)
{
    const int n_digits = epoch < 1 ? 1 : (int)floor(log10(epoch)) + 1;

    return seconds + (n_digits + 2) * DIGIT_WIDTH * app->seconds;
}

/* Whole epochs, as many as can be told apart. Epochs that took much shorter than others, and so
 * would stand in one another's numbers, are left out. */
static void append_epochs(GString *script, const App *app)
{
    const double last =
        app->curve.points->len > 0 ? point(app, app->curve.points->len - 1)->epoch : 0;
    const double steps[] = { 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000 };
    double step = ceil(last / EPOCH_MARKS_MOST);

    for (size_t i = 0; i < G_N_ELEMENTS(steps); i++)
        if (steps[i] >= step) {
            step = steps[i];
            break;
        }
    double begin = end_of_mark(app, 0, 0);

    g_string_append(script, "set x2tics nomirror offset 0,-0.4 ('0' 0");
    for (double epoch = step; epoch <= last + 1e-9; epoch += step) {
        const double seconds = time_of_epoch(app, epoch);

        if (seconds < begin)
            continue;
        g_string_append_printf(script, ", '%.0f' ", epoch);
        append_number(script, seconds);
        begin = end_of_mark(app, seconds, epoch);
    }
    g_string_append(script, ")\n");
}

/* (transfer full) */
static char *make_script(const App *app)
{
    GString *script = g_string_new(NULL);
    g_autofree char *run = app_run_text(app);
    const char *metric = app->program->metric;

    append_points(script, app);
    if (is_validated(app))
        append_validation(script, app);
    g_string_append_printf(
        script,
        "set encoding utf8\n"
        "set terminal svg noenhanced size 860,480 font 'sans,14' background 'white'\n"
        "set title \"%s: %s\" font ',16' offset 0,-0.3\n"
        "set border 11 lc rgb '#888888'\nset tics out textcolor rgb '#333333'\n"
        "set grid xtics ytics lt 1 lc rgb '#e4e4e4'\n"
        "set xlabel 'seconds'\nset x2label 'epochs' offset 0,-0.9\n"
        "set ylabel '%s' textcolor rgb '#1f5fa8'\n"
        "set xtics nomirror\nset ytics nomirror\nset key center right reverse Left samplen 2\n",
        app->program->name, run, is_validated(app) ? "loss" : "training loss");
    append_epochs(script, app);
    g_string_append(script, "set xrange [0:");
    append_number(script, app->seconds);
    g_string_append(script, "]\nset x2range [0:");
    append_number(script, app->seconds);
    g_string_append(script, "]\n");
    if (metric != NULL)
        g_string_append_printf(
            script, "set y2label 'training %s' textcolor rgb '#c05a11'\nset y2tics\n", metric);
    if (isfinite(app->target_loss)) {
        g_string_append(script, "set arrow from graph 0,first ");
        append_number(script, app->target_loss);
        g_string_append(script, " to graph 1,first ");
        append_number(script, app->target_loss);
        g_string_append(script, " nohead dt 2 lc rgb '#1f5fa8'\n");
    }
    g_string_append_printf(script,
                           "plot $curve using 1:2 with lines lw 2.5 lc rgb '#1f5fa8' title '%s'",
                           is_validated(app) ? "training loss" : "loss");
    if (metric != NULL)
        g_string_append_printf(script,
                               ", '' using 1:3 axes x1y2 with lines lw 2.5 lc rgb '#e07b26' "
                               "title '%s'",
                               metric);
    if (is_validated(app))
        g_string_append(script, ", $validation using 1:2 with linespoints lw 1.5 pt 7 ps 0.5 "
                                "lc rgb '#2a8a4a' title 'validation loss'");
    g_string_append_c(script, '\n');
    return g_string_free(script, FALSE);
}

bool app_plot(const App *app, GError **error)
{
    g_autofree char *script = make_script(app);

    return app_gnuplot_draw(script, app->plot, error);
}
