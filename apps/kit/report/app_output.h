/* The check of standard output at the end: output that could not be written is an error. A program
 * whose output was lost, for example on a full disk, must not end with success.
 *
 * Threads: main's. */
#ifndef RUBATO_APPS_KIT_REPORT_APP_OUTPUT_H
#define RUBATO_APPS_KIT_REPORT_APP_OUTPUT_H

#include <errno.h>
#include <glib.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void app_output_check(void)
{
    const bool is_written = fflush(stdout) == 0;

    if (is_written && !ferror(stdout))
        return;
    g_printerr("%s: standard output cannot be written%s%s\n",
               g_get_prgname() != NULL ? g_get_prgname() : "rubato", is_written ? "" : ": ",
               is_written ? "" : g_strerror(errno));
    _exit(EXIT_FAILURE);
}

/* Registers the check for every end of the program, also for --help. Call it first in main. */
static inline void app_output_check_at_exit(void)
{
    (void)atexit(app_output_check); /* without memory for it there is no check */
}

#endif
