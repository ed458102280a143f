/* The coordinator of collectives on tensors: what nodes tell goes in, and what is decided comes out
 * for each node with workers, numbered, in the same order. */
#include <string.h>

#include "engine/collectives/negotiation/tensor_text.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/scheduler/scheduler_steps.h"

/* Ranks 0 and 1 are on node 0, rank 2 is on node 2; node 1 has no worker. */
#define WORKERS "2 0 1"

static uint32_t epoch;

/* ---- what goes in ---- */

static uint32_t run_task(const char *workers)
{
    uint32_t id = 0;

    for (uint32_t node = 0; node < N_NODES; node++) {
        Control run = call(1, CONTROL_CALL_RUN, "task x", "same");

        run.propose.workers = workers;
        say(node, run);
    }
    for (uint32_t node = 0; node < N_NODES; node++)
        id = expect(node, CONTROL_GO)->go.id;
    for (uint32_t node = 0; node < N_NODES; node++)
        ready(node, 1);
    expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_OK, "");
    return id;
}

static void begin_task(void)
{
    set_up();
    begin();
    epoch = run_task(WORKERS);
}

static TensorNotice sum_of(uint32_t rank, const char *name, uint64_t n)
{
    TensorNotice notice = { .kind = TENSOR_NOTICE_ASK,
                            .rank = rank,
                            .request = { .operation = TENSOR_ALLREDUCE,
                                         .n_dims = 1,
                                         .shape = { n },
                                         .reduce = { .prescale = 1, .postscale = 1 } } };

    g_strlcpy(notice.name, name, sizeof notice.name);
    return notice;
}

static bool hears_lines(uint32_t node, uint32_t of_epoch, const char *lines)
{
    return hears(node, (Control){ .kind = CONTROL_ENQUEUE, .enqueue = { of_epoch, lines } });
}

static bool hears_notice(uint32_t node, TensorNotice notice)
{
    g_autoptr(GString) lines = g_string_new(NULL);

    tensor_notice_write(lines, &notice);
    return hears_lines(node, epoch, lines->str);
}

static void ask(uint32_t node, uint32_t rank, const char *name)
{
    ck_assert(hears_notice(node, sum_of(rank, name, 4)));
}

static void tell(uint32_t node, uint32_t rank, TensorNoticeKind kind)
{
    ck_assert(hears_notice(node, (TensorNotice){ .kind = kind, .rank = rank }));
}

/* ---- what comes out ---- */

/* The only verdict of the next DECIDE to that node. */
static void take_verdict(uint32_t node, TensorVerdictKind kind, uint64_t number,
                         TensorVerdict *verdict)
{
    const Control *const decide = expect(node, CONTROL_DECIDE);
    const char *at = decide->decide.lines;

    ck_assert_uint_eq(decide->decide.epoch, epoch);
    ck_assert(tensor_verdict_read(&at, verdict));
    ck_assert_str_eq(at, "");
    ck_assert_int_eq(verdict->kind, kind);
    ck_assert_uint_eq(verdict->number, number);
}

/* Both nodes with workers get it. name NULL: it has none; text NULL: no error. */
static void expect_decided(TensorVerdictKind kind, uint64_t number, const char *name, uint32_t code,
                           const char *text)
{
    for (uint32_t node = 0; node < N_NODES; node += 2) {
        g_auto(TensorVerdict) verdict = { 0 };

        take_verdict(node, kind, number, &verdict);
        ck_assert_str_eq(verdict.name, name != NULL ? name : "");
        ck_assert_uint_eq(verdict.code, code);
        ck_assert((verdict.error != NULL) == (text != NULL));
        if (text != NULL)
            ck_assert_ptr_nonnull(strstr(verdict.error, text));
    }
}

START_TEST(name_is_decided_once_all_have_asked)
{
    ask(0, 0, "x");
    ask(2, 2, "y");
    ask(2, 2, "x");
    expect_quiet();
    ask(0, 1, "x");
    expect_decided(TENSOR_VERDICT_RUN, 1, "x", CONTROL_OK, NULL);
    expect_quiet();
    ask(0, 1, "y");
    ask(0, 0, "y");
    expect_decided(TENSOR_VERDICT_RUN, 2, "y", CONTROL_OK, NULL);
    expect_quiet();
}
END_TEST

