/* The state machines of a part with replicas: each rule. test_replica_feed_simulation.c has whole
 * clusters. */
#include "engine/server/replicas/replica_feed.h"

#include <glib.h>
#include <string.h>

#include "engine/server/replicas/server_feed.h"
#include "engine/server/replicas/server_inputs.h"
#include "tests/support/runner.h"

START_TEST(an_answer_waits_until_every_replica_has_what_it_shows)
{
    ReplicaFeed feed;
    HeldAnswer one, two, *released;

    replica_feed_init(&feed, 10);
    ck_assert(replica_feed_add(&feed, 1, 0, 10));
    ck_assert(replica_feed_add(&feed, 2, 0, 10));
    ck_assert(!replica_feed_hold(&feed, &one));
    ck_assert_uint_eq(replica_feed_count(&feed), 11);
    ck_assert(replica_feed_hold(&feed, &one));
    ck_assert_uint_eq(replica_feed_count(&feed), 12);
    ck_assert(replica_feed_hold(&feed, &two));
    ck_assert_int_eq(replica_feed_hears(&feed, 1, 0, 12, &released), POSITION_HEARD);
    ck_assert_ptr_null(released);
    ck_assert_int_eq(replica_feed_hears(&feed, 2, 0, 11, &released), POSITION_HEARD);
    ck_assert_ptr_eq(released, &one);
    ck_assert_ptr_null(one.next);
    ck_assert_int_eq(replica_feed_hears(&feed, 2, 0, 12, &released), POSITION_HEARD);
    ck_assert_ptr_eq(released, &two);
    ck_assert(!replica_feed_hold(&feed, &one));
}
END_TEST

START_TEST(answers_do_not_wait_for_a_replica_that_the_map_has_no_more)
{
    ReplicaFeed feed;
    HeldAnswer one, two;

    replica_feed_init(&feed, 0);
    ck_assert(replica_feed_add(&feed, 1, 0, 0));
    (void)replica_feed_count(&feed);
    ck_assert(replica_feed_hold(&feed, &one));
    ck_assert(replica_feed_hold(&feed, &two));
    ck_assert_ptr_null(replica_feed_drop(&feed, 2)); /* it never was one */
    ck_assert_ptr_eq(replica_feed_drop(&feed, 1), &one);
    ck_assert_ptr_eq(one.next, &two);
    ck_assert_ptr_null(replica_feed_take_held(&feed));
}
END_TEST

START_TEST(positions_that_make_no_sense_change_nothing)
{
    ReplicaFeed feed;
    HeldAnswer one, *released;

    replica_feed_init(&feed, 5);
    ck_assert(!replica_feed_add(&feed, 1, 0, 6));
    ck_assert(replica_feed_add(&feed, 1, 0, 3));
    ck_assert(!replica_feed_add(&feed, 1, 0, 3));
    ck_assert(replica_feed_hold(&feed, &one));
    ck_assert_int_eq(replica_feed_hears(&feed, 2, 0, 5, &released), POSITION_HEARD); /* no more */
    ck_assert_int_eq(replica_feed_hears(&feed, 1, 9, 5, &released), POSITION_HEARD); /* likewise */
    ck_assert_int_eq(replica_feed_hears(&feed, 1, 0, 6, &released), POSITION_WRONG);
    ck_assert_int_eq(replica_feed_hears(&feed, 1, 0, 2, &released),
                     POSITION_HEARD); /* an old one */
    ck_assert_ptr_null(released);
    ck_assert_uint_eq(replica_feed_safe(&feed), 3);
    ck_assert_ptr_eq(replica_feed_take_held(&feed), &one);
}
END_TEST

