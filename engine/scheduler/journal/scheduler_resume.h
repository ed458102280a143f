/* Another process goes on as the scheduler.
 *
 * Threads: as scheduler.h. */
#ifndef RUBATO_ENGINE_SCHEDULER_JOURNAL_SCHEDULER_RESUME_H
#define RUBATO_ENGINE_SCHEDULER_JOURNAL_SCHEDULER_RESUME_H

#include "engine/scheduler/scheduler_state.h"

/* A node looks for the scheduler, and asks whether this process goes on as it. */
void resume_greet(Scheduler *scheduler, const Control *control, uint16_t version, uint64_t asker);

/* It has left its link to the process before. */
bool resume_hears_back(Scheduler *scheduler, uint32_t node, const Control *control);

#endif