START_TEST(disagreement_fails_the_name_alone)
{
    ask(0, 0, "x");
    ask(0, 1, "x");
    ck_assert(hears_notice(2, sum_of(2, "x", 5)));
    expect_decided(TENSOR_VERDICT_FAIL, 1, "x", MISMATCH_CODE, "[4] by worker 0 and worker 1");
    ask(0, 0, "x");
    ask(0, 1, "x");
    ask(2, 2, "x");
    expect_decided(TENSOR_VERDICT_RUN, 2, "x", CONTROL_OK, NULL);
    expect_quiet();
}
END_TEST

START_TEST(rank_0_alone_says_which_cutovers_hold)
{
    g_auto(TensorVerdict) verdict = { 0 };

    ck_assert(hears_notice(0, (TensorNotice){ .kind = TENSOR_NOTICE_CUT, .cutovers = 3 }));
    for (uint32_t node = 0; node < N_NODES; node += 2) {
        take_verdict(node, TENSOR_VERDICT_CUT, 1, &verdict);
        ck_assert_uint_eq(verdict.cutovers, 3);
    }
    ask(0, 0, "x");
    ask(0, 1, "x");
    ask(2, 2, "x");
    expect_decided(TENSOR_VERDICT_RUN, 2, "x", CONTROL_OK, NULL);
    ck_assert(
        !hears_notice(2, (TensorNotice){ .kind = TENSOR_NOTICE_CUT, .rank = 2, .cutovers = 3 }));
    expect_quiet();
}
END_TEST

START_TEST(who_has_joined_is_left_out_until_all_have)
{
    for (uint64_t number = 1; number < 4; number += 2) {
        tell(0, 1, TENSOR_NOTICE_JOIN);
        ask(0, 0, "x");
        ask(2, 2, "x");
        for (uint32_t node = 0; node < N_NODES; node += 2) {
            g_auto(TensorVerdict) verdict = { 0 };

            take_verdict(node, TENSOR_VERDICT_RUN, number, &verdict);
            ck_assert_str_eq(verdict.ranks, " 0 0, 2 2");
        }
        tell(0, 0, TENSOR_NOTICE_JOIN);
        expect_quiet();
        tell(2, 2, TENSOR_NOTICE_JOIN);
        for (uint32_t node = 0; node < N_NODES; node += 2) {
            g_auto(TensorVerdict) verdict = { 0 };

            take_verdict(node, TENSOR_VERDICT_JOINED, number + 1, &verdict);
            ck_assert_uint_eq(verdict.last, 2);
        }
    }
    expect_quiet();
}
END_TEST

/* What waits then fails, and so does what is asked later; each node is told once. */
START_TEST(worker_that_leaves_closes_what_others_ask)
{
    ask(0, 0, "x");
    tell(2, 2, TENSOR_NOTICE_JOIN);
    tell(0, 1, TENSOR_NOTICE_LEAVE);
    for (uint32_t node = 0; node < N_NODES; node += 2) {
        const char *at = expect(node, CONTROL_DECIDE)->decide.lines;
        g_auto(TensorVerdict) failed = { 0 }, closed = { 0 };

        ck_assert(tensor_verdict_read(&at, &failed) && tensor_verdict_read(&at, &closed));
        ck_assert_str_eq(at, "");
        ck_assert_int_eq(failed.kind, TENSOR_VERDICT_FAIL);
        ck_assert_str_eq(failed.name, "x");
        ck_assert_int_eq(closed.kind, TENSOR_VERDICT_CLOSED);
        ck_assert_uint_eq(closed.number, 2);
        ck_assert_ptr_nonnull(strstr(closed.error, "worker 1 has returned"));
    }
    ask(0, 0, "late");
    tell(2, 2, TENSOR_NOTICE_JOIN);
    tell(2, 2, TENSOR_NOTICE_LEAVE);
    done(2, epoch);
    expect_quiet();
}
END_TEST

START_TEST(node_without_workers_left_closes_what_others_ask)
{
    ask(0, 0, "x");
    expect_quiet();
    done(1, epoch); /* it never had one */
    expect_quiet();
    arrive(2, epoch, CONTROL_NO_ROUND);
    for (uint32_t node = 0; node < N_NODES; node += 2)
        ck_assert_ptr_nonnull(
            strstr(expect(node, CONTROL_DECIDE)->decide.lines, "worker 2 has returned"));
    done(2, epoch);
    expect_quiet();
}
END_TEST

