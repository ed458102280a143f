/* Networks over real sockets: several nodes in one process. */
#include <dirent.h>
#include <rubato/error.h>
#include <sched.h>

#include "io/net/transport/transport_ops.h"
#include "tests/support/network/station_pair.h"
#include "tests/support/runner.h"

#define PATIENCE_MS STATION_PATIENCE_MS

START_TEST(messages_of_all_sizes_arrive_whole_and_in_order)
{
    static const size_t sizes[] = { 0, 1, 7, 8, 9, 100, 5000, 8200, 20000, 70000, 3000001, 3 };
    const StationPair pair = station_pair_join(NULL);

    for (uint64_t i = 0; i < G_N_ELEMENTS(sizes); i++)
        network_send(pair.a->network, 1, station_frame(MESSAGE_ADD, i, sizes[i]));
    for (uint64_t i = 0; i < G_N_ELEMENTS(sizes); i++)
        station_expect(pair.b, MESSAGE_ADD, i, sizes[i]);
    station_pair_close(&pair);
}
END_TEST

START_TEST(message_keeps_its_header_and_its_keys_and_values_are_aligned)
{
    const WireHeader header = {
        .kind = MESSAGE_CLOCK,
        .epoch = 2,
        .clock = { .table = 3, .source = 4, .clock = 5, .node_clock = 6, .slowest = 7 },
    };
    const NetworkConfig config = { .room_bytes = 40 };
    const StationPair pair = station_pair_join(&config);

    network_push(pair.a->network, 1, frame_new(&header));
    for (uint64_t i = 0; i < 5; i++)
        network_push(pair.a->network, 1, station_frame(MESSAGE_GET, i, 3 + i));
    network_flush(pair.a->network, 1);

    Incoming *incoming = station_take(pair.b, PATIENCE_MS);
    ck_assert_ptr_nonnull(incoming);
    ck_assert_uint_eq(incoming->node, 0);
    ck_assert_ptr_null(incoming->keys);
    ck_assert_ptr_null(incoming->values);
    ck_assert_uint_eq(incoming->header.epoch, 2);
    ck_assert_uint_eq(incoming->header.clock.table, 3);
    ck_assert_uint_eq(incoming->header.clock.source, 4);
    ck_assert_uint_eq(incoming->header.clock.clock, 5);
    ck_assert_uint_eq(incoming->header.clock.node_clock, 6);
    ck_assert_uint_eq(incoming->header.clock.slowest, 7);
    incoming_free(incoming);
    for (uint64_t i = 0; i < 5; i++) {
        incoming = station_take(pair.b, PATIENCE_MS);
        ck_assert(station_is(incoming, MESSAGE_GET, i, 3 + i));
        ck_assert_uint_eq((uintptr_t)incoming->keys % 8, 0);
        ck_assert_uint_eq((uintptr_t)incoming->values % 8, 0);
        ck_assert_uint_eq((uintptr_t)incoming->room % 16, 0);
        memset(incoming->room, 0xee, config.room_bytes);
        incoming_free(incoming);
    }
    incoming_free(NULL);
    station_pair_close(&pair);
}
END_TEST

START_TEST(frames_pushed_before_a_flush_share_a_packet)
{
    const StationPair pair = station_pair_join(NULL);

    const NetworkStats before = station_stats(pair.a);
    for (uint64_t i = 0; i < 100; i++)
        network_push(pair.a->network, 1, station_frame(MESSAGE_ADD, i, 100));
    network_flush(pair.a->network, 1);
    for (uint64_t i = 0; i < 100; i++)
        station_expect(pair.b, MESSAGE_ADD, i, 100);
    const NetworkStats after = station_stats(pair.a);
    ck_assert_uint_eq(after.messages_sent[MESSAGE_ADD] - before.messages_sent[MESSAGE_ADD], 100);
    /* The I/O thread also sends queued frames when it has other news for the peer, so it may have
     * taken some of them. How often depends on the kernel's scheduling. */
    ck_assert_uint_le(
        after.packets_sent - before.packets_sent - (after.acks_sent - before.acks_sent), 20);
    ck_assert_uint_eq(station_stats(pair.b).messages_received[MESSAGE_ADD], 100);
    station_pair_close(&pair);
}
END_TEST

