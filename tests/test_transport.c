/* What every transport must do, held to all of them; and how they are found by name. */
#include <poll.h>
#include <rubato/error.h>

#include "io/net/transport_ops.h"
#include "tests/support/runner.h"

#define N_TRANSPORTS 1
#define PATIENCE_MS 10000

typedef struct {
    const TransportOps *ops;
    Transport *transport;
    char *endpoint;
} End;

static void open_end(End *end, int i)
{
    GError *error = NULL;

    end->ops = transport_at((size_t)i);
    ck_assert_ptr_nonnull(end->ops);
    end->transport = end->ops->create(2, &error);
    ck_assert_ptr_nonnull(end->transport);
    ck_assert_msg(end->ops->bind(end->transport, "tcp://127.0.0.1:0", &end->endpoint, &error), "%s",
                  error != NULL ? error->message : "");
}

static void close_end(End *end)
{
    end->ops->destroy(end->transport);
    g_free(end->endpoint);
}

static Channel *open_channel(const End *from, const char *endpoint)
{
    GError *error = NULL;
    Channel *const channel = from->ops->connect(from->transport, endpoint, &error);

    ck_assert_msg(channel != NULL, "%s", error != NULL ? error->message : "");
    return channel;
}

/* Receives one packet, waiting for it. */
static bool receive(const End *end, Received *received)
{
    const int64_t end_ms = network_now_ms() + PATIENCE_MS;

    while (!end->ops->receive(end->transport, received)) {
        struct pollfd polled = { .fd = end->ops->poll_fd(end->transport), .events = POLLIN };
        const int64_t left_ms = end_ms - network_now_ms();
        if (left_ms <= 0)
            return false;
        poll(&polled, 1, (int)left_ms);
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
    channel->ops->close(channel, 0);
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
    channel->ops->close(channel, 0);
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
    b.transport = b.ops->create(2, &error);
    ck_assert(b.ops->bind(b.transport, endpoint, &b.endpoint, &error));
    assert_received(&b, 7, 10);
    channel->ops->close(channel, 0);
    close_end(&a);
    close_end(&b);
}
END_TEST

START_TEST(closing_with_linger_still_sends)
{
    End a, b;

    open_end(&a, _i);
    open_end(&b, _i);
    Channel *const channel = open_channel(&a, b.endpoint);
    for (unsigned i = 0; i < 100; i++)
        send_bytes(channel, 9, 3000);
    channel->ops->close(channel, PATIENCE_MS);
    close_end(&a);
    for (unsigned i = 0; i < 100; i++)
        assert_received(&b, 9, 3000);
    close_end(&b);
}
END_TEST

START_TEST(closing_gives_back_what_was_not_sent)
{
    End a;
    Packet *const packet = packet_new(100000);

    open_end(&a, _i);
    memset(packet->bytes, 0, packet->size);
    Channel *const channel = open_channel(&a, "tcp://127.0.0.1:1"); /* nobody is there */
    channel->ops->send(channel, packet);
    ck_assert(packet_is_shared(packet));
    channel->ops->close(channel, 0);
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
        received.ops->move(&moved, &received);
        memset(&received, 0xee, sizeof received);
        ck_assert_uint_eq(moved.size, sizes[i]);
        ck_assert(is_all(&moved, 3));
        ck_assert_ptr_nonnull(moved.ops->address(&moved));
        ck_assert_uint_gt(strlen(moved.ops->address(&moved)), 0);
        moved.ops->release(&moved);
    }
    channel->ops->close(channel, 0);
    close_end(&a);
    close_end(&b);
}
END_TEST

static void wait_for_state(const End *from, Channel *channel, NetworkPeerState state)
{
    const int64_t end_ms = network_now_ms() + PATIENCE_MS;
    const int fd = from->ops->poll_fd(from->transport);

    while (channel->ops->state(channel) != state) {
        struct pollfd polled = { .fd = fd, .events = POLLIN };
        ck_assert_int_lt(network_now_ms(), end_ms);
        poll(&polled, 1, 1); /* the state changes in the background: nothing tells when */
    }
}

START_TEST(channel_tells_how_its_connection_is)
{
    End a, b;

    open_end(&a, _i);
    open_end(&b, _i);
    Channel *const channel = open_channel(&a, b.endpoint);
    wait_for_state(&a, channel, NETWORK_CONNECTED);
    close_end(&b);
    wait_for_state(&a, channel, NETWORK_DISCONNECTED);
    channel->ops->close(channel, 0);
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
    ck_assert_msg(strstr(error->message, "another port") != NULL, "%s", error->message);
    ck_assert_ptr_null(resolved);
    g_error_free(error);
    close_end(&a);
    close_end(&b);
}
END_TEST

START_TEST(address_that_makes_no_sense_is_refused)
{
    static const char *const endpoints[] = { "",           "127.0.0.1:80",        "tcp://",
                                             "tcp://:80",  "tcp://host",          "tcp://host:",
                                             "tcp://h:-1", "tcp://h:65536",       "tcp://h:8o",
                                             "ipc://h:80", "tcp://no such host:1" };
    End a;

    open_end(&a, _i);
    for (size_t i = 0; i < G_N_ELEMENTS(endpoints); i++) {
        GError *error = NULL;
        char *resolved = NULL;
        ck_assert(!a.ops->bind(a.transport, endpoints[i], &resolved, &error));
        ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK));
        ck_assert_ptr_null(resolved);
        g_clear_error(&error);
        if (i + 1 == G_N_ELEMENTS(endpoints))
            break; /* a name is resolved later, and again and again */
        ck_assert_ptr_null(a.ops->connect(a.transport, endpoints[i], &error));
        ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK));
        g_clear_error(&error);
    }
    close_end(&a);
}
END_TEST

START_TEST(names_of_hosts_are_bound_and_kept)
{
    End a, b;
    GError *error = NULL;
    char *resolved = NULL;

    open_end(&a, _i);
    open_end(&b, _i);
    ck_assert_msg(b.ops->bind(b.transport, "tcp://localhost:0", &resolved, &error), "%s",
                  error != NULL ? error->message : "");
    ck_assert_msg(g_str_has_prefix(resolved, "tcp://localhost:"), "%s", resolved);
    ck_assert_str_ne(resolved, "tcp://localhost:0");
    Channel *const channel = open_channel(&a, resolved);
    send_bytes(channel, 4, 44);
    assert_received(&b, 4, 44);
    channel->ops->close(channel, 0);
    g_free(resolved);
    close_end(&a);
    close_end(&b);
}
END_TEST

START_TEST(transports_are_found_by_name)
{
    GError *error = NULL;

    ck_assert_ptr_eq(transport_find(NULL, NULL), &transport_zmq);
    ck_assert_ptr_eq(transport_find("tcp", NULL), &transport_zmq);
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
    tcase_add_loop_test(all, names_of_hosts_are_bound_and_kept, 0, N_TRANSPORTS);
    tcase_add_test(names, transports_are_found_by_name);
    suite_add_tcase(suite, all);
    suite_add_tcase(suite, names);
    return run_suite(suite);
}
