/* The scheduler: how tasks end, and barriers of their workers. */
#include "tests/support/runner.h"
#include "tests/support/scheduler/scheduler_fixture.h"

START_TEST(scheduler_ends_a_task_when_every_node_is_done)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    done(0, epoch);
    done(2, epoch);
    expect_quiet();
    done(1, epoch);
    for (uint32_t i = 0; i < N_NODES; i++) {
        const Control *end = expect(i, CONTROL_TASK_END);
        ck_assert_uint_eq(end->task_end.epoch, epoch);
        ck_assert_uint_eq(end->task_end.outcome.code, CONTROL_OK);
    }
    expect_quiet();
}
END_TEST

START_TEST(scheduler_cancels_a_task_by_its_first_failure)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    fail_worker(2, epoch, "worker 5 of task x (node 7): bad data");
    expect_verdict_everywhere(CONTROL_CANCEL, FAILED_CODE, "worker 5 of task x (node 7): bad data");
    fail_worker(0, epoch, "another");
    say(1, (Control){ .kind = CONTROL_INTERRUPT, .interrupt = { .text = "late" } });
    expect_quiet();
    for (uint32_t i = 0; i < N_NODES; i++)
        done(i, epoch);
    expect_verdict_everywhere(CONTROL_TASK_END, FAILED_CODE,
                              "worker 5 of task x (node 7): bad data");
    fail_worker(1, epoch, "too late");
    done(1, epoch);
    arrive(1, epoch, 0);
    expect_quiet();
    agree(2, CONTROL_CALL_RUN, "task x");
}
END_TEST

static void fail_by_cancellation(uint32_t node, uint32_t epoch)
{
    say(node, (Control){ .kind = CONTROL_FAIL,
                         .fail = { epoch, { CANCELLED_CODE, "worker 1 was cancelled" } } });
}

/* A node whose requests a server cancelled does not know the cause; the node that knows it may be
 * heard later. */
START_TEST(scheduler_prefers_a_cause_to_its_effect)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    fail_by_cancellation(1, epoch);
    pass_ms(CONFIG.heartbeat_ms, ALL);
    expect_quiet();
    fail_worker(2, epoch, "bad data");
    expect_verdict_everywhere(CONTROL_CANCEL, FAILED_CODE, "bad data");
    pass_ms(2 * CONFIG.heartbeat_ms, ALL);
    expect_quiet();
    for (uint32_t i = 0; i < N_NODES; i++)
        done(i, epoch);
    expect_verdict_everywhere(CONTROL_TASK_END, FAILED_CODE, "bad data");
}
END_TEST

START_TEST(scheduler_takes_an_effect_for_the_cause_if_none_comes)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    fail_by_cancellation(1, epoch);
    pass_ms(2 * CONFIG.heartbeat_ms, ALL);
    expect_verdict_everywhere(CONTROL_CANCEL, CANCELLED_CODE, "worker 1 was cancelled");
    for (uint32_t i = 0; i < N_NODES; i++)
        done(i, epoch);
    expect_verdict_everywhere(CONTROL_TASK_END, CANCELLED_CODE, "worker 1 was cancelled");
}
END_TEST

enum { SILENT = 2, OTHERS = ALL & ~(1u << SILENT) };

/* A node that has given up and could not say why is silent. Its loss is the cause. */
START_TEST(scheduler_prefers_the_loss_of_a_silent_node_to_an_effect)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    fail_by_cancellation(1, epoch);
    pass_ms(CONFIG.heartbeat_ms / 2, ALL); /* what it said before came late */
    pass_ms(CONFIG.timeout_ms - CONFIG.heartbeat_ms / 2, OTHERS);
    expect_quiet();
    pass_ms(CONFIG.heartbeat_ms, OTHERS);
    expect(0, CONTROL_LOST);
    expect_verdict(0, CONTROL_CANCEL, LOST_CODE,
                   "node 7 (127.0.0.1:4103) was lost: nothing heard from it for 3.0 s");
}
END_TEST

/* While the scheduler's own node stands still, it hears nothing of a node that lives, nor that
 * another one does not. */
