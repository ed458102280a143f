/* Frames whose values stay with their caller: they arrive whole and in order, by each transport and
 * with each protection, also after connections broke. The caller's memory is unmapped as soon as
 * it is given back, so whoever reads it too late is found: a process that reads it ends, and a
 * socket does not take it. */
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/support/cluster/outage.h"
#include "tests/support/network/lossy.h"
#include "tests/support/network/station.h"
#include "tests/support/runner.h"

static const RunSecret SECRET = { { 9, 8, 7 } };

/* Never, as long as a case may take. */
enum { NO_TIMER_MS = 1000000 };

typedef struct {
    const char *endpoint;
    bool encrypts, authenticates;
} Way;

static const Way ways[] = {
    { .endpoint = "tcp://127.0.0.1:0" },
    { .endpoint = "tcp://127.0.0.1:0", .encrypts = true },
    { .endpoint = "tcp://127.0.0.1:0", .authenticates = true },
    { .endpoint = "shm://*" },
};

enum { N_TCP_WAYS = 3 }; /* the first ones */

static NetworkConfig config_of(const Way *way)
{
    return (NetworkConfig){
        .window_bytes = 64 << 20,
        .resend_ms = NO_TIMER_MS,
        .timeout_ms = 20000,
        .stop_ms = 20000,
        .secret = way->encrypts || way->authenticates ? &SECRET : NULL,
        .encrypt = way->encrypts,
        .authenticate = way->authenticates,
        .bind_endpoints = &way->endpoint,
        .n_bind_endpoints = 1,
    };
}

typedef struct {
    void *bytes;
    size_t size;
} Mapping;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static uint32_t n_ended; /* guarded by lock */

static void unmap(void *user)
{
    Mapping *const mapping = user;

    g_assert(munmap(mapping->bytes, mapping->size) == 0);
    g_free(mapping);
    pthread_mutex_lock(&lock);
    n_ended++;
    pthread_cond_signal(&ended);
    pthread_mutex_unlock(&lock);
}

/* As station_frame, but the values lie in memory that `unmap` takes away. */
static void push_direct(Station *station, uint64_t number, size_t size)
{
    Frame *const model = station_frame(MESSAGE_REPLY, number, size);
    Mapping *const mapping = g_new(Mapping, 1);

    *mapping =
        (Mapping){ mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                   size };
    g_assert(mapping->bytes != MAP_FAILED);
    memcpy(mapping->bytes, frame_values(model), size);
    g_assert(mprotect(mapping->bytes, size, PROT_READ) == 0);
    const DirectWriteSource source = { mapping->bytes, size, unmap, mapping };
    Frame *const frame = network_new_direct_frame(station->network, frame_header(model), &source);

    g_assert(frame != NULL);
    frame_free(model);
    network_push(station->network, 1, frame);
}

static void expect_next(Station *station, uint64_t number, size_t size)
{
    Incoming *const incoming = station_take(station, STATION_PATIENCE_MS);

    ck_assert_msg(incoming != NULL, "message %u is missing", (unsigned)number);
    ck_assert_msg(station_is(incoming, MESSAGE_REPLY, number, size), "%u came in place of %u",
                  (unsigned)station_number(incoming), (unsigned)number);
    incoming_free(incoming);
}

/* Waits for that. */
static void expect_ended(uint32_t n)
{
    const struct timespec end = { .tv_sec = time(NULL) + STATION_PATIENCE_MS / 1000 };
    bool is_in_time = true;

    pthread_mutex_lock(&lock);
    while (n_ended < n && is_in_time)
        is_in_time = pthread_cond_timedwait(&ended, &lock, &end) == 0;
    const uint32_t n_seen = n_ended;
    pthread_mutex_unlock(&lock);
    ck_assert_uint_eq(n_seen, n);
}

static uint32_t count_ended(void)
{
    pthread_mutex_lock(&lock);
    const uint32_t n = n_ended;
    pthread_mutex_unlock(&lock);
    return n;
}

static const size_t sizes[] = { 512 << 10, 65536, 262152, 3 << 19, 100000 };

/* Some have their values in their frames. The first are sent before there is a connection. The
 * memory is given back as soon as the acknowledgements come: no timer has to help. */
START_TEST(values_that_stay_with_the_caller_arrive_whole_and_in_order)
{
    enum { N = 24, BEHIND = 8 };
    NetworkConfig config = config_of(&ways[_i]);
    config.tick_ms = NO_TIMER_MS;
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);
    uint32_t n_pushed = 0;

    stations_join((Station *const[]){ a, b }, 2);
    ck_assert(network_sends_direct(a->network, 1, 65536));
    ck_assert(!network_sends_direct(a->network, 1, 65536 + 4));
    ck_assert(!network_sends_direct(a->network, 1, 65536 - 8));
    for (uint64_t i = 0; i < N; i++) {
        const size_t size = sizes[i % G_N_ELEMENTS(sizes)];

        if (i % 4 == 2) {
            network_push(a->network, 1, station_frame(MESSAGE_REPLY, i, size));
        } else {
            push_direct(a, i, size);
            n_pushed++;
        }
        network_flush(a->network, 1);
        if (i >= BEHIND)
            expect_next(b, i - BEHIND, sizes[(i - BEHIND) % G_N_ELEMENTS(sizes)]);
    }
    for (uint64_t i = N - BEHIND; i < N; i++)
        expect_next(b, i, sizes[i % G_N_ELEMENTS(sizes)]);
    expect_ended(n_pushed);
    ck_assert(!network_reads_direct(a->network, 1)); /* they end by being acknowledged */
    station_free(a);
    station_free(b);
}
END_TEST

