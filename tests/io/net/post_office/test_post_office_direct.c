/* Answers that are read straight to their place: each belongs to its own request, and nothing is
 * read there any more once the request has ended, whatever ends it. */
#include <string.h>

#include "io/net/post_office/post_office.h"
#include "tests/support/cluster/outage.h"
#include "tests/support/network/station.h"
#include "tests/support/runner.h"

static const uint32_t ids[] = { 10, 20 }, servers_of[] = { 1, 1 };

static const WireHeader row_of_8 = { .kind = MESSAGE_REPLY,
                                     .value_bytes = 8,
                                     .reply = { .request_id = UINT64_C(1)
                                                              << POST_OFFICE_SLOT_BITS } };

/* Node 1 has asked server 0, which is on node 0, for a row. */
typedef struct {
    Station *other, *here;
    PostOffice office;
    BlockPool *pool;
    DirectRead direct;
    Message get;
    Call call;
} Scene;

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

/* The answer of node 0 to the first request. */
static const char *answer_get(PostOffice *office, const void *row)
{
    return post_office_receive_reply(
        office, &(Incoming){ .header = row_of_8, .values = row, .value_bytes = 8 });
}

static void scene_init(Scene *scene, uint64_t *row)
{
    scene->other = station_new(0, 2, NULL);
    scene->here = station_new(1, 2, NULL);
    stations_join((Station *const[]){ scene->other, scene->here }, 2);
    post_office_init(&scene->office, 1, 2, ids, servers_of, &FLOW_SIZES_USUAL);
    scene->office.network = scene->here->network;
    scene->pool = block_pool_new();
    direct_read_init(&scene->direct, scene->pool);
    ask_get(&scene->office, &scene->get, &scene->call, row);
}

static void scene_clear(Scene *scene)
{
    direct_read_finish(&scene->direct);
    direct_read_clear(&scene->direct);
    block_pool_free(scene->pool);
    post_office_clear(&scene->office);
    station_free(scene->here);
    station_free(scene->other);
}

START_TEST(an_answer_is_read_to_the_place_of_its_own_request_alone)
{
    static const uint32_t at[] = { 0 };
    uint64_t row = 5, other = 5;
    Message list;
    Call call;
    Scene scene;
    WireHeader header;

    scene_init(&scene, &row);
    PostOffice *const office = &scene.office;
    DirectRead *const direct = &scene.direct;
    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    list = scene.get;
    list.call = &call;
    list.request.output = &other;
    list.request.keys = (RubatoKeys){ .keys = (const RubatoKey[]){ 3 }, .at = at, .n = 1 };
    post_office_ask(office, &list); /* in the second slot: its rows have places of their own */
    call_sent(&call);

    ck_assert(!post_office_begin_direct(office, 1, &row_of_8, direct)); /* another node */
    header = row_of_8;
    header.value_bytes = 16;
    ck_assert(!post_office_begin_direct(office, 0, &header, direct));
    header = row_of_8;
    header.reply.request_id = UINT64_C(9)
                              << POST_OFFICE_SLOT_BITS; /* a later one, a slot that nobody has */
    ck_assert(!post_office_begin_direct(office, 0, &header, direct));
    header.reply.request_id = (UINT64_C(1) << POST_OFFICE_SLOT_BITS) + 9999;
    ck_assert(!post_office_begin_direct(office, 0, &header, direct));
    header.reply.request_id = (UINT64_C(2) << POST_OFFICE_SLOT_BITS) + 1; /* the list */
    ck_assert(!post_office_begin_direct(office, 0, &header, direct));
    header = row_of_8;
    header.reply.status = CALL_REFUSED;
    ck_assert(!post_office_begin_direct(office, 0, &header, direct));
    header = row_of_8;
    header.reply.more_bytes = 1;
    ck_assert(!post_office_begin_direct(office, 0, &header, direct));

    ck_assert(post_office_begin_direct(office, 0, &row_of_8, direct));
    ck_assert_ptr_eq(direct->bytes, &row);
    ck_assert(!post_office_begin_direct(office, 0, &row_of_8, direct)); /* one at a time */
    post_office_end_direct(office, direct);
    ck_assert(post_office_begin_direct(office, 0, &row_of_8, direct)); /* it is sent again */
    post_office_end_direct(office, direct);
    post_office_cancel(office, 1);
    ck_assert(call_has_ended(&call) && call_has_ended(&scene.call));
    scene_clear(&scene);
}
END_TEST

