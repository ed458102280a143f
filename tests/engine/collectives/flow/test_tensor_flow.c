/* The data of one collective between simulated nodes: messages come and steps are done in any
 * order; what fails on one node ends on all; what makes no sense is refused. One thread. */
#include "engine/collectives/flow/tensor_flow.h"

#include <check.h>
#include <math.h>
#include <rubato/error.h>
#include <string.h>

#include "engine/control/control.h"
#include "tests/support/collectives/flow_world.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N_SEEDS = 1000 };

/* ---- judging ---- */

static int64_t combine_all(const FlowWorld *world, const TensorRequest *request, uint64_t i)
{
    const bool is_bool = request->dtype == RUBATO_BOOL;
    const RubatoReduction reduction = request->reduce.reduction;
    int64_t result = 0;
    bool is_first = true;

    for (uint32_t rank = 0; rank < world->n_ranks; rank++) {
        if (world->list[rank] == NULL)
            continue;
        const int64_t value = is_bool ? flow_world_value(rank, i) > 0 : flow_world_value(rank, i);

        if (is_first)
            result = value;
        else if (reduction == RUBATO_REDUCTION_MIN)
            result = MIN(result, value);
        else if (reduction == RUBATO_REDUCTION_MAX)
            result = MAX(result, value);
        else if (reduction == RUBATO_REDUCTION_PRODUCT)
            result = (int64_t)((uint64_t)result * (uint64_t)value);
        else
            result += value;
        is_first = false;
    }
    return result;
}

static bool is_near(RubatoDtype dtype, const void *values, uint64_t at, double expected)
{
    const bool is_half = dtype == RUBATO_F16;
    const float value = is_half ? tensor_float_from_f16(((const uint16_t *)values)[at])
                                : ((const float *)values)[at];

    return fabs((double)value - expected) <= (is_half ? 0x1p-11 : 1e-6) * (fabs(expected) + 1);
}

/* The result of a reduction at a place. Products and means of floats are not exact: of them all
 * workers have the same bits. */
static bool is_right(const FlowWorld *world, const TensorRequest *request, const void *values,
                     uint64_t at, uint64_t i)
{
    if (world->adasum != NULL)
        return is_near(request->dtype, values, at, world->adasum[i]);
    const int64_t sum = combine_all(world, request, i);
    const bool is_mean = request->reduce.reduction == RUBATO_REDUCTION_MEAN;
    uint8_t expected[8] = { 0 };

    if (request->dtype == RUBATO_F16 && request->reduce.reduction == RUBATO_REDUCTION_PRODUCT)
        return true; /* it overflows */
    if (request->dtype == RUBATO_F32 && request->reduce.reduction == RUBATO_REDUCTION_PRODUCT)
        return sum == 0 || sum > (1 << 24) || sum < -(1 << 24) ||
               ((const float *)values)[at] == (float)sum;
    if (is_mean && request->dtype == RUBATO_F32)
        return ((const float *)values)[at] == (float)sum / (float)world->n_asking;
    if (is_mean && request->dtype == RUBATO_F16)
        return ((const uint16_t *)values)[at] ==
               tensor_f16_from_float((float)sum / (float)world->n_asking);
    flow_world_put(request->dtype, expected, 0,
                   is_mean                         ? sum / (int64_t)world->n_asking
                   : request->dtype == RUBATO_BOOL ? sum != 0
                                                   : sum);
    const size_t size = rubato_dtype_size(request->dtype);
    return memcmp(expected, (const uint8_t *)values + at * size, size) == 0;
}

