/* The post office inside a process: messages reach the server's actor at once or wait for it, and a
 * message that was told may be reused at once. */
#include <stdlib.h>
#include <string.h>

#include "io/net/monotonic.h"
#include "io/net/post_office/post_office.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/network/station.h"
#include "tests/support/runner.h"

enum { N_KEYS = 3 };

/* Records what it handled; stays inside a FENCE until it is released. */
typedef struct {
    Actor actor; /* first */
    Event inside, go_on;
    unsigned n_handled;
    MessageKind kinds[8];
    RubatoKey keys[N_KEYS]; /* of the last Add */
    int64_t deltas[N_KEYS];
} Desk;

static void handle(Actor *actor, Message *message)
{
    Desk *desk = (Desk *)actor;
    const RubatoKeys *keys = &message->request.keys;
    const int64_t *deltas = message->request.input;

    if (message->kind == MESSAGE_FENCE) {
        event_raise(&desk->inside);
        event_wait(&desk->go_on, 1);
    }
    desk->kinds[desk->n_handled++] = message->kind;
    for (size_t i = 0; message->kind == MESSAGE_ADD && i < keys->n; i++) {
        desk->keys[i] = keys->keys == NULL ? keys->first + i
                        : keys->at == NULL ? keys->keys[i]
                                           : keys->keys[keys->at[i]];
        desk->deltas[i] = deltas[keys->at == NULL ? i : keys->at[i]];
    }
    message->status = CALL_OK;
    message->min_clock = 5;
    actor_answer(actor, message);
}

typedef struct {
    PostOffice office;
    Desk desk;
} Rig;

/* Server 1 of two nodes' three is here. */
static void rig_init(Rig *rig)
{
    static const uint32_t ids[] = { 10, 20 }, servers_of[] = { 1, 2 };

    memset(rig, 0, sizeof *rig);
    rig->desk.inside = rig->desk.go_on = (Event)EVENT_INIT;
    actor_init(&rig->desk.actor, handle, NULL);
    post_office_init(&rig->office, 1, 2, ids, servers_of, &FLOW_SIZES_USUAL);
    rig->office.servers[1].actor = &rig->desk.actor;
}

static void *be_inside(void *user)
{
    Rig *rig = user;
    Message fence = { .kind = MESSAGE_FENCE };

    if (!actor_try_handle(&rig->desk.actor, &fence))
        abort();
    return NULL;
}

/* Keeps the server busy until let_go. */
static pthread_t make_busy(Rig *rig)
{
    pthread_t thread;

    pthread_create(&thread, NULL, be_inside, rig);
    event_wait(&rig->desk.inside, 1);
    return thread;
}

static void let_go(Rig *rig, pthread_t thread)
{
    event_raise(&rig->desk.go_on);
    pthread_join(thread, NULL);
}

START_TEST(servers_are_numbered_over_all_nodes)
{
    Rig rig;

    rig_init(&rig);
    ck_assert_uint_eq(rig.office.n_servers, 3);
    ck_assert_uint_eq(rig.office.servers[0].node, 0);
    ck_assert_uint_eq(rig.office.servers[1].node, 1);
    ck_assert_uint_eq(rig.office.servers[2].node, 1);
    ck_assert(!post_office_is_local(&rig.office, 0));
    ck_assert(post_office_is_local(&rig.office, 1));
    post_office_flush(&rig.office); /* nothing to send, and no network */
    post_office_cancel(&rig.office, POST_OFFICE_ALL_EPOCHS);
    post_office_clear(&rig.office);
}
END_TEST

START_TEST(what_is_asked_of_an_idle_server_is_answered_at_once)
{
    Rig rig;
    Call call;
    Message get = { .kind = MESSAGE_GET, .server = 1, .call = &call, .end = message_end_call };

    rig_init(&rig);
    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    post_office_ask(&rig.office, &get);
    call_sent(&call);
    ck_assert(call_has_ended(&call));
    ck_assert_uint_eq(call.min_clock, 5);
    post_office_clear(&rig.office);
}
END_TEST

