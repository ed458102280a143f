/* The stall clock: it strikes in time, also where broadcasts end each wait. */
#include "io/net/stall_clock.h"

#include <stdatomic.h>

#include "io/net/monotonic.h"
#include "tests/support/runner.h"

enum { STALL_MS = 50, N_STRIKES = 4 };

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_bool ended;
    atomic_uint n_broadcasts;
} Noise;

/* Wakes the waiter as often as it can. */
static void *make_noise(void *user)
{
    Noise *noise = user;

    while (!noise->ended) {
        pthread_mutex_lock(&noise->lock);
        pthread_cond_broadcast(&noise->changed);
        pthread_mutex_unlock(&noise->lock);
        noise->n_broadcasts++;
        sched_yield();
    }
    return NULL;
}

START_TEST(it_strikes_in_time_though_broadcasts_end_each_wait)
{
    Noise noise = { .lock = PTHREAD_MUTEX_INITIALIZER };
    unsigned n_waits = 0, n_strikes = 0;
    StallClock clock;
    pthread_t thread;

    monotonic_cond_init(&noise.changed);
    pthread_create(&thread, NULL, make_noise, &noise);
    pthread_mutex_lock(&noise.lock);
    stall_clock_start(&clock, STALL_MS);
    const int64_t begun_ms = clock.begun_ms;
    while (n_strikes < N_STRIKES) {
        const int64_t due_ms = clock.strike_ms;

        n_waits++;
        if (!stall_clock_wait(&clock, &noise.changed, &noise.lock)) {
            /* what ends early does not put the strike off */
            ck_assert_int_eq(clock.strike_ms, due_ms);
            continue;
        }
        n_strikes++;
        ck_assert_int_ge(monotonic_ms(), due_ms);
        ck_assert_int_eq((clock.strike_ms - begun_ms) % STALL_MS, 0);
        ck_assert_int_gt(clock.strike_ms, due_ms);
    }
    pthread_mutex_unlock(&noise.lock);
    noise.ended = true;
    pthread_join(thread, NULL);
    ck_assert_uint_gt(n_waits, N_STRIKES);
    ck_assert_uint_gt(noise.n_broadcasts, 0);
}
END_TEST

START_TEST(it_strikes_once_for_all_that_it_missed)
{
    StallClock clock;

    stall_clock_start(&clock, 1000);
    ck_assert(!stall_clock_strikes(&clock));
    ck_assert_int_gt(stall_clock_left_ms(&clock), 0);
    ck_assert_int_le(stall_clock_left_ms(&clock), 1000);

    /* as if it had been started long ago */
    clock.begun_ms -= 5500;
    clock.strike_ms -= 5500;
    ck_assert_int_eq(stall_clock_left_ms(&clock), 0);
    ck_assert(stall_clock_strikes(&clock));
    ck_assert_double_eq(stall_clock_s(&clock), 5.0);
    ck_assert(!stall_clock_strikes(&clock));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stall_clock");
    TCase *cases = tcase_create("stall_clock");

    tcase_add_test(cases, it_strikes_in_time_though_broadcasts_end_each_wait);
    tcase_add_test(cases, it_strikes_once_for_all_that_it_missed);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
