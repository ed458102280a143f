/* The scheduler: nodes that are drained. */
#include "engine/scheduler/scheduler_state.h"
#include "tests/support/runner.h"
#include "tests/support/scheduler/scheduler_steps.h"

#define DRAINED 1u    /* the node; */
#define DRAINED_ID 4u /* its id */

static void ask(uint32_t node, uint64_t number, uint32_t node_id)
{
    say(node,
        (Control){ .kind = CONTROL_DRAIN, .drain = { .number = number, .node_id = node_id } });
}

/* The same, and the node is to leave after that. */
static void ask_to_end(uint32_t node, uint64_t number, uint32_t node_id)
{
    say(node, (Control){ .kind = CONTROL_DRAIN,
                         .drain = { .number = number, .node_id = node_id, .ends = true } });
}

static void expect_answer(uint32_t node, uint64_t number, uint32_t code, const char *text)
{
    const ControlDrain *const drained = &expect(node, CONTROL_DRAINED)->drain;

    ck_assert_uint_eq(drained->number, number);
    ck_assert_uint_eq(drained->outcome.code, code);
    ck_assert_str_eq(drained->outcome.text, text);
}

static Control step_failed(uint32_t map, ControlRecoverStep step, const char *text)
{
    Control done = step_done(map, step, "");

    done.recover.text = text;
    return done;
}

static void expect_step_of(unsigned nodes, uint32_t map, ControlRecoverStep step,
                           ControlCause cause, const char *lines)
{
    ck_assert_uint_eq(expect_step(nodes, map, step, lines), cause);
}

/* Node 1 has the primary of part 0 and a replica of part 1; copies of both go to node 2. */
#define PLACES "0 0 2 1 0\n0 1 2 2 1\n"
#define PLAN "0 0 3 1 0 2\n0 1 3 2 1 0\n"

static void close_step(uint32_t map, bool has_copies)
{
    say(0, step_done(map, CONTROL_RECOVER_CLOSE,
                     has_copies ? "k0 0 0 0\nk0 1 0 0\nr0 0 0 5\nr0 1 0 5\n"
                                : "k0 0 0 0\nk0 1 0 0\nr0 0 0 5\n"));
    say(1, step_done(map, CONTROL_RECOVER_CLOSE, "p0 0 1 0\nr0 1 1 5\n"));
    say(2,
        step_done(map, CONTROL_RECOVER_CLOSE, has_copies ? "r0 0 2 5\np0 1 2 0\n" : "p0 1 2 0\n"));
}

/* Up to where copies are made. */
static void order_copies(void)
{
    expect_step_of(ALL, 2, CONTROL_RECOVER_CLOSE, CONTROL_CAUSE_DRAIN, "1\n");
    close_step(2, false);
    expect_step_of(ALL, 2, CONTROL_RECOVER_PROMOTE, CONTROL_CAUSE_DRAIN, PLACES);
    do_step(ALL, 2, CONTROL_RECOVER_PROMOTE, "");
    expect_step_of(ALL, 2, CONTROL_RECOVER_OPEN, CONTROL_CAUSE_DRAIN, PLACES);
    do_step(ALL, 2, CONTROL_RECOVER_OPEN, PLAN);
    for (ControlRecoverStep step = CONTROL_RECOVER_EXPECT; step <= CONTROL_RECOVER_COPY; step++) {
        expect_step_of(ALL, 2, step, CONTROL_CAUSE_DRAIN, PLAN);
        do_step(ALL, 2, step, "");
    }
    expect_quiet();
}

static void made(uint32_t node, uint32_t n, uint32_t n_missing)
{
    say(node, (Control){ .kind = CONTROL_MADE,
                         .made = { .server = node, .n = n, .n_missing = n_missing } });
    for (uint32_t i = 0; i < N_NODES; i++)
        expect(i, CONTROL_MADE);
}

