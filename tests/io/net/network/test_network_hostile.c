/* Strangers, and faulty peers: their packets are counted and dropped, and honest traffic
 * continues. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/net/transport/tcp/tcp_receiver.h"
#include "tests/support/network/station.h"
#include "tests/support/network/tcp_hand.h"
#include "tests/support/runner.h"

#define PATIENCE_MS STATION_PATIENCE_MS

/* Node 0 is honest, node 1 is under attack; the attacker has a channel to it. */
typedef struct {
    Station *honest, *victim;
    Transport *transport;
    Channel *channel;
} Scene;

/* The victim's log lines. */
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static GString *logged;

static GLogWriterOutput write_log(GLogLevelFlags level, const GLogField *fields, gsize n_fields,
                                  gpointer user)
{
    (void)level;
    (void)user;
    pthread_mutex_lock(&log_lock);
    for (gsize i = 0; i < n_fields; i++)
        if (strcmp(fields[i].key, "MESSAGE") == 0)
            g_string_append_printf(logged, "%s\n", (const char *)fields[i].value);
    pthread_mutex_unlock(&log_lock);
    return G_LOG_WRITER_HANDLED;
}

static bool was_logged(void *text)
{
    pthread_mutex_lock(&log_lock);
    const bool found = strstr(logged->str, text) != NULL;
    pthread_mutex_unlock(&log_lock);
    return found;
}

/* What the attacker's I/O thread would do: its channel shakes hands first. */
static void serve_attacker(const Scene *scene)
{
    Received received;

    while (scene->transport->ops->receive(scene->transport, &received))
        received.ops->release(&received);
    (void)scene->channel->ops->state(scene->channel); /* it may still have something to send */
}

static Scene open_scene_at(const char *any)
{
    const NetworkConfig config = { .bind_endpoints = &any, .n_bind_endpoints = 1 };
    GError *error = NULL;
    Scene scene;

    logged = g_string_new(NULL);
    g_log_set_writer_func(write_log, NULL, NULL);
    scene.honest = station_new(0, 2, &config);
    scene.victim = station_new(1, 2, &config);
    stations_join((Station *const[]){ scene.honest, scene.victim }, 2);
    scene.transport = transport_of(any, NULL)->create(
        &(TransportConfig){
            .n_nodes = 1, .timeout_ms = 3000, .self = 0, .incarnation = STATION_INCARNATION(0) },
        &error);
    scene.channel = scene.transport->ops->connect(
        scene.transport, network_endpoint(scene.victim->network, 0), /* target= */ NULL, &error);
    ck_assert_ptr_nonnull(scene.channel);
    while (scene.channel->ops->state(scene.channel) != NETWORK_PEER_CONNECTED) {
        ck_assert(station_wait_ticks(scene.victim, 1));
        serve_attacker(&scene);
    }
    return scene;
}

static Scene open_scene(void)
{
    return open_scene_at("tcp://127.0.0.1:0");
}

static NetworkStats stats_of(const Station *station)
{
    NetworkStats stats;

    network_stats(station->network, &stats);
    return stats;
}

/* Honest traffic gets through, both ways. */
static void assert_alive(const Scene *scene)
{
    for (uint64_t i = 0; i < 3; i++) {
        network_send(scene->honest->network, 1, station_frame(MESSAGE_ADD, 1000 + i, 100));
        Incoming *incoming = station_take(scene->victim, PATIENCE_MS);
        ck_assert(station_is(incoming, MESSAGE_ADD, 1000 + i, 100));
        incoming_free(incoming);
        network_send(scene->victim->network, 0, station_frame(MESSAGE_REPLY, 2000 + i, 100));
        incoming = station_take(scene->honest, PATIENCE_MS);
        ck_assert(station_is(incoming, MESSAGE_REPLY, 2000 + i, 100));
        incoming_free(incoming);
    }
}

static void close_scene(const Scene *scene)
{
    scene->channel->ops->close(scene->channel, 0);
    scene->transport->ops->destroy(scene->transport);
    station_free(scene->honest);
    station_free(scene->victim);
    g_string_free(logged, TRUE);
}

static void attack(const Scene *scene, const void *bytes, size_t size)
{
    Packet *const packet = packet_new(size);

    memcpy(packet->bytes, bytes, size);
    scene->channel->ops->send(scene->channel, packet);
    packet_unref(packet);
}

