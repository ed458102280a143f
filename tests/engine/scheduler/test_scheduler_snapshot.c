/* The scheduler: snapshots that a node asks for. */
#include "engine/scheduler/scheduler_state.h"
#include "tests/support/runner.h"
#include "tests/support/scheduler/scheduler_fixture.h"

#define SPEC "directory d\n"

static void ask(uint32_t node, uint64_t number, uint32_t epoch)
{
    say(node,
        (Control){ .kind = CONTROL_SNAPSHOT_ASK,
                   .snapshot = { .number = number, .epoch = epoch, .seed = 5, .spec = SPEC } });
}

static Control step_done(uint64_t number, ControlStep step, const char *fault)
{
    return (
        Control){ .kind = CONTROL_SNAPSHOT_DONE,
                  .snapshot = { .number = number,
                                .step = step,
                                .written = step == CONTROL_STEP_COMMIT ? 12 : 0,
                                .outcome = { fault != NULL ? INVALID_CODE : CONTROL_OK, fault } } };
}

static void did(uint32_t node, uint64_t number, ControlStep step)
{
    say(node, step_done(number, step, NULL));
}

static void all_did(uint64_t number, ControlStep step)
{
    for (uint32_t i = 0; i < N_NODES; i++)
        did(i, number, step);
}

/* The nodes of the mask are told to do a step. */
static void expect_step(unsigned nodes, uint64_t number, ControlStep step, uint32_t code)
{
    for (uint32_t i = 0; i < N_NODES; i++) {
        if ((nodes & (1u << i)) == 0)
            continue;
        const ControlSnapshot *const told = &expect(i, CONTROL_SNAPSHOT_STEP)->snapshot;

        ck_assert_uint_eq(told->number, number);
        ck_assert_uint_eq(told->step, step);
        ck_assert_uint_eq(told->outcome.code, code);
        ck_assert_uint_eq(told->seed, 5);
        ck_assert_str_eq(told->spec, step == CONTROL_STEP_PREPARE ? SPEC : "");
    }
}

static void expect_end(uint32_t node, uint64_t number, uint32_t code, const char *text)
{
    const ControlSnapshot *const end = &expect(node, CONTROL_SNAPSHOT_END)->snapshot;

    ck_assert_uint_eq(end->number, number);
    ck_assert_uint_eq(end->outcome.code, code);
    ck_assert_str_eq(end->outcome.text, text);
    ck_assert_uint_eq(end->written, code == CONTROL_OK ? 12 : 0);
}

static void play_whole(uint64_t number)
{
    for (ControlStep step = CONTROL_STEP_PREPARE; step != CONTROL_STEP_END;) {
        expect_step(ALL, number, step, CONTROL_OK);
        expect_quiet();
        all_did(number, step);
        step = step == CONTROL_STEP_PREPARE  ? CONTROL_STEP_CLOSE
               : step == CONTROL_STEP_CLOSE  ? CONTROL_STEP_CUT
               : step == CONTROL_STEP_CUT    ? CONTROL_STEP_WRITE
               : step == CONTROL_STEP_WRITE  ? CONTROL_STEP_COMMIT
               : step == CONTROL_STEP_COMMIT ? CONTROL_STEP_FORGET
                                             : CONTROL_STEP_END;
    }
}

START_TEST(each_step_begins_when_all_nodes_have_done_the_one_before)
{
    begin();
    ask(1, 3, 0);
    expect_step(ALL, 1, CONTROL_STEP_PREPARE, CONTROL_OK);
    did(2, 1, CONTROL_STEP_PREPARE);
    did(0, 1, CONTROL_STEP_PREPARE);
    expect_quiet();
    did(1, 1, CONTROL_STEP_PREPARE);
    expect_step(ALL, 1, CONTROL_STEP_CLOSE, CONTROL_OK);
    all_did(1, CONTROL_STEP_CLOSE);
    expect_step(ALL, 1, CONTROL_STEP_CUT, CONTROL_OK);
    all_did(1, CONTROL_STEP_CUT);
    expect_step(ALL, 1, CONTROL_STEP_WRITE, CONTROL_OK);
    all_did(1, CONTROL_STEP_WRITE);
    expect_step(ALL, 1, CONTROL_STEP_COMMIT, CONTROL_OK);
    all_did(1, CONTROL_STEP_COMMIT);
    expect_step(ALL, 1, CONTROL_STEP_FORGET, CONTROL_OK);
    all_did(1, CONTROL_STEP_FORGET);
    expect_end(1, 3, CONTROL_OK, "");
    expect_quiet();
    expect_waiting(NULL);
}
END_TEST

