/* The scheduler: which workers wait for one another. Cases by hand, and a simulation of workers
 * whose reports come late: every deadlock that it reports is one, and it finds every deadlock. */
#include <string.h>

#include "tests/support/engine/scheduler_fixture.h"
#include "tests/support/runner.h"

#define DEADLOCK_CODE CONTROL_CODE(RUBATO_ERROR_DEADLOCK)

static void wait_clock(uint32_t node, uint32_t epoch, uint32_t rank, uint64_t needed,
                       uint64_t round, const char *clocks)
{
    say(node, (Control){ .kind = CONTROL_WAITS,
                         .waits = { .epoch = epoch,
                                    .rank = rank,
                                    .what = CONTROL_WAIT_CLOCK,
                                    .table = 3,
                                    .table_name = "rows",
                                    .clock = needed,
                                    .round = round,
                                    .own_clocks = clocks } });
}

static void wait_barrier(uint32_t node, uint32_t epoch, uint32_t rank, uint64_t round,
                         const char *clocks)
{
    say(node, (Control){ .kind = CONTROL_WAITS,
                         .waits = { .epoch = epoch,
                                    .rank = rank,
                                    .what = CONTROL_WAIT_BARRIER,
                                    .round = round,
                                    .own_clocks = clocks } });
}

START_TEST(scheduler_fails_a_task_whose_workers_wait_for_one_another)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    wait_barrier(0, epoch, 0, 0, "3:2.");
    expect_quiet();
    wait_clock(2, epoch, 5, 3, 0, "3:3.");
    expect_verdict_everywhere(
        CONTROL_CANCEL, DEADLOCK_CODE,
        "task x is in a deadlock: worker 0 (node 0) waits in a barrier for worker 5, and worker 5 "
        "(node 7) waits for clock 3 of table rows, where worker 0 is at 2");
    expect_quiet();
    wait_barrier(1, epoch, 2, 0, "3:0."); /* late */
    expect_quiet();
}
END_TEST

START_TEST(scheduler_finds_two_tables_that_are_clocked_crosswise)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    wait_clock(0, epoch, 0, 1, 0, "3:0 4:7.");
    say(1, (Control){ .kind = CONTROL_WAITS,
                      .waits = { .epoch = epoch,
                                 .rank = 1,
                                 .what = CONTROL_WAIT_CLOCK,
                                 .table = 4,
                                 .table_name = "others",
                                 .clock = 8,
                                 .own_clocks = "3:9 4:8." } });
    expect_quiet(); /* nobody holds worker 0: worker 1 is at 9 of table 3 */
    wait_clock(0, epoch, 0, 10, 0, "3:10 4:7.");
    expect_verdict_everywhere(
        CONTROL_CANCEL, DEADLOCK_CODE,
        "task x is in a deadlock: worker 0 (node 0) waits for clock 10 of table rows, where worker "
        "1 "
        "is at 9, and worker 1 (node 4) waits for clock 8 of table others, where worker 0 is at 7");
}
END_TEST

START_TEST(scheduler_sees_no_deadlock_where_somebody_may_still_go_on)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    wait_clock(0, epoch, 0, 3, 0, "3:3."); /* for somebody who computes */
    wait_clock(0, epoch, 1, 3, 0, "3:3.");
    expect_quiet();
    for (uint32_t rank = 3; rank < 6; rank++) /* for the two, which may still come */
        wait_barrier(2, epoch, rank, 0, "3:3.");
    expect_quiet();
    wait_clock(1, epoch, 2, 1, 0, "4:5 3:1."); /* a clock that all have: the answer is on its way */
    expect_quiet();
    wait_barrier(0, epoch, 0, 0, "3:3.");
    wait_barrier(0, epoch, 1, 0, "3:3.");
    wait_barrier(1, epoch, 2, 0, "3:1."); /* all have come: the release is on its way */
    expect_quiet();
}
END_TEST

