/* What every transport must do, tested for all of them; and how they are found by name. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rubato/error.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/net/transport/transport_ops.h"
#include "tests/support/runner.h"

#define N_TRANSPORTS 4
#define PATIENCE_MS 100000
#define TICK_MS 5

/* Of each transport: an address to bind, one where nobody is, and some that make no sense, the last
 * of them only when bound. */
static const struct {
    const char *name, *any, *another, *nonsense[12];
} addresses[N_TRANSPORTS] = {
    { "tcp",
      "tcp://127.0.0.1:0",
      "another port",
      { "", "127.0.0.1:80", "tcp://", "tcp://:80", "tcp://host", "tcp://host:", "tcp://h:-1",
        "tcp://h:65536", "tcp://h:8o", "ipc://h:80", "tcp://no such host:1" } },
    { "zmq",
      "zmq://127.0.0.1:0",
      "another port",
      { "", "127.0.0.1:80", "zmq://", "zmq://:80", "zmq://host", "zmq://host:", "zmq://h:-1",
        "zmq://h:65536", "zmq://h:8o", "tcp://h:80", "zmq://no such host:1" } },
    { "ipc",
      "ipc://*",
      "another name",
      { "", "ipc://", "ipc://h", "ipc:///n", "ipc://h/", "ipc://h/a/b", "ipc://h/a b", "shm://h/n",
        "ipc://0123456789abcdef/n", "ipc://*" } },
    { "shm",
      "shm://*",
      "another name",
      { "", "shm://", "shm://h", "shm:///n", "shm://h/", "shm://h/a/b", "shm://h/a b", "ipc://h/n",
        "shm://0123456789abcdef/n", "shm://*" } },
};

static const TransportConfig config = { .n_nodes = 2, .timeout_ms = 3000 };

typedef struct {
    const TransportOps *ops;
    Transport *transport;
    char *endpoint;
} End;

/* The end that sends in this case, and its channel: some transports do their work when they are
 * asked for news. */
static struct {
    const End *end;
    Channel *channel;
} sending;

static void open_end(End *end, int i)
{
    GError *error = NULL;

    end->ops = transport_at((size_t)i);
    ck_assert_ptr_nonnull(end->ops);
    end->transport = end->ops->create(&config, &error);
    ck_assert_ptr_nonnull(end->transport);
    ck_assert_msg(end->ops->bind(end->transport, addresses[i].any, &end->endpoint, &error), "%s",
                  error != NULL ? error->message : "");
}

static void close_end(End *end)
{
    if (sending.end == end)
        sending.end = NULL;
    end->ops->destroy(end->transport);
    g_free(end->endpoint);
}

static Channel *open_channel(const End *from, const char *endpoint)
{
    GError *error = NULL;
    Channel *const channel =
        from->ops->connect(from->transport, endpoint, /* target= */ NULL, &error);

    ck_assert_msg(channel != NULL, "%s", error != NULL ? error->message : "");
    sending.end = from;
    sending.channel = channel;
    return channel;
}

static void close_channel(Channel *channel, unsigned linger_ms)
{
    sending.channel = NULL;
    channel->ops->close(channel, linger_ms);
}

/* Does what the I/O thread of the sending end would do now and then. */
static void serve_sending_end(void)
{
    Received received;

    if (sending.end == NULL)
        return;
    ck_assert(!sending.end->ops->receive(sending.end->transport, &received));
    if (sending.channel != NULL)
        (void)sending.channel->ops->state(sending.channel);
}

/* Receives one packet, waiting for it. */
static bool receive(const End *end, Received *received)
{
    const int64_t end_ms = network_now_ms() + PATIENCE_MS;

    while (!end->ops->receive(end->transport, received)) {
        struct pollfd polled = { .fd = end->ops->poll_fd(end->transport), .events = POLLIN };
        if (network_now_ms() >= end_ms)
            return false;
        serve_sending_end();
        poll(&polled, 1, TICK_MS);
    }
    return true;
}

static void send_bytes(Channel *channel, uint8_t byte, size_t size)
{
    Packet *const packet = packet_new(size);

    memset(packet->bytes, byte, size);
    channel->ops->send(channel, packet);
    packet_unref(packet);
}

static bool is_all(const Received *received, uint8_t byte)
{
    for (size_t i = 0; i < received->size; i++)
        if (received->bytes[i] != byte)
            return false;
    return true;
}

