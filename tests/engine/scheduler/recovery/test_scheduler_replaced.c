/* The scheduler: a task whose lost workers are replaced waits for a process in the place of their
 * node, no longer than it says, and fails if what the workers have done cannot be repeated. */
#include <string.h>

#include "engine/collectives/negotiation/tensor_text.h"
#include "engine/scheduler/scheduler_state.h"
#include "tests/support/runner.h"
#include "tests/support/scheduler/join_fixture.h"

enum { REPLACE_MS = 5000, LAST_CALL = 2 };

/* One worker on each node. Up to GO. Returns the epoch. */
static uint32_t call_task(void)
{
    uint32_t epoch = 0;

    begin_that_admits();
    agree(1, CONTROL_CALL_CREATE, "table a");
    for (uint32_t i = 0; i < N_NODES; i++) {
        Control proposal = call(LAST_CALL, CONTROL_CALL_RUN, "task x", "same");

        proposal.propose.survives = true;
        proposal.propose.replace_ms = REPLACE_MS;
        proposal.propose.workers = "1 1 1";
        proposal.propose.told = "0";
        say(i, proposal);
    }
    for (uint32_t i = 0; i < N_NODES; i++)
        epoch = expect(i, CONTROL_GO)->go.id;
    return epoch;
}

static uint32_t begin_task(void)
{
    const uint32_t epoch = call_task();

    for (uint32_t i = 0; i < N_NODES; i++)
        ready(i, LAST_CALL);
    expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_OK, "");
    return epoch;
}

static void lose_and_go_on(uint32_t map)
{
    lose(GONE);
    go_through(OTHERS, map);
    expect_quiet();
}

static void lose_and_replace(void)
{
    lose_and_go_on(2);
    admit_wholly(3, STEP, COUNTED);
}

/* The node's worker comes to a barrier at a clock. */
static void arrive_at(uint32_t node, uint32_t epoch, uint64_t round, const char *clocks)
{
    say(node, (Control){ .kind = CONTROL_ARRIVE,
                         .arrive = { .epoch = epoch, .round = round, .clocks = clocks } });
}

static void meet_at(uint32_t epoch, uint64_t round, const char *clocks)
{
    for (uint32_t i = 0; i < N_NODES; i++)
        arrive_at(i, epoch, round, clocks);
    for (uint32_t i = 0; i < N_NODES; i++)
        expect_release(i, epoch, round);
}

/* What the process hears of the task. */
static const char *ask_for_task(void)
{
    propose(GONE, 1, CONTROL_CALL_CREATE, "table a");
    expect(GONE, CONTROL_PAST);
    propose(GONE, LAST_CALL, CONTROL_CALL_RUN, "task x");
    const ControlPast *const past = &expect(GONE, CONTROL_PAST)->past;

    ck_assert_uint_eq(past->outcome.code, CONTROL_OK);
    ck_assert_uint_eq(past->call, LAST_CALL);
    return past->told;
}

/* It makes the calls of the others from then on. */
static void take_over_behind(uint32_t epoch, const char *barriers)
{
    g_autofree char *told = g_strdup_printf("task %u;1 1 1;0;1\n%s", epoch, barriers);

    ck_assert_str_eq(ask_for_task(), told);
    for (uint32_t i = 0; i < N_NODES; i++)
        ck_assert_uint_eq(expect(i, CONTROL_CAUGHT_UP)->caught_up.number, GONE);
    expect_quiet();
}

static void take_over(uint32_t epoch)
{
    take_over_behind(epoch, "");
}

#define CANNOT "node 4 (127.0.0.1:4102) was lost: its process has ended; task x cannot go on: "

static void expect_too_late(ControlKind kind)
{
    for (uint32_t i = 0; i < N_NODES; i += 2)
        expect_verdict(i, kind, LOST_CODE,
                       CANNOT "no process has taken over its workers within 5.0 s");
}

