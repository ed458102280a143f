/* Whole engines under random load for a short time; tests/soak does it for long. */
#include "tests/support/engine/engine_stress.h"
#include "tests/support/runner.h"

START_TEST(an_engine_stands_random_load)
{
    stress_engine((uint64_t)_i, 12);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stress");
    TCase *cases = tcase_create("stress");

    tcase_add_loop_test(cases, an_engine_stands_random_load, 0, 60);
    tcase_set_timeout(cases, 15);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
