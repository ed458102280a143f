/* The sending side: from any thread straight into the peer's socket.
 *
 * Threads: any. Each peer has a queue, a last-in-first-out list that anybody pushes onto with a
 * compare-and-swap, and a token. Whoever has pushed tries to take the token. Who gets it takes the
 * whole queue, turns it round, packs it and sends; who does not leaves at once, for the holder
 * looks again after it has given the token back. So a frame meets no other thread on its way out,
 * and what several threads push at the same time becomes one packet.
 *
 * Why nothing is left lying. A pusher P writes the queue (or the pending), then reads the token; a
 * holder H writes the token (gives it back), then reads queue and pending. All four are
 * sequentially consistent, so they have one order for all threads. If P reads the token as taken,
 * H's giving it back comes later in that order, hence H's reading of the queue comes later than P's
 * push: H sees it and tries for the token again.
 *
 * Nor does it hold a thread for ever. While others go on queueing, the holder would send for them
 * without end; so a turn packs a bounded part of the queue, and after MOST_TURNS the holder leaves
 * the rest to the I/O thread, which itself goes back to receiving, and keeping time, in between.
 *
 * Why a channel may go from thread to thread. ZeroMQ asks for a full fence between two threads'
 * uses. The token is given back by a sequentially consistent store after the last use and taken by
 * a sequentially consistent exchange, which reads that store, before the next one. */
#include <assert.h>
#include <sched.h>

#include "io/net/network_private.h"

/* How many turns with the token in a row a thread takes for what others go on queueing; then the
 * I/O thread goes on with it, between its other duties. */
#define MOST_TURNS 8

/* Once so many bytes of requests wait they are sent at once, even if that has time. */
#define SOON_BYTES ((size_t)16 << 10)

static bool has_work(Peer *peer)
{
    /* Both sequentially consistent: see the top. */
    return atomic_load(&peer->queue) != NULL || atomic_load(&peer->pending) != 0;
}

static bool take_token(Peer *peer)
{
    /* The load alone is what counts if it finds the token taken: see the top. The exchange acquires
     * what the last holder did, and is the fence that ZeroMQ asks for. */
    return atomic_load(&peer->token) == 0 && atomic_exchange(&peer->token, 1) == 0;
}

static void give_token(Peer *peer)
{
    atomic_store(&peer->token, 0);
}

