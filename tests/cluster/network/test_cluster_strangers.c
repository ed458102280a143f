/* Strangers at the ports of a run: they connect and send garbage, half messages and huge sizes, in
 * the protocol of "tcp" and in ZeroMQ's, made by hand, while a task runs. The task's results stay
 * correct, and the log tells what arrived.
 *
 * docs/liveness.md: A stranger
 * docs/security.md: Who can do what */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/control/control.h"
#include "engine/engine_private.h"
#include "io/net/transport/tcp/tcp_receiver.h"
#include "tests/support/cluster/endless_run.h"
#include "tests/support/cluster/stranger.h"
#include "tests/support/runner.h"

/* ---- a stranger's hands ---- */

/* The other side may have closed already. */
static void push(int fd, const void *bytes, size_t size)
{
    const char *at = bytes;

    while (size > 0) {
        const ssize_t n = send(fd, at, size, MSG_NOSIGNAL);

        if (n <= 0)
            return;
        at += n;
        size -= (size_t)n;
    }
}

static bool pull(int fd, void *bytes, size_t size)
{
    char *at = bytes;

    while (size > 0) {
        const ssize_t n = recv(fd, at, size, 0);

        if (n <= 0)
            return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

/* Reads until the other side closes; false when it does not for long. */
static bool is_cut_off(int fd)
{
    struct pollfd polled = { .fd = fd, .events = POLLIN };
    char bytes[4096];

    while (poll(&polled, 1, 20000) == 1)
        if (recv(fd, bytes, sizeof bytes, 0) <= 0)
            return true;
    return false;
}

/* ZMTP 3.0 (https://rfc.zeromq.org/spec/23): signature, version, mechanism, as-server, filler. */
static void write_zmtp_greeting(uint8_t greeting[64])
{
    memset(greeting, 0, 64);
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    memcpy(greeting + 12, "NULL", 4);
}

enum { ZMTP_MORE = 1, ZMTP_LONG = 2, ZMTP_COMMAND = 4 };

/* A DEALER that has shaken hands. */
static int connect_dealer(uint16_t port)
{
    static const char ready[] = "\x05READY\x0bSocket-Type\0\0\0\x06"
                                "DEALER";
    const uint8_t head[] = { ZMTP_COMMAND, sizeof ready - 1 };
    const int fd = stranger_connect(port);
    uint8_t greeting[64], its_head[2], its_ready[255];

    write_zmtp_greeting(greeting);
    push(fd, greeting, sizeof greeting);
    ck_assert(pull(fd, greeting, sizeof greeting));
    push(fd, head, sizeof head);
    push(fd, ready, sizeof ready - 1);
    ck_assert(pull(fd, its_head, sizeof its_head));
    ck_assert_uint_eq(its_head[0], ZMTP_COMMAND);
    ck_assert(pull(fd, its_ready, its_head[1]));
    return fd;
}

static void push_zmtp_frame(int fd, uint8_t flags, uint64_t announced, const void *bytes,
                            size_t size)
{
    uint8_t head[9] = { flags | ZMTP_LONG };

    for (int i = 0; i < 8; i++)
        head[1 + i] = (uint8_t)(announced >> (56 - 8 * i));
    push(fd, head, sizeof head);
    push(fd, bytes, size);
}

/* What of a packet comes. */
static void push_part(const TcpHand *hand, uint32_t announced, const void *bytes, size_t size)
{
    uint8_t head[TCP_SIZE_BYTES];

    wire_store_u32(head, announced);
    push(hand->fd, head, sizeof head);
    push(hand->fd, bytes, size);
}

/* ---- what strangers do ---- */

static void come_and_go(uint16_t port)
{
    for (int i = 0; i < 100; i++)
        close(stranger_connect(port));
}

static void ask_for_a_page(uint16_t port)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const int fd = stranger_connect(port);

    push(fd, request, sizeof request - 1);
    shutdown(fd, SHUT_WR);
    ck_assert(is_cut_off(fd));
    close(fd);
}

static void push_noise(uint16_t port)
{
    GRand *random = g_rand_new_with_seed(port);
    const int fd = stranger_connect(port);
    guint32 noise[4096];

    for (size_t i = 0; i < G_N_ELEMENTS(noise); i++)
        noise[i] = g_rand_int(random);
    for (int i = 0; i < 20; i++)
        push(fd, noise, sizeof noise);
    shutdown(fd, SHUT_WR);
    ck_assert(is_cut_off(fd));
    close(fd);
    g_rand_free(random);
}

static void stop_in_the_handshake(uint16_t port)
{
    uint8_t greeting[64];

    write_zmtp_greeting(greeting);
    for (size_t n = 0; n < sizeof greeting; n += 7) {
        const int fd = stranger_connect(port);

        push(fd, greeting, n);
        close(fd);
    }
}

static void fall_silent_in_the_handshake(uint16_t port)
{
    const int fd = stranger_connect(port);

    push(fd, "RBTOHAN", 7);
    ck_assert(is_cut_off(fd));
    close(fd);
}

static void announce_a_huge_frame(uint16_t port)
{
    const int fd = connect_dealer(port);

    push_zmtp_frame(fd, 0, UINT64_C(1) << 62, "boo", 3);
    ck_assert(is_cut_off(fd));
    close(fd);
}

static void announce_a_huge_packet(uint16_t port)
{
    TcpHand hand = stranger_connect_as_node(port);

    push_part(&hand, UINT32_MAX, "boo", 3);
    ck_assert(is_cut_off(hand.fd));
    close(hand.fd);
}

static void send_half_a_frame(uint16_t port)
{
    const int fd = connect_dealer(port);

    push_zmtp_frame(fd, 0, 100000, "half of it", 10);
    close(fd);
}

static void send_half_a_packet(uint16_t port)
{
    static const uint32_t announced[] = { 100, 100000, 1 << 30 };

    for (size_t i = 0; i < G_N_ELEMENTS(announced); i++) {
        TcpHand hand = stranger_connect_as_node(port);
        push_part(&hand, announced[i], "half of it", 10);
        close(hand.fd);
    }
}

/* Many that send almost nothing: most are closed to make room for others. */
static void crowd_in(uint16_t port)
{
    int fds[400];

    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++) {
        fds[i] = stranger_connect(port);
        push(fds[i], "RBTOHAND", i % 9);
    }
    ck_assert(is_cut_off(fds[0])); /* so all of them were open at once */
    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++)
        close(fds[i]);
}

