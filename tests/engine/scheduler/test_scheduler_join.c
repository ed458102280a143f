/* The scheduler: another process takes the place of a lost node, in a run whose tables have
 * replicas. */
#include "engine/scheduler/scheduler_state.h"
#include "tests/support/engine/scheduler_fixture.h"
#include "tests/support/runner.h"

#define GONE 1u    /* the node that is lost first */
#define OTHERS 5u  /* the others, as a mask */
#define STEP 1000u /* an incarnation that is no process's of the rendezvous */
#define NEW "tcp://new"
#define WHO "dan pid 13"
#define COUNTED ((uint64_t)1 << 48)

static void begin_that_admits(void)
{
    SchedulerConfig config = CONFIG;

    config.admits = true;
    replace_scheduler(&config, NULL);
    begin();
    scheduler->goes_on = true; /* as after the COMMIT of a table with replicas */
}

static void lose(uint32_t node)
{
    scheduler_node_gone(scheduler, now_ms, node, "its process has ended");
}

static Control step_done(uint32_t map, ControlRecoverStep step, const char *lines)
{
    return (Control){ .kind = CONTROL_RECOVERED,
                      .recover = { .map = map, .step = step, .text = "", .lines = lines } };
}

/* The nodes of the mask are told to do a step, and do it; the first one says the lines. */
static void expect_step(unsigned nodes, uint32_t map, ControlRecoverStep step, const char *told)
{
    for (uint32_t i = 0; i < N_NODES; i++) {
        if ((nodes & (1u << i)) == 0)
            continue;
        const ControlRecover *const recover = &expect(i, CONTROL_RECOVER)->recover;

        ck_assert_uint_eq(recover->map, map);
        ck_assert_uint_eq(recover->step, step);
        ck_assert_str_eq(recover->lines, told);
    }
    expect_quiet();
}

static void do_step(unsigned nodes, uint32_t map, ControlRecoverStep step, const char *says)
{
    for (uint32_t i = 0; i < N_NODES; i++)
        if (nodes & (1u << i))
            say(i, step_done(map, step, i == 0 ? says : ""));
}

/* All that follows, with one part, whose primary is server 0; by the map. */
static void go_on_from_close(unsigned nodes, uint32_t map)
{
    do_step(nodes, map, CONTROL_RECOVER_CLOSE, "k0 0 0 0\np0 0 0 0\n");
    expect_step(nodes, map, CONTROL_RECOVER_PROMOTE, "0 0 1 0\n");
    do_step(nodes, map, CONTROL_RECOVER_PROMOTE, "");
    expect_step(nodes, map, CONTROL_RECOVER_OPEN, "0 0 1 0\n");
    do_step(nodes, map, CONTROL_RECOVER_OPEN, "0 0 2 0 1\n");
    expect_step(nodes, map, CONTROL_RECOVER_EXPECT, "0 0 2 0 1\n");
    do_step(nodes, map, CONTROL_RECOVER_EXPECT, "");
    expect_step(nodes, map, CONTROL_RECOVER_COPY, "0 0 2 0 1\n");
    do_step(nodes, map, CONTROL_RECOVER_COPY, "");
}

static void go_through(unsigned nodes, uint32_t map)
{
    expect_step(nodes, map, CONTROL_RECOVER_CLOSE, "");
    go_on_from_close(nodes, map);
}

static void begin_and_lose(void)
{
    begin_that_admits();
    lose(GONE);
    go_through(OTHERS, 2);
}

static Control join_of(uint32_t number, uint64_t incarnation)
{
    Control join = hello_of(number);

    join.kind = CONTROL_JOIN;
    join.hello.incarnation = incarnation;
    join.hello.endpoints = NEW;
    join.hello.description = WHO;
    return join;
}

static void join(uint64_t incarnation)
{
    const Control control = join_of(GONE, incarnation);

    greet(&control);
}

static void expect_admit(uint32_t map, uint64_t incarnation, uint64_t counted_from)
{
    for (uint32_t i = 0; i < N_NODES; i += 2) {
        const ControlRecover *const recover = &expect(i, CONTROL_RECOVER)->recover;

        ck_assert_uint_eq(recover->map, map);
        ck_assert_uint_eq(recover->step, CONTROL_RECOVER_ADMIT);
        ck_assert_uint_eq(recover->node, GONE);
        ck_assert_uint_eq(recover->cause, CONTROL_CAUSE_JOIN);
        ck_assert_str_eq(recover->text, WHO " takes the place of node 4 (127.0.0.1:4102)");
        ck_assert_str_eq(recover->endpoints, NEW);
        ck_assert_uint_eq(recover->incarnation, incarnation);
        ck_assert_uint_eq(recover->counted_from, counted_from);
    }
    expect_quiet();
}

