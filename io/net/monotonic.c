/* CLOCK_MONOTONIC: setting the machine's clock changes neither times nor waits. */
#include "io/net/monotonic.h"

#include <errno.h>
#include <time.h>

static int64_t read_clock(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t monotonic_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t monotonic_coarse_ns(void)
{
    return read_clock(CLOCK_MONOTONIC_COARSE);
}

int64_t monotonic_ms(void)
{
    return monotonic_ns() / 1000000;
}

void monotonic_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

bool monotonic_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t end_ms)
{
    const struct timespec end = { .tv_sec = (time_t)(end_ms / 1000),
                                  .tv_nsec = (long)(end_ms % 1000) * 1000000 };

    return pthread_cond_timedwait(cond, mutex, &end) != ETIMEDOUT;
}
