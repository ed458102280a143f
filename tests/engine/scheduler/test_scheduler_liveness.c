/* The scheduler: which nodes are alive, which have left, and which wait for others. */
#include <string.h>

#include "tests/support/runner.h"
#include "tests/support/scheduler/scheduler_fixture.h"

/* Liveness. */

static void lose_by_silence(uint32_t node)
{
    pass_ms(CONFIG.timeout_ms + 250, ALL & ~(1u << node));
}

START_TEST(scheduler_beats_at_every_node)
{
    begin();
    tick();
    for (int64_t end = now_ms + 5000; now_ms < end;) {
        now_ms += 100;
        for (uint32_t i = 0; i < N_NODES; i++)
            say(i, (Control){ .kind = CONTROL_BEAT });
        tick();
    }
    for (uint32_t i = 0; i < N_NODES; i++)
        for (unsigned n_beats = 0; n_beats < 10; n_beats++)
            expect(i, CONTROL_BEAT);
    expect_quiet();
}
END_TEST

START_TEST(scheduler_loses_a_node_after_its_timeout)
{
    begin();
    tick();
    pass_ms(CONFIG.timeout_ms - 250, 5u);
    expect_quiet();
    pass_ms(250, 5u);
    const char *const text = "node 4 (127.0.0.1:4102) was lost: nothing heard from it for 3.0 s";
    const Control *lost = expect(0, CONTROL_LOST);
    ck_assert_uint_eq(lost->lost.number, 1);
    ck_assert_str_eq(lost->lost.text, text);
    ck_assert_str_eq(expect(2, CONTROL_LOST)->lost.text, text);
    expect_quiet();
    pass_ms(10000, 5u);
    expect_quiet();
}
END_TEST

START_TEST(scheduler_takes_any_message_for_a_sign_of_life)
{
    begin();
    tick();
    for (uint64_t i = 0; i < 10; i++) {
        pass_ms(2000, 5u);
        ck_assert(!hears(1, (Control){ .kind = CONTROL_READY, .ready = { .call = 77 } }));
        expect_quiet();
    }
    /* So is a HELLO repeated because the WELCOME went astray. */
    for (uint64_t i = 0; i < 5; i++) {
        pass_ms(2000, 5u);
        hello(1);
        expect_greeting(ENDPOINTS[1], CONTROL_WELCOME);
        expect_quiet();
    }
}
END_TEST

/* Its heartbeats may come behind many messages that it has sent to the servers. Old news is no sign
 * of life, and brings no lost node back. */
START_TEST(scheduler_takes_what_is_not_for_it_for_a_sign_of_life)
{
    begin();
    tick();
    for (uint64_t i = 0; i < 10; i++) {
        scheduler_heard(scheduler, 1, now_ms);
        scheduler_heard(scheduler, 1, now_ms - CONFIG.timeout_ms / 2);
        pass_ms(2000, 5u);
        expect_quiet();
    }
    scheduler_heard(scheduler, 1, now_ms - CONFIG.timeout_ms);
    pass_ms(1000, 5u);
    expect(0, CONTROL_LOST);
    expect(2, CONTROL_LOST);
    scheduler_heard(scheduler, 1, now_ms);
    pass_ms(2000, 5u);
    ck_assert(hears(1, (Control){ .kind = CONTROL_BEAT }));
    expect(1, CONTROL_LOST);
    expect_quiet();
}
END_TEST

START_TEST(scheduler_loss_fails_what_runs_and_waits)
{
    const char *const text = "node 7 (127.0.0.1:4103) was lost: nothing heard from it for 3.0 s";
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    arrive(0, epoch, 0);
    propose(1, 2, CONTROL_CALL_CREATE, "table a");
    tick();
    lose_by_silence(2);
    for (uint32_t i = 0; i < 2; i++) {
        expect(i, CONTROL_LOST);
        expect_verdict(i, CONTROL_CANCEL, LOST_CODE, text);
    }
    expect_verdict(1, CONTROL_COMMIT, LOST_CODE, text);
    expect_quiet();

    propose(0, 2, CONTROL_CALL_RUN, "task y");
    expect_verdict(0, CONTROL_COMMIT, LOST_CODE, text);
    propose(0, 3, CONTROL_CALL_BARRIER, "");
    expect_verdict(0, CONTROL_COMMIT, LOST_CODE, text);

    done(0, epoch);
    expect_quiet();
    done(1, epoch);
    expect_verdict(0, CONTROL_TASK_END, LOST_CODE, text);
    expect_verdict(1, CONTROL_TASK_END, LOST_CODE, text);
    expect_quiet();
}
END_TEST

