/* Networks over real sockets that lose, double and reorder packets: links keep their promises. */
#include "io/net/link/wire.h"
#include "tests/support/network/lossy.h"
#include "tests/support/network/station.h"
#include "tests/support/runner.h"

#define PATIENCE_MS STATION_PATIENCE_MS

static const RubatoWireFaults faults[] = {
    { .loss = 0.3 },       { .doubling = 0.5 },
    { .reordering = 0.5 }, { .loss = 0.2, .doubling = 0.2, .reordering = 0.2 },
    { .loss = 0.05 },
};

static NetworkConfig config_of(int i)
{
    Lossy lossy = { faults[(size_t)i % G_N_ELEMENTS(faults)], .change = NULL };

    lossy.of_packets.seed = (uint64_t)i;
    return (NetworkConfig){
        .faults = lossy_faults(&lossy),
        .window_bytes = 100000,
        .resend_ms = 10,
        .stop_ms = 10000,
    };
}

static uint64_t n_resent(const Station *station)
{
    NetworkStats stats;

    network_stats(station->network, &stats);
    return stats.packets_resent;
}

START_TEST(messages_arrive_once_and_in_order)
{
    enum { N = 200 };
    const NetworkConfig config = config_of(_i);
    Station *const stations[] = { station_new(0, 2, &config), station_new(1, 2, &config) };
    GRand *const random = g_rand_new_with_seed((guint32)_i);

    stations_join(stations, 2);
    for (uint64_t i = 0; i < N; i++)
        for (uint32_t from = 0; from < 2; from++) {
            network_push(stations[from]->network, 1 - from,
                         station_frame(MESSAGE_REPLY, i, i % 10 == 0 ? 20000 : 50));
            if (g_rand_boolean(random))
                network_flush(stations[from]->network, 1 - from);
        }
    for (uint32_t to = 0; to < 2; to++)
        network_flush(stations[1 - to]->network, to);
    for (uint32_t to = 0; to < 2; to++)
        for (uint64_t i = 0; i < N; i++) {
            Incoming *const incoming = station_take(stations[to], PATIENCE_MS);
            ck_assert_msg(incoming != NULL, "seed %d: message %u is missing", _i, (unsigned)i);
            ck_assert_msg(station_is(incoming, MESSAGE_REPLY, i, i % 10 == 0 ? 20000 : 50),
                          "seed %d: message %u came in place of %u", _i,
                          (unsigned)station_number(incoming), (unsigned)i);
            incoming_free(incoming);
        }
    ck_assert_ptr_null(station_take(stations[0], 0));
    ck_assert_ptr_null(station_take(stations[1], 0));
    if (faults[(size_t)_i % G_N_ELEMENTS(faults)].loss > 0)
        ck_assert_uint_gt(n_resent(stations[0]) + n_resent(stations[1]), 0);
    g_rand_free(random);
    station_free(stations[0]);
    station_free(stations[1]);
}
END_TEST

START_TEST(producer_that_waits_for_room_gets_it)
{
    enum { N = 300 };
    const NetworkConfig config = config_of(_i);
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);
    uint64_t n_taken = 0;

    stations_join((Station *const[]){ a, b }, 2);
    for (uint64_t i = 0; i < N; i++) {
        /* The consumer sends nothing by itself, but must tell what it has consumed. */
        while (!network_has_room(a->network, 1)) {
            if (n_taken == i) {
                ck_assert_msg(network_wait_room(a->network, 1, NULL, NULL, PATIENCE_MS),
                              "seed %d: no room at %u", _i, (unsigned)i);
                break;
            }
            Incoming *const incoming = station_take(b, PATIENCE_MS);
            ck_assert_msg(station_is(incoming, MESSAGE_ADD, n_taken, 1000), "seed %d: not %u", _i,
                          (unsigned)n_taken);
            incoming_free(incoming);
            n_taken++;
        }
        network_send(a->network, 1, station_frame(MESSAGE_ADD, i, 1000));
    }
    station_free(a);
    station_free(b);
}
END_TEST

static bool all_acknowledged(void *station)
{
    NetworkStats stats;

    network_stats(((Station *)station)->network, &stats);
    return stats.unacked_packets == 0;
}