static void assert_received(const End *end, uint8_t byte, size_t size)
{
    Received received;

    ck_assert(receive(end, &received));
    ck_assert(!received.misshapen);
    ck_assert_uint_eq(received.size, size);
    ck_assert(is_all(&received, byte));
    received.ops->release(&received);
}

START_TEST(packets_arrive_whole_and_in_order)
{
    static const size_t sizes[] = { 1, 16, 33, 64, 2048, 2049, 8192, 70000, 5000000, 3 };
    End a, b;

    open_end(&a, _i);
    open_end(&b, _i);
    Channel *const channel = open_channel(&a, b.endpoint);
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++)
        send_bytes(channel, (uint8_t)i, sizes[i]);
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++)
        assert_received(&b, (uint8_t)i, sizes[i]);
    close_channel(channel, 0);
    close_end(&a);
    close_end(&b);
}
END_TEST

START_TEST(many_packets_are_neither_lost_nor_refused)
{
    enum { N = 20000 };
    End a, b;

    open_end(&a, _i);
    open_end(&b, _i);
    Channel *const channel = open_channel(&a, b.endpoint);
    for (unsigned i = 0; i < N; i++)
        send_bytes(channel, (uint8_t)i, 100);
    for (unsigned i = 0; i < N; i++)
        assert_received(&b, (uint8_t)i, 100);
    close_channel(channel, 0);
    close_end(&a);
    close_end(&b);
}
END_TEST

START_TEST(packets_wait_for_a_node_that_is_not_there_yet)
{
    End a, b;
    GError *error = NULL;

    open_end(&a, _i);
    open_end(&b, _i);
    g_autofree char *endpoint = g_strdup(b.endpoint);
    close_end(&b);
    Channel *const channel = open_channel(&a, endpoint);
    send_bytes(channel, 7, 10);
    b.transport = b.ops->create(&config, &error);
    ck_assert(b.ops->bind(b.transport, endpoint, &b.endpoint, &error));
    assert_received(&b, 7, 10);
    close_channel(channel, 0);
    close_end(&a);
    close_end(&b);
}
END_TEST

/* `to` is the other end, as long as it is there. */
static void wait_for_state(const End *from, Channel *channel, NetworkPeerState state, const End *to)
{
    const int64_t end_ms = network_now_ms() + PATIENCE_MS;
    const int fd = from->ops->poll_fd(from->transport);
    Received received;

    while (channel->ops->state(channel) != state) {
        struct pollfd polled = { .fd = fd, .events = POLLIN };
        ck_assert_int_lt(network_now_ms(), end_ms);
        poll(&polled, 1, 1); /* the state changes in the background: nothing tells when */
        serve_sending_end();
        if (to != NULL)
            ck_assert(!to->ops->receive(to->transport, &received));
    }
}

START_TEST(closing_with_linger_still_sends)
{
    End a, b;

    open_end(&a, _i);
    open_end(&b, _i);
    Channel *const channel = open_channel(&a, b.endpoint);
    wait_for_state(&a, channel, NETWORK_PEER_CONNECTED, &b);
    for (unsigned i = 0; i < 100; i++)
        send_bytes(channel, 9, 3000);
    close_channel(channel, PATIENCE_MS);
    close_end(&a);
    for (unsigned i = 0; i < 100; i++)
        assert_received(&b, 9, 3000);
    close_end(&b);
}
END_TEST

START_TEST(closing_gives_back_what_was_not_sent)
{
    End a, b;
    Packet *const packet = packet_new(100000);

    open_end(&a, _i);
    memset(packet->bytes, 0, packet->size);
    open_end(&b, _i);
    g_autofree char *endpoint = g_strdup(b.endpoint);
    close_end(&b);
    Channel *const channel = open_channel(&a, endpoint); /* nobody is there */
    channel->ops->send(channel, packet);
    ck_assert(packet_is_shared(packet));
    close_channel(channel, 0);
    close_end(&a);
    ck_assert(!packet_is_shared(packet));
    packet_unref(packet);
}
END_TEST

START_TEST(received_packet_can_be_moved_and_knows_where_it_came_from)
{
    static const size_t sizes[] = { 5, 500, 50000 };
    End a, b;

    open_end(&a, _i);
    open_end(&b, _i);
    Channel *const channel = open_channel(&a, b.endpoint);
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        Received received, moved;
        send_bytes(channel, 3, sizes[i]);
        ck_assert(receive(&b, &received));
        if (received.lent)
            moved = received;
        else
            received.ops->move(&moved, &received);
        memset(&received, 0xee, sizeof received);
        ck_assert_uint_eq(moved.size, sizes[i]);
        ck_assert(is_all(&moved, 3));
        ck_assert_ptr_nonnull(moved.ops->address(&moved));
        ck_assert_uint_gt(strlen(moved.ops->address(&moved)), 0);
        moved.ops->release(&moved);
    }
    close_channel(channel, 0);
    close_end(&a);
    close_end(&b);
}
END_TEST

