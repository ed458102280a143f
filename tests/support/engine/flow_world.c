/* Simulated nodes with flows: see flow_world.h. */
#include "tests/support/engine/flow_world.h"

#include <check.h>
#include <rubato/error.h>
#include <string.h>

#include "engine/collectives/negotiation/tensor_cutovers.h"
#include "tests/support/engine/adasum_reference.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

/* ---- the carrier ---- */

static void *new_message(void *user, uint32_t to, const TensorMessage *message, void **bytes)
{
    (void)to;
    FlowNode *const node = user;

    if (message->kind != TENSOR_MESSAGE_FAILURE && node->n_until_starved > 0 &&
        --node->n_until_starved == 0)
        return NULL;
    FlowParcel *const parcel = g_malloc(sizeof(FlowParcel) + message->n_bytes);
    *parcel = (FlowParcel){ .from = node->number, .message = *message };
    *bytes = parcel->bytes;
    node->world->n_parcels++;
    return parcel;
}

static void send_message(void *user, uint32_t to, void *message)
{
    FlowNode *const node = user;
    FlowParcel *const parcel = message;

    for (parcel->to = 0; node->world->ids[parcel->to] != to;)
        parcel->to++;
    g_ptr_array_add(node->world->parcels, parcel);
}

static void drop(void *user, void *message)
{
    ((FlowNode *)user)->world->n_parcels--;
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
    return ((const FlowNode *)user)->best_bytes;
}

/* Moves it: whoever used its old place would find nothing there. */
static void *keep(void *user, void *message, const void **bytes)
{
    const FlowParcel *const parcel = message;
    FlowParcel *const kept = g_memdup2(parcel, sizeof(FlowParcel) + parcel->message.n_bytes);

    g_free(message);
    *bytes = kept->bytes;
    if (!((const FlowNode *)user)->keeps_nothing)
        return kept;
    drop(user, kept);
    return NULL;
}

static const TensorCarrier carrier = { new_message, send_message, forget, best_bytes, keep, drop };

/* ---- making ---- */

static const RubatoDtype kinds[] = { RUBATO_F32, RUBATO_F16, RUBATO_I8, RUBATO_I64, RUBATO_BOOL };

int64_t flow_world_value(uint32_t rank, uint64_t i)
{
    return ((int64_t)((i * 7 + rank) % 11) - 5) * 12;
}

void flow_world_put(RubatoDtype dtype, void *values, uint64_t i, int64_t value)
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

void flow_world_add_node(FlowWorld *world, uint32_t n_workers)
{
    const uint32_t number = world->n_nodes++;
    FlowNode *const node = &world->nodes[number];

    world->ids[number] = 3 * number + 1;
    world->first_ranks[number] = world->n_ranks;
    world->n_ranks_of[number] = n_workers;
    *node = (FlowNode){ .world = world,
                        .number = number,
                        .best_bytes = (size_t)random_below(&world->random, 4) << 17,
                        .steps = g_array_new(FALSE, FALSE, sizeof(TensorStep)) };
    for (uint32_t i = 0; i < n_workers; i++, world->n_ranks++)
        world->list[world->n_ranks] = &world->parts[world->n_ranks];
    world->n_asking += n_workers;
}

static void make_nodes(FlowWorld *world, bool joins)
{
    const uint32_t n_nodes = 2 + random_below(&world->random, FLOW_WORLD_NODES - 1);

    while (world->n_nodes < n_nodes) {
        const uint32_t first = world->n_ranks,
                       n = 1 + random_below(&world->random, FLOW_WORLD_LOCAL);
        const uint32_t asking = random_below(&world->random, n);

        flow_world_add_node(world, n);
        for (uint32_t i = 0; i < n && joins; i++)
            if (i != asking && random_below(&world->random, 3) == 0) {
                world->list[first + i] = NULL;
                world->n_asking--;
            }
    }
}

static uint64_t random_rows(FlowWorld *world)
{
    static const uint64_t most[] = { 1, 10, 3000, 40000 };

    return random_below(&world->random, (uint32_t)most[random_below(&world->random, 4)] + 1);
}

void flow_world_make_part(FlowWorld *world, uint32_t rank, const TensorRequest *request,
                          bool in_place)
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
        flow_world_put(request->dtype, input, i, flow_world_value(rank, i));
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
static double *combine_by_reference(const FlowWorld *world, uint64_t n)
{
    double *const vectors = g_new0(double, world->n_ranks *n + 1);

    for (uint32_t rank = 0; rank < world->n_ranks; rank++)
        for (uint64_t i = 0; i < n && world->list[rank] != NULL; i++)
            vectors[rank * n + i] = (double)flow_world_value(rank, i);
    adasum_reference(vectors, world->n_ranks, n);
    return vectors;
}

/* Some nodes send before they have a flow what it would send. Whether this one does. */
static bool send_ahead(FlowWorld *world, uint32_t node)
{
    const TensorPart *const part = world->list[world->first_ranks[node]];
    const size_t n_bytes =
        world->n_ranks_of[node] > 1 || part == NULL || world->n_asking < world->n_ranks
            ? 0
            : tensor_flow_ahead(&part->request, world->n_nodes);

    if (n_bytes == 0 || (world->random >> node & 1) == 0)
        return false;
    for (uint32_t to = 0; to < world->n_nodes; to++) {
        const TensorMessage message = { .kind = TENSOR_MESSAGE_PART,
                                        .number = 1,
                                        .n_bytes = n_bytes };
        void *bytes;

        if (to == node)
            continue;
        void *const parcel = new_message(&world->nodes[node], world->ids[to], &message, &bytes);
        memcpy(bytes, part->input, n_bytes);
        send_message(&world->nodes[node], world->ids[to], parcel);
    }
    world->n_ahead++;
    return true;
}

