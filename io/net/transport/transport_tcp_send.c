/* The sending side of the TCP transport. What the kernel does not take at once is written when it says
 * that there is room.
 *
 * A connection is given up when what was written is not acknowledged for too long, and an attempt to
 * make one when it takes too long: see the design note of transport_tcp.c.
 *
 * Nothing ever comes on such a connection. If something does, it is not a node's: a port that
 * nobody listens at may even have been given to the connection itself.
 *
 * Threads: those of outlet.h; all here but tcp_outlet_new and outlet_free run with the outlet's lock
 * held. */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/net/monotonic.h"
#include "io/net/transport/transport_tcp.h"

/* Of the timeout: how long nothing need be acknowledged, or a first attempt to connect take; how long
 * a further attempt takes, besides a few times round the way; and the longest pause between two. */
#define PATIENCE_PART 4
#define ATTEMPT_PART 16
#define PAUSE_PART 32

#define ATTEMPT_ROUNDS 4

#define LONGEST_PAUSE_MS 1000u

#define HEAD_BYTES (TCP_PREAMBLE_BYTES + TCP_SIZE_BYTES)

typedef struct {
    Outlet base;

    /* immutable */
    TcpTransport *transport;
    struct sockaddr_storage address;
    socklen_t address_size;

    /* guarded by the outlet's lock; while it is open */
    int fd;
    bool is_connected;
    int64_t opened_ms;
    int64_t idle_ms; /* when all that was written was last known to be acknowledged */
    bool waits_for_room;
    bool is_greeted;          /* the preamble is part of a head that was made */
    uint8_t head[HEAD_BYTES]; /* what goes before the packet's bytes */
    size_t head_at, head_end;
    bool has_head; /* it is the one of the packet that is being written */

    int64_t round_ms; /* once round the way, as of the last connection; also while it is not open */
} TcpOutlet;

#define ALWAYS (EPOLLIN | EPOLLRDHUP)

/* ---- connecting ---- */

static int connect_to(const TcpOutlet *self)
{
    const int one = 1;
    const int fd = socket(self->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd == -1)
        return -1;
    tcp_transport_keep_alive(self->transport, fd);
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0 &&
        (connect(fd, (const struct sockaddr *)&self->address, self->address_size) == 0 ||
         errno == EINPROGRESS))
        return fd;
    close(fd);
    return -1;
}

static bool outlet_open(Outlet *outlet)
{
    TcpOutlet *const self = (TcpOutlet *)outlet;
    const int fd = connect_to(self);

    if (fd == -1)
        return false;
    if (!tcp_transport_watch(self->transport, fd, ALWAYS | EPOLLOUT, TCP_EVENT_OUTLET,
                             outlet->id)) {
        close(fd);
        return false;
    }
    self->fd = fd;
    self->opened_ms = monotonic_ms();
    self->is_connected = self->is_greeted = self->has_head = false;
    self->waits_for_room = true;
    return true;
}

static void outlet_shut(Outlet *outlet)
{
    const TcpOutlet *const self = (const TcpOutlet *)outlet;

    /* Taken out first: a process that was forked off may still have it open. */
    (void)epoll_ctl(self->transport->epoll_fd, EPOLL_CTL_DEL, self->fd, NULL);
    close(self->fd);
}

static void wait_for_room(TcpOutlet *self, bool waits)
{
    if (self->waits_for_room == waits)
        return;
    self->waits_for_room = waits;
    tcp_transport_watch_for(self->transport, self->fd, ALWAYS | (waits ? EPOLLOUT : 0),
                            TCP_EVENT_OUTLET, self->base.id);
}

static void note_connected(TcpOutlet *self)
{
    if (self->is_connected)
        return;
    self->is_connected = true;
    self->idle_ms = monotonic_ms();
    outlet_note_connected(&self->base);
}

/* Whether a connection may still come of the attempt. */
static bool is_hopeful(const TcpOutlet *self, int64_t now_ms)
{
    const unsigned timeout_ms = self->transport->timeout_ms;
    const int64_t most_ms = MAX(timeout_ms / PATIENCE_PART, 1);
    const int64_t next_ms = timeout_ms / ATTEMPT_PART + ATTEMPT_ROUNDS * self->round_ms + 1;
    const bool is_first = self->base.state != NETWORK_DISCONNECTED;

    return now_ms - self->opened_ms < (is_first ? most_ms : MIN(next_ms, most_ms));
}

