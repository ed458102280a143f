/* A fault of a cluster file: an error that begins with file:line and says what to write instead.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_CLUSTER_CLUSTER_FAULT_H
#define RUBATO_ENGINE_CLUSTER_CLUSTER_FAULT_H

#include <glib.h>
#include <stdbool.h>

/* The file, and where its first fault is stored; reading ends there. */
typedef struct {
    const char *path;
    GError **error;
} ClusterFaults;

/* Sets the error, RUBATO_ERROR_CONFIG. Returns false. */
bool cluster_refuse(const ClusterFaults *faults, unsigned line, const char *format, ...)
    G_GNUC_PRINTF(3, 4);

#endif
