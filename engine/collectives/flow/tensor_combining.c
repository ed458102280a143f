/* The flow of allreduce, reduce_scatter and broadcast: see tensor_flow.h.
 *
 * Chunks are numbered through all segments. Those of segment i are combined by node i; if all nodes
 * combine all of it (`is_whole`), there is one segment.
 *
 * A chunk is combined once all its parts have come. Input and output may be the same array. So a
 * chunk's outputs are written only behind the step that sent its inputs: the result of another
 * node's chunk comes behind it by itself, and with `is_whole` this node's own part counts among
 * those that a chunk awaits. */
#include "engine/collectives/flow/tensor_flow_private.h"
#include "engine/collectives/flow/tensor_segments.h"
#include "engine/collectives/negotiation/tensor_cutovers.h"

#include <string.h>

enum {
    CHUNK_VALUES = 16 << 10,
    SMALL_BYTES = 32 << 10,       /* of a tensor whose steps any thread does at once */
    WHOLE_BYTES = 32 << 10,       /* up to this, all nodes combine all of it, */
    WHOLE_BYTES_OF_TWO = 1 << 20, /* of two, where it costs no more bytes */
    WHOLE_NODES = 16,             /* if they are not many more messages */
};

enum { FEW_ARRAYS = 16 };     /* that need no memory of their own */
enum { BLOCK_VALUES = 1024 }; /* that are compressed at a time */

enum { STEP_SEND, STEP_COMBINE, STEP_COPY };

typedef struct {
    uint32_t n_missing; /* parts, and with is_whole the step that sends */
    bool has_come;      /* its result */
    void **owners;      /* by node: the message with its part; NULL: it has not come */
    const void **parts; /* by node: where it is */
    void *own;          /* this node's part, if it is compressed once for all */
} Chunk;

struct TensorCombining {
    bool is_whole, is_broadcast, has_results;
    uint32_t root;           /* of a broadcast: the node that has the values */
    TensorSegments segments; /* with is_whole there is one */
    Chunk *chunks;
    uint64_t next_send, n_sends; /* steps that send: see nth_send */

    TensorReduction first; /* what this node's workers have is combined to its part, */
    TensorReduction last;  /* and the parts to the result */
    bool has_parts;        /* a part is not simply the input of a worker */
    size_t part_size, size;
    RubatoCompression compression;
    size_t result_size; /* of a value of a result on its way */
    uint32_t n_tensors;
    uint64_t *tensor_ends;                 /* of all tensors' values: where each ends */
    const uint8_t **inputs;                /* by tensor; then by worker */
    uint32_t n_inputs;                     /* of a tensor */
    uint8_t **outputs;                     /* the same */
    uint64_t *output_begins, *output_ends; /* of a reduce_scatter */
    uint32_t n_outputs;
};

/* Values of one tensor, one behind another. */
typedef struct {
    const uint8_t **inputs;
    uint8_t **outputs;
    TensorResidual *residual; /* of the tensor */
    uint64_t first;           /* value of the tensor */
    uint64_t n;               /* values */
    uint32_t tensor;
    size_t offset; /* of the first one: bytes in each array */
    uint64_t at;   /* values of the chunk before it */
} Run;

/* ---- where chunks are ---- */

/* The first run of the values from begin up to `end`. */
static Run first_run(const TensorFlow *flow, uint64_t begin, uint64_t end)
{
    const TensorCombining *const it = flow->combining;
    const uint32_t tensor =
        it->n_tensors == 1 ? 0 : tensor_at(it->tensor_ends, it->n_tensors, begin);
    const uint64_t first = tensor == 0 ? 0 : it->tensor_ends[tensor - 1];

    return (Run){ .inputs = it->inputs + (size_t)tensor * it->n_inputs,
                  .outputs = it->outputs + (size_t)tensor * it->n_outputs,
                  .residual = flow->plan.residuals == NULL ? NULL : flow->plan.residuals[tensor],
                  .tensor = tensor,
                  .first = begin - first,
                  .n = MIN(end, it->tensor_ends[tensor]) - begin,
                  .offset = (begin - first) * it->size };
}

