/* A run of a test of an update rule.
 *
 * Thread: that of the test case. */
#include "tests/kit/rule/rule_world_private.h"

#include <string.h>

#include "tests/kit/values.h"

/* ---- failing ---- */

void rule_fail(RuleWorld *world, const char *format, ...)
{
    va_list arguments;

    if (world->failure != NULL)
        return;
    va_start(arguments, format);
    world->failure = g_strdup_vprintf(format, arguments);
    va_end(arguments);
}

const char *rule_world_failure(const RuleWorld *world)
{
    return world->failure;
}

/* ---- shards ---- */

bool rule_shard_open(RuleWorld *world, Shard *shard, const char *storage, const char *update)
{
    g_autoptr(GError) error = NULL;

    shard->spec = world->scenario->spec;
    shard->spec.storage = storage;
    shard->spec.update = update;
    if (rubato_table_spec_holds_range(&shard->spec)) {
        shard->spec.first_key = RULE_FIRST_KEY;
        shard->spec.n_keys = RULE_N_MANY;
    }
    const RubatoShardDriverSetup setup = { .spec = &shard->spec,
                                           .first_key = RULE_FIRST_KEY,
                                           .n_keys = RULE_N_MANY };
    shard->driver = rubato_shard_driver_new(&setup, &error);
    if (shard->driver == NULL)
        rule_fail(world, "a shard cannot be made: %s", error->message);
    return shard->driver != NULL;
}

RubatoKeys rule_keys(uint32_t n)
{
    return (RubatoKeys){ .first = RULE_FIRST_KEY, .n = n };
}

RubatoBadGradients rule_shard_counts(const Shard *shard, uint32_t worker)
{
    RubatoBadGradients counts = rubato_shard_driver_bad_gradients(shard->driver, worker);
    const RubatoBadGradients *before = &shard->counted[worker];

    counts.n_nan += before->n_nan;
    counts.n_infinite += before->n_infinite;
    counts.n_large += before->n_large;
    counts.n_refused_rows += before->n_refused_rows;
    return counts;
}

/* ---- other actions ---- */

static void perform_set(RuleWorld *world, const RuleAction *action)
{
    const bool resets = action->kind == RULE_ACTION_RESET;
    Shard *const shards[] = { &world->together, &world->alone, &world->reference };

    rule_make_call(world, action);
    const RubatoKeys *keys = &world->call.request;
    for (size_t i = 0; i < G_N_ELEMENTS(shards); i++)
        if (shards[i]->driver != NULL && resets)
            rubato_shard_driver_reset(shards[i]->driver, keys);
        else if (shards[i]->driver != NULL &&
                 !rubato_shard_driver_set(shards[i]->driver, keys, world->call.deltas))
            rule_fail(world, "a Set failed as if there were no memory");
    for (size_t i = 0; i < keys->n && world->paper != NULL; i++)
        paper_set(world->paper, rule_call_key(&world->call, i) - RULE_FIRST_KEY,
                  resets ? NULL : rule_call_row(world, i));
}

static void perform_tune(RuleWorld *world, const RuleAction *action)
{
    Shard *const shards[] = { &world->together, &world->alone, &world->reference };
    unsigned n_done = 0, n_shards = 0;

    for (size_t i = 0; i < G_N_ELEMENTS(shards); i++) {
        if (shards[i]->driver == NULL)
            continue;
        n_shards++;
        n_done += rubato_shard_driver_tune(shards[i]->driver, (RubatoHyper)action->hyper,
                                           action->value, NULL);
    }
    if (n_done != 0 && n_done != n_shards)
        rule_fail(world, "check: a number is refused for one table and not for the other");
    if (n_done == 0)
        return;
    world->is_tuned[action->hyper] = true;
    world->tuned[action->hyper] = action->value;
}

static void perform_move(RuleWorld *world)
{
    const RubatoKeys all = rule_keys(RULE_N_MANY);
    Shard old = world->together;
    const size_t state_bytes = world->state_width * rubato_dtype_size(world->dtype);
    g_autofree unsigned char *values = g_malloc(RULE_N_MANY * world->value_bytes);
    g_autofree unsigned char *states = g_malloc(RULE_N_MANY * state_bytes + 1);

    for (uint32_t worker = 0; worker < 2; worker++)
        world->together.counted[worker] = rule_shard_counts(&old, worker);
    if (rule_shard_open(world, &world->together, old.spec.storage, old.spec.update)) {
        RubatoShardDriver *driver = world->together.driver;
        bool moved = true;

        for (uint32_t hyper = 0; hyper < RULE_N_HYPERS; hyper++)
            if (world->is_tuned[hyper])
                moved &=
                    rubato_shard_driver_tune(driver, (RubatoHyper)hyper, world->tuned[hyper], NULL);
        rubato_shard_driver_get(old.driver, &all, values);
        moved &= rubato_shard_driver_set(driver, &all, values);
        if (state_bytes > 0)
            moved &= rubato_shard_driver_get_state(old.driver, &all, states) &&
                     rubato_shard_driver_set_state(driver, &all, states);
        if (!moved)
            rule_fail(world, "rows, state or numbers are not taken by another shard");
    }
    rubato_shard_driver_free(old.driver);
}

