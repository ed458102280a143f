/* The kit's test of update rules itself: it finds what is broken, and tells it in few words. Each
 * case registers a rule with one fault, in a process of its own. */
#include <rubato/error.h>
#include <rubato/plugin.h>
#include <rubato/testing.h>
#include <string.h>

#include "tests/support/runner.h"

/* ---- momentum, with a fault ---- */

typedef enum {
    FAULT_NONE,
    FAULT_PLACES,    /* forgets that row i may take other deltas than the i-th */
    FAULT_ORDER,     /* goes through the rows backwards */
    FAULT_REMEMBERS, /* has a velocity for all tables, beside that of the row */
    FAULT_BESIDE,    /* writes one value behind the row */
    FAULT_DELTAS,    /* changes the deltas */
    FAULT_WIDTH,     /* leaves out the last value of wide rows */
    FAULT_DOUBLE,    /* f64 is computed as f32 */
    FAULT_TUNING,    /* keeps the first learning rate that it has seen */
    FAULT_INIT,      /* the first state depends on what was there */
    FAULT_FORMULA,   /* goes the other way */
    FAULT_NO_REASON, /* refuses every table, and does not say why */
} Fault;

static Fault fault;

#define DEFINE_STEP(suffix, type)                                                            \
    static void step_##suffix(const RubatoUpdate *update, type *row, const type *deltas)     \
    {                                                                                        \
        static double first_rate;                                                            \
        static type last;                                                                    \
        const uint32_t width =                                                               \
            update->width - (fault == FAULT_WIDTH && update->width > 7 ? 1 : 0);             \
        type *velocity = row + update->width;                                                \
                                                                                             \
        if (first_rate == 0)                                                                 \
            first_rate = update->rule.learning_rate;                                         \
        const double told = fault == FAULT_TUNING ? first_rate : update->rule.learning_rate; \
        const type rate = (type)told * (fault == FAULT_FORMULA ? -1 : 1);                    \
        const type decay = (type)update->rule.momentum;                                      \
                                                                                             \
        for (uint32_t i = 0; i < width; i++) {                                               \
            velocity[i] = decay * velocity[i] + deltas[i];                                   \
            if (fault == FAULT_REMEMBERS)                                                    \
                velocity[i] += last / 8;                                                     \
            last = deltas[i];                                                                \
            row[i] -= fault == FAULT_DOUBLE ? (type)((float)rate * (float)velocity[i])       \
                                            : rate * velocity[i];                            \
        }                                                                                    \
        if (fault == FAULT_BESIDE)                                                           \
            velocity[update->width] = 1;                                                     \
        if (fault == FAULT_DELTAS)                                                           \
            ((type *)(uintptr_t)deltas)[0] = 0;                                              \
    }

DEFINE_STEP(f32, float)
DEFINE_STEP(f64, double)

static void apply_rows(const RubatoUpdate *update, void *const *rows, const void *deltas,
                       const uint32_t *at, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        const size_t i = fault == FAULT_ORDER ? n - 1 - k : k;
        const size_t from = (at == NULL || fault == FAULT_PLACES ? i : at[i]) * update->width;

        if (update->dtype == RUBATO_F32)
            step_f32(update, rows[i], (const float *)deltas + from);
        else
            step_f64(update, rows[i], (const double *)deltas + from);
    }
}

static uint32_t state_width(const RubatoUpdate *update)
{
    return update->width;
}

static void init_state(const RubatoUpdate *update, void *row)
{
    const size_t bytes = update->width * rubato_dtype_size(update->dtype);

    if (fault != FAULT_INIT)
        memset((unsigned char *)row + bytes, 0, bytes);
}

static bool check(const RubatoTableSpec *spec, GError **error)
{
    (void)spec;
    (void)error;
    return fault != FAULT_NO_REASON;
}

static const RubatoUpdateOps heavy_ops = {
    .name = "heavy",
    .traits = { .takes_gradients = true,
                .hypers = RUBATO_HYPER_BIT(RUBATO_HYPER_MOMENTUM),
                .defaults = { .learning_rate = 0.01, .momentum = 0.9 } },
    .check = check,
    .state_width = state_width,
    .init_state = init_state,
    .apply_rows = apply_rows,
};

