/* This program once more, as the other end of a case.
 *
 * Threads: any. */
#ifndef RUBATO_APPS_BENCH_RUN_PROCESS_H
#define RUBATO_APPS_BENCH_RUN_PROCESS_H

#include <glib.h>
#include <stdbool.h>

enum { PROCESS_MAX_ARGUMENTS = 6 };

typedef struct {
    const char *arguments[PROCESS_MAX_ARGUMENTS]; /* fewer: NULL behind the last */
    int *output;                                  /* not NULL: the pipe that it writes to */
    int shared_fd, as_fd;                         /* as_fd 0: it gets none */
} ProcessStart;

/* Starts this program once more. */
bool process_start(const ProcessStart *start, GPid *process, GError **error);
void process_wait(GPid process);

/* From now on this process dies with the one that started it. */
void process_end_with_parent(void);

#endif
