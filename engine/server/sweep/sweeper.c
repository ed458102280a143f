/* The thread that has servers remove expired rows.
 *
 * Every PAUSE_MS it gives each server a slice of SLICE_US. So requests wait for a slice at most,
 * and servers spend at most a 20th of their time on it. If no server has anything to do, it asks
 * again after IDLE_MS. It waits until all servers are through before the next turn; servers handle
 * what is posted to them as long as they run, and they run longer than it does.
 *
 * Thread: its own. */
#include "engine/server/sweep/sweeper.h"

#include <rubato/error.h>

#include "io/net/log_sink.h"
#include "io/net/monotonic.h"

enum {
    SLICE_US = 800, /* the last piece may end up to some hundred later: server_sweep.c */
    PAUSE_MS = 20,
    IDLE_MS = 200,
};

uint64_t sweeper_seconds(void)
{
    const int64_t now_us = g_get_real_time();

    return now_us < 0 ? 0 : (uint64_t)(now_us / G_USEC_PER_SEC);
}

static void sweep(Server *server, void *data)
{
    _Atomic bool *const goes_on = data;

    if (server_sweep(server, sweeper_seconds(), SLICE_US))
        atomic_store_explicit(goes_on, true, memory_order_relaxed); /* the call's end orders it */
}

/* Waits until so much time has passed. False: it is to stop. */
static bool pause_for(Sweeper *sweeper, int64_t ms)
{
    const int64_t end_ms = monotonic_ms() + ms;
    bool stops;

    pthread_mutex_lock(&sweeper->lock);
    while (!sweeper->stops && monotonic_wait(&sweeper->changed, &sweeper->lock, end_ms))
        continue;
    stops = sweeper->stops;
    pthread_mutex_unlock(&sweeper->lock);
    return !stops;
}

static void *run(void *data)
{
    Sweeper *const sweeper = data;
    _Atomic bool goes_on = false;

    while (pause_for(sweeper,
                     atomic_load_explicit(&goes_on, memory_order_relaxed) ? PAUSE_MS : IDLE_MS)) {
        atomic_store_explicit(&goes_on, false, memory_order_relaxed);
        servers_run(sweeper->servers, sweeper->n_servers, sweep, &goes_on);
    }
    return NULL;
}

bool sweeper_start(Sweeper *sweeper, Server *servers, uint32_t n_servers, GError **error)
{
    if (sweeper->is_running || n_servers == 0)
        return true;
    sweeper->servers = servers;
    sweeper->n_servers = n_servers;
    sweeper->stops = false;
    pthread_mutex_init(&sweeper->lock, NULL);
    monotonic_cond_init(&sweeper->changed);
    sweeper->is_running = log_sink_start_thread(&sweeper->thread, run, sweeper) == 0;
    if (sweeper->is_running) {
        pthread_setname_np(sweeper->thread, "sweeper");
        return true;
    }
    pthread_cond_destroy(&sweeper->changed);
    pthread_mutex_destroy(&sweeper->lock);
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                        "there can be no thread that removes expired rows");
    return false;
}

void sweeper_stop(Sweeper *sweeper)
{
    if (!sweeper->is_running)
        return;
    pthread_mutex_lock(&sweeper->lock);
    sweeper->stops = true;
    pthread_cond_signal(&sweeper->changed);
    pthread_mutex_unlock(&sweeper->lock);
    pthread_join(sweeper->thread, NULL);
    pthread_cond_destroy(&sweeper->changed);
    pthread_mutex_destroy(&sweeper->lock);
    sweeper->is_running = false;
}