static void judge_reduction(const FlowWorld *world, uint32_t rank, uint64_t seed)
{
    const TensorPart *const part = world->list[rank];
    const TensorRequest *const request = &part->request;
    const uint64_t n_rows = tensor_request_rows(request);
    uint64_t n = tensor_request_values(request), first = 0;

    if (request->operation == TENSOR_REDUCE_SCATTER) {
        for (uint32_t i = 0; i < rank; i++)
            first += rubato_reduce_scatter_rows(n_rows, world->n_ranks, i) * request->shape[1];
        n = rubato_reduce_scatter_rows(n_rows, world->n_ranks, rank) * request->shape[1];
    }
    for (uint64_t i = 0; i<n; i += n> 100 ? 97 : 1)
        require_msg(is_right(world, request, part->output, i, first + i),
                    "seed %zu: rank %u, value %zu", (size_t)seed, rank, (size_t)i);
    for (uint32_t other = 0; other < rank && first == 0 && n > 0; other++)
        if (request->operation == TENSOR_ALLREDUCE && world->list[other] != NULL)
            require_msg(memcmp(part->output, world->list[other]->output,
                               n * rubato_dtype_size(request->dtype)) == 0,
                        "seed %zu: ranks %u and %u differ", (size_t)seed, other, rank);
}

static void judge_gathering(const FlowWorld *world, uint32_t rank, uint64_t seed)
{
    const RubatoGathered *const result = &world->parts[rank].result;
    const uint64_t row_bytes = tensor_request_row_bytes(&world->parts[rank].request);
    const uint8_t *at = result->values;

    for (uint32_t from = 0; from < world->n_ranks; from++) {
        const TensorPart *const other = &world->parts[from];
        uint64_t n = tensor_request_rows(&other->request), before = 0;

        for (uint32_t i = 0; other->splits != NULL && i < rank; i++)
            before += other->splits[i];
        n = other->splits != NULL ? other->splits[rank] : n;
        require_msg(result->rows[from] == n, "seed %zu: rank %u has %zu rows of rank %u, not %zu",
                    (size_t)seed, rank, (size_t)result->rows[from], from, (size_t)n);
        if (n > 0)
            require_msg(memcmp(at, world->inputs[from] + before * row_bytes, n * row_bytes) == 0,
                        "seed %zu: rank %u has other rows of rank %u", (size_t)seed, rank, from);
        if (n > 0) /* otherwise there may be no values */
            at += n * row_bytes;
    }
}

static void judge(const FlowWorld *world, uint64_t seed)
{
    for (uint32_t rank = 0; rank < world->n_ranks; rank++) {
        const TensorPart *const part = world->list[rank];

        if (part == NULL)
            continue;
        const TensorRequest *const request = &part->request;
        const size_t n_bytes = tensor_request_values(request) * rubato_dtype_size(request->dtype);

        if (request->operation == TENSOR_BROADCAST)
            require_msg(memcmp(part->output, world->inputs[request->root], n_bytes) == 0,
                        "seed %zu: rank %u has other values than the root", (size_t)seed, rank);
        else if (request->operation == TENSOR_ALLREDUCE ||
                 request->operation == TENSOR_REDUCE_SCATTER)
            judge_reduction(world, rank, seed);
        else
            judge_gathering(world, rank, seed);
    }
}

/* How often it came to what the seeds are to show, as in FlowWorld. */
typedef struct {
    uint32_t n_ahead_of[TENSOR_OPERATIONS], n_fetched_of[TENSOR_OPERATIONS];
    uint32_t n_lent, n_outlived, n_direct, n_shared;
} Seen;

static void play(uint64_t seed, Seen *seen)
{
    FlowWorld *const world = flow_world_new(seed);

    flow_world_run(world, seed);
    for (uint32_t node = 0; node < world->n_nodes; node++)
        require_msg(tensor_flow_has_ended(world->nodes[node].flow) &&
                        tensor_flow_error(world->nodes[node].flow) == NULL,
                    "seed %zu: node %u waits for ever", (size_t)seed, node);
    require_msg(world->parcels->len == 0, "seed %zu: messages that nobody takes", (size_t)seed);
    judge(world, seed);
    for (unsigned i = 0; i < TENSOR_OPERATIONS; i++) {
        seen->n_ahead_of[i] += world->n_ahead_of[i];
        seen->n_fetched_of[i] += world->n_fetched_of[i];
    }
    seen->n_lent += world->n_lent;
    seen->n_outlived += world->n_outlived;
    seen->n_direct += world->n_direct;
    seen->n_shared += world->n_shared;
    flow_world_free(world);
}

