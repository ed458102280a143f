/* The scheduler's journal begins anew with the scheduler's state: it stays small, whatever the run
 * does, and another process goes on from it.
 *
 * That nothing is missing in the state, other tests show: all of the scheduler's run once more with
 * one that is made of its state before each input (tests/support/scheduler/scheduler_fixture.h);
 * and in test_scheduler_join_simulation processes go on from such journals.
 *
 * RUBATO_STATE_ROUNDS=1000000 says how often what is repeated is; then sizes and times are
 * printed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/control/control_messages.h"
#include "engine/scheduler/scheduler_state.h"
#include "engine/scheduler/scheduler_task.h"
#include "tests/support/runner.h"
#include "tests/support/scheduler/scheduler_fixture.h"
#include "tests/support/scheduler/scheduler_steps.h"

enum { KEPT_BYTES = 16 << 10, BEAT_EVERY = 50 /* rounds */ };

/* ---- a journal in memory ---- */

static GPtrArray *records; /* of GBytes */
static uint64_t n_bytes, most_bytes, n_begun;
static bool is_full; /* there is no room for a journal that begins anew */

static bool add(void *user, const void *record, size_t size)
{
    (void)user;
    g_ptr_array_add(records, g_bytes_new(record, size));
    n_bytes += size;
    most_bytes = MAX(most_bytes, n_bytes);
    return true;
}

static bool read_all(void *user, SchedulerRecordFunc take, void *taker, GError **error)
{
    (void)user;
    for (guint i = 0; i < records->len; i++) {
        gsize size;
        const void *const record = g_bytes_get_data(records->pdata[i], &size);

        if (take(taker, record, size))
            continue;
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "record %u makes no sense", i);
        return false;
    }
    return true;
}

static bool begin_again(void *user, const void *record, size_t size)
{
    if (is_full)
        return false;
    g_ptr_array_set_size(records, 0);
    n_bytes = 0;
    n_begun++;
    return add(user, record, size);
}

/* As many as asked for by who measures. */
static uint64_t count_rounds(uint64_t usual)
{
    const char *const more = getenv("RUBATO_STATE_ROUNDS");

    return more != NULL ? strtoull(more, NULL, 10) : usual;
}

static bool is_measured(void)
{
    return count_rounds(0) > 0;
}

static uint64_t kept_bytes(void)
{
    return is_measured() ? 256 << 10 /* as a file's */ : KEPT_BYTES;
}

/* ---- nodes ---- */

static uint64_t n_heard[N_NODES], n_said[N_NODES]; /* messages that count */
static bool is_kept;                               /* outputs can be expected */

static void note_sent(void *user, uint32_t node, const Control *control)
{
    n_heard[node] += control_message_counts(control->kind);
    if (is_kept)
        put_sent(user, node, control);
}

static void tell(uint32_t node, Control control)
{
    n_said[node] += control_message_counts(control.kind);
    say(node, control);
}

static void make_scheduler(void)
{
    const SchedulerJournal journal = {
        .add = add, .read = read_all, .begin_again = begin_again, .kept_bytes = kept_bytes()
    };
    SchedulerConfig config = CONFIG;

    config.journal = &journal;
    config.admits = true;
    replace_scheduler(&config, note_sent);
}

static void beat_and_tick(void)
{
    now_ms += 10;
    for (uint32_t i = 1; i < N_NODES; i++)
        tell(i, (Control){ .kind = CONTROL_BEAT, .beat = { n_heard[i] } });
    tick();
}

static void make_call(ControlPropose propose)
{
    for (uint32_t i = 0; i < N_NODES; i++)
        tell(i, (Control){ .kind = CONTROL_PROPOSE, .propose = propose });
    for (uint32_t i = 0; i < N_NODES; i++)
        tell(i, (Control){ .kind = CONTROL_READY, .ready = { .call = propose.call } });
}

/* Task `epoch` of the run. It goes on without node 0, which has no worker. */
static uint32_t begin_task(uint32_t epoch)
{
    make_call((ControlPropose){ .call = epoch + 1u,
                                .what = CONTROL_CALL_RUN,
                                .name = "task x",
                                .digest = "same",
                                .arguments = "same",
                                .workers = "0 1 1",
                                .survives = true });
    return epoch;
}

static void come_to_barrier(uint32_t epoch, uint64_t round)
{
    for (uint32_t i = 1; i < N_NODES; i++)
        tell(i, (Control){ .kind = CONTROL_ARRIVE, .arrive = { .epoch = epoch, .round = round } });
}

static void retire_own(uint32_t epoch)
{
    tell(0, (Control){ .kind = CONTROL_ARRIVE,
                       .arrive = { .epoch = epoch, .round = CONTROL_NO_ROUND } });
}

