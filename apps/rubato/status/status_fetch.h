/* Asks a node for its status.
 *
 * Threads: main's. */
#ifndef APPS_RUBATO_STATUS_STATUS_FETCH_H
#define APPS_RUBATO_STATUS_STATUS_FETCH_H

#include <glib.h>

/* Gets the body of GET /status from PORT on this host, HOST:PORT, or http://HOST:PORT. All of it
 * has to come within timeout_s. RUBATO_ERROR_INVALID: that is no address; _NETWORK: nothing answers
 * there, or it says no, or breaks off; _TIMEOUT; _FORMAT: what answers does not speak HTTP.
 * (transfer full) */
GBytes *status_fetch(const char *address, double timeout_s, GError **error);

#endif
