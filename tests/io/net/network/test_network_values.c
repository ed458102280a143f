/* Frames whose values lie with the caller: they arrive as others do, whole and in order, and need
 * not stay where they are. If the network encrypts, they are sealed where they lie; through shared
 * memory they are copied once. */
#include <pthread.h>

#include "tests/support/cluster/outage.h"
#include "tests/support/network/station.h"
#include "tests/support/runner.h"

static const RunSecret SECRET = { { 9, 8, 7 } };

/* Never, as long as a case may take. */
enum { NO_TIMER_MS = 1000000 };

enum { PLAIN, ENCRYPTED, SHARED, N_WAYS };

static const char *const shared[] = { "shm://*" };

static NetworkConfig config_of(int way)
{
    const bool encrypts = way == ENCRYPTED;

    return (NetworkConfig){
        .bind_endpoints = way == SHARED ? shared : NULL,
        .n_bind_endpoints = way == SHARED ? 1 : 0,
        .window_bytes = 64 << 20,
        .resend_ms = NO_TIMER_MS,
        .timeout_ms = 20000,
        .stop_ms = 20000,
        .secret = encrypts ? &SECRET : NULL,
        .encrypt = encrypts,
    };
}

/* As station_frame, but the frame has no values: they are taken from memory that is overwritten as
 * soon as the network has let it go. */
static void push_values(Station *station, uint64_t number, size_t size)
{
    Frame *const frame = station_frame(MESSAGE_REPLY, number, size);
    g_autofree uint8_t *values = g_memdup2(frame_values(frame), size);

    memset(frame_values(frame), 0xee, size);
    network_push_values(station->network, 1, frame, values);
    memset(values, 0xdd, size);
    network_flush(station->network, 1);
}

/* The same for an Add: neither its keys nor its values are in the frame. */
static void push_packed(Station *station, uint64_t number, size_t size)
{
    Frame *const frame = station_frame(MESSAGE_ADD, number, size);
    const size_t n_bytes = (size_t)frame_header(frame)->key_bytes + (size + 7) / 8 * 8;
    g_autofree uint8_t *packed = g_malloc0(n_bytes);

    memcpy(packed, frame_keys(frame), (size_t)frame_header(frame)->key_bytes);
    memcpy(packed + frame_header(frame)->key_bytes, frame_values(frame), size);
    memset(frame_keys(frame), 0xee, n_bytes);
    network_push_packed(station->network, 1, frame, packed);
    memset(packed, 0xdd, n_bytes);
    network_flush(station->network, 1);
}

static void expect_kind(Station *station, MessageKind kind, uint64_t number, size_t size)
{
    Incoming *const incoming = station_take(station, STATION_PATIENCE_MS);

    ck_assert_msg(incoming != NULL, "message %u is missing", (unsigned)number);
    ck_assert_msg(station_is(incoming, kind, number, size), "%u came in place of %u",
                  (unsigned)station_number(incoming), (unsigned)number);
    incoming_free(incoming);
}

static void expect_next(Station *station, uint64_t number, size_t size)
{
    expect_kind(station, MESSAGE_REPLY, number, size);
}

static const size_t sizes[] = { 512 << 10, 8, 64, 65536, 16, 262152, 100000, 3 << 20, 1 << 20, 24 };

/* _i: the way. Large ones between small ones, with values in their frames or elsewhere; the first
 * are sent before there is a connection. */
START_TEST(values_arrive_whole_and_in_order)
{
    enum { N = 90 };
    const NetworkConfig config = config_of(_i);
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);

    stations_join((Station *const[]){ a, b }, 2);
    for (uint64_t i = 0; i < N; i++) {
        const size_t size = sizes[i % G_N_ELEMENTS(sizes)];
        if (i % 4 == 3)
            network_push(a->network, 1, station_frame(MESSAGE_REPLY, i, size));
        else
            push_values(a, i, size);
        if (i >= 40)
            expect_next(b, i - 40, sizes[(i - 40) % G_N_ELEMENTS(sizes)]);
    }
    network_flush(a->network, 1);
    for (uint64_t i = N - 40; i < N; i++)
        expect_next(b, i, sizes[i % G_N_ELEMENTS(sizes)]);
    station_free(a);
    station_free(b);
}
END_TEST

static const size_t packed_sizes[] = { 20004, 60000, 4, 131068, 40012, 1 << 20 };