START_TEST(node_that_is_done_before_anybody_asks_closes_the_first_request)
{
    done(2, epoch);
    expect_quiet();
    ask(0, 0, "x");
    expect_decided(TENSOR_VERDICT_CLOSED, 1, NULL, CONTROL_CODE(RUBATO_ERROR_NOT_FOUND),
                   "worker 2 has returned");
    expect_quiet();
}
END_TEST

/* All of it fails with the task, which its nodes are told by CANCEL. */
START_TEST(cancelled_task_decides_nothing)
{
    ask(0, 0, "x");
    fail_worker(2, epoch, "bad data");
    expect_verdict_everywhere(CONTROL_CANCEL, FAILED_CODE, "bad data");
    ask(2, 2, "x");
    ask(0, 1, "x");
    done(2, epoch);
    g_autofree char *waiting = scheduler_waiting(scheduler, now_ms);
    ck_assert_ptr_null(strstr(waiting, "allreduce"));
    expect_quiet();
}
END_TEST

/* ---- what makes no sense ---- */

static const char *const nonsense[] = {
    "hello\n",
    "a\n",
    "a 0\n",
    "a 0 0 0 0 0 0 0 0 0 0 1 4 x", /* no line's end */
    "j\n",
    "j 0",
    "j 0 0",
    "j 0 0 0\n",
    "j 0 1\n", /* a set that there is not */
    "d 0 1\n",
    "d 0 0\n",
    "l 3 0\n",
    "j 4294967296 0\n",
    "z 0 0\n",
    "\n",
    "a 0 0 77 0 0 0 0 0 0 0 1 4 x\n",
    "a 0 1 0 0 0 0 0 0 0 0 1 4 x\n",
    "l 2 0\n", /* of another node */
    "g 0 0 1\n",
    "g 0 0 65537\n",
    "g 0 0\n",
    "g 0 0 2\ng 0 0 2\n",
    "g 0 0 2\nj 0 0\n",
    "g 0 0 2\nl 0 0\n",
};

START_TEST(lines_that_make_no_sense_are_refused)
{
    ck_assert(!hears_lines(0, epoch, nonsense[_i]));
    ck_assert(!hears_lines(2, epoch, "l 1 0\n")); /* the same, of a rank below */
    expect_quiet();
    if (g_str_has_prefix(nonsense[_i], "g 0 0 2\n")) /* rank 0 is in the group's middle */
        return;
    ask(0, 0, "x");
    ask(0, 1, "x");
    ask(2, 2, "x");
    expect_decided(TENSOR_VERDICT_RUN, 1, "x", CONTROL_OK, NULL);
}
END_TEST

/* A node has seen to it that its workers do neither. */
START_TEST(second_request_and_second_join_are_refused)
{
    ask(0, 0, "x");
    ck_assert(!hears_notice(0, sum_of(0, "x", 4)));
    tell(0, 1, TENSOR_NOTICE_JOIN);
    ck_assert(!hears_notice(0, (TensorNotice){ .kind = TENSOR_NOTICE_JOIN, .rank = 1 }));
    ck_assert(!hears_notice(0, sum_of(1, "x", 4)));
    expect_quiet();
    ask(2, 2, "x");
    for (uint32_t node = 0; node < N_NODES; node += 2)
        ck_assert_str_eq(expect(node, CONTROL_DECIDE)->decide.lines, "r 1 0 0 x\n 0 0, 2 2\n");
}
END_TEST

START_TEST(what_comes_in_front_of_nonsense_counts)
{
    g_autoptr(GString) lines = g_string_new(NULL);

    ask(0, 0, "x");
    ask(2, 2, "x");
    tensor_notice_write(lines, &(TensorNotice[]){ sum_of(1, "x", 4) }[0]);
    g_string_append(lines, "?\n");
    ck_assert(!hears_lines(0, epoch, lines->str));
    expect_decided(TENSOR_VERDICT_RUN, 1, "x", CONTROL_OK, NULL);
}
END_TEST

/* Its names may come in several messages, with those of other workers in between. */
START_TEST(group_is_decided_as_a_whole)
{
    const char *const header[] = { "g 0 0 2\n", "g 1 0 2\n", "g 2 0 2\n" };

    for (uint32_t rank = 0; rank < 3; rank++)
        ck_assert(hears_lines(rank == 2 ? 2 : 0, epoch, header[rank]));
    for (uint32_t rank = 0; rank < 3; rank++)
        ask(rank == 2 ? 2 : 0, rank, rank == 1 ? "x" : "y");
    ask(0, 0, "x");
    ask(0, 1, "y");
    expect_quiet();
    ask(2, 2, "x");
    for (uint32_t node = 0; node < N_NODES; node += 2)
        ck_assert_str_eq(expect(node, CONTROL_DECIDE)->decide.lines, "r 1 0 1 x\n\nr 2 0 1 y\n\n");
    expect_quiet();
}
END_TEST