START_TEST(scheduler_does_not_count_its_own_pause_as_time_for_a_cause)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    pass_ms(CONFIG.heartbeat_ms, ALL);
    fail_by_cancellation(1, epoch);
    now_ms += 2 * CONFIG.timeout_ms;
    tick();
    pass_ms(0, 0); /* drops the heartbeats */
    expect_quiet();
    pass_ms(CONFIG.heartbeat_ms, OTHERS);
    pass_ms(CONFIG.heartbeat_ms, ALL);
    expect_verdict_everywhere(CONTROL_CANCEL, CANCELLED_CODE, "worker 1 was cancelled");
    for (uint32_t i = 0; i < N_NODES; i++)
        done(i, epoch);
}
END_TEST

/* A task that has ended does not wait for a cause. */
START_TEST(scheduler_ends_a_task_by_an_effect_when_every_node_is_done)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    fail_by_cancellation(1, epoch);
    for (uint32_t i = 0; i < N_NODES; i++)
        done(i, epoch);
    expect_verdict_everywhere(CONTROL_TASK_END, CANCELLED_CODE, "worker 1 was cancelled");
    expect_quiet();
}
END_TEST

START_TEST(scheduler_keeps_a_failure_that_comes_before_the_commit)
{
    begin();
    const uint32_t epoch = go(1, CONTROL_CALL_RUN, "task x");
    ready(1, 1);
    fail_worker(1, epoch, "early");
    done(1, epoch);
    ready(0, 1);
    expect_quiet();
    ready(2, 1);
    expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_OK, "");
    expect_verdict_everywhere(CONTROL_CANCEL, FAILED_CODE, "early");
    done(0, epoch);
    done(2, epoch);
    expect_verdict_everywhere(CONTROL_TASK_END, FAILED_CODE, "early");
    expect_quiet();
}
END_TEST

START_TEST(scheduler_ends_at_once_a_task_that_was_done_before_its_commit)
{
    begin();
    const uint32_t epoch = go(1, CONTROL_CALL_RUN, "task x");
    for (uint32_t i = 0; i < N_NODES; i++)
        done(i, epoch);
    ready(0, 1);
    ready(1, 1);
    expect_quiet();
    ready(2, 1);
    expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_OK, "");
    expect_verdict_everywhere(CONTROL_TASK_END, CONTROL_OK, "");
    expect_quiet();
}
END_TEST

START_TEST(scheduler_forgets_a_task_whose_commit_failed)
{
    begin();
    const uint32_t epoch = go(1, CONTROL_CALL_RUN, "task x");
    fail_worker(0, epoch, "early");
    ready(0, 1);
    ready(1, 1);
    say(2, (Control){
               .kind = CONTROL_READY,
               .ready = { .call = 1, .outcome.code = INVALID_CODE, .outcome.text = "no table" } });
    expect_verdict_everywhere(CONTROL_COMMIT, INVALID_CODE, "no table");
    for (uint32_t i = 0; i < N_NODES; i++)
        done(i, epoch);
    expect_quiet();
}
END_TEST

START_TEST(scheduler_runs_tasks_side_by_side)
{
    begin();
    const uint32_t one = agree(1, CONTROL_CALL_RUN, "task x");
    const uint32_t two = agree(2, CONTROL_CALL_RUN, "task y");
    fail_worker(0, two, "bad");
    for (uint32_t i = 0; i < N_NODES; i++)
        ck_assert_uint_eq(expect(i, CONTROL_CANCEL)->cancel.epoch, two);
    for (uint32_t i = 0; i < N_NODES; i++)
        done(i, one);
    expect_verdict_everywhere(CONTROL_TASK_END, CONTROL_OK, "");
    for (uint32_t i = 0; i < N_NODES; i++)
        done(i, two);
    expect_verdict_everywhere(CONTROL_TASK_END, FAILED_CODE, "bad");
    expect_quiet();
}
END_TEST

START_TEST(scheduler_interrupt_cancels_running_tasks_alone)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    go(2, CONTROL_CALL_CREATE, "table a");
    say(1, (Control){ .kind = CONTROL_INTERRUPT, .interrupt = { .text = "cancelled on node 4" } });
    expect_verdict_everywhere(CONTROL_CANCEL, CANCELLED_CODE, "cancelled on node 4");
    expect_quiet();
    for (uint32_t i = 0; i < N_NODES; i++) {
        ready(i, 2);
        done(i, epoch);
    }
    for (uint32_t i = 0; i < N_NODES; i++) {
        expect_verdict(i, CONTROL_COMMIT, CONTROL_OK, "");
        expect_verdict(i, CONTROL_TASK_END, CANCELLED_CODE, "cancelled on node 4");
    }
    agree(3, CONTROL_CALL_RUN, "task x");
}
END_TEST