/* A byte now and then does not lengthen the time for a proof. */
static void trickle(uint16_t port)
{
    uint8_t hello[HANDSHAKE_HELLO_BYTES];
    Handshake handshake;
    const int64_t began_ms = network_now_ms();
    const int fd = stranger_connect(port);
    struct pollfd polled = { .fd = fd, .events = POLLIN };

    handshake_init(&handshake, HANDSHAKE_ROLE_CONNECTS, &(HandshakeConfig){ 0 }, NULL);
    (void)handshake_begin(&handshake, hello);
    size_t n_sent = 0;

    for (; n_sent < sizeof hello && poll(&polled, 1, 100) == 0; n_sent++)
        push(fd, hello + n_sent, 1);
    ck_assert(is_cut_off(fd));
    ck_assert_int_ge(network_now_ms() - began_ms, 4000);
    ck_assert_uint_lt(n_sent, sizeof hello); /* which takes 14 s */
    close(fd);
}

static void send_rubbish(uint16_t port)
{
    TcpHand hand = stranger_connect_as_node(port);

    stranger_push(&hand, "this is no packet of any kind", 29);
    close(hand.fd);
}

static void send_parts(uint16_t port)
{
    const int fd = connect_dealer(port);

    push_zmtp_frame(fd, ZMTP_MORE, 3, "one", 3);
    push_zmtp_frame(fd, ZMTP_MORE, 3, "two", 3);
    push_zmtp_frame(fd, 0, 5, "three", 5);
    close(fd);
}

static void send_nothing(uint16_t port)
{
    TcpHand hand = stranger_connect_as_node(port);

    stranger_push(&hand, "", 0);
    close(hand.fd);
}

/* A packet whose header promises more than comes. */
static void send_a_huge_packet(uint16_t port)
{
    const PacketHeader header = {
        .sender = 1, .sequence = 1, .payload_bytes = UINT32_MAX, .n_messages = 1000
    };
    uint8_t bytes[WIRE_PACKET_HEADER_BYTES];
    TcpHand hand = stranger_connect_as_node(port);

    wire_write_packet_header(bytes, &header);
    stranger_push(&hand, bytes, sizeof bytes);
    close(hand.fd);
}

