/* Calls of handlers that write, on a part with replicas whose servers are driven by hand: a call
 * that is made again runs once, and is answered as the first time, whoever is the primary. */
#include <rubato/handler_ops.h>
#include <rubato/plugin.h>
#include <string.h>

#include "engine/server/replicas/server_handover.h"
#include "io/net/handler_call.h"
#include "models/handlers/call_records.h"
#include "models/handlers/handler.h"
#include "models/update/bad_gradients.h"
#include "tests/support/engine/replica_world.h"
#include "tests/support/network/station.h"
#include "tests/support/runner.h"

enum { KEY = 3, LONG_BYTES = 600000 /* several messages */ };

/* Adds 1 to the rows, then fails if its first argument says so, with the second one. */
static bool run_bump(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                     GError **error)
{
    const bool fails = rubato_read_u32(arguments) != 0;
    const uint32_t number = rubato_read_u32(arguments);
    RubatoPartRows rows;

    (void)result;
    while (rubato_part_next(part, &rows))
        for (size_t i = 0; i < rows.n; i++)
            ++*(int64_t *)rubato_part_rows_row(&rows, i);
    if (fails)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "failure %u", number);
    return !fails;
}

static const RubatoHandlerOps bump = { .name = "bump",
                                       .access = RUBATO_ACCESS_WRITES,
                                       .run = run_bump };

typedef struct {
    uint32_t fails, number;
    uint64_t serial, clock;
    size_t n_bytes; /* of arguments; 0: no more than these two */
} Asked;

/* Worker 0 calls the handler on a server. Returns whether it is answered. */
static bool make(WorldCall *made, uint32_t server, const Asked *asked)
{
    const uint32_t words[] = { asked->fails, asked->number };
    const size_t n_bytes = MAX(asked->n_bytes, sizeof words);

    *made = (WorldCall){ .arguments = g_malloc0(n_bytes) };
    memcpy(made->arguments, words, sizeof words);
    made->handler_call = (HandlerCall){ .ops = handler_find("bump"),
                                        .arguments = made->arguments,
                                        .n_bytes = n_bytes,
                                        .serial = asked->serial };
    replica_world_call(made, server, KEY, asked->clock);
    return call_has_ended(&made->call);
}

static int64_t row_of(const RubatoShard *shard)
{
    int64_t row;

    shard_get((RubatoShard *)(uintptr_t)shard, &(RubatoKeys){ .first = KEY, .n = 1 }, &row);
    return row;
}

/* The primary's, and that of server 1, which always has a replica. */
static void check_rows(uint32_t primary, int64_t n)
{
    ck_assert_int_eq(row_of(server_find_shard(replica_world_server(primary), 0, 0)), n);
    ck_assert_int_eq(row_of(replica_world_replica(1)->shard), n);
}

static void begin(const char *model)
{
    replica_world_begin(model);
    for (uint32_t i = 0; i <= 2; i++)
        replica_world_begin_task(i);
    replica_world_deliver_all();
}

static const Asked well = { 0, 1, .serial = 7 }, fails = { 1, 2, .serial = 8 },
                   is_long = { 1, 3, .serial = 9, .n_bytes = LONG_BYTES };

/* _i 1: server 2 has a replica that was made after the calls. */
START_TEST(a_call_that_is_made_again_is_answered_as_before)
{
    WorldCall made;

    begin("asp");
    ck_assert(make(&made, 0, &well));
    replica_world_end_call(&made, NULL);
    ck_assert(make(&made, 0, &fails));
    replica_world_end_call(&made, "failure 2");
    ck_assert(make(&made, 0, &is_long));
    replica_world_end_call(&made, "failure 3");
    ck_assert(make(&made, 0, &fails));
    replica_world_end_call(&made, "failure 2");
    check_rows(0, 3);
    if (_i == 1)
        replica_world_make_again();
    replica_world_lose_primary();
    ck_assert(make(&made, 2, &well));
    replica_world_end_call(&made, NULL);
    ck_assert(make(&made, 2, &fails));
    replica_world_end_call(&made, "failure 2");
    ck_assert(make(&made, 2, &is_long));
    replica_world_end_call(&made, "failure 3");
    check_rows(2, 3);
    ck_assert(make(&made, 2, &(Asked){ 0, 0, .serial = 10 }));
    replica_world_end_call(&made, NULL);
    check_rows(2, 4);
    replica_world_end();
}
END_TEST

