/* What threads of one node do of a large allreduce while others of them send, or wait for room: the
 * exchange alone, whose links to the other node and to the coordinator are the test itself. */
#include <check.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>

#include "engine/collectives/flow/tensor_segments.h"
#include "engine/collectives/negotiation/tensor_text.h"
#include "engine/collectives/tensor_exchange.h"
#include "io/net/monotonic.h"
#include "tests/support/collectives/idle_links.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum {
    SELF = 0,
    OTHER = 1,
    MOST_LOCAL = 2,
    N_VALUES = 300000,
    CHUNK_VALUES = 16 << 10, /* of both kinds of allreduce, with so few workers */
};

typedef struct {
    float values[N_VALUES];
    Call call;
    TensorEntry entry;
} Asked;

typedef struct {
    TensorExchange *exchange;
    RubatoReduction reduction;
    uint32_t n_local;
    Asked asked[MOST_LOCAL];
    TensorSegments segments;
    bool is_full, is_receiving;
    bool is_silent;                        /* there is no room until the log has said so */
    bool has_parts, has_dots, has_results; /* of the other node */
    uint32_t n_dropped, n_sent_by_receiver;

    /* of the second worker, if there is one */
    pthread_t sleeper;
    sem_t is_asleep, may_go_on;
    Call *sleeping; /* NULL: it has not slept */
    bool was_woken;
} World;

/* ---- what the other node sends ---- */

static void receive(World *world, TensorMessageKind kind, uint64_t place, void *values,
                    size_t n_bytes)
{
    world->is_receiving = true;
    ck_assert_ptr_null(tensor_exchange_receive(
        world->exchange, OTHER,
        &(TensorMessage){
            .kind = kind, .number = 1, .place = place, .bytes = values, .n_bytes = n_bytes },
        values));
    world->is_receiving = false;
}

/* Messages with the same value everywhere, one for each chunk of a segment. Returns how many. */
static uint32_t receive_segment(World *world, TensorMessageKind kind, uint32_t segment, float value)
{
    const uint64_t first = world->segments.first_chunk[segment];
    const uint64_t end_chunk = world->segments.first_chunk[segment + 1];

    for (uint64_t chunk = first; chunk < end_chunk; chunk++) {
        uint64_t end_value;
        const uint64_t begin_value = tensor_chunk_begin(&world->segments, chunk, &end_value);
        const uint64_t n = end_value - begin_value;
        float *const values = g_new(float, n);

        for (uint64_t i = 0; i < n; i++)
            values[i] = value;
        receive(world, kind, chunk, values, n * sizeof *values);
    }
    return (uint32_t)(end_chunk - first);
}

static void receive_parts(World *world)
{
    world->has_parts = true;
    receive_segment(world, TENSOR_MESSAGE_PART, SELF, 1);
}

/* Of vectors of ones. */
static void receive_dots(World *world)
{
    const uint64_t n = world->segments.ends[OTHER] - world->segments.ends[SELF];
    const uint32_t n_dots = world->n_local == 1 ? 3 : 6;
    double *const dots = g_new(double, n_dots);

    world->has_dots = true;
    for (uint32_t i = 0; i < n_dots; i++)
        dots[i] = (double)n;
    receive(world, TENSOR_MESSAGE_DOTS, 0, dots, n_dots * sizeof *dots);
}

/* What they hold is given back to their sender at once. */
static void receive_results(World *world)
{
    const uint32_t n_before = world->n_dropped;
    const bool is_sum = world->reduction == RUBATO_REDUCTION_SUM;

    world->has_results = true;
    const uint32_t n = receive_segment(world, TENSOR_MESSAGE_RESULT, OTHER, is_sum ? 2 : 1);
    ck_assert_uint_gt(n, 1);
    ck_assert_uint_eq(world->n_dropped, n_before + n);
}

/* ---- links ---- */

static void *sleep_in_thread(void *user)
{
    World *const world = user;

    tensor_exchange_wait(world->exchange, 1, &world->asked[1].call);
    return NULL;
}