START_TEST(channel_tells_how_its_connection_is)
{
    End a, b;

    open_end(&a, _i);
    open_end(&b, _i);
    Channel *const channel = open_channel(&a, b.endpoint);
    wait_for_state(&a, channel, NETWORK_PEER_CONNECTED, &b);
    close_end(&b);
    wait_for_state(&a, channel, NETWORK_PEER_DISCONNECTED, NULL);
    close_channel(channel, 0);
    close_end(&a);
}
END_TEST

START_TEST(busy_address_is_refused_and_named)
{
    End a, b;
    GError *error = NULL;
    char *resolved = NULL;

    open_end(&a, _i);
    open_end(&b, _i);
    ck_assert(!b.ops->bind(b.transport, a.endpoint, &resolved, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK));
    ck_assert_msg(strstr(error->message, a.endpoint) != NULL, "%s", error->message);
    ck_assert_msg(strstr(error->message, addresses[_i].another) != NULL, "%s", error->message);
    ck_assert_ptr_null(resolved);
    g_error_free(error);
    close_end(&a);
    close_end(&b);
}
END_TEST

START_TEST(address_that_makes_no_sense_is_refused)
{
    const char *const *const endpoints = addresses[_i].nonsense;
    End a;

    open_end(&a, _i);
    for (size_t i = 0; endpoints[i] != NULL; i++) {
        const bool is_last = endpoints[i + 1] == NULL;
        GError *error = NULL;
        char *resolved = NULL;
        ck_assert(!a.ops->bind(a.transport, endpoints[i], &resolved, &error) ||
                  (is_last && addresses[_i].any[6] == '*'));
        ck_assert(error == NULL || g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK));
        ck_assert(error == NULL || resolved == NULL);
        g_clear_pointer(&resolved, g_free);
        g_clear_error(&error);
        ck_assert_ptr_null(a.ops->connect(a.transport, endpoints[i], /* target= */ NULL, &error));
        ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK));
        g_clear_error(&error);
    }
    close_end(&a);
}
END_TEST

START_TEST(own_address_is_reached_and_that_of_another_host_is_not)
{
    End a;

    open_end(&a, _i);
    if (a.ops->reaches != NULL) {
        ck_assert(a.ops->reaches(a.transport, a.endpoint));
        for (size_t i = 0; addresses[_i].nonsense[i] != NULL; i++)
            ck_assert(!a.ops->reaches(a.transport, addresses[_i].nonsense[i]));
    }
    close_end(&a);
}
END_TEST

/* The process that binds looks up names; others are told numbers. */
START_TEST(name_of_host_is_bound_and_resolved)
{
    End a, b;
    GError *error = NULL;
    char *resolved = NULL;

    open_end(&a, 0);
    open_end(&b, 0);
    ck_assert_msg(b.ops->bind(b.transport, "tcp://localhost:0", &resolved, &error), "%s",
                  error != NULL ? error->message : "");
    ck_assert_msg(g_str_has_prefix(resolved, "tcp://127.0.0.1:") ||
                      g_str_has_prefix(resolved, "tcp://[::1]:"),
                  "%s", resolved);
    ck_assert(!g_str_has_suffix(resolved, ":0"));
    Channel *const channel = open_channel(&a, resolved);
    send_bytes(channel, 4, 44);
    assert_received(&b, 4, 44);
    close_channel(channel, 0);
    g_free(resolved);
    ck_assert_ptr_null(
        a.ops->connect(a.transport, "tcp://localhost:1", /* target= */ NULL, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK));
    g_error_free(error);
    close_end(&a);
    close_end(&b);
}
END_TEST

/* ---- with a secret, over ZeroMQ: docs/security.md: Over ZeroMQ ---- */

static const RunSecret OWN_SECRET = { { 1, 2, 3 } }, OTHER_SECRET = { { 1, 2, 4 } };

