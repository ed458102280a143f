/* Simulated nodes with flows: see flow_world.h. */
#include "tests/support/collectives/flow_world.h"

#include <check.h>
#include <rubato/error.h>
#include <string.h>

#include "engine/collectives/negotiation/tensor_cutovers.h"
#include "tests/support/collectives/adasum_reference.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

/* ---- what is lent ---- */

static void check_loan(const FlowLoan *loan)
{
    require_msg(memcmp(loan->values, loan->sent, loan->n_bytes) == 0,
                "values that node %u has sent have changed", loan->from);
}

static void end_loan(FlowWorld *world, FlowLoan *loan)
{
    for (guint i = 0; i < world->parcels->len; i++) {
        FlowParcel *const parcel = world->parcels->pdata[i];

        if (parcel->loan == loan)
            parcel->loan = NULL;
    }
    g_ptr_array_remove_fast(world->loans, loan);
    if (loan->copy == NULL)
        call_end_part(loan->readers, CALL_OK, 0);
    g_free(loan->copy);
    g_free(loan->sent);
    g_free(loan);
}

/* Of a node to another one; UINT32_MAX: any. */
static void end_loans(FlowWorld *world, uint32_t from, uint32_t to)
{
    for (guint i = world->loans->len; i-- > 0;) {
        FlowLoan *const loan = world->loans->pdata[i];

        if ((from == UINT32_MAX || loan->from == from) && (to == UINT32_MAX || loan->to == to))
            end_loan(world, loan);
    }
}

static void revoke_loans(FlowWorld *world, uint32_t from)
{
    for (guint i = 0; i < world->loans->len && !world->has_no_copies; i++) {
        FlowLoan *const loan = world->loans->pdata[i];

        if (loan->from != from || loan->copy != NULL)
            continue;
        check_loan(loan);
        loan->values = loan->copy = g_memdup2(loan->values, loan->n_bytes);
        call_end_part(loan->readers, CALL_OK, 0);
    }
}

/* Some message that was delivered is acknowledged. */
static bool acknowledge(FlowWorld *world, uint64_t seed)
{
    (void)seed;
    const guint n = world->loans->len;
    const guint first = n > 0 ? random_below(&world->random, n) : 0;

    for (guint i = 0; i < n; i++) {
        FlowLoan *const loan = world->loans->pdata[(first + i) % n];

        if (!loan->is_delivered)
            continue;
        check_loan(loan);
        end_loan(world, loan);
        return true;
    }
    return false;
}

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

static uint32_t number_of(const FlowWorld *world, uint32_t id)
{
    uint32_t number = 0;

    while (world->ids[number] != id)
        number++;
    return number;
}

/* Some of the messages that may be lent are. */
static void *lend_message(void *user, uint32_t to, const TensorMessage *message, Call *readers)
{
    FlowNode *const node = user;
    FlowWorld *const world = node->world;

    if (message->n_bytes == 0 || random_below(&world->random, 3) == 0)
        return NULL;
    FlowLoan *const loan = g_new(FlowLoan, 1);
    *loan = (FlowLoan){ .from = node->number,
                        .to = number_of(world, to),
                        .values = message->bytes,
                        .n_bytes = message->n_bytes,
                        .readers = readers };
    FlowParcel *const parcel = g_malloc(sizeof(FlowParcel) + message->n_bytes);
    *parcel = (FlowParcel){ .from = node->number, .message = *message, .loan = loan };
    call_join_part(readers);
    g_ptr_array_add(world->loans, loan);
    world->n_parcels++;
    world->n_lent++;
    return parcel;
}

/* Some values that are the same for several nodes are shared; they are there when the message is
 * sent. What goes to a node that is lost is gone by then. */
static void *share_message(void *user, uint32_t to, const TensorMessage *message, void *first)
{
    FlowNode *const node = user;

    (void)to;
    if (!tensor_message_may_be_lent(message->kind) || node->has_forgotten ||
        random_below(&node->world->random, 2) == 0)
        return NULL;
    FlowParcel *const parcel = g_malloc(sizeof(FlowParcel) + message->n_bytes);
    *parcel = (FlowParcel){ .from = node->number, .message = *message, .shared = first };
    node->world->n_parcels++;
    node->world->n_shared++;
    return parcel;
}

static void drop(void *user, void *message)
{
    ((FlowNode *)user)->world->n_parcels--;
    g_free(message);
}