static bool is_possible(const RuleWorld *world, const RuleAction *action)
{
    const RubatoUpdateTraits *traits =
        &rubato_shard_driver_update_ops(world->together.driver)->traits;
    const RubatoUpdate *update = rubato_shard_driver_update(world->together.driver);

    if (action->kind == RULE_ACTION_ADD_BAD)
        return world->dtype == RUBATO_F32 || world->dtype == RUBATO_F64;
    if (action->kind != RULE_ACTION_TUNE)
        return true;
    /* A formula need not know what follows from another number in the middle. And shards make rows
     * at different times. */
    return world->paper == NULL && action->hyper != RUBATO_HYPER_INITIAL_ACCUMULATOR &&
           rule_has_hyper(traits, &update->rule, action->hyper);
}

static void tell(RuleWorld *world, const RuleAction *action)
{
    static const char *const verbs[] = {
        [RULE_ACTION_ADD] = "Add to",
        [RULE_ACTION_ADD_BAD] = "Add with bad deltas to",
        [RULE_ACTION_ADD_MANY] = "Add to",
        [RULE_ACTION_SET] = "Set of",
        [RULE_ACTION_RESET] = "reset of",
        [RULE_ACTION_TUNE] = "tuning:",
        [RULE_ACTION_MOVE] = "move to another shard",
    };

    if (world->story == NULL)
        return;
    g_string_append_printf(world->story, "  %s", verbs[action->kind]);
    if (action->kind == RULE_ACTION_TUNE)
        g_string_append_printf(world->story, " %s is %g", rule_hyper_name(action->hyper),
                               action->value);
    else if (action->kind == RULE_ACTION_ADD_MANY)
        g_string_append_printf(world->story, " %d keys", RULE_N_MANY);
    else if (action->kind != RULE_ACTION_MOVE) {
        rule_make_call(world, action);
        g_string_append(world->story, world->call.request.n == 0 ? " no key" : " keys");
        for (size_t i = 0; i < world->call.request.n; i++)
            g_string_append_printf(world->story, " %u", (unsigned)rule_call_key(&world->call, i));
    }
    g_string_append_c(world->story, '\n');
}

void rule_world_perform(RuleWorld *world, const RuleAction *action)
{
    if (world->failure != NULL || !is_possible(world, action))
        return;
    tell(world, action);
    switch (action->kind) {
    case RULE_ACTION_ADD:
    case RULE_ACTION_ADD_BAD:
    case RULE_ACTION_ADD_MANY:
        rule_perform_add(world, action);
        break;
    case RULE_ACTION_SET:
    case RULE_ACTION_RESET:
        perform_set(world, action);
        break;
    case RULE_ACTION_TUNE:
        perform_tune(world, action);
        break;
    case RULE_ACTION_MOVE:
        perform_move(world);
        break;
    case RULE_ACTION_N_KINDS:
        g_assert_not_reached();
    }
    if (world->failure == NULL)
        rule_compare(world, action->kind == RULE_ACTION_ADD_MANY ? RULE_N_MANY : RULE_N_KEYS);
}

/* ---- the beginning and the end ---- */

RuleWorld *rule_world_new(const RuleScenario *scenario, GString *story)
{
    RuleWorld *world = g_new0(RuleWorld, 1);
    const char *rule = scenario->spec.update;

    world->scenario = scenario;
    world->story = story;
    if (scenario->failure != NULL) {
        rule_fail(world, "%s", scenario->failure);
        return world;
    }
    if (!rule_shard_open(world, &world->together, "dense", rule) ||
        !rule_shard_open(world, &world->alone, "hash", rule) ||
        !rule_shard_open(world, &world->other, "dense", rule) ||
        (scenario->same_as != NULL &&
         !rule_shard_open(world, &world->reference, "dense", scenario->same_as)))
        return world;

    const RubatoUpdate *update = rubato_shard_driver_update(world->together.driver);
    world->dtype = update->dtype;
    world->width = update->width;
    world->state_width = update->state_width;
    world->value_bytes = update->width * rubato_dtype_size(update->dtype);
    if (scenario->formula != NULL)
        world->paper =
            paper_new(scenario->formula, scenario->means != NULL ? scenario->means : &update->rule,
                      update, RULE_N_MANY, scenario->spec.init_value);
    g_autofree char *wrong =
        rule_check_ops(rubato_shard_driver_update_ops(world->together.driver), update);
    if (wrong != NULL)
        rule_fail(world, "%s", wrong);
    if (world->reference.driver != NULL &&
        rubato_shard_driver_update(world->reference.driver)->state_width != world->state_width)
        rule_fail(world, "the rule %s has another state", scenario->same_as);
    return world;
}

void rule_world_free(RuleWorld *world)
{
    Shard *const shards[] = { &world->together, &world->alone, &world->reference, &world->other };

    paper_free(world->paper);
    for (size_t i = 0; i < G_N_ELEMENTS(shards); i++)
        rubato_shard_driver_free(shards[i]->driver);
    g_free(world->failure);
    g_free(world);
}

void rule_world_end(RuleWorld *world)
{
    if (world->failure == NULL)
        rule_compare(world, RULE_N_MANY);
}
