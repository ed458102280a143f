/* Whether threads sleep that have to be woken behind the end of calls, told without the lock under
 * which they do.
 *
 * A thread that would sleep until a call has ended enters under the lock, and looks at the call
 * once more before it waits for the condition, which gives the lock away. Who has ended calls asks
 * behind it, without the lock, whether anybody sleeps; only then it takes the lock and wakes all.
 *
 * Why nobody is forgotten: both change the same word, so one of the changes comes first. If it is
 * the sleeper's, the ender sees that there is one, and gets the lock only once it waits. If it is
 * the ender's, the sleeper's acquire takes over its release, and the sleeper sees the call's end.
 *
 * Threads: as each function says. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_SLEEPERS_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_SLEEPERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    _Atomic uint32_t n;
} TensorSleepers;

/* The lock is held. Behind it the thread looks whether its call has ended, and waits if not. */
static inline void tensor_sleepers_enter(TensorSleepers *sleepers)
{
    atomic_fetch_add_explicit(&sleepers->n, 1, memory_order_acquire);
}

/* The lock is held. Relaxed: a change of the word keeps what earlier ones have released. */
static inline void tensor_sleepers_leave(TensorSleepers *sleepers)
{
    atomic_fetch_sub_explicit(&sleepers->n, 1, memory_order_relaxed);
}

/* Any thread, behind the end of calls. */
static inline bool tensor_sleepers_any(TensorSleepers *sleepers)
{
    return atomic_fetch_add_explicit(&sleepers->n, 0, memory_order_release) > 0;
}

/* The same with the lock held, which orders it. */
static inline bool tensor_sleepers_any_locked(const TensorSleepers *sleepers)
{
    return atomic_load_explicit(&sleepers->n, memory_order_relaxed) > 0;
}

#endif
