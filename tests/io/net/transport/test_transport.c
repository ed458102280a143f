/* What every transport must do, tested for all of them; and how they are found by name. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <rubato/error.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/net/transport/tcp/tcp_stream.h"
#include "io/net/transport/transport_ops.h"
#ifdef RUBATO_HAS_UCX
#include "io/net/transport/ucx/transport_ucx.h"
#endif
#include "tests/support/network/transport_end.h"
#include "tests/support/runner.h"

#define MOST_TRANSPORTS 5

/* Of each transport: an address to bind, one where nobody is, and some that make no sense, the last
 * of them only when bound. */
static const struct {
    const char *name, *any, *another, *nonsense[12];
} addresses[MOST_TRANSPORTS] = {
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
    { "ucx",
      "ucx://127.0.0.1:0",
      "another port",
      { "", "127.0.0.1:80", "ucx://", "ucx://:80", "ucx://host", "ucx://host:", "ucx://h:-1",
        "ucx://h:65536", "ucx://h:8o", "tcp://h:80", "ucx://no such host:1" } },
};

static const TransportConfig config = { .n_nodes = 2, .timeout_ms = 3000 };

/* The last one is not built everywhere. */
static int count_transports(void)
{
    int n = 0;

    while (transport_at((size_t)n) != NULL)
        n++;
    return n;
}

/* Whether UCX is tested, which sanitizers do not see through, or all others. */
static bool is_for_ucx(void)
{
    return g_strcmp0(g_getenv("RUBATO_TEST_TRANSPORT"), "ucx") == 0;
}

static TransportEnd open_end(int i)
{
    return transport_end_open(transport_at((size_t)i), &config, addresses[i].any);
}

START_TEST(packets_arrive_whole_and_in_order)
{
    static const size_t sizes[] = { 1, 16, 33, 64, 2048, 2049, 8192, 70000, 5000000, 3 };
    TransportEnd a = open_end(_i), b = open_end(_i);
    Channel *const channel = transport_end_connect(&a, b.endpoint, /* target= */ NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++)
        transport_end_send(channel, (uint8_t)i, sizes[i]);
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++)
        transport_end_expect(&b, (uint8_t)i, sizes[i]);
    transport_end_hang_up(channel, 0);
    transport_end_close(&a);
    transport_end_close(&b);
}
END_TEST

START_TEST(many_packets_are_neither_lost_nor_refused)
{
    enum { N = 20000 };
    TransportEnd a = open_end(_i), b = open_end(_i);
    Channel *const channel = transport_end_connect(&a, b.endpoint, /* target= */ NULL);
    for (unsigned i = 0; i < N; i++)
        transport_end_send(channel, (uint8_t)i, 100);
    for (unsigned i = 0; i < N; i++)
        transport_end_expect(&b, (uint8_t)i, 100);
    transport_end_hang_up(channel, 0);
    transport_end_close(&a);
    transport_end_close(&b);
}
END_TEST

/* Some transports tell it without a packet; then of one in pieces, too. */
START_TEST(channel_knows_what_was_accepted_or_nothing)
{
    static const size_t sizes[] = { 100, 20000, 5000000 };
    TransportEnd a = open_end(_i), b = open_end(_i);
    Channel *const channel = transport_end_connect(&a, b.endpoint, /* target= */ NULL);

    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        Received received;

        transport_end_send(channel, (uint8_t)i, sizes[i]);
        ck_assert(transport_end_receive(&b, &received));
        const bool tells = received.ops->accept != NULL;
        if (tells)
            received.ops->accept(&received, 7 + i);
        if (channel->ops->accepted != NULL)
            ck_assert_uint_eq(channel->ops->accepted(channel), tells ? 7 + i : 0);
        ck_assert(!tells || channel->ops->accepted != NULL);
        received.ops->release(&received);
    }
    transport_end_close(&b);
    transport_end_hang_up(channel, 0);
    transport_end_close(&a);
}
END_TEST

