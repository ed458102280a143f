/* Mismatches and operations that cannot be joined: see tensor_mismatch_cases.h. */
#include "tests/support/collectives/tensor_mismatch_cases.h"

#include <string.h>

#include "engine/collectives/negotiation/tensor_request.h"
#include "tests/support/collectives/tensor_cases.h"
#include "tests/support/engine/engine_fixture.h"

enum { MOST_VALUES = 64 };

/* What a worker asks. */
typedef struct {
    TensorOperation operation;
    RubatoDtype dtype;
    uint32_t n_dims;
    uint64_t shape[3];
    RubatoReduce reduce;
    uint32_t root;
} Wanted;

static bool ask(RubatoWorker *worker, const Wanted *wanted, GError **error)
{
    double input[MOST_VALUES] = { 0 }, output[MOST_VALUES];
    g_auto(RubatoGathered) gathered = { 0 };
    RubatoTensor tensor = { .name = "x",
                            .dtype = wanted->dtype,
                            .n_dims = wanted->n_dims,
                            .input = input,
                            .output = output };

    memcpy(tensor.shape, wanted->shape, sizeof wanted->shape);
    switch (wanted->operation) {
    case TENSOR_ALLREDUCE:
        return rubato_worker_allreduce(worker, &tensor, &wanted->reduce, error);
    case TENSOR_REDUCE_SCATTER:
        return rubato_worker_reduce_scatter(worker, &tensor, &wanted->reduce, error);
    case TENSOR_BROADCAST:
        return rubato_worker_broadcast(worker, &tensor, wanted->root, error);
    case TENSOR_ALLGATHER:
        return rubato_worker_allgather(worker, &tensor, &gathered, error);
    case TENSOR_ALLTOALL:
        tensor.shape[0] *= rubato_worker_n_workers(worker);
        return rubato_worker_alltoall(worker, &tensor, NULL, &gathered, error);
    case TENSOR_BARRIER:
        return rubato_worker_named_barrier(worker, "x", error);
    case TENSOR_OPERATIONS:
        break;
    }
    return false;
}

/* ---- mismatches ---- */

#define REDUCE(...)                                            \
    {                                                          \
        .n_dims = 1, .shape = { 4 }, .reduce = { __VA_ARGS__ } \
    }

/* What worker 1 asks, and what all others do, and how the error calls it. */
static const struct {
    Wanted one, other;
    const char *text, *text_of_other;
} mismatches[] = {
    { { .dtype = RUBATO_F32 },
      { .dtype = RUBATO_F64 },
      "allreduce (sum) of f32 []",
      "allreduce (sum) of f64 []" },
    { { .dtype = RUBATO_I16 }, { .dtype = RUBATO_BF16 }, "(sum) of i16 []", "(sum) of bf16 []" },
    { { .n_dims = 1, .shape = { 4 } }, { .n_dims = 1, .shape = { 5 } }, "f32 [4]", "f32 [5]" },
    { { .n_dims = 1, .shape = { 4 } }, { .n_dims = 2, .shape = { 4, 1 } }, "[4]", "[4, 1]" },
    { { .n_dims = 3, .shape = { 2, 3, 4 } },
      { .n_dims = 3, .shape = { 2, 3, 5 } },
      "[2, 3, 4]",
      "[2, 3, 5]" },
    { { .n_dims = 1, .shape = { 0 } }, { .n_dims = 1, .shape = { 1 } }, "f32 [0]", "f32 [1]" },
    { { .n_dims = 1, .shape = { 4 } },
      { TENSOR_BROADCAST, .n_dims = 1, .shape = { 4 } },
      "allreduce (sum) of f32 [4]",
      "broadcast from rank 0 of f32 [4]" },
    { { TENSOR_ALLGATHER, .n_dims = 1, .shape = { 4 } },
      { TENSOR_ALLTOALL, .n_dims = 1, .shape = { 4 } },
      "allgather of f32 [4]",
      "alltoall of f32 [" },
    { { TENSOR_REDUCE_SCATTER, .n_dims = 1, .shape = { 4 } },
      { .operation = TENSOR_BARRIER },
      "reduce_scatter (sum) of f32 [4]",
      "named barrier" },
    { REDUCE(.reduction = RUBATO_REDUCTION_MIN), REDUCE(.reduction = RUBATO_REDUCTION_PRODUCT),
      "allreduce (min) of f32", "allreduce (product) of f32" },
    { REDUCE(.reduction = RUBATO_REDUCTION_SUM), REDUCE(.reduction = RUBATO_REDUCTION_ADASUM),
      "(sum) of", "(adasum) of" },
    { REDUCE(.prescale = 0.5), REDUCE(.prescale = 0.25), "(sum, prescale 0.5)",
      "(sum, prescale 0.25)" },
    { REDUCE(.postscale = 3), REDUCE(0), "(sum, postscale 3)", "(sum)" },
    { REDUCE(.reduction = RUBATO_REDUCTION_MEAN),
      REDUCE(.reduction = RUBATO_REDUCTION_MEAN, .divides_by_all = true), "(mean)",
      "(mean, divided by all)" },
    { REDUCE(0), REDUCE(.compression = RUBATO_COMPRESSION_BF16), "(sum)",
      "(sum, compressed to bf16)" },
    { { TENSOR_BROADCAST, .n_dims = 1, .shape = { 4 }, .root = 1 },
      { TENSOR_BROADCAST, .n_dims = 1, .shape = { 4 } },
      "from rank 1 of",
      "from rank 0 of" },
    { { TENSOR_ALLGATHER, .n_dims = 2, .shape = { 4, 2 } },
      { TENSOR_ALLGATHER, .n_dims = 2, .shape = { 4, 3 } },
      "allgather of f32 [4, 2]",
      "allgather of f32 [4, 3]" },
    { { TENSOR_ALLTOALL, .n_dims = 2, .shape = { 1, 2 } },
      { TENSOR_ALLTOALL, .n_dims = 2, .shape = { 1, 3 } },
      ", 2]",
      ", 3]" },
    { { TENSOR_REDUCE_SCATTER, .n_dims = 1, .shape = { 4 } },
      { TENSOR_REDUCE_SCATTER, .n_dims = 1, .shape = { 5 } },
      "[4]",
      "[5]" },
};

