/* The addresses of a host name, within a time limit: getaddrinfo() has none, and a name server that
 * does not answer holds it up for as long as the machine's configuration says.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_SERVING_NAME_LOOKUP_H
#define RUBATO_ENGINE_SERVING_NAME_LOOKUP_H

#include <netdb.h>
#include <stdint.h>

/* As getaddrinfo(), with EAI_AGAIN if no answer has come at end_ms (monotonic_ms) or there is no
 * thread for it. What is still asked for then goes on by itself, and its answer is freed.
 * (*found: transfer full, freeaddrinfo) */
int name_lookup(const char *host, const char *port, const struct addrinfo *hints, int64_t end_ms,
                struct addrinfo **found);

#endif