START_TEST(packets_wait_for_a_node_that_is_not_there_yet)
{
    TransportEnd a = open_end(_i), b = open_end(_i);
    GError *error = NULL;

    g_autofree char *endpoint = g_strdup(b.endpoint);
    transport_end_close(&b);
    Channel *const channel = transport_end_connect(&a, endpoint, /* target= */ NULL);
    transport_end_send(channel, 7, 10);
    b.transport = b.ops->create(&config, &error);
    ck_assert(b.ops->bind(b.transport, endpoint, &b.endpoint, &error));
    transport_end_expect(&b, 7, 10);
    transport_end_hang_up(channel, 0);
    transport_end_close(&a);
    transport_end_close(&b);
}
END_TEST

/* `to` is the other end, as long as it is there. */
static void wait_for_state(const TransportEnd *from, Channel *channel, NetworkPeerState state,
                           const TransportEnd *to)
{
    const int64_t end_ms = network_now_ms() + TRANSPORT_PATIENCE_MS;
    const int fd = from->ops->poll_fd(from->transport);
    Received received;

    while (channel->ops->state(channel) != state) {
        struct pollfd polled = { .fd = fd, .events = POLLIN };
        ck_assert_int_lt(network_now_ms(), end_ms);
        poll(&polled, 1, 1); /* the state changes in the background: nothing tells when */
        transport_end_serve_sender();
        if (to != NULL)
            ck_assert(!to->ops->receive(to->transport, &received));
    }
}

/* What the kernel keeps of the bytes of this process's connection to that port. 0: no such. */
static int kept_bytes_to(const char *port)
{
    for (int fd = 0; fd < 1024; fd++) {
        struct sockaddr_in address = { 0 };
        socklen_t n = sizeof address, n_size = sizeof(int);
        int size;

        if (getpeername(fd, (struct sockaddr *)&address, &n) != 0 ||
            address.sin_family != AF_INET || ntohs(address.sin_port) != atoi(port))
            continue;
        ck_assert_int_eq(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &n_size), 0);
        return size;
    }
    return 0;
}

/* The kernel would let it grow to megabytes as bytes are sent. */
START_TEST(tcp_has_little_under_way_within_a_host)
{
    TransportEnd a = open_end(0), b = open_end(0);
    Channel *const channel = transport_end_connect(&a, b.endpoint, /* target= */ NULL);

    wait_for_state(&a, channel, NETWORK_PEER_CONNECTED, &b);
    const int kept = kept_bytes_to(strrchr(b.endpoint, ':') + 1);
    transport_end_send(channel, 7, 5000000);
    transport_end_expect(&b, 7, 5000000);
    ck_assert_int_gt(kept, TCP_NEAR_BYTES);
    ck_assert_int_le(kept, 2 * TCP_NEAR_BYTES);
    ck_assert_int_eq(kept_bytes_to(strrchr(b.endpoint, ':') + 1), kept);
    transport_end_hang_up(channel, 0);
    transport_end_close(&a);
    transport_end_close(&b);
}
END_TEST

static void *close_end(void *end)
{
    transport_end_close(end);
    return NULL;
}

/* Who closes may have to wait for the other end to read. */
START_TEST(closing_with_linger_still_sends)
{
    TransportEnd a = open_end(_i), b = open_end(_i);
    pthread_t closer;

    Channel *const channel = transport_end_connect(&a, b.endpoint, /* target= */ NULL);
    wait_for_state(&a, channel, NETWORK_PEER_CONNECTED, &b);
    for (unsigned i = 0; i < 100; i++)
        transport_end_send(channel, 9, 3000);
    transport_end_hang_up(channel, TRANSPORT_PATIENCE_MS);
    transport_end_leave_sender();
    ck_assert_int_eq(pthread_create(&closer, NULL, close_end, &a), 0);
    for (unsigned i = 0; i < 100; i++)
        transport_end_expect(&b, 9, 3000);
    pthread_join(closer, NULL);
    transport_end_close(&b);
}
END_TEST