/* The I/O thread sends them, without a tick and without another flush. */
static bool has_sent_many(void *station)
{
    return station_stats(station).messages_sent[MESSAGE_ADD] == 40;
}

/* The receiver is held in the first message while the others come, so they are all there for one
 * batch. */
START_TEST(handler_that_has_enough_ends_the_batch)
{
    const NetworkConfig config = { .joined_bytes = 1 };
    const StationPair pair = station_pair_join(&config);

    pthread_mutex_lock(&pair.b->lock);
    pair.b->most_taken = 3;
    pthread_mutex_unlock(&pair.b->lock);
    station_hold(pair.b, true);
    for (uint64_t i = 0; i < 40; i++)
        network_send(pair.a->network, 1, station_frame(MESSAGE_ADD, i, 100));
    ck_assert(station_wait_until(pair.a, has_sent_many, pair.a));
    station_hold(pair.b, false);
    for (uint64_t i = 0; i < 40; i++)
        station_expect(pair.b, MESSAGE_ADD, i, 100);
    pthread_mutex_lock(&pair.b->lock);
    ck_assert_uint_le(pair.b->longest_batch, 3);
    pthread_mutex_unlock(&pair.b->lock);
    station_pair_close(&pair);
}
END_TEST

START_TEST(frames_that_have_time_are_sent_soon)
{
    const NetworkConfig config = { .tick_ms = 10 * PATIENCE_MS };
    const StationPair pair = station_pair_join(&config);

    for (uint64_t i = 0; i < 50; i++) {
        network_push(pair.a->network, 1, station_frame(MESSAGE_ADD, i, 100));
        network_flush_soon(pair.a->network, 1);
        if (i % 10 == 0)
            station_expect(pair.b, MESSAGE_ADD, i, 100);
        if (i % 10 == 9)
            for (uint64_t k = i - 8; k <= i; k++)
                station_expect(pair.b, MESSAGE_ADD, k, 100);
    }
    network_flush_soon(pair.a->network, 1); /* nothing is left to send */
    station_pair_close(&pair);
}
END_TEST

/* One flush sends some megabytes. Nothing comes from the other side, there is no tick, and no other
 * flush. */
START_TEST(what_one_flush_leaves_the_io_thread_sends)
{
    enum { N = 20, N_BYTES = 1 << 20 };
    const NetworkConfig config = { .window_bytes = (size_t)64 << 20,
                                   .out_bytes = (size_t)64 << 20,
                                   .tick_ms = 10 * PATIENCE_MS,
                                   .resend_ms = 10 * PATIENCE_MS,
                                   .stop_ms = 100 };
    const StationPair pair = station_pair_open(&config);
    const NetworkPeer peers[] = { station_peer(pair.a, 0), station_peer(pair.b, 1) };

    ck_assert(network_join(pair.a->network, STATION_RUN_ID, peers, NULL)); /* b never joins */
    for (uint64_t i = 0; i < N; i++)
        network_push(pair.a->network, 1, station_frame(MESSAGE_ADD, i, N_BYTES));
    network_flush(pair.a->network, 1);
    while (station_stats(pair.a).bytes_sent < (uint64_t)N * N_BYTES) /* or the case times out */
        sched_yield();
    station_pair_close(&pair);
}
END_TEST

/* Threads that all push for the same node. */
enum { N_PUSHERS = 6, N_PUSHES = 2000 };

typedef struct {
    Network *network;
    uint64_t number;
} Pusher;

static void *push(void *data)
{
    const Pusher *const pusher = data;

    for (uint64_t i = 0; i < N_PUSHES; i++) {
        network_push(
            pusher->network, 1,
            station_frame(MESSAGE_REPLY, pusher->number * N_PUSHES + i, i % 7 == 0 ? 3000 : 8));
        if (i % 3 != 0 || i + 1 == N_PUSHES)
            network_flush(pusher->network, 1);
    }
    return NULL;
}

