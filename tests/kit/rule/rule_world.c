/* A run of a test of an update rule.
 *
 * Thread: that of the test case. */
#include "tests/kit/rule/rule_world.h"

#include <math.h>
#include <string.h>

#include "tests/kit/rule/rule_paper.h"
#include "tests/kit/values.h"

#include <rubato/mix.h>

typedef struct {
    RubatoShardDriver *driver;
    RubatoTableSpec spec;
    RubatoBadGradients counted[2]; /* by worker: by shards whose place this one has taken */
} Shard;

/* An Add. */
typedef struct {
    RubatoKeys request;
    RubatoKey keys[RULE_N_MANY];
    uint32_t at[RULE_N_MANY];
    _Alignas(8) unsigned char deltas[RULE_N_MANY * RULE_MAX_WIDTH * 8];
} Call;

struct RuleWorld {
    const RuleScenario *scenario;
    RubatoDtype dtype;
    uint32_t width, state_width;
    size_t value_bytes;
    Shard together, alone; /* what they get: many keys in a call, or one */
    Shard twin;            /* of the rule same_as; no driver: none is asked for */
    Shard other;           /* whatever comes between: a rule must not remember it */
    double tuned[RULE_N_HYPERS];
    bool is_tuned[RULE_N_HYPERS];
    RubatoBadGradients expected[2]; /* by worker */
    Paper *paper;                   /* NULL: there is no formula */
    Call call;
    GString *story;
    char *failure;
};

/* ---- failing ---- */

G_GNUC_PRINTF(2, 3)
static void fail(RuleWorld *world, const char *format, ...)
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

static bool shard_open(RuleWorld *world, Shard *shard, const char *storage, const char *update)
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
        fail(world, "a shard cannot be made: %s", error->message);
    return shard->driver != NULL;
}

static RubatoKeys all_keys(uint32_t n)
{
    return (RubatoKeys){ .first = RULE_FIRST_KEY, .n = n };
}

static RubatoBadGradients shard_counts(const Shard *shard, uint32_t worker)
{
    RubatoBadGradients counts = rubato_shard_driver_bad_gradients(shard->driver, worker);
    const RubatoBadGradients *before = &shard->counted[worker];

    counts.n_nan += before->n_nan;
    counts.n_infinite += before->n_infinite;
    counts.n_large += before->n_large;
    counts.n_refused_rows += before->n_refused_rows;
    return counts;
}

/* ---- comparing ---- */

static void compare_with_formula(RuleWorld *world, const void *values, size_t n_values)
{
    double expected;
    const size_t at = paper_compare(world->paper, values, n_values, &expected);

    if (at == n_values)
        return;
    g_autofree char *found = value_text(world->dtype, values, at);
    fail(world, "formula: value %zu of key %u is %s; by the formula it is %.17g", at % world->width,
         (unsigned)(RULE_FIRST_KEY + at / world->width), found, expected);
}

static void compare(RuleWorld *world, Shard *other, uint32_t n, bool of_state, const char *text)
{
    const RubatoKeys keys = all_keys(n);
    const uint32_t width = of_state ? world->state_width : world->width;
    const size_t size = rubato_dtype_size(world->dtype), n_values = (size_t)n * width;
    g_autofree unsigned char *first = g_malloc(n_values * size + 1);
    g_autofree unsigned char *second = g_malloc(n_values * size + 1);

    if (of_state) {
        (void)rubato_shard_driver_get_state(world->together.driver, &keys, first);
        (void)rubato_shard_driver_get_state(other->driver, &keys, second);
    } else {
        rubato_shard_driver_get(world->together.driver, &keys, first);
        rubato_shard_driver_get(other->driver, &keys, second);
    }
    const size_t at = values_differ(world->dtype, first, second, n_values);
    if (at < n_values) {
        g_autofree char *one = value_text(world->dtype, first, at);
        g_autofree char *two = value_text(world->dtype, second, at);

        fail(world, "%s %zu of key %u: %s by calls of many keys, %s by %s",
             of_state ? "number of the state" : "value", at % width,
             (unsigned)(RULE_FIRST_KEY + at / width), one, two, text);
    }
    if (!of_state && world->paper != NULL)
        compare_with_formula(world, first, n_values);
}

