/* The sending side: from any thread straight into the peer's socket.
 *
 * Threads: any. Each peer has a queue, a last-in-first-out list that anybody pushes onto with a
 * compare-and-swap, and a token. A thread that has pushed tries to take the token. If it gets the
 * token, it takes the whole queue, reverses it, packs it and sends. If not, it leaves at once,
 * because the holder looks again after it has given the token back. So no frame waits for another
 * thread, and frames that several threads push at the same time become one packet.
 *
 * Why no frame is forgotten. A pusher P writes the queue (or the pending), then reads the token; a
 * holder H writes the token (gives it back), then reads queue and pending. All four are
 * sequentially consistent, so they have one order for all threads. If P reads the token as taken, H
 * gives it back later in that order. Hence H reads the queue after P's push: H sees the frame and
 * tries to take the token again.
 *
 * Why no thread sends for ever. While other threads continue to push, the holder would send for
 * them without end. So a turn packs a bounded part of the queue. After MOST_TURNS the holder leaves
 * the rest to the I/O thread, which receives and serves its timers between its turns.
 *
 * Why a channel may pass from thread to thread. ZeroMQ requires a full fence between the uses of
 * two threads. The token is given back by a sequentially consistent store after the last use and
 * taken by a sequentially consistent exchange, which reads that store, before the next one. */
#include <assert.h>
#include <sched.h>

#include "io/net/network/network_private.h"

/* How many turns in a row a thread sends what others continue to push. Then the I/O thread
 * continues, between its other duties. */
#define MOST_TURNS 8

/* Smaller messages had better share a packet. */
#define LEAST_VALUES_BYTES ((size_t)64 << 10)

/* For so long after a message of high priority other messages are packed late and cut small, so
 * that the next message of high priority finds less before it. */
#define HIGH_MS 1000

/* When this many bytes of requests wait, they are sent at once, even if they are not urgent. */
#define SOON_BYTES ((size_t)16 << 10)

/* From so many bytes of kept packets on, it is worth a look which of them have come. */
#define MUCH_KEPT_BYTES ((size_t)256 << 10)

static bool has_work(Peer *peer)
{
    /* Both sequentially consistent: see the top. */
    return atomic_load(&peer->queue) != NULL || atomic_load(&peer->pending) != 0;
}

static bool take_token(Peer *peer)
{
    /* If the load finds the token taken, only the load matters: see the top. The exchange acquires
     * what the last holder did, and is the fence that ZeroMQ requires. */
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

    atomic_store_explicit(&peer->charged_taken, peer_charged(peer), memory_order_relaxed);

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
    send_queue_clear(&peer->frames);
    drop_frames(take_queue(peer));
}

/* Takes the queue, and puts each frame into the send queue, which orders by priority. */
static void sort_queue(Peer *peer, int64_t now_ms)
{
    Frame *const first = take_queue(peer), *last = NULL;
    bool has_high = false;

    for (Frame *frame = first; frame != NULL; frame = frame->next) {
        count(&peer->n_messages_sent[frame->header.kind], 1);
        has_high |= frame->header.is_high;
        last = frame;
    }
    if (first != NULL)
        send_queue_add(&peer->frames, first, last, has_high);
    if (has_high) /* relaxed: an old value only lets more, or less, be packed */
        atomic_store_explicit(&peer->high_ms, now_ms, memory_order_relaxed);
}

/* Whether frames of high priority were sent to the peer a moment ago. */
static bool hurries(const Peer *peer, int64_t now_ms)
{
    return now_ms - atomic_load_explicit(&peer->high_ms, memory_order_relaxed) < HIGH_MS;
}

/* The most bytes that are packed and not acknowledged. Packed frames keep their place. So if frames
 * of high priority were sent a moment ago, less is packed, and the next one can overtake more. */
static size_t most_kept(const Peer *peer, int64_t now_ms)
{
    const Network *const network = peer->network;

    if (!hurries(peer, now_ms))
        return network->out_bytes;
    return peer->transport->is_memory ? network->near_high_out_bytes : network->high_out_bytes;
}

/* Packs the queue behind the packets that the link already has, as far as the link may send. Of a
 * long queue packs only a part, and sets pending for the rest. */
static void pack(Peer *peer, int64_t now_ms)
{
    const size_t joined_bytes = peer->network->joined_bytes;
    size_t packed_bytes = 0;

    sort_queue(peer, now_ms);
    const size_t most = most_kept(peer, now_ms);
    while (!send_queue_is_empty(&peer->frames) && packed_bytes < peer->network->turn_bytes &&
           peer->sender.kept_bytes < most) {
        Packet *const packet = send_queue_take(&peer->frames, joined_bytes);

        packed_bytes += packet->size;
        link_sender_add(&peer->sender, packet);
        if (packet->direct != NULL) /* relaxed: as highest_sent */
            atomic_store_explicit(&peer->direct_until, packet->sequence, memory_order_relaxed);
    }
    if (!send_queue_is_empty(&peer->frames) && peer->sender.kept_bytes < most)
        peer_set_pending(peer, PENDING_RUN);
}