static void send_an_old_packet(uint16_t port)
{
    uint8_t bytes[WIRE_PACKET_HEADER_BYTES] = { 0 };
    TcpHand hand = stranger_connect_as_node(port);

    wire_write_packet_header(bytes, &(PacketHeader){ .sender = 1 });
    wire_store_u16(bytes + 4, WIRE_VERSION + 1);
    stranger_push(&hand, bytes, sizeof bytes);
    close(hand.fd);
}

/* A correct packet of another run is dropped silently, like one that comes late. Then a packet that
 * the log reports, which shows that both were handled. */
static void send_packets_of_another_run(uint16_t port)
{
    uint8_t bytes[WIRE_PACKET_HEADER_BYTES + WIRE_MESSAGE_HEADER_BYTES];
    TcpHand hand = stranger_connect_as_node(port);

    for (uint64_t run = 1; run < 10; run++) {
        wire_write_packet_header(bytes, &(PacketHeader){ .run_id = run,
                                                         .sequence = 1,
                                                         .ack = 1000,
                                                         .payload_bytes = WIRE_MESSAGE_HEADER_BYTES,
                                                         .n_messages = 1 });
        wire_write_message_header(bytes + WIRE_PACKET_HEADER_BYTES,
                                  &(WireHeader){ .kind = MESSAGE_ADD });
        stranger_push(&hand, bytes, sizeof bytes);
    }
    stranger_push(&hand, "the end", 7);
    close(hand.fd);
}

/* A node has shaken hands as node 0, and says that it is node 1. */
static void send_a_packet_as_another_node(uint16_t port)
{
    uint8_t bytes[WIRE_PACKET_HEADER_BYTES];
    TcpHand hand = stranger_connect_as_node(port);

    wire_write_packet_header(bytes, &(PacketHeader){ .sender = 1 });
    stranger_push(&hand, bytes, sizeof bytes);
    close(hand.fd);
}

/* On a connection whose other end asks for checksums, as it would from another host. */
static void change_a_byte_of_a_packet(uint16_t port)
{
    const HandshakeConfig config = { .wanted_node = HANDSHAKE_ANY_NODE,
                                     .protection = PROTECTION_CHECKSUM };
    TcpHand hand;

    ck_assert(tcp_hand_shake(&hand, stranger_connect(port), &config));
    g_autoptr(GByteArray) stream =
        tcp_stream_packet(&hand.sends, (const uint8_t *)"this is no packet", 17);

    stream->data[10] ^= 1;
    push(hand.fd, stream->data, stream->len);
    ck_assert(is_cut_off(hand.fd));
    close(hand.fd);
}

static void send_a_greeting_of_noise(uint16_t port)
{
    uint8_t bytes[WIRE_PREFIX_BYTES + 200];
    TcpHand hand = stranger_connect_as_node(port);

    memset(bytes, 0xff, sizeof bytes);
    wire_write_greeting_prefix(bytes, WIRE_VERSION, 200);
    stranger_push(&hand, bytes, sizeof bytes);
    close(hand.fd);
}

static void send_a_greeting_about_something_else(uint16_t port)
{
    TcpHand hand = stranger_connect_as_node(port);

    stranger_push_greeting(&hand, g_variant_new_string("hello, hello"));
    close(hand.fd);
}

static void greet_with_the_wrong_kind(uint16_t port)
{
    TcpHand hand = stranger_connect_as_node(port);
    GVariant *body = control_greeting(&(Control){ .kind = CONTROL_BEAT });

    stranger_push_greeting(&hand, body);
    g_variant_unref(body);
    close(hand.fd);
}

/* Each names another address at which it receives. The answer comes back on the connection of the
 * greeting. */
static void greet_from_everywhere(uint16_t port)
{
    TcpHand hand = stranger_connect_as_node(port);

    for (uint32_t i = 0; i < 300; i++) {
        g_autofree char *endpoint = g_strdup_printf("tcp://127.0.0.1:%u", 1 + i);
        const Control hello = { .kind = CONTROL_HELLO,
                                .hello = {
                                    .node_id = 1234, .endpoints = endpoint, .digest = "none" } };
        GVariant *body = control_greeting(&hello);

        stranger_push_greeting(&hand, body);
        g_variant_unref(body);
    }
    close(hand.fd);
}

