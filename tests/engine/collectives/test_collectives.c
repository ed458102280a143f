/* Collectives on tensors between the workers of a process: each operation with each dtype, tickets,
 * refusals, joins, ends. */
#include <math.h>
#include <sched.h>
#include <string.h>

#include "engine/collectives/tensor_math.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { MOST_WORKERS = 4, STALL_MS = 20 };

static const RubatoDtype dtypes[] = {
    RUBATO_F32, RUBATO_F64,  RUBATO_I32, RUBATO_I64, RUBATO_U8,
    RUBATO_F16, RUBATO_BF16, RUBATO_I8,  RUBATO_I16, RUBATO_BOOL
};

static void put(RubatoDtype dtype, void *values, size_t i, int64_t value)
{
    switch (dtype) {
    case RUBATO_F16:
        ((uint16_t *)values)[i] = tensor_f16_from_float((float)value);
        break;
    case RUBATO_BF16:
        ((uint16_t *)values)[i] = tensor_bf16_from_float((float)value);
        break;
    case RUBATO_I16:
        ((int16_t *)values)[i] = (int16_t)value;
        break;
    case RUBATO_I8:
        ((int8_t *)values)[i] = (int8_t)value;
        break;
    case RUBATO_U8:
        ((uint8_t *)values)[i] = (uint8_t)value;
        break;
    case RUBATO_BOOL:
        ((bool *)values)[i] = value != 0;
        break;
    case RUBATO_F32:
    case RUBATO_F64:
    case RUBATO_I32:
    case RUBATO_I64:
        value_store(dtype, values, i, value);
        break;
    }
}

static int64_t get(RubatoDtype dtype, const void *values, size_t i)
{
    switch (dtype) {
    case RUBATO_F16:
        return (int64_t)tensor_float_from_f16(((const uint16_t *)values)[i]);
    case RUBATO_BF16:
        return (int64_t)tensor_float_from_bf16(((const uint16_t *)values)[i]);
    case RUBATO_I16:
        return ((const int16_t *)values)[i];
    case RUBATO_I8:
        return ((const int8_t *)values)[i];
    case RUBATO_U8:
        return ((const uint8_t *)values)[i];
    case RUBATO_BOOL:
        return ((const bool *)values)[i];
    case RUBATO_F32:
    case RUBATO_F64:
    case RUBATO_I32:
    case RUBATO_I64:
        break;
    }
    return value_load(dtype, values, i);
}

/* What a worker has at a place: small, and of both signs where there are signs. */
static int64_t value_of(RubatoDtype dtype, uint32_t rank, size_t i)
{
    const int64_t value = (int64_t)((i * 7 + rank * 5) % 6);

    if (dtype == RUBATO_BOOL)
        return value % 2;
    return dtype == RUBATO_U8 ? value : value - 2;
}

static int64_t combine(RubatoReduction reduction, RubatoDtype dtype, uint32_t n_workers, size_t i)
{
    int64_t result = value_of(dtype, 0, i);

    for (uint32_t rank = 1; rank < n_workers; rank++) {
        const int64_t value = value_of(dtype, rank, i);

        if (reduction == RUBATO_REDUCTION_MIN)
            result = MIN(result, value);
        else if (reduction == RUBATO_REDUCTION_MAX)
            result = MAX(result, value);
        else if (reduction == RUBATO_REDUCTION_PRODUCT)
            result *= value;
        else
            result += value;
    }
    if (dtype == RUBATO_BOOL)
        return result != 0;
    return reduction == RUBATO_REDUCTION_MEAN ? result / (int64_t)n_workers : result;
}

/* The shapes that are tried: each for tensors of 1 to 3 dimensions, with nothing, little, and more
 * than one chunk in them. */
static const struct {
    uint32_t n_dims;
    uint64_t shape[3];
} shapes[] = { { 1, { 1 } }, { 1, { 0 } }, { 2, { 5, 3 } }, { 3, { 4, 3, 2 } }, { 1, { 20001 } } };

enum { LARGE = G_N_ELEMENTS(shapes) - 1 };

typedef struct {
    RubatoDtype dtype;
    size_t shape;
} Plan;

static RubatoTensor tensor_of(const Plan *plan, const char *name, const void *input, void *output)
{
    RubatoTensor tensor = { .name = name,
                            .dtype = plan->dtype,
                            .n_dims = shapes[plan->shape].n_dims,
                            .input = input,
                            .output = output };

    memcpy(tensor.shape, shapes[plan->shape].shape, sizeof shapes[plan->shape].shape);
    return tensor;
}

