/* `rubato check`: says what a cluster file would run where, or, without one, what a program would
 * do here, as text or as JSON.
 *
 * Thread: main's. */
#include "apps/rubato/check.h"

#include <json-glib/json-glib.h>
#include <rubato/launcher.h>
#include <stdlib.h>

#include "apps/kit/model/app_json.h"
#include "apps/rubato/usage.h"

static const char SUMMARY[] =
    "With FILE: reads the cluster file, resolves its hosts, tries its ports that are on this\n"
    "machine, and prints what would run where. Says what is wrong, with file and line.\n"
    "\n"
    "Without FILE: prints what a program would do here: what has started this process, which\n"
    "node it would be, with which address and transport, whether cores, memory and limits are\n"
    "enough, and what to do about what is missing.";

static const char DESCRIPTION[] =
    "The exit code is 0 if nothing would fail, 1 if something would, and 2 for a wrong command\n"
    "line.\n"
    "\n"
    "Example: srun -N 4 rubato check";

static const char *const STATES[] = {
    [RUBATO_FINDING_FINE] = "fine",
    [RUBATO_FINDING_SHORT] = "short",
    [RUBATO_FINDING_FAILS] = "fails",
};

static unsigned count(const GPtrArray *findings, RubatoFindingState state)
{
    unsigned n = 0;

    for (guint i = 0; i < findings->len; i++) {
        const RubatoFinding *const finding = g_ptr_array_index(findings, i);
        n += finding->state == state;
    }
    return n;
}

static void print_text(const GPtrArray *findings)
{
    const unsigned n_fail = count(findings, RUBATO_FINDING_FAILS);
    const unsigned n_short = count(findings, RUBATO_FINDING_SHORT);

    for (guint i = 0; i < findings->len; i++) {
        const RubatoFinding *const finding = g_ptr_array_index(findings, i);

        g_print("%-14s %s\n", finding->name, finding->text);
        if (finding->advice != NULL)
            g_print("%-14s %s: %s\n", "", STATES[finding->state], finding->advice);
    }
    if (n_fail + n_short == 0)
        g_print("\nnothing is missing\n");
    else
        g_print("\n%u would fail, %u short\n", n_fail, n_short);
}

static void print_json(const GPtrArray *findings)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();
    g_autoptr(JsonGenerator) generator = json_generator_new();

    json_builder_begin_object(builder);
    app_json_add_int(builder, "fails", count(findings, RUBATO_FINDING_FAILS));
    app_json_add_int(builder, "short", count(findings, RUBATO_FINDING_SHORT));
    json_builder_set_member_name(builder, "findings");
    json_builder_begin_array(builder);
    for (guint i = 0; i < findings->len; i++) {
        const RubatoFinding *const finding = g_ptr_array_index(findings, i);

        json_builder_begin_object(builder);
        app_json_add_text(builder, "name", finding->name);
        app_json_add_text(builder, "state", STATES[finding->state]);
        app_json_add_text(builder, "text", finding->text);
        app_json_add_text(builder, "advice", finding->advice);
        json_builder_end_object(builder);
    }
    json_builder_end_array(builder);
    json_builder_end_object(builder);
    g_autoptr(JsonNode) root = json_builder_get_root(builder);
    json_generator_set_root(generator, root);
    g_autofree char *text = json_generator_to_data(generator, NULL);
    g_print("%s\n", text);
}

static int check_here(bool json)
{
    g_autoptr(GPtrArray) findings = rubato_launch_check_here();

    if (json)
        print_json(findings);
    else
        print_text(findings);
    return count(findings, RUBATO_FINDING_FAILS) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int check_file(const char *path)
{
    g_autoptr(GString) report = g_string_new(NULL);
    g_autoptr(GError) error = NULL;
    const bool fine = rubato_launch_check(path, report, &error);

    g_print("%s", report->str); /* the table comes before its faults */
    return fine ? EXIT_SUCCESS : fail(error);
}

GOptionContext *check_new_context(gboolean *json)
{
    const GOptionEntry entries[] = { { "json", 0, 0, G_OPTION_ARG_NONE, json,
                                       "Without FILE: print one JSON object", NULL },
                                     G_OPTION_ENTRY_NULL };

    return usage_new_context("[FILE]", entries, SUMMARY, DESCRIPTION);
}

int check_command(int argc, char **argv)
{
    gboolean json = FALSE;
    g_autoptr(GOptionContext) context = check_new_context(&json);
    g_autoptr(GError) error = NULL;

    if (!g_option_context_parse(context, &argc, &argv, &error))
        return fail_usage("check", error->message);
    if (argc > 2)
        return fail_usage("check", "takes one cluster file: rubato check FILE");
    if (argc == 2 && json)
        return fail_usage("check", "--json is for rubato check without FILE");
    return argc == 2 ? check_file(argv[1]) : check_here(json);
}