/* Writes the header with all news for the peer, and remembers what it told. */
static void write_header(Peer *peer, Packet *packet, uint32_t flags)
{
    const Network *const network = peer->network;
    /* Relaxed: plain numbers that only grow. If an older one is told, a later header corrects
     * it. */
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

/* Sends the packets that the link allows. Returns whether one of them has a header with the latest
 * news. */
static bool send_all(Peer *peer, int64_t now_ms)
{
    /* If little may be packed, the next packet waits for the acknowledgement of this one. */
    const uint32_t flags = hurries(peer, now_ms) ? PACKET_ASK : 0;
    bool told = false, again;
    Packet *packet;

    while ((packet = link_sender_next(&peer->sender, now_ms, &again)) != NULL) {
        if (again) {
            /* A transport may just have given it back, but no thread writes into a packet that was
             * sent once. Its old news does no harm. */
            count(&peer->n_resent, 1);
            peer->channel->ops->send(peer->channel, packet);
            continue;
        }
        write_header(peer, packet, flags);
        /* Before it is sent, because its acknowledgement may come at any time after. Relaxed: see
         * check_news. */
        atomic_store_explicit(&peer->highest_sent, packet->sequence, memory_order_relaxed);
        send_packet(peer, packet);
        told = true;
    }
    return told;
}

/* Checks the connection. True: it was made again, and the last news may be lost. */
static bool look_at_connection(Peer *peer, int64_t now_ms)
{
    const ChannelOps *const ops = peer->channel->ops;

    atomic_store_explicit(&peer->state, ops->state(peer->channel), memory_order_relaxed);
    atomic_store_explicit(&peer->is_refused,
                          ops->is_refused != NULL && ops->is_refused(peer->channel),
                          memory_order_relaxed);
    const uint32_t n_resets = ops->n_resets != NULL ? ops->n_resets(peer->channel) : 0;
    if (n_resets == peer->n_resets)
        return false;
    peer->n_resets = n_resets;
    link_sender_reset(&peer->sender, now_ms);
    return true;
}

/* Tells the I/O thread how the link stands. */
static void note_sent(Peer *peer)
{
    /* Relaxed: the I/O thread looks again and again. */
    atomic_store_explicit(&peer->resend_at, peer->sender.resend_at, memory_order_relaxed);
    network_note_timer(peer->network, peer->sender.resend_at);
    atomic_store_explicit(&peer->kept_packets, peer->sender.kept_packets, memory_order_relaxed);
    atomic_store_explicit(&peer->kept_bytes, peer->sender.kept_bytes, memory_order_relaxed);
    atomic_store_explicit(&peer->held_back,
                          peer->sender.cursor != NULL || !send_queue_is_empty(&peer->frames),
                          memory_order_relaxed);
}

/* Lets packets go that the other link has taken, before it has acknowledged them. The next packets
 * are then written to memory that is still in the processor's cache. Nobody waits for this: the
 * acknowledgement comes in any case. It orders no memory either: the other end reads its own copy,
 * never these packets, and the channel has references to those that it has yet to write. So a false
 * number does as little harm as a false acknowledgement: its sender misses packets. One that is
 * too high is refused by link_sender_ack(). */
static void let_go(Peer *peer, int64_t now_ms)
{
    const ChannelOps *const ops = peer->channel->ops;

    if (peer->sender.kept_bytes >= MUCH_KEPT_BYTES && ops->accepted != NULL)
        (void)link_sender_ack(&peer->sender, ops->accepted(peer->channel), now_ms);
}

/* Does all the work of the token's holder. */
static void run(Peer *peer)
{
    /* Acquire: pairs with peer_set_pending's release, so that the reason of a flag is seen. */
    const uint32_t pending = atomic_exchange_explicit(&peer->pending, 0, memory_order_acquire);

    if (peer->channel == NULL) {
        drop_queue(peer);
        return;
    }
    const int64_t now_ms = network_now_ms();
    link_sender_ack(&peer->sender, atomic_load_explicit(&peer->its_ack, memory_order_relaxed),
                    now_ms);
    let_go(peer, now_ms);
    if (pending & PENDING_GO_BACK)
        link_sender_go_back(&peer->sender, now_ms);
    const bool is_new = (pending & PENDING_STATE) && look_at_connection(peer, now_ms);
    link_sender_tick(&peer->sender, now_ms);
    pack(peer, now_ms);
    if (pending & PENDING_REVOKE) {
        link_sender_revoke(&peer->sender);
        send_queue_revoke(&peer->frames);
    }

    const bool told = send_all(peer, now_ms);
    const uint32_t flags = (pending & PENDING_ASK ? (uint32_t)PACKET_ASK : 0) |
                           (pending & PENDING_AGAIN ? (uint32_t)PACKET_AGAIN : 0);
    if (flags != 0 || (((pending & PENDING_ACK) || is_new) && !told))
        send_bare(peer, flags);

    note_sent(peer);
}

/* Counts the bytes of a request in the peer's window, before another thread can find it in the
 * queue: see network_pushed. */
static void charge(Peer *peer, const Frame *frame)
{
    if (wire_is_charged(frame->header.kind))
        atomic_fetch_add_explicit(frame->header.is_high ? &peer->pushed_high : &peer->pushed,
                                  wire_message_bytes(&frame->header), memory_order_relaxed);
}

/* Sends the frame, which was charged, if nothing has to go before it. The token is held. */
static bool send_values(Peer *peer, Frame *frame, const void *values, size_t n_bytes)
{
    run(peer);
    if (peer->channel == NULL || !peer->channel->ops->takes_values ||
        !send_queue_is_empty(&peer->frames) || peer->sender.cursor != NULL)
        return false;
    Packet *const packet = packet_of_values(frame, values, n_bytes);
    count(&peer->n_messages_sent[frame->header.kind], 1);
    link_sender_add(&peer->sender, packet);
    (void)send_all(peer, network_now_ms());
    packet_gather(packet); /* the link may have held it back */
    note_sent(peer);
    return true;
}

/* Makes the I/O thread flush all peers. A thread that finds the flag already set need not wake it:
 * the I/O thread's exchange will read this thread's store or a later one, and so see the frames
 * pushed here. */
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
    /* Holders never wait, so the token is soon free. */
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
        atomic_store_explicit(&peer->state, NETWORK_PEER_FORGOTTEN, memory_order_relaxed);
    }
    drop_queue(peer);
    give_token(peer);
    peer_flush(peer); /* frames pushed meanwhile are dropped */
}