START_TEST(scheduler_loss_keeps_an_earlier_cause)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    fail_worker(0, epoch, "first");
    expect_verdict_everywhere(CONTROL_CANCEL, FAILED_CODE, "first");
    done(0, epoch);
    done(1, epoch);
    scheduler_node_gone(scheduler, now_ms, 2, "its process was killed by signal 9");
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_str_eq(expect(i, CONTROL_LOST)->lost.text,
                         "node 7 (127.0.0.1:4103) was lost: its process was killed by signal 9");
        expect_verdict(i, CONTROL_TASK_END, FAILED_CODE, "first");
    }
    expect_quiet();
    scheduler_node_gone(scheduler, now_ms, 2, "again");
    expect_quiet();
}
END_TEST

START_TEST(scheduler_loss_waits_for_those_at_work_on_a_call)
{
    const char *const text = "node 7 (127.0.0.1:4103) was lost: crashed";
    begin();
    go(1, CONTROL_CALL_RUN, "task x");
    ready(0, 1);
    scheduler_node_gone(scheduler, now_ms, 2, "crashed");
    expect(0, CONTROL_LOST);
    expect(1, CONTROL_LOST);
    expect_quiet();
    ready(1, 1);
    expect_verdict(0, CONTROL_COMMIT, LOST_CODE, text);
    expect_verdict(1, CONTROL_COMMIT, LOST_CODE, text);
    expect_quiet();
}
END_TEST

START_TEST(scheduler_loss_of_the_last_one_at_work_ends_the_call)
{
    begin();
    go(1, CONTROL_CALL_CREATE, "table a");
    ready(0, 1);
    ready(1, 1);
    scheduler_node_gone(scheduler, now_ms, 2, "crashed");
    for (uint32_t i = 0; i < 2; i++) {
        expect(i, CONTROL_LOST);
        ck_assert_uint_eq(expect(i, CONTROL_COMMIT)->commit.outcome.code, LOST_CODE);
    }
    expect_quiet();
}
END_TEST

START_TEST(scheduler_tells_a_lost_node_that_comes_back)
{
    begin();
    tick();
    lose_by_silence(1);
    expect(0, CONTROL_LOST);
    expect(2, CONTROL_LOST);
    say(1, call(1, CONTROL_CALL_CREATE, "table a", ""));
    const Control *lost = expect(1, CONTROL_LOST);
    ck_assert_uint_eq(lost->lost.number, 1);
    ck_assert_str_eq(lost->lost.text,
                     "node 4 (127.0.0.1:4102) was lost: nothing heard from it for 3.0 s");
    expect_quiet();

    hello(1);
    expect_refusal("tcp://b", LOST_CODE,
                   "node 4 (127.0.0.1:4102) was lost: nothing heard from it for 3.0 s");
    expect_quiet();
}
END_TEST

/* The scheduler does not wait for ever for node 1. */
static void expect_end_of_patience(void)
{
    lose_by_silence(1);
    expect(0, CONTROL_LOST);
    expect(2, CONTROL_LOST);
    expect_quiet();
}

START_TEST(scheduler_that_was_stopped_itself_loses_nobody)
{
    begin();
    tick();
    pass_ms(1000, ALL);
    now_ms += 10 * CONFIG.timeout_ms;
    say(1, (Control){ .kind = CONTROL_BEAT });
    tick();
    pass_ms(0, 0);
    expect_quiet();
    expect_end_of_patience();
}
END_TEST

/* Messages that the nodes sent meanwhile, or just before, are not read yet. _i: tenths of the
 * timeout. */
START_TEST(scheduler_that_was_stopped_for_any_time_forgives_that_time)
{
    begin();
    tick();
    pass_ms(1000, ALL);
    pass_ms(CONFIG.timeout_ms * 3 / 5, 5u);
    expect_quiet();
    now_ms += (int64_t)CONFIG.timeout_ms * _i / 10;
    tick();
    pass_ms(0, 0);
    expect_quiet();
    pass_ms(CONFIG.timeout_ms / 5, 5u);
    expect_quiet();
    pass_ms(CONFIG.timeout_ms / 2, 5u);
    expect(0, CONTROL_LOST);
    expect(2, CONTROL_LOST);
}
END_TEST

/* A machine that gives this node the processor for a moment only, again and again. */
START_TEST(scheduler_that_is_held_up_often_forgives_each_time)
{
    begin();
    tick();
    pass_ms(1000, ALL);
    for (int i = 0; i < 10; i++) {
        now_ms += CONFIG.timeout_ms / 3;
        tick();
    }
    pass_ms(0, 0);
    expect_quiet();
    expect_end_of_patience();
}
END_TEST

