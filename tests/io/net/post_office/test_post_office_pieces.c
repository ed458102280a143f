/* Requests to another node that are cut into pieces: each comes whole, and so does its answer. */
#include <rubato/handler.h>
#include <rubato/handler_ops.h>
#include <string.h>

#include "io/net/handler_call.h"
#include "io/net/post_office/post_office.h"
#include "tests/support/network/station.h"
#include "tests/support/runner.h"

enum { N_ROWS = 400, N_WANTED = 200, PIECE_BYTES = 512, MOST_ROW_BYTES = 12 };

/* A server that has a row for each key: its first word is what follows from the key, and what was
 * added; the others are as they are told. */
typedef struct {
    Actor actor; /* first */
    size_t row_bytes;
    uint32_t added[N_ROWS];
    unsigned n_pieces;
} Shelf;

static uint32_t word_of(RubatoKey key, size_t column)
{
    return (uint32_t)(key * 1000 + column);
}

static void handle_rows(Actor *actor, Message *message)
{
    Shelf *shelf = (Shelf *)actor;
    const RubatoKeys *keys = &message->request.keys;
    const size_t width = shelf->row_bytes / 4;

    shelf->n_pieces++;
    message->status =
        message->kind == MESSAGE_GET && !post_office_make_room(message, keys->n * shelf->row_bytes)
            ? CALL_REFUSED
            : CALL_OK;
    message->min_clock = 5;
    for (size_t i = 0; message->status == CALL_OK && i < keys->n; i++) {
        const RubatoKey key = keys->keys == NULL ? keys->first + i : keys->keys[i];
        uint32_t *output = message->request.output;
        const uint32_t *input = message->request.input;

        for (size_t column = 0; column < width; column++)
            if (message->kind == MESSAGE_GET)
                output[i * width + column] = word_of(key, column);
            else
                shelf->added[key] += input[i * width + column];
    }
    actor_answer(actor, message);
}

/* Node 0 asks; server 1 of the three is on node 1. */
typedef struct {
    PostOffice asking, answering;
    Station *other, *here;
} Pair;

static void pair_init_with(Pair *pair, Actor *server, const char *endpoint, const FlowSizes *sizes)
{
    static const uint32_t ids[] = { 10, 20 }, servers_of[] = { 1, 2 };
    const NetworkConfig config = { .room_bytes = post_office_room_bytes(),
                                   .bind_endpoints = &endpoint,
                                   .n_bind_endpoints = endpoint == NULL ? 0 : 1 };

    pair->other = station_new(0, 2, &config);
    pair->here = station_new(1, 2, &config);
    stations_join((Station *const[]){ pair->other, pair->here }, 2);
    post_office_init(&pair->asking, 0, 2, ids, servers_of, sizes);
    pair->asking.network = pair->other->network;
    post_office_init(&pair->answering, 1, 2, ids, servers_of, &FLOW_SIZES_USUAL);
    pair->answering.network = pair->here->network;
    pair->answering.servers[1].actor = server;
}

static void pair_init(Pair *pair, Actor *server)
{
    FlowSizes sizes = FLOW_SIZES_USUAL;

    sizes.piece_bytes = sizes.near_piece_bytes = PIECE_BYTES;
    pair_init_with(pair, server, NULL, &sizes);
}

static void pair_clear(Pair *pair)
{
    post_office_clear(&pair->asking);
    post_office_clear(&pair->answering);
    station_free(pair->here);
    station_free(pair->other);
}

/* Carries requests and answers until the call has ended. */
static void carry(Pair *pair, Call *call)
{
    while (!call_has_ended(call)) {
        Incoming *incoming = station_take(pair->here, 5);

        if (incoming != NULL)
            ck_assert_ptr_null(post_office_receive_request(&pair->answering, incoming));
        post_office_flush(&pair->answering);
        while ((incoming = station_take(pair->other, 1)) != NULL) {
            ck_assert_ptr_null(post_office_receive_reply(&pair->asking, incoming));
            incoming_free(incoming);
        }
    }
}

