/* The flow of an allreduce by Adasum: see tensor_flow.h.
 *
 * A node sends the values of its workers to the nodes whose segments they are of (STEP_SEND). Once
 * a chunk of its own segment has all parts, it computes the dots there (STEP_DOTS). Once it has
 * done so for all of them, it adds these up (STEP_ADD), and tells the others the sums, piece by
 * piece (STEP_TELL). When it has told them and knows the dots of all segments, it computes the
 * weights (STEP_WEIGH); then it combines its chunks and sends the results (STEP_COMBINE), and
 * copies those of the others (STEP_COPY).
 *
 * Dots are added up in the order of the chunks, and then of the segments, whatever came first: so
 * all nodes have the same weights, in each run.
 *
 * Input and output may be the same array. The result of another node's chunk comes behind the dots
 * of its segment, and so behind the step that sent its inputs; what a node's own segment has is
 * read block by block before it is written.
 *
 * A worker that has joined has a vector of zeros: each vector keeps its place among the pairs. */
#include "engine/collectives/flow/tensor_flow_private.h"

#include <string.h>

#include "engine/collectives/flow/tensor_segments.h"
#include "engine/collectives/work/tensor_adasum.h"

enum {
    MOST_CHUNK_VALUES = 16 << 10,
    PART_BYTES = 1 << 20,   /* of a message, about; at most */
    PIECE_DOTS = 16 << 10,  /* of a message */
    SMALL_BYTES = 32 << 10, /* of all workers, whose steps any thread does at once */
};

enum { STEP_SEND, STEP_DOTS, STEP_ADD, STEP_TELL, STEP_WEIGH, STEP_COMBINE, STEP_COPY };

typedef struct {
    bool has_come; /* its result */

    /* of this node's segment */
    uint32_t n_missing; /* parts */
    void **owners;      /* by node: the message with its part; NULL: it has not come */
    const void **parts; /* by node: where it is: the values of each worker in turn */
    double *dots;
} Chunk;

/* What a segment has. */
typedef struct {
    double *values;
    uint8_t *has_come; /* by piece; NULL: none has */
} Dots;

struct TensorWeighting {
    size_t size;
    TensorSegments segments;
    Chunk *chunks;
    uint64_t next_send, n_sends; /* steps that send: tensor_segments_nth_send */

    uint64_t n_dots, n_pieces; /* dots of a segment, and the messages that have them */
    uint64_t n_without_dots;   /* chunks of this node */
    uint64_t n_missing;        /* pieces of the other nodes, and those that this one has to tell */
    Dots *dots;                /* by node */
    double *weights;           /* by rank */
};

/* ---- making ---- */

static uint64_t chunk_values(const TensorFlow *flow)
{
    uint32_t most_local = 1;

    for (uint32_t node = 0; node < flow->plan.n_nodes; node++)
        most_local = MAX(most_local, flow->plan.n_ranks_of[node]);
    return CLAMP(PART_BYTES / (most_local * flow->weighting->size), 1, MOST_CHUNK_VALUES);
}

static uint64_t pieces_of(uint64_t n_dots)
{
    return (n_dots + PIECE_DOTS - 1) / PIECE_DOTS;
}

/* Adds a step that computes, which is left to the threads that wait. */
static void add_long(TensorFlow *flow, uint32_t what, uint64_t chunk)
{
    tensor_flow_add_step(flow, TENSOR_STEPS_ALL, &(TensorStep){ .what = what, .place = chunk });
}

/* What has to be done for a chunk. */
static void expect(TensorFlow *flow, uint64_t number)
{
    TensorWeighting *const it = flow->weighting;
    const uint32_t n_nodes = flow->plan.n_nodes, self = flow->plan.self;
    const uint32_t segment = tensor_segment_of(&it->segments, number);
    Chunk *const chunk = &it->chunks[number];

    flow->n_left += 2;
    if (segment != self) {
        flow->n_awaited[segment]++;
        return;
    }
    it->n_without_dots++;
    chunk->n_missing = n_nodes - 1;
    chunk->owners = g_new0(void *, n_nodes);
    chunk->parts = g_new0(const void *, n_nodes);
    for (uint32_t node = 0; node < n_nodes; node++)
        flow->n_awaited[node] += node != self;
}

