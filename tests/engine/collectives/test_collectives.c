/* Collectives on tensors between the workers of a process: each operation with each dtype, tickets,
 * refusals, joins, ends. */
#include <math.h>
#include <sched.h>
#include <string.h>

#include "engine/collectives/work/tensor_math.h"
#include "tests/support/collectives/tensor_adasum_cases.h"
#include "tests/support/collectives/tensor_cases.h"
#include "tests/support/collectives/tensor_compression_cases.h"
#include "tests/support/collectives/tensor_group_cases.h"
#include "tests/support/collectives/tensor_mismatch_cases.h"
#include "tests/support/collectives/tensor_set_cases.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { STALL_MS = 20 };

static void run_each(RubatoTaskFunc function, void *user_data)
{
    RubatoEngine *const engine = engine_with_servers(1);

    for (uint32_t n = 1; n <= TENSOR_MOST_WORKERS; n++)
        run_ok(engine, n, function, user_data, NULL);
    rubato_engine_free(engine);
}

START_TEST(reductions_are_right_for_each_dtype)
{
    RubatoDtype dtype = tensor_dtypes[_i];

    run_each(tensor_reduce_all, &dtype);
}
END_TEST

START_TEST(much_is_moved_and_its_memory_used_again)
{
    RubatoEngine *const engine = engine_with_servers(1);

    run_ok(engine, 2, tensor_move_much, NULL, NULL);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(rows_get_where_they_belong_for_each_dtype)
{
    RubatoDtype dtype = tensor_dtypes[_i];

    run_each(tensor_move_rows, &dtype);
}
END_TEST

/* _i: how many workers. */
START_TEST(adasum_is_right_for_any_number_of_workers)
{
    RubatoEngine *const engine = engine_with_servers(1);

    run_ok(engine, (uint32_t)_i, tensor_adasum_all, NULL, NULL);
    run_ok(engine, (uint32_t)_i, tensor_adasum_joined, NULL, NULL);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(sets_of_workers_are_right)
{
    RubatoEngine *const engine = engine_with_servers(1);

    for (uint32_t n = 1; n <= TENSOR_MOST_WORKERS; n++) {
        const RubatoTask task = { .name = "sets", .workers_per_node = n };
        GError *error = NULL;

        require_msg(tensor_run_set_cases(engine, &task, n, &error), "%s", error->message);
    }
    rubato_engine_free(engine);
}
END_TEST

/* A task whose set makes no sense does not begin. */
START_TEST(task_with_a_set_that_makes_no_sense_fails)
{
    RubatoEngine *const engine = engine_with_servers(1);
    const uint32_t ranks[] = { 0, 7 };
    const RubatoWorkerSet set = { ranks, 2 };
    const RubatoTask task = {
        .name = "x", .run = tensor_use_sets, .workers_per_node = 2, .sets = &set, .n_sets = 1
    };
    GError *error = NULL;

    ck_assert(!rubato_engine_run(engine, &task, &error));
    check_error(&error, RUBATO_ERROR_TASK_FAILED, "task x, set 1 of its workers", NULL);
    rubato_engine_free(engine);
}
END_TEST

/* ---- numbers ---- */

START_TEST(halves_are_rounded_to_the_nearest)
{
    static const struct {
        float value;
        uint16_t f16, bf16;
    } rows[] = { { 0, 0, 0 },
                 { -1, 0xbc00, 0xbf80 },
                 { 65504, 0x7bff, 0x4780 },
                 { 65519, 0x7bff, 0x4780 },
                 { 65520, 0x7c00, 0x4780 },
                 { 0x1p-24f, 0x0001, 0x3380 },
                 { 0x1p-25f, 0x0000, 0x3300 },
                 { 0x1.8p-24f, 0x0002, 0x33c0 },
                 { 0x1p-14f, 0x0400, 0x3880 },
                 { 1 + 0x1p-11f, 0x3c00, 0x3f80 },
                 { 1 + 0x3p-11f, 0x3c02, 0x3f80 },
                 { -INFINITY, 0xfc00, 0xff80 } };

    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        ck_assert_uint_eq(tensor_f16_from_float(rows[i].value), rows[i].f16);
        ck_assert_uint_eq(tensor_bf16_from_float(rows[i].value), rows[i].bf16);
    }
    ck_assert(isnan(tensor_float_from_f16(tensor_f16_from_float(NAN))));
    ck_assert(isnan(tensor_float_from_bf16(tensor_bf16_from_float(NAN))));
    for (uint32_t half = 0; half < 65536; half++) { /* each half is a float */
        const float f16 = tensor_float_from_f16((uint16_t)half);
        const float bf16 = tensor_float_from_bf16((uint16_t)half);

        require_msg(isnan(f16) || tensor_f16_from_float(f16) == half, "f16 %x", half);
        require_msg(isnan(bf16) || tensor_bf16_from_float(bf16) == half, "bf16 %x", half);
    }
}
END_TEST

START_TEST(inputs_may_be_outputs)
{
    enum { N = 1500 }; /* values: more than a block */
    const TensorReduction reduction = { .dtype = RUBATO_F64,
                                        .result = RUBATO_F64,
                                        .reduce = { .prescale = 1, .postscale = 2 },
                                        .n_streamed = (uint32_t)_i };
    double values[4][N];
    const void *const inputs[] = { values[0], values[1], values[2] };

    for (uint32_t at = 0; at < 4; at++) { /* the first output: an input, or none */
        void *const outputs[] = { values[at], values[at == 0 ? 3 : 0] };

        for (int i = 0; i < N; i++) {
            values[0][i] = i;
            values[1][i] = 10000 * i;
            values[2][i] = 0.5;
            values[3][i] = -1;
        }
        tensor_reduce(&reduction, inputs, 3, outputs, 2, 0, N, 0);
        for (int i = 0; i < N; i++)
            for (uint32_t k = 0; k < 2; k++)
                ck_assert_double_eq(((const double *)outputs[k])[i], 20002.0 * i + 1);
    }
}
END_TEST

/* Wherever the arrays lie, and however much of them it is: of two outputs none, one or both. */
START_TEST(what_is_written_past_the_caches_is_the_same)
{
    enum { MOST = 3000, SHIFT = 5, N_OUTPUTS = 2 };
    const RubatoDtype dtype = tensor_dtypes[_i];
    const size_t size = rubato_dtype_size(dtype);
    g_autofree uint8_t *inputs = g_malloc0((MOST + 64) * size);
    uint8_t *outputs[N_OUTPUTS + 1];
    TensorReduction reduction = {
        .dtype = dtype, .result = dtype, .reduce = { .prescale = 1, .postscale = 1 }, .divisor = 1
    };

    for (size_t i = 0; i < MOST * size; i++)
        inputs[i] = (uint8_t)(dtype == RUBATO_BOOL ? i % 2 : i % 61);
    for (uint32_t k = 0; k <= N_OUTPUTS; k++)
        outputs[k] = g_malloc((MOST + 64) * size);
    for (size_t at = 0; at < 64; at += 3)
        for (size_t n = at % 2 == 0 ? at : MOST - 100 - at, end = SHIFT + n, n_streamed = 0;
             n_streamed <= N_OUTPUTS; n_streamed++) {
            const void *const in[] = { inputs, inputs + 8 * size };
            void *const out[] = { outputs[0] + at * size, outputs[1] + (at + 1) * size };
            void *const expected = outputs[N_OUTPUTS] + at * size;

            for (uint32_t k = 0; k <= N_OUTPUTS; k++)
                memset(outputs[k], 0x77, (MOST + 64) * size);
            reduction.n_streamed = 0;
            tensor_reduce(&reduction, in, 2, &expected, 1, SHIFT, end, SHIFT);
            reduction.n_streamed = (uint32_t)n_streamed;
            tensor_reduce(&reduction, in, 2, out, N_OUTPUTS, SHIFT, end, SHIFT);
            ck_assert_mem_eq(outputs[0], outputs[N_OUTPUTS], (MOST + 64) * size);
            ck_assert_mem_eq(out[1], expected, (MOST - at) * size);
        }
    for (uint32_t k = 0; k <= N_OUTPUTS; k++)
        g_free(outputs[k]);
}
END_TEST

static bool scale(RubatoWorker *worker, void *user_data, GError **error)
{
    double value = rubato_worker_rank(worker) + 1, most = 0;
    const RubatoTensor tensor = {
        .name = "x", .dtype = RUBATO_F64, .input = &value, .output = &value
    };
    const RubatoTensor nan = {
        .name = "nan", .dtype = RUBATO_F64, .input = &most, .output = &most
    };

    (void)user_data;
    TRY(rubato_worker_allreduce(worker, &tensor, &(RubatoReduce){ .prescale = 0.5, .postscale = 4 },
                                error));
    REQUIRE(value == 6);
    if (rubato_worker_rank(worker) == 1)
        most = NAN;
    TRY(rubato_worker_allreduce(worker, &nan, &(RubatoReduce){ .reduction = RUBATO_REDUCTION_MAX },
                                error));
    REQUIRE(isnan(most));
    return true;
}

START_TEST(scales_and_no_numbers_are_kept)
{
    RubatoEngine *const engine = engine_with_servers(1);

    run_ok(engine, 2, scale, NULL, NULL);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(one_node_compresses_nothing)
{
    RubatoEngine *const engine = engine_with_servers(1);

    run_ok(engine, 3, tensor_compress_all, NULL, NULL);
    run_ok(engine, 3, tensor_compress_joined, NULL, NULL);
    rubato_engine_free(engine);
}
END_TEST

/* ---- tickets ---- */

START_TEST(operations_with_tickets_match_by_name)
{
    run_each(tensor_start_many, NULL);
}
END_TEST

START_TEST(groups_run_or_fail_as_a_whole)
{
    RubatoEngine *engine = engine_with_servers(1);

    for (uint32_t n = 2; n <= TENSOR_MOST_WORKERS; n++)
        run_ok(engine, n, tensor_reduce_groups, NULL, NULL);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(groups_of_other_operations_run_or_fail_as_a_whole)
{
    RubatoEngine *engine = engine_with_servers(1);

    for (uint32_t n = 2; n <= TENSOR_MOST_WORKERS; n++)
        run_ok(engine, n, tensor_move_groups, NULL, NULL);
    run_ok(engine, 3, tensor_group_without_memory, NULL, NULL);
    rubato_engine_free(engine);
}
END_TEST

typedef struct {
    Event go_on, called;
} Signals;

static void note_call(RubatoTicket ticket, const GError *error, void *user_data)
{
    (void)ticket;
    if (error == NULL)
        event_raise(user_data);
}

/* Nobody but the thread of the exchange does the work: both workers only look. */
static bool poll_until_done(RubatoWorker *worker, void *user_data, GError **error)
{
    Signals *const signals = user_data;
    float value = 1;
    const RubatoTensor tensor = {
        .name = "x", .dtype = RUBATO_F32, .input = &value, .output = &value
    };
    const RubatoRequestOptions options = { .callback = note_call, .user_data = &signals->called };

    if (rubato_worker_rank(worker) == 1)
        TRY(event_await(&signals->go_on, 1, worker, error));
    const RubatoTicket ticket =
        rubato_worker_allreduce_async(worker, &tensor, NULL, &options, error);
    TRY(ticket != 0);
    if (rubato_worker_rank(worker) == 0) {
        REQUIRE(!rubato_worker_poll(worker, ticket));
        event_raise(&signals->go_on);
    }
    while (!rubato_worker_poll(worker, ticket))
        sched_yield();
    REQUIRE(value == 2);
    return rubato_worker_wait(worker, ticket, error);
}

START_TEST(tickets_end_while_their_workers_compute)
{
    RubatoEngine *const engine = engine_with_servers(1);
    Signals signals = { EVENT_INIT, EVENT_INIT };

    run_ok(engine, 2, poll_until_done, &signals, NULL);
    ck_assert_uint_eq(event_count(&signals.called), 2);
    rubato_engine_free(engine);
}
END_TEST

/* ---- what fails ---- */

START_TEST(mismatch_fails_on_all_and_the_task_goes_on)
{
    RubatoEngine *const engine = engine_with_servers(1);

    run_ok(engine, 3, tensor_disagree, NULL, NULL);
    for (uint32_t n = 2; n <= TENSOR_MOST_WORKERS; n++)
        run_ok(engine, n, tensor_disagree_on_all, NULL, NULL);
    rubato_engine_free(engine);
}
END_TEST

static bool misuse(RubatoWorker *worker, void *user_data, GError **error)
{
    float values[6] = { 0 };
    g_auto(RubatoGathered) gathered = { 0 };
    RubatoTensor tensor = { .name = "x",
                            .dtype = RUBATO_F32,
                            .n_dims = 1,
                            .shape = { 3 },
                            .input = values,
                            .output = values + 1 };
    g_autofree char *long_name = g_strnfill(10000, 'n');
    const char *const names[] = { "", long_name, "two\nlines", "\x1b[31mred", "\xff" };
    const char *const refused[] = { "\"\" is no name for a tensor", "n\" is no name for a tensor",
                                    "\"two\\nlines\" is no name for a tensor",
                                    "\"\\033[31mred\" is no name for a tensor",
                                    "\"\\377\" is no name for a tensor" };
    uint32_t last;

    (void)user_data;
    REQUIRE(!rubato_worker_allreduce(worker, &tensor, NULL, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "allreduce x: its output overlaps its input"));
    tensor.output = values;
    REQUIRE(!rubato_worker_reduce_scatter(worker, &tensor, NULL, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "overlaps"));
    tensor.output = (char *)(values + 3) + 1;
    REQUIRE(!rubato_worker_allreduce(worker, &tensor, NULL, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "aligned to the size of a value"));
    REQUIRE(!rubato_worker_reduce_scatter(worker, &tensor, NULL, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "aligned to the size of a value"));
    tensor.input = (char *)values + 2;
    tensor.output = values + 4;
    REQUIRE(!rubato_worker_allreduce_group(worker, &tensor, 1, NULL, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "aligned to the size of a value"));
    tensor.input = tensor.output = values;
    REQUIRE(!rubato_worker_broadcast(worker, &tensor, 2, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "no worker with the rank of its root"));
    REQUIRE(!rubato_worker_alltoall(worker, &tensor, NULL, &gathered, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "cannot be dealt out evenly"));
    REQUIRE(!rubato_worker_alltoall(worker, &tensor, (const uint64_t[]){ 1, 1 }, &gathered, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "not all of its rows"));
    REQUIRE(!rubato_worker_alltoall(worker, &tensor, (const uint64_t[]){ UINT64_MAX, 4 }, &gathered,
                                    error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "more rows than can be"));
    tensor.n_dims = 0;
    REQUIRE(!rubato_worker_allgather(worker, &tensor, &gathered, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "no rows"));
    tensor.n_dims = 9;
    REQUIRE(!rubato_worker_allreduce(worker, &tensor, NULL, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "more than 8 dimensions"));
    tensor.n_dims = 2;
    tensor.shape[0] = tensor.shape[1] = UINT64_C(1) << 32;
    REQUIRE(!rubato_worker_allreduce(worker, &tensor, NULL, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "larger than any memory"));
    tensor.n_dims = 1;
    tensor.shape[0] = UINT64_C(1) << 63;
    REQUIRE(!rubato_worker_broadcast(worker, &tensor, 0, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "larger than any memory"));
    tensor.n_dims = 3;
    tensor.shape[0] = 0; /* rows whose bytes have more than 64 bits, even if there are none */
    tensor.shape[2] = UINT64_C(1) << 32;
    REQUIRE(!rubato_worker_allgather(worker, &tensor, &gathered, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "larger than any memory"));
    tensor.n_dims = 0;
    REQUIRE(!rubato_worker_allreduce(worker, &tensor, &(RubatoReduce){ .prescale = NAN }, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "no finite number"));
    REQUIRE(
        !rubato_worker_allreduce(worker, &tensor, &(RubatoReduce){ .postscale = INFINITY }, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "no finite number"));
    tensor.dtype = (RubatoDtype)200;
    REQUIRE(!rubato_worker_allreduce(worker, &tensor, NULL, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "a dtype that there is not"));
    tensor.dtype = RUBATO_I32;
    REQUIRE(!rubato_worker_allreduce(worker, &tensor, &(RubatoReduce){ .prescale = 2 }, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "only floating-point"));
    tensor.dtype = RUBATO_F64;
    REQUIRE(!rubato_worker_allreduce(
        worker, &tensor, &(RubatoReduce){ .compression = RUBATO_COMPRESSION_F16 }, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "only sums and means of f32"));
    tensor.dtype = RUBATO_F32;
    REQUIRE(!rubato_worker_allreduce(
        worker, &tensor,
        &(RubatoReduce){ .reduction = RUBATO_REDUCTION_MAX, .compression = RUBATO_COMPRESSION_F16 },
        error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "only sums and means of f32"));
    REQUIRE(!rubato_worker_allreduce(
        worker, &tensor, &(RubatoReduce){ .compression = (RubatoCompression)3 }, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "no such compression"));
    tensor.dtype = RUBATO_BOOL;
    REQUIRE(!rubato_worker_allreduce(worker, &tensor,
                                     &(RubatoReduce){ .reduction = RUBATO_REDUCTION_MEAN }, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "bool has no mean"));
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        REQUIRE(!rubato_worker_named_barrier(worker, names[i], error));
        REQUIRE(is_error(error, RUBATO_ERROR_INVALID, refused[i]));
        tensor.name = names[i];
        REQUIRE(!rubato_worker_allreduce_group(worker, &tensor, 1, NULL, error));
        REQUIRE(is_error(error, RUBATO_ERROR_INVALID, refused[i]));
    }
    tensor.name = "x";
    tensor.input = NULL;
    REQUIRE(!rubato_worker_allreduce(worker, &tensor, NULL, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "it has no input"));
    TRY(tensor_is_sum_right(worker, error));
    return rubato_worker_join(worker, &last, error);
}

START_TEST(misuse_is_refused_before_anybody_waits)
{
    RubatoEngine *const engine = engine_with_servers(1);

    run_ok(engine, 2, misuse, NULL, NULL);
    rubato_engine_free(engine);
}
END_TEST

static bool use_a_name_twice(RubatoWorker *worker, void *user_data, GError **error)
{
    Event *const refused = user_data;
    float one = 1;
    const RubatoTensor tensor = { .name = "x", .dtype = RUBATO_F32, .input = &one, .output = &one };
    RubatoTicket ticket;

    if (rubato_worker_rank(worker) == 1)
        TRY(event_await(refused, 1, worker, error));
    ticket = rubato_worker_allreduce_async(worker, &tensor, NULL, NULL, error);
    TRY(ticket != 0);
    if (rubato_worker_rank(worker) == 0) {
        REQUIRE(rubato_worker_allreduce_async(worker, &tensor, NULL, NULL, error) == 0);
        REQUIRE(is_error(error, RUBATO_ERROR_EXISTS, "while its allreduce of that name"));
        event_raise(refused);
    }
    return rubato_worker_wait_all(worker, error);
}

START_TEST(name_in_use_is_refused)
{
    RubatoEngine *const engine = engine_with_servers(1);
    Event refused = EVENT_INIT;

    run_ok(engine, 2, use_a_name_twice, &refused, NULL);
    rubato_engine_free(engine);
}
END_TEST

/* A worker that returns with an operation under way has nothing written to its arrays any more. */
static bool return_early(RubatoWorker *worker, void *user_data, GError **error)
{
    float value = 1;
    const RubatoTensor tensor = {
        .name = "x", .dtype = RUBATO_F32, .input = &value, .output = &value
    };

    (void)user_data;
    if (rubato_worker_rank(worker) == 1)
        return rubato_worker_allreduce_async(worker, &tensor, NULL, NULL, error) != 0;
    REQUIRE(!rubato_worker_named_barrier(worker, "other", error));
    REQUIRE(is_error(error, RUBATO_ERROR_NOT_FOUND, "worker 1 has returned"));
    return true;
}

START_TEST(worker_that_has_returned_is_named)
{
    RubatoEngine *const engine = engine_with_servers(1);

    run_ok(engine, 2, tensor_be_left, NULL, NULL);
    run_ok(engine, 2, return_early, NULL, NULL);
    rubato_engine_free(engine);
}
END_TEST

static bool fail_or_wait(RubatoWorker *worker, void *user_data, GError **error)
{
    uint32_t last;

    (void)user_data;
    if (rubato_worker_rank(worker) == 2) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "the disk is full");
        return false;
    }
    return rubato_worker_rank(worker) == 0 ? rubato_worker_named_barrier(worker, "end", error)
                                           : rubato_worker_join(worker, &last, error);
}

