/* Initialisers: the values of rows to which nothing was added. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/column_bits.h"
#include "models/init.h"
#include "models/normal.h"
#include "models/shard/shard.h"
#include "models/spec.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/runner.h"

/* Reads n rows from `first` on of a shard that begins at `from`. */
static void read_rows(const RubatoTableSpec *of, const char *storage, RubatoKey from,
                      RubatoKey first, size_t n, void *values)
{
    g_autoptr(GError) error = NULL;
    RubatoTableSpec spec = *of;

    spec.name = "init";
    spec.storage = storage;
    spec.n_keys = 5000;
    spec = fitting_spec(spec);
    ck_assert_msg(spec_check(&spec, &error), "%s", error == NULL ? "" : error->message);
    RubatoShard *shard = shard_new(&spec, from, 5000 - from, &error);
    ck_assert_ptr_nonnull(shard);
    const RubatoKeys run = { .first = first, .n = n };
    shard_get(shard, &run, values);
    shard_free(shard);
}

START_TEST(initial_values_follow_from_seed_key_and_column_alone)
{
    static const char *const kinds[] = { "constant", "uniform", "normal" };
    const RubatoDtype dtype = (RubatoDtype)(_i / 3);
    RubatoTableSpec spec = { .dtype = dtype,
                             .width = 3,
                             .init = kinds[_i % 3],
                             .init_value = 4,
                             .init_low = -50,
                             .init_high = 70,
                             .init_mean = 10,
                             .init_stddev = 20,
                             .seed = 11 };
    const size_t n_bytes = 1000 * 3 * rubato_dtype_size(dtype);
    g_autofree void *whole = g_malloc(n_bytes);
    g_autofree void *part = g_malloc(n_bytes);

    read_rows(&spec, "dense", 0, 3000, 1000, whole);
    for (size_t i = 0; dtype == RUBATO_F64 && _i % 3 != 0 && i < 1000; i++) { /* all differ */
        const double *row = (const double *)whole + 3 * i;

        require_msg(row[0] != row[1] && row[1] != row[2] && row[0] != row[2], "row %d", (int)i);
    }
    read_rows(&spec, "dense", 2500, 3000, 1000, part);
    ck_assert_mem_eq(whole, part, n_bytes);
    read_rows(&spec, "hash", 0, 3000, 1000, part);
    ck_assert_mem_eq(whole, part, n_bytes);
    spec.seed = 12;
    read_rows(&spec, "dense", 0, 3000, 1000, part);
    ck_assert((memcmp(whole, part, n_bytes) == 0) == (_i % 3 == 0));
}
END_TEST

START_TEST(zero_normal_rows_are_normal_ones_behind_a_zero)
{
    const RubatoDtype dtype = (RubatoDtype)_i;
    const size_t size = rubato_dtype_size(dtype);
    RubatoTableSpec spec = { .dtype = dtype,
                             .width = 4,
                             .init = "zero_normal",
                             .init_mean = 10,
                             .init_stddev = 1000,
                             .seed = 11 };
    _Alignas(8) unsigned char rows[100 * 32], normal[100 * 24];
    const unsigned char zero[8] = { 0 };

    read_rows(&spec, "hash", 0, 3000, 100, rows);
    spec.width = 3;
    spec.init = "normal";
    read_rows(&spec, "dense", 0, 3000, 100, normal);
    for (size_t i = 0; i < 100; i++) {
        ck_assert_mem_eq(rows + i * 4 * size, zero, size);
        ck_assert_mem_eq(rows + (i * 4 + 1) * size, normal + i * 3 * size, 3 * size);
    }
}
END_TEST

/* Rows of 7 values with a zero before every 2 others, so the last of them is a zero alone. */
START_TEST(zero_normal_rows_have_a_zero_in_front_of_each_run)
{
    static const int drawn[] = { -1, 0, 1, -1, 2, 3, -1 }; /* columns of "normal"; -1: zero */
    RubatoTableSpec spec = { .dtype = RUBATO_F32,
                             .width = 7,
                             .init = "zero_normal",
                             .init_mean = 10,
                             .init_stddev = 1,
                             .init_zero_every = 3,
                             .seed = 11 };
    float rows[100 * 7], normal[100 * 4];

    read_rows(&spec, "hash", 0, 3000, 100, rows);
    spec.width = 4;
    spec.init = "normal";
    read_rows(&spec, "dense", 0, 3000, 100, normal);
    for (size_t i = 0; i < 100; i++)
        for (size_t column = 0; column < 7; column++)
            ck_assert_float_eq(rows[i * 7 + column],
                               drawn[column] < 0 ? 0 : normal[i * 4 + (size_t)drawn[column]]);
}
END_TEST

