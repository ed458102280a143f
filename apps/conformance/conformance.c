/* rubato-conformance: runs the suites of the testing kit over models, storages and update rules,
 * the built-in ones and those of plug-in files, and says what holds.
 *
 * Thread: main's, and there is no other: the suite of storages needs that. */
#include <errno.h>
#include <json-glib/json-glib.h>
#include <locale.h>
#include <rubato/error.h>
#include <rubato/plugin.h>
#include <stdlib.h>
#include <string.h>

#include "apps/conformance/suites.h"
#include "apps/kit/app.h"
#include "apps/kit/model/app_json.h"
#include "apps/kit/report/app_file.h"
#include "apps/kit/report/app_output.h"

#define PROGRAM "rubato-conformance"
#define EXIT_USAGE 2
#define DEFAULT_SEEDS 300
#define NOT_GIVEN (-1)

static const char SUMMARY[] =
    "Runs the conformance suites over consistency models, storages and update rules, and says\n"
    "what holds, in a line for each. Below a line that says that something does not hold is a\n"
    "story of how it fails, as short as it could be made. Without names it takes all that are\n"
    "registered.";

static const char DESCRIPTION[] =
    "The exit code is 0 where everything holds, 1 where something does not, and 2 for a wrong\n"
    "command line.\n"
    "\n"
    "Example: rubato-conformance --plugin ./quorum.so quorum";

typedef struct {
    char **names[SUITE_N_KINDS]; /* NULL: none were given */
    char **plugins;
    gint64 seeds, seed;
    gboolean lists;
    char *json;
} Flags;

static void flags_clear(Flags *flags)
{
    for (size_t kind = 0; kind < SUITE_N_KINDS; kind++)
        g_strfreev(flags->names[kind]);
    g_strfreev(flags->plugins);
    g_free(flags->json);
}

/* ---- what there is ---- */

static bool check_name(const SuiteKind *kind, const char *name, GError **error)
{
    g_autoptr(GString) known = g_string_new(NULL);

    for (size_t i = 0; kind->name_at(i) != NULL; i++) {
        if (strcmp(kind->name_at(i), name) == 0)
            return true;
        g_string_append_printf(known, "%s%s", i == 0 ? "" : ", ", kind->name_at(i));
    }
    return app_refuse(error, "there is no %s \"%s\"; known are %s", kind->name, name, known->str);
}

static bool check_flags(const Flags *flags, GError **error)
{
    if (flags->seeds < 1 || flags->seeds > G_MAXUINT32)
        return app_refuse(error, "--seeds: expected a number from 1 to %u, found %" G_GINT64_FORMAT,
                          G_MAXUINT32, flags->seeds);
    if (flags->seed < NOT_GIVEN)
        return app_refuse(error, "--seed: expected a number from 0, found %" G_GINT64_FORMAT,
                          flags->seed);
    for (size_t kind = 0; kind < SUITE_N_KINDS; kind++)
        for (char **name = flags->names[kind]; name != NULL && *name != NULL; name++)
            if (!check_name(&suite_kinds[kind], *name, error))
                return false;
    return app_file_check("--json", flags->json, error);
}

/* The names of a kind that are to be looked at. (transfer container) */
static GPtrArray *list_names(const Flags *flags, size_t kind)
{
    GPtrArray *names = g_ptr_array_new();
    bool takes_all = true;

    for (size_t i = 0; i < SUITE_N_KINDS; i++)
        takes_all &= flags->names[i] == NULL;
    for (char **name = flags->names[kind]; name != NULL && *name != NULL; name++)
        g_ptr_array_add(names, *name);
    for (size_t i = 0; takes_all && suite_kinds[kind].name_at(i) != NULL; i++)
        g_ptr_array_add(names, (gpointer)(uintptr_t)suite_kinds[kind].name_at(i));
    return names;
}

/* ---- what comes out ---- */

static void say(bool to_error, const char *text)
{
    if (to_error)
        g_printerr("%s", text);
    else
        g_print("%s", text);
}

static void tell(bool to_error, const SuiteKind *kind, const char *name, const char *asked,
                 const char *story)
{
    g_autofree char *title = g_strdup_printf("%s %s", kind->name, name);
    g_autofree char *line =
        g_strdup_printf("%-24s %s (%s)\n", title, story == NULL ? "holds" : "FAILS", asked);

    say(to_error, line);
    if (story == NULL)
        return;
    g_auto(GStrv) lines = g_strsplit(story, "\n", -1);
    for (char **part = lines; *part != NULL; part++)
        if (**part != '\0') {
            g_autofree char *indented = g_strdup_printf("    %s\n", *part);

            say(to_error, indented);
        }
}

static void note(JsonBuilder *json, const SuiteKind *kind, const char *name,
                 const SuiteSeeds *seeds, const char *asked, const char *story)
{
    json_builder_begin_object(json);
    app_json_add_text(json, "kind", kind->name);
    app_json_add_text(json, "name", name);
    json_builder_set_member_name(json, "holds");
    json_builder_add_boolean_value(json, story == NULL);
    app_json_add_text(json, "asked", asked);
    app_json_add_int(json, "first_seed", seeds->first_seed);
    app_json_add_int(json, "seeds", seeds->n_seeds);
    if (story != NULL)
        app_json_add_text(json, "story", story);
    json_builder_end_object(json);
}