static size_t count_values(const Plan *plan)
{
    size_t n = 1;

    for (uint32_t i = 0; i < shapes[plan->shape].n_dims; i++)
        n *= shapes[plan->shape].shape[i];
    return n;
}

static void *fill(const Plan *plan, uint32_t rank)
{
    const size_t n = count_values(plan);
    void *const values = g_malloc0((n + 1) * 8);

    for (size_t i = 0; i < n; i++)
        put(plan->dtype, values, i, value_of(plan->dtype, rank, i));
    return values;
}

static bool reduce_and_scatter(RubatoWorker *worker, const Plan *plan, RubatoReduction reduction,
                               GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);
    const size_t n = count_values(plan);
    const uint64_t n_rows = shapes[plan->shape].shape[0];
    g_autofree void *input = fill(plan, rank), *output = g_malloc0((n + 1) * 8);
    const RubatoTensor apart = tensor_of(plan, "apart", input, output);
    const RubatoTensor in_place = tensor_of(plan, "in place", input, input);
    const RubatoReduce reduce = { .reduction = reduction };
    size_t first = 0;

    TRY(rubato_worker_allreduce(worker, &apart, &reduce, error));
    for (size_t i = 0; i < n; i++)
        REQUIRE(get(plan->dtype, output, i) == combine(reduction, plan->dtype, n_workers, i),
                "(value %zu)", i);
    TRY(rubato_worker_reduce_scatter(worker, &apart, &reduce, error));
    for (uint32_t i = 0; i < rank; i++)
        first += n / MAX(n_rows, 1) * rubato_reduce_scatter_rows(n_rows, n_workers, i);
    for (size_t i = 0;
         n_rows > 0 && i < n / n_rows * rubato_reduce_scatter_rows(n_rows, n_workers, rank); i++)
        REQUIRE(get(plan->dtype, output, i) ==
                    combine(reduction, plan->dtype, n_workers, first + i),
                "(value %zu)", i);
    TRY(rubato_worker_allreduce(worker, &in_place, &reduce, error));
    for (size_t i = 0; i < n; i++)
        REQUIRE(get(plan->dtype, input, i) == combine(reduction, plan->dtype, n_workers, i));
    return true;
}

static bool reduce_all(RubatoWorker *worker, void *user_data, GError **error)
{
    Plan plan = { .dtype = *(const RubatoDtype *)user_data };

    for (; plan.shape < G_N_ELEMENTS(shapes); plan.shape++)
        for (RubatoReduction reduction = 0; reduction <= RUBATO_REDUCTION_PRODUCT; reduction++)
            if ((plan.dtype != RUBATO_BOOL || reduction != RUBATO_REDUCTION_MEAN) &&
                (plan.shape < LARGE || reduction == RUBATO_REDUCTION_SUM))
                TRY(reduce_and_scatter(worker, &plan, reduction, error));
    return true;
}

static void run_each(RubatoTaskFunc function, void *user_data)
{
    RubatoEngine *const engine = engine_with_servers(1);

    for (uint32_t n = 1; n <= MOST_WORKERS; n++)
        run_ok(engine, n, function, user_data, NULL);
    rubato_engine_free(engine);
}

START_TEST(reductions_are_right_for_each_dtype)
{
    RubatoDtype dtype = dtypes[_i];

    run_each(reduce_all, &dtype);
}
END_TEST

