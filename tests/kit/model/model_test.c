/* Tests of models: the seeds of a test, and how a run is told.
 *
 * Thread: that of the test case. */
#include <string.h>

#include "tests/kit/model/program.h"
#include "tests/kit/trial.h"

#define DEFAULT_SEEDS 1000

static char *run(const void *data, GArray *actions, bool draw, GString *story)
{
    const Scenario *scenario = data;
    World *world = world_new(scenario, story);

    if (world_failure(world) == NULL && draw)
        program_run(scenario, world, actions);
    for (guint i = 0; !draw && i < actions->len; i++)
        world_perform(world, &g_array_index(actions, Action, i));
    world_end(world);
    char *failure = g_strdup(world_failure(world));
    world_free(world);
    return failure;
}

/* Without one of its keys. */
static bool reduce(void *data, unsigned way)
{
    Action *action = data;

    if (way >= action->n_keys)
        return false;
    memmove(action->keys + way, action->keys + way + 1, action->n_keys - way - 1u);
    action->n_keys--;
    return true;
}

static void describe(const void *data, GString *text)
{
    const Scenario *scenario = data;
    const RubatoTableSpec *spec = &scenario->spec;

    g_string_append_printf(text,
                           "seed %" G_GUINT64_FORMAT ": model %s, staleness %u, speculation %u, "
                           "%s storage, %u workers on %u nodes, %u shards",
                           scenario->seed, spec->model, spec->staleness, spec->speculation,
                           spec->storage, scenario->n_workers, scenario->n_nodes,
                           scenario->n_shards);
}

static const TrialKind model_trial = {
    .action_size = sizeof(Action),
    .run = run,
    .reduce = reduce,
    .describe = describe,
};

static char *run_seed(const void *test, uint64_t seed)
{
    const Scenario scenario = program_scenario(test, seed);

    return trial_run(&model_trial, &scenario);
}

char *rubato_test_model_story(const RubatoModelTest *test)
{
    return trial_run_seeds(test->first_seed, test->n_seeds == 0 ? DEFAULT_SEEDS : test->n_seeds,
                           run_seed, test);
}