static void end_task(uint32_t epoch)
{
    for (uint32_t i = 0; i < N_NODES; i++)
        tell(i, (Control){ .kind = CONTROL_TASK_DONE, .task_done = { .epoch = epoch } });
}

static void take_snapshot(uint64_t number)
{
    static const ControlStep steps[] = { CONTROL_STEP_PREPARE, CONTROL_STEP_CLOSE,
                                         CONTROL_STEP_CUT,     CONTROL_STEP_WRITE,
                                         CONTROL_STEP_COMMIT,  CONTROL_STEP_FORGET };

    tell(1, (Control){ .kind = CONTROL_SNAPSHOT_ASK,
                       .snapshot = { .number = number, .spec = "here\n" } });
    for (size_t step = 0; step < G_N_ELEMENTS(steps); step++)
        for (uint32_t i = 0; i < N_NODES; i++)
            tell(i, (Control){ .kind = CONTROL_SNAPSHOT_DONE,
                               .snapshot = { .number = number, .step = steps[step] } });
}

static void set_up_journal(void)
{
    set_up();
    records = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
    n_bytes = most_bytes = n_begun = 0;
    is_kept = is_full = false;
    memset(n_heard, 0, sizeof n_heard);
    memset(n_said, 0, sizeof n_said);
    make_scheduler();
    begin();
    make_call((ControlPropose){ .call = 1,
                                .what = CONTROL_CALL_CREATE,
                                .name = "table a",
                                .digest = "same",
                                .arguments = "same",
                                .survives = true }); /* so the run does, too */
}

static void tear_down_journal(void)
{
    tear_down();
    g_ptr_array_unref(records);
}

/* Nodes come back, having heard all that the process before has said: they hear of its loss next,
 * and the task is where it was. */
static void expect_going_on(uint32_t epoch, uint64_t round)
{
    const gint64 begin_us = g_get_monotonic_time();
    const uint64_t run_id = scheduler_run_id(scheduler);
    g_autoptr(GError) error = NULL;

    make_scheduler();
    ck_assert_msg(scheduler_resume(scheduler, now_ms,
                                   &(SchedulerProcess){ 500, "tcp://next", "the next one" },
                                   &error),
                  "%s", error != NULL ? error->message : "no error");
    if (is_measured())
        printf("%" G_GUINT64_FORMAT " bytes, at most %" G_GUINT64_FORMAT
               ", begun anew %" G_GUINT64_FORMAT " times, read in %.2f ms\n",
               n_bytes, most_bytes, n_begun, (double)(g_get_monotonic_time() - begin_us) / 1e3);
    is_kept = true;
    for (uint32_t i = 1; i < N_NODES; i++) {
        const Control resume = { .kind = CONTROL_RESUME,
                                 .resume = { .node_id = IDS[i],
                                             .incarnation = 100 + i,
                                             .run_id = run_id,
                                             .scheduler = 100 } };

        ck_assert(scheduler_greet(scheduler, now_ms, &resume, CONFIG.wire_version,
                                  asker_of(ENDPOINTS[i])));
        ck_assert_uint_eq(expect_greeting(ENDPOINTS[i], CONTROL_RESUMED)->resumed.n_taken,
                          n_said[i]);
        tell(i, (Control){ .kind = CONTROL_BACK, .back = { n_heard[i] } });
        ck_assert_uint_eq(expect(i, CONTROL_RECOVER)->recover.step, CONTROL_RECOVER_CLOSE);
    }
    expect_quiet();
    if (epoch == 0)
        return;
    come_to_barrier(epoch, round);
    for (uint32_t i = 1; i < N_NODES; i++)
        expect_release(i, epoch, round);
}

static void begin_journal_anew(void)
{
    scheduler->journal.kept_bytes = 0;
    tick();
    ck_assert_uint_eq(records->len, 1);
}

/* ---- cases ---- */

START_TEST(journal_stays_small_while_a_task_has_barriers)
{
    const uint64_t n = count_rounds(4000);
    const uint32_t epoch = begin_task(1);

    retire_own(epoch);
    for (uint64_t round = 0; round < n; round++) {
        come_to_barrier(epoch, round);
        if (round % BEAT_EVERY == 0)
            beat_and_tick();
    }
    ck_assert(n_begun > 2 || is_measured());
    ck_assert_uint_lt(most_bytes, 3 * kept_bytes());
    expect_going_on(epoch, n);
}
END_TEST

/* Each task stays in the list of calls, in some bytes. */
START_TEST(journal_stays_small_while_tasks_come_and_go)
{
    const uint64_t n = count_rounds(1000);

    for (uint64_t number = 1; number <= n; number++) {
        end_task(begin_task((uint32_t)number));
        if (number % BEAT_EVERY == 0)
            beat_and_tick();
    }
    ck_assert(n_begun > 2 || is_measured());
    ck_assert_uint_lt(most_bytes, 5 * kept_bytes() + 64 * n);
    expect_going_on(0, 0);
}
END_TEST