static bool write_json(JsonBuilder *json, const char *path, GError **error)
{
    g_autoptr(JsonGenerator) generator = json_generator_new();
    g_autoptr(JsonNode) root = json_builder_get_root(json);

    json_generator_set_root(generator, root);
    json_generator_set_pretty(generator, TRUE);
    g_autofree char *text = json_generator_to_data(generator, NULL);
    g_autofree char *whole = g_strconcat(text, "\n", NULL);
    return app_file_write_text("--json", path, whole, error);
}

/* ---- the runs ---- */

/* Whether everything holds. */
static bool run_all(const Flags *flags, JsonBuilder *json)
{
    const bool alone = flags->seed != NOT_GIVEN;
    const SuiteSeeds seeds = { .first_seed = alone ? (uint64_t)flags->seed : 0,
                               .n_seeds = alone ? 1 : (uint32_t)flags->seeds };
    const bool to_error = flags->json != NULL && strcmp(flags->json, "-") == 0;
    bool all_hold = true;

    for (size_t kind = 0; kind < SUITE_N_KINDS; kind++) {
        g_autoptr(GPtrArray) names = list_names(flags, kind);

        for (guint i = 0; i < names->len; i++) {
            const char *name = names->pdata[i];
            g_autoptr(GString) asked = g_string_new(NULL);
            g_autofree char *story = suite_kinds[kind].run(name, &seeds, asked);

            tell(to_error, &suite_kinds[kind], name, asked->str, story);
            note(json, &suite_kinds[kind], name, &seeds, asked->str, story);
            all_hold &= story == NULL;
            (void)fflush(stdout); /* a line at once; the end of the program looks for errors */
        }
    }
    return all_hold;
}

static int run(const Flags *flags)
{
    g_autoptr(JsonBuilder) json = json_builder_new();
    g_autoptr(GError) error = NULL;

    if (flags->lists) {
        for (size_t kind = 0; kind < SUITE_N_KINDS; kind++)
            for (size_t i = 0; suite_kinds[kind].name_at(i) != NULL; i++)
                g_print("%s %s\n", suite_kinds[kind].name, suite_kinds[kind].name_at(i));
        return EXIT_SUCCESS;
    }
    json_builder_begin_array(json);
    const bool all_hold = run_all(flags, json);
    json_builder_end_array(json);
    if (flags->json != NULL && !write_json(json, flags->json, &error)) {
        g_printerr(PROGRAM ": %s\n", error->message);
        return EXIT_FAILURE;
    }
    return all_hold ? EXIT_SUCCESS : EXIT_FAILURE;
}

static GOptionContext *context_new(Flags *flags)
{
    const GOptionEntry entries[] = {
        { "plugin", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &flags->plugins,
          "Load models, storages and update rules from FILE; may be repeated", "FILE" },
        { "storage", 0, 0, G_OPTION_ARG_STRING_ARRAY, &flags->names[SUITE_STORAGES],
          "Look at this storage; may be repeated", "NAME" },
        { "rule", 0, 0, G_OPTION_ARG_STRING_ARRAY, &flags->names[SUITE_RULES],
          "Look at this update rule; may be repeated", "NAME" },
        { "seeds", 0, 0, G_OPTION_ARG_INT64, &flags->seeds, "Seeds for each (default 300)", "N" },
        { "seed", 0, 0, G_OPTION_ARG_INT64, &flags->seed, "This seed alone", "S" },
        { "list", 0, 0, G_OPTION_ARG_NONE, &flags->lists, "List what is registered", NULL },
        { "json", 0, 0, G_OPTION_ARG_FILENAME, &flags->json,
          "Write the results as JSON to FILE, - for standard output", "FILE" },
        { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_STRING_ARRAY, &flags->names[SUITE_MODELS], NULL,
          "[MODEL...]" },
        G_OPTION_ENTRY_NULL,
    };
    GOptionContext *context = g_option_context_new(NULL);

    g_option_context_set_summary(context, SUMMARY);
    g_option_context_set_description(context, DESCRIPTION);
    g_option_context_add_main_entries(context, entries, NULL);
    return context;
}

int main(int argc, char **argv)
{
    Flags flags = { .seeds = DEFAULT_SEEDS, .seed = NOT_GIVEN };
    g_autoptr(GOptionContext) context = context_new(&flags);
    g_autoptr(GError) error = NULL;
    int status;

    setlocale(LC_ALL, "");
    setlocale(LC_NUMERIC, "C"); /* numbers are read and written the same everywhere */
    app_output_check_at_exit();
    if (g_option_context_parse(context, &argc, &argv, &error) &&
        app_load_plugins(flags.plugins, &error) && check_flags(&flags, &error)) {
        status = run(&flags);
    } else {
        g_printerr(PROGRAM ": %s\nTry '" PROGRAM " --help'.\n", error->message);
        status = EXIT_USAGE;
    }
    flags_clear(&flags);
    return status;
}
