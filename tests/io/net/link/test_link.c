/* The two ends of a link: each rule, and thousands of seeded runs over a channel that loses,
 * doubles, delays and reorders. */
#include "io/net/link/link.h"
#include "io/net/link/link_fault.h"

#include "tests/support/runner.h"

#define RESEND_MS 100
#define LIMIT 100000

static Packet *new_packet(size_t size)
{
    Packet *const packet = packet_new(size);

    packet->n_messages = 1;
    return packet;
}

/* A sending end that was given n packets of `size` bytes. */
static LinkSender sender_with(unsigned n, size_t size)
{
    LinkSender sender;

    link_sender_init(&sender, RESEND_MS, RESEND_MS, LIMIT);
    for (unsigned i = 0; i < n; i++)
        link_sender_add(&sender, new_packet(size));
    return sender;
}

/* Sends all that may be sent and checks that it is first … last (0: nothing), sent before or
 * not. */
static void assert_sends(LinkSender *sender, int64_t now_ms, uint64_t first, uint64_t last,
                         bool expected_again)
{
    Packet *packet;
    bool again;
    uint64_t next = first;

    while ((packet = link_sender_next(sender, now_ms, &again)) != NULL) {
        ck_assert_uint_eq(packet->sequence, next);
        ck_assert_int_eq(again, expected_again);
        next++;
    }
    ck_assert_uint_eq(next, first == 0 ? 0 : last + 1);
}

/* Sends one packet, again. */
static void assert_sends_one(LinkSender *sender, int64_t now_ms, uint64_t number)
{
    bool again = false;
    const Packet *const packet = link_sender_next(sender, now_ms, &again);

    ck_assert_ptr_nonnull(packet);
    ck_assert(again);
    ck_assert_uint_eq(packet->sequence, number);
}

START_TEST(sender_sends_each_packet_once_in_order)
{
    LinkSender sender = sender_with(3, 100);

    assert_sends(&sender, 0, 1, 3, false);
    assert_sends(&sender, 50, 0, 0, false);
    link_sender_add(&sender, new_packet(100));
    assert_sends(&sender, 60, 4, 4, false);
    link_sender_clear(&sender);
}
END_TEST

/* A connection that is made again many times: nothing waits for the timer, which does not grow. */
START_TEST(sender_sends_again_at_once_after_a_reset)
{
    LinkSender sender = sender_with(3, 100);

    link_sender_reset(&sender, 0); /* nothing is out yet */
    assert_sends(&sender, 0, 1, 3, false);
    for (int64_t now_ms = 1; now_ms < 300; now_ms++) {
        link_sender_reset(&sender, now_ms);
        assert_sends(&sender, now_ms, 1, 3, true);
        ck_assert_int_eq(sender.resend_at, now_ms + RESEND_MS);
    }
    ck_assert(link_sender_ack(&sender, 2, 300));
    link_sender_reset(&sender, 301);
    assert_sends(&sender, 301, 3, 3, true);
    link_sender_clear(&sender);
}
END_TEST

/* The timer waited in vain because the connection was broken. */
START_TEST(sender_forgets_after_a_reset_how_long_it_has_waited)
{
    LinkSender sender = sender_with(1, 100);
    int64_t now_ms = 0;

    assert_sends(&sender, now_ms, 1, 1, false);
    for (unsigned i = 0; i < 5; i++) {
        now_ms = sender.resend_at;
        link_sender_tick(&sender, now_ms);
        assert_sends(&sender, now_ms, 1, 1, true);
    }
    ck_assert_int_gt(sender.resend_at, now_ms + RESEND_MS);
    link_sender_reset(&sender, now_ms);
    assert_sends(&sender, now_ms, 1, 1, true);
    ck_assert_int_eq(sender.resend_at, now_ms + RESEND_MS);
    link_sender_clear(&sender);
}
END_TEST

