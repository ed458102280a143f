/* Snapshots that a task takes by itself, at the times of its spec and when somebody asks from
 * outside, and the versions that stream out of it.
 *
 * Threads: that of the engine's calls. */
#ifndef RUBATO_ENGINE_SNAPSHOT_TASK_SNAPSHOTS_H
#define RUBATO_ENGINE_SNAPSHOT_TASK_SNAPSHOTS_H

#include "engine/engine_private.h"

typedef struct TaskSnapshots TaskSnapshots;

/* Checks what the task says. RUBATO_ERROR_INVALID, _NOT_FOUND, _IO. (transfer full) */
TaskSnapshots *task_snapshots_new(RubatoEngine *engine, const RubatoTask *task, GError **error);

/* The task begins on all nodes; the run is prepared. RUBATO_ERROR_IO: another run streams into the
 * same directory; or what the kind of the stream says of its writer. NULL is allowed, here and
 * below. */
bool task_snapshots_prepare(TaskSnapshots *snapshots, RubatoEngine *engine,
                            const RubatoTaskRun *run, GError **error);

/* The run's workers start. */
void task_snapshots_start(TaskSnapshots *snapshots, const RubatoTaskRun *run);

/* The task has ended well: the last version of its stream. */
void task_snapshots_finish(TaskSnapshots *snapshots);

/* The task has ended here, or has not begun. The run is still there. */
void task_snapshots_free(TaskSnapshots *snapshots);

#endif
