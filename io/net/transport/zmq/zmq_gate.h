/* Who may connect to a node over ZeroMQ, and what the log says of those who may not.
 *
 * Threads: told at each function. */
#ifndef RUBATO_IO_NET_TRANSPORT_ZMQ_ZMQ_GATE_H
#define RUBATO_IO_NET_TRANSPORT_ZMQ_ZMQ_GATE_H

#include "io/net/transport/zmq/zmq_curve.h"

typedef struct ZmqGate ZmqGate;

typedef enum {
    ZMQ_GATE_ANY_USER,
    ZMQ_GATE_OWN_USER, /* only this process' user may connect: for Unix sockets */
} ZmqGateUsers;

/* Watches who connects to the ROUTER, and starts the thread that does it. If `curve` is not NULL,
 * makes the ROUTER accept only nodes that know its secret; it must live as long as the gate. Call
 * it before the ROUTER is bound. Owner. (transfer full) */
ZmqGate *zmq_gate_new(void *context, void *router, ZmqGateUsers users, ZmqCurve *curve,
                      GError **error);

/* Ends the thread, whose context has been terminated. NULL is allowed. Owner. */
void zmq_gate_free(ZmqGate *gate);

#endif
