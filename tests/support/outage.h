/* Outages of the network between processes, made without their doing.
 *
 * Silent: every TCP socket of these processes gets a filter that drops whatever comes in, also what
 * acknowledges and what begins or ends a connection, so the kernels send again and back off as they
 * do when a switch has failed. Down: the loopback of a network of the case's own is switched off,
 * and whoever sends is told at once that there is no way.
 *
 * Threads: the case's only one. */
#ifndef TESTS_SUPPORT_OUTAGE_H
#define TESTS_SUPPORT_OUTAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef enum {
    OUTAGE_SILENT,
    OUTAGE_DOWN,
    N_OUTAGES,
} OutageKind;

/* Gets ready; called before any process or thread is started. False if the system does not
 * permit it: the case is left out then. */
bool outage_prepare(OutageKind kind);

void outage_begin(OutageKind kind, const pid_t *pids, size_t n);
void outage_end(OutageKind kind, const pid_t *pids, size_t n);

/* Resets the TCP connections of this process, at most so many, from another one on each time: what
 * is on its way is lost. How many. */
unsigned outage_reset_connections(unsigned most);

#endif