START_TEST(worker_that_fails_ends_the_waits_of_all)
{
    RubatoEngine *const engine = engine_with_servers(1);
    const RubatoTask task = { .name = "failing", .run = fail_or_wait, .workers_per_node = 3 };
    GError *error = NULL;

    for (int i = 0; i < 20; i++) {
        ck_assert(!rubato_engine_run(engine, &task, &error));
        /* an effect may be told before its cause, but is not what ends the task alone */
        ck_assert_ptr_nonnull(strstr(error->message, "failed"));
        g_clear_error(&error);
    }
    run_each(tensor_start_many, NULL);
    rubato_engine_free(engine);
}
END_TEST

/* ---- joining ---- */

START_TEST(workers_that_have_joined_change_nothing)
{
    run_each(tensor_join_one_by_one, NULL);
    run_each(tensor_need_joined, NULL);
}
END_TEST

/* ---- waiting ---- */

static bool come_late(RubatoWorker *worker, void *user_data, GError **error)
{
    Event *const go_on = user_data;
    float value = 0;
    const RubatoTensor tensor = {
        .name = "grad/7", .dtype = RUBATO_F32, .input = &value, .output = &value
    };
    RubatoTicket ticket;

    TRY(rubato_worker_named_barrier(worker, "grad/6", error));
    if (rubato_worker_rank(worker) == 1) {
        TRY(event_await(go_on, 1, worker, error));
        return rubato_worker_allreduce(worker, &tensor, NULL, error);
    }
    if (rubato_worker_rank(worker) == 0)
        return rubato_worker_allreduce(worker, &tensor, NULL, error);
    ticket = rubato_worker_allreduce_async(worker, &tensor, NULL, NULL, error);
    return ticket != 0 && rubato_worker_wait_any(worker, &ticket, 1, &(size_t){ 0 }, error);
}

