/* Clocks between three nodes: what a report and a common clock tell of the requests that have to
 * come before it, and that a common clock waits for them. Node 0 is the root. */
#include <string.h>

#include "io/net/post_office/post_office.h"
#include "tests/support/network/station.h"
#include "tests/support/runner.h"

enum { N = 3, ROOT = 0, EPOCH = 7, TABLE = 2, BYTES = 64 };

/* The office of one of the nodes, its server, and the networks of all three. */
typedef struct {
    Actor actor; /* first: the server's */
    PostOffice office;
    Station *stations[N];
    uint32_t self;
    unsigned n_handled;
    Message handled[8];
} Rig;

static void handle(Actor *actor, Message *message)
{
    Rig *const rig = (Rig *)actor;

    ck_assert_uint_lt(rig->n_handled, G_N_ELEMENTS(rig->handled));
    rig->handled[rig->n_handled++] = *message;
    message->status = CALL_OK;
    actor_answer(actor, message);
}

static void rig_init(Rig *rig, uint32_t self)
{
    static const uint32_t ids[N] = { 10, 20, 30 }, servers_of[N] = { 1, 1, 1 };
    const NetworkConfig config = { .room_bytes = post_office_room_bytes(), .window_bytes = 4096 };

    memset(rig, 0, sizeof *rig);
    rig->self = self;
    actor_init(&rig->actor, handle, NULL);
    post_office_init(&rig->office, self, N, ids, servers_of, &FLOW_SIZES_USUAL);
    rig->office.servers[self].actor = &rig->actor;
    for (uint32_t i = 0; i < N; i++)
        rig->stations[i] = station_new(i, N, &config);
    stations_join(rig->stations, N);
    rig->office.network = rig->stations[self]->network;
}

static void rig_clear(Rig *rig)
{
    post_office_clear(&rig->office);
    for (uint32_t i = 0; i < N; i++)
        station_free(rig->stations[i]);
}

static WireClock clock_of(uint32_t source, uint64_t clock)
{
    return (WireClock){ .table = TABLE, .source = source, .clock = clock, .node_clock = clock };
}

static void send_clock(Rig *rig, uint32_t from, const WireClock *clock,
                       const WirePosition *positions, size_t n)
{
    Frame *const frame = frame_new(&(WireHeader){ .kind = MESSAGE_CLOCK,
                                                  .epoch = EPOCH,
                                                  .value_bytes = n * sizeof *positions,
                                                  .clock = *clock });

    if (n > 0)
        memcpy(frame_values(frame), positions, n * sizeof *positions);
    network_send(rig->stations[from]->network, rig->self, frame);
}

/* An Add for the server of a node. */
static Frame *add_frame(uint32_t to, bool is_high)
{
    Frame *const frame = station_frame(MESSAGE_ADD, 1, BYTES);

    frame_header(frame)->is_high = is_high;
    frame_header(frame)->request.server = to;
    return frame;
}

/* The office gets the next message that comes to its node. Returns what it says is wrong. */
static const char *receive(Rig *rig)
{
    Incoming *const incoming = station_take(rig->stations[rig->self], STATION_PATIENCE_MS);
    const char *wrong;

    ck_assert_ptr_nonnull(incoming);
    wrong = post_office_receive(&rig->office, incoming);
    post_office_end_batch(&rig->office);
    return wrong;
}

/* The next message of a node is this clock. Returns its positions, which are n. */
static void expect_clock(Rig *rig, uint32_t node, uint32_t source, uint64_t clock,
                         WirePosition *positions, size_t n)
{
    Incoming *const incoming = station_take(rig->stations[node], STATION_PATIENCE_MS);

    ck_assert_ptr_nonnull(incoming);
    ck_assert_int_eq(incoming->header.kind, MESSAGE_CLOCK);
    ck_assert_uint_eq(incoming->header.clock.source, source);
    ck_assert_uint_eq(incoming->header.clock.clock, clock);
    ck_assert_uint_eq(incoming->value_bytes, n * sizeof *positions);
    if (n > 0)
        memcpy(positions, incoming->values, n * sizeof *positions);
    incoming_free(incoming);
}

static void expect_add(Rig *rig, uint32_t node)
{
    Incoming *const incoming = station_take(rig->stations[node], STATION_PATIENCE_MS);

    ck_assert_ptr_nonnull(incoming);
    ck_assert_int_eq(incoming->header.kind, MESSAGE_ADD);
    incoming_free(incoming);
}

