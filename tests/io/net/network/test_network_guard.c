/* The guard of the I/O thread while the helper is away: when it begins, and that it ends. How those
 * look that wait. */
#include <sched.h>

#include "io/net/network/network_private.h"
#include "tests/support/network/station_pair.h"
#include "tests/support/runner.h"

#define PATIENCE_MS STATION_PATIENCE_MS

/* Nothing happens with a tick. */
static const NetworkConfig config = { .tick_ms = 10 * PATIENCE_MS, .resend_ms = 10 * PATIENCE_MS };

/* A helper comes, soon after one has left or long after that, and leaves. Returns whether it leaves
 * to the guard. */
static bool help(Network *network, bool is_soon, bool *begins)
{
    network->guard.left_ns = is_soon ? INT64_MAX / 2 : INT64_MIN / 2;
    network_note_help(network);
    return network_leave_to_guard(network, begins);
}

/* Has guard stood by the I/O thread of a, as after several helpers. */
static void begin_guard(Network *network)
{
    bool begins;

    pthread_mutex_lock(&network->receiving);
    network->guard.n_wanted = 1;
    ck_assert(help(network, /* is_soon= */ true, &begins));
    ck_assert(begins);
    pthread_mutex_unlock(&network->receiving);
    network_wake_io_thread(network);
}

START_TEST(guard_begins_once_helpers_have_come_back_soon_several_times)
{
    Station *const station = station_new(0, 2, &config);
    Network *const network = station->network;
    bool begins;

    pthread_mutex_lock(&network->receiving); /* so the I/O thread does not end the guard */
    const uint32_t n = network->guard.n_wanted;
    ck_assert_uint_gt(n, 1);
    for (uint32_t i = 0; i < 2 * n; i++) /* long absences in between */
        ck_assert(!help(network, /* is_soon= */ i % n != n - 1, &begins) && !begins);
    for (uint32_t i = 0; i < n - 1; i++)
        ck_assert(!help(network, /* is_soon= */ true, &begins) && !begins);
    ck_assert(help(network, /* is_soon= */ true, &begins) && begins);
    ck_assert(help(network, /* is_soon= */ true, &begins) && !begins);
    ck_assert(!help(network, /* is_soon= */ false, &begins));
    pthread_mutex_unlock(&network->receiving);
    network_wake_io_thread(network);
    station_free(station);
}
END_TEST

START_TEST(long_absence_sets_back_by_several_prompt_returns_not_by_all)
{
    Station *const station = station_new(0, 2, &config);
    Network *const network = station->network;
    bool begins;

    pthread_mutex_lock(&network->receiving);
    const uint32_t n = network->guard.n_wanted;
    for (uint32_t i = 0; i < 4 * n; i++)
        (void)help(network, /* is_soon= */ true, &begins);
    ck_assert(help(network, /* is_soon= */ false, &begins));
    for (uint32_t i = 0; i < 4 * n; i++) /* and many by all */
        (void)help(network, /* is_soon= */ false, &begins);
    ck_assert(!help(network, /* is_soon= */ true, &begins));
    pthread_mutex_unlock(&network->receiving);
    network_wake_io_thread(network);
    station_free(station);
}
END_TEST

/* Others have the processor in between. */
START_TEST(absences_may_be_longer_where_nodes_take_turns_on_a_processor)
{
    int64_t most_ns = 0, most_shared_ns = 0;

    for (int64_t ns = 1000; ns < 10000000; ns += 1000) {
        most_ns = network_guard_is_prompt(ns, 1) ? ns : most_ns;
        most_shared_ns = network_guard_is_prompt(ns, 2) ? ns : most_shared_ns;
    }
    ck_assert_int_gt(most_ns, 0);
    ck_assert_int_gt(most_shared_ns, 2 * most_ns);
    ck_assert_int_lt(most_shared_ns, 1000000);
    ck_assert(network_guard_is_prompt(most_shared_ns + 1000, 3));
}
END_TEST

START_TEST(guard_that_lasted_was_worth_it)
{
    Guard guard;

    network_guard_init(&guard);
    const uint32_t n = guard.n_wanted;
    network_guard_note_vain(&guard, 0);
    ck_assert_uint_eq(guard.n_wanted, 2 * n);
    network_guard_note_vain(&guard, 1000 * 1000);
    ck_assert_uint_eq(guard.n_wanted, 4 * n);
    network_guard_note_vain(&guard, 1000 * 1000 * 1000);
    ck_assert_uint_eq(guard.n_wanted, 2 * n);
    network_guard_note_vain(&guard, 1000 * 1000 * 1000);
    network_guard_note_vain(&guard, 1000 * 1000 * 1000);
    ck_assert_uint_eq(guard.n_wanted, n); /* and not less */
}
END_TEST

START_TEST(periods_of_a_guard_are_a_small_part_of_the_time_that_it_has_stood)
{
    const int64_t least_ns = network_guard_period_ns(0);

    ck_assert_int_gt(least_ns, 0);
    for (int64_t stood_ns = 1; stood_ns < INT64_MAX / 4; stood_ns *= 2) {
        const int64_t ns = network_guard_period_ns(stood_ns);

        ck_assert_int_ge(ns, least_ns);
        ck_assert_int_le(ns, MAX(least_ns, stood_ns / 10));
        ck_assert_int_le(ns, 2 * 1000 * 1000);
    }
    ck_assert_int_gt(network_guard_period_ns(INT64_MAX), 5 * least_ns);
}
END_TEST

static void receive(void *user, Incoming *incoming)
{
    (void)user;
    (void)incoming;
    ck_abort_msg("nobody sends");
}

