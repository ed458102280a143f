/* Where a follower is, and who may ask it.
 *
 * Threads: any; host names are looked up. */
#ifndef RUBATO_ENGINE_SERVING_SERVING_ADDRESS_H
#define RUBATO_ENGINE_SERVING_SERVING_ADDRESS_H

#include "io/net/secure/secret.h"

/* The secret of a file; NULL: of RUBATO_SECRET. *has_secret false: there is none. RUBATO_ERROR_IO,
 * _CONFIG. */
bool serving_find_secret(const char *file, RunSecret *secret, bool *has_secret, GError **error);

/* A socket that listens at "tcp://HOST:PORT"; -1 with RUBATO_ERROR_NETWORK, or _INVALID: without a
 * secret it listens on loopback addresses alone. */
int serving_listen(const char *address, bool has_secret, GError **error);

/* A socket that is connected there, at end_ms (monotonic_ms) at the latest, which includes
 * looking up the name; -1 with RUBATO_ERROR_NETWORK or _TIMEOUT. */
int serving_connect_to(const char *address, int64_t end_ms, GError **error);

#endif
