/* Requests for rows: Get, Add, both in one, and, between tasks, Set and Reset, which do not use the
 * update rule.
 *
 * Thread: the server's owner. */
#include "engine/server/request_ops.h"
#include "models/spec.h"

static void get(RubatoShard *shard, RubatoRequest *request)
{
    shard_get(shard, &request->keys, request->output);
}

static void add(RubatoShard *shard, RubatoRequest *request)
{
    shard_add_by(shard, request->worker, &request->keys, request->input);
}

static void set(RubatoShard *shard, RubatoRequest *request)
{
    shard_set(shard, &request->keys, request->input);
}

static void reset(RubatoShard *shard, RubatoRequest *request)
{
    shard_reset(shard, &request->keys);
}

extern const RequestOps get_request, add_request, add_get_request, set_request, reset_request;

const RequestOps get_request = {
    .name = "Get",
    .rows = REQUEST_OUTPUT,
    .is_sent_again = true,
    .is_of_even_rows = true,
    .row_bytes = spec_row_bytes,
    .find_fault = request_find_key_fault,
    .in_task = model_get,
    .between_tasks = get,
};

const RequestOps add_request = {
    .name = "Add",
    .rows = REQUEST_INPUT,
    .is_input = true,
    .is_of_even_rows = true,
    .row_bytes = spec_row_bytes,
    .find_fault = request_find_key_fault,
    .in_task = model_add,
    .between_tasks = add,
};

const RequestOps add_get_request = {
    .name = "Add and Get",
    .rows = REQUEST_BOTH,
    .is_of_even_rows = true,
    .row_bytes = spec_row_bytes,
    .find_fault = request_find_key_fault,
    .in_task = model_add_get,
};

const RequestOps set_request = {
    .name = "Set",
    .rows = REQUEST_INPUT,
    .is_input = true,
    .is_of_even_rows = true,
    .row_bytes = spec_row_bytes,
    .find_fault = request_find_key_fault,
    .between_tasks = set,
};

const RequestOps reset_request = {
    .name = "Reset",
    .is_input = true,
    .is_of_even_rows = true,
    .find_fault = request_find_key_fault,
    .between_tasks = reset,
};