START_TEST(closing_gives_back_what_was_not_sent)
{
    TransportEnd a = open_end(_i), b = open_end(_i);
    Packet *const packet = packet_new(100000);

    memset(packet->bytes, 0, packet->size);
    g_autofree char *endpoint = g_strdup(b.endpoint);
    transport_end_close(&b);
    Channel *const channel =
        transport_end_connect(&a, endpoint, /* target= */ NULL); /* nobody is there */
    channel->ops->send(channel, packet);
    ck_assert(packet_is_shared(packet));
    transport_end_hang_up(channel, 0);
    transport_end_close(&a);
    ck_assert(!packet_is_shared(packet));
    packet_unref(packet);
}
END_TEST

START_TEST(received_packet_can_be_moved_and_knows_where_it_came_from)
{
    static const size_t sizes[] = { 5, 500, 50000 };
    TransportEnd a = open_end(_i), b = open_end(_i);
    Channel *const channel = transport_end_connect(&a, b.endpoint, /* target= */ NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        Received received, moved;
        transport_end_send(channel, 3, sizes[i]);
        ck_assert(transport_end_receive(&b, &received));
        if (received.lent)
            moved = received;
        else
            received.ops->move(&moved, &received);
        memset(&received, 0xee, sizeof received);
        ck_assert_uint_eq(moved.size, sizes[i]);
        ck_assert(transport_end_is_all(&moved, 3));
        ck_assert_ptr_nonnull(moved.ops->address(&moved));
        ck_assert_uint_gt(strlen(moved.ops->address(&moved)), 0);
        moved.ops->release(&moved);
    }
    transport_end_hang_up(channel, 0);
    transport_end_close(&a);
    transport_end_close(&b);
}
END_TEST

START_TEST(channel_tells_how_its_connection_is)
{
    TransportEnd a = open_end(_i), b = open_end(_i);
    Channel *const channel = transport_end_connect(&a, b.endpoint, /* target= */ NULL);
    wait_for_state(&a, channel, NETWORK_PEER_CONNECTED, &b);
    transport_end_close(&b);
    wait_for_state(&a, channel, NETWORK_PEER_DISCONNECTED, NULL);
    transport_end_hang_up(channel, 0);
    transport_end_close(&a);
}
END_TEST

/* Nothing comes, but the transport does its work. */
static void serve(const TransportEnd *end)
{
    Received received;

    ck_assert(!end->ops->receive(end->transport, &received));
}

static unsigned n_warnings;

static void count_warning(const char *domain, GLogLevelFlags level, const char *text, void *data)
{
    (void)domain;
    (void)data;
    n_warnings += (level & G_LOG_LEVEL_WARNING) != 0;
    g_print("%s\n", text);
}

#ifdef RUBATO_HAS_UCX
static const UcxLibrary *real_ucx;
static unsigned n_ends; /* that UCX was to make */

static ucs_status_t count_ends(ucp_worker_h worker, const ucp_ep_params_t *params, ucp_ep_h *end)
{
    n_ends++;
    return real_ucx->ucp_ep_create(worker, params, end);
}

/* UCX's shared memory does not tell of a node's end. The node is asked again and again, and UCX has
 * no way at each answer. */