/* The sizes of an alltoall between two nodes with that many workers need several messages. */
START_TEST(sizes_that_one_message_cannot_hold_are_sent_in_several)
{
    static const uint32_t n_ranks_of[] = { 130, 127 };
    const TensorRequest request = {
        .operation = TENSOR_ALLTOALL, .dtype = RUBATO_I8, .n_dims = 2, .shape = { 0, 1 }
    };
    FlowWorld *const world = flow_world_of(&request, n_ranks_of, G_N_ELEMENTS(n_ranks_of), 0);
    uint32_t n_sizes = 0;

    flow_world_do_steps(&world->nodes[0]);
    for (guint i = 0; i < world->parcels->len; i++) {
        const FlowParcel *const parcel = world->parcels->pdata[i];

        n_sizes += parcel->message.kind == TENSOR_MESSAGE_SIZES;
    }
    ck_assert_uint_eq(n_sizes, 2);
    flow_world_run(world, 0);
    for (uint32_t node = 0; node < world->n_nodes; node++)
        ck_assert(tensor_flow_has_ended(world->nodes[node].flow) &&
                  tensor_flow_error(world->nodes[node].flow) == NULL);
    judge_gathering(world, 0, 0);
    judge_gathering(world, world->n_ranks - 1, 0);
    flow_world_free(world);
}
END_TEST

/* Nobody but those who wait computes so many dots, however few the values are. */
START_TEST(adasum_of_many_workers_is_not_small)
{
    static const uint32_t n_ranks_of[][2] = { { 1, 1 }, { 150, 150 } };
    const TensorRequest request = flow_world_adasum(1);
    FlowWorld *const world = flow_world_of(&request, n_ranks_of[_i], 2, 0);

    for (uint32_t node = 0; node < 2; node++)
        ck_assert(tensor_flow_is_small(world->nodes[node].flow) == (_i == 0));
    flow_world_free(world);
}
END_TEST

static uint32_t count_dots(const FlowWorld *world)
{
    uint32_t n = 0;

    for (guint i = 0; i < world->parcels->len; i++)
        n += ((const FlowParcel *)world->parcels->pdata[i])->message.kind == TENSOR_MESSAGE_DOTS;
    return n;
}

/* Each step sends a message to each node at most: so it never sends much behind one wait for room.
 * Three nodes with so many workers have dots for three pieces. */
START_TEST(dots_that_one_message_cannot_hold_are_sent_by_several_steps)
{
    static const uint32_t n_ranks_of[] = { 100, 100, 100 };
    const TensorRequest request = flow_world_adasum(1);
    FlowWorld *const world = flow_world_of(&request, n_ranks_of, G_N_ELEMENTS(n_ranks_of), 0);
    FlowNode *const last = &world->nodes[2]; /* it has no value of its own */
    TensorStep step;
    uint32_t n_dots = 0;

    while (tensor_flow_next(last->flow, TENSOR_STEPS_ALL, &step)) {
        tensor_flow_did(last->flow, &step, tensor_flow_do(last->flow, &step));
        ck_assert_uint_le(count_dots(world), n_dots + 2);
        n_dots = count_dots(world);
    }
    ck_assert_uint_eq(n_dots, 6);
    flow_world_run(world, 0);
    for (uint32_t node = 0; node < world->n_nodes; node++)
        ck_assert(tensor_flow_has_ended(world->nodes[node].flow) &&
                  tensor_flow_error(world->nodes[node].flow) == NULL);
    for (uint32_t rank = 1; rank < world->n_ranks; rank++)
        ck_assert_mem_eq(world->parts[rank].output, world->parts[0].output, sizeof(float));
    flow_world_free(world);
}
END_TEST

