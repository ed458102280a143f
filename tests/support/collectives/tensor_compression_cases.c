/* Tensors that are compressed between nodes: see tensor_compression_cases.h. */
#include "tests/support/collectives/tensor_compression_cases.h"

#include <math.h>
#include <string.h>

#include "tests/support/collectives/tensor_cases.h"
#include "tests/support/engine/engine_fixture.h"

enum { N_CALLS = 12, FEW_CALLS = 2, MOST_VALUES = 530000 };

/* How far from the mean one call may be, and how far all of them together. Each call alone cuts off
 * `bias`, so that without what is kept they would be N_CALLS × bias away. */
typedef struct {
    RubatoCompression compression;
    float bias, most;
} Halves;

static const Halves kinds[] = { { RUBATO_COMPRESSION_BF16, 0.003f, 0.02f },
                                { RUBATO_COMPRESSION_F16, 0.0004f, 0.003f } };

typedef struct {
    float input[MOST_VALUES], output[MOST_VALUES];
    double sums[MOST_VALUES];
} Arrays;

static float value_of(const Halves *halves, uint64_t i)
{
    return 1 + halves->bias * (1 + 0.01f * (float)(i % 7));
}

/* A hash of the values, as a double. */
static double hash(const float *values, uint64_t n)
{
    uint64_t hashed = 0;

    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &values[i], sizeof bits);
        hashed = (hashed ^ bits) * UINT64_C(0x9e3779b97f4a7c15);
        hashed ^= hashed >> 29;
    }
    return (double)(hashed >> 12);
}

static bool have_all_the_same(RubatoWorker *worker, const Arrays *arrays, uint64_t n,
                              GError **error)
{
    double most = hash(arrays->output, n), least = most;

    TRY(rubato_worker_reduce(worker, &most, 1, RUBATO_REDUCTION_MAX, error));
    TRY(rubato_worker_reduce(worker, &least, 1, RUBATO_REDUCTION_MIN, error));
    REQUIRE(most == least);
    return true;
}

static bool call(RubatoWorker *worker, Arrays *arrays, uint64_t n, const Halves *halves,
                 GError **error)
{
    const RubatoTensor tensor = { .name = "compressed",
                                  .dtype = RUBATO_F32,
                                  .n_dims = 1,
                                  .shape = { n },
                                  .input = arrays->input,
                                  .output = arrays->output };
    const RubatoReduce mean = { .reduction = RUBATO_REDUCTION_MEAN,
                                .compression = halves->compression };

    return rubato_worker_allreduce(worker, &tensor, &mean, error);
}

static bool is_near(const Arrays *arrays, uint64_t n, const Halves *halves, float most)
{
    for (uint64_t i = 0; i < n; i++)
        if (!(fabsf(arrays->output[i] - value_of(halves, i)) <= most))
            return false;
    return true;
}

static bool repeat(RubatoWorker *worker, Arrays *arrays, uint64_t n, const Halves *halves,
                   GError **error)
{
    const bool is_alone = rubato_worker_n_local_workers(worker) == rubato_worker_n_workers(worker);
    const float most = is_alone ? 1e-6f : halves->most;
    const int n_calls = n == MOST_VALUES ? FEW_CALLS : N_CALLS;
    double first = 0;

    for (uint64_t i = 0; i < n; i++) {
        arrays->input[i] = value_of(halves, i);
        arrays->sums[i] = 0;
    }
    for (int k = 0; k < n_calls; k++) {
        TRY(call(worker, arrays, n, halves, error));
        REQUIRE(is_near(arrays, n, halves, most));
        for (uint64_t i = 0; i < n; i++)
            arrays->sums[i] += arrays->output[i];
        if (k == 0)
            first = hash(arrays->output, n);
    }
    TRY(have_all_the_same(worker, arrays, n, error));
    for (uint64_t i = 0; i < n; i++)
        REQUIRE(fabs(arrays->sums[i] - n_calls * (double)value_of(halves, i)) <=
                (is_alone ? 1e-4f : most));
    /* what was kept is forgotten with another size */
    TRY(call(worker, arrays, n - 1, halves, error));
    TRY(call(worker, arrays, n, halves, error));
    REQUIRE(hash(arrays->output, n) == first);
    TRY(call(worker, arrays, n, halves, error));
    REQUIRE((hash(arrays->output, n) == first) == is_alone);
    return true;
}

/* Small tensors that travel together have a residual each. */
static bool repeat_group(RubatoWorker *worker, GError **error)
{
    enum { N = 3, SIZE = 300 };
    static const char *const names[N] = { "half/0", "half/1", "half/2" };
    const RubatoReduce sum = { .compression = RUBATO_COMPRESSION_BF16 };
    const float n_workers = (float)rubato_worker_n_workers(worker);
    float values[N][SIZE];
    double sums[N] = { 0 };
    RubatoTensor tensors[N];

    for (int k = 0; k < N_CALLS; k++) {
        for (uint32_t t = 0; t < N; t++) {
            for (uint32_t i = 0; i < SIZE; i++)
                values[t][i] = (float)(t + 1) * 1.003f;
            tensors[t] = (RubatoTensor){ .name = names[t],
                                         .dtype = RUBATO_F32,
                                         .n_dims = 1,
                                         .shape = { SIZE - t },
                                         .input = values[t],
                                         .output = values[t] };
        }
        TRY(rubato_worker_allreduce_group(worker, tensors, N, &sum, error));
        for (uint32_t t = 0; t < N; t++) {
            REQUIRE(values[t][0] == values[t][SIZE - t - 1]);
            sums[t] += values[t][0];
        }
    }
    for (uint32_t t = 0; t < N; t++) {
        const float sum_of_all = n_workers * (float)(t + 1) * 1.003f;

        REQUIRE(fabs(sums[t] - N_CALLS * (double)sum_of_all) <= 0.02 * (double)sum_of_all);
    }
    return true;
}