static void wait_for_bad(const Scene *scene, uint64_t n)
{
    while (stats_of(scene->victim).bad < n) {
        ck_assert(station_wait_ticks(scene->victim, 1));
        serve_attacker(scene);
    }
    ck_assert_uint_eq(stats_of(scene->victim).bad, n);
}

/* A packet is counted before it is logged. */
static void wait_for_log(const Scene *scene, const char *text)
{
    ck_assert_msg(station_wait_until(scene->victim, was_logged, (gpointer)text), "not logged: %s",
                  text);
}

/* A packet that looks as if node 0 had sent it, with these messages. */
static GByteArray *forge(PacketHeader header, const WireHeader *messages, uint32_t n_messages)
{
    GByteArray *const bytes = g_byte_array_new();

    g_byte_array_set_size(bytes, WIRE_PACKET_HEADER_BYTES);
    for (uint32_t i = 0; i < n_messages; i++) {
        const guint at = bytes->len;
        const size_t size = wire_message_bytes(&messages[i]);
        g_byte_array_set_size(bytes, at + (guint)size);
        memset(bytes->data + at, 0, size);
        if ((uint32_t)messages[i].kind < MESSAGE_N_WIRE_KINDS)
            wire_write_message_header(bytes->data + at, &messages[i]);
        else
            wire_store_u16(bytes->data + at, (uint16_t)messages[i].kind);
    }
    header.payload_bytes = bytes->len - (guint)WIRE_PACKET_HEADER_BYTES;
    header.n_messages = n_messages;
    wire_write_packet_header(bytes->data, &header);
    return bytes;
}

static PacketHeader as_node_0(void)
{
    return (PacketHeader){
        .sender = 0, .run_id = STATION_RUN_ID, .incarnation = STATION_INCARNATION(0), .sequence = 1
    };
}

START_TEST(rubbish_of_any_size_is_counted_and_told)
{
    static const size_t sizes[] = { 1, 4, 15, 16, 63, 64, 100, 1000, 100000 };
    const Scene scene = open_scene();

    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        g_autofree char *rubbish = g_strnfill(sizes[i], 'r');
        attack(&scene, rubbish, sizes[i]);
    }
    wait_for_bad(&scene, G_N_ELEMENTS(sizes));
    wait_for_log(&scene, "127.0.0.1");
    wait_for_log(&scene, "too short for a packet");
    assert_alive(&scene);
    close_scene(&scene);
}
END_TEST

START_TEST(flood_of_rubbish_does_not_flood_the_log)
{
    enum { N = 2000, BETWEEN_MS = 1000 };
    const Scene scene = open_scene();
    const int64_t begun_ms = network_now_ms();

    for (unsigned i = 0; i < N; i++)
        attack(&scene, "rubbish rubbish rubbish", 20);
    wait_for_bad(&scene, N);
    pthread_mutex_lock(&log_lock);
    unsigned n_lines = 0;
    for (const char *c = logged->str; *c != '\0'; c++)
        n_lines += *c == '\n';
    pthread_mutex_unlock(&log_lock);
    /* Read once the lines are counted: each of them was written before. */
    const int64_t took_ms = network_now_ms() - begun_ms;
    ck_assert_uint_ge(n_lines, 1);
    ck_assert_uint_le(n_lines, 1 + (unsigned)(took_ms / BETWEEN_MS));
    assert_alive(&scene);
    close_scene(&scene);
}
END_TEST

typedef enum {
    STRANGER_OTHER_RUN,
    STRANGER_OTHER_INCARNATION,
    STRANGER_UNKNOWN_NODE,
    STRANGER_ITSELF,
    STRANGER_LAST_NODE,
    N_STRANGERS
} Stranger;

START_TEST(packet_of_a_stranger_is_dropped)
{
    const WireHeader message = { .kind = MESSAGE_ADD };
    const Scene scene = open_scene();
    PacketHeader header = { .run_id = STATION_RUN_ID,
                            .incarnation = STATION_INCARNATION(0),
                            .sequence = 1 };

    switch ((Stranger)_i) {
    case STRANGER_OTHER_RUN:
        header.run_id++;
        break;
    case STRANGER_OTHER_INCARNATION:
        header.incarnation++;
        break;
    case STRANGER_UNKNOWN_NODE:
        header.sender = 2;
        break;
    case STRANGER_ITSELF:
        header.sender = 1;
        header.incarnation = STATION_INCARNATION(1);
        break;
    case STRANGER_LAST_NODE:
        header.sender = UINT32_MAX;
        break;
    case N_STRANGERS:
        break;
    }
    g_autoptr(GByteArray) forged = forge(header, &message, 1);
    attack(&scene, forged->data, forged->len);
    /* A packet that names another node than the one that has shaken hands is logged too. */
    while (stats_of(scene.victim).strangers_dropped + stats_of(scene.victim).bad == 0)
        ck_assert(station_wait_ticks(scene.victim, 1));
    ck_assert_ptr_null(station_take(scene.victim, 0));
    assert_alive(&scene);
    close_scene(&scene);
}
END_TEST

