/* Files with the syntax of cluster files: how they are loaded and parsed.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_CLUSTER_CONFIG_TEXT_H
#define RUBATO_ENGINE_CLUSTER_CONFIG_TEXT_H

#include <stddef.h>

#include "engine/cluster/cluster_setting.h"

/* The bytes of such a file, which messages call `what`: "cluster file". RUBATO_ERROR_IO. One that
 * is too large is read up to a byte more than CLUSTER_MAX_FILE_BYTES. (transfer full) */
char *config_text_load(const char *path, const char *what, size_t *length, GError **error);

/* Reads the settings of a file; false with an error. */
typedef bool (*ConfigReadFunc)(const ClusterFaults *faults, const config_setting_t *root,
                               void *data);

/* Checks the text, and gives its settings to the function. They are valid only during the call.
 * `what` the text is, a message says. False with RUBATO_ERROR_CONFIG. */
bool config_text_parse(const char *text, size_t length, const char *what,
                       const ClusterFaults *faults, ConfigReadFunc read, void *data);

#endif
