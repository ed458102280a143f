/* Who waits for an answer of another node receives it himself.
 *
 * DESIGN NOTE
 *
 * The I/O thread receives, and then has to wake the thread that waits: a hop that costs as much as
 * the whole way before it. So a thread that waits for an answer may become the helper, of which
 * there is one at a time. It receives as the I/O thread does, answers of others and requests
 * included, until its own call has ended. Others wait for their calls as usual, and are woken by
 * the helper.
 *
 * Exclusion. Receiving is done under `receiving`, a mutex that is held for the time of a batch, or
 * of a short look for more, never while sleeping. So the I/O thread can always tick and serve the
 * links, whatever the helper does.
 *
 * Who is woken. Both sleep in poll(): the helper on `news_fd`, which is readable when something has
 * come, and on `help_fd`, to which whoever ends its call writes; the I/O thread on `turn_fd` (and
 * its own wake_fd), an epoll around `news_fd`. Before it goes to sleep the helper takes `news_fd`
 * out of there, and before it leaves it puts it back: the kernel then looks whether it is readable
 * and wakes the I/O thread if so. So nothing is lost in between; the I/O thread need not be woken
 * to be told.
 *
 * Whoever leaves must not leave unread what news_fd does not tell any more: some transports tell it
 * once only. Therefore all receive until nothing is found, or go on, or (the helper whose call has
 * ended) wake the I/O thread.
 *
 * A look before sleeping. Both look for a while first, as spinner.h tells. Who finds something
 * takes in no more than that before he looks again, or the call has ended: to find that there is no
 * more costs system calls with some transports, and makes senders ring with others. */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "io/net/network_private.h"

/* What the helper takes in before it looks whether its call has ended. */
#define HELP_PACKETS 8

/* Whether something may come by a transport that is worth a look: the one for greetings alone is
 * not, once the links are there. */
static bool is_worth_a_look(const Network *network, size_t i)
{
    /* Relaxed: whoever is wrong about it looks in vain, or is told by news_fd. */
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

    if (!can_glance(network) || !spinner_begin(spinner, &end))
        return false;
    do {
        for (unsigned i = 0; i < SPINNER_LOOKS; i++) {
            *seen = glance(network);
            if (*seen || (call != NULL && call_has_ended(call))) {
                spinner_found(spinner);
                return true;
            }
            spin_pause();
        }
        /* The I/O thread makes way for a helper, and has to flush what was left to it. */
        if (call == NULL && (atomic_load_explicit(&network->helping, memory_order_relaxed) ||
                             atomic_load_explicit(&network->unflushed, memory_order_relaxed)))
            return true;
    } while (spinner_go_on(spinner, end));
    return true;
}

/* Whether the I/O thread is woken by what comes. */
static void set_turn(Network *network, bool of_io_thread)
{
    struct epoll_event event = { .events = of_io_thread ? EPOLLIN : 0 };

    const int result = epoll_ctl(network->turn_fd, EPOLL_CTL_MOD, network->news_fd, &event);

    assert(result == 0); /* both were made and put together in network_new */
    (void)result;
}

/* Sleeps until something has come, or the call has ended. */
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
static void help(Network *network, Call *call, int64_t end_ms)
{
    bool is_our_turn = false;
    Batch batch = BATCH_SOME; /* a look is worth trying: whoever received last has found nothing */

    for (;;) {
        int64_t next;
        bool seen = false;

        pthread_mutex_lock(&network->receiving);
        if (batch == BATCH_SOME)
            (void)network_spin(network, &network->helper, call, &seen);
        batch = network_receive(network, seen ? REACH_SEEN : REACH_ALL, HELP_PACKETS,
                                /* serve_all= */ false, &next);
        const bool has_ended = call_has_ended(call);
        if (has_ended && seen) {
            const Batch near =
                network_receive(network, REACH_NEAR, HELP_PACKETS, /* serve_all= */ false, &next);

            /* the first may have asked all transports, and have left something with the others */
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
    if (batch == BATCH_MORE)
        network_wake_io_thread(network); /* it looks for what there is */
}

bool network_help(Network *network, Call *call, int timeout_ms)
{
    if (call_has_ended(call))
        return true;
    /* Acquire and release: from helper to helper, whose calls of epoll_ctl stay in this order. */
    if (atomic_load_explicit(&network->helping, memory_order_relaxed) ||
        atomic_exchange_explicit(&network->helping, true, memory_order_acquire))
        return call_wait(call, timeout_ms);
    help(network, call, timeout_ms < 0 ? INT64_MAX : network_now_ms() + timeout_ms);
    atomic_store_explicit(&network->helping, false, memory_order_release);
    return call_has_ended(call);
}
