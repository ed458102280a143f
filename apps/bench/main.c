/* rubato-bench: runs the cases and prints them as they are done. */
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"
#include "apps/bench/report/report.h"
#include "apps/bench/run/process.h"
#include "apps/kit/report/app_file.h"
#include "apps/kit/report/app_output.h"

enum { EXIT_USAGE = 2, DEFAULT_REPEAT = 7, MAX_REPEAT = 1000 };

typedef struct {
    char **patterns;
    int repeat;
    gboolean quick, list, markdown;
    char *json, *plot;
} Flags;

static bool is_chosen(const Flags *flags, const BenchCase *what)
{
    if (flags->patterns == NULL)
        return !what->on_demand;
    for (char **pattern = flags->patterns; *pattern != NULL; pattern++)
        if (g_pattern_match_simple(*pattern, what->name))
            return true;
    return false;
}

static bool check_pattern(const char *pattern, GError **error)
{
    const BenchCase *what;

    for (size_t i = 0; (what = bench_case(i)) != NULL; i++)
        if (g_pattern_match_simple(pattern, what->name))
            return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND, "no case %s; --list names them",
                pattern);
    return false;
}

static bool parse(Flags *flags, int *argc, char ***argv, GError **error)
{
    const GOptionEntry entries[] = {
        { "case", 'c', 0, G_OPTION_ARG_STRING_ARRAY, &flags->patterns,
          "Only cases like this (* and ? for anything); may be given again", "PATTERN" },
        { "repeat", 'r', 0, G_OPTION_ARG_INT, &flags->repeat, "Samples of each case (default 7)",
          "N" },
        { "quick", 'q', 0, G_OPTION_ARG_NONE, &flags->quick,
          "Short samples of small tables: do the cases work?", NULL },
        { "list", 'l', 0, G_OPTION_ARG_NONE, &flags->list,
          "List the cases, their limits and goals, and end", NULL },
        { "markdown", 'm', 0, G_OPTION_ARG_NONE, &flags->markdown,
          "Print the table of docs/measured.md instead of lines", NULL },
        { "json", 0, 0, G_OPTION_ARG_FILENAME, &flags->json,
          "Write the results to FILE as JSON, - for standard output", "FILE" },
        { "plot", 0, 0, G_OPTION_ARG_FILENAME, &flags->plot,
          "Draw the cases against their limits as SVG; needs gnuplot", "FILE" },
        { 0 },
    };
    g_autoptr(GOptionContext) context = g_option_context_new(NULL);

    g_option_context_set_summary(
        context, "Measures Rubato, each case beside what the machine can do without Rubato.");
    g_option_context_set_description(
        context, "The ratio is the case's median by its limit's: of times and bytes lower is\n"
                 "better, of rates higher. docs/bench-cases.md explains each case.");
    g_option_context_add_main_entries(context, entries, NULL);
    if (!g_option_context_parse(context, argc, argv, error))
        return false;
    if (*argc > 1 || flags->repeat < 1 || flags->repeat > MAX_REPEAT) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    *argc > 1 ? "what is %s? see --help" : "--repeat takes a number from 1 to 1000",
                    (*argv)[*argc - 1]);
        return false;
    }
    for (char **pattern = flags->patterns; pattern != NULL && *pattern != NULL; pattern++)
        if (!check_pattern(*pattern, error))
            return false;
    return app_file_check("--json", flags->json, error) &&
           app_file_check("--plot", flags->plot, error);
}

static void list_cases(const Flags *flags)
{
    const BenchCase *what;

    for (size_t i = 0; (what = bench_case(i)) != NULL; i++) {
        g_autofree char *goal = goal_text(what);

        if (!is_chosen(flags, what))
            continue;
        g_print("%-28s %s\n", what->name, what->what);
        if (what->limit != NULL)
            g_print("%-28s limit: %s\n", "", what->limit);
        if (*goal != '\0')
            g_print("%-28s goal: %s\n", "", goal);
    }
}

