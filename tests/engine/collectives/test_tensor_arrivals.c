/* Pieces of tensors that are read straight to a worker's output: the exchange alone, whose links
 * and whose connections are the test itself. Nothing is read there that does not belong there, and
 * nothing once the worker has its arrays again. */
#include <check.h>
#include <rubato/error.h>
#include <string.h>

#include "engine/collectives/negotiation/tensor_text.h"
#include "engine/collectives/tensor_exchange.h"
#include "engine/control/control.h"
#include "tests/support/collectives/idle_links.h"
#include "tests/support/runner.h"

/* Three nodes with a worker each, whose segments have two chunks each. Node 0 is this one, so
 * chunks 2 and 3 are results of node 1. The last segment has LACKING values less than the others.
 */
enum {
    N_NODES = 3,
    N_SHARE = 20032, /* ends with a cache line */
    LACKING = N_NODES,
    N_VALUES = N_NODES * N_SHARE - LACKING,
    N_CHUNK = 16 << 10,
    EPOCH = 5,
};

typedef struct {
    TensorExchange *exchange;
    float input[N_VALUES], output[N_VALUES];
    Call call;
    TensorEntry entry;
    BlockPool *pool;
    DirectRead directs[2]; /* of two connections */
    uint32_t n_messages;   /* that came and were not given back */
} World;

/* ---- links ---- */

/* What comes is the count of it alone. */
static void drop(void *user, void *message)
{
    (void)message;
    ((World *)user)->n_messages--;
}

static void *keep(void *user, void *message, const void **bytes)
{
    (void)user;
    (void)bytes;
    return message;
}

/* The rest comes while the worker waits. */
static void bring_rest(void *user, Call *call, int timeout_ms);

static const TensorLinks links = {
    .carrier = { .new_message = idle_new_message,
                 .send = idle_forget,
                 .forget = idle_forget,
                 .keep = keep,
                 .drop = drop },
    .tell = idle_tell,
    .is_full = idle_is_full,
    .wait_room = idle_wait_room,
    .wait = bring_rest,
    .outlives_losses = idle_yes,
};

/* ---- what comes ---- */

static void hear(World *world, const TensorVerdict *verdict)
{
    g_autoptr(GString) lines = g_string_new(NULL);

    tensor_verdict_write(lines, verdict);
    ck_assert(tensor_exchange_hear(world->exchange, lines->str));
}

static World *begin(void)
{
    static const uint32_t node_ids[] = { 0, 1, 2 }, workers_of[] = { 1, 1, 1 };
    World *const world = g_new0(World, 1);

    world->exchange = tensor_exchange_new(&(TensorPlace){ .task = "work",
                                                          .n_nodes = N_NODES,
                                                          .self = 0,
                                                          .node_ids = node_ids,
                                                          .workers_of = workers_of,
                                                          .stall_ms = 60000,
                                                          .epoch = EPOCH });
    tensor_exchange_link(world->exchange, &links, world);
    world->pool = block_pool_new();
    for (size_t i = 0; i < G_N_ELEMENTS(world->directs); i++)
        direct_read_init(&world->directs[i], world->pool);
    world->entry = (TensorEntry){
        .name = "sum",
        .part = { .request = { .operation = TENSOR_ALLREDUCE,
                               .dtype = RUBATO_F32,
                               .n_dims = 1,
                               .shape = { N_VALUES },
                               .reduce = { .prescale = 1, .postscale = 1 } },
                  .input = world->input,
                  .output = world->output },
        .call = &world->call,
    };
    call_begin(&world->call, NULL);
    call_add_parts(&world->call, 1);
    ck_assert(tensor_exchange_ask(world->exchange, 0, &world->entry, 1, NULL));
    call_sent(&world->call);
    hear(world,
         &(TensorVerdict){
             .kind = TENSOR_VERDICT_RUN, .number = 1, .slot = TENSOR_NO_SLOT, .name = "sum" });
    return world;
}

