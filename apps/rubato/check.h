/* The command `rubato check`.
 *
 * Threads: main's. */
#ifndef APPS_RUBATO_CHECK_H
#define APPS_RUBATO_CHECK_H

#include <glib.h>

/* What `rubato help check` prints. (transfer full) */
GOptionContext *check_new_context(gboolean *json);

/* argv[0] is the command. Returns the exit code. */
int check_command(int argc, char **argv);

#endif
