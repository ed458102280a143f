/* Looking up the addresses of a host without waiting for it.
 *
 * A name server that does not answer holds its asker up for many seconds, and nobody can break that
 * off. So a thread of its own asks, and is left behind by who gives the lookup up.
 *
 * Threads: one at a time. */
#ifndef RUBATO_IO_NET_HOST_LOOKUP_H
#define RUBATO_IO_NET_HOST_LOOKUP_H

#include <netdb.h>
#include <stdbool.h>

typedef struct HostLookup HostLookup;

/* Begins one. A host that is a number is looked up at once. (transfer full) */
HostLookup *host_lookup_new(const char *host, const char *port);

/* Whether it has ended. Then *found has the addresses, the lookup's own, or is NULL and *why says
 * why. */
bool host_lookup_is_done(const HostLookup *lookup, const struct addrinfo **found, const char **why);

/* NULL is allowed. */
void host_lookup_free(HostLookup *lookup);

#endif