START_TEST(each_thread_has_its_frames_arrive_in_its_own_order)
{
    const StationPair pair = station_pair_join(NULL);
    pthread_t threads[N_PUSHERS];
    Pusher pushers[N_PUSHERS];
    uint64_t next[N_PUSHERS] = { 0 };

    for (uint64_t i = 0; i < N_PUSHERS; i++) {
        pushers[i] = (Pusher){ pair.a->network, i };
        ck_assert_int_eq(pthread_create(&threads[i], NULL, push, &pushers[i]), 0);
    }
    for (unsigned i = 0; i < N_PUSHERS * N_PUSHES; i++) {
        Incoming *const incoming = station_take(pair.b, PATIENCE_MS);
        ck_assert_ptr_nonnull(incoming);
        const uint64_t pusher = station_number(incoming) / N_PUSHES;
        const uint64_t number = station_number(incoming) % N_PUSHES;
        ck_assert_uint_eq(number, next[pusher]);
        next[pusher]++;
        ck_assert(station_is(incoming, MESSAGE_REPLY, station_number(incoming),
                             number % 7 == 0 ? 3000 : 8));
        incoming_free(incoming);
    }
    for (unsigned i = 0; i < N_PUSHERS; i++)
        pthread_join(threads[i], NULL);
    ck_assert(station_wait_until(pair.a, station_all_acknowledged, pair.a));
    station_pair_close(&pair);
}
END_TEST

START_TEST(answers_come_back)
{
    enum { ACK_DELAY_MS = 5 };                           /* io/net/link/link.c */
    const NetworkConfig config = { .resend_ms = 60000 }; /* a slow machine makes no duplicates */
    const StationPair pair = station_pair_open(&config);

    pair.b->echoes = true;
    const int64_t begun_ms = network_now_ms();
    stations_join((Station *const[]){ pair.a, pair.b }, 2);
    for (uint64_t i = 0; i < 300; i++) {
        network_send(pair.a->network, 1, station_frame(MESSAGE_GET, i, 50));
        station_expect(pair.a, MESSAGE_REPLY, i, 50);
    }
    /* Acknowledgements went along with requests and replies. One goes alone only when nothing has
     * taken it along for a while. */
    const NetworkStats stats = station_stats(pair.a);
    const uint64_t n_whiles = (uint64_t)(network_now_ms() - begun_ms) / ACK_DELAY_MS;
    ck_assert_uint_le(stats.acks_sent, 20 + n_whiles);
    ck_assert_uint_eq(stats.duplicates_dropped, 0);
    ck_assert(station_wait_until(pair.a, station_all_acknowledged, pair.a));
    ck_assert(station_wait_until(pair.b, station_all_acknowledged, pair.b));
    station_pair_close(&pair);
}
END_TEST

START_TEST(every_node_reaches_every_other)
{
    enum { N = 4 };
    Station *stations[N];

    for (uint32_t i = 0; i < N; i++)
        stations[i] = station_new(i, N, NULL);
    stations_join(stations, N);
    for (uint32_t from = 0; from < N; from++)
        for (uint32_t to = 0; to < N; to++)
            if (to != from)
                network_send(stations[from]->network, to, station_frame(MESSAGE_CONTROL, from, 10));
    for (uint32_t to = 0; to < N; to++) {
        unsigned seen = 1u << to;
        for (uint32_t i = 0; i < N - 1; i++) {
            Incoming *const incoming = station_take(stations[to], PATIENCE_MS);
            ck_assert_ptr_nonnull(incoming);
            ck_assert(station_is(incoming, MESSAGE_CONTROL, incoming->node, 10));
            seen |= 1u << incoming->node;
            incoming_free(incoming);
        }
        ck_assert_uint_eq(seen, (1u << N) - 1);
    }
    for (uint32_t i = 0; i < N; i++)
        station_free(stations[i]);
}
END_TEST