/* Also where the runs are longer than the row. */
START_TEST(zero_normal_rows_have_one_zero_where_a_run_is_longer)
{
    RubatoTableSpec spec = { .dtype = RUBATO_F32,
                             .width = 4,
                             .init = "zero_normal",
                             .init_stddev = 1,
                             .init_zero_every = UINT32_MAX,
                             .seed = 11 };
    float rows[10 * 4], plain[10 * 4];

    read_rows(&spec, "hash", 0, 3000, 10, rows);
    spec.init_zero_every = 0;
    read_rows(&spec, "hash", 0, 3000, 10, plain);
    ck_assert_mem_eq(rows, plain, sizeof rows);
}
END_TEST

START_TEST(uniform_values_fill_their_range_evenly)
{
    RubatoTableSpec spec = { .dtype = RUBATO_F32,
                             .width = 10,
                             .init = "uniform",
                             .init_low = 0.7,
                             .init_high = 0.9,
                             .seed = 3 };
    g_autofree float *values = g_new(float, 50000);
    unsigned counts[10] = { 0 };

    read_rows(&spec, "dense", 0, 0, 5000, values);
    for (size_t i = 0; i < 50000; i++) {
        if ((double)values[i] < 0.7 || (double)values[i] >= 0.9)
            ck_abort_msg("value %zu is %.9g", i, (double)values[i]);
        counts[(size_t)(((double)values[i] - 0.7) / 0.02)]++;
    }
    for (size_t i = 0; i < 10; i++)
        ck_assert_msg(counts[i] > 4700 && counts[i] < 5300, "%u in tenth %zu", counts[i], i);
}
END_TEST

START_TEST(uniform_integers_take_each_value)
{
    RubatoTableSpec spec = { .dtype = RUBATO_I32,
                             .width = 10,
                             .init = "uniform",
                             .init_low = -2.5,
                             .init_high = 3,
                             .seed = 3 };
    g_autofree int32_t *values = g_new(int32_t, 50000);
    unsigned counts[5] = { 0 };

    read_rows(&spec, "dense", 0, 0, 5000, values);
    for (size_t i = 0; i < 50000; i++) {
        if (values[i] < -2 || values[i] > 2)
            ck_abort_msg("value %zu is %d", i, values[i]);
        counts[values[i] + 2]++;
    }
    for (size_t i = 0; i < 5; i++)
        ck_assert_msg(counts[i] > 9600 && counts[i] < 10400, "%u times %zu", counts[i], i);
}
END_TEST

START_TEST(uniform_integers_reach_both_ends_of_their_dtype)
{
    RubatoTableSpec spec = {
        .dtype = RUBATO_I64, .init = "uniform", .init_low = -0x1p63, .init_high = 0x1p63
    };
    int64_t values[5000];
    unsigned n_upper = 0, n_lower = 0;

    read_rows(&spec, "dense", 0, 0, 5000, values);
    for (size_t i = 0; i < 5000; i++) {
        n_upper += values[i] > INT64_MAX / 2;
        n_lower += values[i] < INT64_MIN / 2;
    }
    ck_assert_uint_gt(n_upper, 1100);
    ck_assert_uint_gt(n_lower, 1100);
}
END_TEST

START_TEST(normal_values_have_their_mean_and_deviation)
{
    const RubatoDtype dtype = (RubatoDtype)_i;
    RubatoTableSpec spec = { .dtype = dtype,
                             .width = 10,
                             .init = "normal",
                             .init_mean = 100,
                             .init_stddev = 25,
                             .seed = 9 };
    g_autofree void *values = g_malloc(50000 * 8);
    double sum = 0, squares = 0;
    unsigned n_far = 0;

    read_rows(&spec, "dense", 0, 0, 5000, values);
    for (size_t i = 0; i < 50000; i++) {
        const double value = dtype == RUBATO_F32   ? (double)((float *)values)[i]
                             : dtype == RUBATO_F64 ? ((double *)values)[i]
                             : dtype == RUBATO_I32 ? (double)((int32_t *)values)[i]
                                                   : (double)((int64_t *)values)[i];
        sum += value;
        squares += (value - 100) * (value - 100);
        n_far += fabs(value - 100) > 50;
    }
    ck_assert_double_eq_tol(sum / 50000, 100, 0.6);
    ck_assert_double_eq_tol(sqrt(squares / 50000), 25, 0.5);
    ck_assert_uint_gt(n_far, 1900); /* 4.55 % of 50,000 are 2275 */
    ck_assert_uint_lt(n_far, 2650);
}
END_TEST