static void compare_counts(RuleWorld *world)
{
    for (uint32_t worker = 0; worker < 2; worker++) {
        const RubatoBadGradients *expected = &world->expected[worker];
        const RubatoBadGradients found[] = { shard_counts(&world->together, worker),
                                             shard_counts(&world->alone, worker) };

        for (int i = 0; i < 2; i++)
            if (found[i].n_nan != expected->n_nan || found[i].n_infinite != expected->n_infinite ||
                found[i].n_large != expected->n_large ||
                found[i].n_refused_rows != expected->n_refused_rows)
                fail(world,
                     "bad deltas of worker %u: %u no numbers, %u infinite, %u large, %u rows "
                     "refused; there were %u, %u, %u, %u",
                     worker, (unsigned)found[i].n_nan, (unsigned)found[i].n_infinite,
                     (unsigned)found[i].n_large, (unsigned)found[i].n_refused_rows,
                     (unsigned)expected->n_nan, (unsigned)expected->n_infinite,
                     (unsigned)expected->n_large, (unsigned)expected->n_refused_rows);
    }
}

static void compare_all(RuleWorld *world, uint32_t n)
{
    compare(world, &world->alone, n, /* of_state= */ false, "calls of one key");
    if (world->twin.driver != NULL)
        compare(world, &world->twin, n, /* of_state= */ false, world->scenario->same_as);
    if (world->state_width > 0) {
        compare(world, &world->alone, n, /* of_state= */ true, "calls of one key");
        if (world->twin.driver != NULL)
            compare(world, &world->twin, n, /* of_state= */ true, world->scenario->same_as);
    }
    compare_counts(world);
}

/* ---- Adds ---- */

static RubatoKey key_of(const Call *call, size_t i)
{
    const RubatoKeys *request = &call->request;

    return request->keys == NULL ? request->first + i
                                 : request->keys[request->at == NULL ? i : request->at[i]];
}

static void *deltas_of(RuleWorld *world, size_t i)
{
    Call *call = &world->call;

    return call->deltas + (call->request.at == NULL ? i : call->request.at[i]) * world->value_bytes;
}

/* Fills in the keys of an action, and rows of values for them. */
static void make_call(RuleWorld *world, const RuleAction *action)
{
    const bool is_many = action->kind == RULE_ACTION_ADD_MANY;
    const size_t n = is_many ? RULE_N_MANY : action->n_keys, n_rows = MAX(n, RULE_MAX_LISTED);
    Call *call = &world->call;

    for (size_t i = 0; i < n_rows; i++) {
        call->keys[i] =
            RULE_FIRST_KEY + (is_many ? i * 7 % RULE_N_MANY : action->keys[i % RULE_MAX_LISTED]);
        call->at[i] = (uint32_t)(is_many ? (i + 300) % RULE_N_MANY
                                         : rubato_mix64(action->mark + i + 1) % RULE_MAX_LISTED);
    }
    values_fill(world->dtype, call->deltas, n_rows * world->width, action->mark);
    call->request = (RubatoKeys){ .keys = call->keys, .n = n };
    if (action->form == RULE_FORM_SELECTION)
        call->request.at = call->at;
    if (action->form == RULE_FORM_RUN)
        call->request = (RubatoKeys){
            .first = RULE_FIRST_KEY + (is_many ? 0 : action->keys[0]),
            .n = is_many ? n : MIN(n, (size_t)(RULE_N_KEYS - action->keys[0])),
        };
}