/* Its worker looks for about as long as the request takes, also if it brings a clock. */
START_TEST(a_large_request_is_not_left_to_a_busy_server_at_once)
{
    enum { N = 20000, LEAST_NS = 400000 };
    const RubatoKey key = 0; /* no key is read */
    Rig rig;
    Call call;
    Spinner spinner;
    Message get = { .kind = MESSAGE_GET,
                    .server = 1,
                    .call = &call,
                    .end = message_end_call,
                    .node_clock = (uint64_t)_i,
                    .request = { .keys = { .keys = &key, .n = N } } };
    pthread_t thread;

    rig_init(&rig);
    spinner_init(&spinner);
    thread = make_busy(&rig);
    call_begin(&call, NULL);
    call.spinner = &spinner;
    call_add_parts(&call, 1);
    const int64_t begun_ns = monotonic_ns();
    post_office_ask(&rig.office, &get);
    ck_assert_int_ge(monotonic_ns() - begun_ns, LEAST_NS);
    call_sent(&call);
    let_go(&rig, thread);
    ck_assert(call_wait(&call, -1));
    post_office_clear(&rig.office);
}
END_TEST

START_TEST(what_is_asked_of_a_busy_server_waits_for_it)
{
    Rig rig;
    Call call;
    Message get = { .kind = MESSAGE_GET, .server = 1, .call = &call, .end = message_end_call };
    pthread_t thread;

    rig_init(&rig);
    thread = make_busy(&rig);
    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    post_office_ask(&rig.office, &get);
    call_sent(&call);
    ck_assert(!call_has_ended(&call));
    let_go(&rig, thread);
    ck_assert(call_wait(&call, -1));
    post_office_clear(&rig.office);
}
END_TEST

/* _i: a list, a selection, a run; to an idle server and to a busy one. */
START_TEST(what_is_told_may_be_reused_at_once)
{
    RubatoKey keys[] = { 7, 8, 9 };
    uint32_t at[] = { 0, 1, 2 };
    int64_t deltas[] = { 70, 80, 90 };
    const RubatoKeys forms[] = { { .keys = keys, .n = 3 },
                                 { .keys = keys, .at = at, .n = 3 },
                                 { .first = 7, .n = 3 } };
    const bool is_busy = _i % 2 == 1;
    Rig rig;
    Call call;
    Message add = { .kind = MESSAGE_ADD,
                    .server = 1,
                    .call = &call,
                    .request = { .keys = forms[_i / 2], .input = deltas },
                    .row_bytes = sizeof *deltas };
    pthread_t thread = 0;
    size_t n_bytes;

    rig_init(&rig);
    if (is_busy)
        thread = make_busy(&rig);
    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    n_bytes = post_office_tell(&rig.office, &add);
    call_sent(&call);
    memset(keys, 0xff, sizeof keys);
    memset(at, 0, sizeof at);
    memset(deltas, 0xff, sizeof deltas);
    ck_assert(is_busy ? n_bytes >= 3 * sizeof *deltas : n_bytes == 0);
    ck_assert(call_has_ended(&call) == !is_busy);
    if (is_busy)
        let_go(&rig, thread);
    ck_assert(call_wait(&call, -1));
    for (size_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(rig.desk.keys[i], 7 + i);
        ck_assert_int_eq(rig.desk.deltas[i], 70 + 10 * (int64_t)i);
    }
    post_office_clear(&rig.office);
}
END_TEST