static void send_message(void *user, uint32_t node, void *message)
{
    World *const world = user;

    (void)node;
    g_free(message);
    world->n_sent_by_receiver += world->is_receiving;
    if (world->n_local == 1 || !world->has_dots || world->sleeping != NULL)
        return;
    /* these are the dots, and there is nothing else to do */
    ck_assert_int_eq(pthread_create(&world->sleeper, NULL, sleep_in_thread, world), 0);
    sem_wait(&world->is_asleep);
}

static void drop(void *user, void *message)
{
    ((World *)user)->n_dropped++;
    g_free(message);
}

static bool is_full(void *user, uint32_t node)
{
    (void)node;
    return ((World *)user)->is_full;
}

static bool let_time_pass(int timeout_ms)
{
    const int64_t end_ms = monotonic_ms() + timeout_ms;

    while (monotonic_ms() < end_ms)
        sched_yield();
    return false;
}

/* There is none for the first result until those of the other node have been taken in. */
static bool wait_room(void *user, uint32_t node, bool (*is_over)(void *data), void *data,
                      int timeout_ms)
{
    World *const world = user;

    (void)node;
    (void)is_over;
    (void)data;
    if (world->is_silent) {
        world->is_silent =
            log_capture_count("allreduce large of task room waits for node 1 to take "
                              "in what was sent to it, last heard 2.5 s ago") == 0;
        return let_time_pass(timeout_ms);
    }
    if (!world->has_parts || world->has_results ||
        (world->reduction == RUBATO_REDUCTION_ADASUM && !world->has_dots) ||
        (world->n_local > 1 && world->sleeping == NULL))
        return true;
    if (world->sleeping != NULL)
        world->was_woken = call_has_ended(world->sleeping);
    receive_results(world);
    return true;
}

static double be_silent(void *user, uint32_t node)
{
    (void)user;
    (void)node;
    return 2.5;
}

/* The second worker sleeps until the first one has done all. */
static void wait_for_call(void *user, Call *call, int timeout_ms)
{
    World *const world = user;

    (void)timeout_ms;
    if (world->has_parts && world->has_dots) {
        world->sleeping = call;
        sem_post(&world->is_asleep);
        sem_wait(&world->may_go_on);
        return;
    }
    if (world->has_parts || world->n_local > 1)
        receive_dots(world);
    if (!world->has_parts)
        receive_parts(world);
    ck_assert(call_has_ended(call));
}

static const TensorLinks links = {
    .carrier = { .new_message = idle_new_message,
                 .send = send_message,
                 .forget = idle_forget,
                 .keep = idle_keep,
                 .drop = drop },
    .tell = idle_tell,
    .is_full = is_full,
    .wait_room = wait_room,
    .silence_s = be_silent,
    .wait = wait_for_call,
};

/* ---- workers ---- */

static void ask(World *world, uint32_t rank)
{
    Asked *const asked = &world->asked[rank];

    asked->entry = (TensorEntry){
        .name = "large",
        .place = rank,
        .part = { .request = { .operation = TENSOR_ALLREDUCE,
                               .dtype = RUBATO_F32,
                               .n_dims = 1,
                               .shape = { N_VALUES },
                               .reduce = { .reduction = world->reduction,
                                           .prescale = 1,
                                           .postscale = 1 } },
                  .input = asked->values,
                  .output = asked->values },
        .call = &asked->call,
    };
    for (uint32_t i = 0; i < N_VALUES; i++)
        asked->values[i] = 1;
    call_begin(&asked->call, NULL);
    call_add_parts(&asked->call, 1);
    ck_assert(tensor_exchange_ask(world->exchange, rank, &asked->entry, 1, NULL));
    call_sent(&asked->call);
}

