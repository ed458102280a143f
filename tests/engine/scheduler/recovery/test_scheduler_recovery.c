/* The scheduler: what follows the loss of a node in a run whose tables have replicas. */
#include "engine/scheduler/scheduler_state.h"
#include "tests/support/runner.h"
#include "tests/support/scheduler/scheduler_steps.h"

#define GONE 1u /* the node that is lost first */
#define GONE_TEXT "node 4 (127.0.0.1:4102) was lost: its process has ended"

/* A node does its step. lines: what it tells in CLOSE. */
static void did(uint32_t node, uint32_t map, ControlRecoverStep step, const char *lines)
{
    say(node, step_done(map, step, lines));
}

START_TEST(each_step_begins_when_all_that_live_have_done_the_one_before)
{
    begin_with_replicas();
    lose(GONE);
    expect_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    expect_quiet();
    did(0, 2, CONTROL_RECOVER_CLOSE, "k0 0 0 0\nk0 1 0 0\np0 0 0 0\n");
    expect_quiet();
    did(2, 2, CONTROL_RECOVER_CLOSE, "r0 0 2 9\nr0 1 2 4\n");
    expect_step(5u, 2, CONTROL_RECOVER_PROMOTE, "0 0 2 0 2\n0 1 1 2\n");
    expect_quiet();
    did(2, 2, CONTROL_RECOVER_PROMOTE, "");
    expect_quiet();
    did(0, 2, CONTROL_RECOVER_PROMOTE, "");
    expect_step(5u, 2, CONTROL_RECOVER_OPEN, "0 0 2 0 2\n0 1 1 2\n");
    did(0, 2, CONTROL_RECOVER_OPEN, "");
    did(2, 2, CONTROL_RECOVER_OPEN, "");
    expect_quiet();
    expect_waiting(NULL);
}
END_TEST

/* The scheduler's node is 0, which alone knows the tables and the limits of servers. */
START_TEST(replicas_are_made_in_the_place_of_lost_ones_where_the_schedulers_node_says)
{
    begin_with_replicas();
    lose(GONE);
    expect_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    did(0, 2, CONTROL_RECOVER_CLOSE, "k0 0 0 0\n");
    did(2, 2, CONTROL_RECOVER_CLOSE, "r0 0 2 9\n");
    for (ControlRecoverStep step = CONTROL_RECOVER_PROMOTE; step <= CONTROL_RECOVER_OPEN; step++) {
        expect_step(5u, 2, step, "0 0 1 2\n");
        ck_assert(step != CONTROL_RECOVER_OPEN || !hears(2, step_done(2, step, "0 0 2 2 0\n")));
        ck_assert(step != CONTROL_RECOVER_OPEN || !hears(0, step_done(2, step, "0 0 2 2\n")));
        did(2, 2, step, "");
        did(0, 2, step, step == CONTROL_RECOVER_OPEN ? "0 0 2 2 0\n" : "");
    }
    propose(0, 1, CONTROL_CALL_CREATE, "table a");
    for (ControlRecoverStep step = CONTROL_RECOVER_EXPECT; step < CONTROL_RECOVER_END; step++) {
        expect_step(5u, 2, step, "0 0 2 2 0\n");
        did(0, 2, step, "");
        expect_quiet();
        did(2, 2, step, "");
    }
    propose(2, 1, CONTROL_CALL_CREATE, "table a");
    expect(0, CONTROL_GO);
    expect(2, CONTROL_GO);
}
END_TEST

/* One that has had less would lack what its primary has acknowledged. */
static bool hears_made(uint32_t node, uint32_t server, uint32_t n)
{
    return hears(node, (Control){ .kind = CONTROL_MADE, .made = { .server = server, .n = n } });
}

/* Node 2 has the primaries of two parts, one of which was a replica, and makes a replica of each,
 * by its servers 2 and 3. */