static void begin(TensorFlow *flow)
{
    TensorWeighting *const it = flow->weighting = g_new0(TensorWeighting, 1);
    const uint32_t n_nodes = flow->plan.n_nodes, n_ranks = flow->plan.n_ranks;
    const uint64_t n_values = tensor_request_values(&flow->request);

    it->size = rubato_dtype_size(flow->request.dtype);
    it->n_dots = tensor_adasum_n_dots(n_ranks);
    flow->is_small =
        n_values <= SMALL_BYTES / it->size / n_ranks && it->n_dots <= SMALL_BYTES / sizeof(double);
    tensor_segments_init(&it->segments, n_nodes, chunk_values(flow));
    tensor_segments_share(&it->segments, n_values);
    tensor_segments_number(&it->segments);
    it->chunks = g_new0(Chunk, tensor_segments_chunks(&it->segments) + 1);
    it->dots = g_new0(Dots, n_nodes);
    if (n_values == 0)
        return; /* nothing is left to do */
    it->n_sends = tensor_segments_sends(&it->segments, 1);
    it->n_pieces = pieces_of(it->n_dots);
    it->n_missing = it->n_pieces * n_nodes;
    flow->n_left = 2 + it->n_pieces; /* to add up, to weigh, and to tell */
    for (uint32_t node = 0; node < n_nodes; node++)
        flow->n_awaited[node] = node == flow->plan.self ? 0 : it->n_pieces;
    for (uint64_t chunk = 0; chunk < tensor_segments_chunks(&it->segments); chunk++)
        expect(flow, chunk);
    if (it->n_without_dots == 0)
        add_long(flow, STEP_ADD, 0);
}

static void end(TensorFlow *flow)
{
    TensorWeighting *const it = flow->weighting;

    for (uint64_t i = 0; i < tensor_segments_chunks(&it->segments); i++) {
        Chunk *const chunk = &it->chunks[i];

        for (uint32_t node = 0; chunk->owners != NULL && node < flow->plan.n_nodes; node++)
            tensor_flow_drop(flow, chunk->owners[node]);
        g_free(chunk->owners);
        g_free(chunk->parts);
        g_free(chunk->dots);
    }
    for (uint32_t node = 0; node < flow->plan.n_nodes; node++) {
        g_free(it->dots[node].values);
        g_free(it->dots[node].has_come);
    }
    g_free(it->chunks);
    g_free(it->dots);
    g_free(it->weights);
    tensor_segments_clear(&it->segments);
    g_free(it);
}

/* ---- what comes ---- */

static const char *take_part(TensorFlow *flow, uint32_t from, const TensorMessage *message,
                             void *owner)
{
    TensorWeighting *const it = flow->weighting;
    Chunk *const chunk = &it->chunks[message->place];
    uint64_t end_value;
    const uint64_t begin_value = tensor_chunk_begin(&it->segments, message->place, &end_value);

    if (chunk->owners == NULL)
        return "a piece of a tensor that is not for this node";
    if (message->n_bytes != (end_value - begin_value) * it->size * flow->plan.n_ranks_of[from])
        return "a piece of a tensor of a wrong size";
    if (chunk->n_missing == 0 || chunk->owners[from] != NULL)
        return "a piece of a tensor twice";
    chunk->parts[from] = message->bytes;
    chunk->owners[from] = tensor_flow_keep(flow, owner, &chunk->parts[from]);
    if (chunk->owners[from] == NULL)
        return NULL;
    flow->n_awaited[from]--;
    if (--chunk->n_missing == 0)
        add_long(flow, STEP_DOTS, message->place);
    return NULL;
}

