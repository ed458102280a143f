/* Monotonic time, and waiting until a moment of it.
 *
 * Threads: any. */
#ifndef RUBATO_IO_NET_MONOTONIC_H
#define RUBATO_IO_NET_MONOTONIC_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

int64_t monotonic_ns(void);
int64_t monotonic_ms(void);

/* The same clock as of the kernel's last tick, up to MONOTONIC_TICK_NS ago. It takes a quarter of
 * the time to read. */
int64_t monotonic_coarse_ns(void);
#define MONOTONIC_TICK_NS 10000000

/* A condition for monotonic_wait. */
void monotonic_cond_init(pthread_cond_t *cond);

/* pthread_cond_wait until monotonic_ms() is end_ms; returns at once if that has passed. False: it
 * has passed. Like any such wait it may end early; the mutex is held. */
bool monotonic_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t end_ms);

#endif
