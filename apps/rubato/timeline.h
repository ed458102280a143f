/* The command `rubato timeline`. */
#ifndef APPS_RUBATO_TIMELINE_H
#define APPS_RUBATO_TIMELINE_H

#include <glib.h>

/* What `rubato help timeline` prints. (transfer full) */
GOptionContext *timeline_new_context(void);

/* argv[0] is the command. Returns the exit code. */
int timeline_command(int argc, char **argv);

#endif