START_TEST(snapshots_are_taken_one_after_the_other)
{
    begin();
    ask(1, 1, 0);
    ask(2, 1, 0);
    ask(1, 2, 0);
    play_whole(1);
    expect_end(1, 1, CONTROL_OK, "");
    play_whole(2);
    expect_end(2, 1, CONTROL_OK, "");
    play_whole(3);
    expect_end(1, 2, CONTROL_OK, "");
    expect_quiet();
}
END_TEST

static const ControlStep failing[] = { CONTROL_STEP_PREPARE, CONTROL_STEP_CLOSE, CONTROL_STEP_CUT,
                                       CONTROL_STEP_WRITE, CONTROL_STEP_COMMIT };

START_TEST(a_step_that_fails_on_a_node_ends_the_snapshot_on_all)
{
    begin();
    ask(1, 1, 0);
    for (int i = 0; i < _i; i++) {
        expect_step(ALL, 1, failing[i], CONTROL_OK);
        all_did(1, failing[i]);
    }
    expect_step(ALL, 1, failing[_i], CONTROL_OK);
    did(0, 1, failing[_i]);
    say(2, step_done(1, failing[_i], "the disk is full"));
    expect_quiet();
    did(1, 1, failing[_i]);
    expect_step(ALL, 1, CONTROL_STEP_FORGET, INVALID_CODE);
    all_did(1, CONTROL_STEP_FORGET);

    const ControlSnapshot *const end = &expect(1, CONTROL_SNAPSHOT_END)->snapshot;
    ck_assert_uint_eq(end->outcome.code, INVALID_CODE);
    ck_assert_str_eq(end->outcome.text, "the disk is full");
    expect_quiet();
    ask(0, 1, 0); /* the next one has nothing of it */
    play_whole(2);
    expect_end(0, 1, CONTROL_OK, "");
}
END_TEST

/* So all nodes agree on the tables that there are. */
START_TEST(no_call_begins_while_a_snapshot_is_taken)
{
    begin();
    ask(1, 1, 0);
    for (uint32_t i = 0; i < N_NODES; i++)
        propose(i, 1, CONTROL_CALL_CREATE, "table a");
    play_whole(1);
    expect_end(1, 1, CONTROL_OK, "");
    for (uint32_t i = 0; i < N_NODES; i++)
        expect(i, CONTROL_GO);
    expect_quiet();
}
END_TEST

START_TEST(no_snapshot_begins_while_nodes_do_their_part_of_a_call)
{
    begin();
    go(1, CONTROL_CALL_CREATE, "table a");
    ask(1, 1, 0);
    ready(0, 1);
    ready(1, 1);
    expect_quiet();
    ready(2, 1);
    for (uint32_t i = 0; i < N_NODES; i++)
        expect(i, CONTROL_COMMIT);
    play_whole(1);
    expect_end(1, 1, CONTROL_OK, "");
    expect_quiet();
}
END_TEST

START_TEST(a_barrier_does_not_wait_for_a_snapshot)
{
    begin();
    ask(1, 1, 0);
    expect_step(ALL, 1, CONTROL_STEP_PREPARE, CONTROL_OK);
    for (uint32_t i = 0; i < N_NODES; i++)
        propose(i, 1, CONTROL_CALL_BARRIER, "");
    expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_OK, "");
    expect_quiet();
}
END_TEST