/* Of each node a segment of 40,000 values: three chunks, of which a message has two at most. */
START_TEST(messages_have_as_many_bytes_as_their_carrier_likes_best)
{
    static const uint32_t n_ranks_of[] = { 1, 1, 1 };
    TensorRequest request = flow_world_adasum(120000);

    request.reduce.reduction = RUBATO_REDUCTION_SUM;
    FlowWorld *const world =
        flow_world_of(&request, n_ranks_of, G_N_ELEMENTS(n_ranks_of), 128 << 10);
    flow_world_do_steps(&world->nodes[0]);
    ck_assert_uint_eq(world->parcels->len, 2 * 2);
    flow_world_run(world, 0);
    flow_world_free(world);
}
END_TEST

/* Nodes with a worker each, who gather rows of 80 bytes; the first one does all that it can before
 * anything comes. */
static FlowWorld *begin_gathering(TensorOperation operation, uint32_t n_nodes, size_t best_bytes)
{
    static const uint32_t n_ranks_of[] = { 1, 1, 1 };
    const TensorRequest request = {
        .operation = operation, .dtype = RUBATO_I64, .n_dims = 2, .shape = { 0, 10 }
    };
    FlowWorld *const world = flow_world_of(&request, n_ranks_of, n_nodes, best_bytes);

    flow_world_do_steps(&world->nodes[0]);
    return world;
}

/* Messages with rows of the first node for that one, and their bytes. */
static uint32_t count_messages_of_rows(const FlowWorld *world, uint32_t node, size_t *n_bytes)
{
    uint32_t n = 0;

    *n_bytes = 0;
    for (guint i = 0; i < world->parcels->len; i++) {
        const FlowParcel *const parcel = world->parcels->pdata[i];

        if (parcel->message.kind != TENSOR_MESSAGE_ROWS || parcel->from != 0 || parcel->to != node)
            continue;
        *n_bytes += parcel->message.n_bytes;
        n++;
    }
    return n;
}

START_TEST(rows_go_in_messages_of_as_many_pieces_as_their_carrier_likes_best)
{
    enum { PIECE = 128 << 10 };

    for (uint32_t pieces = 1; pieces <= 4; pieces++) {
        FlowWorld *const world = begin_gathering(_i == 0 ? TENSOR_ALLGATHER : TENSOR_ALLTOALL, 3,
                                                 pieces * (size_t)PIECE + 1);
        size_t n_bytes;
        const uint32_t n = count_messages_of_rows(world, 1, &n_bytes);

        if (_i == 0)
            ck_assert_uint_gt(n_bytes, 3 * PIECE);
        ck_assert_uint_eq(n, (n_bytes + pieces * PIECE - 1) / (pieces * PIECE));
        flow_world_run(world, pieces);
        judge(world, pieces);
        flow_world_free(world);
    }
}
END_TEST

/* RUBATO_TEST_SEED: that one alone. */
static uint64_t begin_seeds(uint64_t *end)
{
    const char *const one = g_getenv("RUBATO_TEST_SEED");
    const uint64_t first = one != NULL ? g_ascii_strtoull(one, NULL, 10) : 0;

    *end = one != NULL ? first + 1 : N_SEEDS;
    return first;
}

START_TEST(every_order_of_messages_gives_the_same)
{
    Seen seen = { 0 };
    uint64_t end;
    const uint64_t first = begin_seeds(&end);

    for (uint64_t seed = first; seed < end; seed++)
        play(seed, &seen);
    for (TensorOperation i = 0; i < TENSOR_BARRIER; i++) {
        require_msg(seen.n_ahead_of[i] > 0 || first > 0, "no node sent %s before it had a flow",
                    tensor_operation_name(i));
        require_msg((seen.n_fetched_of[i] > 0) == (i != TENSOR_ALLGATHER) || first > 0,
                    "what came into the cache beside what was sent of %s",
                    tensor_operation_name(i));
    }
    require_msg((seen.n_lent > 0 && seen.n_outlived > 0) || first > 0,
                "no message was read from arrays behind the end");
    require_msg(seen.n_direct > 0 || first > 0, "no message came straight to its place");
    require_msg(seen.n_shared > 0 || first > 0, "no messages had the same bytes");
}
END_TEST

