/* Addresses of TCP: "tcp://HOST:PORT", and "zmq://HOST:PORT" for ZeroMQ's. HOST is a name, a number,
 * an IPv6 number in brackets, or, to bind, "*" for all of the machine's.
 *
 * Threads: any; functions of their arguments. The lookup of a name may take seconds. */
#ifndef RUBATO_IO_NET_TCP_ADDRESS_H
#define RUBATO_IO_NET_TCP_ADDRESS_H

#include <glib.h>
#include <netdb.h>
#include <stdbool.h>

/* What a bind that finds the address taken adds to its error. */
#define TCP_ADDRESS_TAKEN \
    "; another program, or another node, has it: choose another port, or 0 for any free one"

/* Splits an address of this scheme; the brackets go. *host, *port: (transfer full) */
bool tcp_address_split(const char *scheme, const char *endpoint, char **host, char **port,
                       GError **error);

/* "tcp://HOST:PORT" again. (transfer full) */
char *tcp_address_join(const char *scheme, const char *host, unsigned port);

/* What to bind for the endpoint, of which the others are parts. NULL: the host cannot be resolved.
 * Freed with freeaddrinfo. (transfer full) */
struct addrinfo *tcp_address_to_bind(const char *endpoint, const char *host, const char *port,
                                     GError **error);

/* Whether the host is a number, which needs no lookup. */
bool tcp_address_is_numeric(const char *host);

/* The number of a socket's address, without the port: room for NI_MAXHOST. */
void tcp_address_text(const struct sockaddr *address, socklen_t size, char *text, size_t room);

#endif