/* The rows are where they belong when their answer is received. */
START_TEST(an_answer_at_its_place_ends_its_request)
{
    uint64_t row = 5;
    Scene scene;

    scene_init(&scene, &row);
    PostOffice *const office = &scene.office;
    ck_assert(post_office_begin_direct(office, 0, &row_of_8, &scene.direct));
    ck_assert_ptr_eq(direct_read_lock(&scene.direct), &row);
    row = 9;
    direct_read_unlock(&scene.direct, 8);
    ck_assert_ptr_null(answer_get(office, &row));
    ck_assert(call_has_ended(&scene.call));
    ck_assert_uint_eq(scene.call.status, CALL_OK);
    ck_assert(!scene.direct.is_revoked);
    post_office_end_direct(office, &scene.direct);
    ck_assert_uint_eq(row, 9);
    scene_clear(&scene);
}
END_TEST

/* _i: a cancellation; a copy of the answer, by another connection. Half of the row has come. */
START_TEST(a_request_that_ends_takes_its_place_back)
{
    const uint64_t nine = 9;
    uint64_t row = UINT64_C(0x0101010101010101);
    uint32_t half;
    Scene scene;

    scene_init(&scene, &row);
    PostOffice *const office = &scene.office;
    ck_assert(post_office_begin_direct(office, 0, &row_of_8, &scene.direct));
    direct_read_unlock(&scene.direct, direct_read_lock(&scene.direct) != NULL ? 4 : 0);
    if (_i == 0)
        post_office_cancel(office, 1);
    else
        ck_assert_ptr_null(answer_get(office, &nine));
    ck_assert(call_has_ended(&scene.call));
    ck_assert_uint_eq(scene.call.status, _i == 0 ? CALL_CANCELLED : CALL_OK);
    ck_assert(scene.direct.is_revoked);
    ck_assert_ptr_ne(scene.direct.bytes, &row);
    memcpy(&half, scene.direct.bytes, sizeof half); /* the read goes on behind it */
    ck_assert_uint_eq(half, 0x01010101);
    if (_i == 1)
        ck_assert_uint_eq(row, 9);
    /* what it brings at last is dropped */
    ck_assert_ptr_null(answer_get(office, scene.direct.bytes));
    post_office_end_direct(office, &scene.direct);
    scene_clear(&scene);
}
END_TEST

/* The slot has another request by then, which the end of the old read does not touch. */
START_TEST(the_end_of_a_read_is_none_of_a_later_request)
{
    uint64_t row = 5, later_row = 5;
    WireHeader later = row_of_8;
    Scene scene;
    DirectRead direct;
    Message get;
    Call call;

    scene_init(&scene, &row);
    PostOffice *const office = &scene.office;
    direct_read_init(&direct, scene.pool);
    ck_assert(post_office_begin_direct(office, 0, &row_of_8, &scene.direct));
    post_office_cancel(office, 1);
    ask_get(office, &get, &call, &later_row);
    later.reply.request_id = UINT64_C(2) << POST_OFFICE_SLOT_BITS;
    ck_assert(post_office_begin_direct(office, 0, &later, &direct));
    post_office_end_direct(office, &scene.direct);
    post_office_cancel(office, 1);
    ck_assert(direct.is_revoked); /* it was still known */
    post_office_end_direct(office, &direct);
    direct_read_finish(&direct);
    direct_read_clear(&direct);
    scene_clear(&scene);
}
END_TEST

/* ---- over real connections ---- */

static const RunSecret SECRET = { { 9, 8, 7 } };

enum { N_ROWS = 200000 };

/* Node 1, which asks; node 0 answers by hand. */
typedef struct {
    Station *other;
    Network *network;
    PostOffice office;
    uint8_t *place;   /* of a piece of a tensor, and of the values that stay before it */
    bool is_at_place; /* the last one came there; the receiving thread's */
    _Atomic unsigned n_pieces;
    _Atomic unsigned n_begun, n_ended;
} Asker;

enum { PIECE_BYTES = 400000, FIRST_BYTES = NETWORK_DIRECT_FIRST_BYTES };

/* Wherever it has come, it lies where it belongs behind this. */
static void take_piece(Asker *asker, const Incoming *incoming)
{
    const size_t n = incoming->apart != NULL ? FIRST_BYTES : PIECE_BYTES;

    asker->is_at_place = incoming->apart == asker->place + FIRST_BYTES;
    if (incoming->value_bytes == PIECE_BYTES)
        memcpy(asker->place, incoming->values, n);
    atomic_fetch_add(&asker->n_pieces, 1);
}

static void take_reply(void *user, Incoming *incoming)
{
    Asker *const asker = user;

    if (incoming->header.kind == MESSAGE_REPLY)
        (void)post_office_receive_reply(&asker->office, incoming);
    else if (incoming->header.kind == MESSAGE_TENSOR)
        take_piece(asker, incoming);
    incoming_free(incoming);
}

static void take_no_greeting(void *user, uint16_t version, GVariant *body,
                             const GreetingSource *source)
{
    (void)user;
    (void)version;
    (void)body;
    (void)source;
}

static void tick(void *user, int64_t now_ms)
{
    (void)user;
    (void)now_ms;
}

