/* What waits to be packed: frames of high priority leave first, where order allows it. */
#include "io/net/link/send_queue.h"

#include "tests/support/runner.h"

#define JOINED_BYTES ((size_t)2000)
#define LARGE_BYTES ((size_t)4000)

/* A Get of a worker, of table 1. Its clock tells it from others. */
static Frame *new_get(uint32_t worker, bool is_high, uint64_t name)
{
    return frame_new(&(WireHeader){
        .kind = MESSAGE_GET,
        .is_high = is_high,
        .request = { .table = 1, .worker = worker, .clock = name },
    });
}

/* An Add that makes a packet of its own. */
static Frame *new_push(uint32_t worker, uint64_t name)
{
    return frame_new(&(WireHeader){
        .kind = MESSAGE_ADD,
        .value_bytes = LARGE_BYTES,
        .request = { .table = 1, .worker = worker, .clock = name },
    });
}

static Frame *new_reply(uint64_t request, bool is_high, uint64_t name)
{
    return frame_new(&(WireHeader){
        .kind = MESSAGE_REPLY,
        .is_high = is_high,
        .reply = { .request_id = request, .min_clock = name },
    });
}

static void add(SendQueue *queue, Frame *frame)
{
    send_queue_add(queue, frame, frame, frame->header.is_high);
}

/* Takes a packet and checks the names of its messages, which end with 0. */
static void assert_takes(SendQueue *queue, const uint64_t *names)
{
    Packet *const packet = send_queue_take(queue, JOINED_BYTES);
    const uint8_t *at = packet->bytes + WIRE_PACKET_HEADER_BYTES;
    size_t left = packet->size - WIRE_PACKET_HEADER_BYTES;
    WireHeader header;
    uint32_t n = 0;

    for (; names[n] != 0; n++) {
        ck_assert_uint_lt(n, packet->n_messages);
        ck_assert_ptr_null(wire_read_message(at, left, &header));
        ck_assert_uint_eq(
            header.kind == MESSAGE_REPLY ? header.reply.min_clock : header.request.clock, names[n]);
        at += wire_message_bytes(&header);
        left -= wire_message_bytes(&header);
    }
    ck_assert_uint_eq(n, packet->n_messages);
    packet_unref(packet);
}

#define ASSERT_TAKES(queue, ...) assert_takes(queue, (const uint64_t[]){ __VA_ARGS__, 0 })

/* Its node's clock counts the Adds of other workers, too. */
START_TEST(a_get_that_brings_a_clock_follows_what_came_before_it)
{
    SendQueue queue;
    Frame *const add_of_other = new_push(1, 2), *const brings = new_get(2, false, 3);

    add_of_other->header.is_high = 1;
    brings->header.request.node_clock = 7;
    send_queue_init(&queue);
    for (uint64_t high = 10; high < 12; high++)
        add(&queue, new_get(3, true, high));
    add(&queue, add_of_other);
    add(&queue, brings);
    ASSERT_TAKES(&queue, 10, 11);
    ASSERT_TAKES(&queue, 2);
    ASSERT_TAKES(&queue, 3);
    ck_assert(send_queue_is_empty(&queue));
}
END_TEST

START_TEST(a_get_goes_before_the_pushes_of_others)
{
    SendQueue queue;

    send_queue_init(&queue);
    for (uint64_t i = 1; i <= 3; i++)
        add(&queue, new_push(0, i));
    add(&queue, new_get(1, true, 10));
    add(&queue, new_get(2, false, 11));
    ASSERT_TAKES(&queue, 10);
    ASSERT_TAKES(&queue, 1);
    ASSERT_TAKES(&queue, 2);
    ASSERT_TAKES(&queue, 3);
    ASSERT_TAKES(&queue, 11);
    ck_assert(send_queue_is_empty(&queue));
}
END_TEST

START_TEST(a_get_goes_behind_the_pushes_of_its_worker)
{
    SendQueue queue;

    send_queue_init(&queue);
    add(&queue, new_push(0, 1));
    add(&queue, new_push(1, 2));
    add(&queue, new_get(0, true, 10));
    ASSERT_TAKES(&queue, 1);
    ASSERT_TAKES(&queue, 2);
    ASSERT_TAKES(&queue, 10);
    ck_assert(send_queue_is_empty(&queue));
}
END_TEST