START_TEST(a_snapshot_for_a_task_that_has_ended_fails)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task t");

    ask(2, 7, epoch);
    play_whole(1);
    expect_end(2, 7, CONTROL_OK, "");
    fail_worker(1, epoch, "no");
    expect_verdict_everywhere(CONTROL_CANCEL, FAILED_CODE, "no");
    ask(2, 8, epoch);
    expect_end(2, 8, CANCELLED_CODE, "its task has ended");
    for (uint32_t i = 0; i < N_NODES; i++)
        done(i, epoch);
    expect_verdict_everywhere(CONTROL_TASK_END, FAILED_CODE, "no");
    ask(2, 9, epoch);
    expect_end(2, 9, CANCELLED_CODE, "its task has ended");
    ask(2, 10, epoch + 1);
    expect_end(2, 10, CANCELLED_CODE, "its task has ended");
    expect_quiet();
}
END_TEST

/* No worker is held up for it: no map is closed. */
START_TEST(a_snapshot_whose_task_ends_while_nodes_prepare_closes_nothing)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task t");

    ask(2, 7, epoch);
    expect_step(ALL, 1, CONTROL_STEP_PREPARE, CONTROL_OK);
    did(0, 1, CONTROL_STEP_PREPARE);
    if (_i == 0)
        fail_worker(1, epoch, "no");
    for (uint32_t i = 0; _i == 1 && i < N_NODES; i++)
        done(i, epoch);
    for (uint32_t i = 0; i < N_NODES; i++)
        expect(i, _i == 0 ? CONTROL_CANCEL : CONTROL_TASK_END);
    did(1, 1, CONTROL_STEP_PREPARE);
    expect_quiet();
    did(2, 1, CONTROL_STEP_PREPARE);
    expect_step(ALL, 1, CONTROL_STEP_FORGET, CANCELLED_CODE);
    all_did(1, CONTROL_STEP_FORGET);
    expect_end(2, 7, CANCELLED_CODE, "its task has ended");
}
END_TEST

/* ---- readers that it keeps ---- */

static void open_kept(uint32_t node, uint32_t epoch, const char *lines)
{
    say(node, (Control){ .kind = CONTROL_READER,
                         .reader = { .epoch = epoch,
                                     .n_epochs = 1,
                                     .is_dynamic = true,
                                     .kept_as = "k",
                                     .description = "r",
                                     .digest = "" } });
    say(node, (Control){ .kind = CONTROL_INPUTS, .inputs = { .epoch = epoch, .lines = lines } });
}

static void ask_for_blocks(uint32_t node, uint32_t epoch)
{
    say(node,
        (Control){ .kind = CONTROL_WANT, .want = { .epoch = epoch, .n_blocks = 1, .events = "" } });
}

static const char *const restored = "reads r\ndispatcher 1 0 5 1 0\n"
                                    "input 10 4 1 0 1 0 a\ninput 10 4 1 0 0 0 b\n";

static void restore_kept(void)
{
    GHashTable *const readers = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);

    g_hash_table_insert(readers, g_strdup("k"), g_strdup(restored));
    scheduler_restore_readers(scheduler, readers);
}

static void open_unnamed(uint32_t node, uint32_t epoch, uint32_t reader, const char *kept_as)
{
    say(node, (Control){ .kind = CONTROL_READER,
                         .reader = { .epoch = epoch,
                                     .reader = reader,
                                     .n_epochs = 1,
                                     .is_dynamic = true,
                                     .kept_as = kept_as,
                                     .description = "r",
                                     .digest = "" } });
}

/* As they come from other nodes, and from the scheduler's own. */
START_TEST(readers_without_a_name_are_not_kept)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task t");

    for (uint32_t reader = 0; reader < 2; reader++) {
        open_unnamed(1, epoch, reader, "");
        open_unnamed(0, epoch, reader, NULL);
    }
    open_unnamed(0, epoch, 2, NULL);
    open_unnamed(2, epoch, 3, "");
    expect_quiet();
}
END_TEST

/* Up to CUT, of which no node has done its part. */
static uint32_t begin_cut(void)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task t");

    ask(2, 7, 0);
    expect_step(ALL, 1, CONTROL_STEP_PREPARE, CONTROL_OK);
    all_did(1, CONTROL_STEP_PREPARE);
    expect_step(ALL, 1, CONTROL_STEP_CLOSE, CONTROL_OK);
    all_did(1, CONTROL_STEP_CLOSE);
    expect_step(ALL, 1, CONTROL_STEP_CUT, CONTROL_OK);
    return epoch;
}

