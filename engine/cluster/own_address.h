/* The address at which a node without a cluster file receives.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_CLUSTER_OWN_ADDRESS_H
#define RUBATO_ENGINE_CLUSTER_OWN_ADDRESS_H

#include <glib.h>
#include <stdbool.h>

/* The address of an interface, such as "eth0", or in a network, such as "10.20.0.0/16" or
 * "fd00::/8", or of a host, which has to be this machine's; as a number. NULL with
 * RUBATO_ERROR_CONFIG, which lists the interfaces. (transfer full) */
char *own_address_of(const char *interface, GError **error);

/* The address of the first interface that is up and not loopback, of version 4 if there is one; a
 * loopback address if there is none. (transfer full) */
char *own_address_outward(void);

/* The interface that has this address, which is given as a number; NULL: none has it. (transfer
 * full) */
char *own_interface_of(const char *address);

/* The address from which this machine reaches a host, which is given as a number. NULL with
 * RUBATO_ERROR_NETWORK. (transfer full) */
char *own_address_towards(const char *host, GError **error);

/* The first address of a host, as a number, and whether it is this machine's. NULL with
 * RUBATO_ERROR_NETWORK. (transfer full) */
char *host_address_of(const char *host, bool *is_own, GError **error);

/* Whether it is a loopback address, given as a number. */
bool address_is_loopback(const char *address);

#endif