static bool begin_piece(Asker *asker, uint32_t node, const WireHeader *header, const uint8_t *first,
                        DirectRead *direct)
{
    const DirectPiece piece = { .epoch = header->epoch, .node = node, .operation = first[0] };

    direct_read_start_piece(direct, &piece, asker->place + FIRST_BYTES,
                            (size_t)header->value_bytes - FIRST_BYTES);
    return true;
}

static bool begin_direct(void *user, uint32_t node, const WireHeader *header, const void *first,
                         DirectRead *direct)
{
    Asker *const asker = user;
    const bool begins = header->kind == MESSAGE_TENSOR
                            ? begin_piece(asker, node, header, first, direct)
                            : post_office_begin_direct(&asker->office, node, header, direct);

    atomic_fetch_add(&asker->n_begun, begins);
    return begins;
}

static void end_direct(void *user, DirectRead *direct)
{
    Asker *const asker = user;

    if (!direct->is_piece)
        post_office_end_direct(&asker->office, direct);
    atomic_fetch_add(&asker->n_ended, 1);
}

static void asker_init(Asker *asker, bool encrypts)
{
    static const char *const any = "tcp://127.0.0.1:0";
    const NetworkConfig config = { .self = 1,
                                   .n_nodes = 2,
                                   .incarnation = STATION_INCARNATION(1),
                                   .bind_endpoints = &any,
                                   .n_bind_endpoints = 1,
                                   .drops_replies = true,
                                   .room_bytes = 64,
                                   .tick_ms = 10,
                                   .timeout_ms = 20000,
                                   .secret = encrypts ? &SECRET : NULL,
                                   .encrypt = encrypts };
    const NetworkHandler handler = { .receive = take_reply,
                                     .greeted = take_no_greeting,
                                     .begin_direct = begin_direct,
                                     .end_direct = end_direct,
                                     .tick = tick };
    NetworkConfig of_other = config;
    NetworkPeer peers[2] = { { 0 } };
    GError *error = NULL;

    of_other.incarnation = 0; /* a station's own */
    atomic_init(&asker->n_pieces, 0);
    atomic_init(&asker->n_begun, 0);
    atomic_init(&asker->n_ended, 0);
    post_office_init(&asker->office, 1, 2, ids, servers_of, &FLOW_SIZES_USUAL);
    asker->other = station_new(0, 2, &of_other);
    asker->network = asker->office.network = network_new(&config, &handler, asker, &error);
    ck_assert_ptr_nonnull(asker->network);
    ck_assert(network_start(asker->network, &error));
    peers[0] = station_peer(asker->other, 0);
    peers[1] = (NetworkPeer){ .endpoint = network_endpoint(asker->network, 0),
                              .incarnation = STATION_INCARNATION(1) };
    ck_assert(network_join(asker->network, STATION_RUN_ID, peers, &error));
    ck_assert(network_join(asker->other->network, STATION_RUN_ID, peers, &error));
}

static void asker_clear(Asker *asker)
{
    network_free(asker->network);
    ck_assert_uint_eq(asker->n_begun, asker->n_ended);
    station_free(asker->other);
    post_office_clear(&asker->office);
}

static uint32_t row_of(uint64_t key, unsigned round)
{
    return (uint32_t)(key * 7 + round);
}

/* Asks for all rows, in pieces. */
static void ask_all(Asker *asker, Message *get, Call *call, uint32_t *rows)
{
    call_begin(call, NULL);
    call_add_parts(call, 1);
    *get = (Message){ .kind = MESSAGE_GET,
                      .epoch = 1,
                      .call = call,
                      .request = { .keys = { .n = N_ROWS }, .output = rows },
                      .row_bytes = sizeof *rows };
    post_office_ask(&asker->office, get);
    post_office_flush(&asker->office);
    call_sent(call);
}

/* Answers the next piece, if one comes in this time. */
static bool answer_next(Asker *asker, unsigned round, int timeout_ms)
{
    Incoming *const incoming = station_take(asker->other, timeout_ms);

    if (incoming == NULL)
        return false;
    const WireRequest *const request = &incoming->header.request;
    const WireHeader header = { .kind = MESSAGE_REPLY,
                                .value_bytes = request->n_keys * sizeof(uint32_t),
                                .reply = { .request_id = request->id } };
    Frame *const frame = frame_new(&header);
    uint32_t *const rows = frame_values(frame);

    for (uint64_t i = 0; i < request->n_keys; i++)
        rows[i] = row_of(request->first_key + i, round);
    network_send(asker->other->network, 1, frame);
    incoming_free(incoming);
    return true;
}

