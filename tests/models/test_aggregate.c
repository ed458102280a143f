/* Gradients of a clock that are summed, or averaged over workers, before the update rule applies
 * them; in a whole engine. */
#include <math.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/runner.h"

static const char *const storages[] = { "dense", "hash" };

static void create(RubatoEngine *engine, RubatoTableSpec spec)
{
    spec.name = "t";
    spec.dtype = RUBATO_F64;
    spec.model = "bsp";
    spec = fitting_spec(spec);
    create_table(engine, &spec);
}

/* Three workers, two clocks. Key 1 gets of worker r in clock c: r + 1 + c, in two Adds; key 2 the
 * same of worker 2 alone; key 3 twice 1 of worker 0, in one Add. */
static bool add_by_clock(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    const RubatoKey one = 1, two = 2, threes[] = { 3, 3 };
    const double ones[] = { 1, 1 };
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F64, error);

    (void)user_data;
    TRY(table != NULL);
    for (uint32_t clock = 0; clock < 2; clock++) {
        const double part = (rank + 1 + clock) / 2.0;

        TRY(rubato_kv_table_add(table, &one, 1, &part, error));
        TRY(rubato_kv_table_add(table, &one, 1, &part, error));
        if (rank == 2)
            TRY(rubato_kv_table_add(table, &two, 1, (double[]){ 2 * part }, error));
        if (rank == 0)
            TRY(rubato_kv_table_add(table, threes, 2, ones, error));
        TRY(rubato_kv_table_clock(table, error));
    }
    return true;
}

/* Two steps with momentum on one value. */
static double two_steps(double g0, double g1)
{
    return -0.25 * g0 - 0.25 * (0.5 * g0 + g1);
}

START_TEST(the_gradients_of_a_clock_are_applied_as_one)
{
    const bool is_mean = _i % 2 == 1;
    RubatoEngine *engine = engine_with_servers(2);

    create(engine,
           (RubatoTableSpec){ .storage = storages[_i / 2],
                              .n_keys = 10,
                              .update = "momentum",
                              .aggregate = is_mean ? RUBATO_AGGREGATE_MEAN : RUBATO_AGGREGATE_SUM,
                              .rule = { .learning_rate = 0.25, .momentum = 0.5 } });
    run_ok(engine, 3, add_by_clock, NULL, "t");
    ck_assert_double_eq_tol(read_f64(engine, "t", 1), is_mean ? two_steps(2, 3) : two_steps(6, 9),
                            1e-12);
    ck_assert_double_eq_tol(read_f64(engine, "t", 2), two_steps(3, 4), 1e-12);
    ck_assert_double_eq_tol(read_f64(engine, "t", 3), two_steps(2, 2), 1e-12);
    ck_assert(read_f64(engine, "t", 4) == 0);
    rubato_engine_free(engine);
}
END_TEST

/* Clock c has N_MANY rows: those from c on, and each worker adds c + 1 to them. */
enum { N_MANY = 3000, N_SUMMED = 4 };

static bool add_many_by_clock(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autofree double *deltas = g_new(double, N_MANY);
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F64, error);

    (void)user_data;
    TRY(table != NULL);
    for (uint32_t clock = 0; clock < N_SUMMED; clock++) {
        for (uint32_t i = 0; i < N_MANY; i++)
            deltas[i] = clock + 1;
        TRY(rubato_kv_table_add_range(table, clock, N_MANY, deltas, error));
        TRY(rubato_kv_table_clock(table, error));
    }
    return true;
}

/* The sums of one clock are no part of the next, also with thousands of rows. */
START_TEST(the_sums_of_a_clock_are_gone_after_it)
{
    const uint32_t n_workers = 2;
    RubatoEngine *engine = engine_with_servers(1);
    RubatoKey keys[N_MANY + N_SUMMED];
    double values[N_MANY + N_SUMMED];

    create(engine, (RubatoTableSpec){ .storage = storages[_i],
                                      .n_keys = N_MANY + N_SUMMED,
                                      .update = "momentum",
                                      .aggregate = RUBATO_AGGREGATE_SUM,
                                      .rule = { .learning_rate = 1, .momentum = 0.5 } });
    run_ok(engine, n_workers, add_many_by_clock, NULL, "t");
    for (uint32_t i = 0; i < N_MANY + N_SUMMED; i++)
        keys[i] = i;
    ck_assert(rubato_engine_get(engine, "t", keys, N_MANY + N_SUMMED, values, NULL));
    for (uint32_t i = 0; i < N_MANY + N_SUMMED; i++) {
        double expected = 0, velocity = 0;

        for (uint32_t clock = 0; clock < N_SUMMED; clock++)
            if (i >= clock && i < clock + N_MANY) {
                velocity = velocity / 2 + n_workers * (clock + 1);
                expected -= velocity;
            }
        require_msg(values[i] == expected, "key %u is %g instead of %g", i, values[i], expected);
    }
    rubato_engine_free(engine);
}
END_TEST

