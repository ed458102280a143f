/* Draws programs.
 *
 * Thread: that of the test case. */
#include "tests/kit/model/program.h"

#include <string.h>

#include "tests/kit/trial.h"

#define N_KEYS RUBATO_TEST_N_KEYS

typedef struct {
    const Scenario *scenario;
    World *world;
    GRand *random;
    GArray *actions;
    uint32_t delivery_percent;          /* how eagerly messages are delivered */
    uint32_t slow_worker;               /* acts seldom; n_workers or more: nobody is slow */
    uint32_t n_calls_left[MAX_WORKERS]; /* of a worker that does not tell */
    uint32_t n_iterations[MAX_WORKERS]; /* of one that does */
    bool ends_telling[MAX_WORKERS];     /* it says that no more iterations come */
} Program;

Scenario program_scenario(const RubatoModelTest *test, uint64_t seed)
{
    const RubatoModelTraits *traits = rubato_model_traits(test->spec.model);
    GRand *random = trial_random(seed, 1);
    const uint32_t max_workers = test->max_workers == 0 ? MAX_WORKERS : test->max_workers;
    Scenario scenario = {
        .seed = seed,
        .spec = test->spec,
        .bounds = test->bounds,
        .n_workers = 1 + pick(random, MIN(max_workers, MAX_WORKERS)),
        .n_nodes = 1 + pick(random, MAX_NODES),
        .n_shards = 1 + pick(random, MAX_SHARDS),
        .is_cut_off = percent(random, 20),
    };
    RubatoTableSpec *spec = &scenario.spec;

    spec->name = "test";
    spec->dtype = RUBATO_I64;
    spec->width = scenario.n_workers;
    if (spec->storage == NULL)
        spec->storage = percent(random, 50) ? "dense" : "hash";
    if (rubato_table_spec_holds_range(spec)) {
        spec->first_key = RUBATO_TEST_FIRST_KEY;
        spec->n_keys = N_KEYS;
    }
    for (uint32_t i = 0; i < scenario.n_workers; i++) {
        scenario.node_of[i] = (uint8_t)pick(random, scenario.n_nodes);
        scenario.tells[i] = traits != NULL && traits->takes_announcements && percent(random, 85);
    }
    g_rand_free(random);
    return scenario;
}

/* ---- workers ---- */

static Action action_of(Program *program, ActionKind kind, uint32_t worker)
{
    return (Action){ .kind = kind,
                     .worker = (uint8_t)worker,
                     .bits = (uint8_t)pick(program->random, 256) };
}

static void pick_keys(Program *program, Action *action)
{
    action->n_keys = (uint8_t)pick(program->random, MAX_CALL_KEYS + 1);
    for (uint8_t i = 0; i < action->n_keys; i++)
        action->keys[i] = (uint8_t)pick(program->random, N_KEYS);
}

/* Keys of an iteration are different ones. */
static void pick_iteration(Program *program, Action *action)
{
    uint32_t used = 0;

    pick_keys(program, action);
    for (uint8_t i = 0; i < action->n_keys; i++)
        used |= UINT32_C(1) << action->keys[i];
    action->n_keys = 0;
    for (uint8_t key = 0; key < N_KEYS; key++)
        if ((used & UINT32_C(1) << key) != 0)
            action->keys[action->n_keys++] = key;
}

static Action choose_of_telling(Program *program, uint32_t worker)
{
    const World *world = program->world;
    const uint64_t clock = world_clock(world, worker);
    const uint32_t n_told = world_n_told(world, worker);
    const uint64_t ahead = MAX(program->scenario->spec.speculation, 1);
    uint8_t keys[N_KEYS];
    Action action = action_of(program, ACTION_ANNOUNCE, worker);

    if (n_told != UINT32_MAX && n_told < clock + ahead) {
        if (n_told < program->n_iterations[worker])
            pick_iteration(program, &action);
        else if (clock < program->n_iterations[worker] || program->ends_telling[worker])
            action.kind = ACTION_END_TELLING;
        else
            action.kind = ACTION_RETIRE;
        return action;
    }
    if (clock >= program->n_iterations[worker]) {
        action.kind = ACTION_RETIRE;
    } else if (!world_has_got(world, worker)) {
        action.kind = ACTION_GET;
        action.waits = true;
        action.n_keys = (uint8_t)world_iteration_keys(world, worker, action.keys);
    } else if (percent(program->random, 60)) {
        const uint32_t n = world_iteration_keys(world, worker, keys);

        action.kind = ACTION_ADD;
        if (n > 0)
            action.keys[action.n_keys++] = keys[pick(program->random, n)];
    } else {
        action.kind = ACTION_CLOCK;
    }
    return action;
}

