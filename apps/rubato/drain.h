/* `rubato drain`: takes a node out of a run that goes on.
 *
 * Threads: main's. */
#ifndef APPS_RUBATO_DRAIN_H
#define APPS_RUBATO_DRAIN_H

#include <glib.h>

typedef struct {
    char *secret_file;
    double timeout_s;
} DrainOptions;

/* The entries point into `options`, which must outlive the context. (transfer full) */
GOptionContext *drain_new_context(DrainOptions *options);

/* argv[0] is the command. Returns the exit code. */
int drain_command(int argc, char **argv);

#endif