/* Keys that repeat, near to each other and far apart, in no order; some rows are bad. */
enum { N_DRAWN = 1000, N_DIFFERENT = 300 };

static RubatoKey drawn_key(uint32_t i)
{
    return i % 7 == 6 ? (i - 1) * 37 % N_DIFFERENT : i * 37 % N_DIFFERENT;
}

static bool is_drawn_bad(uint32_t i)
{
    return i == 70 || i == 500 || i == 501;
}

static bool add_drawn(RubatoWorker *worker, void *user_data, GError **error)
{
    RubatoKey keys[N_DRAWN];
    double deltas[N_DRAWN];
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F64, error);

    (void)user_data;
    TRY(table != NULL);
    for (uint32_t i = 0; i < N_DRAWN; i++) {
        keys[i] = drawn_key(i);
        deltas[i] = is_drawn_bad(i) ? (double)NAN : (double)i;
    }
    TRY(rubato_kv_table_add(table, keys, N_DRAWN, deltas, error));
    return rubato_kv_table_clock(table, error);
}

START_TEST(a_sum_has_all_good_rows_of_a_key_and_no_bad_one)
{
    const uint32_t n_workers = 2, n_servers = 1 + (uint32_t)_i / 2;
    RubatoEngine *engine = engine_with_servers(n_servers);
    g_autofree RubatoBadGradients *counts = NULL;
    double expected[N_DIFFERENT] = { 0 };
    size_t n;

    create(engine,
           (RubatoTableSpec){
               .storage = storages[_i % 2],
               .n_keys = N_DIFFERENT,
               .update = "sgd",
               .aggregate = RUBATO_AGGREGATE_SUM,
               .rule = { .learning_rate = 1, .on_bad_gradient = RUBATO_ON_BAD_GRADIENT_REFUSE } });
    run_ok(engine, n_workers, add_drawn, NULL, "t");
    for (uint32_t i = 0; i < N_DRAWN; i++)
        if (!is_drawn_bad(i))
            expected[drawn_key(i)] -= n_workers * (double)i;
    for (RubatoKey key = 0; key < N_DIFFERENT; key++)
        require_msg(read_f64(engine, "t", key) == expected[key], "key %u is %g instead of %g",
                    (unsigned)key, read_f64(engine, "t", key), expected[key]);
    ck_assert(rubato_engine_bad_gradients(engine, "t", &counts, &n, NULL));
    ck_assert_uint_eq(n, n_workers);
    ck_assert_uint_eq(counts[0].n_nan, 3);
    ck_assert_uint_eq(counts[1].n_nan, 3);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(without_aggregation_each_is_applied_in_worker_order)
{
    double sum = 0, value = 0;
    RubatoEngine *engine = engine_with_servers(2);

    create(engine, (RubatoTableSpec){ .update = "adagrad",
                                      .rule = { .learning_rate = 0.5, .epsilon = 1e-30 } });
    run_ok(engine, 3, add_by_clock, NULL, "t");
    for (int clock = 0; clock < 2; clock++)
        for (int i = 0; i < 6; i++) {
            const double g = (i / 2 + 1 + clock) / 2.0;

            sum += g * g;
            value -= 0.5 * g / sqrt(sum);
        }
    ck_assert_double_eq_tol(read_f64(engine, "t", 1), value, 1e-12);
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gradients of a clock");
    TCase *tcase = tcase_create("aggregate");

    tcase_add_loop_test(tcase, the_gradients_of_a_clock_are_applied_as_one, 0, 4);
    tcase_add_loop_test(tcase, the_sums_of_a_clock_are_gone_after_it, 0, 2);
    tcase_add_loop_test(tcase, a_sum_has_all_good_rows_of_a_key_and_no_bad_one, 0, 4);
    tcase_add_test(tcase, without_aggregation_each_is_applied_in_worker_order);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
