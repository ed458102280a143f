/* A shard of ragged rows that have not all come (models/shard/shard_failures.c): it changes those
 * that have come as its primary's does, and fails where that fails. */
#include <rubato/ragged_table.h>
#include <string.h>

#include "models/handlers/handler.h"
#include "models/ragged/ragged.h"
#include "models/shard/shard_private.h"
#include "tests/support/engine/shard_fixture.h"
#include "tests/support/runner.h"

/* Keys from SHARD_FIRST_KEY on. */
enum { HAS_COME, COMES_LATER, COMES_LAST, N_KEYS };

#define LONGEST ((uint32_t)RUBATO_RAGGED_MOST_ROW_BYTES)

typedef struct {
    RubatoTableSpec spec;
    RubatoShard *leads, *comes;
    RubatoKey keys[N_KEYS];
} Pair;

/* Gives some rows so many bytes each, which are the same. (transfer full) why it failed, or NULL */
static char *write_rows(RubatoShard *shard, const char *name, const RubatoKey *keys, size_t n,
                        uint32_t length)
{
    const size_t n_bytes = n * (sizeof length + length);
    g_autofree unsigned char *arguments = g_malloc(n_bytes + 1); /* there may be no keys */
    HandlerCall call = { .ops = ragged_find(name), .arguments = arguments, .n_bytes = n_bytes };

    memset(arguments, 'a' + (int)length % 7, n_bytes);
    for (size_t i = 0; i < n; i++)
        memcpy(arguments + i * sizeof length, &length, sizeof length);
    handler_run(&call, shard, &(RubatoKeys){ .keys = keys, .n = n });
    return g_steal_pointer(&call.answer.failure);
}

/* The same, which does not fail. */
static void do_write(RubatoShard *shard, const char *name, const RubatoKey *keys, size_t n,
                     uint32_t length)
{
    g_autofree char *failure = write_rows(shard, name, keys, n, length);

    ck_assert_msg(failure == NULL, "%s", failure);
}

static uint32_t length_of(RubatoShard *shard, RubatoKey key)
{
    HandlerCall call = { .ops = ragged_find("ragged.lengths"), .arguments = "" };
    uint32_t length;

    handler_run(&call, shard, &(RubatoKeys){ .keys = &key, .n = 1 });
    memcpy(&length, call.answer.bytes, sizeof length);
    handler_answer_clear(&call.answer);
    return length;
}

/* Both have the first row, and one alone has the others, of such a length. */
static Pair *begin(const char *storage, uint32_t length)
{
    Pair *const pair = g_new0(Pair, 1);

    pair->spec = (RubatoTableSpec){ .dtype = RUBATO_U8, .shape = RUBATO_SHAPE_RAGGED };
    pair->leads = shard_make(&pair->spec, storage, N_KEYS);
    pair->comes = shard_make(&pair->spec, storage, N_KEYS);
    for (size_t i = 0; i < N_KEYS; i++)
        pair->keys[i] = SHARD_FIRST_KEY + i;
    shard_set_role(pair->leads, SHARD_LEADS);
    shard_set_role(pair->comes, SHARD_FOLLOWS);
    shard_note_more(pair->leads, true);
    ck_assert(shard_await_rows(pair->comes, true));
    do_write(pair->leads, "ragged.assign", &pair->keys[HAS_COME], 1, 20);
    do_write(pair->comes, "ragged.assign", &pair->keys[HAS_COME], 1, 20);
    do_write(pair->leads, "ragged.assign", &pair->keys[COMES_LATER], 1, length);
    return pair;
}

static void end(Pair *pair)
{
    shard_free(pair->leads);
    shard_free(pair->comes);
    g_free(pair);
}

/* Tells what the present input of the one has failed in, and begins that of the other. */
static size_t pass_on(Pair *pair)
{
    size_t n;
    const ShardFailure *const failures = shard_failures(pair->leads, &n);

    shard_end_input(pair->leads);
    for (size_t i = 0; i < n; i++)
        ck_assert(shard_expect_failure(pair->comes, &failures[i]));
    shard_begin_told_input(pair->comes);
    return n;
}

/* An Add that fits the primary's rows is no failure where they are missing. One that does not fit
 * them fails there, too, although it fits what has come. */
