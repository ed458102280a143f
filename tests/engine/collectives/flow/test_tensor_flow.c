/* The data of one collective between simulated nodes: messages come and steps are done in any
 * order; what fails on one node ends on all; what makes no sense is refused. One thread. */
#include "engine/collectives/flow/tensor_flow.h"
#include "engine/collectives/negotiation/tensor_cutovers.h"

#include <check.h>
#include <math.h>
#include <rubato/error.h>
#include <string.h>

#include "engine/control/control.h"
#include "tests/support/engine/adasum_reference.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { MOST_NODES = 7, MOST_LOCAL = 3, MOST_RANKS = 300, N_SEEDS = 1000 };

/* A message on its way, or kept. */
typedef struct {
    uint32_t from, to;
    TensorMessage message;
    uint8_t bytes[];
} Parcel;

typedef struct World World;

typedef struct {
    World *world;
    uint32_t number;          /* among the nodes */
    uint32_t n_until_starved; /* messages for which there is memory; 0: for all */
    bool keeps_nothing;
    size_t best_bytes; /* of a message; each node has its own opinion */
    TensorFlow *flow;
    GArray *steps; /* of TensorStep: taken, and not done */
} Node;

struct World {
    uint64_t random;
    uint32_t n_nodes, n_ranks, n_asking;
    uint32_t ids[MOST_NODES], first_ranks[MOST_NODES], n_ranks_of[MOST_NODES];
    Node nodes[MOST_NODES];
    TensorRequest requests[MOST_RANKS];
    TensorPart parts[MOST_RANKS];
    TensorPart *list[MOST_RANKS]; /* NULL: it has joined */
    uint8_t *inputs[MOST_RANKS];  /* as they were */
    double *adasum;               /* the reference's result; NULL: not asked for */
    GPtrArray *parcels;           /* of Parcel: on their way */
    uint32_t n_parcels;           /* that exist */
};

/* ---- the carrier ---- */

static void *new_message(void *user, uint32_t to, const TensorMessage *message, void **bytes)
{
    (void)to;
    Node *const node = user;

    if (message->kind != TENSOR_MESSAGE_FAILURE && node->n_until_starved > 0 &&
        --node->n_until_starved == 0)
        return NULL;
    Parcel *const parcel = g_malloc(sizeof(Parcel) + message->n_bytes);
    *parcel = (Parcel){ .from = node->number, .message = *message };
    *bytes = parcel->bytes;
    node->world->n_parcels++;
    return parcel;
}

static void send_message(void *user, uint32_t to, void *message)
{
    Node *const node = user;
    Parcel *const parcel = message;

    for (parcel->to = 0; node->world->ids[parcel->to] != to;)
        parcel->to++;
    g_ptr_array_add(node->world->parcels, parcel);
}

static void drop(void *user, void *message)
{
    ((Node *)user)->world->n_parcels--;
    g_free(message);
}

static void forget(void *user, uint32_t node, void *message)
{
    (void)node;
    drop(user, message);
}

static size_t best_bytes(void *user, uint32_t to)
{
    (void)to;
    return ((const Node *)user)->best_bytes;
}

/* Moves it: whoever used its old place would find nothing there. */
static void *keep(void *user, void *message, const void **bytes)
{
    const Parcel *const parcel = message;
    Parcel *const kept = g_memdup2(parcel, sizeof(Parcel) + parcel->message.n_bytes);

    g_free(message);
    *bytes = kept->bytes;
    if (!((const Node *)user)->keeps_nothing)
        return kept;
    drop(user, kept);
    return NULL;
}

static const TensorCarrier carrier = { new_message, send_message, forget, best_bytes, keep, drop };

/* ---- making ---- */

static const RubatoDtype kinds[] = { RUBATO_F32, RUBATO_F16, RUBATO_I8, RUBATO_I64, RUBATO_BOOL };

/* Whole numbers whose sums are exact in every dtype but i8 and bool, and do not fit into an i8. */
static int64_t value_of(uint32_t rank, uint64_t i)
{
    return ((int64_t)((i * 7 + rank) % 11) - 5) * 12;
}

