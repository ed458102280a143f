/* Runs many seeds of sim_cluster.h, one after the other, and counts what happened.
 *
 * Threads: the test's. */
#ifndef TESTS_SUPPORT_SIM_SIM_SEEDS_H
#define TESTS_SUPPORT_SIM_SIM_SEEDS_H

#include "tests/support/sim/sim_cluster.h"

typedef struct {
    uint64_t n_seeds, n_turns, n_packets;
    GHashTable *digests; /* of all that happened, each once; set by the first seed */
    uint64_t n_cuts;     /* of tables while tasks run, whose rows were compared */
    double simulated_s, processor_s;
    uint64_t n_ended_well, n_lost, n_failed, n_cancelled; /* nodes */
} SimSum;

/* Runs a seed; if `traces`, prints everything that happens. */
void sim_run_seed(uint64_t seed, bool traces, SimOutcome *outcome);

/* The same of a scenario that `draw` draws. */
void sim_run_drawn(void (*draw)(SimScenario *scenario, uint64_t seed), uint64_t seed, bool traces,
                   SimOutcome *outcome);

/* Runs a seed and adds its outcome to the counts. */
void sim_add_seed(SimSum *sum, uint64_t seed);

/* How many seeds ran otherwise than all others did. */
uint64_t sim_count_interleavings(const SimSum *sum);

void sim_print_sum(const SimSum *sum);

void sim_sum_clear(SimSum *sum);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(SimSum, sim_sum_clear)

/* Whether simulations are possible: the thread sanitizer takes fibers for one thread. */
bool sim_can_run(void);

/* The number in an environment variable. */
uint64_t sim_number_of(const char *variable, uint64_t otherwise);

#endif
