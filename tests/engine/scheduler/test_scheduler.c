/* The scheduler: collective calls, one process, answers from inside a callback. */
#include "engine/scheduler/scheduler_state.h"
#include "engine/scheduler/scheduler_task.h"

#include "tests/support/runner.h"
#include "tests/support/scheduler/scheduler_fixture.h"

/* Collective calls. */

START_TEST(scheduler_lets_all_go_when_all_propose_the_same)
{
    begin();
    propose(1, 1, CONTROL_CALL_CREATE, "table weights");
    propose(0, 1, CONTROL_CALL_CREATE, "table weights");
    expect_quiet();
    propose(2, 1, CONTROL_CALL_CREATE, "table weights");
    for (uint32_t i = 0; i < N_NODES; i++)
        ck_assert_uint_eq(expect(i, CONTROL_GO)->go.call, 1);
    ready(2, 1);
    ready(0, 1);
    expect_quiet();
    ready(1, 1);
    expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_OK, "");
    expect_quiet();
}
END_TEST

START_TEST(scheduler_gives_each_table_and_task_a_fresh_id)
{
    begin();
    ck_assert_uint_eq(agree(1, CONTROL_CALL_CREATE, "table a"), 0);
    ck_assert_uint_eq(agree(2, CONTROL_CALL_RUN, "task x"), 1);
    ck_assert_uint_eq(agree(3, CONTROL_CALL_CREATE, "table b"), 1);
    ck_assert_uint_eq(agree(4, CONTROL_CALL_DROP, "table a"), 0);
    ck_assert_uint_eq(agree(5, CONTROL_CALL_CREATE, "table a"), 2);
    ck_assert_uint_eq(agree(6, CONTROL_CALL_RUN, "task x"), 2);
}
END_TEST

START_TEST(scheduler_tells_all_the_seed_of_whoever_came_first)
{
    begin();
    for (uint64_t op = 1; op <= 2; op++) {
        const char *const name = op == 1 ? "table a" : "table b";

        for (uint32_t i = 0; i < N_NODES; i++) {
            const uint32_t node = (2 + i) % N_NODES;
            Control proposal = call(op, CONTROL_CALL_CREATE, name, "");

            proposal.propose.hash_seed = UINT64_MAX - op * 10 - node;
            say(node, proposal);
        }
        for (uint32_t i = 0; i < N_NODES; i++)
            ck_assert_uint_eq(expect(i, CONTROL_GO)->go.hash_seed, UINT64_MAX - op * 10 - 2);
        for (uint32_t i = 0; i < N_NODES; i++)
            ready(i, op);
        expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_OK, "");
    }
}
END_TEST

START_TEST(scheduler_commits_a_barrier_without_a_go)
{
    begin();
    propose(0, 1, CONTROL_CALL_BARRIER, "");
    propose(1, 1, CONTROL_CALL_BARRIER, "whatever");
    expect_quiet();
    propose(2, 1, CONTROL_CALL_BARRIER, "");
    expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_OK, "");
    expect_quiet();
}
END_TEST

START_TEST(scheduler_commits_the_first_failure_once_all_are_ready)
{
    begin();
    go(1, CONTROL_CALL_CREATE, "table a");
    say(1, (Control){ .kind = CONTROL_READY,
                      .ready = { .call = 1,
                                 .outcome.code = CONTROL_CODE(RUBATO_ERROR_MEMORY),
                                 .outcome.text = "node 4 has no room for table a" } });
    say(2,
        (Control){ .kind = CONTROL_READY,
                   .ready = { .call = 1, .outcome.code = INVALID_CODE, .outcome.text = "later" } });
    expect_quiet();
    ready(0, 1);
    expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_CODE(RUBATO_ERROR_MEMORY),
                              "node 4 has no room for table a");
    expect_quiet();
    agree(2, CONTROL_CALL_CREATE, "table b");
}
END_TEST

