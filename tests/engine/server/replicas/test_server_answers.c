/* Adds and Gets in one request that are sent again to another primary, on servers that are driven
 * by hand. */
#include "engine/server/replicas/add_answers.h"
#include "tests/support/engine/replica_world.h"
#include "tests/support/runner.h"

enum { KEY = WORLD_KEYS - 1, WORKER = 1, OTHER = 0, SLICE_BYTES = 32 };

/* An Add of 1, and a Get of the row. */
typedef struct {
    Message message;
    Call call;
    int64_t one, row;
} Draw;

/* By a worker of the server's node, which need not send it again. */
static void ask_own(Draw *draw, uint32_t server)
{
    Message *const message = &draw->message;

    message->epoch = WORLD_EPOCH;
    message->node = message->server = server;
    message->end = message_end_call;
    message->call = &draw->call;
    call_begin(&draw->call, NULL);
    call_add_parts(&draw->call, 1);
    ck_assert(actor_try_handle(&replica_world_server(server)->actor, message));
    call_sent(&draw->call);
}

static void ask_as(Draw *draw, uint32_t worker, uint32_t server, uint64_t sequence)
{
    *draw = (Draw){ .one = 1,
                    .message = { .kind = MESSAGE_ADD_GET,
                                 .sequence = sequence,
                                 .input_bytes = sizeof draw->one,
                                 .request = { .worker = worker,
                                              .keys = { .first = KEY, .n = 1 },
                                              .input = &draw->one,
                                              .output = &draw->row } } };
    if (sequence == 0)
        ask_own(draw, server);
    else
        replica_world_ask(server, &draw->message, &draw->call);
}

static void ask(Draw *draw, uint32_t server, uint64_t sequence)
{
    ask_as(draw, WORKER, server, sequence);
}

static int64_t row_of(Draw *draw)
{
    ck_assert(call_has_ended(&draw->call));
    ck_assert_uint_eq(draw->call.status, CALL_OK);
    return draw->row;
}

static int64_t draw(Draw *draw, uint32_t server, uint64_t sequence)
{
    ask(draw, server, sequence);
    replica_world_deliver_all();
    return row_of(draw);
}

static void begin(const char *model)
{
    replica_world_begin(model);
    for (uint32_t i = 0; i <= 2; i++)
        replica_world_begin_task(i);
    replica_world_deliver_all();
}

/* Server 2 becomes the primary; with _i 1 as a replica that was made after the answers. */
START_TEST(it_is_answered_as_before)
{
    Draw draws[5];

    begin("asp");
    ck_assert_int_eq(draw(&draws[0], 0, 10), 1);
    ck_assert_int_eq(draw(&draws[1], 0, 11), 2);
    ck_assert_int_eq(draw(&draws[2], 0, 12), 3);
    if (_i == 1)
        replica_world_make_again();
    replica_world_lose_primary();
    ck_assert_int_eq(draw(&draws[0], 2, 10), 1);
    ck_assert_int_eq(draw(&draws[1], 2, 11), 2);
    ck_assert_int_eq(draw(&draws[3], 2, 13), 4); /* the other replica gets this from the new one */
    ck_assert_int_eq(draw(&draws[2], 2, 12), 3);
    ck_assert_int_eq(draw(&draws[3], 2, 13), 4);
    ck_assert_int_eq(draw(&draws[4], 2, 14), 5);
    replica_world_end();
}
END_TEST

/* Server 2 gets another replica, in slices, and does not have the row yet when it is drawn from. */
START_TEST(a_replica_has_answers_from_before_it_was_whole)
{
    Draw draws[8];
    uint64_t n = 0;

    begin("asp");
    replica_world_server(0)->office->sizes.window_bytes = 2 * (size_t)SLICE_BYTES;
    replica_world_order_again();
    for (; !replica_world_is_sent(2, 0, FEED_COPIED); n++) {
        ck_assert_uint_lt(n, G_N_ELEMENTS(draws));
        ask(&draws[n], 0, 10 + n);
        replica_world_deliver(1);
        replica_world_deliver(0);
        ck_assert_int_eq(row_of(&draws[n]), (int64_t)n + 1);
        replica_world_deliver(2); /* which asks for the next slice */
        replica_world_deliver(0);
    }
    ck_assert_uint_gt(n, 2);
    replica_world_deliver_all();
    replica_world_lose_primary();
    for (uint64_t i = 0; i < n; i++)
        ck_assert_int_eq(draw(&draws[i], 2, 10 + i), (int64_t)i + 1);
    replica_world_end();
}
END_TEST

