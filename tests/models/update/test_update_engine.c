/* Update rules in a whole engine: schedules, state, resets, bad gradients, and a worker's own
 * Adds read through a cache. */
#include <math.h>
#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/runner.h"

static const char *const storages[] = { "dense", "hash" };

static void create(RubatoEngine *engine, RubatoTableSpec spec)
{
    spec.name = "t";
    spec.dtype = RUBATO_F64;
    spec = fitting_spec(spec);
    create_table(engine, &spec);
}

static RubatoKVTable *open_table(RubatoWorker *worker, GError **error)
{
    return rubato_worker_open_kv_table(worker, "t", RUBATO_F64, error);
}

/* ---- other numbers while tasks run ---- */

/* Keys 0 to 19 get a gradient of 1 at the first rate and at each that follows. */
static bool step_down(RubatoWorker *worker, void *user_data, GError **error)
{
    const double *rates = user_data;
    double ones[20];
    g_autoptr(RubatoKVTable) table = open_table(worker, error);

    for (int i = 0; i < 20; i++)
        ones[i] = 1;
    TRY(table != NULL && rubato_kv_table_add_range(table, 0, 20, ones, error));
    for (int i = 0; rates[i] >= 0; i++) {
        TRY(rubato_worker_tune(worker, "t", RUBATO_HYPER_LEARNING_RATE, rates[i], error));
        TRY(rubato_kv_table_add_range(table, 0, 20, ones, error));
    }
    return true;
}

START_TEST(a_schedule_is_in_order_with_the_adds_of_its_worker)
{
    static const char *const models[] = { "asp", "ssp", "sparse_ssp" };
    double rates[] = { 2, 0, 0.25, -1 };
    RubatoEngine *engine = engine_with_servers(3);

    create(engine, (RubatoTableSpec){ .n_keys = 20,
                                      .model = models[_i],
                                      .update = "sgd",
                                      .rule = { .learning_rate = 0.5 } });
    run_ok(engine, 1, step_down, rates, "t");
    for (RubatoKey key = 0; key < 20; key++)
        ck_assert(read_f64(engine, "t", key) == -(0.5 + 2 + 0 + 0.25));
    rubato_engine_free(engine);
}
END_TEST

enum { N_CLOCKS = 9, N_WORKERS = 3 };

/* In clock c the worker of rank c mod 3 gives the rate 2^-c, behind its own Add; in clock 4 the
 * others do too, with another. */
static bool step_by_clocks(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    const double one = 1;
    const RubatoKey key = 7;
    g_autoptr(RubatoKVTable) table = open_table(worker, error);

    (void)user_data;
    TRY(table != NULL);
    for (uint32_t clock = 0; clock < N_CLOCKS; clock++) {
        TRY(rubato_kv_table_add(table, &key, 1, &one, error));
        if (clock % N_WORKERS == rank || clock == 4)
            TRY(rubato_worker_tune(worker, "t", RUBATO_HYPER_LEARNING_RATE,
                                   ldexp(1, -(int)clock) + (clock == 4 ? rank : 0), error));
        TRY(rubato_kv_table_clock(table, error));
    }
    return true;
}