START_TEST(values_that_stay_with_the_caller_arrive_after_connections_broke)
{
    enum { N = 60, BETWEEN = 10, SIZE = 100000 };
    const NetworkConfig config = config_of(&ways[_i]);
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);
    NetworkStats stats;

    stations_join((Station *const[]){ a, b }, 2);
    for (uint64_t i = 0; i < N; i++) {
        push_direct(a, i, SIZE);
        network_flush(a->network, 1);
        if (i % BETWEEN == BETWEEN / 2)
            (void)outage_reset_connections(2);
        if (i >= BETWEEN)
            expect_next(b, i - BETWEEN, SIZE);
    }
    for (uint64_t i = N - BETWEEN; i < N; i++)
        expect_next(b, i, SIZE);
    network_stats(a->network, &stats);
    ck_assert_uint_gt(stats.packets_resent, 0);
    expect_ended(N);
    ck_assert_ptr_null(station_take(b, 0));
    station_free(a);
    station_free(b);
}
END_TEST

/* Nothing arrives: what is out, and what waits behind it, is needed until it is copied. */
START_TEST(revoked_values_are_given_back_at_once_and_arrive_all_the_same)
{
    enum { N = 12, SIZE = 128 << 10 };
    NetworkConfig config = config_of(&ways[_i]);

    config.out_bytes = 3 * SIZE;
    config.resend_ms = 50;
    config.faults = lossy_faults(&(Lossy){ 0 });
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);
    stations_join((Station *const[]){ a, b }, 2);
    lossy_set_dropping(true);
    for (uint64_t i = 0; i < N; i++)
        push_direct(a, i, SIZE);
    network_flush(a->network, 1);
    ck_assert_uint_eq(count_ended(), 0);
    ck_assert(network_reads_direct(a->network, 1));
    network_revoke_direct(a->network);
    expect_ended(N);
    network_revoke_direct(a->network);
    lossy_set_dropping(false);
    for (uint64_t i = 0; i < N; i++)
        expect_next(b, i, SIZE);
    ck_assert_uint_eq(count_ended(), N);
    station_free(a);
    station_free(b);
}
END_TEST

/* A transport may hold some of them, and the link or the queue the others. */
START_TEST(values_for_a_lost_node_are_given_back)
{
    enum { N = 24, SIZE = 512 << 10 };
    NetworkConfig config = config_of(&ways[_i]);

    config.out_bytes = 16 * SIZE;
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);
    stations_join((Station *const[]){ a, b }, 2);
    station_hold(b, true);
    for (uint64_t i = 0; i < N; i++)
        push_direct(a, i, SIZE);
    network_flush(a->network, 1);
    network_forget(a->network, 1);
    ck_assert_uint_eq(count_ended(), N);
    push_direct(a, N, SIZE);
    network_flush(a->network, 1);
    ck_assert_uint_eq(count_ended(), N + 1);
    station_hold(b, false);
    station_free(a);
    station_free(b);
}
END_TEST

/* A change on the way needs all bytes in one place. */
static Packet *change_nothing(uint32_t from, uint32_t to, Packet *packet)
{
    uint8_t sum = 0;

    (void)from;
    (void)to;
    for (size_t i = 0; i < packet->size; i++)
        sum ^= packet->bytes[i];
    return sum == 0 ? lossy_copy(packet) : packet;
}

START_TEST(values_that_stay_with_the_caller_arrive_through_faults)
{
    enum { N = 24, SIZE = 64 << 10 };
    NetworkConfig config = config_of(&ways[_i]);
    Lossy lossy = { .of_packets = { .seed = 7, .loss = 0.1, .doubling = 0.2, .reordering = 0.2 } };

    if (_i % 2 == 1)
        lossy.change = change_nothing;
    config.resend_ms = 20;
    config.faults = lossy_faults(&lossy);
    Station *const a = station_new(0, 2, &config), *const b = station_new(1, 2, &config);
    stations_join((Station *const[]){ a, b }, 2);
    for (uint64_t i = 0; i < N; i++) {
        push_direct(a, i, SIZE);
        network_flush(a->network, 1);
    }
    for (uint64_t i = 0; i < N; i++)
        expect_next(b, i, SIZE);
    expect_ended(N);
    station_free(a);
    station_free(b);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("network_direct_write");
    TCase *const cases = tcase_create("values");

    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, values_that_stay_with_the_caller_arrive_whole_and_in_order, 0,
                        G_N_ELEMENTS(ways));
    tcase_add_loop_test(cases, values_that_stay_with_the_caller_arrive_after_connections_broke, 0,
                        N_TCP_WAYS);
    tcase_add_loop_test(cases, revoked_values_are_given_back_at_once_and_arrive_all_the_same, 0,
                        G_N_ELEMENTS(ways));
    tcase_add_loop_test(cases, values_for_a_lost_node_are_given_back, 0, G_N_ELEMENTS(ways));
    tcase_add_loop_test(cases, values_that_stay_with_the_caller_arrive_through_faults, 0,
                        G_N_ELEMENTS(ways));
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
