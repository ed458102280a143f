/* The handlers that there are, and how one is run.
 *
 * Threads: handler_run by the shard's present owner; the rest any. */
#ifndef RUBATO_MODELS_HANDLERS_HANDLER_H
#define RUBATO_MODELS_HANDLERS_HANDLER_H

#include <rubato/handler.h>

#include "io/net/handler_call.h"
#include "models/shard/shard.h"

/* The handler of that name, the library's own for rows of different lengths included; NULL if there
 * is none. And the name of handler i, without these; NULL past the last. */
const RubatoHandlerOps *handler_find(const char *name);
const char *handler_name(size_t i);

/* Finds the handler of a call and checks the call, before anything is sent. NULL with
 * RUBATO_ERROR_NOT_FOUND, or the handler's own error. (transfer none) */
const RubatoHandlerOps *handler_find_for(const RubatoTableSpec *spec, const RubatoHandlerCall *call,
                                         GError **error);

/* What is wrong with the call of another node, whose keys and bytes fit each other; NULL if nothing
 * is. */
const char *handler_find_fault(const RubatoShard *shard, const HandlerCall *call,
                               const RubatoKeys *keys);

/* As handler_find_for, for a call that has come to the server that has the part. Otherwise the
 * call's answer says why, and the call is over. */
bool handler_check_here(HandlerCall *call, const RubatoShard *shard);

/* Runs the call on a shard, and writes the answer to the call. The keys are of the shard. If nobody
 * waits for the answer, a failure is reported by shard_complain. */
void handler_run(HandlerCall *call, RubatoShard *shard, const RubatoKeys *keys);

#endif
