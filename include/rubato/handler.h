/* Calls of handlers: computation that goes to the rows.
 *
 * A call reaches all of a table, one part of it, or some keys. The handler runs once on each part
 * that the call reaches; the caller gets one result. handler_ops.h says what a handler is and how a
 * consistency model treats its calls. docs/reference/handler.md lists the built-in handlers.
 *
 * Threads: as each call says. */
#ifndef RUBATO_HANDLER_H
#define RUBATO_HANDLER_H

#include <rubato/bytes.h>
#include <rubato/engine.h>
#include <rubato/handler_ops.h>
#include <rubato/ticket.h>

G_BEGIN_DECLS

typedef struct {
    const char *table;
    const char *handler;
    const void *arguments; /* as the handler reads them; NULL: none */
    size_t n_argument_bytes;
    RubatoScope scope;
    uint32_t part;         /* RUBATO_SCOPE_PART */
    const RubatoKey *keys; /* RUBATO_SCOPE_KEYS */
    size_t n_keys;
} RubatoHandlerCall;

/* Calls a handler on a table of the worker's task, at the worker's clock, and waits for its end.
 * The call of a handler that reads waits for the model as a Get does. The call of a handler that
 * writes waits until each server has run it. But under "bsp" it is only sent, because it runs after
 * its clock: if it fails then, the clock of the table that would end the next clock returns false,
 * once, with RUBATO_ERROR_HANDLER, and has not been made.
 * *result gets the call's result; result may be NULL. The caller owns arguments and keys.
 *
 * Errors: RUBATO_ERROR_HANDLER if the handler failed; its text names table, handler, part and node.
 * RUBATO_ERROR_NOT_FOUND for an unknown table or handler. RUBATO_ERROR_RANGE for a part or key that
 * the table does not have. RUBATO_ERROR_INVALID if the model refuses the call: under "sparse_ssp" a
 * call has to name its keys. RUBATO_ERROR_FORMAT, and others that the handler's own check returns.
 * RUBATO_ERROR_CANCELLED, RUBATO_ERROR_MEMORY.
 *
 * Threads: the worker's. (*result: transfer full) */
RUBATO_API bool rubato_worker_call_handler(RubatoWorker *worker, const RubatoHandlerCall *call,
                                           GBytes **result, GError **error);

/* The same by a ticket (ticket.h): returns at once, 0 on error. *result is set before the ticket
 * ends, if it ends with success, and must stay until then. Arguments and keys are copied, or
 * borrowed until the ticket has ended. Errors of the call itself are told to its callback, and to
 * the worker when it waits for the ticket. `reduce` runs on the node's helper thread. The end of
 * the worker's function waits for calls under way.
 *
 * Threads: the worker's. (*result: transfer full) */
RUBATO_API RubatoTicket rubato_worker_call_handler_async(RubatoWorker *worker,
                                                         const RubatoHandlerCall *call,
                                                         GBytes **result,
                                                         const RubatoRequestOptions *options,
                                                         GError **error);

/* The same between tasks, without a model: what the handler writes has been written when this
 * returns. Any thread. (*result: transfer full) */
RUBATO_API bool rubato_engine_call_handler(RubatoEngine *engine, const RubatoHandlerCall *call,
                                           GBytes **result, GError **error);

G_END_DECLS

#endif