/* The second copy is there, and all that follows. */
static void hand_over(void)
{
    made(2, 1, 0);
    expect_step_of(ALL, 3, CONTROL_RECOVER_CLOSE, CONTROL_CAUSE_HAND_OVER, "1\n");
    close_step(3, true);
    for (ControlRecoverStep step = CONTROL_RECOVER_SETTLE, next; step != CONTROL_RECOVER_EXPECT;
         step = next) {
        next = step == CONTROL_RECOVER_SETTLE    ? CONTROL_RECOVER_PROMOTE
               : step == CONTROL_RECOVER_PROMOTE ? CONTROL_RECOVER_OPEN
                                                 : CONTROL_RECOVER_EXPECT;
        expect_step_of(ALL, 3, step, CONTROL_CAUSE_HAND_OVER, "0 0 2 0 2\n0 1 2 2 0\n");
        do_step(ALL, 3, step, "");
    }
}

START_TEST(copies_are_made_before_they_take_the_place_of_what_the_node_has)
{
    begin_with_replicas();
    ask(2, 7, DRAINED_ID);
    order_copies();
    propose(0, 1, CONTROL_CALL_CREATE, "table a");
    propose(1, 1, CONTROL_CALL_CREATE, "table a");
    propose(2, 1, CONTROL_CALL_CREATE, "table a");
    expect_quiet(); /* no call begins meanwhile */
    made(1, 1, 0);
    expect_quiet();
    hand_over();
    expect_answer(2, 7, CONTROL_OK, "");
    for (uint32_t i = 0; i < N_NODES; i++)
        expect(i, CONTROL_GO);
    ask(0, 1, DRAINED_ID); /* again */
    expect_answer(0, 1, CONTROL_OK, "");
    expect_quiet();
}
END_TEST

static const struct {
    uint32_t node_id;
    const char *text;
} refused[] = {
    { 5, "there is no node 5 in this run" },
    { 0, "node 0 cannot be drained: the scheduler runs there, and the run ends with it" },
};

START_TEST(a_node_that_cannot_be_drained_is_refused)
{
    begin_with_replicas();
    ask(2, 3, refused[_i].node_id);
    expect_answer(2, 3, INVALID_CODE, refused[_i].text);
    expect_quiet();
}
END_TEST

START_TEST(one_node_is_drained_at_a_time)
{
    begin_with_replicas();
    ask(2, 3, DRAINED_ID);
    order_copies();
    ask(0, 1, 7);
    expect_answer(0, 1, INVALID_CODE,
                  "node 7 cannot be drained now, because node 4 is being drained; try again when "
                  "that has ended");
    ask(0, 2, DRAINED_ID); /* hears of the same end */
    scheduler_node_gone(scheduler, now_ms, DRAINED, "its process has ended");
    expect_step_of(5u, 3, CONTROL_RECOVER_CLOSE, CONTROL_CAUSE_LOSS, "1\n");
    expect_answer(2, 3, LOST_CODE,
                  "node 4 was not drained: node 4 (127.0.0.1:4102) was lost: its process has "
                  "ended");
    expect_answer(0, 2, LOST_CODE,
                  "node 4 was not drained: node 4 (127.0.0.1:4102) was lost: its process has "
                  "ended");
    ask(0, 3, DRAINED_ID);
    expect_answer(0, 3, LOST_CODE,
                  "node 4 cannot be drained: node 4 (127.0.0.1:4102) was lost: its process has "
                  "ended");
    expect_quiet();
}
END_TEST

/* The others hear that it keeps its parts. */
static void expect_kept(uint32_t map)
{
    expect_step_of(ALL, map, CONTROL_RECOVER_CLOSE, CONTROL_CAUSE_DRAIN, "");
    expect_quiet();
}

