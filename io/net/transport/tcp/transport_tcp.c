/* The transport "tcp": sockets of the kernel, which the threads that send or need packets write and
 * read themselves.
 *
 * DESIGN NOTE
 *
 * Each channel has a connection of its own, on which packets go one way (see tcp_receiver.h). The
 * thread that sends a packet writes it straight into the kernel, and the thread that needs it reads
 * it there. No thread in between has to be woken. The link numbers packets and sends them again;
 * sender.c connects again.
 *
 * A thread that has nothing to read sleeps in poll(), on poll_fd, an epoll around the one that has
 * all sockets. Before it sleeps, the thread may poll for a while (spinner.h). During that time the
 * outer epoll does not watch the inner one, so that packets wake nobody (is_armed). Before receive
 * says that there is nothing, it makes the outer epoll watch again, and the kernel then checks
 * whether something is there; so nothing is missed. A glance is a system call. It is left out if
 * nothing has come this way for long, as between nodes that share memory.
 *
 * A network may fail silently: nothing is acknowledged, and the kernel tries again less and less
 * often. So a sender gives up a connection on which nothing was acknowledged for a quarter of the
 * timeout after which a node counts as lost. It then tries at short intervals to connect again,
 * until it succeeds (transport_tcp_send.c). The receiving end of the old connection does not notice
 * this. It stays until the kernel finds that the other end no longer knows it, and does no harm:
 * nothing comes on it, and the link drops packets that came twice.
 *
 * A large packet comes in many parts. A thread that has read one part polls for the next one for a
 * while before it sleeps, because that part is on its way.
 *
 * Threads: told in transport_ops.h; sending is in transport_tcp_send.c. */
#define _GNU_SOURCE
#include "io/net/transport/tcp/transport_tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rubato/error.h>

#include "io/net/monotonic.h"
#include "io/net/transport/tcp/tcp_address.h"

/* Connections beyond two for each node: for processes that were started again, and for
 * greetings. */
#define SPARE_RECEIVERS 64

#define CHECK_MS 20

/* After this many glances that found nothing, there are none until a packet comes. */
#define MOST_VAIN 1000

/* The most events, and the most reads of a long packet, in one receive. */
#define MOST_STEPS 1024

/* The kernel probes a connection that is quiet for the timeout, or for so many seconds if that is
 * less. After so many probes without an answer the connection ends. */
#define KEEP_IDLE_MOST_S 60
#define KEEP_PROBES 3

/* ---- descriptors ---- */

static bool control(const TcpTransport *transport, int operation, int fd, uint32_t events,
                    uint32_t kind, uint32_t id)
{
    struct epoll_event event = { .events = events, .data.u64 = (uint64_t)kind << 32 | id };

    return epoll_ctl(transport->epoll_fd, operation, fd, &event) == 0;
}

bool tcp_transport_watch(const TcpTransport *transport, int fd, uint32_t events, uint32_t kind,
                         uint32_t id)
{
    return control(transport, EPOLL_CTL_ADD, fd, events, kind, id);
}

void tcp_transport_watch_for(const TcpTransport *transport, int fd, uint32_t events, uint32_t kind,
                             uint32_t id)
{
    const bool is_done = control(transport, EPOLL_CTL_MOD, fd, events, kind, id);

    g_assert(is_done); /* the descriptor is in the epoll */
}