/* A tensor that is too large for all nodes to combine all of it. Some nodes send each other one its
 * share before they have a flow, and others behind it. */
START_TEST(shares_that_were_sent_before_count_as_sent)
{
    static const uint32_t n_ranks_of[] = { 1, 1, 1, 1, 1 };
    const TensorRequest request = { .operation = TENSOR_ALLREDUCE,
                                    .dtype = RUBATO_I64,
                                    .n_dims = 2,
                                    .shape = { 5000, 1 },
                                    .reduce = { .prescale = 1, .postscale = 1 } };
    const uint32_t n_nodes = 3 + (uint32_t)_i % 3;

    for (uint64_t seed = 0; seed < 20; seed++) {
        FlowWorld *const world = flow_world_of(&request, n_ranks_of, n_nodes, 0);

        ck_assert_uint_gt(world->n_ahead_shares, 0);
        ck_assert_uint_lt(world->n_ahead_shares, n_nodes);
        flow_world_run(world, seed);
        for (uint32_t node = 0; node < n_nodes; node++)
            ck_assert(tensor_flow_has_ended(world->nodes[node].flow) &&
                      tensor_flow_error(world->nodes[node].flow) == NULL);
        ck_assert_uint_eq(world->parcels->len, 0);
        judge(world, seed);
        flow_world_free(world);
    }
}
END_TEST

/* A root sends to all nodes at once what is small for all of them together: with the bit that asks
 * for it again, or behind it. More than that the nodes pass on. */
START_TEST(a_small_broadcast_goes_to_all_nodes_at_once)
{
    static const uint32_t n_ranks_of[] = { 1, 1, 1, 1 };
    const TensorRequest request = { .operation = TENSOR_BROADCAST,
                                    .dtype = RUBATO_F32,
                                    .n_dims = 1,
                                    .shape = { (64 << 10) / sizeof(float) << _i },
                                    .root = 1 };
    FlowWorld *const world = flow_world_of(&request, n_ranks_of, G_N_ELEMENTS(n_ranks_of), 0);

    ck_assert_int_eq(world->n_ahead_of[TENSOR_BROADCAST] > 0, _i == 0);
    flow_world_run(world, 0);
    for (uint32_t node = 0; node < world->n_nodes; node++)
        ck_assert(tensor_flow_has_ended(world->nodes[node].flow) &&
                  tensor_flow_error(world->nodes[node].flow) == NULL);
    ck_assert_uint_eq(world->parcels->len, 0);
    judge(world, 0);
    flow_world_free(world);
}
END_TEST

/* Of a large tensor some nodes send a first piece before they have a flow, and the others all of it
 * behind it: but only where messages have no more bytes. */
START_TEST(the_first_piece_of_a_large_tensor_that_was_sent_before_counts_as_sent)
{
    static const TensorOperation operations[] = { TENSOR_BROADCAST, TENSOR_ALLGATHER,
                                                  TENSOR_ALLTOALL };
    static const RubatoDtype dtypes[] = { RUBATO_I64, RUBATO_F32, RUBATO_I8 };
    static const uint32_t n_ranks_of[] = { 1, 1 };
    const size_t best_bytes = (size_t)(128 << 10) << _i;

    for (uint32_t i = 0; i < G_N_ELEMENTS(operations) * G_N_ELEMENTS(dtypes) * 5; i++) {
        const TensorOperation operation = operations[i % 3];
        const RubatoDtype dtype = dtypes[i / 3 % 3];
        const TensorRequest request = {
            .operation = operation,
            .dtype = dtype,
            .n_dims = 2,
            .shape = { 600, 1000 / rubato_dtype_size(dtype) }, /* gathered: other rows */
            .root = i / 9 % 2,
        };
        FlowWorld *const world =
            flow_world_of(&request, n_ranks_of, G_N_ELEMENTS(n_ranks_of), best_bytes);

        if (operation != TENSOR_ALLTOALL)
            ck_assert_int_eq(world->n_ahead_shares > 0, _i == 0);
        flow_world_run(world, i);
        for (uint32_t node = 0; node < world->n_nodes; node++)
            ck_assert(tensor_flow_has_ended(world->nodes[node].flow) &&
                      tensor_flow_error(world->nodes[node].flow) == NULL);
        ck_assert_uint_eq(world->parcels->len, 0);
        judge(world, i);
        flow_world_free(world);
    }
}
END_TEST