/* The queued frames, the oldest first. */
static Frame *take_queue(Peer *peer)
{
    /* Acquire: pairs with the pushes, so that the frames' bytes are seen. Release: pairs with
     * is_peer_done, which sees that the token is taken. */
    Frame *newest = atomic_exchange_explicit(&peer->queue, NULL, memory_order_acq_rel);
    Frame *oldest = NULL;

    atomic_store_explicit(&peer->charged_taken,
                          atomic_load_explicit(&peer->charged, memory_order_relaxed),
                          memory_order_relaxed);

    while (newest != NULL) {
        Frame *const next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    return oldest;
}

static void drop_frames(Frame *frame)
{
    while (frame != NULL) {
        Frame *const next = frame->next;
        frame_free(frame);
        frame = next;
    }
}

static void drop_queue(Peer *peer)
{
    drop_frames(peer->frames);
    peer->frames = NULL;
    drop_frames(take_queue(peer));
}

/* Packs what is queued behind what the link already has; of much only a part, and pending for the
 * rest. */
static void pack(Peer *peer)
{
    size_t packed_bytes = 0;

    if (peer->frames == NULL) {
        peer->frames = take_queue(peer);
        for (const Frame *frame = peer->frames; frame != NULL; frame = frame->next)
            count(&peer->n_messages_sent[frame->header.kind], 1);
    }
    while (peer->frames != NULL && packed_bytes < peer->network->turn_bytes) {
        Packet *const packet = packet_take(&peer->frames, peer->network->joined_bytes);
        packed_bytes += packet->size;
        link_sender_add(&peer->sender, packet);
    }
    if (peer->frames != NULL)
        peer_set_pending(peer, PENDING_RUN);
}

/* Writes the header that tells the peer all that there is to tell, and remembers that. */
static void write_header(Peer *peer, Packet *packet, uint32_t flags)
{
    const Network *const network = peer->network;
    /* Relaxed: plain numbers that only grow; an older one is told again later. */
    const uint64_t ack = atomic_load_explicit(&peer->received, memory_order_relaxed);
    const uint64_t consumed = atomic_load_explicit(&peer->consumed, memory_order_relaxed);
    const PacketHeader header = {
        .sender = network->self,
        .flags = flags,
        .run_id = network->run_id,
        .incarnation = network->incarnation,
        .sequence = packet->sequence,
        .ack = ack,
        .consumed = consumed,
        .payload_bytes = (uint32_t)(packet->size - WIRE_PACKET_HEADER_BYTES),
        .n_messages = packet->n_messages,
    };

    wire_write_packet_header(packet->bytes, &header);
    atomic_store_explicit(&peer->told_ack, ack, memory_order_relaxed);
    atomic_store_explicit(&peer->told_consumed, consumed, memory_order_relaxed);
}

static void send_packet(Peer *peer, Packet *packet)
{
    count(&peer->n_packets_sent, 1);
    count(&peer->n_bytes_sent, packet->size);
    peer->channel->ops->send(peer->channel, packet);
}

/* Sends a packet without messages. */
static void send_bare(Peer *peer, uint32_t flags)
{
    Packet *const packet = packet_new(WIRE_PACKET_HEADER_BYTES);

    if (packet == NULL)
        return; /* will be made pending again */
    write_header(peer, packet, flags);
    count(&peer->n_acks_sent, 1);
    send_packet(peer, packet);
    packet_unref(packet);
}

/* Sends what the link lets out; whether a header with the latest news was among it. */
static bool send_all(Peer *peer, int64_t now_ms)
{
    bool told = false, again;
    Packet *packet;

    while ((packet = link_sender_next(&peer->sender, now_ms, &again)) != NULL) {
        if (again) {
            /* A transport may just have given it back, but nobody writes into a packet that was
             * once sent: its old news does no harm. */
            count(&peer->n_resent, 1);
            peer->channel->ops->send(peer->channel, packet);
            continue;
        }
        write_header(peer, packet, 0);
        /* Before it goes out: an acknowledgement of it may come at any time after. Relaxed: see
         * check_news. */
        atomic_store_explicit(&peer->highest_sent, packet->sequence, memory_order_relaxed);
        send_packet(peer, packet);
        told = true;
    }
    return told;
}

/* Looks how the connection is. True: it was made anew; what was last told may be lost, too. */
static bool look_at_connection(Peer *peer, int64_t now_ms)
{
    const ChannelOps *const ops = peer->channel->ops;

    atomic_store_explicit(&peer->state, ops->state(peer->channel), memory_order_relaxed);
    const uint32_t n_resets = ops->n_resets != NULL ? ops->n_resets(peer->channel) : 0;
    if (n_resets == peer->n_resets)
        return false;
    peer->n_resets = n_resets;
    link_sender_reset(&peer->sender, now_ms);
    return true;
}

/* Everything that the holder of the token does. */
static void run(Peer *peer)
{
    /* Acquire: pairs with peer_set_pending's release; what the flag stands for is seen. */
    const uint32_t pending = atomic_exchange_explicit(&peer->pending, 0, memory_order_acquire);

    if (peer->channel == NULL) {
        drop_queue(peer);
        return;
    }
    const int64_t now_ms = network_now_ms();
    link_sender_ack(&peer->sender, atomic_load_explicit(&peer->its_ack, memory_order_relaxed),
                    now_ms);
    if (pending & PENDING_GO_BACK)
        link_sender_go_back(&peer->sender, now_ms);
    const bool is_new = (pending & PENDING_STATE) && look_at_connection(peer, now_ms);
    link_sender_tick(&peer->sender, now_ms);
    pack(peer);

    const bool told = send_all(peer, now_ms);
    const uint32_t flags = (pending & PENDING_ASK ? (uint32_t)PACKET_ASK : 0) |
                           (pending & PENDING_AGAIN ? (uint32_t)PACKET_AGAIN : 0);
    if (flags != 0 || (((pending & PENDING_ACK) || is_new) && !told))
        send_bare(peer, flags);

    /* Relaxed: the I/O thread looks again and again. */
    atomic_store_explicit(&peer->resend_at, peer->sender.resend_at, memory_order_relaxed);
    atomic_store_explicit(&peer->kept_packets, peer->sender.kept_packets, memory_order_relaxed);
    atomic_store_explicit(&peer->kept_bytes, peer->sender.kept_bytes, memory_order_relaxed);
    atomic_store_explicit(&peer->held_back, peer->sender.cursor != NULL, memory_order_relaxed);
}

/* Has the I/O thread flush all peers. Whoever finds that somebody has asked already need not wake
 * it: its exchange will read what ours has written, or something later, and so see what we
 * pushed. */
static void leave_to_io_thread(Network *network)
{
    /* Release: pairs with the I/O thread's acquire. */
    if (!atomic_exchange_explicit(&network->unflushed, true, memory_order_release))
        network_wake_io_thread(network);
}

void peer_flush(Peer *peer)
{
    for (unsigned turns = 0; has_work(peer); turns++) {
        if (turns == MOST_TURNS) {
            leave_to_io_thread(peer->network);
            return;
        }
        if (!take_token(peer))
            return;
        run(peer);
        give_token(peer);
    }
}

void peer_set_pending(Peer *peer, uint32_t pending)
{
    atomic_fetch_or(&peer->pending, pending); /* sequentially consistent: see the top */
}

void peer_close(Peer *peer, unsigned linger_ms)
{
    /* Holders never wait for anything: the token comes soon. */
    while (!take_token(peer))
        sched_yield();
    if (peer->channel != NULL) {
        peer->channel->ops->close(peer->channel, linger_ms);
        peer->channel = NULL;
        link_sender_clear(&peer->sender);
        atomic_store_explicit(&peer->resend_at, LINK_NEVER, memory_order_relaxed);
        atomic_store_explicit(&peer->kept_packets, 0, memory_order_relaxed);
        atomic_store_explicit(&peer->kept_bytes, 0, memory_order_relaxed);
        atomic_store_explicit(&peer->held_back, false, memory_order_relaxed);
        atomic_store_explicit(&peer->state, NETWORK_FORGOTTEN, memory_order_relaxed);
    }
    drop_queue(peer);
    give_token(peer);
    peer_flush(peer); /* what came meanwhile is dropped */
}

Frame *network_new_frame(Network *network, const WireHeader *header)
{
    return frame_new_from(network->pool, header);
}

void network_push(Network *network, uint32_t node, Frame *frame)
{
    Peer *const peer = network_peer(network, node);

    assert(peer != NULL);
    if (peer == NULL || atomic_load_explicit(&network->stopped, memory_order_relaxed)) {
        frame_free(frame);
        return;
    }
    if (wire_is_charged(frame->header.kind))
        atomic_fetch_add_explicit(&peer->charged, wire_message_bytes(&frame->header),
                                  memory_order_relaxed);
    /* Sequentially consistent: see the top. It also releases the frame's bytes to take_queue. */
    Frame *newest = atomic_load_explicit(&peer->queue, memory_order_relaxed);
    do
        frame->next = newest;
    while (!atomic_compare_exchange_weak(&peer->queue, &newest, frame));
}

void network_flush(Network *network, uint32_t node)
{
    Peer *const peer = network_peer(network, node);

    if (peer != NULL)
        peer_flush(peer);
}

void network_flush_soon(Network *network, uint32_t node)
{
    Peer *const peer = network_peer(network, node);

    if (peer == NULL || !has_work(peer))
        return;
    /* Relaxed, both: whoever is wrong about it sends a little more, or less, at once. */
    const uint64_t charged = atomic_load_explicit(&peer->charged, memory_order_relaxed);
    const uint64_t taken = atomic_load_explicit(&peer->charged_taken, memory_order_relaxed);

    if (peer->transport->is_memory || charged - taken >= SOON_BYTES)
        peer_flush(peer);
    else
        leave_to_io_thread(network);
}

void network_send(Network *network, uint32_t node, Frame *frame)
{
    network_push(network, node, frame);
    network_flush(network, node);
}

uint64_t network_charged_bytes(const Network *network, uint32_t node)
{
    Peer *const peer = network_peer(network, node);

    if (peer == NULL)
        return 0;
    const uint64_t consumed = atomic_load_explicit(&peer->its_consumed, memory_order_relaxed);
    const uint64_t charged = atomic_load_explicit(&peer->charged, memory_order_relaxed);
    return charged - MIN(charged, consumed);
}

bool network_has_room(const Network *network, uint32_t node)
{
    Peer *const peer = network_peer(network, node);

    if (peer == NULL || atomic_load_explicit(&peer->forgotten, memory_order_relaxed))
        return true;
    const uint64_t charged = atomic_load_explicit(&peer->charged, memory_order_relaxed);
    /* Sequentially consistent: a waiter has counted itself before it reads, the I/O thread looks
     * for waiters after it has written. One of them sees the other. */
    const uint64_t consumed = atomic_load(&peer->its_consumed);
    return charged <= consumed || charged - consumed < network->window_bytes;
}

/* A waiter looks up now and then. */
#define LONGEST_WAIT_MS 50

bool network_wait_room(Network *network, uint32_t node, bool (*cancelled)(void *user), void *user,
                       int timeout_ms)
{
    Peer *const peer = network_peer(network, node);
    bool room = network_has_room(network, node);

    if (room || peer == NULL)
        return room;
    const int64_t end_ms = timeout_ms < 0 ? INT64_MAX : network_now_ms() + timeout_ms;

    atomic_fetch_add(&peer->n_waiters, 1); /* sequentially consistent: see network_has_room */
    pthread_mutex_lock(&network->lock);
    while (!(room = network_has_room(network, node))) {
        const int64_t now_ms = network_now_ms();
        if (now_ms >= end_ms || atomic_load_explicit(&network->stopping, memory_order_relaxed))
            break;
        pthread_mutex_unlock(&network->lock);
        const bool is_cancelled = cancelled != NULL && cancelled(user);
        pthread_mutex_lock(&network->lock);
        if (is_cancelled)
            break;
        if (network_has_room(network, node))
            continue;
        monotonic_wait(&network->room, &network->lock, MIN(end_ms, now_ms + LONGEST_WAIT_MS));
    }
    pthread_mutex_unlock(&network->lock);
    /* Relaxed: whoever still counts it wakes nobody, or asks the peer in vain. */
    atomic_fetch_sub_explicit(&peer->n_waiters, 1, memory_order_relaxed);
    return room;
}

void network_wake_waiters(Network *network)
{
    pthread_mutex_lock(&network->lock);
    pthread_cond_broadcast(&network->room);
    pthread_mutex_unlock(&network->lock);
}

void network_forget(Network *network, uint32_t node)
{
    Peer *const peer = network_peer(network, node);

    /* Relaxed: it only says who closes; whoever has not seen it yet sends or receives once more. */
    if (peer == NULL || atomic_exchange_explicit(&peer->forgotten, true, memory_order_relaxed))
        return;
    peer_close(peer, /* linger_ms= */ 0);
    network_wake_waiters(network);
}