START_TEST(who_joins_late_misses_nothing)
{
    const NetworkConfig config = { .resend_ms = 60000 }; /* nothing is sent again by itself */
    const StationPair pair = station_pair_open(&config);
    const NetworkPeer peers[] = { station_peer(pair.a, 0), station_peer(pair.b, 1) };

    ck_assert_int_eq(network_heard_ms(pair.a->network, 1), -1);
    ck_assert(network_join(pair.a->network, STATION_RUN_ID, peers, NULL));
    for (uint64_t i = 0; i < 5; i++) { /* one by one, so that no two share a packet */
        network_send(pair.a->network, 1, station_frame(MESSAGE_ADD, i, 10));
        while (station_stats(pair.b).strangers_dropped < i + 1) /* it came too early */
            ck_assert(station_wait_ticks(pair.b, 1));
    }
    ck_assert(network_join(pair.b->network, STATION_RUN_ID, peers, NULL));
    for (uint64_t i = 0; i < 5; i++)
        station_expect(pair.b, MESSAGE_ADD, i, 10);
    ck_assert_int_ge(network_heard_ms(pair.b->network, 0), 0);
    station_pair_close(&pair);
}
END_TEST

START_TEST(stopping_delivers_what_was_pushed_before)
{
    const NetworkConfig config = { .stop_ms = PATIENCE_MS };
    const StationPair pair = station_pair_join(&config);

    for (uint64_t i = 0; i < 1000; i++)
        network_push(pair.a->network, 1, station_frame(MESSAGE_ADD, i, 2000));
    network_stop(pair.a->network);
    network_send(pair.a->network, 1, station_frame(MESSAGE_ADD, 1000, 8)); /* dropped */
    network_stop(pair.a->network);
    for (uint64_t i = 0; i < 1000; i++)
        station_expect(pair.b, MESSAGE_ADD, i, 2000);
    ck_assert_uint_eq(station_stats(pair.a).unacked_packets, 0);
    station_pair_close(&pair);
}
END_TEST

START_TEST(stopping_does_not_wait_for_the_dead_for_ever)
{
    const NetworkConfig config = { .stop_ms = 100 };
    const StationPair pair = station_pair_open(&config);
    const NetworkPeer peers[] = { station_peer(pair.a, 0), station_peer(pair.b, 1) };

    ck_assert(network_join(pair.a->network, STATION_RUN_ID, peers, NULL)); /* b never joins */
    for (uint64_t i = 0; i < 10; i++)
        network_send(pair.a->network, 1, station_frame(MESSAGE_ADD, i, 50000));
    const int64_t before_ms = network_now_ms();
    network_stop(pair.a->network);
    ck_assert_int_ge(network_now_ms() - before_ms, 100);
    ck_assert_int_lt(network_now_ms() - before_ms, PATIENCE_MS);
    station_pair_close(&pair);
}
END_TEST

START_TEST(forgotten_node_is_neither_sent_to_nor_heard)
{
    const StationPair pair = station_pair_join(NULL);

    network_send(pair.b->network, 0, station_frame(MESSAGE_ADD, 1, 8));
    station_expect(pair.a, MESSAGE_ADD, 1, 8);
    network_forget(pair.a->network, 1);
    network_forget(pair.a->network, 1);
    ck_assert_int_eq(network_peer_state(pair.a->network, 1), NETWORK_PEER_FORGOTTEN);
    ck_assert_uint_eq(station_stats(pair.a).unacked_packets, 0);
    network_send(pair.a->network, 1, station_frame(MESSAGE_ADD, 2, 8));
    network_push(pair.a->network, 1, station_frame(MESSAGE_ADD, 3, 8));
    const uint64_t strangers = station_stats(pair.a).strangers_dropped;
    network_send(pair.b->network, 0, station_frame(MESSAGE_ADD, 4, 8));
    while (station_stats(pair.a).strangers_dropped == strangers)
        ck_assert(station_wait_ticks(pair.a, 1));
    ck_assert_ptr_null(station_take(pair.a, 0));
    ck_assert_ptr_null(station_take(pair.b, 0));
    network_stop(pair.a->network);
    station_pair_close(&pair);
}
END_TEST

