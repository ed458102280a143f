/* A thread that waits for an answer of another node receives it itself.
 *
 * DESIGN NOTE
 *
 * The I/O thread receives, and then has to wake the thread that waits: a hop that costs as much as
 * the whole way before it. So a thread that waits for an answer may become the helper. There is one
 * helper at a time. It receives as the I/O thread does, also requests and other threads' answers,
 * until its own call has ended. Other threads wait for their calls as usual, and the helper wakes
 * them.
 *
 * Exclusion. Receiving is done under `receiving`, a mutex that is held for the time of a batch, or
 * of a short look for more, never while sleeping. So the I/O thread can always tick and serve the
 * links, whatever the helper does.
 *
 * Waking. Both sleep in poll(). The helper sleeps on `news_fd`, which is readable when packets have
 * come, and on `help_fd`, to which the thread that ends its call writes. The I/O thread sleeps on
 * its own wake_fd and on `turn_fd`, an epoll around `news_fd`. Before the helper sleeps it takes
 * `news_fd` out of `turn_fd`. Before it leaves it puts `news_fd` back: the kernel then checks
 * whether it is readable and, if so, wakes the I/O thread. So nothing is lost in between, and the
 * helper need not wake the I/O thread to tell it.
 *
 * A thread that stops receiving must not leave packets unread of which news_fd tells nothing more:
 * some transports tell it only once. So a thread receives until it finds nothing, or continues; or
 * a helper whose call has ended wakes the I/O thread; or the I/O thread stands guard
 * (network_guard.c).
 *
 * Looking before sleeping. Both threads look for a while first, as spinner.h says. A thread that
 * finds something handles only that before it looks again, or before its call has ended. Finding
 * out that there is no more costs system calls with some transports, and with others it makes
 * senders signal each packet. */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "io/net/network/network_private.h"

/* Packets that the helper handles before it checks whether its call has ended. */
#define HELP_PACKETS 8

/* Whether a transport is worth a look. A transport that only greetings use is not, once the links
 * are open. */
static bool is_worth_a_look(const Network *network, size_t i)
{
    /* Relaxed: a thread with an old value looks without need, or news_fd tells it. */
    const uint32_t linked = atomic_load_explicit(&network->linked, memory_order_relaxed);
    const bool has_links = linked == 0 || (linked >> i & 1) != 0;

    return has_links && network->transports[i]->ops->glance != NULL;
}

static bool glance(Network *network)
{
    for (size_t i = 0; i < network->n_transports; i++)
        if (is_worth_a_look(network, i) && network_glance(network, i) == GLANCE_SOME)
            return true;
    return false;
}

static bool can_glance(const Network *network)
{
    for (size_t i = 0; i < network->n_transports; i++)
        if (is_worth_a_look(network, i))
            return true;
    return false;
}

bool network_spin(Network *network, Spinner *spinner, Call *call, bool *seen)
{
    SpinnerEnd end;
    unsigned n_looks;

    /* More nodes than processors on this host: who is waited for may wait for a processor. Acquire:
     * pairs with network_join's release. */
    if (atomic_load_explicit(&network->joined, memory_order_acquire))
        spinner_share(spinner, network->n_near);
    if (!can_glance(network) || !spinner_begin(spinner, &end))
        return false;
    n_looks = call == NULL ? spinner->n_looks : spinner_looks_receiving(spinner);
    do {
        for (unsigned i = 0; i < n_looks; i++) {
            *seen = glance(network);
            if (*seen || (call != NULL && call_has_ended(call))) {
                spinner_found(spinner);
                return true;
            }
            spin_pause();
        }
        /* The I/O thread gives way to a helper, and must flush the frames left to it. */
        if (call == NULL && (atomic_load_explicit(&network->helping, memory_order_relaxed) ||
                             atomic_load_explicit(&network->unflushed, memory_order_relaxed)))
            return true;
    } while (spinner_go_on(spinner, &end));
    return true;
}

