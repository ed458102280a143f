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

/* A condition for monotonic_wait. */
void monotonic_cond_init(pthread_cond_t *cond);

/* pthread_cond_wait until monotonic_ms() is end_ms; returns at once if that has passed. False: it
 * has passed. Like any such wait it may end early; the mutex is held. */
bool monotonic_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t end_ms);

#endif
