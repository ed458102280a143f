/* Calls that all nodes make: PROPOSE, GO, READY, COMMIT.
 *
 * Threads: as scheduler.h. */
#ifndef RUBATO_ENGINE_SCHEDULER_SCHEDULER_COLLECTIVE_H
#define RUBATO_ENGINE_SCHEDULER_SCHEDULER_COLLECTIVE_H

#include "engine/scheduler/scheduler_state.h"

bool collective_propose(Scheduler *scheduler, uint32_t node, const Control *control);
bool collective_ready(Scheduler *scheduler, uint32_t node, const Control *control);

/* Fails everything that runs, that waits, and that comes later. */
void scheduler_doom(Scheduler *scheduler, uint32_t code, const char *text);

/* A node is lost, and the run goes on: the open call fails, unless it needs no more than the nodes
 * that live. */
void collectives_lose_node(Scheduler *scheduler, uint32_t node, const char *text);

/* What kept a call from beginning has ended: all parts have their primaries, or a snapshot is
 * written. */
void collectives_go_on(Scheduler *scheduler);

/* Whether nodes do their part of a call. */
bool collectives_work(const Scheduler *scheduler);

/* The scheduler's doom has been set. */
void collectives_doomed(Scheduler *scheduler);

/* The node has left or is lost. */
void collectives_node_out(Scheduler *scheduler, uint32_t node);
void collectives_add_waits(const Scheduler *scheduler, GArray *waits);
void collectives_clear(Scheduler *scheduler);

/* As bytes: see engine/control/state_walk.h. */
void collectives_walk(StateWalk *walk, Scheduler *scheduler);

#endif