START_TEST(sender_keeps_packets_until_they_are_acknowledged)
{
    LinkSender sender = sender_with(3, 100);

    assert_sends(&sender, 0, 1, 3, false);
    ck_assert_uint_eq(sender.kept_packets, 3);
    ck_assert(link_sender_ack(&sender, 2, 10));
    ck_assert_uint_eq(sender.kept_packets, 1);
    ck_assert_uint_eq(sender.kept_bytes, 100);
    ck_assert(link_sender_ack(&sender, 1, 10)); /* old news */
    ck_assert_uint_eq(sender.kept_packets, 1);
    ck_assert(link_sender_ack(&sender, 3, 10));
    ck_assert_uint_eq(sender.kept_packets, 0);
    ck_assert_int_eq(sender.resend_at, LINK_NEVER);
    link_sender_clear(&sender);
}
END_TEST

START_TEST(sender_refuses_to_know_of_packets_never_sent)
{
    LinkSender sender = sender_with(2, 100);

    ck_assert(!link_sender_ack(&sender, 1, 0)); /* numbered, but not sent yet */
    assert_sends(&sender, 0, 1, 2, false);
    ck_assert(!link_sender_ack(&sender, 3, 0));
    ck_assert(!link_sender_ack(&sender, UINT64_MAX, 0));
    ck_assert_uint_eq(sender.kept_packets, 2);
    link_sender_clear(&sender);
}
END_TEST

START_TEST(sender_goes_back_when_nothing_is_acknowledged)
{
    LinkSender sender = sender_with(3, 100);

    assert_sends(&sender, 1000, 1, 3, false);
    link_sender_tick(&sender, 1000 + RESEND_MS - 1);
    assert_sends(&sender, 1000 + RESEND_MS - 1, 0, 0, false);
    link_sender_tick(&sender, 1000 + RESEND_MS);
    assert_sends(&sender, 1000 + RESEND_MS, 1, 3, true);
    link_sender_clear(&sender);
}
END_TEST

START_TEST(sender_waits_longer_each_time_and_not_after_an_acknowledgement)
{
    LinkSender sender = sender_with(2, 100);
    int64_t now_ms = 0;

    assert_sends(&sender, now_ms, 1, 2, false);
    for (int64_t wait_ms = RESEND_MS; wait_ms < 5000; wait_ms *= 2) {
        const int64_t capped_ms = MIN(wait_ms, 2000);
        link_sender_tick(&sender, now_ms + capped_ms - 1);
        assert_sends(&sender, now_ms + capped_ms - 1, 0, 0, false);
        now_ms += capped_ms;
        link_sender_tick(&sender, now_ms);
        assert_sends(&sender, now_ms, 1, 2, true);
    }
    link_sender_ack(&sender, 1, now_ms);
    link_sender_tick(&sender, now_ms + RESEND_MS);
    assert_sends(&sender, now_ms + RESEND_MS, 2, 2, true);
    link_sender_clear(&sender);
}
END_TEST

START_TEST(sender_does_not_send_again_what_the_transport_still_holds)
{
    LinkSender sender = sender_with(2, 100);
    Packet *const held = sender.first;

    packet_ref(held); /* as a transport would */
    assert_sends(&sender, 0, 1, 2, false);
    link_sender_tick(&sender, RESEND_MS);
    assert_sends(&sender, RESEND_MS, 0, 0, false);
    packet_unref(held);
    link_sender_tick(&sender, 2 * RESEND_MS);
    assert_sends(&sender, 2 * RESEND_MS, 1, 2, true);
    link_sender_clear(&sender);
}
END_TEST

START_TEST(sender_going_back_leaves_out_what_the_transport_still_holds)
{
    LinkSender sender = sender_with(3, 100);
    Packet *const held = sender.first->next;

    packet_ref(held);
    assert_sends(&sender, 0, 1, 3, false);
    link_sender_tick(&sender, RESEND_MS);
    assert_sends_one(&sender, RESEND_MS, 1);
    assert_sends_one(&sender, RESEND_MS, 3);
    assert_sends(&sender, RESEND_MS, 0, 0, true);
    packet_unref(held);
    link_sender_tick(&sender, 3 * RESEND_MS);
    assert_sends(&sender, 3 * RESEND_MS, 1, 3, true);
    link_sender_clear(&sender);
}
END_TEST