static const char *take_result(TensorFlow *flow, uint32_t from, const TensorMessage *message,
                               void *owner)
{
    TensorWeighting *const it = flow->weighting;
    Chunk *const chunk = &it->chunks[message->place];
    uint64_t end_value;
    const uint64_t begin_value = tensor_chunk_begin(&it->segments, message->place, &end_value);

    if (tensor_segment_of(&it->segments, message->place) != from)
        return "the result of a tensor that is not its own";
    if (message->n_bytes != (end_value - begin_value) * it->size)
        return "the result of a tensor of a wrong size";
    if (chunk->has_come)
        return "a result of a tensor twice";
    chunk->has_come = true;
    flow->n_awaited[from]--;
    tensor_flow_add_step(flow, TENSOR_STEPS_WITHOUT_ROOM,
                         &(TensorStep){ .what = STEP_COPY,
                                        .place = message->place,
                                        .message = owner,
                                        .bytes = message->bytes,
                                        .n_bytes = message->n_bytes });
    return NULL;
}

static void lower_missing(TensorFlow *flow)
{
    if (--flow->weighting->n_missing == 0)
        add_long(flow, STEP_WEIGH, 0);
}

static const char *take_dots(TensorFlow *flow, uint32_t from, const TensorMessage *message,
                             void *owner)
{
    TensorWeighting *const it = flow->weighting;
    Dots *const dots = &it->dots[from];

    if (message->place >= it->n_pieces)
        return "dots of a tensor behind their end";
    const uint64_t first = message->place * PIECE_DOTS;
    if (message->n_bytes != MIN(it->n_dots - first, PIECE_DOTS) * sizeof(double))
        return "dots of a tensor of a wrong size";
    if (dots->has_come == NULL) {
        dots->values = g_try_new(double, it->n_dots);
        dots->has_come = g_try_new0(uint8_t, it->n_pieces);
    }
    if (dots->has_come != NULL && dots->has_come[message->place])
        return "dots of a tensor twice";
    if (dots->has_come == NULL || dots->values == NULL) {
        tensor_flow_fail_here(flow, NULL);
    } else {
        dots->has_come[message->place] = true;
        memcpy(dots->values + first, message->bytes, message->n_bytes);
        flow->n_awaited[from]--;
        lower_missing(flow);
    }
    tensor_flow_drop(flow, owner);
    return NULL;
}

static const char *take(TensorFlow *flow, uint32_t from, const TensorMessage *message, void *owner)
{
    if (message->kind == TENSOR_MESSAGE_DOTS)
        return take_dots(flow, from, message, owner);
    if (message->place >= tensor_segments_chunks(&flow->weighting->segments))
        return "a piece of a tensor behind its end";
    if (message->kind == TENSOR_MESSAGE_PART)
        return take_part(flow, from, message, owner);
    if (message->kind == TENSOR_MESSAGE_RESULT)
        return take_result(flow, from, message, owner);
    return "a piece of a tensor that is not for this node";
}

/* ---- steps ---- */

static bool has_next(const TensorFlow *flow)
{
    const TensorWeighting *const it = flow->weighting;
    TensorChunks chunks;

    for (uint64_t n = it->next_send; n < it->n_sends; n++)
        if (tensor_segments_nth_send(&it->segments, flow->plan.self, n, 1, &chunks))
            return true;
    return false;
}

static bool next(TensorFlow *flow, TensorStep *step)
{
    TensorWeighting *const it = flow->weighting;

    TensorChunks chunks;

    while (it->next_send < it->n_sends)
        if (tensor_segments_nth_send(&it->segments, flow->plan.self, it->next_send++, 1, &chunks)) {
            *step = (TensorStep){ .what = STEP_SEND, .place = chunks.first };
            return true;
        }
    return false;
}

static bool sends_to(const TensorFlow *flow, const TensorStep *step, uint32_t to)
{
    return step->what == STEP_TELL || step->what == STEP_COMBINE ||
           (step->what == STEP_SEND &&
            tensor_segment_of(&flow->weighting->segments, step->place) == to);
}

/* Values of a worker of this node; NULL: it has joined. */
static const uint8_t *own_values(const TensorFlow *flow, uint32_t local, uint64_t begin_value)
{
    const TensorPart *const part = flow->plan.parts[local];

    return part == NULL ? NULL : (const uint8_t *)part->input + begin_value * flow->weighting->size;
}

