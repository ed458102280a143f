/* Adds of a test of an update rule: together, and each key alone.
 *
 * Thread: that of the test case. */
#include <math.h>

#include "tests/kit/rule/rule_world_private.h"
#include "tests/kit/values.h"

#include <rubato/mix.h>

RubatoKey rule_call_key(const Call *call, size_t i)
{
    const RubatoKeys *request = &call->request;

    return request->keys == NULL ? request->first + i
                                 : request->keys[request->at == NULL ? i : request->at[i]];
}

void *rule_call_row(RuleWorld *world, size_t i)
{
    Call *call = &world->call;

    return call->deltas + (call->request.at == NULL ? i : call->request.at[i]) * world->value_bytes;
}

void rule_make_call(RuleWorld *world, const RuleAction *action)
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
        rule_fail(world, "an Add failed as if there were no memory");
}

static void add_one(RuleWorld *world, const RuleAction *action, size_t i)
{
    const RubatoKeys one = { .first = rule_call_key(&world->call, i), .n = 1 };

    add(world, &world->alone, action->worker, &one, rule_call_row(world, i));
}

/* Key by key, the last one first; those of a repeated key in their order. Something else comes
 * between them. */
static void add_alone(RuleWorld *world, const RuleAction *action)
{
    const Call *call = &world->call;
    const RubatoKeys between = rule_keys(3);

    if (action->kind == RULE_ACTION_ADD_MANY) /* no key repeats */
        for (size_t i = call->request.n; i-- > 0;)
            add_one(world, action, i);
    else
        for (RubatoKey key = RULE_FIRST_KEY + RULE_N_KEYS; key-- > RULE_FIRST_KEY;) {
            add(world, &world->other, 0, &between, call->deltas);
            for (size_t i = 0; i < call->request.n; i++)
                if (rule_call_key(call, i) == key)
                    add_one(world, action, i);
        }
}

void rule_perform_add(RuleWorld *world, const RuleAction *action)
{
    Call *call = &world->call;

    rule_make_call(world, action);
    if (action->kind == RULE_ACTION_ADD_BAD)
        spoil(world, action->mark);
    add(world, &world->together, action->worker, &call->request, call->deltas);
    add(world, &world->reference, action->worker, &call->request, call->deltas);
    add_alone(world, action);
    for (size_t i = 0; i < call->request.n; i++)
        if (accept(world, action->worker, rule_call_row(world, i)) && world->paper != NULL)
            paper_step(world->paper, rule_call_key(call, i) - RULE_FIRST_KEY,
                       rule_call_row(world, i));
}
