/* A barrier of a task's workers on this node: who has come, and waiting until it is passed.
 *
 * The workers pass barrier after barrier; each has a number, its round. The thread that hears from
 * barrier_arrive or barrier_retire that all are there sees to it that barrier_release is called, by
 * itself or by the scheduler's message.
 *
 *     if (barrier_arrive(&barrier, &round))
 *         … barrier_release(&barrier, round) …
 *     while (!barrier_is_passed(&barrier, round) && !has_been_cancelled)
 *         barrier_sleep(&barrier, round, has_been_cancelled, timeout_ms);
 *
 * Threads: each worker arrives and retires on its own; the rest any. */
#ifndef RUBATO_ENGINE_TASK_BARRIER_H
#define RUBATO_ENGINE_TASK_BARRIER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    _Alignas(64) _Atomic uint64_t workers; /* those that live << 32 | those of them that wait */
    _Alignas(64) _Atomic uint64_t round;   /* number of the present barrier, or else of the next */
    _Atomic uint32_t bell;                 /* changes with each reason to look again */
    _Atomic uint32_t n_asleep;             /* threads that the bell has to wake */
} Barrier;

void barrier_init(Barrier *barrier, uint32_t n_workers);

/* Before any worker comes: earlier processes have passed the rounds below this one. */
void barrier_begin_with(Barrier *barrier, uint64_t round);

/* A worker has come to the barrier, whose number becomes *round. Returns whether it is the last. */
bool barrier_arrive(Barrier *barrier, uint64_t *round);

/* A worker never comes again. Returns how many live. *completes: all of these are in the barrier
 * *round. */
uint32_t barrier_retire(Barrier *barrier, uint64_t *round, bool *completes);

/* All workers of all nodes are in the barrier: lets this node's go on. Another round than the
 * present one is ignored. One thread at a time. */
void barrier_release(Barrier *barrier, uint64_t round);

/* Wakes all that sleep in the barrier, because the task was cancelled. From then on the numbers of
 * workers mean nothing. */
void barrier_cancel(Barrier *barrier);

/* The number of the present barrier, or else of the next one. */
uint64_t barrier_round(const Barrier *barrier);

/* Whether the workers may go on behind a round. They then see what all did before it. */
static inline bool barrier_is_passed(const Barrier *barrier, uint64_t round)
{
    /* acquire: pairs with the store in barrier_release */
    return atomic_load_explicit(&barrier->round, memory_order_acquire) != round;
}

/* Sleeps until the round is passed or cancelled, for timeout_ms at most; may return early. */
void barrier_sleep(Barrier *barrier, uint64_t round, const _Atomic bool *cancelled, int timeout_ms);

/* For messages to the user. */
uint32_t barrier_n_live(const Barrier *barrier);
uint32_t barrier_n_waiting(const Barrier *barrier);

#endif
