/* Snapshots that a task takes by itself, at the times of its spec and when somebody asks from
 * outside: a thread on the node of worker 0 asks the scheduler for them, as a worker would.
 *
 * Threads: that of the engine's calls. */
#ifndef RUBATO_ENGINE_SNAPSHOT_TASK_SNAPSHOTS_H
#define RUBATO_ENGINE_SNAPSHOT_TASK_SNAPSHOTS_H

#include "engine/engine_private.h"

typedef struct TaskSnapshots TaskSnapshots;

/* Checks what the task says. NULL with an error, or if the task takes none. RUBATO_ERROR_INVALID,
 * _NOT_FOUND. (transfer full) */
TaskSnapshots *task_snapshots_new(RubatoEngine *engine, const RubatoTask *task, GError **error);

/* The run's workers start. */
void task_snapshots_start(TaskSnapshots *snapshots, const RubatoTaskRun *run);

/* The task has ended here, or has not begun. The run is still there. NULL is allowed. */
void task_snapshots_free(TaskSnapshots *snapshots);

#endif
