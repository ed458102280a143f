/* Values that are copied straight into a ring: their packets can be sent again from there, until
 * the ring goes round, ends, or nobody needs them any more. The test keeps packets as a link
 * does. */
#include <string.h>

#include "io/net/link/packet.h"
#include "tests/support/network/transport_end.h"
#include "tests/support/runner.h"

/* SIZE fits into a record. MANY are more than a ring holds. */
enum { SIZE = 100000, FEW = 5, MANY = 100 };

static const TransportConfig config = { .n_nodes = 2, .timeout_ms = 3000 };

typedef struct {
    TransportEnd a, b;
    Channel *channel;
    Packet *packets[MANY];
} Pair;

static void open_pair(Pair *pair)
{
    const TransportOps *const shm = transport_find("shm", NULL);

    pair->a = transport_end_open(shm, &config, "shm://*");
    pair->b = transport_end_open(shm, &config, "shm://*");
    pair->channel = transport_end_connect(&pair->a, pair->b.endpoint, /* target= */ NULL);
    /* until the first packet has come, there is no ring */
    transport_end_send(pair->channel, 1, 8);
    transport_end_expect(&pair->b, 1, 8);
}

static void close_pair(Pair *pair)
{
    transport_end_hang_up(pair->channel, 0);
    transport_end_close(&pair->a);
    transport_end_close(&pair->b);
}

static uint8_t byte_of(size_t number, size_t i)
{
    return (uint8_t)(number * 31 + i * 7 + (i >> 8));
}

static size_t values_at(const Packet *packet)
{
    return packet->size - SIZE;
}

/* Sends a packet whose values are overwritten afterwards, and keeps it. */
static void send_values(Pair *pair, size_t number)
{
    const WireHeader header = { .kind = MESSAGE_REPLY, .value_bytes = SIZE };
    g_autofree uint8_t *values = g_malloc(SIZE);
    Packet *packet;

    for (size_t i = 0; i < SIZE; i++)
        values[i] = byte_of(number, i);
    packet = packet_of_values(frame_new(&header), values, SIZE);
    memset(packet->bytes, (int)number, WIRE_PACKET_HEADER_BYTES);
    memset(packet->bytes + values_at(packet), 0xee, SIZE);
    pair->packets[number] = packet;
    pair->channel->ops->send(pair->channel, packet);
    memset(values, 0xdd, SIZE);
}

static void send_again(Pair *pair, size_t number)
{
    pair->channel->ops->send(pair->channel, pair->packets[number]);
}

static void expect_values(Pair *pair, size_t number)
{
    Received received;

    ck_assert(transport_end_receive(&pair->b, &received));
    ck_assert_uint_eq(received.size, pair->packets[number]->size);
    ck_assert_uint_eq(received.bytes[0], (uint8_t)number);
    for (size_t i = 0; i < SIZE; i++)
        if (received.bytes[values_at(pair->packets[number]) + i] != byte_of(number, i))
            ck_abort_msg("byte %zu of packet %zu is wrong", i, number);
    received.ops->release(&received);
}

static void drop(Pair *pair, size_t number)
{
    packet_unref(pair->packets[number]);
}

START_TEST(values_are_in_the_ring_alone)
{
    Pair pair;

    open_pair(&pair);
    send_values(&pair, 0);
    ck_assert(packet_is_in_ring(pair.packets[0]));
    ck_assert(!packet_is_shared(pair.packets[0])); /* it may be sent again */
    ck_assert_uint_eq(pair.packets[0]->bytes[values_at(pair.packets[0])], 0xee);
    expect_values(&pair, 0);
    drop(&pair, 0);
    close_pair(&pair);
}
END_TEST

/* As if the other link had had no memory for them. They are too few for the writer to go back to
 * the beginning of the ring, where it would overwrite the first. */
START_TEST(values_come_again_through_the_same_ring)
{
    enum { N = 2 };
    Pair pair;

    open_pair(&pair);
    for (size_t i = 0; i < N; i++)
        send_values(&pair, i);
    for (size_t i = 0; i < N; i++)
        expect_values(&pair, i);
    for (size_t i = 0; i < N; i++)
        send_again(&pair, i);
    for (size_t i = 0; i < N; i++) {
        expect_values(&pair, i);
        drop(&pair, i);
    }
    close_pair(&pair);
}
END_TEST