Frame *network_new_frame(Network *network, const WireHeader *header)
{
    return frame_new_from(network->pool, header);
}

Frame *network_new_direct_frame(Network *network, const WireHeader *header,
                                const DirectWriteSource *source)
{
    return frame_new_direct(network->pool, header, source);
}

bool network_sends_direct(const Network *network, uint32_t node, size_t n_bytes)
{
    const Peer *const peer = network_peer(network, node);

    return n_bytes >= LEAST_VALUES_BYTES && n_bytes % 8 == 0 && peer != NULL &&
           peer->transport->sends_direct && packet_is_alone(n_bytes, network->joined_bytes);
}

void network_revoke_direct(Network *network)
{
    for (uint32_t i = 0; i < network->n_nodes; i++) {
        Peer *const peer = network_peer(network, i);

        if (peer == NULL)
            continue;
        peer_set_pending(peer, PENDING_REVOKE);
        peer_flush(peer);
    }
}

bool network_reads_direct(const Network *network, uint32_t node)
{
    const Peer *const peer = network_peer(network, node);

    /* relaxed, both: what is said of it may be a moment old */
    return peer != NULL && atomic_load_explicit(&peer->direct_until, memory_order_relaxed) >
                               atomic_load_explicit(&peer->its_ack, memory_order_relaxed);
}

/* Puts a frame, which was charged, into the queue. */
static void enqueue(Peer *peer, Frame *frame)
{
    /* Sequentially consistent: see the top. It also releases the frame's bytes to take_queue. */
    Frame *newest = atomic_load_explicit(&peer->queue, memory_order_relaxed);
    do
        frame->next = newest;
    while (!atomic_compare_exchange_weak(&peer->queue, &newest, frame));
}

void network_push(Network *network, uint32_t node, Frame *frame)
{
    Peer *const peer = network_peer(network, node);

    assert(peer != NULL);
    if (peer == NULL || atomic_load_explicit(&network->stopped, memory_order_relaxed)) {
        frame_free(frame);
        return;
    }
    charge(peer, frame);
    enqueue(peer, frame);
}

uint64_t network_pushed(const Network *network, uint32_t node)
{
    const Peer *const peer = network_peer(network, node);

    /* Relaxed: the caller has seen that what it asks for was pushed. */
    return peer == NULL ? 0 : atomic_load_explicit(&peer->pushed, memory_order_relaxed);
}