static void end(World *world)
{
    tensor_exchange_cancel(world->exchange, "it is enough");
    ck_assert(call_has_ended(&world->call));
    g_clear_error(&world->entry.failure);
    tensor_exchange_free(world->exchange);
    ck_assert_uint_eq(world->n_messages, 0);
    for (size_t i = 0; i < G_N_ELEMENTS(world->directs); i++) {
        direct_read_finish(&world->directs[i]);
        direct_read_clear(&world->directs[i]);
    }
    block_pool_free(world->pool);
    g_free(world);
}

/* The result of one chunk of a node's segment, whose values are nines. */
static TensorMessage result_of(uint32_t node, uint32_t chunk)
{
    static float nines[N_CHUNK];
    const size_t n_second = N_SHARE - N_CHUNK - (node == 2 ? LACKING : 0);

    for (size_t i = 0; i < N_CHUNK; i++)
        nines[i] = 9;
    return (TensorMessage){ .kind = TENSOR_MESSAGE_RESULT,
                            .number = 1,
                            .place = 2 * node + chunk,
                            .bytes = nines,
                            .n_bytes = (chunk == 0 ? N_CHUNK : n_second) * sizeof(float) };
}

static bool begin_direct(World *world, uint32_t node, const TensorMessage *message, int connection)
{
    return tensor_exchange_begin_direct(world->exchange, message,
                                        &(DirectPiece){ EPOCH, node, message->number },
                                        &world->directs[connection]);
}

/* n more of its bytes come. */
static void arrive(World *world, const TensorMessage *message, size_t n, int connection)
{
    DirectRead *const direct = &world->directs[connection];
    uint8_t *const to = direct_read_lock(direct);

    ck_assert_ptr_nonnull(to);
    memcpy(to + direct->n_come, (const uint8_t *)message->bytes + direct->n_come, n);
    direct_read_unlock(direct, n);
}

static const char *receive(World *world, uint32_t node, const TensorMessage *message)
{
    world->n_messages++;
    const char *const wrong = tensor_exchange_receive(world->exchange, node, message, world);
    world->n_messages -= wrong != NULL;
    return wrong;
}

/* The message has come to where its direct read is. */
static const char *receive_direct(World *world, uint32_t node, const TensorMessage *message,
                                  int connection)
{
    TensorMessage come = *message;

    come.is_direct = true;
    come.bytes = world->directs[connection].bytes;
    const char *const wrong = receive(world, node, &come);
    tensor_exchange_end_direct(world->exchange, &world->directs[connection]);
    return wrong;
}

/* Node 1's first result has come before. */
static void bring_rest(void *user, Call *call, int timeout_ms)
{
    World *const world = user;
    const float ones[N_SHARE] = { 0 };
    const TensorMessage parts = {
        .kind = TENSOR_MESSAGE_PART, .number = 1, .bytes = ones, .n_bytes = sizeof ones
    };
    const TensorMessage results[] = { result_of(1, 1), result_of(2, 0), result_of(2, 1) };

    (void)timeout_ms;
    for (uint32_t node = 1; node < N_NODES; node++)
        ck_assert_ptr_null(receive(world, node, &parts));
    for (size_t i = 0; i < G_N_ELEMENTS(results); i++)
        ck_assert_ptr_null(receive(world, i == 0 ? 1 : 2, &results[i]));
    ck_assert(call_has_ended(call));
}

static void finish(World *world)
{
    size_t n_wrong = 0;

    tensor_exchange_wait(world->exchange, 0, &world->call);
    ck_assert_ptr_null(world->entry.failure);
    for (size_t i = N_SHARE; i < N_VALUES; i++)
        n_wrong += world->output[i] != 9;
    ck_assert_uint_eq(n_wrong, 0);
}

/* The worker uses its array for something else, and nothing of it changes any more. */
static void use_output(World *world)
{
    memset(world->output, 0x11, sizeof world->output);
}