START_TEST(a_node_keeps_its_parts_if_there_is_no_room_for_them)
{
    begin_with_replicas();
    ask(2, 3, DRAINED_ID);
    expect_step_of(ALL, 2, CONTROL_RECOVER_CLOSE, CONTROL_CAUSE_DRAIN, "1\n");
    close_step(2, false);
    expect_step_of(ALL, 2, CONTROL_RECOVER_PROMOTE, CONTROL_CAUSE_DRAIN, PLACES);
    do_step(ALL, 2, CONTROL_RECOVER_PROMOTE, "");
    expect_step_of(ALL, 2, CONTROL_RECOVER_OPEN, CONTROL_CAUSE_DRAIN, PLACES);
    say(2, step_done(2, CONTROL_RECOVER_OPEN, ""));
    say(1, step_done(2, CONTROL_RECOVER_OPEN, ""));
    say(0, step_failed(2, CONTROL_RECOVER_OPEN, "there is no room"));
    expect_answer(2, 3, INVALID_CODE, "node 4 cannot be drained: there is no room");
    expect_kept(3);
}
END_TEST

START_TEST(a_node_keeps_its_parts_if_a_copy_cannot_be_made)
{
    begin_with_replicas();
    ask(2, 3, DRAINED_ID);
    order_copies();
    made(1, 0, 1);
    expect_answer(2, 3, INVALID_CODE,
                  "node 4 cannot be drained: node 4 (127.0.0.1:4102) could not make all copies of "
                  "its parts on others; its log says why");
    expect_kept(3);
}
END_TEST

/* What the loss leaves over is planned again, and copies of before do not count. */
START_TEST(another_loss_comes_first_and_then_it_goes_on)
{
    begin_with_replicas();
    ask(0, 3, DRAINED_ID);
    order_copies();
    made(1, 1, 0);
    scheduler_node_gone(scheduler, now_ms, 2, "its process has ended");
    expect_step_of(3u, 3, CONTROL_RECOVER_CLOSE, CONTROL_CAUSE_LOSS, "1\n");
    say(0, step_done(3, CONTROL_RECOVER_CLOSE, "k0 0 0 0\nk0 1 0 0\nr0 0 0 5\n"));
    say(1, step_done(3, CONTROL_RECOVER_CLOSE, "p0 0 1 0\nr0 1 1 5\n"));
    expect_step_of(3u, 3, CONTROL_RECOVER_PROMOTE, CONTROL_CAUSE_LOSS, "0 0 2 1 0\n0 1 1 1\n");
    do_step(3u, 3, CONTROL_RECOVER_PROMOTE, "");
    expect_step_of(3u, 3, CONTROL_RECOVER_OPEN, CONTROL_CAUSE_LOSS, "0 0 2 1 0\n0 1 1 1\n");
    say(1, step_done(3, CONTROL_RECOVER_OPEN, ""));
    say(0, step_failed(3, CONTROL_RECOVER_OPEN, "too few"));
    expect_answer(0, 3, INVALID_CODE, "node 4 cannot be drained: too few");
    expect_step_of(3u, 4, CONTROL_RECOVER_CLOSE, CONTROL_CAUSE_DRAIN, "");
    expect_quiet();
}
END_TEST

/* Copies that nobody makes are not asked for again and again. */
START_TEST(a_node_keeps_its_parts_if_their_copies_are_gone)
{
    begin_with_replicas();
    ask(2, 3, DRAINED_ID);
    order_copies();
    made(1, 1, 0);
    made(2, 1, 0);
    expect_step_of(ALL, 3, CONTROL_RECOVER_CLOSE, CONTROL_CAUSE_HAND_OVER, "1\n");
    say(0, step_done(3, CONTROL_RECOVER_CLOSE, "k0 0 0 0\n"));
    say(1, step_done(3, CONTROL_RECOVER_CLOSE, "p0 0 1 0\n"));
    say(2, step_done(3, CONTROL_RECOVER_CLOSE, ""));
    expect_step_of(ALL, 3, CONTROL_RECOVER_SETTLE, CONTROL_CAUSE_HAND_OVER, "0 0 1 1\n");
    do_step(ALL, 3, CONTROL_RECOVER_SETTLE, "");
    expect_step_of(ALL, 3, CONTROL_RECOVER_PROMOTE, CONTROL_CAUSE_HAND_OVER, "0 0 1 1\n");
    do_step(ALL, 3, CONTROL_RECOVER_PROMOTE, "");
    expect_step_of(ALL, 3, CONTROL_RECOVER_OPEN, CONTROL_CAUSE_HAND_OVER, "0 0 1 1\n");
    do_step(ALL, 3, CONTROL_RECOVER_OPEN, "");
    expect_answer(2, 3, INVALID_CODE,
                  "node 4 cannot be drained: other nodes do not have copies of all of its parts, "
                  "and no more are made");
    expect_kept(4);
}
END_TEST

