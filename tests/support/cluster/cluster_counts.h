/* A table whose rows every worker counts up by 1 in each clock: what a worker may read of it.
 *
 * Threads: inside a node, any. */
#ifndef TESTS_SUPPORT_CLUSTER_CLUSTER_COUNTS_H
#define TESTS_SUPPORT_CLUSTER_CLUSTER_COUNTS_H

#include "tests/support/cluster/cluster_run.h"

typedef struct {
    const char *model;
    uint64_t n_clocks, staleness;

    /* How many clocks' Adds of another worker may be there beyond the staleness: 1 if each worker
     * waits for its Get before it adds; 2 if it adds before that. */
    uint64_t n_early;
} CountRules;

/* Checks n values that were asked for at a clock, by a worker that has gone on to clock `until`
 * meanwhile. */
bool cluster_check_counts(const CountRules *rules, const RubatoWorker *worker, uint64_t clock,
                          uint64_t until, const double *values, size_t n, GError **error);

#endif
