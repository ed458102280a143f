/* The flow of allgather and alltoall: see tensor_flow.h.
 *
 * What one node sends to another is a stream of blocks: the rows from each of its workers, and in
 * an alltoall to each of the other node's workers in turn. It is cut into pieces of PIECE_BYTES, of
 * which a message has one, or several that follow one another, as its node likes. SIZES have the
 * number of rows of each block, in pieces of PIECE_SIZES. Once all nodes have sent theirs, the
 * arrays are allocated; pieces that came before are kept until then.
 *
 * An allgather sends the same stream to all nodes, and its own workers gather it, too: as soon as
 * they have arrays, the step that sends a piece copies it to these. Pieces that were sent before
 * are copied apart, and so is what the workers of this node send each other in an alltoall: by
 * steps that take turns with those that send, as if this node was one more.
 *
 * This file has the order of it; where rows lie, and how they are copied, is in
 * tensor_gathering_rows.c. */
#include "engine/collectives/flow/tensor_gathering_private.h"

#include <string.h>

enum {
    PIECE_BYTES = 128 << 10,
    PIECE_SIZES = PIECE_BYTES / sizeof(uint64_t),
    COPIED_PIECES = 4,                          /* by a step that sends nothing */
    MOST_COPIED_BYTES = 2 * TENSOR_AHEAD_BYTES, /* before it is decided, to all nodes together */
};

G_STATIC_ASSERT((int)TENSOR_AHEAD_BYTES == (int)PIECE_BYTES);

enum { STEP_SIZES, STEP_SEND, STEP_SEND_AND_COPY, STEP_COPY_OWN, STEP_TAKE };

static uint64_t pieces_of_sizes(uint64_t n_blocks)
{
    return (n_blocks + PIECE_SIZES - 1) / PIECE_SIZES;
}

static uint64_t n_pieces(uint64_t n_bytes)
{
    return (n_bytes + PIECE_BYTES - 1) / PIECE_BYTES;
}

/* The bytes of n pieces of a stream of so many bytes. */
static GatheringRange range_of(uint32_t node, uint64_t place, uint32_t n, uint64_t n_bytes)
{
    return (GatheringRange){ node, place * PIECE_BYTES, MIN((place + n) * PIECE_BYTES, n_bytes) };
}

/* ---- making ---- */

static uint8_t *find_place(const TensorFlow *flow, uint32_t from, const TensorMessage *message);

static void begin(TensorFlow *flow)
{
    TensorGathering *const it = flow->gathering = g_new0(TensorGathering, 1);
    const TensorFlowPlan *const plan = &flow->plan;

    it->is_alltoall = flow->request.operation == TENSOR_ALLTOALL;
    it->row_bytes = tensor_request_row_bytes(&flow->request);
    it->sides = g_new0(GatheringSide, plan->n_nodes);
    it->begins = g_new0(uint64_t *, flow->n_local);
    it->out_begins = g_new0(uint64_t *, flow->n_local);
    it->n_sizes = plan->n_nodes - 1;
    if (it->is_alltoall)
        gathering_find_out_begins(flow);
    for (uint32_t node = 0; node < plan->n_nodes; node++) {
        GatheringSide *const side = &it->sides[node];
        const uint64_t n_blocks = gathering_blocks_to(flow, node);

        for (uint64_t block = 0; block < n_blocks; block++)
            side->n_out += gathering_rows_to(flow, node, block) * it->row_bytes;
        if (it->is_alltoall == (node != plan->self))
            side->n_to_send = n_pieces(side->n_out);
        side->most_pieces = tensor_flow_most_pieces_to(flow, node, PIECE_BYTES);
        if (plan->was_sent)
            side->n_sent = MIN(side->n_to_send, 1);
        flow->n_left += side->n_to_send - side->n_sent;
        if (node == plan->self)
            continue;
        side->n_sizes = pieces_of_sizes(gathering_blocks_from(flow, node));
        flow->n_awaited[node] = side->n_sizes;
    }
    if (it->is_alltoall)
        it->n_to_copy = n_pieces(it->sides[plan->self].n_out);
    flow->find_place = find_place;
    flow->is_small = false; /* what comes may be more than what is sent */
    it->is_sized = plan->was_sent;
    it->turn = plan->was_sent; /* this node's own come behind what others wait for */
    flow->n_left += it->n_to_copy + !it->is_sized + 1; /* its own SIZES, and the arrays */
}

/* Of an alltoall of the node's only worker: the rows for workers of a node, which lie in the input
 * as these follow one another. NULL: there are none. */
static const uint8_t *rows_for(const TensorFlowPlan *plan, uint32_t node, uint64_t *n_bytes)
{
    const TensorPart *const part = plan->parts[0];
    const uint64_t row_bytes = tensor_request_row_bytes(&part->request);
    const uint32_t first = plan->first_ranks[node], end = first + plan->n_ranks_of[node];
    uint64_t before = 0, n = 0;

    for (uint32_t rank = 0; rank < end; rank++)
        *(rank < first ? &before : &n) += part->splits[rank];
    *n_bytes = n * row_bytes;
    return n == 0 ? NULL : (const uint8_t *)part->input + before * row_bytes;
}

