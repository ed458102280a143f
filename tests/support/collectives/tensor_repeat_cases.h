/* What a task's workers do with collectives on tensors whose names come again, and which travel
 * together: see tensor_cases.h.
 *
 * Threads: the workers'. */
#ifndef TESTS_SUPPORT_COLLECTIVES_TENSOR_REPEAT_CASES_H
#define TESTS_SUPPORT_COLLECTIVES_TENSOR_REPEAT_CASES_H

#include <rubato/rubato.h>

/* Iterations with the same names, alone and as a group, in another order on each worker; in some of
 * them shapes change, for all workers or for one. user_data: a GByteArray, to which worker 0
 * appends the bits of all results; NULL: nobody does. */
bool tensor_repeat(RubatoWorker *worker, void *user_data, GError **error);

/* A ticket whose operation others have not asked for has not ended. */
bool tensor_poll_early(RubatoWorker *worker, void *user_data, GError **error);

#endif
