/* How nodes prove to each other over ZeroMQ that they know the secret of the run: by CURVE, which
 * also encrypts everything.
 *
 * Threads: told at each function. */
#ifndef RUBATO_IO_NET_TRANSPORT_ZMQ_ZMQ_CURVE_H
#define RUBATO_IO_NET_TRANSPORT_ZMQ_ZMQ_CURVE_H

#include "io/net/transport/transport_ops.h"

typedef struct ZmqCurve ZmqCurve;

/* Makes the ROUTER accept only nodes that know config->secret, and starts the thread that decides
 * it. Call it before the ROUTER is bound. NULL with RUBATO_ERROR_NETWORK if this ZeroMQ has no
 * CURVE. Owner. (transfer full) */
ZmqCurve *zmq_curve_new(void *context, void *router, const TransportConfig *config, GError **error);

/* Makes a DEALER prove the secret, and accept only this node as listener, if it proves the secret
 * too. Call it before the DEALER connects. Any thread. */
bool zmq_curve_set_up_dealer(const ZmqCurve *curve, void *dealer, uint32_t node);

/* The node that has proved to be the sender of a message of the ROUTER. */
uint32_t zmq_curve_node_of(void *message);

/* Ends the thread, whose context has been terminated. NULL is allowed. Owner. */
void zmq_curve_free(ZmqCurve *curve);

#endif