START_TEST(peer_that_lies_about_what_was_sent_is_not_believed)
{
    const Scene scene = open_scene();
    PacketHeader header = as_node_0();

    header.sequence = 0;
    header.ack = 1;
    g_autoptr(GByteArray) acknowledges = forge(header, NULL, 0);
    header.ack = 0;
    header.consumed = 1;
    g_autoptr(GByteArray) consumes = forge(header, NULL, 0);
    attack(&scene, acknowledges->data, acknowledges->len);
    attack(&scene, consumes->data, consumes->len);
    wait_for_bad(&scene, 2);
    wait_for_log(&scene, "node number 0");
    assert_alive(&scene);
    close_scene(&scene);
}
END_TEST

/* docs/wire.md: nothing is believed. The packet has the number of the honest node's next packet,
 * which would then be taken for a duplicate, and its first message would take room that nobody
 * gives back. */
START_TEST(a_packet_with_a_faulty_message_is_dropped_whole_and_may_come_again)
{
    const WireHeader messages[] = {
        { .kind = MESSAGE_ADD, .request = { .id = 7 } },
        { .kind = (MessageKind)99 },
        { .kind = MESSAGE_ADD, .request = { .id = 8 } },
    };
    const Scene scene = open_scene();
    g_autoptr(GByteArray) forged = forge(as_node_0(), messages, G_N_ELEMENTS(messages));

    attack(&scene, forged->data, forged->len);
    wait_for_bad(&scene, 1);
    ck_assert_ptr_null(station_take(scene.victim, 0));
    assert_alive(&scene);
    close_scene(&scene);
}
END_TEST

START_TEST(bytes_behind_the_last_message_are_a_fault)
{
    const WireHeader message = { .kind = MESSAGE_ADD, .value_bytes = 16, .request = { .id = 7 } };
    const Scene scene = open_scene();
    g_autoptr(GByteArray) forged = forge(as_node_0(), &message, 1);

    wire_store_u32(forged->data + WIRE_PACKET_HEADER_BYTES + 12, 8); /* fewer value bytes */
    attack(&scene, forged->data, forged->len);
    wait_for_bad(&scene, 1);
    assert_alive(&scene);
    close_scene(&scene);
}
END_TEST

START_TEST(large_faulty_packet_is_given_back_whole)
{
    const WireHeader messages[] = {
        { .kind = MESSAGE_ADD, .value_bytes = 100000, .request = { .id = 7 } },
        { .kind = (MessageKind)99 },
    };
    const Scene scene = open_scene();
    g_autoptr(GByteArray) forged = forge(as_node_0(), messages, G_N_ELEMENTS(messages));

    attack(&scene, forged->data, forged->len);
    wait_for_bad(&scene, 1);
    wait_for_log(&scene, "127.0.0.1");
    assert_alive(&scene);
    close_scene(&scene);
}
END_TEST

START_TEST(greeting_of_another_version_is_handed_over_with_its_version)
{
    const Scene scene = open_scene();
    g_autoptr(GVariant) boxed =
        g_variant_ref_sink(g_variant_new_variant(g_variant_new("(s)", "from the future")));
    const size_t size = g_variant_get_size(boxed);
    g_autofree uint8_t *bytes = g_malloc(WIRE_PREFIX_BYTES + size);

    wire_write_greeting_prefix(bytes, WIRE_VERSION + 1, (uint32_t)size);
    g_variant_store(boxed, bytes + WIRE_PREFIX_BYTES);
    attack(&scene, bytes, WIRE_PREFIX_BYTES + size);
    StationGreeting *const greeting = station_take_greeting(scene.victim, PATIENCE_MS);
    ck_assert_ptr_nonnull(greeting);
    ck_assert_uint_eq(greeting->version, WIRE_VERSION + 1);
    ck_assert_str_eq(greeting->text, "('from the future',)");
    station_greeting_free(greeting);
    close_scene(&scene);
}
END_TEST

