/* A peer whose next packet never comes in readable form, whatever else it sends: it is given up in
 * time, once, with the reason. A stranger that sends the same has no effect.
 *
 * docs/liveness.md: A node that sends nonsense */
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/net/link/link_fault.h"
#include "tests/support/network/station.h"
#include "tests/support/network/tcp_hand.h"
#include "tests/support/runner.h"

#define TIMEOUT_MS 200
#define RESEND_MS 10

#define NO_KIND ((MessageKind)99)

static const RunSecret SECRET = { { 1, 2, 3 } };

/* Node 1 is a network; node 0 is this test, with a connection made by hand. */
typedef struct {
    Station *victim;
    TcpHand hand;
} Scene;

static Scene open_scene(const RunSecret *secret, uint64_t incarnation)
{
    const NetworkConfig config = { .timeout_ms = TIMEOUT_MS,
                                   .resend_ms = RESEND_MS,
                                   .secret = secret };
    const HandshakeConfig own = {
        .secret = secret, .node = 0, .incarnation = incarnation, .wanted_node = HANDSHAKE_ANY_NODE
    };
    GError *error = NULL;
    Scene scene = { .victim = station_new(1, 2, &config) };
    /* Nobody listens there. */
    const NetworkPeer peers[] = { { .endpoint = "tcp://127.0.0.1:1",
                                    .incarnation = STATION_INCARNATION(0) },
                                  station_peer(scene.victim, 1) };
    const char *const endpoint = network_endpoint(scene.victim->network, 0);
    const struct sockaddr_in address = { .sin_family = AF_INET,
                                         .sin_port = htons((uint16_t)strtoul(
                                             strrchr(endpoint, ':') + 1, NULL, 10)),
                                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const int fd = socket(AF_INET, SOCK_STREAM, 0);

    ck_assert(network_join(scene.victim->network, STATION_RUN_ID, peers, &error));
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    ck_assert(tcp_hand_shake(&scene.hand, fd, &own));
    return scene;
}

static void close_scene(Scene *scene)
{
    close(scene->hand.fd);
    station_free(scene->victim);
}

/* Sends a packet of node 0 with one message. */
static void push(Scene *scene, PacketHeader header, MessageKind kind)
{
    uint8_t bytes[WIRE_PACKET_HEADER_BYTES + WIRE_MESSAGE_HEADER_BYTES] = { 0 };
    const size_t size = header.sequence == 0 ? WIRE_PACKET_HEADER_BYTES : sizeof bytes;

    header.n_messages = header.sequence == 0 ? 0 : 1;
    header.payload_bytes = (uint32_t)(size - WIRE_PACKET_HEADER_BYTES);
    wire_write_packet_header(bytes, &header);
    if (kind != NO_KIND)
        wire_write_message_header(bytes + WIRE_PACKET_HEADER_BYTES, &(WireHeader){ .kind = kind });
    else
        wire_store_u16(bytes + WIRE_PACKET_HEADER_BYTES, (uint16_t)NO_KIND);
    ck_assert(tcp_hand_push(&scene->hand, bytes, size));
}

static PacketHeader as_node_0(uint64_t sequence)
{
    return (PacketHeader){ .sender = 0,
                           .run_id = STATION_RUN_ID,
                           .incarnation = STATION_INCARNATION(0),
                           .sequence = sequence };
}

typedef enum {
    MISDEED_UNREADABLE,   /* the next packet has a message of no kind */
    MISDEED_MISSING,      /* the next packet is never sent */
    MISDEED_FALSE_NEWS,   /* each packet acknowledges what was never sent */
    MISDEED_NOT_A_PACKET, /* no header either: only who has proved its secret is known by that */
    N_MISDEEDS,
} Misdeed;

static void misbehave(Scene *scene, Misdeed misdeed, uint64_t i)
{
    PacketHeader header = as_node_0(1);

    switch (misdeed) {
    case MISDEED_UNREADABLE:
        push(scene, header, NO_KIND);
        break;
    case MISDEED_MISSING:
        push(scene, as_node_0(2 + i), MESSAGE_REPLY);
        break;
    case MISDEED_FALSE_NEWS:
        header.ack = 1;
        push(scene, header, MESSAGE_REPLY);
        break;
    case MISDEED_NOT_A_PACKET:
        ck_assert(tcp_hand_push(&scene->hand, "rubbish", 7));
        break;
    case N_MISDEEDS:
        break;
    }
    /* A sign of life. */
    push(scene, as_node_0(0), MESSAGE_REPLY);
}

static char *said_of_broken(Station *station)
{
    pthread_mutex_lock(&station->lock);
    char *const said = g_strdup(station->broken->str);
    pthread_mutex_unlock(&station->lock);
    return said;
}

/* What was not taken. */
static uint64_t count_dropped(const Station *station)
{
    NetworkStats stats;

    network_stats(station->network, &stats);
    return stats.bad + stats.strangers_dropped;
}

static const char *const REASONS[] = {
    [MISDEED_UNREADABLE] = "its kind of message is unknown",
    [MISDEED_MISSING] = "later ones come instead",
    [MISDEED_FALSE_NEWS] = "it acknowledges what was never sent",
    [MISDEED_NOT_A_PACKET] = "it is too short for a packet",
};

/* _i: the misdeed, with and without a secret. */
START_TEST(peer_whose_next_packet_never_comes_is_given_up_in_time)
{
    const Misdeed misdeed = (Misdeed)(_i % N_MISDEEDS);
    const RunSecret *const secret = _i < N_MISDEEDS ? &SECRET : NULL;
    Scene scene = open_scene(secret, STATION_INCARNATION(0));
    const int64_t begun_ms = network_now_ms();
    g_autofree char *said = g_strdup("");

    for (uint64_t i = 0; said[0] == '\0'; i++) {
        require_msg(network_now_ms() - begun_ms < STATION_PATIENCE_MS, "not given up");
        misbehave(&scene, misdeed, i);
        ck_assert(station_wait_ticks(scene.victim, 1));
        g_free(said);
        said = said_of_broken(scene.victim);
    }
    ck_assert_int_ge(network_now_ms() - begun_ms, TIMEOUT_MS);
    ck_assert_msg(g_str_has_prefix(said, "0: its next packet could not be taken for "), "%s", said);
    ck_assert_msg(strstr(said, REASONS[misdeed]) != NULL, "%s", said);

    /* It is told once, and nothing more is taken from it. */
    const uint64_t n_dropped = count_dropped(scene.victim);
    for (uint64_t i = 0; i < 50; i++)
        misbehave(&scene, misdeed, i);
    push(&scene, as_node_0(1), MESSAGE_REPLY);
    while (count_dropped(scene.victim) < n_dropped + 101)
        ck_assert(station_wait_ticks(scene.victim, 1));
    ck_assert_ptr_null(station_take(scene.victim, 0));
    g_autofree char *again = said_of_broken(scene.victim);
    ck_assert_str_eq(again, said);
    close_scene(&scene);
}
END_TEST

typedef enum {
    STRANGER_OTHER_RUN,         /* its connection is a node's, its packets are of another run */
    STRANGER_OTHER_INCARNATION, /* an earlier process of the node */
    STRANGER_WITHOUT_SECRET,    /* its rubbish could be anybody's */
    STRANGER_OLD_CONNECTION,    /* of an earlier process of the node, which knows the secret */
    N_STRANGERS,
} Stranger;

START_TEST(stranger_brings_nobody_down)
{
    const Stranger stranger = (Stranger)_i;
    Scene scene = open_scene(stranger == STRANGER_OLD_CONNECTION ? &SECRET : NULL,
                             STATION_INCARNATION(0) + (stranger == STRANGER_OLD_CONNECTION));
    const int64_t begun_ms = network_now_ms();
    PacketHeader header = as_node_0(1);

    header.run_id += stranger == STRANGER_OTHER_RUN;
    header.incarnation += stranger == STRANGER_OTHER_INCARNATION;
    for (unsigned i = 0; i < 2 * LINK_FAULT_TRIES || network_now_ms() - begun_ms < 3 * TIMEOUT_MS;
         i++) {
        if (stranger == STRANGER_WITHOUT_SECRET || stranger == STRANGER_OLD_CONNECTION)
            ck_assert(tcp_hand_push(&scene.hand, "rubbish", 7));
        else
            push(&scene, header, NO_KIND);
        ck_assert(station_wait_ticks(scene.victim, 1));
    }
    g_autofree char *said = said_of_broken(scene.victim);
    ck_assert_str_eq(said, "");
    close_scene(&scene);
}
END_TEST

/* Damaged or lost on its way, each packet comes in the end. */
START_TEST(peer_whose_packets_come_late_is_kept)
{
    Scene scene = open_scene(NULL, STATION_INCARNATION(0));
    const int64_t begun_ms = network_now_ms();

    for (uint64_t n = 1; network_now_ms() - begun_ms < 3 * TIMEOUT_MS; n++) {
        for (unsigned i = 0; i < LINK_FAULT_TRIES - 1; i++) {
            push(&scene, as_node_0(n + i % 2), i % 2 == 0 ? NO_KIND : MESSAGE_REPLY);
            ck_assert(station_wait_ticks(scene.victim, 1));
        }
        push(&scene, as_node_0(n), MESSAGE_REPLY);
        Incoming *const incoming = station_take(scene.victim, STATION_PATIENCE_MS);
        ck_assert_ptr_nonnull(incoming);
        incoming_free(incoming);
    }
    g_autofree char *said = said_of_broken(scene.victim);
    ck_assert_str_eq(said, "");
    close_scene(&scene);
}
END_TEST

/* Nobody listens where node 0 would, and yet signs of life come from it. Two nodes that do not
 * reach one another, while others reach both, are like this. */
START_TEST(peer_that_acknowledges_nothing_is_given_up)
{
    Scene scene = open_scene(NULL, STATION_INCARNATION(0));
    const int64_t begun_ms = network_now_ms();
    g_autofree char *said = g_strdup("");

    /* The time counts from the last tick that has seen nothing to be acknowledged. */
    ck_assert(station_wait_ticks(scene.victim, 2));
    network_send(scene.victim->network, 0, station_frame(MESSAGE_ADD, 1, 100));
    for (uint64_t n = 1; said[0] == '\0'; n++) {
        require_msg(network_now_ms() - begun_ms < STATION_PATIENCE_MS, "not given up");
        push(&scene, as_node_0(n), MESSAGE_REPLY);
        ck_assert(station_wait_ticks(scene.victim, 1));
        g_free(said);
        said = said_of_broken(scene.victim);
    }
    ck_assert_int_ge(network_now_ms() - begun_ms, 2 * TIMEOUT_MS);
    ck_assert_msg(
        g_str_has_prefix(said, "0: it has acknowledged nothing of what was sent to it for "), "%s",
        said);
    close_scene(&scene);
}
END_TEST

/* For as long, where there is nothing to acknowledge. */
START_TEST(peer_that_was_sent_nothing_is_kept)
{
    Scene scene = open_scene(NULL, STATION_INCARNATION(0));
    const int64_t begun_ms = network_now_ms();

    for (uint64_t n = 1; network_now_ms() - begun_ms < 4 * TIMEOUT_MS; n++) {
        push(&scene, as_node_0(n), MESSAGE_REPLY);
        ck_assert(station_wait_ticks(scene.victim, 1));
    }
    g_autofree char *said = said_of_broken(scene.victim);
    ck_assert_str_eq(said, "");
    close_scene(&scene);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("network_broken");
    TCase *const broken = tcase_create("broken");

    /* Without a secret the last misdeed is nobody's. */
    tcase_add_loop_test(broken, peer_whose_next_packet_never_comes_is_given_up_in_time, 0,
                        2 * N_MISDEEDS - 1);
    tcase_add_loop_test(broken, stranger_brings_nobody_down, 0, N_STRANGERS);
    tcase_add_test(broken, peer_whose_packets_come_late_is_kept);
    tcase_add_test(broken, peer_that_acknowledges_nothing_is_given_up);
    tcase_add_test(broken, peer_that_was_sent_nothing_is_kept);
    tcase_set_timeout(broken, 60);
    suite_add_tcase(suite, broken);
    return run_suite(suite);
}