START_TEST(sender_goes_back_with_little_and_grows)
{
    LinkSender sender;
    uint64_t acknowledged = 0;

    link_sender_init(&sender, RESEND_MS, RESEND_MS, 1000000);
    for (unsigned i = 0; i < 100; i++)
        link_sender_add(&sender, new_packet(10000));
    assert_sends(&sender, 0, 1, 100, false);
    link_sender_tick(&sender, RESEND_MS);
    for (uint64_t n = 6; acknowledged < 100; n *= 2) { /* 64 KiB are six packets */
        bool again;
        uint64_t n_sent = 0;
        Packet *packet;
        while ((packet = link_sender_next(&sender, RESEND_MS, &again)) != NULL)
            n_sent++;
        ck_assert_uint_ge(n_sent, MIN(n, 100 - acknowledged));
        ck_assert_uint_le(n_sent, 2 * n);
        acknowledged += n_sent;
        ck_assert(link_sender_ack(&sender, acknowledged, RESEND_MS));
    }
    ck_assert_uint_eq(sender.back_until, 0);
    link_sender_clear(&sender);
}
END_TEST

START_TEST(sender_goes_back_at_once_when_asked_but_not_for_each_word_of_it)
{
    LinkSender sender = sender_with(3, 100);

    link_sender_go_back(&sender, 0); /* nothing is out */
    assert_sends(&sender, 0, 1, 3, false);
    link_sender_go_back(&sender, 1);
    assert_sends(&sender, 1, 1, 3, true);
    link_sender_go_back(&sender, 2);
    assert_sends(&sender, 2, 0, 0, true);
    link_sender_go_back(&sender, 1 + RESEND_MS / 2);
    assert_sends(&sender, 1 + RESEND_MS / 2, 1, 3, true);
    link_sender_clear(&sender);
}
END_TEST

/* One packet in twenty may be lost: then several are in the time of one repetition. */
START_TEST(sender_goes_back_at_once_for_each_packet_that_is_lost)
{
    LinkSender sender = sender_with(5, 100);

    assert_sends(&sender, 0, 1, 5, false);
    for (uint64_t lost = 1; lost <= 5; lost++) {
        ck_assert(link_sender_ack(&sender, lost - 1, 1));
        link_sender_go_back(&sender, 1);
        assert_sends(&sender, 1, lost, 5, true);
        link_sender_go_back(&sender, 1);
        assert_sends(&sender, 1, 0, 0, true);
    }
    link_sender_clear(&sender);
}
END_TEST

START_TEST(sender_takes_late_acknowledgement_after_going_back)
{
    LinkSender sender = sender_with(20, 10000);
    bool again;

    /* LIMIT lets ten out. */
    assert_sends(&sender, 0, 1, 10, false);
    link_sender_tick(&sender, RESEND_MS);
    ck_assert_ptr_nonnull(link_sender_next(&sender, RESEND_MS, &again));
    ck_assert(again);
    ck_assert(link_sender_ack(&sender, 10, RESEND_MS)); /* they had all come */
    ck_assert_uint_eq(sender.out_bytes, 0);
    assert_sends(&sender, RESEND_MS, 11, 20, false);
    link_sender_clear(&sender);
}
END_TEST

START_TEST(sender_holds_back_beyond_its_limit)
{
    LinkSender sender = sender_with(11, 10000);

    assert_sends(&sender, 0, 1, 10, false);
    link_sender_ack(&sender, 1, 1);
    assert_sends(&sender, 1, 11, 11, false);
    link_sender_clear(&sender);

    sender = sender_with(2, 3 * LIMIT); /* one goes, however large */
    assert_sends(&sender, 0, 1, 1, false);
    link_sender_ack(&sender, 1, 1);
    assert_sends(&sender, 1, 2, 2, false);
    link_sender_clear(&sender);
}
END_TEST

/* ---- how long a packet waits until it is sent again ---- */

enum { LONGEST_MS = 200, LEAST_MS = 10 };

