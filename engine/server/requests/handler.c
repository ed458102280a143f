/* Calls of handlers.
 *
 * A model treats a call like a Get of its keys, if the handler reads, or like an Add to them. A
 * call on all rows has no keys. Most models decide by clocks alone and treat all keys alike, so
 * they need no keys. A model that takes announcements decides by keys. It would treat a request
 * without keys like one that uses no row. So such calls are refused
 * (tables/client/client_handlers.c).
 *
 * Under "bsp" a call that reads is parked until the min clock has come to its clock. It then runs
 * before the Adds of that clock. A call that writes is kept, and runs among the Adds of its clock:
 * by worker, then in the order in which the worker made them. If the table aggregates the Adds of a
 * clock, the sums are applied after the calls of that clock.
 *
 * Another node's call takes effect once. The link drops repeated messages. A move of the part waits
 * for all senders of calls that write. What a model keeps moves with the part. A call that reads
 * changes nothing, so it may be sent again.
 *
 * Thread: the server's owner. */
#include "models/handlers/handler.h"
#include "engine/server/request_ops.h"

static size_t byte(const RubatoTableSpec *spec)
{
    (void)spec;
    return 1;
}

/* The bytes of the call come under their numbers. What they say is checked when all have come. */
static const char *find_fault(const RubatoShard *shard, const RubatoRequest *request)
{
    (void)shard;
    if (request->keys.keys != NULL || request->keys.n == 0)
        return "bytes of a handler's call without their numbers";
    if (request->piece.n_bytes > HANDLER_CALL_MOST_BYTES)
        return "the call of a handler with more bytes than one may have";
    return request_find_number_fault(request->piece.n_bytes, request);
}

static void call_in_task(RubatoModel *model, RubatoRequest *request)
{
    const Message *const message = message_of_request(request);

    /* as a Get brings it */
    if (message->node_clock > 0)
        model_clock(model, message->node, message->node_clock);
    if (handler_check_here(request->handler_call, model->shard))
        model_call(model, request);
    else
        rubato_model_finish(model, request);
}

static void call_between_tasks(RubatoShard *shard, RubatoRequest *request)
{
    if (handler_check_here(request->handler_call, shard))
        handler_run(request->handler_call, shard, &request->keys);
}

extern const RequestOps handler_request;

const RequestOps handler_request = {
    .name = "call of a handler",
    .rows = REQUEST_INPUT,
    .row_bytes = byte,
    .is_sent_again = true,
    .find_fault = find_fault,
    .in_task = call_in_task,
    .between_tasks = call_between_tasks,
};