static void put(RubatoDtype dtype, void *values, uint64_t i, int64_t value)
{
    if (dtype == RUBATO_F32)
        ((float *)values)[i] = (float)value;
    else if (dtype == RUBATO_F16)
        ((uint16_t *)values)[i] = tensor_f16_from_float((float)value);
    else if (dtype == RUBATO_I8)
        ((int8_t *)values)[i] = (int8_t)value;
    else if (dtype == RUBATO_I64)
        ((int64_t *)values)[i] = value;
    else
        ((bool *)values)[i] = value > 0;
}

/* A node all of whose workers ask. */
static void add_node(World *world, uint32_t n_workers)
{
    const uint32_t number = world->n_nodes++;
    Node *const node = &world->nodes[number];

    world->ids[number] = 3 * number + 1;
    world->first_ranks[number] = world->n_ranks;
    world->n_ranks_of[number] = n_workers;
    *node = (Node){ .world = world,
                    .number = number,
                    .best_bytes = (size_t)random_below(&world->random, 4) << 17,
                    .steps = g_array_new(FALSE, FALSE, sizeof(TensorStep)) };
    for (uint32_t i = 0; i < n_workers; i++, world->n_ranks++)
        world->list[world->n_ranks] = &world->parts[world->n_ranks];
    world->n_asking += n_workers;
}

static void make_nodes(World *world, bool joins)
{
    const uint32_t n_nodes = 2 + random_below(&world->random, MOST_NODES - 1);

    while (world->n_nodes < n_nodes) {
        const uint32_t first = world->n_ranks, n = 1 + random_below(&world->random, MOST_LOCAL);
        const uint32_t asking = random_below(&world->random, n);

        add_node(world, n);
        for (uint32_t i = 0; i < n && joins; i++)
            if (i != asking && random_below(&world->random, 3) == 0) {
                world->list[first + i] = NULL;
                world->n_asking--;
            }
    }
}

static uint64_t random_rows(World *world)
{
    static const uint64_t most[] = { 1, 10, 3000, 40000 };

    return random_below(&world->random, (uint32_t)most[random_below(&world->random, 4)] + 1);
}

static void make_part(World *world, uint32_t rank, const TensorRequest *request, bool in_place)
{
    TensorPart *const part = &world->parts[rank];
    const bool gathers =
        request->operation == TENSOR_ALLGATHER || request->operation == TENSOR_ALLTOALL;

    part->request = *request;
    if (gathers)
        part->request.shape[0] = random_rows(world) / 4;
    const uint64_t n = tensor_request_values(&part->request);
    const size_t n_bytes = n * rubato_dtype_size(request->dtype);
    uint8_t *const input = g_malloc0(n_bytes + 1);
    for (uint64_t i = 0; i < n; i++)
        put(request->dtype, input, i, value_of(rank, i));
    world->inputs[rank] = g_memdup2(input, n_bytes + 1);
    part->input = input;
    part->output = in_place ? input : g_malloc0(n_bytes + 1);
    if (request->operation != TENSOR_ALLTOALL)
        return;
    part->splits = g_new0(uint64_t, world->n_ranks);
    for (uint64_t left = part->request.shape[0], i = 0; i < world->n_ranks; i++) {
        part->splits[i] = i + 1 == world->n_ranks
                              ? left
                              : random_below(&world->random, (uint32_t)MIN(left, 1000) + 1);
        left -= part->splits[i];
    }
}

/* (transfer full) */
static double *combine_by_reference(const World *world, uint64_t n)
{
    double *const vectors = g_new0(double, world->n_ranks *n + 1);

    for (uint32_t rank = 0; rank < world->n_ranks; rank++)
        for (uint64_t i = 0; i < n && world->list[rank] != NULL; i++)
            vectors[rank * n + i] = (double)value_of(rank, i);
    adasum_reference(vectors, world->n_ranks, n);
    return vectors;
}

static void make_flows(World *world)
{
    static const uint32_t all_directly = TENSOR_ALL_CLASSES, none_directly = 0;
    const uint32_t which = random_below(&world->random, 3);

    for (uint32_t node = 0; node < world->n_nodes; node++)
        world->nodes[node].flow =
            tensor_flow_new(&(TensorFlowPlan){ .number = 1,
                                               .n_tensors = 1,
                                               .n_ranks = world->n_ranks,
                                               .n_asking = world->n_asking,
                                               .n_nodes = world->n_nodes,
                                               .self = node,
                                               .nodes = world->ids,
                                               .first_ranks = world->first_ranks,
                                               .n_ranks_of = world->n_ranks_of,
                                               .parts = &world->list[world->first_ranks[node]],
                                               .cutovers = which == 0   ? NULL
                                                           : which == 1 ? &all_directly
                                                                        : &none_directly,
                                               .carrier = &carrier,
                                               .user = &world->nodes[node] });
}