START_TEST(connection_of_a_peer_is_known)
{
    const NetworkConfig config = { .stop_ms = 50 };
    StationPair pair = station_pair_open(&config);

    ck_assert_int_eq(network_peer_state(pair.a->network, 1), NETWORK_PEER_UNKNOWN);
    stations_join((Station *const[]){ pair.a, pair.b }, 2);
    while (network_peer_state(pair.a->network, 1) != NETWORK_PEER_CONNECTED)
        ck_assert(station_wait_ticks(pair.a, 1));
    station_free(pair.b);
    while (network_peer_state(pair.a->network, 1) != NETWORK_PEER_DISCONNECTED)
        ck_assert(station_wait_ticks(pair.a, 1));
    ck_assert_int_eq(network_peer_state(pair.a->network, 0), NETWORK_PEER_UNKNOWN);
    for (NetworkPeerState state = NETWORK_PEER_UNKNOWN; state <= NETWORK_PEER_FORGOTTEN; state++)
        ck_assert_str_ne(network_peer_state_name(state), "?");
    ck_assert_str_eq(network_peer_state_name((NetworkPeerState)99), "?");
    station_free(pair.a);
}
END_TEST

START_TEST(waking_brings_a_tick)
{
    const NetworkConfig config = { .tick_ms = 600000 };
    Station *const station = station_new(0, 1, &config);

    for (unsigned i = 0; i < 3; i++) {
        pthread_mutex_lock(&station->lock);
        const uint64_t before = station->n_ticks;
        pthread_mutex_unlock(&station->lock);
        network_wake(station->network);
        pthread_mutex_lock(&station->lock);
        while (station->n_ticks == before) /* or the case times out */
            pthread_cond_wait(&station->changed, &station->lock);
        pthread_mutex_unlock(&station->lock);
    }
    station_free(station);
}
END_TEST

START_TEST(hearing_of_a_node_is_noted)
{
    const StationPair pair = station_pair_join(NULL);
    const int64_t before_ms = network_now_ms();

    while (network_now_ms() == before_ms)
        ck_assert(station_wait_ticks(pair.a, 1));
    network_send(pair.b->network, 0, station_frame(MESSAGE_CONTROL, 1, 8));
    station_expect(pair.a, MESSAGE_CONTROL, 1, 8);
    ck_assert_int_gt(network_heard_ms(pair.a->network, 1), before_ms);
    ck_assert_int_eq(network_heard_ms(pair.a->network, 0), -1); /* oneself */
    ck_assert_int_eq(network_heard_ms(pair.a->network, 7), -1);
    station_pair_close(&pair);
}
END_TEST

START_TEST(endpoint_that_makes_no_sense_opens_no_link)
{
    Station *const station = station_new(0, 3, NULL);
    const NetworkPeer peers[] = { { 0 },
                                  { .endpoint = "tcp://127.0.0.1:1", .incarnation = 1 },
                                  { .endpoint = "mars", .incarnation = 2 } };
    GError *error = NULL;

    ck_assert(!network_join(station->network, 1, peers, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK));
    ck_assert_int_eq(network_heard_ms(station->network, 1), -1);
    g_error_free(error);
    station_free(station);
}
END_TEST

START_TEST(network_that_cannot_open_says_why)
{
    Station *const station = station_new(0, 1, NULL);
    const char *const busy[] = { "tcp://127.0.0.1:0", network_endpoint(station->network, 0) };
    const NetworkHandler handler = { .receive = (void (*)(void *, Incoming *))abort,
                                     .greeted = (void (*)(void *, uint16_t, GVariant *,
                                                          const GreetingSource *))abort,
                                     .tick = (void (*)(void *, int64_t))abort };
    GError *error = NULL;

    ck_assert_ptr_null(
        network_new(&(NetworkConfig){ .n_nodes = 1, .bind_endpoints = busy, .n_bind_endpoints = 2 },
                    &handler, NULL, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK));
    ck_assert_ptr_nonnull(strstr(error->message, busy[1]));
    g_clear_error(&error);
    ck_assert_ptr_null(network_new(&(NetworkConfig){ .transport = "pigeon", .n_nodes = 1 },
                                   &handler, NULL, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND));
    g_clear_error(&error);
    network_free(NULL);
    station_free(station);
}
END_TEST

START_TEST(several_endpoints_lead_to_one_network)
{
    static const char *const endpoints[] = { "tcp://127.0.0.1:0", "tcp://127.0.0.1:0" };
    const NetworkConfig config = { .bind_endpoints = endpoints, .n_bind_endpoints = 2 };
    Station *const b = station_new(1, 2, &config), *const a = station_new(0, 2, NULL);

    ck_assert_str_ne(network_endpoint(b->network, 0), network_endpoint(b->network, 1));
    for (size_t i = 0; i < 2; i++) {
        ck_assert(network_greet(a->network, network_endpoint(b->network, i), g_variant_new("i", i),
                                NULL));
        StationGreeting *const greeting = station_take_greeting(b, PATIENCE_MS);
        ck_assert_ptr_nonnull(greeting);
        station_greeting_free(greeting);
    }
    station_free(a);
    station_free(b);
}
END_TEST

