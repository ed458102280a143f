/* The scheduler: another process takes the place of a lost node, in a run whose tables have
 * replicas. */
#include "engine/scheduler/recovery/scheduler_recovery.h"
#include "engine/scheduler/scheduler_base.h"
#include "engine/scheduler/scheduler_state.h"
#include "tests/support/runner.h"
#include "tests/support/scheduler/join_fixture.h"

START_TEST(process_gets_links_the_tables_and_then_replicas_as_the_others_do)
{
    begin_and_lose();
    join(STEP);
    expect_admit(3, STEP, COUNTED);
    say(2, step_done(3, CONTROL_RECOVER_ADMIT, "not the scheduler's node"));
    expect_quiet();
    say(0, step_done(3, CONTROL_RECOVER_ADMIT, "the tables"));
    expect_admitted(STEP, COUNTED, ENDPOINTS[2]);
    expect_step_alone(1u << GONE, 3, CONTROL_RECOVER_TABLES, "the tables");
    ck_assert(!hears(0, step_done(3, CONTROL_RECOVER_TABLES, ""))); /* it is not asked */
    expect_quiet();
    do_step(1u << GONE, 3, CONTROL_RECOVER_TABLES, "");
    go_through(ALL, 3);
    expect_waiting(NULL);
}
END_TEST

/* The others propose the same, and all do their part. Returns the id. */
static uint32_t do_call(uint64_t number, ControlCall what, const char *told, const char *expected)
{
    propose_told(0, number, what, told);
    propose_told(2, number, what, "another's");
    const ControlGo go = expect(0, CONTROL_GO)->go;
    ck_assert_str_eq(expect(2, CONTROL_GO)->go.told, "");
    const ControlGo *const whole = &expect(GONE, CONTROL_GO)->go;
    ck_assert_uint_eq(whole->call, number);
    ck_assert_uint_eq(whole->what, what);
    ck_assert_uint_eq(whole->id, go.id);
    ck_assert_str_eq(whole->told, expected);
    ready(0, number);
    ready(2, number);
    expect_quiet();
    ready(GONE, number);
    expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_OK, "");
    return go.id;
}

START_TEST(process_that_serves_makes_no_call_and_leaves_with_the_others)
{
    begin_and_lose();
    admit_wholly(3, STEP, COUNTED);
    ck_assert(!hears(GONE, (Control){ .kind = CONTROL_LEAVE }));
    do_call(1, CONTROL_CALL_CREATE, "a table", "a table");
    const uint32_t epoch = do_call(2, CONTROL_CALL_RUN, "0 7", "task 1;2 0 3;0 7;0\n");
    arrive(0, epoch, 0);
    arrive(2, epoch, 0);
    expect_release(0, epoch, 0);
    expect_release(2, epoch, 0);
    done(0, epoch);
    done(2, epoch);
    expect_verdict_everywhere(CONTROL_TASK_END, CONTROL_OK, "");
    say(0, (Control){ .kind = CONTROL_LEAVE });
    expect_quiet();
    expect_waiting("the end of the run waits for node 7 (127.0.0.1:4103) [last heard 0.0 s ago] to "
                   "leave it");
    say(2, (Control){ .kind = CONTROL_LEAVE });
    for (uint32_t i = 0; i < N_NODES; i++)
        expect(i, CONTROL_LEFT);
    ck_assert(scheduler_has_ended(scheduler));
}
END_TEST

/* Its workers were lost; those of the others go on, and may lose the node again. */
START_TEST(task_that_runs_does_not_wait_for_the_process)
{
    begin_that_admits();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    done(GONE, epoch);
    lose(GONE);
    go_through(OTHERS, 2);
    admit_wholly(3, STEP, COUNTED);
    arrive(0, epoch, 0);
    arrive(2, epoch, 0);
    expect_release(0, epoch, 0);
    expect_release(2, epoch, 0);
    lose(GONE);
    go_through(OTHERS, 4);
    done(0, epoch);
    done(2, epoch);
    expect_verdict(0, CONTROL_TASK_END, CONTROL_OK, "");
    expect_verdict(2, CONTROL_TASK_END, CONTROL_OK, "");
    expect_quiet();
}
END_TEST

/* Collectives of the others are told something. */
static void expect_decided(void)
{
    expect(0, CONTROL_DECIDE);
    expect(2, CONTROL_DECIDE);
}