static void check_output(const World *world)
{
    size_t n_wrong = 0;

    for (size_t i = 0; i < sizeof world->output; i++)
        n_wrong += ((const uint8_t *)world->output)[i] != 0x11;
    ck_assert_uint_eq(n_wrong, 0);
}

/* ---- cases ---- */

START_TEST(results_alone_have_a_place_and_it_is_their_own)
{
    World *const world = begin();
    const TensorMessage right = result_of(1, 0);
    TensorMessage wrong[11];
    size_t n = 0;

    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++)
        wrong[i] = right;
    wrong[n++].number = 2;
    wrong[n++].kind = TENSOR_MESSAGE_PART;
    wrong[n++].kind = TENSOR_MESSAGE_ROWS;
    wrong[n++].place = 0; /* this node's own */
    wrong[n].place = 0;
    wrong[n++].kind = TENSOR_MESSAGE_PART; /* a part is no result */
    wrong[n++].place = 4;                  /* node 2's */
    wrong[n++].place = 6;
    wrong[n++].place = UINT64_MAX;
    wrong[n++].n_bytes += sizeof(float);
    wrong[n++].n_bytes = 0;
    wrong[n++].n_bytes = SIZE_MAX - 3;
    ck_assert_uint_eq(n, G_N_ELEMENTS(wrong));
    for (size_t i = 0; i < n; i++)
        require_msg(!begin_direct(world, 1, &wrong[i], 0), "number %zu has a place", i);
    ck_assert(!begin_direct(world, 2, &right, 0));

    ck_assert(begin_direct(world, 1, &right, 0));
    ck_assert_ptr_eq(world->directs[0].bytes, world->output + N_SHARE);
    ck_assert_uint_eq(world->directs[0].n_bytes, N_CHUNK * sizeof(float));
    ck_assert(!begin_direct(world, 1, &right, 1)); /* one at a time, of each node */
    const TensorMessage other = result_of(2, 1);
    ck_assert(begin_direct(world, 2, &other, 1));
    ck_assert_ptr_eq(world->directs[1].bytes, world->output + 2 * N_SHARE + N_CHUNK);
    tensor_exchange_end_direct(world->exchange, &world->directs[1]);

    arrive(world, &right, right.n_bytes, 0);
    ck_assert_ptr_null(receive_direct(world, 1, &right, 0));
    ck_assert(!world->directs[0].is_revoked);
    ck_assert(!begin_direct(world, 1, &right, 0)); /* it has come */
    finish(world);
    ck_assert(!begin_direct(world, 1, &right, 0)); /* it is over */
    end(world);
}
END_TEST

/* The connection broke: the packet comes again, on another one. */
START_TEST(piece_that_broke_off_comes_again)
{
    World *const world = begin();
    const TensorMessage right = result_of(1, 0);

    ck_assert(begin_direct(world, 1, &right, 0));
    arrive(world, &right, 1000, 0);
    tensor_exchange_end_direct(world->exchange, &world->directs[0]);
    ck_assert(begin_direct(world, 1, &right, 1));
    arrive(world, &right, right.n_bytes, 1);
    ck_assert_ptr_null(receive_direct(world, 1, &right, 1));
    ck_assert(!world->directs[0].is_revoked && !world->directs[1].is_revoked);
    finish(world);
    end(world);
}
END_TEST

/* The old connection is still there, and brings the rest later. */
START_TEST(piece_that_comes_on_another_connection_takes_its_place_back)
{
    World *const world = begin();
    const TensorMessage right = result_of(1, 0);
    TensorMessage late = right;

    ck_assert(begin_direct(world, 1, &right, 0));
    arrive(world, &right, 1000, 0);
    ck_assert_ptr_null(receive(world, 1, &right));
    ck_assert(world->directs[0].is_revoked);
    finish(world);
    use_output(world);
    arrive(world, &late, late.n_bytes - 1000, 0);
    ck_assert_int_eq(memcmp(world->directs[0].bytes, right.bytes, right.n_bytes), 0);
    tensor_exchange_end_direct(world->exchange, &world->directs[0]);
    check_output(world);
    end(world);
}
END_TEST

