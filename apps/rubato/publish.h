/* `rubato publish`: publishes the versions in a directory, also when no run writes there.
 *
 * Threads: main's. */
#ifndef APPS_RUBATO_PUBLISH_H
#define APPS_RUBATO_PUBLISH_H

#include <glib.h>

/* (transfer full) */
GOptionContext *publish_new_context(char ***plugins);

/* argv[0] is the command. Returns the exit code. */
int publish_command(int argc, char **argv);

#endif
