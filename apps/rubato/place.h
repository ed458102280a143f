/* `rubato place`: where the tables of a file would lie on the servers of a cluster.
 *
 * Threads: main's. */
#ifndef APPS_RUBATO_PLACE_H
#define APPS_RUBATO_PLACE_H

#include <glib.h>

/* The options of the command, for its help. *measured gets the folder, to be freed.
 * (transfer full) */
GOptionContext *place_new_context(char **measured);

/* argv[0] is the command. Returns the exit code. */
int place_command(int argc, char **argv);

#endif
