/* Packets whose values lie in a ring alone.
 *
 * DESIGN NOTE
 *
 * Values that lie with a caller, or in a table, are copied straight into the ring, and not to their
 * packet before: the packets under way are larger than a processor's cache, so that this copy would
 * take as long as the one into the ring. But the link keeps each packet until the other link has
 * taken it, and sends it again if the connection breaks, or if the reader had no memory for it. The
 * ring has the values for as long: a reader that is done with a record leaves its bytes as they
 * are. So they are copied from there to their packet only
 *   - before the writer overwrites them, if the link still has the packet: usually it has let it go
 *     long before;
 *   - before the ring is closed;
 *   - when the packet is sent again through the same ring.
 *
 * The reader may write to the ring, and so to values that are sent once more. They are sent to
 * nobody else.
 *
 * A packet here has a reference for its place in the ring. packet_is_shared() does not count it.
 *
 * Threads: those that hold the lock of the ring's sender. The link drops packets without it. */
#ifndef RUBATO_IO_NET_TRANSPORT_SHM_RING_VALUES_H
#define RUBATO_IO_NET_TRANSPORT_SHM_RING_VALUES_H

#include "io/net/link/packet.h"

/* By their place in the ring. */
typedef struct {
    Packet *first, *last;
} RingValues;

/* The record at that place is the packet, with its values at `values`. */
void ring_values_add(RingValues *kept, Packet *packet, const uint8_t *values, uint64_t place);

/* Lets the packets go that nobody else has any more. */
void ring_values_thin(RingValues *kept);

/* Lets the first packet go; if others have it, its values are in its bytes afterwards. There is
 * one. */
void ring_values_drop_first(RingValues *kept);

/* The same for all. */
void ring_values_clear(RingValues *kept);

#endif
