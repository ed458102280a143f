/* The workers of the simulation of collectives on tensors (test_tensor_simulation.c): in each round
 * they make a set, ask for tensors in any order, join, and remove the set. What they ask, and how
 * many of it, the seed decides.
 *
 * Threads: one. */
#ifndef TESTS_SUPPORT_COLLECTIVES_TENSOR_WORKERS_H
#define TESTS_SUPPORT_COLLECTIVES_TENSOR_WORKERS_H

#include "tests/support/collectives/tensor_world.h"

/* Chooses what the workers of all nodes ask in all rounds; the world has its workers. */
void tensor_workers_begin(World *world);

/* Another process has the worker: what the lost one had asked is void. */
void tensor_worker_replace(World *world, uint32_t rank);

/* Frees what they have asked for, once all of it has ended. */
void tensor_workers_end(World *world);

/* What the worker does next. False: it waits, or the caller runs within it. */
bool tensor_worker_step(World *world, uint32_t rank);

/* How many of its requests in this round have not ended. */
uint32_t tensor_worker_open(World *world, uint32_t rank);

#endif