static const struct {
    uint32_t first, second;    /* who comes when */
    ControlPropose one, other; /* of node number 0 and 1 */
    const char *says;
} MISMATCHES[] = {
    { 0,
      1,
      { .what = CONTROL_CALL_CREATE, .name = "table a" },
      { .what = CONTROL_CALL_RUN, .name = "task b" },
      "node 4 ran task b while node 0 created table a" },
    { 1,
      0,
      { .what = CONTROL_CALL_CREATE, .name = "table a" },
      { .what = CONTROL_CALL_RUN, .name = "task b" },
      "node 4 ran task b while node 0 created table a" },
    { 0,
      1,
      { .what = CONTROL_CALL_DROP, .name = "table a" },
      { .what = CONTROL_CALL_DROP, .name = "table b" },
      "node 4 dropped table b while node 0 dropped table a" },
    { 0,
      1,
      { .what = CONTROL_CALL_BARRIER, .name = "" },
      { .what = CONTROL_CALL_DROP, .name = "table b" },
      "node 4 dropped table b while node 0 waited in a barrier" },
    { 0,
      1,
      { .what = CONTROL_CALL_CREATE, .name = "table a", .digest = "1", .arguments = "width 1" },
      { .what = CONTROL_CALL_CREATE, .name = "table a", .digest = "2", .arguments = "width 2" },
      "node 0 and node 4 create table a with different arguments: width 1 / width 2" },
    { 1,
      0,
      { .what = CONTROL_CALL_RUN, .name = "task a", .digest = "1", .arguments = "workers 1" },
      { .what = CONTROL_CALL_RUN, .name = "task a", .digest = "2", .arguments = "workers 2" },
      "node 0 and node 4 run task a with different arguments: workers 1 / workers 2" },
    { 0,
      1,
      { .what = CONTROL_CALL_CREATE,
        .name = "table a",
        .digest = "1",
        .arguments = "dtype f32, width 1, model bsp, parts 2" },
      { .what = CONTROL_CALL_CREATE,
        .name = "table a",
        .digest = "2",
        .arguments = "dtype f32, width 3, model bsp, bounds 1 2, parts 4" },
      "node 0 and node 4 create table a with different arguments: width 1, parts 2 / width 3, "
      "bounds 1 2, parts 4" },
    { 0,
      1,
      { .what = CONTROL_CALL_RESTORE, .name = "snapshot 3 of /d" },
      { .what = CONTROL_CALL_RUN, .name = "task b" },
      "node 4 ran task b while node 0 restored snapshot 3 of /d; does node 4 see that snapshot? "
      "All nodes need the same directory, on a shared file system or in a bucket" },
    { 1,
      0,
      { .what = CONTROL_CALL_RUN, .name = "task b" },
      { .what = CONTROL_CALL_RESTORE, .name = "snapshot 3 of /d" },
      "node 4 restored snapshot 3 of /d while node 0 ran task b; does node 0 see that snapshot? "
      "All nodes need the same directory, on a shared file system or in a bucket" },
    { 0,
      1,
      { .what = CONTROL_CALL_RESTORE, .name = "snapshot 3 of /d" },
      { .what = CONTROL_CALL_RESTORE, .name = "snapshot 2 of /d" },
      "node 4 restored snapshot 2 of /d while node 0 restored snapshot 3 of /d; do both see the "
      "same snapshots? All nodes need the same directory, on a shared file system or in a bucket" },
};

START_TEST(scheduler_refuses_a_mismatch_on_every_node)
{
    const ControlPropose *calls[] = { &MISMATCHES[_i].one, &MISMATCHES[_i].other };
    const char *const text = MISMATCHES[_i].says;
    Control proposal;

    begin();
    for (unsigned turn = 0; turn < 2; turn++) {
        const uint32_t node = turn == 0 ? MISMATCHES[_i].first : MISMATCHES[_i].second;
        proposal = (Control){ .kind = CONTROL_PROPOSE, .propose = *calls[node] };
        proposal.propose.call = 1;
        expect_quiet();
        say(node, proposal);
    }
    expect_verdict(0, CONTROL_COMMIT, MISMATCH_CODE, text);
    expect_verdict(1, CONTROL_COMMIT, MISMATCH_CODE, text);
    expect_quiet();

    /* The last one hears it when it comes, whatever it comes with. */
    say(2, proposal);
    expect_verdict(2, CONTROL_COMMIT, MISMATCH_CODE, text);
    expect_quiet();
    agree(2, CONTROL_CALL_CREATE, "table c");
}
END_TEST