START_TEST(messages_of_one_sender_keep_their_order)
{
    Rig rig;
    Call call;
    Message clock = { .kind = MESSAGE_CLOCK, .server = 1 };
    Message get = { .kind = MESSAGE_GET, .server = 1, .call = &call, .end = message_end_call };
    pthread_t thread;

    rig_init(&rig);
    thread = make_busy(&rig);
    post_office_tell_local_clock(&rig.office, &clock);
    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    post_office_ask(&rig.office, &get);
    call_sent(&call);
    let_go(&rig, thread);
    ck_assert(call_wait(&call, -1));
    ck_assert_uint_eq(rig.desk.n_handled, 3);
    ck_assert_int_eq(rig.desk.kinds[1], MESSAGE_CLOCK);
    ck_assert_int_eq(rig.desk.kinds[2], MESSAGE_GET);
    post_office_clear(&rig.office);
}
END_TEST

START_TEST(an_answer_that_nobody_waits_for_is_dropped)
{
    const Incoming incoming = { .node = 0,
                                .header = { .kind = MESSAGE_REPLY,
                                            .reply = { .request_id = UINT64_C(1)
                                                                     << POST_OFFICE_SLOT_BITS } } };
    const Call call = { .ended = NULL };
    uint32_t node;
    Rig rig;

    rig_init(&rig);
    ck_assert_ptr_null(post_office_receive_reply(&rig.office, &incoming));
    ck_assert(!post_office_waits_for(&rig.office, &call, &node));
    post_office_clear(&rig.office);
}
END_TEST

START_TEST(a_message_between_nodes_is_bounded_in_bytes)
{
    ck_assert_uint_eq(post_office_max_keys(4), POST_OFFICE_MAX_VALUE_BYTES / 4);
    ck_assert_uint_eq(post_office_max_keys(1024), POST_OFFICE_MAX_VALUE_BYTES / 1024);
    ck_assert_uint_eq(post_office_max_keys(POST_OFFICE_MAX_VALUE_BYTES * 2), 1);
}
END_TEST

/* ---- with another node ---- */

/* The rig's node is number 1 and has a network; node 0 answers nothing. */
typedef struct {
    Rig rig;
    Station *other, *here;
} Pair;

static void pair_init(Pair *pair)
{
    const NetworkConfig config = { .room_bytes = post_office_room_bytes() };

    pair->other = station_new(0, 2, NULL);
    pair->here = station_new(1, 2, &config);
    stations_join((Station *const[]){ pair->other, pair->here }, 2);
    rig_init(&pair->rig);
    pair->rig.office.network = pair->here->network;
}

static void pair_clear(Pair *pair)
{
    post_office_clear(&pair->rig.office);
    station_free(pair->here);
    station_free(pair->other);
}

/* ---- answers ---- */

static void ask_get(PostOffice *office, Message *get, Call *call, uint64_t *row)
{
    call_begin(call, NULL);
    call_add_parts(call, 1);
    *get = (Message){ .kind = MESSAGE_GET,
                      .epoch = 1,
                      .call = call,
                      .request = { .keys = { .first = 3, .n = 1 }, .output = row },
                      .row_bytes = sizeof *row };
    post_office_ask(office, get);
    call_sent(call);
}

/* The answer of a node with a row of so many bytes, to the request of that number and slot. */
static const char *answer_get(PostOffice *office, uint32_t node, uint64_t number, uint32_t slot,
                              const uint64_t *row, size_t n_bytes)
{
    return post_office_receive_reply(
        office,
        &(Incoming){ .node = node,
                     .header = { .kind = MESSAGE_REPLY,
                                 .reply = { .request_id = number << POST_OFFICE_SLOT_BITS | slot,
                                            .min_clock = 8 } },
                     .values = row,
                     .value_bytes = n_bytes });
}

