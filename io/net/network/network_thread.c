/* The I/O thread: takes in what comes, flushes what others left to it, and keeps the time.
 *
 * Threads: the I/O thread. */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "io/net/network/network_private.h"

/* Packets handled in a batch, before timers and answers are served. */
#define BATCH_PACKETS 64

/* Does the work that is not urgent. */
static void serve_slowly(Peer *peer)
{
    if (atomic_load_explicit(&peer->consumed, memory_order_relaxed) !=
        atomic_load_explicit(&peer->told_consumed, memory_order_relaxed))
        peer_set_pending(peer, PENDING_ACK);
    if (atomic_load_explicit(&peer->kept_packets, memory_order_relaxed) > 0)
        peer_set_pending(peer, PENDING_RUN);
    peer_set_pending(peer, PENDING_STATE);
    peer_flush(peer);
}

/* Whether nothing is left to send to the peer, and all was acknowledged. Frames that a holder has
 * taken from the queue are not visible until it has packed them. So the order of the loads is
 * important. A thread that sees the queue emptied by a holder (acquire: pairs with the release in
 * take_queue) sees the token taken. Or it sees the token given back, and then (acquire: pairs with
 * give_token) the packets that the holder keeps. A holder that has left frames for another turn
 * keeps the packets packed before them. */
static bool is_peer_done(Peer *peer)
{
    return atomic_load_explicit(&peer->queue, memory_order_acquire) == NULL &&
           atomic_load_explicit(&peer->token, memory_order_acquire) == 0 &&
           atomic_load_explicit(&peer->kept_packets, memory_order_relaxed) == 0;
}

static bool is_done(const Network *network)
{
    for (uint32_t i = 0; i < network->n_nodes; i++) {
        Peer *const peer = network_peer(network, i);
        if (peer != NULL && !is_peer_done(peer))
            return false;
    }
    return true;
}

/* When all timers must be looked at, or the tick is due. A sender, or a thread that receives, notes
 * a timer when it sets one. Nobody notes that a timer is put off, so a look may be in vain; it then
 * notes the next. While packets come and go there is one look in some ms, the least time of a
 * timer. While nothing is under way there is none between two ticks. Relaxed: see
 * network_note_timer. */
static int64_t next_look(const Network *network, int64_t next_tick)
{
    const int64_t timer_at = atomic_load_explicit(&network->timer_at, memory_order_relaxed);

    return MIN(timer_at, next_tick);
}

static void wait_for_something(Network *network, int64_t now_ms, int64_t next_tick)
{
    struct pollfd polled[] = { { .fd = network->turn_fd, .events = POLLIN },
                               { .fd = network->wake_fd, .events = POLLIN } };
    uint64_t n;

    /* Relaxed, both: before the time is read. See network_note_timer. */
    atomic_store_explicit(&network->sleeps, true, memory_order_relaxed);
    const int64_t next_ms = next_look(network, next_tick);
    const int64_t timeout_ms = next_ms <= now_ms ? 0 : next_ms - now_ms;
    if (poll(polled, G_N_ELEMENTS(polled), (int)MIN(timeout_ms, 1000)) > 0 &&
        (polled[1].revents & POLLIN) && read(network->wake_fd, &n, sizeof n) == -1)
        assert(errno == EAGAIN || errno == EINTR);
    atomic_store_explicit(&network->sleeps, false, memory_order_relaxed);
}

static void tick(Network *network, int64_t now_ms)
{
    /* What others acknowledged while this process was stopped has yet to be read. */
    const bool stood_still = now_ms - network->ticked_ms > network->timeout_ms / 2;

    network->ticked_ms = now_ms;
    for (uint32_t i = 0; i < network->n_nodes; i++) {
        Peer *const peer = network_peer(network, i);
        if (peer == NULL)
            continue;
        serve_slowly(peer);
        peer_check_acks(peer, stood_still, now_ms);
    }
    network->handler.tick(network->user, now_ms);
}

