/* Threads that sleep until a call has ended: nobody is forgotten by who ends it without their
 * lock. */
#include "engine/collectives/tensor_sleepers.h"
#include "io/net/call.h"
#include "tests/weak/cases.h"

static pthread_mutex_t lock;
static pthread_cond_t changed;
static TensorSleepers asleep;
static Call calls[2];
static uint32_t n_ended; /* plain: written before the calls end */

static void begin(void)
{
    pthread_mutex_init(&lock, NULL);
    atomic_init(&asleep.n, 0);
    n_ended = 0;
    for (unsigned i = 0; i < 2; i++) {
        call_begin(&calls[i], NULL);
        call_add_parts(&calls[i], 1);
        call_sent(&calls[i]);
    }
}

/* As operations_end. */
static void *end_all(void *unused)
{
    (void)unused;
    n_ended = 2;
    for (unsigned i = 0; i < 2; i++)
        call_end_part(&calls[i], CALL_OK, 0);
    if (!tensor_sleepers_any(&asleep))
        return NULL;
    pthread_mutex_lock(&lock);
    if (tensor_sleepers_any_locked(&asleep))
        pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* As tensor_exchange_wait. */
static void *wait_for(void *number)
{
    Call *const call = &calls[(uintptr_t)number];

    pthread_mutex_lock(&lock);
    while (!call_has_ended(call)) {
        tensor_sleepers_enter(&asleep);
        if (!call_has_ended(call))
            monotonic_wait(&changed, &lock, INT64_MAX);
        tensor_sleepers_leave(&asleep);
    }
    pthread_mutex_unlock(&lock);
    weak_expect(n_ended == 2);
    return NULL;
}

static void all_are_woken(void)
{
    begin();
    const unsigned ender = weak_start("ender", end_all, NULL);
    const unsigned sleeper = weak_start("sleeper 1", wait_for, (void *)1);
    (void)wait_for((void *)0);
    weak_join(ender);
    weak_join(sleeper);
}

const WeakCase sleepers_cases[] = {
    { "sleepers_all_are_woken", all_are_woken },
    { NULL, NULL },
};
