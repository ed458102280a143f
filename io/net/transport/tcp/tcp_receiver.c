/* The receiving end of one TCP connection. */
#include "io/net/transport/tcp/tcp_receiver.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "io/net/link/wire.h"
#include "io/net/monotonic.h"
#include "io/net/transport/tcp/tcp_direct.h"

/* Packets up to this size are lent. The network copies lent requests, which would cost too much for
 * larger ones. */
#define LENT_BYTES ((size_t)8 << 10)

/* At most this much is read after the end of a large packet. It is the beginning of the next
 * packet, which may also be large and must not be copied in large pieces. */
#define READ_AHEAD_BYTES ((size_t)8 << 10)

/* The first block for a packet that is larger than this. Each next block is four times as large. */
#define FIRST_BLOCK_BYTES ((size_t)1 << 20)

/* What Received.memory holds. */
typedef struct {
    TcpReceiver *receiver; /* of a lent packet */
    BlockPool *pool;
    uint8_t *block; /* NULL: lent */
    size_t block_bytes;
    char address[TCP_ADDRESS_BYTES];
} TcpReceived;

G_STATIC_ASSERT(sizeof(TcpReceived) <= sizeof(((Received *)NULL)->memory));

static TcpReceived *inside(Received *received)
{
    return (TcpReceived *)(void *)received->memory;
}

static void received_release(Received *received)
{
    TcpReceived *const self = inside(received);

    if (self->block != NULL)
        block_pool_give(self->pool, self->block, self->block_bytes);
    else if (received->values != NULL)
        tcp_direct_end(self->receiver);
}

static void received_move(Received *to, Received *from)
{
    g_assert(!from->lent);
    *to = *from;
}

static const char *received_address(Received *received)
{
    return inside(received)->address;
}

static const ReceivedOps received_ops = {
    .release = received_release,
    .move = received_move,
    .address = received_address,
};

static TcpReceiver *make(uint32_t id, int fd, int epoll_fd, const char *address, BlockPool *pool)
{
    TcpReceiver *const receiver = g_aligned_alloc0(1, sizeof *receiver, _Alignof(TcpReceiver));

    receiver->id = id;
    receiver->fd = fd;
    receiver->epoll_fd = epoll_fd;
    receiver->pool = pool;
    g_strlcpy(receiver->address, address, sizeof receiver->address);
    receiver->accepted_ms = receiver->heard_ms = monotonic_ms();
    direct_read_init(&receiver->direct, pool);
    return receiver;
}

/* The other end has proved its identity. */
static void note_proven(TcpReceiver *receiver, const Handshake *done)
{
    receiver->is_proven = true;
    receiver->node = handshake_peer_node(done);
    receiver->incarnation = handshake_peer_incarnation(done);
    receiver->buffer = g_malloc(TCP_RECEIVER_BUFFER_BYTES);
}

TcpReceiver *tcp_receiver_new(uint32_t id, int fd, int epoll_fd, const char *address,
                              BlockPool *pool, const HandshakeConfig *config)
{
    TcpReceiver *const receiver = make(id, fd, epoll_fd, address, pool);

    handshake_init(&receiver->handshake, HANDSHAKE_ROLE_ACCEPTS, config, NULL);
    return receiver;
}

TcpReceiver *tcp_receiver_new_for_answers(uint32_t id, int fd, int epoll_fd, const char *address,
                                          BlockPool *pool, const Handshake *done,
                                          const Seal *receives)
{
    TcpReceiver *const receiver = make(id, fd, epoll_fd, address, pool);

    receiver->is_answers = true;
    receiver->receives = *receives;
    note_proven(receiver, done);
    return receiver;
}

void tcp_receiver_set_reader(TcpReceiver *receiver, const DirectReader *reader)
{
    receiver->reader = reader;
}

/* If a socket is closed with unread bytes, the other end may lose an answer that it has not read
 * yet. So the bytes are read; the buffer of a new connection holds no more than this. */