START_TEST(a_task_ends_when_others_have_ended_in_the_place_of_its_lost_workers)
{
    const uint32_t epoch = begin_task();

    arrive_at(GONE, epoch, 0, "0");
    lose_and_go_on(2);
    arrive_at(0, epoch, 0, "0");
    arrive_at(2, epoch, 0, "0"); /* the barrier waits for the new worker */
    expect_quiet();
    admit_wholly(3, STEP, COUNTED);
    take_over(epoch);
    arrive_at(GONE, epoch, 0, "0");
    for (uint32_t i = 0; i < N_NODES; i++)
        expect_release(i, epoch, 0);
    done(0, epoch);
    done(2, epoch);
    expect_quiet();
    done(GONE, epoch);
    expect_verdict_everywhere(CONTROL_TASK_END, CONTROL_OK, "");
    propose(0, LAST_CALL + 1, CONTROL_CALL_BARRIER, "");
    propose(2, LAST_CALL + 1, CONTROL_CALL_BARRIER, "");
    expect_quiet(); /* all wait for it */
    propose(GONE, LAST_CALL + 1, CONTROL_CALL_BARRIER, "");
    expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_OK, "");
}
END_TEST

START_TEST(workers_that_are_lost_while_their_task_begins_are_replaced)
{
    const uint32_t epoch = call_task();

    lose(GONE);
    ready(0, LAST_CALL);
    ready(2, LAST_CALL);
    for (uint32_t i = 0; i < N_NODES; i += 2) {
        expect(i, CONTROL_RECOVER);
        expect_verdict(i, CONTROL_COMMIT, CONTROL_OK, "");
        say(i, step_done(2, CONTROL_RECOVER_CLOSE, ""));
    }
    for (ControlRecoverStep step = CONTROL_RECOVER_PROMOTE; step <= CONTROL_RECOVER_OPEN; step++) {
        expect_step(OTHERS, 2, step, "");
        do_step(OTHERS, 2, step, "");
    }
    done(0, epoch);
    done(2, epoch);
    expect_quiet();
    admit_wholly(3, STEP, COUNTED);
    take_over(epoch);
    expect_quiet();
    done(GONE, epoch);
    expect_verdict_everywhere(CONTROL_TASK_END, CONTROL_OK, "");
}
END_TEST

/* The others have made a further call: the process has to come there, and has its workers. */
START_TEST(a_process_has_workers_before_it_has_caught_up)
{
    const uint32_t epoch = begin_task();

    propose(0, LAST_CALL + 1, CONTROL_CALL_BARRIER, "");
    propose(GONE, LAST_CALL + 1, CONTROL_CALL_BARRIER, "");
    propose(2, LAST_CALL + 1, CONTROL_CALL_BARRIER, "");
    expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_OK, "");
    lose_and_replace();
    ck_assert_str_ne(ask_for_task(), "");
    expect_quiet();
    propose(GONE, LAST_CALL + 1, CONTROL_CALL_BARRIER, "");
    expect(GONE, CONTROL_PAST);
    propose(GONE, LAST_CALL + 2, CONTROL_CALL_BARRIER, "");
    for (uint32_t i = 0; i < N_NODES; i++)
        expect(i, CONTROL_CAUGHT_UP);
    done(0, epoch);
    done(2, epoch);
    expect_quiet();
    done(GONE, epoch);
    expect_verdict_everywhere(CONTROL_TASK_END, CONTROL_OK, "");
}
END_TEST

static void expect_status(bool awaits)
{
    g_autoptr(GVariant) status = g_variant_ref_sink(scheduler_status(scheduler, now_ms));
    g_autofree char *text = g_variant_print(status, FALSE);

    ck_assert_ptr_nonnull(strstr(text, "'continues': <false>"));
    ck_assert_ptr_nonnull(strstr(text, "'replaces': <true>"));
    ck_assert_ptr_nonnull(
        strstr(text, awaits ? "'awaits_workers': <true>" : "'awaits_workers': <false>"));
}