START_TEST(greeting_without_sense_is_dropped)
{
    static const char *const bodies[] = { "", "x", "hello", "\0\0\0(((", "ab\0s" };
    const Scene scene = open_scene();

    for (size_t i = 0; i < G_N_ELEMENTS(bodies); i++) {
        const size_t size = i == 3 ? 6 : i == 4 ? 4 : strlen(bodies[i]);
        uint8_t bytes[WIRE_PREFIX_BYTES + 16];
        wire_write_greeting_prefix(bytes, WIRE_VERSION, (uint32_t)size);
        memcpy(bytes + WIRE_PREFIX_BYTES, bodies[i], size);
        attack(&scene, bytes, WIRE_PREFIX_BYTES + size);
    }
    wait_for_bad(&scene, G_N_ELEMENTS(bodies));
    ck_assert_ptr_null(station_take_greeting(scene.victim, 0));
    assert_alive(&scene);
    close_scene(&scene);
}
END_TEST

/* A plain socket to the victim. */
static int connect_plain(const Scene *scene)
{
    const char *const endpoint = network_endpoint(scene->victim->network, 0);
    const unsigned long port = strtoul(strrchr(endpoint, ':') + 1, NULL, 10);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);

    const struct sockaddr_in address = { .sin_family = AF_INET,
                                         .sin_port = htons((uint16_t)port),
                                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void write_all(int fd, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;

    while (size > 0) {
        const ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
        if (n <= 0)
            return; /* cut off: fine */
        at += n;
        size -= (size_t)n;
    }
}

START_TEST(stranger_that_does_not_speak_the_protocol_harms_nobody)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: rubato\r\n\r\n";
    const Scene scene = open_scene();
    int fds[4];

    fds[0] = connect_plain(&scene); /* says nothing */
    fds[1] = connect_plain(&scene);
    write_all(fds[1], request, sizeof request);
    fds[2] = connect_plain(&scene);
    g_autofree char *noise = g_strnfill(1 << 20, '\xff');
    write_all(fds[2], noise, 1 << 20);
    fds[3] = connect_plain(&scene);
    close(fds[3]);
    assert_alive(&scene);
    for (unsigned i = 0; i < 3; i++)
        close(fds[i]);
    assert_alive(&scene);
    close_scene(&scene);
}
END_TEST

static void read_all(int fd, uint8_t *bytes, size_t size)
{
    ck_assert_int_eq(recv(fd, bytes, size, MSG_WAITALL), (ssize_t)size);
}

/* What ZeroMQ's peers say to each other first: the greeting of ZMTP 3.0 with the NULL mechanism,
 * then the command READY of a DEALER, answered by that of the ROUTER. */
static void shake_hands_as_zeromq(int fd)
{
    const uint8_t greeting[64] = { 0xff, [9] = 0x7f, [10] = 3, [12] = 'N', 'U', 'L', 'L' };
    static const uint8_t ready[] = "\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06"
                                   "DEALER";
    uint8_t answer[255];

    write_all(fd, greeting, sizeof greeting);
    read_all(fd, answer, sizeof greeting);
    write_all(fd, ready, sizeof ready - 1);
    read_all(fd, answer, 2); /* flags and size of its READY */
    ck_assert_uint_eq(answer[0], 4);
    read_all(fd, answer, answer[1]);
}

START_TEST(message_of_several_parts_is_dropped)
{
    const Scene scene = open_scene_at("zmq://127.0.0.1:0");
    const int fd = connect_plain(&scene);

    shake_hands_as_zeromq(fd);
    write_all(fd,
              "\x01\x00\x01\x03"
              "abc\x00\x03"
              "def",
              12); /* "", "abc", "def" */
    wait_for_bad(&scene, 1);
    wait_for_log(&scene, "one part");
    write_all(fd,
              "\x00\x03"
              "abc",
              5);
    wait_for_bad(&scene, 2);
    close(fd);
    assert_alive(&scene);
    close_scene(&scene);
}
END_TEST

static void shake_hands_as_node(int fd)
{
    TcpHand hand;

    ck_assert(tcp_hand_shake(&hand, fd, NULL));
}

