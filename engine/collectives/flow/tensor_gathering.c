/* The flow of allgather and alltoall: see tensor_flow.h.
 *
 * What one node sends to another is a stream of blocks: the rows from each of its workers, and in
 * an alltoall to each of the other node's workers in turn. It is cut into pieces of PIECE_BYTES.
 * SIZES have the number of rows of each block, in pieces of PIECE_SIZES. Once all nodes have sent
 * theirs, the arrays are allocated; pieces that came before are kept until then. */
#include "engine/collectives/flow/tensor_flow_private.h"

#include <rubato/error.h>
#include <string.h>

#include "engine/collectives/work/tensor_gathered.h"

enum {
    PIECE_BYTES = 128 << 10,
    PIECE_SIZES = PIECE_BYTES / sizeof(uint64_t),
    MOST_COPIED_BYTES = 2 * TENSOR_AHEAD_BYTES, /* before it is decided, to all nodes together */
};

G_STATIC_ASSERT((int)TENSOR_AHEAD_BYTES <= (int)PIECE_BYTES);

enum { STEP_SIZES, STEP_SEND, STEP_LOCAL, STEP_COPY };

/* Of each other node. */
typedef struct {
    uint64_t *rows;           /* by block: those that come; NULL: none of its SIZES has come */
    uint8_t *sizes_have_come; /* by piece of them */
    uint64_t n_sizes;         /* pieces of them that have not */
    uint64_t n_in;            /* bytes that come, */
    uint64_t n_pieces_in;
    uint8_t *has_come; /* by piece */
    uint64_t n_out;    /* and that are sent */
    uint64_t n_pieces_out, n_sent;
} Side;

struct TensorGathering {
    bool is_alltoall;
    bool is_sized;     /* this node's SIZES are sent */
    bool is_allocated; /* all SIZES have come */
    uint64_t row_bytes;
    Side *sides;           /* by node */
    uint32_t turn;         /* the node to which a piece goes next, from the one behind this one */
    uint32_t n_sizes;      /* nodes whose SIZES have not come */
    uint64_t **begins;     /* by worker of this node, by rank: the row at which that rank's begin */
    uint64_t **out_begins; /* the same of the rows that it sends in an alltoall */
    GQueue early;          /* of TensorStep: pieces that came before the arrays were allocated */
};

static const TensorPart *part_of(const TensorFlow *flow, uint32_t local)
{
    return flow->plan.parts[local];
}

static uint32_t rank_of(const TensorFlow *flow, uint32_t local)
{
    return flow->plan.first_ranks[flow->plan.self] + local;
}

/* How many workers of the node a block is for: those of an allgather are for all. */
static uint32_t n_receivers(const TensorFlow *flow, uint32_t node)
{
    return flow->gathering->is_alltoall ? flow->plan.n_ranks_of[node] : 1;
}

/* How many blocks come from the node, or go to it: each has a size. */
static uint64_t n_blocks_from(const TensorFlow *flow, uint32_t node)
{
    return (uint64_t)flow->plan.n_ranks_of[node] * n_receivers(flow, flow->plan.self);
}

static uint64_t n_blocks_to(const TensorFlow *flow, uint32_t node)
{
    return (uint64_t)flow->n_local * n_receivers(flow, node);
}

static uint64_t pieces_of_sizes(uint64_t n_blocks)
{
    return (n_blocks + PIECE_SIZES - 1) / PIECE_SIZES;
}

/* Rows that a worker of this node sends to a rank, and those before them in its input. */
static uint64_t rows_to(const TensorFlow *flow, uint32_t local, uint32_t rank, uint64_t *before)
{
    const TensorPart *const part = part_of(flow, local);

    *before = 0;
    if (!flow->gathering->is_alltoall)
        return tensor_request_rows(&part->request);
    *before = flow->gathering->out_begins[local][rank];
    return part->splits[rank];
}

static uint64_t n_pieces(uint64_t n_bytes)
{
    return (n_bytes + PIECE_BYTES - 1) / PIECE_BYTES;
}

/* ---- making ---- */

/* Each piece asks for those of all its node's blocks. So they are added up once, and not for each
 * block again. */
static void find_out_begins(const TensorFlow *flow)
{
    const uint32_t n_ranks = flow->plan.n_ranks;

    for (uint32_t local = 0; local < flow->n_local; local++) {
        uint64_t *const begins = flow->gathering->out_begins[local] = g_new(uint64_t, n_ranks);
        uint64_t n = 0;

        for (uint32_t rank = 0; rank < n_ranks; rank++) {
            begins[rank] = n;
            n += part_of(flow, local)->splits[rank];
        }
    }
}