START_TEST(more_new_replicas_than_a_node_was_to_make_do_not_count)
{
    begin_with_replicas();
    ck_assert(!hears_made(2, 2, 1));
    lose(GONE);
    expect_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    did(0, 2, CONTROL_RECOVER_CLOSE, "k0 0 0 0\nk0 1 0 0\n");
    did(2, 2, CONTROL_RECOVER_CLOSE, "p0 0 2 0\nr0 1 3 4\n");
    for (ControlRecoverStep step = CONTROL_RECOVER_PROMOTE; step < CONTROL_RECOVER_END; step++) {
        const bool has_plan = step > CONTROL_RECOVER_OPEN;

        expect_step(5u, 2, step, has_plan ? "0 0 2 2 0\n0 1 2 3 0\n" : "0 0 1 2\n0 1 1 3\n");
        did(2, 2, step, "");
        did(0, 2, step, step == CONTROL_RECOVER_OPEN ? "0 0 2 2 0\n0 1 2 3 0\n" : "");
    }
    ck_assert(!hears_made(0, 0, 1)); /* which makes none */
    ck_assert(!hears_made(2, 2, 3));
    ck_assert(!hears_made(2, 2, 0));
    expect_quiet();
    for (uint32_t server = 2; server <= 3; server++) {
        ck_assert(hears_made(2, server, 1));
        ck_assert_uint_eq(expect(0, CONTROL_MADE)->made.n, 1);
        ck_assert_uint_eq(expect(2, CONTROL_MADE)->made.n, 1);
    }
    ck_assert(!hears_made(2, 2, 1));
    expect_quiet();
}
END_TEST

START_TEST(the_replica_that_has_had_the_most_becomes_the_primary)
{
    static const struct {
        const char *of_0, *of_2, *places;
    } cases[] = {
        { "k0 0 0 0\nr0 0 0 7\n", "r0 0 2 8\n", "0 0 1 2\n" },
        { "k0 0 0 0\nr0 0 0 8\n", "r0 0 2 7\n", "0 0 1 0\n" },
        { "k0 0 0 0\nr0 0 0 8\n", "r0 0 2 8\n", "0 0 2 0 2\n" },
    };

    begin_with_replicas();
    lose(GONE);
    expect_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    did(0, 2, CONTROL_RECOVER_CLOSE, cases[_i].of_0);
    did(2, 2, CONTROL_RECOVER_CLOSE, cases[_i].of_2);
    expect_step(5u, 2, CONTROL_RECOVER_PROMOTE, cases[_i].places);
}
END_TEST

START_TEST(a_second_loss_begins_again_and_answers_about_the_first_do_not_count)
{
    begin_with_replicas();
    lose(GONE);
    expect_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    did(0, 2, CONTROL_RECOVER_CLOSE, "k0 0 0 0\nr0 0 0 5\n");
    lose(2);
    expect_step(1u, 3, CONTROL_RECOVER_CLOSE, "");
    ck_assert(hears(0, step_done(2, CONTROL_RECOVER_PROMOTE, ""))); /* it is late */
    expect_quiet();
    did(0, 3, CONTROL_RECOVER_CLOSE, "k0 0 0 0\nr0 0 0 5\n");
    expect_step(1u, 3, CONTROL_RECOVER_PROMOTE, "0 0 1 0\n");
}
END_TEST

START_TEST(a_part_that_no_live_node_has_ends_the_run_and_is_named)
{
    const char *const text = GONE_TEXT "; no other node has part 6 of table weights";

    begin_with_replicas();
    agree(1, CONTROL_CALL_CREATE, "table weights");
    lose(GONE);
    expect_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    did(0, 2, CONTROL_RECOVER_CLOSE, "k0 5 0 0\nk0 6 0 0\np0 5 0 0\n");
    did(2, 2, CONTROL_RECOVER_CLOSE, "r0 5 2 1\n");
    ck_assert_str_eq(expect(0, CONTROL_LOST)->lost.text, text);
    ck_assert_str_eq(expect(2, CONTROL_LOST)->lost.text, text);
    expect_quiet();
    propose(0, 2, CONTROL_CALL_BARRIER, "");
    expect_verdict(0, CONTROL_COMMIT, LOST_CODE, text);
}
END_TEST

