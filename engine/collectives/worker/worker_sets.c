/* The public calls for sets of workers. See <rubato/collectives.h>.
 *
 * Threads: the worker's. */
#include <rubato/error.h>
#include <stdlib.h>

#include "engine/collectives/negotiation/tensor_ranks.h"
#include "engine/collectives/tensor_exchange.h"
#include "tables/worker.h"

/* Runs of ranks in a set: for the coordinator they are one line of a control message. */
enum { MOST_RUNS = 8192 };

/* What is wrong with the sorted ranks; NULL if nothing is. */
static const char *find_fault(const uint32_t *ranks, size_t n, uint32_t n_workers)
{
    size_t n_runs = 1;

    if (ranks[n - 1] >= n_workers)
        return "the task has no worker with one of its ranks";
    for (size_t i = 1; i < n; i++) {
        if (ranks[i] == ranks[i - 1])
            return "it has a rank twice";
        n_runs += ranks[i] > ranks[i - 1] + 1;
    }
    return n_runs > MOST_RUNS ? "its ranks have more than 8191 gaps" : NULL;
}

/* A sorted copy. NULL: they make no sense. (transfer full) */
static uint32_t *take_ranks(const RubatoWorker *worker, const uint32_t *ranks, size_t n,
                            GError **error)
{
    const char *fault = n == 0 ? "it has no workers" : NULL;

    if (n > worker->n_workers)
        fault = "it has more workers than the task";
    g_autofree uint32_t *taken = fault == NULL ? g_memdup2(ranks, n * sizeof *ranks) : NULL;
    if (fault == NULL) {
        qsort(taken, n, sizeof *taken, tensor_ranks_compare);
        fault = find_fault(taken, n, worker->n_workers);
    }
    if (fault == NULL)
        return g_steal_pointer(&taken);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "this is no set of workers: %s", fault);
    return NULL;
}

static bool change_sets(RubatoWorker *worker, TensorSetChange *change, GError **error)
{
    call_begin(&change->call, NULL);
    call_add_parts(&change->call, 1);
    if (!tensor_exchange_change_sets(worker->tensors, worker->rank, change, error))
        return false;
    call_sent(&change->call);
    if (!call_has_ended(&change->call))
        tensor_exchange_wait(worker->tensors, worker->rank, &change->call);
    if (change->failure == NULL)
        return true;
    tensor_exchange_note_told(worker->tensors, worker->rank, change->failure);
    g_propagate_error(error, change->failure);
    return false;
}

bool rubato_worker_make_set(RubatoWorker *worker, const uint32_t *ranks, size_t n, uint32_t *set,
                            GError **error)
{
    TensorSetChange change = { 0 };

    g_return_val_if_fail(worker != NULL && (ranks != NULL || n == 0) && set != NULL, false);
    if (!worker_check_owner(worker, error))
        return false;
    g_autofree uint32_t *taken = take_ranks(worker, ranks, n, error);
    if (taken == NULL)
        return false;
    change.ranks = taken;
    change.n_ranks = (uint32_t)n;
    if (!change_sets(worker, &change, error))
        return false;
    *set = change.set;
    return true;
}

bool rubato_worker_remove_set(RubatoWorker *worker, uint32_t set, GError **error)
{
    TensorSetChange change = { .set = set };
    TensorMember member;

    g_return_val_if_fail(worker != NULL, false);
    if (!worker_check_owner(worker, error) ||
        !tensor_exchange_enter_set(worker->tensors, /* id= */ 0, worker->rank, &member, error))
        return false;
    if (set != 0 && tensor_exchange_set_size(worker->tensors, set) > 0)
        return change_sets(worker, &change, error);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "task %s has no set %u to be removed; set 0, all workers, stays", worker->task,
                set);
    return false;
}

uint32_t rubato_worker_set_size(const RubatoWorker *worker, uint32_t set)
{
    g_return_val_if_fail(worker != NULL, 0);
    return tensor_exchange_set_size(worker->tensors, set);
}

uint32_t rubato_worker_set_ranks(const RubatoWorker *worker, uint32_t set, uint32_t *ranks,
                                 uint32_t most)
{
    g_return_val_if_fail(worker != NULL && (ranks != NULL || most == 0), 0);
    return tensor_exchange_set_ranks(worker->tensors, set, ranks, most);
}

bool rubato_worker_set_rank(const RubatoWorker *worker, uint32_t set, uint32_t *rank)
{
    TensorMember member;

    g_return_val_if_fail(worker != NULL && rank != NULL, false);
    if (!tensor_exchange_find_set(worker->tensors, set, worker->rank, &member, NULL))
        return false;
    *rank = member.place;
    return true;
}