bool network_takes_values(const Network *network, uint32_t node, size_t n_bytes)
{
    return (network->encrypt || network_is_memory(network, node)) &&
           n_bytes >= LEAST_VALUES_BYTES && n_bytes % 8 == 0;
}

bool network_takes_packed(const Network *network, uint32_t node, size_t n_bytes)
{
    return packet_is_alone(n_bytes, network->joined_bytes) && network_is_memory(network, node);
}

/* The frame's last n_bytes lie at `values`, and have room at `to`. */
static void push_values(Network *network, uint32_t node, Frame *frame, const void *values,
                        size_t n_bytes, void *to)
{
    Peer *const peer = network_peer(network, node);
    const bool has_token = peer != NULL && (network->encrypt || peer->transport->is_memory) &&
                           !atomic_load_explicit(&network->stopped, memory_order_relaxed) &&
                           take_token(peer);
    bool is_sent = false;

    if (has_token) {
        charge(peer, frame);
        is_sent = send_values(peer, frame, values, n_bytes);
        give_token(peer);
    }
    if (!is_sent)
        memcpy(to, values, n_bytes);
    if (!is_sent && has_token)
        enqueue(peer, frame);
    else if (!is_sent)
        network_push(network, node, frame);
    if (has_token)
        peer_flush(peer); /* what others have pushed while this thread had it */
}

void network_push_values(Network *network, uint32_t node, Frame *frame, const void *values)
{
    push_values(network, node, frame, values, (size_t)frame_header(frame)->value_bytes,
                frame_values(frame));
}

void network_push_packed(Network *network, uint32_t node, Frame *frame, const void *packed)
{
    const WireHeader *const header = frame_header(frame);

    push_values(network, node, frame, packed,
                wire_padded((size_t)header->key_bytes) + wire_padded((size_t)header->value_bytes),
                frame_keys(frame));
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
    /* Relaxed, both: an old value only changes a little how much is sent at once. */
    const uint64_t charged = peer_charged(peer);
    const uint64_t taken = atomic_load_explicit(&peer->charged_taken, memory_order_relaxed);

    if (charged - taken < SOON_BYTES && network_leave_for_later(network))
        return;
    if (peer->transport->is_memory || charged - taken >= SOON_BYTES)
        peer_flush(peer);
    else
        leave_to_io_thread(network);
}

void network_flush_later(Network *network, uint32_t node)
{
    if (!network_leave_for_later(network))
        network_flush(network, node);
}

void network_send(Network *network, uint32_t node, Frame *frame)
{
    network_push(network, node, frame);
    network_flush(network, node);
}

bool network_is_full(const Network *network, uint32_t node, unsigned n_windows)
{
    Peer *const peer = network_peer(network, node);

    return peer != NULL && !atomic_load_explicit(&peer->forgotten, memory_order_relaxed) &&
           network_charged_bytes(network, node) >= n_windows * network->window_bytes;
}

bool network_hurries(const Network *network, uint32_t node)
{
    const Peer *const peer = network_peer(network, node);

    /* The time is read only if there were such frames, because each small Add would pay for it. */
    return peer != NULL && atomic_load_explicit(&peer->high_ms, memory_order_relaxed) >= 0 &&
           hurries(peer, network_now_ms());
}

bool network_is_stopping(const Network *network)
{
    return atomic_load_explicit(&network->stopping, memory_order_relaxed);
}

uint64_t network_charged_bytes(const Network *network, uint32_t node)
{
    Peer *const peer = network_peer(network, node);

    if (peer == NULL)
        return 0;
    const uint64_t consumed = atomic_load_explicit(&peer->its_consumed, memory_order_relaxed);
    const uint64_t charged = peer_charged(peer);
    return charged - MIN(charged, consumed);
}

bool network_has_room(const Network *network, uint32_t node)
{
    Peer *const peer = network_peer(network, node);

    if (peer == NULL || atomic_load_explicit(&peer->forgotten, memory_order_relaxed))
        return true;
    const uint64_t charged = peer_charged(peer);
    /* Sequentially consistent: a waiter has counted itself before it reads, the I/O thread looks
     * for waiters after it has written. One of them sees the other. */
    const uint64_t consumed = atomic_load(&peer->its_consumed);
    return charged <= consumed || charged - consumed < peer_window(peer);
}

/* A waiter checks at least this often. */
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
    /* Relaxed: a thread that still counts this waiter wakes nobody, or asks the peer without
     * need. */
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

    /* Relaxed: it only decides which thread closes. A thread that has not seen it yet sends or
     * receives once more. */
    if (peer == NULL || atomic_exchange_explicit(&peer->forgotten, true, memory_order_relaxed))
        return;
    peer_close(peer, /* linger_ms= */ 0);
    network_wake_waiters(network);
}