START_TEST(a_reader_that_is_dealt_blocks_during_the_cut_is_in_it_as_it_was_restored)
{
    GHashTable *cut;

    restore_kept();
    const uint32_t epoch = begin_cut();
    did(0, 1, CONTROL_STEP_CUT);
    open_kept(0, epoch, "10 4 1 a\n10 4 1 b\n");
    ask_for_blocks(0, epoch);
    expect(0, CONTROL_BLOCKS);
    did(1, 1, CONTROL_STEP_CUT);
    did(2, 1, CONTROL_STEP_CUT);
    expect_step(ALL, 1, CONTROL_STEP_WRITE, CONTROL_OK);
    cut = scheduler_cut_readers(scheduler);
    ck_assert_pstr_eq(g_hash_table_lookup(cut, "k"), restored);
    g_hash_table_unref(cut);
}
END_TEST

START_TEST(no_snapshot_is_written_if_a_task_with_kept_readers_fails_during_the_cut)
{
    const uint32_t epoch = begin_cut();

    open_kept(0, epoch, "10 4 1 a\n");
    did(0, 1, CONTROL_STEP_CUT);
    fail_worker(1, epoch, "no");
    expect_verdict_everywhere(CONTROL_CANCEL, FAILED_CODE, "no");
    for (uint32_t i = 0; _i == 1 && i < N_NODES; i++)
        done(i, epoch);
    if (_i == 1)
        expect_verdict_everywhere(CONTROL_TASK_END, FAILED_CODE, "no");
    did(1, 1, CONTROL_STEP_CUT);
    did(2, 1, CONTROL_STEP_CUT);
    expect_step(ALL, 1, CONTROL_STEP_FORGET, CANCELLED_CODE);
    all_did(1, CONTROL_STEP_FORGET);
    expect_end(2, 7, CANCELLED_CODE, "a task failed whose readers it was to keep");
}
END_TEST

/* A task that uses table 5. */
static uint32_t begin_task_of_table(void)
{
    uint32_t epoch = 0;

    begin();
    for (uint32_t i = 0; i < N_NODES; i++) {
        Control proposal = call(1, CONTROL_CALL_RUN, "task t", "same");

        proposal.propose.workers = "1 1 1";
        proposal.propose.told = "5";
        say(i, proposal);
    }
    for (uint32_t i = 0; i < N_NODES; i++)
        epoch = expect(i, CONTROL_GO)->go.id;
    for (uint32_t i = 0; i < N_NODES; i++)
        ready(i, 1);
    expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_OK, "");
    return epoch;
}

/* It ends, or not. */
static void fail_task(uint32_t epoch, bool ends)
{
    fail_worker(1, epoch, "no");
    expect_verdict_everywhere(CONTROL_CANCEL, FAILED_CODE, "no");
    for (uint32_t i = 0; ends && i < N_NODES; i++)
        done(i, epoch);
    if (ends)
        expect_verdict_everywhere(CONTROL_TASK_END, FAILED_CODE, "no");
}

/* What a snapshot is to have, whether all nodes call for it or one asks, and whether a task of
 * table 5 that fails during its cut ends, too. */
static const struct {
    const char *spec;
    bool is_called, ends, is_torn;
} failures[] = {
    { "directory d\ntable 6\ntable 5\n", false, false, true },
    { "directory d\ntable 6\ntable 5\n", false, true, true },
    { "directory d\ntable 6\ntable 5\n", true, false, true },
    { "directory d\ntable 6\ntable 5\n", true, true, true },
    { "directory d\ntable 6\ntable 55\n", false, false, false },
    { "directory d\ntable 6\ntable 55\n", false, true, false },
    { "directory d\ntable 6\ntable 55\n", true, false, false },
    { "directory d\ntable 6\ntable 55\n", true, true, false },
    { NULL, true, false, true }, /* longer than nodes can tell one another */
};

