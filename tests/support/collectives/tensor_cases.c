/* Collectives on tensors, for workers anywhere: see tensor_cases.h. */
#include "tests/support/collectives/tensor_cases.h"

#include <math.h>
#include <string.h>

#include "engine/collectives/work/tensor_math.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

const RubatoDtype tensor_dtypes[TENSOR_N_DTYPES] = { RUBATO_F32,  RUBATO_F64, RUBATO_I32,
                                                     RUBATO_I64,  RUBATO_U8,  RUBATO_F16,
                                                     RUBATO_BF16, RUBATO_I8,  RUBATO_I16,
                                                     RUBATO_BOOL };

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

/* The shapes that are tried: each for tensors of 1 to 3 dimensions, with nothing, little, more than
 * one block (tensor_math.c), and more than one chunk in them. */
static const struct {
    uint32_t n_dims;
    uint64_t shape[3];
} shapes[] = { { 1, { 1 } },       { 1, { 0 } },    { 2, { 5, 3 } },
               { 3, { 4, 3, 2 } }, { 1, { 1030 } }, { 1, { 20001 } } };

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

static bool is_nan(RubatoDtype dtype, const void *value)
{
    return dtype == RUBATO_F64   ? isnan(*(const double *)value)
           : dtype == RUBATO_F32 ? isnan(*(const float *)value)
           : dtype == RUBATO_F16 ? isnan(tensor_float_from_f16(*(const uint16_t *)value))
                                 : isnan(tensor_float_from_bf16(*(const uint16_t *)value));
}

/* One worker's NaN is everybody's result, whatever the reduction and whoever has it. */
static bool keep_no_numbers(RubatoWorker *worker, RubatoDtype dtype, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);
    const double nan64 = NAN;
    const float nan32 = NAN;
    const uint16_t nan16 = dtype == RUBATO_F16 ? 0x7e00 : 0x7fc0;
    const void *const nan = dtype == RUBATO_F64   ? (const void *)&nan64
                            : dtype == RUBATO_F32 ? (const void *)&nan32
                                                  : &nan16;

    for (uint32_t who = 0; who < n_workers; who++)
        for (RubatoReduction reduction = 0; reduction <= RUBATO_REDUCTION_PRODUCT; reduction++) {
            double value = 0;
            const RubatoTensor tensor = {
                .name = "nan", .dtype = dtype, .input = &value, .output = &value
            };

            if (rank == who)
                memcpy(&value, nan, rubato_dtype_size(dtype));
            TRY(rubato_worker_allreduce(worker, &tensor, &(RubatoReduce){ .reduction = reduction },
                                        error));
            REQUIRE(is_nan(dtype, &value), "(reduction %d, worker %u)", reduction, who);
        }
    return true;
}

static bool is_real(RubatoDtype dtype)
{
    return dtype == RUBATO_F16 || dtype == RUBATO_BF16 || dtype == RUBATO_F32 ||
           dtype == RUBATO_F64;
}

bool tensor_reduce_all(RubatoWorker *worker, void *user_data, GError **error)
{
    Plan plan = { .dtype = *(const RubatoDtype *)user_data };

    TRY(!is_real(plan.dtype) || keep_no_numbers(worker, plan.dtype, error));
    for (; plan.shape < G_N_ELEMENTS(shapes); plan.shape++)
        for (RubatoReduction reduction = 0; reduction <= RUBATO_REDUCTION_PRODUCT; reduction++)
            if ((plan.dtype != RUBATO_BOOL || reduction != RUBATO_REDUCTION_MEAN) &&
                (plan.shape < LARGE || reduction == RUBATO_REDUCTION_SUM))
                TRY(reduce_and_scatter(worker, &plan, reduction, error));
    return true;
}

/* ---- in the order of the ranks ---- */

enum { N_ORDERED = 40 };

static double ordered_of(uint32_t rank, size_t i)
{
    return i == 0 ? -0.0 : (rank % 2 == 0 ? 1.0 : -1e3) / (double)(i * 3 + rank + 1);
}

static double fold(RubatoReduction reduction, uint32_t first, uint32_t n_workers, size_t i)
{
    double result = ordered_of(first, i);

    for (uint32_t rank = first + 1; rank < n_workers; rank++) {
        const double value = ordered_of(rank, i);

        if (reduction == RUBATO_REDUCTION_MIN)
            result = MIN(result, value);
        else if (reduction == RUBATO_REDUCTION_MAX)
            result = MAX(result, value);
        else if (reduction == RUBATO_REDUCTION_PRODUCT)
            result *= value;
        else
            result += value;
    }
    return reduction == RUBATO_REDUCTION_MEAN ? result / (n_workers - first) : result;
}

