/* The form of packets on a TCP connection after the handshake.
 *
 * A packet is its size in four bytes, little-endian, and then its bytes in pieces, each followed by
 * its tag. A piece is the whole packet; if packets are encrypted, it has at most TCP_PIECE_BYTES. A
 * changed size makes the tag of the piece that it cuts wrong.
 *
 * Threads: any; the functions depend on their arguments only. */
#ifndef RUBATO_IO_NET_TRANSPORT_TCP_TCP_STREAM_H
#define RUBATO_IO_NET_TRANSPORT_TCP_TCP_STREAM_H

#include <sys/socket.h>

#include "io/net/transport/transport_ops.h"

#define TCP_SIZE_BYTES ((size_t)4)

/* An encrypted piece is written to a buffer of this size. The pieces of a range are packets of half
 * a megabyte: each is encrypted and written whole, and wakes the other end once. */
#define TCP_PIECE_BYTES ((size_t)1 << 20)

/* The most bytes of a piece. */
static inline size_t tcp_piece_bytes(const Seal *seal)
{
    return seal->protection == PROTECTION_ENCRYPT ? TCP_PIECE_BYTES : WIRE_MAX_PACKET_BYTES;
}

/* A packet in this form. (transfer full) */
GByteArray *tcp_stream_packet(Seal *seal, const uint8_t *bytes, size_t size);

/* The configuration of a connected socket's handshake: this node, and the protection of the
 * bytes. */
HandshakeConfig tcp_stream_config(const TransportConfig *config, int fd);

/* What the kernel keeps of a connection within this host. It counts twice as much, its own
 * structures among it. */
#define TCP_NEAR_BYTES (256 << 10)

/* Bounds what the kernel takes of a connected socket's bytes before the other end has read them, if
 * that end is on this host. There the kernel copies all of them into its pages, and out of them
 * again. With more than a few hundred kilobytes under way, these pages are in no cache any more by
 * the time they are read. Between hosts a connection needs as much as is on its way. */
void tcp_stream_bound(int fd);

#endif
