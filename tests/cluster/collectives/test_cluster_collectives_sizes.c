/* Collectives on tensors between nodes at sizes next to those at which another way is taken: of
 * messages, of what is sent before it is decided, of arrays that go past the caches. Arrays begin
 * anywhere, nothing but the results is written, and each is asked again. */
#include <string.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { MARGIN = 256, MOST_RANKS = 7, GUARD = 0xa5, PERIOD = 251 };

static const struct {
    const char *way; /* NULL: as it is fixed */
    ClusterShape shape;
} runs[] = {
    { NULL, { .n_nodes = 2, .nodes = { { 1, 1 }, { 0, 1 } }, .over = "shm" } },
    { NULL, { .n_nodes = 3, .nodes = { { 1, 2 }, { 0, 1 }, { 0, 2 } }, .over = "tcp" } },
    { NULL, { .n_nodes = 2, .nodes = { { 1, 3 }, { 0, 4 } }, .over = "shm" } },
    { "halving", { .n_nodes = 3, .nodes = { { 1, 1 }, { 0, 1 }, { 0, 1 } }, .over = "tcp" } },
};

/* In bytes: see tensor_combining_cut.c, tensor_gathering.c, tensor_flow_private.h, tensor_stream.h,
 * backend_own.c. Each with a value less and a value more, too. */
static const size_t cuts[] = { 0,         8,         4 << 10,   32 << 10,  64 << 10,
                               127 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20 };

static const RubatoDtype dtypes[] = { RUBATO_F32, RUBATO_U8, RUBATO_F64, RUBATO_I16 };

static void put(RubatoDtype dtype, void *values, size_t i, int value)
{
    if (dtype == RUBATO_F32)
        ((float *)values)[i] = (float)value;
    else if (dtype == RUBATO_F64)
        ((double *)values)[i] = value;
    else if (dtype == RUBATO_I16)
        ((int16_t *)values)[i] = (int16_t)value;
    else
        ((uint8_t *)values)[i] = (uint8_t)value;
}

static int get(RubatoDtype dtype, const void *values, size_t i)
{
    return dtype == RUBATO_F32   ? (int)((const float *)values)[i]
           : dtype == RUBATO_F64 ? (int)((const double *)values)[i]
           : dtype == RUBATO_I16 ? ((const int16_t *)values)[i]
                                 : ((const uint8_t *)values)[i];
}

static int value_of(uint32_t rank, size_t i)
{
    return (int)((i % PERIOD * 3 + rank * 5) % 23);
}

/* Writes what a worker has, or the sums of so many, of n values from the first one on. */
static void fill(RubatoDtype dtype, uint8_t *values, size_t first, size_t n, uint32_t rank,
                 uint32_t n_ranks)
{
    const size_t size = rubato_dtype_size(dtype);
    size_t done = MIN(n, PERIOD);

    for (size_t i = 0; i < done; i++) {
        int sum = 0;

        for (uint32_t k = 0; k < n_ranks; k++)
            sum += value_of(rank + k, first + i);
        put(dtype, values, i, sum);
    }
    for (size_t k; done < n; done += k) {
        k = MIN(done / PERIOD * PERIOD, n - done);
        memcpy(values + done * size, values, k * size);
    }
}

/* The first value that is another one. */
static bool check(RubatoDtype dtype, const uint8_t *values, size_t first, size_t n, uint32_t rank,
                  uint32_t n_ranks, const char *what, GError **error)
{
    const size_t size = rubato_dtype_size(dtype);
    g_autofree uint8_t *expected = g_malloc(n * size + 1);

    fill(dtype, expected, first, n, rank, n_ranks);
    for (size_t i = 0; n > 0 && memcmp(values, expected, n * size) != 0; i++)
        REQUIRE(memcmp(values + i * size, expected + i * size, size) == 0,
                "%s: value %zu of %zu of type %u is %d, not %d", what, i, n, (unsigned)dtype,
                get(dtype, values, i), get(dtype, expected, i));
    return true;
}

/* A worker's arrays, which begin some values behind a line of a cache. */
typedef struct {
    RubatoDtype dtype;
    size_t size, n;
    uint8_t *memory, *values;
} Array;

static Array array_new(RubatoDtype dtype, size_t n, size_t skew)
{
    Array array = { .dtype = dtype, .size = rubato_dtype_size(dtype), .n = n };

    array.memory = g_aligned_alloc(1, n * array.size + 2 * MARGIN, 64);
    memset(array.memory, GUARD, n * array.size + 2 * MARGIN);
    array.values = array.memory + skew * array.size;
    return array;
}

static void array_fill(const Array *array, uint32_t rank)
{
    fill(array->dtype, array->values, 0, array->n, rank, 1);
}