static void expect_admitted(uint64_t incarnation, uint64_t counted_from, const char *third)
{
    const ControlWelcome *const admitted = &expect_greeting(NEW, CONTROL_ADMITTED)->welcome;

    ck_assert_uint_eq(admitted->run_id, scheduler->run_id);
    ck_assert_uint_eq(admitted->n_nodes, N_NODES);
    ck_assert_uint_eq(admitted->counted_from, counted_from);
    ck_assert_str_eq(admitted->endpoints[0], ENDPOINTS[0]);
    ck_assert_str_eq(admitted->endpoints[GONE], NEW);
    ck_assert_str_eq(admitted->endpoints[2], third);
    ck_assert_uint_eq(admitted->incarnations[0], 100);
    ck_assert_uint_eq(admitted->incarnations[GONE], incarnation);
}

/* The process is the node; it makes the tables next. */
static void admit(uint32_t map, uint64_t incarnation, uint64_t counted_from)
{
    g_autoptr(GString) told = g_string_new("the tables\n");

    for (guint i = 0; i < scheduler->tasks->len; i++)
        g_string_append(told, ((SchedulerTask *)scheduler->tasks->pdata[i])->told);
    join(incarnation);
    expect_admit(map, incarnation, counted_from);
    do_step(OTHERS, map, CONTROL_RECOVER_ADMIT, "the tables\n");
    expect_admitted(incarnation, counted_from, ENDPOINTS[2]);
    expect_step(1u << GONE, map, CONTROL_RECOVER_TABLES, told->str);
}

static void admit_wholly(uint32_t map, uint64_t incarnation, uint64_t counted_from)
{
    admit(map, incarnation, counted_from);
    do_step(1u << GONE, map, CONTROL_RECOVER_TABLES, "");
    go_through(ALL, map);
}

START_TEST(process_gets_links_the_tables_and_then_replicas_as_the_others_do)
{
    begin_and_lose();
    join(STEP);
    expect_admit(3, STEP, COUNTED);
    say(2, step_done(3, CONTROL_RECOVER_ADMIT, "not the scheduler's node"));
    expect_quiet();
    say(0, step_done(3, CONTROL_RECOVER_ADMIT, "the tables"));
    expect_admitted(STEP, COUNTED, ENDPOINTS[2]);
    expect_step(1u << GONE, 3, CONTROL_RECOVER_TABLES, "the tables");
    ck_assert(!hears(0, step_done(3, CONTROL_RECOVER_TABLES, ""))); /* it is not asked */
    expect_quiet();
    do_step(1u << GONE, 3, CONTROL_RECOVER_TABLES, "");
    go_through(ALL, 3);
    expect_waiting(NULL);
}
END_TEST

static void propose_told(uint32_t node, uint64_t number, ControlCall what, const char *told)
{
    Control proposal = call(number, what, "x", "same");

    proposal.propose.workers = "2 1 3";
    proposal.propose.told = told;
    say(node, proposal);
}

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
    ck_assert(!hears(GONE, call(1, CONTROL_CALL_BARRIER, "", "same")));
    ck_assert(!hears(GONE, (Control){ .kind = CONTROL_LEAVE }));
    do_call(1, CONTROL_CALL_CREATE, "a table", "a table");
    const uint32_t epoch = do_call(2, CONTROL_CALL_RUN, "0 7", "task 1;2 0 3;0 7\n");
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
    go_through(OTHERS, 2);
    admit_wholly(3, STEP, COUNTED);
    /* a fixed share of the data: from here on no more workers may be lost */
    say(0, (Control){ .kind = CONTROL_READER, .reader = { .epoch = epoch, .n_epochs = 1 } });
    lose(GONE);
    go_through(OTHERS, 4);
    done(0, epoch);
    done(2, epoch);
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
    expect_step(1u, 4, CONTROL_RECOVER_CLOSE, "");
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
    expect_step(3u, 2, CONTROL_RECOVER_CLOSE, "");
    say(0, step_done(2, CONTROL_RECOVER_CLOSE, "k0 0 0 0\n"));
    say(GONE, step_done(2, CONTROL_RECOVER_CLOSE, "p0 0 1 0\n"));
    expect_step(3u, 2, CONTROL_RECOVER_PROMOTE, "0 0 1 1\n");
    do_step(3u, 2, CONTROL_RECOVER_PROMOTE, "");
    expect_step(3u, 2, CONTROL_RECOVER_OPEN, "0 0 1 1\n");
    do_step(3u, 2, CONTROL_RECOVER_OPEN, "0 0 2 1 0\n"); /* server 1 is that of the node */
    expect_step(3u, 2, CONTROL_RECOVER_EXPECT, "0 0 2 1 0\n");
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
    expect_quiet();
    do_step(OTHERS, 3, CONTROL_RECOVER_ADMIT, "");
    expect_greeting("tcp://again", CONTROL_ADMITTED);
    expect_step(1u << GONE, 3, CONTROL_RECOVER_TABLES, "");
    join(STEP);
    expect_admitted(STEP, COUNTED, ENDPOINTS[2]);
    expect_quiet();
}
END_TEST