START_TEST(scheduler_keeps_nodes_in_step_after_a_mismatch)
{
    begin();
    /* Two go far ahead of the third, through mismatches alone. */
    for (uint64_t op = 1; op <= 20; op++) {
        propose(0, op, CONTROL_CALL_CREATE, "table a");
        propose(1, op, CONTROL_CALL_RUN, "task b");
        expect(0, CONTROL_COMMIT);
        expect(1, CONTROL_COMMIT);
    }
    propose(0, 21, CONTROL_CALL_DROP, "table a");
    propose(1, 21, CONTROL_CALL_DROP, "table a");
    expect_quiet();
    for (uint64_t op = 1; op <= 20; op++) {
        propose(2, op, CONTROL_CALL_DROP, "table a");
        const Control *commit = expect(2, CONTROL_COMMIT);
        ck_assert_uint_eq(commit->commit.call, op);
        ck_assert_str_eq(commit->commit.outcome.text,
                         "node 4 ran task b while node 0 created table a");
    }
    expect_quiet();
    propose(2, 21, CONTROL_CALL_DROP, "table a");
    for (uint32_t i = 0; i < N_NODES; i++)
        ck_assert_uint_eq(expect(i, CONTROL_GO)->go.call, 21);
    expect_quiet();
}
END_TEST

START_TEST(scheduler_ignores_calls_out_of_turn)
{
    begin();
    ck_assert(!hears(0, call(2, CONTROL_CALL_CREATE, "table a", "")));
    ck_assert(!hears(0, call(0, CONTROL_CALL_CREATE, "table a", "")));
    ck_assert(!hears(0, (Control){ .kind = CONTROL_READY, .ready = { .call = 1 } }));
    propose(0, 1, CONTROL_CALL_CREATE, "table a");
    ck_assert(!hears(0, call(1, CONTROL_CALL_CREATE, "table a", "")));
    ck_assert(!hears(0, call(2, CONTROL_CALL_CREATE, "table a", "")));
    ck_assert(!hears(0, (Control){ .kind = CONTROL_READY, .ready = { .call = 1 } }));
    ck_assert(!hears(1, call(1, (ControlCall)0, "", "")));
    ck_assert(!hears(1, call(1, CONTROL_CALL_END, "", "")));
    ck_assert(!hears(N_NODES, call(1, CONTROL_CALL_CREATE, "table a", "")));
    ck_assert(!hears(1, (Control){ .kind = CONTROL_GO, .go = { .call = 1 } }));
    ck_assert(!hears(1, (Control){ .kind = CONTROL_HELLO }));
    expect_quiet();
    say(1, call(1, CONTROL_CALL_CREATE, "table a", "same"));
    say(2, call(1, CONTROL_CALL_CREATE, "table a", "same"));
    for (uint32_t i = 0; i < N_NODES; i++)
        expect(i, CONTROL_GO);
    ready(0, 1);
    ck_assert(!hears(0, (Control){ .kind = CONTROL_READY, .ready = { .call = 1 } }));
    ck_assert(!hears(1, (Control){ .kind = CONTROL_READY, .ready = { .call = 2 } }));
    expect_quiet();
}
END_TEST

START_TEST(scheduler_fails_a_call_whose_partner_has_left)
{
    begin();
    propose(0, 1, CONTROL_CALL_RUN, "task b");
    say(1, (Control){ .kind = CONTROL_LEAVE });
    expect_verdict(0, CONTROL_COMMIT, MISMATCH_CODE, "node 4 left the run while node 0 ran task b");
    expect_quiet();
    propose(2, 1, CONTROL_CALL_CREATE, "table a");
    expect_verdict(2, CONTROL_COMMIT, MISMATCH_CODE, "node 4 left the run while node 0 ran task b");
    propose(2, 2, CONTROL_CALL_CREATE, "table a");
    expect_verdict(2, CONTROL_COMMIT, MISMATCH_CODE,
                   "node 4 left the run while node 7 created table a");
    expect_quiet();
    ck_assert(!hears(1, call(1, CONTROL_CALL_RUN, "task b", "same")));
}
END_TEST

