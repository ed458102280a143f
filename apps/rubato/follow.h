/* `rubato follow`: follows a model that streams, and serves it.
 *
 * Threads: main's. */
#ifndef APPS_RUBATO_FOLLOW_H
#define APPS_RUBATO_FOLLOW_H

#include <glib.h>

typedef struct {
    char *serve, *at, *tables, *secret_file;
    char **plugins; /* NULL: none */
    double hold_back_s, timeout_s;
    gboolean hold;
    int clients;
} FollowOptions;

/* The entries point into `options`, which must outlive the context. (transfer full) */
GOptionContext *follow_new_context(FollowOptions *options);

/* argv[0] is the command. Returns the exit code. */
int follow_command(int argc, char **argv);

#endif
