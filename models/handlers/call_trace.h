/* What the call of a handler changes, for a history: each row that it changes, before and after.
 *
 * A handler changes rows where they lie. So each block of rows that it gets is copied, and compared
 * when the handler asks for the next one. Rows of different lengths are not copied.
 *
 * Thread: the shard's present owner. */
#ifndef RUBATO_MODELS_HANDLERS_CALL_TRACE_H
#define RUBATO_MODELS_HANDLERS_CALL_TRACE_H

#include <rubato/handler_ops.h>

#include "io/net/handler_call.h"
#include "models/shard/shard_private.h"

typedef struct CallTrace CallTrace;

/* NULL: there is no history, the call only reads, or not all ragged rows of the shard have come:
 * then nothing is known of what it changes. (transfer full) */
CallTrace *call_trace_begin(const RubatoShard *shard, const HandlerCall *call);

/* At most so many rows at once are given to the handler. */
size_t call_trace_most_rows(const RubatoShard *shard);

/* The handler gets these rows. A row in the n_fresh bytes at `fresh` is no row of the part. */
void call_trace_open(CallTrace *trace, const RubatoPartRows *rows, const void *fresh,
                     size_t n_fresh);

/* Rows by key are about to change: at most call_trace_most_rows of them. */
void call_trace_before(CallTrace *trace, const RubatoKey *keys, size_t n);

/* The handler changes the rows no more that were opened; those by key have changed. NULL is allowed
 * for the trace, also if there are no rows. */
void call_trace_close(CallTrace *trace);

/* The call has run. NULL is allowed for the trace. */
void call_trace_end(CallTrace *trace, bool has_failed);

/* ---- rows of different lengths ---- */

/* Of a request to such rows that writes, a history has its place among those of the part: what it
 * changes follows from them. So a part that moves, and a replica that is made, go on counting where
 * the other one was. False: there is no history. */
bool call_trace_count(const RubatoShard *shard, uint64_t *n_writes);
void call_trace_go_on(RubatoShard *shard, uint64_t n_writes);

#endif
