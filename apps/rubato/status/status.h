/* The command `rubato status`.
 *
 *   status.c        the command line, and asking again and again
 *   status_fetch.c  the answer of a node, or why there is none
 *   status_table.c  the answer as tables
 *   status_json.c   members of an answer, of which nothing is believed
 *
 * Threads: main's. */
#ifndef APPS_RUBATO_STATUS_STATUS_H
#define APPS_RUBATO_STATUS_STATUS_H

#include <glib.h>
#include <stdbool.h>

/* The values of its options. */
typedef struct {
    gboolean json;
    double watch_s;
    double timeout_s;
} StatusOptions;

/* What `rubato help status` prints. The entries point into `options`. (transfer full) */
GOptionContext *status_new_context(StatusOptions *options);

/* argv[0] is the command. Returns the exit code. */
int status_command(int argc, char **argv);

#endif
