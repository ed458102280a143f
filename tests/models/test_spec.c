/* Table specs: what their defaults are, and how wrong ones are refused. */
#include <float.h>
#include <math.h>
#include <rubato/error.h>
#include <stdlib.h>
#include <string.h>

#include "models/spec.h"
#include "tests/support/runner.h"

START_TEST(defaults_are_those_of_the_header)
{
    const RubatoTableSpec dense = { .name = "t", .n_keys = 5 };
    const RubatoTableSpec hash = { .name = "t" };

    ck_assert_str_eq(spec_storage_name(&dense), "dense");
    ck_assert_str_eq(spec_storage_name(&hash), "hash");
    ck_assert_str_eq(spec_partition_name(&dense), "range");
    ck_assert_str_eq(spec_partition_name(&hash), "hash");
    ck_assert_str_eq(spec_model_name(&dense), "asp");
    ck_assert_str_eq(spec_update_name(&dense), "add");
    ck_assert_str_eq(spec_init_name(&dense), "constant");
    ck_assert_str_eq(spec_record_name(&dense), "hash");
    ck_assert_uint_eq(spec_width(&dense), 1);
    ck_assert_uint_eq(spec_chunk_size(&dense), 1);
    ck_assert_uint_eq(spec_row_bytes(&dense), 4);
    ck_assert(rubato_table_spec_holds_range(&dense));
    ck_assert(!rubato_table_spec_holds_range(&hash));
    ck_assert(spec_check(&dense, NULL));
    ck_assert(spec_check(&hash, NULL));
}
END_TEST

static const RubatoKey ascending[] = { 3, 3, 8 };
static const RubatoKey descending[] = { 3, 8, 7 };

static const RubatoTableSpec good[] = {
    { .name = "t", .n_keys = 1, .first_key = UINT64_MAX },
    { .name = "t", .n_keys = UINT64_MAX, .first_key = 1 },
    { .name = "t", .n_keys = 7, .chunk_size = 100 },
    { .name = "t", .n_keys = 7, .partition = "bounds", .bounds = ascending, .n_bounds = 3 },
    { .name = "t", .storage = "hash", .partition = "range" },
    { .name = "t", .n_keys = 7, .partition = "bounds" },
    { .name = "t", .n_keys = 7, .model = "sparse_ssp", .record = "dense" },
    { .name = "t", .dtype = RUBATO_I64, .init_value = -0x1p63 },
    { .name = "t",
      .dtype = RUBATO_I32,
      .init = "uniform",
      .init_low = -0x1p31,
      .init_high = 0x1p31 },
    { .name = "t", .init = "normal" },
    { .name = "t", .width = SPEC_MAX_WIDTH, .update = "assign" },
    { .name = "t", .update = "adagrad", .rule = { .row_wise = true, .initial_accumulator = 0.1 } },
    { .name = "t", .dtype = RUBATO_F64, .update = "adam", .rule = { .beta1 = 1 - 1e-12 } },
    { .name = "t", .update = "sgd", .rule = { .learning_rate = RUBATO_ZERO, .max_gradient = 7 } },
    { .name = "t", .rule = { .max_gradient = 7, .on_bad_gradient = RUBATO_ON_BAD_GRADIENT_COUNT } },
    { .name = "t", .model = "bsp", .aggregate = RUBATO_AGGREGATE_MEAN },
};

START_TEST(sensible_specs_pass)
{
    g_autoptr(GError) error = NULL;

    ck_assert_msg(spec_check(&good[_i], &error), "%s", error == NULL ? "" : error->message);
    ck_assert_ptr_null(error);
}
END_TEST

