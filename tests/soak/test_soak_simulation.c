/* Clusters in simulated time for a long time. RUBATO_SOAK_SECONDS is the time in seconds (default
 * 600), RUBATO_SOAK_SEED the first seed (default: the time). A seed that fails is printed;
 * test_cluster_simulation runs it again. */
#include <stdlib.h>
#include <time.h>

#include "tests/support/runner.h"
#include "tests/support/sim/sim_seeds.h"

#define PRINTED_EVERY 10000

START_TEST(clusters_keep_their_promises_for_long)
{
    const uint64_t seconds = sim_number_of("RUBATO_SOAK_SECONDS", 600);
    const uint64_t first = sim_number_of("RUBATO_SOAK_SEED", (uint64_t)time(NULL) * 1000000);
    const gint64 begun_us = g_get_monotonic_time();
    g_auto(SimSum) sum = { 0 };

    while ((uint64_t)(g_get_monotonic_time() - begun_us) < seconds * G_USEC_PER_SEC) {
        sim_add_seed(&sum, first + sum.n_seeds);
        if (sum.n_seeds % PRINTED_EVERY == 0)
            sim_print_sum(&sum);
    }
    sim_print_sum(&sum);
}
END_TEST

int main(void)
{
    if (!sim_can_run())
        return TEST_SKIPPED;

    Suite *const suite = suite_create("soak_simulation");
    TCase *const cases = tcase_create("soak_simulation");

    tcase_add_test(cases, clusters_keep_their_promises_for_long);
    tcase_set_timeout(cases, (double)sim_number_of("RUBATO_SOAK_SECONDS", 600) + 120);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
