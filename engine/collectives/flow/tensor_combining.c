/* The flow of allreduce, reduce_scatter and broadcast: see tensor_flow.h.
 *
 * Chunks are numbered through all segments. Those of segment i are combined by node i; if all nodes
 * combine all of it (`is_whole`), there is one segment.
 *
 * A chunk is combined once all its parts have come. Input and output may be the same array. So a
 * chunk's outputs are written only behind the step that sent its inputs: the result of another
 * node's chunk comes behind it by itself, and with `is_whole` this node's own part counts among
 * those that a chunk awaits.
 *
 * This file has the order of it; what is done to the values is in tensor_combining_values.c, and
 * how they are cut in tensor_combining_cut.c. */
#include "engine/collectives/flow/tensor_combining_private.h"
#include "engine/collectives/negotiation/tensor_cutovers.h"
#include "engine/collectives/work/tensor_stream.h"

#include <string.h>

enum { SMALL_BYTES = 32 << 10 }; /* of a tensor whose steps any thread does at once */

enum { STEP_SEND, STEP_COMBINE, STEP_COPY };

static bool is_own(const TensorFlow *flow, uint64_t chunk)
{
    return flow->combining->is_whole ||
           tensor_segment_of(&flow->combining->segments, chunk) == flow->plan.self;
}

static bool contributes(const TensorFlow *flow, uint32_t node)
{
    return !flow->combining->is_broadcast || flow->combining->root == node;
}

/* ---- whether what comes is right ---- */

/* How many chunks have as many bytes as the message. 0: none. */
static uint32_t chunks_of(const TensorCombining *it, const TensorMessage *message, size_t size)
{
    return message->n_bytes % size != 0
               ? 0
               : tensor_segments_run(&it->segments, message->place, message->n_bytes / size);
}

/* NULL and how many chunks they are of, or what is wrong. */
static const char *check_result(const TensorFlow *flow, uint32_t from, const TensorMessage *message,
                                uint32_t *n_chunks)
{
    const TensorCombining *const it = flow->combining;

    if (!it->has_results || (it->is_broadcast && it->root == flow->plan.self) ||
        tensor_segment_of(&it->segments, message->place) != from)
        return "the result of a tensor that is not its own";
    const uint32_t n = chunks_of(it, message, it->result_size);
    if (n == 0)
        return "the result of a tensor of a wrong size";
    for (uint32_t i = 0; i < n; i++)
        if (it->chunks[message->place + i].has_come)
            return "a result of a tensor twice";
    *n_chunks = n;
    return NULL;
}

/* The same of parts. */
static const char *check_parts(const TensorFlow *flow, uint32_t from, const TensorMessage *message,
                               uint32_t *n_chunks)
{
    const TensorCombining *const it = flow->combining;

    if (message->kind != TENSOR_MESSAGE_PART || !is_own(flow, message->place) ||
        !contributes(flow, from))
        return "a piece of a tensor that is not for this node";
    const uint32_t n = chunks_of(it, message, it->part_size);
    if (n == 0)
        return "a piece of a tensor of a wrong size";
    for (uint32_t i = 0; i < n; i++) {
        const CombiningChunk *const one = &it->chunks[message->place + i];

        if (one->n_missing == 0 || one->owners[from] != NULL)
            return "a piece of a tensor twice";
    }
    *n_chunks = n;
    return NULL;
}

/* Results lie there as they come, and so do the values of a broadcast; other parts lie nowhere.
 * Nothing else is written there meanwhile, nor read: see the top. */
static uint8_t *find_place(const TensorFlow *flow, uint32_t from, const TensorMessage *message)
{
    const TensorCombining *const it = flow->combining;
    const bool is_result = message->kind == TENSOR_MESSAGE_RESULT;
    uint32_t n;

    if (message->place >= tensor_segments_chunks(&it->segments) ||
        (!is_result && !it->is_broadcast) ||
        (is_result ? check_result : check_parts)(flow, from, message, &n) != NULL)
        return NULL;
    uint64_t end;
    return combining_place(flow, tensor_chunk_begin(&it->segments, message->place, &end),
                           message->n_bytes / it->size);
}

/* ---- making ---- */

