/* Rows that are done in steps of a worker: whether a snapshot has them as done exactly if it has
 * what came of them.
 *
 * Threads: the worker's. */
#ifndef RUBATO_ENGINE_TASK_KEPT_ROWS_H
#define RUBATO_ENGINE_TASK_KEPT_ROWS_H

#include <rubato/task.h>

/* A worker begins or ends a step. At the end it is checked that one clock fits all rows that were
 * done in it, and that nothing was changed which no clock fits. RUBATO_ERROR_INVALID. */
void kept_rows_begin_step(RubatoWorker *worker);
bool kept_rows_end_step(const RubatoWorker *worker, GError **error);

#endif