static bool array_is_whole(const Array *array)
{
    const size_t before = (size_t)(array->values - array->memory);

    for (size_t i = 0; i < before; i++)
        if (array->memory[i] != GUARD)
            return false;
    for (size_t i = before + array->n * array->size; i < array->n * array->size + 2 * MARGIN; i++)
        if (array->memory[i] != GUARD)
            return false;
    return true;
}

static void array_free(Array *array)
{
    g_aligned_free(array->memory);
}

typedef struct {
    uint32_t rank, n_ranks;
    RubatoDtype dtype;
    size_t n; /* values */
    size_t skew;
} Plan;

static RubatoTensor tensor_of(const Plan *plan, const char *name, const void *input, void *output)
{
    return (RubatoTensor){ .name = name,
                           .dtype = plan->dtype,
                           .n_dims = 1,
                           .shape = { plan->n },
                           .input = input,
                           .output = output };
}

static bool check_sums(const Plan *plan, const Array *array, size_t first, const char *what,
                       GError **error)
{
    TRY(check(plan->dtype, array->values, first, array->n, 0, plan->n_ranks, what, error));
    REQUIRE(array_is_whole(array), "%s of %zu values wrote beyond them", what, plan->n);
    return true;
}

static bool reduce(RubatoWorker *worker, const Plan *plan, GError **error)
{
    const RubatoReduce sum = { .reduction = RUBATO_REDUCTION_SUM };
    Array input = array_new(plan->dtype, plan->n, plan->skew);
    Array output = array_new(plan->dtype, plan->n, (plan->skew * 3 + plan->rank) % 17);
    const RubatoTensor apart = tensor_of(plan, "apart", input.values, output.values);
    const RubatoTensor in_place = tensor_of(plan, "in place", input.values, input.values);
    bool ok = true;

    array_fill(&input, plan->rank);
    for (unsigned i = 0; ok && i < 2; i++)
        ok = rubato_worker_allreduce(worker, &apart, &sum, error) &&
             check_sums(plan, &output, 0, "allreduce", error);
    for (unsigned i = 0; ok && i < 2; i++) {
        array_fill(&input, plan->rank);
        ok = rubato_worker_allreduce(worker, &in_place, &sum, error) &&
             check_sums(plan, &input, 0, "allreduce in place", error);
    }
    array_free(&input);
    array_free(&output);
    return ok;
}

static bool compress(RubatoWorker *worker, const Plan *plan, GError **error)
{
    Array input = array_new(plan->dtype, plan->n, plan->skew);
    Array output = array_new(plan->dtype, plan->n, (plan->skew * 3 + plan->rank) % 17);
    const RubatoTensor apart = tensor_of(plan, "compressed", input.values, output.values);
    bool ok = true;

    array_fill(&input, plan->rank);
    for (RubatoCompression how = RUBATO_COMPRESSION_F16; ok && how <= RUBATO_COMPRESSION_BF16;
         how++)
        ok =
            rubato_worker_allreduce(worker, &apart, &(RubatoReduce){ .compression = how }, error) &&
            check_sums(plan, &output, 0, "compressed allreduce", error);
    array_free(&input);
    array_free(&output);
    return ok;
}

static bool scatter(RubatoWorker *worker, const Plan *plan, GError **error)
{
    Array input = array_new(plan->dtype, plan->n, plan->skew);
    Array output =
        array_new(plan->dtype, rubato_reduce_scatter_rows(plan->n, plan->n_ranks, plan->rank),
                  (plan->skew * 3 + plan->rank) % 17);
    const RubatoTensor tensor = tensor_of(plan, "scattered", input.values, output.values);
    size_t first = 0;
    bool ok = true;

    for (uint32_t rank = 0; rank < plan->rank; rank++)
        first += rubato_reduce_scatter_rows(plan->n, plan->n_ranks, rank);
    array_fill(&input, plan->rank);
    for (unsigned i = 0; ok && i < 2; i++)
        ok = rubato_worker_reduce_scatter(worker, &tensor, NULL, error) &&
             check_sums(plan, &output, first, "reduce_scatter", error);
    array_free(&input);
    array_free(&output);
    return ok;
}

static bool broadcast(RubatoWorker *worker, const Plan *plan, GError **error)
{
    const uint32_t root = (uint32_t)(plan->n % plan->n_ranks);
    Array array = array_new(plan->dtype, plan->n, (plan->skew + plan->rank) % 17);
    const RubatoTensor tensor = tensor_of(plan, "broadcast", array.values, array.values);
    bool ok = true;

    for (unsigned i = 0; ok && i < 2; i++) {
        array_fill(&array, plan->rank);
        ok = rubato_worker_broadcast(worker, &tensor, root, error) &&
             check(plan->dtype, array.values, 0, plan->n, root, 1, "broadcast", error);
        REQUIRE(!ok || array_is_whole(&array), "broadcast of %zu values wrote beyond them",
                plan->n);
    }
    array_free(&array);
    return ok;
}