/* Its workers were lost with the first process, which the task has outlived. */
START_TEST(task_that_continues_does_not_lose_workers_with_the_process)
{
    begin_that_admits();
    for (uint32_t i = 0; i < N_NODES; i++) {
        Control proposal = call(1, CONTROL_CALL_RUN, "task x", "same");

        proposal.propose.workers = "1 1 1";
        proposal.propose.survives = true;
        say(i, proposal);
    }
    const uint32_t epoch = expect(0, CONTROL_GO)->go.id;
    for (uint32_t i = 0; i < N_NODES; i++)
        ready(i, 1);
    for (uint32_t i = 1; i < N_NODES; i++)
        expect(i, CONTROL_GO);
    expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_OK, "");
    lose(GONE);
    expect_step(OTHERS, 2, CONTROL_RECOVER_CLOSE, "");
    expect_decided(); /* the loss */
    go_on_from_close(OTHERS, 2);
    admit_wholly(3, STEP, COUNTED);
    /* a fixed share of the data: from here on no more workers may be lost */
    say(0, (Control){ .kind = CONTROL_READER, .reader = { .epoch = epoch, .n_epochs = 1 } });
    lose(GONE);
    go_through(OTHERS, 4);
    done(0, epoch);
    done(2, epoch);
    expect_decided(); /* that worker 0 has returned */
    expect_verdict(0, CONTROL_TASK_END, CONTROL_OK, "");
    expect_verdict(2, CONTROL_TASK_END, CONTROL_OK, "");
    expect_quiet();
}
END_TEST

/* A barrier has no part that anybody does, nor has a call that does not begin. */
START_TEST(process_hears_nothing_of_calls_without_a_part)
{
    begin_and_lose();
    admit_wholly(3, STEP, COUNTED);
    propose(0, 1, CONTROL_CALL_BARRIER, "");
    propose(2, 1, CONTROL_CALL_BARRIER, "");
    expect_verdict(0, CONTROL_COMMIT, CONTROL_OK, "");
    expect_verdict(2, CONTROL_COMMIT, CONTROL_OK, "");
    propose(0, 2, CONTROL_CALL_MOVE, "part 0 of table a");
    propose(2, 2, CONTROL_CALL_MOVE, "part 1 of table a");
    expect(0, CONTROL_COMMIT);
    expect(2, CONTROL_COMMIT);
    expect_quiet();
}
END_TEST

/* Also one that it had not been able to do any more. */
START_TEST(call_does_not_wait_for_a_process_that_is_lost)
{
    begin_and_lose();
    admit_wholly(3, STEP, COUNTED);
    propose_told(0, 1, CONTROL_CALL_CREATE, "a table");
    propose_told(2, 1, CONTROL_CALL_CREATE, "a table");
    for (uint32_t i = 0; i < N_NODES; i++)
        expect(i, CONTROL_GO);
    ready(0, 1);
    ready(2, 1);
    lose(GONE);
    for (uint32_t i = 0; i < N_NODES; i += 2) {
        ck_assert_uint_eq(expect(i, CONTROL_RECOVER)->recover.step, CONTROL_RECOVER_CLOSE);
        expect_verdict(i, CONTROL_COMMIT, CONTROL_OK, "");
    }
    expect_quiet();
}
END_TEST

/* Another node has found the process before it to be broken, and said so late. */
START_TEST(report_of_the_process_before_does_not_concern_it)
{
    Control broken = { .kind = CONTROL_BROKEN, .broken = { GONE, "it sent rubbish", 101 } };

    begin_and_lose();
    admit_wholly(3, STEP, COUNTED);
    ck_assert(hears(2, broken));
    expect_quiet();
    broken.broken.incarnation = STEP;
    ck_assert(hears(2, broken));
    go_through(OTHERS, 4);
}
END_TEST

START_TEST(replicas_of_the_process_before_are_not_its)
{
    const Control made = { .kind = CONTROL_MADE, .made = { .server = 1, .n = 1 } };

    begin_that_admits();
    lose(2);
    expect_step_alone(3u, 2, CONTROL_RECOVER_CLOSE, "");
    say(0, step_done(2, CONTROL_RECOVER_CLOSE, "k0 0 0 0\n"));
    say(GONE, step_done(2, CONTROL_RECOVER_CLOSE, "p0 0 1 0\n"));
    expect_step_alone(3u, 2, CONTROL_RECOVER_PROMOTE, "0 0 1 1\n");
    do_step(3u, 2, CONTROL_RECOVER_PROMOTE, "");
    expect_step_alone(3u, 2, CONTROL_RECOVER_OPEN, "0 0 1 1\n");
    do_step(3u, 2, CONTROL_RECOVER_OPEN, "0 0 2 1 0\n"); /* server 1 is that of the node */
    expect_step_alone(3u, 2, CONTROL_RECOVER_EXPECT, "0 0 2 1 0\n");
    lose(GONE);
    ck_assert(!recovery_hears_made(scheduler, GONE, 1, 0));
    ck_assert(hears(GONE, made)); /* it is lost, and told so */
}
END_TEST

