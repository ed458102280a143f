/* Sets of workers, for workers anywhere: see tensor_set_cases.h. */
#include "tests/support/collectives/tensor_set_cases.h"

#include "tests/support/engine/engine_fixture.h"

/* The workers whose rank has this remainder by 2, as each worker likes to list them. */
static bool make_half(RubatoWorker *worker, uint32_t remainder, uint32_t *set, GError **error)
{
    const uint32_t n_workers = rubato_worker_n_workers(worker);
    g_autofree uint32_t *ranks = g_new(uint32_t, n_workers);
    size_t n = 0;

    for (uint32_t i = 0; i < n_workers; i++) {
        const uint32_t rank = rubato_worker_rank(worker) % 2 == 0 ? i : n_workers - 1 - i;

        if (rank % 2 == remainder)
            ranks[n++] = rank;
    }
    return rubato_worker_make_set(worker, ranks, n, set, error);
}

static RubatoTensor numbers(const char *name, uint32_t set, double *values, uint64_t n)
{
    return (RubatoTensor){ .name = name,
                           .dtype = RUBATO_F64,
                           .n_dims = 1,
                           .shape = { n },
                           .input = values,
                           .output = values,
                           .set = set };
}

/* What members gather and scatter. They are the workers with ranks first, first + 2, and so on. */
static bool move_rows(RubatoWorker *worker, uint32_t set, uint32_t first, GError **error)
{
    const uint32_t n = rubato_worker_set_size(worker, set);
    double values[] = { rubato_worker_rank(worker), 5, 6, 7, 8, 9, 10, 11 }, some[8] = { 0 };
    RubatoTensor tensor = numbers("rows", set, values, 1);
    g_auto(RubatoGathered) gathered = { 0 }, dealt = { 0 };
    uint32_t place;

    REQUIRE(rubato_worker_set_rank(worker, set, &place));
    tensor.shape[0] = 1 + place;
    TRY(rubato_worker_allgather(worker, &tensor, &gathered, error));
    REQUIRE(gathered.n_rows == n * (n + 1) / 2);
    for (uint32_t i = 0, at = 0; i < n; at += ++i)
        REQUIRE(gathered.rows[i] == i + 1 &&
                ((const double *)gathered.values)[at] == first + 2 * i);
    tensor.shape[0] = n;
    TRY(rubato_worker_alltoall(worker, &tensor, NULL, &dealt, error));
    REQUIRE(dealt.n_rows == n);
    for (uint32_t i = 0; i < n; i++)
        REQUIRE(((const double *)dealt.values)[i] == (place == 0 ? first + 2 * i : 4 + place));
    tensor.output = some;
    TRY(rubato_worker_reduce_scatter(worker, &tensor, NULL, error));
    REQUIRE(place == 0 || some[0] == n * (4 + place));
    TRY(rubato_worker_broadcast(worker, &tensor, n - 1, error));
    REQUIRE(some[0] == first + 2 * (n - 1));
    return true;
}

/* A member combines numbers in the set and of all workers at the same time, under one name. */
static bool combine(RubatoWorker *worker, uint32_t set, bool is_member, GError **error)
{
    const uint32_t n = rubato_worker_set_size(worker, set);
    const uint32_t n_workers = rubato_worker_n_workers(worker);
    const RubatoReduce mean = { .reduction = RUBATO_REDUCTION_MEAN, .divides_by_all = true };
    double in_set = 6, of_all = 1;
    const RubatoTensor tensor = numbers("x", set, &in_set, 1), all = numbers("x", 0, &of_all, 1);

    if (is_member) {
        TRY(rubato_worker_allreduce_async(worker, &tensor, &mean, NULL, error) != 0);
    } else {
        REQUIRE(!rubato_worker_allreduce(worker, &tensor, NULL, error));
        REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "is not in set"));
    }
    TRY(rubato_worker_allreduce_async(worker, &all, NULL, NULL, error) != 0);
    TRY(rubato_worker_wait_all(worker, error));
    REQUIRE(in_set == 6 && of_all == n_workers, "(%g of %u, %g)", in_set, n, of_all);
    return true;
}