START_TEST(an_answer_ends_its_own_request_alone)
{
    const uint64_t nines[] = { 9, 9 };
    Message first, second;
    Call cancelled, call;
    uint64_t old = 5, row = 5;
    Pair pair;

    pair_init(&pair);
    PostOffice *office = &pair.rig.office;
    ask_get(office, &first, &cancelled, &old);
    post_office_cancel(office, 1);
    ask_get(office, &second, &call, &row); /* has the same slot */
    ck_assert_ptr_null(answer_get(office, 0, 1, 0, nines, 8));
    ck_assert(!call_has_ended(&call));
    ck_assert_ptr_null(answer_get(office, 1, 2, 0, nines, 8)); /* of another node */
    ck_assert(!call_has_ended(&call));
    ck_assert_ptr_null(answer_get(office, 0, 1, 5, nines, 8)); /* nobody has that slot */
    ck_assert_ptr_null(answer_get(office, 0, 2, 0, nines, 8));
    ck_assert(call_has_ended(&call));
    ck_assert_uint_eq(call.status, CALL_OK);
    ck_assert_uint_eq(call.min_clock, 8);
    ck_assert_uint_eq(row, 9);
    ck_assert_uint_eq(old, 5);
    pair_clear(&pair);
}
END_TEST

/* _i: bytes of a row of 8. */
START_TEST(an_answer_of_another_size_is_refused)
{
    const uint64_t nines[] = { 9, 9, 9 };
    uint64_t rows[2] = { 5, 5 };
    Message get;
    Call call;
    Pair pair;

    pair_init(&pair);
    ask_get(&pair.rig.office, &get, &call, rows);
    ck_assert((answer_get(&pair.rig.office, 0, 1, 0, nines, (size_t)_i) == NULL) == (_i == 8));
    ck_assert(call_has_ended(&call));
    ck_assert_uint_eq(call.status, _i == 8 ? CALL_OK : CALL_REFUSED);
    ck_assert_uint_eq(rows[0], _i == 8 ? 9 : 5);
    ck_assert_uint_eq(rows[1], 5);
    pair_clear(&pair);
}
END_TEST

enum { N_AT_ONCE = 50, N_SLOTS = 64 };

START_TEST(slots_of_requests_are_used_again_and_by_one_at_a_time)
{
    Message gets[N_SLOTS];
    Call calls[N_SLOTS];
    uint64_t rows[N_SLOTS];
    const uint64_t nine = 9;
    Pair pair;

    pair_init(&pair);
    PostOffice *office = &pair.rig.office;
    for (int round = 0; round < 20; round++) {
        const uint32_t n = round < 19 ? N_AT_ONCE : N_SLOTS; /* all of them at last */

        for (uint32_t i = 0; i < n; i++)
            ask_get(office, &gets[i], &calls[i], &rows[i]);
        /* what was never asked takes no slot, nor gives one back */
        for (uint32_t slot = n; slot < N_SLOTS; slot++)
            for (uint64_t number = 1; number < 20 * N_AT_ONCE; number++)
                (void)answer_get(office, 0, number, slot, &nine, 8);
        for (uint32_t i = 0; i < n; i++)
            require_msg(!call_has_ended(&calls[i]), "round %d: call %u", round, i);
        post_office_cancel(office, 1);
        for (uint32_t i = 0; i < n; i++)
            require_msg(call_has_ended(&calls[i]), "round %d: call %u", round, i);
    }
    ck_assert_uint_eq(office->n_pending_slots, N_SLOTS);
    pair_clear(&pair);
}
END_TEST

/* ---- who receives handles a bounded piece of work ---- */

static size_t find_three(Actor *actor, const Message *message)
{
    (void)actor;
    (void)message;
    return 3;
}

/* Receives a request of two values for a server that finds three more to do. */
static void receive_one(Pair *pair)
{
    Frame *frame = station_frame(MESSAGE_GET, 7, 0);
    Incoming *incoming;

    frame_header(frame)->request.server = 1;
    network_send(pair->other->network, 1, frame);
    incoming = station_take(pair->here, STATION_PATIENCE_MS);
    ck_assert_ptr_nonnull(incoming);
    ck_assert_ptr_null(post_office_receive_request(&pair->rig.office, incoming));
}

