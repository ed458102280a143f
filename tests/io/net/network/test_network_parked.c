/* What a node keeps for another one's requests: a small Get that is parked keeps its own memory and
 * not its whole packet, and what is kept for one node is counted. A node that sends requests
 * without an end, instead of waiting for room, is given up.
 *
 * docs/wire.md: What is guaranteed */
#include <malloc.h>

#include "tests/support/network/station.h"
#include "tests/support/runner.h"

enum { ROOM_BYTES = 64, GET_BYTES = 100 };

typedef struct {
    Station *sender, *receiver;
} Pair;

static Pair pair_new(NetworkConfig config)
{
    Pair pair;

    config.room_bytes = ROOM_BYTES;
    pair.sender = station_new(0, 2, &config);
    pair.receiver = station_new(1, 2, &config);
    stations_join((Station *const[]){ pair.sender, pair.receiver }, 2);
    return pair;
}

static void pair_free(Pair *pair)
{
    station_free(pair->sender);
    station_free(pair->receiver);
}

static Incoming *take(const Pair *pair)
{
    Incoming *const incoming = station_take(pair->receiver, STATION_PATIENCE_MS);

    ck_assert_ptr_nonnull(incoming);
    return incoming;
}

static size_t heap_bytes(void)
{
    const struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

/* A Get among so many Adds of such a size, in a packet of that size at most. */
static const struct {
    size_t joined_bytes;
    unsigned n_adds;
    size_t add_bytes;
} packets[] = {
    { 64 << 10, 300, 50 },
    { 512 << 10, 100, 5000 },
};

static void send_mixed(const Pair *pair, int i, uint64_t number)
{
    for (unsigned k = 0; k < packets[i].n_adds; k++)
        network_push(pair->sender->network, 1,
                     station_frame(MESSAGE_ADD, 1000 + k, packets[i].add_bytes));
    network_push(pair->sender->network, 1, station_frame(MESSAGE_GET, number, GET_BYTES));
    network_flush(pair->sender->network, 1);
}

/* The Get of a mixed packet; its Adds are done with. */
static Incoming *take_get(const Pair *pair, int i, uint64_t number)
{
    for (unsigned k = 0; k < packets[i].n_adds; k++) {
        Incoming *const add = take(pair);
        ck_assert(station_is(add, MESSAGE_ADD, 1000 + k, packets[i].add_bytes));
        incoming_free(add);
    }
    Incoming *const get = take(pair);
    ck_assert(station_is(get, MESSAGE_GET, number, GET_BYTES));
    return get;
}

START_TEST(a_small_parked_get_keeps_its_own_memory_alone)
{
    /* Any number of packets up to these bytes may be under way, or kept for reuse, at either
     * measurement. A Get that keeps its packet keeps over 100 KB: 10 MB in all. */
    enum { N_FIRST = 20, N_GETS = 120, MOST_BYTES = 2000, UNDER_WAY = 4 << 20 };
    Pair pair = pair_new((NetworkConfig){ .joined_bytes = packets[_i].joined_bytes });
    Incoming *gets[N_GETS];
    size_t before = 0;

    /* The first ones fill what is reused later: pools, blocks to receive into. The packets have
     * some 100 and 500 KB with what is kept for each of their messages. */
    for (unsigned n = 0; n < N_GETS; n++) {
        send_mixed(&pair, _i, n);
        gets[n] = take_get(&pair, _i, n);
        memset(gets[n]->room, (int)n, ROOM_BYTES);
        gets[n] = incoming_detach(gets[n]);
        ck_assert(incoming_park(gets[n], 0));
        if (n == N_FIRST)
            before = heap_bytes();
    }
    const size_t after = heap_bytes();
    ck_assert_msg(after <= before + UNDER_WAY + (size_t)(N_GETS - N_FIRST) * MOST_BYTES,
                  "each parked Get keeps %zu bytes", (after - before) / (N_GETS - N_FIRST));
    for (unsigned n = 0; n < N_GETS; n++) {
        const uint8_t *const room = gets[n]->room;
        ck_assert(station_is(gets[n], MESSAGE_GET, n, GET_BYTES));
        for (size_t k = 0; k < ROOM_BYTES; k++)
            ck_assert_uint_eq(room[k], n);
        incoming_free(gets[n]);
    }
    pair_free(&pair);
}
END_TEST

/* Alone in its packet it has nothing to leave behind. */
START_TEST(a_get_that_shares_little_stays_where_it_is)
{
    static const size_t sizes[] = { 100, 20000, 400000 };
    Pair pair = pair_new((NetworkConfig){ 0 });

    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        network_send(pair.sender->network, 1, station_frame(MESSAGE_GET, i, sizes[i]));
        Incoming *const get = take(&pair);
        ck_assert_ptr_eq(incoming_detach(get), get);
        ck_assert(station_is(get, MESSAGE_GET, i, sizes[i]));
        incoming_free(get);
    }
    pair_free(&pair);
}
END_TEST

