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
 * The helper need not come back. So the I/O thread stands guard: it sleeps for a period at a time,
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

#define LEAST_PERIOD_NS 200000
#define MOST_PERIOD_NS 2000000
#define PERIOD_PART 16

/* A guard that has stood for so long was worth it. */
#define LASTING_NS 10000000

/* An absence of at most this is short. Where nodes take turns on a processor, others have it in
 * between. */
#define PROMPT_NS 50000
#define PROMPT_SHARING_NS 200000

/* So many short absences in a row begin a guard, up to so many after guards that ended in vain. */
#define LEAST_PROMPT 8u
#define MOST_PROMPT 1024u

/* In a run of more nodes there is no guard. */
#define MOST_NODES 4u

/* So many times as many make it half as many again. */
#define PROMPT_GOODWILL 8u

/* So many of them are taken back by a long absence. */
#define LATE_COST 8u

/* Periods for which one call may wait. */
#define MOST_IDLE 10u

#define MOST_TRIES 5u

void network_guard_init(Guard *guard)
{
    guard->n_wanted = LEAST_PROMPT;
}

bool network_guard_is_prompt(int64_t absent_ns, unsigned n_sharing)
{
    return absent_ns <= (n_sharing > 1 ? n_sharing * PROMPT_SHARING_NS : PROMPT_NS);
}

void network_note_help(Network *network)
{
    Guard *const guard = &network->guard;
    const bool is_prompt =
        network_guard_is_prompt(monotonic_ns() - guard->left_ns, network->helper.n_sharing);

    count(&guard->n_helps, 1);
    guard->n_prompt = is_prompt ? MIN(guard->n_prompt + 1, PROMPT_GOODWILL * guard->n_wanted)
                                : guard->n_prompt - MIN(guard->n_prompt, LATE_COST);
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

int64_t network_guard_period_ns(int64_t stood_ns)
{
    return CLAMP(stood_ns / PERIOD_PART, LEAST_PERIOD_NS, MOST_PERIOD_NS);
}

void network_guard_note_vain(Guard *guard, int64_t stood_ns)
{
    guard->n_prompt = 0;
    guard->n_wanted = stood_ns < LASTING_NS ? MIN(MOST_PROMPT, 2 * guard->n_wanted)
                                            : MAX(LEAST_PROMPT, guard->n_wanted / 2);
}

/* After a period: ends the guard, or goes on. Not the time that has passed counts, but that of
 * periods: a thread that gets no processor sleeps longer than it says. */
static void look_around(Network *network, int64_t period_ns)
{
    Guard *const guard = &network->guard;

    if (is_wanted(network)) {
        guard->stood_ns += period_ns;
        return;
    }
    pthread_mutex_lock(&network->receiving);
    if (!atomic_load_explicit(&network->helping, memory_order_relaxed))
        network_guard_note_vain(guard, guard->stood_ns);
    guard->stood_ns = 0;
    atomic_store_explicit(&guard->stands, false, memory_order_relaxed);
    guard->has_ended = true;
    pthread_mutex_unlock(&network->receiving);
}

/* Sleeps for a period; whether it was woken before. */
static bool sleep_a_period(Network *network)
{
    const int64_t period_ns = network_guard_period_ns(network->guard.stood_ns);
    const struct timespec period = { .tv_nsec = period_ns };
    struct pollfd polled = { .fd = network->wake_fd, .events = POLLIN };
    uint64_t n;

    const bool is_woken = ppoll(&polled, 1, &period, NULL) > 0;
    if (is_woken && read(network->wake_fd, &n, sizeof n) == -1)
        assert(errno == EAGAIN || errno == EINTR);
    if (!is_woken)
        look_around(network, period_ns);
    return is_woken;
}

bool network_stand_guard(Network *network, int64_t until_ms)
{
    /* Relaxed: the thread that begins a guard wakes this one afterwards. */
    if (!network_is_guarded(network))
        return false;
    if (atomic_load_explicit(&network->stopping, memory_order_relaxed))
        look_around(network, 0);
    return network_is_guarded(network) && network_now_ms() < until_ms && !sleep_a_period(network);
}

bool network_take_turn(Network *network)
{
    Guard *const guard = &network->guard;

    if (pthread_mutex_trylock(&network->receiving) != 0) {
        /* Relaxed: who wakes this thread later ends the period, or it ends by itself. */
        if (network_is_guarded(network) && guard->n_tries < MOST_TRIES &&
            !atomic_load_explicit(&network->woken, memory_order_relaxed)) {
            guard->n_tries++;
            (void)sleep_a_period(network);
            return false;
        }
        pthread_mutex_lock(&network->receiving);
    }
    guard->n_tries = 0;
    return true;
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
