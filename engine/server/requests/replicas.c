/* Messages between the primary of a part and its replicas. They are no requests of workers:
 * server_feed.c, server_inputs.c and server_replicas.c handle them. And the request by which a
 * worker begins to repeat what a lost one had sent to a part, which server_inputs.c handles, too.
 *
 * Thread: the server's owner. */
#include "engine/server/request_ops.h"

extern const RequestOps feed_request, position_request, return_request;

const RequestOps feed_request = {
    .name = "input of a replica",
    .releases = true,
};

const RequestOps position_request = {
    .name = "position of a replica",
};

static size_t clock_bytes(const RubatoTableSpec *spec)
{
    (void)spec;
    return sizeof(ReturnAnswer);
}

static const char *find_return_fault(const RubatoShard *shard, const RubatoRequest *request)
{
    if (shard_spec(shard)->replicas == 0)
        return "the return of a worker to a table without replicas";
    return request->keys.n == 1 && request->keys.keys == NULL
               ? NULL
               : "the return of a worker that does not ask for one answer";
}

const RequestOps return_request = {
    .name = "return of a worker",
    .rows = REQUEST_OUTPUT,
    .is_sent_again = true,
    .row_bytes = clock_bytes,
    .find_fault = find_return_fault,
    .in_task = rubato_model_finish, /* not called: a part of such a table has a feed */
};
