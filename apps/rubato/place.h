/* `rubato place`: where the tables of a file would lie on the servers of a cluster.
 *
 * Threads: main's. */
#ifndef APPS_RUBATO_PLACE_H
#define APPS_RUBATO_PLACE_H

#include <glib.h>

/* The options of the command, for its help. (transfer full) */
GOptionContext *place_new_context(void);

/* argv[0] is the command. Returns the exit code. */
int place_command(int argc, char **argv);

#endif
