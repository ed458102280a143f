/* How packets follow one another on a TCP connection, once both ends have shaken hands.
 *
 * For each packet its size, four bytes, little-endian, and its bytes in pieces, each followed by
 * its tag. A piece is the whole packet, but where packets are encrypted no more than
 * TCP_PIECE_BYTES. A size that was changed shows in the tag of the piece that it cuts.
 *
 * Threads: functions of their arguments alone. */
#ifndef RUBATO_IO_NET_TRANSPORT_TCP_TCP_STREAM_H
#define RUBATO_IO_NET_TRANSPORT_TCP_TCP_STREAM_H

#include <sys/socket.h>

#include "io/net/transport/transport_ops.h"

#define TCP_SIZE_BYTES ((size_t)4)

/* An encrypted piece is written to a buffer of this size. The pieces of a range are packets of half
 * a megabyte: each is encrypted and written whole, and wakes the other end once. */
#define TCP_PIECE_BYTES ((size_t)1 << 20)

/* The most that a piece has. */
static inline size_t tcp_piece_bytes(const Seal *seal)
{
    return seal->protection == PROTECTION_ENCRYPT ? TCP_PIECE_BYTES : WIRE_MAX_PACKET_BYTES;
}

/* A packet as it travels. (transfer full) */
GByteArray *tcp_stream_packet(Seal *seal, const uint8_t *bytes, size_t size);

/* What the handshake of a connected socket is to begin with: who this node is, and how what is said
 * on it is protected. */
HandshakeConfig tcp_stream_config(const TransportConfig *config, int fd);

#endif
