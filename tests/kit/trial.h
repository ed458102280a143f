/* What all tests of the kit have in common: seeds, and a failing run that is made smaller.
 *
 * A run is a list of actions that a seed decides. It can be given any list: an action that is not
 * possible when its turn comes is left out. So a part of a failing list is a run too.
 *
 * Threads: that of the test case. */
#ifndef TESTS_KIT_TRIAL_H
#define TESTS_KIT_TRIAL_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    size_t action_size;

    /* Runs the actions; if `draw`, draws and appends them first. story: what happens is written to
     * it; NULL: not. Returns what broke, NULL: nothing. (transfer full) */
    char *(*run)(const void *scenario, GArray *actions, bool draw, GString *story);

    /* Makes an action smaller in one of several ways, from 0 on. False: there is no such way. */
    bool (*reduce)(void *action, unsigned way);

    /* The run in a line, which begins with "seed N: ". */
    void (*describe)(const void *scenario, GString *text);
} TrialKind;

/* Runs a scenario. The story of what broke, as small as it could be made; NULL: nothing did.
 * (transfer full) */
char *trial_run(const TrialKind *kind, const void *scenario);

/* Runs a test's seeds until one fails. Returns its story. The environment variables
 * RUBATO_TEST_SEED and RUBATO_TEST_SEEDS go before the numbers. (transfer full) */
char *trial_run_seeds(uint64_t first_seed, uint32_t n_seeds,
                      char *(*run_seed)(const void *test, uint64_t seed), const void *test);

/* ---- random numbers ---- */

/* (transfer full) The numbers of a seed; different ones for each `what`. */
GRand *trial_random(uint64_t seed, uint32_t what);

static inline uint32_t pick(GRand *random, uint32_t n)
{
    return (uint32_t)g_rand_int_range(random, 0, (gint32)n);
}

static inline bool percent(GRand *random, uint32_t chance)
{
    return pick(random, 100) < chance;
}

#endif