static Action choose_of_free(Program *program, uint32_t worker)
{
    const uint32_t what = pick(program->random, 100);
    Action action = action_of(program, ACTION_CLOCK, worker);

    if (program->n_calls_left[worker] == 0) {
        action.kind = ACTION_RETIRE;
        return action;
    }
    program->n_calls_left[worker]--;
    if (what >= 70)
        return action;
    action.kind = what < 40 ? ACTION_GET : ACTION_ADD;
    action.waits = percent(program->random, 70);
    pick_keys(program, &action);
    return action;
}

/* ---- the run ---- */

static bool perform(Program *program, Action action)
{
    if (!world_perform(program->world, &action))
        return false;
    g_array_append_val(program->actions, action);
    return true;
}

/* A pair of node and shard for which the question is answered with yes. */
static bool find_pair(Program *program, ActionKind kind,
                      bool (*asks)(const World *world, uint32_t node, uint32_t shard),
                      Action *action)
{
    Action found[MAX_NODES * MAX_SHARDS];
    uint32_t n = 0;

    for (uint8_t node = 0; node < program->scenario->n_nodes; node++)
        for (uint8_t shard = 0; shard < program->scenario->n_shards; shard++)
            if (asks(program->world, node, shard))
                found[n++] = (Action){ .kind = kind, .node = node, .shard = shard };
    if (n > 0)
        *action = found[pick(program->random, n)];
    return n > 0;
}

static bool step_worker(Program *program, bool with_slow)
{
    uint32_t ready[MAX_WORKERS], n = 0;

    for (uint32_t i = 0; i < program->scenario->n_workers; i++)
        if (world_can_step(program->world, i) &&
            (i != program->slow_worker || with_slow || percent(program->random, 10)))
            ready[n++] = i;
    if (n == 0)
        return false;
    const uint32_t worker = ready[pick(program->random, n)];
    return perform(program, program->scenario->tells[worker] ? choose_of_telling(program, worker)
                                                             : choose_of_free(program, worker));
}

static bool happen(Program *program)
{
    Action action;
    const bool has_mail = find_pair(program, ACTION_DELIVER, world_has_mail, &action);

    if (has_mail && percent(program->random, program->delivery_percent))
        return perform(program, action);
    if (step_worker(program, /* with_slow= */ false))
        return true;
    if (has_mail)
        return perform(program, action);
    if (find_pair(program, ACTION_TELL, world_has_news, &action))
        return perform(program, action);
    return step_worker(program, /* with_slow= */ true);
}

void program_run(const Scenario *scenario, World *world, GArray *actions)
{
    GRand *random = trial_random(scenario->seed, 2);
    Program program = {
        .scenario = scenario,
        .world = world,
        .random = random,
        .actions = actions,
        .delivery_percent = 20 + pick(random, 70),
        .slow_worker = pick(random, MAX_WORKERS * 2),
    };

    for (uint32_t i = 0; i < scenario->n_workers; i++) {
        program.n_calls_left[i] = pick(random, 40);
        program.n_iterations[i] = pick(random, 12);
        program.ends_telling[i] = percent(random, 80);
    }
    for (uint32_t n = scenario->is_cut_off ? pick(random, 400) : UINT32_MAX;
         n > 0 && !world_is_over(world) && world_failure(world) == NULL && happen(&program); n--)
        ;
    g_rand_free(random);
}
