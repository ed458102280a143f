/* The syntax of a cluster file, checked before libconfig sees the text.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_CLUSTER_CLUSTER_SYNTAX_H
#define RUBATO_ENGINE_CLUSTER_CLUSTER_SYNTAX_H

#include <glib.h>
#include <stdbool.h>

/* Whether libconfig reads `text` without an error, and reads everything in it as a person would.
 * False with RUBATO_ERROR_CONFIG, as path:line: … */
bool cluster_syntax_check(const char *text, size_t length, const char *path, GError **error);

#endif
