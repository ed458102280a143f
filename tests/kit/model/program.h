/* Random programs: a scenario and the actions of a run, drawn from a seed.
 *
 * Threads: that of the test case. */
#ifndef TESTS_KIT_MODEL_PROGRAM_H
#define TESTS_KIT_MODEL_PROGRAM_H

#include "tests/kit/model/world.h"

/* What the seed makes of a test. */
Scenario program_scenario(const RubatoModelTest *test, uint64_t seed);

/* Runs random actions until the programs have ended or enough has happened. Appends the actions to
 * the array. */
void program_run(const Scenario *scenario, World *world, GArray *actions);

#endif
