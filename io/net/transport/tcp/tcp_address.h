/* Addresses of TCP: "tcp://HOST:PORT", and "zmq://HOST:PORT" for ZeroMQ's. HOST is a name, a
 * number, an IPv6 number in brackets, or, to bind, "*" for all of the machine's.
 *
 * Threads: any; functions of their arguments. Only tcp_address_to_bind may take long, for a
 * name. */
#ifndef RUBATO_IO_NET_TRANSPORT_TCP_TCP_ADDRESS_H
#define RUBATO_IO_NET_TRANSPORT_TCP_TCP_ADDRESS_H

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

/* What to connect to for the endpoint, of which the others are parts. NULL: the host is no number.
 * A name is not looked up, which may take long, and addresses come from strangers, too; whoever
 * tells others its address tells the number. Freed with freeaddrinfo. (transfer full) */
struct addrinfo *tcp_address_to_connect(const char *endpoint, const char *host, const char *port,
                                        GError **error);

/* "tcp://HOST:PORT" of the address that a socket is bound to. (transfer full) */
char *tcp_address_of_socket(const char *scheme, int fd);

/* The number of a socket's address, without the port: room for NI_MAXHOST. */
void tcp_address_text(const struct sockaddr *address, socklen_t size, char *text, size_t room);

#endif