/* Worker r gathers and sends r + 1 rows of two values each, r to worker 0 and 1 to the last one. */
static bool move_rows(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoDtype dtype = *(const RubatoDtype *)user_data;
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);
    const Plan plan = { .dtype = dtype, .shape = 3 };
    g_autofree void *values = fill(&plan, rank), *seen = g_malloc0(24 * 8);
    RubatoTensor tensor = tensor_of(&plan, "x", values, seen);
    const uint32_t root = n_workers - 1;
    g_auto(RubatoGathered) all = { 0 }, mine = { 0 };
    uint64_t splits[MOST_WORKERS] = { 0 };
    size_t at = 0;

    TRY(rubato_worker_broadcast(worker, &tensor, root, error));
    for (size_t i = 0; i < 24; i++)
        REQUIRE(get(dtype, seen, i) == value_of(dtype, root, i));

    tensor.n_dims = 2;
    tensor.shape[0] = rank + 1;
    tensor.shape[1] = 2;
    TRY(rubato_worker_allgather(worker, &tensor, &all, error));
    REQUIRE(all.n_rows == n_workers * (n_workers + 1) / 2);
    for (uint32_t from = 0; from < n_workers; from++) {
        REQUIRE(all.rows[from] == from + 1);
        for (size_t i = 0; i < 2 * (from + 1); i++)
            REQUIRE(get(dtype, all.values, at++) == value_of(dtype, from, i));
    }

    splits[0] = rank;
    splits[n_workers - 1] += 1;
    TRY(rubato_worker_alltoall(worker, &tensor, splits, &mine, error));
    at = 0;
    for (uint32_t from = 0; from < n_workers; from++) {
        const uint64_t n_rows = (rank == 0 ? from : 0) + (rank == n_workers - 1 ? 1 : 0);
        const size_t first = rank == 0 ? 0 : 2 * (size_t)from;

        REQUIRE(mine.rows[from] == n_rows);
        for (size_t i = 0; i < 2 * n_rows; i++)
            REQUIRE(get(dtype, mine.values, at++) == value_of(dtype, from, first + i));
    }
    REQUIRE(mine.n_rows * 2 == at);
    return true;
}

START_TEST(rows_get_where_they_belong_for_each_dtype)
{
    RubatoDtype dtype = dtypes[_i];

    run_each(move_rows, &dtype);
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

/* ---- tickets ---- */

enum { N_TENSORS = 50, N_FLOATS = 3000 };

/* Each worker starts many operations, in an order of its own, and waits for them in another. */
static bool start_many(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);
    g_autofree float *values = g_new(float, N_TENSORS *N_FLOATS);
    RubatoTicket tickets[N_TENSORS];

    (void)user_data;
    for (uint32_t i = 0; i < N_TENSORS; i++) {
        const uint32_t k = (i * 7 + rank * 11) % N_TENSORS;
        float *const own = values + (size_t)k * N_FLOATS;
        g_autofree char *name = g_strdup_printf("grad/%u", k);
        const RubatoTensor tensor = { .name = name,
                                      .dtype = RUBATO_F32,
                                      .n_dims = 1,
                                      .shape = { N_FLOATS },
                                      .input = own,
                                      .output = own };

        for (size_t j = 0; j < N_FLOATS; j++)
            own[j] = (float)(k + j + rank);
        tickets[k] = rubato_worker_allreduce_async(worker, &tensor, NULL, NULL, error);
        TRY(tickets[k] != 0);
    }
    for (uint32_t left = N_TENSORS; left > 0; left--) {
        size_t ended;

        TRY(rubato_worker_wait_any(worker, tickets, N_TENSORS, &ended, error));
        REQUIRE(rubato_worker_poll(worker, tickets[ended]));
        tickets[ended] = 0;
        for (size_t j = 0; j < N_FLOATS; j++)
            REQUIRE(values[ended * N_FLOATS + j] ==
                    (float)(n_workers * (ended + j) + n_workers * (n_workers - 1) / 2));
    }
    return true;
}