static World *world_new(uint64_t seed)
{
    World *const world = g_new0(World, 1);

    world->random = seed * 2 + 1;
    world->parcels = g_ptr_array_new();
    TensorRequest request = {
        .operation = (TensorOperation)random_below(&world->random, TENSOR_BARRIER),
        .dtype = kinds[random_below(&world->random, G_N_ELEMENTS(kinds))],
        .n_dims = 2,
        .shape = { random_rows(world), 1 + random_below(&world->random, 3) },
        .reduce = { .reduction = random_below(&world->random, RUBATO_REDUCTION_ADASUM + 1),
                    .prescale = 1,
                    .postscale = 1 },
    };
    if (request.dtype == RUBATO_BOOL && request.reduce.reduction == RUBATO_REDUCTION_MEAN)
        request.reduce.reduction = RUBATO_REDUCTION_SUM;
    if (request.reduce.reduction == RUBATO_REDUCTION_ADASUM) {
        request.operation = TENSOR_ALLREDUCE;
        request.dtype = kinds[random_below(&world->random, 2)]; /* the floating-point ones */
        if (seed % 8 > 0)                                       /* the reference takes long */
            request.shape[0] %= 100;
    }
    make_nodes(world, request.operation == TENSOR_ALLREDUCE);
    if (request.operation == TENSOR_BROADCAST)
        request.root = random_below(&world->random, world->n_ranks);
    const bool in_place =
        request.operation != TENSOR_REDUCE_SCATTER && random_below(&world->random, 2) == 0;
    for (uint32_t rank = 0; rank < world->n_ranks; rank++)
        make_part(world, rank, &request, in_place);
    if (request.reduce.reduction == RUBATO_REDUCTION_ADASUM)
        world->adasum = combine_by_reference(world, tensor_request_values(&request));
    make_flows(world);
    return world;
}

/* Nodes with these numbers of workers, all of whom make the request, and messages of that size. */
static World *world_of(const TensorRequest *request, const uint32_t *n_ranks_of, uint32_t n_nodes,
                       size_t best_bytes)
{
    World *const world = g_new0(World, 1);

    world->random = 7;
    world->parcels = g_ptr_array_new();
    for (uint32_t node = 0; node < n_nodes; node++) {
        add_node(world, n_ranks_of[node]);
        world->nodes[node].best_bytes = best_bytes;
    }
    for (uint32_t rank = 0; rank < world->n_ranks; rank++)
        make_part(world, rank, request, /* in_place= */ false);
    make_flows(world);
    return world;
}

/* An allreduce of so many values. */
static TensorRequest adasum_of(uint64_t n)
{
    return (TensorRequest){
        .operation = TENSOR_ALLREDUCE,
        .dtype = RUBATO_F32,
        .n_dims = 2,
        .shape = { n, 1 },
        .reduce = { .reduction = RUBATO_REDUCTION_ADASUM, .prescale = 1, .postscale = 1 },
    };
}

static void world_free(World *world)
{
    for (uint32_t node = 0; node < world->n_nodes; node++) {
        tensor_flow_free(world->nodes[node].flow);
        g_array_unref(world->nodes[node].steps);
    }
    for (guint i = 0; i < world->parcels->len; i++)
        drop(&world->nodes[0], world->parcels->pdata[i]);
    ck_assert_uint_eq(world->n_parcels, 0);
    for (uint32_t rank = 0; rank < world->n_ranks; rank++) {
        TensorPart *const part = &world->parts[rank];

        if (part->output != part->input)
            g_free(part->output);
        g_free((void *)(uintptr_t)part->input);
        g_free(part->splits);
        rubato_gathered_clear(&part->result);
        g_free(world->inputs[rank]);
    }
    g_free(world->adasum);
    g_ptr_array_unref(world->parcels);
    g_free(world);
}

/* ---- running ---- */