/* Moves to the next one, of the next tensor that has values. False: it was the last one. */
static bool next_run(const TensorFlow *flow, uint64_t begin, uint64_t end, Run *run)
{
    const TensorCombining *const it = flow->combining;

    run->at += run->n;
    if (run->at == end - begin)
        return false;
    do {
        run->tensor++;
        run->inputs += it->n_inputs;
        run->outputs += it->n_outputs;
    } while (it->tensor_ends[run->tensor] == begin + run->at);
    if (flow->plan.residuals != NULL)
        run->residual = flow->plan.residuals[run->tensor];
    run->first = run->offset = 0;
    run->n = MIN(end, it->tensor_ends[run->tensor]) - begin - run->at;
    return true;
}

static bool is_own(const TensorFlow *flow, uint64_t chunk)
{
    return flow->combining->is_whole ||
           tensor_segment_of(&flow->combining->segments, chunk) == flow->plan.self;
}

static bool contributes(const TensorFlow *flow, uint32_t node)
{
    return !flow->combining->is_broadcast || flow->combining->root == node;
}

/* ---- making ---- */

static RubatoDtype part_dtype(const TensorRequest *request)
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

static void find_reductions(TensorFlow *flow)
{
    TensorCombining *const it = flow->combining;
    const TensorRequest *const request = &flow->request;
    const RubatoDtype part = part_dtype(request);

    it->first = it->last = (TensorReduction){
        .dtype = request->dtype, .result = part, .reduce = request->reduce, .divisor = 1
    };
    it->first.reduce.postscale = 1;
    it->last.dtype = part;
    it->last.result = request->dtype;
    it->last.reduce.prescale = 1;
    it->last.divisor = request->reduce.divides_by_all ? flow->plan.n_ranks : flow->plan.n_asking;
    it->has_parts = part != request->dtype || it->n_inputs > 1 || request->reduce.prescale != 1;
    it->part_size = rubato_dtype_size(part);
    it->compression = request->reduce.compression;
    it->result_size = it->compression == RUBATO_COMPRESSION_NONE ? it->size : it->part_size;
    if (it->compression != RUBATO_COMPRESSION_NONE)
        it->first.result = request->dtype; /* it is rounded behind that */
}

static void find_arrays(TensorFlow *flow)
{
    TensorCombining *const it = flow->combining;
    const uint32_t n_tensors = flow->plan.n_tensors;
    uint32_t n_in = 0, n_out = 0;
    uint64_t end = 0;

    it->n_tensors = n_tensors;
    it->tensor_ends = g_new(uint64_t, n_tensors);
    it->inputs = g_new0(const uint8_t *, (size_t)n_tensors * flow->n_local);
    it->outputs = g_new0(uint8_t *, (size_t)n_tensors * flow->n_local);
    for (size_t i = 0; i < (size_t)n_tensors * flow->n_local; i++) {
        const TensorPart *const part = flow->plan.parts[i];
        const uint32_t rank =
            flow->plan.first_ranks[flow->plan.self] + (uint32_t)(i % flow->n_local);

        if (part == NULL)
            continue;
        if (!it->is_broadcast || rank == flow->request.root)
            it->inputs[n_in++] = part->input;
        if (part->output != NULL || !it->is_broadcast)
            it->outputs[n_out++] = part->output;
    }
    for (uint32_t i = 0; i < n_tensors; i++) {
        end += tensor_request_values(n_tensors == 1
                                         ? &flow->request
                                         : &flow->plan.parts[(size_t)i * flow->n_local]->request);
        it->tensor_ends[i] = end;
    }
    it->n_inputs = n_in / n_tensors;
    it->n_outputs = n_out / n_tensors;
}

/* Of a reduce_scatter: the values of each worker of this node, and where each node's end. */
static void find_scattered(TensorFlow *flow)
{
    TensorCombining *const it = flow->combining;
    const TensorFlowPlan *const plan = &flow->plan;
    const uint64_t n_rows = tensor_request_rows(&flow->request);
    const uint64_t row_values = tensor_request_row_bytes(&flow->request) / it->size;
    uint64_t end = 0;

    it->output_begins = g_new0(uint64_t, flow->n_local);
    it->output_ends = g_new0(uint64_t, flow->n_local);
    for (uint32_t node = 0; node < plan->n_nodes; node++) {
        for (uint32_t i = 0; i < plan->n_ranks_of[node]; i++) {
            const uint64_t begin = end;

            end += row_values *
                   rubato_reduce_scatter_rows(n_rows, plan->n_ranks, plan->first_ranks[node] + i);
            if (node == plan->self) {
                it->output_begins[i] = begin;
                it->output_ends[i] = end;
            }
        }
        it->segments.ends[node] = end;
    }
}