/* A worker's clock on a table is unknown if the worker has not told it: it may be any. */
START_TEST(scheduler_does_not_guess_clocks)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    wait_barrier(0, epoch, 0, 0, "4:2.");
    wait_clock(2, epoch, 5, 3, 0, "3:3.");
    expect_quiet();
    wait_barrier(0, epoch, 0, 0, "4:2 3:2.");
    expect(0, CONTROL_CANCEL);
}
END_TEST

START_TEST(scheduler_names_the_slowest_of_those_that_hold_a_worker)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    wait_barrier(0, epoch, 0, 0, "3:2.");
    wait_barrier(1, epoch, 2, 0, "3:1.");
    expect_quiet();
    wait_clock(2, epoch, 5, 3, 0, "3:3.");
    expect_verdict_everywhere(CONTROL_CANCEL, DEADLOCK_CODE,
                              "task x is in a deadlock: worker 5 (node 7) waits for clock 3 of "
                              "table rows, where worker 2 "
                              "is at 1, and worker 2 (node 4) waits in a barrier for worker 5");
}
END_TEST

/* An outdated report holds no worker back. */
START_TEST(scheduler_goes_by_what_a_worker_has_said_last)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    wait_barrier(0, epoch, 0, 0, "3:2.");
    wait_clock(2, epoch, 5, 3, 1, "3:3."); /* it has passed that barrier: so has worker 0 */
    expect_quiet();
    wait_clock(2, epoch, 5, 4, 1, "3:4.");
    wait_barrier(0, epoch, 0, 1, "3:4.");
    expect_quiet();
    wait_clock(2, epoch, 5, 5, 1, "3:5.");
    expect(0, CONTROL_CANCEL);
}
END_TEST

static const char *const damaged[] = { "",         "3:2",   "3:2 ",          "3:2 .", "3.",   ":2.",
                                       "3:2,4:1.", "3:2. ", "4294967296:1.", "3: 2.", "-3:2." };

START_TEST(scheduler_ignores_clocks_that_cannot_be_read)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    wait_barrier(0, epoch, 0, 0, "3:0.");
    ck_assert(!hears(1, (Control){ .kind = CONTROL_WAITS,
                                   .waits = { .epoch = epoch,
                                              .rank = 1,
                                              .what = CONTROL_WAIT_CLOCK,
                                              .table = 3,
                                              .clock = 1,
                                              .own_clocks = damaged[_i] } }));
    expect_quiet();
}
END_TEST

/* ---- workers in random programs, whose reports are late ---- */

enum { N_WORKERS = 5, N_TABLES = 2, N_STEPS = 12, N_SEEDS = 400 };

typedef enum { STEP_CLOCK, STEP_GET, STEP_BARRIER } Step;

typedef struct {
    Step step;
    uint32_t table, staleness;
} Action;

typedef struct {
    Action actions[N_STEPS];
    uint32_t n_actions, at; /* at the end: retired */
    uint64_t clocks[N_TABLES];
    bool has_come; /* to the barrier that it stands before */
    uint64_t n_passed;
    bool has_reported; /* this wait */
} Player;

typedef struct {
    uint32_t rank;
    Control control;
    char text[64];
} Report;

typedef struct {
    GRand *rand;
    Player players[N_WORKERS];
    GQueue reports[N_NODES];
    uint32_t epoch;
} Stage;

static uint32_t pick(Stage *stage, uint32_t n)
{
    return (uint32_t)g_rand_int_range(stage->rand, 0, (gint32)n);
}

static bool is_over(const Player *player)
{
    return player->at == player->n_actions;
}

static uint64_t needed_of(const Player *player)
{
    const Action *action = &player->actions[player->at];
    const uint64_t clock = player->clocks[action->table];

    return clock > action->staleness ? clock - action->staleness : 0;
}