static bool join(RubatoWorker *worker, uint32_t set, GError **error)
{
    const uint32_t n = rubato_worker_set_size(worker, set);
    double value = 1;
    const RubatoTensor tensor = numbers("x", set, &value, 1);
    uint32_t place, last;

    REQUIRE(rubato_worker_set_rank(worker, set, &place));
    if (place > 0) {
        TRY(rubato_worker_set_barrier(worker, set, "begin", error));
        TRY(rubato_worker_allreduce(worker, &tensor, NULL, error));
        REQUIRE(value == n - 1);
    }
    TRY(rubato_worker_set_join(worker, set, &last, error));
    REQUIRE(last < n);
    return true;
}

/* Members ask all workers again for what the others ask only once members have ended something new
 * in their set. */
static bool ask_others_early(RubatoWorker *worker, uint32_t set, bool is_member, GError **error)
{
    double of_all = 1, in_set = 1;
    const RubatoTensor all = numbers("early", 0, &of_all, 1);
    const RubatoTensor own = numbers("own", set, &in_set, 1);

    TRY(rubato_worker_allreduce(worker, &all, NULL, error));
    of_all = 1;
    if (is_member) {
        TRY(rubato_worker_allreduce_async(worker, &all, NULL, NULL, error) != 0);
        TRY(rubato_worker_allreduce(worker, &own, NULL, error));
    }
    TRY(rubato_worker_barrier(worker, error));
    if (is_member)
        TRY(rubato_worker_wait_all(worker, error));
    else
        TRY(rubato_worker_allreduce(worker, &all, NULL, error));
    REQUIRE(of_all == rubato_worker_n_workers(worker));
    return true;
}

bool tensor_use_sets(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);
    const uint32_t n_sets = n_workers > 1 ? 2 : 1;
    uint32_t place;

    (void)user_data;
    for (uint32_t i = 0; i < n_sets; i++) {
        uint32_t set;

        TRY(make_half(worker, i, &set, error));
        REQUIRE(set == i + 1);
        REQUIRE(rubato_worker_set_size(worker, set) == (n_workers + 1 - i) / 2);
        REQUIRE(rubato_worker_set_rank(worker, set, &place) == (rank % 2 == i));
        REQUIRE(rank % 2 != i || place == rank / 2);
    }
    REQUIRE(rubato_worker_set_size(worker, n_sets + 1) == 0);
    REQUIRE(rubato_worker_set_rank(worker, 0, &place) && place == rank);
    for (uint32_t i = 0; i < n_sets; i++)
        TRY(combine(worker, i + 1, rank % 2 == i, error));
    TRY(move_rows(worker, 1 + rank % 2, rank % 2, error));
    TRY(ask_others_early(worker, 1, rank % 2 == 0, error));
    return join(worker, 1 + rank % 2, error);
}

bool tensor_remove_sets(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);
    const bool leaves_one = n_workers > 2 && rank == 0; /* set 1 has another worker then */
    double value = 1;
    const RubatoTensor tensor = numbers("pending", 1, &value, 1);
    RubatoTicket ticket = 0;
    uint32_t set;

    (void)user_data;
    TRY(make_half(worker, 0, &set, error));
    REQUIRE(set == 1);
    if (leaves_one) {
        ticket = rubato_worker_allreduce_async(worker, &tensor, NULL, NULL, error);
        TRY(ticket != 0);
    }
    TRY(rubato_worker_remove_set(worker, 1, error));
    if (leaves_one) {
        REQUIRE(!rubato_worker_wait(worker, ticket, error));
        REQUIRE(is_error(error, RUBATO_ERROR_CANCELLED, "set 1 of workers was removed"));
    }
    REQUIRE(!rubato_worker_allreduce(worker, &tensor, NULL, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "has no set 1"));
    for (int round = 0; round < 3; round++) {
        const uint32_t last = n_workers - 1;

        TRY(rubato_worker_make_set(worker, &last, 1, &set, error));
        REQUIRE(set == 1 && rubato_worker_set_size(worker, 1) == 1);
        TRY(rank < last || rubato_worker_set_barrier(worker, 1, "x", error));
        TRY(rubato_worker_remove_set(worker, 1, error));
    }
    return true;
}

