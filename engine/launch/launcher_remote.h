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
    bool reads_secret; /* its first line of input is the run's secret */
} RemoteCommand;

/* The words of `ssh` and after them what makes it start the command. The standard input of that
 * command is the supervisor's hand on it: after the secret's line, where there is one, which the
 * program finds behind a descriptor, a line with a signal's name sends the signal to the program
 * and all of its group, and the end of the input, as when the connection is lost, ends it.
 * (transfer full) */
char **remote_command_argv(const RemoteCommand *command, char *const *ssh);

#endif