static const struct {
    uint32_t map;
    ControlRecoverStep step;
    const char *lines;
} nonsense[] = {
    { 3, CONTROL_RECOVER_CLOSE, "" },                 /* a map that there is not */
    { 2, CONTROL_RECOVER_PROMOTE, "" },               /* a step that nobody has asked for */
    { 2, CONTROL_RECOVER_CLOSE, "p0 0 0" },           /* half a line */
    { 2, CONTROL_RECOVER_CLOSE, "k0 0 0 0\nhello\n" } /* no line */
};

START_TEST(an_answer_that_makes_no_sense_does_not_count)
{
    begin_with_replicas();
    lose(GONE);
    expect_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    did(2, 2, CONTROL_RECOVER_CLOSE, "");
    ck_assert(!hears(0, step_done(nonsense[_i].map, nonsense[_i].step, nonsense[_i].lines)));
    ck_assert(!hears(2, step_done(2, CONTROL_RECOVER_CLOSE, ""))); /* a second time */
    expect_quiet();
    did(0, 2, CONTROL_RECOVER_CLOSE, "");
    expect_step(5u, 2, CONTROL_RECOVER_PROMOTE, "");
}
END_TEST

START_TEST(a_recovery_that_waits_says_for_whom)
{
    begin_with_replicas();
    lose(GONE);
    expect_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    did(0, 2, CONTROL_RECOVER_CLOSE, "");
    now_ms += 2000;
    expect_waiting("the parts of a lost node wait for node 7 (127.0.0.1:4103) [last heard 2.0 s "
                   "ago]");
}
END_TEST

START_TEST(a_task_ends_well_without_a_node_whose_workers_had_ended)
{
    begin_with_replicas();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    done(GONE, epoch);
    lose(GONE);
    expect_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    done(0, epoch);
    done(2, epoch);
    expect_verdict(0, CONTROL_TASK_END, CONTROL_OK, "");
    expect_verdict(2, CONTROL_TASK_END, CONTROL_OK, "");
}
END_TEST

/* It waits for the workers of others before it says that the task has ended there. If servers may
 * keep calls of its own, these are lost. */
START_TEST(a_task_ends_well_without_a_node_whose_workers_have_returned)
{
    begin_with_replicas();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    const bool has_calls = _i == 1;

    say(GONE, (Control){ .kind = CONTROL_ARRIVE,
                         .arrive = {
                             .epoch = epoch, .round = CONTROL_NO_ROUND, .has_calls = has_calls } });
    lose(GONE);
    expect_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    for (uint32_t node = 0; node <= 2 && has_calls; node += 2)
        expect_verdict(node, CONTROL_CANCEL, LOST_CODE, GONE_TEXT);
    done(0, epoch);
    done(2, epoch);
    for (uint32_t node = 0; node <= 2; node += 2)
        expect_verdict(node, CONTROL_TASK_END, has_calls ? LOST_CODE : CONTROL_OK,
                       has_calls ? GONE_TEXT : "");
    expect_quiet();
}
END_TEST

/* Until then a loss ends the run. */
START_TEST(a_run_outlives_nodes_once_a_table_with_replicas_is_there)
{
    begin();
    for (uint32_t i = 0; i < N_NODES; i++) {
        Control proposal = call(1, CONTROL_CALL_CREATE, "table a", "");

        proposal.propose.survives = _i == 1;
        say(i, proposal);
    }
    for (uint32_t i = 0; i < N_NODES; i++)
        expect(i, CONTROL_GO);
    for (uint32_t i = 0; i < N_NODES; i++)
        ready(i, 1);
    expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_OK, "");
    lose(GONE);
    if (_i == 1)
        expect_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    else
        ck_assert_str_eq(expect(0, CONTROL_LOST)->lost.text, GONE_TEXT);
}
END_TEST