static bool reduce_ordered(RubatoWorker *worker, uint32_t first, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);
    double values[N_ORDERED];

    for (RubatoReduction reduction = 0; reduction <= RUBATO_REDUCTION_PRODUCT; reduction++) {
        for (size_t i = 0; i < N_ORDERED; i++)
            values[i] = ordered_of(rank, i);
        TRY(rubato_worker_reduce(worker, values, N_ORDERED, reduction, error));
        for (size_t i = 0; i < N_ORDERED; i++) {
            const double expected = fold(reduction, first, n_workers, i);

            REQUIRE(memcmp(&values[i], &expected, sizeof expected) == 0,
                    "(value %zu of reduction %d: %.17g, not %.17g)", i, reduction, values[i],
                    expected);
        }
    }
    return true;
}

bool tensor_reduce_in_order(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);
    double value = 1;
    uint32_t last;

    (void)user_data;
    TRY(reduce_ordered(worker, 0, error));
    TRY(rubato_worker_reduce(worker, NULL, 0, RUBATO_REDUCTION_SUM, error));
    REQUIRE(!rubato_worker_reduce(worker, &value, 1, (RubatoReduction)77, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "reduction"));
    if (n_workers > 1) {
        REQUIRE(!rubato_worker_reduce(
            worker, &value, 1, rank == 1 ? RUBATO_REDUCTION_MAX : RUBATO_REDUCTION_MIN, error));
        REQUIRE(is_error(error, RUBATO_ERROR_MISMATCH, "rubato_worker_reduce"));
        REQUIRE(value == 1);
        REQUIRE(!rubato_worker_reduce(
            worker, &value, 1, rank == 1 ? RUBATO_REDUCTION_ADASUM : RUBATO_REDUCTION_MIN, error));
        REQUIRE(is_error(error, RUBATO_ERROR_MISMATCH, "asks for reduction"));
        REQUIRE(value == 1);
    }
    TRY(rank == 0 || reduce_ordered(worker, 1, error));
    return rubato_worker_join(worker, &last, error);
}

/* 24 values in 1 to 3 dimensions; how many values a row has, if rows are counted. */
static const uint64_t moved[][3] = { { 24 }, { 12, 2 }, { 4, 3, 2 } };
static const uint64_t widths[][2] = { { 1 }, { 2 }, { 2, 3 } };

static bool broadcast(RubatoWorker *worker, RubatoTensor *tensor, GError **error)
{
    const uint32_t root = rubato_worker_n_workers(worker) - 1;
    g_autofree void *seen = g_malloc0(24 * 8);

    tensor->output = seen;
    memcpy(tensor->shape, moved[tensor->n_dims - 1], sizeof moved[0]);
    TRY(rubato_worker_broadcast(worker, tensor, root, error));
    for (size_t i = 0; i < 24; i++)
        REQUIRE(get(tensor->dtype, seen, i) == value_of(tensor->dtype, root, i));
    return true;
}

/* Worker r gathers r + 1 rows. */
static bool allgather(RubatoWorker *worker, const RubatoTensor *tensor, uint64_t width,
                      GError **error)
{
    const uint32_t n_workers = rubato_worker_n_workers(worker);
    g_auto(RubatoGathered) all = { 0 };
    size_t at = 0;

    TRY(rubato_worker_allgather(worker, tensor, &all, error));
    REQUIRE(all.n_rows == n_workers * (n_workers + 1) / 2);
    for (uint32_t from = 0; from < n_workers; from++) {
        REQUIRE(all.rows[from] == from + 1);
        for (size_t i = 0; i < width * (from + 1); i++)
            REQUIRE(get(tensor->dtype, all.values, at++) == value_of(tensor->dtype, from, i));
    }
    return true;
}

