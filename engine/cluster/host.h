/* Hosts of a cluster file: where they are, and whether their ports are free.
 *
 * Threads: any; may block for as long as the resolver does. */
#ifndef RUBATO_ENGINE_CLUSTER_HOST_H
#define RUBATO_ENGINE_CLUSTER_HOST_H

#include <glib.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    struct addrinfo *addresses; /* at least one */
    bool local;                 /* one of them is this machine's */
} Host;

/* False with RUBATO_ERROR_NETWORK; the message begins with `where`. */
bool host_resolve(Host *host, const char *name, const char *where, GError **error);
void host_clear(Host *host);

/* Whether all of its addresses are this machine's alone. */
bool host_is_loopback(const Host *host);

/* The first address, as numbers. (transfer full) */
char *host_describe(const Host *host);

/* Binds the port on the host's first address that is this machine's and returns the socket, which
 * holds the port until it is closed; -1 with errno. */
int host_try_port(const Host *host, uint16_t port);

#endif