void tcp_transport_keep_alive(const TcpTransport *transport, int fd)
{
    const int one = 1, probes = KEEP_PROBES;
    const int idle = (int)CLAMP(transport->timeout_ms / 1000, 1, KEEP_IDLE_MOST_S);

    /* An error is ignored: keepalive is needed only if a machine vanishes or a network fails. */
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

/* Sets whether poll_fd becomes readable when something comes. */
static void arm(TcpTransport *self, bool armed)
{
    struct epoll_event event = { .events = armed ? EPOLLIN : 0 };

    if (self->is_armed == armed)
        return;
    const int result = epoll_ctl(self->poll_fd, EPOLL_CTL_MOD, self->epoll_fd, &event);
    g_assert(result == 0); /* tcp_create has made both, and put one into the other */
    self->is_armed = armed;
}

/* Does the work that is due from time to time. */
static void check(TcpTransport *self)
{
    const int64_t now_ms = monotonic_ms();

    if (now_ms < self->check_ms)
        return;
    self->check_ms = now_ms + CHECK_MS;
    tcp_connections_check(self, now_ms);
    senders_go_on(&self->senders); /* senders that nobody uses now also try again to connect */
}

/* ---- receiving ---- */

/* The next packet of the current receiver. */
static bool take_packet(TcpTransport *self, Received *received)
{
    if (self->current == NULL)
        return false;
    if (tcp_receiver_take(self->current, received)) {
        self->last = self->current;
        return true;
    }
    if (self->current->fault != NULL) {
        tcp_connections_complain(self, self->current->address, self->current->fault);
        tcp_connections_drop(self, self->current);
    }
    self->current = NULL;
    return false;
}

/* Asks the epoll for events. Returns whether there are any. */
static bool ask(TcpTransport *self)
{
    const int n = epoll_wait(self->epoll_fd, self->events, TCP_MOST_EVENTS, 0);

    self->next_event = 0;
    self->n_events = n > 0 ? n : 0;
    return n > 0;
}

/* Continues to send an answer when there is room. False: the connection was dropped. */
static bool watch_answer(TcpTransport *self, TcpReceiver *receiver, bool is_sound)
{
    if (!is_sound) {
        tcp_connections_drop(self, receiver);
        return false;
    }
    tcp_transport_watch_for(self, receiver->fd,
                            EPOLLIN | EPOLLRDHUP |
                                (tcp_receiver_has_answer(receiver) ? EPOLLOUT : 0),
                            TCP_EVENT_RECEIVER, receiver->id);
    return true;
}

static bool go_on_answering(TcpTransport *self, TcpReceiver *receiver)
{
    return watch_answer(self, receiver, tcp_receiver_write(receiver));
}

static void tcp_answer(Transport *transport, uint32_t connection, Packet *packet)
{
    TcpTransport *const self = (TcpTransport *)transport;
    TcpReceiver *const receiver =
        g_hash_table_lookup(self->receivers, GUINT_TO_POINTER(connection));

    if (receiver != NULL && !tcp_receiver_has_answer(receiver))
        (void)watch_answer(self, receiver, tcp_receiver_answer(receiver, packet));
}

/* Handles an event, which may make a receiver the current one. True: more of a large packet has
 * come. */
static bool deal_with(TcpTransport *self, const struct epoll_event *event)
{
    const uint32_t id = (uint32_t)event->data.u64;
    TcpReceiver *receiver;

    switch (event->data.u64 >> 32) {
    case TCP_EVENT_LISTENER:
        tcp_connections_accept(self, (int)id);
        return false;
    case TCP_EVENT_SENDER:
        senders_hear(&self->senders, id, event->events);
        return false;
    default:
        receiver = g_hash_table_lookup(self->receivers, GUINT_TO_POINTER(id));
        if (receiver == NULL)
            receiver = g_hash_table_lookup(self->strangers, GUINT_TO_POINTER(id));
        if (receiver == NULL)
            return false; /* it was dropped after the event */
        if ((event->events & EPOLLOUT) && !go_on_answering(self, receiver))
            return false;
        if (!tcp_connections_read(self, receiver))
            return false;
        self->current = receiver;
        return tcp_receiver_is_midway(receiver);
    }
}

/* If nothing has come, polls for a while for the packet that is on its way. */
static bool look_for_the_rest(TcpTransport *self)
{
    SpinnerEnd end;

    if (!spinner_begin(&self->spinner, &end))
        return false;
    do {
        for (unsigned i = 0; i < self->spinner.n_looks; i++) {
            if (ask(self)) {
                spinner_found(&self->spinner);
                return true;
            }
            spin_pause();
        }
    } while (spinner_go_on(&self->spinner, &end));
    return false;
}

static bool tcp_receive(Transport *transport, Received *received)
{
    TcpTransport *const self = (TcpTransport *)transport;
    bool is_midway = false;

    for (unsigned n = 0; n < MOST_STEPS; n++) {
        if (take_packet(self, received)) {
            self->n_vain = 0;
            return true;
        }
        if (self->next_event == self->n_events && !ask(self) &&
            !(is_midway && look_for_the_rest(self)))
            break;
        if (deal_with(self, &self->events[self->next_event++]))
            is_midway = true;
    }
    /* poll_fd tells again of sockets that were not read, but not of bytes that were read. */
    if (take_packet(self, received))
        return true;
    check(self);
    arm(self, true);
    return false;
}

static Glance tcp_glance(Transport *transport)
{
    TcpTransport *const self = (TcpTransport *)transport;

    /* Otherwise receive would find nothing here, and arm, for a thread that goes on polling. */
    if (self->current != NULL && tcp_receiver_is_empty(self->current))
        self->current = NULL;
    if (self->current != NULL || self->next_event < self->n_events)
        return GLANCE_SOME;
    if (self->is_armed && self->n_vain >= MOST_VAIN)
        return GLANCE_NOT_WORTH_IT;
    arm(self, false);
    if (ask(self))
        return GLANCE_SOME;
    self->n_vain++;
    return GLANCE_NOTHING;
}

static int tcp_origin(Transport *transport)
{
    const TcpTransport *const self = (const TcpTransport *)transport;
    int processor = -1;
    socklen_t size = sizeof processor;

    if (self->last == NULL ||
        getsockopt(self->last->fd, SOL_SOCKET, SO_INCOMING_CPU, &processor, &size) != 0)
        return -1;
    return processor;
}

static bool tcp_take_resets(Transport *transport)
{
    return senders_take_resets(&((TcpTransport *)transport)->senders);
}

static int tcp_poll_fd(Transport *transport)
{
    return ((TcpTransport *)transport)->poll_fd;
}

/* ---- the transport's life ---- */

static void tcp_destroy(Transport *transport)
{
    TcpTransport *const self = (TcpTransport *)transport;

    /* First, so that nodes whose connections end here do not make new ones, which would end in the
     * handshake: that looks like a node of another run. */
    for (guint i = 0; i < self->listeners->len; i++)
        close(g_array_index(self->listeners, int, i));
    g_array_unref(self->listeners);
    senders_finish(&self->senders, self->epoll_fd, TCP_EVENT_SENDER);
    senders_clear(&self->senders);
    g_hash_table_unref(self->receivers);
    g_hash_table_unref(self->strangers);
    if (self->poll_fd != -1)
        close(self->poll_fd);
    if (self->epoll_fd != -1)
        close(self->epoll_fd);
    block_pool_free(self->pool);
    g_free(self);
}

static void free_receiver(gpointer receiver)
{
    tcp_receiver_free(receiver);
}

static Transport *tcp_create(const TransportConfig *config, GError **error)
{
    TcpTransport *const self = g_new0(TcpTransport, 1);
    struct epoll_event event = { .events = EPOLLIN };

    self->base.ops = &transport_tcp;
    self->config = *config;
    self->most_receivers = 2 * (size_t)config->n_nodes + SPARE_RECEIVERS;
    self->timeout_ms = config->timeout_ms;
    self->pool = block_pool_new();
    self->listeners = g_array_new(FALSE, FALSE, sizeof(int));
    self->receivers = g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, free_receiver);
    self->strangers = g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, free_receiver);
    self->is_armed = true;
    self->warned_ms = INT64_MIN / 2;
    spinner_init(&self->spinner);
    senders_init(&self->senders);
    self->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    self->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (self->poll_fd != -1 && self->epoll_fd != -1 &&
        epoll_ctl(self->poll_fd, EPOLL_CTL_ADD, self->epoll_fd, &event) == 0)
        return &self->base;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK, "cannot make epolls: %s",
                g_strerror(errno));
    tcp_destroy(&self->base);
    return NULL;
}