static End open_secret_end(int i, uint32_t self, const RunSecret *secret, bool encrypt)
{
    const TransportConfig with = {
        .n_nodes = 3, .timeout_ms = 3000, .self = self, .secret = secret, .encrypt = encrypt
    };
    End end = { .ops = transport_find(i % 2 == 0 ? "zmq" : "ipc", NULL) };
    GError *error = NULL;

    end.transport = end.ops->create(&with, &error);
    ck_assert_msg(end.transport != NULL, "%s", error != NULL ? error->message : "");
    ck_assert(end.ops->bind(end.transport, i % 2 == 0 ? "zmq://127.0.0.1:0" : "ipc://*",
                            &end.endpoint, &error));
    return end;
}

static Channel *open_channel_to(const End *from, const End *to, uint32_t node)
{
    const ChannelTarget target = { .node = node };
    GError *error = NULL;
    Channel *const channel = from->ops->connect(from->transport, to->endpoint, &target, &error);

    ck_assert_msg(channel != NULL, "%s", error != NULL ? error->message : "");
    return channel;
}

START_TEST(zeromq_tells_which_node_has_proved_the_secret)
{
    Received received;
    End b = open_secret_end(_i, 1, &OWN_SECRET, _i < 2);

    for (uint32_t node = 0; node < 3; node += 2) {
        End a = open_secret_end(_i, node, &OWN_SECRET, _i < 2);
        Channel *const channel = open_channel_to(&a, &b, 1);

        send_bytes(channel, 5, 70000);
        ck_assert(receive(&b, &received));
        ck_assert_uint_eq(received.node, node);
        ck_assert_uint_eq(received.size, 70000);
        ck_assert(is_all(&received, 5));
        received.ops->release(&received);
        channel->ops->close(channel, 0);
        close_end(&a);
    }
    close_end(&b);
}
END_TEST

static _Atomic unsigned n_refusals;

static void count_refusals(const char *domain, GLogLevelFlags level, const char *text,
                           gpointer user_data)
{
    (void)domain;
    (void)level;
    (void)user_data;
    if (strstr(text, "dropped a connection over ZeroMQ") != NULL) /* whoever ended it first */
        atomic_fetch_add(&n_refusals, 1);
}

/* Before a thread of ZeroMQ could write to it. */
static void listen_to_the_log(void)
{
    g_log_set_handler(G_LOG_DOMAIN, G_LOG_LEVEL_WARNING, count_refusals, NULL);
}

static const struct {
    const RunSecret *secret;
    uint32_t self;
    uint32_t wanted; /* node 1 listens */
} refused[] = {
    { &OTHER_SECRET, 0, 1 },
    { NULL, 0, 1 },
    { &OWN_SECRET, 0, 2 }, /* led to a node that it does not want */
    { &OWN_SECRET, 3, 1 }, /* there is no such node */
};

/* _i: a case, over each of the two. Nothing of it comes in, and who belongs to the run is heard. */
START_TEST(zeromq_refuses_who_does_not_know_the_secret)
{
    listen_to_the_log();
    const int64_t end_ms = network_now_ms() + PATIENCE_MS;
    End b = open_secret_end(_i, 1, &OWN_SECRET, false);
    End stranger = open_secret_end(_i, refused[_i / 2].self, refused[_i / 2].secret, false);
    End a = open_secret_end(_i, 0, &OWN_SECRET, false);
    Received received;

    Channel *const wrong = open_channel_to(&stranger, &b, refused[_i / 2].wanted);
    send_bytes(wrong, 66, 66);
    while (atomic_load(&n_refusals) == 0) {
        struct pollfd polled = { .fd = b.ops->poll_fd(b.transport), .events = POLLIN };
        ck_assert(!b.ops->receive(b.transport, &received));
        ck_assert(network_now_ms() < end_ms);
        poll(&polled, 1, TICK_MS);
    }
    ck_assert_uint_ne(wrong->ops->state(wrong), NETWORK_PEER_CONNECTED);
    Channel *const right = open_channel_to(&a, &b, 1);
    send_bytes(right, 7, 70);
    assert_received(&b, 7, 70);
    wrong->ops->close(wrong, 0);
    right->ops->close(right, 0);
    close_end(&stranger);
    close_end(&a);
    close_end(&b);
}
END_TEST