START_TEST(what_ucx_has_no_way_for_is_said_once)
{
    UcxLibrary ucx;

    ck_assert_int_eq(setenv("UCX_TLS", "sm", /* overwrite= */ 1), 0);
    g_log_set_default_handler(count_warning, NULL);
    TransportEnd to = transport_end_open(&transport_ucx, &config, "ucx://127.0.0.1:0");
    TransportEnd from = transport_end_open(&transport_ucx, &config, "ucx://127.0.0.1:0");
    Channel *const channel = transport_end_connect(&from, to.endpoint, /* target= */ NULL);
    UcxTransport *const self = (UcxTransport *)from.transport;

    real_ucx = self->ucx;
    ucx = *real_ucx;
    ucx.ucp_ep_create = count_ends;
    self->ucx = &ucx;
    while (n_ends < 2) {
        serve(&to);
        serve(&from);
        ck_assert_int_ne(channel->ops->state(channel), NETWORK_PEER_CONNECTED);
    }
    ck_assert_uint_eq(n_warnings, 1);
    transport_end_hang_up(channel, 0);
    transport_end_close(&from);
    transport_end_close(&to);
}
END_TEST

/* The I/O thread sleeps with the worker armed. */
START_TEST(looking_at_a_node_of_ucx_wakes_nobody)
{
    TransportEnd to = transport_end_open(&transport_ucx, &config, "ucx://127.0.0.1:0");
    TransportEnd from = transport_end_open(&transport_ucx, &config, "ucx://127.0.0.1:0");
    Channel *const channel = transport_end_connect(&from, to.endpoint, /* target= */ NULL);
    UcxTransport *const self = (UcxTransport *)from.transport;

    while (channel->ops->state(channel) != NETWORK_PEER_CONNECTED || !self->is_armed) {
        serve(&to);
        serve(&from);
    }
    ck_assert_int_eq(channel->ops->state(channel), NETWORK_PEER_CONNECTED);
    ck_assert(self->is_armed);
    ck_assert_uint_eq(channel->ops->n_resets(channel), 0);
    ck_assert(self->is_armed);
    transport_end_hang_up(channel, 0);
    transport_end_close(&from);
    transport_end_close(&to);
}
END_TEST

/* Connects to each TCP port of this process, and writes what makes no sense. Their number. */
static int push_noise_at_all_ports(void)
{
    static uint8_t noise[5000];
    int n = 0;

    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)(i * 7 + 1);
    for (int fd = 3; fd < 1024; fd++) {
        struct sockaddr_in at;
        socklen_t n_at = sizeof at, n_listens = sizeof(int);
        int listens = 0;

        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n_listens) != 0 || !listens ||
            getsockname(fd, (struct sockaddr *)&at, &n_at) != 0 || at.sin_family != AF_INET)
            continue;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const int to = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(to, (struct sockaddr *)&at, sizeof at) == 0)
            n += send(to, noise, sizeof noise, MSG_NOSIGNAL) > 0;
        close(to);
    }
    return n;
}

/* Its own, and those at which UCX listens. docs/security.md: Over UCX. */
START_TEST(noise_at_any_port_of_ucx_does_no_harm)
{
    TransportEnd a = transport_end_open(&transport_ucx, &config, "ucx://127.0.0.1:0");
    TransportEnd b = transport_end_open(&transport_ucx, &config, "ucx://127.0.0.1:0");
    Channel *const channel = transport_end_connect(&a, b.endpoint, /* target= */ NULL);

    wait_for_state(&a, channel, NETWORK_PEER_CONNECTED, &b);
    for (uint8_t i = 1; i <= 5; i++) {
        ck_assert_int_ge(push_noise_at_all_ports(), 3);
        transport_end_send(channel, i, 100000);
        transport_end_expect(&b, i, 100000);
    }
    transport_end_hang_up(channel, 0);
    transport_end_close(&a);
    transport_end_close(&b);
}
END_TEST
#endif

