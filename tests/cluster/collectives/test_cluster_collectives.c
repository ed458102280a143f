/* Collectives on tensors between the workers of several nodes: the same cases as in one process, on
 * 1 to 3 nodes over shared memory and TCP; a worker that fails, a node that dies, a stranger's
 * bytes. */
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "engine/collectives/tensor_tuning.h"
#include "engine/control/control.h"
#include "engine/engine_private.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/collectives/tensor_cases.h"
#include "tests/support/collectives/tensor_suite.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

/* Nodes with one worker and with several, without any, and a scheduler that is not the first. */
static const ClusterShape shapes[] = {
    { .n_nodes = 1, .nodes = { { 1, 3 } } },
    { .n_nodes = 2, .nodes = { { 1, 1 }, { 0, 1 } }, .over = "shm" },
    { .n_nodes = 3, .nodes = { { 1, 1 }, { 0, 1 }, { 0, 1 } }, .over = "tcp", .scheduler = 2 },
    { .n_nodes = 3, .nodes = { { 1, 0 }, { 0, 1 }, { 0, 2 } }, .over = "shm" },
    { .n_nodes = 2, .nodes = { { 1, 2 }, { 0, 2 } }, .over = "tcp", .encrypts = true },
};

/* The same by each way that passes values on, in rounds. */
static const struct {
    const char *way;
    TensorSuitePart part;
    ClusterShape shape;
} relayed[] = {
    { "doubling",
      tensor_suite_operations,
      { .n_nodes = 3, .nodes = { { 1, 1 }, { 0, 2 }, { 0, 1 } }, .over = "tcp" } },
    { "halving",
      tensor_suite_much,
      { .n_nodes = 4, .nodes = { { 1, 1 }, { 0, 1 }, { 0, 1 }, { 0, 1 } }, .over = "shm" } },
    { "ring",
      tensor_suite_operations,
      { .n_nodes = 3, .nodes = { { 1, 2 }, { 0, 1 }, { 0, 1 } }, .over = "shm" } },
    { "ring",
      tensor_suite_much,
      { .n_nodes = 4, .nodes = { { 1, 1 }, { 1, 0 }, { 0, 1 }, { 0, 1 } }, .over = "tcp" } },
};

static bool run_task(RubatoEngine *engine, RubatoTaskFunc function, void *user_data, GError **error)
{
    const RubatoTask task = { .name = "collect", .run = function, .user_data = user_data };

    return rubato_engine_run(engine, &task, error);
}

static uint32_t count_workers(const ClusterShape *shape)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < shape->n_nodes; i++)
        n += shape->nodes[i].workers;
    return n;
}

typedef struct {
    TensorSuitePart part;
    uint32_t n_workers;
} Played;

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    const Played *const played = data;

    return played->part(engine, played->n_workers, error);
}

/* All nodes of a cluster play that part of the suite. */
static void play_part(const ClusterShape *shape, TensorSuitePart part)
{
    const Played played = { part, count_workers(shape) };
    ClusterRun *const run = cluster_run_new(shape);

    cluster_start(run, play, &played);
    cluster_expect_success(run);
    cluster_run_free(run);
}

START_TEST(operations_are_right_on_any_nodes)
{
    play_part(&shapes[_i], tensor_suite_operations);
}
END_TEST

/* Combined within a node and between nodes, plain and encrypted. */
START_TEST(dtypes_are_right_on_several_nodes)
{
    play_part(&shapes[_i], tensor_suite_dtypes);
}
END_TEST

START_TEST(sets_of_workers_are_right_on_any_nodes)
{
    play_part(&shapes[_i], tensor_suite_sets);
}
END_TEST

START_TEST(tensors_beyond_any_window_are_moved)
{
    play_part(&shapes[_i], tensor_suite_much);
}
END_TEST

START_TEST(compressed_values_lose_nothing_for_good)
{
    play_part(&shapes[_i], tensor_suite_compression);
}
END_TEST

START_TEST(numbers_of_all_workers_have_the_bits_of_one_process)
{
    play_part(&shapes[_i], tensor_suite_numbers);
}
END_TEST

