/* Addresses of TCP: "tcp://HOST:PORT", and "zmq://HOST:PORT" for ZeroMQ's. HOST is a name, a
 * number, an IPv6 number in brackets, or, to bind, "*" for all addresses of the machine.
 *
 * Threads: any; the functions depend on their arguments only. Only tcp_address_to_bind may take
 * long: it looks up names. */
#ifndef RUBATO_IO_NET_TRANSPORT_TCP_TCP_ADDRESS_H
#define RUBATO_IO_NET_TRANSPORT_TCP_TCP_ADDRESS_H

#include <glib.h>
#include <netdb.h>
#include <stdbool.h>

/* The end of a bind's error text if the address is in use. */
#define TCP_ADDRESS_TAKEN \
    "; another program, or another node, has it: choose another port, or 0 for any free one"

/* Splits an address of this scheme and removes the brackets. *host, *port: (transfer full) */
bool tcp_address_split(const char *scheme, const char *endpoint, char **host, char **port,
                       GError **error);

/* Joins them to "tcp://HOST:PORT" again. (transfer full) */
char *tcp_address_join(const char *scheme, const char *host, unsigned port);

/* The address to bind for the endpoint, of which host and port are parts. NULL: the host cannot be
 * resolved. Freed with freeaddrinfo. (transfer full) */
struct addrinfo *tcp_address_to_bind(const char *endpoint, const char *host, const char *port,
                                     GError **error);

/* The address to connect to for the endpoint, of which host and port are parts. NULL: the host is
 * no number. A name is not looked up, because that may take long and addresses also come from
 * strangers. A node that tells others its address tells the number. Freed with freeaddrinfo.
 * (transfer full) */
struct addrinfo *tcp_address_to_connect(const char *endpoint, const char *host, const char *port,
                                        GError **error);

/* "tcp://HOST:PORT" of the address that a socket is bound to. (transfer full) */
char *tcp_address_of_socket(const char *scheme, int fd);

/* The number of a socket's address, without the port. The text needs NI_MAXHOST bytes. */
void tcp_address_text(const struct sockaddr *address, socklen_t size, char *text, size_t room);

#endif
