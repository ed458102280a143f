/* Histories of clusters with faults for a long time, and of clusters that lose nodes:
 * RUBATO_SOAK_SCHEDULES of each model (default 100), and more until RUBATO_SOAK_SECONDS (default
 * 600) are over. RUBATO_SOAK_SEED is the first seed (default: the time). A seed that fails is
 * printed. */
#include <stdio.h>
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
    const uint64_t n_schedules = number_of("RUBATO_SOAK_SCHEDULES", 100);
    const uint64_t seconds = number_of("RUBATO_SOAK_SECONDS", 600);
    const uint64_t first = number_of("RUBATO_SOAK_SEED", (uint64_t)time(NULL) * 1000);
    const gint64 begun_us = g_get_monotonic_time();
    uint64_t n = 0;

    for (; n < n_schedules ||
           (uint64_t)(g_get_monotonic_time() - begun_us) < seconds * G_USEC_PER_SEC;
         n++)
        for (size_t i = 0; i < G_N_ELEMENTS(models); i++) {
            history_schedule_play(models[i], (uint32_t)(first + n), N_CLOCKS);
            history_schedule_play_losses(models[i], (uint32_t)(first + n), N_CLOCKS,
                                         HISTORY_LOSSES_ANY);
            history_schedule_play_replaced(models[i], (uint32_t)(first + n), N_CLOCKS,
                                           HISTORY_LOSSES_ANY);
        }
    printf("%" G_GUINT64_FORMAT " schedules of each model, from seed %" G_GUINT64_FORMAT "\n", n,
           first);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("soak_histories");
    TCase *tcase = tcase_create("soak_histories");

    history_schedule_register();
    tcase_add_test(tcase, runs_with_faults_keep_their_promises_for_long);
    tcase_set_timeout(tcase, (double)number_of("RUBATO_SOAK_SECONDS", 600) +
                                 60 * (double)number_of("RUBATO_SOAK_SCHEDULES", 100));
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
