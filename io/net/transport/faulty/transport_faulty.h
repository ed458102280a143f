/* A transport that wraps TCP and drops, doubles, holds back and changes what its channels send, for
 * tests.
 *
 * Threads: as for any transport. */
#ifndef RUBATO_IO_NET_TRANSPORT_FAULTY_TRANSPORT_FAULTY_H
#define RUBATO_IO_NET_TRANSPORT_FAULTY_TRANSPORT_FAULTY_H

#include <rubato/wire_faults.h>

#include "io/net/transport/transport_ops.h"

struct WireFaults {
    RubatoWireFaults of_packets;

    /* Not NULL: it gets each packet of node `from` to node `to` first. It returns the packet,
     * another one in its place (transfer full), or NULL: nothing is sent. */
    Packet *(*change)(uint32_t from, uint32_t to, Packet *packet);

    /* From now on every packet is dropped. Any thread. */
    _Atomic bool drops_all;
};

/* Its faults are those of its TransportConfig. */
extern const TransportOps transport_faulty;

#endif