START_TEST(a_task_fails_if_its_workers_are_lost)
{
    begin_with_replicas();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    lose(GONE);
    expect_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    for (uint32_t node = 0; node <= 2; node += 2)
        expect_verdict(node, CONTROL_CANCEL, LOST_CODE, GONE_TEXT);
    done(0, epoch);
    done(2, epoch);
    expect_verdict(0, CONTROL_TASK_END, LOST_CODE, GONE_TEXT);
}
END_TEST

/* To the collectives of the nodes of the mask, which have workers of the task. */
static void expect_loss_told(unsigned nodes)
{
    for (uint32_t i = 0; i < N_NODES; i++)
        if ((nodes & (1u << i)) != 0)
            expect(i, CONTROL_DECIDE);
}

/* The nodes 0 and 2 do all steps. Collectives on node 0 are told so many things before. */
static void recover_told(uint32_t map, uint32_t n_told)
{
    static const ControlRecoverStep steps[] = { CONTROL_RECOVER_CLOSE, CONTROL_RECOVER_PROMOTE,
                                                CONTROL_RECOVER_OPEN };

    for (size_t step = 0; step < G_N_ELEMENTS(steps); step++)
        for (uint32_t i = 0; i < 2; i++) {
            ck_assert_uint_eq(expect(2 * i, CONTROL_RECOVER)->recover.step, steps[step]);
            for (uint32_t n = 0; step == 0 && i == 0 && n < n_told; n++)
                expect_loss_told(1u);
            did(2 * i, map, steps[step], "");
        }
}

static void recover(uint32_t map)
{
    recover_told(map, 0);
}

/* ---- a task that continues without the workers of a lost node ---- */

/* Up to GO. */
static uint32_t call_task(const char *workers, bool continues)
{
    uint32_t epoch = 0;

    begin_with_replicas();
    for (uint32_t i = 0; i < N_NODES; i++) {
        Control proposal = call(1, CONTROL_CALL_RUN, "task x", "");

        proposal.propose.survives = continues;
        proposal.propose.workers = workers;
        say(i, proposal);
    }
    for (uint32_t i = 0; i < N_NODES; i++)
        epoch = expect(i, CONTROL_GO)->go.id;
    return epoch;
}

static uint32_t begin_task(const char *workers, bool continues)
{
    const uint32_t epoch = call_task(workers, continues);

    for (uint32_t i = 0; i < N_NODES; i++)
        ready(i, 1);
    expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_OK, "");
    return epoch;
}

static uint32_t begin_to_continue(const char *workers)
{
    return begin_task(workers, /* continues= */ true);
}

/* It is lost before it says that it has ended. */
START_TEST(a_task_ends_well_without_a_node_that_had_no_workers)
{
    const uint32_t epoch = begin_task("1 0 1", /* continues= */ _i == 1);

    lose(GONE);
    expect_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    arrive(0, epoch, 0);
    arrive(2, epoch, 0);
    expect_release(0, epoch, 0);
    expect_release(2, epoch, 0);
    done(0, epoch);
    done(2, epoch);
    if (_i == 1) { /* parts may have kept something of lost workers */
        expect_quiet();
        did(0, 2, CONTROL_RECOVER_CLOSE, "");
        did(2, 2, CONTROL_RECOVER_CLOSE, "");
        for (ControlRecoverStep step = CONTROL_RECOVER_PROMOTE; step <= CONTROL_RECOVER_OPEN;
             step++) {
            expect_step(5u, 2, step, "");
            did(0, 2, step, "");
            did(2, 2, step, "");
        }
        tick();
    }
    expect_verdict(0, CONTROL_TASK_END, CONTROL_OK, "");
    expect_verdict(2, CONTROL_TASK_END, CONTROL_OK, "");
}
END_TEST