/* One of the messages, but no ROWS before the SIZES of the same node. */
static void deliver(World *world, uint64_t seed)
{
    guint which = random_below(&world->random, world->parcels->len);
    const Parcel *const chosen = world->parcels->pdata[which];

    for (guint i = 0; i < which && chosen->message.kind == TENSOR_MESSAGE_ROWS; i++) {
        const Parcel *const other = world->parcels->pdata[i];

        if (other->message.kind == TENSOR_MESSAGE_SIZES && other->from == chosen->from &&
            other->to == chosen->to)
            which = i;
    }
    Parcel *const parcel = g_ptr_array_steal_index(world->parcels, which);
    TensorMessage message = parcel->message;
    message.bytes = parcel->bytes;
    Node *const to = &world->nodes[parcel->to];
    const char *const wrong =
        tensor_flow_take(to->flow, world->ids[parcel->from], &message, parcel);
    require_msg(wrong == NULL, "seed %zu: %s", (size_t)seed, wrong);
}

static void finish_step(Node *node)
{
    const guint which = random_below(&node->world->random, node->steps->len);
    TensorStep step = g_array_index(node->steps, TensorStep, which);

    g_array_remove_index(node->steps, which);
    tensor_flow_did(node->flow, &step, tensor_flow_do(node->flow, &step));
}

/* Does one thing of those that can be done. False: there is none. */
static bool move(World *world, uint64_t seed)
{
    const uint32_t first = random_below(&world->random, 2 * world->n_nodes + 1);

    for (uint32_t i = 0; i < 2 * world->n_nodes + 1; i++) {
        const uint32_t what = (first + i) % (2 * world->n_nodes + 1);
        Node *const node = &world->nodes[what / 2];
        TensorStep step;

        if (what == 2 * world->n_nodes) {
            if (world->parcels->len == 0)
                continue;
            deliver(world, seed);
            return true;
        }
        if (what % 2 == 0 && node->steps->len > 0) {
            finish_step(node);
            return true;
        }
        if (what % 2 == 1 && tensor_flow_next(node->flow, TENSOR_STEPS_ALL, &step)) {
            g_array_append_val(node->steps, step);
            return true;
        }
    }
    return false;
}

static void do_steps(Node *node)
{
    TensorStep step;

    while (tensor_flow_next(node->flow, TENSOR_STEPS_ALL, &step))
        tensor_flow_did(node->flow, &step, tensor_flow_do(node->flow, &step));
}

/* A node that has failed tells the others, once. */
static void tell_failures(World *world, bool *told)
{
    for (uint32_t node = 0; node < world->n_nodes; node++)
        if (!told[node] && tensor_flow_error(world->nodes[node].flow) != NULL)
            told[node] = tensor_flow_tell_failure(world->nodes[node].flow);
}

static void run_to_the_end(World *world, uint64_t seed)
{
    bool told[MOST_NODES] = { false };

    do
        tell_failures(world, told);
    while (move(world, seed));
}

/* ---- judging ---- */