/* What were kept of each would have its name. */
START_TEST(journal_stays_small_while_tables_come_and_go)
{
    const uint64_t n = count_rounds(500);
    g_autofree char *name = g_strnfill(1000, 'x');

    for (uint64_t number = 0; number < n; number++) {
        make_call((ControlPropose){ .call = 2 * number + 2,
                                    .what = CONTROL_CALL_CREATE,
                                    .name = name,
                                    .digest = "same",
                                    .arguments = "same" });
        make_call((ControlPropose){ .call = 2 * number + 3,
                                    .what = CONTROL_CALL_DROP,
                                    .name = name,
                                    .digest = "same",
                                    .arguments = "same" });
        if (number % 5 == 0)
            beat_and_tick();
    }
    ck_assert(n_begun > 2 || is_measured());
    ck_assert_uint_lt(most_bytes, 5 * kept_bytes() + 2 * 64 * n);
}
END_TEST

START_TEST(journal_stays_small_while_snapshots_are_taken)
{
    const uint64_t n = count_rounds(200);
    const uint32_t epoch = begin_task(1);

    retire_own(epoch);
    for (uint64_t number = 1; number <= n; number++) {
        take_snapshot(number);
        if (number % 10 == 0)
            beat_and_tick();
    }
    ck_assert(n_begun > 2 || is_measured());
    ck_assert_uint_lt(most_bytes, 3 * kept_bytes());
    expect_going_on(epoch, 0);
}
END_TEST

/* It grows, and is tried again. */
START_TEST(journal_that_cannot_begin_anew_has_all_records)
{
    const uint32_t epoch = begin_task(1);

    is_full = true;
    retire_own(epoch);
    for (uint64_t round = 0; round < 1000; round++) {
        is_full = round < 500 || _i == 0;
        come_to_barrier(epoch, round);
        if (round % BEAT_EVERY == 0)
            beat_and_tick();
    }
    ck_assert(is_measured() || (n_begun > 0) == (_i == 1));
    ck_assert_uint_gt(most_bytes, 3 * KEPT_BYTES);
    expect_going_on(epoch, 1000);
}
END_TEST

/* What a node has not said that it has had is held, and follows when it comes back. */
START_TEST(what_nodes_may_not_have_heard_is_part_of_the_state)
{
    const uint32_t epoch = begin_task(1);

    retire_own(epoch);
    beat_and_tick();
    come_to_barrier(epoch, 0);
    begin_journal_anew();
    make_scheduler();
    ck_assert(scheduler_resume(scheduler, now_ms,
                               &(SchedulerProcess){ 500, "tcp://next", "the next one" }, NULL));
    ck_assert_uint_eq(records->len, 2); /* the state, and the process */
    is_kept = true;
    tell(1, (Control){ .kind = CONTROL_BACK, .back = { n_heard[1] - 1 } });
    expect_release(1, epoch, 0);
    ck_assert_uint_eq(expect(1, CONTROL_RECOVER)->recover.step, CONTROL_RECOVER_CLOSE);
    tell(2, (Control){ .kind = CONTROL_BACK, .back = { n_heard[2] } });
    ck_assert_uint_eq(expect(2, CONTROL_RECOVER)->recover.step, CONTROL_RECOVER_CLOSE);
    expect_quiet();
    ck_assert(!hears(2, (Control){ .kind = CONTROL_BEAT, .beat = { n_heard[2] + 10 } }));
}
END_TEST

/* The state comes first, or not at all. */
START_TEST(state_behind_other_records_makes_no_sense)
{
    g_autoptr(GError) error = NULL;

    begin_journal_anew();
    g_ptr_array_add(records, g_bytes_ref(records->pdata[0]));
    make_scheduler();
    ck_assert(!scheduler_resume(scheduler, now_ms,
                                &(SchedulerProcess){ 500, "tcp://next", "the next one" }, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler state");
    TCase *journals = tcase_create("journals");

    tcase_add_checked_fixture(journals, set_up_journal, tear_down_journal);
    tcase_set_timeout(journals, 60);
    tcase_add_test(journals, journal_stays_small_while_a_task_has_barriers);
    tcase_add_test(journals, journal_stays_small_while_tasks_come_and_go);
    tcase_add_test(journals, journal_stays_small_while_tables_come_and_go);
    tcase_add_test(journals, journal_stays_small_while_snapshots_are_taken);
    tcase_add_loop_test(journals, journal_that_cannot_begin_anew_has_all_records, 0, 2);
    tcase_add_test(journals, what_nodes_may_not_have_heard_is_part_of_the_state);
    tcase_add_test(journals, state_behind_other_records_makes_no_sense);
    suite_add_tcase(suite, journals);
    return run_suite(suite);
}
