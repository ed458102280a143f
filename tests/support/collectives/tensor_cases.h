/* What a task's workers do with collectives on tensors, wherever they are: the same in one process
 * and on several nodes. Each function is a task's, for any number of workers.
 *
 * Threads: the workers'. */
#ifndef TESTS_SUPPORT_COLLECTIVES_TENSOR_CASES_H
#define TESTS_SUPPORT_COLLECTIVES_TENSOR_CASES_H

#include <rubato/rubato.h>

enum { TENSOR_MOST_WORKERS = 4, TENSOR_N_DTYPES = 10 };

extern const RubatoDtype tensor_dtypes[TENSOR_N_DTYPES];

/* Each reduction of tensors of several shapes: allreduce, also in place, and reduce_scatter.
 * user_data: the dtype. */
bool tensor_reduce_all(RubatoWorker *worker, void *user_data, GError **error);

/* rubato_worker_reduce of numbers that round another way in another order: the bits are those of a
 * loop over the ranks, also once worker 0 has joined; other reductions are told. */
bool tensor_reduce_in_order(RubatoWorker *worker, void *user_data, GError **error);

/* Broadcast, allgather and alltoall with different numbers of rows. user_data: the dtype. */
bool tensor_move_rows(RubatoWorker *worker, void *user_data, GError **error);

/* Many operations with tickets, which each worker starts in another order. */
bool tensor_start_many(RubatoWorker *worker, void *user_data, GError **error);

/* Groups, blocking and with a ticket. Each worker asks for them in another order. Some are refused,
 * and some do not fit. */
bool tensor_reduce_groups(RubatoWorker *worker, void *user_data, GError **error);

/* Workers differ in the shape: all get the error, and go on. Of three workers. */
bool tensor_disagree(RubatoWorker *worker, void *user_data, GError **error);

/* One allreduce. */
bool tensor_is_sum_right(RubatoWorker *worker, GError **error);

/* Workers have different numbers of batches, and join; twice. */
bool tensor_join_one_by_one(RubatoWorker *worker, void *user_data, GError **error);

/* Worker 1 returns at once; the others are told. */
bool tensor_be_left(RubatoWorker *worker, void *user_data, GError **error);

/* Tensors of 12 MB: more than fits into any window. */
bool tensor_move_much(RubatoWorker *worker, void *user_data, GError **error);

#endif
