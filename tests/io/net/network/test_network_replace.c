/* Another process takes the place of a lost node: it gets a link of its own.
 *
 * Station a is node 0. b is the process of node 1 that is lost, c the one that takes its place. */
#include "tests/support/network/station_pair.h"
#include "tests/support/runner.h"

#define COUNTED_FROM ((uint64_t)1 << 48)

/* c has no incarnation of its own: it would be the lost process. */
static NetworkConfig config_of_c(void)
{
    return (NetworkConfig){ .incarnation = STATION_INCARNATION(1) + 100, .stop_ms = 50 };
}

/* Nobody acknowledges what lost processes have sent, so their ends do not wait for it. */
static const NetworkConfig of_pairs = { .stop_ms = 50 };

static Station *open_c(void)
{
    const NetworkConfig config = config_of_c();

    return station_new(1, 2, &config);
}

/* Both ends open the link. */
static void meet(Station *a, Station *c)
{
    const NetworkPeer to_a[] = { { .endpoint = network_endpoint(a->network, 0),
                                   .incarnation = STATION_INCARNATION(0),
                                   .counted_from = COUNTED_FROM },
                                 { 0 } };
    const NetworkPeer to_c = { .endpoint = network_endpoint(c->network, 0),
                               .incarnation = config_of_c().incarnation,
                               .counted_from = COUNTED_FROM };
    GError *error = NULL;

    ck_assert(network_join(c->network, STATION_RUN_ID, to_a, &error));
    ck_assert(network_replace(a->network, 1, &to_c, &error));
}

static void send_to(Station *from, uint32_t node, uint64_t number)
{
    network_send(from->network, node, station_frame(MESSAGE_ADD, number, 64));
}

START_TEST(another_process_gets_what_is_sent_to_the_node_from_then_on)
{
    const StationPair pair = station_pair_join(&of_pairs);
    Station *const c = open_c();

    send_to(pair.a, 1, 1);
    station_expect(pair.b, MESSAGE_ADD, 1, 64);
    network_forget(pair.a->network, 1);
    send_to(pair.a, 1, 2); /* dropped */
    meet(pair.a, c);
    ck_assert_int_ne(network_peer_state(pair.a->network, 1), NETWORK_PEER_FORGOTTEN);
    for (uint64_t i = 3; i < 100; i++) {
        send_to(pair.a, 1, i);
        send_to(c, 0, i);
    }
    for (uint64_t i = 3; i < 100; i++) {
        station_expect(c, MESSAGE_ADD, i, 64);
        station_expect(pair.a, MESSAGE_ADD, i, 64);
    }
    ck_assert_ptr_null(station_take(pair.b, 0));
    station_free(c);
    station_pair_close(&pair);
}
END_TEST

/* The lost process was only out of reach. */
START_TEST(what_the_lost_process_sends_is_a_strangers)
{
    const StationPair pair = station_pair_join(&of_pairs);
    Station *const c = open_c();

    send_to(pair.b, 0, 1);
    station_expect(pair.a, MESSAGE_ADD, 1, 64);
    network_forget(pair.a->network, 1);
    meet(pair.a, c);
    send_to(pair.b, 0, 2);
    send_to(c, 0, 3);
    station_expect(pair.a, MESSAGE_ADD, 3, 64);
    while (station_stats(pair.a).strangers_dropped == 0)
        ck_assert(station_wait_ticks(pair.a, 1));
    ck_assert_ptr_null(station_take(pair.a, 0));
    station_free(c);
    station_pair_close(&pair);
}
END_TEST

/* Another process takes the place of the one that has taken it. */
START_TEST(a_place_is_taken_again_and_again)
{
    const StationPair pair = station_pair_join(&of_pairs);

    for (unsigned turn = 0; turn < 3; turn++) {
        Station *const c = open_c();

        meet(pair.a, c); /* this forgets the one before */
        send_to(pair.a, 1, turn);
        send_to(c, 0, turn);
        station_expect(c, MESSAGE_ADD, turn, 64);
        station_expect(pair.a, MESSAGE_ADD, turn, 64);
        station_free(c);
    }
    ck_assert_uint_ge(station_stats(pair.a).messages_sent[MESSAGE_ADD], 3);
    station_pair_close(&pair);
}
END_TEST

/* A third node may have told a position of the lost process that nothing of the new one reaches. */
START_TEST(positions_of_the_lost_process_are_behind_those_of_the_new_one)
{
    const StationPair pair = station_pair_join(&of_pairs);
    Station *const c = open_c();

    send_to(pair.b, 0, 1);
    station_expect(pair.a, MESSAGE_ADD, 1, 64);
    const uint64_t told = network_pushed(pair.b->network, 0);
    network_forget(pair.a->network, 1);
    meet(pair.a, c);
    ck_assert_uint_ge(network_handed(pair.a->network, 1), told);
    ck_assert_uint_eq(network_pushed(c->network, 0), network_handed(pair.a->network, 1));
    ck_assert(network_has_room(pair.a->network, 1));
    ck_assert_uint_eq(network_charged_bytes(pair.a->network, 1), 0);
    station_free(c);
    station_pair_close(&pair);
}
END_TEST

/* The window to the new process is whole, and room comes back. */
START_TEST(window_to_the_new_process_is_its_own)
{
    const NetworkConfig config = { .window_bytes = 512, .stop_ms = 50 };
    const StationPair pair = station_pair_join(&config);
    Station *const c = open_c();

    station_hold(pair.b, true);
    while (network_has_room(pair.a->network, 1))
        send_to(pair.a, 1, 1);
    network_forget(pair.a->network, 1);
    station_hold(pair.b, false);
    meet(pair.a, c);
    for (uint64_t i = 0; i < 50; i++) {
        ck_assert(network_wait_room(pair.a->network, 1, NULL, NULL, STATION_PATIENCE_MS));
        send_to(pair.a, 1, i);
        station_expect(c, MESSAGE_ADD, i, 64);
    }
    station_free(c);
    station_pair_close(&pair);
}
END_TEST