void flow_world_make_flows(FlowWorld *world, TensorWay way)
{
    const TensorCutovers cutovers = tensor_cutovers_all(way < TENSOR_WAYS ? way : 0);

    for (uint32_t node = 0; node < world->n_nodes; node++)
        world->nodes[node].flow = tensor_flow_new(
            &(TensorFlowPlan){ .number = 1,
                               .n_tensors = 1,
                               .n_ranks = world->n_ranks,
                               .n_asking = world->n_asking,
                               .n_nodes = world->n_nodes,
                               .self = node,
                               .nodes = world->ids,
                               .first_ranks = world->first_ranks,
                               .n_ranks_of = world->n_ranks_of,
                               .parts = &world->list[world->first_ranks[node]],
                               .cutovers = way < TENSOR_WAYS ? &cutovers : NULL,
                               .was_sent = way == TENSOR_WAYS && send_ahead(world, node),
                               .carrier = &carrier,
                               .user = &world->nodes[node] });
}

FlowWorld *flow_world_new(uint64_t seed)
{
    FlowWorld *const world = g_new0(FlowWorld, 1);

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
        flow_world_make_part(world, rank, &request, in_place);
    if (request.reduce.reduction == RUBATO_REDUCTION_ADASUM)
        world->adasum = combine_by_reference(world, tensor_request_values(&request));
    flow_world_make_flows(world, (TensorWay)random_below(&world->random, TENSOR_WAYS + 1));
    return world;
}

FlowWorld *flow_world_of(const TensorRequest *request, const uint32_t *n_ranks_of, uint32_t n_nodes,
                         size_t best_bytes)
{
    FlowWorld *const world = g_new0(FlowWorld, 1);

    world->random = 7;
    world->parcels = g_ptr_array_new();
    for (uint32_t node = 0; node < n_nodes; node++) {
        flow_world_add_node(world, n_ranks_of[node]);
        world->nodes[node].best_bytes = best_bytes;
    }
    for (uint32_t rank = 0; rank < world->n_ranks; rank++)
        flow_world_make_part(world, rank, request, /* in_place= */ false);
    flow_world_make_flows(world, TENSOR_WAYS);
    return world;
}

TensorRequest flow_world_adasum(uint64_t n)
{
    return (TensorRequest){
        .operation = TENSOR_ALLREDUCE,
        .dtype = RUBATO_F32,
        .n_dims = 2,
        .shape = { n, 1 },
        .reduce = { .reduction = RUBATO_REDUCTION_ADASUM, .prescale = 1, .postscale = 1 },
    };
}

void flow_world_free(FlowWorld *world)
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
static void deliver(FlowWorld *world, uint64_t seed)
{
    guint which = random_below(&world->random, world->parcels->len);
    const FlowParcel *const chosen = world->parcels->pdata[which];

    for (guint i = 0; i < which && chosen->message.kind == TENSOR_MESSAGE_ROWS; i++) {
        const FlowParcel *const other = world->parcels->pdata[i];

        if (other->message.kind == TENSOR_MESSAGE_SIZES && other->from == chosen->from &&
            other->to == chosen->to)
            which = i;
    }
    FlowParcel *const parcel = g_ptr_array_steal_index(world->parcels, which);
    TensorMessage message = parcel->message;
    message.bytes = parcel->bytes;
    FlowNode *const to = &world->nodes[parcel->to];
    const char *const wrong =
        tensor_flow_take(to->flow, world->ids[parcel->from], &message, parcel);
    require_msg(wrong == NULL, "seed %zu: %s", (size_t)seed, wrong);
}

static void finish_step(FlowNode *node)
{
    const guint which = random_below(&node->world->random, node->steps->len);
    TensorStep step = g_array_index(node->steps, TensorStep, which);

    g_array_remove_index(node->steps, which);
    tensor_flow_did(node->flow, &step, tensor_flow_do(node->flow, &step));
}

/* Does one thing of those that can be done. False: there is none. */
static bool move(FlowWorld *world, uint64_t seed)
{
    const uint32_t first = random_below(&world->random, 2 * world->n_nodes + 1);

    for (uint32_t i = 0; i < 2 * world->n_nodes + 1; i++) {
        const uint32_t what = (first + i) % (2 * world->n_nodes + 1);
        FlowNode *const node = &world->nodes[what / 2];
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

void flow_world_do_steps(FlowNode *node)
{
    TensorStep step;

    while (tensor_flow_next(node->flow, TENSOR_STEPS_ALL, &step))
        tensor_flow_did(node->flow, &step, tensor_flow_do(node->flow, &step));
}

/* A node that has failed tells the others, once. */
static void tell_failures(FlowWorld *world, bool *told)
{
    for (uint32_t node = 0; node < world->n_nodes; node++)
        if (!told[node] && tensor_flow_error(world->nodes[node].flow) != NULL)
            told[node] = tensor_flow_tell_failure(world->nodes[node].flow);
}

void flow_world_run(FlowWorld *world, uint64_t seed)
{
    bool told[FLOW_WORLD_NODES] = { false };

    do
        tell_failures(world, told);
    while (move(world, seed));
}