/* Sets whether packets wake the I/O thread. */
static void set_turn(Network *network, bool of_io_thread)
{
    struct epoll_event event = { .events = of_io_thread ? EPOLLIN : 0 };

    const int result = epoll_ctl(network->turn_fd, EPOLL_CTL_MOD, network->news_fd, &event);

    assert(result == 0); /* network_new made both and put one into the other */
    (void)result;
}

/* Sleeps until packets have come, or the call has ended. */
static void sleep_a_while(Network *network, Call *call, int timeout_ms)
{
    struct pollfd polled[] = { { .fd = network->news_fd, .events = POLLIN },
                               { .fd = network->help_fd, .events = POLLIN } };
    uint64_t n;

    if (call_set_bell(call, network->help_fd) &&
        poll(polled, G_N_ELEMENTS(polled), timeout_ms) > 0 && (polled[1].revents & POLLIN) &&
        read(network->help_fd, &n, sizeof n) == -1)
        assert(errno == EAGAIN || errno == EINTR);
    call_clear_bell(call);
}

/* As the helper. */
static void help(Network *network, Call *call, int timeout_ms)
{
    bool is_our_turn = false, is_first = true, is_guarded = false, begins = false;
    Batch batch = BATCH_SOME; /* a look is worth trying: the last receiver has found nothing */
    int64_t end_ms = INT64_MAX;

    for (;;) {
        int64_t next;
        bool seen = false;

        pthread_mutex_lock(&network->receiving);
        if (is_first) {
            network->helper.looks_long = call->spinner != NULL && call->spinner->looks_long;
            network_note_help(network);
        }
        if (batch == BATCH_SOME)
            (void)network_spin(network, &network->helper, call, &seen);
        const int64_t now_ms = network_now_ms();
        if (is_first && timeout_ms >= 0)
            end_ms = now_ms + timeout_ms; /* not read before: the look takes microseconds */
        is_first = false;
        batch = network_receive(network, seen ? REACH_SEEN : REACH_ALL, HELP_PACKETS,
                                /* serve_all= */ false, now_ms, &next);
        const bool has_ended = call_has_ended(call);
        if (has_ended)
            is_guarded = network_leave_to_guard(network, &begins);
        if (has_ended && seen && !is_guarded) {
            const Batch near = network_receive(network, REACH_NEAR, HELP_PACKETS,
                                               /* serve_all= */ false, now_ms, &next);

            /* the first call may have asked all transports, and have left packets in the others */
            batch = MAX(batch, near);
        }
        pthread_mutex_unlock(&network->receiving);
        if (has_ended)
            break;
        if (batch != BATCH_NOTHING || seen)
            continue;
        const int64_t left_ms = end_ms == INT64_MAX ? -1 : end_ms - network_now_ms();
        if (end_ms != INT64_MAX && left_ms <= 0)
            break;
        if (!is_our_turn)
            set_turn(network, /* of_io_thread= */ false);
        is_our_turn = true;
        sleep_a_while(network, call, (int)MIN(left_ms, INT32_MAX));
    }
    if (is_our_turn)
        set_turn(network, /* of_io_thread= */ true);
    if (begins || (batch == BATCH_MORE && !is_guarded))
        network_wake_io_thread(network); /* it stands guard, or looks for packets */
}

bool network_help(Network *network, Call *call, int timeout_ms)
{
    if (call_has_ended(call))
        return true;
    /* Acquire and release: from helper to helper, whose calls of epoll_ctl stay in this order. */
    if (atomic_load_explicit(&network->helping, memory_order_relaxed) ||
        atomic_exchange_explicit(&network->helping, true, memory_order_acquire))
        return call_wait(call, timeout_ms);
    help(network, call, timeout_ms);
    atomic_store_explicit(&network->helping, false, memory_order_release);
    return call_has_ended(call);
}