/* The pieces of requests to services keep their order, and hold up no Get of high priority. */
START_TEST(a_get_goes_before_the_pieces_of_services)
{
    SendQueue queue;
    Packet *packet;

    send_queue_init(&queue);
    for (uint64_t i = 1; i <= 3; i++)
        add(&queue,
            frame_new(&(WireHeader){ .kind = MESSAGE_SERVICE, .value_bytes = LARGE_BYTES + i }));
    add(&queue, new_get(0, true, 10));
    ASSERT_TAKES(&queue, 10);
    for (uint64_t i = 1; i <= 3; i++) {
        WireHeader header;

        packet = send_queue_take(&queue, JOINED_BYTES);
        ck_assert_uint_eq(packet->n_messages, 1);
        ck_assert_ptr_null(wire_read_message(packet->bytes + WIRE_PACKET_HEADER_BYTES,
                                             packet->size - WIRE_PACKET_HEADER_BYTES, &header));
        ck_assert_uint_eq(header.value_bytes, LARGE_BYTES + i);
        packet_unref(packet);
    }
    ck_assert(send_queue_is_empty(&queue));
}
END_TEST

START_TEST(packets_of_both_kinds_alternate)
{
    SendQueue queue;

    send_queue_init(&queue);
    for (uint64_t i = 1; i <= 2; i++)
        add(&queue, new_push(0, i));
    for (uint64_t i = 0; i < 60; i++)
        add(&queue, new_get(1, true, 10 + i));
    for (uint64_t i = 1; i <= 2; i++) {
        Packet *const packet = send_queue_take(&queue, JOINED_BYTES);

        ck_assert_uint_gt(packet->n_messages, 1);
        packet_unref(packet);
        ASSERT_TAKES(&queue, i);
    }
    ck_assert(!send_queue_is_empty(&queue));
    send_queue_clear(&queue);
    ck_assert(send_queue_is_empty(&queue));
}
END_TEST

/* A packet ends before a frame that has to follow one of high priority. */
START_TEST(a_packet_holds_nothing_that_has_to_follow)
{
    SendQueue queue;

    send_queue_init(&queue);
    add(&queue, new_get(0, false, 1));
    for (uint64_t i = 0; i < 40; i++)
        add(&queue, new_get(1, true, 100 + i));
    add(&queue, new_get(1, false, 2));
    packet_unref(send_queue_take(&queue, JOINED_BYTES)); /* of high priority, but not all */
    ASSERT_TAKES(&queue, 1);
    Packet *const rest = send_queue_take(&queue, JOINED_BYTES);
    ck_assert_uint_gt(rest->n_messages, 1);
    packet_unref(rest);
    ASSERT_TAKES(&queue, 2);
    ck_assert(send_queue_is_empty(&queue));
}
END_TEST

START_TEST(the_pieces_of_an_answer_stay_in_order)
{
    SendQueue queue;

    send_queue_init(&queue);
    /* the first one finds what it has to stay behind, the second one does not */
    add(&queue, frame_new(&(WireHeader){ .kind = MESSAGE_SET }));
    add(&queue, new_reply(7, true, 1));
    packet_unref(send_queue_take(&queue, WIRE_PACKET_HEADER_BYTES)); /* the Set */
    add(&queue, new_reply(7, true, 2));
    add(&queue, new_reply(8, true, 3));
    ASSERT_TAKES(&queue, 3);
    ASSERT_TAKES(&queue, 1, 2);
    ck_assert(send_queue_is_empty(&queue));
}
END_TEST

/* Frames that came while nothing had high priority keep their order when the first one that has
 * comes, and so do those that come after the last one has left. */
START_TEST(frames_that_were_not_sorted_keep_their_order)
{
    SendQueue queue;

    send_queue_init(&queue);
    for (uint64_t round = 0; round < 3; round++) {
        Frame *const second = new_push(1, 2), *const third = new_get(3, true, 10);

        add(&queue, new_push(0, 1));
        second->next = third;
        send_queue_add(&queue, second, third, true);
        add(&queue, new_get(1, true, 11));
        add(&queue, new_get(0, false, 3));
        ASSERT_TAKES(&queue, 10);
        ASSERT_TAKES(&queue, 1);
        ASSERT_TAKES(&queue, 2);
        ASSERT_TAKES(&queue, 11, 3);
        ck_assert(send_queue_is_empty(&queue));
        /* many normal frames, of all workers, that nobody numbers */
        for (uint64_t i = 0; i < 5; i++)
            add(&queue, new_push((uint32_t)i, 20 + i));
        for (uint64_t i = 0; i < 5; i++)
            ASSERT_TAKES(&queue, 20 + i);
    }
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("send_queue");
    TCase *const cases = tcase_create("cases");

    tcase_add_test(cases, a_get_goes_before_the_pushes_of_others);
    tcase_add_test(cases, a_get_that_brings_a_clock_follows_what_came_before_it);
    tcase_add_test(cases, a_get_goes_behind_the_pushes_of_its_worker);
    tcase_add_test(cases, a_get_goes_before_the_pieces_of_services);
    tcase_add_test(cases, packets_of_both_kinds_alternate);
    tcase_add_test(cases, a_packet_holds_nothing_that_has_to_follow);
    tcase_add_test(cases, the_pieces_of_an_answer_stay_in_order);
    tcase_add_test(cases, frames_that_were_not_sorted_keep_their_order);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
