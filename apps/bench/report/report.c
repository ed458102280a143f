/* Results as text: lines of at most a hundred columns, and a table for the documentation. */
#include <math.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "apps/bench/bench.h"
#include "apps/bench/report/report.h"

const char *report_unit(BenchUnit unit)
{
    static const char *const names[] = {
        [BENCH_UNIT_SECONDS] = "s",
        [BENCH_UNIT_PER_SECOND] = "1/s",
        [BENCH_UNIT_KEYS_PER_SECOND] = "keys/s",
        [BENCH_UNIT_BYTES_PER_SECOND] = "B/s",
        [BENCH_UNIT_BYTES] = "bytes",
        [BENCH_UNIT_MESSAGES] = "messages",
    };

    return names[unit];
}

void report_format(BenchUnit unit, double value, char *text)
{
    static const char *const small[] = { "s", "ms", "us", "ns" };
    static const char *const large[] = { "", " k", " M", " G" };
    const char *prefix;
    size_t step = 0;

    if (unit == BENCH_UNIT_SECONDS) {
        for (; step < 3 && value < 1; step++)
            value *= 1000;
        prefix = small[step];
    } else {
        for (; step < 3 && fabs(value) >= 1000; step++)
            value /= 1000;
        prefix = large[step];
    }
    g_snprintf(text, REPORT_NUMBER_BYTES, "%.*f%s%s",
               fabs(value) < 9.995   ? 2
               : fabs(value) < 99.95 ? 1
                                     : 0,
               value, unit == BENCH_UNIT_SECONDS ? " " : "", prefix);
}

void report_format_with_unit(BenchUnit unit, double value, char *text)
{
    size_t length;

    report_format(unit, value, text);
    length = strlen(text);
    if (unit != BENCH_UNIT_SECONDS)
        g_snprintf(text + length, (gulong)(REPORT_NUMBER_BYTES - length), "%s%s",
                   unit != BENCH_UNIT_KEYS_PER_SECOND && g_ascii_isalpha(text[length - 1]) ? ""
                                                                                           : " ",
                   unit == BENCH_UNIT_PER_SECOND ? "/s" : report_unit(unit));
}

/* ---- lines ---- */

void report_header(void)
{
    g_print("%-35s %23s %23s\n%-28s %-8s", "", "Rubato       ", "limit       ", "case", "unit");
    for (int i = 0; i < 2; i++)
        g_print("%8s%8s%8s", "min", "median", "max");
    g_print("%6s %s\n", "ratio", "goal");
}

static void print_figures(BenchUnit unit, const BenchFigures *figures)
{
    const double values[] = { figures->min, figures->median, figures->max };
    char text[REPORT_NUMBER_BYTES];

    for (size_t i = 0; i < G_N_ELEMENTS(values); i++) {
        report_format(unit, values[i], text);
        g_print("%8s", text);
    }
}

static const char *verdict(const BenchResult *result)
{
    if (!goal_is_judged(result))
        return "";
    return goal_is_met(result) ? "met" : "missed";
}

/* The text that does not fit into the columns. (transfer full) */
static char *remarks(const BenchResult *result)
{
    g_autoptr(GString) text = g_string_new(NULL);
    char number[REPORT_NUMBER_BYTES];

    if (result->own.p99 > 0) {
        report_format(BENCH_UNIT_SECONDS, result->own.p99, number);
        g_string_append_printf(text, "; p99 %s", number);
    }
    for (size_t i = 0; i < result->details.n; i++) {
        report_format(BENCH_UNIT_MESSAGES, result->details.at[i].value, number);
        g_string_append_printf(text, "%s%s %s", i == 0 ? "; " : ", ", result->details.at[i].name,
                               number);
    }
    if (goal_is_judged(result) && !goal_is_met(result)) {
        g_autofree char *goal = goal_text(result->what);

        g_string_append_printf(text, "; goal: %s", goal);
    }
    return g_strdup(text->len > 0 ? text->str + 2 : "");
}

void report_line(const BenchResult *result)
{
    const BenchCase *what = result->what;
    g_autofree char *more = remarks(result);

    g_print("%-28s %-8s", what->name, report_unit(what->unit));
    print_figures(what->unit, &result->own);
    if (result->ratio > 0) {
        print_figures(what->unit, &result->limit);
        g_print("%6.2f", result->ratio);
    } else {
        g_print("%24s%6s", "", "");
    }
    g_print(" %s\n", verdict(result));
    if (result->share.own > 0)
        g_print("    %.2f of %s, the limit %.2f of its own\n", result->share.own, what->beside,
                result->share.limit);
    if (*more != '\0')
        g_print("    %s\n", more);
}

/* ---- the machine ---- */

/* The text behind "model name" in /proc/cpuinfo. (transfer full) */
static char *processor(void)
{
    g_autofree char *text = NULL;
    const char *found;

    if (g_file_get_contents("/proc/cpuinfo", &text, NULL, NULL) &&
        (found = strstr(text, "model name")) != NULL && (found = strchr(found, ':')) != NULL)
        return g_strstrip(g_strndup(found + 1, strcspn(found + 1, "\n")));
    return g_strdup("unknown processor");
}

char *report_machine(void)
{
    g_autofree char *name = processor();
    struct utsname system = { 0 };
#ifdef __OPTIMIZE__
    const char *kind = "optimised";
#else
    const char *kind = "not optimised";
#endif

    uname(&system);
    return g_strdup_printf("%s, %ld processors, %s %s, compiler %s, %s", name,
                           sysconf(_SC_NPROCESSORS_ONLN), system.sysname, system.release,
                           __VERSION__, kind);
}

/* ---- the table ---- */

static void print_row(const BenchResult *result)
{
    const BenchCase *what = result->what;
    g_autofree char *goal = goal_text(what);
    char median[REPORT_NUMBER_BYTES], limit[REPORT_NUMBER_BYTES] = "",
                                      p99[REPORT_NUMBER_BYTES] = "";
    char ratio[REPORT_NUMBER_BYTES] = "";

    report_format_with_unit(what->unit, result->own.median, median);
    if (result->own.p99 > 0)
        report_format(BENCH_UNIT_SECONDS, result->own.p99, p99);
    if (result->ratio > 0) {
        report_format_with_unit(what->unit, result->limit.median, limit);
        g_snprintf(ratio, sizeof ratio, "%.2f", result->ratio);
    }
    g_print("| `%s` | %s | %s | %s | %s | %s | %s |\n", what->name, median, p99, limit, ratio, goal,
            verdict(result));
}

void report_markdown(const BenchResult *results, size_t n)
{
    g_autofree char *machine = report_machine();

    g_print("Medians of one run. %s.\n\n", machine);
    g_print(
        "| case | Rubato | p99 | limit | ratio | goal | |\n|---|---:|---:|---:|---:|---|---|\n");
    for (size_t i = 0; i < n; i++)
        print_row(&results[i]);
}