/* The first piece for a node. */
bool gathering_ahead(const TensorFlowPlan *plan, uint32_t to, TensorAhead *ahead)
{
    const TensorPart *const part = plan->parts[0];
    const uint64_t n_rows = tensor_request_rows(&part->request);
    const uint64_t n_bytes = n_rows * tensor_request_row_bytes(&part->request);
    const uint64_t n_others = plan->n_nodes - 1;
    const bool is_alltoall = part->request.operation == TENSOR_ALLTOALL;
    const bool is_large = n_bytes > TENSOR_AHEAD_BYTES;
    const uint64_t n_copied = is_alltoall ? MIN(n_bytes, n_others * TENSOR_AHEAD_BYTES)
                                          : n_others * MIN(n_bytes, TENSOR_AHEAD_BYTES);
    uint64_t n_there = n_bytes, n_own;

    *ahead = (TensorAhead){ .kind = TENSOR_MESSAGE_ROWS, .n_rows = n_rows };
    if (n_copied > MOST_COPIED_BYTES || plan->n_ranks > PIECE_SIZES ||
        (is_large && !tensor_flow_is_first_ahead(plan)))
        return false;
    ahead->n_sizes = is_alltoall ? plan->n_ranks_of[to] : 1;
    ahead->sizes = is_alltoall ? part->splits + plan->first_ranks[to] : &ahead->n_rows;
    ahead->bytes = is_alltoall ? rows_for(plan, to, &n_there) : part->input;
    ahead->n_bytes = MIN(n_there, TENSOR_AHEAD_BYTES);
    if (is_alltoall && !is_large && to == (plan->self + 1) % plan->n_nodes) {
        ahead->fetched = rows_for(plan, plan->self, &n_own); /* they are read next */
        ahead->n_fetched = n_own;
    }
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

/* All sizes are known. */
static void allocate_all(TensorFlow *flow)
{
    TensorGathering *const it = flow->gathering;
    TensorStep *step;

    if (!gathering_allocate(flow))
        return;
    it->is_allocated = true;
    if (!it->is_alltoall)
        it->n_to_copy = it->sides[flow->plan.self].n_sent;
    flow->n_left += it->is_alltoall ? 0 : it->n_to_copy;
    flow->n_left--;
    while ((step = g_queue_pop_head(&it->early)) != NULL) {
        tensor_flow_add_step(flow, TENSOR_STEPS_WITHOUT_ROOM, step);
        g_free(step);
    }
}

/* All SIZES of a node have come. NULL, or what is wrong. */
static const char *size_side(TensorFlow *flow, uint32_t from)
{
    TensorGathering *const it = flow->gathering;
    GatheringSide *const side = &it->sides[from];
    const uint64_t n = gathering_blocks_from(flow, from);
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
    GatheringSide *const side = &flow->gathering->sides[from];
    const uint64_t n = gathering_blocks_from(flow, from), first = message->place * PIECE_SIZES;
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

/* NULL and the pieces that the message has, or what is wrong. */
static const char *check_rows(const TensorFlow *flow, uint32_t from, const TensorMessage *message,
                              uint32_t *n)
{
    const GatheringSide *const side = &flow->gathering->sides[from];
    const uint64_t place = message->place, n_come = n_pieces(message->n_bytes);

    if (side->has_come == NULL)
        return "rows of a tensor before their sizes";
    if (place >= side->n_pieces_in)
        return "rows of a tensor behind its end";
    const uint64_t n_left = side->n_in - place * PIECE_BYTES;
    if (n_come == 0 || message->n_bytes > n_left ||
        (message->n_bytes < n_left && message->n_bytes % PIECE_BYTES != 0))
        return "rows of a tensor of a wrong size";
    for (uint64_t i = 0; i < n_come; i++)
        if (side->has_come[place + i])
            return "rows of a tensor twice";
    *n = (uint32_t)n_come; /* of a message, whose bytes are fewer */
    return NULL;
}

/* Rows lie there as they come, and nothing else is written there. */
static uint8_t *find_place(const TensorFlow *flow, uint32_t from, const TensorMessage *message)
{
    const GatheringSide *const side = &flow->gathering->sides[from];
    uint32_t n;

    if (message->kind != TENSOR_MESSAGE_ROWS || !flow->gathering->is_allocated ||
        check_rows(flow, from, message, &n) != NULL)
        return NULL;
    const GatheringRange range = range_of(from, message->place, n, side->n_in);
    return gathering_place(flow, &range);
}

static const char *take_rows(TensorFlow *flow, uint32_t from, const TensorMessage *message,
                             void *owner)
{
    TensorGathering *const it = flow->gathering;
    TensorStep step = { .what = STEP_TAKE,
                        .node = from,
                        .place = message->place,
                        .message = owner,
                        .bytes = message->bytes,
                        .n_bytes = message->n_bytes };

    const char *const wrong = check_rows(flow, from, message, &step.n);
    if (wrong != NULL)
        return wrong;
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
    memset(it->sides[from].has_come + message->place, true, step.n);
    flow->n_awaited[from] -= step.n;
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

/* ---- steps ---- */

static bool has_copies(const TensorGathering *it)
{
    return it->is_allocated && it->n_copied < it->n_to_copy;
}

static bool has_next(const TensorFlow *flow)
{
    const TensorGathering *const it = flow->gathering;

    if (!it->is_sized)
        return it->turn == 0;
    for (uint32_t node = 0; node < flow->plan.n_nodes; node++)
        if (it->sides[node].n_sent < it->sides[node].n_to_send)
            return true;
    return has_copies(it);
}

/* That of a node whose turn it is. False: there is none. */
static bool next_of(TensorFlow *flow, uint32_t node, TensorStep *step)
{
    TensorGathering *const it = flow->gathering;
    GatheringSide *const side = &it->sides[node];

    *step = (TensorStep){ .node = node };
    if (side->n_sent < side->n_to_send) {
        step->what = it->is_allocated && !it->is_alltoall ? STEP_SEND_AND_COPY : STEP_SEND;
        step->place = side->n_sent;
        step->n = (uint32_t)MIN(side->n_to_send - side->n_sent, side->most_pieces);
        side->n_sent += step->n;
        return true;
    }
    if (node != flow->plan.self || !has_copies(it))
        return false;
    step->what = STEP_COPY_OWN;
    step->place = it->n_copied;
    step->n = (uint32_t)MIN(it->n_to_copy - it->n_copied, COPIED_PIECES);
    it->n_copied += step->n;
    return true;
}

/* First SIZES, which no piece may overtake; then pieces to the nodes in turn, also to this one. */
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
    while (!next_of(flow, (flow->plan.self + it->turn) % n_nodes, step))
        it->turn = (it->turn + 1) % n_nodes;
    it->turn = (it->turn + 1) % n_nodes;
    return true;
}

static bool sends_to(const TensorFlow *flow, const TensorStep *step, uint32_t to)
{
    return (step->what == STEP_SEND || step->what == STEP_SEND_AND_COPY) &&
           (step->node == to || step->node == flow->plan.self);
}

/* Sends the numbers of rows of the blocks first … end - 1 to a node. */
static bool send_some_sizes(TensorFlow *flow, uint32_t node, uint64_t first, uint64_t end)
{
    TensorOutgoing outgoing;

    if (!tensor_flow_begin_message(flow, TENSOR_MESSAGE_SIZES, first / PIECE_SIZES,
                                   (end - first) * sizeof(uint64_t), node, &outgoing))
        return false;
    uint64_t *const rows = outgoing.bytes;
    for (uint64_t block = first; block < end; block++)
        rows[block - first] = gathering_rows_to(flow, node, block);
    tensor_flow_send(flow, &outgoing);
    return true;
}

static bool send_sizes(TensorFlow *flow)
{
    for (uint32_t node = 0; node < flow->plan.n_nodes; node++) {
        const uint64_t n = node == flow->plan.self ? 0 : gathering_blocks_to(flow, node);

        for (uint64_t first = 0; first < n; first += PIECE_SIZES)
            if (!send_some_sizes(flow, node, first, MIN(first + PIECE_SIZES, n)))
                return false;
    }
    return true;
}

static bool send_piece(TensorFlow *flow, const TensorStep *step, const GatheringRange *range)
{
    g_autoptr(GArray) messages = g_array_new(FALSE, FALSE, sizeof(TensorOutgoing));
    Call *readers = NULL;

    const void *const values = gathering_input(flow, range, &readers);
    if (!tensor_flow_lend_messages(flow, step, TENSOR_MESSAGE_ROWS, values,
                                   range->end - range->begin, readers, messages))
        return false;
    g_autofree void **places = g_new(void *, messages->len);
    const uint32_t n_places = tensor_flow_places_of(messages, places);
    const bool copies = step->what == STEP_SEND_AND_COPY;
    if (n_places > 0)
        gathering_make_piece(flow, range, places, n_places, copies);
    tensor_flow_send_messages(flow, messages);
    if (n_places == 0 && copies)
        gathering_make_piece(flow, range, NULL, 0, /* copies_own= */ true);
    return true;
}

static bool run(TensorFlow *flow, const TensorStep *step)
{
    const GatheringSide *const side = &flow->gathering->sides[step->node];
    const bool comes = step->what == STEP_TAKE;
    const GatheringRange range =
        range_of(step->node, step->place, step->n, comes ? side->n_in : side->n_out);

    switch (step->what) {
    case STEP_SIZES:
        return send_sizes(flow);
    case STEP_SEND:
    case STEP_SEND_AND_COPY:
        return send_piece(flow, step, &range);
    case STEP_COPY_OWN:
        gathering_make_piece(flow, &range, NULL, 0, /* copies_own= */ true);
        return true;
    default:
        gathering_take_piece(flow, &range, step->bytes);
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
