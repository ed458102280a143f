/* Connections that break, and networks that are silent for a while: lost packets are sent again as
 * soon as there is a connection, and not by a timer. The links' timer is set so that it never
 * fires.
 *
 * docs/liveness.md: A connection that breaks */
#include <unistd.h>

#include "tests/support/cluster/outage.h"
#include "tests/support/network/station.h"
#include "tests/support/runner.h"

#define PATIENCE_MS STATION_PATIENCE_MS

enum { TIMEOUT_MS = 1200 };

/* Never, as long as a case may take. */
enum { NO_TIMER_MS = 1000000 };

static const NetworkConfig config = {
    .window_bytes = 100000,
    .resend_ms = NO_TIMER_MS,
    .timeout_ms = TIMEOUT_MS,
    .stop_ms = 10000,
};

static void expect_next(Station *station, uint64_t number, size_t size)
{
    Incoming *const incoming = station_take(station, PATIENCE_MS);

    ck_assert_msg(incoming != NULL, "message %u is missing", (unsigned)number);
    ck_assert_msg(station_is(incoming, MESSAGE_REPLY, number, size), "%u came in place of %u",
                  (unsigned)station_number(incoming), (unsigned)number);
    incoming_free(incoming);
}

/* Question and answer, with a reset of one connection before each. */
START_TEST(resets_do_not_wait_for_a_timer)
{
    enum { N = 60 };
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);

    b->echoes = true;
    stations_join((Station *const[]){ a, b }, 2);
    for (uint64_t i = 0; i < N; i++) {
        if (i > 0)
            ck_assert_uint_eq(outage_reset_connections(1), 1);
        network_send(a->network, 1, station_frame(MESSAGE_GET, i, 40));
        expect_next(a, i, 40);
    }
    station_free(a);
    station_free(b);
}
END_TEST

/* Much is on its way when all connections break. */
START_TEST(stream_goes_on_after_each_reset)
{
    enum { N = 3000, BETWEEN = 100 };
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);

    stations_join((Station *const[]){ a, b }, 2);
    for (uint64_t i = 0; i < N; i++) {
        network_send(a->network, 1, station_frame(MESSAGE_REPLY, i, i % 50 == 0 ? 200000 : 300));
        if (i % BETWEEN == BETWEEN / 2)
            (void)outage_reset_connections(2);
    }
    for (uint64_t i = 0; i < N; i++)
        expect_next(b, i, i % 50 == 0 ? 200000 : 300);
    ck_assert_ptr_null(station_take(b, 0));
    station_free(a);
    station_free(b);
}
END_TEST

static bool is_late(void *end_ms)
{
    return network_now_ms() >= *(const int64_t *)end_ms;
}

static uint64_t n_resent(const Station *station)
{
    NetworkStats stats;

    network_stats(station->network, &stats);
    return stats.packets_resent;
}

/* The thousandth parts of the timeout that an outage lasts. */
static const int64_t outages[] = { 200, 500, 900 };

START_TEST(what_was_sent_in_an_outage_comes_once_and_in_order)
{
    enum { N = 40 };
    const pid_t self = getpid();
    uint64_t n_sent = 0;

    if (!outage_prepare(OUTAGE_SILENT)) {
        g_message("left out: the sockets of a process cannot be reached here");
        return;
    }
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);
    stations_join((Station *const[]){ a, b }, 2);
    for (; n_sent < 10; n_sent++) {
        network_send(a->network, 1, station_frame(MESSAGE_REPLY, n_sent, 1000));
        expect_next(b, n_sent, 1000);
    }
    outage_begin(OUTAGE_SILENT, &self, 1);
    int64_t end_ms = network_now_ms() + TIMEOUT_MS * outages[_i] / 1000;
    for (; n_sent < N; n_sent++)
        network_send(a->network, 1, station_frame(MESSAGE_REPLY, n_sent, 1000));
    ck_assert(station_wait_until(a, is_late, &end_ms));
    ck_assert_ptr_null(station_take(b, 0));
    outage_end(OUTAGE_SILENT, &self, 1);
    for (uint64_t i = 10; i < N; i++)
        expect_next(b, i, 1000);
    /* No timer has sent it again: the connection was given up, and made anew. */
    if (outages[_i] > 400)
        ck_assert_uint_gt(n_resent(a), 0);
    ck_assert_ptr_null(station_take(b, 0));
    station_free(a);
    station_free(b);
}
END_TEST

static uint64_t n_received_bytes(const Station *station)
{
    NetworkStats stats;

    network_stats(station->network, &stats);
    return stats.bytes_received;
}

/* A slow receiver is no outage: the kernel buffers what the receiver does not read. */
static bool is_acknowledged(void *station)
{
    NetworkStats stats;

    network_stats(((Station *)station)->network, &stats);
    return stats.unacked_packets == 0;
}

START_TEST(quiet_connection_is_kept)
{
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);
    int64_t end_ms;

    stations_join((Station *const[]){ a, b }, 2);
    network_send(a->network, 1, station_frame(MESSAGE_REPLY, 0, 1000));
    expect_next(b, 0, 1000);
    ck_assert(station_wait_until(a, is_acknowledged, a));
    const uint64_t before = n_received_bytes(b);
    end_ms = network_now_ms() + TIMEOUT_MS;
    ck_assert(station_wait_until(a, is_late, &end_ms));
    ck_assert_int_eq(network_peer_state(a->network, 1), NETWORK_PEER_CONNECTED);
    network_send(a->network, 1, station_frame(MESSAGE_REPLY, 1, 1000));
    expect_next(b, 1, 1000);
    ck_assert_uint_lt(n_received_bytes(b) - before, 2000); /* nothing came twice */
    station_free(a);
    station_free(b);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("network_outage");
    TCase *const resets = tcase_create("resets");
    TCase *const outage = tcase_create("outages");

    tcase_set_timeout(resets, 60);
    tcase_set_timeout(outage, 60);
    tcase_add_test(resets, resets_do_not_wait_for_a_timer);
    tcase_add_test(resets, stream_goes_on_after_each_reset);
    tcase_add_loop_test(outage, what_was_sent_in_an_outage_comes_once_and_in_order, 0,
                        (int)G_N_ELEMENTS(outages));
    tcase_add_test(outage, quiet_connection_is_kept);
    suite_add_tcase(suite, resets);
    suite_add_tcase(suite, outage);
    return run_suite(suite);
}