static void find_reductions(TensorFlow *flow)
{
    TensorCombining *const it = flow->combining;
    const TensorRequest *const request = &flow->request;
    const RubatoDtype part = combining_part_dtype(request);

    it->first = it->last = (TensorReduction){
        .dtype = request->dtype, .result = part, .reduce = request->reduce, .divisor = 1
    };
    it->first.reduce.postscale = 1;
    it->last.dtype = part;
    it->last.result = request->dtype;
    it->last.reduce.prescale = 1;
    it->last.divisor = request->reduce.divides_by_all ? flow->plan.n_ranks : flow->plan.n_asking;
    it->middle = it->first;
    it->middle.dtype = part;
    it->middle.reduce.prescale = 1;
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

/* Of a reduce_scatter: the values of each worker of this node. */
static void find_scattered(TensorFlow *flow)
{
    TensorCombining *const it = flow->combining;
    const TensorFlowPlan *const plan = &flow->plan;
    const uint64_t n_rows = tensor_request_rows(&flow->request);
    const uint64_t row_values = tensor_request_row_bytes(&flow->request) / it->size;
    uint64_t end = tensor_segment_begin(&it->segments, plan->self);

    it->output_begins = g_new0(uint64_t, flow->n_local);
    it->output_ends = g_new0(uint64_t, flow->n_local);
    for (uint32_t i = 0; i < flow->n_local; i++) {
        it->output_begins[i] = end;
        end += row_values *
               rubato_reduce_scatter_rows(n_rows, plan->n_ranks, plan->first_ranks[plan->self] + i);
        it->output_ends[i] = end;
    }
}

static void cut(TensorFlow *flow)
{
    TensorCombining *const it = flow->combining;

    combining_cut(&flow->plan, &flow->request, it->is_whole, &it->segments);
    if (flow->request.operation == TENSOR_REDUCE_SCATTER)
        find_scattered(flow);
    it->chunks = g_new0(CombiningChunk, tensor_segments_chunks(&it->segments) + 1);
}

/* Of these chunks of this node those are combined now that have all parts. */
static void add_combines(TensorFlow *flow, TensorChunks chunks)
{
    const TensorCombining *const it = flow->combining;
    const TensorSteps which =
        it->has_results ? TENSOR_STEPS_OF_MESSAGES : TENSOR_STEPS_WITHOUT_ROOM;

    for (uint32_t i = 0, n; i < chunks.n; i += MAX(n, 1)) {
        for (n = 0; i + n < chunks.n && n < it->most_chunks; n++)
            if (it->chunks[chunks.first + i + n].n_missing > 0)
                break;
        if (n > 0)
            tensor_flow_add_step(
                flow, which,
                &(TensorStep){ .what = STEP_COMBINE, .place = chunks.first + i, .n = n });
    }
}

/* What has to be done for a chunk of this node, and what for one of another node. */
static void expect(TensorFlow *flow, uint64_t chunk)
{
    TensorCombining *const it = flow->combining;
    const uint32_t n_nodes = flow->plan.n_nodes, self = flow->plan.self;
    CombiningChunk *const one = &it->chunks[chunk];
    const bool sends = contributes(flow, self) && chunk >= it->n_ahead;

    if (!is_own(flow, chunk)) {
        flow->n_left += sends;
        if (it->has_results && !(it->is_broadcast && it->root == self)) {
            flow->n_left++;
            flow->n_awaited[tensor_segment_of(&it->segments, chunk)]++;
        }
        return;
    }
    one->owners = g_new0(CombiningParts *, n_nodes);
    one->parts = g_new0(const void *, n_nodes);
    for (uint32_t node = 0; node < n_nodes; node++)
        if (node != self && contributes(flow, node)) {
            one->n_missing++;
            flow->n_awaited[node]++;
        }
    flow->n_left++;
    if (it->is_whole && sends) {
        one->n_missing++;
        flow->n_left++;
    }
}

/* Of compressed values results depend on it, so nothing but their size decides. */
static TensorWay find_way(TensorFlow *flow, uint64_t n_bytes)
{
    const TensorCombining *const it = flow->combining;

    if (flow->request.operation == TENSOR_ALLREDUCE && flow->plan.cutovers != NULL &&
        it->compression == RUBATO_COMPRESSION_NONE) {
        flow->size_class = tensor_class_of(n_bytes);
        return tensor_cutovers_way(*flow->plan.cutovers, flow->size_class);
    }
    return combining_is_direct(&flow->request, n_bytes, flow->plan.n_nodes) ? TENSOR_WAY_DIRECT
                                                                            : TENSOR_WAY_SHARES;
}

static bool overlaps(const uint8_t *input, const uint8_t *output, size_t n_bytes)
{
    return (uintptr_t)input < (uintptr_t)output + n_bytes &&
           (uintptr_t)output < (uintptr_t)input + n_bytes;
}

/* Which messages may be sent from where their values lie: parts that are the input of a worker, to
 * whose memory no result is written, and results, which are in an output as they travel, and which
 * nothing changes there. Of several tensors a message has values from several places. */
static void find_readers(TensorFlow *flow, size_t n_bytes)
{
    TensorCombining *const it = flow->combining;
    uint32_t first = 0;

    if (flow->request.operation != TENSOR_ALLREDUCE || it->n_tensors > 1 ||
        it->compression != RUBATO_COMPRESSION_NONE)
        return;
    while (flow->plan.parts[first] == NULL)
        first++;
    it->result_readers = flow->plan.parts[first]->readers;
    /* if a part is simply an input, there is one worker, and one output */
    if (!it->has_parts && !overlaps(it->inputs[0], it->outputs[0], n_bytes))
        it->part_readers = it->result_readers;
}

/* How many chunks this node sends in one message. What others send has as many as they like. */
static uint32_t most_chunks(const TensorFlow *flow)
{
    const TensorCombining *const it = flow->combining;

    /* a part that is compressed once for all is kept by chunk */
    if (it->is_whole && it->compression != RUBATO_COMPRESSION_NONE)
        return 1;
    return tensor_flow_most_pieces(flow,
                                   COMBINING_CHUNK_VALUES * MAX(it->part_size, it->result_size));
}

/* How many chunks were sent before: of a segment for each node, all. */
static uint64_t find_ahead(const TensorFlow *flow)
{
    const TensorCombining *const it = flow->combining;
    const uint64_t n_values = it->is_whole ? combining_values_ahead(&flow->request) : UINT64_MAX;
    const uint64_t n_chunks = tensor_segments_chunks(&it->segments);

    return MIN((n_values - 1) / it->segments.chunk_values + 1, n_chunks);
}

static uint64_t count_sends(const TensorCombining *it)
{
    if (!it->is_whole)
        return it->n_ahead > 0 ? 0 : tensor_segments_sends(&it->segments, it->most_chunks);
    return (it->segments.n_turns - it->n_ahead + it->most_chunks - 1) / it->most_chunks;
}

static void begin(TensorFlow *flow)
{
    TensorCombining *const it = flow->combining = g_new0(TensorCombining, 1);
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
    if (n_values * it->size >= TENSOR_STREAM_BYTES && it->compression == RUBATO_COMPRESSION_NONE)
        it->last.n_streamed = it->n_outputs;
    flow->is_small = n_bytes <= SMALL_BYTES;
    flow->way = find_way(flow, n_bytes);
    if (tensor_way_relays(flow->way))
        return;
    flow->find_place = find_place;
    it->is_whole = flow->way == TENSOR_WAY_DIRECT;
    it->has_results = !it->is_whole && !scatters;
    find_readers(flow, n_values * it->size);
    it->most_chunks = most_chunks(flow);
    cut(flow);
    if (flow->plan.was_sent)
        it->n_ahead = find_ahead(flow);
    if (contributes(flow, flow->plan.self))
        it->n_sends = count_sends(it);
    for (uint64_t chunk = 0; chunk < tensor_segments_chunks(&it->segments); chunk++)
        expect(flow, chunk);
    const uint32_t own = it->is_whole ? 0 : flow->plan.self;
    const uint64_t first = it->segments.first_chunk[own];
    const uint64_t behind = it->segments.first_chunk[own + 1];
    for (uint64_t chunk = first; chunk < behind; chunk += it->most_chunks)
        add_combines(flow, (TensorChunks){ chunk, (uint32_t)MIN(behind - chunk, it->most_chunks) });
}

static void drop_parts(const TensorFlow *flow, CombiningChunk *chunk)
{
    for (uint32_t node = 0; chunk->owners != NULL && node < flow->plan.n_nodes; node++) {
        CombiningParts *const parts = chunk->owners[node];

        chunk->owners[node] = NULL;
        if (parts == NULL || --parts->n_chunks > 0)
            continue;
        tensor_flow_drop(flow, parts->owner);
        g_free(parts);
    }
}

static void end(TensorFlow *flow)
{
    TensorCombining *const it = flow->combining;

    for (uint64_t chunk = 0; it->chunks != NULL && chunk < tensor_segments_chunks(&it->segments);
         chunk++) {
        CombiningChunk *const one = &it->chunks[chunk];

        drop_parts(flow, one);
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
    uint32_t n = 0;

    const char *const wrong = check_result(flow, from, message, &n);
    if (wrong != NULL)
        return wrong;
    for (uint32_t i = 0; i < n; i++)
        it->chunks[message->place + i].has_come = true;
    flow->n_awaited[from] -= n;
    tensor_flow_add_step(flow, TENSOR_STEPS_WITHOUT_ROOM,
                         &(TensorStep){ .what = STEP_COPY,
                                        .place = message->place,
                                        .n = n,
                                        .message = owner,
                                        .bytes = message->bytes,
                                        .n_bytes = message->n_bytes });
    return NULL;
}

static void lower_missing(TensorFlow *flow, TensorChunks chunks)
{
    for (uint32_t i = 0; i < chunks.n; i++)
        flow->combining->chunks[chunks.first + i].n_missing--;
    add_combines(flow, chunks);
}

/* The parts of some chunks, of which none has come. */
static void take_parts(TensorFlow *flow, uint32_t from, const TensorMessage *message, void *owner,
                       uint32_t n)
{
    TensorCombining *const it = flow->combining;
    CombiningChunk *const chunks = &it->chunks[message->place];
    const uint8_t *bytes = message->bytes;
    bool stays = it->has_results;

    for (uint32_t i = 0; i < n; i++)
        stays |= chunks[i].n_missing > 1;
    if (stays) {
        const void *kept = bytes;

        owner = tensor_flow_keep(flow, owner, &kept);
        bytes = kept;
    }
    if (owner == NULL)
        return;
    CombiningParts *const parts = g_new(CombiningParts, 1);
    *parts = (CombiningParts){ owner, n };
    for (uint32_t i = 0; i < n; i++) {
        chunks[i].owners[from] = parts;
        chunks[i].parts[from] = bytes + (size_t)i * it->segments.chunk_values * it->part_size;
    }
    flow->n_awaited[from] -= n;
    lower_missing(flow, (TensorChunks){ message->place, n });
}

static const char *take(TensorFlow *flow, uint32_t from, const TensorMessage *message, void *owner)
{
    uint32_t n = 0;

    if (message->place >= tensor_segments_chunks(&flow->combining->segments))
        return "a piece of a tensor behind its end";
    if (message->kind == TENSOR_MESSAGE_RESULT)
        return take_result(flow, from, message, owner);
    const char *const wrong = check_parts(flow, from, message, &n);
    if (wrong == NULL)
        take_parts(flow, from, message, owner, n);
    return wrong;
}

/* ---- steps ---- */

/* The chunks that step n sends. False: it sends none. */
static bool nth_send(const TensorFlow *flow, uint64_t n, TensorChunks *chunks)
{
    const TensorCombining *const it = flow->combining;

    if (!it->is_whole)
        return tensor_segments_nth_send(&it->segments, flow->plan.self, n, it->most_chunks, chunks);
    const uint64_t first = it->n_ahead + n * it->most_chunks;
    const uint64_t n_left = tensor_segments_chunks(&it->segments) - first;

    *chunks = (TensorChunks){ first, (uint32_t)MIN(n_left, it->most_chunks) };
    return true;
}

static bool has_next(const TensorFlow *flow)
{
    TensorChunks chunks;

    for (uint64_t n = flow->combining->next_send; n < flow->combining->n_sends; n++)
        if (nth_send(flow, n, &chunks))
            return true;
    return false;
}

static bool next(TensorFlow *flow, TensorStep *step)
{
    TensorCombining *const it = flow->combining;

    TensorChunks chunks;

    while (it->next_send < it->n_sends)
        if (nth_send(flow, it->next_send++, &chunks)) {
            *step = (TensorStep){ .what = STEP_SEND, .place = chunks.first, .n = chunks.n };
            return true;
        }
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

/* The first value of the step's chunks, and how many they have. */
static uint64_t values_of(const TensorCombining *it, const TensorStep *step, uint64_t *n_values)
{
    uint64_t end;
    const uint64_t begin = tensor_chunk_begin(&it->segments, step->place, &end);

    (void)tensor_chunk_begin(&it->segments, step->place + step->n - 1, &end);
    *n_values = end - begin;
    return begin;
}

static bool send_part(TensorFlow *flow, const TensorStep *step)
{
    const TensorCombining *const it = flow->combining;
    g_autoptr(GArray) messages = g_array_new(FALSE, FALSE, sizeof(TensorOutgoing));
    uint64_t n_values;
    const uint64_t begin_value = values_of(it, step, &n_values);

    /* a second rounding would have another residual */
    CombiningChunk *const chunk = &it->chunks[step->place];
    const bool keeps = it->is_whole && it->compression != RUBATO_COMPRESSION_NONE;
    if (keeps && (chunk->own = g_try_malloc(n_values * it->part_size)) == NULL)
        return false;
    const uint8_t *const lent =
        it->part_readers == NULL ? NULL : it->inputs[0] + begin_value * it->size;
    if (!tensor_flow_lend_messages(flow, step, TENSOR_MESSAGE_PART, lent, n_values * it->part_size,
                                   it->part_readers, messages))
        return false;
    g_autofree void **outputs = g_new(void *, messages->len + 1);
    uint32_t n_outputs = tensor_flow_places_of(messages, outputs);
    if (keeps)
        outputs[n_outputs++] = chunk->own;
    if (n_outputs > 0)
        combining_make_part(flow, begin_value, n_values, outputs, n_outputs);
    tensor_flow_send_messages(flow, messages);
    if (it->is_broadcast && !it->is_whole)
        combining_copy_out(flow, begin_value, it->inputs[0] + begin_value * it->size,
                           n_values * it->size);
    return true;
}

/* A chunk of a broadcast goes to this node's workers, and to where it is sent from. */
static void pass_on(const TensorFlow *flow, uint64_t chunk, void *const *sent, uint32_t n_sent)
{
    const TensorCombining *const it = flow->combining;
    uint64_t end_value;
    const uint64_t begin_value = tensor_chunk_begin(&it->segments, chunk, &end_value);
    const size_t n_bytes = (end_value - begin_value) * it->size;
    const void *const values = it->root == flow->plan.self ? it->inputs[0] + begin_value * it->size
                                                           : it->chunks[chunk].parts[it->root];

    for (uint32_t i = 0; i < n_sent; i++)
        memcpy(sent[i], values, n_bytes);
    combining_copy_out(flow, begin_value, values, n_bytes);
}

static bool combine_chunk(TensorFlow *flow, uint64_t number, void *const *sent, uint32_t n_sent,
                          bool sends_output)
{
    CombiningChunk *const chunk = &flow->combining->chunks[number];
    uint64_t end;
    const uint64_t begin = tensor_chunk_begin(&flow->combining->segments, number, &end);

    chunk->parts[flow->plan.self] = chunk->own;
    return combining_combine_parts(
        flow, begin, end - begin,
        &(CombiningInputs){ chunk->parts, flow->plan.n_nodes, flow->plan.self, sends_output }, sent,
        n_sent);
}

static bool combine(TensorFlow *flow, const TensorStep *step)
{
    const TensorCombining *const it = flow->combining;
    g_autoptr(GArray) messages = g_array_new(FALSE, FALSE, sizeof(TensorOutgoing));
    uint64_t n_values;
    bool ok = true;

    const uint64_t begin_value = values_of(it, step, &n_values);
    const uint8_t *const lent =
        it->result_readers == NULL ? NULL : it->outputs[0] + begin_value * it->size;
    if (!tensor_flow_lend_messages(flow, step, TENSOR_MESSAGE_RESULT, lent,
                                   n_values * it->result_size, it->result_readers, messages))
        return false;
    g_autofree void **places = g_new(void *, messages->len);
    g_autofree void **sent = g_new(void *, messages->len);
    const uint32_t n_sent = tensor_flow_places_of(messages, places);
    for (uint32_t i = 0; ok && i < step->n; i++) {
        const uint64_t values_before = i * it->segments.chunk_values;

        for (uint32_t k = 0; k < n_sent; k++)
            sent[k] = (uint8_t *)places[k] + values_before * it->result_size;
        if (it->is_broadcast)
            pass_on(flow, step->place + i, sent, n_sent);
        else
            ok = combine_chunk(flow, step->place + i, sent, n_sent, tensor_flow_any_lent(messages));
    }
    if (ok)
        tensor_flow_send_messages(flow, messages);
    else
        tensor_flow_forget_messages(flow, messages);
    return ok;
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
        combining_copy_out(flow, tensor_chunk_begin(&it->segments, step->place, &end_value),
                           step->bytes, step->n_bytes);
        return true;
    }
}

static void did(TensorFlow *flow, const TensorStep *step)
{
    TensorCombining *const it = flow->combining;

    if (step->what == STEP_SEND && it->is_whole)
        lower_missing(flow, (TensorChunks){ step->place, step->n });
    for (uint32_t i = 0; step->what == STEP_COMBINE && i < step->n; i++)
        drop_parts(flow, &it->chunks[step->place + i]);
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