/* ---- what fails ---- */

/* Of n nodes, one has no memory for one of its messages: no node waits for ever, and each either
 * has all, or is told. */
START_TEST(no_memory_on_one_node_ends_the_operation_on_all)
{
    uint64_t end;

    for (uint64_t seed = begin_seeds(&end); seed < end; seed += 5) {
        FlowWorld *const world = flow_world_new(seed);
        FlowNode *const starved = &world->nodes[seed % world->n_nodes];
        uint32_t n_failed = 0;

        starved->n_until_starved = 1 + (uint32_t)seed % 3;
        flow_world_run(world, seed);
        for (uint32_t node = 0; node < world->n_nodes; node++) {
            const GError *const error = tensor_flow_error(world->nodes[node].flow);

            require_msg(tensor_flow_has_ended(world->nodes[node].flow),
                        "seed %zu: node %u waits for ever", (size_t)seed, node);
            require_msg(error == NULL || g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY),
                        "seed %zu: %s", (size_t)seed, error == NULL ? "" : error->message);
            n_failed += error != NULL;
        }
        require_msg(n_failed > 0 || starved->n_until_starved > 0, "seed %zu: nobody failed",
                    (size_t)seed);
        flow_world_free(world);
    }
}
END_TEST

/* Loses a node once so many moves were made. Each other one has all, or is told of the loss; and
 * its workers get their arrays back, which flow_world_run sees to. Returns whether it was lost
 * before all was done. */
static bool lose_one(FlowWorld *world, uint32_t node, uint32_t n_moves, uint64_t seed)
{
    world->loses = node;
    world->n_until_loss = n_moves;
    flow_world_run(world, seed);
    for (uint32_t other = 0; other < world->n_nodes; other++) {
        const GError *const error = tensor_flow_error(world->nodes[other].flow);

        require_msg(world->nodes[other].is_lost || world->nodes[other].is_over,
                    "seed %zu: node %u waits for ever without node %u", (size_t)seed, other, node);
        require_msg(error == NULL || g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST),
                    "seed %zu: %s", (size_t)seed, error == NULL ? "" : error->message);
    }
    return world->nodes[node].is_lost;
}

/* Three nodes combine three chunks each; one is lost behind any step of any of them. */
START_TEST(arrays_are_the_workers_again_whoever_is_lost_at_any_step)
{
    static const uint32_t n_ranks_of[] = { 1, 2, 1 };
    TensorRequest request = flow_world_adasum(120000);
    uint32_t n_outlived = 0;
    bool was_lost = true;

    request.reduce.reduction = RUBATO_REDUCTION_SUM;
    for (uint32_t step = 1; was_lost; step++) {
        FlowWorld *const world =
            flow_world_of(&request, n_ranks_of, G_N_ELEMENTS(n_ranks_of), 128 << 10);

        world->random = step * 2 + 1;
        world->has_no_copies = step % 3 == 0;
        was_lost = lose_one(world, (uint32_t)_i, step, step);
        n_outlived += world->n_outlived;
        flow_world_free(world);
    }
    ck_assert_uint_gt(n_outlived, 0);
}
END_TEST

START_TEST(arrays_are_the_workers_again_in_any_operation_that_loses_a_node)
{
    uint64_t end;

    for (uint64_t seed = begin_seeds(&end); seed < end; seed += 4) {
        FlowWorld *const world = flow_world_new(seed);

        world->has_no_copies = random_below(&world->random, 4) == 0;
        lose_one(world, random_below(&world->random, world->n_nodes),
                 1 + random_below(&world->random, 100), seed);
        flow_world_free(world);
    }
}
END_TEST