/* Of those before the last ones there is no answer any more: they show the row as it is. */
START_TEST(the_last_answers_are_kept)
{
    Draw last;

    begin("asp");
    for (uint64_t i = 1; i <= ADD_ANSWERS_MOST + 1; i++)
        ck_assert_int_eq(draw(&last, 0, i), (int64_t)i);
    replica_world_lose_primary();
    ck_assert_int_eq(draw(&last, 2, 2), 2);
    ck_assert_int_eq(draw(&last, 2, 1), ADD_ANSWERS_MOST + 1);
    replica_world_end();
}
END_TEST

/* Another process has the worker's place, and makes its requests again by numbers of its own. */
static void return_worker(uint32_t server)
{
    ReturnAnswer answer;
    Message message = { .kind = MESSAGE_RETURN,
                        .sequence = 1,
                        .request = { .worker = WORKER, .keys = { .n = 1 }, .output = &answer } };
    Call call;

    replica_world_ask(server, &message, &call);
    replica_world_deliver_all();
    ck_assert(call_has_ended(&call));
}

/* The other worker draws, too. With _i 1 server 2 has a replica that was made after the answers;
 * with _i 2 the primary is lost with the worker, which was of its node: its requests had no
 * numbers; with _i 3 it is lost when the new process has drawn, and the answer has not come. */
START_TEST(a_replaced_worker_gets_its_answers_again)
{
    const bool is_own = _i == 2;
    Draw draws[3], other;
    uint32_t server = 0;

    begin("asp");
    ck_assert_int_eq(draw(&draws[0], 0, is_own ? 0 : 10), 1);
    ck_assert_int_eq(draw(&draws[1], 0, is_own ? 0 : 11), 2);
    ask_as(&other, OTHER, 0, 5);
    replica_world_deliver_all();
    ck_assert_int_eq(row_of(&other), 3);
    if (_i == 1)
        replica_world_make_again();
    if (_i == 1 || _i == 2) {
        replica_world_lose_primary();
        server = 2;
    }
    return_worker(server);
    ck_assert_int_eq(draw(&draws[0], server, 20), 1);
    if (_i == 3) {
        replica_world_lose_primary();
        server = 2;
        ck_assert_int_eq(draw(&draws[0], server, 20), 1);
    }
    ck_assert_int_eq(draw(&draws[1], server, 21), 2);
    ck_assert_int_eq(draw(&draws[2], server, 22), 4);
    replica_world_end();
}
END_TEST

/* What the Get might create is there by the Add. */
START_TEST(it_is_answered_as_before_where_gets_create_rows)
{
    const RubatoTableSpec creating = {
        .name = "creating", .model = "asp", .storage = "hash", .create_on_get = true
    };
    Draw draws[3];

    replica_world_begin_like(&creating);
    for (uint32_t i = 0; i <= 2; i++)
        replica_world_begin_task(i);
    replica_world_deliver_all();
    ck_assert_int_eq(draw(&draws[0], 0, 10), 1);
    ck_assert_int_eq(draw(&draws[1], 0, 11), 2);
    replica_world_lose_primary();
    ck_assert_int_eq(draw(&draws[0], 2, 10), 1);
    ck_assert_int_eq(draw(&draws[2], 2, 12), 3);
    replica_world_end();
}
END_TEST

/* Its Get comes later than its Add, as any Get of the clock. */
START_TEST(a_model_whose_gets_may_wait_keeps_none)
{
    Draw draws[2];

    begin("ssp");
    ck_assert_int_eq(draw(&draws[0], 0, 10), 1);
    ck_assert_int_eq(draw(&draws[1], 0, 11), 2);
    replica_world_lose_primary();
    ck_assert_int_eq(draw(&draws[0], 2, 10), 2);
    replica_world_end();
}
END_TEST

