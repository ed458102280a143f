/* Allreduces by Adasum: see tensor_cases.h.
 *
 * Threads: the workers'. */
#ifndef TESTS_SUPPORT_COLLECTIVES_TENSOR_ADASUM_CASES_H
#define TESTS_SUPPORT_COLLECTIVES_TENSOR_ADASUM_CASES_H

#include <rubato/rubato.h>

/* Each floating-point dtype and several sizes, in place, alone and as a group, against a reference
 * in double; all workers have the same bits, in each call. NaN, zeros, and what is refused. */
bool tensor_adasum_all(RubatoWorker *worker, void *user_data, GError **error);

/* Workers join one behind another, and count as zeros. */
bool tensor_adasum_joined(RubatoWorker *worker, void *user_data, GError **error);

#endif