START_TEST(sums_have_the_same_bits_on_all_workers)
{
    play_part(&shapes[_i], tensor_suite_sums);
}
END_TEST

START_TEST(names_that_come_again_have_the_same_bits_together_and_alone)
{
    play_part(&shapes[_i], tensor_suite_repeats);
}
END_TEST

/* ---- ways ---- */

START_TEST(operations_are_right_by_ways_that_pass_values_on)
{
    const TensorSuitePart parts[] = { relayed[_i].part, tensor_suite_sums };

    ck_assert(g_setenv(WAY_VARIABLE, relayed[_i].way, TRUE));
    for (size_t i = 0; i < G_N_ELEMENTS(parts); i++)
        play_part(&relayed[_i].shape, parts[i]);
}
END_TEST

static bool play_unknown_way(RubatoEngine *engine, const void *data, GError **error)
{
    g_autoptr(GError) found = NULL;

    (void)data;
    EXPECT(!run_task(engine, tensor_start_many, NULL, &found), "it went on");
    EXPECT(strstr(found->message, "\"rings\" is no way") != NULL, "%s", found->message);
    (void)error;
    return true;
}

START_TEST(a_way_that_there_is_not_fails_the_task)
{
    ClusterRun *const run = cluster_run_new(&shapes[1]);

    ck_assert(g_setenv(WAY_VARIABLE, "rings", TRUE));
    cluster_start(run, play_unknown_way, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- cut-overs ---- */

/* The same values again and again, until all ways were tried often enough: the bits stay. Another
 * way is asked for with the next call, and holds for the one behind it, since the barrier between
 * them ends after the scheduler has told all nodes: so one call of a turn goes the former way. */
static bool reduce_all_ways(RubatoWorker *worker, void *user_data, GError **error)
{
    enum {
        N = 6000,
        CALLS = 4 * TENSOR_WAY_TURNS * (TENSOR_TURN_SAMPLES + TENSOR_TURN_SKIPPED + 1)
    };
    g_autofree double *values = g_new(double, N), *sums = g_new0(double, 2 * N);
    RubatoTensor tensor = { .name = "x",
                            .dtype = RUBATO_F64,
                            .n_dims = 1,
                            .shape = { N },
                            .input = values,
                            .output = sums };

    (void)user_data;
    for (int i = 0; i < N; i++)
        values[i] = 1e6 / (i + 3 * (double)rubato_worker_rank(worker) + 1);
    for (int i = 0; i < CALLS; i++) {
        TRY(rubato_worker_allreduce(worker, &tensor, NULL, error));
        tensor.output = sums + N;
        REQUIRE(i == 0 || memcmp(sums, sums + N, N * sizeof *sums) == 0, "call %d", i);
        TRY(rubato_worker_barrier(worker, error));
    }
    return true;
}

static bool play_cutovers(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTask task = { .name = "collect", .run = reduce_all_ways, .cutovers = data };

    return rubato_engine_run(engine, &task, error);
}

START_TEST(cutovers_are_measured_once_and_kept)
{
    g_autofree char *folder = g_dir_make_tmp("rubato-XXXXXX", NULL);
    g_autofree char *path = g_build_filename(folder, "cut-overs", NULL);
    g_autofree char *text = NULL, *again = NULL;

    for (int i = 0; i < 2; i++) {
        ClusterRun *const run = cluster_run_new(&shapes[_i]);

        cluster_start(run, play_cutovers, path);
        cluster_expect_success(run);
        cluster_run_free(run);
        ck_assert(g_file_get_contents(path, i == 0 ? &text : &again, NULL, NULL));
    }
    g_autofree char *begins = g_strdup_printf(
        "\nnodes %u\n65536 ", shapes[_i].n_nodes - (shapes[_i].nodes[0].workers == 0));
    ck_assert_msg(strstr(text, begins) != NULL, "%s", text);
    ck_assert_str_eq(again, text);
    g_unlink(path);
    g_rmdir(folder);
}
END_TEST

/* ---- a worker fails, a node dies ---- */

static bool reduce_until_it_fails(RubatoWorker *worker, void *user_data, GError **error)
{
    enum { N = 1 << 20 };
    g_autofree float *values = g_new0(float, N);
    const RubatoTensor tensor = { .name = "x",
                                  .dtype = RUBATO_F32,
                                  .n_dims = 1,
                                  .shape = { N },
                                  .input = values,
                                  .output = values };
    const bool dies = user_data != NULL;

    for (int i = 0;; i++) {
        if (i == 3 && rubato_worker_rank(worker) == 1 && dies)
            raise(SIGKILL);
        if (i == 3 && rubato_worker_rank(worker) == 1) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "the disk is full");
            return false;
        }
        g_autoptr(GError) found = NULL;
        if (rubato_worker_allreduce(worker, &tensor, NULL, &found))
            continue;
        REQUIRE(g_error_matches(found, RUBATO_ERROR, RUBATO_ERROR_CANCELLED) ||
                    (!dies && g_error_matches(found, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND)),
                "%s", found->message);
        REQUIRE(strstr(found->message, dies ? "node 7" : "worker 1") != NULL, "%s", found->message);
        g_propagate_error(error, g_steal_pointer(&found));
        return false;
    }
}

