/* Histories of clusters with faults for a long time. RUBATO_SOAK_SECONDS is the time in seconds
 * (default 600), RUBATO_SOAK_SEED the first seed (default: the time). A seed that fails is
 * printed. */
#include <stdlib.h>
#include <time.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/history_schedule.h"
#include "tests/support/runner.h"

enum { N_CLOCKS = 15 };

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);

    return text == NULL ? otherwise : g_ascii_strtoull(text, NULL, 10);
}

START_TEST(runs_with_faults_keep_their_promises_for_long)
{
    static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp" };
    const uint64_t seconds = number_of("RUBATO_SOAK_SECONDS", 600);
    const gint64 begun_us = g_get_monotonic_time();
    uint64_t seed = number_of("RUBATO_SOAK_SEED", (uint64_t)time(NULL) * 1000);

    for (; (uint64_t)(g_get_monotonic_time() - begun_us) < seconds * G_USEC_PER_SEC; seed++)
        for (size_t i = 0; i < G_N_ELEMENTS(models); i++)
            history_schedule_play(models[i], (uint32_t)seed, N_CLOCKS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("soak_histories");
    TCase *tcase = tcase_create("soak_histories");

    tcase_add_test(tcase, runs_with_faults_keep_their_promises_for_long);
    tcase_set_timeout(tcase, (double)number_of("RUBATO_SOAK_SECONDS", 600) + 300);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
