/* Deadlocks among a task's workers: WAITS.
 *
 * Threads: as scheduler.h. */
#ifndef RUBATO_ENGINE_SCHEDULER_SCHEDULER_WAITS_H
#define RUBATO_ENGINE_SCHEDULER_SCHEDULER_WAITS_H

#include "engine/scheduler/scheduler_state.h"

void waits_init(SchedulerTask *task);
void waits_clear(SchedulerTask *task);

/* The node's workers have ended, or are lost: they hold nobody any more. */
void waits_node_out(SchedulerTask *task, uint32_t node);
bool task_waits(Scheduler *scheduler, uint32_t node, const Control *control);

/* As bytes: see engine/control/state_walk.h. */
void waits_walk(StateWalk *walk, SchedulerTask *task);

#endif
