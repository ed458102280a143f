/* The scheduler: which workers wait for one another. Cases by hand, and a simulation of workers
 * whose reports come late: every deadlock that it reports is one, and it finds every deadlock. */
#include <string.h>

#include "engine/collectives/negotiation/tensor_asked.h"
#include "tests/support/runner.h"
#include "tests/support/scheduler/scheduler_fixture.h"

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

static void wait_collective(uint32_t node, uint32_t epoch, uint32_t rank, const char *clocks,
                            const char *asked)
{
    say(node, (Control){ .kind = CONTROL_WAITS,
                         .waits = { .epoch = epoch,
                                    .rank = rank,
                                    .what = CONTROL_WAIT_COLLECTIVE,
                                    .own_clocks = clocks,
                                    .asked = asked } });
}

/* For clock 3 of the table. */
static void wait_clock_and_ask(uint32_t node, uint32_t epoch, uint32_t rank, const char *asked)
{
    say(node, (Control){ .kind = CONTROL_WAITS,
                         .waits = { .epoch = epoch,
                                    .rank = rank,
                                    .what = CONTROL_WAIT_CLOCK,
                                    .table = 3,
                                    .table_name = "rows",
                                    .clock = 3,
                                    .own_clocks = "3:3.",
                                    .asked = asked } });
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

typedef struct {
    const char *waits, *holds; /* what the two have asked for */
    const char *in;            /* NULL: it is no deadlock */
} Pair;

#define SET_0 "s 0 0 0 2 7 1\n"
#define SET_3 "s 3 5 1 2 4 0\n"

static const Pair pairs[] = {
    { SET_0 "N grad/7\n.\n", SET_0 ".\n", "the collective grad/7" },
    { SET_0 "n a\nN b\nn c\n.\n", SET_0 "n a\nn c\n.\n", "the collective b" },
    { SET_0 SET_3 "N a\n.\n", SET_0 "n a\n" SET_3 ".\n", "the collective a of set 3" },
    { SET_0 "J\n.\n", SET_0 "n a\n.\n", "a join" },
    { SET_0 "C\n.\n", SET_0 "j\n.\n", "a change of the sets of workers" },
    { SET_0 "N a\n.\n", "s 0 0 0 2 6 0\nn b\n.\n", "the collective a" }, /* it knows less */
    { SET_0 "N a\nN b\n.\n", SET_0 "n a\n.\n", "the collective a" },     /* a group */
    { SET_0 "N a\n.\n", SET_0 "n a\n.\n", NULL },
    { SET_0 "N a\n.\n", SET_0 "j\n.\n", NULL },
    { SET_0 "N a\n.\n", "s 0 0 0 2 8 1\n.\n", NULL }, /* it may have a behind it */
    { SET_0 "N a\n.\n", "s 0 0 0 2 7 2\n.\n", NULL },
    { SET_0 "N a\n.\n", "s 0 0 1 2 7 1\n.\n", NULL },          /* the set has other members */
    { SET_0 "N a\n.\n", "", NULL },                            /* nothing is known of it */
    { "s 0 0 0 3 7 1\nN a\n.\n", "s 0 0 0 3 7 1\n.\n", NULL }, /* another member may return */
    { SET_0 "J\n.\n", SET_0 "j\n.\n", NULL },
    { SET_0 "C\n.\n", SET_0 "c\n.\n", NULL },
};

START_TEST(scheduler_finds_who_waits_in_a_collective_for_whom)
{
    const Pair *const pair = &pairs[_i];
    g_autofree char *text = NULL;

    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    wait_clock_and_ask(2, epoch, 5, pair->holds);
    expect_quiet();
    wait_collective(0, epoch, 0, "3:2.", pair->waits);
    if (pair->in == NULL) {
        expect_quiet();
        return;
    }
    text = g_strdup_printf("task x is in a deadlock: worker 5 (node 7) waits for clock 3 of table "
                           "rows, where worker 0 is at 2, and worker 0 (node 0) waits in %s for "
                           "worker 5",
                           pair->in);
    expect_verdict_everywhere(CONTROL_CANCEL, DEADLOCK_CODE, text);
}
END_TEST

/* Whoever waits in a barrier holds one who waits in a collective, and the other way round. */
START_TEST(scheduler_finds_a_barrier_and_a_collective)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    say(1, (Control){ .kind = CONTROL_WAITS,
                      .waits = { .epoch = epoch,
                                 .rank = 2,
                                 .what = CONTROL_WAIT_BARRIER,
                                 .own_clocks = ".",
                                 .asked = SET_0 ".\n" } });
    wait_collective(0, epoch, 0, ".", SET_0 "N a\n.\n");
    expect_verdict_everywhere(
        CONTROL_CANCEL, DEADLOCK_CODE,
        "task x is in a deadlock: worker 2 (node 4) waits in a barrier for worker 0, and worker 0 "
        "(node 0) waits in the collective a for worker 2");
}
END_TEST