START_TEST(process_waits_for_what_is_under_way)
{
    begin_that_admits();
    lose(GONE);
    expect_step(OTHERS, 2, CONTROL_RECOVER_CLOSE, "");
    join(STEP);
    expect_quiet();
    do_step(OTHERS, 2, CONTROL_RECOVER_CLOSE, "");
    expect_step(OTHERS, 2, CONTROL_RECOVER_PROMOTE, "");
    do_step(OTHERS, 2, CONTROL_RECOVER_PROMOTE, "");
    expect_step(OTHERS, 2, CONTROL_RECOVER_OPEN, "");
    do_step(OTHERS, 2, CONTROL_RECOVER_OPEN, "");
    propose(0, 1, CONTROL_CALL_CREATE, "table a");
    propose(2, 1, CONTROL_CALL_CREATE, "table a");
    expect(0, CONTROL_GO);
    expect(2, CONTROL_GO);
    join(STEP);
    expect_quiet();
    ready(0, 1);
    ready(2, 1);
    expect_verdict(0, CONTROL_COMMIT, CONTROL_OK, "");
    expect_verdict(2, CONTROL_COMMIT, CONTROL_OK, "");
    propose(0, 2, CONTROL_CALL_DROP, "table a");
    join(STEP);
    expect_admit(3, STEP, COUNTED);
    propose(2, 2, CONTROL_CALL_DROP, "table a"); /* which waits for the process now */
    expect_quiet();
    do_step(OTHERS, 3, CONTROL_RECOVER_ADMIT, "");
    expect_admitted(STEP, COUNTED, ENDPOINTS[2]);
    now_ms += 2000;
    expect_waiting("a process that takes the place of a lost node waits for node 4 "
                   "(127.0.0.1:4102) [last heard 2.0 s ago]");
    expect_step(1u << GONE, 3, CONTROL_RECOVER_TABLES, "");
    do_step(1u << GONE, 3, CONTROL_RECOVER_TABLES, "");
    go_through(ALL, 3);
    for (uint32_t i = 0; i < N_NODES; i++)
        expect(i, CONTROL_GO);
    expect_quiet();
}
END_TEST

