/* Tests of update rules: what a seed makes of one, and how a run is told.
 *
 * Thread: that of the test case. */
#include <rubato/plugin.h>
#include <string.h>

#include "tests/kit/rule/rule_world.h"
#include "tests/kit/trial.h"

#define DEFAULT_SEEDS 300

/* ---- scenarios ---- */

/* NULL: a table may have the rule. (transfer full) */
static char *why_refused(const RubatoTableSpec *spec)
{
    RubatoTableSpec one = *spec;
    const RubatoShardDriverSetup setup = { .spec = &one, .first_key = 1, .n_keys = 1 };
    g_autoptr(GError) error = NULL;

    one.storage = "dense";
    one.first_key = one.n_keys = 1;
    RubatoShardDriver *driver = rubato_shard_driver_new(&setup, &error);
    if (driver == NULL)
        return g_strdup(error == NULL ? "check: the rule refuses a table and does not say why"
                                      : error->message);
    rubato_shard_driver_free(driver);
    return NULL;
}

/* One of the dtypes for which a table may have the rule. */
static void draw_dtype(RuleScenario *scenario, GRand *random)
{
    RubatoDtype taken[RUBATO_I64 + 1];
    uint32_t n = 0;
    g_autofree char *first_refusal = NULL;

    for (RubatoDtype dtype = RUBATO_F32; dtype <= RUBATO_I64; dtype++) {
        scenario->spec.dtype = dtype;
        char *refusal = why_refused(&scenario->spec);

        if (refusal == NULL)
            taken[n++] = dtype;
        else if (first_refusal == NULL)
            first_refusal = refusal;
        else
            g_free(refusal);
    }
    if (n > 0)
        scenario->spec.dtype = taken[pick(random, n)];
    else
        scenario->failure = g_steal_pointer(&first_refusal);
}

/* Numbers that are in the range of every hyper-parameter. */
static void draw_rule(RuleScenario *scenario, const RubatoUpdateTraits *traits, GRand *random)
{
    static const double numbers[] = { 0.25, 0.5, 0.75 };
    RubatoTableSpec spec = scenario->spec;
    const bool is_real = spec.dtype == RUBATO_F32 || spec.dtype == RUBATO_F64;

    if (is_real)
        spec.rule.on_bad_gradient =
            (RubatoOnBadGradient)pick(random, RUBATO_ON_BAD_GRADIENT_UNCHECKED + 1);
    for (uint32_t hyper = 0; hyper < RULE_N_HYPERS; hyper++)
        if (rule_has_hyper(traits, &spec.rule, hyper) && percent(random, 40))
            *rule_hyper(&spec.rule, hyper) = numbers[pick(random, G_N_ELEMENTS(numbers))];
    spec.rule.row_wise = traits->may_be_row_wise && percent(random, 30);
    g_autofree char *refusal = why_refused(&spec);
    if (refusal == NULL)
        scenario->spec = spec;
}

static RuleScenario draw_scenario(const RubatoUpdateRuleTest *test, uint64_t seed)
{
    static const RubatoRule none;
    static const uint32_t widths[] = { 1, 2, 3, 5, 7, 8, 16, 32, RULE_MAX_WIDTH };
    const RubatoUpdateTraits *traits = rubato_update_rule_traits(test->spec.update);
    GRand *random = trial_random(seed, 1);
    RuleScenario scenario = {
        .seed = seed,
        .spec = test->spec,
        .formula = test->formula,
        .means = test->means,
        .same_as = test->same_as,
    };
    RubatoTableSpec *spec = &scenario.spec;

    spec->name = "test";
    if (spec->update == NULL)
        spec->update = "add";
    spec->width = widths[pick(random, G_N_ELEMENTS(widths))];
    draw_dtype(&scenario, random);
    if (traits != NULL && test->means == NULL && memcmp(&spec->rule, &none, sizeof none) == 0 &&
        percent(random, 80))
        draw_rule(&scenario, traits, random);
    g_rand_free(random);
    return scenario;
}