/* A socket that listens there; -1 with errno. */
static int listen_at(const struct addrinfo *address)
{
    const int one = 1, zero = 0;
    const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd == -1)
        return -1;
    /* "*" is every address of both kinds. */
    if (address->ai_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
        bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    const int number = errno;
    close(fd);
    errno = number;
    return -1;
}

static bool tcp_bind(Transport *transport, const char *endpoint, char **resolved, GError **error)
{
    TcpTransport *const self = (TcpTransport *)transport;
    g_autofree char *host = NULL, *port = NULL;

    if (!tcp_address_split(TCP_SCHEME, endpoint, &host, &port, error))
        return false;
    struct addrinfo *const found = tcp_address_to_bind(endpoint, host, port, error);
    if (found == NULL)
        return false;
    const int fd = listen_at(found);
    const int number = errno;
    freeaddrinfo(found);
    if (fd != -1 &&
        tcp_transport_watch(self, fd, EPOLLIN | EPOLLET, TCP_EVENT_LISTENER, (uint32_t)fd)) {
        g_array_append_val(self->listeners, fd);
        *resolved = tcp_address_of_socket(TCP_SCHEME, fd);
        return true;
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK, "cannot bind %s: %s%s", endpoint,
                g_strerror(fd == -1 ? number : errno),
                fd == -1 && number == EADDRINUSE ? TCP_ADDRESS_TAKEN : "");
    if (fd != -1)
        close(fd);
    return false;
}

static Channel *tcp_connect(Transport *transport, const char *endpoint, const ChannelTarget *target,
                            GError **error)
{
    g_autofree char *host = NULL, *port = NULL;

    if (!tcp_address_split(TCP_SCHEME, endpoint, &host, &port, error))
        return NULL;
    struct addrinfo *const address = tcp_address_to_connect(endpoint, host, port, error);
    if (address == NULL)
        return NULL;
    Channel *const channel = tcp_sender_new((TcpTransport *)transport, address, target);
    freeaddrinfo(address);
    return channel;
}

const TransportOps transport_tcp = {
    .name = TCP_SCHEME,
    .sends_direct = true,
    .create = tcp_create,
    .destroy = tcp_destroy,
    .bind = tcp_bind,
    .poll_fd = tcp_poll_fd,
    .receive = tcp_receive,
    .glance = tcp_glance,
    .origin = tcp_origin,
    .take_resets = tcp_take_resets,
    .connect = tcp_connect,
    .answer = tcp_answer,
};
