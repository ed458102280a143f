/* Makes outages of the network between processes from outside of them.
 *
 * Silent: every TCP socket of these processes gets a filter that drops all incoming packets, also
 * acknowledgements and those that begin or end a connection. So the kernels send again and back
 * off, as when a switch has failed. Down: the loopback of the case's own network is switched off,
 * and every sender gets an error at once.
 *
 * Threads: the case's only one. */
#ifndef TESTS_SUPPORT_CLUSTER_OUTAGE_H
#define TESTS_SUPPORT_CLUSTER_OUTAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef enum {
    OUTAGE_SILENT,
    OUTAGE_DOWN,
    N_OUTAGES,
} OutageKind;

/* Prepares outages. Call it before any process or thread is started. False if the system does not
 * permit it; then the case is left out. */
bool outage_prepare(OutageKind kind);

void outage_begin(OutageKind kind, const pid_t *pids, size_t n);
void outage_end(OutageKind kind, const pid_t *pids, size_t n);

/* Resets at most so many TCP connections of this process, beginning with another one each time.
 * Bytes on their way are lost. Returns how many it has reset. */
unsigned outage_reset_connections(unsigned most);

#endif
