/* Strikes at multiples of stall_ms. Runs on the thread that waits. */
#include "io/net/stall_clock.h"

#include <assert.h>
#include <limits.h>

#include "io/net/monotonic.h"

void stall_clock_start_at(StallClock *clock, uint32_t stall_ms, int64_t begun_ms)
{
    assert(stall_ms > 0);
    *clock = (StallClock){ stall_ms, begun_ms, begun_ms + stall_ms };
}

void stall_clock_start(StallClock *clock, uint32_t stall_ms)
{
    stall_clock_start_at(clock, stall_ms, monotonic_ms());
}

int stall_clock_left_ms(const StallClock *clock)
{
    const int64_t left_ms = clock->strike_ms - monotonic_ms();

    return left_ms <= 0 ? 0 : left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

int stall_clock_look_ms(const StallClock *clock, int most_ms)
{
    const int left_ms = stall_clock_left_ms(clock);

    return left_ms < most_ms ? left_ms : most_ms;
}

bool stall_clock_strikes(StallClock *clock)
{
    const int64_t late_ms = monotonic_ms() - clock->strike_ms;

    if (late_ms < 0)
        return false;
    /* A process that was stopped for long speaks once, not once for each strike that it missed. */
    clock->strike_ms += (late_ms / clock->stall_ms + 1) * clock->stall_ms;
    return true;
}

bool stall_clock_wait(StallClock *clock, pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    monotonic_wait(cond, mutex, clock->strike_ms);
    return stall_clock_strikes(clock);
}

double stall_clock_s(const StallClock *clock)
{
    return (double)(clock->strike_ms - clock->stall_ms - clock->begun_ms) / 1000;
}