/* Whoever asks for a drain does not end a run that is too large for one. */
START_TEST(a_node_keeps_its_parts_if_there_are_too_many)
{
    enum { N = 40000 };
    g_autoptr(GString) lines = g_string_new(NULL);

    begin_with_replicas();
    ask(2, 3, DRAINED_ID);
    expect_step_of(ALL, 2, CONTROL_RECOVER_CLOSE, CONTROL_CAUSE_DRAIN, "1\n");
    for (uint32_t i = 0; i < N; i++)
        g_string_append_printf(lines, "p4000000000 %u 4000000000 0\n", i);
    do_step(ALL, 2, CONTROL_RECOVER_CLOSE, lines->str);
    expect_step_of(ALL, 2, CONTROL_RECOVER_PROMOTE, CONTROL_CAUSE_DRAIN, "");
    do_step(ALL, 2, CONTROL_RECOVER_PROMOTE, "");
    expect_step_of(ALL, 2, CONTROL_RECOVER_OPEN, CONTROL_CAUSE_DRAIN, "");
    do_step(ALL, 2, CONTROL_RECOVER_OPEN, "");
    expect_answer(2, 3, INVALID_CODE,
                  "node 4 cannot be drained: there are more parts with replicas than nodes can be "
                  "told");
    expect_kept(3);
}
END_TEST

START_TEST(a_drain_waits_for_a_call_under_way)
{
    begin_with_replicas();
    (void)go(1, CONTROL_CALL_CREATE, "table a");
    ask(2, 3, DRAINED_ID);
    expect_quiet();
    for (uint32_t i = 0; i < N_NODES; i++)
        ready(i, 1);
    expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_OK, "");
    expect_step_of(ALL, 2, CONTROL_RECOVER_CLOSE, CONTROL_CAUSE_DRAIN, "1\n");
    expect_quiet();
}
END_TEST

START_TEST(the_end_of_the_run_ends_a_drain)
{
    begin_with_replicas();
    ask(2, 3, DRAINED_ID);
    order_copies();
    say(0, (Control){ .kind = CONTROL_STOP, .stop = { "enough" } });
    expect_answer(2, 3, CANCELLED_CODE, "enough");
}
END_TEST

/* ---- a node that leaves ---- */

#define SERVED_CODE CONTROL_CODE(RUBATO_ERROR_SERVED)
#define LEAVES "node 4 (127.0.0.1:4102) was drained, and leaves the run"

static void expect_state(uint32_t node, const char *state)
{
    g_autoptr(GVariant) status = g_variant_ref_sink(scheduler_status(scheduler, now_ms));
    g_autoptr(GVariant) nodes = g_variant_lookup_value(status, "nodes", NULL);
    g_autoptr(GVariant) part = g_variant_get_child_value(nodes, node);
    const char *found = NULL;

    ck_assert(g_variant_lookup(part, "state", "&s", &found));
    ck_assert_str_eq(found, state);
}

/* The others hear of it, as of a loss in which no part moves. */
static void leave(void)
{
    expect_state(DRAINED, "live");
    say(DRAINED, (Control){ .kind = CONTROL_LEAVE });
    expect_step_of(5u, 4, CONTROL_RECOVER_CLOSE, CONTROL_CAUSE_LEAVE, "1\n");
    expect_state(DRAINED, "drained");
}