START_TEST(scheduler_stop_ends_tasks_and_calls)
{
    const char *const text = "SIGINT on node 4";
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    propose(0, 2, CONTROL_CALL_CREATE, "table a");
    say(1, (Control){ .kind = CONTROL_STOP, .stop = { .text = text } });
    expect_verdict_everywhere(CONTROL_CANCEL, CANCELLED_CODE, text);
    expect_verdict(0, CONTROL_COMMIT, CANCELLED_CODE, text);
    propose(1, 2, CONTROL_CALL_CREATE, "table a");
    expect_verdict(1, CONTROL_COMMIT, CANCELLED_CODE, text);
    propose(0, 3, CONTROL_CALL_BARRIER, "");
    expect_verdict(0, CONTROL_COMMIT, CANCELLED_CODE, text);
    say(2, (Control){ .kind = CONTROL_STOP, .stop = { .text = "SIGINT on node 7" } });
    expect_quiet();
    for (uint32_t i = 0; i < N_NODES; i++)
        done(i, epoch);
    expect_verdict_everywhere(CONTROL_TASK_END, CANCELLED_CODE, text);
    expect_quiet();
}
END_TEST

START_TEST(scheduler_stop_undoes_a_call_once_all_are_ready)
{
    begin();
    go(1, CONTROL_CALL_RUN, "task x");
    ready(0, 1);
    say(0, (Control){ .kind = CONTROL_STOP, .stop = { .text = "SIGTERM" } });
    ready(1, 1);
    expect_quiet();
    ready(2, 1);
    expect_verdict_everywhere(CONTROL_COMMIT, CANCELLED_CODE, "SIGTERM");
    expect_quiet();
}
END_TEST

START_TEST(scheduler_ignores_messages_about_tasks_that_never_were)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    const uint32_t next = epoch + 1;
    ck_assert(!hears(0, (Control){ .kind = CONTROL_TASK_DONE, .task_done = { .epoch = next } }));
    ck_assert(
        !hears(0, (Control){ .kind = CONTROL_FAIL, .fail = { .epoch = next, .outcome.code = 1 } }));
    ck_assert(!hears(0, (Control){ .kind = CONTROL_ARRIVE, .arrive = { .epoch = next } }));
    ck_assert(!hears(0, (Control){ .kind = CONTROL_FAIL, .fail = { .epoch = epoch } }));
    ck_assert(!hears(0, (Control){ .kind = CONTROL_TASK_DONE }));
    done(0, epoch);
    ck_assert(!hears(0, (Control){ .kind = CONTROL_TASK_DONE, .task_done = { .epoch = epoch } }));
    expect_quiet();
}
END_TEST

/* Barriers of a task. */

START_TEST(scheduler_releases_a_barrier_when_all_workers_wait)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    for (uint64_t round = 0; round < 3; round++) {
        arrive(0, epoch, round);
        arrive(1, epoch, round);
        expect_quiet();
        arrive(2, epoch, round);
        for (uint32_t i = 0; i < N_NODES; i++)
            expect_release(i, epoch, round);
        expect_quiet();
    }
    ck_assert(
        !hears(0, (Control){ .kind = CONTROL_ARRIVE, .arrive = { .epoch = epoch, .round = 2 } }));
    ck_assert(
        !hears(0, (Control){ .kind = CONTROL_ARRIVE, .arrive = { .epoch = epoch, .round = 4 } }));
    arrive(0, epoch, 3);
    ck_assert(
        !hears(0, (Control){ .kind = CONTROL_ARRIVE, .arrive = { .epoch = epoch, .round = 3 } }));
    expect_quiet();
}
END_TEST