static void drain(const TcpReceiver *receiver)
{
    uint8_t bytes[4096];

    (void)shutdown(receiver->fd, SHUT_WR);
    for (unsigned i = 0; i < 64 && recv(receiver->fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0; i++)
        ;
}

void tcp_receiver_free(TcpReceiver *receiver)
{
    if (receiver->has_answered)
        drain(receiver);
    /* Closing is not enough: a forked process may still have it open. */
    (void)epoll_ctl(receiver->epoll_fd, EPOLL_CTL_DEL, receiver->fd, NULL);
    close(receiver->fd);
    if (receiver->is_direct)
        tcp_direct_end(receiver);
    direct_read_clear(&receiver->direct);
    block_pool_give(receiver->pool, receiver->block, receiver->block_bytes);
    g_free(receiver->buffer);
    if (receiver->answer != NULL)
        g_byte_array_unref(receiver->answer);
    handshake_clear(&receiver->handshake);
    seal_clear(&receiver->receives);
    seal_clear(&receiver->sends);
    g_aligned_free(receiver);
}

/* ---- the handshake ---- */

/* Sends a message of the handshake at once: a new connection has room for more than that. */
static bool say(TcpReceiver *receiver, const uint8_t *bytes, size_t size)
{
    ssize_t n;

    do
        n = send(receiver->fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n == -1 && errno == EINTR);
    return n == (ssize_t)size;
}

/* Reads the bytes that the handshake wants and none beyond them. False: the connection has
 * ended. */
static bool shake_hands(TcpReceiver *receiver)
{
    uint8_t bytes[HANDSHAKE_HELLO_BYTES], output[HANDSHAKE_HELLO_BYTES];
    size_t wanted, n_output;

    while ((wanted = handshake_wants(&receiver->handshake)) > 0) {
        const ssize_t n = recv(receiver->fd, bytes, wanted, MSG_DONTWAIT);
        if (n == -1 && errno == EINTR)
            continue;
        if (n <= 0) /* nothing more to read now, or ever */
            return n == -1 && (errno == EAGAIN || errno == EWOULDBLOCK);
        receiver->fault = handshake_take(&receiver->handshake, bytes, (size_t)n, output, &n_output);
        if ((n_output > 0 && !say(receiver, output, n_output)) || receiver->fault != NULL)
            return false;
    }
    handshake_make_seals(&receiver->handshake, &receiver->sends, &receiver->receives);
    note_proven(receiver, &receiver->handshake);
    handshake_clear(&receiver->handshake);
    return true;
}

/* ---- reading ---- */

/* The end of the piece that is arriving. */
static size_t piece_end(const TcpReceiver *receiver)
{
    const size_t most = tcp_piece_bytes(&receiver->receives),
                 left = receiver->packet_bytes - receiver->opened_at;

    return receiver->opened_at + MIN(most, left);
}

/* Makes room for more of the packet, which has filled its block. */
static void grow_block(TcpReceiver *receiver)
{
    const size_t wanted = MAX(FIRST_BLOCK_BYTES, 4 * receiver->block_bytes);
    const size_t size = MIN(receiver->packet_bytes, wanted);
    uint8_t *const block = block_pool_take(receiver->pool, size);

    if (block != NULL)
        memcpy(block, receiver->block, receiver->packet_at);
    block_pool_give(receiver->pool, receiver->block, receiver->block_bytes);
    receiver->block = block;
    receiver->block_bytes = block != NULL ? size : 0;
}

/* Where to read to now: the piece that is arriving, and what follows it. Returns the number of
 * parts. */
static int find_room(TcpReceiver *receiver, struct iovec parts[2])
{
    const size_t end = piece_end(receiver);

    if (receiver->block != NULL && receiver->packet_at == receiver->block_bytes &&
        receiver->packet_at < end)
        grow_block(receiver);
    if (receiver->begin == receiver->end)
        receiver->begin = receiver->end = 0;
    if (receiver->is_direct && receiver->packet_at < end) {
        parts[0] = (struct iovec){ NULL, end - receiver->packet_at }; /* where, is known later */
        parts[1] = (struct iovec){ receiver->buffer, READ_AHEAD_BYTES };
        return 2;
    }
    if (receiver->block != NULL && receiver->packet_at < end) {
        const size_t room = MIN(end, receiver->block_bytes) - receiver->packet_at;
        parts[0] = (struct iovec){ receiver->block + receiver->packet_at, room };
        parts[1] = (struct iovec){ receiver->buffer, READ_AHEAD_BYTES };
        return receiver->packet_at + room == end ? 2 : 1;
    }
    if (receiver->begin > 0) { /* less than one small packet */
        memmove(receiver->buffer, receiver->buffer + receiver->begin,
                receiver->end - receiver->begin);
        receiver->end -= receiver->begin;
        receiver->begin = 0;
    }
    const size_t most = receiver->block != NULL || receiver->is_direct ? READ_AHEAD_BYTES
                                                                       : TCP_RECEIVER_BUFFER_BYTES;
    parts[0] = (struct iovec){ receiver->buffer + receiver->end, most - receiver->end };
    return 1;
}

static ssize_t receive(const TcpReceiver *receiver, struct iovec *parts, int n_parts)
{
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = (size_t)n_parts };
    ssize_t n;

    do
        n = recvmsg(receiver->fd, &message, MSG_DONTWAIT);
    while (n == -1 && errno == EINTR);
    return n;
}