static bool refuse(RubatoWorker *worker, const uint32_t *ranks, size_t n, const char *text,
                   GError **error)
{
    uint32_t set = 77;

    REQUIRE(!rubato_worker_make_set(worker, ranks, n, &set, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, text));
    REQUIRE(set == 77);
    return true;
}

bool tensor_refuse_sets(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);
    const uint32_t ranks[] = { n_workers - 1, 0, n_workers - 1, n_workers };
    double value = 1;
    const RubatoTensor mixed[] = { numbers("a", 0, &value, 1), numbers("b", 1, &value, 1) };
    uint32_t set, last;

    (void)user_data;
    TRY(refuse(worker, ranks, 0, "it has no workers", error));
    TRY(refuse(worker, &ranks[3], 1, "no worker with one of its ranks", error));
    TRY(n_workers < 3 || refuse(worker, ranks, 3, "it has a rank twice", error));
    TRY(refuse(worker, ranks, n_workers + 1, "it has more workers than the task", error));
    REQUIRE(!rubato_worker_remove_set(worker, 0, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "set 0, all workers, stays"));
    REQUIRE(!rubato_worker_remove_set(worker, 1, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "has no set 1"));
    REQUIRE(!rubato_worker_set_join(worker, 1, &last, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "has no set 1"));
    REQUIRE(!rubato_worker_allreduce_group(worker, mixed, 2, NULL, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "of sets 0 and 1"));
    for (int i = 0; i < 2 && n_workers > 1; i++) { /* the second time worker 0 asks for a removal */
        const bool removes = i == 1 && rank == 0;

        REQUIRE(!(removes ? rubato_worker_remove_set(worker, 1, error)
                          : rubato_worker_make_set(worker, &ranks[rank > 0], 1, &set, error)));
        REQUIRE(is_error(error, RUBATO_ERROR_MISMATCH,
                         i == 0 ? "a set of worker 0 by worker" : "the removal of set 1 is asked"));
        if (i == 0)
            TRY(rubato_worker_make_set(worker, ranks, 1, &set, error));
    }
    return rubato_worker_named_barrier(worker, "all go on", error);
}

bool tensor_use_listed_sets(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), last = rubato_worker_n_workers(worker) - 1;

    (void)user_data;
    REQUIRE(rubato_worker_set_size(worker, 1) == 1 && rubato_worker_set_size(worker, 2) == 1);
    if (rank == 0)
        TRY(rubato_worker_set_barrier(worker, 1, "x", error));
    if (rank == last)
        TRY(rubato_worker_set_barrier(worker, 2, "x", error));
    return true;
}

bool tensor_run_set_cases(RubatoEngine *engine, const RubatoTask *task, uint32_t n_workers,
                          GError **error)
{
    static const RubatoTaskFunc functions[] = { tensor_use_sets, tensor_remove_sets,
                                                tensor_refuse_sets, tensor_use_listed_sets };
    const uint32_t first = 0, last = n_workers - 1;
    const RubatoWorkerSet sets[] = { { &first, 1 }, { &last, 1 } };

    for (size_t i = 0; i < G_N_ELEMENTS(functions); i++) {
        RubatoTask own = *task;

        own.run = functions[i];
        if (functions[i] == tensor_use_listed_sets) {
            own.sets = sets;
            own.n_sets = 2;
        }
        if (!rubato_engine_run(engine, &own, error))
            return false;
    }
    return true;
}
