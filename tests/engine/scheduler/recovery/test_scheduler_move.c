/* The scheduler: moves of parts in a run whose nodes may be lost. */
#include "engine/scheduler/scheduler_state.h"
#include "tests/support/runner.h"
#include "tests/support/scheduler/join_fixture.h"

/* The process is told the move, and does its steps as the others do. */
START_TEST(parts_move_after_a_loss)
{
    const char *const told = "move 0 2;4 1 5";

    begin_and_lose();
    admit_wholly(3, STEP, COUNTED);
    propose_told(0, 1, CONTROL_CALL_MOVE, told);
    propose_told(2, 1, CONTROL_CALL_MOVE, told);
    for (ControlStep step = CONTROL_STEP_PREPARE; step <= CONTROL_STEP_OPEN; step++) {
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

/* Up to SEND a move fails if one of its two nodes is lost, and otherwise goes on; from INSTALL on
 * it ends as it would have. */
static const struct {
    const char *told;
    ControlStep at, then;
    uint32_t code;
} losses[] = {
    { "move 0 2;4 1 5", CONTROL_STEP_SEND, CONTROL_STEP_INSTALL, CONTROL_OK },
    { "move 1 2;4 1 5", CONTROL_STEP_SEND, CONTROL_STEP_TAKE_BACK, LOST_CODE },
    { "move 0 1;4 1 5", CONTROL_STEP_SEND, CONTROL_STEP_TAKE_BACK, LOST_CODE },
    { "move 0 1;4 1 5", CONTROL_STEP_PREPARE, CONTROL_STEP_TAKE_BACK, LOST_CODE },
    { "move 0 1;4 1 5", CONTROL_STEP_AHEAD, CONTROL_STEP_TAKE_BACK, LOST_CODE },
    { "move 0 2;4 1 5", CONTROL_STEP_AHEAD, CONTROL_STEP_CLOSE, CONTROL_OK },
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

    begin_with_replicas();
    for (uint32_t i = 0; i < N_NODES; i++)
        propose_told(i, 1, CONTROL_CALL_MOVE, losses[_i].told);
    for (ControlStep step = CONTROL_STEP_PREPARE; step < at; step++)
        if (step != CONTROL_STEP_CUT) /* of a snapshot */
            all_ready(step);
    for (uint32_t i = 0; i < N_NODES; i++)
        ck_assert_uint_eq(expect(i, CONTROL_GO)->go.step, at);
    ready(0, 1);
    lose(GONE);
    for (uint32_t i = 0; i < N_NODES; i += 2)
        ck_assert_uint_eq(expect(i, CONTROL_RECOVER)->recover.step, CONTROL_RECOVER_CLOSE);
    expect_quiet(); /* node 2 does the step yet */
    ready(2, 1);
    for (ControlStep step = then; step <= (moves ? CONTROL_STEP_OPEN : CONTROL_STEP_REOPEN); step++)
        if (step != CONTROL_STEP_CUT)
            live_ready(step);
    for (uint32_t i = 0; i < N_NODES; i += 2)
        ck_assert_uint_eq(expect(i, CONTROL_COMMIT)->commit.outcome.code, losses[_i].code);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler_move");
    TCase *moves = tcase_create("moves");

    tcase_add_checked_fixture(moves, set_up, tear_down);
    tcase_add_test(moves, parts_move_after_a_loss);
    tcase_add_loop_test(moves, move_goes_on_or_is_taken_back_when_a_node_is_lost, 0,
                        G_N_ELEMENTS(losses));
    suite_add_tcase(suite, moves);
    return run_suite(suite);
}
