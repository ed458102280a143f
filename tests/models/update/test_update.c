/* The list of update rules; "add" and "assign" for each dtype. */
#include <rubato/testing.h>

#include "models/update/update.h"
#include "tests/support/runner.h"

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

static void step_add(const RubatoRule *rule, uint32_t width, double *values, double *state,
                     const double *deltas)
{
    (void)rule;
    (void)state;
    for (uint32_t i = 0; i < width; i++)
        values[i] += deltas[i];
}

static void step_assign(const RubatoRule *rule, uint32_t width, double *values, double *state,
                        const double *deltas)
{
    (void)rule;
    (void)state;
    for (uint32_t i = 0; i < width; i++)
        values[i] = deltas[i];
}

static const RubatoTestFormula add = { .step = step_add }, assign = { .step = step_assign };

START_TEST(deltas_are_added_or_assigned)
{
    rubato_test_update_rule(&(RubatoUpdateRuleTest){
        .spec = { .update = _i == 0 ? "add" : "assign", .init_value = _i == 0 ? 5 : 0 },
        .formula = _i == 0 ? &add : &assign,
        .n_seeds = is_slow() ? 60 : 300 });
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
    tcase_add_loop_test(tcase, deltas_are_added_or_assigned, 0, 2);
    tcase_add_test(tcase, integers_wrap);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