static const struct {
    RubatoTableSpec spec;
    RubatoError code;
    const char *says;
} bad[] = {
    { { .name = NULL }, RUBATO_ERROR_INVALID, "needs a name" },
    { { .name = "" }, RUBATO_ERROR_INVALID, "needs a name" },
    { { .name = "a\nb" }, RUBATO_ERROR_INVALID, "control character" },
    { { .name = "t", .storage = "tree" },
      RUBATO_ERROR_NOT_FOUND,
      "table t: there is no storage \"tree\"; known are dense, hash" },
    { { .name = "t", .model = "bps" },
      RUBATO_ERROR_NOT_FOUND,
      "table t: there is no model \"bps\"; known are asp, bsp, ssp, sparse_ssp" },
    { { .name = "t", .update = "sub" },
      RUBATO_ERROR_NOT_FOUND,
      "table t: there is no update rule \"sub\"; known are add, assign, sgd, momentum, "
      "nesterov, adagrad, rmsprop, adam, ftrl, moving_average" },
    { { .name = "t", .dtype = RUBATO_I64, .update = "sgd" },
      RUBATO_ERROR_INVALID,
      "the update rule \"sgd\" is for f32 and f64, not for i64" },
    { { .name = "t", .dtype = RUBATO_I32, .update = "moving_average" },
      RUBATO_ERROR_INVALID,
      "is for f32 and f64, not for i32" },
    { { .name = "t", .rule = { .learning_rate = 1 } },
      RUBATO_ERROR_INVALID,
      "the update rule \"add\" has no learning_rate; leave it out" },
    { { .name = "t", .update = "sgd", .rule = { .momentum = RUBATO_ZERO } },
      RUBATO_ERROR_INVALID,
      "the update rule \"sgd\" has no momentum" },
    { { .name = "t", .update = "rmsprop", .rule = { .row_wise = true } },
      RUBATO_ERROR_INVALID,
      "no row-wise form" },
    { { .name = "t", .update = "adam", .rule = { .beta1 = 1 - 1e-12 } },
      RUBATO_ERROR_INVALID,
      "beta1 is 0.99999999999" },
    { { .name = "t", .update = "adam", .rule = { .epsilon = 1e-50 } },
      RUBATO_ERROR_INVALID,
      "epsilon is 1e-50; it has to be above 0" },
    { { .name = "t", .update = "ftrl", .rule = { .learning_rate = RUBATO_ZERO } },
      RUBATO_ERROR_INVALID,
      "learning_rate of \"ftrl\" has to be above 0" },
    { { .name = "t", .update = "sgd", .rule = { .clip_norm = -1 } },
      RUBATO_ERROR_INVALID,
      "clip_norm is -1" },
    { { .name = "t", .update = "sgd", .rule = { .weight_decay = 1e300 } },
      RUBATO_ERROR_INVALID,
      "weight_decay is 1e+300; it has to be a number of 0 or more that f32 holds" },
    { { .name = "t", .rule = { .max_gradient = 5 } },
      RUBATO_ERROR_INVALID,
      "max_gradient is given, but nobody looks" },
    { { .name = "t", .rule = { .on_bad_gradient = (RubatoOnBadGradient)9 } },
      RUBATO_ERROR_INVALID,
      "9 is no RubatoOnBadGradient" },
    { { .name = "t",
        .dtype = RUBATO_I32,
        .rule = { .on_bad_gradient = RUBATO_ON_BAD_GRADIENT_REFUSE } },
      RUBATO_ERROR_INVALID,
      "only deltas of f32 and f64 can be looked at" },
    { { .name = "t", .model = "ssp", .aggregate = RUBATO_AGGREGATE_SUM },
      RUBATO_ERROR_INVALID,
      "aggregated under \"bsp\" only, not under \"ssp\"" },
    { { .name = "t", .model = "ssp", .max_kept_bytes = 1 },
      RUBATO_ERROR_INVALID,
      "max_kept_bytes is given, but \"ssp\" applies Adds at once" },
    { { .name = "t", .model = "bsp", .dtype = RUBATO_I64, .aggregate = RUBATO_AGGREGATE_SUM },
      RUBATO_ERROR_INVALID,
      "aggregated for f32 and f64 only, not for i64" },
    { { .name = "t", .aggregate = (RubatoAggregate)7 }, RUBATO_ERROR_INVALID, "7 is no Rub" },
    { { .name = "t", .init = "zero" },
      RUBATO_ERROR_NOT_FOUND,
      "table t: there is no initialiser \"zero\"; known are constant, uniform, normal" },
    { { .name = "t", .record = "list" },
      RUBATO_ERROR_NOT_FOUND,
      "table t: there is no record \"list\"; known are hash, dense" },
    { { .name = "t", .partition = "even" },
      RUBATO_ERROR_NOT_FOUND,
      "table t: there is no partition \"even\"; known are range, hash, bounds" },
    { { .name = "t", .dtype = (RubatoDtype)99 }, RUBATO_ERROR_INVALID, "99 is no dtype" },
    { { .name = "t", .dtype = RUBATO_BF16 }, RUBATO_ERROR_INVALID, "no table holds bf16" },
    { { .name = "t", .width = SPEC_MAX_WIDTH + 1 }, RUBATO_ERROR_INVALID, "too wide" },
    { { .name = "t", .storage = "dense" }, RUBATO_ERROR_INVALID, "needs n_keys" },
    { { .name = "t", .n_keys = 2, .first_key = UINT64_MAX },
      RUBATO_ERROR_INVALID,
      "beyond the last key" },
    { { .name = "t", .chunk_size = 10 }, RUBATO_ERROR_INVALID, "need dense storage" },
    { { .name = "t", .cache = (RubatoCache)7 }, RUBATO_ERROR_INVALID, "7 is no RubatoCache" },
    { { .name = "t", .parts = SPEC_MAX_PARTS + 1 },
      RUBATO_ERROR_INVALID,
      "table t: 4097 parts are too many; ask for at most 4096" },
    { { .name = "t", .n_keys = 2, .partition = "hash" },
      RUBATO_ERROR_INVALID,
      "take \"range\" or \"bounds\"" },
    { { .name = "t", .n_keys = 9, .partition = "range", .bounds = ascending, .n_bounds = 3 },
      RUBATO_ERROR_INVALID,
      "the partition is \"range\"" },
    { { .name = "t", .n_keys = 9, .bounds = ascending },
      RUBATO_ERROR_INVALID,
      "the partition is \"range\"" },
    { { .name = "t", .n_keys = 9, .partition = "bounds", .bounds = descending, .n_bounds = 3 },
      RUBATO_ERROR_INVALID,
      "bounds[2] = 7 comes after 8" },
    { { .name = "t", .n_keys = 9, .partition = "bounds", .n_bounds = 3 },
      RUBATO_ERROR_INVALID,
      "bounds is NULL" },
    { { .name = "t", .model = "sparse_ssp", .record = "dense" },
      RUBATO_ERROR_INVALID,
      "needs dense storage" },
    { { .name = "t", .staleness = 2 },
      RUBATO_ERROR_INVALID,
      "table t: staleness has no effect here; it needs a model that bounds it, such as \"ssp\"" },
    { { .name = "t", .model = "bsp", .staleness = 2 }, RUBATO_ERROR_INVALID, "staleness has no" },
    { { .name = "t", .model = "ssp", .speculation = 2 },
      RUBATO_ERROR_INVALID,
      "speculation has no effect here; it needs the model \"sparse_ssp\", or leave it out" },
    { { .name = "t", .model = "ssp", .record = "hash" }, RUBATO_ERROR_INVALID, "record has no" },
    { { .name = "t", .cache = RUBATO_CACHE_ALL }, RUBATO_ERROR_INVALID, "cache has no effect" },
    { { .name = "t", .first_key = 3 },
      RUBATO_ERROR_INVALID,
      "first_key has no effect here; it needs the storage \"dense\"" },
    { { .name = "t", .storage = "hash", .n_keys = 7 },
      RUBATO_ERROR_INVALID,
      "n_keys has no effect here; it needs the storage \"dense\"" },
    { { .name = "t", .n_keys = 7, .create_on_get = true },
      RUBATO_ERROR_INVALID,
      "create_on_get has no effect here; it needs the storage \"hash\"" },
    { { .name = "t", .init = "normal", .init_value = 2 },
      RUBATO_ERROR_INVALID,
      "init_value has no effect here; it needs the initialiser \"constant\"" },
    { { .name = "t", .init_low = -1, .init_high = 1 },
      RUBATO_ERROR_INVALID,
      "init_low has no effect here; it needs the initialiser \"uniform\"" },
    { { .name = "t", .init_high = 1 }, RUBATO_ERROR_INVALID, "init_high has no effect" },
    { { .name = "t", .init = "uniform", .init_high = 1, .init_mean = 1 },
      RUBATO_ERROR_INVALID,
      "init_mean has no effect here; it needs the initialiser \"normal\"" },
    { { .name = "t", .init_stddev = 1 }, RUBATO_ERROR_INVALID, "init_stddev has no effect" },
    { { .name = "t", .init = "normal", .init_zero_every = 2 },
      RUBATO_ERROR_INVALID,
      "init_zero_every has no effect here; it needs the initialiser \"zero_normal\"" },
    { { .name = "t", .init_value = NAN }, RUBATO_ERROR_INVALID, "init_value" },
    { { .name = "t", .init_value = 1e39 }, RUBATO_ERROR_INVALID, "init_value" },
    { { .name = "t", .dtype = RUBATO_I32, .init_value = 0.5 },
      RUBATO_ERROR_INVALID,
      "whole number" },
    { { .name = "t", .dtype = RUBATO_I32, .init_value = 0x1p31 },
      RUBATO_ERROR_INVALID,
      "(its dtype is i32)" },
    { { .name = "t", .init = "uniform" }, RUBATO_ERROR_INVALID, "init_low below init_high" },
    { { .name = "t", .init = "uniform", .init_high = INFINITY }, RUBATO_ERROR_INVALID, "finite" },
    { { .name = "t", .init = "uniform", .init_high = 1e39 }, RUBATO_ERROR_INVALID, "too far out" },
    { { .name = "t",
        .dtype = RUBATO_F64,
        .init = "uniform",
        .init_low = -DBL_MAX,
        .init_high = DBL_MAX },
      RUBATO_ERROR_INVALID,
      "too far out" },
    { { .name = "t", .init = "uniform", .init_low = 1 + 0x1p-40, .init_high = 1 + 0x1p-30 },
      RUBATO_ERROR_INVALID,
      "no number between" },
    { { .name = "t", .dtype = RUBATO_I32, .init = "uniform", .init_low = 0.2, .init_high = 0.8 },
      RUBATO_ERROR_INVALID,
      "no whole number" },
    { { .name = "t", .dtype = RUBATO_I32, .init = "uniform", .init_high = 0x1p32 },
      RUBATO_ERROR_INVALID,
      "too far out" },
    { { .name = "t", .init = "normal", .init_stddev = -1 },
      RUBATO_ERROR_INVALID,
      "init_stddev of 0 or more" },
    { { .name = "t", .init = "normal", .init_stddev = FLT_MAX },
      RUBATO_ERROR_INVALID,
      "too large" },
    { { .name = "t", .dtype = RUBATO_I32, .init = "normal", .init_mean = 1e10 },
      RUBATO_ERROR_INVALID,
      "init_mean" },
};