START_TEST(another_loss_while_links_open_begins_the_admission_again)
{
    begin_and_lose();
    join(STEP);
    expect_admit(3, STEP, COUNTED);
    lose(2);
    expect_step(1u, 4, CONTROL_RECOVER_CLOSE, "");
    ck_assert(hears(0, step_done(3, CONTROL_RECOVER_ADMIT, "late")));
    join(STEP);
    expect_quiet();
    do_step(1u, 4, CONTROL_RECOVER_CLOSE, "");
    expect_step(1u, 4, CONTROL_RECOVER_PROMOTE, "");
    do_step(1u, 4, CONTROL_RECOVER_PROMOTE, "");
    expect_step(1u, 4, CONTROL_RECOVER_OPEN, "");
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
    expect_step(OTHERS, 4, CONTROL_RECOVER_CLOSE, "");
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
    expect_quiet(); /* it may yet be admitted */
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
    expect_refusal(NEW, INVALID_CODE, "no process can take the place of a lost node in this run");
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

/* The process is told the move, and does its steps as the others do. */
START_TEST(parts_move_after_a_loss)
{
    const char *const told = "move 0 2;4 1 5";

    begin_and_lose();
    admit_wholly(3, STEP, COUNTED);
    propose_told(0, 1, CONTROL_CALL_MOVE, told);
    propose_told(2, 1, CONTROL_CALL_MOVE, told);
    for (ControlStep step = CONTROL_STEP_CLOSE; step <= CONTROL_STEP_OPEN; step++) {
        if (step == CONTROL_STEP_CUT) /* of a snapshot */
            continue;
        for (uint32_t i = 0; i < N_NODES; i++) {
            const ControlGo *const go = &expect(i, CONTROL_GO)->go;

            ck_assert_uint_eq(go->step, step);
            ck_assert_str_eq(go->told, i == GONE ? told : "");
        }
        expect_quiet();
        for (uint32_t i = 0; i < N_NODES; i++)
            ready(i, 1);
    }
    for (uint32_t i = 0; i < N_NODES; i++)
        expect_verdict(i, CONTROL_COMMIT, CONTROL_OK, "");
}
END_TEST

/* In SEND a move fails if one of its two nodes is lost, and otherwise goes on; from INSTALL on it
 * ends as it would have. */
static const struct {
    const char *told;
    ControlStep at, then;
    uint32_t code;
} losses[] = {
    { "move 0 2;4 1 5", CONTROL_STEP_SEND, CONTROL_STEP_INSTALL, CONTROL_OK },
    { "move 1 2;4 1 5", CONTROL_STEP_SEND, CONTROL_STEP_TAKE_BACK, LOST_CODE },
    { "move 0 1;4 1 5", CONTROL_STEP_SEND, CONTROL_STEP_TAKE_BACK, LOST_CODE },
    { "move 0 1;4 1 5", CONTROL_STEP_CLOSE, CONTROL_STEP_TAKE_BACK, LOST_CODE },
    { "move 0 1;4 1 5", CONTROL_STEP_INSTALL, CONTROL_STEP_OPEN, CONTROL_OK },
    { "nonsense", CONTROL_STEP_SEND, CONTROL_STEP_TAKE_BACK, LOST_CODE },
};

static void all_ready(ControlStep step)
{
    for (uint32_t i = 0; i < N_NODES; i++)
        ck_assert_uint_eq(expect(i, CONTROL_GO)->go.step, step);
    for (uint32_t i = 0; i < N_NODES; i++)
        ready(i, 1);
}

static void live_ready(ControlStep step)
{
    for (uint32_t i = 0; i < N_NODES; i += 2)
        ck_assert_uint_eq(expect(i, CONTROL_GO)->go.step, step);
    ready(0, 1);
    ready(2, 1);
}

START_TEST(move_goes_on_or_is_taken_back_when_a_node_is_lost)
{
    const ControlStep at = losses[_i].at, then = losses[_i].then;
    const bool moves = then != CONTROL_STEP_TAKE_BACK;

    begin();
    scheduler->goes_on = true;
    for (uint32_t i = 0; i < N_NODES; i++)
        propose_told(i, 1, CONTROL_CALL_MOVE, losses[_i].told);
    if (at > CONTROL_STEP_CLOSE)
        all_ready(CONTROL_STEP_CLOSE);
    if (at > CONTROL_STEP_SEND)
        all_ready(CONTROL_STEP_SEND);
    for (uint32_t i = 0; i < N_NODES; i++)
        ck_assert_uint_eq(expect(i, CONTROL_GO)->go.step, at);
    ready(0, 1);
    lose(GONE);
    for (uint32_t i = 0; i < N_NODES; i += 2)
        ck_assert_uint_eq(expect(i, CONTROL_RECOVER)->recover.step, CONTROL_RECOVER_CLOSE);
    expect_quiet(); /* node 2 does the step yet */
    ready(2, 1);
    for (ControlStep step = then; step <= (moves ? CONTROL_STEP_OPEN : CONTROL_STEP_REOPEN); step++)
        live_ready(step);
    for (uint32_t i = 0; i < N_NODES; i += 2)
        ck_assert_uint_eq(expect(i, CONTROL_COMMIT)->commit.outcome.code, losses[_i].code);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler_join");
    TCase *joins = tcase_create("joins");
    TCase *refused = tcase_create("refused");

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
    tcase_add_test(joins, another_loss_while_links_open_begins_the_admission_again);
    tcase_add_test(joins, another_loss_before_it_has_the_tables_is_like_the_first);
    tcase_add_test(joins, process_has_the_timeout_to_say_something);
    tcase_add_test(joins, another_loss_once_it_has_the_tables_is_like_the_first);
    tcase_add_test(joins, process_may_be_lost_and_another_takes_its_place);
    tcase_add_test(joins, parts_move_after_a_loss);
    tcase_add_loop_test(joins, move_goes_on_or_is_taken_back_when_a_node_is_lost, 0,
                        G_N_ELEMENTS(losses));
    suite_add_tcase(suite, joins);
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