/* The first worker waits for its allreduce. All vectors have ones. */
static void run(World *world)
{
    const uint32_t node_ids[] = { 0, 1 }, workers_of[] = { world->n_local, 1 };
    const float expected = world->reduction == RUBATO_REDUCTION_SUM ? 2 : 1;
    const TensorVerdict verdict = {
        .kind = TENSOR_VERDICT_RUN, .number = 1, .slot = TENSOR_NO_SLOT, .name = "large"
    };
    g_autoptr(GString) lines = g_string_new(NULL);
    uint32_t n_right = 0;

    tensor_segments_init(&world->segments, 2, CHUNK_VALUES);
    tensor_segments_share(&world->segments, N_VALUES);
    tensor_segments_number(&world->segments);
    sem_init(&world->is_asleep, 0, 0);
    sem_init(&world->may_go_on, 0, 0);
    world->exchange =
        tensor_exchange_new(&(TensorPlace){ .task = "room",
                                            .n_nodes = 2,
                                            .self = SELF,
                                            .node_ids = node_ids,
                                            .workers_of = workers_of,
                                            .stall_ms = world->is_silent ? 1 : 60000 });
    tensor_exchange_link(world->exchange, &links, world);
    for (uint32_t rank = 0; rank < world->n_local; rank++)
        ask(world, rank);
    tensor_verdict_write(lines, &verdict);
    ck_assert(tensor_exchange_hear(world->exchange, lines->str));
    tensor_exchange_wait(world->exchange, 0, &world->asked[0].call);
    ck_assert(world->has_results);
    for (uint32_t i = 0; i < N_VALUES; i++)
        n_right += fabsf(world->asked[0].values[i] - expected) < 1e-6F;
    ck_assert_uint_eq(n_right, N_VALUES);
}

static void clear(World *world)
{
    tensor_exchange_free(world->exchange);
    tensor_segments_clear(&world->segments);
    sem_destroy(&world->is_asleep);
    sem_destroy(&world->may_go_on);
}

/* ---- cases ---- */

static const RubatoReduction reductions[] = { RUBATO_REDUCTION_SUM, RUBATO_REDUCTION_ADASUM };

/* Otherwise two nodes whose results stand behind those that they cannot send would wait for each
 * other for ever. */
START_TEST(results_are_taken_in_while_there_is_no_room_to_send)
{
    g_autofree World *world = g_new0(World, 1);

    world->reduction = reductions[_i];
    world->n_local = 1;
    world->is_full = true;
    run(world);
    clear(world);
}
END_TEST

START_TEST(long_wait_for_room_names_the_node_that_takes_nothing_in)
{
    g_autofree World *world = g_new0(World, 1);

    log_capture_start();
    world->n_local = 1;
    world->is_full = world->is_silent = true;
    run(world);
    ck_assert(!world->is_silent);
    clear(world);
}
END_TEST

/* It sends the dots behind those that it would have computed. */
START_TEST(thread_that_receives_leaves_the_computing_of_adasum_to_those_who_wait)
{
    g_autofree World *world = g_new0(World, 1);

    world->reduction = RUBATO_REDUCTION_ADASUM;
    world->n_local = 1;
    run(world);
    ck_assert_uint_eq(world->n_sent_by_receiver, 0);
    clear(world);
}
END_TEST

START_TEST(worker_that_finds_the_weights_wakes_others_to_combine)
{
    g_autofree World *world = g_new0(World, 1);

    world->reduction = RUBATO_REDUCTION_ADASUM;
    world->n_local = 2;
    run(world);
    ck_assert(world->was_woken);
    sem_post(&world->may_go_on);
    pthread_join(world->sleeper, NULL);
    clear(world);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor_room");
    TCase *const cases = tcase_create("cases");

    tcase_add_loop_test(cases, results_are_taken_in_while_there_is_no_room_to_send, 0,
                        G_N_ELEMENTS(reductions));
    tcase_add_test(cases, long_wait_for_room_names_the_node_that_takes_nothing_in);
    tcase_add_test(cases, thread_that_receives_leaves_the_computing_of_adasum_to_those_who_wait);
    tcase_add_test(cases, worker_that_finds_the_weights_wakes_others_to_combine);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
