/* A transport that wraps the real one and loses, doubles, reorders and changes what its channels
 * send.
 *
 * Threads: as for any transport; lossy_transport from the test, before any network. */
#ifndef TESTS_SUPPORT_NETWORK_LOSSY_H
#define TESTS_SUPPORT_NETWORK_LOSSY_H

#include "io/net/transport/transport_ops.h"

typedef struct {
    double loss;     /* of a packet: chance to be dropped */
    double doubling; /* to be sent twice */
    double delay;    /* to be sent after some that follow it */
    guint32 seed;

    /* Not NULL: it gets each packet of node `from` to node `to` first. It returns the packet,
     * another one in its place (transfer full), or NULL: nothing is sent. */
    Packet *(*change)(uint32_t from, uint32_t to, Packet *packet);
} Lossy;

/* The ops for NetworkConfig.transport_ops. The faults hold for every network in this process that
 * uses them. */
const TransportOps *lossy_transport(const Lossy *lossy);

/* Changes the chance that a packet is dropped. Any thread. */
void lossy_set_loss(double loss);

#endif
