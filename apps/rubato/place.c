/* `rubato place`: where the tables of a file would lie on the servers of a cluster, and why.
 *
 * Thread: main's. */
#include "apps/rubato/place.h"

#include <rubato/launcher.h>
#include <stdlib.h>

#include "apps/rubato/usage.h"

static const char SUMMARY[] =
    "Prints where the tables of TABLES would lie on the servers of the cluster file FILE, and\n"
    "what each server then has of its limits. Nothing is started. TABLES lists the tables in\n"
    "the order in which a program makes them:\n"
    "\n"
    "  tables = ( { name = \"weights\"; n_keys = 1000000; width = 8; update = \"adam\"; },\n"
    "             { name = \"users\"; memory_mib = 2000; queries = 50000; parts = 16; } );";

static const char DESCRIPTION[] =
    "The exit code is 0 if all tables fit, 1 if one does not or a file is wrong, and 2 for a\n"
    "wrong command line.\n"
    "\n"
    "Example: rubato place config/pair.cfg tables.cfg";

GOptionContext *place_new_context(char **measured)
{
    const GOptionEntry entries[] = {
        { "measured", 0, 0, G_OPTION_ARG_FILENAME, measured,
          "Take needs that TABLES leaves out from what a run with RUBATO_MEASURE=DIR took", "DIR" },
        G_OPTION_ENTRY_NULL,
    };

    return usage_new_context("FILE TABLES", entries, SUMMARY, DESCRIPTION);
}

int place_command(int argc, char **argv)
{
    g_autofree char *measured = NULL;
    g_autoptr(GOptionContext) context = place_new_context(&measured);
    g_autoptr(GString) report = g_string_new(NULL);
    g_autoptr(GError) error = NULL;
    bool fits;

    if (!g_option_context_parse(context, &argc, &argv, &error))
        return fail_usage("place", error->message);
    if (argc != 3)
        return fail_usage("place", "takes a cluster file and a file of tables: rubato place FILE "
                                   "TABLES");
    fits = rubato_launch_place(argv[1], argv[2], measured, report, &error);
    g_print("%s", report->str); /* the tables that fit come before the one that does not */
    return fits ? EXIT_SUCCESS : fail(error);
}