START_TEST(an_add_fails_where_the_primary_fails)
{
    Pair *const pair = begin(_i == 0 ? "dense" : "hash", 20);
    const RubatoKey *const keys = pair->keys;
    g_autofree char *failure = NULL;
    g_autofree char *again = NULL;

    shard_begin_input(pair->leads);
    do_write(pair->leads, "ragged.add", keys, 2, 20);
    failure = write_rows(pair->leads, "ragged.add", keys, N_KEYS, 20);
    do_write(pair->leads, "ragged.append", keys, 1, 4);
    ck_assert_uint_eq(pass_on(pair), 1);
    do_write(pair->comes, "ragged.add", keys, 2, 20);
    again = write_rows(pair->comes, "ragged.add", keys, N_KEYS, 20);
    do_write(pair->comes, "ragged.append", keys, 1, 4);
    shard_end_told_input(pair->comes);
    ck_assert_str_eq(again, failure);
    ck_assert_ptr_nonnull(strstr(failure, "whose row has 0; nothing was added"));
    for (size_t i = 0; i < 24; i++) { /* the row that has come is the same */
        void *rows[2];

        shard_find(pair->leads, keys, 1, &rows[0]);
        shard_find(pair->comes, keys, 1, &rows[1]);
        ck_assert_uint_eq(((unsigned char *)ragged_heap_bytes(pair->leads->ragged, rows[0]))[i],
                          ((unsigned char *)ragged_heap_bytes(pair->comes->ragged, rows[1]))[i]);
    }
    ck_assert_uint_eq(length_of(pair->comes, keys[HAS_COME]), 24);
    end(pair);
}
END_TEST

/* It has changed the rows before the one that becomes too long. */
START_TEST(an_append_stops_where_the_primary_stops)
{
    Pair *const pair = begin(_i == 0 ? "dense" : "hash", LONGEST);
    const RubatoKey *const keys = pair->keys;
    g_autofree char *failure = NULL;
    g_autofree char *again = NULL;

    shard_begin_input(pair->leads);
    failure = write_rows(pair->leads, "ragged.append", keys, N_KEYS, 3);
    ck_assert_uint_eq(pass_on(pair), 1);
    again = write_rows(pair->comes, "ragged.append", keys, N_KEYS, 3);
    shard_end_told_input(pair->comes);
    ck_assert_str_eq(again, failure);
    for (size_t i = 0; i < N_KEYS; i++)
        ck_assert(i == COMES_LATER ||
                  length_of(pair->comes, keys[i]) == length_of(pair->leads, keys[i]));
    ck_assert_uint_eq(length_of(pair->comes, keys[HAS_COME]), 23);
    end(pair);
}
END_TEST

/* A row that has not come may be longer than in the primary, which has erased it since. */
START_TEST(an_append_that_the_primary_could_make_is_no_failure)
{
    Pair *const pair = begin(_i == 0 ? "dense" : "hash", 0);
    const RubatoKey *const keys = pair->keys;

    do_write(pair->comes, "ragged.assign", &keys[COMES_LATER], 1, LONGEST);
    shard_begin_input(pair->leads);
    do_write(pair->leads, "ragged.append", keys, N_KEYS, 3);
    ck_assert_uint_eq(pass_on(pair), 0);
    do_write(pair->comes, "ragged.append", keys, N_KEYS, 3);
    shard_end_told_input(pair->comes);
    ck_assert_uint_eq(length_of(pair->comes, keys[HAS_COME]), 23);
    ck_assert_uint_eq(length_of(pair->comes, keys[COMES_LAST]), 3);
    end(pair);
}
END_TEST

/* What was told belongs to the next input alone; and nothing is told of what comes outside. */
START_TEST(failures_are_those_of_one_input)
{
    Pair *const pair = begin("hash", 20);
    const RubatoKey *const keys = pair->keys;
    g_autofree char *failure = NULL;

    shard_begin_input(pair->leads);
    failure = write_rows(pair->leads, "ragged.add", keys, N_KEYS, 20);
    ck_assert_uint_eq(pass_on(pair), 1);
    do_write(pair->comes, "ragged.erase", keys, 0, 0); /* it runs another request: none fails */
    shard_end_told_input(pair->comes);
    shard_begin_input(pair->leads);
    do_write(pair->leads, "ragged.add", keys, 2, 20);
    ck_assert_uint_eq(pass_on(pair), 0);
    do_write(pair->comes, "ragged.add", keys, 2, 20);
    shard_end_told_input(pair->comes);
    ck_assert(shard_await_rows(pair->comes, false));
    ck_assert(!shard_expect_failure(pair->comes, &(ShardFailure){ 1, 0, "no" }));
    end(pair);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("shard failures");
    TCase *const cases = tcase_create("cases");

    tcase_add_loop_test(cases, an_add_fails_where_the_primary_fails, 0, 2);
    tcase_add_loop_test(cases, an_append_stops_where_the_primary_stops, 0, 2);
    tcase_add_loop_test(cases, an_append_that_the_primary_could_make_is_no_failure, 0, 2);
    tcase_add_test(cases, failures_are_those_of_one_input);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
