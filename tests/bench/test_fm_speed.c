/* How many rows rubato-fm learns from in a second: 20 fields of 1000 values, some of them often, 16
 * factors, two workers in one process, reading from the cache. The test does not check the speed,
 * only that the program works. RUBATO_BENCH_ROWS=1000000 makes enough rows for meaningful figures:
 *
 *     RUBATO_BENCH_ROWS=1000000 build/release/tests/test_fm_speed */
#include <stdlib.h>

#include "tests/support/cluster/program_run.h"
#include "tests/support/data/factor_rows.h"
#include "tests/support/runner.h"

#define N_ROWS_DEFAULT 4000

static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp" };

static const FactorRows clicks = {
    .n_fields = 20,
    .n_values = 1000,
    .n_factors = 8,
    .skew = 2,
    .linear = 0.5,
    .pairs = 2,
    .seed = 1,
};

static char *dir, *train; /* made before the first case */
static size_t n_rows;
static int n_repeats = 1;

START_TEST(fm_learns_rows_from_the_cache)
{
    const double best =
        best_rows_per_second(n_repeats, (int64_t)(4 * n_rows), PLACE_ONE_PROCESS, "rubato-fm",
                             (const char *const[]){ "--train", train, "--cache", dir, "--factors",
                                                    "16", "--workers", "2", "--batch-size", "16384",
                                                    "--epochs", "4", "--model", models[_i], NULL });

    g_print("%s: %.0f rows a second\n", models[_i], best);
    ck_assert_double_gt(best, 0);
}
END_TEST

static Suite *fm_speed_suite(void)
{
    Suite *suite = suite_create("fm_speed");
    TCase *tcase = tcase_create("fm_speed");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, fm_learns_rows_from_the_cache, 0, (int)G_N_ELEMENTS(models));
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    const char *rows = g_getenv("RUBATO_BENCH_ROWS");

    n_rows = N_ROWS_DEFAULT;
    if (rows != NULL) {
        n_rows = (size_t)g_ascii_strtoull(rows, NULL, 10);
        n_repeats = 5;
    }
    dir = g_dir_make_tmp("rubato-fm-XXXXXX", NULL);
    train = g_build_filename(dir, "clicks.svm", NULL);
    if (n_rows == 0 || !factor_rows_write(&clicks, train, 0, n_rows, NULL, NULL))
        return EXIT_FAILURE;
    const int status = run_suite(fm_speed_suite());
    remove_folder(dir);
    g_free(train);
    g_free(dir);
    return status;
}