static int64_t combine_all(const World *world, const TensorRequest *request, uint64_t i)
{
    const bool is_bool = request->dtype == RUBATO_BOOL;
    const RubatoReduction reduction = request->reduce.reduction;
    int64_t result = 0;
    bool is_first = true;

    for (uint32_t rank = 0; rank < world->n_ranks; rank++) {
        if (world->list[rank] == NULL)
            continue;
        const int64_t value = is_bool ? value_of(rank, i) > 0 : value_of(rank, i);

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
static bool is_right(const World *world, const TensorRequest *request, const void *values,
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
    put(request->dtype, expected, 0,
        is_mean                         ? sum / (int64_t)world->n_asking
        : request->dtype == RUBATO_BOOL ? sum != 0
                                        : sum);
    const size_t size = rubato_dtype_size(request->dtype);
    return memcmp(expected, (const uint8_t *)values + at * size, size) == 0;
}

static void judge_reduction(const World *world, uint32_t rank, uint64_t seed)
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

static void judge_gathering(const World *world, uint32_t rank, uint64_t seed)
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

static void judge(const World *world, uint64_t seed)
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

static void play(uint64_t seed)
{
    World *const world = world_new(seed);

    run_to_the_end(world, seed);
    for (uint32_t node = 0; node < world->n_nodes; node++)
        require_msg(tensor_flow_has_ended(world->nodes[node].flow) &&
                        tensor_flow_error(world->nodes[node].flow) == NULL,
                    "seed %zu: node %u waits for ever", (size_t)seed, node);
    require_msg(world->parcels->len == 0, "seed %zu: messages that nobody takes", (size_t)seed);
    judge(world, seed);
    world_free(world);
}

/* The sizes of an alltoall between two nodes with that many workers need several messages. */
START_TEST(sizes_that_one_message_cannot_hold_are_sent_in_several)
{
    static const uint32_t n_ranks_of[] = { 130, 127 };
    const TensorRequest request = {
        .operation = TENSOR_ALLTOALL, .dtype = RUBATO_I8, .n_dims = 2, .shape = { 0, 1 }
    };
    World *const world = world_of(&request, n_ranks_of, G_N_ELEMENTS(n_ranks_of), 0);
    uint32_t n_sizes = 0;

    do_steps(&world->nodes[0]);
    for (guint i = 0; i < world->parcels->len; i++) {
        const Parcel *const parcel = world->parcels->pdata[i];

        n_sizes += parcel->message.kind == TENSOR_MESSAGE_SIZES;
    }
    ck_assert_uint_eq(n_sizes, 2);
    run_to_the_end(world, 0);
    for (uint32_t node = 0; node < world->n_nodes; node++)
        ck_assert(tensor_flow_has_ended(world->nodes[node].flow) &&
                  tensor_flow_error(world->nodes[node].flow) == NULL);
    judge_gathering(world, 0, 0);
    judge_gathering(world, world->n_ranks - 1, 0);
    world_free(world);
}
END_TEST

/* Nobody but those who wait computes so many dots, however few the values are. */
START_TEST(adasum_of_many_workers_is_not_small)
{
    static const uint32_t n_ranks_of[][2] = { { 1, 1 }, { 150, 150 } };
    const TensorRequest request = adasum_of(1);
    World *const world = world_of(&request, n_ranks_of[_i], 2, 0);

    for (uint32_t node = 0; node < 2; node++)
        ck_assert(tensor_flow_is_small(world->nodes[node].flow) == (_i == 0));
    world_free(world);
}
END_TEST

static uint32_t count_dots(const World *world)
{
    uint32_t n = 0;

    for (guint i = 0; i < world->parcels->len; i++)
        n += ((const Parcel *)world->parcels->pdata[i])->message.kind == TENSOR_MESSAGE_DOTS;
    return n;
}

/* Each step sends a message to each node at most: so it never sends much behind one wait for room.
 * Three nodes with so many workers have dots for three pieces. */
START_TEST(dots_that_one_message_cannot_hold_are_sent_by_several_steps)
{
    static const uint32_t n_ranks_of[] = { 100, 100, 100 };
    const TensorRequest request = adasum_of(1);
    World *const world = world_of(&request, n_ranks_of, G_N_ELEMENTS(n_ranks_of), 0);
    Node *const last = &world->nodes[2]; /* it has no value of its own */
    TensorStep step;
    uint32_t n_dots = 0;

    while (tensor_flow_next(last->flow, TENSOR_STEPS_ALL, &step)) {
        tensor_flow_did(last->flow, &step, tensor_flow_do(last->flow, &step));
        ck_assert_uint_le(count_dots(world), n_dots + 2);
        n_dots = count_dots(world);
    }
    ck_assert_uint_eq(n_dots, 6);
    run_to_the_end(world, 0);
    for (uint32_t node = 0; node < world->n_nodes; node++)
        ck_assert(tensor_flow_has_ended(world->nodes[node].flow) &&
                  tensor_flow_error(world->nodes[node].flow) == NULL);
    for (uint32_t rank = 1; rank < world->n_ranks; rank++)
        ck_assert_mem_eq(world->parts[rank].output, world->parts[0].output, sizeof(float));
    world_free(world);
}
END_TEST

/* Of each node a segment of 40,000 values: three chunks, of which a message has two at most. */
START_TEST(messages_have_as_many_bytes_as_their_carrier_likes_best)
{
    static const uint32_t n_ranks_of[] = { 1, 1, 1 };
    TensorRequest request = adasum_of(120000);

    request.reduce.reduction = RUBATO_REDUCTION_SUM;
    World *const world = world_of(&request, n_ranks_of, G_N_ELEMENTS(n_ranks_of), 128 << 10);
    do_steps(&world->nodes[0]);
    ck_assert_uint_eq(world->parcels->len, 2 * 2);
    run_to_the_end(world, 0);
    world_free(world);
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
    uint64_t end;

    for (uint64_t seed = begin_seeds(&end); seed < end; seed++)
        play(seed);
}
END_TEST

/* ---- what fails ---- */

/* Of n nodes, one has no memory for one of its messages: no node waits for ever, and each either
 * has all, or is told. */
START_TEST(no_memory_on_one_node_ends_the_operation_on_all)
{
    uint64_t end;

    for (uint64_t seed = begin_seeds(&end); seed < end; seed += 5) {
        World *const world = world_new(seed);
        Node *const starved = &world->nodes[seed % world->n_nodes];
        uint32_t n_failed = 0;

        starved->n_until_starved = 1 + (uint32_t)seed % 3;
        run_to_the_end(world, seed);
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
        world_free(world);
    }
}
END_TEST

/* Adasum keeps the values of each worker, and says so if they are too many. */
START_TEST(values_that_a_node_cannot_keep_fail_on_all_nodes_and_are_named)
{
    static const uint32_t n_ranks_of[] = { 2, 2, 2 };
    const TensorRequest request = adasum_of(40000);
    World *const world = world_of(&request, n_ranks_of, G_N_ELEMENTS(n_ranks_of), 0);

    world->nodes[1].keeps_nothing = true;
    run_to_the_end(world, 0);
    for (uint32_t node = 0; node < world->n_nodes; node++) {
        const GError *const error = tensor_flow_error(world->nodes[node].flow);

        ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY));
        ck_assert_ptr_nonnull(strstr(error->message, "keeps of one other node"));
    }
    world_free(world);
}
END_TEST