static bool run(const Flags *flags, GArray *results, GError **error)
{
    const BenchOptions options = { .repeat = (unsigned)flags->repeat, .quick = flags->quick };
    const bool prints_lines = g_strcmp0(flags->json, "-") != 0 && !flags->markdown;
    const BenchCase *what;

#ifndef __OPTIMIZE__
    g_printerr("rubato-bench: this build is not optimised; the figures say nothing\n");
#endif
    if (prints_lines)
        report_header();
    for (size_t i = 0; (what = bench_case(i)) != NULL; i++) {
        BenchResult result;

        if (!is_chosen(flags, what))
            continue;
        if (!bench_measure(what, &options, &result, error)) {
            g_prefix_error(error, "%s: ", what->name);
            return false;
        }
        result_set_share(&result, (const BenchResult *)(const void *)results->data, results->len);
        g_array_append_val(results, result);
        if (prints_lines)
            report_line(&result);
    }
    return true;
}

static bool report(const Flags *flags, const GArray *results, GError **error)
{
    const BenchResult *all = (const BenchResult *)(const void *)results->data;

    if (flags->markdown)
        report_markdown(all, results->len);
    return (flags->json == NULL || report_json(flags->json, all, results->len, error)) &&
           (flags->plot == NULL || report_plot(flags->plot, all, results->len, error));
}

/* ---- the other ends ---- */

static const BenchCase *case_named(const char *name)
{
    const BenchCase *what;

    for (size_t i = 0; (what = bench_case(i)) != NULL; i++)
        if (strcmp(what->name, name) == 0)
            return what;
    return NULL;
}

static int be_peer(const BenchCase *what, char **argv)
{
    const BenchOptions options = { .repeat = (unsigned)atoi(argv[3]),
                                   .quick = strcmp(argv[4], "quick") == 0 };

    return bench_peer(what, &options, argv[5], (uint32_t)atoi(argv[6]));
}

/* Whether this process is the other end of another process's case; then it ends when that one
 * does. */
static bool is_other_end(int argc, char **argv, int *status)
{
    const bool is_peer = argc == 7 && strcmp(argv[1], "--peer") == 0;
    const bool is_zmq = argc == 2 && strcmp(argv[1], "--serve-zmq") == 0;
    const bool is_shm = argc == 4 && strcmp(argv[1], "--serve-shm") == 0;
    const bool is_tcp = argc == 4 && strcmp(argv[1], "--serve-tcp") == 0;

    if (!is_peer && !is_zmq && !is_shm && !is_tcp)
        return false;
    process_end_with_parent();

    const BenchCase *what = is_zmq ? NULL : case_named(argv[2]);
    const uint64_t n_rows = is_shm || is_tcp ? g_ascii_strtoull(argv[3], NULL, 10) : 0;
    if (is_zmq)
        *status = raw_zmq_serve();
    else if (what == NULL)
        *status = EXIT_USAGE;
    else
        *status = is_peer  ? be_peer(what, argv)
                  : is_shm ? raw_shm_serve(what, n_rows)
                           : raw_tcp_serve(what, n_rows);
    return true;
}

int main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(GArray) results = g_array_new(FALSE, FALSE, sizeof(BenchResult));
    Flags flags = { .repeat = DEFAULT_REPEAT };
    int status = EXIT_SUCCESS;

    if (is_other_end(argc, argv, &status))
        return status;
    app_output_check_at_exit();
    setlocale(LC_CTYPE, ""); /* how text is encoded */
    if (!parse(&flags, &argc, &argv, &error))
        status = EXIT_USAGE;
    else if (flags.list)
        list_cases(&flags);
    else if (!run(&flags, results, &error) || !report(&flags, results, &error))
        status = EXIT_FAILURE;
    if (error != NULL)
        g_printerr("rubato-bench: %s\n", error->message);
    g_strfreev(flags.patterns);
    g_free(flags.json);
    g_free(flags.plot);
    return status;
}