#ifdef RUBATO_HAS_UCX
/* b looks so rarely that a asks it again before it answers. */
START_TEST(node_of_ucx_that_answers_late_is_met_once)
{
    TransportEnd a = transport_end_open(&transport_ucx, &config, "ucx://127.0.0.1:0");
    TransportEnd b = transport_end_open(&transport_ucx, &config, "ucx://127.0.0.1:0");
    Channel *const channel = transport_end_connect(&a, b.endpoint, /* target= */ NULL);

    while (channel->ops->state(channel) != NETWORK_PEER_CONNECTED) {
        const int64_t next_ms = network_now_ms() + 600; /* it asks after 500 ms */

        serve(&b);
        while (network_now_ms() < next_ms) {
            serve(&a);
            (void)channel->ops->state(channel);
        }
    }
    for (uint8_t i = 1; i <= 5; i++) {
        transport_end_send(channel, i, 3000);
        transport_end_expect(&b, i, 3000);
    }
    ck_assert_uint_eq(channel->ops->n_resets(channel), 0);
    transport_end_hang_up(channel, 0);
    transport_end_close(&a);
    transport_end_close(&b);
}
END_TEST

/* As a stranger could send it who speaks UCX, and guesses the number of the way. */
START_TEST(forged_packet_over_ucx_does_no_harm_to_the_next)
{
    TransportEnd a = transport_end_open(&transport_ucx, &config, "ucx://127.0.0.1:0");
    TransportEnd b = transport_end_open(&transport_ucx, &config, "ucx://127.0.0.1:0");
    Channel *const channel = transport_end_connect(&a, b.endpoint, /* target= */ NULL);
    Seal *const seal = &((UcxChannel *)channel)->seal;

    wait_for_state(&a, channel, NETWORK_PEER_CONNECTED, &b);
    for (uint8_t i = 1; i <= 5; i++) {
        const Seal right = *seal;

        seal->key[0] ^= 1;
        seal->n_pieces += i % 2 == 0 ? 1000 : 0; /* or a number that is far ahead */
        transport_end_send(channel, 77, 3000);
        *seal = right;
        transport_end_send(channel, i, 3000);
        transport_end_expect(&b, i, 3000);
    }
    transport_end_hang_up(channel, 0);
    transport_end_close(&a);
    transport_end_close(&b);
}
END_TEST
#endif

/* A large run begins: all others connect before any has time to prove who it is. */
START_TEST(nodes_of_one_host_may_all_come_at_once)
{
    enum { N = 150 };
    const TransportConfig large = { .n_nodes = N + 1, .timeout_ms = 30000 };
    const TransportOps *const ops = transport_at((size_t)_i);
    TransportEnd to = transport_end_open(ops, &large, addresses[_i].any), from[N];
    const int64_t end_ms = network_now_ms() + TRANSPORT_PATIENCE_MS;
    Channel *channels[N];

    g_log_set_default_handler(count_warning, NULL);
    for (int i = 0; i < N; i++)
        from[i] = transport_end_open(ops, &large, addresses[_i].any);
    for (int i = 0; i < N; i++)
        channels[i] = transport_end_connect(&from[i], to.endpoint, /* target= */ NULL);
    for (int i = 0; i < N; i++)
        serve(&to); /* takes all of them */
    for (int n = 0; n < N && n_warnings == 0;) {
        ck_assert_int_lt(network_now_ms(), end_ms);
        serve(&to);
        n = 0;
        for (int i = 0; i < N; i++) {
            serve(&from[i]);
            n += channels[i]->ops->state(channels[i]) == NETWORK_PEER_CONNECTED;
        }
    }
    ck_assert_uint_eq(n_warnings, 0);
    for (int i = 0; i < N; i++) {
        transport_end_hang_up(channels[i], 0);
        transport_end_close(&from[i]);
    }
    transport_end_close(&to);
}
END_TEST

