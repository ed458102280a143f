/* A node whose workers take the place of lost ones: it learns how things stand. See
 * tensor_exchange_private.h.
 *
 * Its exchange is new, while those of the others go on. It tells the coordinator that it is back,
 * and is then told all sets, and how many verdicts and losses there were. It is told nothing
 * before, and all verdicts that come behind, so it misses none. Nothing was decided meanwhile in
 * the sets of its workers, because these have not asked; so what was forgotten in these sets with
 * the loss is still forgotten everywhere.
 *
 * Each of its workers is told of the loss by its first call, as all others are. So all of them know
 * that they have to agree on how to go on, and none can take part in anything before it knows.
 *
 * Threads: as each function says. */
#include "engine/collectives/negotiation/tensor_ranks.h"
#include "engine/collectives/tensor_exchange_private.h"
#include "engine/control/control.h"

void returns_begin(TensorExchange *exchange)
{
    tensor_notice_write(exchange->notices, &(TensorNotice){ .kind = TENSOR_NOTICE_BACK,
                                                            .rank = exchange->first_rank });
    notices_tell(exchange);
}

/* The scheduler answers, or the task is cancelled, as it is if the scheduler dies: either ends the
 * wait. */
void tensor_exchange_come_back(TensorExchange *exchange)
{
    StallClock clock;

    stall_clock_start(&clock, exchange->place.stall_ms);
    pthread_mutex_lock(&exchange->lock);
    returns_begin(exchange);
    while (exchange->is_away && !exchange->is_shut)
        if (stall_clock_wait(&clock, &exchange->changed, &exchange->lock))
            g_message("task %s waits for the scheduler to say how its collectives stand (for %.1f "
                      "s so far)",
                      exchange->place.task, stall_clock_s(&clock));
    pthread_mutex_unlock(&exchange->lock);
}

uint32_t tensor_exchange_n_made_before(const TensorExchange *exchange)
{
    return exchange->n_made_before;
}

/* A set; it may be closed. */
static bool hear_of_set(TensorExchange *exchange, const TensorVerdict *verdict)
{
    g_autofree bool *is_member = g_new0(bool, exchange->n_workers);
    g_autofree uint32_t *ranks = g_new(uint32_t, exchange->n_workers);
    uint32_t n = 0;

    if (!tensor_ranks_read(verdict->ranks, exchange->n_workers, is_member))
        return false;
    for (uint32_t rank = 0; rank < exchange->n_workers; rank++)
        if (is_member[rank])
            ranks[n++] = rank;
    if (!exchange_tell_set(exchange, verdict->set, ranks, n, verdict->last, verdict->n))
        return false;
    exchange->is_used = true; /* the coordinator knows of the node's workers */
    if (verdict->code > 0)
        control_check(verdict->code, verdict->error, &exchange_set(exchange, verdict->set)->closed);
    return true;
}

/* All losses have the text of the last one: the workers are told of that, and know of none yet. */
static void hear_of_losses(TensorExchange *exchange, const TensorVerdict *verdict)
{
    for (uint32_t i = 0; i < verdict->n; i++)
        g_ptr_array_add(exchange->losses, g_strdup(verdict->error));
    exchange->n_said = verdict->n;
}

bool returns_hear(TensorExchange *exchange, const TensorVerdict *verdict)
{
    if (!exchange->is_away)
        return false;
    if (verdict->kind == TENSOR_VERDICT_SET)
        return hear_of_set(exchange, verdict);
    if (verdict->kind != TENSOR_VERDICT_BACK || (verdict->n > 0) != (verdict->code > 0))
        return false;
    hear_of_losses(exchange, verdict);
    exchange->n_verdicts = verdict->number;
    exchange->n_cuts = verdict->slot;
    exchange->cutovers = verdict->cutovers;
    exchange->n_made = exchange->n_made_before = verdict->last;
    exchange->is_away = false;
    launch_drop_late(exchange); /* what was on its way to the lost process may have come here */
    pthread_cond_broadcast(&exchange->changed);
    return true;
}
