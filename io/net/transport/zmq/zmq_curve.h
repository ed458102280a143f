/* How nodes prove to each other over ZeroMQ that they know the secret of the run: CURVE, which also
 * encrypts all that is said.
 *
 * Threads: told at each function. */
#ifndef RUBATO_IO_NET_TRANSPORT_ZMQ_ZMQ_CURVE_H
#define RUBATO_IO_NET_TRANSPORT_ZMQ_ZMQ_CURVE_H

#include "io/net/transport/transport_ops.h"

typedef struct ZmqCurve ZmqCurve;

/* Makes the ROUTER accept only nodes that know config->secret, and starts the thread that decides
 * it. Before the ROUTER is bound. NULL with RUBATO_ERROR_NETWORK where this ZeroMQ has no CURVE.
 * Owner. (transfer full) */
ZmqCurve *zmq_curve_new(void *context, void *router, const TransportConfig *config, GError **error);

/* Makes a DEALER prove the secret, and demand the same of who listens: this node and no other.
 * Before it connects. Any thread. */
bool zmq_curve_set_up_dealer(const ZmqCurve *curve, void *dealer, uint32_t node);

/* The node that a message of the ROUTER has proved to come from. */
uint32_t zmq_curve_node_of(void *message);

/* Ends the thread, whose context has been terminated. NULL is allowed. Owner. */
void zmq_curve_free(ZmqCurve *curve);

#endif