static const char *const damaged_asked[] = {
    ".",
    SET_0,
    SET_0 ".",
    "n a\n.\n",
    "s 0 0 0 2 7\n.\n",
    SET_0 "N\n.\n",
    SET_0 "J a\n.\n",
    SET_0 "x\n.\n",
    SET_0 ".\n.\n",
    "s 0 0 0 2 7 1 1\nN a\n.\n",
    SET_0 ".\n",
    SET_0 "n a\nN a\n.\n",
    SET_0 "J\n" SET_3 "J\n.\n",
    "s 0 0 0 2 7 -1\nN a\n.\n",
    "s 0 0 4294967296 2 7 1\nN a\n.\n",
};

/* Also a worker that waits in a collective, and not for any. */
START_TEST(scheduler_ignores_what_cannot_be_read_of_collectives)
{
    begin();
    const uint32_t epoch = agree(1, CONTROL_CALL_RUN, "task x");
    ck_assert(!hears(1, (Control){ .kind = CONTROL_WAITS,
                                   .waits = { .epoch = epoch,
                                              .rank = 1,
                                              .what = CONTROL_WAIT_COLLECTIVE,
                                              .own_clocks = ".",
                                              .asked = damaged_asked[_i] } }));
    expect_quiet();
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

enum { N_WORKERS = 5, N_TABLES = 2, N_STEPS = 12, N_SEEDS = 1000, MOST_DECIDED = 256 };

/* ASK asks for the collective of a table's number, and COLLECTIVE waits for it, too. */
typedef enum { STEP_CLOCK, STEP_GET, STEP_BARRIER, STEP_ASK, STEP_COLLECTIVE, N_STEP_KINDS } Step;

typedef struct {
    Step step;
    uint32_t table, staleness;
} Action;

typedef struct {
    Action actions[N_STEPS];
    uint32_t n_actions, at; /* at the end: retired */
    uint64_t clocks[N_TABLES];
    bool has_come; /* to the barrier that it stands before, or has asked */
    uint64_t n_passed;
    uint32_t n_asked[N_TABLES]; /* for this collective */
    bool has_reported;          /* this wait */
} Player;

typedef struct {
    uint32_t rank;
    Control control;
    char text[64];
    GString *asked;
} Report;

/* What a node has heard of what was decided. */
typedef struct {
    uint32_t n;
    uint32_t n_of[N_TABLES];
    bool is_closed; /* a worker has returned: all that is pending has failed */
} Heard;

typedef struct {
    GRand *rand;
    Player players[N_WORKERS];
    GQueue reports[N_NODES];
    uint32_t epoch;

    /* collectives, in the order in which they are decided; N_TABLES: the set closes */
    uint32_t decided[MOST_DECIDED];
    uint32_t n_decided;
    uint32_t n_decided_of[N_TABLES];
    bool is_closed;
    Heard heard[N_NODES];
} Stage;

static void free_report(void *data)
{
    Report *const made = data;

    g_string_free(made->asked, TRUE);
    g_free(made);
}

static uint32_t pick(Stage *stage, uint32_t n)
{
    return (uint32_t)g_rand_int_range(stage->rand, 0, (gint32)n);
}

static bool is_over(const Player *player)
{
    return player->at == player->n_actions;
}

static bool is_in_barrier(const Player *player)
{
    return player->has_come && player->actions[player->at].step == STEP_BARRIER;
}

static uint64_t needed_of(const Player *player)
{
    const Action *action = &player->actions[player->at];
    const uint64_t clock = player->clocks[action->table];

    return clock > action->staleness ? clock - action->staleness : 0;
}

/* ---- their collectives ---- */

static void decide(Stage *stage, uint32_t what)
{
    ck_assert_uint_lt(stage->n_decided, MOST_DECIDED);
    stage->decided[stage->n_decided++] = what;
}

/* Whether the worker has asked for it, and knows of no decision. */
static bool is_pending(const Stage *stage, uint32_t rank, uint32_t what)
{
    const Heard *const heard = &stage->heard[rank % N_NODES];

    return !heard->is_closed && stage->players[rank].n_asked[what] > heard->n_of[what];
}

static void ask(Stage *stage, uint32_t rank, uint32_t what)
{
    bool all = true;

    if (stage->heard[rank % N_NODES].is_closed || is_pending(stage, rank, what))
        return;
    stage->players[rank].n_asked[what]++;
    for (uint32_t i = 0; i < N_WORKERS; i++)
        all &= stage->players[i].n_asked[what] > stage->n_decided_of[what];
    if (!all || stage->is_closed)
        return;
    stage->n_decided_of[what]++;
    decide(stage, what);
}

/* The node hears of the next decision, and its workers report again. False: there is none. */
static bool hear(Stage *stage, uint32_t node)
{
    Heard *const heard = &stage->heard[node];

    if (heard->n == stage->n_decided)
        return false;
    const uint32_t what = stage->decided[heard->n++];
    if (what == N_TABLES)
        heard->is_closed = true;
    else
        heard->n_of[what]++;
    for (uint32_t rank = node; rank < N_WORKERS; rank += N_NODES)
        stage->players[rank].has_reported = false;
    return true;
}

/* ---- steps ---- */

/* Whether it can do its next action now. */
static bool can_go_on(const Stage *stage, uint32_t rank)
{
    const Player *const player = &stage->players[rank];
    const Action *action = &player->actions[player->at];

    if (is_over(player))
        return false;
    if (action->step == STEP_COLLECTIVE)
        return !player->has_come || !is_pending(stage, rank, action->table);
    for (uint32_t i = 0; i < N_WORKERS; i++) {
        const Player *other = &stage->players[i];

        if (is_over(other))
            continue;
        if (action->step == STEP_GET && other->clocks[action->table] < needed_of(player))
            return false;
        if (action->step == STEP_BARRIER && player->has_come && !is_in_barrier(other) &&
            other->n_passed == player->n_passed)
            return false;
    }
    return true;
}

/* A worker reaches a barrier in one step, and passes it in another; so with collectives. */
static void go_on(Stage *stage, uint32_t rank)
{
    Player *const player = &stage->players[rank];
    const Action *action = &player->actions[player->at];
    const bool waits = action->step == STEP_BARRIER || action->step == STEP_COLLECTIVE;
    const bool asks = action->step == STEP_ASK || action->step == STEP_COLLECTIVE;

    if (asks && !player->has_come)
        ask(stage, rank, action->table);
    if (waits && !player->has_come) {
        player->has_come = true;
        return;
    }
    player->has_come = false;
    player->n_passed += action->step == STEP_BARRIER;
    player->clocks[action->table] += action->step == STEP_CLOCK;
    player->at++;
    player->has_reported = false;
    if (!is_over(player) || stage->is_closed)
        return;
    stage->is_closed = true;
    decide(stage, N_TABLES);
}

static GString *write_asked(const Stage *stage, uint32_t rank)
{
    const Player *const player = &stage->players[rank];
    const Action *const action = &player->actions[player->at];
    GString *const text = g_string_new(NULL);

    tensor_asked_add_set(
        text, &(TensorAskedSet){ .n = N_WORKERS, .n_verdicts = stage->heard[rank % N_NODES].n });
    for (uint32_t what = 0; what < N_TABLES; what++)
        if (is_pending(stage, rank, what))
            tensor_asked_add(text, TENSOR_ASKED_NAME, what == 0 ? "a" : "b",
                             action->step == STEP_COLLECTIVE && action->table == what);
    tensor_asked_end(text);
    return text;
}

static void report(Stage *stage, uint32_t rank)
{
    Player *player = &stage->players[rank];
    const Action *action = &player->actions[player->at];
    static const ControlWait kinds[] = { [STEP_GET] = CONTROL_WAIT_CLOCK,
                                         [STEP_BARRIER] = CONTROL_WAIT_BARRIER,
                                         [STEP_COLLECTIVE] = CONTROL_WAIT_COLLECTIVE };
    Report *made = g_new0(Report, 1);

    player->has_reported = true;
    g_snprintf(made->text, sizeof made->text, "0:%u 1:%u.", (unsigned)player->clocks[0],
               (unsigned)player->clocks[1]);
    made->asked = write_asked(stage, rank);
    made->control = (Control){ .kind = CONTROL_WAITS,
                               .waits = { .epoch = stage->epoch,
                                          .rank = rank,
                                          .what = kinds[action->step],
                                          .round = player->n_passed,
                                          .table = action->table,
                                          .clock = action->step == STEP_GET ? needed_of(player) : 0,
                                          .table_name = "rows",
                                          .own_clocks = made->text,
                                          .asked = made->asked->str } };
    g_queue_push_tail(&stage->reports[rank % N_NODES], made);
}

/* Delivers the oldest report of a node; false if it has none. */
static bool deliver(Stage *stage, uint32_t node)
{
    Report *const made = g_queue_pop_head(&stage->reports[node]);

    if (made == NULL)
        return false;
    say(node, made->control);
    free_report(made);
    return true;
}

/* Does one thing that can happen; false if nothing can. */
static bool happen(Stage *stage)
{
    const uint32_t begin = pick(stage, N_WORKERS);

    if (pick(stage, 4) == 0 && deliver(stage, pick(stage, N_NODES)))
        return true;
    if (pick(stage, 4) == 0 && hear(stage, pick(stage, N_NODES)))
        return true;
    for (uint32_t i = 0; i < N_WORKERS; i++) {
        const uint32_t rank = (begin + i) % N_WORKERS;
        Player *player = &stage->players[rank];

        if (can_go_on(stage, rank)) {
            go_on(stage, rank);
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
        if (deliver(stage, node) || hear(stage, node))
            return true;
    return false;
}

/* Mostly the same actions for all workers, so that most runs end well. */
static void write_programs(Stage *stage)
{
    const uint32_t n = 4 + pick(stage, N_STEPS - 4);

    for (uint32_t i = 0; i < n; i++) {
        const Action common = { (Step)pick(stage, N_STEP_KINDS), pick(stage, N_TABLES),
                                pick(stage, 2) };

        for (uint32_t rank = 0; rank < N_WORKERS; rank++) {
            const Action own = { (Step)pick(stage, N_STEP_KINDS), pick(stage, N_TABLES),
                                 pick(stage, 2) };

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
        g_queue_clear_full(&stage.reports[node], free_report);
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
    tcase_add_loop_test(cases, scheduler_finds_who_waits_in_a_collective_for_whom, 0,
                        (int)G_N_ELEMENTS(pairs));
    tcase_add_test(cases, scheduler_finds_a_barrier_and_a_collective);
    tcase_add_loop_test(cases, scheduler_ignores_what_cannot_be_read_of_collectives, 0,
                        (int)G_N_ELEMENTS(damaged_asked));
    tcase_add_test(cases, scheduler_names_the_slowest_of_those_that_hold_a_worker);
    tcase_add_loop_test(cases, scheduler_ignores_clocks_that_cannot_be_read, 0,
                        (int)G_N_ELEMENTS(damaged));
    tcase_add_test(cases, scheduler_finds_each_deadlock_and_no_other);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
