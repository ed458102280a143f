/* The commands `rubato scheduler`, `server`, `worker` and `task`.
 *
 * Threads: main's. */
#ifndef APPS_RUBATO_ROLES_H
#define APPS_RUBATO_ROLES_H

#include <glib.h>
#include <stdbool.h>

/* The values of the options of these commands. */
typedef struct {
    char *scheduler, *interface, *settings;
    int servers, workers, threads, node, nodes, spares, port;
} RoleOptions;

/* Whether it is one of these commands. */
bool roles_has(const char *command);

/* What `rubato help COMMAND` prints. The context sets *options, which must outlive it. (transfer
 * full) */
GOptionContext *roles_new_context(const char *command, RoleOptions *options);

/* argv[0] is the command. Returns the exit code, but only if the program could not be started. */
int roles_command(int argc, char **argv);

#endif