static int connect_to_zmq(const End *end)
{
    const int family = end->ops == &transport_ipc ? AF_UNIX : AF_INET;
    struct sockaddr_un local = { .sun_family = AF_UNIX };
    const uint16_t port = (uint16_t)g_ascii_strtoull(strrchr(end->endpoint, ':') + 1, NULL, 10);
    const struct sockaddr_in address = { .sin_family = AF_INET,
                                         .sin_addr = { htonl(INADDR_LOOPBACK) },
                                         .sin_port = htons(port) };
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    /* An abstract name: it begins with a zero byte. */
    const char *const name = strrchr(end->endpoint, '/') + 1;
    memcpy(local.sun_path + 1, name, strlen(name));
    const socklen_t local_size =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    ck_assert_int_eq(family == AF_UNIX
                         ? connect(fd, (const struct sockaddr *)&local, local_size)
                         : connect(fd, (const struct sockaddr *)&address, sizeof address),
                     0);
    return fd;
}

/* Moves what has come from one to the other; false: the one has closed. */
static bool move_bytes(int from, int to, GByteArray *recorded)
{
    uint8_t bytes[65536];
    const ssize_t n = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);

    if (n > 0) {
        if (recorded != NULL)
            g_byte_array_append(recorded, bytes, (guint)n);
        ck_assert_int_eq(send(to, bytes, (size_t)n, MSG_NOSIGNAL), n);
    }
    return n != 0;
}

static GString *refusals; /* guarded by refusals_lock */
static pthread_mutex_t refusals_lock = PTHREAD_MUTEX_INITIALIZER;

static void keep_refusals(const char *domain, GLogLevelFlags level, const char *text,
                          gpointer user_data)
{
    (void)domain;
    (void)level;
    (void)user_data;
    pthread_mutex_lock(&refusals_lock);
    g_string_append(refusals, text);
    pthread_mutex_unlock(&refusals_lock);
}

static bool was_refused(const char *text)
{
    pthread_mutex_lock(&refusals_lock);
    const bool was = strstr(refusals->str, text) != NULL;
    pthread_mutex_unlock(&refusals_lock);
    return was;
}

static void wait_until_cut_off(int fd)
{
    struct pollfd polled = { .fd = fd, .events = POLLIN };
    char byte;

    while (poll(&polled, 1, PATIENCE_MS) == 1 && recv(fd, &byte, 1, 0) > 0)
        continue; /* the other end's greeting */
    close(fd);
}

/* How many refusals the lines of the log tell of; *n_counted: those that they only count. */
static uint64_t count_refused(const char *text, uint64_t *n_counted)
{
    uint64_t n = 0;

    *n_counted = 0;
    pthread_mutex_lock(&refusals_lock);
    for (const char *at = refusals->str; (at = strstr(at, text)) != NULL; n++) {
        at += strlen(text);
        *n_counted += g_ascii_strtoull(at, NULL, 10);
    }
    pthread_mutex_unlock(&refusals_lock);
    return n + *n_counted;
}

/* They say nothing, and are cut off in time. One line tells of the first; a later line counts the
 * others. They come again until one does: on a machine that stands still for some seconds, those of
 * a round may be told of one by one. _i: with a secret, without one. */
START_TEST(zeromq_counts_and_tells_of_those_that_say_nothing)
{
    const char *const text =
        _i == 0 ? "it has ended, or its time has, before it proved that it belongs to this run; "
                : "it has ended, or its time has, before its handshake was over; ";
    uint64_t n_opened = 0, n_counted = 0;

    refusals = g_string_new(NULL);
    g_log_set_handler(G_LOG_DOMAIN, G_LOG_LEVEL_WARNING, keep_refusals, NULL);
    const int64_t end_ms = network_now_ms() + 5 * PATIENCE_MS;
    End b = open_secret_end(0, 1, _i == 0 ? &OWN_SECRET : NULL, false);

    while (n_counted == 0) {
        int silent[5];

        ck_assert(network_now_ms() < end_ms);
        for (size_t i = 0; i < G_N_ELEMENTS(silent); i++)
            silent[i] = connect_to_zmq(&b);
        n_opened += G_N_ELEMENTS(silent);
        for (size_t i = 0; i < G_N_ELEMENTS(silent); i++)
            wait_until_cut_off(silent[i]);
        ck_assert_uint_le(count_refused(text, &n_counted), n_opened);
    }
    close_end(&b);
}
END_TEST

/* ---- without a secret, over ZeroMQ: docs/security.md: Over ZeroMQ ---- */

/* What a DEALER sends first (https://rfc.zeromq.org/spec/23): its greeting, and READY. */
static const uint8_t dealers_first[64] = "\xff\0\0\0\0\0\0\0\x01\x7f\3\0NULL";
static const char ready[] = "\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06"
                            "DEALER";