static Control broken(uint32_t number, const char *text)
{
    return (Control){ .kind = CONTROL_BROKEN, .broken = { number, text, 100 + number } };
}

START_TEST(scheduler_loses_a_node_that_another_one_finds_broken)
{
    static const char *const texts[] = {
        "node 7 (127.0.0.1:4103) was lost: it sent rubbish",
        "node 7 (127.0.0.1:4103) was lost: it sent rubbish (says node 4 (127.0.0.1:4102))",
    };
    const uint32_t finder = (uint32_t)_i;

    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    say(finder, broken(2, "it sent rubbish"));
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_str_eq(expect(i, CONTROL_LOST)->lost.text, texts[_i]);
        expect_verdict(i, CONTROL_CANCEL, LOST_CODE, texts[_i]);
    }
    expect_quiet();
    say(finder, broken(2, "it sent more of it"));
    expect_quiet();
    done(0, epoch);
    done(1, epoch);
    for (uint32_t i = 0; i < 2; i++)
        expect_verdict(i, CONTROL_TASK_END, LOST_CODE, texts[_i]);
}
END_TEST

/* Its own node lives as long as the scheduler does, and so it can still tell all. The node that has
 * lost it is gone: nobody waits for it, and nobody takes the end for a mistake of another node. */
START_TEST(scheduler_whose_own_node_is_broken_ends_the_run)
{
    const char *const text =
        "node 0 (127.0.0.1:4101), where the scheduler runs, was lost: it sent rubbish (says node 7 "
        "(127.0.0.1:4103))";

    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    propose(1, 2, CONTROL_CALL_CREATE, "table a");
    say(2, broken(0, "it sent rubbish"));
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_str_eq(expect(i, CONTROL_LOST)->lost.text, text);
        expect_verdict(i, CONTROL_CANCEL, LOST_CODE, text);
    }
    expect_verdict(1, CONTROL_COMMIT, LOST_CODE, text);
    expect_quiet();
    done(0, epoch);
    done(1, epoch);
    for (uint32_t i = 0; i < 2; i++)
        expect_verdict(i, CONTROL_TASK_END, LOST_CODE, text);
    say(0, (Control){ .kind = CONTROL_LEAVE });
    propose(1, 3, CONTROL_CALL_BARRIER, "");
    expect_verdict(1, CONTROL_COMMIT, LOST_CODE, text);
    say(1, (Control){ .kind = CONTROL_LEAVE });
    for (uint32_t i = 0; i < 2; i++)
        expect(i, CONTROL_LEFT);
    expect_quiet();
}
END_TEST

START_TEST(scheduler_is_told_that_nobody_is_broken_in_vain)
{
    begin();
    ck_assert(!hears(1, broken(1, "I am"))); /* itself */
    ck_assert(!hears(1, broken(N_NODES, "who?")));
    expect_quiet();
}
END_TEST

START_TEST(scheduler_never_loses_its_own_node)
{
    begin();
    tick();
    pass_ms(5 * CONFIG.timeout_ms, 6u);
    expect_quiet();
}
END_TEST

START_TEST(scheduler_loses_several_nodes)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    scheduler_node_gone(scheduler, now_ms, 1, "one");
    expect(0, CONTROL_LOST);
    expect(0, CONTROL_CANCEL);
    expect(2, CONTROL_LOST);
    expect(2, CONTROL_CANCEL);
    scheduler_node_gone(scheduler, now_ms, 2, "two");
    ck_assert_uint_eq(expect(0, CONTROL_LOST)->lost.number, 2);
    expect_quiet();
    done(0, epoch);
    expect_verdict(0, CONTROL_TASK_END, LOST_CODE, "node 4 (127.0.0.1:4102) was lost: one");
    say(0, (Control){ .kind = CONTROL_LEAVE });
    expect(0, CONTROL_LEFT);
    expect_quiet();
}
END_TEST

/* The end of the run. */

START_TEST(scheduler_lets_go_when_all_have_left)
{
    begin();
    agree(1, CONTROL_CALL_CREATE, "table a");
    say(0, (Control){ .kind = CONTROL_LEAVE });
    say(2, (Control){ .kind = CONTROL_LEAVE });
    ck_assert(!hears(2, (Control){ .kind = CONTROL_LEAVE }));
    expect_quiet();
    ck_assert(!scheduler_has_ended(scheduler));
    say(1, (Control){ .kind = CONTROL_LEAVE });
    for (uint32_t i = 0; i < N_NODES; i++)
        expect(i, CONTROL_LEFT);
    ck_assert(scheduler_has_ended(scheduler));

    /* Late messages have no effect. */
    say(1, (Control){ .kind = CONTROL_BEAT });
    now_ms += 10 * CONFIG.timeout_ms;
    tick();
    scheduler_node_gone(scheduler, now_ms, 1, "exited");
    expect_quiet();
}
END_TEST

