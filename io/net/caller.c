/* The caller's thread and process. Runs on any thread. */
#include "io/net/caller.h"

#include <pthread.h>
#include <stdatomic.h>

CALLER_OWN uint64_t caller_thread;
CALLER_OWN CallerPlace caller_place;
CALLER_OWN CallerTask caller_task;

static _Atomic uint64_t n_threads;
static _Atomic uint32_t n_forks;
static pthread_once_t once = PTHREAD_ONCE_INIT;

uint64_t caller_number(void)
{
    /* relaxed: numbers have to differ, no more */
    if (caller_thread == 0)
        caller_thread = atomic_fetch_add_explicit(&n_threads, 1, memory_order_relaxed) + 1;
    return caller_thread;
}

static void count_fork(void)
{
    atomic_fetch_add_explicit(&n_forks, 1, memory_order_relaxed);
    caller_thread = 0;
    caller_place = CALLER_OUTSIDE;
    caller_task = (CallerTask){ 0 };
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, count_fork); /* without memory for it forks are not counted */
}

uint32_t caller_n_forks(void)
{
    pthread_once(&once, watch_forks);
    return atomic_load_explicit(&n_forks, memory_order_relaxed);
}
