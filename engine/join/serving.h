/* A process that takes the place of a lost node, and serves. It makes no call of its own, unless it
 * runs its program (newcomer.h): it hears which tables and tasks there are, does its part of the
 * calls of the others, and its servers do what those of each node do. docs/replication.md tells how
 * it comes into the run.
 *
 * What it is told waits in a queue for its own thread. So a task that ends has begun before, and a
 * step that follows a loss finds the tables that were told before it.
 *
 * Threads: as each function says. */
#ifndef RUBATO_ENGINE_JOIN_SERVING_H
#define RUBATO_ENGINE_JOIN_SERVING_H

#include <rubato/engine.h>

#include "engine/control/control.h"

typedef struct Serving Serving;

/* (transfer full) */
Serving *serving_new(void);

/* Once nothing is told any more, and no server runs. NULL is allowed. */
void serving_free(Serving *serving);

/* Has the process do what a GO, a CANCEL, a TASK_END or a RECOVER with TABLES asks for, after all
 * that it was told before. The control actor's owner. */
void serving_hear(RubatoEngine *engine, const Control *control);

/* Does what it is told until the run has ended; then sets the error: RUBATO_ERROR_SERVED, or why
 * the run has ended before. The thread that makes the engine. */
void serving_run(RubatoEngine *engine, GError **error);

/* The same on a thread of its own, of a process whose program goes on meanwhile (newcomer.h);
 * waits for the end of that thread, which comes with that of the run. */
bool serving_start(RubatoEngine *engine, GError **error);
void serving_join(RubatoEngine *engine);

#endif