static void ask_or_call(const char *spec, bool is_called)
{
    Control proposal = call(2, CONTROL_CALL_SNAPSHOT, "a snapshot", "same");

    proposal.propose.told = spec;
    for (uint32_t i = 0; is_called && i < N_NODES; i++)
        say(i, proposal);
    if (!is_called)
        say(2, (Control){ .kind = CONTROL_SNAPSHOT_ASK,
                          .snapshot = { .number = 7, .seed = 5, .spec = spec } });
}

static void expect_next(ControlStep step, bool is_called)
{
    for (uint32_t i = 0; i < N_NODES; i++)
        if (is_called)
            ck_assert_uint_eq(expect(i, CONTROL_GO)->go.step, step);
        else
            ck_assert_uint_eq(expect(i, CONTROL_SNAPSHOT_STEP)->snapshot.step, step);
}

static void do_next(uint32_t node, ControlStep step, bool is_called)
{
    if (is_called)
        ready(node, 2);
    else
        did(node, 1, step);
}

START_TEST(a_task_with_kept_readers_that_fails_tears_snapshots_of_its_tables_alone)
{
    static const ControlStep steps[] = { CONTROL_STEP_PREPARE, CONTROL_STEP_CLOSE,
                                         CONTROL_STEP_CUT };
    const bool is_called = failures[_i].is_called;
    const uint32_t epoch = begin_task_of_table();

    open_kept(0, epoch, "10 4 1 a\n");
    ask_or_call(failures[_i].spec, is_called);
    for (size_t i = 0; i < G_N_ELEMENTS(steps); i++) {
        expect_next(steps[i], is_called);
        do_next(0, steps[i], is_called);
        if (steps[i] == CONTROL_STEP_CUT)
            fail_task(epoch, failures[_i].ends);
        do_next(1, steps[i], is_called);
        do_next(2, steps[i], is_called);
    }
    expect_next(failures[_i].is_torn ? CONTROL_STEP_FORGET : CONTROL_STEP_WRITE, is_called);
    if (!is_called || !failures[_i].is_torn)
        return;
    for (uint32_t i = 0; i < N_NODES; i++)
        ready(i, 2);
    expect_verdict_everywhere(CONTROL_COMMIT, CANCELLED_CODE,
                              "a task failed whose readers it was to keep");
}
END_TEST

/* The names of its files may take more than one message. */
START_TEST(a_task_goes_on_although_a_node_has_told_some_of_its_files_alone)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task t");

    restore_kept();
    open_kept(0, epoch, "10 4 1 a\n");
    open_kept(1, epoch, "10 4 1 a\n");
    open_kept(2, epoch, "10 4 1 a\n");
    ask_for_blocks(0, epoch);
    expect(0, CONTROL_BLOCKS);
    say(1, (Control){ .kind = CONTROL_INPUTS,
                      .inputs = { .epoch = epoch, .first = 1, .lines = "10 4 1 b\n" } });
    ask_for_blocks(1, epoch);
    expect(1, CONTROL_BLOCKS);
    ask_for_blocks(2, epoch);
    expect(2, CONTROL_BLOCKS);
    expect_quiet();
}
END_TEST

/* The others are told, since they have to open their maps. */
START_TEST(a_lost_node_ends_the_snapshot_and_is_not_waited_for)
{
    begin();
    ask(1, 1, 0);
    ask(2, 1, 0);
    expect_step(ALL, 1, CONTROL_STEP_PREPARE, CONTROL_OK);
    did(0, 1, CONTROL_STEP_PREPARE);
    did(1, 1, CONTROL_STEP_PREPARE);
    scheduler_node_gone(scheduler, now_ms, 2, "its process has ended");
    expect(0, CONTROL_LOST);
    expect(1, CONTROL_LOST);
    expect_step(3u, 1, CONTROL_STEP_FORGET, LOST_CODE);
    did(1, 1, CONTROL_STEP_FORGET);
    expect_quiet();
    did(0, 1, CONTROL_STEP_FORGET);
    ck_assert_uint_eq(expect(1, CONTROL_SNAPSHOT_END)->snapshot.outcome.code, LOST_CODE);
    expect_quiet(); /* a lost node hears nothing */
}
END_TEST