/* Sends what the scheduler would send, to any process that listens. */
static void refuse(uint16_t port)
{
    TcpHand hand = stranger_connect_as_node(port);
    GVariant *body = control_greeting(
        &(Control){ .kind = CONTROL_REFUSE, .refuse = { .code = 1, .text = "go away" } });

    stranger_push_greeting(&hand, body);
    g_variant_unref(body);
    close(hand.fd);
}

static const struct {
    void (*visit)(uint16_t port);
    const char *over; /* whose protocol it is about */
    const char *log;  /* NULL: nothing is told of it, or not in time */
    bool once;        /* it takes its time */
    bool scheduler;   /* only the scheduler's node has something to say */
} strangers[] = {
    { come_and_go, "tcp", NULL, false, false },
    { ask_for_a_page, "tcp",
      "dropped a connection from 127.0.0.1: it does not begin like a node's connection", false,
      false },
    { push_noise, "tcp", "it does not begin like a node's connection", false, false },
    { fall_silent_in_the_handshake, "tcp", NULL, true, false },
    { announce_a_huge_packet, "tcp",
      "dropped a connection from 127.0.0.1: it announces a packet that is larger than any", false,
      false },
    { send_half_a_packet, "tcp", NULL, false, false },
    { crowd_in, "tcp", "there are too many that do not prove that they belong to this run", false,
      false },
    { trickle, "tcp", "it has not proved in time that it belongs to this run", true, false },
    { send_a_packet_as_another_node, "tcp",
      "it says that it is of another node than the one that sent it", false, false },
    { change_a_byte_of_a_packet, "tcp", "the checksum of a packet is wrong", false, false },
    { refuse, "tcp", "a greeting that makes no sense came; dropped", false, false },
    { ask_for_a_page, "zmq",
      "dropped a connection over ZeroMQ: it has ended, or its time has, before its handshake was "
      "over",
      false, false },
    { push_noise, "zmq", NULL, false, false },
    { stop_in_the_handshake, "zmq", "over ZeroMQ: it has ended, or its time has", false, false },
    { announce_a_huge_frame, "zmq", NULL, false, false },
    { send_half_a_frame, "zmq", NULL, false, false },
#ifdef RUBATO_HAS_UCX
    { ask_for_a_page, "ucx", "it does not begin like a node's connection", false, false },
    { push_noise, "ucx", "it does not begin like a node's connection", false, false },
#endif
    { send_parts, "zmq", "from 127.0.0.1: it does not consist of one part", false, false },
    { send_rubbish, "tcp",
      "dropped a packet of 29 bytes from 127.0.0.1: it does not begin like a packet", false,
      false },
    { send_nothing, "tcp",
      "dropped a packet of 0 bytes from 127.0.0.1: it is too short for a packet", false, false },
    { send_a_huge_packet, "tcp", "from 127.0.0.1: its size is not what its header says", false,
      false },
    { send_an_old_packet, "tcp", "from 127.0.0.1: it has another wire version", false, false },
    { send_packets_of_another_run, "tcp", "dropped a packet of 7 bytes from 127.0.0.1: ", false,
      false },
    { send_a_greeting_of_noise, "tcp", "from 127.0.0.1: the body of its greeting makes no sense",
      false, false },
    { send_a_greeting_about_something_else, "tcp", "a greeting from 127.0.0.1 cannot be read",
      false, false },
    { greet_with_the_wrong_kind, "tcp", "a greeting that makes no sense came; dropped", false,
      false },
    { greet_from_everywhere, "tcp", "refused a greeting: node 1234 (", false, true },
    { stranger_be_refused, "tcp", "refused a greeting: node 1234 (", true, true },
};

static uint16_t port_of(ClusterRun *run, uint32_t node)
{
    g_autofree char *endpoint = cluster_text_after(run, node, "endpoint=");

    return (uint16_t)g_ascii_strtoull(strrchr(endpoint, ':') + 1, NULL, 10);
}