static void say(int fd, const void *bytes, size_t size)
{
    ck_assert_int_eq(send(fd, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
}

/* Reads its greeting and its READY. */
static void hear_its_first(int fd)
{
    uint8_t bytes[64 + 2 + 255];

    ck_assert_int_eq(recv(fd, bytes, 64 + 2, MSG_WAITALL), 64 + 2);
    ck_assert_int_eq(recv(fd, bytes, bytes[64 + 1], MSG_WAITALL), bytes[64 + 1]);
}

/* A stranger ends its connection within the handshake. _i: over each of the two. */
START_TEST(zeromq_tells_of_handshakes_that_fail_without_a_secret)
{
    refusals = g_string_new(NULL);
    g_log_set_handler(G_LOG_DOMAIN, G_LOG_LEVEL_WARNING, keep_refusals, NULL);
    End b = open_secret_end(_i, 1, NULL, false);
    Received received;

    for (size_t n = 0; n < 64; n += 9) {
        const int fd = connect_to_zmq(&b);
        say(fd, dealers_first, n);
        close(fd);
    }
    for (const int64_t end_ms = network_now_ms() + PATIENCE_MS;
         !was_refused("dropped a connection over ZeroMQ: it has ended, or its time has, before its "
                      "handshake was over; 0 more since");
         poll(NULL, 0, TICK_MS)) {
        ck_assert(network_now_ms() < end_ms);
        ck_assert(!b.ops->receive(b.transport, &received));
    }
    End a = open_secret_end(_i, 0, NULL, false);
    Channel *const channel = open_channel_to(&a, &b, 1);
    send_bytes(channel, 7, 70);
    assert_received(&b, 7, 70);
    channel->ops->close(channel, 0);
    close_end(&a);
    close_end(&b);
}
END_TEST

enum { ANOTHER_USER = 65534, NO_OTHER_USER = 2, FEW_FILES = 100, MANY_FILES = 300 };

static void limit_files(rlim_t n)
{
    struct rlimit limit;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = n;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* A process of another user, which connects again and again to the end of which it reads. */
static void be_another_user(int from)
{
    char endpoint[256] = "";
    const End end = { .ops = &transport_ipc, .endpoint = endpoint };

    limit_files(MANY_FILES);
    if (setuid(ANOTHER_USER) != 0)
        _exit(NO_OTHER_USER);
    if (read(from, endpoint, sizeof endpoint - 1) <= 0)
        _exit(1);
    for (unsigned i = 0; i < 2 * FEW_FILES; i++)
        (void)connect_to_zmq(&end);
    _exit(0);
}

/* More connections of another user than a process may have descriptors, all open at once: each is
 * dropped as soon as it comes, and the log tells of them. Only the administrator can be another
 * user. */
START_TEST(ipc_drops_connections_of_other_users)
{
    int way[2], status;
    Received received;

    refusals = g_string_new(NULL);
    g_log_set_handler(G_LOG_DOMAIN, G_LOG_LEVEL_WARNING, keep_refusals, NULL);
    ck_assert_int_eq(pipe(way), 0);
    const pid_t stranger = fork();
    ck_assert_int_ne(stranger, -1);
    if (stranger == 0)
        be_another_user(way[0]);
    limit_files(FEW_FILES);
    End b = open_secret_end(1, 1, NULL, false);
    const ssize_t size = (ssize_t)strlen(b.endpoint);
    ck_assert_int_eq(write(way[1], b.endpoint, (size_t)size), size);
    ck_assert_int_eq(waitpid(stranger, &status, 0), stranger);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_OTHER_USER) {
        close_end(&b);
        return;
    }
    ck_assert_int_eq(status, 0);
    for (const int64_t end_ms = network_now_ms() + PATIENCE_MS;
         !was_refused("dropped a connection over ZeroMQ: it is another user's; ");
         poll(NULL, 0, TICK_MS))
        ck_assert(network_now_ms() < end_ms);
    End a = open_secret_end(1, 0, NULL, false);
    Channel *const channel = open_channel_to(&a, &b, 1);
    send_bytes(channel, 7, 70);
    assert_received(&b, 7, 70);
    ck_assert(!b.ops->receive(b.transport, &received));
    channel->ops->close(channel, 0);
    close_end(&a);
    close_end(&b);
}
END_TEST

/* A stranger that sends faster than the node reads has to wait: it is not the node that keeps what
 * comes. Nothing is lost. */
START_TEST(zeromq_takes_a_bounded_number_of_messages_ahead)
{
    enum { FRAME_BYTES = 100, MOST_FRAMES = 500000 };
    End b = open_secret_end(_i, 1, NULL, false);
    const int fd = connect_to_zmq(&b);
    struct pollfd polled = { .fd = fd, .events = POLLOUT };
    uint8_t frames[100][2 + FRAME_BYTES];
    size_t n_sent = 0, n_received = 0;
    Received received;

    for (size_t i = 0; i < G_N_ELEMENTS(frames); i++) {
        memset(frames[i], 6, sizeof frames[i]);
        frames[i][0] = 0; /* neither long, nor a command, nor followed by another part */
        frames[i][1] = FRAME_BYTES;
    }
    say(fd, dealers_first, 64);
    say(fd, ready, sizeof ready - 1);
    hear_its_first(fd);
    /* The node takes nothing. If the stranger can send nothing for so long, it is ZeroMQ that waits
     * for the node; on a machine that stands still meanwhile, this test sees less, and does not
     * fail. */
    while (n_sent < MOST_FRAMES * sizeof frames[0] && poll(&polled, 1, 500) == 1) {
        const size_t at = n_sent % sizeof frames;
        const ssize_t n =
            send(fd, (const uint8_t *)frames + at, sizeof frames - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        ck_assert(n > 0 || errno == EAGAIN);
        n_sent += n > 0 ? (size_t)n : 0;
    }
    ck_assert_uint_lt(n_sent, MOST_FRAMES * sizeof frames[0]);
    for (; n_received < n_sent / sizeof frames[0]; n_received++) {
        ck_assert(receive(&b, &received));
        ck_assert_uint_eq(received.size, FRAME_BYTES);
        ck_assert(!received.misshapen);
        received.ops->release(&received);
    }
    close(fd);
    close_end(&b);
}
END_TEST

/* Everything that was said on a good connection is said again on another one. */
START_TEST(zeromq_refuses_what_is_said_again)
{
    listen_to_the_log();
    struct sockaddr_in bound = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t size = sizeof bound;
    const int64_t end_ms = network_now_ms() + PATIENCE_MS;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const ChannelTarget target = { .node = 1 };
    g_autoptr(GByteArray) recorded = g_byte_array_new();
    End b = open_secret_end(0, 1, &OWN_SECRET, false);
    End a = open_secret_end(0, 0, &OWN_SECRET, false);
    Received received;
    uint8_t answer[4096];
    ssize_t n;

    ck_assert_int_eq(bind(listener, (struct sockaddr *)&bound, size), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&bound, &size), 0);
    g_autofree char *between = g_strdup_printf("zmq://127.0.0.1:%u", ntohs(bound.sin_port));
    Channel *const channel = a.ops->connect(a.transport, between, &target, NULL);
    send_bytes(channel, 5, 500);
    const int near = accept(listener, NULL, NULL), far = connect_to_zmq(&b);
    while (!b.ops->receive(b.transport, &received)) {
        struct pollfd polled[2] = { { .fd = near, .events = POLLIN },
                                    { .fd = far, .events = POLLIN } };
        ck_assert(network_now_ms() < end_ms);
        poll(polled, 2, TICK_MS);
        ck_assert(move_bytes(near, far, recorded));
        ck_assert(move_bytes(far, near, NULL));
    }
    ck_assert_uint_eq(received.size, 500);
    received.ops->release(&received);
    ck_assert_uint_eq(atomic_load(&n_refusals), 0);
    ck_assert_uint_ge(recorded->len, 500);
    ck_assert_ptr_null(memmem(recorded->data, recorded->len, "\5\5\5\5\5\5\5\5", 8));

    const int again = connect_to_zmq(&b);
    (void)send(again, recorded->data, recorded->len, MSG_NOSIGNAL);
    while ((n = recv(again, answer, sizeof answer, 0)) > 0 || (n == -1 && errno == EINTR))
        ;
    while (atomic_load(&n_refusals) == 0) {
        ck_assert(network_now_ms() < end_ms);
        ck_assert(!b.ops->receive(b.transport, &received));
        poll(NULL, 0, TICK_MS);
    }
    ck_assert(!b.ops->receive(b.transport, &received));
    channel->ops->close(channel, 0);
    close(again);
    close(near);
    close(far);
    close(listener);
    close_end(&a);
    close_end(&b);
}
END_TEST

START_TEST(zeromq_without_a_secret_encrypts_nothing_and_says_so)
{
    const TransportConfig encrypted = { .n_nodes = 2, .timeout_ms = 3000, .encrypt = true };
    const TransportOps *const ops = transport_find(_i == 0 ? "zmq" : "ipc", NULL);
    GError *error = NULL;

    ck_assert_ptr_null(ops->create(&encrypted, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK));
    ck_assert_ptr_nonnull(strstr(error->message, "without a secret"));
    g_error_free(error);
}
END_TEST

START_TEST(transports_are_found_by_name)
{
    GError *error = NULL;

    ck_assert_ptr_eq(transport_find(NULL, NULL), &transport_tcp);
    ck_assert_ptr_eq(transport_find("tcp", NULL), &transport_tcp);
    for (size_t i = 0; i < N_TRANSPORTS; i++) {
        ck_assert_ptr_eq(transport_find(addresses[i].name, NULL), transport_at(i));
        ck_assert_ptr_eq(transport_of(addresses[i].any, NULL), transport_at(i));
    }
    ck_assert_ptr_null(transport_of("pigeon://loft", NULL));
    ck_assert_ptr_null(transport_of("127.0.0.1:80", &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK));
    g_clear_error(&error);
    ck_assert_ptr_null(transport_find("pigeon", &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND));
    ck_assert_msg(strstr(error->message, "\"pigeon\"") != NULL, "%s", error->message);
    ck_assert_msg(strstr(error->message, "\"tcp\"") != NULL, "%s", error->message);
    g_error_free(error);
    ck_assert_ptr_nonnull(transport_at(N_TRANSPORTS - 1));
    ck_assert_ptr_null(transport_at(N_TRANSPORTS)); /* else the suite misses one */
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("transport");
    TCase *const all = tcase_create("every transport");
    TCase *const names = tcase_create("names");
    TCase *const secret = tcase_create("with a secret");
    TCase *const without = tcase_create("without a secret");

    tcase_set_timeout(all, 60);
    tcase_add_loop_test(all, packets_arrive_whole_and_in_order, 0, N_TRANSPORTS);
    tcase_add_loop_test(all, many_packets_are_neither_lost_nor_refused, 0, N_TRANSPORTS);
    tcase_add_loop_test(all, packets_wait_for_a_node_that_is_not_there_yet, 0, N_TRANSPORTS);
    tcase_add_loop_test(all, closing_with_linger_still_sends, 0, N_TRANSPORTS);
    tcase_add_loop_test(all, closing_gives_back_what_was_not_sent, 0, N_TRANSPORTS);
    tcase_add_loop_test(all, received_packet_can_be_moved_and_knows_where_it_came_from, 0,
                        N_TRANSPORTS);
    tcase_add_loop_test(all, channel_tells_how_its_connection_is, 0, N_TRANSPORTS);
    tcase_add_loop_test(all, busy_address_is_refused_and_named, 0, N_TRANSPORTS);
    tcase_add_loop_test(all, address_that_makes_no_sense_is_refused, 0, N_TRANSPORTS);
    tcase_add_loop_test(all, own_address_is_reached_and_that_of_another_host_is_not, 0,
                        N_TRANSPORTS);
    tcase_add_test(all, name_of_host_is_bound_and_resolved);
    tcase_set_timeout(secret, 60);
    tcase_add_loop_test(secret, zeromq_tells_which_node_has_proved_the_secret, 0, 4);
    tcase_add_loop_test(secret, zeromq_counts_and_tells_of_those_that_say_nothing, 0, 2);
    tcase_add_loop_test(secret, zeromq_refuses_who_does_not_know_the_secret, 0,
                        2 * (int)G_N_ELEMENTS(refused));
    tcase_add_test(secret, zeromq_refuses_what_is_said_again);
    tcase_add_loop_test(secret, zeromq_without_a_secret_encrypts_nothing_and_says_so, 0, 2);
    tcase_set_timeout(without, 60);
    tcase_add_loop_test(without, zeromq_tells_of_handshakes_that_fail_without_a_secret, 0, 2);
    tcase_add_test(without, ipc_drops_connections_of_other_users);
    tcase_add_loop_test(without, zeromq_takes_a_bounded_number_of_messages_ahead, 0, 2);
    tcase_add_test(names, transports_are_found_by_name);
    suite_add_tcase(suite, all);
    suite_add_tcase(suite, names);
    suite_add_tcase(suite, secret);
    suite_add_tcase(suite, without);
    return run_suite(suite);
}