START_TEST(scheduler_lets_go_when_the_others_are_lost)
{
    begin();
    tick();
    say(0, (Control){ .kind = CONTROL_LEAVE });
    say(1, (Control){ .kind = CONTROL_LEAVE });
    lose_by_silence(2);
    for (uint32_t i = 0; i < 2; i++) {
        expect(i, CONTROL_LOST);
        expect(i, CONTROL_LEFT);
    }
    expect_quiet();
}
END_TEST

START_TEST(scheduler_misses_a_node_that_dies_after_it_has_left)
{
    begin();
    tick();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    for (uint32_t i = 0; i < N_NODES; i++)
        done(i, epoch);
    expect_verdict_everywhere(CONTROL_TASK_END, CONTROL_OK, "");
    say(1, (Control){ .kind = CONTROL_LEAVE });
    lose_by_silence(1);
    expect(0, CONTROL_LOST);
    expect(2, CONTROL_LOST);
    expect_quiet();
}
END_TEST

START_TEST(scheduler_cancels_a_task_that_a_node_leaves)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    say(1, (Control){ .kind = CONTROL_LEAVE });
    expect_verdict_everywhere(CONTROL_CANCEL, CANCELLED_CODE,
                              "node 4 left the run while task x ran");
    done(0, epoch);
    done(2, epoch);
    expect_verdict_everywhere(CONTROL_TASK_END, CANCELLED_CODE,
                              "node 4 left the run while task x ran");
    expect_quiet();
}
END_TEST

START_TEST(scheduler_lets_a_task_end_without_a_node_that_did_its_part_and_left)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    done(1, epoch);
    say(1, (Control){ .kind = CONTROL_LEAVE });
    expect_quiet();
    done(0, epoch);
    done(2, epoch);
    expect_verdict_everywhere(CONTROL_TASK_END, CONTROL_OK, "");
}
END_TEST

/* Who waits for whom. */

START_TEST(scheduler_says_whom_a_call_waits_for)
{
    begin();
    expect_waiting(NULL);
    propose(0, 1, CONTROL_CALL_CREATE, "table a");
    now_ms += 300;
    expect_waiting("the call to create table a waits for node 4 (127.0.0.1:4102) [last heard 0.3 "
                   "s ago] and node 7 (127.0.0.1:4103) [last heard 0.3 s ago] to make it too");
    propose(1, 1, CONTROL_CALL_CREATE, "table a");
    propose(2, 1, CONTROL_CALL_CREATE, "table a");
    ready(0, 1);
    ready(2, 1);
    expect_waiting("the call to create table a waits for node 4 (127.0.0.1:4102) [last heard 0.0 "
                   "s ago] to do its part");
    ready(1, 1);
    expect_waiting(NULL);
}
END_TEST

START_TEST(scheduler_says_whom_a_task_waits_for)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    expect_waiting(NULL);
    arrive(0, epoch, 0);
    arrive(1, epoch, 0);
    expect_waiting("barrier 0 of task x waits for the workers of node 7 (127.0.0.1:4103) [last "
                   "heard 0.0 s ago]");
    done(2, epoch);
    expect_waiting("the end of task x waits for the workers of node 0 (127.0.0.1:4101) [last heard "
                   "0.0 s ago] and node 4 (127.0.0.1:4102) [last heard 0.0 s ago]");
    say(2, (Control){ .kind = CONTROL_LEAVE });
    say(1, (Control){ .kind = CONTROL_LEAVE });
    g_autofree char *waiting = scheduler_waiting(scheduler, now_ms);
    ck_assert_msg(strstr(waiting, "\nthe end of the run waits for node 0 (127.0.0.1:4101) [last "
                                  "heard 0.0 s ago] to leave it") != NULL,
                  "%s", waiting);
}
END_TEST

