/* The key pairs of ZeroMQ's CURVE, made from the secret of a run.
 *
 * Each node has two pairs: one for listening, one for connecting. A process that knows the secret
 * can derive all of them, also the public keys of the other nodes. Nobody else knows any of them,
 * because CURVE never sends the public key of a listener, and encrypts the one of a connecting end.
 *
 * Threads: any; functions of their arguments alone. */
#ifndef RUBATO_IO_NET_SECURE_CURVE_KEYS_H
#define RUBATO_IO_NET_SECURE_CURVE_KEYS_H

#include "io/net/secure/secret.h"

#define CURVE_KEY_BYTES 32

typedef enum {
    CURVE_ROLE_LISTENS = 1,
    CURVE_ROLE_CONNECTS = 2,
    CURVE_ROLE_PUBLISHES = 3, /* of a stream over ZeroMQ (io/stream/zmq); its node is 0 */
    CURVE_ROLE_FOLLOWS = 4,
} CurveRole;

typedef struct {
    uint8_t public_key[CURVE_KEY_BYTES], secret_key[CURVE_KEY_BYTES];
} CurveKeys;

/* The pair of this node in this role. The caller wipes it. */
void curve_keys_derive(const RunSecret *secret, CurveRole role, uint32_t node, CurveKeys *keys);

/* Overwrites the pair. */
void curve_keys_clear(CurveKeys *keys);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(CurveKeys, curve_keys_clear)

#endif
