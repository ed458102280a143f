/* A channel that wraps one of any transport and drops, doubles, holds back and changes what it
 * sends.
 *
 * Threads: as for any channel. */
#ifndef RUBATO_IO_NET_TRANSPORT_FAULTY_FAULTY_CHANNEL_H
#define RUBATO_IO_NET_TRANSPORT_FAULTY_FAULTY_CHANNEL_H

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

/* If nothing follows a packet that is held back to be sent after others, it leaves in this time. */
#define WIRE_FAULTS_HELD_MS 5u

/* Packets that are held back are looked at so often. */
static inline unsigned wire_faults_tick_ms(const WireFaults *faults, unsigned usual_ms)
{
    unsigned tick_ms = usual_ms;

    if (faults != NULL && faults->of_packets.delay_ms > 0)
        tick_ms = MIN(tick_ms, MAX(faults->of_packets.delay_ms / 4, 1));
    if (faults != NULL && faults->of_packets.reordering > 0)
        tick_ms = MIN(tick_ms, WIRE_FAULTS_HELD_MS);
    return tick_ms;
}

/* The channel with these faults, which outlive it; `number` differs between the channels of a node,
 * and gives each random numbers of its own. (inner, transfer full; transfer full) */
Channel *faulty_channel_new(Channel *inner, WireFaults *faults, uint32_t from, uint32_t to,
                            uint32_t number);

#endif
