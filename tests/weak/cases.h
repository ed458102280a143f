/* The cases: what runs under the checker. Each array ends with a case without a name. */
#ifndef TESTS_WEAK_CASES_H
#define TESTS_WEAK_CASES_H

#include "tests/weak/weak.h"

extern const WeakCase sound_litmus_cases[];   /* must never fail */
extern const WeakCase unsound_litmus_cases[]; /* must fail */
extern const WeakCase actor_cases[];
extern const WeakCase barrier_cases[];
extern const WeakCase call_cases[];
extern const WeakCase clocks_cases[];
extern const WeakCase deferred_cases[];
extern const WeakCase lent_cases[];
extern const WeakCase network_cases[];
extern const WeakCase part_map_cases[];
extern const WeakCase read_gate_cases[];
extern const WeakCase ring_cases[];
extern const WeakCase sleepers_cases[];

#endif
