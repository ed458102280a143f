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

/* An unproven connection may stay so long, counted from the accept, however much it sends. */
#define PROOF_MS 5000

/* The most connections without a correct HELLO, in all and of one address. (Those with a correct
 * HELLO and no proof yet are limited by most_receivers.) */
#define MOST_STRANGERS 64
#define MOST_STRANGERS_OF_ADDRESS 8

/* If there are too many connections, a node's that has been silent for so long is closed for a new
 * one. */
#define SILENCE_MS 5000

#define CHECK_MS 20
#define WARNING_MS 1000

/* After so many glances that found nothing, there are none until a packet comes. */
#define MOST_VAIN 1000

/* The most events, and the most reads of a long packet, in one receive. */
#define MOST_STEPS 1024

/* The kernel probes a connection that is quiet for the timeout, or for so many seconds if that is
 * less. After so many probes without an answer the connection ends. */
#define KEEP_IDLE_MOST_S 60
#define KEEP_PROBES 3

/* The most connections that are accepted at once. */
#define MOST_ACCEPTS 64

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

/* ---- connections ---- */

/* One line in the log for so many ms. */
static bool may_complain(TcpTransport *self)
{
    const int64_t now_ms = monotonic_ms();

    if (now_ms - self->warned_ms < WARNING_MS) {
        self->n_unsaid++;
        return false;
    }
    self->warned_ms = now_ms;
    return true;
}

static void complain_of(TcpTransport *self, const char *address, const char *what)
{
    if (!may_complain(self))
        return;
    g_warning("dropped a connection from %s: %s; %" PRIu64 " more since the last such line",
              address, what, self->n_unsaid);
    self->n_unsaid = 0;
}

static void drop_receiver(TcpTransport *self, TcpReceiver *receiver)
{
    const gpointer id = GUINT_TO_POINTER(receiver->id);

    if (self->current == receiver)
        self->current = NULL;
    if (self->last == receiver)
        self->last = NULL;
    if (!g_hash_table_remove(self->receivers, id))
        g_hash_table_remove(self->strangers, id);
}

/* The node's connection on which nothing has come for the longest time; NULL: there is none. */
static TcpReceiver *find_most_silent(TcpTransport *self)
{
    TcpReceiver *silent = NULL;
    GHashTableIter each;
    gpointer data;

    g_hash_table_iter_init(&each, self->receivers);
    while (g_hash_table_iter_next(&each, NULL, &data)) {
        TcpReceiver *const receiver = data;
        if (silent == NULL || receiver->heard_ms < silent->heard_ms)
            silent = receiver;
    }
    return silent;
}

/* Whether there is room for one more node's connection. If necessary it makes room: a node that is
 * cut off for it connects again, and its link sends again. */
static bool make_room(TcpTransport *self)
{
    if (g_hash_table_size(self->receivers) < self->most_receivers)
        return true;
    TcpReceiver *const silent = find_most_silent(self);
    if (silent == NULL || monotonic_ms() - silent->heard_ms < SILENCE_MS)
        return false;
    drop_receiver(self, silent);
    return true;
}

/* A kind of strangers: connections that have proved nothing yet. */
typedef struct {
    bool recognised;     /* their HELLO is complete and correct */
    const char *address; /* NULL: any */
} Kind;

/* Counts the strangers of a kind; *oldest: the one that came first. */
static size_t count_strangers(TcpTransport *self, Kind kind, TcpReceiver **oldest)
{
    GHashTableIter each;
    gpointer data;
    size_t n = 0;

    *oldest = NULL;
    g_hash_table_iter_init(&each, self->strangers);
    while (g_hash_table_iter_next(&each, NULL, &data)) {
        TcpReceiver *const receiver = data;
        if (receiver->handshake.is_recognised != kind.recognised ||
            (kind.address != NULL && strcmp(receiver->address, kind.address) != 0))
            continue;
        n++;
        if (*oldest == NULL || (int32_t)(receiver->id - (*oldest)->id) < 0)
            *oldest = receiver;
    }
    return n;
}

/* Drops the oldest stranger of a kind if there are more than `most`. A node sends its HELLO first,
 * so the oldest has had the most time to send it. */
static void thin_out(TcpTransport *self, Kind kind, size_t most)
{
    TcpReceiver *oldest;

    if (count_strangers(self, kind, &oldest) <= most)
        return;
    complain_of(self, oldest->address,
                "there are too many that do not prove that they belong to this run");
    drop_receiver(self, oldest);
}

/* A stranger's bytes were read. A correct proof makes it a node. */
static void note_progress(TcpTransport *self, TcpReceiver *receiver)
{
    const gpointer id = GUINT_TO_POINTER(receiver->id);

    if (!receiver->is_proven) {
        if (receiver->handshake.is_recognised)
            thin_out(self, (Kind){ .recognised = true }, self->most_receivers);
        return;
    }
    if (!g_hash_table_contains(self->strangers, id))
        return;
    if (!make_room(self)) {
        complain_of(self, receiver->address, "there are too many connections of nodes");
        drop_receiver(self, receiver);
        return;
    }
    g_hash_table_steal(self->strangers, id);
    g_hash_table_insert(self->receivers, id, receiver);
}

