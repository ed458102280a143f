/* Whole engines under random load for a long time. RUBATO_SOAK_SECONDS is the time in seconds
 * (default 600). RUBATO_SOAK_SEED is the first seed (default: the time), such as one that a failed
 * run has printed. */
#include <glib.h>
#include <stdlib.h>
#include <time.h>

#include "tests/support/engine/engine_stress.h"
#include "tests/support/runner.h"

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);

    return text == NULL ? otherwise : g_ascii_strtoull(text, NULL, 10);
}

START_TEST(engines_stand_random_load_for_long)
{
    const uint64_t seconds = number_of("RUBATO_SOAK_SECONDS", 600);
    const gint64 begun_us = g_get_monotonic_time();
    uint64_t seed = number_of("RUBATO_SOAK_SEED", (uint64_t)time(NULL) * 1000);

    while ((uint64_t)(g_get_monotonic_time() - begun_us) < seconds * G_USEC_PER_SEC)
        stress_engine(seed++, 100);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("soak_engine");
    TCase *cases = tcase_create("soak_engine");

    tcase_add_test(cases, engines_stand_random_load_for_long);
    tcase_set_timeout(cases, (double)number_of("RUBATO_SOAK_SECONDS", 600) + 120);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