/* Worker r sends r of r + 1 rows to worker 0 and 1 to the last one. */
static bool alltoall(RubatoWorker *worker, const RubatoTensor *tensor, uint64_t width,
                     GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);
    uint64_t splits[TENSOR_MOST_WORKERS] = { 0 };
    g_auto(RubatoGathered) mine = { 0 };
    size_t at = 0;

    splits[0] = rank;
    splits[n_workers - 1] += 1;
    TRY(rubato_worker_alltoall(worker, tensor, splits, &mine, error));
    for (uint32_t from = 0; from < n_workers; from++) {
        const uint64_t n_rows = (rank == 0 ? from : 0) + (rank == n_workers - 1 ? 1 : 0);
        const size_t first = rank == 0 ? 0 : width * (size_t)from;

        REQUIRE(mine.rows[from] == n_rows);
        for (size_t i = 0; i < width * n_rows; i++)
            REQUIRE(get(tensor->dtype, mine.values, at++) ==
                    value_of(tensor->dtype, from, first + i));
    }
    REQUIRE(mine.n_rows * width == at);
    return true;
}

/* Nobody has rows; and then only the last worker, for itself. */
static bool move_nothing(RubatoWorker *worker, RubatoTensor tensor, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);
    uint64_t splits[TENSOR_MOST_WORKERS] = { 0 };
    g_auto(RubatoGathered) all = { 0 }, even = { 0 }, mine = { 0 }, last = { 0 };

    tensor.shape[0] = 0;
    TRY(rubato_worker_allgather(worker, &tensor, &all, error));
    REQUIRE(all.n_rows == 0 && all.rows[n_workers - 1] == 0);
    TRY(rubato_worker_alltoall(worker, &tensor, NULL, &even, error));
    REQUIRE(even.n_rows == 0 && even.rows[n_workers - 1] == 0);
    TRY(rubato_worker_alltoall(worker, &tensor, splits, &mine, error));
    REQUIRE(mine.n_rows == 0 && mine.rows[0] == 0);
    tensor.shape[0] = splits[n_workers - 1] = rank == n_workers - 1;
    TRY(rubato_worker_alltoall(worker, &tensor, splits, &last, error));
    REQUIRE(last.n_rows == tensor.shape[0] && last.rows[n_workers - 1] == tensor.shape[0]);
    return true;
}

bool tensor_move_rows(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    const Plan plan = { .dtype = *(const RubatoDtype *)user_data, .shape = 3 };
    g_autofree void *values = fill(&plan, rank);

    for (uint32_t n_dims = 1; n_dims <= G_N_ELEMENTS(moved); n_dims++) {
        const uint64_t *const width = widths[n_dims - 1];
        RubatoTensor tensor = tensor_of(&plan, "x", values, NULL);

        tensor.n_dims = n_dims;
        TRY(broadcast(worker, &tensor, error));
        tensor.output = NULL;
        tensor.shape[0] = rank + 1;
        memcpy(tensor.shape + 1, width, sizeof widths[0]);
        const uint64_t n = width[0] * MAX(width[1], 1);
        TRY(allgather(worker, &tensor, n, error));
        TRY(alltoall(worker, &tensor, n, error));
        TRY(move_nothing(worker, tensor, error));
    }
    return true;
}

/* ---- many at once ---- */

enum { N_TENSORS = 50, N_FLOATS = 3000 };

/* Each worker starts many operations, in an order of its own, and waits for them in another. */
bool tensor_start_many(RubatoWorker *worker, void *user_data, GError **error)
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

/* ---- mismatches, returns ---- */

bool tensor_is_sum_right(RubatoWorker *worker, GError **error)
{
    int32_t value = 1;
    const RubatoTensor tensor = {
        .name = "again", .dtype = RUBATO_I32, .input = &value, .output = &value
    };

    TRY(rubato_worker_allreduce(worker, &tensor, NULL, error));
    REQUIRE(value == (int32_t)rubato_worker_n_workers(worker));
    return true;
}

bool tensor_disagree(RubatoWorker *worker, void *user_data, GError **error)
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
    return tensor_is_sum_right(worker, error);
}

/* Worker 1 returns; worker 0 waits for it, then and afterwards. */
bool tensor_be_left(RubatoWorker *worker, void *user_data, GError **error)
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

/* ---- groups ---- */

enum { N_GROUP = 5, MOST_OF_ROWS = 20000 };

static const uint64_t group_rows[N_GROUP] = { 1, 3000, 0, MOST_OF_ROWS, 7 };
static const char *const group_names[N_GROUP] = { "g/0", "g/1", "g/2", "g/3", "g/4" };

/* A worker's group, in place, in an order of its own. */
static void make_group(uint32_t rank, double *values, RubatoTensor tensors[N_GROUP])
{
    for (uint32_t i = 0; i < N_GROUP; i++) {
        const uint32_t k = (i + rank) % N_GROUP;
        double *const own = values + (size_t)k * MOST_OF_ROWS;

        tensors[i] = (RubatoTensor){ .name = group_names[k],
                                     .dtype = RUBATO_F64,
                                     .n_dims = 1,
                                     .shape = { group_rows[k] },
                                     .input = own,
                                     .output = own };
        for (uint64_t j = 0; j < group_rows[k]; j++)
            own[j] = (double)(k + j + rank);
    }
}