static void begin(TensorFlow *flow)
{
    TensorGathering *const it = flow->gathering = g_new0(TensorGathering, 1);
    const TensorFlowPlan *const plan = &flow->plan;
    uint64_t before;

    it->is_alltoall = flow->request.operation == TENSOR_ALLTOALL;
    it->row_bytes = tensor_request_row_bytes(&flow->request);
    it->sides = g_new0(Side, plan->n_nodes);
    it->begins = g_new0(uint64_t *, flow->n_local);
    it->out_begins = g_new0(uint64_t *, flow->n_local);
    if (it->is_alltoall)
        find_out_begins(flow);
    it->n_sizes = plan->n_nodes - 1;
    for (uint32_t node = 0; node < plan->n_nodes; node++) {
        Side *const side = &it->sides[node];

        if (node == plan->self)
            continue;
        for (uint32_t from = 0; from < flow->n_local; from++)
            for (uint32_t to = 0; to < n_receivers(flow, node); to++)
                side->n_out +=
                    rows_to(flow, from, plan->first_ranks[node] + to, &before) * it->row_bytes;
        side->n_pieces_out = n_pieces(side->n_out);
        if (plan->was_sent)
            side->n_sent = side->n_pieces_out;
        flow->n_left += side->n_pieces_out - side->n_sent;
        side->n_sizes = pieces_of_sizes(n_blocks_from(flow, node));
        flow->n_awaited[node] = side->n_sizes;
    }
    flow->is_small = false; /* what comes may be more than what is sent */
    it->is_sized = plan->was_sent;
    /* its own SIZES, and the copies between its own workers behind those of the others */
    flow->n_left += !it->is_sized + (uint64_t)flow->n_local * n_receivers(flow, plan->self);
}

/* The rows for a node are one piece: they lie in the input as its workers follow one another. */
bool gathering_ahead(const TensorFlowPlan *plan, uint32_t to, TensorAhead *ahead)
{
    const TensorPart *const part = plan->parts[0];
    const uint64_t row_bytes = tensor_request_row_bytes(&part->request);
    const bool is_alltoall = part->request.operation == TENSOR_ALLTOALL;
    uint64_t n_rows = tensor_request_rows(&part->request), before = 0;
    const uint64_t n_bytes = n_rows * row_bytes;

    *ahead = (TensorAhead){ .kind = TENSOR_MESSAGE_ROWS, .n_rows = n_rows };
    if (n_bytes > TENSOR_AHEAD_BYTES || plan->n_ranks > PIECE_SIZES ||
        (!is_alltoall && n_bytes * (plan->n_nodes - 1) > MOST_COPIED_BYTES))
        return false;
    ahead->n_sizes = is_alltoall ? plan->n_ranks_of[to] : 1;
    ahead->sizes = is_alltoall ? part->splits + plan->first_ranks[to] : &ahead->n_rows;
    if (is_alltoall)
        n_rows = 0;
    for (uint32_t rank = 0; is_alltoall && rank < plan->first_ranks[to]; rank++)
        before += part->splits[rank];
    for (uint32_t i = 0; is_alltoall && i < ahead->n_sizes; i++)
        n_rows += ahead->sizes[i];
    ahead->n_bytes = n_rows * row_bytes;
    if (ahead->n_bytes > 0) /* otherwise there may be no values */
        ahead->bytes = (const uint8_t *)part->input + before * row_bytes;
    return true;
}

static void end(TensorFlow *flow)
{
    TensorGathering *const it = flow->gathering;
    TensorStep *step;

    while ((step = g_queue_pop_head(&it->early)) != NULL) {
        tensor_flow_drop(flow, step->message);
        g_free(step);
    }
    for (uint32_t node = 0; node < flow->plan.n_nodes; node++) {
        g_free(it->sides[node].rows);
        g_free(it->sides[node].sizes_have_come);
        g_free(it->sides[node].has_come);
    }
    for (uint32_t i = 0; i < flow->n_local; i++) {
        g_free(it->begins[i]);
        g_free(it->out_begins[i]);
    }
    g_free(it->begins);
    g_free(it->out_begins);
    g_free(it->sides);
    g_free(it);
}

/* ---- what comes ---- */

/* Rows that come from a rank of that node for a worker of this one. */
static uint64_t rows_from(const TensorFlow *flow, uint32_t node, uint32_t from, uint32_t local)
{
    const TensorGathering *const it = flow->gathering;
    uint64_t before;

    if (node == flow->plan.self)
        return rows_to(flow, from, rank_of(flow, local), &before);
    return it->sides[node].rows[it->is_alltoall ? from * flow->n_local + local : from];
}

