/* A whole engine under random load: tasks at once on shared tables, every model, storage and
 * handle, barriers, workers that leave early, failures, cancellations, tables dropped and made
 * again.
 *
 * Threads: the case's own. Any fault fails the case and names the seed. */
#ifndef TESTS_SUPPORT_ENGINE_ENGINE_STRESS_H
#define TESTS_SUPPORT_ENGINE_ENGINE_STRESS_H

#include <stdint.h>

/* Runs one engine for that many rounds. Everything depends on the seed. */
void stress_engine(uint64_t seed, unsigned n_rounds);

#endif
