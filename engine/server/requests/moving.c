/* The requests that only a moving part sends: counts of bad deltas, and clocks. Its rows come by
 * Set and Set of state. The requests that its models held come as they were.
 *
 * Thread: the server's owner. */
#include "engine/control/control.h"
#include "engine/server/request_ops.h"

static size_t clock_bytes(const RubatoTableSpec *spec)
{
    (void)spec;
    return sizeof(uint64_t);
}

static const char *find_run_fault(const RubatoShard *shard, const RubatoRequest *request)
{
    (void)shard;
    return request_find_number_fault((uint64_t)CONTROL_MAX_WORKERS + 1, request);
}

/* Clocks of unknown sources are ignored, as always. */
static void set_clocks(RubatoModel *model, RubatoRequest *request)
{
    const uint64_t *clocks = request->input;

    for (size_t i = 0; i < request->keys.n; i++)
        model_clock(model, (uint32_t)(request->keys.first + i), clocks[i]);
    rubato_model_finish(model, request);
}

static size_t counts_bytes(const RubatoTableSpec *spec)
{
    (void)spec;
    return sizeof(BadCounts);
}

static void set_bad_gradients(RubatoShard *shard, RubatoRequest *request)
{
    shard_set_bad_gradients(shard, (uint32_t)request->keys.first, (uint32_t)request->keys.n,
                            request->input);
}

extern const RequestOps set_bad_gradients_request, set_clocks_request;

const RequestOps set_bad_gradients_request = {
    .name = "Set of counts of bad deltas",
    .rows = REQUEST_INPUT,
    .row_bytes = counts_bytes,
    .is_of_move = true,
    .find_fault = find_run_fault,
    .between_tasks = set_bad_gradients,
};

const RequestOps set_clocks_request = {
    .name = "Set of clocks",
    .rows = REQUEST_INPUT,
    .row_bytes = clock_bytes,
    .is_of_move = true,
    .find_fault = find_run_fault,
    .in_task = set_clocks,
};
