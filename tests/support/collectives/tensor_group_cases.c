/* Groups of operations that move rows: see tensor_group_cases.h. */
#include "tests/support/collectives/tensor_group_cases.h"

#include "tests/support/collectives/tensor_cases.h"
#include "tests/support/engine/engine_fixture.h"

enum { N_OF_GROUP = 3, MOST_VALUES = 30000 };

/* A worker's group. Each worker asks for it in another order. */
typedef struct {
    int64_t input[N_OF_GROUP][MOST_VALUES], output[N_OF_GROUP][MOST_VALUES];
    RubatoTensor tensors[N_OF_GROUP];
    uint32_t of[N_OF_GROUP]; /* which of the group a tensor is */
    uint64_t splits[N_OF_GROUP][TENSOR_MOST_WORKERS];
    const uint64_t *all_splits[N_OF_GROUP];
    RubatoGathered gathered[N_OF_GROUP];
} Group;

static int64_t value_of(uint32_t rank, uint32_t k, uint64_t i)
{
    return (int64_t)(rank * 1000 + k * 100 + i);
}

static void make(Group *group, uint32_t rank, const uint64_t n[N_OF_GROUP])
{
    static const char *const names[N_OF_GROUP] = { "rows/0", "rows/1", "rows/2" };

    for (uint32_t t = 0; t < N_OF_GROUP; t++) {
        const uint32_t k = (t + rank) % N_OF_GROUP;

        group->of[t] = k;
        group->tensors[t] = (RubatoTensor){ .name = names[k],
                                            .dtype = RUBATO_I64,
                                            .n_dims = 1,
                                            .shape = { n[k] },
                                            .input = group->input[k],
                                            .output = group->output[k] };
        for (uint64_t i = 0; i < n[k]; i++) {
            group->input[k][i] = value_of(rank, k, i);
            group->output[k][i] = -1;
        }
    }
}

/* ---- broadcast ---- */

static bool broadcast(RubatoWorker *worker, Group *group, bool with_ticket, GError **error)
{
    const uint64_t n[N_OF_GROUP] = { 1, 5, MOST_VALUES };
    const uint32_t root = rubato_worker_n_workers(worker) - 1;

    make(group, rubato_worker_rank(worker), n);
    if (with_ticket)
        TRY(rubato_worker_broadcast_group_async(worker, group->tensors, N_OF_GROUP, root, NULL,
                                                error) != 0 &&
            rubato_worker_wait_all(worker, error));
    else
        TRY(rubato_worker_broadcast_group(worker, group->tensors, N_OF_GROUP, root, error));
    for (uint32_t k = 0; k < N_OF_GROUP; k++)
        for (uint64_t i = 0; i < n[k]; i++)
            REQUIRE(group->output[k][i] == value_of(root, k, i));
    return true;
}

/* ---- reduce_scatter ---- */

static bool reduce_scatter(RubatoWorker *worker, Group *group, bool with_ticket, GError **error)
{
    const uint64_t n[N_OF_GROUP] = { 1, 11, MOST_VALUES };
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);

    make(group, rank, n);
    if (with_ticket)
        TRY(rubato_worker_reduce_scatter_group_async(worker, group->tensors, N_OF_GROUP, NULL, NULL,
                                                     error) != 0 &&
            rubato_worker_wait_all(worker, error));
    else
        TRY(rubato_worker_reduce_scatter_group(worker, group->tensors, N_OF_GROUP, NULL, error));
    for (uint32_t k = 0; k < N_OF_GROUP; k++) {
        uint64_t first = 0;

        for (uint32_t other = 0; other < rank; other++)
            first += rubato_reduce_scatter_rows(n[k], n_workers, other);
        for (uint64_t i = 0; i < rubato_reduce_scatter_rows(n[k], n_workers, rank); i++)
            REQUIRE(group->output[k][i] ==
                    n_workers * value_of(0, k, first + i) + 500 * n_workers * (n_workers - 1));
    }
    return true;
}

/* ---- allgather ---- */

static bool allgather(RubatoWorker *worker, Group *group, bool with_ticket, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);
    uint64_t n[N_OF_GROUP];

    for (uint32_t k = 0; k < N_OF_GROUP; k++)
        n[k] = (rank + k) % 3;
    make(group, rank, n);
    if (with_ticket)
        TRY(rubato_worker_allgather_group_async(worker, group->tensors, N_OF_GROUP, group->gathered,
                                                NULL, error) != 0 &&
            rubato_worker_wait_all(worker, error));
    else
        TRY(rubato_worker_allgather_group(worker, group->tensors, N_OF_GROUP, group->gathered,
                                          error));
    for (uint32_t t = 0; t < N_OF_GROUP; t++) {
        const uint32_t k = group->of[t];
        const int64_t *value = group->gathered[t].values;

        for (uint32_t from = 0; from < n_workers; from++) {
            REQUIRE(group->gathered[t].rows[from] == (from + k) % 3);
            for (uint64_t i = 0; i < (from + k) % 3; i++)
                REQUIRE(*value++ == value_of(from, k, i));
        }
        rubato_gathered_clear(&group->gathered[t]);
    }
    return true;
}

/* ---- alltoall ---- */