/* _i: the way. Values of each length, so that some need padding; the link lets little out. */
START_TEST(packed_keys_and_values_arrive_whole_and_in_order)
{
    enum { N = 30 };
    NetworkConfig config = config_of(_i);

    config.out_bytes = 100000;
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);
    stations_join((Station *const[]){ a, b }, 2);
    for (uint64_t i = 0; i < N; i++) {
        const size_t size = packed_sizes[i % G_N_ELEMENTS(packed_sizes)];

        ck_assert_int_eq(network_takes_packed(a->network, 1, size), _i == SHARED && size > 4);
        if (i % 5 == 4)
            network_push(a->network, 1, station_frame(MESSAGE_ADD, i, size));
        else
            push_packed(a, i, size);
    }
    network_flush(a->network, 1);
    for (uint64_t i = 0; i < N; i++)
        expect_kind(b, MESSAGE_ADD, i, packed_sizes[i % G_N_ELEMENTS(packed_sizes)]);
    station_free(a);
    station_free(b);
}
END_TEST

/* _i: encrypted. What was sealed for one connection is sent again on the next one. */
START_TEST(values_arrive_after_connections_broke)
{
    enum { N = 160, BETWEEN = 20, SIZE = 100000 };
    const NetworkConfig config = config_of(_i);
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);
    NetworkStats stats;

    stations_join((Station *const[]){ a, b }, 2);
    for (uint64_t i = 0; i < N; i++) {
        push_values(a, i, SIZE);
        if (i % BETWEEN == BETWEEN / 2)
            (void)outage_reset_connections(2);
        if (i >= BETWEEN)
            expect_next(b, i - BETWEEN, SIZE);
    }
    for (uint64_t i = N - BETWEEN; i < N; i++)
        expect_next(b, i, SIZE);
    network_stats(a->network, &stats);
    ck_assert_uint_gt(stats.packets_resent, 0);
    ck_assert_ptr_null(station_take(b, 0));
    station_free(a);
    station_free(b);
}
END_TEST

/* _i: the way. The link does not let more than a packet out before it is acknowledged. */
START_TEST(values_wait_where_the_link_holds_them_back)
{
    enum { N = 20, SIZE = 70000 };
    NetworkConfig config = config_of(_i);

    config.out_bytes = 1000;
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);
    stations_join((Station *const[]){ a, b }, 2);
    for (uint64_t i = 0; i < N; i++)
        push_values(a, i, SIZE);
    for (uint64_t i = 0; i < N; i++)
        expect_next(b, i, SIZE);
    station_free(a);
    station_free(b);
}
END_TEST

enum { N_THREADS = 3, N_EACH = 30, SIZE_EACH = 80000 };

typedef struct {
    Station *station;
    uint64_t first;
} Pusher;

static void *push_many(void *user)
{
    const Pusher *const pusher = user;

    for (uint64_t i = 0; i < N_EACH; i++)
        push_values(pusher->station, pusher->first + i, SIZE_EACH);
    return NULL;
}

/* _i: the way. Who finds another thread sending leaves a copy to it. */
START_TEST(values_of_several_threads_arrive_each_in_its_order)
{
    const NetworkConfig config = config_of(_i);
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);
    uint64_t next[N_THREADS] = { 0 };
    pthread_t threads[N_THREADS];
    Pusher pushers[N_THREADS];

    stations_join((Station *const[]){ a, b }, 2);
    for (uint64_t i = 0; i < N_THREADS; i++) {
        pushers[i] = (Pusher){ a, i * N_EACH };
        ck_assert_int_eq(pthread_create(&threads[i], NULL, push_many, &pushers[i]), 0);
    }
    for (uint64_t i = 0; i < N_THREADS * N_EACH; i++) {
        Incoming *const incoming = station_take(b, STATION_PATIENCE_MS);
        ck_assert_ptr_nonnull(incoming);
        const uint64_t number = station_number(incoming), thread = number / N_EACH;
        ck_assert_uint_lt(thread, N_THREADS);
        ck_assert_uint_eq(number, thread * N_EACH + next[thread]++);
        ck_assert(station_is(incoming, MESSAGE_REPLY, number, SIZE_EACH));
        incoming_free(incoming);
    }
    for (uint64_t i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    station_free(a);
    station_free(b);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("network_values");
    TCase *const cases = tcase_create("values");

    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, values_arrive_whole_and_in_order, 0, N_WAYS);
    tcase_add_loop_test(cases, packed_keys_and_values_arrive_whole_and_in_order, 0, N_WAYS);
    tcase_add_loop_test(cases, values_arrive_after_connections_broke, 0, 2);
    tcase_add_loop_test(cases, values_wait_where_the_link_holds_them_back, ENCRYPTED, N_WAYS);
    tcase_add_loop_test(cases, values_of_several_threads_arrive_each_in_its_order, ENCRYPTED,
                        N_WAYS);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
