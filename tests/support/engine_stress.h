/* A whole engine under random load: tasks at once on shared tables, every model, storage and
 * handle, barriers, workers that leave early, failures, cancellations, tables dropped and made
 * again.
 *
 * Threads: the case's own. What goes wrong fails the case and names the seed. */
#ifndef TESTS_SUPPORT_ENGINE_STRESS_H
#define TESTS_SUPPORT_ENGINE_STRESS_H

#include <stdint.h>

/* One engine's life of that many rounds, all of which follows from the seed. */
void stress_engine(uint64_t seed, unsigned n_rounds);

#endif
