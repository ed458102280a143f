/* Groups of operations that move rows: see tensor_cases.h.
 *
 * Threads: the workers'. */
#ifndef TESTS_SUPPORT_COLLECTIVES_TENSOR_GROUP_CASES_H
#define TESTS_SUPPORT_COLLECTIVES_TENSOR_GROUP_CASES_H

#include <rubato/rubato.h>

/* Groups of broadcasts, allgathers, reduce_scatters and alltoalls, blocking and with tickets,
 * twice. Each worker asks for them in another order. One is refused, and one does not fit. */
bool tensor_move_groups(RubatoWorker *worker, void *user_data, GError **error);

/* There is no memory for one of a group: nothing of it is gathered. Of three workers. */
bool tensor_group_without_memory(RubatoWorker *worker, void *user_data, GError **error);

#endif