START_TEST(under_bsp_a_number_holds_for_the_clock_in_which_it_was_set)
{
    double expected = 0;
    RubatoEngine *engine = engine_with_servers(2);

    create(engine, (RubatoTableSpec){ .model = "bsp",
                                      .update = "sgd",
                                      .aggregate =
                                          _i == 0 ? RUBATO_AGGREGATE_NONE : RUBATO_AGGREGATE_SUM });
    run_ok(engine, N_WORKERS, step_by_clocks, NULL, "t");
    for (int clock = 0; clock < N_CLOCKS; clock++)
        expected -= 3 * (ldexp(1, -clock) + (clock == 4 ? N_WORKERS - 1 : 0));
    ck_assert_double_eq_tol(read_f64(engine, "t", 7), expected, 1e-12);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(a_number_set_between_tasks_stays)
{
    const RubatoKey key = 3;
    const double gradient = 1;
    RubatoEngine *engine = engine_with_servers(2);

    create(engine, (RubatoTableSpec){ .update = "sgd", .rule = { .learning_rate = 1 } });
    ck_assert(rubato_engine_add(engine, "t", &key, 1, &gradient, NULL));
    ck_assert(rubato_engine_tune(engine, "t", RUBATO_HYPER_LEARNING_RATE, 0.5, NULL));
    ck_assert(rubato_engine_add(engine, "t", &key, 1, &gradient, NULL));
    ck_assert(rubato_engine_tune(engine, "t", RUBATO_HYPER_LEARNING_RATE, 0, NULL));
    ck_assert(rubato_engine_add(engine, "t", &key, 1, &gradient, NULL));
    ck_assert(read_f64(engine, "t", key) == -1.5);
    ck_assert(rubato_engine_tune(engine, "t", RUBATO_HYPER_LEARNING_RATE, 1, NULL));
    ck_assert(rubato_engine_tune(engine, "t", RUBATO_HYPER_CLIP_VALUE, 0.25, NULL));
    ck_assert(rubato_engine_add(engine, "t", &key, 1, &gradient, NULL));
    ck_assert(read_f64(engine, "t", key) == -1.75);
    ck_assert(rubato_engine_tune(engine, "t", RUBATO_HYPER_CLIP_VALUE, 0, NULL));
    ck_assert(rubato_engine_tune(engine, "t", RUBATO_HYPER_WEIGHT_DECAY, 1, NULL));
    ck_assert(rubato_engine_add(engine, "t", &key, 1, &gradient, NULL));
    ck_assert(read_f64(engine, "t", key) == -1);
    rubato_engine_free(engine);
}
END_TEST

static bool tune_wrongly(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    REQUIRE(!rubato_worker_tune(worker, "u", RUBATO_HYPER_L1, 1, error));
    TRY(is_error(error, RUBATO_ERROR_NOT_FOUND, "does not use a table u"));
    REQUIRE(!rubato_worker_tune(worker, "t", RUBATO_HYPER_L1, 1, error));
    TRY(is_error(error, RUBATO_ERROR_INVALID, "\"adam\" has no l1"));
    return true;
}

START_TEST(numbers_that_cannot_be_are_refused)
{
    static const struct {
        RubatoHyper hyper;
        double value;
        const char *says;
    } wrong[] = {
        { RUBATO_HYPER_MOMENTUM, 0.5, "\"adam\" has no momentum that could be tuned" },
        { RUBATO_HYPER_BETA, 0, "\"adam\" has no beta" },
        { RUBATO_HYPER_BETA1, 1, "beta1 is 1; it has to be below 1" },
        { RUBATO_HYPER_BETA2, -0.5, "beta2 is -0.5" },
        { RUBATO_HYPER_EPSILON, 0, "epsilon is 0; it has to be above 0" },
        { RUBATO_HYPER_LEARNING_RATE, NAN, "learning_rate is nan" },
        { RUBATO_HYPER_LEARNING_RATE, INFINITY, "learning_rate is inf" },
        { (RubatoHyper)99, 1, "99 is no RubatoHyper" },
    };
    GError *error = NULL;
    RubatoEngine *engine = engine_with_servers(1);

    create(engine, (RubatoTableSpec){ .update = "adam" });
    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        ck_assert(!rubato_engine_tune(engine, "t", wrong[i].hyper, wrong[i].value, &error));
        check_error(&error, RUBATO_ERROR_INVALID, "table t: ", wrong[i].says, NULL);
    }
    ck_assert(!rubato_engine_tune(engine, "u", RUBATO_HYPER_BETA1, 0.5, &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "u", NULL);
    run_ok(engine, 1, tune_wrongly, NULL, "t");
    rubato_engine_free(engine);
}
END_TEST

/* ---- state ---- */

START_TEST(state_is_read_written_and_reset_with_its_row)
{
    const RubatoKey keys[] = { 11, 2, 17 };
    const double gradients[] = { 1, 2, 3, 4, 5, 6 };
    double values[6], states[12], read[12], saved[6];
    RubatoTableStats stats;
    RubatoEngine *engine = engine_with_servers(3);

    create(engine, (RubatoTableSpec){ .storage = storages[_i],
                                      .n_keys = 20,
                                      .width = 2,
                                      .update = "ftrl",
                                      .init_value = 0.5 });
    ck_assert(rubato_engine_table_stats(engine, "t", &stats, NULL));
    ck_assert_uint_eq(stats.row_bytes, 16);
    ck_assert_uint_eq(stats.state_bytes, 32);
    ck_assert(rubato_engine_add(engine, "t", keys, 3, gradients, NULL));
    ck_assert(rubato_engine_get(engine, "t", keys, 3, saved, NULL));
    ck_assert(rubato_engine_get_state(engine, "t", keys, 3, states, NULL));
    for (int i = 0; i < 3; i++) /* z0 = -0.5 × 1 / 0.1; n = gradient² */
        for (int c = 0; c < 2; c++) {
            const double g = gradients[2 * i + c];

            ck_assert_double_eq_tol(states[4 * i + c], -5 + g - g / 0.1 * 0.5, 1e-12);
            ck_assert_double_eq_tol(states[4 * i + 2 + c], g * g, 1e-12);
        }

    /* another Add of the same changes it; values and state written back come to the same again */
    ck_assert(rubato_engine_add(engine, "t", keys, 3, gradients, NULL));
    ck_assert(rubato_engine_get(engine, "t", keys, 3, values, NULL));
    ck_assert(rubato_engine_set(engine, "t", keys, 3, saved, NULL));
    ck_assert(rubato_engine_set_state(engine, "t", keys, 3, states, NULL));
    ck_assert(rubato_engine_get_state(engine, "t", keys, 3, read, NULL));
    ck_assert_mem_eq(read, states, sizeof states);
    ck_assert(rubato_engine_add(engine, "t", keys, 3, gradients, NULL));
    ck_assert(rubato_engine_get(engine, "t", keys, 3, saved, NULL));
    ck_assert_mem_eq(saved, values, sizeof values);

    /* the run of keys 1 and 2: the first was never touched */
    ck_assert(rubato_engine_get_state_range(engine, "t", 1, 2, read, NULL));
    ck_assert(read[0] == -5 && read[2] == 0);
    ck_assert(read[6] > 17.9);
    for (int i = 0; i < 8; i++)
        read[i] = i;
    ck_assert(rubato_engine_set_state_range(engine, "t", 1, 2, read, NULL));
    ck_assert(rubato_engine_get_state_range(engine, "t", 1, 2, states, NULL));
    ck_assert_mem_eq(read, states, 8 * sizeof *read);

    ck_assert(rubato_engine_reset(engine, "t", keys, 2, NULL));
    ck_assert(rubato_engine_get(engine, "t", keys, 3, values, NULL));
    ck_assert(rubato_engine_get_state(engine, "t", keys, 3, states, NULL));
    for (int i = 0; i < 4; i++)
        ck_assert(values[i] == 0.5 && states[2 * i] == (i % 2 == 0 ? -5 : 0));
    ck_assert(values[4] == saved[4] && values[5] == saved[5]);
    ck_assert(states[10] > 49.9);
    ck_assert(rubato_engine_reset_range(engine, "t", 0, 20, NULL));
    ck_assert(rubato_engine_get_range(engine, "t", 17, 1, values, NULL));
    ck_assert(values[0] == 0.5 && values[1] == 0.5);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(a_row_that_is_set_learns_from_there)
{
    const RubatoKey key = 4;
    const double half = 0.5, gradient = 0.001;
    double z[2];
    RubatoEngine *engine = engine_with_servers(2);

    create(engine,
           (RubatoTableSpec){
               .storage = storages[_i], .n_keys = 9, .update = "ftrl", .rule = { .l1 = 0.01 } });
    ck_assert(rubato_engine_set_range(engine, "t", 4, 1, &half, NULL));
    ck_assert(read_f64(engine, "t", 4) == 0.5);
    ck_assert(rubato_engine_add(engine, "t", &key, 1, &gradient, NULL));
    ck_assert_double_eq_tol(read_f64(engine, "t", 4), 0.5, 1e-3);
    ck_assert(read_f64(engine, "t", 4) < 0.5);
    ck_assert(rubato_engine_get_state(engine, "t", &key, 1, z, NULL));
    ck_assert(z[0] < -5);
    ck_assert_uint_eq(count_rows(engine, "t"), _i == 0 ? 9 : 1);
    ck_assert(rubato_engine_reset(engine, "t", (RubatoKey[]){ 8 }, 1, NULL));
    ck_assert_uint_eq(count_rows(engine, "t"), _i == 0 ? 9 : 1); /* nothing is made by a reset */
    rubato_engine_free(engine);
}
END_TEST

START_TEST(what_has_no_state_says_so)
{
    const RubatoKey key = 1;
    double value = 5;
    GError *error = NULL;
    RubatoEngine *engine = engine_with_servers(1);

    create(engine, (RubatoTableSpec){ .update = "sgd" });
    ck_assert(!rubato_engine_get_state(engine, "t", &key, 1, &value, &error));
    check_error(&error, RUBATO_ERROR_INVALID, "table t", "\"sgd\" keeps no state", NULL);
    ck_assert(!rubato_engine_set_state_range(engine, "t", 1, 1, &value, &error));
    check_error(&error, RUBATO_ERROR_INVALID, "keeps no state", NULL);
    ck_assert(value == 5);
    ck_assert(rubato_engine_set(engine, "t", &key, 1, &value, NULL));
    ck_assert(read_f64(engine, "t", 1) == 5);
    ck_assert(rubato_engine_reset(engine, "t", &key, 1, NULL));
    ck_assert(read_f64(engine, "t", 1) == 0);
    rubato_engine_free(engine);
}
END_TEST

/* ---- bad gradients ---- */

enum { BAD_WIDTH = 3 };

/* Each worker adds to the rows 10 × rank + 0 … 4, in a run or a list; rows 1 to 3 are bad. */
static bool add_bad(RubatoWorker *worker, void *user_data, GError **error)
{
    const bool as_list = user_data != NULL;
    const RubatoKey first = 10 * (RubatoKey)rubato_worker_rank(worker);
    const RubatoKey keys[] = { first, first + 1, first + 2, first + 3, first + 4 };
    double deltas[5][BAD_WIDTH] = {
        { 1, 1, 1 }, { 1, NAN, -NAN }, { -INFINITY, 1, NAN }, { 1, 100.5, 1 }, { 1, -100, 1 }
    };
    /* of any sign */
    deltas[3][1] = rubato_worker_rank(worker) == 0 ? 100.5 : -100.5;
    g_autoptr(RubatoKVTable) table = open_table(worker, error);

    TRY(table != NULL);
    return as_list ? rubato_kv_table_add(table, keys, 5, deltas, error)
                   : rubato_kv_table_add_range(table, first, 5, deltas, error);
}

static void check_bad(RubatoEngine *engine, bool refuses)
{
    static const bool is_bad[] = { false, true, true, true, false };
    double values[5][BAD_WIDTH];

    for (RubatoKey rank = 0; rank < 2; rank++) {
        ck_assert(rubato_engine_get_range(engine, "t", 10 * rank, 5, values, NULL));
        for (int i = 0; i < 5; i++)
            ck_assert_msg((values[i][0] == 0) == (refuses && is_bad[i]), "row %d has %g", i,
                          values[i][0]);
        ck_assert(isnan(values[1][1]) != refuses);
        ck_assert(isnan(values[2][2]) != refuses);
    }
}

static void check_counts(RubatoEngine *engine, uint64_t times, bool refuses)
{
    g_autofree RubatoBadGradients *counts = NULL;
    size_t n = 77;

    ck_assert(rubato_engine_bad_gradients(engine, "t", &counts, &n, NULL));
    ck_assert_uint_eq(n, times == 0 ? 0 : 2);
    for (uint32_t rank = 0; rank < n; rank++) {
        ck_assert_uint_eq(counts[rank].worker, rank);
        ck_assert_uint_eq(counts[rank].n_nan, 3 * times);
        ck_assert_uint_eq(counts[rank].n_infinite, times);
        ck_assert_uint_eq(counts[rank].n_large, times);
        ck_assert_uint_eq(counts[rank].n_refused_rows, refuses ? 3 * times : 0);
    }
}

static const struct {
    const char *update, *storage, *model;
    RubatoOnBadGradient on_bad_gradient;
    RubatoAggregate aggregate;
    double clip_norm;
    bool counts, refuses;
} bad_cases[] = {
    { "sgd", "dense", "asp", RUBATO_ON_BAD_GRADIENT_DEFAULT, 0, 0, true, false },
    { "sgd", "dense", "asp", RUBATO_ON_BAD_GRADIENT_REFUSE, 0, 0, true, true },
    { "sgd", "hash", "asp", RUBATO_ON_BAD_GRADIENT_REFUSE, 0, 1e9, true, true },
    { "adagrad", "dense", "ssp", RUBATO_ON_BAD_GRADIENT_COUNT, 0, 0, true, false },
    { "adagrad", "dense", "bsp", RUBATO_ON_BAD_GRADIENT_REFUSE, 0, 0, true, true },
    { "adagrad", "hash", "bsp", RUBATO_ON_BAD_GRADIENT_REFUSE, RUBATO_AGGREGATE_SUM, 0, true,
      true },
    { "add", "dense", "bsp", RUBATO_ON_BAD_GRADIENT_COUNT, RUBATO_AGGREGATE_MEAN, 0, true, false },
    { "add", "hash", "asp", RUBATO_ON_BAD_GRADIENT_REFUSE, 0, 0, true, true },
    { "add", "hash", "asp", RUBATO_ON_BAD_GRADIENT_DEFAULT, 0, 0, false, false },
    { "assign", "dense", "asp", RUBATO_ON_BAD_GRADIENT_REFUSE, 0, 0, true, true },
    { "sgd", "dense", "asp", RUBATO_ON_BAD_GRADIENT_UNCHECKED, 0, 0, false, false },
};

static const char *const models_of_bad[] = { "asp", "bsp" };

START_TEST(bad_gradients_are_counted_by_worker_and_refused_where_asked)
{
    const bool checks = bad_cases[_i].counts;
    RubatoEngine *engine = engine_with_servers(3);
    RubatoTableSpec spec = { .storage = bad_cases[_i].storage,
                             .n_keys = 20,
                             .width = BAD_WIDTH,
                             .model = bad_cases[_i].model,
                             .update = bad_cases[_i].update,
                             .aggregate = bad_cases[_i].aggregate,
                             .rule = { .on_bad_gradient = bad_cases[_i].on_bad_gradient,
                                       .clip_norm = bad_cases[_i].clip_norm,
                                       .max_gradient = checks ? 100 : 0 } };

    create(engine, spec);
    check_counts(engine, 0, false);
    run_ok(engine, 2, add_bad, NULL, "t");
    check_bad(engine, bad_cases[_i].refuses);
    check_counts(engine, checks ? 1 : 0, bad_cases[_i].refuses);
    run_ok(engine, 2, add_bad, engine, "t");
    check_bad(engine, bad_cases[_i].refuses);
    check_counts(engine, checks ? 2 : 0, bad_cases[_i].refuses);
    rubato_engine_free(engine);
}
END_TEST

/* Rows of all servers get deltas that are no numbers, from two workers, in two tasks; and deltas
 * that are only large, which the table is asked to refuse, from none. */
START_TEST(a_delta_that_is_no_number_is_logged_once_by_table_and_worker)
{
    RubatoEngine *engine;

    log_capture_start();
    engine = engine_with_servers(3);
    create(engine, (RubatoTableSpec){ .n_keys = 20,
                                      .width = BAD_WIDTH,
                                      .model = models_of_bad[_i],
                                      .update = "sgd",
                                      .parts = 6 });
    run_ok(engine, 2, add_bad, NULL, "t");
    run_ok(engine, 2, add_bad, engine, "t");
    ck_assert_uint_eq(log_capture_count("a value that is no number"), 2);
    ck_assert_uint_eq(log_capture_count("table t: worker 0 has added a value that is no number"),
                      1);
    ck_assert_uint_eq(log_capture_count("table t: worker 1 has added a value that is no number"),
                      1);
    ck_assert(rubato_engine_drop_table(engine, "t", NULL));
    create(engine, (RubatoTableSpec){ .n_keys = 20, .width = BAD_WIDTH, .update = "sgd" });
    run_ok(engine, 1, add_bad, NULL, "t");
    ck_assert_uint_eq(log_capture_count("table t: worker 0 has added a value that is no number"),
                      2);
    rubato_engine_free(engine);
}
END_TEST

/* Keys of all servers in no order, so that each server gets a selection of them. */
static bool add_some_bad(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey keys[] = { 19, 2, 11, 0, 17, 5, 12, 7 };
    double deltas[G_N_ELEMENTS(keys)];
    g_autoptr(RubatoKVTable) table = open_table(worker, error);

    (void)user_data;
    for (size_t i = 0; i < G_N_ELEMENTS(keys); i++)
        deltas[i] = i % 3 == 1 ? NAN : 1 + (double)keys[i];
    return table != NULL && rubato_kv_table_add(table, keys, G_N_ELEMENTS(keys), deltas, error);
}

START_TEST(beside_bad_gradients_each_good_one_goes_to_its_own_row)
{
    RubatoEngine *engine = engine_with_servers(2);
    double values[20];

    create(engine,
           (RubatoTableSpec){ .storage = storages[_i],
                              .n_keys = 20,
                              .model = "asp",
                              .update = "assign",
                              .rule = { .on_bad_gradient = RUBATO_ON_BAD_GRADIENT_REFUSE } });
    run_ok(engine, 1, add_some_bad, NULL, "t");
    for (RubatoKey key = 0; key < 20; key++)
        values[key] = read_f64(engine, "t", key);
    for (RubatoKey key = 0; key < 20; key++) {
        const bool is_good = key == 19 || key == 11 || key == 0 || key == 5 || key == 12;

        ck_assert_msg(values[key] == (is_good ? 1 + (double)key : 0), "key %d is %g", (int)key,
                      values[key]);
    }
    rubato_engine_free(engine);
}
END_TEST

START_TEST(bad_gradients_of_the_engine_are_nobodys)
{
    const RubatoKey key = 5;
    const double large = 1e9, bad = NAN;
    g_autofree RubatoBadGradients *counts = NULL;
    GError *error = NULL;
    size_t n;
    RubatoEngine *engine;

    log_capture_start();
    engine = engine_with_servers(1);
    create(engine,
           (RubatoTableSpec){
               .update = "momentum",
               .rule = { .max_gradient = 1e8, .on_bad_gradient = RUBATO_ON_BAD_GRADIENT_REFUSE } });
    ck_assert(rubato_engine_add(engine, "t", &key, 1, &large, NULL));
    ck_assert_uint_eq(log_capture_count("no number"), 0);
    ck_assert(rubato_engine_add(engine, "t", &key, 1, &bad, NULL));
    ck_assert_uint_eq(log_capture_count("table t: the engine has added a value that is no number"),
                      1);
    ck_assert(read_f64(engine, "t", key) == 0);
    ck_assert(rubato_engine_bad_gradients(engine, "t", &counts, &n, NULL));
    ck_assert_uint_eq(n, 1);
    ck_assert_uint_eq(counts[0].worker, UINT32_MAX);
    ck_assert_uint_eq(counts[0].n_nan, 1);
    ck_assert(!rubato_engine_bad_gradients(engine, "u", &counts, &n, &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "u", NULL);
    rubato_engine_free(engine);
}
END_TEST

/* ---- through a cache ---- */

/* Each Get must show every Add of this worker, whatever is in the cache. */
static bool add_and_look(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = rubato_worker_rank(worker), both[] = { 0, 1 };
    double sum = 0, value = 0;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, "t", RUBATO_F64, error);

    (void)user_data;
    TRY(table != NULL);
    for (int i = 0; i < 200; i++) {
        const double g = 1 + i % 3;
        double seen[2];

        TRY(rubato_kv_table_get(table, both, 2, seen, error));
        REQUIRE(fabs(seen[key] - value) < 1e-9, "%g and not %g after %d", seen[key], value, i);
        sum += g * g;
        value -= 0.5 * g / sqrt(sum);
        TRY(rubato_kv_table_add(table, &key, 1, &g, error));
        if (i % 4 == 3)
            TRY(rubato_kv_table_clock(table, error));
    }
    return true;
}

START_TEST(a_worker_sees_its_own_adds_through_the_cache)
{
    RubatoEngine *engine = engine_with_servers(2);

    create(engine, (RubatoTableSpec){ .model = "ssp",
                                      .staleness = 2,
                                      .cache = RUBATO_CACHE_ALL,
                                      .update = "adagrad",
                                      .rule = { .learning_rate = 0.5, .epsilon = 1e-30 } });
    run_ok(engine, 2, add_and_look, NULL, "t");
    rubato_engine_free(engine);
}
END_TEST

/* Rows that the server refuses must not stay in the cache. */
static bool add_badly_and_look(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 1;
    const double one = 1, bad = NAN;
    double seen;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, "t", RUBATO_F64, error);

    (void)user_data;
    TRY(table != NULL);
    TRY(rubato_kv_table_add(table, &key, 1, &one, error));
    TRY(rubato_kv_table_get(table, &key, 1, &seen, error));
    TRY(rubato_kv_table_add(table, &key, 1, &bad, error));
    TRY(rubato_kv_table_get(table, &key, 1, &seen, error));
    REQUIRE(seen == 1, "%g", seen);
    return true;
}

START_TEST(what_is_refused_does_not_stay_in_the_cache)
{
    RubatoEngine *engine = engine_with_servers(1);

    create(engine,
           (RubatoTableSpec){ .model = "ssp",
                              .staleness = 2,
                              .cache = RUBATO_CACHE_ALL,
                              .rule = { .on_bad_gradient = RUBATO_ON_BAD_GRADIENT_REFUSE } });
    run_ok(engine, 1, add_badly_and_look, NULL, "t");
    rubato_engine_free(engine);
}
END_TEST

static Suite *update_engine_suite(void)
{
    Suite *suite = suite_create("update rules in an engine");
    TCase *tcase = tcase_create("engine");

    tcase_add_loop_test(tcase, a_schedule_is_in_order_with_the_adds_of_its_worker, 0, 3);
    tcase_add_loop_test(tcase, under_bsp_a_number_holds_for_the_clock_in_which_it_was_set, 0, 2);
    tcase_add_test(tcase, a_number_set_between_tasks_stays);
    tcase_add_test(tcase, numbers_that_cannot_be_are_refused);
    tcase_add_loop_test(tcase, state_is_read_written_and_reset_with_its_row, 0, 2);
    tcase_add_loop_test(tcase, a_row_that_is_set_learns_from_there, 0, 2);
    tcase_add_test(tcase, what_has_no_state_says_so);
    tcase_add_loop_test(tcase, bad_gradients_are_counted_by_worker_and_refused_where_asked, 0,
                        (int)G_N_ELEMENTS(bad_cases));
    tcase_add_loop_test(tcase, a_delta_that_is_no_number_is_logged_once_by_table_and_worker, 0, 2);
    tcase_add_loop_test(tcase, beside_bad_gradients_each_good_one_goes_to_its_own_row, 0, 2);
    tcase_add_test(tcase, bad_gradients_of_the_engine_are_nobodys);
    tcase_add_test(tcase, a_worker_sees_its_own_adds_through_the_cache);
    tcase_add_test(tcase, what_is_refused_does_not_stay_in_the_cache);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_suite(update_engine_suite());
}