/* ---- what is kept ---- */

static void count(void *user, const AddAnswer *answer)
{
    ck_assert_uint_gt(answer->n_bytes, 0);
    ++*(uint32_t *)user;
}

static AddAnswer *keep(AddAnswers **answers, uint32_t worker, uint64_t sequence, size_t n_bytes)
{
    return add_answers_keep(answers, &(AddAsked){ .worker = worker, .sequence = sequence },
                            n_bytes);
}

START_TEST(answers_are_bounded_by_their_bytes)
{
    AddAnswers *answers = NULL;
    uint32_t n = 0;

    ck_assert_ptr_null(keep(&answers, 0, 1, ADD_ANSWERS_BYTES + 1));
    ck_assert_ptr_null(add_answers_find(answers, 0, 1, ADD_ANSWERS_BYTES + 1));
    for (uint64_t i = 2; i <= 5; i++)
        ck_assert_ptr_nonnull(keep(&answers, 0, i, ADD_ANSWERS_BYTES / 2));
    ck_assert_ptr_nonnull(keep(&answers, 7, 1, ADD_ANSWERS_BYTES));
    ck_assert_ptr_null(add_answers_find(answers, 0, 3, ADD_ANSWERS_BYTES / 2));
    ck_assert_ptr_nonnull(add_answers_find(answers, 0, 4, ADD_ANSWERS_BYTES / 2));
    ck_assert_ptr_null(add_answers_find(answers, 0, 5, 8));
    ck_assert_ptr_nonnull(add_answers_find(answers, 7, 1, ADD_ANSWERS_BYTES));
    ck_assert_ptr_null(add_answers_find(answers, 8, 1, ADD_ANSWERS_BYTES));
    add_answers_each(answers, count, &n);
    ck_assert_uint_eq(n, 3);
    add_answers_free(answers);
}
END_TEST

static AddAnswer *repeat(const AddAnswers *answers, uint64_t clock, uint64_t at)
{
    return add_answers_repeat(answers, &(AddAsked){ .clock = clock, .at = at }, 8);
}

static void keep_at(AddAnswers **answers, uint64_t clock, uint64_t at)
{
    AddAnswer *const answer = add_answers_keep(answers, &(AddAsked){ .clock = clock, .at = at }, 8);

    ck_assert_ptr_nonnull(answer);
    memset(answer->rows, 0, 8);
}

/* A process in the place of a lost one begins with requests whose answers are kept no longer, and
 * comes to those that are. */
START_TEST(an_answer_is_found_by_its_place_behind_later_ones)
{
    AddAnswers *answers = NULL;

    keep_at(&answers, 1, 0);
    keep_at(&answers, 1, 5);
    keep_at(&answers, 2, 0);
    keep_at(&answers, 2, 1);
    ck_assert_ptr_null(repeat(answers, 2, 2));
    ck_assert_ptr_null(repeat(answers, 1, 6));
    ck_assert_ptr_nonnull(repeat(answers, 1, 5));
    keep_at(&answers, 0, 3); /* made again */
    keep_at(&answers, 0, 9);
    ck_assert_ptr_null(repeat(answers, 0, 8));
    ck_assert_ptr_nonnull(repeat(answers, 0, 3));
    ck_assert_ptr_nonnull(repeat(answers, 1, 0));
    ck_assert_ptr_nonnull(repeat(answers, 2, 1));
    add_answers_free(answers);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("server answers");
    TCase *const cases = tcase_create("cases");

    tcase_add_loop_test(cases, it_is_answered_as_before, 0, 2);
    tcase_add_test(cases, a_replica_has_answers_from_before_it_was_whole);
    tcase_add_test(cases, the_last_answers_are_kept);
    tcase_add_loop_test(cases, a_replaced_worker_gets_its_answers_again, 0, 4);
    tcase_add_test(cases, it_is_answered_as_before_where_gets_create_rows);
    tcase_add_test(cases, a_model_whose_gets_may_wait_keeps_none);
    tcase_add_test(cases, answers_are_bounded_by_their_bytes);
    tcase_add_test(cases, an_answer_is_found_by_its_place_behind_later_ones);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
