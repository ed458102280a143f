/* Workers that ask for different things under one name, for workers anywhere.
 *
 * Threads: each is the function of a task's workers. */
#ifndef TESTS_SUPPORT_COLLECTIVES_TENSOR_MISMATCH_CASES_H
#define TESTS_SUPPORT_COLLECTIVES_TENSOR_MISMATCH_CASES_H

#include <rubato/rubato.h>

/* Each thing that workers can disagree on: it fails on all of them, and each is told both sides,
 * with the ranks of both; then the name is used as before. Two workers at least. */
bool tensor_disagree_on_all(RubatoWorker *worker, void *user_data, GError **error);

/* Worker 0 has joined: operations that need it fail on the others and name it. */
bool tensor_need_joined(RubatoWorker *worker, void *user_data, GError **error);

#endif
