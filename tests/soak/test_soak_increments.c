/* A snapshot of changes every second, for a minute under load, or as long as RUBATO_SOAK_SECONDS
 * says: each one has exactly the Adds that were counted by then, and its chain restores. */
#include <check.h>
#include <stdlib.h>

#include "tests/support/engine/counted_increments.h"
#include "tests/support/runner.h"

START_TEST(increments_every_second_hold_what_was_counted)
{
    const char *const text = getenv("RUBATO_SOAK_SECONDS");
    const double seconds = text != NULL ? atof(text) : 60;

    counted_increments_check(&(CountedIncrements){ .seconds = seconds,
                                                   .every_s = 1,
                                                   .full_every = 20,
                                                   .least = (uint32_t)(seconds * 0.8),
                                                   .restore_every = 10 });
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("soak_increments");
    TCase *const cases = tcase_create("increments");

    tcase_set_timeout(cases, 0);
    tcase_add_test(cases, increments_every_second_hold_what_was_counted);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