static void forget(void *user, uint32_t node, void *message)
{
    FlowParcel *const parcel = message;

    (void)node;
    if (parcel->loan != NULL)
        end_loan(((FlowNode *)user)->world, parcel->loan);
    drop(user, message);
}

static void send_message(void *user, uint32_t to, void *message)
{
    FlowNode *const node = user;
    FlowParcel *const parcel = message;
    FlowLoan *const loan = parcel->loan;

    parcel->to = number_of(node->world, to);
    if (node->has_forgotten && node->world->nodes[parcel->to].is_lost) {
        forget(user, to, message);
        return;
    }
    if (parcel->shared != NULL)
        memcpy(parcel->bytes, parcel->shared->bytes, parcel->message.n_bytes);
    if (loan != NULL) {
        memcpy(parcel->bytes, loan->values, loan->n_bytes);
        loan->sent = g_memdup2(loan->values, loan->n_bytes);
    }
    g_ptr_array_add(node->world->parcels, parcel);
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
    *bytes = kept->message.is_direct ? kept->message.bytes : kept->bytes;
    if (!((const FlowNode *)user)->keeps_nothing)
        return kept;
    drop(user, kept);
    return NULL;
}

static const TensorCarrier carrier = { .new_message = new_message,
                                       .share_message = share_message,
                                       .lend_message = lend_message,
                                       .send = send_message,
                                       .forget = forget,
                                       .best_bytes = best_bytes,
                                       .keep = keep,
                                       .drop = drop };

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

