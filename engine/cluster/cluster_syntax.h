/* The syntax of a cluster file, checked before libconfig sees the text.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_CLUSTER_CLUSTER_SYNTAX_H
#define RUBATO_ENGINE_CLUSTER_CLUSTER_SYNTAX_H

#include <glib.h>
#include <stdbool.h>

/* Whether `text` is one that libconfig reads without complaint, and that holds nothing which it
 * would read as something else than it looks. False with RUBATO_ERROR_CONFIG, as path:line: … */
bool cluster_syntax_check(const char *text, size_t length, const char *path, GError **error);

#endif