START_TEST(scheduler_barrier_does_not_wait_for_nodes_without_workers)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    arrive(1, epoch, CONTROL_NO_ROUND);
    arrive(0, epoch, 0);
    expect_quiet();
    arrive(2, epoch, 0);
    expect_release(0, epoch, 0);
    expect_release(2, epoch, 0);
    expect_quiet();

    /* Nor for those whose workers have ended meanwhile. */
    arrive(0, epoch, 1);
    expect_quiet();
    done(2, epoch);
    expect_release(0, epoch, 1);
    arrive(0, epoch, CONTROL_NO_ROUND);
    arrive(0, epoch, CONTROL_NO_ROUND);
    ck_assert(
        !hears(0, (Control){ .kind = CONTROL_ARRIVE, .arrive = { .epoch = epoch, .round = 2 } }));
    expect_quiet();
}
END_TEST

START_TEST(scheduler_does_not_release_a_cancelled_task)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    arrive(0, epoch, 0);
    fail_worker(1, epoch, "bad");
    expect_verdict_everywhere(CONTROL_CANCEL, FAILED_CODE, "bad");
    arrive(1, epoch, CONTROL_NO_ROUND);
    arrive(1, epoch, 0); /* overtaken by the node's last worker */
    arrive(2, epoch, 0);
    expect_quiet();
}
END_TEST

START_TEST(scheduler_does_not_release_a_cancelled_task_when_its_other_workers_are_done)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    arrive(0, epoch, 0);
    arrive(1, epoch, 0);
    fail_worker(2, epoch, "bad");
    expect_verdict_everywhere(CONTROL_CANCEL, FAILED_CODE, "bad");
    done(2, epoch);
    expect_quiet();
}
END_TEST

START_TEST(scheduler_keeps_barriers_of_tasks_apart)
{
    begin();
    const uint32_t one = agree(1, CONTROL_CALL_RUN, "task x");
    const uint32_t two = agree(2, CONTROL_CALL_RUN, "task y");
    arrive(0, one, 0);
    arrive(1, two, 0);
    arrive(2, one, 0);
    arrive(0, two, 0);
    expect_quiet();
    arrive(2, two, 0);
    for (uint32_t i = 0; i < N_NODES; i++)
        expect_release(i, two, 0);
    expect_quiet();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler tasks");

    TCase *tasks = tcase_create("tasks");
    tcase_add_checked_fixture(tasks, set_up, tear_down);
    tcase_add_test(tasks, scheduler_ends_a_task_when_every_node_is_done);
    tcase_add_test(tasks, scheduler_cancels_a_task_by_its_first_failure);
    tcase_add_test(tasks, scheduler_prefers_a_cause_to_its_effect);
    tcase_add_test(tasks, scheduler_takes_an_effect_for_the_cause_if_none_comes);
    tcase_add_test(tasks, scheduler_prefers_the_loss_of_a_silent_node_to_an_effect);
    tcase_add_test(tasks, scheduler_does_not_count_its_own_pause_as_time_for_a_cause);
    tcase_add_test(tasks, scheduler_ends_a_task_by_an_effect_when_every_node_is_done);
    tcase_add_test(tasks, scheduler_keeps_a_failure_that_comes_before_the_commit);
    tcase_add_test(tasks, scheduler_ends_at_once_a_task_that_was_done_before_its_commit);
    tcase_add_test(tasks, scheduler_forgets_a_task_whose_commit_failed);
    tcase_add_test(tasks, scheduler_runs_tasks_side_by_side);
    tcase_add_test(tasks, scheduler_interrupt_cancels_running_tasks_alone);
    tcase_add_test(tasks, scheduler_stop_ends_tasks_and_calls);
    tcase_add_test(tasks, scheduler_stop_undoes_a_call_once_all_are_ready);
    tcase_add_test(tasks, scheduler_ignores_messages_about_tasks_that_never_were);
    tcase_add_test(tasks, scheduler_releases_a_barrier_when_all_workers_wait);
    tcase_add_test(tasks, scheduler_barrier_does_not_wait_for_nodes_without_workers);
    tcase_add_test(tasks, scheduler_does_not_release_a_cancelled_task);
    tcase_add_test(tasks,
                   scheduler_does_not_release_a_cancelled_task_when_its_other_workers_are_done);
    tcase_add_test(tasks, scheduler_keeps_barriers_of_tasks_apart);
    suite_add_tcase(suite, tasks);

    return run_suite(suite);
}