START_TEST(what_is_kept_for_a_node_is_counted_with_the_rows_to_come)
{
    enum { N_GETS = 5, ROWS = 10000 };
    Pair pair = pair_new((NetworkConfig){ .parked_bytes = N_GETS * (ROWS + 1000) });
    Incoming *gets[N_GETS + 1];

    for (unsigned round = 0; round < 3; round++) {
        for (unsigned n = 0; n <= N_GETS; n++) {
            network_send(pair.sender->network, 1, station_frame(MESSAGE_GET, n, GET_BYTES));
            gets[n] = take(&pair);
            ck_assert(incoming_park(gets[n], ROWS) == (n < N_GETS));
        }
        for (unsigned n = 0; n <= N_GETS; n++)
            incoming_free(gets[n]);
    }
    pair_free(&pair);
}
END_TEST

static bool is_given_up(void *user)
{
    Station *const station = user;

    pthread_mutex_lock(&station->lock);
    const bool is = g_str_has_prefix(station->broken->str, "0: it has sent ") &&
                    strstr(station->broken->str, "no node sends so many") != NULL;
    pthread_mutex_unlock(&station->lock);
    return is;
}

/* The network leaves it to who makes a request to wait for room: this sender does not. */
START_TEST(a_node_that_does_not_wait_for_room_is_given_up)
{
    enum { N = 100, BYTES = 1000 };
    Pair pair = pair_new((NetworkConfig){ .taken_bytes = N * BYTES });

    for (unsigned n = 0; n < N; n++)
        network_send(pair.sender->network, 1, station_frame(MESSAGE_ADD, n, BYTES));
    ck_assert_msg(station_wait_until(pair.receiver, is_given_up, pair.receiver), "%s",
                  pair.receiver->broken->str);
    pair_free(&pair);
}
END_TEST

/* Whatever it sends, while it is handled or parked. */
START_TEST(a_node_whose_requests_are_handled_is_kept)
{
    enum { N = 500, BYTES = 1000 };
    Pair pair = pair_new((NetworkConfig){ .taken_bytes = 10 * BYTES });
    Incoming *parked[N];

    for (unsigned n = 0; n < N; n++) {
        network_send(pair.sender->network, 1, station_frame(MESSAGE_ADD, n, BYTES));
        network_send(pair.sender->network, 1, station_frame(MESSAGE_GET, n, BYTES));
        incoming_free(take(&pair));
        parked[n] = take(&pair);
        ck_assert(incoming_park(parked[n], 0));
    }
    pthread_mutex_lock(&pair.receiver->lock);
    ck_assert_str_eq(pair.receiver->broken->str, "");
    pthread_mutex_unlock(&pair.receiver->lock);
    for (unsigned n = 0; n < N; n++)
        incoming_free(parked[n]);
    pair_free(&pair);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("network_parked");
    TCase *const parked = tcase_create("parked");
    TCase *const window = tcase_create("window");

    tcase_add_loop_test(parked, a_small_parked_get_keeps_its_own_memory_alone, 0,
                        (int)G_N_ELEMENTS(packets));
    tcase_add_test(parked, a_get_that_shares_little_stays_where_it_is);
    tcase_add_test(parked, what_is_kept_for_a_node_is_counted_with_the_rows_to_come);
    tcase_add_test(window, a_node_that_does_not_wait_for_room_is_given_up);
    tcase_add_test(window, a_node_whose_requests_are_handled_is_kept);
    tcase_set_timeout(parked, 60);
    tcase_set_timeout(window, 60);
    suite_add_tcase(suite, parked);
    suite_add_tcase(suite, window);
    return run_suite(suite);
}
