/* Connections that other processes make: accepted, proved, dropped.
 *
 * A connection is a stranger's until it has proved that it is a node's. Strangers are few, and have
 * little time. If there are too many of a kind, the oldest goes.
 *
 * Threads: the I/O thread. */
#define _GNU_SOURCE
#include "io/net/transport/tcp/transport_tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/net/monotonic.h"
#include "io/net/transport/tcp/tcp_address.h"

/* An unproven connection may stay so this long after the accept, however much it sends. */
#define PROOF_MS 5000

/* The most connections without a correct HELLO, in all and of one address, beside one for each
 * node: when a run begins, all nodes connect at once, perhaps from one address, and on a busy
 * machine none of them may have said HELLO before the last one has come. (Those with a correct
 * HELLO and no proof yet are limited by most_receivers.) */
#define MOST_STRANGERS 64
#define MOST_STRANGERS_OF_ADDRESS 8

/* If there are too many connections, a node's that was silent for this long is closed for a new
 * one. */
#define SILENCE_MS 5000

#define WARNING_MS 1000

/* The most connections that are accepted at once. */
#define MOST_ACCEPTS 64

/* One line in the log in this many ms. */
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

void tcp_connections_complain(TcpTransport *self, const char *address, const char *what)
{
    if (!may_complain(self))
        return;
    g_warning("dropped a connection from %s: %s; %" PRIu64 " more since the last such line",
              address, what, self->n_unsaid);
    self->n_unsaid = 0;
}

void tcp_connections_drop(TcpTransport *self, TcpReceiver *receiver)
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
    tcp_connections_drop(self, silent);
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
    tcp_connections_complain(self, oldest->address,
                             "there are too many that do not prove that they belong to this run");
    tcp_connections_drop(self, oldest);
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
        tcp_connections_complain(self, receiver->address,
                                 "there are too many connections of nodes");
        tcp_connections_drop(self, receiver);
        return;
    }
    g_hash_table_steal(self->strangers, id);
    g_hash_table_insert(self->receivers, id, receiver);
}

bool tcp_connections_read(TcpTransport *self, TcpReceiver *receiver)
{
    const gpointer id = GUINT_TO_POINTER(receiver->id);

    if (!tcp_receiver_read(receiver)) {
        if (receiver->fault != NULL)
            tcp_connections_complain(self, receiver->address, receiver->fault);
        tcp_connections_drop(self, receiver);
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
        tcp_connections_complain(self, text, id == 0 ? "come again" : g_strerror(errno));
        close(fd);
        return;
    }
    tcp_transport_keep_alive(self, fd);
    TcpReceiver *const receiver =
        tcp_receiver_new(id, fd, self->epoll_fd, text, self->pool, &config);
    tcp_receiver_set_reader(receiver, &self->config.direct);
    g_hash_table_insert(self->strangers, GUINT_TO_POINTER(id), receiver);
    /* A node's HELLO comes with the connection, so the node can be recognised at once. */
    (void)tcp_connections_read(self, receiver);
    thin_out(self, (Kind){ .address = text }, MOST_STRANGERS_OF_ADDRESS + self->config.n_nodes);
    thin_out(self, (Kind){ .recognised = false }, MOST_STRANGERS + self->config.n_nodes);
}

void tcp_connections_accept(TcpTransport *self, int listener)
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
        tcp_connections_complain(self, receiver->address,
                                 "it has not proved in time that it belongs to this run");
        g_hash_table_iter_remove(&each);
    }
}

void tcp_connections_check(TcpTransport *self, int64_t now_ms)
{
    drop_late_strangers(self, now_ms);
    for (guint i = 0; i < self->listeners->len; i++)
        tcp_connections_accept(self, g_array_index(self->listeners, int, i));
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