START_TEST(strangers_change_nothing_and_are_told_of)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){
        .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 2 } }, .over = strangers[_i].over });

    endless_run_open();
    cluster_start(run, endless_run_play, NULL);
    cluster_wait_for(run, 0, "busy");
    cluster_wait_for(run, 1, "busy");
    strangers[_i].visit(strcmp(strangers[_i].over, "tcp") == 0 ? run->port : port_of(run, 0));
    if (!strangers[_i].once)
        strangers[_i].visit(port_of(run, 1));
    if (strangers[_i].log != NULL) {
        cluster_wait_for(run, 0, strangers[_i].log);
        if (!strangers[_i].scheduler && !strangers[_i].once)
            cluster_wait_for(run, 1, strangers[_i].log);
    }
    endless_run_end();
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* All of them at once, before the nodes have met. */
START_TEST(strangers_do_not_keep_nodes_from_meeting)
{
    ClusterRun *run = cluster_run_new(
        &(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 2 } }, .stall_ms = 100 });

    endless_run_open();
    cluster_start_node(run, 0, endless_run_play, NULL);
    cluster_wait_for(run, 0, "missing: node 7");
    for (size_t i = 0; i < G_N_ELEMENTS(strangers); i++)
        if (!strangers[i].once && strcmp(strangers[i].over, "tcp") == 0)
            strangers[i].visit(run->port);
    cluster_wait_for(run, 0, "refused a greeting: node 1234 (");
    cluster_start_node(run, 1, endless_run_play, NULL);
    endless_run_end();
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* As many as possible, and they stay connected. */
START_TEST(slow_connections_do_not_keep_nodes_from_meeting)
{
    ClusterRun *run = cluster_run_new(
        &(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 2 } }, .stall_ms = 100 });
    int fds[400];

    endless_run_open();
    cluster_start_node(run, 0, endless_run_play, NULL);
    cluster_wait_for(run, 0, "missing: node 7");
    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++) {
        fds[i] = stranger_connect(run->port);
        push(fds[i], "R", i % 2);
    }
    cluster_start_node(run, 1, endless_run_play, NULL);
    endless_run_end();
    cluster_expect_success(run);
    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++)
        close(fds[i]);
    cluster_run_free(run);
}
END_TEST

/* As many greetings as it takes for what each of them leaves behind to show: a kilobyte would. */
enum { N_GREETINGS = 100000, N_SLOW_GREETINGS = 5000, MOST_GROWTH_KB = 32 << 10 };

static void greet_very_often(uint16_t port)
{
    const uint32_t n = cluster_slowness() == 1 ? N_GREETINGS : N_SLOW_GREETINGS;
    TcpHand hand = stranger_connect_as_node(port);

    for (uint32_t i = 0; i < n; i++)
        stranger_greet(&hand, i);
    close(hand.fd);
}

/* docs/security.md: Who can do what */
START_TEST(a_flood_of_greetings_takes_bounded_memory_and_nodes_meet)
{
    ClusterRun *run = cluster_run_new(
        &(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 2 } }, .stall_ms = 100 });

    endless_run_open();
    cluster_start_node(run, 0, endless_run_play, NULL);
    cluster_wait_for(run, 0, "missing: node 7");
    greet_from_everywhere(run->port); /* what it takes once is none of it */
    cluster_wait_for(run, 0, "refused a greeting: node 1234 (");
    const long before_kb = stranger_resident_kb(run->processes[0].pid);
    greet_very_often(run->port);
    /* When another one is answered, all before it have been taken in. */
    stranger_be_refused(run->port);
    const long after_kb = stranger_resident_kb(run->processes[0].pid);
    ck_assert_msg(cluster_slowness() > 1 || after_kb < before_kb + MOST_GROWTH_KB,
                  "%ld kB became %ld", before_kb, after_kb);
    cluster_start_node(run, 1, endless_run_play, NULL);
    endless_run_end();
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

static Suite *strangers_suite(void)
{
    Suite *suite = suite_create("strangers");
    TCase *during = cluster_add_case(suite, "during");
    TCase *before = cluster_add_case(suite, "before");

    tcase_add_loop_test(during, strangers_change_nothing_and_are_told_of, 0,
                        (int)G_N_ELEMENTS(strangers));
    tcase_add_test(before, strangers_do_not_keep_nodes_from_meeting);
    tcase_add_test(before, slow_connections_do_not_keep_nodes_from_meeting);
    tcase_add_test(before, a_flood_of_greetings_takes_bounded_memory_and_nodes_meet);
    return suite;
}

int main(void)
{
    return run_suite(strangers_suite());
}
