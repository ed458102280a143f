/* Whom the log tells of as refused: each process once. */
#include "engine/control/refusals.h"

#include "tests/support/runner.h"

START_TEST(a_process_that_greets_again_is_told_of_once)
{
    Refusals refusals = { .next = 0 };

    ck_assert(refusals_are_new(&refusals, "node 2 (process 7)"));
    ck_assert(refusals_are_new(&refusals, "node 2 (process 8)"));
    for (int i = 0; i < 4; i++) {
        ck_assert(!refusals_are_new(&refusals, "node 2 (process 7)"));
        ck_assert(!refusals_are_new(&refusals, "node 2 (process 8)"));
    }
    refusals_clear(&refusals);
}
END_TEST

/* Whoever sends ever new names takes no memory. */
START_TEST(the_last_ones_are_known)
{
    Refusals refusals = { .next = 0 };

    for (int i = 0; i < 3 * REFUSALS_KNOWN; i++) {
        g_autofree char *text = g_strdup_printf("process %d", i);

        ck_assert(refusals_are_new(&refusals, text));
        ck_assert(!refusals_are_new(&refusals, text));
    }
    ck_assert(!refusals_are_new(&refusals, "process 32"));
    ck_assert(refusals_are_new(&refusals, "process 31"));
    refusals_clear(&refusals);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("refusals");
    TCase *const cases = tcase_create("refusals");

    tcase_add_test(cases, a_process_that_greets_again_is_told_of_once);
    tcase_add_test(cases, the_last_ones_are_known);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