START_TEST(status_tells_that_a_task_waits_for_lost_workers)
{
    const uint32_t epoch = begin_task();

    expect_status(/* awaits= */ false);
    lose_and_replace();
    expect_status(/* awaits= */ true);
    take_over(epoch);
    expect_status(/* awaits= */ false);
}
END_TEST

/* Also after the process has been lost again. */
START_TEST(a_task_fails_if_nobody_has_its_lost_workers_in_time)
{
    const uint32_t epoch = begin_task();
    const bool is_again = _i == 1;

    if (is_again) {
        lose_and_replace();
        take_over(epoch);
        pass_ms(REPLACE_MS + 1000, 7u); /* it is there */
        expect_quiet();
    }
    done(0, epoch);
    done(2, epoch);
    lose_and_go_on(is_again ? 4 : 2);
    pass_ms(REPLACE_MS - 1000, OTHERS);
    expect_quiet();
    pass_ms(1500, OTHERS);
    expect_too_late(CONTROL_CANCEL);
    expect_too_late(CONTROL_TASK_END);
}
END_TEST

/* A process that comes later has no part in it. */
START_TEST(a_process_that_comes_too_late_is_told_how_the_task_ended)
{
    begin_task();
    lose_and_go_on(2);
    pass_ms(REPLACE_MS + 500, OTHERS);
    expect_too_late(CONTROL_CANCEL);
    admit_wholly(3, STEP, COUNTED);
    ck_assert_str_eq(ask_for_task(), "");
}
END_TEST

/* It has one input of some blocks. */
static void open_reader(uint32_t node, uint32_t epoch, const char *kept_as)
{
    say(node, (Control){ .kind = CONTROL_READER,
                         .reader = { .epoch = epoch,
                                     .n_epochs = 1,
                                     .is_dynamic = true,
                                     .kept_as = kept_as,
                                     .description = "r",
                                     .digest = "" } });
    say(node,
        (Control){ .kind = CONTROL_INPUTS, .inputs = { .epoch = epoch, .lines = "20 4 1 a\n" } });
}

static void sum(uint32_t epoch)
{
    g_autoptr(GString) lines = g_string_new(NULL);

    tensor_notice_write(
        lines, &(TensorNotice){ .kind = TENSOR_NOTICE_ASK,
                                .name = "sum",
                                .request = { .operation = TENSOR_ALLREDUCE,
                                             .n_dims = 1,
                                             .shape = { 4 },
                                             .reduce = { .prescale = 1, .postscale = 1 } } });
    say(0, (Control){ .kind = CONTROL_ENQUEUE, .enqueue = { epoch, lines->str } });
}

static void enqueue(uint32_t node, uint32_t epoch, const char *lines)
{
    say(node, (Control){ .kind = CONTROL_ENQUEUE, .enqueue = { epoch, lines } });
}

#define REPLACED                                                                                  \
    "1 1 14\nnode 4 (127.0.0.1:4102) was lost: its process has ended, and worker 1 of task x is " \
    "lost with it\n"

/* It is told nothing before it says that it is back, and everything then. */
START_TEST(a_process_is_told_how_collectives_stand)
{
    const uint32_t epoch = begin_task();

    sum(epoch);
    lose(GONE);
    (void)expect_step(OTHERS, 2, CONTROL_RECOVER_CLOSE, "");
    for (uint32_t i = 0; i < N_NODES; i += 2)
        ck_assert_str_eq(expect(i, CONTROL_DECIDE)->decide.lines, "w 1 0 " REPLACED);
    go_on_from_close(OTHERS, 2);
    enqueue(0, epoch, "h 0 0 1\nl 0 0\n"); /* it has heard of that; its worker returns */
    for (uint32_t i = 0; i < N_NODES; i += 2)
        ck_assert(g_str_has_prefix(expect(i, CONTROL_DECIDE)->decide.lines, "c 2 0 "));
    admit_wholly(3, STEP, COUNTED);
    take_over(epoch);
    ck_assert(!hears(GONE, (Control){ .kind = CONTROL_ENQUEUE, .enqueue = { epoch, "l 1 0\n" } }));
    enqueue(GONE, epoch, "b 1 0\n");
    const char *const lines = expect(GONE, CONTROL_DECIDE)->decide.lines;
    ck_assert_msg(g_str_has_prefix(lines, "s 0 0 1 0 6\n\nworker 0 has returned") &&
                      strstr(lines, "\nb 2 0 1 0 0 0 14\nnode 4 (127.0.0.1:4102) was lost") != NULL,
                  "%s", lines);
    expect_quiet();
    ck_assert(!hears(GONE, (Control){ .kind = CONTROL_ENQUEUE, .enqueue = { epoch, "x 1 0\n" } }));
}
END_TEST