START_TEST(no_answer_waits_for_a_replica_that_is_made_before_it_has_its_image)
{
    ReplicaFeed feed;
    HeldAnswer one, two, *released;

    replica_feed_init(&feed, 5);
    ck_assert(replica_feed_add_copy(&feed, 1, 3, SIZE_MAX));
    ck_assert_ptr_null(replica_feed_find(&feed, 1, 2));
    ck_assert(!replica_feed_find(&feed, 1, 3)->counts);
    (void)replica_feed_count(&feed);
    ck_assert(!replica_feed_hold(&feed, &one));
    /* what an earlier replica there has had */
    ck_assert_int_eq(replica_feed_hears(&feed, 1, 2, 6, &released), POSITION_HEARD);
    ck_assert(!replica_feed_find(&feed, 1, 3)->counts);
    ck_assert_int_eq(replica_feed_hears(&feed, 1, 3, 5, &released), POSITION_COUNTS);
    ck_assert_ptr_null(released);
    ck_assert(replica_feed_hold(&feed, &two));
    ck_assert_int_eq(replica_feed_hears(&feed, 1, 3, 6, &released), POSITION_HEARD);
    ck_assert_ptr_eq(released, &two);
}
END_TEST

/* Before that it may lack what was acknowledged without it. */
START_TEST(a_replica_that_is_made_is_whole_when_it_says_so)
{
    ReplicaFeed feed;
    HeldAnswer *released;

    replica_feed_init(&feed, 5);
    ck_assert(replica_feed_add_copy(&feed, 1, 3, SIZE_MAX));
    replica_feed_hears_whole(&feed, 1, 3); /* it does not count yet */
    ck_assert(!replica_feed_find(&feed, 1, 3)->is_whole);
    ck_assert_int_eq(replica_feed_hears(&feed, 1, 3, 5, &released), POSITION_COUNTS);
    ck_assert(!replica_feed_find(&feed, 1, 3)->is_whole);
    replica_feed_hears_whole(&feed, 1, 2); /* an earlier replica there */
    replica_feed_hears_whole(&feed, 2, 3); /* none */
    ck_assert(!replica_feed_find(&feed, 1, 3)->is_whole);
    replica_feed_hears_whole(&feed, 1, 3);
    ck_assert(replica_feed_find(&feed, 1, 3)->is_whole);
}
END_TEST

START_TEST(an_input_counts_once)
{
    g_autofree InputSequences *sequences = input_sequences_new(2);

    ck_assert(input_sequences_take(sequences, 0, 1));
    ck_assert(!input_sequences_take(sequences, 0, 1));
    ck_assert(input_sequences_take(sequences, 0, 3)); /* the second one was for another part */
    ck_assert(input_sequences_take(sequences, 1, 1));
    ck_assert(!input_sequences_take(sequences, 0, 2));
}
END_TEST

/* Changes of a worker at a clock, and how many of them the part has had. */
typedef struct {
    uint64_t clock, n, n_had;
} Changes;

/* Its process has sent the first ones; the next one begins to repeat, with pieces of another size;
 * the third one, too. */
START_TEST(what_a_lost_worker_had_sent_counts_once)
{
    static const Changes first[] = { { 3, 10, 0 }, { 4, 5, 0 }, { 4, 1, 0 }, { 6, 4, 0 } };
    static const Changes second[] = {
        { 3, 8, 8 }, { 3, 2, 2 }, { 4, 6, 6 }, { 6, 3, 3 }, { 6, 3, 1 }
    };
    static const Changes third[] = {
        { 4, 6, 6 }, { 6, 12, 6 }, { 6, 1, 0 }, { 7, 2, 0 }, { 7, 1, 0 }
    };
    g_autofree InputSequences *sequences = input_sequences_new(2);

#define EXPECT_ALL(changes)                                                                      \
    for (size_t i = 0; i < sizeof(changes) / sizeof((changes)[0]); i++)                          \
    ck_assert_uint_eq(input_sequences_advance(sequences, 1, (changes)[i].clock, (changes)[i].n), \
                      (changes)[i].n_had)
    EXPECT_ALL(first);
    input_sequences_return(sequences, 1);
    EXPECT_ALL(second);
    input_sequences_return(sequences, 0); /* another worker */
    ck_assert_uint_eq(input_sequences_advance(sequences, 1, 6, 0), 0);
    input_sequences_return(sequences, 1);
    EXPECT_ALL(third);
    ck_assert_uint_eq(input_sequences_advance(sequences, 0, 0, 3), 0);
}
END_TEST