/* What all have asked before they ask again by its slot; a group has one, too. */
START_TEST(slot_is_decided_once_all_have_asked_again)
{
    const char *const again[] = { "o 0 0 0\n", "o 1 0 0\no 1 0 1\n", "o 2 0 1\no 2 0 0\n" };

    for (uint32_t rank = 0; rank < 3; rank++)
        ask(rank == 2 ? 2 : 0, rank, "x");
    expect_decided(TENSOR_VERDICT_RUN, 1, "x", CONTROL_OK, NULL);
    ck_assert(hears_lines(0, epoch, "g 0 0 2\n"));
    ask(0, 0, "y");
    ask(0, 0, "z");
    ck_assert(hears_lines(0, epoch, "g 1 0 2\n"));
    ask(0, 1, "z");
    ask(0, 1, "y");
    ck_assert(hears_lines(2, epoch, "g 2 0 2\n"));
    ask(2, 2, "y");
    ask(2, 2, "z");
    for (uint32_t node = 0; node < N_NODES; node += 2)
        ck_assert_str_eq(expect(node, CONTROL_DECIDE)->decide.lines, "r 2 0 2 y\n\nr 3 0 2 z\n\n");
    for (uint32_t rank = 0; rank < 3; rank++)
        ck_assert(hears_lines(rank == 2 ? 2 : 0, epoch, again[rank]));
    for (uint32_t node = 0; node < N_NODES; node += 2)
        ck_assert_str_eq(expect(node, CONTROL_DECIDE)->decide.lines, "o 4 0 0 1\n");
    ck_assert(hears_lines(0, epoch, "o 0 0 1\n"));
    for (uint32_t node = 0; node < N_NODES; node += 2)
        ck_assert_str_eq(expect(node, CONTROL_DECIDE)->decide.lines, "o 5 0 1 2\n");
    expect_quiet();
    ck_assert(!hears_lines(0, epoch, "o 0 0 2\n"));
    ck_assert(hears_lines(0, epoch, "o 0 0 0\n"));
    ck_assert(!hears_lines(0, epoch, "o 0 0 0\n"));
}
END_TEST

START_TEST(stall_of_what_is_asked_again_names_who_is_missing)
{
    for (uint32_t rank = 0; rank < 3; rank++)
        ask(rank == 2 ? 2 : 0, rank, "x");
    expect_decided(TENSOR_VERDICT_RUN, 1, "x", CONTROL_OK, NULL);
    ck_assert(hears_lines(0, epoch, "o 0 0 0\no 1 0 0\n"));
    expect_waiting("allreduce x of task x waits for worker 2 (which last asked for x)");
    ck_assert(hears_lines(2, epoch, "o 2 0 0\n"));
    for (uint32_t node = 0; node < N_NODES; node += 2)
        ck_assert_str_eq(expect(node, CONTROL_DECIDE)->decide.lines, "o 2 0 0 1\n");
    expect_waiting(NULL);
}
END_TEST

/* By name or by slot: what a worker asked for last is told. */
START_TEST(stall_names_what_was_asked_again_last)
{
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t rank = 0; rank < 3; rank++)
            ask(rank == 2 ? 2 : 0, rank, i == 0 ? "x" : "y");
        expect_decided(TENSOR_VERDICT_RUN, 1 + i, i == 0 ? "x" : "y", CONTROL_OK, NULL);
    }
    ck_assert(hears_lines(0, epoch, "o 0 0 0\no 1 0 0\n"));
    ck_assert(hears_lines(2, epoch, "o 2 0 0\n"));
    for (uint32_t node = 0; node < N_NODES; node += 2)
        expect(node, CONTROL_DECIDE);
    ck_assert(hears_lines(0, epoch, "o 0 0 1\no 1 0 1\n"));
    expect_waiting("allreduce y of task x waits for worker 2 (which last asked for x)");
}
END_TEST