/* Adasum keeps the values of each worker, and says so if they are too many. */
START_TEST(values_that_a_node_cannot_keep_fail_on_all_nodes_and_are_named)
{
    static const uint32_t n_ranks_of[] = { 2, 2, 2 };
    const TensorRequest request = flow_world_adasum(40000);
    FlowWorld *const world = flow_world_of(&request, n_ranks_of, G_N_ELEMENTS(n_ranks_of), 0);

    world->nodes[1].keeps_nothing = true;
    flow_world_run(world, 0);
    for (uint32_t node = 0; node < world->n_nodes; node++) {
        const GError *const error = tensor_flow_error(world->nodes[node].flow);

        ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY));
        ck_assert_ptr_nonnull(strstr(error->message, "keeps of one other node"));
    }
    flow_world_free(world);
}
END_TEST

/* Each message comes a little changed. */
START_TEST(messages_that_make_no_sense_are_refused)
{
    for (uint64_t seed = 0; seed < N_SEEDS / 4; seed++) {
        FlowWorld *const world = flow_world_new(seed);

        flow_world_do_steps(&world->nodes[0]);
        for (guint i = 0; i < world->parcels->len; i++) {
            FlowParcel *const parcel = world->parcels->pdata[i];
            TensorMessage message = parcel->message;
            TensorFlow *const flow = world->nodes[parcel->to].flow;
            const uint32_t from = world->ids[parcel->from];
            uint8_t nothing[8] = { 0 };

            message.bytes = nothing;
            message.n_bytes = parcel->message.n_bytes == 8 ? 7 : 8;
            ck_assert_ptr_nonnull(tensor_flow_take(flow, from, &message, NULL));
            message = parcel->message;
            message.place = UINT64_MAX - 3;
            message.bytes = nothing;
            message.n_bytes = 1;
            ck_assert_ptr_nonnull(tensor_flow_take(flow, from, &message, NULL));
            ck_assert_ptr_nonnull(tensor_flow_take(flow, 9999, &message, NULL));
        }
        flow_world_free(world);
    }
}
END_TEST

/* Nodes that gather. Takes the SIZES for the second one, and returns its flow, which expects a
 * message with three pieces from the first one at place 0. */
static TensorFlow *begin_with_three_pieces(FlowWorld *world)
{
    enum { PIECE = 128 << 10 };
    TensorFlow *const flow = world->nodes[1].flow;
    size_t n_first = 0;

    flow_world_do_steps(&world->nodes[1]);
    flow_world_do_steps(&world->nodes[2]);
    for (guint i = 0; i < world->parcels->len;) {
        FlowParcel *const parcel = world->parcels->pdata[i];
        TensorMessage message = parcel->message;

        if (parcel->to == 1 && parcel->from == 0 && message.kind == TENSOR_MESSAGE_ROWS &&
            message.place == 0)
            n_first = message.n_bytes;
        if (parcel->to != 1 || message.kind != TENSOR_MESSAGE_SIZES) {
            i++;
            continue;
        }
        message.bytes = parcel->bytes;
        g_ptr_array_remove_index(world->parcels, i);
        ck_assert_ptr_null(tensor_flow_take(flow, world->ids[parcel->from], &message, parcel));
    }
    ck_assert_uint_eq(n_first, 3 * PIECE);
    return flow;
}

