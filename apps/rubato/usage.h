/* How the commands of rubato say that they fail.
 *
 * Threads: main's. */
#ifndef APPS_RUBATO_USAGE_H
#define APPS_RUBATO_USAGE_H

#include <glib.h>
#include <stdlib.h>

#define EXIT_USAGE 2

/* Says what is wrong with the command line, of `rubato COMMAND` or of rubato alone (""). Returns
 * the exit code. */
static inline int fail_usage(const char *command, const char *message)
{
    g_printerr("rubato%s%s: %s\nTry 'rubato help%s%s'.\n", *command != '\0' ? " " : "", command,
               message, *command != '\0' ? " " : "", command);
    return EXIT_USAGE;
}

/* The same of what it was asked to do. */
static inline int fail(const GError *error)
{
    g_printerr("rubato: %s\n", error->message);
    return EXIT_FAILURE;
}

#endif