static void greet(void *user, uint16_t version, GVariant *body, const GreetingSource *source)
{
    (void)user;
    (void)version;
    (void)body;
    (void)source;
    ck_abort_msg("nobody sends");
}

static void tick(void *user, int64_t now_ms)
{
    (void)user;
    (void)now_ms;
}

/* There is no I/O thread: this one does what it would do. */
START_TEST(lock_that_a_helper_has_is_not_waited_for_while_there_is_a_guard)
{
    const NetworkHandler handler = { .receive = receive, .greeted = greet, .tick = tick };
    Network *const network = network_new(&(NetworkConfig){ .n_nodes = 2 }, &handler, NULL, NULL);
    unsigned n_tries = 0;

    ck_assert_ptr_nonnull(network);
    ck_assert(network_take_turn(network)); /* the lock is free, now and below */
    pthread_mutex_unlock(&network->receiving);
    atomic_store(&network->guard.stands, true);
    atomic_store(&network->helping, true);
    ck_assert(network_take_turn(network));
    while (!network_take_turn(network)) { /* it is taken */
        ck_assert(network_is_guarded(network));
        if (++n_tries == 3)
            pthread_mutex_unlock(&network->receiving);
    }
    ck_assert_uint_eq(n_tries, 3);
    ck_assert_uint_eq(network->guard.n_tries, 0);
    pthread_mutex_unlock(&network->receiving);
    network_free(network);
}
END_TEST

START_TEST(what_comes_is_taken_though_the_helper_stays_away)
{
    const StationPair pair = station_pair_join(&config);

    for (uint64_t i = 0; i < 10; i++) {
        begin_guard(pair.a->network);
        network_send(pair.b->network, 0, station_frame(MESSAGE_ADD, i, 100));
        station_expect(pair.a, MESSAGE_ADD, i, 100);
        while (network_is_guarded(pair.a->network)) /* or the case times out */
            sched_yield();
        pthread_mutex_lock(&pair.a->network->receiving);
        ck_assert_uint_eq(pair.a->network->guard.n_wanted, 2); /* it has ended in vain */
        pthread_mutex_unlock(&pair.a->network->receiving);
    }
    station_pair_close(&pair);
}
END_TEST

START_TEST(what_is_left_for_later_is_sent_though_the_helper_stays_away)
{
    const StationPair pair = station_pair_join(&config);

    for (uint64_t i = 0; i < 10; i++) {
        begin_guard(pair.a->network);
        network_push(pair.a->network, 1, station_frame(MESSAGE_ADD, 2 * i, 100));
        network_flush_soon(pair.a->network, 1);
        network_push(pair.a->network, 1, station_frame(MESSAGE_ADD, 2 * i + 1, 100));
        network_flush_later(pair.a->network, 1);
        station_expect(pair.b, MESSAGE_ADD, 2 * i, 100);
        station_expect(pair.b, MESSAGE_ADD, 2 * i + 1, 100);
        while (network_is_guarded(pair.a->network))
            sched_yield();
    }
    /* without a guard it is sent at once */
    network_push(pair.a->network, 1, station_frame(MESSAGE_ADD, 20, 100));
    network_flush_later(pair.a->network, 1);
    station_expect(pair.b, MESSAGE_ADD, 20, 100);
    station_pair_close(&pair);
}
END_TEST

/* The I/O thread ends in time, and sends what was left. */
START_TEST(guard_ends_when_the_network_stops)
{
    const StationPair pair = station_pair_join(&config);

    begin_guard(pair.a->network);
    network_push(pair.a->network, 1, station_frame(MESSAGE_ADD, 1, 100));
    network_flush_later(pair.a->network, 1);
    network_stop(pair.a->network);
    ck_assert(!network_is_guarded(pair.a->network));
    station_expect(pair.b, MESSAGE_ADD, 1, 100);
    station_pair_close(&pair);
}
END_TEST

/* If they are more than its processors, who is waited for may wait for one. */
START_TEST(a_waiter_soon_gives_way_where_a_host_has_more_nodes_than_processors)
{
    const StationPair pair = station_pair_join(&config);
    Network *const network = pair.a->network;
    Spinner spinner;
    bool seen;

    pthread_mutex_lock(&network->receiving);
    ck_assert_uint_eq(network->n_near, network_is_memory(network, 1) ? 2 : 1);
    spinner_init(&spinner);
    network->n_near = 1;
    (void)network_spin(network, &spinner, NULL, &seen);
    ck_assert_uint_gt(spinner.n_looks, 1);
    network->n_near = UINT32_MAX;
    (void)network_spin(network, &spinner, NULL, &seen);
    ck_assert_uint_eq(spinner.n_looks, 1);
    pthread_mutex_unlock(&network->receiving);
    station_pair_close(&pair);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("network_guard");
    TCase *tcase = tcase_create("guard");

    tcase_add_test(tcase, guard_begins_once_helpers_have_come_back_soon_several_times);
    tcase_add_test(tcase, long_absence_sets_back_by_several_prompt_returns_not_by_all);
    tcase_add_test(tcase, absences_may_be_longer_where_nodes_take_turns_on_a_processor);
    tcase_add_test(tcase, guard_that_lasted_was_worth_it);
    tcase_add_test(tcase, periods_of_a_guard_are_a_small_part_of_the_time_that_it_has_stood);
    tcase_add_test(tcase, lock_that_a_helper_has_is_not_waited_for_while_there_is_a_guard);
    tcase_add_test(tcase, what_comes_is_taken_though_the_helper_stays_away);
    tcase_add_test(tcase, what_is_left_for_later_is_sent_though_the_helper_stays_away);
    tcase_add_test(tcase, guard_ends_when_the_network_stops);
    tcase_add_test(tcase, a_waiter_soon_gives_way_where_a_host_has_more_nodes_than_processors);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
