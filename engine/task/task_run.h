/* A task that runs on this node. The thread that created it waits for it and frees it.
 *
 * Threads: the thread of the engine's calls. Functions that other threads may call say so. */
#ifndef RUBATO_ENGINE_TASK_TASK_RUN_H
#define RUBATO_ENGINE_TASK_TASK_RUN_H

#include <rubato/task.h>

#include "engine/catalogue.h"
#include "engine/control/told_task.h"
#include "engine/task/node_reader.h"
#include "engine/task/step_gate.h"
#include "tables/client/client.h"

/* A run of the task with its workers counted. No other thread knows it yet. The caller holds its
 * tables (the array is copied) as long as the run lives. RUBATO_ERROR_INVALID. (transfer full) */
RubatoTaskRun *task_run_new(const TaskHost *host, const RubatoTask *task, Table *const *tables,
                            size_t n_tables, GError **error);

/* The arguments as text, which the scheduler compares. (transfer full) */
char *task_run_describe(const RubatoTaskRun *run);

/* Whether it outlives the workers of a lost node. So it asks for it, and its tables have replicas.
 * There are none if they were made when no node was left for them. */
bool task_run_continues(const RubatoTaskRun *run);

/* How many workers this node has. */
uint32_t task_run_n_local(const RubatoTaskRun *run);

/* How long it waits then for others in their place; 0: it goes on without them. */
uint32_t task_run_replace_ms(const RubatoTaskRun *run);

/* How many workers each node has: as ControlPropose.workers. (transfer full) */
char *task_run_workers(const RubatoTaskRun *run);

/* Before that: a node was lost earlier, although all may have workers again. */
void task_run_note_losses(RubatoTaskRun *run);

/* After GO: leaves out the workers of lost nodes, by node number, and creates the models on this
 * node's servers. RUBATO_ERROR_NODE_LOST: no worker is left. */
bool task_run_prepare(RubatoTaskRun *run, uint32_t epoch, const bool *lost, GError **error);

/* In place of that, on a process in the place of a lost one, whose servers have the models already:
 * the task runs, and this node has the lost workers again. RUBATO_ERROR_MISMATCH. */
bool task_run_take_over(RubatoTaskRun *run, const ToldTask *told, GError **error);

/* Then, once the engine knows the run: asks all parts how far the lost workers had come, and tells
 * the clocks with which the workers begin. barriers: what the scheduler has told of those that were
 * passed. False: the task is cancelled, or fails by that. */
bool task_run_return(RubatoTaskRun *run, const char *barriers, GError **error);

/* Says in the history with which clocks they begin. Nothing, if they are in no lost one's place. */
void task_run_note_return(const RubatoTaskRun *run);

/* After COMMIT, or after that: starts the workers. */
void task_run_start_workers(RubatoTaskRun *run);

/* Tells the timeline, which has begun, whose workers these are. Any thread. */
void task_run_name_workers(RubatoTaskRun *run);

/* Before COMMIT, or after a failed one: undoes what prepare did. */
void task_run_abandon(RubatoTaskRun *run);

/* Waits until the task has ended and nothing of it runs here any more. */
void task_run_finish(RubatoTaskRun *run);

/* How it ended. */
bool task_run_check(const RubatoTaskRun *run, GError **error);

void task_run_free(RubatoTaskRun *run);

/* Questions about the task. Any thread. */
const char *task_run_name(const RubatoTaskRun *run);
uint32_t task_run_epoch(const RubatoTaskRun *run); /* once prepared */
/* The name of a table whose clocks meet at the scheduler's node; NULL: there is none. */
const char *task_run_collecting_table(const RubatoTaskRun *run);
const TaskHost *task_run_host(const RubatoTaskRun *run);
Table *const *task_run_tables(const RubatoTaskRun *run, size_t *n);

/* Whether the worker of rank 0 is on this node. Any thread, once prepared. */
bool task_run_has_first_worker(const RubatoTaskRun *run);

/* In place of preparing it: the others had begun it, as the task of that epoch, before this process
 * joined the run. 0: it is not such a run. */
void task_run_set_past(RubatoTaskRun *run, uint32_t epoch);
uint32_t task_run_past(const RubatoTaskRun *run);

/* What the caller keeps beside the run; NULL at first. */
void task_run_set_data(RubatoTaskRun *run, void *data);
void *task_run_data(const RubatoTaskRun *run);

/* ---- what the scheduler and other nodes say of the task: any thread, while the run cannot be
 * freed ---- */

void task_run_cancel(RubatoTaskRun *run, uint32_t code, const char *text);
void task_run_blocks(RubatoTaskRun *run, const ControlBlocks *blocks);
void task_run_end(RubatoTaskRun *run, uint32_t code, const char *text);

/* All workers of all nodes have arrived at a barrier. */
void task_run_release(RubatoTaskRun *run, uint64_t round);

/* Tells the other nodes those of this node's clocks on the run's tables that have changed. */
void task_run_tell_news(RubatoTaskRun *run);

/* A part of that table has moved: tells all servers the clocks of this node's workers again, if the
 * run uses the table. */
void task_run_tell_clocks(RubatoTaskRun *run, uint32_t table);

/* The workers of these nodes are lost (workerless, by number), and no others come in their place:
 * their clocks count no more, unless the task waits for others. Its parts have retired them. */
void task_run_lose_workers(RubatoTaskRun *run, const bool *workerless);

/* The lowest clock of the task's workers on a table that it uses, as far as this node has heard;
 * RUBATO_CLOCK_RETIRED: all have ended. */
uint64_t task_run_lowest_clock(const RubatoTaskRun *run, uint32_t table);

/* Of a process in the place of a lost one, while no worker is in a step: whether a worker of it has
 * yet to repeat what parts have had of the lost one, or to go through the rows of iterations before
 * its first one. lowest: a clock of all workers, where Adds are applied by their clock, below which
 * those in a cut are; or NODE_READER_NO_CLOCK. *rank: which worker. */
bool task_run_repeats(const RubatoTaskRun *run, uint64_t lowest, uint32_t *rank);

/* Whether it is not cancelled, and a worker of it still runs, as far as this node has heard. */
bool task_run_goes_on(const RubatoTaskRun *run);

/* Its node readers. Any thread. (transfer full) */
GPtrArray *task_run_hold_readers(RubatoTaskRun *run);

/* The steps of its workers on this node. Any thread. (transfer none) */
StepGate *task_run_steps(const RubatoTaskRun *run);

/* Tells the servers the clocks of all tables whose Adds are deferred. */
void task_run_tell_deferred(RubatoTaskRun *run);

/* The task on this node: the clocks of its workers, and how far they have read. (transfer
 * floating) */
GVariant *task_run_status(RubatoTaskRun *run);

/* ---- a worker's thread ---- */

/* A worker opens its reader `id`. Returns the node reader of this node's readers `id`; the first
 * call creates it. RUBATO_ERROR_MISMATCH. (transfer none) */
NodeReader *task_run_node_reader(RubatoTaskRun *run, uint32_t id, RubatoDataset *dataset,
                                 const RubatoReaderOptions *options, GError **error);

#endif
