/* A run of a cluster with faults that follow from a seed: packets that are lost, doubled,
 * reordered, late and cut off, and nodes that stand still. The history that its nodes keep is then
 * judged by `rubato history check`.
 *
 * Threads: the case's. */
#ifndef TESTS_SUPPORT_CLUSTER_HISTORY_SCHEDULE_H
#define TESTS_SUPPORT_CLUSTER_HISTORY_SCHEDULE_H

#include <stdint.h>

/* Fails the case with the seed if the run fails, or anything in its history is wrong. n_clocks: of
 * each worker. */
void history_schedule_play(const char *model, uint32_t seed, uint32_t n_clocks);

#endif
