/* rubato-bench: runs the cases and prints them as they are done. */
#include <stdlib.h>
#include <string.h>

#include "apps/bench/bench.h"

enum { EXIT_USAGE = 2 };

typedef struct {
    char **names;
    int repeat;
    gboolean quick, list;
    char *json, *plot;
} Flags;

static bool is_known(const char *name)
{
    for (const BenchCase *what = bench_cases; what->name != NULL; what++)
        if (strcmp(what->name, name) == 0)
            return true;
    return false;
}

static bool is_chosen(const Flags *flags, const BenchCase *what)
{
    return flags->names == NULL || g_strv_contains((const char *const *)flags->names, what->name);
}

static bool parse(Flags *flags, int *argc, char ***argv, GError **error)
{
    const GOptionEntry entries[] = {
        { "case", 'c', 0, G_OPTION_ARG_STRING_ARRAY, &flags->names,
          "Only this case; may be given several times", "NAME" },
        { "repeat", 'r', 0, G_OPTION_ARG_INT, &flags->repeat, "Samples of each case (7)", "N" },
        { "quick", 'q', 0, G_OPTION_ARG_NONE, &flags->quick,
          "Short samples: shows that the cases work, not how fast they are", NULL },
        { "list", 'l', 0, G_OPTION_ARG_NONE, &flags->list, "Lists the cases and ends", NULL },
        { "json", 0, 0, G_OPTION_ARG_FILENAME, &flags->json,
          "Write the results to FILE as JSON, - for standard output", "FILE" },
        { "plot", 0, 0, G_OPTION_ARG_FILENAME, &flags->plot,
          "Draw the cases against their limits, by gnuplot", "FILE.svg" },
        { 0 },
    };
    g_autoptr(GOptionContext) context = g_option_context_new(NULL);

    g_option_context_set_summary(
        context, "Measures Rubato, each case beside what the machine can do by bare means.");
    g_option_context_set_description(
        context, "The ratio is the case's median by its limit's: for times lower is better, for\n"
                 "rates higher. docs/performance.md explains each case.");
    g_option_context_add_main_entries(context, entries, NULL);
    if (!g_option_context_parse(context, argc, argv, error))
        return false;
    if (*argc > 1 || flags->repeat < 1 || flags->repeat > 1000) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    *argc > 1 ? "what is %s? see --help" : "--repeat takes a number from 1 to 1000",
                    (*argv)[*argc - 1]);
        return false;
    }
    for (char **name = flags->names; name != NULL && *name != NULL; name++)
        if (!is_known(*name)) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                        "no case %s; --list names them", *name);
            return false;
        }
    return true;
}

static void list_cases(void)
{
    for (const BenchCase *what = bench_cases; what->name != NULL; what++)
        g_print("%-30s %s; limit: %s\n", what->name, what->what, what->limit);
}

static bool run(const Flags *flags, const char *self, GArray *results, GError **error)
{
    const BenchOptions options = { .repeat = (unsigned)flags->repeat,
                                   .scale = flags->quick ? 0.02 : 1,
                                   .self = self };
    const bool json_only = g_strcmp0(flags->json, "-") == 0;

#ifndef __OPTIMIZE__
    g_printerr("rubato-bench: this build is not optimised; the figures say nothing\n");
#endif
    if (!json_only)
        report_header();
    for (const BenchCase *what = bench_cases; what->name != NULL; what++) {
        BenchResult result;

        if (!is_chosen(flags, what))
            continue;
        if (!bench_measure(what, &options, &result, error)) {
            g_prefix_error(error, "%s: ", what->name);
            return false;
        }
        g_array_append_val(results, result);
        if (!json_only)
            report_line(&result);
    }
    return true;
}

int main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(GArray) results = g_array_new(FALSE, FALSE, sizeof(BenchResult));
    g_autofree char *self = g_file_read_link("/proc/self/exe", NULL);
    Flags flags = { .repeat = 7 };
    int status = EXIT_SUCCESS;

    if (argc == 2 && strcmp(argv[1], "--echo") == 0)
        return raw_zmq_echo();
    if (argc == 3 && strcmp(argv[1], "--peer") == 0)
        return bench_peer(argv[2]);
    if (!parse(&flags, &argc, &argv, &error))
        status = EXIT_USAGE;
    else if (flags.list)
        list_cases();
    else if (!run(&flags, self, results, &error) ||
             (flags.json != NULL && !report_json(flags.json, (BenchResult *)(void *)results->data,
                                                 results->len, &error)) ||
             (flags.plot != NULL &&
              !report_plot(flags.plot, (BenchResult *)(void *)results->data, results->len, &error)))
        status = EXIT_FAILURE;
    if (error != NULL)
        g_printerr("rubato-bench: %s\n", error->message);
    g_strfreev(flags.names);
    g_free(flags.json);
    g_free(flags.plot);
    return status;
}
