/* A task that runs on this node, as engine_tasks.c and the readers call it; what the scheduler says
 * of it comes in by the functions in node.h, and whoever waits for it frees it.
 *
 * Threads: that of the engine's calls; task_run_node_reader a worker's. */
#ifndef RUBATO_ENGINE_TASK_TASK_RUN_H
#define RUBATO_ENGINE_TASK_TASK_RUN_H

#include "engine/node.h"
#include "engine/task/node_reader.h"
#include "tables/client.h"

/* A run of the task with its tables looked up and its workers counted, not yet known to anybody.
 * RUBATO_ERROR_INVALID, _NOT_FOUND. (transfer full) */
RubatoTaskRun *task_run_new(RubatoEngine *engine, const RubatoTask *task, GError **error);

/* The arguments in words, for the scheduler to compare. (transfer full) */
char *task_run_describe(const RubatoTaskRun *run);

/* After GO: models on this node's servers, the run in the engine's list. */
bool task_run_prepare(RubatoTaskRun *run, uint32_t epoch, GError **error);

/* After COMMIT: starts the workers. */
void task_run_start_workers(RubatoTaskRun *run);

/* Before COMMIT, or where it failed: takes back what prepare did. */
void task_run_abandon(RubatoTaskRun *run);

void task_run_free(RubatoTaskRun *run);

/* A worker opens its reader `id`: the node reader of those of this node, made where it is the
 * first. RUBATO_ERROR_MISMATCH. (transfer none) */
NodeReader *task_run_node_reader(RubatoTaskRun *run, uint32_t id, RubatoDataset *dataset,
                                 const RubatoReaderOptions *options, GError **error);

#endif
