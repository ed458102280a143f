/* Replicas that are made slice by slice while requests go on; a test drives the servers by hand. */
#include <rubato/handler_ops.h>
#include <rubato/plugin.h>
#include <string.h>

#include "engine/server/replicas/server_copies.h"
#include "models/handlers/handler.h"
#include "tests/support/engine/replica_world.h"
#include "tests/support/runner.h"

/* Two rows of a word each are a slice, or eight words of what admits keys. */
enum { WINDOW_BYTES = 64, N_SLICES = WORLD_KEYS / 2, N_WORDS = 256 / sizeof(uint64_t) };

static const RubatoTableSpec LIKE[] = {
    { .model = "asp" },
    { .model = "asp", .storage = "hash" },
    { .model = "asp", .storage = "hash", .max_bytes = 8 << 20 },
    { .model = "asp", .storage = "hash", .expire = "clocks", .expire_after = 5 },
    { .model = "asp", .storage = "hash", .admit = "count", .admit_count = 2, .admit_bytes = 256 },
};

/* The primary's node adds to a row, and the other replica gets that. Whether it is acknowledged. */
static bool add(RubatoKey key, int64_t delta, Call *call)
{
    Message message = { .kind = MESSAGE_ADD,
                        .epoch = WORLD_EPOCH,
                        .end = message_end_call,
                        .call = call,
                        .request = { .keys = { .first = key, .n = 1 }, .input = &delta } };

    call_begin(call, NULL);
    call_add_parts(call, 1);
    ck_assert(actor_try_handle(&replica_world_server(0)->actor, &message));
    call_sent(call);
    replica_world_deliver(1);
    replica_world_deliver(0);
    return call_has_ended(call);
}

static void add_to_all(void)
{
    Call call;

    for (RubatoKey key = 0; key < WORLD_KEYS; key++)
        (void)add(key, 100 + (int64_t)key, &call);
    replica_world_deliver_all();
}

/* The replica has a slice, and says so; the next one is sent. */
static void pass_slice(void)
{
    replica_world_deliver(2);
    replica_world_deliver(0);
}

static void begin(const RubatoTableSpec *like)
{
    replica_world_begin_like(like);
    replica_world_server(0)->office->sizes.window_bytes =
        like->admit == NULL ? WINDOW_BYTES : 4 * WINDOW_BYTES; /* more is told */
    for (uint32_t i = 0; i <= 2; i++)
        replica_world_begin_task(i);
    replica_world_deliver_all();
    add_to_all();
    if (like->admit != NULL) /* the first one made no rows */
        add_to_all();
}

static void check_same(void)
{
    const RubatoKeys all = { .n = WORLD_KEYS };
    RubatoShard *const shard = server_find_shard(replica_world_server(0), 0, 0);
    RubatoShard *const copy = replica_world_replica(2)->shard;
    int64_t rows[2][WORLD_KEYS];

    ck_assert_int_eq(replica_world_replica(2)->stage, REPLICA_WHOLE);
    ck_assert_uint_eq(replica_world_replica(2)->position, replica_world_fed(0)->feed.n_inputs);
    shard_get(shard, &all, rows[0]);
    shard_get(copy, &all, rows[1]);
    ck_assert_uint_eq(shard_n_rows(copy), shard_n_rows(shard));
    ck_assert_uint_eq(shard_admissions(copy).n_admitted, shard_admissions(shard).n_admitted);
    ck_assert_uint_eq(shard_admissions(copy).n_refused, shard_admissions(shard).n_refused);
    ck_assert_uint_eq(shard_uses(copy).n_uses, shard_uses(shard).n_uses);
    for (size_t i = 0; i < WORLD_KEYS; i++)
        ck_assert_int_eq(rows[0][i], rows[1][i]);
    ck_assert_uint_eq(shard_n_admission_words(copy), shard_n_admission_words(shard));
    for (size_t i = 0; i < shard_n_admission_words(shard); i++) {
        uint64_t words[2];

        shard_get_admission(shard, i, 1, &words[0]);
        shard_get_admission(copy, i, 1, &words[1]);
        ck_assert_uint_eq(words[0], words[1]);
    }
}

/* Whatever row they change, sent or not, and also one that was not there. */
START_TEST(inputs_go_between_the_slices_of_an_image)
{
    const bool is_hash = LIKE[_i].storage != NULL;
    Call call;
    int n_slices = 1;

    begin(&LIKE[_i]);
    replica_world_order_again();
    for (; !replica_world_is_sent(2, 0, FEED_COPIED); n_slices++) {
        ck_assert(replica_world_is_sent(2, 0, FEED_SLICED));
        for (RubatoKey key = 0; key < WORLD_KEYS; key += 3) /* nobody waits for the replica */
            ck_assert(add(key, n_slices, &call));
        if (is_hash) /* the second one is admitted */
            ck_assert(add(WORLD_KEYS + (RubatoKey)n_slices, 1, &call));
        if (is_hash && n_slices % 2 > 0)
            ck_assert(add(WORLD_KEYS + (RubatoKey)n_slices, 1, &call));
        ck_assert_int_le(n_slices, 2 * N_SLICES + N_WORDS);
        pass_slice();
        ck_assert_int_ne(replica_world_replica(2)->stage, REPLICA_WHOLE);
    }
    ck_assert_int_ge(n_slices, LIKE[_i].admit == NULL ? N_SLICES : 1 + N_WORDS / 8);
    replica_world_deliver_all();
    check_same();
    ck_assert(!add(3, 7, &call)); /* it counts */
    replica_world_deliver_all();
    ck_assert(call_has_ended(&call));
    check_same();
    replica_world_end();
}
END_TEST