START_TEST(messages_of_rows_have_whole_pieces_that_have_not_come)
{
    enum { PIECE = 128 << 10 };
    static const struct {
        uint64_t place;
        size_t n_bytes;
        bool is_right;
    } messages[] = {
        { 0, 0, false },         { 0, PIECE - 8, false }, { 0, PIECE + 8, false },
        { 1, PIECE, true },      { 0, 2 * PIECE, false }, /* the second one has come */
        { 1, 2 * PIECE, false }, { 0, PIECE, true },      { 2, PIECE, true },
    };
    g_autofree uint8_t *values = g_malloc0(2 * PIECE);
    FlowWorld *const world = begin_gathering(TENSOR_ALLGATHER, 3, 3 * PIECE);
    TensorFlow *const flow = begin_with_three_pieces(world);

    for (size_t i = 0; i < G_N_ELEMENTS(messages); i++) {
        const TensorMessage message = { .kind = TENSOR_MESSAGE_ROWS,
                                        .number = 1,
                                        .place = messages[i].place,
                                        .bytes = values,
                                        .n_bytes = messages[i].n_bytes };
        uint8_t *const place = tensor_flow_place(flow, world->ids[0], &message);
        const char *const wrong = tensor_flow_take(flow, world->ids[0], &message, NULL);

        require_msg((place != NULL) == messages[i].is_right, "message %zu: its place", i);
        require_msg((wrong == NULL) == messages[i].is_right, "message %zu: %s", i,
                    wrong == NULL ? "taken" : wrong);
    }
    flow_world_free(world);
}
END_TEST

/* Also if all that it made possible is done. */
START_TEST(message_that_comes_twice_is_refused)
{
    for (uint64_t seed = 0; seed < N_SEEDS / 4; seed++) {
        FlowWorld *const world = flow_world_new(seed);

        flow_world_do_steps(&world->nodes[0]);
        for (guint left = world->parcels->len; left > 0; left--) {
            FlowParcel *const parcel = g_ptr_array_steal_index(world->parcels, 0);
            const uint32_t to = parcel->to, from = world->ids[parcel->from];
            g_autofree uint8_t *copy = g_memdup2(parcel->bytes, parcel->message.n_bytes);
            TensorMessage message = parcel->message;

            message.bytes = parcel->bytes;
            require_msg(tensor_flow_take(world->nodes[to].flow, from, &message, parcel) == NULL,
                        "seed %zu: refused at once", (size_t)seed);
            flow_world_do_steps(&world->nodes[to]);
            message.bytes = copy;
            require_msg(tensor_flow_take(world->nodes[to].flow, from, &message, NULL) != NULL,
                        "seed %zu: taken twice", (size_t)seed);
        }
        flow_world_free(world);
    }
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor_flow");
    TCase *const cases = tcase_create("cases");

    tcase_set_timeout(cases, 120);
    tcase_add_test(cases, every_order_of_messages_gives_the_same);
    tcase_add_test(cases, sizes_that_one_message_cannot_hold_are_sent_in_several);
    tcase_add_test(cases, dots_that_one_message_cannot_hold_are_sent_by_several_steps);
    tcase_add_loop_test(cases, adasum_of_many_workers_is_not_small, 0, 2);
    tcase_add_loop_test(cases, rows_go_in_messages_of_as_many_pieces_as_their_carrier_likes_best, 0,
                        2);
    tcase_add_test(cases, messages_have_as_many_bytes_as_their_carrier_likes_best);
    tcase_add_loop_test(cases, shares_that_were_sent_before_count_as_sent, 0, 3);
    tcase_add_loop_test(
        cases, the_first_piece_of_a_large_tensor_that_was_sent_before_counts_as_sent, 0, 2);
    tcase_add_loop_test(cases, a_small_broadcast_goes_to_all_nodes_at_once, 0, 2);
    tcase_add_test(cases, no_memory_on_one_node_ends_the_operation_on_all);
    tcase_add_loop_test(cases, arrays_are_the_workers_again_whoever_is_lost_at_any_step, 0, 3);
    tcase_add_test(cases, arrays_are_the_workers_again_in_any_operation_that_loses_a_node);
    tcase_add_test(cases, values_that_a_node_cannot_keep_fail_on_all_nodes_and_are_named);
    tcase_add_test(cases, messages_that_make_no_sense_are_refused);
    tcase_add_test(cases, message_that_comes_twice_is_refused);
    tcase_add_test(cases, messages_of_rows_have_whole_pieces_that_have_not_come);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