/* Allocates what a worker of this node gathers. */
static bool allocate(TensorFlow *flow, uint32_t local)
{
    TensorGathering *const it = flow->gathering;
    RubatoGathered *const result = &flow->plan.parts[local]->result;
    uint64_t n_bytes = 0;
    uint32_t rank = 0;
    bool fits = true;

    result->rows = g_new0(uint64_t, flow->plan.n_ranks);
    it->begins[local] = g_new0(uint64_t, flow->plan.n_ranks);
    for (uint32_t node = 0; node < flow->plan.n_nodes; node++)
        for (uint32_t from = 0; from < flow->plan.n_ranks_of[node]; from++, rank++) {
            it->begins[local][rank] = result->n_rows;
            result->rows[rank] = rows_from(flow, node, from, local);
            fits = fits &&
                   !__builtin_add_overflow(result->n_rows, result->rows[rank], &result->n_rows);
        }
    fits = fits && !__builtin_mul_overflow(result->n_rows, it->row_bytes, &n_bytes);
    if (fits && (n_bytes == 0 ||
                 tensor_gathered_allocate(part_of(flow, local)->gathered_pool, result, n_bytes)))
        return true;
    tensor_flow_fail_here(flow, g_error_new(RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                                            "no memory for %" G_GUINT64_FORMAT
                                            " rows of %" G_GUINT64_FORMAT
                                            " bytes that worker %u would gather",
                                            result->n_rows, it->row_bytes, rank_of(flow, local)));
    return false;
}

/* All sizes are known. */
static void allocate_all(TensorFlow *flow)
{
    TensorGathering *const it = flow->gathering;
    TensorStep *step;

    for (uint32_t local = 0; local < flow->n_local; local++)
        if (!allocate(flow, local))
            return;
    it->is_allocated = true;
    for (uint32_t from = 0; from < flow->n_local; from++)
        for (uint32_t to = 0; to < n_receivers(flow, flow->plan.self); to++)
            tensor_flow_add_step(flow, TENSOR_STEPS_OF_MESSAGES,
                                 &(TensorStep){ .what = STEP_LOCAL, .node = from, .place = to });
    while ((step = g_queue_pop_head(&it->early)) != NULL) {
        tensor_flow_add_step(flow, TENSOR_STEPS_WITHOUT_ROOM, step);
        g_free(step);
    }
}

/* All SIZES of a node have come. NULL, or what is wrong. */
static const char *size_side(TensorFlow *flow, uint32_t from)
{
    TensorGathering *const it = flow->gathering;
    Side *const side = &it->sides[from];
    const uint64_t n = n_blocks_from(flow, from);
    uint64_t n_rows = 0, n_bytes;

    for (uint64_t i = 0; i < n; i++)
        if (__builtin_add_overflow(n_rows, side->rows[i], &n_rows))
            return "sizes of a tensor that cannot be";
    if (__builtin_mul_overflow(n_rows, it->row_bytes, &n_bytes) || n_bytes > INT64_MAX)
        return "sizes of a tensor that cannot be";
    side->n_in = n_bytes;
    side->n_pieces_in = n_pieces(n_bytes);
    side->has_come = g_try_malloc0(side->n_pieces_in + 1);
    if (side->has_come == NULL) {
        tensor_flow_fail_here(flow, NULL);
        return NULL;
    }
    flow->n_left += side->n_pieces_in;
    flow->n_awaited[from] = side->n_pieces_in;
    if (--it->n_sizes == 0)
        allocate_all(flow);
    return NULL;
}

static const char *take_sizes(TensorFlow *flow, uint32_t from, const TensorMessage *message,
                              void *owner)
{
    Side *const side = &flow->gathering->sides[from];
    const uint64_t n = n_blocks_from(flow, from), first = message->place * PIECE_SIZES;
    const char *wrong = NULL;

    if (message->place >= pieces_of_sizes(n))
        return "sizes of a tensor behind their end";
    if (message->n_bytes != MIN(n - first, PIECE_SIZES) * sizeof(uint64_t))
        return "the sizes of a tensor for other workers";
    if (side->rows == NULL) {
        side->rows = g_try_new(uint64_t, n);
        side->sizes_have_come = g_try_new0(uint8_t, pieces_of_sizes(n));
    }
    if (side->sizes_have_come != NULL && side->sizes_have_come[message->place])
        return "the sizes of a tensor twice";
    if (side->rows == NULL || side->sizes_have_come == NULL) {
        tensor_flow_fail_here(flow, NULL);
    } else {
        memcpy(side->rows + first, message->bytes, message->n_bytes);
        side->sizes_have_come[message->place] = true;
        flow->n_awaited[from]--;
        if (--side->n_sizes == 0)
            wrong = size_side(flow, from);
    }
    if (wrong == NULL)
        tensor_flow_drop(flow, owner);
    return wrong;
}