/* How one connects, and what half of a packet and too large a one look like. */
static const struct {
    const char *any;
    void (*shake_hands)(int fd);
    const char *half, *huge;
    size_t half_bytes, huge_bytes;
} languages[] = {
    { "tcp://127.0.0.1:0", shake_hands_as_node, "\x40\0\0\0half of it", "\xff\xff\xff\x7fx", 14,
      5 },
    { "zmq://127.0.0.1:0", shake_hands_as_zeromq, "\x00\x40half of it",
      "\x02\x7f\xff\xff\xff\xff\xff\xff\xffx", 12, 10 },
};

START_TEST(half_messages_and_huge_sizes_harm_nobody)
{
    const Scene scene = open_scene_at(languages[_i].any);
    const int half = connect_plain(&scene), huge = connect_plain(&scene);
    char byte;

    languages[_i].shake_hands(half);
    write_all(half, languages[_i].half, languages[_i].half_bytes);
    languages[_i].shake_hands(huge);
    write_all(huge, languages[_i].huge, languages[_i].huge_bytes);
    /* It is cut off: what is left to read ends. */
    while (recv(huge, &byte, 1, 0) > 0)
        ;
    close(huge);
    assert_alive(&scene);
    close(half);
    assert_alive(&scene);
    ck_assert_uint_eq(stats_of(scene.victim).bad, 0);
    close_scene(&scene);
}
END_TEST

START_TEST(packets_cut_at_random_never_end_a_network)
{
    enum { N = 3000 };
    const WireHeader messages[] = {
        { .kind = MESSAGE_ADD,
          .keys = WIRE_KEYS_LIST,
          .key_bytes = 40,
          .value_bytes = 20,
          .request = { .n_keys = 5 } },
        { .kind = MESSAGE_GET, .request = { .n_keys = 5 } },
    };
    const Scene scene = open_scene();
    GRand *const random = g_rand_new_with_seed(5);
    GByteArray *const forged = forge(as_node_0(), messages, G_N_ELEMENTS(messages));

    for (unsigned i = 0; i < N; i++) {
        g_autofree uint8_t *bytes = g_memdup2(forged->data, forged->len);
        /* The run id is always wrong, so that no forged packet counts as one of the link. */
        bytes[16] ^= 1;
        for (unsigned k = 0; k < 4; k++)
            bytes[g_rand_int_range(random, 17, (gint32)forged->len)] = (uint8_t)g_rand_int(random);
        attack(&scene, bytes, (size_t)g_rand_int_range(random, 0, (gint32)forged->len + 1));
    }
    while (stats_of(scene.victim).bad + stats_of(scene.victim).strangers_dropped < N) {
        ck_assert(station_wait_ticks(scene.victim, 1));
        (void)scene.channel->ops->state(scene.channel);
    }
    ck_assert_ptr_null(station_take(scene.victim, 0));
    assert_alive(&scene);
    g_byte_array_unref(forged);
    g_rand_free(random);
    close_scene(&scene);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("network_hostile");
    TCase *const packets = tcase_create("packets");
    TCase *const sockets = tcase_create("sockets");

    tcase_add_test(packets, rubbish_of_any_size_is_counted_and_told);
    tcase_add_test(packets, flood_of_rubbish_does_not_flood_the_log);
    tcase_add_loop_test(packets, packet_of_a_stranger_is_dropped, 0, N_STRANGERS);
    tcase_add_test(packets, peer_that_lies_about_what_was_sent_is_not_believed);
    tcase_add_test(packets, a_packet_with_a_faulty_message_is_dropped_whole_and_may_come_again);
    tcase_add_test(packets, bytes_behind_the_last_message_are_a_fault);
    tcase_add_test(packets, large_faulty_packet_is_given_back_whole);
    tcase_add_test(packets, greeting_of_another_version_is_handed_over_with_its_version);
    tcase_add_test(packets, greeting_without_sense_is_dropped);
    tcase_add_test(packets, packets_cut_at_random_never_end_a_network);
    tcase_add_test(sockets, stranger_that_does_not_speak_the_protocol_harms_nobody);
    tcase_add_test(sockets, message_of_several_parts_is_dropped);
    tcase_add_loop_test(sockets, half_messages_and_huge_sizes_harm_nobody, 0,
                        (int)G_N_ELEMENTS(languages));
    tcase_set_timeout(packets, 60);
    tcase_set_timeout(sockets, 60);
    suite_add_tcase(suite, packets);
    suite_add_tcase(suite, sockets);
    return run_suite(suite);
}
