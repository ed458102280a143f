/* The scheduler: processes that do not get the place of a lost node. */
#include "engine/scheduler/scheduler_state.h"
#include "tests/support/runner.h"
#include "tests/support/scheduler/join_fixture.h"

START_TEST(process_that_a_node_cannot_reach_is_refused)
{
    Control cannot = step_done(3, CONTROL_RECOVER_ADMIT, "");

    begin_and_lose();
    join(STEP);
    expect_admit(3, STEP, COUNTED);
    cannot.recover.text = "no way";
    say(2, cannot);
    expect_refusal(NEW, INVALID_CODE, "no way");
    ck_assert_str_eq(expect(2, CONTROL_RECOVER)->recover.text,
                     "no process took the place of node 4 (127.0.0.1:4102): no way");
    expect_step_alone(1u, 4, CONTROL_RECOVER_CLOSE, "");
    go_on_from_close(OTHERS, 4);
    say(0, step_done(3, CONTROL_RECOVER_ADMIT, "late"));
    expect_quiet();
    admit_wholly(5, STEP, 2 * COUNTED); /* it may ask again */
}
END_TEST

START_TEST(process_that_cannot_be_told_everything_is_refused)
{
    g_autofree char *much = g_strnfill(CONTROL_MAX_FILE - 2, 'x');

    begin_that_admits();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    done(GONE, epoch);
    lose(GONE);
    go_through(OTHERS, 2);
    join(STEP);
    expect_admit(3, STEP, COUNTED);
    do_step(OTHERS, 3, CONTROL_RECOVER_ADMIT, much);
    expect_refusal(NEW, INVALID_CODE, "there are more tables and tasks than a process can be told");
    go_through(OTHERS, 4);
}
END_TEST

START_TEST(incarnation_of_another_process_is_refused)
{
    static const uint64_t taken_by_others[] = { 100, 101, 102 }; /* 101: of the lost process */

    begin_and_lose();
    join(taken_by_others[_i]);
    expect_refusal(NEW, INVALID_CODE,
                   WHO " wants to take the place of node 4 (127.0.0.1:4102), but is, or says that "
                       "it is, a process that is or was in the run");
    expect_quiet();
}
END_TEST

START_TEST(node_that_is_not_lost_keeps_its_place)
{
    const Control of_2 = join_of(2, STEP);

    begin_and_lose();
    greet(&of_2);
    expect_refusal(NEW, INVALID_CODE,
                   "node 7 (127.0.0.1:4103) is in the run (cid pid 12) and not lost, so " WHO
                   " cannot take its place");
    expect_quiet();
}
END_TEST

START_TEST(place_of_a_node_that_there_is_not_is_refused)
{
    Control of_nobody = join_of(GONE, STEP);

    begin_and_lose();
    of_nobody.hello.node_id = 5;
    greet(&of_nobody);
    expect_refusal(NEW, INVALID_CODE,
                   "there is no node 5 in the cluster file; its nodes are 0, 4, 7");
}
END_TEST

START_TEST(process_of_another_cluster_file_is_refused)
{
    Control of_other = join_of(GONE, STEP);

    begin_and_lose();
    of_other.hello.digest = "fedcba9876543210";
    greet(&of_other);
    ck_assert_uint_eq(expect_greeting(NEW, CONTROL_REFUSE)->refuse.code, MISMATCH_CODE);
    expect_quiet();
}
END_TEST

START_TEST(nobody_joins_a_run_that_has_not_begun)
{
    SchedulerConfig config = CONFIG;

    config.admits = true;
    replace_scheduler(&config, NULL);
    join(STEP);
    expect_refusal(NEW, INVALID_CODE,
                   "the run has not begun, so no node is lost: start the process without joining");
}
END_TEST

START_TEST(nobody_joins_a_run_that_ends)
{
    begin_and_lose();
    say(0, (Control){ .kind = CONTROL_LEAVE });
    join(STEP);
    expect_refusal(NEW, CANCELLED_CODE, "the run ends: nodes have left it");
    say(2, (Control){ .kind = CONTROL_LEAVE });
    expect(0, CONTROL_LEFT);
    expect(2, CONTROL_LEFT);
    join(STEP);
    expect_refusal(NEW, CANCELLED_CODE, "the run has ended");
    expect_quiet();
}
END_TEST

START_TEST(process_whose_links_open_is_told_that_the_run_has_ended)
{
    begin_and_lose();
    join(STEP);
    expect_admit(3, STEP, COUNTED);
    say(0, (Control){ .kind = CONTROL_LEAVE });
    join(STEP);
    expect_greeting(NEW, CONTROL_WAITING); /* it may yet be admitted */
    expect_quiet();
    say(2, (Control){ .kind = CONTROL_LEAVE });
    expect(0, CONTROL_LEFT);
    expect(2, CONTROL_LEFT);
    join(STEP);
    expect_refusal(NEW, CANCELLED_CODE, "the run has ended");
    expect_quiet();
}
END_TEST

START_TEST(nobody_joins_a_run_that_a_loss_has_ended)
{
    begin_that_admits();
    scheduler->goes_on = false;
    lose(GONE);
    expect(0, CONTROL_LOST);
    expect(2, CONTROL_LOST);
    join(STEP);
    expect_refusal(NEW, LOST_CODE, "node 4 (127.0.0.1:4102) was lost: its process has ended");
    expect_quiet();
}
END_TEST

START_TEST(nobody_joins_where_nobody_is_admitted)
{
    begin();
    scheduler->goes_on = true;
    lose(GONE);
    go_through(OTHERS, 2);
    join(STEP);
    expect_refusal(NEW, INVALID_CODE, "no process can join this run");
    expect_quiet();
}
END_TEST

/* It was started again as if the run had not begun. */
START_TEST(process_of_a_lost_node_that_does_not_join_is_told_of_the_loss)
{
    Control again = hello_of(GONE);

    begin_and_lose();
    again.hello.incarnation = STEP;
    again.hello.endpoints = NEW;
    again.hello.description = WHO;
    greet(&again);
    expect_refusal(NEW, INVALID_CODE,
                   "node 4 (127.0.0.1:4102) was lost: its process has ended; the run goes on "
                   "without it, and " WHO " came later and is refused");
    expect_quiet();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler_join_refused");
    TCase *refused = tcase_create("refused");

    tcase_add_checked_fixture(refused, set_up, tear_down);
    tcase_add_loop_test(refused, incarnation_of_another_process_is_refused, 0, 3);
    tcase_add_test(refused, process_of_a_lost_node_that_does_not_join_is_told_of_the_loss);
    tcase_add_test(refused, node_that_is_not_lost_keeps_its_place);
    tcase_add_test(refused, process_that_a_node_cannot_reach_is_refused);
    tcase_add_test(refused, process_that_cannot_be_told_everything_is_refused);
    tcase_add_test(refused, place_of_a_node_that_there_is_not_is_refused);
    tcase_add_test(refused, process_of_another_cluster_file_is_refused);
    tcase_add_test(refused, nobody_joins_a_run_that_has_not_begun);
    tcase_add_test(refused, nobody_joins_a_run_that_ends);
    tcase_add_test(refused, process_whose_links_open_is_told_that_the_run_has_ended);
    tcase_add_test(refused, nobody_joins_a_run_that_a_loss_has_ended);
    tcase_add_test(refused, nobody_joins_where_nobody_is_admitted);
    suite_add_tcase(suite, refused);
    return run_suite(suite);
}
