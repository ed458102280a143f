/* Allreduces by Adasum: see tensor_adasum_cases.h. */
#include "tests/support/collectives/tensor_adasum_cases.h"

#include <math.h>
#include <string.h>

#include "tests/support/collectives/adasum_reference.h"
#include "tests/support/collectives/tensor_cases.h"
#include "tests/support/engine/engine_fixture.h"

enum { MOST_VALUES = 40001 }; /* several chunks of each node */

static const RubatoReduce adasum = { .reduction = RUBATO_REDUCTION_ADASUM };

/* What a worker has at a place: no two workers' are parallel, nor orthogonal. */
static double value_of(uint32_t rank, uint64_t i)
{
    return (double)((i * (rank + 3) + rank * 5) % 13) - 4;
}

static double precision(RubatoDtype dtype)
{
    switch (dtype) {
    case RUBATO_F64:
        return 1e-12;
    case RUBATO_F32:
        return 1e-6;
    case RUBATO_F16:
        return 0x1p-11;
    default:
        return 0x1p-8;
    }
}

/* The result for workers from `first` on; those before it have zeros. (transfer full) */
static double *expect(uint32_t first, uint32_t n_workers, uint64_t n)
{
    double *const vectors = g_new0(double, n_workers *n + 1);

    for (uint32_t rank = first; rank < n_workers; rank++)
        for (uint64_t i = 0; i < n; i++)
            vectors[rank * n + i] = value_of(rank, i);
    adasum_reference(vectors, n_workers, n);
    return vectors;
}

static bool is_right(RubatoDtype dtype, const void *values, const double *expected, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (!(fabs(adasum_get(dtype, values, i) - expected[i]) <=
              precision(dtype) * (fabs(expected[i]) + 0.01)))
            return false;
    return true;
}

/* Whether all workers have the same bytes. */
static bool have_all_the_same(RubatoWorker *worker, const void *values, uint64_t n, GError **error)
{
    const RubatoTensor tensor = {
        .name = "bytes", .dtype = RUBATO_U8, .n_dims = 1, .shape = { n }, .input = values
    };
    g_auto(RubatoGathered) all = { 0 };

    TRY(rubato_worker_allgather(worker, &tensor, &all, error));
    for (uint32_t rank = 0; rank < rubato_worker_n_workers(worker) && n > 0; rank++)
        REQUIRE(memcmp((const uint8_t *)all.values + rank * n, values, n) == 0);
    return true;
}

static bool reduce(RubatoWorker *worker, RubatoDtype dtype, uint64_t n, GError **error)
{
    const uint64_t n_bytes = n * rubato_dtype_size(dtype);
    g_autofree double *expected = expect(0, rubato_worker_n_workers(worker), n);
    g_autofree void *input = g_malloc0(n_bytes + 1), *output = g_malloc0(n_bytes + 1);
    RubatoTensor tensor = { .name = "gradient",
                            .dtype = dtype,
                            .n_dims = 1,
                            .shape = { n },
                            .input = input,
                            .output = output };

    for (uint64_t i = 0; i < n; i++)
        adasum_put(dtype, input, i, value_of(rubato_worker_rank(worker), i));
    TRY(rubato_worker_allreduce(worker, &tensor, &adasum, error));
    REQUIRE(is_right(dtype, output, expected, n), "(%zu values of dtype %d)", (size_t)n,
            (int)dtype);
    tensor.output = input;
    TRY(rubato_worker_allreduce(worker, &tensor, &adasum, error));
    REQUIRE(memcmp(input, output, n_bytes) == 0);
    return have_all_the_same(worker, output, n_bytes, error);
}

/* Small tensors of a group do not travel together: each has weights of its own. */
static bool reduce_group(RubatoWorker *worker, GError **error)
{
    enum { N = 3, SIZE = 50 };
    static const char *const names[N] = { "layer/0", "layer/1", "layer/2" };
    const RubatoReduce scaled = { .reduction = RUBATO_REDUCTION_ADASUM,
                                  .prescale = 0.25,
                                  .postscale = 8 };
    float values[N][SIZE];
    RubatoTensor tensors[N];

    for (uint32_t t = 0; t < N; t++) {
        tensors[t] = (RubatoTensor){ .name = names[t],
                                     .dtype = RUBATO_F32,
                                     .n_dims = 1,
                                     .shape = { SIZE - t },
                                     .input = values[t],
                                     .output = values[t] };
        for (uint32_t i = 0; i < SIZE; i++)
            values[t][i] = (float)value_of(rubato_worker_rank(worker), i) * (float)(1 << t);
    }
    const RubatoTicket ticket =
        rubato_worker_allreduce_group_async(worker, tensors, N, &scaled, NULL, error);
    TRY(ticket != 0);
    TRY(rubato_worker_wait(worker, ticket, error));
    for (uint32_t t = 0; t < N; t++) {
        g_autofree double *expected = expect(0, rubato_worker_n_workers(worker), SIZE - t);

        for (uint32_t i = 0; i < SIZE - t; i++)
            expected[i] *= 2 * (1 << t);
        REQUIRE(is_right(RUBATO_F32, values[t], expected, SIZE - t), "(tensor %u)", t);
    }
    return true;
}

