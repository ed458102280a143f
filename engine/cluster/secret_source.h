/* Where a process finds the secret of its run, and how `rubato run` hands it on.
 *
 * It looks in this order: the variable RUBATO_SECRET; the descriptor that the variable
 * RUBATO_SECRET_FD names, which `rubato run` leaves to its nodes; the file that the cluster file
 * names as secret_file. Each of them holds 64 hexadecimal digits. A second engine of the process
 * finds the secret again. The environment and the command line of the process do not show it.
 *
 * Threads: any one at a time, before others use the environment. */
#ifndef RUBATO_ENGINE_CLUSTER_SECRET_SOURCE_H
#define RUBATO_ENGINE_CLUSTER_SECRET_SOURCE_H

#include "engine/cluster/cluster_file.h"
#include "io/net/secure/secret_file.h"

#define SECRET_VARIABLE "RUBATO_SECRET"
#define SECRET_FD_VARIABLE "RUBATO_SECRET_FD"

typedef enum {
    SECRET_ORIGIN_NONE,
    SECRET_ORIGIN_FROM_DESCRIPTOR,
    SECRET_ORIGIN_FROM_VARIABLE,
    SECRET_ORIGIN_FROM_FILE,
} SecretOrigin;

/* Finds the secret. If there is none, *origin is SECRET_ORIGIN_NONE, and *secret is untouched. The
 * variable RUBATO_SECRET is overwritten and unset. False with RUBATO_ERROR_CONFIG or _IO, which
 * says what to do, where one is named but cannot be read. */
bool secret_find(const Cluster *cluster, RunSecret *secret, SecretOrigin *origin, GError **error);

/* Whether nodes whose secret comes from there may run. Without a secret they may run only on
 * loopback addresses, unless the file says `insecure = true`; and never if the file asks for
 * `encrypt` or `authenticate`. False with RUBATO_ERROR_CONFIG, which says what to do, or
 * RUBATO_ERROR_NETWORK for a host that cannot be resolved. */
bool secret_check_cluster(const Cluster *cluster, SecretOrigin origin, GError **error);

/* The path of the file's secret_file, which is relative to the cluster file's folder. NULL: it
 * names none. (transfer full) */
char *secret_file_path(const Cluster *cluster);

/* Writes a new secret to a new file that only its owner may read. False with RUBATO_ERROR_IO if
 * that is impossible, or if there is a file of that name. */
bool secret_make_file(const char *path, GError **error);

/* A descriptor of the digits, for a node to inherit; it is closed at an exec. It can be read any
 * number of times, but not written. -1 with RUBATO_ERROR_IO. */
int secret_to_descriptor(const RunSecret *secret, GError **error);

#endif