static void step(const RubatoRule *rule, uint32_t width, double *values, double *velocity,
                 const double *deltas)
{
    for (uint32_t i = 0; i < width; i++) {
        velocity[i] = rule->momentum * velocity[i] + deltas[i];
        values[i] -= rule->learning_rate * velocity[i];
    }
}

static const RubatoTestFormula formula = { .state_per_value = 1, .step = step };

/* ---- cases ---- */

static const struct {
    Fault fault;
    bool has_formula;
    const char *says;
} faults[] = {
    { FAULT_PLACES, false, "several rows in one call" },
    { FAULT_ORDER, false, "several rows in one call" },
    { FAULT_REMEMBERS, false, "several rows in one call" },
    { FAULT_BESIDE, false, "it writes beside its rows" },
    { FAULT_DELTAS, false, "it changes the deltas" },
    { FAULT_WIDTH, true, "formula: value" },
    { FAULT_DOUBLE, true, "formula: value" },
    { FAULT_INIT, false, "init_state: the state depends" },
    { FAULT_FORMULA, true, "formula: value 0" },
    { FAULT_NO_REASON, false, "does not say why" },
};

static char *story_of(Fault kind, const RubatoUpdateRuleTest *test)
{
    fault = kind;
    ck_assert(rubato_register_update_rule(&heavy_ops, NULL));
    return rubato_test_update_rule_story(test);
}

START_TEST(rule_without_fault_passes)
{
    const RubatoUpdateRuleTest test = { .spec = { .update = "heavy" },
                                        .same_as = "momentum",
                                        .n_seeds = is_slow() ? 60 : 300 };
    g_autofree char *story = story_of(FAULT_NONE, &test);

    ck_assert_msg(story == NULL, "%s", story);
}
END_TEST

START_TEST(rule_without_fault_follows_its_formula)
{
    const RubatoUpdateRuleTest test = { .spec = { .update = "heavy" },
                                        .formula = &formula,
                                        .n_seeds = is_slow() ? 60 : 300 };
    g_autofree char *story = story_of(FAULT_NONE, &test);

    ck_assert_msg(story == NULL, "%s", story);
}
END_TEST

START_TEST(each_fault_of_a_rule_is_found_and_told_in_few_lines)
{
    const RubatoUpdateRuleTest test = { .spec = { .update = "heavy" },
                                        .formula = faults[_i].has_formula ? &formula : NULL };
    g_autofree char *story = story_of(faults[_i].fault, &test);
    unsigned n_lines = 0;

    ck_assert_ptr_nonnull(story);
    for (const char *c = story; *c != '\0'; c++)
        n_lines += *c == '\n';
    ck_assert_msg(n_lines <= 6, "%s", story);
    ck_assert_msg(strstr(story, faults[_i].says) != NULL, "%s", story);
    ck_assert_msg(strstr(story, "\nseed ") != NULL, "%s", story);
}
END_TEST

/* A number that changes on the way tells it apart from the rule that it should be. */
START_TEST(tuning_that_is_not_heard_is_found)
{
    const RubatoUpdateRuleTest test = { .spec = { .update = "heavy" },
                                        .same_as = "momentum",
                                        .n_seeds = is_slow() ? 60 : 300 };
    g_autofree char *story = story_of(FAULT_TUNING, &test);

    ck_assert_ptr_nonnull(story);
    ck_assert_msg(strstr(story, "by momentum") != NULL, "%s", story);
}
END_TEST

START_TEST(rule_that_nobody_has_registered_is_named)
{
    g_autofree char *story =
        rubato_test_update_rule_story(&(RubatoUpdateRuleTest){ .spec = { .update = "none" } });

    ck_assert_ptr_nonnull(story);
    ck_assert_msg(strstr(story, "there is no update rule \"none\"") != NULL, "%s", story);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rule kit");
    TCase *tcase = tcase_create("rules");

    tcase_add_test(tcase, rule_without_fault_passes);
    tcase_add_test(tcase, rule_without_fault_follows_its_formula);
    tcase_add_loop_test(tcase, each_fault_of_a_rule_is_found_and_told_in_few_lines, 0,
                        G_N_ELEMENTS(faults));
    tcase_add_test(tcase, tuning_that_is_not_heard_is_found);
    tcase_add_test(tcase, rule_that_nobody_has_registered_is_named);
    tcase_set_timeout(tcase, 20);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