/* No call begins before the node has gone: its part of one would be missing. */
START_TEST(a_drained_node_leaves_when_it_knows_that_it_may)
{
    begin_with_replicas();
    ask_to_end(DRAINED, 7, DRAINED_ID);
    order_copies();
    propose(0, 1, CONTROL_CALL_CREATE, "table a");
    propose(2, 1, CONTROL_CALL_CREATE, "table a");
    propose(1, 1, CONTROL_CALL_CREATE, "table a");
    made(1, 1, 0);
    ask(0, 1, DRAINED_ID); /* hears of the same end */
    hand_over();
    expect_answer(DRAINED, 0, SERVED_CODE, LEAVES);
    expect_quiet();
    leave();
    expect_answer(0, 1, CONTROL_OK, "");
    expect_quiet();
    ask(0, 2, DRAINED_ID);
    expect_answer(0, 2, LOST_CODE,
                  "node 4 cannot be drained: node 4 (127.0.0.1:4102) was drained, and has left the "
                  "run");
}
END_TEST

START_TEST(a_node_whose_process_ends_before_it_says_so_has_left)
{
    begin_with_replicas();
    ask_to_end(2, 7, DRAINED_ID);
    order_copies();
    made(1, 1, 0);
    hand_over();
    expect_answer(DRAINED, 0, SERVED_CODE, LEAVES);
    scheduler_node_gone(scheduler, now_ms, DRAINED, "its process has ended");
    expect_step_of(5u, 4, CONTROL_RECOVER_CLOSE, CONTROL_CAUSE_LOSS, "1\n");
    expect_state(DRAINED, "lost");
    expect_answer(2, 7, CONTROL_OK, "");
    expect_quiet();
}
END_TEST

START_TEST(a_node_with_workers_leaves_when_these_have_ended)
{
    begin_with_replicas();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task t");

    ask_to_end(2, 7, DRAINED_ID);
    order_copies();
    made(1, 1, 0);
    hand_over();
    expect_answer(2, 7, CONTROL_OK, "node 4 is drained, and ends when its workers of task t have");
    expect_quiet();
    done(0, epoch);
    expect_quiet();
    done(DRAINED, epoch);
    expect_answer(DRAINED, 0, SERVED_CODE, LEAVES);
    leave();
    expect_quiet();
}
END_TEST

/* One that has been drained before, and was kept. */
START_TEST(a_drained_node_may_be_asked_to_leave_later)
{
    begin_with_replicas();
    ask(2, 7, DRAINED_ID);
    order_copies();
    made(1, 1, 0);
    hand_over();
    expect_answer(2, 7, CONTROL_OK, "");
    ask_to_end(2, 8, DRAINED_ID);
    expect_answer(DRAINED, 0, SERVED_CODE, LEAVES);
    leave();
    expect_answer(2, 8, CONTROL_OK, "");
    expect_quiet();
}
END_TEST

START_TEST(nodes_that_are_to_end_wait_for_one_another)
{
    begin_with_replicas();
    ask(0, 7, DRAINED_ID);
    order_copies();
    ask_to_end(2, 1, 7);
    expect_quiet();
    ck_assert(!hears(2, (Control){ .kind = CONTROL_DRAIN,
                                   .drain = { .number = 2, .node_id = 7, .ends = true } }));
    made(1, 0, 1);
    expect(0, CONTROL_DRAINED);
    expect_kept(3); /* and the next one waits for these steps */
    do_step(ALL, 3, CONTROL_RECOVER_CLOSE, "");
    for (ControlRecoverStep step = CONTROL_RECOVER_PROMOTE; step <= CONTROL_RECOVER_OPEN; step++) {
        expect_step_of(ALL, 3, step, CONTROL_CAUSE_DRAIN, "");
        do_step(ALL, 3, step, "");
    }
    expect_step_of(ALL, 4, CONTROL_RECOVER_CLOSE, CONTROL_CAUSE_DRAIN, "2\n");
    expect_quiet();
}
END_TEST

START_TEST(without_replicas_a_node_does_not_leave)
{
    begin();
    ask_to_end(2, 7, DRAINED_ID);
    expect_answer(2, 7, INVALID_CODE,
                  "node 4 cannot be drained: no table has replicas, so the run would end with it");
    expect_quiet();
}
END_TEST

/* ---- outside askers ---- */

