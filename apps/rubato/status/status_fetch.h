/* Asks a node for its status.
 *
 * Threads: main's. */
#ifndef APPS_RUBATO_STATUS_STATUS_FETCH_H
#define APPS_RUBATO_STATUS_STATUS_FETCH_H

#include <glib.h>
#include <stdbool.h>

/* A question to a node, on a connection of its own. */
typedef struct StatusCall StatusCall;

/* Asks GET path of PORT on this host, HOST:PORT, or http://HOST:PORT, within timeout_s, names and
 * all addresses together. Errors as those of status_fetch. (transfer full) */
StatusCall *status_call_new(const char *address, const char *path, double timeout_s,
                            GError **error);

/* Waits so many seconds for a first byte of the answer, or for the end of the connection. False:
 * neither came. */
bool status_call_wait(StatusCall *call, double seconds);

/* The body of the answer, which has to come within the call's timeout_s from now. (transfer
 * full) */
GBytes *status_call_read(StatusCall *call, GError **error);

void status_call_free(StatusCall *call);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(StatusCall, status_call_free)

/* Gets the body of GET /status from PORT on this host, HOST:PORT, or http://HOST:PORT. All of it
 * has to come within timeout_s. RUBATO_ERROR_INVALID: that is no address; _NETWORK: nothing answers
 * there, or it says no, or breaks off; _TIMEOUT; _FORMAT: what answers does not speak HTTP.
 * (transfer full) */
GBytes *status_fetch(const char *address, double timeout_s, GError **error);

#endif
