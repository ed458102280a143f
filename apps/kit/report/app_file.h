/* Files that flags name, written by one rule. A regular file is written completely or not at all: a
 * new file beside it takes its place. Anything else that exists, such as a pipe or /dev/null, is
 * written into and never replaced. "-" means standard output; so does a path of the same file, such
 * as /dev/stdout, and likewise for standard error.
 *
 * Errors are RUBATO_ERROR_IO and name the flag and the path.
 *
 * Threads: main's. */
#ifndef RUBATO_APPS_KIT_REPORT_APP_FILE_H
#define RUBATO_APPS_KIT_REPORT_APP_FILE_H

#include <glib.h>
#include <stdbool.h>
#include <stdio.h>

/* Whether the file can be written, as far as this is known before. Also true for a path of NULL. */
bool app_file_check(const char *flag, const char *path, GError **error);

/* Writes the file's contents. Whether the file took them is checked afterwards. */
typedef bool (*AppFileFunc)(FILE *file, void *data, GError **error);

/* An error of the function is passed on as it is. */
bool app_file_write(const char *flag, const char *path, AppFileFunc write, void *data,
                    GError **error);
bool app_file_write_text(const char *flag, const char *path, const char *text, GError **error);

#endif
