/* The requests that only a moving part sends: counts of bad deltas, clocks, what decides which rows
 * are evicted and which keys are admitted, and which rows have left since they came. Its rows come
 * by Set and Set of state. The requests that its models held come as they were.
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
    model_set_clocks(model, request->keys.first, request->keys.n, request->input);
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

static const char *find_uses_fault(const RubatoShard *shard, const RubatoRequest *request)
{
    if (!shard_is_bounded(shard))
        return "counts of uses, which its table has not";
    return request->keys.keys == NULL && request->keys.first == 0 && request->keys.n == 1
               ? NULL
               : "counts of uses that are not one entry";
}

static size_t uses_bytes(const RubatoTableSpec *spec)
{
    (void)spec;
    return sizeof(StorageUses);
}

static void set_uses(RubatoShard *shard, RubatoRequest *request)
{
    shard_set_uses(shard, request->input);
}

static const char *find_marks_fault(const RubatoShard *shard, const RubatoRequest *request)
{
    return shard_is_bounded(shard) ? request_find_key_fault(shard, request)
                                   : "marks of rows, which its table has not";
}

static size_t mark_bytes(const RubatoTableSpec *spec)
{
    (void)spec;
    return sizeof(uint32_t);
}

static void set_marks(RubatoShard *shard, RubatoRequest *request)
{
    shard_set_marks(shard, &request->keys, request->input);
}

static const char *find_remove_fault(const RubatoShard *shard, const RubatoRequest *request)
{
    return shard_is_bounded(shard) ? request_find_key_fault(shard, request)
                                   : "keys of rows that have left, which stay in its table";
}

static void remove_rows(RubatoShard *shard, RubatoRequest *request)
{
    shard_remove(shard, &request->keys);
}

static const char *find_admission_fault(const RubatoShard *shard, const RubatoRequest *request)
{
    return request_find_number_fault(shard_n_admission_words(shard), request);
}

static size_t word_bytes(const RubatoTableSpec *spec)
{
    (void)spec;
    return sizeof(uint64_t);
}

static void set_admission(RubatoShard *shard, RubatoRequest *request)
{
    shard_set_admission(shard, (size_t)request->keys.first, request->keys.n, request->input);
}

extern const RequestOps set_bad_gradients_request, set_clocks_request;
extern const RequestOps set_uses_request, set_marks_request, set_admission_request, remove_request;

const RequestOps set_admission_request = {
    .name = "Set of what admits keys",
    .rows = REQUEST_INPUT,
    .row_bytes = word_bytes,
    .is_of_move = true,
    .find_fault = find_admission_fault,
    .between_tasks = set_admission,
};

const RequestOps set_uses_request = {
    .name = "Set of counts of uses",
    .rows = REQUEST_INPUT,
    .row_bytes = uses_bytes,
    .is_of_move = true,
    .find_fault = find_uses_fault,
    .between_tasks = set_uses,
};

const RequestOps set_marks_request = {
    .name = "Set of marks",
    .rows = REQUEST_INPUT,
    .row_bytes = mark_bytes,
    .is_of_move = true,
    .find_fault = find_marks_fault,
    .between_tasks = set_marks,
};

const RequestOps remove_request = {
    .name = "Removal of rows",
    .is_of_move = true,
    .find_fault = find_remove_fault,
    .between_tasks = remove_rows,
};

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