/* It may be in one that others wait in when it is lost; the process in its place, too. Nobody
 * passes a barrier meanwhile, so the process is told of as many as there are when it comes to
 * one. */
START_TEST(a_process_is_told_which_barriers_its_workers_had_passed)
{
    const uint32_t epoch = begin_task();

    for (uint64_t round = 0; round < 5; round++)
        meet_at(epoch, round, round < 2 ? "0" : "3");
    arrive_at(GONE, epoch, 5, "4"); /* this one may be called once more at another clock */
    arrive_at(0, epoch, 5, "3");
    lose_and_replace();
    arrive_at(2, epoch, 5, "3");
    expect_quiet();
    take_over_behind(epoch, "barriers 5;0 2 3 3\n");
    expect_quiet();
    arrive_at(GONE, epoch, 5, "3");
    for (uint32_t i = 0; i < N_NODES; i++)
        expect_release(i, epoch, 5);
    meet_at(epoch, 6, "4");
    meet_at(epoch, 7, "9");
    lose_and_go_on(4);
    admit_wholly(5, STEP + 1, 2 * COUNTED);
    take_over_behind(epoch, "barriers 8;4 7 9 1\n");
    arrive_at(GONE, epoch, 8, "9");
    expect_quiet();
    ck_assert(
        !hears(0, (Control){ .kind = CONTROL_ARRIVE, .arrive = { .epoch = epoch, .round = 8 } }));
    ck_assert(!hears(0, (Control){ .kind = CONTROL_ARRIVE,
                                   .arrive = { .epoch = epoch, .round = 8, .clocks = "9 9" } }));
}
END_TEST

static Control want(uint32_t worker, uint32_t epoch, uint32_t n, const char *events)
{
    return (
        Control){ .kind = CONTROL_WANT,
                  .want = { .epoch = epoch, .n_blocks = n, .events = events, .worker = worker } };
}

/* The worker of a node asks for blocks, tells what became of earlier ones, and gets this. */
static void ask(uint32_t node, uint32_t epoch, uint32_t n, const char *events, const char *tickets)
{
    say(node, want(node, epoch, n, events));
    const ControlBlocks *const blocks = &expect(node, CONTROL_BLOCKS)->blocks;

    ck_assert_str_eq(blocks->tickets, tickets);
    ck_assert_uint_eq(blocks->worker, node);
    ck_assert_int_eq(blocks->is_last, *tickets == '\0');
}

/* Block after block, also what it had told to be read; then others go on to be dealt. */
START_TEST(a_process_gets_the_blocks_of_its_lost_worker)
{
    const uint32_t epoch = begin_task();

    for (uint32_t i = 0; i < 2; i++)
        open_reader(i, epoch, NULL);
    ask(GONE, epoch, 1, "", "d0 0 0 0\n");
    ask(0, epoch, 1, "", "d0 0 1 0\n");
    ask(GONE, epoch, 1, "f0 0 0 0\n", "d0 0 2 0\n");
    ck_assert(!hears(0, want(GONE, epoch, 1, "")));
    ck_assert(!hears(0, want(0, epoch, 1, "f0 0 2 0\n")));
    lose_and_replace();
    ask(0, epoch, 1, "f0 0 1 0\n", "d0 0 3 0\n");
    ask(0, epoch, 1, "f0 0 3 0\n", "");
    take_over(epoch);
    open_reader(GONE, epoch, NULL);
    ask(GONE, epoch, 5, "", "d0 0 0 0\nd0 0 2 0\n");
    ask(GONE, epoch, 5, "f0 0 0 0\nf0 0 2 0\n", "");
    for (uint32_t i = 0; i < N_NODES; i++)
        done(i, epoch);
    expect_verdict_everywhere(CONTROL_TASK_END, CONTROL_OK, "");
}
END_TEST