static Control reader(uint32_t epoch, bool is_dynamic)
{
    return (Control){ .kind = CONTROL_READER,
                      .reader = { .epoch = epoch,
                                  .n_epochs = 1,
                                  .is_dynamic = is_dynamic,
                                  .description = "r",
                                  .digest = "" } };
}

static Control want(uint32_t epoch, uint32_t n, const char *events)
{
    return (Control){ .kind = CONTROL_WANT,
                      .want = { .epoch = epoch, .n_blocks = n, .events = events } };
}

/* Nodes 0 and 1 read an input of two blocks; node 2 reads nothing. */
static void open_readers(uint32_t epoch)
{
    for (uint32_t node = 0; node < 2; node++) {
        say(node, reader(epoch, true));
        say(node, (Control){ .kind = CONTROL_INPUTS,
                             .inputs = { .epoch = epoch, .lines = "20 2 1 a\n" } });
    }
}

static void expect_tickets(uint32_t node, const char *tickets)
{
    ck_assert_str_eq(expect(node, CONTROL_BLOCKS)->blocks.tickets, tickets);
}

/* Barriers do without them; what waits for their clocks is released before the end. */
START_TEST(a_task_that_continues_ends_well_when_parts_have_let_lost_workers_go)
{
    const uint32_t epoch = begin_to_continue("1 1 1");

    arrive(0, epoch, 0);
    arrive(2, epoch, 0);
    expect_quiet();
    lose(GONE);
    expect_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    expect_loss_told(5u);
    expect_release(0, epoch, 0);
    expect_release(2, epoch, 0);
    done(0, epoch);
    done(2, epoch);
    expect_loss_told(5u); /* and that worker 0 has returned */
    expect_quiet();
    did(0, 2, CONTROL_RECOVER_CLOSE, "");
    did(2, 2, CONTROL_RECOVER_CLOSE, "");
    expect_step(5u, 2, CONTROL_RECOVER_PROMOTE, "");
    did(0, 2, CONTROL_RECOVER_PROMOTE, "");
    did(2, 2, CONTROL_RECOVER_PROMOTE, "");
    expect_step(5u, 2, CONTROL_RECOVER_OPEN, "");
    expect_quiet();
    did(0, 2, CONTROL_RECOVER_OPEN, "");
    did(2, 2, CONTROL_RECOVER_OPEN, "");
    expect_verdict(0, CONTROL_TASK_END, CONTROL_OK, "");
    expect_verdict(2, CONTROL_TASK_END, CONTROL_OK, "");
}
END_TEST

/* No worker must wait for those that are lost, and no row of data be read by nobody. */
START_TEST(a_task_fails_if_it_cannot_continue_without_its_lost_workers)
{
    static const struct {
        const char *workers, *need;
    } needs[] = {
        { "0 2 0", "no other node has workers of it" },
        { "1 1 1", "each of its workers reads a fixed share of the data" },
    };
    const uint32_t epoch = begin_to_continue(needs[_i].workers);
    g_autofree char *text = g_strdup_printf(GONE_TEXT "; task x cannot go on: %s", needs[_i].need);

    if (_i == 1)
        say(0, reader(epoch, false));
    lose(GONE);
    expect_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    expect_verdict(0, CONTROL_CANCEL, LOST_CODE, text);
    expect_verdict(2, CONTROL_CANCEL, LOST_CODE, text);
}
END_TEST

/* Those that it reads, and those that it has read, because its Adds may be lost with it. */
START_TEST(blocks_of_a_lost_node_are_read_by_others)
{
    const uint32_t epoch = begin_to_continue("1 1 1");

    open_readers(epoch);
    say(1, want(epoch, 1, ""));
    expect_tickets(1, "d0 0 0 0\n");
    say(1, want(epoch, 1, "f0 0 0 9\n"));
    expect_tickets(1, "d0 0 1 0\n");
    lose(GONE);
    expect_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    expect_loss_told(5u);
    say(0, want(epoch, 1, ""));
    expect_tickets(0, "d0 0 0 0\n");
    say(0, want(epoch, 1, "f0 0 0 9\n"));
    expect_tickets(0, "d0 0 1 0\n");
}
END_TEST

