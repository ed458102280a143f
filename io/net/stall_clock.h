/* A stall clock: it tells a thread that waits long when to log for whom it waits.
 *
 * It strikes when stall_ms have passed since the start, and then every stall_ms. A wake-up that
 * does not end the wait does not restart the clock.
 *
 *     stall_clock_start(&clock, stall_ms);
 *     while (!is_over)
 *         if (stall_clock_wait(&clock, &changed, &lock))
 *             g_message("… (for %.1f s so far)", stall_clock_s(&clock));
 *
 * Threads: that of the wait. */
#ifndef RUBATO_IO_NET_STALL_CLOCK_H
#define RUBATO_IO_NET_STALL_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint32_t stall_ms;
    int64_t begun_ms;
    int64_t strike_ms; /* the time of the next strike */
} StallClock;

/* Starts the clock; stall_ms is not 0. */
void stall_clock_start(StallClock *clock, uint32_t stall_ms);

/* The same if it began at a time that the caller has just read, by monotonic_ms(). */
void stall_clock_start_at(StallClock *clock, uint32_t stall_ms, int64_t begun_ms);

/* The time until it strikes; 0 if it is time. For waits that need a duration. */
int stall_clock_left_ms(const StallClock *clock);

/* The same, but no more than that: for waits that look for something else now and then. */
int stall_clock_look_ms(const StallClock *clock, int most_ms);

/* Whether it is time to strike; if so, it counts as struck. */
bool stall_clock_strikes(StallClock *clock);

/* Waits on the condition, made by monotonic_cond_init, until it is signalled or the clock strikes;
 * like any such wait it may end early. Returns whether the clock has struck. The mutex is held. */
bool stall_clock_wait(StallClock *clock, pthread_cond_t *cond, pthread_mutex_t *mutex);

/* The seconds from the start to the last strike. */
double stall_clock_s(const StallClock *clock);

#endif
