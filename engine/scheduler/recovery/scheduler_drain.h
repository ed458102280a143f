/* DRAIN, DRAINED: the parts of a node go to others.
 *
 * Threads: as scheduler.h. */
#ifndef RUBATO_ENGINE_SCHEDULER_RECOVERY_SCHEDULER_DRAIN_H
#define RUBATO_ENGINE_SCHEDULER_RECOVERY_SCHEDULER_DRAIN_H

#include "engine/scheduler/scheduler_state.h"

/* A node asks for one; a process outside the run. */
bool drain_hears_ask(Scheduler *scheduler, uint32_t node, const Control *control);
void rendezvous_drain(Scheduler *scheduler, const Control *control, uint16_t version,
                      uint64_t asker);

/* After each event: its next stage, or its end; parts for a node that has joined. */
void drain_go_on(Scheduler *scheduler);
void drain_add_waits(const Scheduler *scheduler, GArray *waits);

/* Whether the node was told that it may end, and says LEAVE now. */
bool drain_awaits_leave(const Scheduler *scheduler, uint32_t node);
void drain_clear(Scheduler *scheduler);

/* As bytes: see engine/control/state_walk.h. */
void drain_walk(StateWalk *walk, Scheduler *scheduler);

#endif
