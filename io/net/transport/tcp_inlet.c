/* Where the packets of one TCP connection come in. */
#include "io/net/transport/tcp_inlet.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "io/net/monotonic.h"
#include "io/net/wire.h"

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

TcpInlet *tcp_inlet_new(uint32_t id, int fd, int epoll_fd, const char *address, BlockPool *pool)
{
    TcpInlet *const inlet = g_new0(TcpInlet, 1);

    inlet->id = id;
    inlet->fd = fd;
    inlet->epoll_fd = epoll_fd;
    inlet->pool = pool;
    g_strlcpy(inlet->address, address, sizeof inlet->address);
    inlet->buffer = g_malloc(TCP_INLET_BUFFER_BYTES);
    inlet->heard_ms = monotonic_ms();
    return inlet;
}

void tcp_inlet_free(TcpInlet *inlet)
{
    /* A process that was forked off may still have it open. */
    (void)epoll_ctl(inlet->epoll_fd, EPOLL_CTL_DEL, inlet->fd, NULL);
    close(inlet->fd);
    block_pool_give(inlet->pool, inlet->block, inlet->block_bytes);
    g_free(inlet->buffer);
    g_free(inlet);
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

/* What can be read now: the packet that is coming, and what follows it; returns how many parts. */
static int find_room(TcpInlet *inlet, struct iovec parts[2])
{
    if (inlet->block != NULL && inlet->packet_at == inlet->block_bytes)
        grow_block(inlet);
    if (inlet->begin == inlet->end)
        inlet->begin = inlet->end = 0;
    if (inlet->block != NULL) {
        parts[0] = (struct iovec){ inlet->block + inlet->packet_at,
                                   inlet->block_bytes - inlet->packet_at };
        parts[1] = (struct iovec){ inlet->buffer, READ_AHEAD_BYTES };
        return inlet->block_bytes == inlet->packet_bytes ? 2 : 1;
    }
    if (inlet->begin > 0) { /* less than one small packet */
        memmove(inlet->buffer, inlet->buffer + inlet->begin, inlet->end - inlet->begin);
        inlet->end -= inlet->begin;
        inlet->begin = 0;
    }
    parts[0] = (struct iovec){ inlet->buffer + inlet->end, TCP_INLET_BUFFER_BYTES - inlet->end };
    return 1;
}

bool tcp_inlet_read(TcpInlet *inlet)
{
    struct iovec parts[2];
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = (size_t)find_room(inlet, parts) };
    ssize_t n;

    do
        n = recvmsg(inlet->fd, &message, MSG_DONTWAIT);
    while (n == -1 && errno == EINTR);
    if (n <= 0)
        return n == -1 && (errno == EAGAIN || errno == EWOULDBLOCK);
    inlet->heard_ms = monotonic_ms();
    size_t left = (size_t)n;
    if (inlet->block != NULL) {
        const size_t of_packet = MIN(left, parts[0].iov_len);
        inlet->packet_at += of_packet;
        left -= of_packet;
    }
    inlet->end += left;
    return true;
}

/* A large packet begins with what was read of it. */
static void begin_packet(TcpInlet *inlet, size_t size)
{
    const size_t block_bytes = MIN(size, FIRST_BLOCK_BYTES);

    inlet->packet_bytes = size;
    inlet->packet_at = 0;
    inlet->block = block_pool_take(inlet->pool, block_bytes);
    inlet->block_bytes = inlet->block != NULL ? block_bytes : 0;
}

/* Moves what is in the buffer to the packet that it belongs to, or drops it with that. */
static void fill_packet(TcpInlet *inlet)
{
    const size_t n = MIN(inlet->end - inlet->begin, inlet->packet_bytes - inlet->packet_at);

    /* it fits: the first block is larger than the buffer, or as large as the packet */
    if (inlet->block != NULL)
        memcpy(inlet->block + inlet->packet_at, inlet->buffer + inlet->begin, n);
    inlet->packet_at += n;
    inlet->begin += n;
}

static void lend(TcpInlet *inlet, size_t size, Received *received)
{
    *received = (Received){
        .ops = &received_ops, .bytes = inlet->buffer + inlet->begin, .size = size, .lent = true
    };
    g_strlcpy(inside(received)->address, inlet->address, TCP_ADDRESS_BYTES);
    inlet->begin += size;
}

/* Gives the large packet away, which has come whole. False: it was dropped. */
static bool give_packet(TcpInlet *inlet, Received *received)
{
    const bool is_there = inlet->block != NULL;

    if (is_there) {
        *received =
            (Received){ .ops = &received_ops, .bytes = inlet->block, .size = inlet->packet_bytes };
        *inside(received) = (TcpReceived){ .pool = inlet->pool,
                                           .block = inlet->block,
                                           .block_bytes = inlet->block_bytes };
        g_strlcpy(inside(received)->address, inlet->address, TCP_ADDRESS_BYTES);
    }
    inlet->block = NULL;
    inlet->block_bytes = inlet->packet_bytes = inlet->packet_at = 0;
    return is_there;
}

/* Whether the preamble has come; *fault: something else has. */
static bool take_preamble(TcpInlet *inlet, const char **fault)
{
    const size_t n = MIN(inlet->end - inlet->begin, TCP_PREAMBLE_BYTES);

    if (memcmp(inlet->buffer + inlet->begin, TCP_PREAMBLE, n) != 0)
        *fault = "it does not begin like a node's connection";
    if (*fault != NULL || n < TCP_PREAMBLE_BYTES)
        return false;
    inlet->begin += TCP_PREAMBLE_BYTES;
    inlet->is_greeted = true;
    return true;
}

bool tcp_inlet_take(TcpInlet *inlet, Received *received, const char **fault)
{
    if (!inlet->is_greeted && !take_preamble(inlet, fault))
        return false;
    for (;;) {
        if (inlet->packet_bytes > 0) {
            fill_packet(inlet);
            if (inlet->packet_at < inlet->packet_bytes)
                return false;
            if (give_packet(inlet, received))
                return true;
        }
        const size_t left = inlet->end - inlet->begin;
        if (left < TCP_SIZE_BYTES)
            return false;
        const size_t size = wire_load_u32(inlet->buffer + inlet->begin);
        if (size > WIRE_MAX_PACKET_BYTES) {
            *fault = "it announces a packet that is larger than any";
            return false;
        }
        if (size > LENT_BYTES) {
            inlet->begin += TCP_SIZE_BYTES;
            begin_packet(inlet, size);
        } else if (left - TCP_SIZE_BYTES < size) {
            return false;
        } else {
            inlet->begin += TCP_SIZE_BYTES;
            lend(inlet, size, received);
            return true;
        }
    }
}
