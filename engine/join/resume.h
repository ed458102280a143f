/* What a node does when another process goes on as the scheduler (docs/replication.md).
 *
 * Threads: as each function says. */
#ifndef RUBATO_ENGINE_JOIN_RESUME_H
#define RUBATO_ENGINE_JOIN_RESUME_H

#include <rubato/engine.h>

#include "engine/control/control.h"
#include "engine/scheduler/scheduler.h"

/* A tick: if the scheduler is not heard, asks at its address who goes on as it. The I/O thread, of
 * a node on which the scheduler does not run. */
void resume_look(RubatoEngine *engine, int64_t now_ms);

/* The answer. Leaves the link to the process before, and opens one to the new one. NULL: it is
 * done, or there was nothing to do; else why the run has ended for this node. (transfer full) The
 * thread that receives, in the network's call. */
char *resume_hear(RubatoEngine *engine, const ControlResumed *resumed);

/* On the new process: has the link to a node opened that comes back. The control actor's owner. */
void resume_open_link(RubatoEngine *engine, const SchedulerLink *link);

#endif