/* _i: a list, a selection, a run; rows of one word and of several; a Get, an Add. */
START_TEST(requests_in_pieces_come_whole)
{
    const size_t width = _i / 3 % 2 == 0 ? 1 : MOST_ROW_BYTES / 4;
    const bool adds = _i / 6 == 1;
    RubatoKey keys[N_ROWS];
    uint32_t at[N_WANTED], values[N_ROWS * MOST_ROW_BYTES / 4];
    const RubatoKeys forms[] = { { .keys = keys, .n = N_WANTED },
                                 { .keys = keys, .at = at, .n = N_WANTED },
                                 { .first = 100, .n = N_WANTED } };
    Shelf shelf = { .row_bytes = width * 4 };
    Call call;
    Message message = { .kind = adds ? MESSAGE_ADD : MESSAGE_GET,
                        .server = 1,
                        .call = &call,
                        .request = { .keys = forms[_i % 3],
                                     .input = adds ? values : NULL,
                                     .output = adds ? NULL : values },
                        .row_bytes = width * 4 };
    Pair pair;

    for (uint32_t i = 0; i < N_ROWS; i++)
        keys[i] = _i % 3 == 1 ? i : N_ROWS - 1 - i;
    for (uint32_t i = 0; i < N_WANTED; i++)
        at[i] = 2 * i + 1;
    for (uint32_t i = 0; i < G_N_ELEMENTS(values); i++)
        values[i] = 7 + i;
    actor_init(&shelf.actor, handle_rows, NULL);
    pair_init(&pair, &shelf.actor);

    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    post_office_ask(&pair.asking, &message);
    post_office_flush(&pair.asking);
    call_sent(&call);
    carry(&pair, &call);
    ck_assert_uint_eq(call.status, CALL_OK);
    ck_assert_uint_eq(call.min_clock, 5);
    ck_assert_uint_gt(shelf.n_pieces, 1);
    for (uint32_t i = 0; i < N_WANTED; i++) {
        const size_t position = _i % 3 == 1 ? at[i] : i;
        const RubatoKey key = _i % 3 == 2 ? 100 + i : keys[position];
        uint32_t expected = 0;

        for (size_t column = 0; column < width; column++) {
            expected += (uint32_t)(7 + position * width + column);
            require_msg(adds || values[position * width + column] == word_of(key, column),
                        "row %u, column %u", i, (unsigned)column);
        }
        require_msg(!adds || shelf.added[key] == expected, "key %u got %u", (unsigned)key,
                    shelf.added[key]);
    }
    for (uint32_t i = 0; !adds && i < N_WANTED && _i % 3 == 1; i++) /* the rows between */
        require_msg(values[2 * i * width] == 7 + 2 * i * width, "row %u", 2 * i);
    pair_clear(&pair);
}
END_TEST

/* The other node may have ended: no answer comes any more. */
START_TEST(what_has_no_answer_ends_with_the_office)
{
    Shelf shelf = { .row_bytes = 4 };
    Call call;
    Message fence = { .kind = MESSAGE_FENCE,
                      .table = MESSAGE_NO_TABLE,
                      .server = 1,
                      .call = &call,
                      .end = message_end_call };
    Pair pair;

    actor_init(&shelf.actor, handle_rows, NULL);
    pair_init(&pair, &shelf.actor);
    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    post_office_ask(&pair.asking, &fence);
    post_office_flush(&pair.asking);
    call_sent(&call);
    ck_assert(!call_has_ended(&call));
    pair_clear(&pair);
    ck_assert(call_has_ended(&call));
    ck_assert_uint_eq(call.status, CALL_CANCELLED);
}
END_TEST

/* _i: with an even number of keys, or an odd one, so that their deltas are padded; in one message
 * or in pieces. */
