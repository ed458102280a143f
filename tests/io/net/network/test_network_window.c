/* The window between two networks: a producer waits for room, and gets it. */
#include <sched.h>

#include "tests/support/network/station_pair.h"
#include "tests/support/runner.h"

#define PATIENCE_MS STATION_PATIENCE_MS

static bool has_room(void *station)
{
    return network_has_room(((Station *)station)->network, 1);
}

/* Fills the window of a's requests for b; how many were sent. */
static uint64_t fill_window(const StationPair *pair)
{
    uint64_t n = 0;

    for (; network_has_room(pair->a->network, 1); n++)
        network_send(pair->a->network, 1, station_frame(MESSAGE_ADD, n, 1000));
    return n;
}

static const NetworkConfig small_window = { .window_bytes = 64 << 10, .resend_ms = 50 };

START_TEST(producer_has_no_room_until_the_consumer_has_done_with_messages)
{
    const StationPair pair = station_pair_join(&small_window);
    const uint64_t n = fill_window(&pair);

    ck_assert_uint_ge(n, 50);
    ck_assert_uint_le(n, 70);
    GQueue held = G_QUEUE_INIT;
    for (uint64_t i = 0; i < n; i++)
        g_queue_push_tail(&held, station_take(pair.b, PATIENCE_MS));
    /* All have come and are acknowledged: that is not enough. */
    ck_assert(station_wait_until(pair.a, station_all_acknowledged, pair.a));
    ck_assert(station_wait_ticks(pair.a, 3));
    ck_assert(!network_has_room(pair.a->network, 1));
    ck_assert(!network_wait_room(pair.a->network, 1, NULL, NULL, 20));
    g_queue_clear_full(&held, (GDestroyNotify)incoming_free);
    ck_assert(network_wait_room(pair.a->network, 1, NULL, NULL, PATIENCE_MS));
    ck_assert(has_room(pair.a));
    station_pair_close(&pair);
}
END_TEST

/* What is under way stays in the processors' caches. */
START_TEST(in_shared_memory_less_is_under_way_once_tables_have_replicas)
{
    const StationPair pair = station_pair_join(&small_window);
    const bool is_near = network_is_memory(pair.a->network, 1);
    uint64_t n;

    network_take_any(pair.a->network, 10);
    network_take_any(pair.b->network, 10);
    n = fill_window(&pair);
    ck_assert_uint_ge(n, is_near ? 12 : 50);
    ck_assert_uint_le(n, is_near ? 18 : 70);
    for (uint64_t i = 0; i < 4 * n; i++) {
        station_expect(pair.b, MESSAGE_ADD, i, 1000);
        ck_assert(network_wait_room(pair.a->network, 1, NULL, NULL, PATIENCE_MS));
        network_send(pair.a->network, 1, station_frame(MESSAGE_ADD, n + i, 1000));
    }
    station_pair_close(&pair);
}
END_TEST

static bool is_all_consumed(void *station)
{
    return station_all_acknowledged(station) &&
           network_charged_bytes(((Station *)station)->network, 1) == 0;
}

START_TEST(what_was_consumed_is_told_once)
{
    const NetworkConfig config = { .tick_ms = 2 };
    const StationPair pair = station_pair_join(&config);

    for (uint64_t i = 0; i < 10; i++) {
        network_send(pair.a->network, 1, station_frame(MESSAGE_ADD, i, 1000));
        station_expect(pair.b, MESSAGE_ADD, i, 1000);
    }
    ck_assert(station_wait_until(pair.a, is_all_consumed, pair.a));
    const uint64_t before = station_stats(pair.b).acks_sent;
    ck_assert(station_wait_ticks(pair.b, 100));
    ck_assert_uint_le(station_stats(pair.b).acks_sent, before + 20); /* not with each tick */
    station_pair_close(&pair);
}
END_TEST

START_TEST(replies_and_control_take_no_room)
{
    const StationPair pair = station_pair_join(&small_window);

    for (uint64_t i = 0; i < 300; i++)
        network_send(pair.a->network, 1,
                     station_frame(i % 2 ? MESSAGE_REPLY : MESSAGE_CONTROL, i, 1000));
    ck_assert(network_has_room(pair.a->network, 1));
    for (uint64_t i = 0; i < 300; i++)
        station_expect(pair.b, i % 2 ? MESSAGE_REPLY : MESSAGE_CONTROL, i, 1000);
    station_pair_close(&pair);
}
END_TEST

