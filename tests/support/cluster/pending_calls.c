/* Collectives of every kind that are pending while a node is lost.
 *
 * Threads: a worker's. */
#include "tests/support/cluster/pending_calls.h"

#include <signal.h>

#include "tests/support/engine/engine_fixture.h"

PendingCalls *pending_calls_new(uint64_t n_values)
{
    PendingCalls *const calls = g_new0(PendingCalls, 1);

    calls->n_values = n_values;
    calls->input = g_new0(float, n_values);
    for (uint32_t i = 0; i < PENDING_TICKETS; i++)
        calls->output[i] = g_new0(float, n_values);
    return calls;
}

void pending_calls_free(PendingCalls *calls)
{
    for (uint32_t i = 0; i < PENDING_TICKETS; i++)
        g_free(calls->output[i]);
    g_free(calls->input);
    g_free(calls);
}

RubatoTensor pending_calls_tensor(const PendingCalls *calls, const char *name, uint32_t i)
{
    return (RubatoTensor){ .name = name,
                           .dtype = RUBATO_F32,
                           .n_dims = 1,
                           .shape = { calls->n_values },
                           .input = calls->input,
                           .output = calls->output[i] };
}

static bool ask_all(RubatoWorker *worker, PendingCalls *calls, RubatoTicket *tickets,
                    GError **error)
{
    static const char *const names[PENDING_TICKETS] = { "allreduce", "scattered", "adasum",
                                                        "broadcast", "rows",      "dealt",
                                                        "running" };
    const RubatoReduce adasum = { .reduction = RUBATO_REDUCTION_ADASUM };
    const uint64_t splits[PENDING_NODES] = { calls->n_values, 0, 0 };
    RubatoTensor all[PENDING_TICKETS];

    for (uint32_t i = 0; i < PENDING_TICKETS; i++)
        all[i] = pending_calls_tensor(calls, names[i], i);
    tickets[0] = rubato_worker_allreduce_async(worker, &all[0], NULL, NULL, error);
    tickets[1] = rubato_worker_reduce_scatter_async(worker, &all[1], NULL, NULL, error);
    tickets[2] = rubato_worker_allreduce_async(worker, &all[2], &adasum, NULL, error);
    tickets[3] = rubato_worker_broadcast_async(worker, &all[3], PENDING_LOST, NULL, error);
    tickets[4] = rubato_worker_allgather_async(worker, &all[4], &calls->gathered[0], NULL, error);
    tickets[5] =
        rubato_worker_alltoall_async(worker, &all[5], splits, &calls->gathered[1], NULL, error);
    tickets[6] = rubato_worker_allreduce_async(worker, &all[6], NULL, NULL, error);
    for (uint32_t i = 0; i < PENDING_TICKETS; i++)
        TRY(tickets[i] != 0);
    return true;
}

bool pending_calls_fail(RubatoWorker *worker, PendingCalls *calls,
                        bool (*is_named)(const GError *failure), GError **failure, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    RubatoTicket tickets[PENDING_TICKETS] = { 0 };
    uint32_t set, last;

    TRY(ask_all(worker, calls, tickets, error));
    REQUIRE(!(rank == 0 ? rubato_worker_make_set(worker, &rank, 1, &set, failure)
                        : rubato_worker_join(worker, &last, failure)));
    REQUIRE(is_named(*failure), "(%s)", (*failure)->message);
    for (uint32_t i = 0; i < PENDING_TICKETS; i++) {
        g_autoptr(GError) of_ticket = NULL;

        REQUIRE(!rubato_worker_wait(worker, tickets[i], &of_ticket), "(ticket %u)", i);
        REQUIRE(is_named(of_ticket), "(ticket %u: %s)", i, of_ticket->message);
    }
    cluster_say("ended at %" G_GINT64_FORMAT, cluster_now_ms());
    return true;
}

bool pending_calls_be_lost(RubatoWorker *worker, PendingCalls *calls, int signal, GError **error)
{
    const RubatoTensor running = pending_calls_tensor(calls, "running", PENDING_TICKETS - 1);

    TRY(rubato_worker_allreduce_async(worker, &running, NULL, NULL, error) != 0);
    cluster_say("gone at %" G_GINT64_FORMAT, cluster_now_ms());
    raise(signal);
    return false;
}
