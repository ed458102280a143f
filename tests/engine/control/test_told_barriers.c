/* Barriers by clock: what a process in the place of lost workers is told of them. */
#include "engine/control/told_barriers.h"

#include <string.h>

#include "tests/support/runner.h"

enum { N_NODES = 2, N_WORKERS = 3 };

static BarrierRecord *record;

/* Workers on the second node. */
static void begin(void)
{
    static const uint32_t workers_of[N_NODES] = { 0, N_WORKERS };

    record = barrier_record_new(N_NODES, workers_of);
}

static void end(void)
{
    barrier_record_free(record);
}

static void meet(const char *clocks)
{
    ck_assert(barrier_record_arrive(record, 1, clocks));
    barrier_record_pass(record);
}

static void expect_line(uint64_t round, const char *line)
{
    g_autoptr(GString) text = g_string_new(NULL);

    barrier_record_write(record, 1, round, text);
    ck_assert_str_eq(text->str, line);
}

static void expect_left(const char *line, const uint64_t *clocks, uint64_t round,
                        const uint64_t *left)
{
    uint64_t n_passed, n_left[N_WORKERS];

    ck_assert(told_barriers_read(line, clocks, N_WORKERS, &n_passed, n_left));
    ck_assert_uint_eq(n_passed, round);
    for (unsigned i = 0; i < N_WORKERS; i++)
        ck_assert_uint_eq(n_left[i], left[i]);
}

START_TEST(barriers_at_the_first_clock_are_repeated)
{
    expect_line(0, "barriers 0;;;\n");
    meet("0 0 0");
    meet("0 2 0");
    meet("2 2 1");
    meet("2 3 -");
    expect_line(4, "barriers 4;0 2 2 2;0 1 2 2 3 1;1 3\n");
    const uint64_t first[] = { 0, 0, 0 }, second[] = { 2, 2, 2 };
    const char *const line = "barriers 4;0 2 2 2;0 1 2 2 3 1;1 3\n";
    expect_left(line, first, 4, (const uint64_t[]){ 4, 4, 4 });
    expect_left(line, second, 4, (const uint64_t[]){ 2, 3, 1 });
    expect_left("", second, 0, first);
}
END_TEST

/* What they were called at is never asked for again: the lowest clock is known everywhere. */
START_TEST(those_at_clocks_that_are_over_are_counted_together)
{
    for (unsigned i = 0; i < 1000; i++) {
        g_autofree char *clocks = g_strdup_printf("%u %u -", i, i + 1);

        meet(clocks);
    }
    expect_line(1000, "barriers 1000;998 999 999 1;998 998 999 1 1000 1;\n");
}
END_TEST

START_TEST(a_barrier_that_was_not_passed_does_not_count)
{
    meet("1 1 1");
    ck_assert(barrier_record_arrive(record, 1, "1 1 1"));
    barrier_record_lose(record, 1);
    barrier_record_pass(record); /* another node's */
    expect_line(1, "barriers 1;1 1;1 1;1 1\n");
}
END_TEST

static const char *const wrong[] = { "",     "1",      "1 2",   "1 2 3 4",
                                     "1 2 ", "1 -2 3", "1 2 a", "1 2 18446744073709551615" };

START_TEST(what_is_no_list_of_clocks_is_refused)
{
    ck_assert(!barrier_record_arrive(record, 1, wrong[_i]));
    ck_assert(!barrier_record_arrive(record, 1, NULL));
    barrier_record_pass(record);
    expect_line(0, "barriers 0;;;\n");
    ck_assert(barrier_record_arrive(record, 0, ""));
}
END_TEST

static const char *const nonsense[] = {
    "\n",
    "barriers 4;0 2;0 1;0 2", /* no end */
    "barrier 4;0 2;0 1;0 2\n",
    "barriers 4;0 2;0 1\n",
    "barriers 4;0 2;0 1;0 2;0 1\n",
    "barriers -1;;;\n",
    "barriers 4;0 2;0;0 2\n",
    "barriers 4;0 2;0 0;0 2\n",
    "barriers 4;0 2;0 1;0 5\n", /* more than were passed */
    "barriers 4;0 2;a 1;0 2\n",
};

START_TEST(what_is_no_line_is_refused)
{
    const uint64_t clocks[N_WORKERS] = { 9, 9, 9 };
    uint64_t round = 77, left[N_WORKERS] = { 77, 77, 77 };

    ck_assert(!told_barriers_read(nonsense[_i], clocks, N_WORKERS, &round, left));
    ck_assert_uint_eq(round, 77);
    ck_assert_uint_eq(left[0], 77);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("told_barriers");
    TCase *cases = tcase_create("told_barriers");

    tcase_add_checked_fixture(cases, begin, end);
    tcase_add_test(cases, barriers_at_the_first_clock_are_repeated);
    tcase_add_test(cases, those_at_clocks_that_are_over_are_counted_together);
    tcase_add_test(cases, a_barrier_that_was_not_passed_does_not_count);
    tcase_add_loop_test(cases, what_is_no_list_of_clocks_is_refused, 0, G_N_ELEMENTS(wrong));
    tcase_add_loop_test(cases, what_is_no_line_is_refused, 0, G_N_ELEMENTS(nonsense));
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