START_TEST(epochs_are_checked)
{
    ck_assert(!hears_lines(0, epoch + 1, "j 0 0\n"));
    for (uint32_t node = 0; node < N_NODES; node++)
        done(node, epoch);
    ck_assert(hears_lines(0, epoch, "j 0 0\n")); /* late */
    for (uint32_t node = 0; node < N_NODES; node++)
        expect(node, CONTROL_TASK_END);
    expect_quiet();
}
END_TEST

static const char *const bad_workers[] = { NULL,     "",      "1 1",         "1 1 1 1",
                                           "1 -1 1", "1 x 1", "4194305 1 1", "4000000 400000 1" };

START_TEST(task_whose_workers_nobody_knows_has_no_collectives)
{
    set_up();
    begin();
    epoch = run_task(bad_workers[_i]);
    ck_assert(!hears_lines(0, epoch, "j 0 0\n"));
    expect_quiet();
    for (uint32_t node = 0; node < N_NODES; node++)
        done(node, epoch);
    expect_verdict_everywhere(CONTROL_TASK_END, CONTROL_OK, "");
    tear_down();
}
END_TEST

/* ---- sets of workers ---- */

static bool asks_for_set(uint32_t node, uint32_t rank, uint32_t *ranks, uint32_t n)
{
    return hears_notice(
        node, (TensorNotice){ .kind = TENSOR_NOTICE_MAKE, .rank = rank, .n = n, .ranks = ranks });
}

static bool asks_for_removal(uint32_t node, uint32_t rank, uint32_t set)
{
    return hears_notice(node,
                        (TensorNotice){ .kind = TENSOR_NOTICE_REMOVE, .rank = rank, .set = set });
}

static void make_set(uint32_t *ranks, uint32_t n, uint64_t number)
{
    ck_assert(asks_for_set(0, 0, ranks, n) && asks_for_set(0, 1, ranks, n));
    expect_quiet();
    ck_assert(asks_for_set(2, 2, ranks, n));
    expect_decided(TENSOR_VERDICT_MADE, number, NULL, CONTROL_OK, NULL);
}

static TensorNotice in_set(TensorNotice notice, uint32_t set)
{
    notice.set = set;
    return notice;
}

START_TEST(set_is_made_used_and_removed_with_what_is_pending)
{
    uint32_t ranks[] = { 0, 2 };

    make_set(ranks, 2, 1);
    ask(0, 0, "x");
    ck_assert(hears_notice(2, in_set(sum_of(2, "x", 9), 1)));
    expect_quiet();                                            /* another set, another name */
    ck_assert(!hears_notice(0, in_set(sum_of(1, "x", 9), 1))); /* it is not in it */
    ck_assert(hears_notice(0, in_set(sum_of(0, "x", 9), 1)));
    for (uint32_t node = 0; node < N_NODES; node += 2)
        ck_assert_str_eq(expect(node, CONTROL_DECIDE)->decide.lines, "r 2 1 1 x\n\n");
    ck_assert(hears_notice(2, in_set(sum_of(2, "y", 9), 1)));
    for (uint32_t rank = 0; rank < 3; rank++)
        ck_assert(asks_for_removal(rank == 2 ? 2 : 0, rank, 1));
    for (uint32_t node = 0; node < N_NODES; node += 2) {
        const char *const lines = expect(node, CONTROL_DECIDE)->decide.lines;

        ck_assert(g_str_has_prefix(lines, "f 3 1 "));
        ck_assert_ptr_nonnull(strstr(lines, "set 1 of workers was removed\nd 4 1\n"));
    }
    ck_assert(!hears_notice(2, in_set(sum_of(2, "y", 9), 1)));
    expect_quiet();
}
END_TEST

START_TEST(different_sets_are_refused_on_all_nodes)
{
    uint32_t ranks[] = { 0, 1, 2 };

    ck_assert(asks_for_set(0, 0, ranks, 2) && asks_for_set(2, 2, ranks, 2));
    ck_assert(!asks_for_set(2, 2, ranks, 2)); /* one after the other */
    ck_assert(asks_for_set(0, 1, ranks, 3));
    expect_decided(TENSOR_VERDICT_REFUSED, 1, NULL, MISMATCH_CODE,
                   "a set of workers 0-1 is asked for by workers 0, 2, but a set of all workers by "
                   "worker 1");
    make_set(ranks, 3, 2);
}
END_TEST