/* Calls that wait for the end of their clock come again to the next primary, and to one that stays:
 * then both are answered. */
START_TEST(a_call_that_is_kept_is_answered_when_it_has_run)
{
    WorldCall first[2], again[3], late;

    begin("bsp");
    ck_assert(!make(&first[0], 0, &well));
    ck_assert(!make(&first[1], 0, &is_long));
    if (_i == 1)
        replica_world_make_again();
    check_rows(0, 0);
    replica_world_lose_primary();
    ck_assert(!make(&again[0], 2, &well));
    ck_assert(!make(&again[1], 2, &is_long));
    ck_assert(!make(&again[2], 2, &is_long));
    check_rows(2, 0);
    replica_world_tell_clocks(2, 1, 4);
    check_rows(2, 2);
    replica_world_end_call(&again[0], NULL);
    replica_world_end_call(&again[1], "failure 3");
    replica_world_end_call(&again[2], "failure 3");
    ck_assert(make(&late, 2, &is_long)); /* once more: it has run */
    replica_world_end_call(&late, "failure 3");
    check_rows(2, 2);
    for (int i = 0; i < 2; i++) { /* they are cancelled with the lost node's task */
        ck_assert(!call_has_ended(&first[i].call));
    }
    replica_world_end();
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(first[i].call.status, CALL_CANCELLED);
        g_free(first[i].arguments);
    }
}
END_TEST

/* The task ends: who waits is told, at a primary that has made a replica meanwhile, too. So is who
 * has called again. */
START_TEST(a_call_that_is_kept_ends_with_its_task)
{
    WorldCall made[2];

    begin("bsp");
    for (int i = 0; i < 2; i++)
        ck_assert(!make(&made[i], 0, &well));
    replica_world_make_again();
    for (int i = 0; i < 2; i++)
        ck_assert(!call_has_ended(&made[i].call));
    if (_i == 0) {
        replica_world_tell_clocks(0, 1, 3);
        for (int i = 0; i < 2; i++)
            replica_world_end_call(&made[i], NULL);
        check_rows(0, 1);
    }
    replica_world_end();
    for (int i = 0; i < 2 && _i == 1; i++) {
        ck_assert_uint_eq(made[i].call.status, CALL_CANCELLED);
        g_free(made[i].arguments);
    }
}
END_TEST

/* Another process of the worker makes the same calls, with numbers of its own. _i 2: server 2 has a
 * replica that was made after that, while they wait. */
START_TEST(a_replaced_workers_calls_are_told_by_their_places)
{
    const char *const model = _i == 0 ? "asp" : "bsp";
    const bool waits = _i >= 1;
    ReturnAnswer answer;
    Message message = { .kind = MESSAGE_RETURN,
                        .sequence = 1,
                        .request = { .keys = { .n = 1 }, .output = &answer } };
    WorldCall made[4];
    Call call;

    begin(model);
    ck_assert(make(&made[0], 0, &well) == !waits);
    ck_assert(make(&made[1], 0, &fails) == !waits);
    replica_world_ask(0, &message, &call);
    replica_world_deliver_all();
    ck_assert(call_has_ended(&call));
    ck_assert(make(&made[2], 0, &(Asked){ 0, 1, .serial = 107 }) == !waits);
    ck_assert(make(&made[3], 0, &(Asked){ 1, 2, .serial = 108 }) == !waits);
    if (_i == 2)
        replica_world_make_again();
    if (waits)
        replica_world_tell_clocks(0, 1, 3);
    check_rows(0, 2);
    for (int i = 0; i < 4; i++)
        replica_world_end_call(&made[i], i % 2 == 0 ? NULL : "failure 2");
    replica_world_lose_primary(); /* which had told the second numbers */
    ck_assert(make(&made[0], 2, &(Asked){ 1, 2, .serial = 108 }));
    replica_world_end_call(&made[0], "failure 2");
    check_rows(2, 2);
    replica_world_end();
}
END_TEST

