/* Tasks: FAIL, CANCEL, TASK_DONE, TASK_END, barriers.
 *
 * Threads: as scheduler.h. */
#ifndef RUBATO_ENGINE_SCHEDULER_SCHEDULER_TASK_H
#define RUBATO_ENGINE_SCHEDULER_SCHEDULER_TASK_H

#include "engine/scheduler/scheduler_state.h"

void task_prepare(Scheduler *scheduler, const Collective *call);

/* The RUN of the task has ended: it runs, or there is no such task any more. */
void task_decided(Scheduler *scheduler, uint32_t epoch, bool runs);

/* A process that serves makes the calls of the others from now on: it has no part in the tasks that
 * run, unless it has workers of theirs again. */
void tasks_catch_up(Scheduler *scheduler, uint32_t node);

/* The program of a process that serves comes to a task that runs. If the task waits for it, it
 * has the workers of the lost one from now on, and this is what it is told of the task. NULL
 * otherwise. (transfer full) */
char *task_replace(Scheduler *scheduler, uint32_t node, uint32_t epoch);

/* Whether it waits for a process that has lost workers again. */
bool task_awaits_any(const Scheduler *scheduler, const SchedulerTask *task);

/* Why there is no snapshot yet: what lost workers have changed is in its tables, and not yet done
 * by others in their place. OK: there may be one. Nothing in it is allocated. spec: as in
 * snapshot_text.h. */
Verdict tasks_find_awaited(const Scheduler *scheduler, const char *spec);
bool task_fail(Scheduler *scheduler, uint32_t node, const Control *control);
bool task_done(Scheduler *scheduler, uint32_t node, const Control *control);
bool task_arrive(Scheduler *scheduler, uint32_t node, const Control *control);
void tasks_cancel(Scheduler *scheduler, uint32_t code, const char *text);
void tasks_tick(Scheduler *scheduler);

/* The task fails by a worker's failure, whose cause nobody has told. */
void task_fail_by_effect(Scheduler *scheduler, uint32_t epoch);

/* The scheduler's node stood still for so long. */
void tasks_leave_out_pause(Scheduler *scheduler, int64_t pause_ms);
void tasks_node_out(Scheduler *scheduler, uint32_t node);
void tasks_add_waits(const Scheduler *scheduler, GArray *waits);
void tasks_clear(Scheduler *scheduler);

/* Tasks whose workers on the node have not ended, or begun, fail with this, unless they can go on
 * without. */
void tasks_lose_node(Scheduler *scheduler, uint32_t node, const char *text);

/* The name of a task whose workers on the node have not ended; NULL: there is none. */
const char *tasks_name_busy(const Scheduler *scheduler, uint32_t node);

/* Tasks that have gone on without lost workers may end, if all parts have their primaries now. */
void tasks_go_on(Scheduler *scheduler);

/* As bytes: see engine/control/state_walk.h. */
void tasks_walk(StateWalk *walk, Scheduler *scheduler);

#endif