START_TEST(wrong_specs_are_refused_with_what_to_write_instead)
{
    g_autoptr(GError) error = NULL;

    ck_assert(!spec_check(&bad[_i].spec, &error));
    ck_assert_ptr_nonnull(error);
    ck_assert(error->domain == RUBATO_ERROR);
    ck_assert_int_eq(error->code, (int)bad[_i].code);
    ck_assert_msg(strstr(error->message, bad[_i].says) != NULL, "\"%s\" does not say \"%s\"",
                  error->message, bad[_i].says);
    ck_assert(!spec_check(&bad[_i].spec, NULL));
}
END_TEST

START_TEST(names_are_bounded)
{
    char name[300];
    const RubatoTableSpec spec = { .name = name };

    memset(name, 'x', sizeof(name));
    name[255] = '\0';
    ck_assert(spec_check(&spec, NULL));
    name[255] = 'x';
    name[256] = '\0';
    ck_assert(!spec_check(&spec, NULL));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("spec");
    TCase *tcase = tcase_create("spec");

    tcase_add_test(tcase, defaults_are_those_of_the_header);
    tcase_add_loop_test(tcase, sensible_specs_pass, 0, G_N_ELEMENTS(good));
    tcase_add_loop_test(tcase, wrong_specs_are_refused_with_what_to_write_instead, 0,
                        G_N_ELEMENTS(bad));
    tcase_add_test(tcase, names_are_bounded);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