/* Other threads leave frames to this thread if they have no time, or if the frames are not urgent.
 * It flushes these before it waits for its turn to receive. */
static void flush_what_was_left(Network *network)
{
    if (!network->guard.has_ended &&
        !atomic_load_explicit(&network->unflushed, memory_order_relaxed))
        return;
    network->guard.has_ended = false;
    /* Acquire: pairs with leave_to_io_thread and network_leave_for_later, so that the frames left
     * are seen. Release: pairs with network_leave_for_later, which sees that the guard has
     * ended. */
    if (!atomic_exchange_explicit(&network->unflushed, false, memory_order_acq_rel))
        return;
    for (uint32_t i = 0; i < network->n_nodes; i++)
        network_flush(network, i);
}

/* The processor from which the last packet came; -1: unknown. `receiving` is held. */
static int find_origin(const Network *network)
{
    Transport *const giver = network->giver;

    return giver != NULL && giver->ops->origin != NULL ? giver->ops->origin(giver) : -1;
}

void *network_run(void *data)
{
    Network *const network = data;
    int64_t next_tick = network_now_ms();
    Spinner spinner;
    bool seen = false;

    spinner_init(&spinner);
    spinner.moves = true;
    for (;;) {
        const bool stood_guard = network_stand_guard(network, next_look(network, next_tick));

        flush_what_was_left(network);
        if (stood_guard || !network_take_turn(network))
            continue;
        int64_t now_ms = network_now_ms();
        const bool all = now_ms >= next_look(network, INT64_MAX);
        int64_t next;
        if (all) /* before it looks: a timer that is set meanwhile is noted again */
            atomic_store_explicit(&network->timer_at, next_tick, memory_order_relaxed);
        const Reach reach = seen ? REACH_SEEN : REACH_ALL;
        const Batch batch = network_receive(network, reach, BATCH_PACKETS, all, now_ms, &next);
        network_note_timer(network, next);
        seen = false;
        if (batch != BATCH_NOTHING)
            spinner_note_origin(&spinner, find_origin(network));
        const bool spun = batch == BATCH_SOME && !network_is_guarded(network) &&
                          network_spin(network, &spinner, NULL, &seen);
        pthread_mutex_unlock(&network->receiving);

        /* Acquire: pairs with network_wake, so that the tick sees what the waker did before. */
        const bool woken = atomic_load_explicit(&network->woken, memory_order_relaxed) &&
                           atomic_exchange_explicit(&network->woken, false, memory_order_acquire);
        if (!seen) /* otherwise a packet waits; the time is read again before it is taken in */
            now_ms = network_now_ms();
        if (woken || now_ms >= next_tick) {
            const unsigned longest_ms =
                atomic_load_explicit(&network->longest_tick_ms, memory_order_relaxed);

            tick(network, now_ms);
            next_tick = now_ms + MIN(network->tick_ms, longest_ms);
            network_note_timer(network, now_ms); /* all peers are served before the thread sleeps */
        }

        /* Acquire: pairs with network_stop's release of stop_at_ms. */
        if (atomic_load_explicit(&network->stopping, memory_order_acquire) &&
            (is_done(network) ||
             now_ms >= atomic_load_explicit(&network->stop_at_ms, memory_order_relaxed)))
            break;
        if (reach == REACH_ALL && batch != BATCH_MORE && !spun && !network_is_guarded(network))
            wait_for_something(network, now_ms, next_tick);
    }
    /* Processes that were refused get their answers. */
    pthread_mutex_lock(&network->receiving);
    network_send_answers(network);
    pthread_mutex_unlock(&network->receiving);
    /* Acknowledges, so that the others need not send again. */
    for (uint32_t i = 0; i < network->n_nodes; i++) {
        Peer *const peer = network_peer(network, i);
        if (peer != NULL && atomic_load_explicit(&peer->received, memory_order_relaxed) !=
                                atomic_load_explicit(&peer->told_ack, memory_order_relaxed)) {
            peer_set_pending(peer, PENDING_ACK);
            peer_flush(peer);
        }
    }
    return NULL;
}
