/* Where the packets of one TCP connection come in, and where those that answer a greeting go back.
 *
 * Of a connection that was accepted the receiver shakes hands first; until that is done it has no
 * memory but this struct. Then packets come as tcp_stream.h tells. Nothing that comes is trusted:
 * memory for a large packet grows with what has come of it.
 *
 * Small packets lie in the receiver's buffer, many of which one read can bring, and are lent. A
 * large one is read straight into a block of its own. Both are opened where they lie.
 *
 * Threads: the I/O thread; what was received, any. */
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
    char address[TCP_ADDRESS_BYTES]; /* of the other end */
    int64_t accepted_ms;

    Handshake handshake;
    bool is_proven;  /* the handshake is done */
    bool is_answers; /* on it come answers to greetings of ours */
    uint32_t node;   /* who the other end is, once that is proven */
    uint64_t incarnation;
    Seal receives, sends; /* once it is proven */
    const char *fault;    /* not NULL: why it is not worth keeping */
    int64_t heard_ms;

    uint8_t *buffer;
    size_t begin, end; /* what of the buffer was read and not taken */

    /* the large packet that is coming: packet_bytes > 0 */
    size_t packet_bytes, packet_at;
    size_t opened_at; /* the pieces up to here were opened */
    uint8_t *block;   /* NULL: there was no memory, and it is dropped */
    size_t block_bytes;

    GByteArray *answer; /* NULL: there is none to be sent */
    size_t answer_at;
    bool has_answered;
} TcpReceiver;

/* Takes over the accepted socket, which does not block and is in the epoll. The pool outlives what
 * is received. (transfer full) */
TcpReceiver *tcp_receiver_new(uint32_t id, int fd, int epoll_fd, const char *address,
                              BlockPool *pool, const HandshakeConfig *config);

/* The same for a connected socket on which this end has shaken hands: answers come on it. */
TcpReceiver *tcp_receiver_new_for_answers(uint32_t id, int fd, int epoll_fd, const char *address,
                                          BlockPool *pool, const Handshake *done,
                                          const Seal *receives);

/* Takes the socket out of the epoll and closes it. */
void tcp_receiver_free(TcpReceiver *receiver);

/* Reads once from the socket, or shakes hands as far as that goes and reads nothing more. False:
 * nothing more will come, or `fault` is set. */
bool tcp_receiver_read(TcpReceiver *receiver);

/* Takes the next packet out of what was read, false: there is none, or `fault` is set. */
bool tcp_receiver_take(TcpReceiver *receiver, Received *received);

/* Sends a packet back, unless one is still being sent. False: the connection is broken. */
bool tcp_receiver_answer(TcpReceiver *receiver, const Packet *packet);

/* Goes on sending it. */
bool tcp_receiver_write(TcpReceiver *receiver);

/* Whether there is something left to send. */
static inline bool tcp_receiver_has_answer(const TcpReceiver *receiver)
{
    return receiver->answer != NULL;
}

/* Whether a large packet has begun to come. */
static inline bool tcp_receiver_is_midway(const TcpReceiver *receiver)
{
    return receiver->packet_bytes > 0;
}

#endif