/* A node that joins late is told which others are lost. */
START_TEST(node_joins_without_those_that_are_lost)
{
    Station *const a = station_new(0, 3, &of_pairs), *const c = station_new(2, 3, &of_pairs);
    const NetworkPeer to_a[] = { station_peer(a, 0), { 0 }, { 0 } };
    const NetworkPeer to_c[] = { { 0 }, { 0 }, station_peer(c, 2) };

    ck_assert(network_join(c->network, STATION_RUN_ID, to_a, NULL));
    ck_assert(network_join(a->network, STATION_RUN_ID, to_c, NULL));
    ck_assert_int_eq(network_peer_state(a->network, 1), NETWORK_PEER_FORGOTTEN);
    ck_assert(network_has_room(a->network, 1));
    ck_assert_uint_eq(network_handed(a->network, 1), UINT64_MAX);
    send_to(a, 1, 1); /* dropped */
    send_to(a, 2, 2);
    station_expect(c, MESSAGE_ADD, 2, 64);

    Station *const b = station_new(1, 3, &of_pairs);
    const NetworkPeer to_others[] = { station_peer(a, 0), { 0 }, station_peer(c, 2) };
    const NetworkPeer to_b = station_peer(b, 1);
    ck_assert(network_replace(a->network, 1, &to_b, NULL));
    ck_assert(network_replace(c->network, 1, &to_b, NULL));
    ck_assert(network_join(b->network, STATION_RUN_ID, to_others, NULL));
    send_to(a, 1, 3);
    station_expect(b, MESSAGE_ADD, 3, 64);
    send_to(c, 1, 4);
    station_expect(b, MESSAGE_ADD, 4, 64);
    station_free(b);
    station_free(c);
    station_free(a);
}
END_TEST

/* A station that is reached by the second of its addresses, too. */
static NetworkPeer near_peer(const Station *station, uint32_t self)
{
    NetworkPeer peer = station_peer(station, self);

    peer.endpoint = g_strjoin(",", network_endpoint(station->network, 0),
                              network_endpoint(station->network, 1), NULL);
    return peer;
}

/* Memory was lent to a process of this host, and one of another host has its place: what was lent
 * is told, or comes back, all the same. */
START_TEST(memory_lent_to_a_lost_process_comes_back)
{
    static const char *const both[] = { "tcp://127.0.0.1:0", "shm://*" };
    const NetworkConfig near = { .bind_endpoints = both, .n_bind_endpoints = 2, .stop_ms = 50 };
    Station *const a = station_new(0, 2, &near), *const b = station_new(1, 2, &near);
    Station *const c = open_c();
    const NetworkPeer to_a[] = { near_peer(a, 0), { 0 } }, to_b[] = { { 0 }, near_peer(b, 1) };
    NetworkLoan first, second;
    LentPlace shared;

    ck_assert(network_join(a->network, STATION_RUN_ID, to_b, NULL));
    ck_assert(network_join(b->network, STATION_RUN_ID, to_a, NULL));
    ck_assert_str_eq(network_peer_transport(a->network, 1), "shm");
    ck_assert(network_lend(a->network, 1, 8192, &first));
    ck_assert(network_lend(a->network, 1, 8192, &second));
    network_forget(a->network, 1);
    meet(a, c);
    ck_assert_str_eq(network_peer_transport(a->network, 1), "tcp");
    network_end_loan(a->network, 1, first.place);
    network_note_loan(a->network, 1, second.place);
    ck_assert(!network_share_loan(a->network, 1, second.place, &shared));
    ck_assert(!network_lends(a->network, 1, 8192));
    station_free(a);
    station_free(b);
    station_free(c);
    g_free((char *)(uintptr_t)to_a[0].endpoint);
    g_free((char *)(uintptr_t)to_b[1].endpoint);
}
END_TEST

START_TEST(place_stays_empty_if_the_address_makes_no_sense)
{
    const StationPair pair = station_pair_join(&of_pairs);
    const NetworkPeer nonsense = { .endpoint = "pigeon://roof", .incarnation = 5 };
    g_autoptr(GError) error = NULL;

    network_forget(pair.a->network, 1);
    ck_assert(!network_replace(pair.a->network, 1, &nonsense, &error));
    ck_assert_ptr_nonnull(error);
    ck_assert_int_eq(network_peer_state(pair.a->network, 1), NETWORK_PEER_FORGOTTEN);
    send_to(pair.a, 1, 1);
    station_pair_close(&pair);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("network_replace");
    TCase *const cases = tcase_create("replaces");

    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, another_process_gets_what_is_sent_to_the_node_from_then_on);
    tcase_add_test(cases, what_the_lost_process_sends_is_a_strangers);
    tcase_add_test(cases, a_place_is_taken_again_and_again);
    tcase_add_test(cases, positions_of_the_lost_process_are_behind_those_of_the_new_one);
    tcase_add_test(cases, window_to_the_new_process_is_its_own);
    tcase_add_test(cases, node_joins_without_those_that_are_lost);
    if (g_getenv("RUBATO_TEST_TRANSPORT") == NULL) /* it chooses its own */
        tcase_add_test(cases, memory_lent_to_a_lost_process_comes_back);
    tcase_add_test(cases, place_stays_empty_if_the_address_makes_no_sense);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