static bool send_part(TensorFlow *flow, const TensorStep *step)
{
    const TensorWeighting *const it = flow->weighting;
    g_autoptr(GArray) messages = g_array_new(FALSE, FALSE, sizeof(TensorOutgoing));
    uint64_t end_value;
    const uint64_t begin_value = tensor_chunk_begin(&it->segments, step->place, &end_value);
    const size_t n_bytes = (end_value - begin_value) * it->size;

    if (!tensor_flow_begin_messages(flow, step, TENSOR_MESSAGE_PART, n_bytes * flow->n_local,
                                    messages))
        return false;
    uint8_t *const to = g_array_index(messages, TensorOutgoing, 0).bytes;
    for (uint32_t local = 0; local < flow->n_local; local++) {
        const uint8_t *const values = own_values(flow, local, begin_value);

        if (values != NULL)
            memcpy(to + local * n_bytes, values, n_bytes);
        else
            memset(to + local * n_bytes, 0, n_bytes);
    }
    tensor_flow_send_messages(flow, messages);
    return true;
}

/* The values of a chunk of all workers, by rank; NULL: it has joined. (transfer container) */
static const void **find_vectors(const TensorFlow *flow, const Chunk *chunk, uint64_t begin_value,
                                 uint64_t n_values)
{
    const TensorFlowPlan *const plan = &flow->plan;
    const void **const vectors = g_new0(const void *, plan->n_ranks);

    for (uint32_t node = 0; node < plan->n_nodes; node++)
        for (uint32_t i = 0; i < plan->n_ranks_of[node]; i++)
            vectors[plan->first_ranks[node] + i] =
                node == plan->self
                    ? own_values(flow, i, begin_value)
                    : (const uint8_t *)chunk->parts[node] + i * n_values * flow->weighting->size;
    return vectors;
}

static bool compute_dots(const TensorFlow *flow, const TensorStep *step)
{
    const TensorWeighting *const it = flow->weighting;
    Chunk *const chunk = &it->chunks[step->place];
    uint64_t end_value;
    const uint64_t begin_value = tensor_chunk_begin(&it->segments, step->place, &end_value);
    const uint64_t n_values = end_value - begin_value;
    g_autofree const void **vectors = find_vectors(flow, chunk, begin_value, n_values);

    chunk->dots = g_try_new0(double, it->n_dots);
    if (chunk->dots == NULL)
        return false;
    tensor_adasum_add_dots(flow->request.dtype, vectors, flow->plan.n_ranks, 0, n_values,
                           chunk->dots);
    return true;
}

static void add_dots(double *sums, const double *dots, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        sums[i] += dots[i];
}

static bool add_up(const TensorFlow *flow)
{
    const TensorWeighting *const it = flow->weighting;
    const uint32_t self = flow->plan.self;
    Dots *const own = &it->dots[self];

    own->values = g_try_new0(double, it->n_dots);
    if (own->values == NULL)
        return false;
    for (uint64_t i = it->segments.first_chunk[self]; i < it->segments.first_chunk[self + 1]; i++) {
        add_dots(own->values, it->chunks[i].dots, it->n_dots);
        g_clear_pointer(&it->chunks[i].dots, g_free);
    }
    return true;
}

static bool tell(TensorFlow *flow, const TensorStep *step)
{
    const TensorWeighting *const it = flow->weighting;
    const uint64_t first = step->place * PIECE_DOTS;
    const size_t n_bytes = MIN(it->n_dots - first, PIECE_DOTS) * sizeof(double);
    g_autoptr(GArray) messages = g_array_new(FALSE, FALSE, sizeof(TensorOutgoing));

    if (!tensor_flow_begin_messages(flow, step, TENSOR_MESSAGE_DOTS, n_bytes, messages))
        return false;
    for (guint i = 0; i < messages->len; i++)
        memcpy(g_array_index(messages, TensorOutgoing, i).bytes,
               it->dots[flow->plan.self].values + first, n_bytes);
    tensor_flow_send_messages(flow, messages);
    return true;
}