static void cut(TensorFlow *flow, uint64_t n_values)
{
    TensorCombining *const it = flow->combining;

    tensor_segments_init(&it->segments, it->is_whole ? 1 : flow->plan.n_nodes, CHUNK_VALUES);
    if (flow->request.operation == TENSOR_REDUCE_SCATTER)
        find_scattered(flow);
    else
        tensor_segments_share(&it->segments, n_values);
    tensor_segments_number(&it->segments);
    it->chunks = g_new0(Chunk, tensor_segments_chunks(&it->segments) + 1);
}

static void add_combine(TensorFlow *flow, uint64_t chunk)
{
    tensor_flow_add_step(
        flow, flow->combining->has_results ? TENSOR_STEPS_OF_MESSAGES : TENSOR_STEPS_WITHOUT_ROOM,
        &(TensorStep){ .what = STEP_COMBINE, .place = chunk });
}

/* What has to be done for a chunk of this node, and what for one of another node. */
static void expect(TensorFlow *flow, uint64_t chunk)
{
    TensorCombining *const it = flow->combining;
    const uint32_t n_nodes = flow->plan.n_nodes, self = flow->plan.self;
    Chunk *const one = &it->chunks[chunk];

    if (!is_own(flow, chunk)) {
        flow->n_left += contributes(flow, self); /* it is sent */
        if (it->has_results && !(it->is_broadcast && it->root == self)) {
            flow->n_left++;
            flow->n_awaited[tensor_segment_of(&it->segments, chunk)]++;
        }
        return;
    }
    one->owners = g_new0(void *, n_nodes);
    one->parts = g_new0(const void *, n_nodes);
    for (uint32_t node = 0; node < n_nodes; node++)
        if (node != self && contributes(flow, node)) {
            one->n_missing++;
            flow->n_awaited[node]++;
        }
    flow->n_left++;
    if (it->is_whole && contributes(flow, self)) {
        one->n_missing++;
        flow->n_left++;
    }
    if (one->n_missing == 0)
        add_combine(flow, chunk);
}

uint32_t tensor_flow_cutovers(uint32_t n_nodes)
{
    return tensor_cutovers_up_to(n_nodes == 2 ? WHOLE_BYTES_OF_TWO : WHOLE_BYTES);
}

/* Whether all nodes combine all of it. Of compressed values results depend on it, so nothing but
 * their size decides. */
static bool goes_directly(TensorFlow *flow, uint64_t n_bytes)
{
    const TensorCombining *const it = flow->combining;
    const uint32_t n_nodes = flow->plan.n_nodes;

    if (flow->request.operation == TENSOR_REDUCE_SCATTER || n_nodes > WHOLE_NODES)
        return false;
    if (it->is_broadcast)
        return n_nodes == 2 || n_bytes <= WHOLE_BYTES;
    if (it->compression == RUBATO_COMPRESSION_NONE && flow->plan.cutovers != NULL)
        flow->size_class = tensor_class_of(n_bytes);
    if (flow->size_class < TENSOR_CLASSES)
        return (*flow->plan.cutovers >> flow->size_class & 1) != 0;
    return n_bytes <= WHOLE_BYTES || (n_nodes == 2 && n_bytes <= WHOLE_BYTES_OF_TWO);
}

static void begin(TensorFlow *flow)
{
    TensorCombining *const it = flow->combining = g_new0(TensorCombining, 1);
    const uint32_t n_nodes = flow->plan.n_nodes;
    const uint64_t n_values = tensor_request_values(&flow->request);

    it->is_broadcast = flow->request.operation == TENSOR_BROADCAST;
    it->size = rubato_dtype_size(flow->request.dtype);
    find_arrays(flow);
    find_reductions(flow);
    if (it->is_broadcast) {
        it->has_parts = false;
        it->part_size = it->result_size = it->size;
        while (flow->request.root >=
               flow->plan.first_ranks[it->root] + flow->plan.n_ranks_of[it->root])
            it->root++;
    }
    const uint64_t n_bytes = n_values * it->part_size;
    const bool scatters = flow->request.operation == TENSOR_REDUCE_SCATTER;
    flow->is_small = n_bytes <= SMALL_BYTES;
    it->is_whole = flow->is_direct = goes_directly(flow, n_bytes);
    it->has_results = !it->is_whole && !scatters;
    cut(flow, n_values);
    if (contributes(flow, flow->plan.self))
        it->n_sends = it->is_whole ? it->segments.n_turns : it->segments.n_turns * (n_nodes - 1);
    for (uint64_t chunk = 0; chunk < tensor_segments_chunks(&it->segments); chunk++)
        expect(flow, chunk);
}