/* An announcement of a worker: which of its keys are taken in, and as how many in all. */
typedef struct {
    uint64_t iteration;
    size_t n, n_announced;    /* as they come */
    size_t n_skipped, n_then; /* keys that were had, and n_announced of the rest */
} Told;

static void announce(InputSequences *sequences, const Told *told)
{
    RubatoRequest request = { .worker = 1,
                              .clock = told->iteration,
                              .keys = { .first = 100, .n = told->n },
                              .n_announced = told->n_announced };
    const bool is_left = server_skip_announced(sequences, &request);

    ck_assert_int_eq(is_left, told->n_skipped == 0 || told->n_skipped < told->n);
    if (!is_left)
        return;
    ck_assert_uint_eq(request.keys.n, told->n - told->n_skipped);
    ck_assert_uint_eq(request.keys.first, 100 + told->n_skipped);
    ck_assert_uint_eq(request.n_announced, told->n_then);
}

/* The process has told 3 of 10 keys of iteration 7; iteration 6 uses none. The next one tells all
 * from iteration 6 on, in one piece or in others, and the third one from iteration 7 on. What a
 * worker has changed is counted apart. */
START_TEST(what_a_lost_worker_had_announced_is_not_taken_in_again)
{
    static const Told first[] = { { 5, 2, 0, 0, 0 }, { 6, 0, 0, 0, 0 }, { 7, 3, 10, 0, 10 } };
    static const Told whole[] = { { 6, 0, 0, 1, 0 }, { 7, 10, 0, 3, 10 }, { 8, 4, 0, 0, 0 } };
    static const Told pieces[] = { { 6, 0, 0, 1, 0 }, { 7, 2, 10, 2, 0 }, { 7, 2, 10, 1, 10 } };
    static const Told again[] = { { 7, 4, 10, 4, 0 },
                                  { 7, 6, 10, 0, 10 },
                                  { RUBATO_CLOCK_RETIRED, 0, 0, 0, 0 } };
    static const Told end[] = { { 8, 4, 0, 4, 0 }, { RUBATO_CLOCK_RETIRED, 0, 0, 1, 0 } };
    g_autofree InputSequences *sequences = input_sequences_new(2);
    const Told *const second = _i == 0 ? whole : pieces;

    for (size_t i = 0; i < G_N_ELEMENTS(first); i++)
        announce(sequences, &first[i]);
    ck_assert_uint_eq(input_sequences_advance(sequences, 1, 3, 5), 0);
    input_sequences_return(sequences, 1);
    for (size_t i = 0; i < G_N_ELEMENTS(whole); i++)
        announce(sequences, &second[i]);
    ck_assert_uint_eq(input_sequences_advance(sequences, 1, 3, 7), 5);
    if (_i == 0)
        return;
    input_sequences_return(sequences, 1);
    for (size_t i = 0; i < G_N_ELEMENTS(again); i++)
        announce(sequences, &again[i]);
    input_sequences_return(sequences, 1);
    for (size_t i = 0; i < G_N_ELEMENTS(end); i++)
        announce(sequences, &end[i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replica_feed");
    TCase *rules = tcase_create("rules");

    tcase_add_test(rules, an_answer_waits_until_every_replica_has_what_it_shows);
    tcase_add_test(rules, answers_do_not_wait_for_a_replica_that_the_map_has_no_more);
    tcase_add_test(rules, positions_that_make_no_sense_change_nothing);
    tcase_add_test(rules, no_answer_waits_for_a_replica_that_is_made_before_it_has_its_image);
    tcase_add_test(rules, a_replica_that_is_made_is_whole_when_it_says_so);
    tcase_add_test(rules, an_input_counts_once);
    tcase_add_test(rules, what_a_lost_worker_had_sent_counts_once);
    tcase_add_loop_test(rules, what_a_lost_worker_had_announced_is_not_taken_in_again, 0, 2);
    suite_add_tcase(suite, rules);
    return run_suite(suite);
}
