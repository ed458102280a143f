/* Nodes of an operation on a tensor get, besides what belongs to it, messages that a node made up:
 * of any kind, for any place, of sizes that may fit. Each is refused, or taken for what it says.
 * Then values are wrong, or the operation fails, and that is all: a sanitizer sees what is read and
 * written beyond the arrays and the messages. */
#include <check.h>
#include <string.h>

#include "tests/support/collectives/flow_world.h"
#include "tests/support/runner.h"

enum { N_SEEDS = 150, N_LIES = 20, N_TURNS = 6, MOST_ROWS = 1000 };

static uint64_t below(GRand *random, uint64_t n)
{
    return (uint64_t)g_rand_int_range(random, 0, (gint32)n);
}

/* A message like that one, more or less. */
static TensorMessage lie_of(GRand *random, const TensorMessage *told, const TensorMessage *other)
{
    static const size_t sizes[] = { 0, 1, 2, 4, 8, 12, 16, 24, 128 << 10, 256 << 10, 512 << 10 };
    TensorMessage message = *told;
    size_t less;

    if (below(random, 2) == 0)
        message.kind = (TensorMessageKind)(1 + below(random, TENSOR_MESSAGE_END - 1));
    if (message.kind == TENSOR_MESSAGE_FAILURE && below(random, 20) > 0)
        message.kind = TENSOR_MESSAGE_RESULT; /* it ends the operation */
    message.code = message.kind == TENSOR_MESSAGE_FAILURE ? 1 : 0;
    switch (below(random, 6)) {
    case 0:
        message.place = other->place;
        break;
    case 1:
        message.place += below(random, 3) - 1;
        break;
    case 2:
        message.place = below(random, 8) << 32 | below(random, 8);
        break;
    case 3:
        message.place = UINT64_MAX >> below(random, 64);
        break;
    default:
        break;
    }
    switch (below(random, 6)) {
    case 0:
        message.n_bytes = other->n_bytes;
        break;
    case 1:
        message.n_bytes = sizes[below(random, G_N_ELEMENTS(sizes))];
        break;
    case 2:
        message.n_bytes *= below(random, 4);
        break;
    case 3:
        less = sizes[below(random, 8)];
        message.n_bytes -= MIN(message.n_bytes, less);
        break;
    default:
        break;
    }
    message.n_bytes = MIN(message.n_bytes, (size_t)TENSOR_MESSAGE_MOST_BYTES);
    message.is_direct = message.is_lent = false;
    return message;
}

/* Bytes of any values. Numbers of rows are such that there is memory for them, or never. */
static void make_up(GRand *random, const TensorMessage *message, uint8_t *bytes)
{
    memset(bytes, (int)below(random, 256), message->n_bytes);
    for (size_t i = 0; message->kind == TENSOR_MESSAGE_SIZES && i + 8 <= message->n_bytes; i += 8) {
        const uint64_t rows = below(random, 10) == 0 ? UINT64_MAX : below(random, MOST_ROWS);

        memcpy(bytes + i, &rows, sizeof rows);
    }
}

/* As it comes from the network: straight to its place, if it has one, or not. */
static void send_lie(FlowWorld *world, GRand *random, uint32_t from, uint32_t to,
                     TensorMessage message)
{
    TensorFlow *const flow = world->nodes[to].flow;
    FlowParcel *const parcel = g_malloc(sizeof *parcel + message.n_bytes);

    message.bytes = parcel->bytes;
    make_up(random, &message, parcel->bytes);
    uint8_t *const place =
        below(random, 2) == 0 ? tensor_flow_place(flow, world->ids[from], &message) : NULL;
    if (place != NULL) {
        memcpy(place, parcel->bytes, message.n_bytes);
        message.bytes = place;
        message.is_direct = true;
    }
    *parcel = (FlowParcel){ .from = from, .to = to, .message = message };
    world->n_parcels++;
    if (tensor_flow_take(flow, world->ids[from], &message, parcel) != NULL) {
        world->n_parcels--;
        g_free(parcel);
    }
}

static void lie(FlowWorld *world, GRand *random)
{
    for (uint32_t i = 0; i < N_LIES && world->parcels->len > 0; i++) {
        const FlowParcel *const one = world->parcels->pdata[below(random, world->parcels->len)];
        const FlowParcel *const other = world->parcels->pdata[below(random, world->parcels->len)];
        const TensorMessage told = lie_of(random, &one->message, &other->message);

        send_lie(world, random, one->from, one->to, told);
        flow_world_do_steps(&world->nodes[one->to]);
    }
}

/* Takes some of what is on its way, which may be refused now. */
static void deliver_some(FlowWorld *world, GRand *random)
{
    for (guint n = (guint)below(random, 1 + world->parcels->len / 2); n > 0; n--) {
        const guint which = (guint)below(random, world->parcels->len);
        const FlowParcel *const told = world->parcels->pdata[which];

        if (told->loan != NULL || told->shared != NULL)
            continue; /* its bytes are elsewhere */
        FlowParcel *const parcel = g_ptr_array_steal_index(world->parcels, which);
        TensorMessage message = parcel->message;
        const uint32_t to = parcel->to;

        message.bytes = parcel->bytes;
        if (tensor_flow_take(world->nodes[to].flow, world->ids[parcel->from], &message, parcel) !=
            NULL) {
            world->n_parcels--;
            g_free(parcel);
        }
        flow_world_do_steps(&world->nodes[to]);
    }
}

START_TEST(what_a_liar_sends_stays_within_arrays)
{
    for (uint64_t seed = (uint64_t)_i * N_SEEDS; seed < (uint64_t)(_i + 1) * N_SEEDS; seed++) {
        FlowWorld *const world = flow_world_new(seed);
        g_autoptr(GRand) random = g_rand_new_with_seed((guint32)seed);

        for (uint32_t turn = 0; turn < N_TURNS; turn++) {
            for (uint32_t node = 0; node < world->n_nodes; node++)
                if (below(random, 2) == 0)
                    flow_world_do_steps(&world->nodes[node]);
            lie(world, random);
            deliver_some(world, random);
        }
        flow_world_free(world);
    }
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor_liar");
    TCase *const cases = tcase_create("cases");

    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, what_a_liar_sends_stays_within_arrays, 0, 2);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
