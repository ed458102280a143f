/* Faults on the wire for networks and engines that tests make: one set of faults for all of the
 * process.
 *
 * Threads: lossy_faults from the test, before any network. */
#ifndef TESTS_SUPPORT_NETWORK_LOSSY_H
#define TESTS_SUPPORT_NETWORK_LOSSY_H

#include "io/net/transport/faulty/faulty_channel.h"

typedef struct {
    RubatoWireFaults of_packets;
    Packet *(*change)(uint32_t from, uint32_t to, Packet *packet); /* see WireFaults */
} Lossy;

/* For NetworkConfig.faults. They hold for every network in this process that uses them. */
WireFaults *lossy_faults(const Lossy *lossy);

/* For `change`: a packet of the same bytes, which may be changed. */
Packet *lossy_copy(const Packet *packet);

/* Whether every packet is dropped. Any thread. */
void lossy_set_dropping(bool drops_all);

#endif