static size_t rows_of(const Plan *plan, uint32_t rank)
{
    return plan->n / plan->n_ranks + (rank == 1 ? 3 : 0);
}

static bool gather(RubatoWorker *worker, const Plan *plan, GError **error)
{
    const size_t n = rows_of(plan, plan->rank);
    Array input = array_new(plan->dtype, n, plan->skew);
    RubatoTensor tensor = tensor_of(plan, "gathered", input.values, NULL);
    bool ok = true;

    tensor.shape[0] = n;
    array_fill(&input, plan->rank);
    for (unsigned i = 0; ok && i < 2; i++) {
        RubatoGathered gathered = { 0 };
        size_t first = 0;

        ok = rubato_worker_allgather(worker, &tensor, &gathered, error);
        for (uint32_t from = 0; ok && from < plan->n_ranks; first += rows_of(plan, from++))
            ok = check(plan->dtype, (const uint8_t *)gathered.values + first * input.size, 0,
                       rows_of(plan, from), from, 1, "allgather", error);
        rubato_gathered_clear(&gathered);
    }
    array_free(&input);
    return ok;
}

/* What a worker sends to another one: nothing from the last one to the first one. */
static size_t split_of(const Plan *plan, uint32_t from, uint32_t to)
{
    if (to == 0 && from + 1 == plan->n_ranks)
        return 0;
    return plan->n / plan->n_ranks + (from == to ? 1 : 0);
}

static bool exchange(RubatoWorker *worker, const Plan *plan, GError **error)
{
    uint64_t splits[MOST_RANKS];
    size_t n = 0;
    bool ok = true;

    for (uint32_t to = 0; to < plan->n_ranks; to++)
        n += splits[to] = split_of(plan, plan->rank, to);
    Array input = array_new(plan->dtype, n, plan->skew);
    RubatoTensor tensor = tensor_of(plan, "exchanged", input.values, NULL);
    tensor.shape[0] = n;
    array_fill(&input, plan->rank);
    for (unsigned i = 0; ok && i < 2; i++) {
        RubatoGathered gathered = { 0 };
        size_t first = 0;

        ok = rubato_worker_alltoall(worker, &tensor, splits, &gathered, error);
        for (uint32_t from = 0; ok && from < plan->n_ranks; from++) {
            size_t at = 0;

            for (uint32_t to = 0; to < plan->rank; to++)
                at += split_of(plan, from, to);
            ok = check(plan->dtype, (const uint8_t *)gathered.values + first * input.size, at,
                       split_of(plan, from, plan->rank), from, 1, "alltoall", error);
            first += split_of(plan, from, plan->rank);
        }
        rubato_gathered_clear(&gathered);
    }
    array_free(&input);
    return ok;
}

static bool try_all(RubatoWorker *worker, const Plan *plan, GError **error)
{
    return reduce(worker, plan, error) && scatter(worker, plan, error) &&
           broadcast(worker, plan, error) && gather(worker, plan, error) &&
           exchange(worker, plan, error) &&
           (plan->dtype != RUBATO_F32 || compress(worker, plan, error));
}

static bool work(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    for (size_t cut = 0; cut < G_N_ELEMENTS(cuts); cut++)
        for (size_t i = 0; i < 3; i++) {
            const RubatoDtype dtype = dtypes[(cut + i) % G_N_ELEMENTS(dtypes)];
            const size_t n = cuts[cut] / rubato_dtype_size(dtype) + i;
            const Plan plan = { .rank = rubato_worker_rank(worker),
                                .n_ranks = rubato_worker_n_workers(worker),
                                .dtype = dtype,
                                .n = MAX(n, 1) - 1,
                                .skew = (cut * 5 + i * 7) % 17 };

            if (!try_all(worker, &plan, error))
                return false;
        }
    return true;
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    (void)data;
    return cluster_run_task(engine, "sizes", work, NULL, NULL, error);
}

START_TEST(operations_are_right_next_to_each_size_that_matters)
{
    ClusterRun *const run = cluster_run_new(&runs[_i].shape);

    if (runs[_i].way != NULL)
        g_setenv("RUBATO_ALLREDUCE", runs[_i].way, TRUE);
    cluster_start(run, play, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("cluster_collectives_sizes");
    TCase *const cases = cluster_add_case(suite, "cases");

    tcase_add_loop_test(cases, operations_are_right_next_to_each_size_that_matters, 0,
                        G_N_ELEMENTS(runs));
    return run_suite(suite);
}
