/* Update rules on runs and on rows, for each dtype. */
#include <stdlib.h>
#include <string.h>

#include "models/update/update.h"
#include "tests/support/runner.h"

static const RubatoDtype dtypes[] = { RUBATO_F32, RUBATO_F64, RUBATO_I32, RUBATO_I64 };

#define MAX_VALUES 64

/* Small whole numbers, which every dtype holds exactly. */
static void store(RubatoDtype dtype, void *values, size_t i, int value)
{
    switch (dtype) {
    case RUBATO_F32:
        ((float *)values)[i] = (float)value;
        break;
    case RUBATO_F64:
        ((double *)values)[i] = value;
        break;
    case RUBATO_I32:
        ((int32_t *)values)[i] = value;
        break;
    case RUBATO_I64:
        ((int64_t *)values)[i] = value;
        break;
    }
}

static int load(RubatoDtype dtype, const void *values, size_t i)
{
    switch (dtype) {
    case RUBATO_F32:
        return (int)((const float *)values)[i];
    case RUBATO_F64:
        return (int)((const double *)values)[i];
    case RUBATO_I32:
        return ((const int32_t *)values)[i];
    case RUBATO_I64:
        return (int)((const int64_t *)values)[i];
    }
    ck_abort();
}

START_TEST(known_rules_are_found_by_name)
{
    ck_assert_str_eq(update_find("add")->name, "add");
    ck_assert_str_eq(update_find("assign")->name, "assign");
    ck_assert_ptr_null(update_find("adds"));
    ck_assert_str_eq(update_find("moving_average")->name, "moving_average");
    ck_assert_str_eq(update_name(0), "add");
    ck_assert_ptr_null(update_name(10));
}
END_TEST

START_TEST(a_run_is_added_or_assigned)
{
    const RubatoDtype dtype = dtypes[_i];
    _Alignas(8) unsigned char values[MAX_VALUES * 8], deltas[MAX_VALUES * 8];

    for (size_t i = 0; i < MAX_VALUES; i++) {
        store(dtype, values, i, (int)i);
        store(dtype, deltas, i, 100 - (int)i * 3);
    }
    update_find("add")->apply(&(RubatoUpdate){ .dtype = dtype }, values, deltas, MAX_VALUES - 1);
    for (size_t i = 0; i < MAX_VALUES - 1; i++)
        ck_assert_int_eq(load(dtype, values, i), 100 - (int)i * 2);
    ck_assert_int_eq(load(dtype, values, MAX_VALUES - 1), MAX_VALUES - 1);
    update_find("assign")->apply(&(RubatoUpdate){ .dtype = dtype }, values, deltas, MAX_VALUES - 1);
    for (size_t i = 0; i < MAX_VALUES - 1; i++)
        ck_assert_int_eq(load(dtype, values, i), 100 - (int)i * 3);
    ck_assert_int_eq(load(dtype, values, MAX_VALUES - 1), MAX_VALUES - 1);
}
END_TEST

/* Rows 2, 0, 2, 1 of a width: row 2 comes twice. */
static void check_rows(RubatoDtype dtype, uint32_t width, const uint32_t *at)
{
    static const size_t order[] = { 2, 0, 2, 1 };
    const size_t row_bytes = width * rubato_dtype_size(dtype);
    _Alignas(8) unsigned char values[MAX_VALUES * 8], deltas[MAX_VALUES * 8];
    const RubatoUpdate update = { .dtype = dtype, .width = width };
    void *rows[4];

    for (size_t i = 0; i < MAX_VALUES; i++) {
        store(dtype, values, i, 1000);
        store(dtype, deltas, i, (int)i);
    }
    for (size_t i = 0; i < 4; i++)
        rows[i] = values + order[i] * row_bytes;
    update_find("add")->apply_rows(&update, rows, deltas, at, 4);
    for (size_t row = 0; row < 3; row++)
        for (size_t column = 0; column < width; column++) {
            int expected = 1000;

            for (size_t i = 0; i < 4; i++)
                if (order[i] == row)
                    expected += (int)((at == NULL ? i : at[i]) * width + column);
            ck_assert_int_eq(load(dtype, values, row * width + column), expected);
        }
    ck_assert_int_eq(load(dtype, values, 3 * width), 1000);

    update_find("assign")->apply_rows(&update, rows, deltas, at, 4);
    for (size_t i = 1; i < 4; i++) /* i = 2 wrote over i = 0 */
        for (size_t column = 0; column < width; column++)
            ck_assert_int_eq(load(dtype, values, order[i] * width + column),
                             (int)((at == NULL ? i : at[i]) * width + column));
}

START_TEST(rows_are_added_or_assigned_in_order)
{
    static const uint32_t at[] = { 6, 1, 3, 0 };

    for (uint32_t width = 1; width <= 5; width++) {
        check_rows(dtypes[_i], width, NULL);
        check_rows(dtypes[_i], width, at);
    }
}
END_TEST

START_TEST(integers_wrap)
{
    int32_t i32 = INT32_MAX;
    int64_t i64 = INT64_MIN;
    const int32_t one = 1;
    const int64_t minus_one = -1;

    update_find("add")->apply(&(RubatoUpdate){ .dtype = RUBATO_I32 }, &i32, &one, 1);
    update_find("add")->apply(&(RubatoUpdate){ .dtype = RUBATO_I64 }, &i64, &minus_one, 1);
    ck_assert_int_eq(i32, INT32_MIN);
    ck_assert_int_eq(i64, INT64_MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("update");
    TCase *tcase = tcase_create("update");

    tcase_add_test(tcase, known_rules_are_found_by_name);
    tcase_add_loop_test(tcase, a_run_is_added_or_assigned, 0, G_N_ELEMENTS(dtypes));
    tcase_add_loop_test(tcase, rows_are_added_or_assigned_in_order, 0, G_N_ELEMENTS(dtypes));
    tcase_add_test(tcase, integers_wrap);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