/* A worker ends when it knows that its results were heard. It may be lost before others know of
 * that: then it gets the same blocks, and what it gave back is another's. */
START_TEST(a_worker_that_ends_is_told_that_its_results_were_heard)
{
    const uint32_t epoch = begin_task();
    Control ends = want(GONE, epoch, 0, "f0 0 0 0\nb0 0 1 0\n");

    ends.want.ends = true;
    for (uint32_t i = 0; i < 2; i++)
        open_reader(i, epoch, NULL);
    ask(GONE, epoch, 1, "", "d0 0 0 0\n");
    ask(GONE, epoch, 1, "", "d0 0 1 0\n");
    say(GONE, ends);
    ck_assert(expect(GONE, CONTROL_BLOCKS)->blocks.is_last);
    expect_quiet();
    lose_and_replace();
    take_over(epoch);
    open_reader(GONE, epoch, NULL);
    ask(0, epoch, 1, "", "d0 0 1 0\n");
    ask(GONE, epoch, 5, "", "d0 0 0 0\nd0 0 1 0\n");
    say(GONE, ends);
    ck_assert(expect(GONE, CONTROL_BLOCKS)->blocks.is_last);
    ask(0, epoch, 1, "f0 0 1 0\n", "d0 0 2 0\n");
}
END_TEST

/* ---- snapshots that keep what its workers have read ---- */

static void ask_for_snapshot_of(uint64_t number, const char *spec)
{
    say(0,
        (Control){ .kind = CONTROL_SNAPSHOT_ASK, .snapshot = { .number = number, .spec = spec } });
}

/* Of the task's table, and of another one. */
static void ask_for_snapshot(uint64_t number)
{
    ask_for_snapshot_of(number, "directory d\ntable 1\ntable 0\n");
}

/* How it ended. */
static void expect_snapshot(uint64_t number, const char *text)
{
    const ControlSnapshot *const end = &expect(0, CONTROL_SNAPSHOT_END)->snapshot;

    ck_assert_uint_eq(end->number, number);
    ck_assert_uint_eq(end->outcome.code, LOST_CODE);
    ck_assert_ptr_nonnull(strstr(end->outcome.text, text));
}

/* All nodes are told the step next; they do it. */
static void expect_snapshot_step(ControlStep step)
{
    for (uint32_t i = 0; i < N_NODES; i++)
        ck_assert_uint_eq(expect(i, CONTROL_SNAPSHOT_STEP)->snapshot.step, step);
}

static void do_snapshot_step(uint64_t number, ControlStep step)
{
    expect_snapshot_step(step);
    for (uint32_t i = 0; i < N_NODES; i++)
        say(i, (Control){ .kind = CONTROL_SNAPSHOT_DONE,
                          .snapshot = { .number = number, .step = step } });
}

static void do_steps_to_cut(uint64_t number)
{
    do_snapshot_step(number, CONTROL_STEP_PREPARE);
    do_snapshot_step(number, CONTROL_STEP_CLOSE);
    do_snapshot_step(number, CONTROL_STEP_CUT);
}

static void expect_torn_snapshot(uint64_t asked, uint64_t number)
{
    ask_for_snapshot(asked);
    do_steps_to_cut(number);
    do_snapshot_step(number, CONTROL_STEP_FORGET);
    expect_snapshot(asked, "there is no snapshot yet: workers in the place of lost ones read");
}