/* Whether it can do its next action now. */
static bool can_go_on(const Stage *stage, const Player *player)
{
    const Action *action = &player->actions[player->at];

    if (is_over(player))
        return false;
    for (uint32_t i = 0; i < N_WORKERS; i++) {
        const Player *other = &stage->players[i];

        if (is_over(other))
            continue;
        if (action->step == STEP_GET && other->clocks[action->table] < needed_of(player))
            return false;
        if (action->step == STEP_BARRIER && player->has_come && !other->has_come &&
            other->n_passed == player->n_passed)
            return false;
    }
    return true;
}

/* A worker reaches a barrier in one step, and passes it in another. */
static void go_on(Player *player)
{
    const Action *action = &player->actions[player->at];

    if (action->step == STEP_BARRIER && !player->has_come) {
        player->has_come = true;
        return;
    }
    if (action->step == STEP_BARRIER) {
        player->has_come = false;
        player->n_passed++;
    }
    if (action->step == STEP_CLOCK)
        player->clocks[action->table]++;
    player->at++;
    player->has_reported = false;
}

static void report(Stage *stage, uint32_t rank)
{
    Player *player = &stage->players[rank];
    const Action *action = &player->actions[player->at];
    const bool in_barrier = action->step == STEP_BARRIER;
    Report *made = g_new0(Report, 1);

    player->has_reported = true;
    g_snprintf(made->text, sizeof made->text, "0:%u 1:%u.", (unsigned)player->clocks[0],
               (unsigned)player->clocks[1]);
    made->control =
        (Control){ .kind = CONTROL_WAITS,
                   .waits = { .epoch = stage->epoch,
                              .rank = rank,
                              .what = in_barrier ? CONTROL_WAIT_BARRIER : CONTROL_WAIT_CLOCK,
                              .round = player->n_passed,
                              .table = action->table,
                              .clock = in_barrier ? 0 : needed_of(player),
                              .table_name = "rows",
                              .own_clocks = made->text } };
    g_queue_push_tail(&stage->reports[rank % N_NODES], made);
}

/* Delivers the oldest report of a node; false if it has none. */
static bool deliver(Stage *stage, uint32_t node)
{
    g_autofree Report *made = g_queue_pop_head(&stage->reports[node]);

    if (made == NULL)
        return false;
    say(node, made->control);
    return true;
}

/* Does one thing that can happen; false if nothing can. */
static bool happen(Stage *stage)
{
    const uint32_t begin = pick(stage, N_WORKERS);

    if (pick(stage, 4) == 0 && deliver(stage, pick(stage, N_NODES)))
        return true;
    for (uint32_t i = 0; i < N_WORKERS; i++) {
        const uint32_t rank = (begin + i) % N_WORKERS;
        Player *player = &stage->players[rank];

        if (can_go_on(stage, player)) {
            go_on(player);
            return true;
        }
        /* it may take any time until it says that it waits */
        if (!is_over(player) && !player->has_reported && pick(stage, 3) == 0) {
            report(stage, rank);
            return true;
        }
    }
    for (uint32_t rank = 0; rank < N_WORKERS; rank++)
        if (!is_over(&stage->players[rank]) && !stage->players[rank].has_reported) {
            report(stage, rank);
            return true;
        }
    for (uint32_t node = 0; node < N_NODES; node++)
        if (deliver(stage, node))
            return true;
    return false;
}

/* Mostly the same actions for all workers, so that most runs end well. */
static void write_programs(Stage *stage)
{
    const uint32_t n = 4 + pick(stage, N_STEPS - 4);

    for (uint32_t i = 0; i < n; i++) {
        const Action common = { (Step)pick(stage, 3), pick(stage, N_TABLES), pick(stage, 2) };

        for (uint32_t rank = 0; rank < N_WORKERS; rank++) {
            const Action own = { (Step)pick(stage, 3), pick(stage, N_TABLES), pick(stage, 2) };

            stage->players[rank].actions[i] = pick(stage, 30) == 0 ? own : common;
            stage->players[rank].n_actions = n;
        }
    }
}