bool tcp_receiver_read(TcpReceiver *receiver)
{
    struct iovec parts[2];

    /* The rest is read next time; the epoll tells of it. */
    if (!receiver->is_proven)
        return shake_hands(receiver);
    const int n_parts = find_room(receiver, parts);
    const bool reads_packet = (receiver->block != NULL || receiver->is_direct) &&
                              parts[0].iov_base != receiver->buffer + receiver->end;
    const ssize_t n = reads_packet && receiver->is_direct ? tcp_direct_receive(receiver, parts)
                                                          : receive(receiver, parts, n_parts);

    if (n <= 0)
        return n == -1 && (errno == EAGAIN || errno == EWOULDBLOCK);
    receiver->heard_ms = monotonic_ms();
    size_t left = (size_t)n;
    if (reads_packet) {
        const size_t of_packet = MIN(left, parts[0].iov_len);
        receiver->packet_at += of_packet;
        left -= of_packet;
    }
    receiver->end += left;
    return true;
}

/* ---- packets ---- */

/* Begins a large packet with the bytes of it that were read. */
static void begin_packet(TcpReceiver *receiver, size_t size)
{
    const size_t block_bytes = MIN(size, FIRST_BLOCK_BYTES);

    if (tcp_direct_begin(receiver, size))
        return;
    receiver->packet_bytes = size;
    receiver->packet_at = receiver->opened_at = 0;
    receiver->block = block_pool_take(receiver->pool, block_bytes);
    receiver->block_bytes = receiver->block != NULL ? block_bytes : 0;
}

/* Moves bytes from the buffer to the piece to which they belong, or drops them with it. */
static void fill_piece(TcpReceiver *receiver)
{
    const size_t wanted = piece_end(receiver) - receiver->packet_at;
    const size_t n = MIN(receiver->end - receiver->begin, wanted);

    if (n > 0 && receiver->block != NULL && receiver->packet_at == receiver->block_bytes)
        grow_block(receiver);
    /* it fits: a block is larger than the buffer, or as large as the packet */
    if (receiver->is_direct)
        tcp_direct_fill(receiver, n);
    else if (receiver->block != NULL)
        memcpy(receiver->block + receiver->packet_at, receiver->buffer + receiver->begin, n);
    receiver->packet_at += n;
    receiver->begin += n;
}

/* The complete tag. */
static const uint8_t *take_tag(TcpReceiver *receiver)
{
    const uint8_t *const tag = receiver->buffer + receiver->begin;

    receiver->begin += SEAL_TAG_BYTES;
    return tag;
}

static bool has_tag(const TcpReceiver *receiver)
{
    return receiver->end - receiver->begin >= SEAL_TAG_BYTES;
}

/* Whether the tag was right; it is a fault if it was not. */
static bool note_opened(TcpReceiver *receiver, bool is_right)
{
    if (is_right)
        return true;
    if (receiver->fault != NULL)
        return false;
    receiver->fault = receiver->receives.protection <= PROTECTION_CHECKSUM
                          ? "the checksum of a packet is wrong"
                          : "a packet is not as its sender has sealed it";
    return false;
}

static bool open_bytes(TcpReceiver *receiver, uint8_t *bytes, size_t size, const uint8_t *tag)
{
    return note_opened(receiver, seal_open(&receiver->receives, bytes, size, tag));
}

/* Opens the piece, which is complete. */
static bool open_piece(TcpReceiver *receiver)
{
    const size_t begin = receiver->opened_at;
    const uint8_t *const tag = take_tag(receiver);

    receiver->opened_at = piece_end(receiver);
    if (receiver->is_direct)
        return note_opened(receiver, tcp_direct_open(receiver, tag));
    if (receiver->block != NULL)
        return open_bytes(receiver, receiver->block + begin, receiver->opened_at - begin, tag);
    seal_skip(&receiver->receives);
    return true;
}