START_TEST(a_receiver_handles_so_much_of_a_batch)
{
    Pair pair;
    Actor *actor = &pair.rig.desk.actor;
    InlineWork *const work = &pair.rig.office.inline_work;

    pair_init(&pair);
    ck_assert(post_office_takes_more(&pair.rig.office));
    actor->has_thread = true; /* which is not there yet */
    actor->find_work = find_three;
    receive_one(&pair);
    ck_assert_uint_eq(pair.rig.desk.n_handled, 1);
    if (_i < 2)
        atomic_store(&work->most, _i == 0 ? 1 : 4); /* it has two values, and releases three */
    else
        work->is_over = true;
    ck_assert(post_office_takes_more(&pair.rig.office) == (_i < 2));
    receive_one(&pair);
    ck_assert_uint_eq(pair.rig.desk.n_handled, 1);
    ck_assert(actor_start(actor, "desk"));
    actor_stop(actor);
    ck_assert_uint_eq(pair.rig.desk.n_handled, 2);
    post_office_end_batch(&pair.rig.office);
    ck_assert(post_office_takes_more(&pair.rig.office));
    pair_clear(&pair);
}
END_TEST

static void refuse_with_room(Actor *actor, Message *message)
{
    if (!post_office_make_room(message, 8))
        abort();
    message->status = CALL_REFUSED;
    actor_answer(actor, message);
}

/* _i: of another node; the first of none; the last that a number can name. */
START_TEST(a_request_for_a_server_that_is_not_here_is_refused)
{
    const uint32_t servers[] = { 0, 3, UINT32_MAX };
    Frame *frame = station_frame(MESSAGE_GET, 7, 0);
    Incoming *incoming;
    Pair pair;

    pair_init(&pair);
    PostOffice *office = &pair.rig.office;
    ck_assert_uint_eq(office->n_servers, 3);
    /* what lies behind the servers would do as one */
    office->servers = g_renew(ServerAddress, office->servers, office->n_servers + 1);
    office->servers[office->n_servers] = office->servers[1];
    frame_header(frame)->request.server = servers[_i];
    network_send(pair.other->network, 1, frame);
    incoming = station_take(pair.here, STATION_PATIENCE_MS);
    ck_assert_ptr_nonnull(incoming);
    ck_assert_pstr_eq(post_office_receive_request(office, incoming),
                      "a request for a server that is not here");
    ck_assert_uint_eq(pair.rig.desk.n_handled, 0);
    pair_clear(&pair);
}
END_TEST

START_TEST(a_refusal_brings_no_rows)
{
    Incoming *incoming;
    Pair pair;

    pair_init(&pair);
    pair.rig.desk.actor.handle = refuse_with_room;
    receive_one(&pair);
    post_office_flush(&pair.rig.office);
    incoming = station_take(pair.other, STATION_PATIENCE_MS);
    ck_assert_ptr_nonnull(incoming);
    ck_assert_uint_eq(incoming->header.reply.status, CALL_REFUSED);
    ck_assert_uint_eq(incoming->value_bytes, 0);
    incoming_free(incoming);
    pair_clear(&pair);
}
END_TEST

/* ---- the end of a task ---- */

enum { N_ASKED = 6 };

