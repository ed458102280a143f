/* Seeds, and runs made smaller.
 *
 * A failing run is a list of actions. It is made smaller by leaving out ever smaller stretches of
 * it, as long as something still breaks ("delta debugging": Zeller, Hildebrandt, "Simplifying and
 * isolating failure-inducing input", IEEE TSE 2002).
 *
 * Thread: that of the test case. */
#include "tests/kit/trial.h"

#include <string.h>

#define MOST_RUNS 400 /* of a seed: a story that is longer than it might be is better than none */

typedef struct {
    const TrialKind *kind;
    const void *scenario;
    GArray *actions;
    unsigned n_runs;
} Trial;

/* Whether these actions fail, too. */
static bool fails(Trial *trial, GArray *actions)
{
    if (trial->n_runs++ >= MOST_RUNS)
        return false;
    g_autofree char *failure =
        trial->kind->run(trial->scenario, actions, /* draw= */ false, /* story= */ NULL);

    return failure != NULL;
}

static void *action_at(const Trial *trial, guint i)
{
    return trial->actions->data + i * trial->kind->action_size;
}

/* The actions without n from `first` on. (transfer full) */
static GArray *without(const Trial *trial, guint first, guint n)
{
    const GArray *all = trial->actions;
    GArray *rest = g_array_sized_new(FALSE, FALSE, (guint)trial->kind->action_size, all->len);

    g_array_append_vals(rest, all->data, first);
    if (first + n < all->len)
        g_array_append_vals(rest, action_at(trial, first + n), all->len - first - n);
    return rest;
}

/* Leaves out the actions that are not needed for a failure. */
static void leave_out(Trial *trial)
{
    for (guint n = MAX(trial->actions->len / 2, 1); n > 0;) {
        bool any = false;

        for (guint first = 0; first < trial->actions->len;) {
            GArray *fewer = without(trial, first, n);

            if (fails(trial, fewer)) {
                g_array_unref(trial->actions);
                trial->actions = fewer;
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
}

/* Makes the actions themselves smaller. */
static void reduce(Trial *trial)
{
    const size_t size = trial->kind->action_size;
    g_autofree void *whole = g_malloc(size);

    for (guint i = 0; i < trial->actions->len; i++)
        for (unsigned way = 0;;) {
            memcpy(whole, action_at(trial, i), size);
            if (!trial->kind->reduce(action_at(trial, i), way))
                break;
            if (!fails(trial, trial->actions)) {
                memcpy(action_at(trial, i), whole, size);
                way++;
            }
        }
}

char *trial_run(const TrialKind *kind, const void *scenario)
{
    Trial trial = { .kind = kind,
                    .scenario = scenario,
                    .actions = g_array_new(FALSE, FALSE, (guint)kind->action_size) };
    g_autofree char *failure = kind->run(scenario, trial.actions, /* draw= */ true, NULL);
    char *story = NULL;

    if (failure != NULL) {
        g_autoptr(GString) events = g_string_new(NULL);
        GString *text = g_string_new(NULL);

        leave_out(&trial);
        reduce(&trial);
        g_autofree char *last = kind->run(scenario, trial.actions, /* draw= */ false, events);
        g_string_append_printf(text, "%s\n", last != NULL ? last : failure);
        kind->describe(scenario, text);
        g_string_append_printf(text, ". What it needs:\n%s", events->str);
        story = g_string_free(text, FALSE);
    }
    g_array_unref(trial.actions);
    return story;
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

char *trial_run_seeds(uint64_t first_seed, uint32_t n_seeds,
                      char *(*run_seed)(const void *test, uint64_t seed), const void *test)
{
    const bool alone = g_getenv("RUBATO_TEST_SEED") != NULL;
    const uint64_t first = number_of("RUBATO_TEST_SEED", first_seed);
    const uint64_t n = alone ? 1 : number_of("RUBATO_TEST_SEEDS", n_seeds);
    char *story = NULL;

    for (uint64_t i = 0; i < n && story == NULL; i++)
        story = run_seed(test, first + i);
    return story;
}

GRand *trial_random(uint64_t seed, uint32_t what)
{
    const guint32 seeds[] = { (guint32)seed, (guint32)(seed >> 32), what };

    return g_rand_new_with_seed_array(seeds, G_N_ELEMENTS(seeds));
}