/* "worker 0, worker 2 and worker 3": all but worker 1. (transfer full) */
static char *name_others(uint32_t n_workers)
{
    GString *const text = g_string_new("worker 0");

    for (uint32_t rank = 2; rank < n_workers; rank++)
        g_string_append_printf(text, "%sworker %u", rank + 1 == n_workers ? " and " : ", ", rank);
    return g_string_free(text, FALSE);
}

static bool is_told(const GError *failure, size_t i, const char *others)
{
    const char *const text = failure->message, *at = strstr(text, mismatches[i].text);
    g_autofree char *both = g_strdup_printf(" by %s, but ", others);
    const char *const of_other = at == NULL ? NULL : strstr(at, both);

    return g_error_matches(failure, RUBATO_ERROR, RUBATO_ERROR_MISMATCH) &&
           g_str_has_prefix(text, "workers disagree on x: ") && of_other != NULL &&
           strstr(of_other, mismatches[i].text_of_other) != NULL &&
           g_str_has_suffix(text, " by worker 1");
}

/* Before and behind each the name is asked for by all alike, so that it is one that comes again. */
bool tensor_disagree_on_all(RubatoWorker *worker, void *user_data, GError **error)
{
    const bool is_other = rubato_worker_rank(worker) == 1;
    g_autofree char *others = name_others(rubato_worker_n_workers(worker));

    (void)user_data;
    for (size_t i = 0; i < G_N_ELEMENTS(mismatches); i++)
        for (int again = 0; again < 2; again++) {
            g_autoptr(GError) failure = NULL;

            TRY(ask(worker, &mismatches[i].one, error));
            REQUIRE(!ask(worker, is_other ? &mismatches[i].other : &mismatches[i].one, &failure),
                    "(mismatch %zu)", i);
            REQUIRE(is_told(failure, i, others), "(mismatch %zu: %s)", i, failure->message);
        }
    return tensor_is_sum_right(worker, error);
}

/* ---- joined ---- */

static const Wanted refused[] = {
    { TENSOR_BROADCAST, .n_dims = 1, .shape = { 4 } },
    { TENSOR_ALLGATHER, .n_dims = 1, .shape = { 4 } },
    { TENSOR_ALLTOALL, .n_dims = 1, .shape = { 4 } },
    { TENSOR_REDUCE_SCATTER, .n_dims = 1, .shape = { 4 } },
};

/* In the first round no name was asked for before, in the second each was. */
bool tensor_need_joined(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);
    uint32_t last;

    (void)user_data;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < G_N_ELEMENTS(refused) && rank > 0; i++) {
            g_autofree char *name = g_strdup_printf(
                "%s x needs worker 0, which has joined; only allreduce and named barriers go on",
                tensor_operation_name(refused[i].operation));

            REQUIRE(!ask(worker, &refused[i], error));
            REQUIRE(is_error(error, RUBATO_ERROR_MISMATCH, name));
            TRY(ask(worker, &(Wanted){ .n_dims = 1, .shape = { 4 } }, error));
            TRY(ask(worker, &(Wanted){ .operation = TENSOR_BARRIER }, error));
        }
        TRY(rubato_worker_join(worker, &last, error));
        REQUIRE(n_workers == 1 || last > 0);
        for (size_t i = 0; i < G_N_ELEMENTS(refused); i++)
            TRY(ask(worker, &refused[i], error));
    }
    return true;
}