START_TEST(lost_news_of_what_was_consumed_is_asked_for)
{
    const Lossy lossy = { .change = NULL };
    const NetworkConfig config = { .faults = lossy_faults(&lossy),
                                   .window_bytes = 50000,
                                   .resend_ms = 10 };
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);
    uint64_t n = 0;

    stations_join((Station *const[]){ a, b }, 2);
    for (; network_has_room(a->network, 1); n++)
        network_send(a->network, 1, station_frame(MESSAGE_ADD, n, 1000));
    ck_assert(station_wait_until(a, all_acknowledged, a));
    lossy_set_dropping(true);
    for (uint64_t i = 0; i < n; i++)
        incoming_free(station_take(b, PATIENCE_MS));
    ck_assert(station_wait_ticks(b, 5)); /* it has told so, once */
    lossy_set_dropping(false);
    ck_assert(network_wait_room(a->network, 1, NULL, NULL, PATIENCE_MS));
    station_free(a);
    station_free(b);
}
END_TEST

/* Reads the header of a packet of a link. */
static bool read_header(const Packet *packet, PacketHeader *header)
{
    uint16_t version;
    PacketKind kind;

    return wire_read_prefix(packet->bytes, packet->size, &version, &kind) == NULL &&
           kind != PACKET_GREETING &&
           wire_read_packet_header(packet->bytes, packet->size, header) == NULL;
}

static _Atomic uint64_t lost_until, lost_last;

/* Each of these packets of node 0 is lost when it is sent first. They are known by their numbers,
 * because a packet need not leave while network_send runs: another thread may have the token. */
static void lose(uint64_t first, uint64_t last)
{
    atomic_store(&lost_until, first - 1);
    atomic_store(&lost_last, last);
}

static Packet *lose_when_first_sent(uint32_t from, uint32_t to, Packet *packet)
{
    PacketHeader header;

    (void)to;
    if (from != 0 || !read_header(packet, &header) || header.sequence <= atomic_load(&lost_until) ||
        header.sequence > atomic_load(&lost_last))
        return packet;
    atomic_store(&lost_until, header.sequence);
    return NULL;
}

static bool is_lost(void *unused)
{
    (void)unused;
    return atomic_load(&lost_until) == atomic_load(&lost_last);
}

/* Nothing is sent again by the clock: the receiver has to ask. */
START_TEST(a_gap_is_asked_for)
{
    const Lossy lossy = { .change = lose_when_first_sent };
    const NetworkConfig config = { .faults = lossy_faults(&lossy),
                                   .resend_ms = 10 * PATIENCE_MS,
                                   .stop_ms = 1000 };
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);
    Incoming *incoming;

    lose(1, 1);
    stations_join((Station *const[]){ a, b }, 2);
    /* what b has to say at first, that it has joined, is said and heard */
    network_send(b->network, 0, station_frame(MESSAGE_CONTROL, 0, 8));
    incoming = station_take(a, PATIENCE_MS);
    ck_assert(station_is(incoming, MESSAGE_CONTROL, 0, 8));
    incoming_free(incoming);
    ck_assert(station_wait_ticks(a, 2));
    network_send(a->network, 1, station_frame(MESSAGE_CONTROL, 1, 8));
    ck_assert(station_wait_until(a, is_lost, NULL));
    network_send(a->network, 1, station_frame(MESSAGE_CONTROL, 2, 8));
    for (uint64_t i = 1; i <= 2; i++) {
        incoming = station_take(b, PATIENCE_MS);
        ck_assert_msg(station_is(incoming, MESSAGE_CONTROL, i, 8), "%u did not come", (unsigned)i);
        incoming_free(incoming);
    }
    station_free(a);
    station_free(b);
}
END_TEST

