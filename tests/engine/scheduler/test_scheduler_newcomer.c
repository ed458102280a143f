/* The scheduler: a process in the place of a lost node runs its program from the beginning. */
#include <string.h>

#include "engine/scheduler/scheduler_state.h"
#include "tests/support/runner.h"
#include "tests/support/scheduler/join_fixture.h"

/* A run with two calls, the second of which is a task that goes on. Returns its epoch. */
static uint32_t begin_with_calls(void)
{
    begin_that_admits();
    agree(1, CONTROL_CALL_CREATE, "table a");
    return agree(2, CONTROL_CALL_RUN, "task x");
}

static void replace(uint32_t map)
{
    lose(GONE);
    for (uint32_t i = 0; i < N_NODES; i += 2) {
        expect(i, CONTROL_RECOVER);
        expect(i, CONTROL_CANCEL);
    }
    go_on_from_close(OTHERS, map);
    admit_wholly(map + 1, STEP + map, COUNTED * (map / 2));
}

static const ControlPast *ask(uint64_t number, ControlCall what, const char *name)
{
    propose(GONE, number, what, name);
    const ControlPast *const past = &expect(GONE, CONTROL_PAST)->past;
    ck_assert_uint_eq(past->call, number);
    expect_quiet();
    return past;
}

static void expect_past(uint64_t number, ControlCall what, const char *name, uint32_t id)
{
    const ControlPast *const past = ask(number, what, name);

    ck_assert_uint_eq(past->outcome.code, CONTROL_OK);
    ck_assert_uint_eq(past->id, id);
}

static void expect_caught_up(void)
{
    for (uint32_t i = 0; i < N_NODES; i++) {
        const ControlCaughtUp *const told = &expect(i, CONTROL_CAUGHT_UP)->caught_up;

        ck_assert_uint_eq(told->number, GONE);
        ck_assert_str_eq(told->lines, "");
    }
}

static void end_task(uint32_t epoch)
{
    done(0, epoch);
    done(2, epoch);
    for (uint32_t i = 0; i < N_NODES; i++)
        ck_assert_uint_eq(expect(i, CONTROL_TASK_END)->task_end.epoch, epoch);
    expect_quiet();
}

START_TEST(calls_that_were_made_are_answered_as_they_ended)
{
    const uint32_t epoch = begin_with_calls();

    propose(0, 3, CONTROL_CALL_MOVE, "part 0 of table a");
    propose(1, 3, CONTROL_CALL_MOVE, "part 1 of table a");
    for (uint32_t i = 0; i < 2; i++)
        expect(i, CONTROL_COMMIT);
    propose(2, 3, CONTROL_CALL_MOVE, "part 1 of table a");
    expect(2, CONTROL_COMMIT);
    replace(2);
    expect_past(1, CONTROL_CALL_CREATE, "table a", 0);
    const ControlPast *past = ask(2, CONTROL_CALL_RUN, "task x");
    ck_assert_uint_eq(past->id, epoch);
    ck_assert(past->goes_on);
    past = ask(3, CONTROL_CALL_MOVE, "part 0 of table a");
    ck_assert_uint_eq(past->outcome.code, MISMATCH_CODE);
    ck_assert_str_eq(past->outcome.text,
                     "node 4 moved part 1 of table a while node 0 moved part 0 of table a");
}
END_TEST

START_TEST(end_of_a_task_is_told_with_its_cause)
{
    const uint32_t epoch = begin_with_calls();

    replace(2);
    end_task(epoch);
    expect_past(1, CONTROL_CALL_CREATE, "table a", 0);
    const ControlPast *const past = ask(2, CONTROL_CALL_RUN, "task x");
    ck_assert(!past->goes_on);
    ck_assert_uint_eq(past->outcome.code, CONTROL_OK);
    ck_assert_uint_eq(past->end.code, LOST_CODE);
}
END_TEST

START_TEST(call_that_differs_is_refused_and_the_others_go_on)
{
    begin_with_calls();
    replace(2);
    const ControlPast *past = ask(1, CONTROL_CALL_CREATE, "table b");
    ck_assert_uint_eq(past->outcome.code, MISMATCH_CODE);
    ck_assert_str_eq(past->outcome.text,
                     "node 4 (127.0.0.1:4102) has joined the run, and call 1 of its program is to "
                     "create table b; that of the others was to create table a: all programs have "
                     "to make the same calls");
    Control other = call(2, CONTROL_CALL_RUN, "task x", "another");
    say(GONE, other);
    ck_assert_str_eq(expect(GONE, CONTROL_PAST)->past.outcome.text,
                     "node 4 (127.0.0.1:4102) has joined the run, and call 2 of its program is to "
                     "run task x; that of the others was to run task x, with other arguments: all "
                     "programs have to make the same calls");
    expect_quiet();
    ck_assert(!hears(GONE, call(2, CONTROL_CALL_RUN, "task x", "same"))); /* it made that */
}
END_TEST

/* A call for which nodes gather waits for it, and so do all after that. A task that had begun does
 * not. */
