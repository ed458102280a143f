/* The data that a task's workers read: READER, INPUTS, WANT, BLOCKS.
 *
 * Threads: as scheduler.h. */
#ifndef RUBATO_ENGINE_SCHEDULER_DATA_SCHEDULER_DATA_H
#define RUBATO_ENGINE_SCHEDULER_DATA_SCHEDULER_DATA_H

#include "engine/scheduler/scheduler_state.h"

/* All nodes are told that step of a snapshot. spec: what it is to hold; NULL: it is not known. */
void data_hear_step(Scheduler *scheduler, ControlStep step, const char *spec);

/* The task is about to be freed. */
void data_forget(Scheduler *scheduler, const SchedulerTask *task);

/* Why what CUT found of the tables may not fit what is kept of readers; OK: it does. Nothing in it
 * is allocated. */
Verdict data_find_tear(const Scheduler *scheduler);

/* Whether snapshots keep a reader of the task. */
bool data_has_kept(const SchedulerTask *task);

bool data_reader(Scheduler *scheduler, uint32_t node, const Control *control);
bool data_inputs(Scheduler *scheduler, uint32_t node, const Control *control);
bool data_want(Scheduler *scheduler, uint32_t node, const Control *control);

/* The node's workers have ended, and replicas have what they have added. So the blocks that they
 * have read need not be read again if the node is lost. Before that nobody knows what they have
 * made of a block: their readers read ahead. */
void data_settle(SchedulerTask *task, uint32_t node);

/* Another process is to have the node's workers: they get the same blocks once more. */
void data_await(SchedulerTask *task, uint32_t node);

/* Why its workers cannot read the data without those of a lost node; NULL: they can. */
const char *data_needs_all(const SchedulerTask *task);

/* How many blocks of lost nodes no other has read as a whole, although some worker has read all
 * there was. */
uint64_t data_n_unread(const SchedulerTask *task);
void data_node_out(SchedulerTask *task, uint32_t node);

/* The node is lost, and its workers had ended. */
void data_lose_ended(SchedulerTask *task, uint32_t node);

/* What the task's workers read, and how far they are: the member `readers` of its status. */
void data_add_status(const Scheduler *scheduler, const SchedulerTask *task, GVariantBuilder *list);
void data_clear(SchedulerTask *task);

/* As bytes: see engine/control/state_walk.h. */
void data_walk(StateWalk *walk, const Scheduler *scheduler, SchedulerTask *task);

#endif
