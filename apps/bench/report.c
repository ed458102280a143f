/* Results for eyes and for machines. */
#include <json-glib/json-glib.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "apps/bench/bench.h"

const char *report_unit(BenchUnit unit)
{
    static const char *const names[] = { [BENCH_SECONDS] = "s",
                                         [BENCH_PER_SECOND] = "1/s",
                                         [BENCH_KEYS_PER_SECOND] = "keys/s",
                                         [BENCH_BYTES_PER_SECOND] = "B/s" };

    return names[unit];
}

/* "123 ns", "1.11 M/s", "462 M keys/s": three figures and the unit. */
static void format(BenchUnit unit, double value, char *text, size_t size)
{
    static const char *const small[] = { "s", "ms", "us", "ns" };
    static const char *const large[] = { "", "k", "M", "G" };
    size_t step = 0;

    if (unit == BENCH_SECONDS)
        for (; step < 3 && value < 1; step++)
            value *= 1000;
    else
        for (; step < 3 && value >= 1000; step++)
            value /= 1000;
    g_snprintf(text, (gulong)size, "%.*f %s%s%s",
               value < 10    ? 2
               : value < 100 ? 1
                             : 0,
               value, unit == BENCH_SECONDS ? small[step] : large[step],
               unit == BENCH_KEYS_PER_SECOND ? " " : "",
               unit == BENCH_SECONDS      ? ""
               : unit == BENCH_PER_SECOND ? "/s"
                                          : report_unit(unit));
}

void report_header(void)
{
    g_print("%-30s %12s %12s %12s   %12s %8s\n", "case", "min", "median", "max", "limit", "ratio");
}

void report_line(const BenchResult *result)
{
    const BenchUnit unit = result->what->unit;
    char min[32], median[32], max[32], limit[32], p99[32];

    format(unit, result->own.min, min, sizeof min);
    format(unit, result->own.median, median, sizeof median);
    format(unit, result->own.max, max, sizeof max);
    format(unit, result->limit.median, limit, sizeof limit);
    g_print("%-30s %12s %12s %12s   %12s %8.2f", result->what->name, min, median, max, limit,
            result->ratio);
    if (result->own.p99 > 0) {
        format(unit, result->own.p99, p99, sizeof p99);
        g_print("   p99 %s", p99);
    }
    g_print("\n");
}

static void add_number(JsonBuilder *json, const char *name, double value)
{
    json_builder_set_member_name(json, name);
    json_builder_add_double_value(json, value);
}

static void add_string(JsonBuilder *json, const char *name, const char *value)
{
    json_builder_set_member_name(json, name);
    json_builder_add_string_value(json, value);
}

static char *processor(void)
{
    g_autofree char *text = NULL;
    const char *found;

    if (g_file_get_contents("/proc/cpuinfo", &text, NULL, NULL) &&
        (found = strstr(text, "model name")) != NULL && (found = strchr(found, ':')) != NULL)
        return g_strstrip(g_strndup(found + 1, strcspn(found + 1, "\n")));
    return g_strdup("unknown");
}

static void add_machine(JsonBuilder *json)
{
    g_autofree char *name = processor();
    struct utsname system;

    json_builder_set_member_name(json, "machine");
    json_builder_begin_object(json);
    add_string(json, "processor", name);
    add_number(json, "processors", (double)sysconf(_SC_NPROCESSORS_ONLN));
    if (uname(&system) == 0) {
        add_string(json, "architecture", system.machine);
        add_string(json, "kernel", system.release);
    }
    json_builder_end_object(json);
    json_builder_set_member_name(json, "build");
    json_builder_begin_object(json);
    add_string(json, "compiler", __VERSION__);
#ifdef __OPTIMIZE__
    add_string(json, "kind", "optimised");
#else
    add_string(json, "kind", "not optimised");
#endif
    json_builder_end_object(json);
}

static void add_case(JsonBuilder *json, const BenchResult *result)
{
    json_builder_begin_object(json);
    add_string(json, "name", result->what->name);
    add_string(json, "what", result->what->what);
    add_string(json, "limit", result->what->limit);
    add_string(json, "unit", report_unit(result->what->unit));
    add_number(json, "min", result->own.min);
    add_number(json, "median", result->own.median);
    add_number(json, "max", result->own.max);
    if (result->own.p99 > 0)
        add_number(json, "p99", result->own.p99);
    add_number(json, "limit_min", result->limit.min);
    add_number(json, "limit_median", result->limit.median);
    add_number(json, "limit_max", result->limit.max);
    add_number(json, "ratio", result->ratio);
    json_builder_end_object(json);
}

bool report_json(const char *path, const BenchResult *results, size_t n, GError **error)
{
    g_autoptr(JsonBuilder) json = json_builder_new();
    g_autoptr(JsonGenerator) generator = json_generator_new();
    g_autoptr(JsonNode) root = NULL;
    g_autofree char *text = NULL;

    json_builder_begin_object(json);
    add_machine(json);
    json_builder_set_member_name(json, "cases");
    json_builder_begin_array(json);
    for (size_t i = 0; i < n; i++)
        add_case(json, &results[i]);
    json_builder_end_array(json);
    json_builder_end_object(json);
    root = json_builder_get_root(json);
    json_generator_set_root(generator, root);
    json_generator_set_pretty(generator, TRUE);
    if (strcmp(path, "-") != 0)
        return json_generator_to_file(generator, path, error);
    text = json_generator_to_data(generator, NULL);
    g_print("%s\n", text);
    return true;
}

/* How much of its limit a case reaches, whether that is a time or a rate. */
static double share(const BenchResult *result)
{
    return result->what->unit == BENCH_SECONDS ? 1 / result->ratio : result->ratio;
}

bool report_plot(const char *path, const BenchResult *results, size_t n, GError **error)
{
    g_autofree char *program = g_find_program_in_path("gnuplot");
    g_autoptr(GString) script = g_string_new(NULL);
    double longest = 1;
    FILE *pipe;

    if (program == NULL || strchr(path, '\'') != NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO,
                    program == NULL ? "--plot needs gnuplot: install the package gnuplot-nox"
                                    : "--plot %s: choose a name without quotes",
                    path);
        return false;
    }
    for (size_t i = 0; i < n; i++)
        longest = MAX(longest, share(&results[i]));
    g_string_append_printf(script,
                           "set terminal svg size 900,%zu font 'sans,13' background 'white'\n"
                           "set output '%s'\nset title 'Share of the limit measured beside it'\n"
                           "set xrange [0:%g]\nset yrange [%g:-0.7]\n"
                           "set style fill solid 0.8\nset boxwidth 0.7\nunset key\n"
                           "set grid xtics\nset arrow from 1,graph 0 to 1,graph 1 nohead dt 2\n"
                           "set ytics ()\n",
                           100 + 34 * n, path, longest * 1.1, (double)n - 0.3);
    for (size_t i = 0; i < n; i++)
        g_string_append_printf(script, "set ytics add ('%s' %zu)\n", results[i].what->name, i);
    g_string_append(script, "plot '-' using (0):1:(0):2:($1-0.35):($1+0.35) with boxxyerror lc rgb "
                            "'#3b6ea5', '-' using 2:1:3 with labels offset 3,0\n");
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < n; i++)
            g_string_append_printf(script, "%zu %g %.2f\n", i, share(&results[i]),
                                   share(&results[i]));
        g_string_append(script, "e\n");
    }
    pipe = popen(program, "w");
    if (pipe == NULL || fputs(script->str, pipe) < 0 || pclose(pipe) != 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "gnuplot could not draw %s", path);
        return false;
    }
    return true;
}