/* No more than a slice is under way. Without an answer of the replica nothing more is sent. */
START_TEST(a_slice_is_sent_when_the_one_before_has_been_had)
{
    begin(&LIKE[_i]);
    replica_world_order_again();
    replica_world_lose_letters(2);
    for (int i = 0; i < 3; i++) {
        server_make_copies(replica_world_server(0));
        ck_assert(!replica_world_is_sent(2, 0, MESSAGE_SET));
    }
    replica_world_end();
}
END_TEST

/* Answers wait for a replica to which too much is under way, but not for all of its image: the
 * slice behind the inputs tells that it has had them. */
START_TEST(an_answer_waits_for_no_more_than_two_slices)
{
    enum { MOST_ADDS = 1000 };
    g_autofree Call *calls = g_new(Call, MOST_ADDS);
    int n = 0;

    begin(&LIKE[_i]);
    replica_world_order_again();
    while (add(3, 1, &calls[n++]))
        ck_assert_int_lt(n, MOST_ADDS);
    ck_assert_int_gt(n, 3);
    pass_slice();
    ck_assert(!call_has_ended(&calls[n - 1]));
    pass_slice();
    ck_assert(call_has_ended(&calls[n - 1]));
    ck_assert_uint_eq(calls[n - 1].status, CALL_OK);
    ck_assert(!replica_world_is_sent(2, 0, FEED_COPIED));
    ck_assert(add(3, 1, &calls[n])); /* what is under way counts from there on */
    for (int i = 0; i < N_SLICES + N_WORDS; i++)
        pass_slice();
    replica_world_deliver_all();
    check_same();
    replica_world_end();
}
END_TEST

/* On either side. Answers that wait for it leave. */
START_TEST(a_copy_that_finds_no_memory_between_slices_is_given_up)
{
    const bool is_primary = _i == 0;
    Call call;

    begin(&LIKE[1]);
    replica_world_order_again();
    while (add(3, 1, &call))
        ;
    if (is_primary) {
        replica_world_deliver(2);
        replica_world_starve(0);
        replica_world_deliver(0);
        ck_assert(replica_world_starve(-1));
        ck_assert(replica_world_is_sent(2, 0, FEED_GIVEN_UP));
    } else { /* in the first of these inputs */
        replica_world_server(2)->starved = true;
    }
    pass_slice();
    ck_assert(call_has_ended(&call));
    ck_assert_uint_eq(call.status, CALL_OK);
    ck_assert_int_eq(replica_world_replica(2)->stage, REPLICA_GIVEN_UP);
    ck_assert(!replica_world_server(2)->starved);
    ck_assert_uint_eq(replica_world_fed(0)->feed.n_replicas, 1);
    ck_assert(add(3, 1, &call));
    replica_world_end();
}
END_TEST

/* Sets each row to the sum of all. */
static bool run_sum(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                    GError **error)
{
    static const RubatoKey keys[WORLD_KEYS] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    int64_t rows[WORLD_KEYS], sum = 0;

    (void)arguments;
    (void)result;
    if (!rubato_part_get(part, keys, WORLD_KEYS, rows, error))
        return false;
    for (size_t i = 0; i < WORLD_KEYS; i++)
        sum += rows[i];
    for (size_t i = 0; i < WORLD_KEYS; i++)
        rows[i] = sum;
    return rubato_part_set(part, keys, WORLD_KEYS, rows, error);
}

static const RubatoHandlerOps sum_all = { .name = "sum_all",
                                          .access = RUBATO_ACCESS_WRITES,
                                          .run = run_sum };

/* It may look at any row. */
START_TEST(a_handler_that_writes_runs_when_all_rows_have_been_sent)
{
    WorldCall made = { .handler_call = {
                           .ops = handler_find("sum_all"), .arguments = "", .serial = 1 } };

    begin(&LIKE[_i]);
    replica_world_order_again();
    pass_slice();
    ck_assert(!replica_world_is_sent(2, 0, FEED_COPIED));
    replica_world_call(&made, 0, 0, 0);
    replica_world_end_call(&made, NULL);
    replica_world_deliver_all();
    check_same();
    replica_world_end();
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("server slices");
    TCase *const cases = tcase_create("cases");
    const int n = (int)G_N_ELEMENTS(LIKE);

    if (!rubato_register_handler(&sum_all, NULL))
        return 1;
    tcase_add_loop_test(cases, inputs_go_between_the_slices_of_an_image, 0, n);
    tcase_add_loop_test(cases, a_slice_is_sent_when_the_one_before_has_been_had, 0, n);
    tcase_add_loop_test(cases, an_answer_waits_for_no_more_than_two_slices, 0, n);
    tcase_add_loop_test(cases, a_copy_that_finds_no_memory_between_slices_is_given_up, 0, 2);
    tcase_add_loop_test(cases, a_handler_that_writes_runs_when_all_rows_have_been_sent, 0, n);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