/* ---- a part that is handed over ---- */

/* Server 0 gives its part to server 1, and sends on what waits in it. */
static void hand_over(PostOffice *office)
{
    static const uint32_t other[] = { 2 };
    static const _Atomic bool never;
    const PartPlace place = { .map = 3, .primary = 1, .n_replicas = 1, .replicas = other };
    Server *const server = replica_world_server(0);

    server_settle_part(server, &place);
    replica_world_deliver_all();
    server_give_part(server, &place);
    g_autoptr(GPtrArray) given = server_take_given(server);
    ck_assert_uint_eq(given->len, 1);
    MovingPart *const part = g_ptr_array_index(given, 0);
    moving_part_send_parked(part, &(PartWay){ .office = office,
                                              .server = 1,
                                              .cancelled = &never,
                                              .table_name = "t",
                                              .goes_at_once = true });
    moving_part_free(part);
}

/* What the station gets is the call of worker 0 at that clock. */
static void take_call(Station *station, uint64_t clock)
{
    Incoming *const incoming = station_take(station, STATION_PATIENCE_MS);

    ck_assert_ptr_nonnull(incoming);
    ck_assert_int_eq(incoming->header.kind, MESSAGE_HANDLER);
    ck_assert_uint_eq(incoming->header.request.clock, clock);
    ck_assert_uint_ne(incoming->header.request.id, 0);
    incoming_free(incoming);
}

/* Another node's call waits at a primary that hands its part over, and is sent on. The next primary
 * is lost before it has answered: the call goes to the one after it, as if its caller had sent it
 * from here. */
START_TEST(a_call_that_was_sent_on_is_sent_again_when_its_primary_is_lost)
{
    Station *stations[WORLD_NODES];
    PostOffice *office;
    WorldCall made;

    begin("bsp");
    office = replica_world_server(0)->office;
    for (uint32_t i = 0; i < WORLD_NODES; i++)
        stations[i] = station_new(i, WORLD_NODES, NULL);
    stations_join(stations, WORLD_NODES);
    office->network = stations[0]->network;
    ck_assert(!make(&made, 0, &well));
    made.handler_call.comes_again = false; /* as of one that has come */
    hand_over(office);
    take_call(stations[1], well.clock);
    ck_assert(!call_has_ended(&made.call));
    post_office_send_again(office, 0, 0, 2);
    ck_assert(!call_has_ended(&made.call));
    take_call(stations[2], well.clock);
    post_office_cancel(office, POST_OFFICE_ALL_EPOCHS);
    ck_assert(call_has_ended(&made.call));
    ck_assert_uint_eq(made.call.status, CALL_CANCELLED);
    g_free(made.arguments);
    office->network = NULL;
    replica_world_end();
    for (uint32_t i = 0; i < WORLD_NODES; i++)
        station_free(stations[i]);
}
END_TEST

START_TEST(a_part_keeps_the_last_failures_of_a_worker)
{
    const uint32_t n = CALL_RECORDS_FAILURES + 1;
    WorldCall made;

    begin("asp");
    for (uint32_t i = 1; i <= n; i++) {
        ck_assert(make(&made, 0, &(Asked){ 1, i, .serial = i }));
        replica_world_end_call(&made, "failure");
    }
    replica_world_lose_primary();
    ck_assert(make(&made, 2, &(Asked){ 1, 1, .serial = 1 }));
    replica_world_end_call(&made, "may have failed");
    ck_assert(make(&made, 2, &(Asked){ 1, 2, .serial = 2 }));
    replica_world_end_call(&made, "failure 2");
    ck_assert(make(&made, 2, &(Asked){ 1, n, .serial = n }));
    replica_world_end_call(&made, "failure 65");
    check_rows(2, n);
    replica_world_end();
}
END_TEST