FlowWorld *flow_world_begin(uint64_t seed)
{
    FlowWorld *const world = g_new0(FlowWorld, 1);

    world->random = seed * 2 + 1;
    world->parcels = g_ptr_array_new();
    world->loans = g_ptr_array_new();
    return world;
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
    part->readers = &world->readers[rank];
    call_begin(part->readers, NULL);
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

static void send_copy(FlowWorld *world, uint32_t node, uint32_t to, TensorMessage message,
                      const void *values)
{
    void *bytes;

    message.number = 1;
    void *const parcel = new_message(&world->nodes[node], world->ids[to], &message, &bytes);
    if (message.n_bytes > 0)
        memcpy(bytes, values, message.n_bytes);
    send_message(&world->nodes[node], world->ids[to], parcel);
}

/* Some nodes send before they have a flow what it would send. Whether this one does. */
static bool send_ahead(FlowWorld *world, uint32_t node)
{
    TensorPart *const part = world->list[world->first_ranks[node]];
    const TensorFlowPlan plan = { .n_ranks = world->n_ranks,
                                  .n_nodes = world->n_nodes,
                                  .self = node,
                                  .nodes = world->ids,
                                  .first_ranks = world->first_ranks,
                                  .n_ranks_of = world->n_ranks_of,
                                  .parts = &part,
                                  .carrier = &carrier,
                                  .user = &world->nodes[node] };
    TensorAhead ahead;

    if (world->n_ranks_of[node] > 1 || part == NULL || world->n_asking < world->n_ranks ||
        (world->random >> node & 1) == 0 || !tensor_flow_ahead(&plan, node, &ahead))
        return false;
    if (ahead.n_bytes <
        tensor_request_values(&part->request) * rubato_dtype_size(part->request.dtype))
        world->n_ahead_shares++;
    for (uint32_t to = 0; to < world->n_nodes; to++) {
        if (to == node)
            continue;
        ck_assert(tensor_flow_ahead(&plan, to, &ahead));
        if (ahead.sizes != NULL)
            send_copy(world, node, to,
                      (TensorMessage){ .kind = TENSOR_MESSAGE_SIZES,
                                       .n_bytes = ahead.n_sizes * sizeof(uint64_t) },
                      ahead.sizes);
        if (ahead.n_fetched > 0) {
            g_free(g_memdup2(ahead.fetched, ahead.n_fetched)); /* all of it is there */
            world->n_fetched_of[part->request.operation]++;
        }
        if (ahead.n_bytes > 0)
            send_copy(world, node, to,
                      (TensorMessage){
                          .kind = ahead.kind, .place = ahead.place, .n_bytes = ahead.n_bytes },
                      ahead.bytes);
    }
    world->n_ahead++;
    world->n_ahead_of[part->request.operation]++;
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
    FlowWorld *const world = flow_world_begin(seed);
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
    FlowWorld *const world = flow_world_begin(3);

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
    end_loans(world, UINT32_MAX, UINT32_MAX);
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
    g_ptr_array_unref(world->loans);
    g_free(world);
}

/* ---- running ---- */

/* Some bytes of a message are written to their place, and are wrong: its connection breaks before
 * they are checked. */
static bool begin_to_arrive(FlowWorld *world, uint64_t seed)
{
    (void)seed;
    const guint n = world->parcels->len;
    const guint first = n > 0 ? random_below(&world->random, n) : 0;

    for (guint i = 0; i < n; i++) {
        FlowParcel *const parcel = world->parcels->pdata[(first + i) % n];
        const FlowNode *const to = &world->nodes[parcel->to];

        if (parcel->has_begun || to->is_lost || to->is_over)
            continue;
        parcel->has_begun = true;
        uint8_t *const place =
            tensor_flow_place(to->flow, world->ids[parcel->from], &parcel->message);
        if (place != NULL)
            memset(place, 0xab,
                   random_below(&world->random, (uint32_t)parcel->message.n_bytes + 1));
        return true;
    }
    return false;
}

/* Some of the messages that have a place come there. Then their bytes are nowhere else. */
static void put_to_place(FlowWorld *world, FlowParcel *parcel)
{
    TensorMessage *const message = &parcel->message;
    uint8_t *const place =
        tensor_flow_place(world->nodes[parcel->to].flow, world->ids[parcel->from], message);

    if (place == NULL || random_below(&world->random, 4) == 0)
        return;
    memcpy(place, parcel->bytes, message->n_bytes);
    memset(parcel->bytes, 0xcd, message->n_bytes);
    message->is_direct = true;
    message->bytes = place;
    world->n_direct++;
}

/* One of the messages, but no ROWS before the SIZES of the same node. */
static bool deliver(FlowWorld *world, uint64_t seed)
{
    if (world->parcels->len == 0)
        return false;
    guint which = random_below(&world->random, world->parcels->len);
    const FlowParcel *const chosen = world->parcels->pdata[which];

    for (guint i = 0; i < which && chosen->message.kind == TENSOR_MESSAGE_ROWS; i++) {
        const FlowParcel *const other = world->parcels->pdata[i];

        if (other->message.kind == TENSOR_MESSAGE_SIZES && other->from == chosen->from &&
            other->to == chosen->to)
            which = i;
    }
    FlowParcel *const parcel = g_ptr_array_steal_index(world->parcels, which);
    parcel->message.bytes = parcel->bytes;
    FlowNode *const to = &world->nodes[parcel->to];
    if (parcel->loan != NULL && !to->is_lost) {
        check_loan(parcel->loan);
        parcel->loan->is_delivered = true;
        parcel->loan = NULL;
    }
    if (to->is_lost || to->is_over) {
        drop(to, parcel);
        return true;
    }
    put_to_place(world, parcel);
    const TensorMessage message = parcel->message;
    const char *const wrong =
        tensor_flow_take(to->flow, world->ids[parcel->from], &message, parcel);
    require_msg(wrong == NULL, "seed %zu: %s", (size_t)seed, wrong);
    return true;
}

static bool finish_step(FlowNode *node)
{
    if (node->steps->len == 0)
        return false;
    const guint which = random_below(&node->world->random, node->steps->len);
    TensorStep step = g_array_index(node->steps, TensorStep, which);

    g_array_remove_index(node->steps, which);
    tensor_flow_did(node->flow, &step, tensor_flow_do(node->flow, &step));
    return true;
}

static bool begin_step(FlowNode *node)
{
    TensorStep step;

    if (!tensor_flow_next(node->flow, TENSOR_STEPS_ALL, &step))
        return false;
    g_array_append_val(node->steps, step);
    return true;
}

/* The operation has ended for the node's workers, who wait until nobody reads their arrays. */
static bool end_operation(FlowNode *node)
{
    FlowWorld *const world = node->world;

    if (node->has_ended || node->steps->len > 0 || !tensor_flow_has_ended(node->flow))
        return false;
    node->has_ended = true;
    for (guint i = 0; i < world->loans->len; i++)
        world->n_outlived += ((const FlowLoan *)world->loans->pdata[i])->from == node->number;
    for (uint32_t i = 0; i < world->n_ranks_of[node->number]; i++)
        call_sent(&world->readers[world->first_ranks[node->number] + i]);
    if (tensor_flow_error(node->flow) != NULL)
        revoke_loans(world, node->number);
    return true;
}

/* Whoever still reads where they were reads memory that was freed. */
static void move_arrays(TensorPart *part)
{
    const size_t n_bytes =
        tensor_request_values(&part->request) * rubato_dtype_size(part->request.dtype) + 1;
    void *const input = (void *)(uintptr_t)part->input;
    const bool in_place = part->output == input;

    part->input = g_memdup2(input, n_bytes);
    g_free(input);
    if (in_place) {
        part->output = (void *)(uintptr_t)part->input;
        return;
    }
    void *const output = part->output;
    part->output = g_memdup2(output, n_bytes);
    g_free(output);
}

static bool take_arrays_back(FlowNode *node)
{
    FlowWorld *const world = node->world;
    const uint32_t first = world->first_ranks[node->number];
    const uint32_t n = world->n_ranks_of[node->number];

    for (uint32_t i = 0; i < n; i++)
        if (!node->has_ended || node->is_over || !call_has_ended(&world->readers[first + i]))
            return false;
    for (guint i = 0; i < world->loans->len; i++) {
        const FlowLoan *const loan = world->loans->pdata[i];

        require_msg(loan->from != node->number || loan->copy != NULL,
                    "node %u: nobody waits for who reads its workers' arrays", node->number);
    }
    node->is_over = true;
    for (uint32_t i = 0; i < n; i++)
        move_arrays(&world->parts[first + i]);
    return true;
}

static void lose(FlowWorld *world)
{
    FlowNode *const node = &world->nodes[world->loses];

    node->is_lost = true;
    for (guint i = 0; i < node->steps->len; i++)
        if (g_array_index(node->steps, TensorStep, i).message != NULL)
            drop(node, g_array_index(node->steps, TensorStep, i).message);
    g_array_set_size(node->steps, 0);
    end_loans(world, node->number, UINT32_MAX);
}

/* Another node was lost: what goes to it is forgotten, and what it has a part in fails; first one,
 * then the other. */
static bool hear_of_loss(FlowNode *node)
{
    FlowWorld *const world = node->world;
    g_autoptr(GError) error =
        g_error_new_literal(RUBATO_ERROR, RUBATO_ERROR_NODE_LOST, "a node is lost");

    if (!world->nodes[world->loses].is_lost || (node->has_forgotten && node->has_failed))
        return false;
    if (node->has_failed || (!node->has_forgotten && random_below(&world->random, 2) == 0)) {
        node->has_forgotten = true;
        end_loans(world, node->number, world->loses);
        return true;
    }
    node->has_failed = true;
    if (!tensor_flow_has_ended(node->flow))
        tensor_flow_fail(node->flow, error);
    return true;
}

static bool (*const moves_of_node[])(FlowNode *node) = { finish_step, begin_step, end_operation,
                                                         take_arrays_back, hear_of_loss };

static bool (*const moves_of_world[])(FlowWorld *world, uint64_t seed) = { acknowledge, deliver,
                                                                           begin_to_arrive };

/* Does one thing of those that can be done. False: there is none. */
static bool move(FlowWorld *world, uint64_t seed)
{
    const uint32_t n_of_nodes = G_N_ELEMENTS(moves_of_node) * world->n_nodes;
    const uint32_t n_moves = n_of_nodes + G_N_ELEMENTS(moves_of_world);
    const uint32_t first = random_below(&world->random, n_moves);

    if (world->n_until_loss > 0 && --world->n_until_loss == 0)
        lose(world);
    for (uint32_t i = 0; i < n_moves; i++) {
        const uint32_t what = (first + i) % n_moves;

        if (what >= n_of_nodes) {
            if (moves_of_world[what - n_of_nodes](world, seed))
                return true;
            continue;
        }
        FlowNode *const node = &world->nodes[what / G_N_ELEMENTS(moves_of_node)];
        if (!node->is_lost && moves_of_node[what % G_N_ELEMENTS(moves_of_node)](node))
            return true;
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
    for (uint32_t node = 0; node < world->n_nodes; node++)
        require_msg(!world->nodes[node].has_ended || world->nodes[node].is_over ||
                        world->nodes[node].is_lost,
                    "seed %zu: node %u waits for its arrays for ever", (size_t)seed, node);
}