static bool weigh(const TensorFlow *flow)
{
    TensorWeighting *const it = flow->weighting;
    const RubatoReduce *const reduce = &flow->request.reduce;
    g_autofree double *sums = g_try_new0(double, it->n_dots);

    it->weights = g_try_new(double, flow->plan.n_ranks);
    if (sums == NULL || it->weights == NULL)
        return false;
    for (uint32_t node = 0; node < flow->plan.n_nodes; node++) {
        add_dots(sums, it->dots[node].values, it->n_dots);
        g_clear_pointer(&it->dots[node].values, g_free);
    }
    tensor_adasum_weigh(sums, flow->plan.n_ranks, reduce->prescale * reduce->postscale,
                        it->weights);
    return true;
}

static bool combine(TensorFlow *flow, const TensorStep *step)
{
    const TensorWeighting *const it = flow->weighting;
    g_autoptr(GArray) messages = g_array_new(FALSE, FALSE, sizeof(TensorOutgoing));
    uint64_t end_value;
    const uint64_t begin_value = tensor_chunk_begin(&it->segments, step->place, &end_value);
    const uint64_t n_values = end_value - begin_value;

    if (!tensor_flow_begin_messages(flow, step, TENSOR_MESSAGE_RESULT, n_values * it->size,
                                    messages))
        return false;
    g_autofree const void **vectors =
        find_vectors(flow, &it->chunks[step->place], begin_value, n_values);
    g_autofree void **outputs = g_new(void *, messages->len + flow->n_local);
    uint32_t n = tensor_flow_places_of(messages, outputs);
    for (uint32_t local = 0; local < flow->n_local; local++)
        if (flow->plan.parts[local] != NULL)
            outputs[n++] = (uint8_t *)flow->plan.parts[local]->output + begin_value * it->size;
    tensor_adasum_combine(flow->request.dtype, vectors, flow->plan.n_ranks, it->weights, outputs, n,
                          0, n_values);
    tensor_flow_send_messages(flow, messages);
    return true;
}

static void copy_result(const TensorFlow *flow, const TensorStep *step)
{
    const TensorWeighting *const it = flow->weighting;
    uint64_t end_value;
    const uint64_t begin_value = tensor_chunk_begin(&it->segments, step->place, &end_value);

    for (uint32_t local = 0; local < flow->n_local; local++)
        if (flow->plan.parts[local] != NULL)
            memcpy((uint8_t *)flow->plan.parts[local]->output + begin_value * it->size, step->bytes,
                   step->n_bytes);
}

static bool run(TensorFlow *flow, const TensorStep *step)
{
    switch (step->what) {
    case STEP_SEND:
        return send_part(flow, step);
    case STEP_DOTS:
        return compute_dots(flow, step);
    case STEP_ADD:
        return add_up(flow);
    case STEP_TELL:
        return tell(flow, step);
    case STEP_WEIGH:
        return weigh(flow);
    case STEP_COMBINE:
        return combine(flow, step);
    default:
        copy_result(flow, step);
        return true;
    }
}

/* The chunk is combined: what came for it is not needed any more. */
static void drop_parts(const TensorFlow *flow, Chunk *chunk)
{
    for (uint32_t node = 0; node < flow->plan.n_nodes; node++) {
        tensor_flow_drop(flow, chunk->owners[node]);
        chunk->owners[node] = NULL;
    }
}

static void did(TensorFlow *flow, const TensorStep *step)
{
    TensorWeighting *const it = flow->weighting;
    const uint64_t *const first = &it->segments.first_chunk[flow->plan.self];

    switch (step->what) {
    case STEP_DOTS:
        if (--it->n_without_dots == 0)
            add_long(flow, STEP_ADD, 0);
        break;
    case STEP_ADD:
        for (uint64_t piece = 0; piece < it->n_pieces; piece++)
            add_long(flow, STEP_TELL, piece);
        break;
    case STEP_TELL:
        lower_missing(flow);
        break;
    case STEP_WEIGH:
        for (uint64_t chunk = first[0]; chunk < first[1]; chunk++)
            add_long(flow, STEP_COMBINE, chunk);
        break;
    case STEP_COMBINE:
        drop_parts(flow, &it->chunks[step->place]);
        break;
    default:
        break;
    }
}

const TensorFlowOps tensor_weighting_ops = {
    .begin = begin,
    .end = end,
    .take = take,
    .next = next,
    .has_next = has_next,
    .sends_to = sends_to,
    .run = run,
    .did = did,
};