static void ask_from_outside(uint64_t number, uint32_t node_id)
{
    const Control drain = { .kind = CONTROL_DRAIN,
                            .drain = { .number = number, .node_id = node_id, .ends = true } };

    ck_assert(scheduler_greet(scheduler, now_ms, &drain, CONFIG.wire_version, asker_of("outside")));
}

static void expect_outside(uint64_t number, bool goes_on, uint32_t code, const char *text)
{
    const ControlDrain *const drained = &expect_greeting("outside", CONTROL_DRAINED)->drain;

    ck_assert_uint_eq(drained->number, number);
    ck_assert(drained->goes_on == goes_on);
    ck_assert_uint_eq(drained->outcome.code, code);
    ck_assert_str_eq(drained->outcome.text, text);
}

/* Each greeting is answered, and the end is still known when its answer was lost. */
START_TEST(an_outside_asker_hears_how_it_goes_each_time_it_asks)
{
    ask_from_outside(70, DRAINED_ID);
    expect_outside(70, false, INVALID_CODE, "the run has not begun");
    begin_with_replicas();
    ask_from_outside(70, 99);
    expect_outside(70, false, INVALID_CODE, "there is no node 99 in this run");
    ask_from_outside(71, DRAINED_ID);
    expect_outside(71, true, CONTROL_OK, "");
    order_copies();
    ask_from_outside(71, DRAINED_ID);
    expect_outside(71, true, CONTROL_OK, "");
    for (uint64_t number = 100; number < 200; number++) { /* they are many */
        ask_from_outside(number, DRAINED_ID);
        expect_outside(number, true, CONTROL_OK, "");
    }
    ck_assert_uint_le(scheduler->drain.askers->len, 16);
    ask_from_outside(72, 7);
    expect_outside(72, false, INVALID_CODE,
                   "node 7 cannot be drained now, because node 4 is being drained; try again when "
                   "that has ended");
    made(1, 0, 1);
    expect_kept(3);
    for (int i = 0; i < 2; i++) {
        ask_from_outside(71, DRAINED_ID);
        expect_outside(71, false, INVALID_CODE,
                       "node 4 cannot be drained: node 4 (127.0.0.1:4102) could not make all "
                       "copies of its parts on others; its log says why");
    }
    expect_quiet();
}
END_TEST

/* ---- the suite ---- */

int main(void)
{
    Suite *const suite = suite_create("scheduler drain");
    TCase *const drains = tcase_create("drains");

    suite_add_tcase(suite, drains);
    tcase_add_checked_fixture(drains, set_up, tear_down);
    tcase_add_test(drains, copies_are_made_before_they_take_the_place_of_what_the_node_has);
    tcase_add_loop_test(drains, a_node_that_cannot_be_drained_is_refused, 0, G_N_ELEMENTS(refused));
    tcase_add_test(drains, one_node_is_drained_at_a_time);
    tcase_add_test(drains, a_node_keeps_its_parts_if_there_is_no_room_for_them);
    tcase_add_test(drains, a_node_keeps_its_parts_if_a_copy_cannot_be_made);
    tcase_add_test(drains, another_loss_comes_first_and_then_it_goes_on);
    tcase_add_test(drains, a_node_keeps_its_parts_if_their_copies_are_gone);
    tcase_add_test(drains, a_node_keeps_its_parts_if_there_are_too_many);
    tcase_add_test(drains, a_drain_waits_for_a_call_under_way);
    tcase_add_test(drains, the_end_of_the_run_ends_a_drain);
    tcase_add_test(drains, a_drained_node_leaves_when_it_knows_that_it_may);
    tcase_add_test(drains, a_node_whose_process_ends_before_it_says_so_has_left);
    tcase_add_test(drains, a_node_with_workers_leaves_when_these_have_ended);
    tcase_add_test(drains, a_drained_node_may_be_asked_to_leave_later);
    tcase_add_test(drains, nodes_that_are_to_end_wait_for_one_another);
    tcase_add_test(drains, without_replicas_a_node_does_not_leave);
    tcase_add_test(drains, an_outside_asker_hears_how_it_goes_each_time_it_asks);
    return run_suite(suite);
}