/* Nothing comes behind it, and no tick. The I/O thread sleeps when it is sent. */
START_TEST(a_lost_last_packet_is_sent_again_when_its_timer_ends)
{
    const Lossy lossy = { .change = lose_when_first_sent };
    const NetworkConfig config = { .faults = lossy_faults(&lossy),
                                   .tick_ms = 10 * PATIENCE_MS,
                                   .resend_ms = 50,
                                   .stop_ms = 1000 };
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);

    lose(2, 5);
    stations_join((Station *const[]){ a, b }, 2);
    for (uint64_t i = 1; i <= 5; i++) {
        network_send(a->network, 1, station_frame(MESSAGE_CONTROL, i, 8));
        Incoming *const incoming = station_take(b, PATIENCE_MS);
        ck_assert_msg(station_is(incoming, MESSAGE_CONTROL, i, 8), "%u did not come", (unsigned)i);
        incoming_free(incoming);
    }
    ck_assert_uint_ge(n_resent(a), 4);
    station_free(a);
    station_free(b);
}
END_TEST

/* There it is lost by faults on demand alone, but then the wait follows round trips as well: of
 * RESEND_MS a twentieth is the least. */
START_TEST(a_lost_last_packet_in_shared_memory_waits_as_over_tcp)
{
    enum { RESEND_MS = 20000 };
    const Lossy lossy = { .change = lose_when_first_sent };
    const NetworkConfig config = { .faults = lossy_faults(&lossy),
                                   .resend_ms = RESEND_MS,
                                   .stop_ms = 1000 };
    g_autofree char *before = g_strdup(g_getenv("RUBATO_TEST_TRANSPORT"));
    Station *a, *b;
    int64_t begun_ms = 0;

    lose(6, 6);
    g_setenv("RUBATO_TEST_TRANSPORT", "shm", TRUE);
    a = station_new(0, 2, &config);
    b = station_new(1, 2, &config);
    stations_join((Station *const[]){ a, b }, 2);
    for (uint64_t i = 1; i <= 6; i++) {
        if (i == 2) /* a new connection is noticed at a tick, and measured from then on */
            ck_assert(station_wait_ticks(a, 3));
        if (i == 6) { /* the ones before were measured */
            ck_assert(station_wait_until(a, all_acknowledged, a));
            begun_ms = network_now_ms();
        }
        network_send(a->network, 1, station_frame(MESSAGE_CONTROL, i, 8));
        Incoming *const incoming = station_take(b, PATIENCE_MS);
        ck_assert_msg(station_is(incoming, MESSAGE_CONTROL, i, 8), "%u did not come", (unsigned)i);
        incoming_free(incoming);
    }
    ck_assert_int_lt(network_now_ms() - begun_ms, RESEND_MS / 2);
    ck_assert(is_lost(NULL));
    station_free(a);
    station_free(b);
    if (before != NULL)
        g_setenv("RUBATO_TEST_TRANSPORT", before, TRUE);
    else
        g_unsetenv("RUBATO_TEST_TRANSPORT");
}
END_TEST

/* Nothing follows them, and timers and the usual tick are far. */
START_TEST(packets_that_are_held_back_leave_soon)
{
    const Lossy lossy = { .of_packets.reordering = 1 };
    const NetworkConfig config = { .faults = lossy_faults(&lossy),
                                   .tick_ms = 10 * PATIENCE_MS,
                                   .resend_ms = 10 * PATIENCE_MS,
                                   .stop_ms = 1000 };
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);

    stations_join((Station *const[]){ a, b }, 2);
    for (uint64_t i = 1; i <= 5; i++) {
        network_send(a->network, 1, station_frame(MESSAGE_CONTROL, i, 8));
        Incoming *const incoming = station_take(b, PATIENCE_MS);
        ck_assert_msg(station_is(incoming, MESSAGE_CONTROL, i, 8), "%u did not come", (unsigned)i);
        incoming_free(incoming);
    }
    station_free(a);
    station_free(b);
}
END_TEST

START_TEST(stopping_waits_until_everything_has_come)
{
    enum { N = 100 };
    const NetworkConfig config = config_of(_i);
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);

    stations_join((Station *const[]){ a, b }, 2);
    for (uint64_t i = 0; i < N; i++)
        network_send(a->network, 1, station_frame(MESSAGE_CONTROL, i, 3000));
    network_stop(a->network);
    for (uint64_t i = 0; i < N; i++) {
        Incoming *const incoming = station_take(b, PATIENCE_MS);
        ck_assert_msg(station_is(incoming, MESSAGE_CONTROL, i, 3000), "seed %d: not %u", _i,
                      (unsigned)i);
        incoming_free(incoming);
    }
    station_free(a);
    station_free(b);
}
END_TEST

