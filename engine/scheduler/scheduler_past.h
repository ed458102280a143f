/* The calls so far, for programs of processes that have joined: PAST.
 *
 * Threads: as scheduler.h. */
#ifndef RUBATO_ENGINE_SCHEDULER_SCHEDULER_PAST_H
#define RUBATO_ENGINE_SCHEDULER_SCHEDULER_PAST_H

#include "engine/scheduler/scheduler_state.h"

PastCalls *past_new(void);
void past_free(PastCalls *past);

/* A call is decided; a task has ended, well or not. */
void past_note(Scheduler *scheduler, const Collective *call);
void past_note_end(Scheduler *scheduler, uint32_t epoch, const Verdict *cause);

/* The epoch of the task that such a call has begun, and that has not ended; 0: it is no such
 * call. */
uint32_t past_find_task(const Scheduler *scheduler, const ControlPropose *propose);

/* Answers a call of a process that serves. told: as in ControlPast; NULL: nothing. False: the run
 * has not made that call yet. */
bool past_answer(Scheduler *scheduler, uint32_t node, const ControlPropose *propose,
                 const char *told);

/* As bytes: see engine/control/state_walk.h. */
void past_walk(StateWalk *walk, PastCalls *past);

#endif