static unsigned entries_of(const char *path)
{
    DIR *const directory = opendir(path);
    unsigned n = 0;

    while (readdir(directory) != NULL)
        n++;
    closedir(directory);
    return n;
}

/* Threads of the library, which have names of their own. A sanitizer's have the program's, and come
 * when it likes. */
static unsigned named_threads(void)
{
    g_autofree char *own = NULL;
    GDir *const tasks = g_dir_open("/proc/self/task", 0, NULL);
    const char *task;
    unsigned n = 0;

    ck_assert(g_file_get_contents("/proc/self/comm", &own, NULL, NULL));
    while ((task = g_dir_read_name(tasks)) != NULL) {
        g_autofree char *path = g_strdup_printf("/proc/self/task/%s/comm", task);
        g_autofree char *name = NULL;

        n += g_file_get_contents(path, &name, NULL, NULL) && strcmp(name, own) != 0;
    }
    g_dir_close(tasks);
    return n;
}

START_TEST(network_leaves_neither_threads_nor_descriptors)
{
    unsigned n_fds = 0;

    for (unsigned i = 0; i < 5; i++) {
        const StationPair pair = station_pair_join(NULL);
        network_send(pair.a->network, 1, station_frame(MESSAGE_ADD, i, 8));
        station_expect(pair.b, MESSAGE_ADD, i, 8);
        ck_assert_uint_ge(named_threads(), 2);
        station_pair_close(&pair);
        if (i == 0)
            n_fds = entries_of("/proc/self/fd");
    }
    while (named_threads() > 0) /* one that was joined leaves the list a little later */
        sched_yield();
    ck_assert_uint_eq(entries_of("/proc/self/fd"), n_fds);
}
END_TEST

int main(void)
{
    /* Some cases are about addresses of TCP. */
    const bool over_tcp = g_getenv("RUBATO_TEST_TRANSPORT") == NULL;
    Suite *const suite = suite_create("network");
    TCase *const messages = tcase_create("messages");
    TCase *const life = tcase_create("life");
    TCase *const cases[] = { messages, life };

    tcase_add_test(messages, messages_of_all_sizes_arrive_whole_and_in_order);
    tcase_add_test(messages, message_keeps_its_header_and_its_keys_and_values_are_aligned);
    tcase_add_test(messages, frames_pushed_before_a_flush_share_a_packet);
    tcase_add_test(messages, handler_that_has_enough_ends_the_batch);
    tcase_add_test(messages, frames_that_have_time_are_sent_soon);
    tcase_add_test(messages, what_one_flush_leaves_the_io_thread_sends);
    tcase_add_test(messages, each_thread_has_its_frames_arrive_in_its_own_order);
    tcase_add_test(messages, answers_come_back);
    tcase_add_test(messages, every_node_reaches_every_other);
    tcase_add_test(messages, who_joins_late_misses_nothing);
    tcase_add_test(life, stopping_delivers_what_was_pushed_before);
    tcase_add_test(life, stopping_does_not_wait_for_the_dead_for_ever);
    tcase_add_test(life, forgotten_node_is_neither_sent_to_nor_heard);
    tcase_add_test(life, connection_of_a_peer_is_known);
    tcase_add_test(life, waking_brings_a_tick);
    tcase_add_test(life, hearing_of_a_node_is_noted);
    tcase_add_test(life, endpoint_that_makes_no_sense_opens_no_link);
    tcase_add_test(life, network_that_cannot_open_says_why);
    if (over_tcp)
        tcase_add_test(life, several_endpoints_lead_to_one_network);
    tcase_add_test(life, network_leaves_neither_threads_nor_descriptors);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        tcase_set_timeout(cases[i], 60);
        suite_add_tcase(suite, cases[i]);
    }
    return run_suite(suite);
}
