/* The sending side of the TCP transport. A connection begins with the handshake. After it, waiting
 * packets are sent. Bytes that the kernel does not take at once are written when it says that there
 * is room.
 *
 * A packet is sent from its own memory, with its tag behind it. If packets are encrypted, one piece
 * at a time is written to a buffer of the sender, and sent from there.
 *
 * The values of a packet may stay with the caller (direct_write.h). They are written from there,
 * and their tag is computed there. If packets are encrypted, they are encrypted from there into the
 * sender's buffer. So nothing is copied, with one exception: a cipher that cannot seal a piece in
 * two places, which a processor without instructions for AES uses, seals a copy of the piece.
 *
 * If the values of another packet still lie where the caller has them, they are encrypted from
 * there into the packet's own memory, which saves the copy: that costs as much as the encryption.
 * The packet then keeps the mark of its piece (seal.h). If the link sends it again, the encryption
 * is undone first, and the packet gets another number, as any other.
 *
 * A connection is given up if written bytes are not acknowledged for too long; an attempt to
 * connect is given up if it takes too long: see the design note of transport_tcp.c.
 *
 * Answers come back on a connection for greetings; a receiver of its own takes them. On other
 * connections nothing comes after the handshake. If something does, it is not from a node.
 *
 * Threads: those of sender.h; all here but tcp_sender_new and sender_free run with the sender's
 * lock held. The handshake is read by the I/O thread. */
#ifndef G_LOG_DOMAIN
#define G_LOG_DOMAIN "rubato"
#endif

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/net/monotonic.h"
#include "io/net/transport/tcp/tcp_address.h"
#include "io/net/transport/tcp/transport_tcp.h"

/* Parts of the timeout: how long bytes may stay unacknowledged, or a first attempt to connect may
 * take; how long a further attempt may take, in addition to a few round trips; and the longest
 * pause between two attempts. */
#define PATIENCE_PART 4
#define ATTEMPT_PART 16
#define PAUSE_PART 32

#define ATTEMPT_ROUNDS 4

#define LONGEST_PAUSE_MS 1000u

/* Between two lines in the log about one sender. */
#define WARNING_MS 5000

/* The time that the other end has for its proof. */
#define PROOF_MS 5000

typedef struct {
    Sender base;

    /* immutable */
    TcpTransport *transport;
    struct sockaddr_storage address;
    socklen_t address_size;
    ChannelTarget target;

    /* guarded by the sender's lock; valid while the sender is open */
    int fd;
    bool is_connected; /* and has sent its HELLO */
    bool is_proven;    /* the other end has proved its identity */
    bool waits_for_room;
    int64_t opened_ms;
    int64_t idle_ms; /* when everything written was last known to be acknowledged */
    Handshake handshake;
    Seal seal;

    /* the piece that is being written, of the packet that is being written */
    bool has_piece;
    uint8_t head[TCP_SIZE_BYTES]; /* before the packet's first piece: its size */
    size_t head_at;
    size_t piece_begin, piece_end; /* in the packet */
    uint8_t tag[SEAL_TAG_BYTES];
    size_t tag_at;
    bool is_in_packet; /* the piece is encrypted in the packet's own memory */
    uint8_t *hidden;   /* otherwise: the piece, encrypted; NULL: no piece was encrypted yet */

    int64_t round_ms; /* round-trip time of the last connection; valid also while the sender is not
                       * open */
    int64_t warned_ms;
} TcpSender;

#define ALWAYS (EPOLLIN | EPOLLRDHUP)

/* ---- connecting ---- */

static int connect_to(const TcpSender *self)
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
    const int failure = errno;
    close(fd);
    errno = failure;
    return -1;
}

static bool sender_open(Sender *sender)
{
    TcpSender *const self = (TcpSender *)sender;
    const int fd = connect_to(self);

    if (fd == -1 && errno == ECONNREFUSED)
        sender_note_refused(sender);
    if (fd == -1)
        return false;
    if (!tcp_transport_watch(self->transport, fd, ALWAYS | EPOLLOUT, TCP_EVENT_SENDER,
                             sender->id)) {
        close(fd);
        return false;
    }
    HandshakeConfig config = tcp_stream_config(&self->transport->config, fd);
    config.wanted_node = self->target.node;
    config.wanted_incarnation = self->target.incarnation;
    handshake_init(&self->handshake, HANDSHAKE_ROLE_CONNECTS, &config, NULL);
    self->fd = fd;
    self->opened_ms = monotonic_ms();
    self->is_connected = self->is_proven = self->has_piece = false;
    self->waits_for_room = true;
    return true;
}