static LinkSender timed_sender(void)
{
    LinkSender sender;

    link_sender_init(&sender, LONGEST_MS, link_least_wait_ms(LONGEST_MS), LIMIT);
    return sender;
}

/* Sends one packet more, which is acknowledged sample_ms later. */
static void make_round_trip(LinkSender *sender, int64_t *now_ms, int64_t sample_ms)
{
    bool again;

    link_sender_add(sender, new_packet(100));
    const Packet *const packet = link_sender_next(sender, *now_ms, &again);
    ck_assert_ptr_nonnull(packet);
    const uint64_t number = packet->sequence;
    *now_ms += sample_ms;
    ck_assert(link_sender_ack(sender, number, *now_ms));
}

/* How long the next packet would wait. */
static int64_t wait_of_next(LinkSender *sender, int64_t now_ms)
{
    bool again;

    link_sender_add(sender, new_packet(100));
    ck_assert_ptr_nonnull(link_sender_next(sender, now_ms, &again));
    return sender->resend_at - now_ms;
}

START_TEST(sender_sends_the_last_packet_again_after_the_measured_time)
{
    LinkSender sender = timed_sender();
    int64_t now_ms = 1000;

    ck_assert_int_eq(wait_of_next(&sender, now_ms), LONGEST_MS);
    now_ms += 20;
    ck_assert(link_sender_ack(&sender, 1, now_ms));
    ck_assert_int_eq(wait_of_next(&sender, now_ms), 20 + 4 * 10); /* the first sample: R and R/2 */
    link_sender_tick(&sender, now_ms + 59);
    assert_sends(&sender, now_ms + 59, 0, 0, true);
    link_sender_tick(&sender, now_ms + 60);
    assert_sends(&sender, now_ms + 60, 2, 2, true);
    link_sender_clear(&sender);
}
END_TEST

/* 20, 28: RTTVAR = 3/4 * 10 + 1/4 * 8 = 9.5, SRTT = 7/8 * 20 + 1/8 * 28 = 21. */
START_TEST(sender_smooths_what_it_measures)
{
    LinkSender sender = timed_sender();
    int64_t now_ms = 0;

    make_round_trip(&sender, &now_ms, 20);
    make_round_trip(&sender, &now_ms, 28);
    ck_assert_int_eq(sender.wait_ms, 21 + 38);
    for (unsigned i = 0; i < 100; i++)
        make_round_trip(&sender, &now_ms, 28);
    ck_assert_int_ge(sender.wait_ms, 28 + 1);
    ck_assert_int_le(sender.wait_ms, 28 + 4);
    link_sender_clear(&sender);
}
END_TEST

/* A receiver with nothing to send waits 5 ms with its acknowledgement. */
START_TEST(sender_waits_for_acknowledgements_that_are_delayed)
{
    LinkSender sender = timed_sender();
    LinkReceiver receiver = { 0 };
    int64_t now_ms = 0;

    for (unsigned i = 0; i < 100; i++)
        make_round_trip(&sender, &now_ms, 0);
    ck_assert_int_eq(wait_of_next(&sender, now_ms), LEAST_MS);
    link_receiver_take(&receiver, 1, 100, 0, now_ms);
    ck_assert_int_ge(sender.resend_at, 5 + link_receiver_due(&receiver, 0, now_ms));
    link_sender_clear(&sender);
}
END_TEST

START_TEST(sender_waits_no_longer_than_without_samples)
{
    LinkSender sender = timed_sender();
    int64_t now_ms = 0;

    make_round_trip(&sender, &now_ms, 190);
    ck_assert_int_eq(sender.wait_ms, LONGEST_MS);
    make_round_trip(&sender, &now_ms, INT64_C(1) << 40); /* it was stopped */
    make_round_trip(&sender, &now_ms, INT64_C(1) << 40);
    ck_assert_int_eq(sender.wait_ms, LONGEST_MS);
    link_sender_clear(&sender);
}
END_TEST