START_TEST(a_kept_add_goes_through_shared_memory_as_it_lies)
{
    enum { N_LARGE = 5000 };
    const size_t n = N_LARGE + (size_t)_i % 2;
    g_autofree RubatoKey *keys = g_new(RubatoKey, n);
    g_autofree uint32_t *deltas = g_new(uint32_t, n);
    Message add = { .kind = MESSAGE_ADD,
                    .server = 1,
                    .request = { .keys = { .keys = keys, .n = n }, .input = deltas },
                    .row_bytes = sizeof *deltas };
    FlowSizes sizes = FLOW_SIZES_USUAL;
    Shelf shelf = { .row_bytes = sizeof *deltas };
    uint32_t expected[N_ROWS] = { 0 };
    Pair pair;
    Call call;

    for (size_t i = 0; i < n; i++) {
        keys[i] = i * 7 % N_ROWS;
        deltas[i] = (uint32_t)(i + 1);
        expected[keys[i]] += deltas[i];
    }
    if (_i / 2 == 1)
        sizes.near_piece_bytes = (size_t)30 << 10;
    actor_init(&shelf.actor, handle_rows, NULL);
    pair_init_with(&pair, &shelf.actor, "shm://*", &sizes);
    ck_assert(network_takes_packed(pair.asking.network, 1, n * 12));
    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    add.call = &call;
    Message *const kept = message_copy_request(&add);

    memset(keys, 0xff, n * sizeof *keys);
    memset(deltas, 0xff, n * sizeof *deltas);
    ck_assert(post_office_tell(&pair.asking, kept) != POST_OFFICE_UNSENT);
    post_office_flush(&pair.asking);
    call_sent(&call);
    carry(&pair, &call);
    ck_assert_uint_eq(call.status, CALL_OK);
    ck_assert_uint_eq(shelf.n_pieces, _i / 2 == 1 ? 2 : 1);
    ck_assert_mem_eq(shelf.added, expected, sizeof expected);
    g_free(kept);
    pair_clear(&pair);
}
END_TEST

/* Notes how many keys each piece says that the iteration has. */
typedef struct {
    Actor actor; /* first */
    uint64_t n_keys, least, most;
} Listener;

static void handle_announcement(Actor *actor, Message *message)
{
    Listener *const listener = (Listener *)actor;

    listener->n_keys += message->request.keys.n;
    listener->least = MIN(listener->least, message->request.n_announced);
    listener->most = MAX(listener->most, message->request.n_announced);
    message->status = CALL_OK;
    actor_answer(actor, message);
}

static void hear(Pair *pair, const Listener *listener, uint64_t n_keys)
{
    while (listener->n_keys < n_keys) {
        Incoming *const incoming = station_take(pair->here, 5);

        if (incoming != NULL)
            ck_assert_ptr_null(post_office_receive_request(&pair->answering, incoming));
    }
}

/* Also a piece that is sent again alone, and one that a primary passes on. */
START_TEST(each_piece_of_an_announcement_says_how_many_keys_there_are)
{
    Listener listener = { .least = UINT64_MAX };
    RubatoKey keys[N_WANTED];
    Call call;
    Message message = { .kind = MESSAGE_ANNOUNCE,
                        .server = 1,
                        .call = &call,
                        .request = { .keys = { .keys = keys, .n = N_WANTED } } };
    const Message input = { .kind = MESSAGE_FEED,
                            .fed_kind = MESSAGE_ANNOUNCE,
                            .server = 1,
                            .request = { .keys = { .first = 3, .n = 1 },
                                         .n_announced = N_WANTED } };
    Pair pair;

    for (uint32_t i = 0; i < N_WANTED; i++)
        keys[i] = N_ROWS - 1 - i;
    actor_init(&listener.actor, handle_announcement, NULL);
    pair_init(&pair, &listener.actor);
    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    ck_assert(post_office_tell(&pair.asking, &message) != POST_OFFICE_UNSENT);
    call_sent(&call);
    post_office_send_again(&pair.asking, 0, 0, 1);
    hear(&pair, &listener, 2 * N_WANTED);
    ck_assert(post_office_push(&pair.asking, &input));
    post_office_flush(&pair.asking);
    hear(&pair, &listener, 2 * N_WANTED + 1);
    ck_assert_uint_eq(listener.least, N_WANTED);
    ck_assert_uint_eq(listener.most, N_WANTED);
    post_office_flush(&pair.answering);
    carry(&pair, &call);
    pair_clear(&pair);
}
END_TEST

/* ---- calls of handlers ---- */

enum { ARGUMENT_BYTES = 600000 /* several of the largest messages */ };

/* Puts the bytes of a call together. */
typedef struct {
    Actor actor; /* first */
    unsigned char bytes[ARGUMENT_BYTES + HANDLER_CALL_MOST_BYTES - RUBATO_HANDLER_MOST_BYTES];
    uint64_t n_come, n_bytes, serial;
    unsigned n_pieces;
} Collector;

