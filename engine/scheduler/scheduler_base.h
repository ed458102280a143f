/* The outbox, verdicts, names of nodes, finding and cancelling tasks, the order of a snapshot's
 * steps.
 *
 * Threads: as scheduler.h. */
#ifndef RUBATO_ENGINE_SCHEDULER_SCHEDULER_BASE_H
#define RUBATO_ENGINE_SCHEDULER_SCHEDULER_BASE_H

#include "engine/scheduler/scheduler_state.h"

/* Queue a message; it is copied. Not to lost nodes. */
void scheduler_send(Scheduler *scheduler, uint32_t node, const Control *control);
void scheduler_send_all(Scheduler *scheduler, const Control *control);
void scheduler_send_greeting(Scheduler *scheduler, uint64_t asker, const Control *control);

/* The same to a lost node. */
void scheduler_send_last_word(Scheduler *scheduler, uint32_t node, const Control *control);

/* Hands what is queued to the callbacks, unless one of them runs. */
void scheduler_deliver(Scheduler *scheduler);
void scheduler_clear_outbox(Scheduler *scheduler);

/* Whether it holds a message that counts. */
bool scheduler_outbox_counts(const Scheduler *scheduler);

/* Whether no process has ever been this node: it is spare. */
bool scheduler_is_absent(const Scheduler *scheduler, uint32_t node);

/* Whether the node takes part in what follows. */
bool scheduler_counts_on(const Scheduler *scheduler, uint32_t node);

/* Whether the node makes calls and may have workers, or did until it left. */
bool scheduler_has_program(const Scheduler *scheduler, uint32_t node);

/* Whether the node does its part of a call that all nodes with programs have proposed. */
bool scheduler_does_part(const Scheduler *scheduler, uint32_t node);

/* Sets a verdict that is not set yet; the first one stays. */
void verdict_set(Verdict *verdict, uint32_t code, const char *text);
void verdict_clear(Verdict *verdict);

/* "node 1 (127.0.0.1:4102) [last heard 0.2 s ago] and node 2 (…" of the numbers in the list.
 * (transfer full) */
char *scheduler_name_nodes(const Scheduler *scheduler, const GArray *numbers, bool with_heard);

/* Adds a Wait; takes the text. */
void wait_add(GArray *waits, char *text, const bool *waiting, int64_t since_ms);

/* task_find: the task of an epoch; NULL if there is none. The other: whether there was such a task,
 * so that a message about it is only late. */
SchedulerTask *task_find(const Scheduler *scheduler, uint64_t epoch);
bool task_is_late(const Scheduler *scheduler, uint64_t epoch);

/* The first cause wins. */
void task_cancel(Scheduler *scheduler, SchedulerTask *task, uint32_t code, const char *text);
void task_send_cancel(Scheduler *scheduler, const SchedulerTask *task);

/* The step of a snapshot that follows another one, which is not FORGET: that comes last. */
ControlStep snapshot_step_after(ControlStep step, bool failed);

/* As bytes: see engine/control/state_walk.h. */
void verdict_walk(StateWalk *walk, Verdict *verdict);

#endif