/* If its workers had ended, all their Adds are on replicas. */
START_TEST(blocks_that_were_read_by_workers_that_had_ended_are_not_read_again)
{
    const uint32_t epoch = begin_to_continue("1 1 1");

    open_readers(epoch);
    say(1, want(epoch, 1, ""));
    expect_tickets(1, "d0 0 0 0\n");
    say(1, want(epoch, 0, "f0 0 0 9\n"));
    arrive(1, epoch, CONTROL_NO_ROUND);
    lose(GONE);
    expect_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    say(0, want(epoch, 1, ""));
    expect_tickets(0, "d0 0 1 0\n");
    say(0, want(epoch, 1, "f0 0 1 9\n"));
    expect_tickets(0, "");
}
END_TEST

START_TEST(a_task_fails_if_blocks_of_a_lost_node_come_back_when_nobody_reads)
{
    const uint32_t epoch = begin_to_continue("1 1 0");

    open_readers(epoch);
    say(1, want(epoch, 1, ""));
    expect_tickets(1, "d0 0 0 0\n");
    say(0, want(epoch, 1, ""));
    expect_tickets(0, "d0 0 1 0\n");
    say(0, want(epoch, 1, "f0 0 1 9\n"));
    expect_tickets(0, "");
    done(0, epoch);
    done(2, epoch);
    lose(GONE);
    recover_told(2, 2); /* the first that worker 0 had returned */
    expect_verdict(0, CONTROL_TASK_END, LOST_CODE,
                   "task x: a node was lost, and no other has read all rows of 1 of the blocks of "
                   "data that it had");
}
END_TEST

/* Others read what is left of a block that it gave back. What it made of the rows before that is
 * lost with it, unless its workers had ended. (_i: whether they had) */
START_TEST(a_task_fails_if_a_lost_node_had_read_rows_of_a_block_that_it_gave_back)
{
    const uint32_t epoch = begin_to_continue("1 1 0");

    open_readers(epoch);
    say(1, want(epoch, 1, ""));
    expect_tickets(1, "d0 0 0 0\n");
    say(1, want(epoch, 0, "b0 0 0 3\n"));
    if (_i)
        arrive(1, epoch, CONTROL_NO_ROUND);
    lose(GONE);
    recover_told(2, _i ? 0 : 1); /* not if its workers had ended */
    say(0, want(epoch, 1, ""));
    expect_tickets(0, "d0 0 0 3\n");
    say(0, want(epoch, 1, "f0 0 0 9\n"));
    expect_tickets(0, "d0 0 1 0\n");
    say(0, want(epoch, 1, "f0 0 1 9\n"));
    expect_tickets(0, "");
    done(0, epoch);
    done(2, epoch);
    if (!_i)
        expect_loss_told(1u); /* and that worker 0 has returned */
    if (_i)
        expect_verdict(0, CONTROL_TASK_END, CONTROL_OK, "");
    else
        expect_verdict(0, CONTROL_TASK_END, LOST_CODE,
                       "task x: a node was lost, and no other has read all rows of 1 of the blocks "
                       "of data that it had");
}
END_TEST

/* A table, or a task, that is made after a loss is made by the nodes that live. */
START_TEST(calls_go_on_without_a_lost_node)
{
    static const ControlCall calls[] = { CONTROL_CALL_CREATE, CONTROL_CALL_DROP, CONTROL_CALL_RUN };

    begin_with_replicas();
    lose(GONE);
    recover(2);
    expect_quiet();
    propose(2, 1, calls[_i], "it");
    propose(0, 1, calls[_i], "it");
    for (uint32_t node = 0; node <= 2; node += 2)
        expect(node, CONTROL_GO);
    ready(0, 1);
    ready(2, 1);
    expect_verdict(0, CONTROL_COMMIT, CONTROL_OK, "");
    expect_verdict(2, CONTROL_COMMIT, CONTROL_OK, "");
    expect_quiet();
}
END_TEST

