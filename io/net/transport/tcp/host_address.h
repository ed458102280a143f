/* Addresses that only processes of the same host can use: "shm://HOST/NAME", "ipc://HOST/NAME".
 *
 * HOST is the same for two processes if and only if they can meet by an abstract socket: in one
 * boot of one machine, one network namespace, with one user. NAME is the socket's, and is in no
 * file system.
 *
 * Threads: any; the functions depend on their arguments and on the process only. */
#ifndef RUBATO_IO_NET_TRANSPORT_TCP_HOST_ADDRESS_H
#define RUBATO_IO_NET_TRANSPORT_TCP_HOST_ADDRESS_H

#include <glib.h>
#include <stdbool.h>

#define HOST_NAME_BYTES 64u

/* (transfer full) */
char *host_identity(void);

/* Reads an address of this scheme. If the caller wants to bind, "*" for HOST/NAME gives a name that
 * nobody has. False if it is no such address, or one of another host. *name: (transfer full) */
bool host_address_split(const char *scheme, const char *identity, const char *endpoint,
                        bool for_binding, char **name, GError **error);

/* (transfer full) */
char *host_address_join(const char *scheme, const char *identity, const char *name);

#endif