/* _i: encrypted. Connections break in the middle of answers, which come again. */
START_TEST(rows_come_to_their_place_while_connections_break)
{
    enum { N_ROUNDS = 16 };
    g_autofree uint32_t *rows = g_new(uint32_t, N_ROWS);
    Message get;
    Call call;
    Asker asker;

    asker_init(&asker, _i == 1);
    for (unsigned round = 0; round < N_ROUNDS; round++) {
        memset(rows, 0xee, N_ROWS * sizeof *rows);
        ask_all(&asker, &get, &call, rows);
        for (unsigned n = 0; !call_has_ended(&call);)
            if (answer_next(&asker, round, 5) && ++n == 1 + round % 4 && round % 2 == 1)
                (void)outage_reset_connections(2);
        ck_assert_uint_eq(call.status, CALL_OK);
        for (uint64_t i = 0; i < N_ROWS; i++)
            require_msg(rows[i] == row_of(i, round), "round %u: row %u", round, (unsigned)i);
    }
    asker_clear(&asker);
    if (_i == 0) /* the rounds without a break have some for certain */
        ck_assert_uint_ge(asker.n_begun, N_ROUNDS / 2);
}
END_TEST

/* _i: encrypted. The memory is freed as soon as the call has ended. */
START_TEST(rows_of_a_cancelled_request_are_freed_at_once)
{
    enum { N_ROUNDS = 40 };
    Message get;
    Call call;
    Asker asker;

    asker_init(&asker, _i == 1);
    for (unsigned round = 0; round < N_ROUNDS; round++) {
        uint32_t *const rows = g_new(uint32_t, N_ROWS);

        ask_all(&asker, &get, &call, rows);
        for (unsigned n = 0; n <= round % 5; n++)
            ck_assert(answer_next(&asker, round, STATION_PATIENCE_MS));
        post_office_cancel(&asker.office, 1);
        ck_assert(call_wait(&call, -1)); /* an answer may just end it */
        g_free(rows);
        while (answer_next(&asker, round, 0)) /* answers for which nobody waits */
            ;
    }
    uint32_t *const rows = g_new(uint32_t, N_ROWS); /* and the link goes on */
    ask_all(&asker, &get, &call, rows);
    while (!call_has_ended(&call))
        (void)answer_next(&asker, N_ROUNDS, 5);
    ck_assert_uint_eq(call.status, CALL_OK);
    g_free(rows);
    asker_clear(&asker);
}
END_TEST

static bool has_come(void *user)
{
    return atomic_load((_Atomic unsigned *)user) > 0;
}

/* _i: encrypted. What stands before its values stays with the message. */
START_TEST(pieces_of_tensors_come_to_their_place_while_connections_break)
{
    enum { N_ROUNDS = 12 };
    g_autofree uint8_t *place = g_malloc(PIECE_BYTES);
    unsigned n_at_place = 0;
    Asker asker;

    asker_init(&asker, _i == 1);
    for (unsigned round = 0; round < N_ROUNDS; round++) {
        Frame *const frame =
            frame_new(&(WireHeader){ .kind = MESSAGE_TENSOR, .value_bytes = PIECE_BYTES });
        uint8_t *const values = frame_values(frame);
        for (size_t i = 0; i < PIECE_BYTES; i++)
            values[i] = (uint8_t)(i % 251 + round);
        g_autofree uint8_t *sent = g_memdup2(values, PIECE_BYTES);

        memset(place, 0xee, PIECE_BYTES);
        asker.place = place;
        atomic_store(&asker.n_pieces, 0);
        network_send(asker.other->network, 1, frame);
        if (round % 2 == 1)
            (void)outage_reset_connections(2);
        ck_assert(station_wait_until(asker.other, has_come, &asker.n_pieces));
        require_msg(memcmp(place, sent, PIECE_BYTES) == 0, "round %u", round);
        n_at_place += asker.is_at_place;
    }
    asker_clear(&asker);
    if (_i == 0) /* the rounds without a break */
        ck_assert_uint_ge(n_at_place, N_ROUNDS / 2);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("post_office_direct");
    TCase *const cases = tcase_create("requests"), *const connections = tcase_create("connections");

    tcase_add_test(cases, an_answer_is_read_to_the_place_of_its_own_request_alone);
    tcase_add_test(cases, an_answer_at_its_place_ends_its_request);
    tcase_add_loop_test(cases, a_request_that_ends_takes_its_place_back, 0, 2);
    tcase_add_test(cases, the_end_of_a_read_is_none_of_a_later_request);
    suite_add_tcase(suite, cases);
    tcase_set_timeout(connections, 60);
    tcase_add_loop_test(connections, rows_come_to_their_place_while_connections_break, 0, 2);
    tcase_add_loop_test(connections, rows_of_a_cancelled_request_are_freed_at_once, 0, 2);
    tcase_add_loop_test(connections, pieces_of_tensors_come_to_their_place_while_connections_break,
                        0, 2);
    suite_add_tcase(suite, connections);
    return run_suite(suite);
}
