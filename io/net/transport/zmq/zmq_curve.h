/* How nodes prove to each other over ZeroMQ that they know the secret of the run: by CURVE, which
 * also encrypts everything.
 *
 * Threads: told at each function. */
#ifndef RUBATO_IO_NET_TRANSPORT_ZMQ_ZMQ_CURVE_H
#define RUBATO_IO_NET_TRANSPORT_ZMQ_ZMQ_CURVE_H

#include "io/net/transport/transport_ops.h"

typedef struct ZmqCurve ZmqCurve;

/* NULL with RUBATO_ERROR_NETWORK if this ZeroMQ has no CURVE. The config has a secret. Owner.
 * (transfer full) */
ZmqCurve *zmq_curve_new(const TransportConfig *config, GError **error);

/* NULL is allowed. Owner. */
void zmq_curve_free(ZmqCurve *curve);

/* Makes the ROUTER prove the secret, and ask the gate about all who connect. Call it before the
 * ROUTER is bound. Owner. */
bool zmq_curve_set_up_router(const ZmqCurve *curve, void *router);

/* Makes a DEALER prove the secret, and accept only this node as listener, if it proves the secret
 * too. Call it before the DEALER connects. Any thread. */
bool zmq_curve_set_up_dealer(const ZmqCurve *curve, void *dealer, uint32_t node);

/* Computes the keys by which zmq_curve_find_node knows the nodes. It takes a moment for each node.
 * The gate's thread. */
void zmq_curve_derive_nodes(ZmqCurve *curve);

/* The node that connects with this public key; HANDSHAKE_ANY_NODE: none. The gate's thread. */
uint32_t zmq_curve_find_node(const ZmqCurve *curve, const uint8_t *key, size_t size);

/* The node that has proved to be the sender of a message of the ROUTER. Any thread. */
uint32_t zmq_curve_node_of(void *message);

#endif
