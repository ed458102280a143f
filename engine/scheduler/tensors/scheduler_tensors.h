/* Collectives on tensors: ENQUEUE, DECIDE.
 *
 * Threads: as scheduler.h. */
#ifndef RUBATO_ENGINE_SCHEDULER_TENSORS_SCHEDULER_TENSORS_H
#define RUBATO_ENGINE_SCHEDULER_TENSORS_SCHEDULER_TENSORS_H

#include "engine/scheduler/scheduler_state.h"

/* workers: as ControlPropose.workers. NULL: it says nothing that makes sense. (transfer full) */
TensorCoordinator *tensors_new(const Scheduler *scheduler, const char *workers);
void tensors_free(TensorCoordinator *it);
bool tensors_enqueue(Scheduler *scheduler, uint32_t node, const Control *control);

/* The node has no worker left in the task. */
void tensors_retire(Scheduler *scheduler, SchedulerTask *task, uint32_t node);

/* The node is lost, and the task goes on: its workers' sets are without them. */
void tensors_lose(Scheduler *scheduler, SchedulerTask *task, uint32_t node, const char *text);

/* The same, but another process is to have its workers: their sets wait for these. */
void tensors_replace(Scheduler *scheduler, SchedulerTask *task, uint32_t node, const char *text);

/* The first rank of the node's workers in the task, and how many they are; of the node behind the
 * last one, the number of all workers. Whether any worker has asked for a collective. */
uint32_t tensors_first_rank(const TensorCoordinator *it, uint32_t node);
uint32_t tensors_n_workers(const TensorCoordinator *it, uint32_t node);
bool tensors_are_used(const TensorCoordinator *it);

/* As bytes: see engine/control/state_walk.h. */
TensorCoordinator *tensors_walk(StateWalk *walk, TensorCoordinator *it, uint32_t n_nodes);

/* scheduler_tensors_waits.c: which of their workers wait for whom. */
void tensors_add_wait(const SchedulerTask *task, GArray *waits);

#endif