/* Karn's rule: no sample of what was sent twice, and the longer wait stays until there is one. */
START_TEST(sender_measures_no_packet_that_was_sent_twice)
{
    LinkSender sender = timed_sender();
    int64_t now_ms = 0;

    make_round_trip(&sender, &now_ms, 0);
    ck_assert_int_eq(wait_of_next(&sender, now_ms), LEAST_MS);
    link_sender_tick(&sender, now_ms += LEAST_MS);
    assert_sends(&sender, now_ms, 2, 2, true);
    now_ms += 150;
    ck_assert(link_sender_ack(&sender, 2, now_ms));
    ck_assert_int_eq(sender.srtt_8, 0);
    ck_assert_int_eq(wait_of_next(&sender, now_ms), 2 * LEAST_MS);
    ck_assert(link_sender_ack(&sender, 3, now_ms));
    ck_assert_int_eq(wait_of_next(&sender, now_ms), LEAST_MS);
    link_sender_clear(&sender);
}
END_TEST

/* It is asked twice for the same packet, which has got lost again. */
START_TEST(sender_that_is_asked_goes_back_once_in_the_measured_time)
{
    LinkSender sender = timed_sender();
    int64_t now_ms = 1000;
    bool again;

    for (int i = 0; i < 20; i++)
        make_round_trip(&sender, &now_ms, 1);
    ck_assert_int_eq(wait_of_next(&sender, now_ms), LEAST_MS);
    for (int i = 0; i < 3; i++, now_ms += LEAST_MS) {
        link_sender_go_back(&sender, now_ms);
        ck_assert_ptr_nonnull(link_sender_next(&sender, now_ms, &again));
        ck_assert(again);
        link_sender_go_back(&sender, now_ms + LEAST_MS - 1);
        ck_assert_ptr_null(link_sender_next(&sender, now_ms, &again));
    }
    link_sender_clear(&sender);
}
END_TEST

/* One that goes out while the link goes back is not sent twice, but waits for what is. */
START_TEST(sender_measures_no_packet_behind_those_that_are_sent_again)
{
    LinkSender sender = timed_sender();

    (void)wait_of_next(&sender, 0);
    link_sender_reset(&sender, 0);
    assert_sends(&sender, 0, 1, 1, true);
    (void)wait_of_next(&sender, 0);
    ck_assert(link_sender_ack(&sender, 2, 150));
    ck_assert(!sender.has_sample);
    link_sender_clear(&sender);
}
END_TEST

/* The round trip gets longer than the wait. With Karn's rule and without the longer wait it would
 * never be measured. */
START_TEST(sender_learns_that_round_trips_have_become_long)
{
    LinkSender sender = timed_sender();
    int64_t now_ms = 0;
    unsigned n_again = 0, n_trips = 0;

    for (unsigned i = 0; i < 50; i++)
        make_round_trip(&sender, &now_ms, 0);
    for (; n_trips < 50; n_trips++) {
        const int64_t end_ms = now_ms + 100;
        (void)wait_of_next(&sender, now_ms);
        for (; now_ms < end_ms; now_ms++) {
            bool again;
            link_sender_tick(&sender, now_ms);
            n_again += link_sender_next(&sender, now_ms, &again) != NULL;
        }
        ck_assert(link_sender_ack(&sender, sender.highest_sent, now_ms));
    }
    ck_assert_uint_ge(n_again, 1);
    ck_assert_uint_le(n_again, 6);
    link_sender_clear(&sender);
}
END_TEST

/* It was quick, and then says nothing for ten seconds, with a megabyte under way. */
START_TEST(sender_does_not_flood_a_peer_that_is_only_busy)
{
    LinkSender sender;
    int64_t now_ms = 0;
    size_t n_bytes = 0;

    link_sender_init(&sender, LONGEST_MS, link_least_wait_ms(LONGEST_MS), 1 << 20);
    for (unsigned i = 0; i < 50; i++)
        make_round_trip(&sender, &now_ms, 0);
    for (unsigned i = 0; i < 100; i++)
        link_sender_add(&sender, new_packet(10000));
    assert_sends(&sender, now_ms, 51, 150, false);
    for (const int64_t end_ms = now_ms + 10000; now_ms < end_ms; now_ms++) {
        bool again;
        const Packet *packet;
        link_sender_tick(&sender, now_ms);
        while ((packet = link_sender_next(&sender, now_ms, &again)) != NULL)
            n_bytes += packet->size;
    }
    /* after 10, 30, 70, … 1270 and 2550 ms, and then each 2 s; 64 KiB each time */
    ck_assert_uint_le(n_bytes, (size_t)12 * (64 << 10));
    ck_assert_uint_ge(n_bytes, (size_t)9 * 60000);
    ck_assert(link_sender_ack(&sender, 150, now_ms));
    ck_assert_int_le(wait_of_next(&sender, now_ms), LONGEST_MS);
    link_sender_clear(&sender);
}
END_TEST