START_TEST(message_larger_than_the_window_passes)
{
    const StationPair pair = station_pair_join(&small_window);

    for (uint64_t i = 0; i < 3; i++) {
        ck_assert(network_wait_room(pair.a->network, 1, NULL, NULL, PATIENCE_MS));
        network_send(pair.a->network, 1, station_frame(MESSAGE_ADD, i, 300000));
        ck_assert(!network_has_room(pair.a->network, 1));
        station_expect(pair.b, MESSAGE_ADD, i, 300000);
    }
    station_pair_close(&pair);
}
END_TEST

typedef struct {
    Network *network;
    _Atomic bool cancelled;
    bool room;
} Waiter;

static bool is_cancelled(void *user)
{
    return atomic_load(&((Waiter *)user)->cancelled);
}

static void *wait_room(void *data)
{
    Waiter *const waiter = data;

    waiter->room = network_wait_room(waiter->network, 1, is_cancelled, waiter, -1);
    return NULL;
}

typedef enum {
    ENDING_BY_CANCELLING,
    ENDING_BY_STOPPING,
    ENDING_BY_FORGETTING,
    ENDING_BY_CONSUMING
} Ending;

START_TEST(waiting_for_room_ends)
{
    const StationPair pair = station_pair_join(&small_window);
    Waiter waiter = { .network = pair.a->network };
    pthread_t thread;

    fill_window(&pair);
    ck_assert_int_eq(pthread_create(&thread, NULL, wait_room, &waiter), 0);
    ck_assert(station_wait_ticks(pair.a, 2));
    switch ((Ending)_i) {
    case ENDING_BY_CANCELLING:
        atomic_store(&waiter.cancelled, true);
        network_wake_waiters(pair.a->network);
        break;
    case ENDING_BY_STOPPING:
        network_stop(pair.a->network);
        break;
    case ENDING_BY_FORGETTING:
        network_forget(pair.a->network, 1);
        break;
    case ENDING_BY_CONSUMING:
        while (!network_has_room(pair.a->network, 1)) {
            Incoming *const incoming = station_take(pair.b, 10);
            incoming_free(incoming);
        }
        break;
    }
    pthread_join(thread, NULL);
    ck_assert_int_eq(waiter.room, _i == ENDING_BY_FORGETTING || _i == ENDING_BY_CONSUMING);
    station_pair_close(&pair);
}
END_TEST

START_TEST(memory_stays_bounded_with_a_fast_producer)
{
    enum { N = 3000 };
    const StationPair pair = station_pair_join(&small_window);
    uint64_t most = 0;

    for (uint64_t i = 0, n_taken = 0; i < N; i++) {
        while (!network_has_room(pair.a->network, 1))
            if (n_taken < i) /* otherwise the news of it is on its way */
                station_expect(pair.b, MESSAGE_ADD, n_taken++, 1000);
        network_send(pair.a->network, 1, station_frame(MESSAGE_ADD, i, 1000));
        const uint64_t unacked_bytes = station_stats(pair.a).unacked_bytes;
        most = MAX(most, unacked_bytes);
    }
    ck_assert_uint_le(most, small_window.window_bytes + 100000);
    station_pair_close(&pair);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("network window");
    TCase *const room = tcase_create("room");

    tcase_add_test(room, producer_has_no_room_until_the_consumer_has_done_with_messages);
    tcase_add_test(room, what_was_consumed_is_told_once);
    tcase_add_test(room, replies_and_control_take_no_room);
    tcase_add_test(room, in_shared_memory_less_is_under_way_once_tables_have_replicas);
    tcase_add_test(room, message_larger_than_the_window_passes);
    tcase_add_loop_test(room, waiting_for_room_ends, ENDING_BY_CANCELLING, ENDING_BY_CONSUMING + 1);
    tcase_add_test(room, memory_stays_bounded_with_a_fast_producer);
    tcase_set_timeout(room, 60);
    suite_add_tcase(suite, room);
    return run_suite(suite);
}