static bool play_failure(RubatoEngine *engine, const void *data, GError **error)
{
    g_autoptr(GError) found = NULL;

    (void)data;
    EXPECT(!run_task(engine, reduce_until_it_fails, NULL, &found), "it went on");
    EXPECT(strstr(found->message, "the disk is full") != NULL ||
               strstr(found->message, "worker 1 has returned") != NULL,
           "%s", found->message);
    return run_task(engine, tensor_start_many, NULL, error);
}

START_TEST(a_worker_that_fails_is_named_and_the_next_task_runs)
{
    ClusterRun *const run = cluster_run_new(&shapes[2]);

    cluster_start(run, play_failure, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

static bool play_death(RubatoEngine *engine, const void *data, GError **error)
{
    g_autoptr(GError) found = NULL;

    (void)data;
    EXPECT(!run_task(engine, reduce_until_it_fails, engine, &found), "it went on");
    return cluster_expect_error(&found, RUBATO_ERROR_NODE_LOST, "node 7", error);
}

/* By each way that passes values on, too: who waits, waits for the dead node, or for one that does.
 */
START_TEST(a_dead_node_ends_all_operations_and_is_named)
{
    ClusterShape shape = shapes[2];

    ck_assert(_i == 0 || g_setenv(WAY_VARIABLE, relayed[_i - 1].way, TRUE));

    shape.timeout_ms = cluster_short_timeout_ms();
    ClusterRun *const run = cluster_run_new(&shape);
    cluster_start(run, play_death, NULL);
    cluster_expect_end(run, 1, -SIGKILL);
    cluster_expect_end(run, 0, 0);
    cluster_expect_end(run, 2, 0);
    cluster_run_free(run);
}
END_TEST

/* ---- who is missing ---- */

static bool come_late(RubatoWorker *worker, void *user_data, GError **error)
{
    const int *const pipe_ends = user_data;
    char byte;

    TRY(rubato_worker_named_barrier(worker, "grad/6", error));
    if (rubato_worker_rank(worker) == 1)
        EXPECT(read(pipe_ends[0], &byte, 1) == 1, "nobody calls");
    return rubato_worker_named_barrier(worker, "grad/7", error);
}

static bool play_late(RubatoEngine *engine, const void *data, GError **error)
{
    return run_task(engine, come_late, (void *)(uintptr_t)data, error);
}

/* The worker comes once the line is there, which the case tells it through a pipe. */
START_TEST(long_wait_names_the_worker_that_is_missing)
{
    ClusterShape shape = shapes[2];
    int pipe_ends[2];

    shape.stall_ms = 100;
    ck_assert_int_eq(pipe(pipe_ends), 0);
    ClusterRun *const run = cluster_run_new(&shape);
    cluster_start(run, play_late, pipe_ends);
    cluster_wait_for(run, 0,
                     "named barrier grad/7 of task collect waits for worker 1 (which last asked "
                     "for grad/6)");
    ck_assert_int_eq(write(pipe_ends[1], "", 1), 1);
    cluster_expect_success(run);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    cluster_run_free(run);
}
END_TEST

/* ---- a liar ---- */

/* Of a control message: what it is, and its lines. */
typedef struct {
    ControlKind kind;
    const char *lines;
} ControlLie;

#define BY_CONTROL(kind_, lines_) \
    &(const ControlLie)           \
    {                             \
        kind_, lines_             \
    }

static const struct {
    const ControlLie *by_control; /* NULL: it is the message */
    TensorMessage message;
    const char *text;
} lies[] = {
    { NULL, { .kind = (TensorMessageKind)77, .number = 1 }, "of a kind that there is not" },
    { NULL, { .kind = TENSOR_MESSAGE_PART }, "a piece of no tensor" },
    { NULL, { .kind = TENSOR_MESSAGE_PART, .number = 2, .n_bytes = 3 }, "of a wrong size" },
    { NULL, { .kind = TENSOR_MESSAGE_PART, .number = 2, .place = 7 }, "behind its end" },
    { NULL, { .kind = TENSOR_MESSAGE_ROWS, .number = 2 }, "not for this node" },
    { NULL, { .kind = TENSOR_MESSAGE_RESULT, .number = 2 }, "not its own" },
    { NULL, { .kind = TENSOR_MESSAGE_FAILURE, .number = 2 }, "a wrong code" },
    { NULL,
      { .kind = TENSOR_MESSAGE_PART,
        .number = 2,
        .n_bytes = 4,
        .is_lent = true,
        .loan = { .block = LENT_BLOCKS } },
      "outside the memory that it lends" },
    { NULL, { .kind = TENSOR_MESSAGE_DOTS, .number = 2 }, "not for this node" },
    { NULL, { .kind = TENSOR_MESSAGE_SIZES, .number = 2 }, "not for this node" },
    { NULL, { .kind = TENSOR_MESSAGE_BITS, .number = 77, .n_bytes = 12 }, "bits of another round" },
    { NULL,
      { .kind = TENSOR_MESSAGE_BITS, .number = UINT64_MAX, .n_bytes = 12 },
      "of another round" },
    { NULL, { .kind = TENSOR_MESSAGE_BITS, .number = 1 }, "bits that makes no sense" },
    { NULL,
      { .kind = TENSOR_MESSAGE_BITS, .number = 1, .n_bytes = 9 },
      "bits that makes no sense" },
    { NULL,
      { .kind = TENSOR_MESSAGE_BITS, .number = 1, .n_bytes = 12 },
      "of another round" }, /* twice */
    { NULL,
      { .kind = TENSOR_MESSAGE_BITS, .number = 1, .is_lent = true, .n_bytes = 12 },
      "of a kind that is not lent" },
    { BY_CONTROL(CONTROL_ENQUEUE, "hello\n"), { 0 }, "ENQUEUE" },
    { BY_CONTROL(CONTROL_ENQUEUE, "j 0 0\n"), { 0 }, "ENQUEUE" }, /* another node's */
    { BY_CONTROL(CONTROL_DECIDE, "j 1 0 0\n"), { 0 }, "DECIDE, which it may not send" },
};

static void send_lie(RubatoEngine *engine, uint32_t epoch, const TensorMessage *message)
{
    const size_t n = TENSOR_MESSAGE_HEADER_BYTES +
                     (message->is_lent ? TENSOR_MESSAGE_LOAN_BYTES : message->n_bytes);
    Frame *const frame =
        frame_new(&(WireHeader){ .kind = MESSAGE_TENSOR, .epoch = epoch, .value_bytes = n });

    memset(frame_values(frame), 0, n);
    tensor_message_write(message, frame_values(frame));
    network_send(engine->network, 0, frame);
}

/* What belongs to the negotiation goes by control messages. */
static void send_control_lie(RubatoEngine *engine, uint32_t epoch, const ControlLie *told)
{
    const Control control = { .kind = told->kind, .decide = { epoch, told->lines } };
    g_autoptr(GByteArray) body = control_encode(&control);
    Frame *const frame =
        frame_new(&(WireHeader){ .kind = MESSAGE_CONTROL, .value_bytes = body->len });

    memcpy(frame_values(frame), body->data, body->len);
    network_send(engine->network, 0, frame);
}

typedef struct {
    RubatoEngine *engine;
    size_t lie;
} Liar;

/* The liar sends before the operation begins: what is wrong shows when it does. */
static bool lie(RubatoWorker *worker, void *user_data, GError **error)
{
    const Liar *const liar = user_data;
    float value = 1;
    const RubatoTensor tensor = {
        .name = "x", .dtype = RUBATO_F32, .input = &value, .output = &value
    };

    TRY(rubato_worker_named_barrier(worker, "begin", error));
    if (rubato_worker_rank(worker) == 1 && lies[liar->lie].by_control != NULL)
        send_control_lie(liar->engine, 1, lies[liar->lie].by_control);
    else if (rubato_worker_rank(worker) == 1)
        send_lie(liar->engine, 1, &lies[liar->lie].message);
    for (;;)
        TRY(rubato_worker_allreduce(worker, &tensor, NULL, error));
}

static bool play_lie(RubatoEngine *engine, const void *data, GError **error)
{
    Liar liar = { engine, *(const size_t *)data };
    g_autoptr(GError) found = NULL;

    EXPECT(!run_task(engine, lie, &liar, &found), "nobody noticed");
    /* on node 0; on the liar's it may be any */
    EXPECT(rubato_engine_node(engine) == 7 || strstr(found->message, "node 7") != NULL, "%s",
           found->message);
    g_print("%s\n", found->message);
    return true;
}

START_TEST(a_liar_is_lost_and_named)
{
    const size_t i = (size_t)_i;
    ClusterRun *const run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 1 }, { 0, 1 } } });

    cluster_start(run, play_lie, &i);
    cluster_expect_end(run, 0, 0);
    cluster_expect_text(run, 0, lies[i].text);
    kill(run->processes[1].pid, SIGKILL); /* it may wait for its own timeout, or have ended */
    cluster_wait_end(run, 1);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("cluster_collectives");
    TCase *const cases = cluster_add_case(suite, "cases");

    tcase_add_loop_test(cases, operations_are_right_on_any_nodes, 0, G_N_ELEMENTS(shapes));
    tcase_add_loop_test(cases, dtypes_are_right_on_several_nodes, 3, G_N_ELEMENTS(shapes));
    tcase_add_loop_test(cases, sets_of_workers_are_right_on_any_nodes, 0, G_N_ELEMENTS(shapes));
    tcase_add_loop_test(cases, tensors_beyond_any_window_are_moved, 1, 3);
    tcase_add_loop_test(cases, numbers_of_all_workers_have_the_bits_of_one_process, 0,
                        G_N_ELEMENTS(shapes));
    tcase_add_loop_test(cases, sums_have_the_same_bits_on_all_workers, 1, 4);
    tcase_add_loop_test(cases, compressed_values_lose_nothing_for_good, 1, 4);
    tcase_add_loop_test(cases, names_that_come_again_have_the_same_bits_together_and_alone, 0,
                        G_N_ELEMENTS(shapes));
    tcase_add_loop_test(cases, operations_are_right_by_ways_that_pass_values_on, 0,
                        G_N_ELEMENTS(relayed));
    tcase_add_test(cases, a_way_that_there_is_not_fails_the_task);
    tcase_add_loop_test(cases, cutovers_are_measured_once_and_kept, 1, 4);
    tcase_add_test(cases, a_worker_that_fails_is_named_and_the_next_task_runs);
    tcase_add_loop_test(cases, a_dead_node_ends_all_operations_and_is_named, 0, 4);
    tcase_add_test(cases, long_wait_names_the_worker_that_is_missing);
    tcase_add_loop_test(cases, a_liar_is_lost_and_named, 0, G_N_ELEMENTS(lies));
    return run_suite(suite);
}