START_TEST(cancelling_a_task_ends_its_own_requests_alone)
{
    Pair pair;
    Call calls[N_ASKED];
    Message gets[N_ASKED];
    uint32_t node;

    pair_init(&pair);
    for (uint32_t i = 0; i < N_ASKED; i++) {
        call_begin(&calls[i], NULL);
        call_add_parts(&calls[i], 1);
        gets[i] = (Message){ .kind = MESSAGE_GET, .epoch = 1 + i % 2, .call = &calls[i] };
        post_office_ask(&pair.rig.office, &gets[i]);
        call_sent(&calls[i]);
    }
    post_office_cancel(&pair.rig.office, 3);
    for (uint32_t i = 0; i < N_ASKED; i++)
        ck_assert(!call_has_ended(&calls[i]));
    post_office_cancel(&pair.rig.office, 2);
    for (uint32_t i = 0; i < N_ASKED; i++) {
        ck_assert(call_has_ended(&calls[i]) == (i % 2 == 1));
        ck_assert(post_office_waits_for(&pair.rig.office, &calls[i], &node) == (i % 2 == 0));
    }
    ck_assert_uint_eq(calls[1].status, CALL_CANCELLED);
    post_office_cancel(&pair.rig.office, POST_OFFICE_ALL_EPOCHS);
    for (uint32_t i = 0; i < N_ASKED; i++) {
        ck_assert(call_has_ended(&calls[i]));
        ck_assert_uint_eq(calls[i].status, CALL_CANCELLED);
    }
    pair_clear(&pair);
}
END_TEST

/* A backlog may take long: the receiving thread leaves it, and the messages behind it, to the
 * server's own thread, even if no thread handles it now. _i: a request, a clock. */
START_TEST(a_receiver_takes_over_no_backlog)
{
    Pair pair;
    Message before = { .kind = MESSAGE_CLOCK, .server = 1 };
    Actor *actor = &pair.rig.desk.actor;
    Incoming *incoming;
    Frame *frame;

    pair_init(&pair);
    frame = station_frame(_i == 0 ? MESSAGE_GET : MESSAGE_CLOCK, 7, 0);
    if (_i == 0)
        frame_header(frame)->request.server = 1;
    network_send(pair.other->network, 1, frame);
    incoming = station_take(pair.here, STATION_PATIENCE_MS);
    ck_assert_ptr_nonnull(incoming);
    actor->has_thread = true; /* which has not woken yet */
    mailbox_push(&actor->mailbox, &before);
    if (_i == 0) {
        ck_assert_ptr_null(post_office_receive_request(&pair.rig.office, incoming));
    } else {
        post_office_receive_clock(&pair.rig.office, incoming);
        incoming_free(incoming);
    }
    ck_assert_uint_eq(pair.rig.desk.n_handled, 0);
    ck_assert(actor_start(actor, "desk"));
    actor_stop(actor);
    ck_assert_uint_eq(pair.rig.desk.n_handled, 2);
    ck_assert_int_eq(pair.rig.desk.kinds[1], _i == 0 ? MESSAGE_GET : MESSAGE_CLOCK);
    pair_clear(&pair);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("post_office");
    TCase *cases = tcase_create("post_office");

    tcase_add_test(cases, servers_are_numbered_over_all_nodes);
    tcase_add_test(cases, what_is_asked_of_an_idle_server_is_answered_at_once);
    tcase_add_loop_test(cases, a_large_request_is_not_left_to_a_busy_server_at_once, 0, 2);
    tcase_add_test(cases, what_is_asked_of_a_busy_server_waits_for_it);
    tcase_add_loop_test(cases, what_is_told_may_be_reused_at_once, 0, 6);
    tcase_add_test(cases, messages_of_one_sender_keep_their_order);
    tcase_add_test(cases, an_answer_that_nobody_waits_for_is_dropped);
    tcase_add_test(cases, a_message_between_nodes_is_bounded_in_bytes);
    tcase_add_test(cases, an_answer_ends_its_own_request_alone);
    tcase_add_loop_test(cases, an_answer_of_another_size_is_refused, 7, 18);
    tcase_add_test(cases, slots_of_requests_are_used_again_and_by_one_at_a_time);
    tcase_add_loop_test(cases, a_receiver_handles_so_much_of_a_batch, 0, 3);
    tcase_add_loop_test(cases, a_request_for_a_server_that_is_not_here_is_refused, 0, 3);
    tcase_add_test(cases, a_refusal_brings_no_rows);
    tcase_add_test(cases, cancelling_a_task_ends_its_own_requests_alone);
    tcase_add_loop_test(cases, a_receiver_takes_over_no_backlog, 0, 2);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
