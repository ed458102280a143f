/* Addresses that only processes of the same host can use: "shm://HOST/NAME", "ipc://HOST/NAME".
 *
 * HOST is what is the same for two processes exactly where they can meet by an abstract socket: one
 * boot of one machine, one network namespace, one user. NAME is the socket's, with nothing of it in
 * any file system.
 *
 * Threads: any; functions of their arguments and of the process. */
#ifndef RUBATO_IO_NET_TRANSPORT_TCP_HOST_ADDRESS_H
#define RUBATO_IO_NET_TRANSPORT_TCP_HOST_ADDRESS_H

#include <glib.h>
#include <stdbool.h>

#define HOST_NAME_BYTES 64u

/* (transfer full) */
char *host_identity(void);

/* Reads an address of this scheme. "*" for HOST/NAME gives a name that nobody has, if the caller
 * wants to bind. False for what is no such address, or one of another host. *name: (transfer
 * full) */
bool host_address_split(const char *scheme, const char *identity, const char *endpoint,
                        bool for_binding, char **name, GError **error);

/* (transfer full) */
char *host_address_join(const char *scheme, const char *identity, const char *name);

#endif