static void end(TensorFlow *flow)
{
    TensorCombining *const it = flow->combining;

    for (uint64_t chunk = 0; chunk < tensor_segments_chunks(&it->segments); chunk++) {
        Chunk *const one = &it->chunks[chunk];

        for (uint32_t node = 0; one->owners != NULL && node < flow->plan.n_nodes; node++)
            tensor_flow_drop(flow, one->owners[node]);
        g_free(one->owners);
        g_free(one->parts);
        g_free(one->own);
    }
    g_free(it->chunks);
    tensor_segments_clear(&it->segments);
    g_free(it->tensor_ends);
    g_free(it->inputs);
    g_free(it->outputs);
    g_free(it->output_begins);
    g_free(it->output_ends);
    g_free(it);
}

/* ---- what comes ---- */

static const char *take_result(TensorFlow *flow, uint32_t from, const TensorMessage *message,
                               void *owner)
{
    TensorCombining *const it = flow->combining;
    uint64_t end_value;
    const uint64_t begin_value = tensor_chunk_begin(&it->segments, message->place, &end_value);

    if (!it->has_results || (it->is_broadcast && it->root == flow->plan.self) ||
        tensor_segment_of(&it->segments, message->place) != from)
        return "the result of a tensor that is not its own";
    if (message->n_bytes != (end_value - begin_value) * it->result_size)
        return "the result of a tensor of a wrong size";
    if (it->chunks[message->place].has_come)
        return "a result of a tensor twice";
    it->chunks[message->place].has_come = true;
    flow->n_awaited[from]--;
    tensor_flow_add_step(flow, TENSOR_STEPS_WITHOUT_ROOM,
                         &(TensorStep){ .what = STEP_COPY,
                                        .place = message->place,
                                        .message = owner,
                                        .bytes = message->bytes,
                                        .n_bytes = message->n_bytes });
    return NULL;
}

static void lower_missing(TensorFlow *flow, uint64_t chunk)
{
    if (--flow->combining->chunks[chunk].n_missing == 0)
        add_combine(flow, chunk);
}

static const char *take(TensorFlow *flow, uint32_t from, const TensorMessage *message, void *owner)
{
    TensorCombining *const it = flow->combining;
    uint64_t end_value;

    if (message->place >= tensor_segments_chunks(&it->segments))
        return "a piece of a tensor behind its end";
    if (message->kind == TENSOR_MESSAGE_RESULT)
        return take_result(flow, from, message, owner);
    const uint64_t begin_value = tensor_chunk_begin(&it->segments, message->place, &end_value);
    if (message->kind != TENSOR_MESSAGE_PART || !is_own(flow, message->place) ||
        !contributes(flow, from))
        return "a piece of a tensor that is not for this node";
    if (message->n_bytes != (end_value - begin_value) * it->part_size)
        return "a piece of a tensor of a wrong size";
    Chunk *const one = &it->chunks[message->place];
    if (one->n_missing == 0 || one->owners[from] != NULL)
        return "a piece of a tensor twice";
    one->parts[from] = message->bytes;
    one->owners[from] = owner;
    if (it->has_results || one->n_missing > 1)
        one->owners[from] = tensor_flow_keep(flow, owner, &one->parts[from]);
    if (one->owners[from] == NULL)
        return NULL;
    flow->n_awaited[from]--;
    lower_missing(flow, message->place);
    return NULL;
}

/* ---- steps ---- */

/* The chunk that step n sends. False: it sends none. */
static bool nth_send(const TensorFlow *flow, uint64_t n, uint64_t *chunk)
{
    if (!flow->combining->is_whole)
        return tensor_segments_nth_send(&flow->combining->segments, flow->plan.self, n, chunk);
    *chunk = n;
    return true;
}

static bool has_next(const TensorFlow *flow)
{
    uint64_t chunk;

    for (uint64_t n = flow->combining->next_send; n < flow->combining->n_sends; n++)
        if (nth_send(flow, n, &chunk))
            return true;
    return false;
}

