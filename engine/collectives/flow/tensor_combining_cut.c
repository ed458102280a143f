/* The values of an allreduce, reduce_scatter or broadcast, cut: which nodes combine which of them,
 * and what a node sends of its own. See tensor_combining.c.
 *
 * All nodes find the same: it depends on the request and the nodes alone.
 *
 * Threads: any; the functions depend on their arguments only. */
#include "engine/collectives/flow/tensor_combining_private.h"
#include "engine/collectives/negotiation/tensor_cutovers.h"

enum {
    WHOLE_BYTES = 32 << 10,       /* up to this, all nodes combine all of it, */
    WHOLE_BYTES_OF_TWO = 1 << 20, /* of two, where it costs no more bytes */
    WHOLE_NODES = 16,             /* if they are not many more messages */
    BROADCAST_BYTES = 256 << 10,  /* that a root sends to all others together in one step */
};

RubatoDtype combining_part_dtype(const TensorRequest *request)
{
    const bool is_mean = request->reduce.reduction == RUBATO_REDUCTION_MEAN;

    if (request->reduce.compression != RUBATO_COMPRESSION_NONE)
        return tensor_compressed_dtype(request->reduce.compression);
    switch (request->dtype) {
    case RUBATO_F16:
    case RUBATO_BF16:
        return RUBATO_F32;
    case RUBATO_I8:
    case RUBATO_I16:
    case RUBATO_I32:
    case RUBATO_U8:
        return is_mean ? RUBATO_I64 : request->dtype;
    case RUBATO_F32:
    case RUBATO_F64:
    case RUBATO_I64:
    case RUBATO_BOOL:
        break;
    }
    return request->dtype;
}

static uint64_t most_direct_bytes(uint32_t n_nodes)
{
    if (n_nodes > WHOLE_NODES)
        return 0;
    return n_nodes == 2 ? WHOLE_BYTES_OF_TWO : WHOLE_BYTES;
}

TensorCutovers tensor_flow_cutovers(uint32_t n_nodes)
{
    return tensor_cutovers_up_to(most_direct_bytes(n_nodes));
}

bool combining_is_direct(const TensorRequest *request, uint64_t n_bytes, uint32_t n_nodes)
{
    return request->operation != TENSOR_REDUCE_SCATTER &&
           (n_bytes <= most_direct_bytes(n_nodes) ||
            (request->operation == TENSOR_BROADCAST &&
             (n_nodes == 2 || n_bytes <= BROADCAST_BYTES / (n_nodes - 1))));
}

/* Of a reduce_scatter each node combines what its workers get. */
static void end_scattered(const TensorFlowPlan *plan, const TensorRequest *request,
                          TensorSegments *segments)
{
    const uint64_t n_rows = tensor_request_rows(request);
    const uint64_t row_values =
        tensor_request_row_bytes(request) / rubato_dtype_size(request->dtype);
    uint64_t end = 0;

    for (uint32_t node = 0; node < plan->n_nodes; node++) {
        for (uint32_t i = 0; i < plan->n_ranks_of[node]; i++)
            end += row_values *
                   rubato_reduce_scatter_rows(n_rows, plan->n_ranks, plan->first_ranks[node] + i);
        segments->ends[node] = end;
    }
}

void combining_cut(const TensorFlowPlan *plan, const TensorRequest *request, bool is_whole,
                   TensorSegments *segments)
{
    tensor_segments_init(segments, is_whole ? 1 : plan->n_nodes, COMBINING_CHUNK_VALUES);
    if (request->operation == TENSOR_REDUCE_SCATTER)
        end_scattered(plan, request, segments);
    else
        tensor_segments_share(segments, tensor_request_values(request));
    tensor_segments_number(segments);
}

/* ---- what is sent before it is decided ---- */

uint64_t combining_values_ahead(const TensorRequest *request)
{
    const uint64_t n_values = tensor_request_values(request);
    const uint64_t most = TENSOR_AHEAD_BYTES / rubato_dtype_size(request->dtype);

    G_STATIC_ASSERT((int)TENSOR_AHEAD_BYTES >= COMBINING_CHUNK_VALUES * (int)sizeof(double));
    return n_values <= most ? n_values : most - most % COMBINING_CHUNK_VALUES;
}

/* Whether a part is the input of a worker: see find_reductions. */
static bool sends_input(const TensorRequest *request)
{
    return request->operation == TENSOR_BROADCAST ||
           (request->reduce.prescale == 1 && request->reduce.reduction != RUBATO_REDUCTION_ADASUM &&
            request->reduce.compression == RUBATO_COMPRESSION_NONE &&
            combining_part_dtype(request) == request->dtype);
}

/* The node gets its segment of the values. */
static void find_share(const TensorFlowPlan *plan, const TensorPart *part, uint32_t to,
                       TensorAhead *ahead)
{
    const size_t size = rubato_dtype_size(part->request.dtype);
    TensorSegments segments;

    combining_cut(plan, &part->request, /* is_whole= */ false, &segments);
    const uint64_t begin = tensor_segment_begin(&segments, to);
    const uint64_t own = tensor_segment_begin(&segments, plan->self);
    ahead->place = segments.first_chunk[to];
    ahead->bytes = (const uint8_t *)part->input + begin * size;
    ahead->n_bytes = (segments.ends[to] - begin) * size;
    if (part->request.operation == TENSOR_REDUCE_SCATTER) {
        /* of its own segment it reads the input next, and writes less than that */
        ahead->fetched = (const uint8_t *)part->input + own * size;
        ahead->n_fetched = (segments.ends[plan->self] - own) * size;
    } else {
        ahead->fetched = (const uint8_t *)part->output + begin * size;
        ahead->n_fetched = ahead->n_bytes;
    }
    tensor_segments_clear(&segments);
}

bool combining_ahead(const TensorFlowPlan *plan, uint32_t to, TensorAhead *ahead)
{
    const TensorPart *const part = plan->parts[0];
    const TensorRequest *const request = &part->request;
    const size_t size = rubato_dtype_size(request->dtype);
    const size_t n_bytes = tensor_request_values(request) * size;
    const bool is_direct = combining_is_direct(request, n_bytes, plan->n_nodes);
    const bool is_large = n_bytes > TENSOR_AHEAD_BYTES;

    *ahead = (TensorAhead){ .kind = TENSOR_MESSAGE_PART,
                            .bytes = part->input,
                            .n_bytes = combining_values_ahead(request) * size,
                            .fetched = part->output,
                            .n_fetched = is_large || part->output == NULL ? 0 : n_bytes };
    if (n_bytes == 0 || !sends_input(request) ||
        (is_large && (request->operation != TENSOR_BROADCAST || !tensor_flow_is_first_ahead(plan))))
        return false;
    if (request->operation != TENSOR_BROADCAST && !is_direct)
        find_share(plan, part, to, ahead);
    if (request->operation == TENSOR_BROADCAST && request->root != plan->first_ranks[plan->self])
        ahead->n_bytes = 0;
    return request->operation != TENSOR_BROADCAST || is_direct;
}