static void sender_shut(Sender *sender)
{
    TcpSender *const self = (TcpSender *)sender;

    handshake_clear(&self->handshake);
    seal_clear(&self->seal);
    if (self->target.greets) /* the receiver for answers also has the connection open */
        (void)shutdown(self->fd, SHUT_RDWR);
    /* It is taken out first, because a forked process may still have it open. */
    (void)epoll_ctl(self->transport->epoll_fd, EPOLL_CTL_DEL, self->fd, NULL);
    close(self->fd);
}

/* The events for which the socket is watched. It is watched for anything that comes before the
 * other end has proved itself, and on a connection on which nothing should come back. */
static uint32_t watched_events(const TcpSender *self)
{
    const bool has_receiver = self->is_proven && self->target.greets;

    return EPOLLRDHUP | (has_receiver ? 0 : EPOLLIN) | (self->waits_for_room ? EPOLLOUT : 0);
}

static void watch(TcpSender *self)
{
    tcp_transport_watch_for(self->transport, self->fd, watched_events(self), TCP_EVENT_SENDER,
                            self->base.id);
}

static void wait_for_room(TcpSender *self, bool waits)
{
    if (self->waits_for_room == waits)
        return;
    self->waits_for_room = waits;
    watch(self);
}

/* ---- the handshake ---- */

/* One line in the log in this many ms, because there may be many attempts. */
static void warn(TcpSender *self, const char *what)
{
    const int64_t now_ms = monotonic_ms();
    char text[NI_MAXHOST];

    if (now_ms - self->warned_ms < WARNING_MS)
        return;
    self->warned_ms = now_ms;
    tcp_address_text((const struct sockaddr *)&self->address, self->address_size, text,
                     sizeof text);
    g_warning("ended a connection to %s: %s", text, what);
}

/* Sends a message of the handshake: a new connection has room for more than that. */
static bool say(const TcpSender *self, const uint8_t *bytes, size_t size)
{
    ssize_t n;

    do
        n = send(self->fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n == -1 && errno == EINTR);
    return n == (ssize_t)size;
}

/* The connection is made, so that it is known where it goes: sends HELLO. */
static bool note_connected(TcpSender *self)
{
    uint8_t hello[HANDSHAKE_HELLO_BYTES];

    if (self->is_connected)
        return true;
    self->is_connected = true;
    self->idle_ms = monotonic_ms();
    tcp_stream_bound(self->fd);
    wait_for_room(self, false);
    return say(self, hello, handshake_begin(&self->handshake, hello));
}

/* Whether the attempt to connect may still succeed. */
static bool is_hopeful(const TcpSender *self, int64_t now_ms)
{
    const unsigned timeout_ms = self->transport->timeout_ms;
    const int64_t most_ms = MAX(timeout_ms / PATIENCE_PART, 1);
    const int64_t next_ms = timeout_ms / ATTEMPT_PART + ATTEMPT_ROUNDS * self->round_ms + 1;
    const bool is_first = self->base.state != NETWORK_PEER_DISCONNECTED;

    return now_ms - self->opened_ms < (is_first ? most_ms : MIN(next_ms, most_ms));
}

/* Whether the written bytes are acknowledged, or the other end at least says that it cannot take
 * more yet. */
static bool is_alive(TcpSender *self, int64_t now_ms)
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

/* Whether the other end still has time for its proof. */
static bool may_prove(TcpSender *self, int64_t now_ms)
{
    if (self->is_proven || now_ms - self->opened_ms < PROOF_MS)
        return true;
    warn(self, "who listens there does not prove that it belongs to this run");
    return false;
}