static const char *take_rows(TensorFlow *flow, uint32_t from, const TensorMessage *message,
                             void *owner)
{
    TensorGathering *const it = flow->gathering;
    Side *const side = &it->sides[from];
    TensorStep step = { .what = STEP_COPY,
                        .node = from,
                        .place = message->place,
                        .message = owner,
                        .bytes = message->bytes,
                        .n_bytes = message->n_bytes };

    if (side->has_come == NULL)
        return "rows of a tensor before their sizes";
    if (message->place >= side->n_pieces_in)
        return "rows of a tensor behind its end";
    if (message->n_bytes != MIN(side->n_in - message->place * PIECE_BYTES, PIECE_BYTES))
        return "rows of a tensor of a wrong size";
    if (side->has_come[message->place])
        return "rows of a tensor twice";
    if (!it->is_allocated) {
        const void *bytes = step.bytes;

        step.message = tensor_flow_keep(flow, owner, &bytes);
        step.bytes = bytes;
        if (step.message == NULL)
            return NULL;
        g_queue_push_tail(&it->early, g_memdup2(&step, sizeof step));
    } else {
        tensor_flow_add_step(flow, TENSOR_STEPS_WITHOUT_ROOM, &step);
    }
    side->has_come[message->place] = true;
    flow->n_awaited[from]--;
    return NULL;
}

static const char *take(TensorFlow *flow, uint32_t from, const TensorMessage *message, void *owner)
{
    switch (message->kind) {
    case TENSOR_MESSAGE_SIZES:
        return take_sizes(flow, from, message, owner);
    case TENSOR_MESSAGE_ROWS:
        return take_rows(flow, from, message, owner);
    default:
        return "a piece of a tensor that is not gathered";
    }
}

/* ---- steps that send ---- */

static bool has_next(const TensorFlow *flow)
{
    const TensorGathering *const it = flow->gathering;

    if (!it->is_sized)
        return it->turn == 0;
    for (uint32_t node = 0; node < flow->plan.n_nodes; node++)
        if (it->sides[node].n_sent < it->sides[node].n_pieces_out)
            return true;
    return false;
}

/* First SIZES, which no piece may overtake; then pieces to the other nodes in turn. */
static bool next(TensorFlow *flow, TensorStep *step)
{
    TensorGathering *const it = flow->gathering;
    const uint32_t n_nodes = flow->plan.n_nodes;

    if (!has_next(flow))
        return false;
    if (!it->is_sized) {
        it->turn = 1;
        *step = (TensorStep){ .what = STEP_SIZES };
        return true;
    }
    for (;; it->turn++) {
        const uint32_t node = (flow->plan.self + it->turn) % n_nodes;
        Side *const side = &it->sides[node];

        if (side->n_sent == side->n_pieces_out)
            continue;
        *step = (TensorStep){ .what = STEP_SEND, .node = node, .place = side->n_sent++ };
        it->turn = (it->turn + 1) % n_nodes;
        return true;
    }
}

static bool sends_to(const TensorFlow *flow, const TensorStep *step, uint32_t to)
{
    (void)flow;
    return step->what == STEP_SEND && step->node == to;
}

/* Sends the numbers of rows of the blocks first … end - 1 to a node. */
static bool send_some_sizes(TensorFlow *flow, uint32_t node, uint64_t first, uint64_t end)
{
    const uint32_t n = n_receivers(flow, node);
    TensorOutgoing outgoing;
    uint64_t before;

    if (!tensor_flow_begin_message(flow, TENSOR_MESSAGE_SIZES, first / PIECE_SIZES,
                                   (end - first) * sizeof(uint64_t), node, &outgoing))
        return false;
    uint64_t *const rows = outgoing.bytes;
    for (uint64_t block = first; block < end; block++)
        rows[block - first] =
            rows_to(flow, (uint32_t)(block / n),
                    flow->plan.first_ranks[node] + (uint32_t)(block % n), &before);
    tensor_flow_send(flow, &outgoing);
    return true;
}

static bool send_sizes(TensorFlow *flow)
{
    for (uint32_t node = 0; node < flow->plan.n_nodes; node++) {
        const uint64_t n = node == flow->plan.self ? 0 : n_blocks_to(flow, node);

        for (uint64_t first = 0; first < n; first += PIECE_SIZES)
            if (!send_some_sizes(flow, node, first, MIN(first + PIECE_SIZES, n)))
                return false;
    }
    return true;
}

