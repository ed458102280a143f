/* The conformance suite of collectives: see tensor_suite.h. */
#include "tests/support/collectives/tensor_suite.h"

#include <string.h>

#include "tests/support/collectives/tensor_adasum_cases.h"
#include "tests/support/collectives/tensor_cases.h"
#include "tests/support/collectives/tensor_compression_cases.h"
#include "tests/support/collectives/tensor_group_cases.h"
#include "tests/support/collectives/tensor_mismatch_cases.h"
#include "tests/support/collectives/tensor_repeat_cases.h"
#include "tests/support/collectives/tensor_set_cases.h"
#include "tests/support/engine/engine_fixture.h"

static bool run_task(RubatoEngine *engine, RubatoTaskFunc function, void *user_data, GError **error)
{
    const RubatoTask task = { .name = "collect", .run = function, .user_data = user_data };

    return rubato_engine_run(engine, &task, error);
}

static bool run_dtypes(RubatoEngine *engine, const RubatoDtype *dtypes, size_t n, GError **error)
{
    for (size_t i = 0; i < n; i++) {
        RubatoDtype dtype = dtypes[i];

        if (!run_task(engine, tensor_reduce_all, &dtype, error) ||
            !run_task(engine, tensor_move_rows, &dtype, error))
            return false;
    }
    return true;
}

bool tensor_suite_dtypes(RubatoEngine *engine, uint32_t n_workers, GError **error)
{
    (void)n_workers;
    return run_dtypes(engine, tensor_dtypes, TENSOR_N_DTYPES, error);
}

bool tensor_suite_operations(RubatoEngine *engine, uint32_t n_workers, GError **error)
{
    static const RubatoDtype one_of_each_size[] = { RUBATO_F32, RUBATO_F64, RUBATO_U8, RUBATO_F16 };

    if (!run_dtypes(engine, one_of_each_size, G_N_ELEMENTS(one_of_each_size), error))
        return false;
    return run_task(engine, tensor_start_many, NULL, error) &&
           run_task(engine, tensor_reduce_groups, NULL, error) &&
           run_task(engine, tensor_move_groups, NULL, error) &&
           run_task(engine, tensor_join_one_by_one, NULL, error) &&
           run_task(engine, tensor_adasum_all, NULL, error) &&
           run_task(engine, tensor_adasum_joined, NULL, error) &&
           run_task(engine, tensor_be_left, NULL, error) &&
           run_task(engine, tensor_need_joined, NULL, error) &&
           (n_workers < 2 || run_task(engine, tensor_disagree_on_all, NULL, error)) &&
           (n_workers != 3 || run_task(engine, tensor_disagree, NULL, error));
}

bool tensor_suite_sets(RubatoEngine *engine, uint32_t n_workers, GError **error)
{
    const RubatoTask task = { .name = "collect" };

    return tensor_run_set_cases(engine, &task, n_workers, error);
}

bool tensor_suite_much(RubatoEngine *engine, uint32_t n_workers, GError **error)
{
    (void)n_workers;
    return run_task(engine, tensor_move_much, NULL, error);
}

/* Values whose sum depends on the order; each run gives the same bits on all workers. */
static bool sum_twice(RubatoWorker *worker, void *user_data, GError **error)
{
    enum { N = 300000 };
    const uint32_t rank = rubato_worker_rank(worker);
    g_autofree float *values = g_new(float, N), *first = g_new(float, N), *again = g_new(float, N);
    g_auto(RubatoGathered) all = { 0 };
    RubatoTensor tensor = { .name = "x",
                            .dtype = RUBATO_F32,
                            .n_dims = 1,
                            .shape = { N },
                            .input = values,
                            .output = first };

    (void)user_data;
    for (size_t i = 0; i < N; i++)
        values[i] = 1.0f / (float)(i * 3 + rank + 1) * (i % 2 == 0 ? 1 : -1e4f);
    TRY(rubato_worker_allreduce(worker, &tensor, NULL, error));
    tensor.output = again;
    TRY(rubato_worker_allreduce(worker, &tensor, NULL, error));
    REQUIRE(memcmp(first, again, N * sizeof(float)) == 0);
    tensor.input = first;
    TRY(rubato_worker_allgather(worker, &tensor, &all, error));
    for (uint32_t i = 0; i < rubato_worker_n_workers(worker); i++)
        REQUIRE(memcmp((float *)all.values + (size_t)i * N, first, N * sizeof(float)) == 0);
    return true;
}

bool tensor_suite_sums(RubatoEngine *engine, uint32_t n_workers, GError **error)
{
    (void)n_workers;
    return run_task(engine, sum_twice, NULL, error);
}

bool tensor_suite_numbers(RubatoEngine *engine, uint32_t n_workers, GError **error)
{
    (void)n_workers;
    return run_task(engine, tensor_reduce_in_order, NULL, error);
}

bool tensor_suite_compression(RubatoEngine *engine, uint32_t n_workers, GError **error)
{
    (void)n_workers;
    return run_task(engine, tensor_compress_all, NULL, error) &&
           run_task(engine, tensor_compress_joined, NULL, error);
}

/* Worker 0's node compares the bits of tensors that travel together with those of tensors alone. */
bool tensor_suite_repeats(RubatoEngine *engine, uint32_t n_workers, GError **error)
{
    static const uint64_t bounds[] = { RUBATO_FUSION_OFF, 0, 2000 };
    g_autoptr(GByteArray) alone = g_byte_array_new();

    (void)n_workers;
    for (size_t i = 0; i < G_N_ELEMENTS(bounds); i++) {
        g_autoptr(GByteArray) bits = g_byte_array_new();
        const RubatoTask task = {
            .name = "collect", .run = tensor_repeat, .user_data = bits, .fusion_bytes = bounds[i]
        };

        if (!rubato_engine_run(engine, &task, error))
            return false;
        if (i == 0)
            g_byte_array_append(alone, bits->data, bits->len);
        REQUIRE(bits->len == alone->len &&
                    (bits->len == 0 || memcmp(bits->data, alone->data, bits->len) == 0),
                "(with bound %zu)", i);
    }
    return run_task(engine, tensor_poll_early, NULL, error);
}
