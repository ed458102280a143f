/* Tests of storages: what a seed makes of one, and how a run is told.
 *
 * Thread: that of the test case. */
#include <string.h>

#include "tests/kit/storage/storage_world.h"
#include "tests/kit/trial.h"

#define DEFAULT_SEEDS 300
#define MANY_KEYS 3000  /* more than a block */
#define HUGE_KEYS 20000 /* in few seeds */
#define FEW_NUMBERS 30  /* so that keys repeat */
#define MANY_NUMBERS 60000

/* ---- scenarios ---- */

static const char *const rules_of_reals[] = { "add", "assign", "sgd", "adagrad", "ftrl", "adam" };

static void draw_spec(RubatoTableSpec *spec, GRand *random)
{
    static const uint32_t widths[] = { 1, 2, 3, 4, 5, 8, 16, 40 };

    spec->name = "test";
    spec->dtype = (RubatoDtype)pick(random, RUBATO_I64 + 1);
    spec->width = widths[pick(random, G_N_ELEMENTS(widths))];
    if (spec->update == NULL)
        spec->update =
            rules_of_reals[pick(random, spec->dtype == RUBATO_F32 || spec->dtype == RUBATO_F64
                                            ? G_N_ELEMENTS(rules_of_reals)
                                            : 2)];
    spec->seed = pick(random, 1000);
    switch (pick(random, 3)) {
    case 0:
        break;
    case 1:
        spec->init_value = 7;
        break;
    default:
        spec->init = "uniform";
        spec->init_low = -50;
        spec->init_high = 50;
    }
}

static StorageScenario draw_scenario(const RubatoStorageTest *test, uint64_t seed)
{
    static const uint64_t sizes[] = { 1, 2, 24, 300, 5000 };
    GRand *random = trial_random(seed, 1);
    StorageScenario scenario = {
        .seed = seed,
        .spec = test->spec,
        .row_of = test->row_of,
        .user = test->user,
        .hash_seed = (uint64_t)g_rand_int(random) << 32 | g_rand_int(random),
    };
    RubatoTableSpec *spec = &scenario.spec;

    draw_spec(spec, random);
    if (spec->storage == NULL)
        spec->storage = "dense";
    scenario.holds_range = rubato_table_spec_holds_range(spec);
    if (!scenario.holds_range) {
        spec->create_on_get = percent(random, 20);
    } else if (spec->n_keys == 0) {
        spec->n_keys = sizes[pick(random, G_N_ELEMENTS(sizes))];
        spec->first_key =
            (const RubatoKey[]){ 0, 1000, UINT64_MAX - spec->n_keys + 1 }[pick(random, 3)];
    }
    g_rand_free(random);
    return scenario;
}

/* ---- actions ---- */

static StorageAction draw_action(GRand *random, bool is_huge)
{
    static const uint8_t chances[STORAGE_ACTION_N_KINDS] = {
        [STORAGE_ACTION_ADD] = 20,  [STORAGE_ACTION_GET] = 20,      [STORAGE_ACTION_SET] = 6,
        [STORAGE_ACTION_RESET] = 5, [STORAGE_ACTION_GET_STATE] = 6, [STORAGE_ACTION_SET_STATE] = 5,
        [STORAGE_ACTION_FIND] = 12, [STORAGE_ACTION_CREATE] = 12,   [STORAGE_ACTION_RUN] = 5,
        [STORAGE_ACTION_LIST] = 6,  [STORAGE_ACTION_MOVE] = 3,
    };
    StorageAction action = { .form = (StorageForm)pick(random, STORAGE_FORM_SERIES + 1),
                             .n_keys = (uint8_t)pick(random, MAX_LISTED + 1),
                             .count = 1 + pick(random, percent(random, 10) ? MANY_KEYS : 20),
                             .mark = g_rand_int(random) };
    uint32_t left = pick(random, 100);

    while (left >= chances[action.kind])
        left -= chances[action.kind++];
    if (is_huge && percent(random, 10))
        action.count = HUGE_KEYS;
    for (size_t i = 0; i < MAX_LISTED; i++)
        action.keys[i] = pick(random, percent(random, 70) ? FEW_NUMBERS : MANY_NUMBERS);
    return action;
}

/* ---- runs ---- */

static char *run(const void *data, GArray *actions, bool draw, GString *story)
{
    const StorageScenario *scenario = data;
    StorageWorld *world = storage_world_new(scenario, story);

    if (draw) {
        GRand *random = trial_random(scenario->seed, 2);
        const bool is_huge = percent(random, 3);

        for (uint32_t left = 5 + pick(random, 50); left > 0; left--) {
            const StorageAction action = draw_action(random, is_huge);

            g_array_append_val(actions, action);
        }
        g_rand_free(random);
    }
    for (guint i = 0; i < actions->len && storage_world_failure(world) == NULL; i++)
        storage_world_perform(world, &g_array_index(actions, StorageAction, i));
    storage_world_end(world);
    char *failure = g_strdup(storage_world_failure(world));
    storage_world_free(world);
    return failure;
}

/* Without one of its keys, or with fewer of those that follow one another. */
static bool reduce(void *data, unsigned way)
{
    StorageAction *action = data;
    const bool is_list =
        action->form == STORAGE_FORM_LIST || action->form == STORAGE_FORM_SELECTION;
    const unsigned n_keys = is_list ? action->n_keys : 0;

    if (way < n_keys) {
        memmove(action->keys + way, action->keys + way + 1,
                (n_keys - way - 1) * sizeof *action->keys);
        action->n_keys--;
        return true;
    }
    if (way > n_keys + 1)
        return false;
    /* A way that changes nothing would be taken for ever. */
    if (is_list && action->kind != STORAGE_ACTION_LIST && action->kind != STORAGE_ACTION_MOVE &&
        action->kind != STORAGE_ACTION_RUN)
        return false;
    if (action->count <= 1 || (way > n_keys && action->count > FEW_NUMBERS))
        return false;
    action->count = way == n_keys ? action->count / 2 : action->count - 1;
    return true;
}

static void describe(const void *data, GString *text)
{
    const StorageScenario *scenario = data;
    const RubatoTableSpec *spec = &scenario->spec;

    g_string_append_printf(text, "seed %" G_GUINT64_FORMAT ": storage %s, rule %s, %s × %u",
                           scenario->seed, spec->storage, spec->update,
                           rubato_dtype_name(spec->dtype), spec->width);
    if (spec->n_keys > 0)
        g_string_append_printf(text, ", %" G_GUINT64_FORMAT " keys from %" G_GUINT64_FORMAT " on",
                               spec->n_keys, spec->first_key);
    if (spec->create_on_get)
        g_string_append(text, ", create_on_get");
}

static const TrialKind storage_trial = {
    .action_size = sizeof(StorageAction),
    .run = run,
    .reduce = reduce,
    .describe = describe,
};

static char *run_seed(const void *test, uint64_t seed)
{
    const StorageScenario scenario = draw_scenario(test, seed);
    char *story = trial_run(&storage_trial, &scenario);

    /* It takes a process, so not every seed has it. */
    if (story == NULL && seed % 50 == 0)
        story = storage_memory_story(&scenario);
    return story;
}

char *rubato_test_storage_story(const RubatoStorageTest *test)
{
    return trial_run_seeds(test->first_seed, test->n_seeds == 0 ? DEFAULT_SEEDS : test->n_seeds,
                           run_seed, test);
}