/* Copies the part of a block that is within a piece of its stream. at: where the block begins in
 * the stream; other: what lies at the block's beginning. Returns where it ends. */
static uint64_t copy_block(const TensorStep *step, uint8_t *piece, bool to_piece, uint64_t at,
                           uint64_t n_bytes, uint8_t *other)
{
    const uint64_t begin = step->place * PIECE_BYTES, end = begin + step->n_bytes;
    const uint64_t from = MAX(at, begin), to = MIN(at + n_bytes, end);

    if (from < to && to_piece)
        memcpy(piece + (from - begin), other + (from - at), to - from);
    else if (from < to)
        memcpy(other + (from - at), piece + (from - begin), to - from);
    return at + n_bytes;
}

static bool send_piece(TensorFlow *flow, const TensorStep *step)
{
    const TensorGathering *const it = flow->gathering;
    const Side *const side = &it->sides[step->node];
    TensorStep cut = *step;
    TensorOutgoing outgoing;
    uint64_t at = 0;

    cut.n_bytes = MIN(side->n_out - step->place * PIECE_BYTES, PIECE_BYTES);
    if (!tensor_flow_begin_message(flow, TENSOR_MESSAGE_ROWS, step->place, cut.n_bytes, step->node,
                                   &outgoing))
        return false;
    for (uint32_t from = 0; from < flow->n_local; from++)
        for (uint32_t to = 0; to < n_receivers(flow, step->node); to++) {
            uint64_t before;
            const uint64_t n =
                rows_to(flow, from, flow->plan.first_ranks[step->node] + to, &before);
            uint8_t *const input = (uint8_t *)(uintptr_t)part_of(flow, from)->input;

            if (n > 0) /* otherwise there may be no values */
                at = copy_block(&cut, outgoing.bytes, /* to_piece= */ true, at, n * it->row_bytes,
                                input + before * it->row_bytes);
        }
    tensor_flow_send(flow, &outgoing);
    return true;
}

/* ---- steps that copy ---- */

static uint8_t *place_of(const TensorFlow *flow, uint32_t local, uint32_t rank)
{
    return (uint8_t *)part_of(flow, local)->result.values +
           flow->gathering->begins[local][rank] * flow->gathering->row_bytes;
}

/* From one worker of this node to another one, or to all of them. */
static void copy_local(const TensorFlow *flow, const TensorStep *step)
{
    const TensorGathering *const it = flow->gathering;
    const uint32_t from = step->node;

    for (uint32_t to = 0; to < flow->n_local; to++) {
        uint64_t before;
        const uint64_t n = rows_to(flow, from, rank_of(flow, to), &before);

        if (n > 0 && (!it->is_alltoall || to == step->place))
            memcpy(place_of(flow, to, rank_of(flow, from)),
                   (const uint8_t *)part_of(flow, from)->input + before * it->row_bytes,
                   n * it->row_bytes);
    }
}

static void copy_piece(const TensorFlow *flow, const TensorStep *step)
{
    const TensorGathering *const it = flow->gathering;
    const uint32_t node = step->node;
    uint8_t *const piece = (uint8_t *)(uintptr_t)step->bytes;
    uint64_t at = 0;

    for (uint32_t from = 0; from < flow->plan.n_ranks_of[node]; from++) {
        const uint32_t rank = flow->plan.first_ranks[node] + from;
        uint64_t next = at;

        for (uint32_t to = 0; to < flow->n_local; to++) {
            const uint64_t n = rows_from(flow, node, from, to);

            if (n > 0)
                next = copy_block(step, piece, /* to_piece= */ false, at, n * it->row_bytes,
                                  place_of(flow, to, rank));
            if (it->is_alltoall)
                at = next;
        }
        at = next;
    }
}

static bool run(TensorFlow *flow, const TensorStep *step)
{
    switch (step->what) {
    case STEP_SIZES:
        return send_sizes(flow);
    case STEP_SEND:
        return send_piece(flow, step);
    case STEP_LOCAL:
        copy_local(flow, step);
        return true;
    default:
        copy_piece(flow, step);
        return true;
    }
}

static void did(TensorFlow *flow, const TensorStep *step)
{
    if (step->what == STEP_SIZES)
        flow->gathering->is_sized = true;
}

const TensorFlowOps tensor_gathering_ops = {
    .begin = begin,
    .end = end,
    .take = take,
    .next = next,
    .has_next = has_next,
    .sends_to = sends_to,
    .run = run,
    .did = did,
};