static void collect(Actor *actor, Message *message)
{
    Collector *const it = (Collector *)actor;
    const RubatoRequest *const request = &message->request;

    ck_assert_uint_eq(request->keys.first, it->n_come);
    ck_assert_uint_le(it->n_come + request->keys.n, sizeof it->bytes);
    memcpy(it->bytes + it->n_come, request->input, request->keys.n);
    it->n_come += request->keys.n;
    it->n_bytes = request->piece.n_bytes;
    it->serial = request->piece.serial;
    it->n_pieces++;
    message->status = CALL_OK;
    message->min_clock = 5;
    actor_answer(actor, message);
}

static void take_call(Pair *pair, const Collector *collector)
{
    while (collector->n_pieces == 0 || collector->n_come < collector->n_bytes) {
        Incoming *const incoming = station_take(pair->here, 5);

        if (incoming != NULL)
            ck_assert_ptr_null(post_office_receive_request(&pair->answering, incoming));
    }
}

/* All pieces, which come as they find room. */
static void lose_call(Pair *pair, const HandlerCall *call)
{
    for (size_t n_lost = 0; n_lost < call->n_payload_bytes;) {
        Incoming *const incoming = station_take(pair->here, 5);

        if (incoming == NULL)
            continue;
        n_lost += incoming->value_bytes;
        incoming_free(incoming);
    }
}

/* A server is lost that has got nothing of a call, or all of it: the next one gets all, by the same
 * number. _i 1: the first one has answered all pieces but the last. */
START_TEST(a_call_that_comes_again_comes_whole)
{
    static const RubatoHandlerOps ops = { .name = "named", .access = RUBATO_ACCESS_WRITES };
    g_autofree char *arguments = g_malloc(ARGUMENT_BYTES);
    g_autofree Collector *collector = g_new0(Collector, 1);
    HandlerCall handler_call = { .ops = &ops,
                                 .arguments = arguments,
                                 .n_bytes = ARGUMENT_BYTES,
                                 .is_whole = true,
                                 .comes_again = true };
    HandlerCall come;
    RubatoKeys keys;
    const char *name;
    Call call;
    Message message = { .kind = MESSAGE_HANDLER,
                        .server = 1,
                        .call = &call,
                        .end = handler_call_end,
                        .request = { .worker = 3, .handler_call = &handler_call } };
    Pair pair;

    for (size_t i = 0; i < ARGUMENT_BYTES; i++)
        arguments[i] = (char)(i * 7 + i / 251);
    actor_init(&collector->actor, collect, NULL);
    pair_init(&pair, &collector->actor);
    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    post_office_call_handler(&pair.asking, &message);
    call_sent(&call);
    post_office_flush(&pair.asking);
    if (_i == 1)
        take_call(&pair, collector); /* its answers have not left */
    else
        lose_call(&pair, &handler_call);
    const uint64_t serial = handler_call.serial;
    ck_assert_uint_ne(serial, 0);
    for (int again = 0; again < 2; again++) {
        collector->n_come = collector->n_pieces = 0;
        post_office_send_again(&pair.asking, 0, 0, 1);
        take_call(&pair, collector);
        ck_assert_uint_gt(collector->n_pieces, 1);
        ck_assert_uint_eq(collector->serial, serial);
        ck_assert_ptr_null(
            handler_call_read(collector->bytes, (size_t)collector->n_bytes, &come, &keys, &name));
        ck_assert_str_eq(name, "named");
        ck_assert_mem_eq(come.arguments, arguments, ARGUMENT_BYTES);
        ck_assert(!call_has_ended(&call));
    }
    post_office_flush(&pair.answering);
    carry(&pair, &call);
    ck_assert_uint_eq(call.status, CALL_OK);
    pair_clear(&pair);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("post_office_pieces");
    TCase *cases = tcase_create("pieces");

    tcase_add_loop_test(cases, requests_in_pieces_come_whole, 0, 12);
    tcase_add_loop_test(cases, a_kept_add_goes_through_shared_memory_as_it_lies, 0, 4);
    tcase_add_test(cases, each_piece_of_an_announcement_says_how_many_keys_there_are);
    tcase_add_loop_test(cases, a_call_that_comes_again_comes_whole, 0, 2);
    tcase_add_test(cases, what_has_no_answer_ends_with_the_office);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