/* The workers that the text names must stay where they are, whatever happens. */
static void expect_stuck(Stage *stage, const char *text, uint32_t seed)
{
    uint32_t at[N_WORKERS];
    bool has_come[N_WORKERS];
    unsigned n_named = 0;

    for (uint32_t rank = 0; rank < N_WORKERS; rank++) {
        at[rank] = stage->players[rank].at;
        has_come[rank] = stage->players[rank].has_come;
    }
    while (happen(stage))
        ;
    for (uint32_t rank = 0; rank < N_WORKERS; rank++) {
        g_autofree char *name = g_strdup_printf("worker %u (", rank);

        if (strstr(text, name) == NULL)
            continue;
        n_named++;
        ck_assert_msg(stage->players[rank].at == at[rank] &&
                          stage->players[rank].has_come == has_come[rank],
                      "seed %u: worker %u went on, although: %s", seed, rank, text);
    }
    ck_assert_uint_ge(n_named, 2);
}

/* Whether the scheduler has called it a deadlock, and how. (transfer full) */
static char *take_verdict(void);

static void play(uint32_t seed, unsigned *n_deadlocks)
{
    Stage stage = { .rand = g_rand_new_with_seed(seed) };
    g_autofree char *text = NULL;
    bool all_over = true;

    begin();
    stage.epoch = agree(1, CONTROL_CALL_RUN, "task x");
    write_programs(&stage);
    while ((text = take_verdict()) == NULL && happen(&stage))
        ;
    if (text != NULL)
        expect_stuck(&stage, text, seed);
    for (uint32_t rank = 0; rank < N_WORKERS; rank++)
        all_over &= is_over(&stage.players[rank]);
    ck_assert_msg(all_over == (text == NULL), "seed %u: %s", seed,
                  text != NULL ? text : "a deadlock was not found");
    *n_deadlocks += text != NULL;
    for (uint32_t node = 0; node < N_NODES; node++)
        g_queue_clear_full(&stage.reports[node], g_free);
    g_rand_free(stage.rand);
}

static char *verdict;

static void note_cancel(void *user, uint32_t node, const Control *control)
{
    if (control->kind != CONTROL_CANCEL)
        put_sent(user, node, control);
    else if (node == 0 && verdict == NULL)
        verdict = g_strdup(control->cancel.outcome.text);
}

static char *take_verdict(void)
{
    return g_steal_pointer(&verdict);
}

START_TEST(scheduler_finds_each_deadlock_and_no_other)
{
    unsigned n_deadlocks = 0;

    for (uint32_t seed = 0; seed < N_SEEDS; seed++) {
        replace_scheduler(&CONFIG, note_cancel);
        play(seed, &n_deadlocks);
    }
    ck_assert_uint_ge(n_deadlocks, N_SEEDS / 10);
    ck_assert_uint_le(n_deadlocks, N_SEEDS - N_SEEDS / 10);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler waits");
    TCase *cases = tcase_create("deadlocks");

    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, scheduler_fails_a_task_whose_workers_wait_for_one_another);
    tcase_add_test(cases, scheduler_finds_two_tables_that_are_clocked_crosswise);
    tcase_add_test(cases, scheduler_sees_no_deadlock_where_somebody_may_still_go_on);
    tcase_add_test(cases, scheduler_goes_by_what_a_worker_has_said_last);
    tcase_add_test(cases, scheduler_does_not_guess_clocks);
    tcase_add_test(cases, scheduler_names_the_slowest_of_those_that_hold_a_worker);
    tcase_add_loop_test(cases, scheduler_ignores_clocks_that_cannot_be_read, 0,
                        (int)G_N_ELEMENTS(damaged));
    tcase_add_test(cases, scheduler_finds_each_deadlock_and_no_other);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