static bool next(TensorFlow *flow, TensorStep *step)
{
    TensorCombining *const it = flow->combining;

    *step = (TensorStep){ .what = STEP_SEND };
    while (it->next_send < it->n_sends)
        if (nth_send(flow, it->next_send++, &step->place))
            return true;
    return false;
}

static bool sends_to(const TensorFlow *flow, const TensorStep *step, uint32_t to)
{
    const TensorCombining *const it = flow->combining;

    switch (step->what) {
    case STEP_SEND:
        return it->is_whole || tensor_segment_of(&it->segments, step->place) == to;
    case STEP_COMBINE:
        return it->has_results && !(it->is_broadcast && it->root == to);
    default:
        return false;
    }
}

/* A result that was compressed goes to this node's workers. */
static void expand_out(const TensorCombining *it, const Run *run, const uint8_t *halves)
{
    const TensorReduction expand = { .dtype = it->last.dtype,
                                     .result = it->last.result,
                                     .reduce = { .prescale = 1, .postscale = 1 },
                                     .divisor = 1 };

    for (uint32_t i = 0; i < it->n_outputs; i++) {
        const void *const from = halves;
        void *const to = run->outputs[i] + run->offset;

        tensor_reduce(&expand, &from, 1, &to, 1, 0, run->n, 0);
    }
}

/* Copies values to this node's workers. */
static void copy_out(const TensorFlow *flow, uint64_t begin_value, const void *values, size_t n)
{
    const TensorCombining *const it = flow->combining;
    const uint64_t end_value = begin_value + n / it->result_size;
    Run run = first_run(flow, begin_value, end_value);

    do {
        const uint8_t *const from = (const uint8_t *)values + run.at * it->result_size;

        if (it->compression != RUBATO_COMPRESSION_NONE) {
            expand_out(it, &run, from);
            continue;
        }
        for (uint32_t i = 0; i < it->n_outputs; i++)
            if (run.outputs[i] + run.offset != from)
                memcpy(run.outputs[i] + run.offset, from, run.n * it->size);
    } while (next_run(flow, begin_value, end_value, &run));
}

/* Combines this node's own values of one tensor into each of the arrays. */
static void make_run(const TensorCombining *it, const Run *run, void *const *outputs,
                     uint32_t n_outputs)
{
    const void *few[FEW_ARRAYS];
    g_autofree const void **many =
        it->n_inputs > FEW_ARRAYS ? g_new(const void *, it->n_inputs) : NULL;
    const void **const inputs = many != NULL ? many : few;

    for (uint32_t i = 0; i < it->n_inputs; i++)
        inputs[i] = run->inputs[i] + run->offset;
    if (it->has_parts)
        tensor_reduce(&it->first, inputs, it->n_inputs, outputs, n_outputs, 0, run->n, 0);
    else
        for (uint32_t i = 0; i < n_outputs; i++)
            memcpy(outputs[i], inputs[0], run->n * it->size);
}

/* The same as halves. */
static void compress_run(const TensorCombining *it, const Run *run, void *const *outputs,
                         uint32_t n_outputs)
{
    float values[BLOCK_VALUES];
    void *const block = values;

    for (uint64_t at = 0, n; at < run->n; at += n) {
        Run part = *run;

        n = part.n = MIN(run->n - at, BLOCK_VALUES);
        part.offset += at * it->size;
        make_run(it, &part, &block, 1);
        tensor_compress(it->compression, values, run->residual->part + run->first + at,
                        (uint16_t *)outputs[0] + at, n);
    }
    for (uint32_t i = 1; i < n_outputs; i++)
        memcpy(outputs[i], outputs[0], run->n * it->part_size);
}

/* The same of a chunk. */
static void make_part(const TensorFlow *flow, uint64_t begin_value, uint64_t n_values,
                      void *const *outputs, uint32_t n_outputs)
{
    const TensorCombining *const it = flow->combining;
    const uint64_t end_value = begin_value + n_values;
    g_autofree void **arrays = g_new(void *, n_outputs);
    Run run = first_run(flow, begin_value, end_value);

    do {
        for (uint32_t i = 0; i < n_outputs; i++)
            arrays[i] = (uint8_t *)outputs[i] + run.at * it->part_size;
        if (it->compression == RUBATO_COMPRESSION_NONE)
            make_run(it, &run, arrays, n_outputs);
        else
            compress_run(it, &run, arrays, n_outputs);
    } while (next_run(flow, begin_value, end_value, &run));
}

