/* Another number for a hyper-parameter of the update rule. A model applies it in order with the
 * Adds.
 *
 * Thread: the server's owner. */
#include "engine/server/request_ops.h"

static const char *find_fault(const RubatoShard *shard, const RubatoRequest *request)
{
    return request->keys.n == 0 && shard_tuning_ok(shard, &request->tuning)
               ? NULL
               : "a hyper-parameter that cannot be";
}

static void tune(RubatoShard *shard, RubatoRequest *request)
{
    shard_tune(shard, &request->tuning);
}

extern const RequestOps tune_request;

const RequestOps tune_request = {
    .name = "tuning",
    .is_input = true,
    .find_fault = find_fault,
    .in_task = model_tune,
    .between_tasks = tune,
};