static void report(Rig *rig, uint64_t clock)
{
    const WireClock told = clock_of(rig->self, clock);

    post_office_report_clock(&rig->office, EPOCH, &told);
    post_office_flush(&rig->office);
}

START_TEST(a_report_tells_the_root_what_was_pushed_to_others)
{
    Rig rig;
    WirePosition position;

    rig_init(&rig, 1);
    report(&rig, 1); /* nothing was pushed to node 2 */
    expect_clock(&rig, ROOT, 1, 1, NULL, 0);
    network_send(rig.office.network, 2, add_frame(2, false));
    report(&rig, 2);
    expect_clock(&rig, ROOT, 1, 2, &position, 1);
    ck_assert_uint_eq(position.node, 2);
    ck_assert_uint_eq(position.pushed, network_pushed(rig.office.network, 2));
    ck_assert_uint_ge(position.pushed, BYTES);
    report(&rig, 3); /* nothing more was */
    expect_clock(&rig, ROOT, 1, 3, NULL, 0);
    expect_add(&rig, 2);
    ck_assert_ptr_null(station_take(rig.stations[2], 0)); /* the others are told nothing */
    rig_clear(&rig);
}
END_TEST

/* A request of high priority is not counted in the position: it may overtake those that are. A
 * clock, which follows both, is. */
START_TEST(after_requests_of_high_priority_a_clock_goes_straight_to_their_node)
{
    Rig rig;
    WirePosition position;
    Message add = { .kind = MESSAGE_ADD, .server = 2, .is_high = true };
    uint64_t before;

    rig_init(&rig, 1);
    before = network_pushed(rig.office.network, 2);
    (void)post_office_tell(&rig.office, &add);
    ck_assert_uint_eq(network_pushed(rig.office.network, 2), before);
    report(&rig, 1);
    expect_clock(&rig, ROOT, 1, 1, &position, 1);
    ck_assert_uint_gt(position.pushed, before);
    expect_add(&rig, 2);
    expect_clock(&rig, 2, 1, 1, NULL, 0);
    rig_clear(&rig);
}
END_TEST

START_TEST(a_clock_for_all_goes_to_all_and_tells_the_root_positions)
{
    Rig rig;
    WirePosition position;
    const WireClock told = clock_of(1, 5);

    rig_init(&rig, 1);
    post_office_tell_clock(&rig.office, EPOCH, &told);
    post_office_flush(&rig.office);
    expect_clock(&rig, ROOT, 1, 5, &position, 1);
    ck_assert_uint_eq(position.node, 2);
    ck_assert_uint_eq(position.pushed, network_pushed(rig.office.network, 2));
    expect_clock(&rig, 2, 1, 5, NULL, 0);
    rig_clear(&rig);
}
END_TEST

START_TEST(the_root_tells_each_node_what_others_have_pushed_to_it_once)
{
    Rig rig;
    WirePosition position = { .node = 1, .pushed = 100 };
    const WireClock from_2 = clock_of(2, 5), common = clock_of(99, 5);

    rig_init(&rig, ROOT);
    send_clock(&rig, 2, &from_2, &position, 1);
    ck_assert_ptr_null(receive(&rig));
    position.pushed = 300;
    send_clock(&rig, 2, &from_2, &position, 1);
    ck_assert_ptr_null(receive(&rig));
    ck_assert_uint_eq(rig.n_handled, 2);
    ck_assert_uint_eq(rig.handled[0].clock.source, 2);
    ck_assert(post_office_spread_clock(&rig.office, EPOCH, &common));
    ck_assert(post_office_spread_clock(&rig.office, EPOCH, &common));
    post_office_flush(&rig.office);
    expect_clock(&rig, 1, MESSAGE_CLOCK_OF_ALL, 5, &position, 1);
    ck_assert_uint_eq(position.node, 2);
    ck_assert_uint_eq(position.pushed, 300);
    expect_clock(&rig, 1, MESSAGE_CLOCK_OF_ALL, 5, NULL, 0);
    expect_clock(&rig, 2, MESSAGE_CLOCK_OF_ALL, 5, NULL, 0);
    rig_clear(&rig);
}
END_TEST