/* Not those that cannot know it. */
START_TEST(channel_tells_that_nobody_listens_at_its_address_any_more)
{
    TransportEnd a = open_end(_i), b = open_end(_i);
    Channel *const channel = transport_end_connect(&a, b.endpoint, /* target= */ NULL);
    const int64_t end_ms = network_now_ms() + TRANSPORT_PATIENCE_MS;

    wait_for_state(&a, channel, NETWORK_PEER_CONNECTED, &b);
    ck_assert(channel->ops->is_refused == NULL || !channel->ops->is_refused(channel));
    transport_end_close(&b);
    wait_for_state(&a, channel, NETWORK_PEER_DISCONNECTED, NULL);
    while (channel->ops->is_refused != NULL && !channel->ops->is_refused(channel)) {
        ck_assert_int_lt(network_now_ms(), end_ms);
        wait_for_state(&a, channel, NETWORK_PEER_DISCONNECTED, NULL); /* it tries again */
        serve(&a);
    }
    transport_end_hang_up(channel, 0);
    transport_end_close(&a);
}
END_TEST

/* Who listens there proves to be another process than the wanted one, which has ended. */
START_TEST(channel_tells_that_another_process_has_its_address)
{
    const TransportConfig wanted = {
        .n_nodes = 2, .timeout_ms = 3000, .self = 1, .incarnation = 5
    };
    const TransportConfig another = {
        .n_nodes = 2, .timeout_ms = 3000, .self = 1, .incarnation = 6
    };
    const ChannelTarget target = { .node = 1, .incarnation = 5 };
    const TransportOps *const ops = transport_at((size_t)_i);
    TransportEnd a = open_end(_i), b = transport_end_open(ops, &wanted, addresses[_i].any);
    Channel *const channel = transport_end_connect(&a, b.endpoint, &target);
    const int64_t end_ms = network_now_ms() + TRANSPORT_PATIENCE_MS;
    g_autofree char *endpoint = g_strdup(b.endpoint);

    wait_for_state(&a, channel, NETWORK_PEER_CONNECTED, &b);
    transport_end_close(&b);
    TransportEnd c = transport_end_open(ops, &another, endpoint); /* before a tries again */
    wait_for_state(&a, channel, NETWORK_PEER_DISCONNECTED, &c);
    while (channel->ops->is_refused != NULL && !channel->ops->is_refused(channel)) {
        ck_assert_int_lt(network_now_ms(), end_ms);
        wait_for_state(&a, channel, NETWORK_PEER_DISCONNECTED, &c); /* it tries again */
        serve(&a);
        serve(&c);
    }
    transport_end_hang_up(channel, 0);
    transport_end_close(&a);
    transport_end_close(&c);
}
END_TEST

START_TEST(busy_address_is_refused_and_named)
{
    TransportEnd a = open_end(_i), b = open_end(_i);
    GError *error = NULL;
    char *resolved = NULL;

    ck_assert(!b.ops->bind(b.transport, a.endpoint, &resolved, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK));
    ck_assert_msg(strstr(error->message, a.endpoint) != NULL, "%s", error->message);
    ck_assert_msg(strstr(error->message, addresses[_i].another) != NULL, "%s", error->message);
    ck_assert_ptr_null(resolved);
    g_error_free(error);
    transport_end_close(&a);
    transport_end_close(&b);
}
END_TEST

START_TEST(address_that_makes_no_sense_is_refused)
{
    const char *const *const endpoints = addresses[_i].nonsense;
    TransportEnd a = open_end(_i);

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
    transport_end_close(&a);
}
END_TEST

START_TEST(own_address_is_reached_and_that_of_another_host_is_not)
{
    TransportEnd a = open_end(_i);

    if (a.ops->reaches != NULL) {
        ck_assert(a.ops->reaches(a.transport, a.endpoint));
        for (size_t i = 0; addresses[_i].nonsense[i] != NULL; i++)
            ck_assert(!a.ops->reaches(a.transport, addresses[_i].nonsense[i]));
    }
    transport_end_close(&a);
}
END_TEST

