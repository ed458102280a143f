/* The inside of frames, and the packets in which they are sent.
 *
 * A packet is a buffer shared by the link, which keeps it until it is acknowledged, and by a
 * transport that sends it without a copy. Its bytes are written only before it is first sent, so
 * sharing needs no lock. An exception is a channel that encrypts a packet in its own memory: nobody
 * else reads the bytes of a packet that was handed to it.
 *
 * Threads: packet_ref, packet_unref and packet_is_shared from any, the rest from one at a time. */
#ifndef RUBATO_IO_NET_LINK_PACKET_H
#define RUBATO_IO_NET_LINK_PACKET_H

#include <stdatomic.h>

#include "io/net/link/frame.h"
#include "io/net/secure/seal.h"

typedef struct Packet Packet;
struct Packet {
    /* the link's */
    Packet *next;
    uint64_t sequence;

    /* immutable once sent, but see mark */
    uint8_t *bytes;
    size_t size;
    uint32_t n_messages;

    /* Before it is first sent: where the last values_bytes lie that are not in `bytes` yet; NULL:
     * all are there. */
    const uint8_t *values;
    size_t values_bytes;

    /* The transport's. If it is set, `bytes` are encrypted. */
    SealMark mark;

    /* The transport's, guarded by its lock: where the last values lie that are in a ring, and not
     * in `bytes` (io/net/transport/shm/ring_values.h); NULL: none. Others ask only whether there
     * are some. */
    _Atomic(const uint8_t *) in_ring;
    Packet *next_in_ring;
    uint64_t ring_place;

    /* immutable: has the last values of the packet, which are never in `bytes`; NULL: all are
     * there */
    DirectWrite *direct;

    /* immutable: where its memory came from */
    BlockPool *pool;
    size_t block_bytes;

    _Atomic uint32_t refs;
};

struct Frame {
    Packet packet; /* first: a frame that is sent alone is the packet */
    Frame *next;
    uint64_t follows; /* the send queue's */
    WireHeader header;
    size_t value_room; /* bytes that the values may take */
    _Alignas(16) uint8_t bytes[];
};

/* Frames up to this fraction of a packet's size are joined. */
#define PACKET_SMALL_PART 4

/* Whether a message of so many bytes is never joined with others. */
static inline bool packet_is_alone(size_t message_bytes, size_t joined_bytes)
{
    return message_bytes > joined_bytes / PACKET_SMALL_PART;
}

/* While others have to go first, at most so many are. */
#define PACKET_SMALL_MOST 256

/* Takes the next packet from a list of frames: the first frame alone, or as many small ones as fit
 * into a packet of joined_bytes, but not more than `most`. *frames becomes the rest. (transfer
 * full) */
Packet *packet_take(Frame **frames, size_t joined_bytes, uint32_t most);

/* A packet with size bytes, not initialised, that holds no single message. NULL if there is no
 * memory. (transfer full) */
Packet *packet_new(size_t size);

/* The packet that has these bytes. (transfer none) */
static inline Packet *packet_of_bytes(void *bytes)
{
    return (Packet *)(void *)((uint8_t *)bytes - offsetof(Frame, bytes));
}

static inline void packet_ref(Packet *packet)
{
    /* Relaxed: a thread that takes a reference already has one. */
    atomic_fetch_add_explicit(&packet->refs, 1, memory_order_relaxed);
}

void packet_unref(Packet *packet);

/* Copies the values that are not in the packet's bytes yet. */
void packet_gather(Packet *packet);

/* A packet of one frame, whose last n_bytes lie there and are not copied: its values, of which
 * n_bytes is then a multiple of 8, or its keys and values as on the wire, with their padding.
 * (transfer full) */
Packet *packet_of_values(Frame *frame, const void *values, size_t n_bytes);

/* Bytes of a packet, in two places; there may be none in the second. */
typedef struct {
    const uint8_t *head;
    size_t n_head;
    const uint8_t *rest;
    size_t n_rest;
} PacketParts;

/* Where the n bytes of the packet from `at` on lie. They stay there until packet_unlock. */
PacketParts packet_lock(const Packet *packet, size_t at, size_t n);
static inline void packet_unlock(const Packet *packet)
{
    if (packet->direct != NULL)
        direct_write_unlock(packet->direct);
}

/* Copies the n bytes of the packet from `at` on. */
void packet_read(const Packet *packet, size_t at, size_t n, uint8_t *to);

/* Its caller's memory is not read any more, if there is memory for a copy (direct_write.h). */
static inline void packet_revoke(const Packet *packet)
{
    if (packet->direct != NULL)
        (void)direct_write_revoke(packet->direct);
}

/* A packet with the same bytes, all of them its own. NULL: no memory. (transfer full) */
Packet *packet_copy(const Packet *packet);

static inline bool packet_is_in_ring(const Packet *packet)
{
    return atomic_load_explicit(&packet->in_ring, memory_order_relaxed) != NULL;
}

/* Whether a transport still has to send the packet. One that is in a ring was sent. Relaxed: if
 * none has, the packet is sent again, and nothing is done with it before; if it has just left a
 * ring, it may be taken for one that is still to be sent, and is sent again one wait later. */
static inline bool packet_is_shared(const Packet *packet)
{
    const uint32_t n_sent = packet_is_in_ring(packet) ? 2 : 1;

    return atomic_load_explicit(&packet->refs, memory_order_relaxed) > n_sent;
}

#endif