START_TEST(long_wait_names_those_who_are_missing)
{
    RubatoEngine *engine;
    Event go_on = EVENT_INIT;
    GError *error = NULL;

    log_capture_start();
    engine = rubato_engine_new(&(RubatoEngineConfig){ .servers = 1, .stall_ms = STALL_MS }, NULL);
    RubatoTaskRun *const run = rubato_engine_start(
        engine,
        &(RubatoTask){
            .name = "late", .run = come_late, .user_data = &go_on, .workers_per_node = 3 },
        NULL);
    g_autofree char *line = log_capture_wait("allreduce grad/7 of task late waits for worker 1",
                                             "last asked for grad/6");
    ck_assert_ptr_nonnull(strstr(line, " s so far)"));
    while (log_capture_count("allreduce grad/7 of task late waits for worker 1") < 4)
        sched_yield(); /* each of both says so again and again */
    event_raise(&go_on);
    ck_assert_msg(rubato_task_run_wait(run, &error), "%s", error == NULL ? "" : error->message);
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("collectives");
    TCase *const cases = tcase_create("cases");

    tcase_add_loop_test(cases, reductions_are_right_for_each_dtype, 0, TENSOR_N_DTYPES);
    tcase_add_test(cases, much_is_moved_and_its_memory_used_again);
    tcase_add_loop_test(cases, rows_get_where_they_belong_for_each_dtype, 0, TENSOR_N_DTYPES);
    tcase_add_loop_test(cases, adasum_is_right_for_any_number_of_workers, 1, 8);
    tcase_add_test(cases, sets_of_workers_are_right);
    tcase_add_test(cases, task_with_a_set_that_makes_no_sense_fails);
    tcase_add_test(cases, halves_are_rounded_to_the_nearest);
    tcase_add_loop_test(cases, inputs_may_be_outputs, 0, 3);
    tcase_add_loop_test(cases, what_is_written_past_the_caches_is_the_same, 0, TENSOR_N_DTYPES);
    tcase_add_test(cases, scales_and_no_numbers_are_kept);
    tcase_add_test(cases, operations_with_tickets_match_by_name);
    tcase_add_test(cases, one_node_compresses_nothing);
    tcase_add_test(cases, groups_run_or_fail_as_a_whole);
    tcase_add_test(cases, groups_of_other_operations_run_or_fail_as_a_whole);
    tcase_add_test(cases, tickets_end_while_their_workers_compute);
    tcase_add_test(cases, mismatch_fails_on_all_and_the_task_goes_on);
    tcase_add_test(cases, misuse_is_refused_before_anybody_waits);
    tcase_add_test(cases, name_in_use_is_refused);
    tcase_add_test(cases, worker_that_has_returned_is_named);
    tcase_add_test(cases, worker_that_fails_ends_the_waits_of_all);
    tcase_add_test(cases, workers_that_have_joined_change_nothing);
    tcase_add_test(cases, long_wait_names_those_who_are_missing);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