/* ---- actions ---- */

static RuleAction draw_action(GRand *random)
{
    static const uint8_t chances[RULE_ACTION_N_KINDS] = {
        [RULE_ACTION_ADD] = 50, [RULE_ACTION_ADD_BAD] = 10, [RULE_ACTION_ADD_MANY] = 3,
        [RULE_ACTION_SET] = 8,  [RULE_ACTION_RESET] = 7,    [RULE_ACTION_TUNE] = 14,
        [RULE_ACTION_MOVE] = 8,
    };
    static const double numbers[] = { 0, 0.125, 0.25, 0.5, 0.75 };
    RuleAction action = { .form = (RuleForm)pick(random, RULE_FORM_RUN + 1),
                          .n_keys = (uint8_t)pick(random, RULE_MAX_LISTED + 1),
                          .worker = (uint8_t)pick(random, 2),
                          .hyper = (uint8_t)pick(random, RULE_N_HYPERS),
                          .value = numbers[pick(random, G_N_ELEMENTS(numbers))],
                          .mark = g_rand_int(random) };
    uint32_t left = pick(random, 100);

    while (left >= chances[action.kind])
        left -= chances[action.kind++];
    for (size_t i = 0; i < RULE_MAX_LISTED; i++)
        action.keys[i] = (uint8_t)pick(random, RULE_N_KEYS);
    return action;
}

/* ---- runs ---- */

static char *run(const void *data, GArray *actions, bool draw, GString *story)
{
    const RuleScenario *scenario = data;
    RuleWorld *world = rule_world_new(scenario, story);

    if (draw) {
        GRand *random = trial_random(scenario->seed, 2);

        for (uint32_t left = 5 + pick(random, 40); left > 0; left--) {
            const RuleAction action = draw_action(random);

            g_array_append_val(actions, action);
        }
        g_rand_free(random);
    }
    for (guint i = 0; i < actions->len && rule_world_failure(world) == NULL; i++)
        rule_world_perform(world, &g_array_index(actions, RuleAction, i));
    rule_world_end(world);
    char *failure = g_strdup(rule_world_failure(world));
    rule_world_free(world);
    return failure;
}

/* Without one of its keys. */
static bool reduce(void *data, unsigned way)
{
    RuleAction *action = data;

    if (action->kind == RULE_ACTION_ADD_MANY || way >= action->n_keys)
        return false;
    memmove(action->keys + way, action->keys + way + 1, action->n_keys - way - 1u);
    action->n_keys--;
    return true;
}

static void describe(const void *data, GString *text)
{
    const RuleScenario *scenario = data;
    const RubatoTableSpec *spec = &scenario->spec;
    RubatoRule rule = spec->rule;

    g_string_append_printf(text, "seed %" G_GUINT64_FORMAT ": rule %s, %s × %u", scenario->seed,
                           spec->update, rubato_dtype_name(spec->dtype), spec->width);
    for (uint32_t hyper = 0; hyper < RULE_N_HYPERS; hyper++)
        if (*rule_hyper(&rule, hyper) != 0)
            g_string_append_printf(text, ", %s %g", rule_hyper_name(hyper),
                                   *rule_hyper(&rule, hyper));
    if (rule.row_wise)
        g_string_append(text, ", row_wise");
}

static const TrialKind rule_trial = {
    .action_size = sizeof(RuleAction),
    .run = run,
    .reduce = reduce,
    .describe = describe,
};

static char *run_seed(const void *test, uint64_t seed)
{
    RuleScenario scenario = draw_scenario(test, seed);
    char *story = trial_run(&rule_trial, &scenario);

    g_free(scenario.failure);
    return story;
}

char *rubato_test_update_rule_story(const RubatoUpdateRuleTest *test)
{
    return trial_run_seeds(test->first_seed, test->n_seeds == 0 ? DEFAULT_SEEDS : test->n_seeds,
                           run_seed, test);
}