START_TEST(status_does_not_say_why_the_process_before_was_lost)
{
    begin_and_lose();
    admit_wholly(3, STEP, COUNTED);
    g_autoptr(GVariant) status = g_variant_ref_sink(scheduler_status(scheduler, now_ms));
    g_autofree char *text = g_variant_print(status, FALSE);
    ck_assert_ptr_null(strstr(text, "'why'"));
}
END_TEST

START_TEST(answer_is_told_again_to_who_asks_again)
{
    Control again = join_of(GONE, STEP);

    begin_and_lose();
    join(STEP);
    expect_admit(3, STEP, COUNTED);
    again.hello.endpoints = "tcp://again"; /* another way back */
    greet(&again);
    expect_greeting("tcp://again", CONTROL_WAITING);
    expect_quiet();
    do_step(OTHERS, 3, CONTROL_RECOVER_ADMIT, "");
    expect_greeting("tcp://again", CONTROL_ADMITTED);
    expect_step_alone(1u << GONE, 3, CONTROL_RECOVER_TABLES, "");
    join(STEP);
    expect_admitted(STEP, COUNTED, ENDPOINTS[2]);
    expect_quiet();
}
END_TEST

/* And hears of it, with each answer. */
static void expect_later(const char *why)
{
    g_autofree char *text = g_strconcat("node 4 (127.0.0.1:4102) joins the run later: ", why, NULL);

    ck_assert_str_eq(expect_greeting(NEW, CONTROL_WAITING)->waiting.text, text);
}

START_TEST(process_waits_for_what_is_under_way)
{
    begin_that_admits();
    lose(GONE);
    expect_step_alone(OTHERS, 2, CONTROL_RECOVER_CLOSE, "");
    join(STEP);
    expect_later("the parts of a lost node wait for node 0 (127.0.0.1:4101) [last heard 0.0 s ago] "
                 "and node 7 "
                 "(127.0.0.1:4103) [last heard 0.0 s ago] (for 0.0 s so far)");
    expect_quiet();
    do_step(OTHERS, 2, CONTROL_RECOVER_CLOSE, "");
    expect_step_alone(OTHERS, 2, CONTROL_RECOVER_PROMOTE, "");
    do_step(OTHERS, 2, CONTROL_RECOVER_PROMOTE, "");
    expect_step_alone(OTHERS, 2, CONTROL_RECOVER_OPEN, "");
    do_step(OTHERS, 2, CONTROL_RECOVER_OPEN, "");
    propose(0, 1, CONTROL_CALL_CREATE, "table a");
    propose(2, 1, CONTROL_CALL_CREATE, "table a");
    expect(0, CONTROL_GO);
    expect(2, CONTROL_GO);
    join(STEP);
    expect_later("the call to create table a waits for node 0 (127.0.0.1:4101) [last heard 0.0 s "
                 "ago] and node 7 "
                 "(127.0.0.1:4103) [last heard 0.0 s ago] to do its part (for 0.0 s so far)");
    expect_quiet();
    ready(0, 1);
    ready(2, 1);
    expect_verdict(0, CONTROL_COMMIT, CONTROL_OK, "");
    expect_verdict(2, CONTROL_COMMIT, CONTROL_OK, "");
    propose(0, 2, CONTROL_CALL_DROP, "table a");
    join(STEP);
    expect_admit(3, STEP, COUNTED);
    join(STEP);
    expect_later("a process that joins the run waits for node 0 (127.0.0.1:4101) [last heard 0.0 s "
                 "ago] and node 7 "
                 "(127.0.0.1:4103) [last heard 0.0 s ago] (for 0.0 s so far)");
    propose(2, 2, CONTROL_CALL_DROP, "table a"); /* which waits for the process now */
    expect_quiet();
    do_step(OTHERS, 3, CONTROL_RECOVER_ADMIT, "");
    expect_admitted(STEP, COUNTED, ENDPOINTS[2]);
    now_ms += 2000;
    expect_waiting("a process that joins the run waits for node 4 "
                   "(127.0.0.1:4102) [last heard 2.0 s ago]");
    expect_step_alone(1u << GONE, 3, CONTROL_RECOVER_TABLES, "");
    do_step(1u << GONE, 3, CONTROL_RECOVER_TABLES, "");
    go_through(ALL, 3);
    for (uint32_t i = 0; i < N_NODES; i++)
        expect(i, CONTROL_GO);
    expect_quiet();
}
END_TEST