/* Nodes then agree on the tables that there are. */
START_TEST(a_call_begins_when_the_parts_have_their_primaries)
{
    begin_with_replicas();
    propose(2, 1, CONTROL_CALL_CREATE, "table a");
    propose(0, 1, CONTROL_CALL_CREATE, "table a");
    lose(GONE); /* which alone had not come */
    recover(2);
    for (uint32_t node = 0; node <= 2; node += 2)
        expect(node, CONTROL_GO);
    expect_quiet();
}
END_TEST

/* The parts of the table get other primaries once it is there. */
START_TEST(a_table_that_is_made_when_a_node_is_lost_is_made)
{
    begin_with_replicas();
    go(1, CONTROL_CALL_CREATE, "table a");
    ready(0, 1);
    lose(GONE);
    expect_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    expect_quiet();
    ready(2, 1);
    expect_verdict(0, CONTROL_COMMIT, CONTROL_OK, "");
    expect_verdict(2, CONTROL_COMMIT, CONTROL_OK, "");
}
END_TEST

/* It needs these workers. */
START_TEST(a_task_that_begins_when_a_node_with_workers_is_lost_fails)
{
    begin_with_replicas();
    go(1, CONTROL_CALL_RUN, "task x");
    ready(0, 1);
    lose(GONE);
    expect_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    ready(2, 1);
    expect_verdict(0, CONTROL_COMMIT, LOST_CODE, GONE_TEXT);
    expect_verdict(2, CONTROL_COMMIT, LOST_CODE, GONE_TEXT);
}
END_TEST

/* Whether it has done its part or not: it has no workers, or the task continues without these. The
 * collectives of the others hear of the loss once they are there. */
START_TEST(a_task_begins_although_a_node_is_lost_that_it_does_not_need)
{
    const bool has_workers = _i > 1, was_ready = _i % 2 == 1;
    const uint32_t epoch = call_task(has_workers ? "1 1 1" : "1 0 1", /* continues= */ has_workers);

    ready(0, 1);
    if (was_ready)
        ready(GONE, 1);
    lose(GONE);
    expect_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    expect_quiet();
    ready(2, 1);
    for (uint32_t node = 0; node <= 2; node += 2)
        expect_verdict(node, CONTROL_COMMIT, CONTROL_OK, "");
    if (has_workers)
        expect_loss_told(5u);
    expect_quiet();
    do_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    for (ControlRecoverStep step = CONTROL_RECOVER_PROMOTE; step <= CONTROL_RECOVER_OPEN; step++) {
        expect_step(5u, 2, step, "");
        do_step(5u, 2, step, "");
    }
    arrive(0, epoch, 0);
    expect_quiet();
    arrive(2, epoch, 0);
    expect_release(0, epoch, 0);
    expect_release(2, epoch, 0);
    done(0, epoch);
    done(2, epoch);
    if (has_workers)
        expect_loss_told(5u); /* and that worker 0 has returned */
    expect_verdict(0, CONTROL_TASK_END, CONTROL_OK, "");
    expect_verdict(2, CONTROL_TASK_END, CONTROL_OK, "");
    expect_quiet();
}
END_TEST

START_TEST(a_task_does_not_begin_if_all_its_workers_are_lost)
{
    const char *const text = GONE_TEXT "; task x cannot go on: no other node has workers of it";

    (void)call_task("0 2 0", /* continues= */ true);
    ready(0, 1);
    lose(GONE);
    expect_step(5u, 2, CONTROL_RECOVER_CLOSE, "");
    ready(2, 1);
    for (uint32_t node = 0; node <= 2; node += 2)
        expect_verdict(node, CONTROL_COMMIT, LOST_CODE, text);
    expect_quiet();
}
END_TEST