/* ---- pieces of calls of handlers ---- */

/* A call of "bump" on KEY, as bytes. */
enum {
    NAME = 32,
    N_ARGUMENTS = NAME,
    IS_WHOLE = 40,
    N_CALL_KEYS = 48,
    FIRST_KEY = 56,
    KEY_BYTES = 64
};
enum { CALL_BYTES = NAME + 6 * 8 + 2 * sizeof(uint32_t) };

typedef struct {
    const char *what;
    size_t first, n;  /* bytes that come, */
    uint64_t n_bytes; /* of so many */
    uint64_t serial;  /* 0: it is not the last piece */
    size_t more;      /* bytes come, in truth */
    size_t at;        /* a word of the call is another one; 0: none is */
    uint64_t word;
} Forged;

#define SAYS(at, word) CALL_BYTES, CALL_BYTES, 7, 0, at, word

static const Forged forged[] = {
    { "no bytes", 0, 0, CALL_BYTES, 0, 0, 0, 0 },
    { "no bytes behind the end", CALL_BYTES, 0, CALL_BYTES, 7, 0, 0, 0 },
    { "more bytes than the call has", 0, CALL_BYTES, CALL_BYTES - 1, 7, 0, 0, 0 },
    { "more bytes than the call has, and no end", 0, CALL_BYTES, CALL_BYTES - 1, 0, 0, 0, 0 },
    { "bytes behind its end", CALL_BYTES, 8, CALL_BYTES, 7, 0, 0, 0 },
    { "bytes far behind its end", SIZE_MAX - 7, 8, CALL_BYTES, 7, 0, 0, 0 },
    { "a call that is too long", 0, 8, HANDLER_CALL_MOST_BYTES + 1, 0, 0, 0, 0 },
    { "a call that is far too long", 0, 8, UINT64_MAX, 0, 0, 0, 0 },
    { "more bytes than it says", 0, 40, CALL_BYTES, 0, 8, 0, 0 },
    { "a call without its beginning", 40, CALL_BYTES - 40, CALL_BYTES, 7, 0, 0, 0 },
    { "a number with a first piece", 0, 40, CALL_BYTES, 7, 0, 0, 0 },
    { "a last piece without a number", 0, CALL_BYTES, CALL_BYTES, 0, 0, 0, 0 },
    { "less than a head", 0, NAME, NAME, 7, 0, 0, 0 },
    { "no such handler", 0, SAYS(1, UINT64_C(0x2020202020202020)) },
    { "fewer argument bytes", 0, SAYS(N_ARGUMENTS, 0) },
    { "more argument bytes", 0, SAYS(N_ARGUMENTS, UINT64_MAX - 7) },
    { "keys that do not come", 0, SAYS(KEY_BYTES, 8) },
    { "a key that is not here", 0, SAYS(FIRST_KEY, WORLD_KEYS) },
    { "as many keys as there are numbers", 0, SAYS(N_CALL_KEYS, UINT64_MAX) },
    { "all rows, and a key", 0, SAYS(IS_WHOLE, 1) },
};

/* Returns whether the piece, as the next input, was taken by server 1. */
static bool feed_piece(const unsigned char *bytes, const Forged *piece)
{
    Server *const server = replica_world_server(1);
    const size_t n = piece->n + piece->more;
    /* on the heap, so that a sanitizer sees who reads beyond them */
    g_autofree unsigned char *came = g_malloc0(n + 1);
    const uint64_t before = server->n_refused;
    Call call;
    Message message = { .kind = MESSAGE_FEED,
                        .fed_kind = MESSAGE_HANDLER,
                        .node = 0,
                        .server = 1,
                        .call = &call,
                        .end = message_end_call,
                        .number = replica_world_replica(1)->position + 1,
                        .sequence = piece->serial,
                        .input_bytes = n,
                        .request = { .worker = BAD_GRADIENTS_NO_WORKER,
                                     .keys = { .first = piece->first, .n = piece->n },
                                     .input = came,
                                     .piece = { .n_bytes = piece->n_bytes } } };

    if (piece->first < CALL_BYTES)
        memcpy(came, bytes + piece->first, MIN(n, CALL_BYTES - piece->first));
    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    ck_assert(actor_try_handle(&server->actor, &message));
    call_sent(&call);
    ck_assert(call_has_ended(&call));
    ck_assert_int_eq(call.status, server->n_refused == before ? CALL_OK : CALL_REFUSED);
    return server->n_refused == before;
}

