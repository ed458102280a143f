/* What a task's workers do with sets of workers, wherever they are: the same in one process and on
 * several nodes. Each function is a task's, for any number of workers.
 *
 * Threads: the workers'. */
#ifndef TESTS_SUPPORT_COLLECTIVES_TENSOR_SET_CASES_H
#define TESTS_SUPPORT_COLLECTIVES_TENSOR_SET_CASES_H

#include <rubato/rubato.h>

/* Two sets at once: each operation, beside all workers and under the same names; and something in a
 * set while its workers wait for others to ask again, too. */
bool tensor_use_sets(RubatoWorker *worker, void *user_data, GError **error);

/* What is pending in a removed set fails; the id is used again. */
bool tensor_remove_sets(RubatoWorker *worker, void *user_data, GError **error);

/* Sets that make no sense, or on which workers disagree. */
bool tensor_refuse_sets(RubatoWorker *worker, void *user_data, GError **error);

/* Of a task that lists its first and its last worker as sets. */
bool tensor_use_listed_sets(RubatoWorker *worker, void *user_data, GError **error);

/* Runs the three, and the last one in such a task. n_workers: of the task. */
bool tensor_run_set_cases(RubatoEngine *engine, const RubatoTask *task, uint32_t n_workers,
                          GError **error);

#endif
