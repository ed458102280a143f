/* The command that starts a node on another machine.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_LAUNCH_LAUNCHER_REMOTE_H
#define RUBATO_ENGINE_LAUNCH_LAUNCHER_REMOTE_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char *host;
    const char *folder;       /* where the program starts */
    const char *cluster_file; /* absolute */
    uint32_t id;
    const char *const *argv;
    bool reads_secret;  /* its first line of input is the run's secret */
    const char *health; /* the node's RUBATO_HEALTH; NULL: it gets none */
} RemoteCommand;

/* The words of `ssh` and the command that it starts. The supervisor controls the program by that
 * command's standard input. The first line is the secret, if there is one; the program reads it
 * from a descriptor. Then each line is a signal's name, and sends this signal to the program and
 * all of its group. The end of the input, also by a lost connection, ends the program. (transfer
 * full) */
char **remote_command_argv(const RemoteCommand *command, char *const *ssh);

#endif