/* Fills and opens pieces with the bytes that were read. Returns whether the large packet is
 * complete. */
static bool is_packet_whole(TcpReceiver *receiver)
{
    while (receiver->opened_at < receiver->packet_bytes) {
        fill_piece(receiver);
        if (receiver->packet_at < piece_end(receiver) || !has_tag(receiver) ||
            !open_piece(receiver))
            return false;
    }
    return true;
}

void tcp_receiver_fill(TcpReceiver *receiver, Received *received, uint8_t *bytes, size_t size)
{
    *received = (Received){
        .ops = &received_ops,
        .bytes = bytes,
        .size = size,
        .is_answer = receiver->is_answers,
        .node = receiver->node,
        .incarnation = receiver->incarnation,
        .connection = receiver->is_answers ? 0 : receiver->id,
    };
    inside(received)->receiver = receiver;
    g_strlcpy(inside(received)->address, receiver->address, TCP_ADDRESS_BYTES);
}

/* Lends a small packet, which is in the buffer with its tag. */
static bool lend(TcpReceiver *receiver, size_t size, Received *received)
{
    uint8_t *const bytes = receiver->buffer + receiver->begin;

    receiver->begin += size;
    if (!open_bytes(receiver, bytes, size, take_tag(receiver)))
        return false;
    tcp_receiver_fill(receiver, received, bytes, size);
    received->lent = true;
    return true;
}

/* Hands over the large packet, which is complete. False: it was dropped. */
static bool give_packet(TcpReceiver *receiver, Received *received)
{
    const bool is_there =
        receiver->is_direct ? tcp_direct_give(receiver, received) : receiver->block != NULL;

    if (receiver->block != NULL) {
        tcp_receiver_fill(receiver, received, receiver->block, receiver->packet_bytes);
        inside(received)->pool = receiver->pool;
        inside(received)->block = receiver->block;
        inside(received)->block_bytes = receiver->block_bytes;
    }
    receiver->block = NULL;
    receiver->block_bytes = receiver->packet_bytes = receiver->packet_at = receiver->opened_at = 0;
    return is_there;
}

bool tcp_receiver_take(TcpReceiver *receiver, Received *received)
{
    while (receiver->is_proven && receiver->fault == NULL) {
        if (receiver->packet_bytes > 0) {
            if (!is_packet_whole(receiver))
                return false;
            if (give_packet(receiver, received))
                return true;
        }
        const size_t left = receiver->end - receiver->begin;
        if (left < TCP_SIZE_BYTES)
            return false;
        const size_t size = wire_load_u32(receiver->buffer + receiver->begin);
        if (size > WIRE_MAX_PACKET_BYTES) {
            receiver->fault = "it announces a packet that is larger than any";
            return false;
        }
        if (size > LENT_BYTES) {
            if (left - TCP_SIZE_BYTES < DIRECT_MOST_HEAD_BYTES &&
                tcp_direct_is_possible(receiver, size))
                return false;
            receiver->begin += TCP_SIZE_BYTES;
            begin_packet(receiver, size);
        } else if (left - TCP_SIZE_BYTES < size + SEAL_TAG_BYTES) {
            return false;
        } else {
            receiver->begin += TCP_SIZE_BYTES;
            return lend(receiver, size, received);
        }
    }
    return false;
}

/* ---- answers ---- */

bool tcp_receiver_write(TcpReceiver *receiver)
{
    ssize_t n;

    if (receiver->answer == NULL)
        return true;
    do
        n = send(receiver->fd, receiver->answer->data + receiver->answer_at,
                 receiver->answer->len - receiver->answer_at, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n == -1 && errno == EINTR);
    if (n == -1)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
    receiver->answer_at += (size_t)n;
    if (receiver->answer_at == receiver->answer->len) {
        g_byte_array_unref(receiver->answer);
        receiver->answer = NULL;
    }
    return true;
}

bool tcp_receiver_answer(TcpReceiver *receiver, const Packet *packet)
{
    if (!receiver->is_proven || receiver->is_answers || receiver->answer != NULL)
        return true;
    receiver->has_answered = true;
    receiver->answer = tcp_stream_packet(&receiver->sends, packet->bytes, packet->size);
    receiver->answer_at = 0;
    return tcp_receiver_write(receiver);
}
