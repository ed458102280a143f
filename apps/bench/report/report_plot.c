/* Results as a picture: how much of its limit each case reaches, and how much it should reach. */
#include <math.h>

#include "apps/bench/bench.h"
#include "apps/bench/report/report.h"
#include "apps/kit/report/app_gnuplot.h"

/* Of a ratio, whether of times or of rates. */
static double share(const BenchResult *result, double ratio)
{
    return bench_lower_is_better(result->what->unit) ? 1 / ratio : ratio;
}

/* A data block for gnuplot: position, share, text; those without a ratio are left out. */
static void append_data(GString *script, const char *name, const GPtrArray *drawn, bool goals)
{
    g_string_append_printf(script, "%s << end\n", name);
    for (guint i = 0; i < drawn->len; i++) {
        const BenchResult *result = g_ptr_array_index(drawn, i);
        const double ratio = goals ? result->what->goal.ratio : result->ratio;

        if (ratio > 0)
            g_string_append_printf(script, "%u %g %.2f %s\n", i, share(result, ratio),
                                   share(result, ratio), result->what->name);
    }
    g_string_append(script, "end\n");
}

/* (transfer full) */
static char *plot_script(const GPtrArray *drawn)
{
    GString *script = g_string_new(NULL);
    double longest = 1;

    for (guint i = 0; i < drawn->len; i++) {
        const BenchResult *result = g_ptr_array_index(drawn, i);

        longest = fmax(longest, share(result, result->ratio));
        if (result->what->goal.ratio > 0)
            longest = fmax(longest, share(result, result->what->goal.ratio));
    }
    append_data(script, "$cases", drawn, false);
    append_data(script, "$goals", drawn, true);
    g_string_append_printf(script,
                           "set terminal svg size 900,%u font 'sans,13' background 'white'\n"
                           "set title 'Share of the limit measured beside it'\n"
                           "set xrange [0:%g]\nset yrange [%u-0.3:-0.7]\n"
                           "set style fill solid 0.8\nset key outside bottom center horizontal\n"
                           "set grid xtics\nset arrow from 1,graph 0 to 1,graph 1 nohead dt 2\n",
                           120 + 30 * drawn->len, longest * 1.1, drawn->len);
    g_string_append(script,
                    "plot $cases using (0):1:(0):2:($1-0.35):($1+0.35):ytic(4) with boxxyerror "
                    "lc rgb '#3b6ea5' title 'reached', "
                    "'' using 2:1:3 with labels offset 3,0 notitle, "
                    "$goals using 2:1:($2):($2):($1-0.42):($1+0.42) with xyerrorbars pt 0 lw 3 "
                    "lc rgb '#c0392b' title 'goal'\n");
    return g_string_free(script, FALSE);
}

bool report_plot(const char *path, const BenchResult *results, size_t n, GError **error)
{
    g_autoptr(GPtrArray) drawn = g_ptr_array_new();

    for (size_t i = 0; i < n; i++)
        if (results[i].ratio > 0)
            g_ptr_array_add(drawn, (gpointer)(uintptr_t)&results[i]);
    if (drawn->len == 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "--plot %s: none of the cases has a limit to draw it against", path);
        return false;
    }
    g_autofree char *script = plot_script(drawn);
    return app_gnuplot_draw(script, path, error);
}
