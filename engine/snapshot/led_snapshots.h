/* This node's part of snapshots that the scheduler leads (engine/scheduler/scheduler_snapshot.c).
 *
 * Threads: as each function says. */
#ifndef RUBATO_ENGINE_SNAPSHOT_LED_SNAPSHOTS_H
#define RUBATO_ENGINE_SNAPSHOT_LED_SNAPSHOTS_H

#include "engine/engine_private.h"

void led_snapshots_init(RubatoEngine *engine);

/* A step of a snapshot: its thread does it. The control actor's owner. */
void led_snapshots_hear_step(RubatoEngine *engine, const Control *control);

/* A process that serves does its part of a snapshot for which other nodes have called. Its own
 * thread. */
void snapshot_serve(RubatoEngine *engine, const ControlGo *go, const bool *lost, GError **error);

/* Ends the thread. What nobody leads any more is undone. That of the engine's calls, when no step
 * can come. */
void led_snapshots_stop(RubatoEngine *engine);

#endif