/* Reads from a connection. False: it was dropped. */
static bool read_receiver(TcpTransport *self, TcpReceiver *receiver)
{
    const gpointer id = GUINT_TO_POINTER(receiver->id);

    if (!tcp_receiver_read(receiver)) {
        if (receiver->fault != NULL)
            complain_of(self, receiver->address, receiver->fault);
        drop_receiver(self, receiver);
        return false;
    }
    if (!g_hash_table_contains(self->strangers, id))
        return true;
    note_progress(self, receiver);
    return g_hash_table_contains(self->receivers, id);
}

static void take_over(TcpTransport *self, int fd, const struct sockaddr *address, socklen_t size)
{
    const HandshakeConfig config = tcp_stream_config(&self->config, fd);
    const uint32_t id = ++self->n_receivers_ever;
    char text[NI_MAXHOST];

    tcp_address_text(address, size, text, sizeof text);
    if (id == 0 || !tcp_transport_watch(self, fd, EPOLLIN | EPOLLRDHUP, TCP_EVENT_RECEIVER, id)) {
        complain_of(self, text, id == 0 ? "come again" : g_strerror(errno));
        close(fd);
        return;
    }
    tcp_transport_keep_alive(self, fd);
    TcpReceiver *const receiver =
        tcp_receiver_new(id, fd, self->epoll_fd, text, self->pool, &config);
    g_hash_table_insert(self->strangers, GUINT_TO_POINTER(id), receiver);
    /* A node's HELLO comes with the connection, so the node can be recognised at once. */
    (void)read_receiver(self, receiver);
    thin_out(self, (Kind){ .address = text }, MOST_STRANGERS_OF_ADDRESS);
    thin_out(self, (Kind){ .recognised = false }, MOST_STRANGERS);
}

/* Accepts all waiting connections. */
static void let_in(TcpTransport *self, int listener)
{
    struct sockaddr_storage address;

    for (unsigned n = 0; n < MOST_ACCEPTS; n++) {
        socklen_t size = sizeof address;
        const int fd =
            accept4(listener, (struct sockaddr *)&address, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd != -1)
            take_over(self, fd, (const struct sockaddr *)&address, size);
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        else if (errno != EINTR && errno != ECONNABORTED) {
            if (may_complain(self)) /* tried again after CHECK_MS */
                g_warning("cannot accept a connection: %s", g_strerror(errno));
            return;
        }
    }
}

static void let_in_all(TcpTransport *self)
{
    for (guint i = 0; i < self->listeners->len; i++)
        let_in(self, g_array_index(self->listeners, int, i));
}

/* Drops strangers whose time for a proof is over. */
static void drop_late_strangers(TcpTransport *self, int64_t now_ms)
{
    GHashTableIter each;
    gpointer data;

    g_hash_table_iter_init(&each, self->strangers);
    while (g_hash_table_iter_next(&each, NULL, &data)) {
        TcpReceiver *const receiver = data;
        if (now_ms - receiver->accepted_ms < PROOF_MS)
            continue;
        complain_of(self, receiver->address,
                    "it has not proved in time that it belongs to this run");
        g_hash_table_iter_remove(&each);
    }
}

void tcp_transport_take_answers(TcpTransport *self, int fd, const Handshake *done,
                                const Seal *receives)
{
    const uint32_t id = ++self->n_receivers_ever;
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    if (own == -1)
        return; /* the process that greets does so again on another connection */
    if (!tcp_transport_watch(self, own, EPOLLIN | EPOLLRDHUP, TCP_EVENT_RECEIVER, id)) {
        close(own);
        return;
    }
    g_hash_table_insert(self->receivers, GUINT_TO_POINTER(id),
                        tcp_receiver_new_for_answers(id, own, self->epoll_fd, "the scheduler",
                                                     self->pool, done, receives));
}

/* Does the work that is due from time to time. */
static void check(TcpTransport *self)
{
    const int64_t now_ms = monotonic_ms();

    if (now_ms < self->check_ms)
        return;
    self->check_ms = now_ms + CHECK_MS;
    drop_late_strangers(self, now_ms);
    let_in_all(self);
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
        complain_of(self, self->current->address, self->current->fault);
        drop_receiver(self, self->current);
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
        drop_receiver(self, receiver);
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
        let_in(self, (int)id);
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
        if (!read_receiver(self, receiver))
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
        for (unsigned i = 0; i < SPINNER_LOOKS; i++) {
            if (ask(self)) {
                spinner_found(&self->spinner);
                return true;
            }
            spin_pause();
        }
    } while (spinner_go_on(&self->spinner, end));
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