static bool is_group_right(const RubatoWorker *worker, const double *values)
{
    const uint32_t n_workers = rubato_worker_n_workers(worker);

    for (uint32_t k = 0; k < N_GROUP; k++)
        for (uint64_t j = 0; j < group_rows[k]; j++)
            if (values[(size_t)k * MOST_OF_ROWS + j] !=
                (double)(n_workers * (k + j) + n_workers * (n_workers - 1) / 2))
                return false;
    return true;
}

/* Refused groups leave nothing pending. "own/R" is what worker R asks for before the others may. */
static bool refuse_groups(RubatoWorker *worker, double *values, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    g_autofree double *ones = g_new0(double, rubato_worker_n_workers(worker));
    RubatoTensor tensors[N_GROUP];

    make_group(rank, values, tensors);
    REQUIRE(!rubato_worker_allreduce_group(worker, tensors, 0, NULL, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "a group of 0 tensors"));
    REQUIRE(rubato_worker_allreduce_group_async(worker, tensors, 0, NULL, NULL, error) == 0);
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "a group of 0 tensors"));
    tensors[1].name = tensors[4].name;
    REQUIRE(!rubato_worker_allreduce_group(worker, tensors, N_GROUP, NULL, error));
    REQUIRE(is_error(error, RUBATO_ERROR_EXISTS, tensors[4].name));
    make_group(rank, values, tensors);
    for (uint32_t i = 0; i < rubato_worker_n_workers(worker); i++) {
        const uint32_t who = (rank + i) % rubato_worker_n_workers(worker);
        g_autofree char *own = g_strdup_printf("own/%u", who);
        const RubatoTensor tensor = {
            .name = own, .dtype = RUBATO_F64, .input = &ones[who], .output = &ones[who]
        };

        TRY(rubato_worker_allreduce_async(worker, &tensor, NULL, NULL, error) != 0);
        if (i > 0)
            continue;
        tensors[2].name = own;
        REQUIRE(!rubato_worker_allreduce_group(worker, tensors, N_GROUP, NULL, error));
        REQUIRE(is_error(error, RUBATO_ERROR_EXISTS, own));
        REQUIRE(rubato_worker_allreduce_group_async(worker, tensors, N_GROUP, NULL, NULL, error) ==
                0);
        REQUIRE(is_error(error, RUBATO_ERROR_EXISTS, own));
        TRY(rubato_worker_named_barrier(worker, "all have their own", error));
    }
    return rubato_worker_wait_all(worker, error);
}

bool tensor_reduce_groups(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    g_autofree double *values = g_new0(double, (size_t)N_GROUP *MOST_OF_ROWS);
    RubatoTensor tensors[N_GROUP];

    (void)user_data;
    TRY(refuse_groups(worker, values, error));
    for (int i = 0; i < 2; i++) {
        make_group(rank, values, tensors);
        TRY(rubato_worker_allreduce_group(worker, tensors, N_GROUP, NULL, error));
        REQUIRE(is_group_right(worker, values));
        make_group(rank, values, tensors);
        const RubatoTicket ticket =
            rubato_worker_allreduce_group_async(worker, tensors, N_GROUP, NULL, NULL, error);
        TRY(ticket != 0);
        TRY(rubato_worker_wait(worker, ticket, error));
        REQUIRE(is_group_right(worker, values));
    }
    make_group(rank, values, tensors);
    for (uint32_t i = 0; i < N_GROUP; i++)
        if (rank == 1 && strcmp(tensors[i].name, "g/4") == 0)
            tensors[i].shape[0] = 8;
    REQUIRE(!rubato_worker_allreduce_group(worker, tensors, N_GROUP, NULL, error));
    REQUIRE(is_error(error, RUBATO_ERROR_MISMATCH, "f64 [8] by worker 1"));
    REQUIRE(values[0] == rank);
    return tensor_is_sum_right(worker, error);
}

/* ---- joining ---- */

/* Worker r has r + 1 batches, which differ in the reduction. */
bool tensor_join_one_by_one(RubatoWorker *worker, void *user_data, GError **error)
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

/* ---- much ---- */

