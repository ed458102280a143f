/* Snapshots that a node asks for: SNAPSHOT_ASK and so on.
 *
 * Threads: as scheduler.h. */
#ifndef RUBATO_ENGINE_SCHEDULER_SCHEDULER_SNAPSHOT_H
#define RUBATO_ENGINE_SCHEDULER_SCHEDULER_SNAPSHOT_H

#include "engine/scheduler/scheduler_state.h"

Snapshots *snapshots_new(uint32_t n_nodes);
void snapshots_free(Snapshots *snapshots);
bool snapshots_hear_ask(Scheduler *scheduler, uint32_t node, const Control *control);
bool snapshots_hear_done(Scheduler *scheduler, uint32_t node, const Control *control);

/* After each event: begins what can begin, and ends what waits for nobody any more. */
void snapshots_go_on(Scheduler *scheduler);

/* A node is lost, and the run goes on. */
void snapshots_lose_node(Scheduler *scheduler, uint32_t node, const char *text);
void snapshots_add_waits(const Scheduler *scheduler, GArray *waits);

/* As bytes: see engine/control/state_walk.h. */
void snapshots_walk(StateWalk *walk, Scheduler *scheduler);

#endif
