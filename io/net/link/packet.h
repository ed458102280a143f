/* What frames look like from inside, and the packets that they travel in.
 *
 * A packet is a buffer shared by the link, which keeps it until it is acknowledged, and by a
 * transport that sends it without a copy. Its bytes are written before it is first sent and never
 * again, so that sharing needs no lock.
 *
 * Threads: packet_ref, packet_unref and packet_is_shared from any, the rest from one at a time. */
#ifndef RUBATO_IO_NET_LINK_PACKET_H
#define RUBATO_IO_NET_LINK_PACKET_H

#include <stdatomic.h>

#include "io/net/link/frame.h"

typedef struct Packet Packet;
struct Packet {
    /* the link's */
    Packet *next;
    uint64_t sequence;

    /* immutable once sent */
    uint8_t *bytes;
    size_t size;
    uint32_t n_messages;

    /* immutable: where its memory came from */
    BlockPool *pool;
    size_t block_bytes;

    _Atomic uint32_t refs;
};

struct Frame {
    Packet packet; /* first: a frame that travels alone is the packet */
    Frame *next;
    WireHeader header;
    size_t value_room; /* bytes that the values may take */
    _Alignas(16) uint8_t bytes[];
};

/* Frames up to this part of a packet's size go together. */
#define PACKET_SMALL_PART 4

/* Takes the next packet off a list of frames: the first one alone, or as many small ones as go
 * together in a packet of joined_bytes. *frames becomes the rest. (transfer full) */
Packet *packet_take(Frame **frames, size_t joined_bytes);

/* A packet with size bytes, not initialised: a frame that was never one message. NULL where the
 * memory is not there. (transfer full) */
Packet *packet_new(size_t size);

/* The packet that has these bytes. (transfer none) */
static inline Packet *packet_of_bytes(void *bytes)
{
    return (Packet *)(void *)((uint8_t *)bytes - offsetof(Frame, bytes));
}

static inline void packet_ref(Packet *packet)
{
    /* Relaxed: whoever takes a reference has one. */
    atomic_fetch_add_explicit(&packet->refs, 1, memory_order_relaxed);
}

void packet_unref(Packet *packet);

/* Whether a transport still holds the packet. Relaxed: where none does it is sent again, that is
 * read. */
static inline bool packet_is_shared(const Packet *packet)
{
    return atomic_load_explicit(&packet->refs, memory_order_relaxed) > 1;
}

#endif
