/* Requests to tables of rows of different lengths are calls of the library's own handlers.
 *
 * The call of a handler on keys can carry any number of bytes for each key, there and back, and a
 * model treats it like a Get or like an Add. These handlers are not listed. A program can call them
 * only through the table's handle (rubato/ragged_table.h).
 *
 *   ragged.get      result: the length of each key's row, then the rows
 *   ragged.lengths  result: the length of each key's row
 *   ragged.add, ragged.assign, ragged.append
 *                   arguments: a length for each key, then that many values for each key
 *   ragged.erase
 *   ragged.go_on    arguments: 8 bytes. To a part that has come from elsewhere, with a history:
 *                   how many requests that write it had run there (models/handlers/call_trace.h)
 *
 * A length is a number of values, of 4 bytes. Repeated keys are handled in their order.
 *
 * Threads: the shard's present owner; the lookups any. */
#ifndef RUBATO_MODELS_RAGGED_RAGGED_H
#define RUBATO_MODELS_RAGGED_RAGGED_H

#include <rubato/handler_ops.h>

#include "io/net/handler_call.h"
#include "models/ragged/ragged_heap.h"

/* The handler of that name; NULL if there is none. */
const RubatoHandlerOps *ragged_find(const char *name);

/* Whether a handler is one of these. */
bool ragged_is_request(const RubatoHandlerOps *ops);

/* Whether it brings what belongs to a part that comes from elsewhere, and to no other. */
bool ragged_is_of_move(const RubatoHandlerOps *ops);

/* What is wrong with a call's bytes; NULL if nothing is. */
const char *ragged_find_fault(const RubatoTableSpec *spec, const HandlerCall *call,
                              const RubatoKeys *keys);

/* The spec of a shard's storage, which has a RaggedRow for each key. It shares the pointers of the
 * table's spec, and its shape: a storage may see from this that the values are small. */
RubatoTableSpec ragged_row_spec(const RubatoTableSpec *spec);

/* Whether a spec of such a table makes sense. */
bool ragged_check_spec(const RubatoTableSpec *spec, GError **error);

#endif