/* A slow build looks at one in so many values: what is moved wrongly is a piece or more. */
enum { MUCH_ROWS = 3001, MUCH_WIDTH = 1000, MUCH_STEP = 17 };

static float much_of(uint32_t rank, size_t i)
{
    return (float)((i * 13 + rank * 7) % 1009);
}

/* Each worker has freed n values. A row less of each lies in such memory of theirs: what comes last
 * is as it was. */
static bool gather_again(RubatoWorker *worker, RubatoTensor tensor, size_t n, GError **error)
{
    const uint32_t n_workers = rubato_worker_n_workers(worker);
    const uint64_t n_from = (MUCH_ROWS - n_workers) * MUCH_WIDTH; /* of the last one */
    g_auto(RubatoGathered) all = { 0 };

    tensor.shape[0]--;
    TRY(rubato_worker_allgather(worker, &tensor, &all, error));
    const float *const values = all.values;
    REQUIRE(all.n_rows * MUCH_WIDTH == n - (size_t)n_workers * MUCH_WIDTH);
    REQUIRE(values[all.n_rows * MUCH_WIDTH - 1] == much_of(n_workers - 1, n_from - 1));
    REQUIRE(all.memory != NULL);
    REQUIRE(values[n - 1] == much_of(n_workers - 1, n_from + MUCH_WIDTH - 1));
    return true;
}

bool tensor_move_much(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);
    const size_t n = (size_t)MUCH_ROWS * MUCH_WIDTH;
    g_autofree float *input = g_new(float, n), *output = g_new0(float, n);
    RubatoTensor tensor = { .name = "much",
                            .dtype = RUBATO_F32,
                            .n_dims = 2,
                            .shape = { MUCH_ROWS, MUCH_WIDTH },
                            .input = input,
                            .output = output };
    g_auto(RubatoGathered) all = { 0 }, mine = { 0 };
    const size_t step = is_slow() ? MUCH_STEP : 1;
    size_t first = 0;

    (void)user_data;
    for (size_t i = 0; i < n; i++)
        input[i] = much_of(rank, i);
    TRY(rubato_worker_reduce_scatter(worker, &tensor, NULL, error));
    for (uint32_t i = 0; i < rank; i++)
        first += MUCH_WIDTH * rubato_reduce_scatter_rows(MUCH_ROWS, n_workers, i);
    for (size_t i = 0; i < MUCH_WIDTH * rubato_reduce_scatter_rows(MUCH_ROWS, n_workers, rank);
         i += step) {
        float sum = 0;

        for (uint32_t from = 0; from < n_workers; from++)
            sum += much_of(from, first + i);
        REQUIRE(output[i] == sum, "(value %zu)", i);
    }
    TRY(rubato_worker_broadcast(worker, &tensor, n_workers - 1, error));
    for (size_t i = 0; i < n; i += step)
        REQUIRE(output[i] == much_of(n_workers - 1, i), "(value %zu)", i);
    tensor.shape[0] = MUCH_ROWS - rank;
    TRY(rubato_worker_allgather(worker, &tensor, &all, error));
    first = 0;
    for (uint32_t from = 0; from < n_workers; from++) {
        const size_t n_from = (size_t)(MUCH_ROWS - from) * MUCH_WIDTH;

        for (size_t i = 0; i < n_from; i += step)
            REQUIRE(((const float *)all.values)[first + i] == much_of(from, i), "(value %zu)", i);
        first += n_from;
    }
    rubato_gathered_clear(&all);
    TRY(gather_again(worker, tensor, first, error));
    tensor.shape[0] = MUCH_ROWS - MUCH_ROWS % n_workers;
    TRY(rubato_worker_alltoall(worker, &tensor, NULL, &mine, error));
    const size_t share = (size_t)tensor.shape[0] / n_workers * MUCH_WIDTH;
    for (uint32_t from = 0; from < n_workers; from++)
        for (size_t i = 0; i < share; i += step)
            REQUIRE(((const float *)mine.values)[from * share + i] ==
                        much_of(from, rank * share + i),
                    "(value %zu)", i);
    tensor.shape[0] = MUCH_ROWS;
    tensor.output = input;
    TRY(rubato_worker_allreduce(worker, &tensor, NULL, error));
    for (size_t i = 0; i < n; i += step) {
        float sum = 0;

        for (uint32_t from = 0; from < n_workers; from++)
            sum += much_of(from, i);
        REQUIRE(input[i] == sum, "(value %zu)", i);
    }
    return true;
}