/* Each message comes a little changed. */
START_TEST(messages_that_make_no_sense_are_refused)
{
    for (uint64_t seed = 0; seed < N_SEEDS / 4; seed++) {
        World *const world = world_new(seed);

        do_steps(&world->nodes[0]);
        for (guint i = 0; i < world->parcels->len; i++) {
            Parcel *const parcel = world->parcels->pdata[i];
            TensorMessage message = parcel->message;
            TensorFlow *const flow = world->nodes[parcel->to].flow;
            uint8_t nothing[8] = { 0 };

            message.bytes = nothing;
            message.n_bytes = parcel->message.n_bytes == 8 ? 7 : 8;
            ck_assert_ptr_nonnull(tensor_flow_take(flow, world->ids[0], &message, NULL));
            message = parcel->message;
            message.place = UINT64_MAX - 3;
            message.bytes = nothing;
            message.n_bytes = 1;
            ck_assert_ptr_nonnull(tensor_flow_take(flow, world->ids[0], &message, NULL));
            ck_assert_ptr_nonnull(tensor_flow_take(flow, 9999, &message, NULL));
        }
        world_free(world);
    }
}
END_TEST

/* Also if all that it made possible is done. */
START_TEST(message_that_comes_twice_is_refused)
{
    for (uint64_t seed = 0; seed < N_SEEDS / 4; seed++) {
        World *const world = world_new(seed);

        do_steps(&world->nodes[0]);
        for (guint left = world->parcels->len; left > 0; left--) {
            Parcel *const parcel = g_ptr_array_steal_index(world->parcels, 0);
            const uint32_t to = parcel->to;
            g_autofree uint8_t *copy = g_memdup2(parcel->bytes, parcel->message.n_bytes);
            TensorMessage message = parcel->message;

            message.bytes = parcel->bytes;
            require_msg(tensor_flow_take(world->nodes[to].flow, world->ids[0], &message, parcel) ==
                            NULL,
                        "seed %zu: refused at once", (size_t)seed);
            do_steps(&world->nodes[to]);
            message.bytes = copy;
            require_msg(tensor_flow_take(world->nodes[to].flow, world->ids[0], &message, NULL) !=
                            NULL,
                        "seed %zu: taken twice", (size_t)seed);
        }
        world_free(world);
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
    tcase_add_test(cases, messages_have_as_many_bytes_as_their_carrier_likes_best);
    tcase_add_test(cases, no_memory_on_one_node_ends_the_operation_on_all);
    tcase_add_test(cases, values_that_a_node_cannot_keep_fail_on_all_nodes_and_are_named);
    tcase_add_test(cases, messages_that_make_no_sense_are_refused);
    tcase_add_test(cases, message_that_comes_twice_is_refused);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
