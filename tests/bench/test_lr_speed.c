/* How fast rubato-lr learns a9a with its defaults: the whole program, reading and evaluation
 * included, with two workers in one process; and the rows that it learns from in a second with four
 * workers, in one process and on two nodes. The test does not check the speed, only that the
 * program works. RUBATO_BENCH_REPEATS=15 gives meaningful figures:
 *
 *     RUBATO_BENCH_REPEATS=15 build/release/tests/test_lr_speed */
#include <math.h>
#include <stdlib.h>

#include "tests/support/cluster/program_run.h"
#include "tests/support/runner.h"

#define N_ROWS (30 * 32561) /* a9a, in as many epochs as there are by default */

static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp" };

static char *train, *test; /* made before the first case */
static int n_repeats = 1;

START_TEST(lr_learns_on_one_node_and_on_two)
{
    const char *const arguments[] = { "--train", train, "--model", models[_i], NULL };
    const double one =
        best_rows_per_second(n_repeats, N_ROWS, PLACE_ONE_PROCESS, "rubato-lr", arguments);
    const double two =
        best_rows_per_second(n_repeats, N_ROWS, PLACE_TWO_NODES, "rubato-lr", arguments);

    g_print("%s: %.0f rows a second in one process, %.0f on two nodes, %.2f of that\n", models[_i],
            one, two, two / one);
    ck_assert_double_gt(two, 0);
}
END_TEST

START_TEST(lr_as_a_whole)
{
    double best = G_MAXDOUBLE;

    for (int i = 0; i < n_repeats; i++) {
        const int64_t begun_us = g_get_monotonic_time();
        g_autoptr(JsonNode) card =
            run_for_card(PLACE_ONE_PROCESS, "rubato-lr",
                         (const char *const[]){ "--train", train, "--test", test, "--model",
                                                models[_i], "--workers", "2", NULL });

        ck_assert_int_eq(number(card, "workers"), 2);
        best = fmin(best, (double)(g_get_monotonic_time() - begun_us) / G_USEC_PER_SEC);
    }
    g_print("%s: %.3f s\n", models[_i], best);
    ck_assert_double_gt(best, 0);
}
END_TEST

static Suite *lr_speed_suite(void)
{
    Suite *suite = suite_create("lr_speed");
    TCase *tcase = tcase_create("lr_speed");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, lr_as_a_whole, 0, (int)G_N_ELEMENTS(models));
    tcase_add_loop_test(tcase, lr_learns_on_one_node_and_on_two, 0, (int)G_N_ELEMENTS(models));
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    const char *repeats = g_getenv("RUBATO_BENCH_REPEATS");

    if (repeats != NULL)
        n_repeats = atoi(repeats);
    n_repeats = MAX(1, n_repeats);
    if (!has_data("a9a/a9a")) {
        g_print("skipped: put the folder that has a9a into RUBATO_DATA_DIR\n");
        return 77;
    }
    train = data_path("a9a/a9a");
    test = data_path("a9a/a9a.t");
    const int status = run_suite(lr_speed_suite());
    g_free(train);
    g_free(test);
    return status;
}