static uint64_t split(uint32_t from, uint32_t to, uint32_t k)
{
    return (from + 2 * to + k) % 4;
}

/* evenly: without splits. */
static bool alltoall(RubatoWorker *worker, Group *group, bool evenly, bool with_ticket,
                     GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);
    const uint64_t *const *const splits = evenly ? NULL : group->all_splits;
    uint64_t n[N_OF_GROUP] = { 0 };

    for (uint32_t k = 0; k < N_OF_GROUP; k++)
        for (uint32_t to = 0; to < n_workers; to++)
            n[k] += evenly ? 2 : split(rank, to, k);
    make(group, rank, n);
    for (uint32_t t = 0; t < N_OF_GROUP; t++) {
        group->all_splits[t] = group->splits[t];
        for (uint32_t to = 0; to < n_workers; to++)
            group->splits[t][to] = split(rank, to, group->of[t]);
    }
    if (with_ticket)
        TRY(rubato_worker_alltoall_group_async(worker, group->tensors, N_OF_GROUP, splits,
                                               group->gathered, NULL, error) != 0 &&
            rubato_worker_wait_all(worker, error));
    else
        TRY(rubato_worker_alltoall_group(worker, group->tensors, N_OF_GROUP, splits,
                                         group->gathered, error));
    for (uint32_t t = 0; t < N_OF_GROUP; t++) {
        const uint32_t k = group->of[t];
        const int64_t *value = group->gathered[t].values;

        for (uint32_t from = 0; from < n_workers; from++) {
            const uint64_t n_rows = evenly ? 2 : split(from, rank, k);
            uint64_t first = 0;

            for (uint32_t to = 0; to < rank; to++)
                first += evenly ? 2 : split(from, to, k);
            REQUIRE(group->gathered[t].rows[from] == n_rows);
            for (uint64_t i = 0; i < n_rows; i++)
                REQUIRE(*value++ == value_of(from, k, first + i));
        }
        rubato_gathered_clear(&group->gathered[t]);
    }
    return true;
}

/* ---- what fails ---- */

/* The second tensor's splits are not all of its rows; then worker 1 has another dtype in one.
 * Nothing is gathered. */
static bool fail_together(RubatoWorker *worker, Group *group, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);
    const uint64_t n[N_OF_GROUP] = { n_workers, n_workers, n_workers };

    make(group, rank, n);
    for (uint32_t t = 0; t < N_OF_GROUP; t++)
        for (uint32_t to = 0; to < n_workers; to++)
            group->splits[t][to] = t == 1 && to == 0 ? 2 : 1;
    REQUIRE(!rubato_worker_alltoall_group(worker, group->tensors, N_OF_GROUP, group->all_splits,
                                          group->gathered, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "not all of its rows"));
    REQUIRE(rubato_worker_alltoall_group_async(worker, group->tensors, N_OF_GROUP,
                                               group->all_splits, group->gathered, NULL,
                                               error) == 0);
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "not all of its rows"));
    REQUIRE(!rubato_worker_allgather_group(worker, group->tensors, 0, group->gathered, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "a group of 0 tensors"));
    for (uint32_t t = 0; t < N_OF_GROUP; t++)
        if (rank == 1 && group->of[t] == 2)
            group->tensors[t].dtype = RUBATO_F64;
    REQUIRE(
        !rubato_worker_allgather_group(worker, group->tensors, N_OF_GROUP, group->gathered, error));
    REQUIRE(is_error(error, RUBATO_ERROR_MISMATCH, "by worker 1"));
    for (uint32_t t = 0; t < N_OF_GROUP; t++)
        REQUIRE(group->gathered[t].values == NULL && group->gathered[t].rows == NULL);
    return true;
}

bool tensor_move_groups(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autofree Group *group = g_new0(Group, 1);

    (void)user_data;
    for (int i = 0; i < 4; i++) {
        const bool with_ticket = i % 2 == 1;

        TRY(broadcast(worker, group, with_ticket, error));
        TRY(reduce_scatter(worker, group, with_ticket, error));
        TRY(allgather(worker, group, with_ticket, error));
        TRY(alltoall(worker, group, /* evenly= */ i < 2, with_ticket, error));
    }
    TRY(fail_together(worker, group, error));
    return tensor_is_sum_right(worker, error);
}

bool tensor_group_without_memory(RubatoWorker *worker, void *user_data, GError **error)
{
    static const char *const names[] = { "small", "huge" };
    RubatoGathered gathered[2] = { { 0 }, { 0 } };
    RubatoTensor tensors[2];
    uint8_t value = 1;

    (void)user_data;
    for (uint32_t i = 0; i < 2; i++)
        tensors[i] = (RubatoTensor){ .name = names[i],
                                     .dtype = RUBATO_U8,
                                     .n_dims = 1,
                                     .shape = { i == 0 ? 1 : INT64_MAX },
                                     .input = &value };
    REQUIRE(!rubato_worker_allgather_group(worker, tensors, 2, gathered, error));
    REQUIRE(is_error(error, RUBATO_ERROR_MEMORY, "would gather"));
    for (uint32_t i = 0; i < 2; i++)
        REQUIRE(gathered[i].values == NULL && gathered[i].rows == NULL);
    return true;
}
