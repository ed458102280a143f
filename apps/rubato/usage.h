/* How the commands of rubato say that they fail.
 *
 * Threads: main's. */
#ifndef APPS_RUBATO_USAGE_H
#define APPS_RUBATO_USAGE_H

#include <glib.h>
#include <stdbool.h>
#include <stdlib.h>

#define EXIT_USAGE 2
#define USUAL_TIMEOUT_S 10.0

/* What a command takes, and its help. (transfer full) */
static inline GOptionContext *usage_new_context(const char *parameters, const GOptionEntry *entries,
                                                const char *summary, const char *description)
{
    GOptionContext *const context = g_option_context_new(parameters);

    g_option_context_add_main_entries(context, entries, NULL);
    g_option_context_set_summary(context, summary);
    g_option_context_set_description(context, description);
    return context;
}

/* Says what is wrong with the command line, of `rubato COMMAND` or of rubato alone (""). Returns
 * the exit code. */
static inline int fail_usage(const char *command, const char *message)
{
    g_printerr("rubato%s%s: %s\nTry 'rubato help%s%s'.\n", *command != '\0' ? " " : "", command,
               message, *command != '\0' ? " " : "", command);
    return EXIT_USAGE;
}

/* Whether a command can wait so long. If not, says so of the flag. */
static inline bool usage_takes_wait(const char *command, const char *flag, double seconds)
{
    if (seconds > 0 && seconds <= 86400)
        return true;
    g_autofree char *message =
        g_strdup_printf("%s takes more than 0 seconds, and a day at most", flag);

    (void)fail_usage(command, message);
    return false;
}

/* The same of what it was asked to do. */
static inline int fail(const GError *error)
{
    g_printerr("rubato: %s\n", error->message);
    return EXIT_FAILURE;
}

#endif