#define AWAITS "there is no snapshot yet: a task of which it would keep what its workers have read"

/* There is none until the process has told again what the lost one had told of blocks: what came of
 * their rows may have been lost. It asks for blocks late, and reads the second one in part. */
START_TEST(no_snapshot_comes_before_workers_have_read_again)
{
    const uint32_t epoch = begin_task();

    for (uint32_t i = 0; i < N_NODES; i++)
        open_reader(i, epoch, "rows");
    ask(GONE, epoch, 1, "", "d0 0 0 0\n");
    ask(GONE, epoch, 1, "f0 0 0 0\n", "d0 0 1 0\n");
    lose_and_go_on(2);
    ask_for_snapshot(1);
    expect_snapshot(1, AWAITS);
    admit_wholly(3, STEP, COUNTED);
    ask_for_snapshot(2);
    expect_snapshot(2, AWAITS);
    take_over(epoch);
    open_reader(GONE, epoch, "rows");
    expect_torn_snapshot(3, 1);
    ask(GONE, epoch, 2, "", "d0 0 0 0\nd0 0 1 0\n");
    expect_torn_snapshot(4, 2);
    ask_for_snapshot(5);
    do_snapshot_step(3, CONTROL_STEP_PREPARE);
    do_snapshot_step(3, CONTROL_STEP_CLOSE);
    say(GONE, want(GONE, epoch, 0, "f0 0 0 0\nc0 0 0 0\np0 0 1 2\n"));
    do_snapshot_step(3, CONTROL_STEP_CUT);
    expect_snapshot_step(CONTROL_STEP_WRITE);
    g_autoptr(GHashTable) readers = scheduler_cut_readers(scheduler);
    const char *const text = g_hash_table_lookup(readers, "rows");
    ck_assert(g_str_has_suffix(text, " 1\ninput 20 4 1 0 2 0 a\nd0 0 1 2\n"));
}
END_TEST

/* Up to its end. */
static void expect_whole_snapshot(uint64_t asked, uint64_t number)
{
    static const ControlStep steps[] = { CONTROL_STEP_PREPARE, CONTROL_STEP_CLOSE,
                                         CONTROL_STEP_CUT,     CONTROL_STEP_WRITE,
                                         CONTROL_STEP_COMMIT,  CONTROL_STEP_FORGET };

    for (size_t i = 0; i < G_N_ELEMENTS(steps); i++)
        do_snapshot_step(number, steps[i]);
    const ControlSnapshot *const end = &expect(0, CONTROL_SNAPSHOT_END)->snapshot;
    ck_assert_uint_eq(end->number, asked);
    ck_assert_uint_eq(end->outcome.code, CONTROL_OK);
}

/* While the task waits for others, and while these read again. */
START_TEST(snapshots_without_a_table_of_the_task_do_not_wait_for_lost_workers)
{
    static const char *const others = "directory d\ntable 1\ntable 10\n";
    const uint32_t epoch = begin_task();

    for (uint32_t i = 0; i < N_NODES; i++)
        open_reader(i, epoch, "rows");
    ask(GONE, epoch, 1, "", "d0 0 0 0\n");
    lose_and_replace();
    ask_for_snapshot_of(1, others);
    expect_whole_snapshot(1, 1);
    ask_for_snapshot(2);
    expect_snapshot(2, AWAITS);
    take_over(epoch);
    ask_for_snapshot_of(3, others);
    expect_whole_snapshot(3, 2);
    expect_torn_snapshot(4, 3);
}
END_TEST

/* The lost one has told nothing of its block, of which rows may have been used. */
START_TEST(no_snapshot_comes_before_workers_have_asked_again)
{
    const uint32_t epoch = begin_task();

    for (uint32_t i = 0; i < N_NODES; i++)
        open_reader(i, epoch, "rows");
    ask(GONE, epoch, 1, "", "d0 0 0 0\n");
    lose_and_replace();
    take_over(epoch);
    expect_torn_snapshot(1, 1);
    open_reader(GONE, epoch, "rows");
    ask(GONE, epoch, 1, "", "d0 0 0 0\n");
    ask_for_snapshot(2);
    do_steps_to_cut(2);
    expect_snapshot_step(CONTROL_STEP_WRITE);
}
END_TEST

