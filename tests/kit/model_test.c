/* Model tests: seeds, and what is told of one that fails.
 *
 * A failing run is a list of actions. It is made smaller by leaving out ever smaller stretches of
 * it, as long as some bound is still broken ("delta debugging": Zeller, Hildebrandt, "Simplifying
 * and isolating failure-inducing input", IEEE TSE 2002).
 *
 * Thread: that of the test case. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kit/program.h"

#define DEFAULT_SEEDS 1000
#define MAX_MESSAGE 3000 /* bytes; check takes somewhat more */

/* Runs the actions, or, where there are none, draws them. What broke; NULL: nothing. (transfer
 * full) */
static char *run(const Scenario *scenario, GArray *actions, bool draw, GString *story)
{
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

static bool fails(const Scenario *scenario, GArray *actions)
{
    g_autofree char *failure = run(scenario, actions, /* draw= */ false, NULL);

    return failure != NULL;
}

/* The actions without n from `first` on. (transfer full) */
static GArray *without(const GArray *actions, guint first, guint n)
{
    GArray *rest = g_array_sized_new(FALSE, FALSE, sizeof(Action), actions->len);

    g_array_append_vals(rest, actions->data, first);
    if (first + n < actions->len)
        g_array_append_vals(rest, &g_array_index(actions, Action, first + n),
                            actions->len - first - n);
    return rest;
}

/* Leaves out the keys of calls that are not needed. */
static void shrink_keys(const Scenario *scenario, GArray *actions)
{
    for (guint i = 0; i < actions->len; i++) {
        Action *action = &g_array_index(actions, Action, i);

        for (uint8_t key = 0; key < action->n_keys;) {
            const Action whole = *action;

            memmove(action->keys + key, action->keys + key + 1, action->n_keys - key - 1u);
            action->n_keys--;
            if (!fails(scenario, actions)) {
                *action = whole;
                key++;
            }
        }
    }
}

/* Leaves out the actions that are not needed for a failure. (transfer full) */
static GArray *shrink_actions(const Scenario *scenario, GArray *actions)
{
    for (guint n = MAX(actions->len / 2, 1); n > 0;) {
        bool any = false;

        for (guint first = 0; first < actions->len;) {
            GArray *fewer = without(actions, first, n);

            if (fails(scenario, fewer)) {
                g_array_unref(actions);
                actions = fewer;
                any = true;
            } else {
                g_array_unref(fewer);
                first += n;
            }
        }
        if (n == 1 && !any)
            break;
        n = n > 1 ? n / 2 : 1;
    }
    return actions;
}

static void describe(const Scenario *scenario, const char *failure, const GString *events,
                     GString *story)
{
    const RubatoTableSpec *spec = &scenario->spec;

    g_string_append_printf(story,
                           "%s\n"
                           "seed %" G_GUINT64_FORMAT ": model %s, staleness %u, speculation %u, "
                           "%s storage, %u workers on %u nodes, %u shards. What it needs:\n%s",
                           failure, scenario->seed, spec->model, spec->staleness, spec->speculation,
                           spec->storage, scenario->n_workers, scenario->n_nodes,
                           scenario->n_shards, events->str);
}

/* NULL where the seed breaks nothing. (transfer full) */
static char *run_seed(const RubatoModelTest *test, uint64_t seed)
{
    const Scenario scenario = program_scenario(test, seed);
    GArray *actions = g_array_new(FALSE, FALSE, sizeof(Action));
    g_autofree char *failure = run(&scenario, actions, /* draw= */ true, NULL);
    char *text = NULL;

    if (failure != NULL) {
        g_autoptr(GString) events = g_string_new(NULL);
        GString *story = g_string_new(NULL);

        actions = shrink_actions(&scenario, actions);
        shrink_keys(&scenario, actions);
        g_autofree char *last = run(&scenario, actions, /* draw= */ false, events);
        describe(&scenario, last != NULL ? last : failure, events, story);
        text = g_string_free(story, FALSE);
    }
    g_array_unref(actions);
    return text;
}

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
    const char *text = g_getenv(variable);
    guint64 number;

    if (text == NULL)
        return otherwise;
    if (!g_ascii_string_to_unsigned(text, 10, 0, G_MAXUINT64, &number, NULL))
        g_error("%s is \"%s\"; it has to be a number", variable, text);
    return number;
}

char *rubato_test_model_story(const RubatoModelTest *test)
{
    const bool alone = g_getenv("RUBATO_TEST_SEED") != NULL;
    const uint64_t first = number_of("RUBATO_TEST_SEED", test->first_seed);
    const uint64_t n =
        alone ? 1
              : number_of("RUBATO_TEST_SEEDS", test->n_seeds == 0 ? DEFAULT_SEEDS : test->n_seeds);
    char *story = NULL;

    for (uint64_t i = 0; i < n && story == NULL; i++)
        story = run_seed(test, first + i);
    return story;
}

void rubato_test_model(const RubatoModelTest *test)
{
    g_autofree char *story = rubato_test_model_story(test);

    if (story == NULL)
        return;
    if (strlen(story) <= MAX_MESSAGE)
        ck_abort_msg("%s", story);
    g_printerr("%s", story);
    ck_abort_msg("%.*s (standard error has the story)", (int)strcspn(story, "\n"), story);
}