/* A snapshot is whole when it has its manifest, whoever is lost then. */
START_TEST(a_node_lost_after_the_manifest_does_not_undo_the_snapshot)
{
    begin();
    ask(1, 1, 0);
    for (size_t i = 0; i < G_N_ELEMENTS(failing); i++) {
        expect_step(ALL, 1, failing[i], CONTROL_OK);
        if (i + 1 < G_N_ELEMENTS(failing))
            all_did(1, failing[i]);
    }
    did(0, 1, CONTROL_STEP_COMMIT);
    did(1, 1, CONTROL_STEP_COMMIT);
    scheduler_node_gone(scheduler, now_ms, 2, "its process has ended");
    expect(0, CONTROL_LOST);
    expect(1, CONTROL_LOST);
    expect_step(3u, 1, CONTROL_STEP_FORGET, CONTROL_OK);
    did(0, 1, CONTROL_STEP_FORGET);
    did(1, 1, CONTROL_STEP_FORGET);
    expect_end(1, 1, CONTROL_OK, "");
}
END_TEST

/* A step that follows the loss of node 2 is done. */
static void recovered(uint32_t map, ControlRecoverStep step)
{
    for (uint32_t i = 0; i < 2; i++)
        say(i, (Control){ .kind = CONTROL_RECOVERED,
                          .recover = { .map = map, .step = step, .text = "", .lines = "" } });
}

/* The others do not wait for what the lost node has asked for. */
START_TEST(the_snapshot_after_a_loss_begins_when_parts_have_their_primaries)
{
    begin();
    scheduler->goes_on = true;
    ask(1, 1, 0);
    ask(2, 1, 0);
    ask(0, 1, 0);
    expect_step(ALL, 1, CONTROL_STEP_PREPARE, CONTROL_OK);
    did(0, 1, CONTROL_STEP_PREPARE);
    scheduler_node_gone(scheduler, now_ms, 2, "its process has ended");
    expect(0, CONTROL_RECOVER);
    expect(1, CONTROL_RECOVER);
    expect_quiet(); /* node 1 does its step yet */
    did(1, 1, CONTROL_STEP_PREPARE);
    expect_step(3u, 1, CONTROL_STEP_FORGET, LOST_CODE);
    did(0, 1, CONTROL_STEP_FORGET);
    did(1, 1, CONTROL_STEP_FORGET);
    ck_assert_uint_eq(expect(1, CONTROL_SNAPSHOT_END)->snapshot.outcome.code, LOST_CODE);
    expect_quiet();
    for (ControlRecoverStep step = CONTROL_RECOVER_CLOSE; step < CONTROL_RECOVER_OPEN;
         step = step == CONTROL_RECOVER_CLOSE ? CONTROL_RECOVER_PROMOTE : step + 1) {
        recovered(2, step);
        expect(0, CONTROL_RECOVER);
        expect(1, CONTROL_RECOVER);
    }
    recovered(2, CONTROL_RECOVER_OPEN);
    expect_step(3u, 2, CONTROL_STEP_PREPARE, CONTROL_OK);
    for (size_t i = 0; i < G_N_ELEMENTS(failing); i++) {
        if (i > 0)
            expect_step(3u, 2, failing[i], CONTROL_OK);
        did(0, 2, failing[i]);
        did(1, 2, failing[i]);
    }
    expect_step(3u, 2, CONTROL_STEP_FORGET, CONTROL_OK);
    did(0, 2, CONTROL_STEP_FORGET);
    did(1, 2, CONTROL_STEP_FORGET);
    expect_end(0, 1, CONTROL_OK, "");
    expect_quiet();
}
END_TEST

static void leave_run(uint32_t node)
{
    say(node, (Control){ .kind = CONTROL_LEAVE });
}

START_TEST(nodes_that_have_left_stay_until_the_snapshot_is_written)
{
    begin();
    ask(1, 1, 0);
    for (uint32_t i = 0; i < N_NODES; i++)
        leave_run(i);
    play_whole(1);
    expect_end(1, 1, CONTROL_OK, "");
    for (uint32_t i = 0; i < N_NODES; i++)
        expect(i, CONTROL_LEFT);
    expect_quiet();
}
END_TEST