static void expect_told(uint32_t node, const char *text)
{
    const char *const told = expect(node, CONTROL_WAITING)->waiting.text;

    ck_assert_msg(strstr(told, text) != NULL, "%s", told);
}

START_TEST(long_wait_in_a_set_names_the_set)
{
    uint32_t ranks[] = { 1, 2 };

    make_set(ranks, 2, 1);
    ck_assert(hears_notice(2, in_set(sum_of(2, "x", 9), 1)));
    pass_ms(CONFIG.stall_ms + 1000, ALL);
    expect_told(2, "allreduce x of set 1 of task x waits for worker 1 (which has not asked for "
                   "anything)");
}
END_TEST

START_TEST(long_wait_for_a_set_names_those_who_have_not_asked)
{
    uint32_t ranks[] = { 1, 2 };

    ck_assert(asks_for_set(0, 0, ranks, 2) && asks_for_set(0, 1, ranks, 2));
    pass_ms(CONFIG.stall_ms + 1000, ALL);
    expect_told(0, "a change of the sets of workers of task x waits for worker 2");
    ck_assert(asks_for_set(2, 2, ranks, 2));
    expect_decided(TENSOR_VERDICT_MADE, 1, NULL, CONTROL_OK, NULL);
    expect_waiting(NULL);
}
END_TEST

/* ---- much ---- */

/* More verdicts than one message may have come in several, in order. */
START_TEST(many_verdicts_come_in_several_messages)
{
    enum { N = 2300 };
    g_autofree char *pad = g_strnfill(245, 'x');

    for (uint32_t rank = 0; rank < 3; rank++) {
        g_autoptr(GString) lines = g_string_new(NULL);

        for (int i = 0; i < N; i++) {
            g_autofree char *name = g_strdup_printf("%s%d", pad, i);
            const TensorNotice notice = sum_of(rank, name, 4);

            tensor_notice_write(lines, &notice);
            if (rank == 2 || i % 100 != 0) /* all is decided by the last message */
                continue;
            QUICK_ASSERT(hears_lines(0, epoch, lines->str));
            g_string_truncate(lines, 0);
        }
        ck_assert(hears_lines(rank == 2 ? 2 : 0, epoch, lines->str));
    }
    for (uint32_t node = 0; node < N_NODES; node += 2) {
        uint64_t number = 0;

        for (int i = 0; i < 2; i++) {
            const char *at = expect(node, CONTROL_DECIDE)->decide.lines;

            ck_assert_uint_lt(strlen(at), 1 << 20);
            while (*at != '\0') {
                g_auto(TensorVerdict) verdict = { 0 };

                QUICK_ASSERT(tensor_verdict_read(&at, &verdict) && verdict.number == ++number);
            }
        }
        ck_assert_uint_eq(number, N);
    }
    expect_quiet();
}
END_TEST

START_TEST(long_wait_is_told_to_those_who_wait)
{
    ask(0, 0, "grad/6");
    ask(0, 1, "grad/6");
    ask(2, 2, "grad/6");
    expect_decided(TENSOR_VERDICT_RUN, 1, "grad/6", CONTROL_OK, NULL);
    ask(0, 0, "grad/7");
    ask(0, 1, "grad/7");
    pass_ms(CONFIG.stall_ms + 1000, ALL);
    expect_told(0, "allreduce grad/7 of task x waits for worker 2 (which last asked for grad/6)");
    ask(2, 2, "grad/7");
    expect_decided(TENSOR_VERDICT_RUN, 2, "grad/7", CONTROL_OK, NULL);
    expect_waiting(NULL);
}
END_TEST

START_TEST(each_node_that_waits_is_told_for_whom)
{
    ask(0, 0, "a");
    ask(0, 1, "a");
    ask(2, 2, "b");
    pass_ms(CONFIG.stall_ms + 1000, ALL);
    expect_told(0, "allreduce a of task x waits for worker 2 (which last asked for b) (for ");
    expect_told(2, "allreduce b of task x waits for worker 0 (which last asked for a) and worker 1 "
                   "(which last asked for a) (for ");
    expect_quiet();
}
END_TEST

START_TEST(node_whose_workers_have_joined_is_told_for_whom)
{
    ask(0, 0, "a");
    ck_assert(hears_notice(2, (TensorNotice){ .kind = TENSOR_NOTICE_JOIN, .rank = 2 }));
    pass_ms(CONFIG.stall_ms + 1000, ALL);
    expect_told(0, "allreduce a of task x waits for worker 1 (which has not asked for anything)");
    expect_told(2, "the join of worker(s) of task x waits for worker 0 (which last asked for a) "
                   "and worker 1 (which has not asked for anything)");
}
END_TEST