/* The process that binds looks up names; others are told numbers. */
START_TEST(name_of_host_is_bound_and_resolved)
{
    TransportEnd a = open_end(0), b = open_end(0);
    GError *error = NULL;
    char *resolved = NULL;

    ck_assert_msg(b.ops->bind(b.transport, "tcp://localhost:0", &resolved, &error), "%s",
                  error != NULL ? error->message : "");
    ck_assert_msg(g_str_has_prefix(resolved, "tcp://127.0.0.1:") ||
                      g_str_has_prefix(resolved, "tcp://[::1]:"),
                  "%s", resolved);
    ck_assert(!g_str_has_suffix(resolved, ":0"));
    Channel *const channel = transport_end_connect(&a, resolved, /* target= */ NULL);
    transport_end_send(channel, 4, 44);
    transport_end_expect(&b, 4, 44);
    transport_end_hang_up(channel, 0);
    g_free(resolved);
    ck_assert_ptr_null(
        a.ops->connect(a.transport, "tcp://localhost:1", /* target= */ NULL, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK));
    g_error_free(error);
    transport_end_close(&a);
    transport_end_close(&b);
}
END_TEST

START_TEST(transports_are_found_by_name)
{
    GError *error = NULL;

    ck_assert_ptr_eq(transport_find(NULL, NULL), &transport_tcp);
    ck_assert_ptr_eq(transport_find("tcp", NULL), &transport_tcp);
    for (size_t i = 0; i < (size_t)count_transports(); i++) {
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
    ck_assert_int_ge(count_transports(), MOST_TRANSPORTS - 1);
    ck_assert_int_le(count_transports(), MOST_TRANSPORTS); /* else the suite misses one */
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("transport");
    TCase *const all = tcase_create("every transport");
    TCase *const names = tcase_create("names");
    const int first = is_for_ucx() ? MOST_TRANSPORTS - 1 : 0;
    const int end = is_for_ucx() ? MOST_TRANSPORTS : MOST_TRANSPORTS - 1;

    tcase_set_timeout(all, 60);
    tcase_add_loop_test(all, packets_arrive_whole_and_in_order, first, end);
    tcase_add_loop_test(all, many_packets_are_neither_lost_nor_refused, first, end);
    tcase_add_loop_test(all, channel_knows_what_was_accepted_or_nothing, first, end);
    tcase_add_loop_test(all, packets_wait_for_a_node_that_is_not_there_yet, first, end);
    tcase_add_loop_test(all, closing_with_linger_still_sends, first, end);
    tcase_add_loop_test(all, closing_gives_back_what_was_not_sent, first, end);
    tcase_add_loop_test(all, received_packet_can_be_moved_and_knows_where_it_came_from, first, end);
    tcase_add_loop_test(all, channel_tells_how_its_connection_is, first, end);
    tcase_add_loop_test(all, nodes_of_one_host_may_all_come_at_once, first, end);
    tcase_add_loop_test(all, channel_tells_that_nobody_listens_at_its_address_any_more, first, end);
    tcase_add_loop_test(all, channel_tells_that_another_process_has_its_address, first, end);
    tcase_add_loop_test(all, busy_address_is_refused_and_named, first, end);
    tcase_add_loop_test(all, address_that_makes_no_sense_is_refused, first, end);
    tcase_add_loop_test(all, own_address_is_reached_and_that_of_another_host_is_not, first, end);
    tcase_add_test(all, name_of_host_is_bound_and_resolved);
    if (!is_for_ucx())
        tcase_add_test(all, tcp_has_little_under_way_within_a_host);
#ifdef RUBATO_HAS_UCX
    if (is_for_ucx()) {
        tcase_add_test(all, what_ucx_has_no_way_for_is_said_once);
        tcase_add_test(all, looking_at_a_node_of_ucx_wakes_nobody);
        tcase_add_test(all, noise_at_any_port_of_ucx_does_no_harm);
        tcase_add_test(all, node_of_ucx_that_answers_late_is_met_once);
        tcase_add_test(all, forged_packet_over_ucx_does_no_harm_to_the_next);
    }
#endif
    tcase_add_test(names, transports_are_found_by_name);
    suite_add_tcase(suite, all);
    suite_add_tcase(suite, names);
    return run_suite(suite);
}