/* The root's memory does not grow with the clocks of a node that reads nothing. */
START_TEST(the_root_leaves_out_a_node_to_which_much_is_under_way)
{
    Rig rig;
    WirePosition position = { .node = 1, .pushed = 100 };
    const WireClock from_2 = clock_of(2, 5), common = clock_of(99, 5);
    unsigned n = 0;

    rig_init(&rig, ROOT);
    send_clock(&rig, 2, &from_2, &position, 1);
    ck_assert_ptr_null(receive(&rig));
    while (!network_is_full(rig.office.network, 1, 16)) {
        network_push(rig.office.network, 1, station_frame(MESSAGE_ADD, 1, 4096));
        n++;
    }
    ck_assert(!post_office_spread_clock(&rig.office, EPOCH, &common));
    post_office_flush(&rig.office);
    expect_clock(&rig, 2, MESSAGE_CLOCK_OF_ALL, 5, NULL, 0);
    while (n-- > 0)
        expect_add(&rig, 1);
    while (network_is_full(rig.office.network, 1, 16))
        ck_assert(station_wait_ticks(rig.stations[ROOT], 1));
    ck_assert(post_office_spread_clock(&rig.office, EPOCH, &common));
    post_office_flush(&rig.office);
    expect_clock(&rig, 1, MESSAGE_CLOCK_OF_ALL, 5, &position, 1); /* what it was not told */
    rig_clear(&rig);
}
END_TEST

/* The end of a task waits for it, and it comes once. */
START_TEST(the_last_common_clock_is_told_whatever_is_under_way)
{
    Rig rig;
    const WireClock common = clock_of(99, RUBATO_CLOCK_RETIRED);
    unsigned n = 0;

    rig_init(&rig, ROOT);
    for (; !network_is_full(rig.office.network, 1, 16); n++)
        network_push(rig.office.network, 1, station_frame(MESSAGE_ADD, 1, 4096));
    ck_assert(post_office_spread_clock(&rig.office, EPOCH, &common));
    post_office_flush(&rig.office);
    expect_clock(&rig, 2, MESSAGE_CLOCK_OF_ALL, RUBATO_CLOCK_RETIRED, NULL, 0);
    while (n-- > 0)
        expect_add(&rig, 1);
    expect_clock(&rig, 1, MESSAGE_CLOCK_OF_ALL, RUBATO_CLOCK_RETIRED, NULL, 0);
    rig_clear(&rig);
}
END_TEST

START_TEST(a_common_clock_waits_for_what_it_counts)
{
    Rig rig;
    const WireClock common = clock_of(MESSAGE_CLOCK_OF_ALL, 5);
    WirePosition position = { .node = 2 };
    Frame *const add = add_frame(1, false);

    rig_init(&rig, 1);
    position.pushed = wire_message_bytes(frame_header(add));
    send_clock(&rig, ROOT, &common, &position, 1);
    ck_assert_ptr_null(receive(&rig));
    ck_assert_uint_eq(rig.n_handled, 0);
    network_send(rig.stations[2]->network, 1, add_frame(1, true)); /* counts for nothing */
    ck_assert_ptr_null(receive(&rig));
    ck_assert_uint_eq(rig.n_handled, 1);
    network_send(rig.stations[2]->network, 1, add);
    ck_assert_ptr_null(receive(&rig));
    ck_assert_uint_eq(rig.n_handled, 3);
    ck_assert_int_eq(rig.handled[1].kind, MESSAGE_ADD);
    ck_assert_int_eq(rig.handled[2].kind, MESSAGE_CLOCK);
    ck_assert_uint_eq(rig.handled[2].clock.source, MESSAGE_CLOCK_OF_ALL);
    ck_assert_uint_eq(rig.handled[2].clock.clock, 5);
    send_clock(&rig, ROOT, &common, &position, 1); /* all has come */
    ck_assert_ptr_null(receive(&rig));
    ck_assert_uint_eq(rig.n_handled, 4);
    rig_clear(&rig);
}
END_TEST

/* The positions of an earlier clock hold for a later one, too, also of another table. */
START_TEST(positions_hold_for_all_later_clocks)
{
    Rig rig;
    const WireClock first = clock_of(MESSAGE_CLOCK_OF_ALL, 5);
    WireClock other = clock_of(MESSAGE_CLOCK_OF_ALL, 9);
    WirePosition position = { .node = 2 };
    Frame *const add = add_frame(1, false);

    rig_init(&rig, 1);
    other.table = TABLE + 1;
    position.pushed = wire_message_bytes(frame_header(add));
    send_clock(&rig, ROOT, &first, &position, 1);
    ck_assert_ptr_null(receive(&rig));
    send_clock(&rig, ROOT, &other, NULL, 0);
    ck_assert_ptr_null(receive(&rig));
    ck_assert_uint_eq(rig.n_handled, 0);
    network_send(rig.stations[2]->network, 1, add);
    ck_assert_ptr_null(receive(&rig));
    ck_assert_uint_eq(rig.n_handled, 3);
    rig_clear(&rig);
}
END_TEST

