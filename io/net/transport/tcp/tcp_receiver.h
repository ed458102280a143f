/* The receiving end of one TCP connection, which also sends back answers to greetings.
 *
 * On an accepted connection the receiver first shakes hands. Until that is done, it has no memory
 * but this struct. Then packets come as tcp_stream.h describes. The receiver trusts no size that it
 * reads: memory for a large packet grows with the bytes that have come.
 *
 * Small packets are in the receiver's buffer, and are lent; one read can bring many of them. A
 * large packet is read straight into a block of its own or, if it brings values for which somebody
 * waits, to their place (tcp_direct.h). All are opened in place.
 *
 * Threads: the I/O thread; received packets, any. */
#ifndef RUBATO_IO_NET_TRANSPORT_TCP_TCP_RECEIVER_H
#define RUBATO_IO_NET_TRANSPORT_TCP_TCP_RECEIVER_H

#include "io/net/link/block_pool.h"
#include "io/net/transport/tcp/tcp_stream.h"

#define TCP_RECEIVER_BUFFER_BYTES ((size_t)64 << 10)
#define TCP_ADDRESS_BYTES 48

typedef struct {
    /* immutable */
    uint32_t id;
    int fd, epoll_fd;
    BlockPool *pool;
    const DirectReader *reader;      /* NULL: all large packets get blocks */
    char address[TCP_ADDRESS_BYTES]; /* of the other end */
    int64_t accepted_ms;

    Handshake handshake;
    bool is_proven;  /* the handshake is done */
    bool is_answers; /* it brings answers to greetings of ours */
    uint32_t node;   /* the other end, once that is proven */
    uint64_t incarnation;
    Seal receives, sends; /* once it is proven */
    const char *fault;    /* not NULL: why the connection is to be closed */
    int64_t heard_ms;

    uint8_t *buffer;
    size_t begin, end; /* the bytes of the buffer that were read and not taken */

    /* the large packet that is arriving: packet_bytes > 0 */
    size_t packet_bytes, packet_at;
    size_t opened_at; /* the pieces up to here were opened */
    uint8_t *block;   /* NULL: there was no memory for the packet, and it is dropped */
    size_t block_bytes;
    bool is_direct; /* it has no block: its head is in `head`, the rest is read to its place */
    DirectRead direct;
    size_t head_bytes; /* of such a packet */
    _Alignas(8) uint8_t head[DIRECT_MOST_HEAD_BYTES];

    GByteArray *answer; /* NULL: there is none to send */
    size_t answer_at;
    bool has_answered;
} TcpReceiver;

/* Takes over the accepted socket, which does not block and is in the epoll. The pool outlives the
 * received packets. (transfer full) */
TcpReceiver *tcp_receiver_new(uint32_t id, int fd, int epoll_fd, const char *address,
                              BlockPool *pool, const HandshakeConfig *config);

/* The same for a connected socket on which this end has shaken hands and gets answers. */
TcpReceiver *tcp_receiver_new_for_answers(uint32_t id, int fd, int epoll_fd, const char *address,
                                          BlockPool *pool, const Handshake *done,
                                          const Seal *receives);

/* Before the first read: by this values find their place. It outlives the
 * receiver. */
void tcp_receiver_set_reader(TcpReceiver *receiver, const DirectReader *reader);

/* Takes the socket out of the epoll and closes it. */
void tcp_receiver_free(TcpReceiver *receiver);

/* Reads once from the socket; or, before the handshake is done, continues it and reads nothing
 * more. False: nothing more will come, or `fault` is set. */
bool tcp_receiver_read(TcpReceiver *receiver);

/* Takes the next packet from the bytes that were read. The last one was released. False: there is
 * none, or `fault` is set. */
bool tcp_receiver_take(TcpReceiver *receiver, Received *received);

/* What is known of a packet with these bytes, and how it is released. For tcp_direct.c. */
void tcp_receiver_fill(TcpReceiver *receiver, Received *received, uint8_t *bytes, size_t size);

/* Sends a packet back, unless another one is still being sent. False: the connection is broken. */
bool tcp_receiver_answer(TcpReceiver *receiver, const Packet *packet);

/* Continues to send it. */
bool tcp_receiver_write(TcpReceiver *receiver);

/* Whether there is something left to send. */
static inline bool tcp_receiver_has_answer(const TcpReceiver *receiver)
{
    return receiver->answer != NULL;
}

/* Whether tcp_receiver_take would find nothing, because all that was read is taken. */
static inline bool tcp_receiver_is_empty(const TcpReceiver *receiver)
{
    return receiver->begin == receiver->end && receiver->packet_bytes == 0 &&
           receiver->fault == NULL;
}

/* Whether a large packet is arriving. */
static inline bool tcp_receiver_is_midway(const TcpReceiver *receiver)
{
    return receiver->packet_bytes > 0;
}

#endif