START_TEST(process_that_has_caught_up_is_like_all_others)
{
    const uint32_t epoch = begin_with_calls();

    replace(2);
    expect_past(1, CONTROL_CALL_CREATE, "table a", 0);
    propose(0, 3, CONTROL_CALL_RUN, "task y");
    ask(2, CONTROL_CALL_RUN, "task x");
    propose(GONE, 3, CONTROL_CALL_RUN, "task y");
    expect_caught_up();
    expect_quiet();
    end_task(epoch);
    propose(2, 3, CONTROL_CALL_RUN, "task y");
    const uint32_t next = expect(0, CONTROL_GO)->go.id;
    for (uint32_t i = 1; i < N_NODES; i++)
        ck_assert_str_eq(expect(i, CONTROL_GO)->go.told, "");
    for (uint32_t i = 0; i < N_NODES; i++)
        ready(i, 3);
    expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_OK, "");
    done(0, next);
    done(2, next);
    expect_quiet();
    done(GONE, next);
    expect_verdict_everywhere(CONTROL_TASK_END, CONTROL_OK, "");
    for (uint32_t i = 0; i < N_NODES; i++)
        say(i, (Control){ .kind = CONTROL_LEAVE });
    for (uint32_t i = 0; i < N_NODES; i++)
        expect(i, CONTROL_LEFT);
}
END_TEST

/* It does its part of the call as one that serves; then its own call has been made, too. */
START_TEST(call_under_way_is_answered_when_it_has_ended)
{
    begin_and_lose();
    admit_wholly(3, STEP, COUNTED);
    propose_told(0, 1, CONTROL_CALL_CREATE, "a table");
    propose_told(2, 1, CONTROL_CALL_CREATE, "a table");
    for (uint32_t i = 0; i < N_NODES; i++)
        expect(i, CONTROL_GO);
    propose_told(GONE, 1, CONTROL_CALL_CREATE, "a table");
    expect_quiet();
    for (uint32_t i = 0; i < N_NODES; i++)
        ready(i, 1);
    expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_OK, "");
    ck_assert_uint_eq(expect(GONE, CONTROL_PAST)->past.call, 1);
    expect_quiet();
}
END_TEST

/* It begins with the first call again, and is not waited for any more. */
START_TEST(process_that_is_lost_again_has_made_no_call)
{
    begin_and_lose();
    admit_wholly(3, STEP, COUNTED);
    propose(GONE, 1, CONTROL_CALL_BARRIER, "");
    expect_caught_up();
    propose(0, 1, CONTROL_CALL_BARRIER, "");
    expect_quiet();
    lose(GONE);
    go_through(OTHERS, 4);
    propose(2, 1, CONTROL_CALL_BARRIER, "");
    expect_verdict(0, CONTROL_COMMIT, CONTROL_OK, "");
    expect_verdict(2, CONTROL_COMMIT, CONTROL_OK, "");
    join(STEP + 1);
    expect_admit(5, STEP + 1, 2 * COUNTED);
    do_step(OTHERS, 5, CONTROL_RECOVER_ADMIT, "");
    ck_assert_uint_eq(expect_greeting(NEW, CONTROL_ADMITTED)->welcome.n_before, 2);
    expect_step(1u << GONE, 5, CONTROL_RECOVER_TABLES, "");
    do_step(1u << GONE, 5, CONTROL_RECOVER_TABLES, "");
    go_through(ALL, 5);
    expect_past(1, CONTROL_CALL_BARRIER, "", 0);
    propose(GONE, 2, CONTROL_CALL_BARRIER, "");
    expect_caught_up();
    expect_quiet();
}
END_TEST

/* A call for which the others gather, and which the process before it had made already. */
START_TEST(call_of_the_process_before_is_not_its_own)
{
    const uint32_t epoch = begin_with_calls();

    propose(GONE, 3, CONTROL_CALL_BARRIER, "");
    propose(0, 3, CONTROL_CALL_BARRIER, "");
    replace(2);
    expect_past(1, CONTROL_CALL_CREATE, "table a", 0);
    expect_past(2, CONTROL_CALL_RUN, "task x", epoch);
    propose(GONE, 3, CONTROL_CALL_BARRIER, "");
    expect_caught_up();
    expect_quiet();
    propose(2, 3, CONTROL_CALL_BARRIER, "");
    expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_OK, "");
    expect_quiet();
}
END_TEST

/* Some hundred different texts of so many bytes are too much to keep. */
START_TEST(list_of_very_much_is_given_up)
{
    enum { N_CALLS = 300, BYTES = 60000 };
    g_autofree char *digest = g_strnfill(BYTES, 'd');

    begin_and_lose();
    for (uint32_t i = 1; i <= N_CALLS; i++) {
        g_snprintf(digest, BYTES, "%u", i);
        digest[strlen(digest)] = 'd';
        say(0, call(i, CONTROL_CALL_BARRIER, "", digest));
        say(2, call(i, CONTROL_CALL_BARRIER, "", digest));
        expect(0, CONTROL_COMMIT);
        expect(2, CONTROL_COMMIT);
    }
    admit_wholly(3, STEP, COUNTED);
    ck_assert_str_eq(ask(1, CONTROL_CALL_BARRIER, "")->outcome.text,
                     "node 4 (127.0.0.1:4102) has joined the run, which has made more calls than "
                     "are kept for those that join: it can serve, and make no call");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler_newcomer");
    TCase *calls = tcase_create("calls");

    tcase_add_checked_fixture(calls, set_up, tear_down);
    tcase_add_test(calls, calls_that_were_made_are_answered_as_they_ended);
    tcase_add_test(calls, end_of_a_task_is_told_with_its_cause);
    tcase_add_test(calls, call_that_differs_is_refused_and_the_others_go_on);
    tcase_add_test(calls, process_that_has_caught_up_is_like_all_others);
    tcase_add_test(calls, call_under_way_is_answered_when_it_has_ended);
    tcase_add_test(calls, process_that_is_lost_again_has_made_no_call);
    tcase_add_test(calls, call_of_the_process_before_is_not_its_own);
    tcase_add_test(calls, list_of_very_much_is_given_up);
    suite_add_tcase(suite, calls);
    return run_suite(suite);
}