START_TEST(a_task_after_a_loss_waits_for_the_nodes_that_live)
{
    begin_with_replicas();
    lose(GONE);
    recover(2);
    propose(0, 1, CONTROL_CALL_RUN, "task x");
    propose(2, 1, CONTROL_CALL_RUN, "task x");
    const uint32_t epoch = expect(0, CONTROL_GO)->go.id;
    expect(2, CONTROL_GO);
    ready(0, 1);
    ready(2, 1);
    expect_verdict(0, CONTROL_COMMIT, CONTROL_OK, "");
    expect_verdict(2, CONTROL_COMMIT, CONTROL_OK, "");
    arrive(0, epoch, 0);
    expect_quiet();
    arrive(2, epoch, 0);
    expect_release(0, epoch, 0);
    expect_release(2, epoch, 0);
    done(2, epoch);
    expect_quiet();
    done(0, epoch);
    expect_verdict(0, CONTROL_TASK_END, CONTROL_OK, "");
    expect_verdict(2, CONTROL_TASK_END, CONTROL_OK, "");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler recovery");
    TCase *cases = tcase_create("recovery");

    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, each_step_begins_when_all_that_live_have_done_the_one_before);
    tcase_add_test(cases,
                   replicas_are_made_in_the_place_of_lost_ones_where_the_schedulers_node_says);
    tcase_add_test(cases, more_new_replicas_than_a_node_was_to_make_do_not_count);
    tcase_add_loop_test(cases, the_replica_that_has_had_the_most_becomes_the_primary, 0, 3);
    tcase_add_test(cases, a_second_loss_begins_again_and_answers_about_the_first_do_not_count);
    tcase_add_test(cases, a_part_that_no_live_node_has_ends_the_run_and_is_named);
    tcase_add_loop_test(cases, an_answer_that_makes_no_sense_does_not_count, 0,
                        G_N_ELEMENTS(nonsense));
    tcase_add_test(cases, a_recovery_that_waits_says_for_whom);
    tcase_add_test(cases, a_task_ends_well_without_a_node_whose_workers_had_ended);
    tcase_add_loop_test(cases, a_task_ends_well_without_a_node_whose_workers_have_returned, 0, 2);
    tcase_add_loop_test(cases, a_task_ends_well_without_a_node_that_had_no_workers, 0, 2);
    tcase_add_loop_test(cases, a_run_outlives_nodes_once_a_table_with_replicas_is_there, 0, 2);
    tcase_add_test(cases, a_task_fails_if_its_workers_are_lost);
    tcase_add_test(cases, a_task_that_continues_ends_well_when_parts_have_let_lost_workers_go);
    tcase_add_loop_test(cases, a_task_fails_if_it_cannot_continue_without_its_lost_workers, 0, 2);
    tcase_add_test(cases, blocks_of_a_lost_node_are_read_by_others);
    tcase_add_test(cases, blocks_that_were_read_by_workers_that_had_ended_are_not_read_again);
    tcase_add_test(cases, a_task_fails_if_blocks_of_a_lost_node_come_back_when_nobody_reads);
    tcase_add_loop_test(
        cases, a_task_fails_if_a_lost_node_had_read_rows_of_a_block_that_it_gave_back, 0, 2);
    tcase_add_loop_test(cases, calls_go_on_without_a_lost_node, 0, 3);
    tcase_add_test(cases, a_call_begins_when_the_parts_have_their_primaries);
    tcase_add_test(cases, a_table_that_is_made_when_a_node_is_lost_is_made);
    tcase_add_test(cases, a_task_that_begins_when_a_node_with_workers_is_lost_fails);
    tcase_add_loop_test(cases, a_task_begins_although_a_node_is_lost_that_it_does_not_need, 0, 4);
    tcase_add_test(cases, a_task_does_not_begin_if_all_its_workers_are_lost);
    tcase_add_test(cases, a_task_after_a_loss_waits_for_the_nodes_that_live);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