/* Two, by node 0: the second one waits for the end of the first. */
static void ask_for_snapshots(void)
{
    for (uint64_t number = 1; number <= 2; number++)
        say(0, (Control){ .kind = CONTROL_SNAPSHOT_ASK,
                          .snapshot = { .number = number, .seed = 5, .spec = "spec" } });
}

static void expect_snapshot(unsigned nodes, uint64_t number, ControlStep step)
{
    for (uint32_t i = 0; i < N_NODES; i++) {
        if ((nodes & (1u << i)) == 0)
            continue;
        const ControlSnapshot *const told = &expect(i, CONTROL_SNAPSHOT_STEP)->snapshot;

        ck_assert_uint_eq(told->number, number);
        ck_assert_uint_eq(told->step, step);
    }
}

static void do_snapshot(uint64_t number)
{
    ControlStep step = CONTROL_STEP_PREPARE;
    bool is_last;

    do {
        is_last = step == CONTROL_STEP_FORGET;
        expect_snapshot(OTHERS, number, step);
        for (uint32_t node = 0; node < N_NODES; node += 2)
            say(node, (Control){ .kind = CONTROL_SNAPSHOT_DONE,
                                 .snapshot = { .number = number, .step = step } });
        step = snapshot_step_after(step, /* failed= */ false);
    } while (!is_last);
    expect(0, CONTROL_SNAPSHOT_END);
}

START_TEST(process_joins_between_two_snapshots)
{
    begin_and_lose();
    ask_for_snapshots();
    now_ms += 100; /* so long it asks again and again */
    join(STEP);
    expect_later("a snapshot waits for node 0 (127.0.0.1:4101) [last heard 0.1 s ago] and node 7 "
                 "(127.0.0.1:4103) "
                 "[last heard 0.1 s ago] to do its part (for 0.1 s so far)");
    join(STEP);
    expect_greeting(NEW, CONTROL_WAITING);
    do_snapshot(1);
    expect_quiet();
    admit_wholly(3, STEP, COUNTED);
    expect_snapshot(ALL, 2, CONTROL_STEP_PREPARE);
}
END_TEST

START_TEST(snapshot_waits_for_no_process_that_does_not_ask_again)
{
    begin_and_lose();
    ask_for_snapshots();
    join(STEP);
    expect_greeting(NEW, CONTROL_WAITING);
    do_snapshot(1);
    pass_ms(750, OTHERS);
    expect_quiet();
    pass_ms(250, OTHERS);
    expect_snapshot(OTHERS, 2, CONTROL_STEP_PREPARE);
}
END_TEST

START_TEST(another_loss_while_links_open_begins_the_admission_again)
{
    begin_and_lose();
    join(STEP);
    expect_admit(3, STEP, COUNTED);
    lose(2);
    expect_step_alone(1u, 4, CONTROL_RECOVER_CLOSE, "");
    ck_assert(hears(0, step_done(3, CONTROL_RECOVER_ADMIT, "late")));
    join(STEP);
    expect_greeting(NEW, CONTROL_WAITING);
    expect_quiet();
    do_step(1u, 4, CONTROL_RECOVER_CLOSE, "");
    expect_step_alone(1u, 4, CONTROL_RECOVER_PROMOTE, "");
    do_step(1u, 4, CONTROL_RECOVER_PROMOTE, "");
    expect_step_alone(1u, 4, CONTROL_RECOVER_OPEN, "");
    do_step(1u, 4, CONTROL_RECOVER_OPEN, "");
    join(STEP);
    ck_assert_uint_eq(expect(0, CONTROL_RECOVER)->recover.counted_from, 2 * COUNTED);
    expect_quiet();
    do_step(1u, 5, CONTROL_RECOVER_ADMIT, "");
    expect_admitted(STEP, 2 * COUNTED, ""); /* the third node is lost */
}
END_TEST