/* ---- losses ---- */

#define LOST_TEXT                                                                              \
    "node 7 (127.0.0.1:4103) was lost: its process has ended, and worker 2 of task x is lost " \
    "with it"

static void begin_to_continue(void)
{
    set_up();
    begin_with_replicas();
    for (uint32_t node = 0; node < N_NODES; node++) {
        Control run = call(1, CONTROL_CALL_RUN, "task x", "same");

        run.propose.workers = WORKERS;
        run.propose.survives = true;
        say(node, run);
    }
    for (uint32_t node = 0; node < N_NODES; node++)
        epoch = expect(node, CONTROL_GO)->go.id;
    for (uint32_t node = 0; node < N_NODES; node++)
        ready(node, 1);
    expect_verdict_everywhere(CONTROL_COMMIT, CONTROL_OK, "");
}

static void lose_rank_2(uint64_t number)
{
    g_auto(TensorVerdict) verdict = { 0 };

    lose(2);
    expect(0, CONTROL_RECOVER);
    expect(1, CONTROL_RECOVER);
    take_verdict(0, TENSOR_VERDICT_LOST, number, &verdict);
    ck_assert_uint_eq(verdict.node, 2);
    ck_assert_uint_eq(verdict.n, 1);
    ck_assert_str_eq(verdict.error, LOST_TEXT);
    ck_assert_uint_eq(verdict.code, CONTROL_CODE(RUBATO_ERROR_NODE_LOST));
    expect_quiet();
}

static void expect_of_living(TensorVerdictKind kind, uint64_t number, const char *name)
{
    g_auto(TensorVerdict) verdict = { 0 };

    take_verdict(0, kind, number, &verdict);
    ck_assert_str_eq(verdict.name, name);
    expect_quiet();
}

/* Node 0 has heard of so many losses. */
static bool heard(uint32_t n)
{
    return hears_notice(0, (TensorNotice){ .kind = TENSOR_NOTICE_HEARD, .n = n });
}

/* Asked before or not, it is told, so that all know of it before they ask again. */
START_TEST(loss_is_told_and_the_next_operation_is_of_the_living)
{
    begin_to_continue();
    if (_i == 1) {
        ask(0, 0, "x");
        ask(2, 2, "x");
    }
    lose_rank_2(1);
    ck_assert(heard(1));
    ask(0, 0, "x");
    ask(0, 1, "x");
    expect_of_living(TENSOR_VERDICT_RUN, 2, "x");
    tell(0, 0, TENSOR_NOTICE_JOIN);
    tell(0, 1, TENSOR_NOTICE_JOIN);
    expect_of_living(TENSOR_VERDICT_JOINED, 3, "");
}
END_TEST

/* What was on its way when the loss was decided: alone, in a group that has begun, in a set. */
START_TEST(what_was_told_before_a_loss_was_heard_is_dropped)
{
    g_autoptr(GString) group = g_string_new(NULL);
    const TensorNotice begun = { .kind = TENSOR_NOTICE_GROUP, .rank = 1, .n = 2 };
    const TensorNotice one = sum_of(1, "y", 4), other = sum_of(1, "z", 4);
    uint32_t ranks[] = { 0, 1 };

    begin_to_continue();
    tensor_notice_write(group, &begun);
    tensor_notice_write(group, &one);
    ck_assert(hears_lines(0, epoch, group->str));
    lose_rank_2(1);
    ck_assert(hears_notice(0, other));
    ask(0, 0, "x");
    ask(0, 1, "x");
    tell(0, 0, TENSOR_NOTICE_JOIN);
    ck_assert(asks_for_set(0, 0, ranks, 2) && asks_for_set(0, 1, ranks, 2));
    expect_quiet();
    ck_assert(!heard(2));
    ck_assert(heard(1));
    ck_assert(!heard(0));
    ask(0, 0, "y");
    ask(0, 1, "y");
    expect_of_living(TENSOR_VERDICT_RUN, 2, "y");
    ck_assert(asks_for_set(0, 0, ranks, 2));
    expect_quiet();
    ck_assert(asks_for_set(0, 1, ranks, 2));
    expect_of_living(TENSOR_VERDICT_MADE, 3, "");
}
END_TEST