START_TEST(operations_with_tickets_match_by_name)
{
    run_each(start_many, NULL);
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

static bool is_sum_right(RubatoWorker *worker, GError **error)
{
    int32_t value = 1;
    const RubatoTensor tensor = {
        .name = "again", .dtype = RUBATO_I32, .input = &value, .output = &value
    };

    TRY(rubato_worker_allreduce(worker, &tensor, NULL, error));
    REQUIRE(value == (int32_t)rubato_worker_n_workers(worker));
    return true;
}

static bool disagree(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    float values[4] = { 1, 2, 3, 4 };
    const RubatoTensor tensor = { .name = "x",
                                  .dtype = RUBATO_F32,
                                  .n_dims = 1,
                                  .shape = { rank == 1 ? 4 : 3 },
                                  .input = values,
                                  .output = values };
    const RubatoTicket none = 0;
    RubatoTicket ticket = none;

    (void)user_data;
    REQUIRE(!rubato_worker_allreduce(worker, &tensor, NULL, error));
    REQUIRE(values[0] == 1);
    REQUIRE(is_error(error, RUBATO_ERROR_MISMATCH, "f32 [4] by worker 1"));
    ticket = rubato_worker_allreduce_async(worker, &tensor, NULL, NULL, error);
    TRY(ticket != none);
    REQUIRE(!rubato_worker_wait(worker, ticket, error));
    REQUIRE(is_error(error, RUBATO_ERROR_MISMATCH, "f32 [3] by worker 0 and worker 2"));
    return is_sum_right(worker, error);
}

START_TEST(mismatch_fails_on_all_and_the_task_goes_on)
{
    RubatoEngine *const engine = engine_with_servers(1);

    run_ok(engine, 3, disagree, NULL, NULL);
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
    uint32_t last;

    (void)user_data;
    REQUIRE(!rubato_worker_allreduce(worker, &tensor, NULL, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "allreduce x: its output overlaps its input"));
    tensor.output = values;
    REQUIRE(!rubato_worker_reduce_scatter(worker, &tensor, NULL, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "overlaps"));
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
    tensor.n_dims = 0;
    tensor.dtype = RUBATO_I32;
    REQUIRE(!rubato_worker_allreduce(worker, &tensor, &(RubatoReduce){ .prescale = 2 }, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "only floating-point"));
    tensor.dtype = RUBATO_BOOL;
    REQUIRE(!rubato_worker_allreduce(worker, &tensor,
                                     &(RubatoReduce){ .reduction = RUBATO_REDUCTION_MEAN }, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "bool has no mean"));
    REQUIRE(!rubato_worker_named_barrier(worker, "", error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "no name for a tensor"));
    tensor.input = NULL;
    REQUIRE(!rubato_worker_allreduce(worker, &tensor, NULL, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "it has no input"));
    TRY(is_sum_right(worker, error));
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

/* Worker 1 returns; worker 0 waits for it, then and afterwards. */
static bool be_left(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    if (rubato_worker_rank(worker) == 1)
        return true;
    for (int i = 0; i < 2; i++) {
        REQUIRE(!rubato_worker_named_barrier(worker, "end", error));
        REQUIRE(is_error(error, RUBATO_ERROR_NOT_FOUND, "worker 1 has returned"));
    }
    return true;
}

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

    run_ok(engine, 2, be_left, NULL, NULL);
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
    run_each(start_many, NULL);
    rubato_engine_free(engine);
}
END_TEST

/* ---- joining ---- */

/* Worker r has r + 1 batches, which differ in the reduction. */
static bool join_one_by_one(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);
    uint32_t last = UINT32_MAX;

    (void)user_data;
    for (int round = 0; round < 2; round++) {
        for (uint32_t batch = 0; batch <= rank; batch++) {
            for (RubatoReduction reduction = 0; reduction <= RUBATO_REDUCTION_PRODUCT;
                 reduction++) {
                double value = rank + 2;
                const RubatoTensor tensor = {
                    .name = "x", .dtype = RUBATO_F64, .input = &value, .output = &value
                };
                double sum = 0, product = 1;

                for (uint32_t i = batch; i < n_workers; i++) {
                    sum += i + 2;
                    product *= i + 2;
                }
                const double expected[] = { sum, sum / (n_workers - batch), batch + 2,
                                            n_workers + 1, product };
                TRY(rubato_worker_allreduce(worker, &tensor,
                                            &(RubatoReduce){ .reduction = reduction }, error));
                REQUIRE(value == expected[reduction], "(%g for reduction %d)", value, reduction);
            }
            double value = 1;
            const RubatoTensor tensor = {
                .name = "x", .dtype = RUBATO_F64, .input = &value, .output = &value
            };
            TRY(rubato_worker_allreduce(
                worker, &tensor,
                &(RubatoReduce){ .reduction = RUBATO_REDUCTION_MEAN, .divides_by_all = true },
                error));
            REQUIRE(value == (double)(n_workers - batch) / n_workers);
        }
        TRY(rubato_worker_join(worker, &last, error));
        REQUIRE(last == n_workers - 1);
    }
    return true;
}

START_TEST(workers_that_have_joined_change_nothing)
{
    run_each(join_one_by_one, NULL);
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

    tcase_add_loop_test(cases, reductions_are_right_for_each_dtype, 0, G_N_ELEMENTS(dtypes));
    tcase_add_loop_test(cases, rows_get_where_they_belong_for_each_dtype, 0, G_N_ELEMENTS(dtypes));
    tcase_add_test(cases, halves_are_rounded_to_the_nearest);
    tcase_add_test(cases, scales_and_no_numbers_are_kept);
    tcase_add_test(cases, operations_with_tickets_match_by_name);
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
