/* A packet whose messages are being handled, and what they keep of its memory and of the window.
 *
 * Threads: parcel_unref from any; the rest from the thread that receives. */
#ifndef RUBATO_IO_NET_NETWORK_NETWORK_PARCEL_H
#define RUBATO_IO_NET_NETWORK_NETWORK_PARCEL_H

#include "io/net/network/network_private.h"

/* The packet, and its messages. */
typedef struct {
    Peer *peer;
    size_t stride; /* from item to item */
    uint32_t n_items;
    size_t packet_bytes;
    _Atomic uint32_t refs;
    bool holds_received;
    bool is_lent;          /* one reply or Add, read in the transport's memory, */
    const uint8_t *values; /* or, if this is not NULL, to the place of its values; or a piece of a
                            * tensor, whose head is copied */
    Received received;
    uint8_t *block; /* of the network's pool, with a copy of a large packet, or for one of a lent
                     * Add (incoming_own); NULL: there is none */
    _Alignas(16) uint8_t items[];
} Parcel;

/* A message. */
typedef struct {
    Incoming incoming;
    size_t charge; /* bytes that it takes of its sender's window */
    size_t parked; /* bytes that it takes of what is kept for its sender */
    _Alignas(16) uint8_t room[];
} Item;

static inline Item *parcel_item(Parcel *parcel, uint32_t i)
{
    return (Item *)(void *)(parcel->items + i * parcel->stride);
}

/* A parcel with aligned bytes: the packet as it came, or a copy. NULL: no memory. A lent packet is
 * copied, because its messages may live longer, and so that nobody changes it. Only rows are read
 * where they are: those of a reply, and of a large Add that has no list of keys (incoming_is_lent).
 * There is a reference for each message, and one for the caller. (transfer full) */
Parcel *parcel_new(Peer *peer, Received *received, uint32_t n_messages, uint8_t **bytes);

/* Finds the messages of the packet. Returns NULL, or what is wrong with it; then none of them may
 * be used. */
const char *parcel_unpack(Parcel *parcel, uint8_t *bytes, size_t size, uint32_t n_messages);

/* Gives a reference back. */
void parcel_unref(Parcel *parcel);

/* Drops a packet of which no message was handed over. */
void parcel_drop(Parcel *parcel);

#endif