START_TEST(receiver_takes_packets_in_order_only)
{
    LinkReceiver receiver = { 0 };

    ck_assert_int_eq(link_receiver_take(&receiver, 2, 100, 0, 0), LINK_EARLY);
    ck_assert_int_eq(link_receiver_take(&receiver, 1, 100, 0, 0), LINK_NEW);
    ck_assert_int_eq(link_receiver_take(&receiver, 1, 100, 0, 0), LINK_DUPLICATE);
    ck_assert_int_eq(link_receiver_take(&receiver, 3, 100, 0, 0), LINK_EARLY);
    ck_assert_int_eq(link_receiver_take(&receiver, 2, 100, 0, 0), LINK_NEW);
    ck_assert_int_eq(link_receiver_take(&receiver, 3, 100, 0, 0), LINK_NEW);
    ck_assert_uint_eq(receiver.received, 3);
}
END_TEST

START_TEST(receiver_owes_an_acknowledgement_after_a_while_or_after_much)
{
    LinkReceiver receiver = { 0 };

    ck_assert_int_eq(link_receiver_due(&receiver, 0, 1000), LINK_NEVER);
    link_receiver_take(&receiver, 1, 100, 0, 1000);
    ck_assert_int_eq(link_receiver_due(&receiver, 0, 1000), 1005);
    link_receiver_take(&receiver, 2, 100, 0, 1003);
    ck_assert_int_eq(link_receiver_due(&receiver, 0, 1003), 1005);
    ck_assert_int_eq(link_receiver_due(&receiver, 2, 1003), LINK_NEVER); /* a packet told it */

    for (uint64_t i = 3; i < 3 + 32; i++) {
        ck_assert_int_gt(link_receiver_due(&receiver, 2, 1010), 1010);
        link_receiver_take(&receiver, i, 100, 2, 1010);
    }
    ck_assert_int_le(link_receiver_due(&receiver, 2, 1010), 1010);
    link_receiver_take(&receiver, 35, 1 << 20, 34, 1010);
    ck_assert_int_le(link_receiver_due(&receiver, 34, 1010), 1010);
}
END_TEST

START_TEST(receiver_owes_nothing_at_once_while_packets_take_acknowledgements_along)
{
    LinkReceiver receiver = { 0 };

    for (uint64_t i = 1; i < 100; i++) { /* what is told lags three behind */
        link_receiver_take(&receiver, i, 100, i > 4 ? i - 4 : 0, (int64_t)i);
        if (i > 4)
            ck_assert_int_gt(link_receiver_due(&receiver, i - 4, (int64_t)i), (int64_t)i);
    }
}
END_TEST

START_TEST(receiver_answers_a_duplicate_at_once)
{
    LinkReceiver receiver = { 0 };

    link_receiver_take(&receiver, 1, 100, 0, 1000);
    link_receiver_take(&receiver, 1, 100, 1, 1000);
    ck_assert_int_le(link_receiver_due(&receiver, 1, 1000), 1000);
    ck_assert_int_eq(link_receiver_due(&receiver, 1, 1000), LINK_NEVER);
}
END_TEST

/* The simulation: one direction of packets, the other of acknowledgements. */
#define N_PACKETS 200
#define MOST_UNDERWAY 4096

typedef struct {
    int64_t arrives_ms;
    uint64_t number; /* a packet's, or what is acknowledged */
    Packet *held;    /* a reference, as a transport has one until it has sent */
    bool again;      /* the acknowledgement asks to go back */
} Underway;