/* Whether what was written is acknowledged, or the other end says at least that it cannot take more yet. */
static bool is_alive(TcpOutlet *self, int64_t now_ms)
{
    const int64_t patience_ms = MAX(self->transport->timeout_ms / PATIENCE_PART, 1);
    struct tcp_info info;
    socklen_t size = sizeof info;
    int n_bytes = 0;

    if (ioctl(self->fd, SIOCOUTQ, &n_bytes) != 0 || n_bytes == 0) {
        self->idle_ms = now_ms;
        return true;
    }
    if (now_ms - self->idle_ms < patience_ms ||
        getsockopt(self->fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return true;
    self->round_ms = info.tcpi_rtt / 1000;
    return info.tcpi_last_ack_recv < patience_ms;
}

static bool outlet_look_after(Outlet *outlet, int64_t now_ms)
{
    TcpOutlet *const self = (TcpOutlet *)outlet;
    const struct linger none = { .l_onoff = 1, .l_linger = 0 };

    if (self->is_connected ? is_alive(self, now_ms) : is_hopeful(self, now_ms))
        return true;
    /* The kernel need not go on with what the link sends again. */
    if (outlet->give_up_ms == INT64_MAX)
        (void)setsockopt(self->fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    return false;
}

static bool outlet_hear(Outlet *outlet, uint32_t events)
{
    TcpOutlet *const self = (TcpOutlet *)outlet;

    if (events & (ALWAYS | EPOLLERR | EPOLLHUP))
        return false;
    note_connected(self);
    if (outlet->waiting.length == 0)
        wait_for_room(self, false);
    return true;
}

/* ---- writing ---- */

/* Whether there is a connection by now: a sender need not wait until the I/O thread has heard of it. */
static bool is_connected(TcpOutlet *self)
{
    struct pollfd polled = { .fd = self->fd, .events = POLLOUT };

    if (!self->is_connected && poll(&polled, 1, 0) == 1 && polled.revents == POLLOUT)
        note_connected(self);
    return self->is_connected;
}

static void make_head(TcpOutlet *self, const Packet *packet)
{
    if (self->has_head)
        return;
    self->head_end = 0;
    if (!self->is_greeted) {
        memcpy(self->head, TCP_PREAMBLE, TCP_PREAMBLE_BYTES);
        self->head_end = TCP_PREAMBLE_BYTES;
    }
    wire_store_u32(self->head + self->head_end, (uint32_t)packet->size);
    self->head_end += TCP_SIZE_BYTES;
    self->head_at = 0;
    self->is_greeted = self->has_head = true;
}

/* Writes as much of head and packet as the kernel takes, *budget bytes of the packet at the most. */
static OutletProgress write_some(TcpOutlet *self, const Packet *packet, size_t *at, size_t *budget)
{
    struct iovec parts[2] = {
        { self->head + self->head_at, self->head_end - self->head_at },
        { packet->bytes + *at, MIN(packet->size - *at, *budget) },
    };
    const struct msghdr message = { .msg_iov = parts, .msg_iovlen = G_N_ELEMENTS(parts) };
    ssize_t n;

    do
        n = sendmsg(self->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n == -1 && errno == EINTR);
    if (n == -1)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ? OUTLET_LATER
                                                                           : OUTLET_BROKEN;
    const size_t of_head = MIN((size_t)n, parts[0].iov_len);
    const size_t of_packet = (size_t)n - of_head;
    self->head_at += of_head;
    *at += of_packet;
    *budget -= of_packet;
    return self->head_at == self->head_end && *at == packet->size ? OUTLET_DONE : OUTLET_LATER;
}

static OutletProgress outlet_write(Outlet *outlet, const Packet *packet, size_t *at, size_t *budget)
{
    TcpOutlet *const self = (TcpOutlet *)outlet;

    if (!is_connected(self))
        return OUTLET_LATER;
    make_head(self, packet);
    const OutletProgress progress = write_some(self, packet, at, budget);
    if (progress == OUTLET_DONE)
        self->has_head = false;
    if (progress == OUTLET_LATER)
        wait_for_room(self, true);
    else if (progress == OUTLET_DONE && outlet->waiting.length <= 1)
        wait_for_room(self, false); /* this was the last */
    return progress;
}

static void outlet_free(Outlet *outlet)
{
    g_free(outlet);
}

static const OutletOps outlet_ops = {
    .open = outlet_open,
    .shut = outlet_shut,
    .write = outlet_write,
    .hear = outlet_hear,
    .look_after = outlet_look_after,
    .free = outlet_free,
};

Channel *tcp_outlet_new(TcpTransport *transport, const struct addrinfo *address)
{
    TcpOutlet *const outlet = g_new0(TcpOutlet, 1);

    outlet->transport = transport;
    memcpy(&outlet->address, address->ai_addr, address->ai_addrlen);
    outlet->address_size = address->ai_addrlen;
    outlet_start(&outlet->base, &outlet_ops, &transport->outlets,
                 MIN(MAX(transport->timeout_ms / PAUSE_PART, 1), LONGEST_PAUSE_MS));
    return &outlet->base.base;
}
