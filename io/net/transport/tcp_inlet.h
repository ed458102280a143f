/* Where the packets of one TCP connection come in.
 *
 * On a connection packets travel one way, from who has connected: TCP_PREAMBLE, then for each packet
 * its size, four bytes, little-endian, and its bytes. Nothing that comes is trusted: memory for a large
 * packet grows with what has come of it.
 *
 * Small packets lie in the inlet's buffer, many of which one read can bring, and are lent. A large one
 * is read straight into a block of its own.
 *
 * Threads: the I/O thread; what was received, any. */
#ifndef RUBATO_IO_NET_TRANSPORT_TCP_INLET_H
#define RUBATO_IO_NET_TRANSPORT_TCP_INLET_H

#include "io/net/block_pool.h"
#include "io/net/transport/transport_ops.h"

#define TCP_PREAMBLE "RBTOTCP1"
#define TCP_PREAMBLE_BYTES ((size_t)8)
#define TCP_SIZE_BYTES ((size_t)4)

#define TCP_INLET_BUFFER_BYTES ((size_t)64 << 10)
#define TCP_ADDRESS_BYTES 48

typedef struct {
    /* immutable */
    uint32_t id;
    int fd, epoll_fd;
    BlockPool *pool;
    char address[TCP_ADDRESS_BYTES]; /* of the other end */

    bool is_greeted; /* the preamble has come */
    int64_t heard_ms;

    uint8_t *buffer;
    size_t begin, end; /* what of the buffer was read and not taken */

    /* the large packet that is coming: packet_bytes > 0 */
    size_t packet_bytes, packet_at;
    uint8_t *block; /* NULL: there was no memory, and it is dropped */
    size_t block_bytes;
} TcpInlet;

/* Takes over the connected socket, which does not block and is in the epoll. The pool outlives what is
 * received. (transfer full) */
TcpInlet *tcp_inlet_new(uint32_t id, int fd, int epoll_fd, const char *address, BlockPool *pool);

/* Takes the socket out of the epoll and closes it. */
void tcp_inlet_free(TcpInlet *inlet);

/* Reads once from the socket. False: nothing more will come. */
bool tcp_inlet_read(TcpInlet *inlet);

/* Takes the next packet out of what was read, false: there is none. Not NULL *fault: the connection is
 * not worth keeping; why. */
bool tcp_inlet_take(TcpInlet *inlet, Received *received, const char **fault);

/* Whether a large packet has begun to come. */
static inline bool tcp_inlet_is_midway(const TcpInlet *inlet)
{
    return inlet->packet_bytes > 0;
}

#endif