static bool sender_look_after(Sender *sender, int64_t now_ms)
{
    TcpSender *const self = (TcpSender *)sender;
    const struct linger none = { .l_onoff = 1, .l_linger = 0 };

    if (self->is_connected ? is_alive(self, now_ms) && may_prove(self, now_ms)
                           : is_hopeful(self, now_ms))
        return true;
    /* The kernel need not continue to send bytes that the link sends again. */
    if (sender->give_up_ms == INT64_MAX)
        (void)setsockopt(self->fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    return false;
}

static void note_proven(TcpSender *self)
{
    Seal receives;

    handshake_make_seals(&self->handshake, &self->seal, &receives);
    self->is_proven = true;
    if (self->target.greets)
        tcp_transport_take_answers(self->transport, self->fd, &self->handshake, &receives);
    seal_clear(&receives);
    handshake_clear(&self->handshake);
    sender_note_connected(&self->base);
    self->waits_for_room = true; /* checked again when the waiting bytes are written */
    watch(self);
}

/* Reads the bytes that the handshake wants and none beyond them. False: the connection is to be
 * closed. */
static bool shake_hands(TcpSender *self)
{
    uint8_t bytes[HANDSHAKE_HELLO_BYTES], output[HANDSHAKE_HELLO_BYTES];
    size_t wanted, n_output;

    while ((wanted = handshake_wants(&self->handshake)) > 0) {
        const ssize_t n = recv(self->fd, bytes, wanted, MSG_DONTWAIT);
        if (n == -1 && errno == EINTR)
            continue;
        if (n == -1 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return true;
        if (n <= 0) {
            warn(self,
                 "who listens there has ended it in the handshake: it may be of another run, or "
                 "have another secret");
            return false;
        }
        const char *const fault =
            handshake_take(&self->handshake, bytes, (size_t)n, output, &n_output);
        if (fault != NULL) {
            warn(self, fault);
            if (self->handshake.is_another)
                sender_note_refused(&self->base);
            return false;
        }
        if (n_output > 0 && !say(self, output, n_output))
            return false;
    }
    note_proven(self);
    return true;
}

/* Whether an attempt to connect has ended because nobody listens there. */
static bool was_refused(const TcpSender *self, uint32_t events)
{
    int failure = 0;
    socklen_t size = sizeof failure;

    return !self->is_connected && (events & EPOLLERR) != 0 &&
           getsockopt(self->fd, SOL_SOCKET, SO_ERROR, &failure, &size) == 0 &&
           failure == ECONNREFUSED;
}

static bool sender_hear(Sender *sender, uint32_t events)
{
    TcpSender *const self = (TcpSender *)sender;

    if (was_refused(self, events)) {
        sender_note_refused(sender);
        return false;
    }
    if ((events & EPOLLOUT) && !note_connected(self))
        return false;
    if (!self->is_proven)
        return self->is_connected && (events & ~(uint32_t)EPOLLOUT) != 0 ? shake_hands(self)
                                                                         : (events & EPOLLOUT) != 0;
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP))
        return false;
    if (sender->waiting.length == 0)
        wait_for_room(self, false);
    return true;
}

/* ---- writing ---- */

/* Whether the connection is made by now. A sender need not wait until the I/O thread hears of
 * it. */
static SenderProgress connect_on(TcpSender *self)
{
    struct pollfd polled = { .fd = self->fd, .events = POLLOUT };

    if (!self->is_connected && poll(&polled, 1, 0) == 1 && polled.revents == POLLOUT &&
        !note_connected(self))
        return SENDER_BROKEN;
    return SENDER_LATER;
}

/* Seals the packet, whose values lie elsewhere, into its own memory. */
static void seal_values(TcpSender *self, Packet *packet)
{
    const size_t values_at = packet->size - packet->values_bytes;

    seal_begin(&self->seal, &packet->mark);
    seal_step(&self->seal, packet->bytes, values_at, packet->bytes);
    seal_step(&self->seal, packet->values, packet->values_bytes, packet->bytes + values_at);
    seal_end(&self->seal, self->tag);
    packet->values = NULL;
}

/* Makes room for an encrypted piece. */
static uint8_t *hidden_bytes(TcpSender *self)
{
    if (self->hidden == NULL)
        self->hidden = g_malloc(TCP_PIECE_BYTES);
    return self->hidden;
}

/* Seals a piece of a packet whose values lie with the caller. */
static void seal_direct(TcpSender *self, const Packet *packet, size_t at, size_t n)
{
    Seal *const seal = &self->seal;
    const bool encrypts = seal->protection == PROTECTION_ENCRYPT;
    const PacketParts parts = packet_lock(packet, at, n);
    SealMark mark;

    if (seal_has_steps(seal)) {
        uint8_t *const to = hidden_bytes(self);

        seal_begin(seal, &mark);
        seal_step(seal, parts.head, parts.n_head, to);
        seal_step(seal, parts.rest, parts.n_rest, to + parts.n_head);
        seal_end(seal, self->tag);
        seal_mark_clear(&mark); /* nothing has to be undone: the packet is as it was */
    } else if (!encrypts && seal_opens_apart(seal)) {
        seal_close_apart(seal, parts.head, parts.n_head, parts.rest, parts.n_rest, self->tag);
    } else {
        g_autofree uint8_t *own = encrypts ? NULL : g_malloc(n);
        uint8_t *const whole = encrypts ? hidden_bytes(self) : own;

        memcpy(whole, parts.head, parts.n_head);
        memcpy(whole + parts.n_head, parts.rest, parts.n_rest);
        seal_close(seal, whole, n, whole, self->tag);
    }
    packet_unlock(packet);
}