static bool reduce_special(RubatoWorker *worker, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);
    float values[3] = { 0 };
    const RubatoTensor tensor = { .name = "special",
                                  .dtype = RUBATO_F32,
                                  .n_dims = 1,
                                  .shape = { 3 },
                                  .input = values,
                                  .output = values };

    TRY(rubato_worker_allreduce(worker, &tensor, &adasum, error)); /* zeros of all */
    REQUIRE(values[0] == 0 && values[2] == 0);
    values[1] = rank + 1 == n_workers ? 7 : 0;
    TRY(rubato_worker_allreduce(worker, &tensor, &adasum, error));
    REQUIRE(values[0] == 0 && values[1] == 7);
    values[0] = rank + 1 == n_workers ? NAN : 1;
    TRY(rubato_worker_allreduce(worker, &tensor, &adasum, error));
    REQUIRE(isnan(values[0]) && isnan(values[1]) == (n_workers > 1));
    return true;
}

static bool refuse(RubatoWorker *worker, GError **error)
{
    float values[2] = { 0 };
    RubatoTensor tensor = { .name = "refused",
                            .dtype = RUBATO_I32,
                            .n_dims = 1,
                            .shape = { 2 },
                            .input = values,
                            .output = values };
    const RubatoReduce compressed = { .reduction = RUBATO_REDUCTION_ADASUM,
                                      .compression = RUBATO_COMPRESSION_BF16 };

    REQUIRE(!rubato_worker_allreduce(worker, &tensor, &adasum, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "floating-point tensors only"));
    tensor.dtype = RUBATO_BOOL;
    REQUIRE(!rubato_worker_allreduce(worker, &tensor, &adasum, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "floating-point tensors only"));
    tensor.dtype = RUBATO_F32;
    REQUIRE(!rubato_worker_allreduce(worker, &tensor, &compressed, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "only sums and means of f32"));
    tensor.output = (float[2]){ 0 };
    REQUIRE(!rubato_worker_reduce_scatter(worker, &tensor, &adasum, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "only an allreduce has Adasum"));
    return tensor_is_sum_right(worker, error);
}

bool tensor_adasum_all(RubatoWorker *worker, void *user_data, GError **error)
{
    static const RubatoDtype dtypes[] = { RUBATO_F32, RUBATO_F64, RUBATO_F16, RUBATO_BF16 };
    static const uint64_t sizes[] = { 0, 1, 40, 1030 };

    (void)user_data;
    for (size_t k = 0; k < G_N_ELEMENTS(dtypes); k++)
        for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++)
            TRY(reduce(worker, dtypes[k], sizes[i], error));
    TRY(reduce(worker, RUBATO_F32, MOST_VALUES, error));
    TRY(reduce_group(worker, error));
    TRY(reduce_special(worker, error));
    return refuse(worker, error);
}

/* Worker r has r + 1 batches. */
bool tensor_adasum_joined(RubatoWorker *worker, void *user_data, GError **error)
{
    enum { N = 300 };
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);
    float values[N];
    const RubatoTensor tensor = { .name = "gradient",
                                  .dtype = RUBATO_F32,
                                  .n_dims = 1,
                                  .shape = { N },
                                  .input = values,
                                  .output = values };
    uint32_t last;

    (void)user_data;
    for (uint32_t batch = 0; batch <= rank; batch++) {
        g_autofree double *expected = expect(batch, n_workers, N);

        for (uint32_t i = 0; i < N; i++)
            values[i] = (float)value_of(rank, i);
        TRY(rubato_worker_allreduce(worker, &tensor, &adasum, error));
        REQUIRE(is_right(RUBATO_F32, values, expected, N), "(batch %u)", batch);
    }
    return rubato_worker_join(worker, &last, error);
}