/* Each worker gets its rows, and over many calls nothing is lost of them. */
static bool scatter(RubatoWorker *worker, const Halves *halves, uint64_t n_rows, GError **error)
{
    enum { WIDTH = 3 };
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);
    const uint64_t n_own = WIDTH * rubato_reduce_scatter_rows(n_rows, n_workers, rank);
    const bool is_alone = rubato_worker_n_local_workers(worker) == n_workers;
    const float most = is_alone ? 1e-6f : halves->most;
    g_autofree float *input = g_new(float, n_rows *WIDTH), *output = g_new(float, n_own + 1);
    g_autofree double *sums = g_new0(double, n_own + 1);
    const RubatoReduce mean = { .reduction = RUBATO_REDUCTION_MEAN,
                                .compression = halves->compression };
    const RubatoTensor tensor = { .name = "scattered",
                                  .dtype = RUBATO_F32,
                                  .n_dims = 2,
                                  .shape = { n_rows, WIDTH },
                                  .input = input,
                                  .output = output };
    uint64_t first = 0;

    for (uint32_t i = 0; i < rank; i++)
        first += WIDTH * rubato_reduce_scatter_rows(n_rows, n_workers, i);
    for (uint64_t i = 0; i < n_rows * WIDTH; i++)
        input[i] = value_of(halves, i);
    for (int k = 0; k < N_CALLS; k++) {
        TRY(rubato_worker_reduce_scatter(worker, &tensor, &mean, error));
        for (uint64_t i = 0; i < n_own; i++) {
            REQUIRE(fabsf(output[i] - value_of(halves, first + i)) <= most, "(call %d)", k);
            sums[i] += (double)output[i];
        }
    }
    for (uint64_t i = 0; i < n_own; i++)
        REQUIRE(fabs(sums[i] - N_CALLS * (double)value_of(halves, first + i)) <=
                (double)(is_alone ? 1e-4f : most));
    return true;
}

static bool disagree(RubatoWorker *worker, Arrays *arrays, GError **error)
{
    const Halves none = { .compression = RUBATO_COMPRESSION_NONE };

    REQUIRE(!call(worker, arrays, 5, rubato_worker_rank(worker) == 0 ? &none : &kinds[0], error));
    REQUIRE(is_error(error, RUBATO_ERROR_MISMATCH, "compressed to bf16"));
    return true;
}

/* Worker r has r + 1 times N_CALLS batches. What the node of one that has joined keeps is missing
 * from the others' sums: as much as one call cuts off. */
bool tensor_compress_joined(RubatoWorker *worker, void *user_data, GError **error)
{
    enum { N = 40 };
    const Halves *const halves = &kinds[0];
    const bool is_alone = rubato_worker_n_local_workers(worker) == rubato_worker_n_workers(worker);
    const int n_calls = N_CALLS * ((int)rubato_worker_rank(worker) + 1);
    const float most = is_alone ? 1e-6f : 2 * halves->most;
    g_autofree Arrays *arrays = g_new0(Arrays, 1);
    uint32_t last;

    (void)user_data;
    for (uint64_t i = 0; i < N; i++)
        arrays->input[i] = value_of(halves, i);
    for (int k = 0; k < n_calls; k++) {
        TRY(call(worker, arrays, N, halves, error));
        REQUIRE(is_near(arrays, N, halves, most), "(call %d)", k);
        for (uint64_t i = 0; i < N; i++)
            arrays->sums[i] += (double)arrays->output[i];
    }
    for (uint64_t i = 0; i < N; i++)
        REQUIRE(fabs(arrays->sums[i] - n_calls * (double)value_of(halves, i)) <=
                    (double)(is_alone ? 1e-3f : most),
                "(value %zu)", (size_t)i);
    return rubato_worker_join(worker, &last, error);
}

bool tensor_compress_all(RubatoWorker *worker, void *user_data, GError **error)
{
    const bool are_two = rubato_worker_n_workers(worker) == 2; /* each on a node */
    g_autofree Arrays *arrays = g_new(Arrays, 1);

    (void)user_data;
    for (size_t k = 0; k < G_N_ELEMENTS(kinds); k++)
        TRY(repeat(worker, arrays, 7, &kinds[k], error));
    TRY(repeat(worker, arrays, 40000, &kinds[0], error));
    if (are_two) /* less than this, both would combine all of it */
        TRY(repeat(worker, arrays, MOST_VALUES, &kinds[0], error));
    TRY(repeat_group(worker, error));
    TRY(scatter(worker, &kinds[0], 50, error));
    TRY(scatter(worker, &kinds[1], 10000, error));
    TRY(disagree(worker, arrays, error));
    return tensor_is_sum_right(worker, error);
}