START_TEST(a_set_without_lost_workers_does_not_notice)
{
    uint32_t ranks[] = { 0, 1 };

    begin_to_continue();
    make_set(ranks, 2, 1);
    ck_assert(hears_notice(0, in_set(sum_of(0, "x", 4), 1)));
    lose_rank_2(2);
    ck_assert(hears_notice(0, in_set(sum_of(1, "x", 4), 1))); /* it had not heard of the loss */
    expect_of_living(TENSOR_VERDICT_RUN, 3, "x");
}
END_TEST

/* It may not have sent all that others wait for. In any task. */
START_TEST(loss_of_a_node_whose_workers_have_returned_is_told)
{
    if (_i == 0) {
        begin_to_continue();
    } else {
        set_up();
        begin_with_replicas();
        epoch = run_task(WORKERS);
    }
    for (uint32_t rank = 0; rank < 3; rank++)
        ask(rank < 2 ? 0 : 2, rank, "x");
    expect_decided(TENSOR_VERDICT_RUN, 1, "x", CONTROL_OK, NULL);
    tell(2, 2, TENSOR_NOTICE_LEAVE);
    expect_decided(TENSOR_VERDICT_CLOSED, 2, NULL, CONTROL_CODE(RUBATO_ERROR_NOT_FOUND),
                   "worker 2 has returned");
    done(2, epoch);
    lose_rank_2(3);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("scheduler_tensors");
    TCase *const cases = tcase_create("cases");
    TCase *const tasks = tcase_create("tasks");
    TCase *const losses = tcase_create("losses");

    tcase_add_checked_fixture(cases, begin_task, tear_down);
    tcase_add_test(cases, name_is_decided_once_all_have_asked);
    tcase_add_test(cases, disagreement_fails_the_name_alone);
    tcase_add_test(cases, rank_0_alone_says_which_cutovers_hold);
    tcase_add_test(cases, who_has_joined_is_left_out_until_all_have);
    tcase_add_test(cases, worker_that_leaves_closes_what_others_ask);
    tcase_add_test(cases, set_is_made_used_and_removed_with_what_is_pending);
    tcase_add_test(cases, different_sets_are_refused_on_all_nodes);
    tcase_add_test(cases, long_wait_in_a_set_names_the_set);
    tcase_add_test(cases, long_wait_for_a_set_names_those_who_have_not_asked);
    tcase_add_test(cases, node_without_workers_left_closes_what_others_ask);
    tcase_add_test(cases, node_that_is_done_before_anybody_asks_closes_the_first_request);
    tcase_add_test(cases, cancelled_task_decides_nothing);
    tcase_add_loop_test(cases, lines_that_make_no_sense_are_refused, 0, G_N_ELEMENTS(nonsense));
    tcase_add_test(cases, second_request_and_second_join_are_refused);
    tcase_add_test(cases, what_comes_in_front_of_nonsense_counts);
    tcase_add_test(cases, group_is_decided_as_a_whole);
    tcase_add_test(cases, slot_is_decided_once_all_have_asked_again);
    tcase_add_test(cases, stall_of_what_is_asked_again_names_who_is_missing);
    tcase_add_test(cases, stall_names_what_was_asked_again_last);
    tcase_add_test(cases, epochs_are_checked);
    tcase_add_test(cases, many_verdicts_come_in_several_messages);
    tcase_add_test(cases, long_wait_is_told_to_those_who_wait);
    tcase_add_test(cases, each_node_that_waits_is_told_for_whom);
    tcase_add_test(cases, node_whose_workers_have_joined_is_told_for_whom);
    tcase_add_loop_test(tasks, task_whose_workers_nobody_knows_has_no_collectives, 0,
                        G_N_ELEMENTS(bad_workers));
    tcase_add_checked_fixture(losses, NULL, tear_down);
    tcase_add_loop_test(losses, loss_is_told_and_the_next_operation_is_of_the_living, 0, 2);
    tcase_add_test(losses, what_was_told_before_a_loss_was_heard_is_dropped);
    tcase_add_test(losses, a_set_without_lost_workers_does_not_notice);
    tcase_add_loop_test(losses, loss_of_a_node_whose_workers_have_returned_is_told, 0, 2);
    suite_add_tcase(suite, losses);
    suite_add_tcase(suite, cases);
    suite_add_tcase(suite, tasks);
    return run_suite(suite);
}