/* Lost workers that had ended need no others. */
START_TEST(a_task_does_not_wait_for_workers_that_had_ended)
{
    const uint32_t epoch = begin_task();

    arrive(GONE, epoch, CONTROL_NO_ROUND);
    lose_and_go_on(2);
    done(0, epoch);
    done(2, epoch);
    for (uint32_t i = 0; i < N_NODES; i += 2)
        expect_verdict(i, CONTROL_TASK_END, CONTROL_OK, "");
}
END_TEST

/* ---- snapshots of rows that show the steps of some clocks ---- */

/* Those that live are told the step next; they do it. */
static void others_do_step(uint64_t number, ControlStep step)
{
    for (uint32_t i = 0; i < N_NODES; i += 2) {
        ck_assert_uint_eq(expect(i, CONTROL_SNAPSHOT_STEP)->snapshot.step, step);
        say(i, (Control){ .kind = CONTROL_SNAPSHOT_DONE,
                          .snapshot = { .number = number, .step = step } });
    }
}

/* In CUT one of them tells that. */
static void others_cut(uint64_t number, uint32_t epoch, const char *told)
{
    ask_for_snapshot(number);
    others_do_step(number, CONTROL_STEP_PREPARE);
    others_do_step(number, CONTROL_STEP_CLOSE);
    say(0, want(0, epoch, 0, told));
    others_do_step(number, CONTROL_STEP_CUT);
}

/* The rows that whoever goes on from the snapshot reads before all others. */
static void expect_cut(uint64_t number, uint32_t epoch, const char *told, const char *tickets)
{
    g_autofree char *end = g_strdup_printf("\ninput 20 4 1 0 1 0 a\n%s", tickets);

    others_cut(number, epoch, told);
    others_do_step(number, CONTROL_STEP_WRITE);
    g_autoptr(GHashTable) readers = scheduler_cut_readers(scheduler);
    const char *const text = g_hash_table_lookup(readers, "rows");
    ck_assert_msg(text != NULL && g_str_has_suffix(text, end), "%s", text);
    others_do_step(number, CONTROL_STEP_COMMIT);
    others_do_step(number, CONTROL_STEP_FORGET);
    const ControlSnapshot *const snapshot = &expect(0, CONTROL_SNAPSHOT_END)->snapshot;
    ck_assert_uint_eq(snapshot->number, number);
    ck_assert_uint_eq(snapshot->outcome.code, CONTROL_OK);
}

/* Its worker reads a block, in steps that it may tell, and ends. */
static void read_and_end(uint32_t epoch, const char *steps)
{
    g_autofree char *told = g_strdup_printf("f0 0 0 0\n%s", steps);

    ask(GONE, epoch, 1, "", "d0 0 0 0\n");
    say(GONE, want(GONE, epoch, 0, told));
    arrive(GONE, epoch, CONTROL_NO_ROUND);
}

static uint32_t begin_to_read(void)
{
    const uint32_t epoch = begin_task();

    for (uint32_t i = 0; i < N_NODES; i++)
        open_reader(i, epoch, "rows");
    return epoch;
}

/* Where Adds are applied by their clock, the node alone knew which of its rows are in no table yet;
 * so it has told them. One that lives tells that itself, in each snapshot.
 * _i: whether the scheduler's process is another one. */
