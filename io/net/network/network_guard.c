/* Absences of the helper that are short.
 *
 * DESIGN NOTE
 *
 * A worker that asks other nodes again and again is the helper most of the time (network_help.c).
 * It is away for some microseconds, from the end of one call to the next one. If the I/O thread
 * took over each time, the first packet that came meanwhile would wake it, and the two would then
 * be in each other's way, on one processor or on two. So a helper that has come back soon several
 * times in a row leaves without handing over: packets wait for it, and no sender rings. And
 * messages for which no thread waits are left for its next flush, which puts them in one packet
 * with its next request (network_flush_later).
 *
 * The helper need not come back. So the I/O thread stands guard: it sleeps for GUARD_NS at a time,
 * whatever comes, and sends what was left for later. If nobody has helped between two of these
 * moments, or the helper waits for long, it ends the guard and receives as usual. So a packet, or a
 * message left for later, waits for two periods at most. A program whose worker often stays away
 * after several prompt returns would pay this again and again: with each guard that ends while the
 * helper is away, the next one wants twice as many prompt returns.
 *
 * With more than a few nodes something comes in almost every absence, and somebody waits for it; so
 * there is no guard then.
 *
 * The guard begins and ends under `receiving`, so a helper that leaves and the I/O thread agree on
 * whether there is one.
 *
 * Messages left for later are not forgotten. A thread that leaves one exchanges `unflushed` and
 * then looks whether the guard stands; the I/O thread ends the guard and then exchanges
 * `unflushed`. Exchanges of one object have an order. If the thread's comes first, the I/O thread
 * reads what it has set, and flushes. Otherwise the thread reads what the I/O thread has set, sees
 * that the guard has ended, and flushes itself. While the guard stands, the I/O thread flushes
 * after each period (flush_what_was_left in network_thread.c).
 *
 * Threads: told at each function. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "io/net/network/network_private.h"

#define GUARD_NS 200000

/* An absence of at most this is short. */
#define PROMPT_NS 50000

/* So many short absences in a row begin a guard, up to so many after guards that ended in vain. */
#define LEAST_PROMPT 8u
#define MOST_PROMPT 1024u

/* In a run of more nodes there is no guard. */
#define MOST_NODES 4u

/* So many times as many make it half as many again. */
#define PROMPT_GOODWILL 8u

/* Periods for which one call may wait. */
#define MOST_IDLE 10u

void network_guard_init(Guard *guard)
{
    guard->n_wanted = LEAST_PROMPT;
}

void network_note_help(Network *network)
{
    Guard *const guard = &network->guard;
    const bool is_prompt = monotonic_ns() - guard->left_ns <= PROMPT_NS;

    count(&guard->n_helps, 1);
    guard->n_prompt = is_prompt ? guard->n_prompt + 1 : 0;
    if (guard->n_prompt == PROMPT_GOODWILL * guard->n_wanted && guard->n_wanted > LEAST_PROMPT) {
        guard->n_wanted /= 2;
        guard->n_prompt = guard->n_wanted;
    }
}

/* Relaxed in all threads that hold `receiving`, which orders it. */
bool network_leave_to_guard(Network *network, bool *begins)
{
    Guard *const guard = &network->guard;

    *begins = false;
    guard->left_ns = monotonic_ns();
    if (guard->n_prompt < guard->n_wanted || network->n_nodes > MOST_NODES ||
        atomic_load_explicit(&network->stopping, memory_order_relaxed))
        return false;
    *begins = !atomic_load_explicit(&guard->stands, memory_order_relaxed);
    if (*begins)
        atomic_store_explicit(&guard->stands, true, memory_order_relaxed);
    return true;
}

/* Whether the helper still comes and goes. Takes no lock: the helper has `receiving` most of the
 * time. Relaxed: an old value ends the guard a period sooner or later. */
static bool is_wanted(Network *network)
{
    Guard *const guard = &network->guard;
    const uint64_t n_helps = atomic_load_explicit(&guard->n_helps, memory_order_relaxed);
    const bool has_helped = n_helps != guard->n_helps_seen;

    guard->n_helps_seen = n_helps;
    guard->n_idle = has_helped ? 0 : guard->n_idle + 1;
    if (atomic_load_explicit(&network->stopping, memory_order_relaxed))
        return false;
    return has_helped || (atomic_load_explicit(&network->helping, memory_order_relaxed) &&
                          guard->n_idle < MOST_IDLE);
}

/* Ends the guard, or goes on. */
static void look_around(Network *network)
{
    Guard *const guard = &network->guard;

    if (is_wanted(network))
        return;
    pthread_mutex_lock(&network->receiving);
    if (!atomic_load_explicit(&network->helping, memory_order_relaxed)) {
        guard->n_prompt = 0;
        guard->n_wanted = MIN(MOST_PROMPT, 2 * guard->n_wanted);
    }
    atomic_store_explicit(&guard->stands, false, memory_order_relaxed);
    guard->has_ended = true;
    pthread_mutex_unlock(&network->receiving);
}

bool network_stand_guard(Network *network, int64_t until_ms)
{
    const struct timespec period = { .tv_nsec = GUARD_NS };
    struct pollfd polled = { .fd = network->wake_fd, .events = POLLIN };
    uint64_t n;

    /* Relaxed: the thread that begins a guard wakes this one afterwards. */
    if (!network_is_guarded(network))
        return false;
    if (atomic_load_explicit(&network->stopping, memory_order_relaxed))
        look_around(network);
    if (!network_is_guarded(network) || network_now_ms() >= until_ms)
        return false;
    const bool is_woken = ppoll(&polled, 1, &period, NULL) > 0;

    if (is_woken && read(network->wake_fd, &n, sizeof n) == -1)
        assert(errno == EAGAIN || errno == EINTR);
    if (!is_woken)
        look_around(network);
    return !is_woken;
}

bool network_leave_for_later(Network *network)
{
    if (!network_is_guarded(network))
        return false;
    /* Release: pairs with the acquire in flush_what_was_left, so that what was pushed is seen.
     * Acquire: pairs with the release there, so that the end of the guard is seen. */
    atomic_exchange_explicit(&network->unflushed, true, memory_order_acq_rel);
    return network_is_guarded(network);
}