static bool send_part(TensorFlow *flow, const TensorStep *step)
{
    const TensorCombining *const it = flow->combining;
    g_autoptr(GArray) messages = g_array_new(FALSE, FALSE, sizeof(TensorOutgoing));
    uint64_t end_value;
    const uint64_t begin_value = tensor_chunk_begin(&it->segments, step->place, &end_value);
    const uint64_t n_values = end_value - begin_value;

    /* a second rounding would have another residual */
    Chunk *const chunk = &it->chunks[step->place];
    const bool keeps = it->is_whole && it->compression != RUBATO_COMPRESSION_NONE;
    if (keeps && (chunk->own = g_try_malloc(n_values * it->part_size)) == NULL)
        return false;
    if (!tensor_flow_begin_messages(flow, step, TENSOR_MESSAGE_PART, n_values * it->part_size,
                                    messages))
        return false;
    g_autofree void **outputs = g_new(void *, messages->len + 1);
    for (guint i = 0; i < messages->len; i++)
        outputs[i] = g_array_index(messages, TensorOutgoing, i).bytes;
    outputs[messages->len] = chunk->own;
    make_part(flow, begin_value, n_values, outputs, messages->len + (keeps ? 1 : 0));
    tensor_flow_send_messages(flow, messages);
    if (it->is_broadcast && !it->is_whole)
        copy_out(flow, begin_value, it->inputs[0] + begin_value * it->size, n_values * it->size);
    return true;
}

/* Of a reduce_scatter: each worker takes what is its own of the chunk. */
static void scatter(const TensorFlow *flow, const void *const *parts, uint64_t begin_value,
                    uint64_t end_value)
{
    const TensorCombining *const it = flow->combining;

    for (uint32_t i = 0; i < it->n_outputs; i++) {
        const uint64_t from = MAX(begin_value, it->output_begins[i]);
        const uint64_t to = MIN(end_value, it->output_ends[i]);
        void *output = it->outputs[i];

        if (from < to)
            tensor_reduce(&it->last, parts, flow->plan.n_nodes, &output, 1, from - begin_value,
                          to - begin_value, (size_t)(it->output_begins[i] - begin_value));
    }
}

/* The arrays of one tensor that are combined, and those that the result goes to. */
typedef struct {
    const void **parts; /* by node */
    void **outputs;     /* messages, then those of this node's workers */
} Arrays;

/* Combines parts to a result that travels as halves, and gives it to this node's workers as it
 * travels. */
static void combine_to_halves(const TensorFlow *flow, const Run *run, const GArray *messages,
                              const void *const *parts)
{
    const TensorCombining *const it = flow->combining;
    uint16_t *const halves = (uint16_t *)g_array_index(messages, TensorOutgoing, 0).bytes + run->at;
    float values[BLOCK_VALUES];

    for (uint64_t at = 0, n; at < run->n; at += n) {
        void *const output = values;

        n = MIN(run->n - at, BLOCK_VALUES);
        tensor_reduce(&it->last, parts, flow->plan.n_nodes, &output, 1, at, at + n, at);
        tensor_compress(it->compression, values, run->residual->result + run->first + at,
                        halves + at, n);
    }
    for (guint i = 1; i < messages->len; i++)
        memcpy((uint16_t *)g_array_index(messages, TensorOutgoing, i).bytes + run->at, halves,
               run->n * sizeof *halves);
    expand_out(it, run, (const uint8_t *)halves);
}

/* Combines all parts of one tensor. own: this node's part of the chunk; NULL: it is the input. */
static void combine_run(const TensorFlow *flow, const Chunk *chunk, const Run *run,
                        const uint8_t *own, const GArray *messages, const Arrays *arrays)
{
    const TensorCombining *const it = flow->combining;
    const uint32_t n_nodes = flow->plan.n_nodes, self = flow->plan.self;
    uint32_t n = 0;

    for (uint32_t node = 0; node < n_nodes; node++)
        if (node != self)
            arrays->parts[node] = (const uint8_t *)chunk->parts[node] + run->at * it->part_size;
    arrays->parts[self] =
        own != NULL ? own + run->at * it->part_size : run->inputs[0] + run->offset;
    if (it->compression != RUBATO_COMPRESSION_NONE && messages->len > 0) {
        combine_to_halves(flow, run, messages, arrays->parts);
        return;
    }
    for (guint i = 0; i < messages->len; i++)
        arrays->outputs[n++] =
            (uint8_t *)g_array_index(messages, TensorOutgoing, i).bytes + run->at * it->size;
    for (uint32_t i = 0; i < it->n_outputs; i++)
        arrays->outputs[n++] = run->outputs[i] + run->offset;
    tensor_reduce(&it->last, arrays->parts, n_nodes, arrays->outputs, n, 0, run->n, 0);
}