/* Of a table the first clock that waits stays, so that it is passed on however many follow, and the
 * last. */
START_TEST(no_more_than_two_clocks_of_a_table_wait)
{
    Rig rig;
    WirePosition position = { .node = 2 };
    Frame *const add = add_frame(1, false);
    const uint64_t n_bytes = wire_message_bytes(frame_header(add));

    rig_init(&rig, 1);
    for (uint64_t clock = 1; clock <= 50; clock++) {
        const WireClock common = clock_of(MESSAGE_CLOCK_OF_ALL, clock);

        position.pushed = MIN(clock, 2) * n_bytes;
        send_clock(&rig, ROOT, &common, &position, 1);
        ck_assert_ptr_null(receive(&rig));
    }
    ck_assert_uint_eq(rig.n_handled, 0);
    network_send(rig.stations[2]->network, 1, add);
    ck_assert_ptr_null(receive(&rig));
    ck_assert_uint_eq(rig.n_handled, 2);
    ck_assert_uint_eq(rig.handled[1].clock.clock, 1);
    network_send(rig.stations[2]->network, 1, add_frame(1, false));
    ck_assert_ptr_null(receive(&rig));
    ck_assert_uint_eq(rig.n_handled, 4);
    ck_assert_uint_eq(rig.handled[3].clock.clock, 50);
    rig_clear(&rig);
}
END_TEST

/* What a node must not say: a common clock that is not the root's, positions that nobody collects,
 * and positions of no other node. */
static const struct {
    uint32_t self, from, source;
    size_t n_positions;
    uint64_t node;
} wrong_clocks[] = {
    { 1, 2, MESSAGE_CLOCK_OF_ALL, 0, 0 },
    { 1, 2, 2, 1, 0 },
    { 1, ROOT, MESSAGE_CLOCK_OF_ALL, 1, N },
    { 1, ROOT, MESSAGE_CLOCK_OF_ALL, 1, 1 },
    { 1, ROOT, MESSAGE_CLOCK_OF_ALL, 1, ROOT },
    { ROOT, 2, 2, 1, UINT64_MAX },
    { ROOT, 2, 2, 1, ROOT },
    { ROOT, 2, 2, 1, 2 },
    { ROOT, 2, MESSAGE_CLOCK_OF_ALL, 0, 0 },
};

START_TEST(a_wrong_clock_is_refused_as_a_whole)
{
    Rig rig;
    const WireClock clock = clock_of(wrong_clocks[_i].source, 5);
    const WirePosition position = { .node = wrong_clocks[_i].node, .pushed = 1 };

    rig_init(&rig, wrong_clocks[_i].self);
    send_clock(&rig, wrong_clocks[_i].from, &clock, &position, wrong_clocks[_i].n_positions);
    ck_assert_ptr_nonnull(receive(&rig));
    ck_assert_uint_eq(rig.n_handled, 0);
    rig_clear(&rig);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("post_office_clocks");
    TCase *const cases = tcase_create("clocks");

    tcase_add_test(cases, a_report_tells_the_root_what_was_pushed_to_others);
    tcase_add_test(cases, after_requests_of_high_priority_a_clock_goes_straight_to_their_node);
    tcase_add_test(cases, a_clock_for_all_goes_to_all_and_tells_the_root_positions);
    tcase_add_test(cases, the_root_tells_each_node_what_others_have_pushed_to_it_once);
    tcase_add_test(cases, the_root_leaves_out_a_node_to_which_much_is_under_way);
    tcase_add_test(cases, the_last_common_clock_is_told_whatever_is_under_way);
    tcase_add_test(cases, a_common_clock_waits_for_what_it_counts);
    tcase_add_test(cases, positions_hold_for_all_later_clocks);
    tcase_add_test(cases, no_more_than_two_clocks_of_a_table_wait);
    tcase_add_loop_test(cases, a_wrong_clock_is_refused_as_a_whole, 0, G_N_ELEMENTS(wrong_clocks));
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