/* Seals the next piece of the packet, unless a piece is being written. */
static void make_piece(TcpSender *self, Packet *packet, size_t at)
{
    const size_t most = tcp_piece_bytes(&self->seal), left = packet->size - at;

    if (self->has_piece)
        return;
    if (at == 0)
        wire_store_u32(self->head, (uint32_t)packet->size);
    self->head_at = at == 0 ? 0 : TCP_SIZE_BYTES;
    self->piece_begin = at;
    self->piece_end = at + MIN(most, left);
    self->tag_at = 0;
    self->has_piece = true;
    self->is_in_packet = false;
    if (packet->direct != NULL) {
        seal_direct(self, packet, at, self->piece_end - at);
        return;
    }
    self->is_in_packet =
        packet->values != NULL && packet->size <= most && seal_has_steps(&self->seal);
    if (self->is_in_packet) {
        seal_values(self, packet);
        return;
    }
    packet_gather(packet);
    if (packet->mark.is_set)
        seal_undo(&packet->mark, packet->bytes, packet->size);
    seal_close(&self->seal, packet->bytes + at, self->piece_end - at,
               self->seal.protection == PROTECTION_ENCRYPT ? hidden_bytes(self) : NULL, self->tag);
}

/* Writes as much of head, piece and tag as the kernel takes, but at most *budget bytes of the
 * piece. */
static SenderProgress write_some(TcpSender *self, const Packet *packet, size_t *at, size_t *budget)
{
    const bool is_hidden = self->seal.protection == PROTECTION_ENCRYPT && !self->is_in_packet;
    const size_t left = self->piece_end - *at, n_piece = MIN(left, *budget);
    const PacketParts piece =
        is_hidden
            ? (PacketParts){ .head = self->hidden + (*at - self->piece_begin), .n_head = n_piece }
            : packet_lock(packet, *at, n_piece);
    struct iovec parts[4] = {
        { self->head + self->head_at, TCP_SIZE_BYTES - self->head_at },
        { (void *)(uintptr_t)piece.head, piece.n_head },
        { (void *)(uintptr_t)piece.rest, piece.n_rest },
        { self->tag + self->tag_at, SEAL_TAG_BYTES - self->tag_at },
    };
    const struct msghdr message = { .msg_iov = parts, .msg_iovlen = left <= *budget ? 4 : 3 };
    ssize_t n;

    do
        n = sendmsg(self->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n == -1 && errno == EINTR);
    if (!is_hidden)
        packet_unlock(packet);
    if (n == -1)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ? SENDER_LATER
                                                                           : SENDER_BROKEN;
    const size_t of_head = MIN((size_t)n, parts[0].iov_len);
    const size_t of_piece = MIN((size_t)n - of_head, n_piece);
    self->head_at += of_head;
    self->tag_at += (size_t)n - of_head - of_piece;
    *at += of_piece;
    *budget -= of_piece;
    return self->tag_at == SEAL_TAG_BYTES ? SENDER_DONE : SENDER_LATER;
}

static SenderProgress sender_write(Sender *sender, Packet *packet, size_t *at, size_t *budget)
{
    TcpSender *const self = (TcpSender *)sender;
    SenderProgress progress;

    if (!self->is_proven)
        return connect_on(self);
    do {
        make_piece(self, packet, *at);
        progress = write_some(self, packet, at, budget);
        if (progress == SENDER_DONE)
            self->has_piece = false;
    } while (progress == SENDER_DONE && *at < packet->size);
    if (progress == SENDER_LATER)
        wait_for_room(self, true);
    else if (progress == SENDER_DONE && sender->waiting.length <= 1)
        wait_for_room(self, false); /* this was the last byte */
    return progress;
}

static void sender_free(Sender *sender)
{
    g_free(((TcpSender *)sender)->hidden);
    g_aligned_free(sender);
}

static const SenderOps sender_ops = {
    .open = sender_open,
    .shut = sender_shut,
    .write = sender_write,
    .takes_values = true,
    .hear = sender_hear,
    .look_after = sender_look_after,
    .free = sender_free,
};

Channel *tcp_sender_new(TcpTransport *transport, const struct addrinfo *address,
                        const ChannelTarget *target)
{
    TcpSender *const sender = g_aligned_alloc0(1, sizeof *sender, _Alignof(TcpSender));

    sender->target = target != NULL ? *target : (ChannelTarget){ .node = HANDSHAKE_ANY_NODE };
    sender->warned_ms = INT64_MIN / 2;

    sender->transport = transport;
    memcpy(&sender->address, address->ai_addr, address->ai_addrlen);
    sender->address_size = address->ai_addrlen;
    sender_start(&sender->base, &sender_ops, &transport->senders,
                 MIN(MAX(transport->timeout_ms / PAUSE_PART, 1), LONGEST_PAUSE_MS));
    return &sender->base.base;
}