/* It makes them before it does what follows, because it is told so first. */
START_TEST(another_loss_before_it_has_the_tables_is_like_the_first)
{
    begin_and_lose();
    admit(3, STEP, COUNTED);
    lose(2);
    say(GONE, step_done(3, CONTROL_RECOVER_TABLES, "")); /* it is late */
    for (uint32_t i = 0; i <= GONE; i++) {               /* or these leave their links to it */
        const ControlRecover *const close = &expect(i, CONTROL_RECOVER)->recover;

        ck_assert_uint_eq(close->map, 4);
        ck_assert_uint_eq(close->step, CONTROL_RECOVER_CLOSE);
        ck_assert_uint_eq(close->node, GONE);
        ck_assert_uint_eq(close->cause, CONTROL_CAUSE_JOIN);
        ck_assert_str_eq(close->text, WHO " takes the place of node 4 (127.0.0.1:4102)");
    }
    go_through(3u, 5);
}
END_TEST

/* The silence before it came does not count. */
START_TEST(process_has_the_timeout_to_say_something)
{
    begin_and_lose();
    pass_ms(5000, OTHERS);
    admit(3, STEP, COUNTED);
    pass_ms(2750, OTHERS);
    expect_quiet();
    pass_ms(250, OTHERS);
    for (uint32_t i = 0; i < N_NODES; i += 2) {
        const ControlRecover *const close = &expect(i, CONTROL_RECOVER)->recover;

        ck_assert_uint_eq(close->map, 4);
        ck_assert_uint_eq(close->step, CONTROL_RECOVER_CLOSE);
        ck_assert_uint_eq(close->cause, CONTROL_CAUSE_LOSS);
        ck_assert_uint_eq(close->incarnation, STEP); /* and not that of the first */
    }
    expect_quiet();
}
END_TEST

START_TEST(another_loss_once_it_has_the_tables_is_like_the_first)
{
    begin_and_lose();
    admit_wholly(3, STEP, COUNTED);
    lose(2);
    go_through(3u, 4);
}
END_TEST

START_TEST(process_may_be_lost_and_another_takes_its_place)
{
    const char *const text = "node 4 (127.0.0.1:4102) was lost: nothing heard from it for 3.0 s";

    begin_and_lose();
    admit_wholly(3, STEP, COUNTED);
    pass_ms(3000, OTHERS);
    ck_assert_str_eq(scheduler->nodes[GONE].loss.text, text);
    go_through(OTHERS, 4);
    say(GONE, (Control){ .kind = CONTROL_BEAT });
    ck_assert_str_eq(expect(GONE, CONTROL_LOST)->lost.text, text);
    join(STEP); /* the lost process itself */
    expect_refusal(NEW, INVALID_CODE,
                   WHO " wants to take the place of node 4 (127.0.0.1:4102), but is, or says that "
                       "it is, a process that is or was in the run");
    admit_wholly(5, STEP + 1, 2 * COUNTED);
    lose(GONE);
    go_through(OTHERS, 6);
    join(STEP); /* one before that */
    expect_refusal(NEW, INVALID_CODE,
                   WHO " wants to take the place of node 4 (127.0.0.1:4102), but is, or says that "
                       "it is, a process that is or was in the run");
    expect_quiet();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler_join");
    TCase *joins = tcase_create("joins");

    tcase_add_checked_fixture(joins, set_up, tear_down);
    tcase_add_test(joins, process_gets_links_the_tables_and_then_replicas_as_the_others_do);
    tcase_add_test(joins, process_that_serves_makes_no_call_and_leaves_with_the_others);
    tcase_add_test(joins, task_that_runs_does_not_wait_for_the_process);
    tcase_add_test(joins, task_that_continues_does_not_lose_workers_with_the_process);
    tcase_add_test(joins, process_hears_nothing_of_calls_without_a_part);
    tcase_add_test(joins, call_does_not_wait_for_a_process_that_is_lost);
    tcase_add_test(joins, report_of_the_process_before_does_not_concern_it);
    tcase_add_test(joins, replicas_of_the_process_before_are_not_its);
    tcase_add_test(joins, status_does_not_say_why_the_process_before_was_lost);
    tcase_add_test(joins, answer_is_told_again_to_who_asks_again);
    tcase_add_test(joins, process_waits_for_what_is_under_way);
    tcase_add_test(joins, process_joins_between_two_snapshots);
    tcase_add_test(joins, snapshot_waits_for_no_process_that_does_not_ask_again);
    tcase_add_test(joins, another_loss_while_links_open_begins_the_admission_again);
    tcase_add_test(joins, another_loss_before_it_has_the_tables_is_like_the_first);
    tcase_add_test(joins, process_has_the_timeout_to_say_something);
    tcase_add_test(joins, another_loss_once_it_has_the_tables_is_like_the_first);
    tcase_add_test(joins, process_may_be_lost_and_another_takes_its_place);
    suite_add_tcase(suite, joins);
    return run_suite(suite);
}
