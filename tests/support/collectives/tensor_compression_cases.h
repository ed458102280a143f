/* Tensors that are compressed between nodes: see tensor_cases.h.
 *
 * Threads: the workers'. */
#ifndef TESTS_SUPPORT_COLLECTIVES_TENSOR_COMPRESSION_CASES_H
#define TESTS_SUPPORT_COLLECTIVES_TENSOR_COMPRESSION_CASES_H

#include <rubato/rubato.h>

/* Means and sums of several sizes, alone and in a group, to both halves: all workers have the same
 * bits, the sum over many calls is right though each call is rounded, and nothing is kept of
 * another size. The same of reduce_scatter. On one node nothing is rounded. Then workers
 * disagree. */
bool tensor_compress_all(RubatoWorker *worker, void *user_data, GError **error);

/* Workers join one behind another; for the others nothing is lost. */
bool tensor_compress_joined(RubatoWorker *worker, void *user_data, GError **error);

#endif
