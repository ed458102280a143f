/* The command `rubato history`. */
#ifndef APPS_RUBATO_HISTORY_H
#define APPS_RUBATO_HISTORY_H

#include <glib.h>

/* What `rubato help history` prints. (transfer full) */
GOptionContext *history_new_context(gboolean *json);

/* argv[0] is the command. Returns the exit code. */
int history_command(int argc, char **argv);

#endif