START_TEST(scheduler_tells_those_that_wait_after_every_stall_time)
{
    begin();
    tick();
    propose(0, 1, CONTROL_CALL_BARRIER, "");
    pass_ms(CONFIG.stall_ms - 250, ALL);
    expect_quiet();
    for (unsigned i = 0; i < 3; i++) {
        pass_ms(250, ALL);
        g_autofree char *text = g_strdup_printf(
            "the call to wait in a barrier waits for node 4 (127.0.0.1:4102) [last heard 0.0 s "
            "ago] "
            "and node 7 (127.0.0.1:4103) [last heard 0.0 s ago] to make it too (for %u.0 s so far)",
            (i + 1) * CONFIG.stall_ms / 1000);
        ck_assert_str_eq(expect(0, CONTROL_WAITING)->waiting.text, text);
        expect_quiet();
        pass_ms(CONFIG.stall_ms - 250, ALL);
        expect_quiet();
    }
}
END_TEST

START_TEST(scheduler_tells_nodes_that_wait_to_go)
{
    begin();
    tick();
    say(0, (Control){ .kind = CONTROL_LEAVE });
    say(2, (Control){ .kind = CONTROL_LEAVE });
    pass_ms(CONFIG.stall_ms, ALL);
    expect(0, CONTROL_WAITING);
    expect(2, CONTROL_WAITING);
    expect_quiet();
}
END_TEST

START_TEST(scheduler_shortens_long_lists_of_nodes)
{
    enum { N = 12 };
    uint32_t ids[N];
    SchedulerConfig config = CONFIG;
    for (uint32_t i = 0; i < N; i++)
        ids[i] = 10 + i;
    config.n_nodes = N;
    config.node_ids = ids;
    config.node_names = NULL;
    replace_scheduler(&config, NULL);
    g_autofree char *missing = scheduler_missing(scheduler);
    ck_assert_str_eq(missing, "node 10, node 11, node 12, node 13, node 14, node 15, node 16, "
                              "node 17 and 4 more");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler liveness");

    TCase *liveness = tcase_create("liveness");
    tcase_add_checked_fixture(liveness, set_up, tear_down);
    tcase_add_test(liveness, scheduler_beats_at_every_node);
    tcase_add_test(liveness, scheduler_loses_a_node_after_its_timeout);
    tcase_add_test(liveness, scheduler_takes_any_message_for_a_sign_of_life);
    tcase_add_test(liveness, scheduler_takes_what_is_not_for_it_for_a_sign_of_life);
    tcase_add_test(liveness, scheduler_loss_fails_what_runs_and_waits);
    tcase_add_test(liveness, scheduler_loss_keeps_an_earlier_cause);
    tcase_add_test(liveness, scheduler_loss_waits_for_those_at_work_on_a_call);
    tcase_add_test(liveness, scheduler_loss_of_the_last_one_at_work_ends_the_call);
    tcase_add_test(liveness, scheduler_tells_a_lost_node_that_comes_back);
    tcase_add_test(liveness, scheduler_that_was_stopped_itself_loses_nobody);
    tcase_add_test(liveness, scheduler_that_is_held_up_often_forgives_each_time);
    tcase_add_loop_test(liveness, scheduler_that_was_stopped_for_any_time_forgives_that_time, 6,
                        25);
    tcase_add_loop_test(liveness, scheduler_loses_a_node_that_another_one_finds_broken, 0, 2);
    tcase_add_test(liveness, scheduler_whose_own_node_is_broken_ends_the_run);
    tcase_add_test(liveness, scheduler_is_told_that_nobody_is_broken_in_vain);
    tcase_add_test(liveness, scheduler_never_loses_its_own_node);
    tcase_add_test(liveness, scheduler_loses_several_nodes);
    suite_add_tcase(suite, liveness);

    TCase *leaving = tcase_create("leaving");
    tcase_add_checked_fixture(leaving, set_up, tear_down);
    tcase_add_test(leaving, scheduler_lets_go_when_all_have_left);
    tcase_add_test(leaving, scheduler_lets_go_when_the_others_are_lost);
    tcase_add_test(leaving, scheduler_misses_a_node_that_dies_after_it_has_left);
    tcase_add_test(leaving, scheduler_cancels_a_task_that_a_node_leaves);
    tcase_add_test(leaving, scheduler_lets_a_task_end_without_a_node_that_did_its_part_and_left);
    suite_add_tcase(suite, leaving);

    TCase *waiting = tcase_create("waiting");
    tcase_add_checked_fixture(waiting, set_up, tear_down);
    tcase_add_test(waiting, scheduler_says_whom_a_call_waits_for);
    tcase_add_test(waiting, scheduler_says_whom_a_task_waits_for);
    tcase_add_test(waiting, scheduler_tells_those_that_wait_after_every_stall_time);
    tcase_add_test(waiting, scheduler_tells_nodes_that_wait_to_go);
    tcase_add_test(waiting, scheduler_shortens_long_lists_of_nodes);
    suite_add_tcase(suite, waiting);

    return run_suite(suite);
}
