/* Pictures, drawn by gnuplot.
 *
 * Threads: any. */
#ifndef RUBATO_APPS_KIT_REPORT_APP_GNUPLOT_H
#define RUBATO_APPS_KIT_REPORT_APP_GNUPLOT_H

#include <glib.h>
#include <stdbool.h>

/* Whether gnuplot is there; otherwise RUBATO_ERROR_IO says how to get it. */
bool app_gnuplot_check(GError **error);

/* Writes what a script draws to the file of --plot (app_file.h). The script sets a terminal, but no
 * output. RUBATO_ERROR_IO. */
bool app_gnuplot_draw(const char *script, const char *path, GError **error);

#endif