START_TEST(a_forged_piece_of_a_call_is_refused_and_changes_nothing)
{
    static const Forged
        begin_of_it = { .n = 40, .n_bytes = CALL_BYTES },
        end_of_it = { .first = 40, .n = CALL_BYTES - 40, .n_bytes = CALL_BYTES, .serial = 7 },
        a_gap = { .first = 48, .n = 32, .n_bytes = CALL_BYTES, .serial = 7 },
        of_another = { .first = 40, .n = 48, .n_bytes = CALL_BYTES + 8, .serial = 7 };
    const uint32_t words[] = { 0, 0 };
    const HandlerCall call = { .ops = handler_find("bump"),
                               .arguments = words,
                               .n_bytes = sizeof words };
    const RubatoKeys key = { .first = KEY, .n = 1 };
    unsigned char right[CALL_BYTES], bytes[CALL_BYTES];
    uint64_t position;

    begin("asp");
    ck_assert_uint_eq(handler_call_size(&call, &key), CALL_BYTES);
    handler_call_write(&call, &key, right);
    position = replica_world_replica(1)->position;
    for (size_t i = 0; i < G_N_ELEMENTS(forged); i++) {
        memcpy(bytes, right, sizeof bytes);
        if (forged[i].at > 0)
            memcpy(bytes + forged[i].at, &forged[i].word, sizeof forged[i].word);
        require_msg(!feed_piece(bytes, &forged[i]), "%s: taken", forged[i].what);
    }
    ck_assert_uint_eq(replica_world_replica(1)->position, position);
    ck_assert(feed_piece(right, &begin_of_it));
    ck_assert(!feed_piece(right, &a_gap));
    ck_assert(!feed_piece(right, &of_another));
    ck_assert(feed_piece(right, &begin_of_it)); /* the call comes from its beginning */
    ck_assert_int_eq(row_of(replica_world_replica(1)->shard), 0);
    ck_assert(feed_piece(right, &end_of_it));
    ck_assert_int_eq(row_of(replica_world_replica(1)->shard), 1);
    ck_assert(!feed_piece(right, &(Forged){ .n = CALL_BYTES, .n_bytes = CALL_BYTES, .serial = 7 }));
    ck_assert_int_eq(row_of(replica_world_replica(1)->shard), 1); /* which it has had */
    replica_world_lose_letters(0); /* positions that its primary does not know */
    replica_world_end();
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("server calls");
    TCase *const cases = tcase_create("cases");

    if (!rubato_register_handler(&bump, NULL))
        return 1;
    tcase_add_loop_test(cases, a_call_that_is_made_again_is_answered_as_before, 0, 2);
    tcase_add_loop_test(cases, a_call_that_is_kept_is_answered_when_it_has_run, 0, 2);
    tcase_add_loop_test(cases, a_call_that_is_kept_ends_with_its_task, 0, 2);
    tcase_add_loop_test(cases, a_replaced_workers_calls_are_told_by_their_places, 0, 3);
    tcase_add_test(cases, a_call_that_was_sent_on_is_sent_again_when_its_primary_is_lost);
    tcase_add_test(cases, a_part_keeps_the_last_failures_of_a_worker);
    tcase_add_test(cases, a_forged_piece_of_a_call_is_refused_and_changes_nothing);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