START_TEST(snapshots_are_without_later_steps_of_lost_workers_that_had_ended)
{
    const uint32_t epoch = begin_to_read();

    read_and_end(epoch, "e4 0 0 0 0 3\ne5 0 0 0 3 5\n");
    say(2, want(2, epoch, 0, "e9 0 0 0 5 8\n"));
    if (_i == 1)
        read_scheduler_again();
    lose_and_go_on(2);
    if (_i == 1)
        read_scheduler_again();
    expect_cut(1, epoch, "k3 0 0 0 0\n", "d0 0 0 0 5\n");
    expect_cut(2, epoch, "k5 0 0 0 0\n", "d0 0 0 3 5\n");
    expect_cut(3, epoch, "c0 0 0 0\n", ""); /* rows show the steps of all clocks */
    expect_cut(4, epoch, "k6 0 0 0 0\n", "");
}
END_TEST

/* The process was lost before its worker had ended: another one reads the same, and tells again. */
START_TEST(steps_that_others_repeat_are_told_by_them)
{
    const uint32_t epoch = begin_to_read();

    ask(GONE, epoch, 1, "", "d0 0 0 0\n");
    say(GONE, want(GONE, epoch, 0, "f0 0 0 0\ne4 0 0 0 0 3\n"));
    lose_and_replace();
    take_over(epoch);
    open_reader(GONE, epoch, "rows");
    read_and_end(epoch, "e7 0 0 0 4 5\n");
    lose_and_go_on(4);
    expect_cut(1, epoch, "k3 0 0 0 0\n", "d0 0 0 4 5\n");
}
END_TEST

/* Then nobody tells how far it is read. */
START_TEST(no_snapshot_comes_if_lost_workers_alone_have_opened_a_reader)
{
    const uint32_t epoch = begin_to_read();

    read_and_end(epoch, "");
    lose_and_go_on(2);
    others_cut(1, epoch, "");
    others_do_step(1, CONTROL_STEP_FORGET);
    expect_snapshot(1, "no other has opened the reader");
    expect_cut(2, epoch, "k1 0 0 0 0\n", "");
}
END_TEST

static const char *const wrong_steps[] = { "e4 0 0 0 3 3\n", "e4 0 0 0 3\n", "e4 1 0 0 0 3\n",
                                           "e4 0 1 0 0 3\n" };

START_TEST(steps_of_no_rows_are_refused)
{
    const uint32_t epoch = begin_to_read();

    ck_assert(!hears(0, want(0, epoch, 0, wrong_steps[_i])));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler_replaced");
    TCase *cases = tcase_create("replaced");

    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, a_task_ends_when_others_have_ended_in_the_place_of_its_lost_workers);
    tcase_add_test(cases, workers_that_are_lost_while_their_task_begins_are_replaced);
    tcase_add_test(cases, a_process_has_workers_before_it_has_caught_up);
    tcase_add_test(cases, status_tells_that_a_task_waits_for_lost_workers);
    tcase_add_loop_test(cases, a_task_fails_if_nobody_has_its_lost_workers_in_time, 0, 2);
    tcase_add_test(cases, a_process_that_comes_too_late_is_told_how_the_task_ended);
    tcase_add_test(cases, a_process_is_told_how_collectives_stand);
    tcase_add_test(cases, a_process_is_told_which_barriers_its_workers_had_passed);
    tcase_add_test(cases, a_process_gets_the_blocks_of_its_lost_worker);
    tcase_add_test(cases, a_worker_that_ends_is_told_that_its_results_were_heard);
    tcase_add_test(cases, a_task_does_not_wait_for_workers_that_had_ended);
    tcase_add_test(cases, no_snapshot_comes_before_workers_have_read_again);
    tcase_add_test(cases, snapshots_without_a_table_of_the_task_do_not_wait_for_lost_workers);
    tcase_add_test(cases, no_snapshot_comes_before_workers_have_asked_again);
    tcase_add_loop_test(cases, snapshots_are_without_later_steps_of_lost_workers_that_had_ended, 0,
                        2);
    tcase_add_test(cases, steps_that_others_repeat_are_told_by_them);
    tcase_add_test(cases, no_snapshot_comes_if_lost_workers_alone_have_opened_a_reader);
    tcase_add_loop_test(cases, steps_of_no_rows_are_refused, 0, G_N_ELEMENTS(wrong_steps));
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