/* As a program does that finds no snapshot, and ends because of it. */
START_TEST(scheduler_asks_whether_one_that_left_saw_the_snapshot)
{
    begin();
    propose(0, 1, CONTROL_CALL_RESTORE, "snapshot 3 of /d");
    say(1, (Control){ .kind = CONTROL_LEAVE });
    expect_verdict(0, CONTROL_COMMIT, MISMATCH_CODE,
                   "node 4 left the run while node 0 restored snapshot 3 of /d; does node 4 see "
                   "that snapshot? All nodes need the same directory, on a shared file system or "
                   "in a bucket");
    expect_quiet();
}
END_TEST

START_TEST(scheduler_fails_a_call_that_a_node_leaves_in_its_middle)
{
    begin();
    go(1, CONTROL_CALL_RUN, "task b");
    ready(0, 1);
    say(1, (Control){ .kind = CONTROL_LEAVE });
    expect_quiet();
    ready(2, 1);
    for (uint32_t i = 0; i < N_NODES; i++)
        expect_verdict(i, CONTROL_COMMIT, MISMATCH_CODE,
                       "node 4 left the run while node 0 ran task b");
    expect_quiet();
    ck_assert(hears(0, (Control){ .kind = CONTROL_TASK_DONE, .task_done = { .epoch = 1 } }));
    expect_quiet();
}
END_TEST

START_TEST(scheduler_fails_the_call_of_the_one_that_leaves)
{
    begin();
    propose(1, 1, CONTROL_CALL_CREATE, "table a");
    say(1, (Control){ .kind = CONTROL_LEAVE });
    expect_verdict(1, CONTROL_COMMIT, MISMATCH_CODE,
                   "node 4 left the run in the middle of a call: create table a");
    propose(0, 1, CONTROL_CALL_CREATE, "table a");
    ck_assert_uint_eq(expect(0, CONTROL_COMMIT)->commit.outcome.code, MISMATCH_CODE);
    expect_quiet();
}
END_TEST

/* One process, and a node that answers at once. */

START_TEST(scheduler_serves_a_single_process)
{
    const SchedulerConfig config = { .n_nodes = 1, .single = true, .stall_ms = 1000 };
    const Control greeting = hello_of(0);

    replace_scheduler(&config, NULL);
    ck_assert(scheduler_has_begun(scheduler));
    ck_assert_ptr_null(scheduler_missing(scheduler));
    ck_assert(!scheduler_greet(scheduler, now_ms, &greeting, 5, 1));
    tick();
    now_ms += 1000000;
    tick();
    scheduler_node_gone(scheduler, now_ms, 0, "what?");
    expect_quiet();

    propose(0, 1, CONTROL_CALL_RUN, "task x");
    const uint32_t epoch = expect(0, CONTROL_GO)->go.id;
    ready(0, 1);
    expect_verdict(0, CONTROL_COMMIT, CONTROL_OK, "");
    arrive(0, epoch, 0);
    expect_release(0, epoch, 0);
    done(0, epoch);
    expect_verdict(0, CONTROL_TASK_END, CONTROL_OK, "");
    propose(0, 2, CONTROL_CALL_CREATE, "table a");
    expect(0, CONTROL_GO);
    expect_waiting("the call to create table a waits for node 0 to do its part");
    now_ms += 1000;
    tick();
    expect_quiet(); /* it waits for itself */
    ready(0, 2);
    expect_verdict(0, CONTROL_COMMIT, CONTROL_OK, "");
    propose(0, 3, CONTROL_CALL_BARRIER, "");
    expect_verdict(0, CONTROL_COMMIT, CONTROL_OK, "");
    say(0, (Control){ .kind = CONTROL_LEAVE });
    expect(0, CONTROL_LEFT);
    expect_quiet();
}
END_TEST

/* Answers GO inside the callback, and proposes its next call inside COMMIT. */
static void answer_at_once(void *user, uint32_t node, const Control *control)
{
    static bool inside;
    const bool commits = control->kind == CONTROL_COMMIT;
    const uint64_t op = commits ? control->commit.call : control->go.call;

    ck_assert_msg(!inside, "a callback was called from within itself");
    inside = true;
    put_sent(user, node, control);
    if (control->kind == CONTROL_GO)
        ready(node, op);
    else if (commits && op < 100)
        propose(node, op + 1, CONTROL_CALL_CREATE, "table a");
    inside = false;
}