typedef struct {
    GRand *random;
    double loss, doubling;
    int longest_delay_ms;
    bool holds;
    Underway packets[MOST_UNDERWAY], acks[MOST_UNDERWAY];
    size_t n_packets, n_acks;
} Channels;

static void put(Channels *channels, Underway *list, size_t *n, const Underway *what, int64_t now_ms)
{
    const unsigned copies = g_rand_double(channels->random) < channels->doubling ? 2 : 1;

    for (unsigned i = 0; i < copies; i++) {
        if (g_rand_double(channels->random) < channels->loss)
            continue;
        require_msg(*n < MOST_UNDERWAY, "%s", "*n < MOST_UNDERWAY");
        list[*n] = *what;
        list[*n].arrives_ms =
            now_ms + g_rand_int_range(channels->random, 0, channels->longest_delay_ms + 1);
        if (list[*n].held != NULL)
            packet_ref(list[*n].held);
        (*n)++;
    }
}

/* Takes any packet that has arrived. */
static bool take(Underway *list, size_t *n, int64_t now_ms, Underway *taken)
{
    for (size_t i = 0; i < *n; i++)
        if (list[i].arrives_ms <= now_ms) {
            *taken = list[i];
            list[i] = list[--*n];
            return true;
        }
    return false;
}

START_TEST(link_delivers_each_packet_once_in_order_whatever_the_channel_does)
{
    const guint32 n_seeds = is_slow() ? 25 : 100;

    for (guint32 seed = (guint32)_i * n_seeds; seed < ((guint32)_i + 1) * n_seeds; seed++) {
        GRand *const random = g_rand_new_with_seed(seed);
        Channels *const channels = g_new0(Channels, 1);
        LinkSender sender;
        LinkReceiver receiver = { 0 };
        LinkFault fault = { 0 };
        uint64_t told = 0, n_added = 0, n_delivered = 0;
        int64_t now_ms = 0;
        Underway underway;

        channels->random = random;
        channels->loss = g_rand_double_range(random, 0, 0.5);
        channels->doubling = g_rand_double_range(random, 0, 0.3);
        channels->longest_delay_ms = g_rand_int_range(random, 0, 150);
        channels->holds = g_rand_boolean(random);
        link_sender_init(&sender, 20, link_least_wait_ms(20),
                         (size_t)g_rand_int_range(random, 1, 50000));

        for (; sender.acknowledged < N_PACKETS; now_ms++) {
            bool again;
            Packet *packet;

            require_msg(now_ms < 10000000, "seed %u: stuck at %" G_GUINT64_FORMAT, seed,
                        sender.acknowledged);
            while (n_added < N_PACKETS && g_rand_boolean(random)) {
                link_sender_add(&sender, new_packet((size_t)g_rand_int_range(random, 1, 5000)));
                n_added++;
            }
            link_sender_tick(&sender, now_ms);
            while ((packet = link_sender_next(&sender, now_ms, &again)) != NULL) {
                require_msg(sender.out_bytes <= MAX(sender.limit_bytes, packet->size),
                            "seed %u: too much is out", seed);
                put(channels, channels->packets, &channels->n_packets,
                    &(Underway){ .number = packet->sequence,
                                 .held = channels->holds ? packet : NULL },
                    now_ms);
            }
            while (take(channels->packets, &channels->n_packets, now_ms, &underway)) {
                if (underway.held != NULL)
                    packet_unref(underway.held);
                const LinkVerdict verdict =
                    link_receiver_take(&receiver, underway.number, 1000, told, now_ms);
                if (verdict == LINK_EARLY)
                    link_fault_sign(&fault, "early", 20, now_ms);
                if (verdict == LINK_NEW) {
                    link_fault_clear(&fault);
                    n_delivered++;
                    require_msg(underway.number == n_delivered, "seed %u: out of order", seed);
                }
            }
            const bool asks = link_fault_asks(&fault, 20, now_ms);
            if (asks || link_receiver_due(&receiver, told, now_ms) <= now_ms) {
                told = receiver.received;
                put(channels, channels->acks, &channels->n_acks,
                    &(Underway){ .number = told, .again = asks }, now_ms);
            }
            while (take(channels->acks, &channels->n_acks, now_ms, &underway)) {
                require_msg(link_sender_ack(&sender, underway.number, now_ms),
                            "seed %u: a true acknowledgement refused", seed);
                if (underway.again)
                    link_sender_go_back(&sender, now_ms);
            }
        }
        require_msg(n_delivered == N_PACKETS, "seed %u: acknowledged but not delivered", seed);
        require_msg(sender.kept_packets == 0, "%s", "sender.kept_packets == 0");
        require_msg(sender.kept_bytes == 0, "%s", "sender.kept_bytes == 0");
        require_msg(sender.out_bytes == 0, "%s", "sender.out_bytes == 0");
        for (size_t i = 0; i < channels->n_packets; i++)
            if (channels->packets[i].held != NULL)
                packet_unref(channels->packets[i].held);
        link_sender_clear(&sender);
        g_free(channels);
        g_rand_free(random);
    }
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("link");
    TCase *const sender = tcase_create("sender");
    TCase *const receiver = tcase_create("receiver");
    TCase *const simulation = tcase_create("simulation");

    tcase_add_test(sender, sender_sends_each_packet_once_in_order);
    tcase_add_test(sender, sender_keeps_packets_until_they_are_acknowledged);
    tcase_add_test(sender, sender_sends_again_at_once_after_a_reset);
    tcase_add_test(sender, sender_forgets_after_a_reset_how_long_it_has_waited);
    tcase_add_test(sender, sender_refuses_to_know_of_packets_never_sent);
    tcase_add_test(sender, sender_goes_back_when_nothing_is_acknowledged);
    tcase_add_test(sender, sender_waits_longer_each_time_and_not_after_an_acknowledgement);
    tcase_add_test(sender, sender_does_not_send_again_what_the_transport_still_holds);
    tcase_add_test(sender, sender_going_back_leaves_out_what_the_transport_still_holds);
    tcase_add_test(sender, sender_goes_back_with_little_and_grows);
    tcase_add_test(sender, sender_goes_back_at_once_when_asked_but_not_for_each_word_of_it);
    tcase_add_test(sender, sender_goes_back_at_once_for_each_packet_that_is_lost);
    tcase_add_test(sender, sender_takes_late_acknowledgement_after_going_back);
    tcase_add_test(sender, sender_holds_back_beyond_its_limit);
    tcase_add_test(sender, sender_sends_the_last_packet_again_after_the_measured_time);
    tcase_add_test(sender, sender_smooths_what_it_measures);
    tcase_add_test(sender, sender_waits_for_acknowledgements_that_are_delayed);
    tcase_add_test(sender, sender_waits_no_longer_than_without_samples);
    tcase_add_test(sender, sender_measures_no_packet_that_was_sent_twice);
    tcase_add_test(sender, sender_that_is_asked_goes_back_once_in_the_measured_time);
    tcase_add_test(sender, sender_measures_no_packet_behind_those_that_are_sent_again);
    tcase_add_test(sender, sender_learns_that_round_trips_have_become_long);
    tcase_add_test(sender, sender_does_not_flood_a_peer_that_is_only_busy);
    tcase_add_test(receiver, receiver_takes_packets_in_order_only);
    tcase_add_test(receiver, receiver_owes_an_acknowledgement_after_a_while_or_after_much);
    tcase_add_test(receiver,
                   receiver_owes_nothing_at_once_while_packets_take_acknowledgements_along);
    tcase_add_test(receiver, receiver_answers_a_duplicate_at_once);
    tcase_add_loop_test(simulation,
                        link_delivers_each_packet_once_in_order_whatever_the_channel_does, 0, 20);
    tcase_set_timeout(simulation, 60);
    suite_add_tcase(suite, sender);
    suite_add_tcase(suite, receiver);
    suite_add_tcase(suite, simulation);
    return run_suite(suite);
}