/* The series beside the library of mathematical functions, which is exact to an unit of the last
 * place; the angle is rounded there and not in the series. */
START_TEST(normal_deviates_are_those_of_box_and_muller)
{
    double deviates[9];

    for (uint64_t row = 0; row < 20000; row++) {
        normal_draw(row, row % 3, 9, deviates);
        for (size_t i = 0; i < 9; i++) {
            const uint64_t bits = column_bits(row, row % 3 + i);
            const uint64_t others = rubato_mix64(bits ^ UINT64_C(0xd1b54a32d192ed03));
            const double radius = sqrt(-2.0 * log(1.0 - (double)(bits >> 11) * 0x1p-53));
            const double angle = 2.0 * G_PI * (double)(others >> 11) * 0x1p-53;

            require_msg(fabs(deviates[i] - radius * cos(angle)) < 1e-14, "row %d, column %d",
                        (int)row, (int)i);
        }
    }
}
END_TEST

START_TEST(normal_integers_stop_at_the_ends_of_their_dtype)
{
    RubatoTableSpec spec = { .dtype = RUBATO_I32, .init = "normal", .init_stddev = 1e12 };
    int32_t values[5000];
    unsigned n_max = 0, n_min = 0;

    read_rows(&spec, "dense", 0, 0, 5000, values);
    for (size_t i = 0; i < 5000; i++) {
        n_max += values[i] == INT32_MAX;
        n_min += values[i] == INT32_MIN;
    }
    ck_assert_uint_gt(n_max, 2000);
    ck_assert_uint_gt(n_min, 2000);
}
END_TEST

START_TEST(only_all_zero_bits_are_zero_pages)
{
    RubatoTableSpec spec = { .name = "init", .dtype = RUBATO_F64, .n_keys = 1 };
    RubatoInit init;

    init_prepare(&init, &spec);
    ck_assert(rubato_init_is_zero(&init));
    spec.init_value = -0.0;
    init_prepare(&init, &spec);
    ck_assert(!rubato_init_is_zero(&init));
    spec.init = "normal";
    init_prepare(&init, &spec);
    ck_assert(!rubato_init_is_zero(&init));
}
END_TEST

/* The large path maps its rows. */
START_TEST(large_dense_shards_have_their_initial_values_too)
{
    RubatoTableSpec spec = { .name = "large",
                             .dtype = RUBATO_F32,
                             .n_keys = 3000000,
                             .init = _i == 0 ? "constant" : "uniform",
                             .init_low = 1,
                             .init_high = 2 };
    RubatoShard *shard = shard_new(&spec, 0, spec.n_keys, NULL);
    const RubatoKeys last = { .first = spec.n_keys - 2, .n = 2 };
    float values[2] = { -1, -1 };
    uint64_t n_rows, n_bytes;

    shard_get(shard, &last, values);
    for (size_t i = 0; i < 2; i++)
        ck_assert(_i == 0 ? values[i] >= 0 && values[i] <= 0 : values[i] >= 1 && values[i] < 2);
    shard_size(shard, &n_rows, &n_bytes);
    ck_assert_uint_eq(n_rows, spec.n_keys);
    ck_assert_uint_ge(n_bytes, 4 * spec.n_keys);
    shard_free(shard);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("initialisers");
    TCase *init = tcase_create("init");

    tcase_add_loop_test(init, initial_values_follow_from_seed_key_and_column_alone, 0, 12);
    tcase_add_loop_test(init, zero_normal_rows_are_normal_ones_behind_a_zero, 0, 4);
    tcase_add_test(init, zero_normal_rows_have_a_zero_in_front_of_each_run);
    tcase_add_test(init, zero_normal_rows_have_one_zero_where_a_run_is_longer);
    tcase_add_test(init, uniform_values_fill_their_range_evenly);
    tcase_add_test(init, uniform_integers_take_each_value);
    tcase_add_test(init, uniform_integers_reach_both_ends_of_their_dtype);
    tcase_add_test(init, normal_deviates_are_those_of_box_and_muller);
    tcase_add_loop_test(init, normal_values_have_their_mean_and_deviation, 0, 4);
    tcase_add_test(init, normal_integers_stop_at_the_ends_of_their_dtype);
    tcase_add_test(init, only_all_zero_bits_are_zero_pages);
    tcase_add_loop_test(init, large_dense_shards_have_their_initial_values_too, 0, 2);
    suite_add_tcase(suite, init);
    return run_suite(suite);
}