START_TEST(scheduler_may_be_called_back_from_its_callbacks)
{
    const SchedulerConfig config = { .n_nodes = 1, .single = true };

    replace_scheduler(&config, answer_at_once);
    propose(0, 1, CONTROL_CALL_CREATE, "table a");
    for (uint64_t op = 1; op <= 100; op++) {
        ck_assert_uint_eq(expect(0, CONTROL_GO)->go.call, op);
        ck_assert_uint_eq(expect(0, CONTROL_COMMIT)->commit.call, op);
    }
    expect_quiet();
}
END_TEST

START_TEST(scheduler_keeps_nothing_of_what_has_ended)
{
    begin();
    for (uint64_t op = 1; op <= 1000; op++) {
        const uint32_t epoch = agree(op, CONTROL_CALL_RUN, "task x");
        for (uint32_t i = 0; i < N_NODES; i++)
            done(i, epoch);
        expect_verdict_everywhere(CONTROL_TASK_END, CONTROL_OK, "");
    }
    ck_assert_uint_eq(g_queue_get_length(&scheduler->collectives), 0);
    ck_assert_uint_eq(scheduler->tasks->len, 0);

    /* What is kept for a node that is behind goes when that one is lost. */
    propose(0, 1001, CONTROL_CALL_CREATE, "table a");
    propose(1, 1001, CONTROL_CALL_CREATE, "table b");
    ck_assert_uint_eq(g_queue_get_length(&scheduler->collectives), 1);
    scheduler_node_gone(scheduler, now_ms, 2, "crashed");
    ck_assert_uint_eq(g_queue_get_length(&scheduler->collectives), 0);
}
END_TEST

START_TEST(scheduler_may_be_freed_in_the_middle)
{
    begin();
    agree(1, CONTROL_CALL_RUN, "task x");
    go(2, CONTROL_CALL_RUN, "task y");
    scheduler_node_gone(scheduler, now_ms, 2, "crashed");
    scheduler_free(scheduler);
    scheduler = NULL;
    scheduler_free(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler");

    TCase *calls = tcase_create("calls");
    tcase_add_checked_fixture(calls, set_up, tear_down);
    tcase_add_test(calls, scheduler_lets_all_go_when_all_propose_the_same);
    tcase_add_test(calls, scheduler_gives_each_table_and_task_a_fresh_id);
    tcase_add_test(calls, scheduler_tells_all_the_seed_of_whoever_came_first);
    tcase_add_test(calls, scheduler_commits_a_barrier_without_a_go);
    tcase_add_test(calls, scheduler_commits_the_first_failure_once_all_are_ready);
    tcase_add_loop_test(calls, scheduler_refuses_a_mismatch_on_every_node, 0,
                        (int)G_N_ELEMENTS(MISMATCHES));
    tcase_add_test(calls, scheduler_keeps_nodes_in_step_after_a_mismatch);
    tcase_add_test(calls, scheduler_ignores_calls_out_of_turn);
    tcase_add_test(calls, scheduler_fails_a_call_whose_partner_has_left);
    tcase_add_test(calls, scheduler_asks_whether_one_that_left_saw_the_snapshot);
    tcase_add_test(calls, scheduler_fails_a_call_that_a_node_leaves_in_its_middle);
    tcase_add_test(calls, scheduler_fails_the_call_of_the_one_that_leaves);
    suite_add_tcase(suite, calls);

    TCase *one_process = tcase_create("one_process");
    tcase_add_checked_fixture(one_process, set_up, tear_down);
    tcase_add_test(one_process, scheduler_serves_a_single_process);
    tcase_add_test(one_process, scheduler_may_be_called_back_from_its_callbacks);
    tcase_add_test(one_process, scheduler_keeps_nothing_of_what_has_ended);
    tcase_add_test(one_process, scheduler_may_be_freed_in_the_middle);
    suite_add_tcase(suite, one_process);

    return run_suite(suite);
}
