/* `rubato timeline merge`: joins the timelines of the nodes of a run. Their times are those of one
 * node already, and viewers order events by time. So events are copied line by line.
 *
 * Thread: main's. */
#include "apps/rubato/timeline.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/rubato/usage.h"

static const char SUMMARY[] =
    "Joins the timelines that the nodes of a run with RUBATO_TIMELINE=FILE have written, each "
    "into\n"
    "a file of its own, into one for a viewer such as ui.perfetto.dev. Prints it.";

static const char DESCRIPTION[] =
    "The exit code is 0 if all of them were joined, 1 if one cannot be read, and 2 for a wrong\n"
    "command line.\n"
    "\n"
    "Example: rubato timeline merge trace.node-*.json >trace.json";

GOptionContext *timeline_new_context(void)
{
    GOptionContext *const context = g_option_context_new("merge FILE...");

    g_option_context_set_summary(context, SUMMARY);
    g_option_context_set_description(context, DESCRIPTION);
    return context;
}

static void warn(const char *path, const char *what)
{
    g_printerr("rubato timeline: %s: %s\n", path, what);
}

static bool fail_line(const char *path, unsigned long line)
{
    g_printerr("rubato timeline: %s, line %lu: this is no timeline of Rubato\n", path, line);
    return false;
}

/* What io/timeline/timeline_json.c writes of a clock that could not be compared. In a name these
 * quotation marks are escaped. */
static const char OWN_TIME[] = "\"clock\":\"the node's own time\"";

/* Prints the events of a file: a line each, between one with "[" and one with "]". A process that
 * was killed while it wrote may have left a part of its last line, and no "]". */
static bool copy_lines(FILE *file, const char *path, bool *is_first)
{
    g_autofree char *memory = NULL; /* of malloc, as GLib's */
    size_t room = 0;
    bool has_ended = false;
    unsigned long line = 0;

    while (getline(&memory, &room, file) >= 0) {
        const bool is_cut = strchr(memory, '\n') == NULL;
        char *const text = g_strstrip(memory);
        const size_t n = strlen(text);

        if (is_cut && line > 0 && !has_ended && strcmp(text, "]") != 0) {
            warn(path, "its last line is cut, as of a process that was killed; it is left out");
            return true;
        }
        if (++line == 1 ? strcmp(text, "[") != 0 : has_ended)
            return fail_line(path, line);
        has_ended = strcmp(text, "]") == 0;
        if (line == 1 || has_ended)
            continue;
        if (n > 0 && text[n - 1] == ',')
            text[n - 1] = '\0';
        if (text[0] != '{' || !g_str_has_suffix(text, "}"))
            return fail_line(path, line);
        if (strstr(text, OWN_TIME) != NULL)
            warn(path, "its times are the node's own: the scheduler's node did not tell its time, "
                       "so they need not fit to those of other nodes");
        printf("%s%s", *is_first ? "" : ",\n", text);
        *is_first = false;
    }
    if (line == 0)
        return fail_line(path, line);
    if (!has_ended)
        warn(path, "its end is cut, as of a process that was killed");
    return true;
}

static bool copy_file(const char *path, bool *is_first)
{
    FILE *const file = fopen(path, "re");
    bool ok = file != NULL;

    if (ok)
        ok = copy_lines(file, path, is_first);
    else
        g_printerr("rubato timeline: cannot read %s: %s\n", path, g_strerror(errno));
    if (file != NULL)
        fclose(file);
    return ok;
}

static int merge(char **paths, int n)
{
    bool is_first = true, ok = true;

    printf("[\n");
    for (int i = 0; i < n; i++)
        ok = copy_file(paths[i], &is_first) && ok;
    printf("\n]\n");
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

int timeline_command(int argc, char **argv)
{
    g_autoptr(GOptionContext) context = timeline_new_context();
    g_autoptr(GError) error = NULL;

    if (!g_option_context_parse(context, &argc, &argv, &error))
        return fail_usage("timeline", error->message);
    if (argc < 3 || strcmp(argv[1], "merge") != 0)
        return fail_usage("timeline", "which files? rubato timeline merge FILE...");
    return merge(argv + 2, argc - 2);
}