/* Some values are no numbers, infinite, or larger than others. */
static void spoil(RuleWorld *world, uint32_t mark)
{
    static const double bad[] = { NAN, INFINITY, -INFINITY, 100, -100, -NAN };

    for (size_t i = 0; i < (size_t)RULE_MAX_LISTED * world->width; i++) {
        const uint64_t random = rubato_mix64(mark + (i << 32) + 5);

        if (random % 16 == 0)
            value_put(world->dtype, world->call.deltas, i, bad[random / 16 % G_N_ELEMENTS(bad)]);
    }
}

/* Whether the row is applied; its bad deltas are counted. */
static bool accept(RuleWorld *world, uint32_t worker, const void *deltas)
{
    const RubatoRule *rule = &rubato_shard_driver_update(world->together.driver)->rule;
    const double largest = rule->max_gradient > 0 ? rule->max_gradient : INFINITY;
    RubatoBadGradients *counts = &world->expected[worker];
    bool is_bad = false;

    if ((world->dtype != RUBATO_F32 && world->dtype != RUBATO_F64) ||
        rule->on_bad_gradient == RUBATO_ON_BAD_GRADIENT_UNCHECKED)
        return true;
    for (uint32_t i = 0; i < world->width; i++) {
        const double delta = value_number(world->dtype, deltas, i);
        const bool is_nan = isnan(delta), is_infinite = isinf(delta) != 0;
        const bool is_large = isfinite(delta) && fabs(delta) > largest;

        counts->n_nan += is_nan;
        counts->n_infinite += is_infinite;
        counts->n_large += is_large;
        is_bad |= is_nan || is_infinite || is_large;
    }
    const bool refuses = is_bad && rule->on_bad_gradient == RUBATO_ON_BAD_GRADIENT_REFUSE;
    counts->n_refused_rows += refuses;
    return !refuses;
}

static void add(RuleWorld *world, Shard *shard, uint32_t worker, const RubatoKeys *keys,
                const void *deltas)
{
    if (shard->driver != NULL && !rubato_shard_driver_add(shard->driver, worker, keys, deltas))
        fail(world, "an Add failed as if there were no memory");
}

static void add_one(RuleWorld *world, const RuleAction *action, size_t i)
{
    const RubatoKeys one = { .first = key_of(&world->call, i), .n = 1 };

    add(world, &world->alone, action->worker, &one, deltas_of(world, i));
}

/* Key by key, the last one first; those of a repeated key in their order. Something else comes
 * between them. */
static void add_alone(RuleWorld *world, const RuleAction *action)
{
    const Call *call = &world->call;
    const RubatoKeys between = all_keys(3);

    if (action->kind == RULE_ACTION_ADD_MANY) /* no key repeats */
        for (size_t i = call->request.n; i-- > 0;)
            add_one(world, action, i);
    else
        for (RubatoKey key = RULE_FIRST_KEY + RULE_N_KEYS; key-- > RULE_FIRST_KEY;) {
            add(world, &world->other, 0, &between, call->deltas);
            for (size_t i = 0; i < call->request.n; i++)
                if (key_of(call, i) == key)
                    add_one(world, action, i);
        }
}

static void perform_add(RuleWorld *world, const RuleAction *action)
{
    Call *call = &world->call;

    make_call(world, action);
    if (action->kind == RULE_ACTION_ADD_BAD)
        spoil(world, action->mark);
    add(world, &world->together, action->worker, &call->request, call->deltas);
    add(world, &world->twin, action->worker, &call->request, call->deltas);
    add_alone(world, action);
    for (size_t i = 0; i < call->request.n; i++)
        if (accept(world, action->worker, deltas_of(world, i)) && world->paper != NULL)
            paper_step(world->paper, key_of(call, i) - RULE_FIRST_KEY, deltas_of(world, i));
}

/* ---- other actions ---- */

