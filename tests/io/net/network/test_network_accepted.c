/* Packets through shared memory are let go as soon as the other link has taken them, whether or not
 * its acknowledgement has come. */
#include "tests/support/network/station.h"
#include "tests/support/runner.h"

/* N - 1 of them are more than the network keeps without a look at what was taken. */
enum { N = 6, SIZE = 60000, NO_TIMER_MS = 1000000 };

static uint64_t unacked_bytes(const Station *station)
{
    NetworkStats stats;

    network_stats(station->network, &stats);
    return stats.unacked_bytes;
}

static bool has_come(void *user)
{
    NetworkStats stats;

    network_stats(((Station *)user)->network, &stats);
    return stats.messages_received[MESSAGE_REPLY] > 0;
}

static bool is_connected(void *user)
{
    return network_peer_state(((Station *)user)->network, 1) == NETWORK_PEER_CONNECTED;
}

static void pass_one(Station *from, Station *to, uint64_t number)
{
    network_push(from->network, 1, station_frame(MESSAGE_REPLY, number, SIZE));
    network_flush(from->network, 1);

    Incoming *const incoming = station_take(to, STATION_PATIENCE_MS);
    ck_assert_ptr_nonnull(incoming);
    ck_assert(station_is(incoming, MESSAGE_REPLY, number, SIZE));
    incoming_free(incoming);
}

/* The thread that would take in acknowledgements waits in its handler. Nothing else may need it
 * then. So the connection is complete before: b has handed over its bell. And the ring always has
 * room, because it is that thread to which b says that there is room again: b may not have released
 * a packet when the test has its message, but it has released the one before. */
START_TEST(packets_that_were_taken_are_let_go_without_an_acknowledgement)
{
    const char *const endpoint = "shm://*";
    const NetworkConfig config = { .bind_endpoints = &endpoint,
                                   .n_bind_endpoints = 1,
                                   .window_bytes = 64 << 20,
                                   .resend_ms = NO_TIMER_MS,
                                   .timeout_ms = 20000,
                                   .stop_ms = 20000 };
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);

    stations_join((Station *const[]){ a, b }, 2);
    ck_assert(station_wait_until(a, is_connected, a));
    station_hold(a, true);
    network_push(b->network, 0, station_frame(MESSAGE_REPLY, 9, 8));
    network_flush(b->network, 0);
    ck_assert(station_wait_until(b, has_come, a));

    for (uint64_t i = 1; i < N; i++)
        pass_one(a, b, i);
    ck_assert_uint_ge(unacked_bytes(a), (N - 1) * SIZE); /* nobody has looked */
    pass_one(a, b, N);
    ck_assert_uint_le(unacked_bytes(a), SIZE + 1000);

    station_hold(a, false);
    Incoming *const held = station_take(a, STATION_PATIENCE_MS);
    ck_assert_ptr_nonnull(held);
    incoming_free(held);
    station_free(a);
    station_free(b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("network, accepted packets");
    TCase *tcase = tcase_create("accepted");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, packets_that_were_taken_are_let_go_without_an_acknowledgement);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
