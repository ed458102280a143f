/* A network that ends while others are connected to it: they see a node that is gone, and no
 * stranger in its place.
 *
 * While it ends, the other node's I/O thread gets time after each descriptor that is closed: so it
 * does between any two of them what it would do there by chance. */
#include <string.h>
#include <unistd.h>

#include "tests/support/network/station.h"
#include "tests/support/runner.h"

static _Atomic(Station *) watcher; /* NULL: nothing ends */
static pthread_t ending;           /* the thread that ends the network */
static _Atomic unsigned n_warnings;

__typeof__(close) __real_close, __wrap_close;
int __wrap_close(int fd)
{
    const int result = __real_close(fd);
    Station *const station = atomic_load(&watcher);

    if (station != NULL && pthread_equal(pthread_self(), ending))
        ck_assert(station_wait_ticks(station, 3));
    return result;
}

static GLogWriterOutput count_warnings(GLogLevelFlags level, const GLogField *fields, gsize n,
                                       gpointer user)
{
    (void)user;
    if (level & G_LOG_LEVEL_WARNING)
        atomic_fetch_add(&n_warnings, 1);
    return g_log_writer_standard_streams(level, fields, n, NULL);
}

START_TEST(node_that_ends_is_no_stranger_to_those_who_are_connected)
{
    Station *stations[2];

    g_log_set_writer_func(count_warnings, NULL, NULL);
    for (uint32_t i = 0; i < 2; i++)
        stations[i] = station_new(i, 2, NULL);
    ck_assert(network_greet(stations[0]->network, network_endpoint(stations[1]->network, 0),
                            g_variant_new("s", "hello"), NULL));
    StationGreeting *const greeting = station_take_greeting(stations[1], STATION_PATIENCE_MS);
    ck_assert_ptr_nonnull(greeting);
    station_greeting_free(greeting);
    stations_join(stations, 2);
    for (uint32_t i = 0; i < 2; i++) {
        network_send(stations[i]->network, 1 - i, station_frame(MESSAGE_CONTROL, i, 8));
        Incoming *const incoming = station_take(stations[1 - i], STATION_PATIENCE_MS);
        ck_assert(station_is(incoming, MESSAGE_CONTROL, i, 8));
        incoming_free(incoming);
    }

    ending = pthread_self();
    atomic_store(&watcher, stations[0]);
    station_free(stations[1]);
    atomic_store(&watcher, NULL);
    while (network_peer_state(stations[0]->network, 1) != NETWORK_PEER_DISCONNECTED)
        ck_assert(station_wait_ticks(stations[0], 1));
    ck_assert_uint_eq(atomic_load(&n_warnings), 0);
    network_forget(stations[0]->network, 1);
    station_free(stations[0]);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("network_end");
    TCase *const cases = tcase_create("ends");

    tcase_set_timeout(cases, 30);
    tcase_add_test(cases, node_that_ends_is_no_stranger_to_those_who_are_connected);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
