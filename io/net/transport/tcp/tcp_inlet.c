/* Where the packets of one TCP connection come in. */
#include "io/net/transport/tcp/tcp_inlet.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "io/net/link/wire.h"
#include "io/net/monotonic.h"

/* Packets up to this size are lent. The network copies those of requests; more would be too much. */
#define LENT_BYTES ((size_t)8 << 10)

/* What may be read behind the end of a large packet: the beginning of the next one must not be copied
 * for much, for it may be large, too. */
#define READ_AHEAD_BYTES ((size_t)8 << 10)

/* The first block for a packet that is larger yet; each next one is four times as large. */
#define FIRST_BLOCK_BYTES ((size_t)1 << 20)

/* What Received.memory holds. */
typedef struct {
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

static TcpInlet *make(uint32_t id, int fd, int epoll_fd, const char *address, BlockPool *pool)
{
    TcpInlet *const inlet = g_aligned_alloc0(1, sizeof *inlet, _Alignof(TcpInlet));

    inlet->id = id;
    inlet->fd = fd;
    inlet->epoll_fd = epoll_fd;
    inlet->pool = pool;
    g_strlcpy(inlet->address, address, sizeof inlet->address);
    inlet->accepted_ms = inlet->heard_ms = monotonic_ms();
    return inlet;
}

/* The other end has proved who it is. */
static void note_proven(TcpInlet *inlet, const Handshake *done)
{
    inlet->is_proven = true;
    inlet->node = handshake_peer_node(done);
    inlet->incarnation = handshake_peer_incarnation(done);
    inlet->buffer = g_malloc(TCP_INLET_BUFFER_BYTES);
}

TcpInlet *tcp_inlet_new(uint32_t id, int fd, int epoll_fd, const char *address, BlockPool *pool,
                        const HandshakeConfig *config)
{
    TcpInlet *const inlet = make(id, fd, epoll_fd, address, pool);

    handshake_init(&inlet->handshake, HANDSHAKE_ACCEPTS, config, NULL);
    return inlet;
}

TcpInlet *tcp_inlet_new_for_answers(uint32_t id, int fd, int epoll_fd, const char *address,
                                    BlockPool *pool, const Handshake *done, const Seal *receives)
{
    TcpInlet *const inlet = make(id, fd, epoll_fd, address, pool);

    inlet->is_answers = true;
    inlet->receives = *receives;
    note_proven(inlet, done);
    return inlet;
}

/* What has come and was not read would take an answer away from the other end when the socket is closed:
 * it is read, and a fresh connection's buffer has no more than this. */
static void drain(const TcpInlet *inlet)
{
    uint8_t bytes[4096];

    (void)shutdown(inlet->fd, SHUT_WR);
    for (unsigned i = 0; i < 64 && recv(inlet->fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0; i++)
        ;
}

void tcp_inlet_free(TcpInlet *inlet)
{
    if (inlet->has_answered)
        drain(inlet);
    /* A process that was forked off may still have it open. */
    (void)epoll_ctl(inlet->epoll_fd, EPOLL_CTL_DEL, inlet->fd, NULL);
    close(inlet->fd);
    block_pool_give(inlet->pool, inlet->block, inlet->block_bytes);
    g_free(inlet->buffer);
    if (inlet->answer != NULL)
        g_byte_array_unref(inlet->answer);
    handshake_clear(&inlet->handshake);
    seal_clear(&inlet->receives);
    seal_clear(&inlet->sends);
    g_aligned_free(inlet);
}

/* ---- the handshake ---- */

/* A message of the handshake goes out at once: a fresh connection has room for more than that. */
static bool say(TcpInlet *inlet, const uint8_t *bytes, size_t size)
{
    ssize_t n;

    do
        n = send(inlet->fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n == -1 && errno == EINTR);
    return n == (ssize_t)size;
}

/* Reads what the handshake wants and not a byte more. False: the connection is over. */
static bool shake_hands(TcpInlet *inlet)
{
    uint8_t bytes[HANDSHAKE_HELLO_BYTES], output[HANDSHAKE_HELLO_BYTES];
    size_t wanted, n_output;

    while ((wanted = handshake_wants(&inlet->handshake)) > 0) {
        const ssize_t n = recv(inlet->fd, bytes, wanted, MSG_DONTWAIT);
        if (n == -1 && errno == EINTR)
            continue;
        if (n <= 0) /* before it is done, for the time being or for good */
            return n == -1 && (errno == EAGAIN || errno == EWOULDBLOCK);
        inlet->fault = handshake_take(&inlet->handshake, bytes, (size_t)n, output, &n_output);
        if (inlet->fault != NULL || (n_output > 0 && !say(inlet, output, n_output)))
            return false;
    }
    handshake_make_seals(&inlet->handshake, &inlet->sends, &inlet->receives);
    note_proven(inlet, &inlet->handshake);
    handshake_clear(&inlet->handshake);
    return true;
}

/* ---- reading ---- */

/* Where the piece that is coming ends. */
static size_t piece_end(const TcpInlet *inlet)
{
    const size_t most = tcp_piece_bytes(&inlet->receives),
                 left = inlet->packet_bytes - inlet->opened_at;

    return inlet->opened_at + MIN(most, left);
}

/* Makes room for more of the packet, of which as much has come as there was room for. */
static void grow_block(TcpInlet *inlet)
{
    const size_t wanted = MAX(FIRST_BLOCK_BYTES, 4 * inlet->block_bytes);
    const size_t size = MIN(inlet->packet_bytes, wanted);
    uint8_t *const block = block_pool_take(inlet->pool, size);

    if (block != NULL)
        memcpy(block, inlet->block, inlet->packet_at);
    block_pool_give(inlet->pool, inlet->block, inlet->block_bytes);
    inlet->block = block;
    inlet->block_bytes = block != NULL ? size : 0;
}

/* What can be read now: the piece that is coming, and what follows it; returns how many parts. */
static int find_room(TcpInlet *inlet, struct iovec parts[2])
{
    const size_t end = piece_end(inlet);

    if (inlet->block != NULL && inlet->packet_at == inlet->block_bytes && inlet->packet_at < end)
        grow_block(inlet);
    if (inlet->begin == inlet->end)
        inlet->begin = inlet->end = 0;
    if (inlet->block != NULL && inlet->packet_at < end) {
        const size_t room = MIN(end, inlet->block_bytes) - inlet->packet_at;
        parts[0] = (struct iovec){ inlet->block + inlet->packet_at, room };
        parts[1] = (struct iovec){ inlet->buffer, READ_AHEAD_BYTES };
        return inlet->packet_at + room == end ? 2 : 1;
    }
    if (inlet->begin > 0) { /* less than one small packet */
        memmove(inlet->buffer, inlet->buffer + inlet->begin, inlet->end - inlet->begin);
        inlet->end -= inlet->begin;
        inlet->begin = 0;
    }
    const size_t most = inlet->block != NULL ? READ_AHEAD_BYTES : TCP_INLET_BUFFER_BYTES;
    parts[0] = (struct iovec){ inlet->buffer + inlet->end, most - inlet->end };
    return 1;
}

bool tcp_inlet_read(TcpInlet *inlet)
{
    struct iovec parts[2];
    ssize_t n;

    /* What follows is left to the next time, which the epoll tells of. */
    if (!inlet->is_proven)
        return shake_hands(inlet);
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = (size_t)find_room(inlet, parts) };
    const bool reads_block =
        inlet->block != NULL && parts[0].iov_base != inlet->buffer + inlet->end;

    do
        n = recvmsg(inlet->fd, &message, MSG_DONTWAIT);
    while (n == -1 && errno == EINTR);
    if (n <= 0)
        return n == -1 && (errno == EAGAIN || errno == EWOULDBLOCK);
    inlet->heard_ms = monotonic_ms();
    size_t left = (size_t)n;
    if (reads_block) {
        const size_t of_packet = MIN(left, parts[0].iov_len);
        inlet->packet_at += of_packet;
        left -= of_packet;
    }
    inlet->end += left;
    return true;
}

/* ---- packets ---- */

/* A large packet begins with what was read of it. */
static void begin_packet(TcpInlet *inlet, size_t size)
{
    const size_t block_bytes = MIN(size, FIRST_BLOCK_BYTES);

    inlet->packet_bytes = size;
    inlet->packet_at = inlet->opened_at = 0;
    inlet->block = block_pool_take(inlet->pool, block_bytes);
    inlet->block_bytes = inlet->block != NULL ? block_bytes : 0;
}

/* Moves what is in the buffer to the piece that it belongs to, or drops it with that. */
static void fill_piece(TcpInlet *inlet)
{
    const size_t wanted = piece_end(inlet) - inlet->packet_at;
    const size_t n = MIN(inlet->end - inlet->begin, wanted);

    if (n > 0 && inlet->block != NULL && inlet->packet_at == inlet->block_bytes)
        grow_block(inlet);
    /* it fits: a block is larger than the buffer, or as large as the packet */
    if (inlet->block != NULL)
        memcpy(inlet->block + inlet->packet_at, inlet->buffer + inlet->begin, n);
    inlet->packet_at += n;
    inlet->begin += n;
}

/* The tag that has come whole. */
static const uint8_t *take_tag(TcpInlet *inlet)
{
    const uint8_t *const tag = inlet->buffer + inlet->begin;

    inlet->begin += SEAL_TAG_BYTES;
    return tag;
}

static bool has_tag(const TcpInlet *inlet)
{
    return inlet->end - inlet->begin >= SEAL_TAG_BYTES;
}

static bool open_bytes(TcpInlet *inlet, uint8_t *bytes, size_t size, const uint8_t *tag)
{
    if (seal_open(&inlet->receives, bytes, size, tag))
        return true;
    inlet->fault = inlet->receives.protection == PROTECTION_CHECKSUM
                       ? "the checksum of a packet is wrong"
                       : "a packet is not as its sender has sealed it";
    return false;
}

/* Opens the piece, of which all has come. */
static bool open_piece(TcpInlet *inlet)
{
    const size_t begin = inlet->opened_at;
    const uint8_t *const tag = take_tag(inlet);

    inlet->opened_at = piece_end(inlet);
    if (inlet->block != NULL)
        return open_bytes(inlet, inlet->block + begin, inlet->opened_at - begin, tag);
    seal_skip(&inlet->receives);
    return true;
}

/* Fills and opens pieces as far as what was read goes; whether the large packet is whole. */
static bool is_packet_whole(TcpInlet *inlet)
{
    while (inlet->opened_at < inlet->packet_bytes) {
        fill_piece(inlet);
        if (inlet->packet_at < piece_end(inlet) || !has_tag(inlet) || !open_piece(inlet))
            return false;
    }
    return true;
}

static void fill(const TcpInlet *inlet, Received *received, uint8_t *bytes, size_t size)
{
    *received = (Received){
        .ops = &received_ops,
        .bytes = bytes,
        .size = size,
        .is_answer = inlet->is_answers,
        .node = inlet->node,
        .incarnation = inlet->incarnation,
        .connection = inlet->is_answers ? 0 : inlet->id,
    };
    g_strlcpy(inside(received)->address, inlet->address, TCP_ADDRESS_BYTES);
}

/* Lends a small packet, which lies in the buffer with its tag. */
static bool lend(TcpInlet *inlet, size_t size, Received *received)
{
    uint8_t *const bytes = inlet->buffer + inlet->begin;

    inlet->begin += size;
    if (!open_bytes(inlet, bytes, size, take_tag(inlet)))
        return false;
    fill(inlet, received, bytes, size);
    received->lent = true;
    return true;
}

/* Gives the large packet away, which has come whole. False: it was dropped. */
static bool give_packet(TcpInlet *inlet, Received *received)
{
    const bool is_there = inlet->block != NULL;

    if (is_there) {
        fill(inlet, received, inlet->block, inlet->packet_bytes);
        inside(received)->pool = inlet->pool;
        inside(received)->block = inlet->block;
        inside(received)->block_bytes = inlet->block_bytes;
    }
    inlet->block = NULL;
    inlet->block_bytes = inlet->packet_bytes = inlet->packet_at = inlet->opened_at = 0;
    return is_there;
}

bool tcp_inlet_take(TcpInlet *inlet, Received *received)
{
    while (inlet->is_proven && inlet->fault == NULL) {
        if (inlet->packet_bytes > 0) {
            if (!is_packet_whole(inlet))
                return false;
            if (give_packet(inlet, received))
                return true;
        }
        const size_t left = inlet->end - inlet->begin;
        if (left < TCP_SIZE_BYTES)
            return false;
        const size_t size = wire_load_u32(inlet->buffer + inlet->begin);
        if (size > WIRE_MAX_PACKET_BYTES) {
            inlet->fault = "it announces a packet that is larger than any";
            return false;
        }
        if (size > LENT_BYTES) {
            inlet->begin += TCP_SIZE_BYTES;
            begin_packet(inlet, size);
        } else if (left - TCP_SIZE_BYTES < size + SEAL_TAG_BYTES) {
            return false;
        } else {
            inlet->begin += TCP_SIZE_BYTES;
            return lend(inlet, size, received);
        }
    }
    return false;
}

/* ---- answers ---- */

bool tcp_inlet_write(TcpInlet *inlet)
{
    ssize_t n;

    if (inlet->answer == NULL)
        return true;
    do
        n = send(inlet->fd, inlet->answer->data + inlet->answer_at,
                 inlet->answer->len - inlet->answer_at, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n == -1 && errno == EINTR);
    if (n == -1)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
    inlet->answer_at += (size_t)n;
    if (inlet->answer_at == inlet->answer->len) {
        g_byte_array_unref(inlet->answer);
        inlet->answer = NULL;
    }
    return true;
}

bool tcp_inlet_answer(TcpInlet *inlet, const Packet *packet)
{
    if (!inlet->is_proven || inlet->is_answers || inlet->answer != NULL)
        return true;
    inlet->has_answered = true;
    inlet->answer = tcp_stream_packet(&inlet->sends, packet->bytes, packet->size);
    inlet->answer_at = 0;
    return tcp_inlet_write(inlet);
}
