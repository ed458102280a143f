/* Requests for what the update rule keeps beside each row. They come between tasks.
 *
 * Thread: the server's owner. */
#include "engine/server/request_ops.h"
#include "models/spec.h"

static void get_state(RubatoShard *shard, RubatoRequest *request)
{
    shard_get_state(shard, &request->keys, request->output);
}

static void set_state(RubatoShard *shard, RubatoRequest *request)
{
    shard_set_state(shard, &request->keys, request->input);
}

extern const RequestOps get_state_request, set_state_request;

const RequestOps get_state_request = {
    .name = "Get of state",
    .is_of_even_rows = true,
    .rows = REQUEST_OUTPUT,
    .is_sent_again = true,
    .row_bytes = spec_state_bytes,
    .find_fault = request_find_key_fault,
    .between_tasks = get_state,
};

const RequestOps set_state_request = {
    .name = "Set of state",
    .is_of_even_rows = true,
    .rows = REQUEST_INPUT,
    .is_input = true,
    .row_bytes = spec_state_bytes,
    .find_fault = request_find_key_fault,
    .between_tasks = set_state,
};