static void perform_set(RuleWorld *world, const RuleAction *action)
{
    const bool resets = action->kind == RULE_ACTION_RESET;
    Shard *const shards[] = { &world->together, &world->alone, &world->twin };

    make_call(world, action);
    const RubatoKeys *keys = &world->call.request;
    for (size_t i = 0; i < G_N_ELEMENTS(shards); i++)
        if (shards[i]->driver != NULL && resets)
            rubato_shard_driver_reset(shards[i]->driver, keys);
        else if (shards[i]->driver != NULL &&
                 !rubato_shard_driver_set(shards[i]->driver, keys, world->call.deltas))
            fail(world, "a Set failed as if there were no memory");
    for (size_t i = 0; i < keys->n && world->paper != NULL; i++)
        paper_set(world->paper, key_of(&world->call, i) - RULE_FIRST_KEY,
                  resets ? NULL : deltas_of(world, i));
}

static void perform_tune(RuleWorld *world, const RuleAction *action)
{
    Shard *const shards[] = { &world->together, &world->alone, &world->twin };
    unsigned n_done = 0, n_shards = 0;

    for (size_t i = 0; i < G_N_ELEMENTS(shards); i++) {
        if (shards[i]->driver == NULL)
            continue;
        n_shards++;
        n_done += rubato_shard_driver_tune(shards[i]->driver, (RubatoHyper)action->hyper,
                                           action->value, NULL);
    }
    if (n_done != 0 && n_done != n_shards)
        fail(world, "check: a number is refused for one table and not for the other");
    if (n_done == 0)
        return;
    world->is_tuned[action->hyper] = true;
    world->tuned[action->hyper] = action->value;
}

static void perform_move(RuleWorld *world)
{
    const RubatoKeys all = all_keys(RULE_N_MANY);
    Shard old = world->together;
    const size_t state_bytes = world->state_width * rubato_dtype_size(world->dtype);
    g_autofree unsigned char *values = g_malloc(RULE_N_MANY * world->value_bytes);
    g_autofree unsigned char *states = g_malloc(RULE_N_MANY * state_bytes + 1);

    for (uint32_t worker = 0; worker < 2; worker++)
        world->together.counted[worker] = shard_counts(&old, worker);
    if (shard_open(world, &world->together, old.spec.storage, old.spec.update)) {
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
            fail(world, "rows, state or numbers are not taken by another shard");
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
        make_call(world, action);
        g_string_append(world->story, world->call.request.n == 0 ? " no key" : " keys");
        for (size_t i = 0; i < world->call.request.n; i++)
            g_string_append_printf(world->story, " %u", (unsigned)key_of(&world->call, i));
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
        perform_add(world, action);
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
        compare_all(world, action->kind == RULE_ACTION_ADD_MANY ? RULE_N_MANY : RULE_N_KEYS);
}

/* ---- the beginning and the end ---- */

RuleWorld *rule_world_new(const RuleScenario *scenario, GString *story)
{
    RuleWorld *world = g_new0(RuleWorld, 1);
    const char *rule = scenario->spec.update;

    world->scenario = scenario;
    world->story = story;
    if (scenario->failure != NULL) {
        fail(world, "%s", scenario->failure);
        return world;
    }
    if (!shard_open(world, &world->together, "dense", rule) ||
        !shard_open(world, &world->alone, "hash", rule) ||
        !shard_open(world, &world->other, "dense", rule) ||
        (scenario->same_as != NULL && !shard_open(world, &world->twin, "dense", scenario->same_as)))
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
        fail(world, "%s", wrong);
    if (world->twin.driver != NULL &&
        rubato_shard_driver_update(world->twin.driver)->state_width != world->state_width)
        fail(world, "the rule %s has another state", scenario->same_as);
    return world;
}

void rule_world_free(RuleWorld *world)
{
    Shard *const shards[] = { &world->together, &world->alone, &world->twin, &world->other };

    paper_free(world->paper);
    for (size_t i = 0; i < G_N_ELEMENTS(shards); i++)
        rubato_shard_driver_free(shards[i]->driver);
    g_free(world->failure);
    g_free(world);
}

void rule_world_end(RuleWorld *world)
{
    if (world->failure == NULL)
        compare_all(world, RULE_N_MANY);
}
