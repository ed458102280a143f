/* What is asked of each kind, by the testing kit. A model is run with several settings, between
 * which the seeds are divided.
 *
 * Thread: main's. */
#include "apps/conformance/suites.h"

#include <rubato/error.h>
#include <rubato/plugin.h>
#include <rubato/testing.h>

/* ---- models ---- */

/* The settings that mean something to a model. */
static size_t list_settings(const RubatoModelTraits *traits, const char *name,
                            RubatoTableSpec *specs)
{
    static const uint32_t stalenesses[] = { 0, 1, 3 }, speculations[] = { 0, 2 };
    const bool has_staleness = traits->lead == RUBATO_LEAD_STALENESS;
    size_t n = 0;

    for (size_t i = 0; i < (has_staleness ? G_N_ELEMENTS(stalenesses) : 1); i++)
        for (size_t k = 0; k < (traits->takes_announcements ? G_N_ELEMENTS(speculations) : 1); k++)
            specs[n++] = (RubatoTableSpec){ .model = name,
                                            .staleness = stalenesses[i],
                                            .speculation = speculations[k] };
    return n;
}

static void describe_bounds(const RubatoTestBounds *bounds, GString *asked)
{
    g_string_append(asked, "nothing lost, twice or waiting for ever");
    if (bounds->has_lead)
        g_string_append(asked, ", lead");
    if (bounds->has_staleness)
        g_string_append(asked, ", staleness");
    if (bounds->sees_own)
        g_string_append(asked, ", own Adds seen");
    if (bounds->is_exact)
        g_string_append(asked, ", exactly the clocks before");
    if (bounds->is_due != NULL)
        g_string_append(asked, ", answered when due");
}

static char *run_model(const char *name, const SuiteSeeds *seeds, GString *asked)
{
    RubatoTableSpec specs[6];
    const size_t n = list_settings(rubato_model_traits(name), name, specs);
    RubatoTestBounds bounds = { 0 };
    char *story = NULL;

    for (size_t i = 0; i < n && story == NULL; i++) {
        bounds = rubato_test_bounds(&specs[i]);
        story = rubato_test_model_story(
            &(RubatoModelTest){ .spec = specs[i],
                                .bounds = bounds,
                                .first_seed = seeds->first_seed,
                                .n_seeds = MAX(1, (uint32_t)(seeds->n_seeds / n)) });
    }
    describe_bounds(&bounds, asked);
    if (n > 1)
        g_string_append_printf(asked, "; %zu settings", n);
    return story;
}

/* ---- storages ---- */

/* Some want to know how many keys there will be. */
static bool wants_n_keys(const char *name)
{
    const RubatoTableSpec spec = { .name = "test", .storage = name };
    const RubatoShardDriverSetup setup = { .spec = &spec };
    g_autoptr(GError) error = NULL;

    if (rubato_table_spec_holds_range(&spec))
        return false; /* the test draws it */
    RubatoShardDriver *driver = rubato_shard_driver_new(&setup, &error);
    rubato_shard_driver_free(driver);
    return g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_INVALID);
}

static char *run_storage(const char *name, const SuiteSeeds *seeds, GString *asked)
{
    const RubatoStorageTest test = { .spec = { .storage = name,
                                               .n_keys = wants_n_keys(name) ? 1000 : 0 },
                                     .first_seed = seeds->first_seed,
                                     .n_seeds = seeds->n_seeds };

    g_string_append(asked, "rows, pointers, lists, sizes, moves, no memory");
    return rubato_test_storage_story(&test);
}

/* ---- update rules ---- */

static char *run_rule(const char *name, const SuiteSeeds *seeds, GString *asked)
{
    const RubatoUpdateRuleTest test = { .spec = { .update = name },
                                        .first_seed = seeds->first_seed,
                                        .n_seeds = seeds->n_seeds };

    g_string_append(asked, "many keys as each alone, its rows only, state, moves, tuning, bad "
                           "deltas");
    return rubato_test_update_rule_story(&test);
}

const SuiteKind suite_kinds[SUITE_N_KINDS] = {
    [SUITE_MODELS] = { "model", rubato_model_name, run_model },
    [SUITE_STORAGES] = { "storage", rubato_storage_name, run_storage },
    [SUITE_RULES] = { "rule", rubato_update_rule_name, run_rule },
};
