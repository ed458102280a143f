/* rubato_worker_reduce: sums, means and extremes of numbers over the workers of a task.
 *
 * docs/reference/collectives.md */
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N_WORKERS = 3, N = 5, N_ROUNDS = 20 };

static const struct {
    RubatoReduction reduction;
    double first; /* of 1, 2 and 3 */
} reductions[] = {
    { RUBATO_REDUCTION_SUM, 6 }, { RUBATO_REDUCTION_MEAN, 2 },    { RUBATO_REDUCTION_MIN, 1 },
    { RUBATO_REDUCTION_MAX, 3 }, { RUBATO_REDUCTION_PRODUCT, 6 },
};

static bool reduce_often(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);

    (void)user_data;
    for (int round = 0; round < N_ROUNDS; round++)
        for (size_t i = 0; i < G_N_ELEMENTS(reductions); i++) {
            double values[N] = { rank + 1, 1e16, rank == 0 ? 1e16 : rank == 1 ? -1e16 : 1 };

            TRY(rubato_worker_reduce(worker, values, N, reductions[i].reduction, error));
            REQUIRE(values[0] == reductions[i].first, "(%g)", values[0]);
            if (reductions[i].reduction == RUBATO_REDUCTION_SUM)
                REQUIRE(values[2] == 1, "(%g)", values[2]); /* in the order of the ranks alone */
        }
    return rubato_worker_reduce(worker, NULL, 0, RUBATO_REDUCTION_SUM, error);
}

START_TEST(each_worker_gets_what_all_have_in_the_order_of_their_ranks)
{
    RubatoEngine *engine = engine_with_servers(1);

    run_ok(engine, N_WORKERS, reduce_often, NULL, NULL);
    rubato_engine_free(engine);
}
END_TEST

static bool disagree(RubatoWorker *worker, void *user_data, GError **error)
{
    double values[2] = { 1, 2 };

    (void)user_data;
    REQUIRE(!rubato_worker_reduce(worker, values, 1 + rubato_worker_rank(worker) % 2,
                                  RUBATO_REDUCTION_SUM, error));
    REQUIRE(is_error(error, RUBATO_ERROR_MISMATCH, "rubato_worker_reduce"));
    TRY(rubato_worker_reduce(worker, values, 2, RUBATO_REDUCTION_SUM, error));
    REQUIRE(values[0] == 2 && values[1] == 4);
    return true;
}

START_TEST(workers_with_different_numbers_are_told)
{
    RubatoEngine *engine = engine_with_servers(1);

    run_ok(engine, 2, disagree, NULL, NULL);
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("worker_reduce");
    TCase *const cases = tcase_create("reduce");

    tcase_add_test(cases, each_worker_gets_what_all_have_in_the_order_of_their_ranks);
    tcase_add_test(cases, workers_with_different_numbers_are_told);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