/* Packets that the link still has when the writer comes round are whole; so are those that it sends
 * again afterwards. */
START_TEST(values_outlive_what_is_written_over_them)
{
    Pair pair;

    open_pair(&pair);
    for (size_t i = 0; i < MANY; i++) {
        send_values(&pair, i);
        expect_values(&pair, i);
    }
    ck_assert(!packet_is_in_ring(pair.packets[0]));
    ck_assert(packet_is_in_ring(pair.packets[MANY - 1]));
    for (size_t i = 0; i < MANY; i++) {
        send_again(&pair, i);
        expect_values(&pair, i);
        drop(&pair, i);
    }
    close_pair(&pair);
}
END_TEST

/* Small packets go round the ring as well. */
START_TEST(values_outlive_small_packets_written_over_them)
{
    Pair pair;

    open_pair(&pair);
    for (size_t i = 0; i < FEW; i++) {
        send_values(&pair, i);
        expect_values(&pair, i);
    }
    for (size_t i = 0; packet_is_in_ring(pair.packets[FEW - 1]); i++) {
        transport_end_send(pair.channel, (uint8_t)i, 5000);
        transport_end_expect(&pair.b, (uint8_t)i, 5000);
        ck_assert_uint_lt(i, 100000);
    }
    for (size_t i = 0; i < FEW; i++) {
        send_again(&pair, i);
        expect_values(&pair, i);
        drop(&pair, i);
    }
    close_pair(&pair);
}
END_TEST

START_TEST(values_outlive_their_ring)
{
    GError *error = NULL;
    Pair pair;

    open_pair(&pair);
    for (size_t i = 0; i < FEW; i++)
        send_values(&pair, i);
    g_autofree char *endpoint = g_strdup(pair.b.endpoint);
    transport_end_close(&pair.b);
    while (pair.channel->ops->state(pair.channel) == NETWORK_PEER_CONNECTED)
        transport_end_serve_sender();
    for (size_t i = 0; i < FEW; i++)
        ck_assert(!packet_is_in_ring(pair.packets[i]));

    pair.b = (TransportEnd){ .ops = pair.a.ops, .transport = pair.a.ops->create(&config, &error) };
    ck_assert(pair.b.ops->bind(pair.b.transport, endpoint, &pair.b.endpoint, &error));
    while (pair.channel->ops->state(pair.channel) != NETWORK_PEER_CONNECTED) {
        Received received;

        ck_assert(!pair.b.ops->receive(pair.b.transport, &received));
        transport_end_serve_sender();
    }
    for (size_t i = 0; i < FEW; i++) {
        send_again(&pair, i);
        expect_values(&pair, i);
        drop(&pair, i);
    }
    close_pair(&pair);
}
END_TEST

/* A packet that a link has let go leaves the ring with the next one, or when the channel is asked
 * for its state; whoever else still has it sees that. */
START_TEST(packets_that_were_let_go_are_not_kept)
{
    Pair pair;

    open_pair(&pair);
    for (size_t i = 0; i < FEW; i++) {
        send_values(&pair, i);
        expect_values(&pair, i);
    }
    packet_ref(pair.packets[FEW - 1]); /* to look at */
    for (size_t i = 0; i < FEW; i++)
        drop(&pair, i);
    (void)pair.channel->ops->state(pair.channel);
    ck_assert(packet_is_in_ring(pair.packets[FEW - 1]));
    packet_unref(pair.packets[FEW - 1]); /* memory that is not given back shows in a sanitizer */
    (void)pair.channel->ops->state(pair.channel);
    close_pair(&pair);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("shm_values");
    TCase *const cases = tcase_create("values");

    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, values_are_in_the_ring_alone);
    tcase_add_test(cases, values_come_again_through_the_same_ring);
    tcase_add_test(cases, values_outlive_what_is_written_over_them);
    tcase_add_test(cases, values_outlive_small_packets_written_over_them);
    tcase_add_test(cases, values_outlive_their_ring);
    tcase_add_test(cases, packets_that_were_let_go_are_not_kept);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
