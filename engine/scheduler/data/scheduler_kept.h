/* What snapshots keep of readers.
 *
 * Threads: as scheduler.h. */
#ifndef RUBATO_ENGINE_SCHEDULER_DATA_SCHEDULER_KEPT_H
#define RUBATO_ENGINE_SCHEDULER_DATA_SCHEDULER_KEPT_H

#include "engine/scheduler/scheduler_state.h"

void kept_init(Scheduler *scheduler);
void kept_clear(Scheduler *scheduler);

/* Whether the task uses a table of a snapshot, or of the one that is cut: nodes cut the readers of
 * such tasks alone (hold_steps in engine/snapshot/snapshot_cut.c). True if it is not known. spec:
 * as in snapshot_text.h; what makes no sense there fails on the nodes. */
bool kept_has_table_of(const Scheduler *scheduler, const char *spec, const SchedulerTask *task);
bool kept_cuts_table_of(const Scheduler *scheduler, const SchedulerTask *task);

/* A cut begins, which has what was restored; gets a reader, instead of the restored one of its
 * name. */
void kept_begin_cut(Scheduler *scheduler, const char *spec);
void kept_put(Scheduler *scheduler, const char *name, const char *description,
              BlockDispatcher *dispatcher);

/* The dispatcher of a reader that is kept, of the restored snapshot or a new one. NULL, and the
 * task is cancelled: it cannot go on from there. (transfer full) */
BlockDispatcher *kept_find(Scheduler *scheduler, SchedulerTask *task, const ControlReader *reader,
                           const BlockDispatcherConfig *config);

/* Cancels the task if no node has a file from which blocks are left. */
void kept_check_files(Scheduler *scheduler, SchedulerTask *task, const BlockDispatcher *dispatcher);

/* As bytes: see engine/control/state_walk.h. */
void kept_walk(StateWalk *walk, Scheduler *scheduler);

#endif