START_TEST(a_node_that_has_left_is_given_no_snapshot)
{
    begin();
    leave_run(1);
    ask(1, 1, 0);
    expect_end(1, 1, CANCELLED_CODE, "its node has left the run");
    expect_quiet();
}
END_TEST

static const struct {
    uint64_t number;
    ControlStep step;
} nonsense[] = {
    { 2, CONTROL_STEP_PREPARE }, /* a snapshot that there is not */
    { 1, CONTROL_STEP_CUT },     /* a step that nobody has asked for */
    { 1, CONTROL_STEP_FORGET },  /* likewise */
};

START_TEST(an_answer_that_makes_no_sense_does_not_count)
{
    begin();
    ck_assert(!hears(0, step_done(1, CONTROL_STEP_PREPARE, NULL)));
    ask(1, 1, 0);
    expect_step(ALL, 1, CONTROL_STEP_PREPARE, CONTROL_OK);
    ck_assert(!hears(0, step_done(nonsense[_i].number, nonsense[_i].step, NULL)));
    did(1, 1, CONTROL_STEP_PREPARE);
    ck_assert(!hears(1, step_done(1, CONTROL_STEP_PREPARE, NULL))); /* a second time */
    did(2, 1, CONTROL_STEP_PREPARE);
    expect_quiet();
    did(0, 1, CONTROL_STEP_PREPARE);
    expect_step(ALL, 1, CONTROL_STEP_CLOSE, CONTROL_OK);
}
END_TEST

START_TEST(a_snapshot_that_waits_says_for_whom)
{
    begin();
    ask(1, 1, 0);
    expect_step(ALL, 1, CONTROL_STEP_PREPARE, CONTROL_OK);
    did(0, 1, CONTROL_STEP_PREPARE);
    did(2, 1, CONTROL_STEP_PREPARE);
    expect_waiting("a snapshot waits for node 4 (127.0.0.1:4102) [last heard 0.0 s ago] to do its "
                   "part");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("snapshots that a node asks for");
    TCase *cases = tcase_create("scheduler");

    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, each_step_begins_when_all_nodes_have_done_the_one_before);
    tcase_add_test(cases, snapshots_are_taken_one_after_the_other);
    tcase_add_loop_test(cases, a_step_that_fails_on_a_node_ends_the_snapshot_on_all, 0,
                        G_N_ELEMENTS(failing));
    tcase_add_test(cases, no_call_begins_while_a_snapshot_is_taken);
    tcase_add_test(cases, no_snapshot_begins_while_nodes_do_their_part_of_a_call);
    tcase_add_test(cases, a_barrier_does_not_wait_for_a_snapshot);
    tcase_add_loop_test(cases, a_snapshot_whose_task_ends_while_nodes_prepare_closes_nothing, 0, 2);
    tcase_add_test(cases, a_snapshot_for_a_task_that_has_ended_fails);
    tcase_add_test(cases, readers_without_a_name_are_not_kept);
    tcase_add_test(cases, a_reader_that_is_dealt_blocks_during_the_cut_is_in_it_as_it_was_restored);
    tcase_add_loop_test(
        cases, no_snapshot_is_written_if_a_task_with_kept_readers_fails_during_the_cut, 0, 2);
    tcase_add_loop_test(cases,
                        a_task_with_kept_readers_that_fails_tears_snapshots_of_its_tables_alone, 0,
                        G_N_ELEMENTS(failures));
    tcase_add_test(cases, a_task_goes_on_although_a_node_has_told_some_of_its_files_alone);
    tcase_add_test(cases, a_lost_node_ends_the_snapshot_and_is_not_waited_for);
    tcase_add_test(cases, a_node_lost_after_the_manifest_does_not_undo_the_snapshot);
    tcase_add_test(cases, the_snapshot_after_a_loss_begins_when_parts_have_their_primaries);
    tcase_add_test(cases, nodes_that_have_left_stay_until_the_snapshot_is_written);
    tcase_add_test(cases, a_node_that_has_left_is_given_no_snapshot);
    tcase_add_loop_test(cases, an_answer_that_makes_no_sense_does_not_count, 0,
                        G_N_ELEMENTS(nonsense));
    tcase_add_test(cases, a_snapshot_that_waits_says_for_whom);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
