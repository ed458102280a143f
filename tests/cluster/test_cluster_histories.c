/* Histories of clusters with faults, by seed, under every model: each is judged by
 * `rubato history check`. tests/soak/test_soak_histories.c plays many more. */
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/history_schedule.h"
#include "tests/support/runner.h"

enum { N_SEEDS = 2, N_CLOCKS = 6 };

static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp" };

START_TEST(a_run_with_faults_keeps_what_its_model_promises)
{
    history_schedule_play(models[(size_t)_i % G_N_ELEMENTS(models)],
                          (uint32_t)_i / G_N_ELEMENTS(models), N_CLOCKS);
}
END_TEST

START_TEST(a_run_that_loses_nodes_keeps_what_its_model_promises)
{
    history_schedule_play_losses(models[_i], (uint32_t)_i, N_CLOCKS, HISTORY_LOSSES_KILLED);
}
END_TEST

START_TEST(a_run_whose_lost_workers_are_replaced_keeps_what_its_model_promises)
{
    history_schedule_play_replaced(models[_i], (uint32_t)_i, N_CLOCKS, HISTORY_LOSSES_KILLED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster histories");
    TCase *tcase = cluster_add_case(suite, "histories");

    history_schedule_register();
    tcase_add_loop_test(tcase, a_run_with_faults_keeps_what_its_model_promises, 0,
                        (cluster_slowness() == 1 ? N_SEEDS : 1) * (int)G_N_ELEMENTS(models));
    tcase_add_loop_test(tcase, a_run_that_loses_nodes_keeps_what_its_model_promises, 0,
                        G_N_ELEMENTS(models));
    tcase_add_loop_test(tcase, a_run_whose_lost_workers_are_replaced_keeps_what_its_model_promises,
                        0, G_N_ELEMENTS(models));
    return run_suite(suite);
}
