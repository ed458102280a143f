/* A large packet whose values a connection's receiver reads straight to where they go
 * (io/net/direct_read.h). Its head stays in the receiver.
 *
 * Threads: the I/O thread. */
#ifndef RUBATO_IO_NET_TRANSPORT_TCP_TCP_DIRECT_H
#define RUBATO_IO_NET_TRANSPORT_TCP_TCP_DIRECT_H

#include <sys/uio.h>

#include "io/net/transport/tcp/tcp_receiver.h"

/* Whether a packet of this size may be read so. Then its head has to come before the rest finds its
 * memory. */
bool tcp_direct_is_possible(const TcpReceiver *receiver, size_t size);

/* Begins such a packet, whose head is the next in the buffer, and takes the head out of it. False:
 * there is no place for its values, and nothing has changed. */
bool tcp_direct_begin(TcpReceiver *receiver, size_t size);

/* Receives into the rest of the packet, the length of parts[0], and then into parts[1]. As recvmsg,
 * or `fault` is set. */
ssize_t tcp_direct_receive(TcpReceiver *receiver, struct iovec parts[2]);

/* Copies n bytes of the packet from the buffer. */
void tcp_direct_fill(TcpReceiver *receiver, size_t n);

/* Opens the packet, which is complete, in place. False: it is not as it was sent, or `fault` is
 * set. */
bool tcp_direct_open(TcpReceiver *receiver, const uint8_t *tag);

/* Sets where the complete packet lies. It is lent until tcp_direct_end. False: `fault` is set. */
bool tcp_direct_give(TcpReceiver *receiver, Received *received);

/* Nothing more of it is needed. */
void tcp_direct_end(TcpReceiver *receiver);

#endif
