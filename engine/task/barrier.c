/* The barrier: one word that counts its workers, and a futex for those that wait long.
 *
 * Who completes it. Both counts are in one word, so each worker knows from its own operation
 * whether it has made them equal. Only one worker can: while the counts are equal, all that live
 * wait, and none of them arrives or retires before the release sets the second count to 0.
 *
 * What is seen. Each operation on the word acquires what the earlier ones released, so the thread
 * that completes the barrier sees all that the others did before they came. It hands this on by its
 * store to `round`. On several nodes another thread releases, because another process has said so,
 * which orders nothing in this one. So the release acquires, too.
 *
 * No sleeper is forgotten. A sleeper counts itself and then reads the bell and its reasons to go
 * on; a waker changes the reason and the bell and then reads the count. The four operations on bell
 * and count are sequentially consistent. So either the waker finds the sleeper counted and wakes
 * it, or the sleeper finds the new bell, whose release it then has acquired, and with it the
 * reason. If the bell changes after the sleeper has read it, the futex does not put it to sleep.
 *
 * Threads: as barrier.h says. */
#include "engine/task/barrier.h"

#include <limits.h>

#include "io/net/futex.h"

#define LIVE_ONE (UINT64_C(1) << 32)

void barrier_init(Barrier *barrier, uint32_t n_workers)
{
    atomic_init(&barrier->workers, n_workers * LIVE_ONE);
    atomic_init(&barrier->round, 0);
    atomic_init(&barrier->bell, 0);
    atomic_init(&barrier->n_asleep, 0);
}

void barrier_begin_with(Barrier *barrier, uint64_t round)
{
    /* relaxed: the workers are not there yet */
    atomic_store_explicit(&barrier->round, round, memory_order_relaxed);
}

static uint32_t live_of(uint64_t workers)
{
    return (uint32_t)(workers >> 32);
}

static uint32_t waiting_of(uint64_t workers)
{
    return (uint32_t)workers;
}

uint64_t barrier_round(const Barrier *barrier)
{
    /* Relaxed: a worker that has passed a round has seen it, and no other round passes without
     * it. */
    return atomic_load_explicit(&barrier->round, memory_order_relaxed);
}

bool barrier_arrive(Barrier *barrier, uint64_t *round)
{
    *round = barrier_round(barrier);
    /* acq_rel: see the top */
    const uint64_t workers =
        atomic_fetch_add_explicit(&barrier->workers, 1, memory_order_acq_rel) + 1;

    return waiting_of(workers) == live_of(workers);
}

uint32_t barrier_retire(Barrier *barrier, uint64_t *round, bool *completes)
{
    *round = barrier_round(barrier);
    /* acq_rel: see the top */
    const uint64_t workers =
        atomic_fetch_sub_explicit(&barrier->workers, LIVE_ONE, memory_order_acq_rel) - LIVE_ONE;

    *completes = live_of(workers) > 0 && waiting_of(workers) == live_of(workers);
    return live_of(workers);
}

static void ring(Barrier *barrier)
{
    /* seq_cst, both: against a sleeper; see the top */
    atomic_fetch_add_explicit(&barrier->bell, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&barrier->n_asleep, memory_order_seq_cst) > 0)
        futex_wake(&barrier->bell, INT_MAX);
}

void barrier_release(Barrier *barrier, uint64_t round)
{
    if (barrier_round(barrier) != round)
        return;
    /* Acquire: see the top. Not release: no worker arrives before it has seen the next store. (One
     * operation, because in a cancelled task workers retire meanwhile.) */
    atomic_fetch_and_explicit(&barrier->workers, ~(LIVE_ONE - 1), memory_order_acquire);
    /* release: pairs with the load in barrier_is_passed */
    atomic_store_explicit(&barrier->round, round + 1, memory_order_release);
    ring(barrier);
}

void barrier_cancel(Barrier *barrier)
{
    ring(barrier);
}

void barrier_sleep(Barrier *barrier, uint64_t round, const _Atomic bool *cancelled, int timeout_ms)
{
    /* seq_cst, both: against a waker; see the top */
    atomic_fetch_add_explicit(&barrier->n_asleep, 1, memory_order_seq_cst);
    const uint32_t bell = atomic_load_explicit(&barrier->bell, memory_order_seq_cst);

    /* relaxed: the bell has brought it, or changes */
    if (!barrier_is_passed(barrier, round) &&
        !atomic_load_explicit(cancelled, memory_order_relaxed))
        futex_wait(&barrier->bell, bell, timeout_ms);
    /* relaxed: a waker that still counts this thread makes an unnecessary system call */
    atomic_fetch_sub_explicit(&barrier->n_asleep, 1, memory_order_relaxed);
}

uint32_t barrier_n_live(const Barrier *barrier)
{
    return live_of(atomic_load_explicit(&barrier->workers, memory_order_relaxed));
}

uint32_t barrier_n_waiting(const Barrier *barrier)
{
    return waiting_of(atomic_load_explicit(&barrier->workers, memory_order_relaxed));
}
