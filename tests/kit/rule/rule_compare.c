/* Rows of the shards of a test of an update rule, compared with one another and with the formula.
 *
 * Thread: that of the test case. */
#include "tests/kit/rule/rule_world_private.h"
#include "tests/kit/values.h"

static void compare_with_formula(RuleWorld *world, const void *values, size_t n_values)
{
    double expected;
    const size_t at = paper_compare(world->paper, values, n_values, &expected);

    if (at == n_values)
        return;
    g_autofree char *found = value_text(world->dtype, values, at);
    rule_fail(world, "formula: value %zu of key %u is %s; by the formula it is %.17g",
              at % world->width, (unsigned)(RULE_FIRST_KEY + at / world->width), found, expected);
}

static void compare(RuleWorld *world, Shard *other, uint32_t n, bool of_state, const char *text)
{
    const RubatoKeys keys = rule_keys(n);
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

        rule_fail(world, "%s %zu of key %u: %s by calls of many keys, %s by %s",
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
        const RubatoBadGradients found[] = { rule_shard_counts(&world->together, worker),
                                             rule_shard_counts(&world->alone, worker) };

        for (int i = 0; i < 2; i++)
            if (found[i].n_nan != expected->n_nan || found[i].n_infinite != expected->n_infinite ||
                found[i].n_large != expected->n_large ||
                found[i].n_refused_rows != expected->n_refused_rows)
                rule_fail(world,
                          "bad deltas of worker %u: %u no numbers, %u infinite, %u large, %u rows "
                          "refused; there were %u, %u, %u, %u",
                          worker, (unsigned)found[i].n_nan, (unsigned)found[i].n_infinite,
                          (unsigned)found[i].n_large, (unsigned)found[i].n_refused_rows,
                          (unsigned)expected->n_nan, (unsigned)expected->n_infinite,
                          (unsigned)expected->n_large, (unsigned)expected->n_refused_rows);
    }
}

void rule_compare(RuleWorld *world, uint32_t n)
{
    compare(world, &world->alone, n, /* of_state= */ false, "calls of one key");
    if (world->reference.driver != NULL)
        compare(world, &world->reference, n, /* of_state= */ false, world->scenario->same_as);
    if (world->state_width > 0) {
        compare(world, &world->alone, n, /* of_state= */ true, "calls of one key");
        if (world->reference.driver != NULL)
            compare(world, &world->reference, n, /* of_state= */ true, world->scenario->same_as);
    }
    compare_counts(world);
}