/* Combines all parts into the outputs of this node's workers and the messages. */
static bool combine_parts(const TensorFlow *flow, const Chunk *chunk, uint64_t begin_value,
                          uint64_t end_value, const GArray *messages)
{
    const TensorCombining *const it = flow->combining;
    const uint64_t n_values = end_value - begin_value;
    const uint32_t n_nodes = flow->plan.n_nodes, self = flow->plan.self;
    g_autofree const void **parts = g_memdup2(chunk->parts, n_nodes * sizeof *parts);
    g_autofree void **outputs = g_new(void *, it->n_outputs + messages->len);
    g_autofree void *made = NULL;
    const void *own = chunk->own;
    const Arrays arrays = { parts, outputs };

    if (it->has_parts && own == NULL) {
        made = g_try_malloc(n_values * it->part_size);
        if (made == NULL)
            return false;
        make_part(flow, begin_value, n_values, &made, 1);
        own = made;
    }
    if (it->output_begins != NULL) {
        parts[self] = own != NULL ? own : it->inputs[0] + begin_value * it->size;
        scatter(flow, parts, begin_value, end_value);
        return true;
    }
    Run run = first_run(flow, begin_value, end_value);
    do
        combine_run(flow, chunk, &run, own, messages, &arrays);
    while (next_run(flow, begin_value, end_value, &run));
    return true;
}

static bool combine(TensorFlow *flow, const TensorStep *step)
{
    const TensorCombining *const it = flow->combining;
    const Chunk *const chunk = &it->chunks[step->place];
    g_autoptr(GArray) messages = g_array_new(FALSE, FALSE, sizeof(TensorOutgoing));
    uint64_t end_value;
    const uint64_t begin_value = tensor_chunk_begin(&it->segments, step->place, &end_value);
    const size_t n_bytes = (end_value - begin_value) * it->result_size;

    if (!tensor_flow_begin_messages(flow, step, TENSOR_MESSAGE_RESULT, n_bytes, messages))
        return false;
    if (it->is_broadcast) {
        const void *const values = it->root == flow->plan.self
                                       ? it->inputs[0] + begin_value * it->size
                                       : chunk->parts[it->root];

        for (guint i = 0; i < messages->len; i++)
            memcpy(g_array_index(messages, TensorOutgoing, i).bytes, values, n_bytes);
        copy_out(flow, begin_value, values, n_bytes);
    } else if (!combine_parts(flow, chunk, begin_value, end_value, messages)) {
        tensor_flow_forget_messages(flow, messages);
        return false;
    }
    tensor_flow_send_messages(flow, messages);
    return true;
}

static bool run(TensorFlow *flow, const TensorStep *step)
{
    const TensorCombining *const it = flow->combining;
    uint64_t end_value;

    switch (step->what) {
    case STEP_SEND:
        return send_part(flow, step);
    case STEP_COMBINE:
        return combine(flow, step);
    default:
        copy_out(flow, tensor_chunk_begin(&it->segments, step->place, &end_value), step->bytes,
                 step->n_bytes);
        return true;
    }
}

static void did(TensorFlow *flow, const TensorStep *step)
{
    TensorCombining *const it = flow->combining;
    Chunk *const chunk = &it->chunks[step->place];

    if (step->what == STEP_SEND && it->is_whole)
        lower_missing(flow, step->place);
    if (step->what != STEP_COMBINE)
        return;
    for (uint32_t node = 0; node < flow->plan.n_nodes; node++) {
        tensor_flow_drop(flow, chunk->owners[node]);
        chunk->owners[node] = NULL;
    }
}

const TensorFlowOps tensor_combining_ops = {
    .begin = begin,
    .end = end,
    .take = take,
    .next = next,
    .has_next = has_next,
    .sends_to = sends_to,
    .run = run,
    .did = did,
};