static void cancel(World *world)
{
    tensor_exchange_cancel(world->exchange, "it is enough");
}

static void fail_elsewhere(World *world)
{
    static const char text[] = "no memory";

    ck_assert_ptr_null(receive(world, 2,
                               &(TensorMessage){ .kind = TENSOR_MESSAGE_FAILURE,
                                                 .code = CONTROL_CODE(RUBATO_ERROR_MEMORY),
                                                 .number = 1,
                                                 .bytes = text,
                                                 .n_bytes = sizeof text - 1 }));
}

static void send_nonsense(World *world)
{
    TensorMessage nonsense = result_of(2, 0);

    nonsense.place = 0;
    ck_assert_ptr_nonnull(receive(world, 2, &nonsense));
}

static void (*const ends[])(World *world) = { cancel, fail_elsewhere, send_nonsense };

/* The rest of the piece comes when the worker has its arrays again, and is dropped. */
START_TEST(operation_that_ends_takes_places_back)
{
    World *const world = begin();
    const TensorMessage right = result_of(1, 0);

    ck_assert(begin_direct(world, 1, &right, 0));
    arrive(world, &right, 1000, 0);
    ends[_i](world);
    ck_assert(call_has_ended(&world->call));
    ck_assert_ptr_nonnull(world->entry.failure);
    ck_assert(world->directs[0].is_revoked);
    use_output(world);
    arrive(world, &right, right.n_bytes - 1000, 0);
    ck_assert_ptr_null(receive_direct(world, 1, &right, 0));
    ck_assert_uint_eq(world->n_messages, 0);
    ck_assert(!begin_direct(world, 1, &right, 0));
    check_output(world);
    end(world);
}
END_TEST

/* A piece is never kept as if it was early: its bytes are gone when it was received. */
START_TEST(direct_piece_of_no_operation_is_dropped)
{
    World *const world = begin();
    TensorMessage strange = result_of(1, 0);

    strange.is_direct = true;
    strange.number = 2; /* is not decided here */
    ck_assert_ptr_null(receive(world, 1, &strange));
    ck_assert_uint_eq(world->n_messages, 0);
    strange.number = 1; /* runs, and knows nothing of it */
    ck_assert_ptr_null(receive(world, 1, &strange));
    ck_assert_uint_eq(world->n_messages, 0);
    ck_assert(!call_has_ended(&world->call));
    end(world);
}
END_TEST

/* As if the worker's memory could not be written to: the transport has gone on in a block. */
START_TEST(piece_whose_read_was_revoked_is_copied_at_once)
{
    World *const world = begin();
    const TensorMessage right = result_of(1, 0);

    ck_assert(begin_direct(world, 1, &right, 0));
    arrive(world, &right, 1000, 0);
    direct_read_revoke(&world->directs[0]);
    arrive(world, &right, right.n_bytes - 1000, 0);
    ck_assert_ptr_null(receive_direct(world, 1, &right, 0));
    direct_read_finish(&world->directs[0]);
    finish(world);
    end(world);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor_arrivals");
    TCase *const cases = tcase_create("cases");

    tcase_add_test(cases, results_alone_have_a_place_and_it_is_their_own);
    tcase_add_test(cases, piece_that_broke_off_comes_again);
    tcase_add_test(cases, piece_that_comes_on_another_connection_takes_its_place_back);
    tcase_add_loop_test(cases, operation_that_ends_takes_places_back, 0, G_N_ELEMENTS(ends));
    tcase_add_test(cases, direct_piece_of_no_operation_is_dropped);
    tcase_add_test(cases, piece_whose_read_was_revoked_is_copied_at_once);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
