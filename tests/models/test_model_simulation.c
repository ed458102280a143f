/* The built-in models under random programs and deliveries, by the testing kit: each keeps the
 * bounds that the documentation gives it.
 *
 * RUBATO_TEST_SEEDS is how many seeds each case runs, RUBATO_TEST_SEED the one that is to be run
 * alone. */
#include <rubato/testing.h>

#include "tests/support/runner.h"

static const RubatoTableSpec SPECS[] = {
    { .model = "asp" },
    { .model = "bsp" },
    { .model = "ssp", .staleness = 0 },
    { .model = "ssp", .staleness = 1 },
    { .model = "ssp", .staleness = 3 },
    { .model = "sparse_ssp", .staleness = 0, .speculation = 0 },
    { .model = "sparse_ssp", .staleness = 0, .speculation = 1 },
    { .model = "sparse_ssp", .staleness = 0, .speculation = 3 },
    { .model = "sparse_ssp", .staleness = 1, .speculation = 1 },
    { .model = "sparse_ssp", .staleness = 1, .speculation = 2 },
    { .model = "sparse_ssp", .staleness = 2, .speculation = 0 },
    { .model = "sparse_ssp", .staleness = 3, .speculation = 3 },
    { .model = "sparse_ssp",
      .staleness = 1,
      .speculation = 3,
      .storage = "dense",
      .record = "dense" },
    { .model = "sparse_ssp",
      .staleness = 2,
      .speculation = 2,
      .storage = "dense",
      .record = "dense" },
};

static void run(const RubatoTableSpec *spec, uint64_t first_seed)
{
    rubato_test_model(&(RubatoModelTest){ .spec = *spec,
                                          .bounds = rubato_test_bounds(spec),
                                          .first_seed = first_seed,
                                          .n_seeds = is_slow() ? 150 : 600 });
}

START_TEST(models_do_what_the_semantics_say)
{
    run(&SPECS[_i], 0);
}
END_TEST

/* Few workers come far. */
START_TEST(models_do_so_with_two_workers)
{
    rubato_test_model(&(RubatoModelTest){ .spec = SPECS[_i],
                                          .bounds = rubato_test_bounds(&SPECS[_i]),
                                          .first_seed = 1000000,
                                          .n_seeds = is_slow() ? 100 : 300,
                                          .max_workers = 2 });
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model simulation");
    TCase *tcase = tcase_create("simulation");

    tcase_add_loop_test(tcase, models_do_what_the_semantics_say, 0, G_N_ELEMENTS(SPECS));
    tcase_add_loop_test(tcase, models_do_so_with_two_workers, 0, G_N_ELEMENTS(SPECS));
    tcase_set_timeout(tcase, 100);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