START_TEST(requests_are_answered_once)
{
    enum { N = 100 };
    const NetworkConfig config = config_of(_i);
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);

    b->echoes = true;
    stations_join((Station *const[]){ a, b }, 2);
    for (uint64_t i = 0; i < N; i++)
        network_send(a->network, 1, station_frame(MESSAGE_GET, i, 40));
    for (uint64_t i = 0; i < N; i++) {
        Incoming *const incoming = station_take(a, PATIENCE_MS);
        ck_assert_msg(station_is(incoming, MESSAGE_REPLY, i, 40), "seed %d: not %u", _i,
                      (unsigned)i);
        incoming_free(incoming);
    }
    ck_assert_ptr_null(station_take(a, 0));
    station_free(a);
    station_free(b);
}
END_TEST

static atomic_bool changes;

/* Packets of node 0 come as if from an earlier process of that node. */
static Packet *make_earlier(uint32_t from, uint32_t to, Packet *packet)
{
    PacketHeader header;

    (void)to;
    if (from != 0 || !read_header(packet, &header) || !atomic_load(&changes))
        return packet;
    Packet *const changed = lossy_copy(packet);
    header.incarnation--;
    wire_write_packet_header(changed->bytes, &header);
    return changed;
}

static uint64_t n_strangers(const Station *station)
{
    NetworkStats stats;

    network_stats(station->network, &stats);
    return stats.strangers_dropped;
}

/* ZeroMQ does not prove who sends, so the header alone tells. */
START_TEST(packet_of_an_earlier_process_is_not_taken_for_one_of_this_node)
{
    const Lossy lossy = { .change = make_earlier };
    const NetworkConfig config = { .faults = lossy_faults(&lossy), .resend_ms = 10 };

    g_setenv("RUBATO_TEST_TRANSPORT", "zmq", TRUE);
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);
    stations_join((Station *const[]){ a, b }, 2);
    const int64_t begun_ms = network_now_ms();
    const uint64_t n_before = n_strangers(b);
    atomic_store(&changes, true);
    network_send(a->network, 1, station_frame(MESSAGE_CONTROL, 1, 8));
    while (n_strangers(b) < n_before + 3) {
        require_msg(network_now_ms() - begun_ms < PATIENCE_MS, "it was taken");
        ck_assert(station_wait_ticks(b, 1));
    }
    ck_assert_ptr_null(station_take(b, 0));
    atomic_store(&changes, false);
    Incoming *const incoming = station_take(b, PATIENCE_MS);
    ck_assert(station_is(incoming, MESSAGE_CONTROL, 1, 8));
    incoming_free(incoming);
    station_free(a);
    station_free(b);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("network_lossy");
    TCase *const lossy = tcase_create("lossy");

    tcase_set_timeout(lossy, 90);
    tcase_add_loop_test(lossy, messages_arrive_once_and_in_order, 0, 5);
    tcase_add_loop_test(lossy, producer_that_waits_for_room_gets_it, 0, 5);
    tcase_add_loop_test(lossy, stopping_waits_until_everything_has_come, 0, 5);
    tcase_add_loop_test(lossy, requests_are_answered_once, 0, 5);
    tcase_add_test(lossy, packet_of_an_earlier_process_is_not_taken_for_one_of_this_node);
    tcase_add_test(lossy, a_gap_is_asked_for);
    tcase_add_test(lossy, a_lost_last_packet_in_shared_memory_waits_as_over_tcp);
    tcase_add_test(lossy, a_lost_last_packet_is_sent_again_when_its_timer_ends);
    tcase_add_test(lossy, lost_news_of_what_was_consumed_is_asked_for);
    tcase_add_test(lossy, packets_that_are_held_back_leave_soon);
    suite_add_tcase(suite, lossy);
    return run_suite(suite);
}
