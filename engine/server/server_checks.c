/* Checks messages of other nodes, before their sizes and keys are used. A wrong message is counted,
 * logged and refused. A message within this process was checked by the worker that sent it.
 *
 * Thread: the server's owner. */
#include <rubato/error.h>

#include "engine/server/request_ops.h"
#include "engine/server/server_private.h"
#include "models/update/bad_gradients.h"

/* After this many refusals a server logs no more of them. */
enum { MAX_LOGGED_REFUSALS = 20 };

void server_refuse(Server *server, Message *message, const char *why)
{
    if (++server->n_refused <= MAX_LOGGED_REFUSALS)
        g_warning("server %u: node %u sent %s; dropped", server->number,
                  server->office->node_ids[message->node], why);
    server_answer(server, message, CALL_REFUSED);
}

bool server_is_arriving(const Server *server, const Message *message)
{
    const Arrival *arrival = &server->arrival;

    return arrival->shard != NULL && arrival->node == message->node &&
           arrival->table == message->table && arrival->part == message->part;
}

void server_tell_complaint(Server *server, uint32_t epoch)
{
    g_autofree char *complaint = g_steal_pointer(&server->complaint);

    if (complaint != NULL && server->fail_task != NULL)
        server->fail_task(server->user, epoch, RUBATO_ERROR_HANDLER, complaint);
}

/* What is wrong with a request of another node; NULL if nothing is. model NULL: between tasks. */
static const char *find_fault(const RubatoShard *shard, const RubatoModel *model,
                              const Message *message)
{
    const RequestOps *ops = request_ops[message->kind];
    const RubatoRequest *request = &message->request;
    const size_t row_bytes = request_row_bytes(ops, shard_spec(shard));
    const bool brings_rows = ops->rows == REQUEST_INPUT || ops->rows == REQUEST_BOTH;
    const size_t input_bytes = brings_rows ? request->keys.n * row_bytes : 0;

    if (request->keys.n > post_office_max_keys(row_bytes))
        return "a request with more keys than a message may have";
    if (ops->is_of_even_rows && request->keys.n > 0 &&
        shard_spec(shard)->shape == RUBATO_SHAPE_RAGGED)
        return "a request about rows of one length, for a table of ragged rows";
    if (message->input_bytes != input_bytes)
        return "a request whose values do not fit its keys";
    if (model != NULL && !model_request_ok(model, request))
        return "a request of no worker of the task";
    if (message_brings_clock(message) && (model == NULL || model->ops->traits.per_worker_clocks))
        return "a request with a node's clock, where none counts";
    /* bad deltas are counted by worker: an invented worker must not get a count */
    if (model == NULL && request->worker != BAD_GRADIENTS_NO_WORKER)
        return "a request of a worker between tasks";
    return ops->find_fault == NULL ? NULL : ops->find_fault(shard, request);
}

bool server_check_remote(Server *server, const RubatoShard *shard, const RubatoModel *model,
                         Message *message)
{
    const bool is_whole = message->status != CALL_NO_MEMORY;
    const char *fault = is_whole ? find_fault(shard, model, message) : NULL;

    if (fault != NULL) {
        server_refuse(server, message, fault);
        return false;
    }
    if (!is_whole) {
        server_answer(server, message, CALL_NO_MEMORY);
        server->starved = true;
        return false;
    }
    return true;
}
