/* Taking in what comes: packets are checked and handed over, and peers are served.
 *
 * Threads: the one that holds `receiving`: the I/O thread (network_thread.c) or a helper
 * (network_help.c).
 *
 * No packet is trusted. A wrong one is counted, logged now and then, and dropped. A packet is
 * acknowledged once the handler has it. `consumed` tells that servers have handled its requests;
 * the other side's producers wait for that: see network_parcel.c. */
#include <inttypes.h>

#include "io/net/network/network_parcel.h"
#include "io/net/network/network_private.h"

/* After this many batches that asked only some transports, all are asked. */
#define MOST_PARTIAL 64

/* At most one line about wrong packets in this many ms. */
#define COMPLAINT_MS 1000

static void complain(Network *network, Received *received, const Peer *peer, const char *what)
{
    const int64_t now_ms = network_now_ms();

    count(&network->n_bad, 1);
    if (now_ms - network->complained_at < COMPLAINT_MS) {
        network->n_unsaid++;
        return;
    }
    g_autofree char *from =
        peer != NULL ? g_strdup_printf(" (node number %" PRIu32 ")", peer->number) : g_strdup("");
    g_warning("dropped a packet of %zu bytes from %s%s: %s; %" PRIu64
              " more since the last such line",
              received->size, received->ops->address(received), from, what, network->n_unsaid);
    network->complained_at = now_ms;
    network->n_unsaid = 0;
}

static void take_greeting(Network *network, const Transport *transport, Received *received,
                          uint16_t version)
{
    size_t body_bytes;
    const char *fault = wire_read_greeting(received->bytes, received->size, &body_bytes);

    if (fault == NULL && !received->is_answer && received->connection == 0)
        fault = "it is a greeting on a connection that is not for greetings";
    if (fault != NULL) {
        complain(network, received, NULL, fault);
        return;
    }
    /* A copy, because a variant may live long and needs aligned bytes. */
    g_autoptr(GBytes) bytes = g_bytes_new(received->bytes + WIRE_PREFIX_BYTES, body_bytes);
    g_autoptr(GVariant) boxed =
        g_variant_ref_sink(g_variant_new_from_bytes(G_VARIANT_TYPE_VARIANT, bytes, FALSE));
    if (!g_variant_is_normal_form(boxed)) {
        complain(network, received, NULL, "the body of its greeting makes no sense");
        return;
    }
    g_autoptr(GVariant) body = g_variant_get_variant(boxed);
    const GreetingSource source = {
        .address = received->ops->address(received),
        .is_answer = received->is_answer,
        .asker = network_asker(network, transport, received->connection),
    };
    count(&network->n_greetings_received, 1);
    network->handler.greeted(network->user, version, body, &source);
}

/* Hands over the messages of a packet that is the next one of its link. */
static void hand_over(Network *network, Parcel *parcel, uint32_t n_messages)
{
    for (uint32_t i = 0; i < n_messages; i++) {
        Incoming *const incoming = &parcel_item(parcel, i)->incoming;

        count(&network->n_messages_received[incoming->header.kind], 1);
        if (incoming->header.is_high)
            parcel->peer->handed_high += parcel_item(parcel, i)->charge;
        else
            parcel->peer->handed += parcel_item(parcel, i)->charge;
        network->handler.receive(network->user, incoming);
    }
    peer_check_window(parcel->peer);
}

uint64_t network_handed(const Network *network, uint32_t node)
{
    const Peer *const peer = network_peer(network, node);

    /* Relaxed: a caller with an old value asks again. */
    if (peer == NULL || atomic_load_explicit(&peer->forgotten, memory_order_relaxed))
        return UINT64_MAX;
    return peer->handed;
}

/* Uses what the header tells about the other direction. */
static void take_news(Network *network, Peer *peer, const PacketHeader *header, int64_t now_ms)
{
    const uint64_t its_ack = atomic_load_explicit(&peer->its_ack, memory_order_relaxed);
    const uint64_t its_consumed = atomic_load_explicit(&peer->its_consumed, memory_order_relaxed);

    if (header->ack > its_ack) {
        atomic_store_explicit(&peer->its_ack, header->ack, memory_order_relaxed);
        /* Otherwise there is no hurry: the next frame or the next tick does it. A call waits until
         * its values are not needed any more (direct_write.h). */
        if (atomic_load_explicit(&network->stopping, memory_order_relaxed) ||
            atomic_load_explicit(&peer->direct_until, memory_order_relaxed) > its_ack ||
            atomic_load_explicit(&peer->held_back, memory_order_relaxed) ||
            atomic_load_explicit(&peer->kept_bytes, memory_order_relaxed) > peer_window(peer) / 8)
            peer_set_pending(peer, PENDING_RUN);
    }
    if (header->consumed > its_consumed) {
        /* Sequentially consistent, both: see network_has_room. */
        atomic_store(&peer->its_consumed, header->consumed);
        peer->asked_at = now_ms; /* news come: they need not be asked for */
        if (atomic_load(&peer->n_waiters) > 0)
            network_wake_waiters(network);
    }
    if (header->flags & PACKET_ASK)
        peer->receiver.ack_now = true;
    if (header->flags & PACKET_AGAIN)
        peer_set_pending(peer, PENDING_GO_BACK);
    peer->touched = true;
}

/* The peer that sent a packet with this header; NULL for a stranger. */
static Peer *find_sender(Network *network, const PacketHeader *header)
{
    Peer *const peer = network_peer(network, header->sender);

    if (peer == NULL || header->run_id != network->run_id ||
        header->incarnation != peer->incarnation || peer_is_gone(peer))
        return NULL;
    return peer;
}

/* Says what is false in a peer's header: it acknowledges packets, or has consumed bytes, that were
 * never sent. */
static const char *check_news(Peer *peer, const PacketHeader *header)
{
    /* Relaxed, both: a true number has gone to the peer and back, over transports that order
     * memory. So the stores before it was sent happened before these loads. */
    if (header->ack > atomic_load_explicit(&peer->highest_sent, memory_order_relaxed))
        return "it acknowledges what was never sent";
    if (header->consumed > peer_charged(peer))
        return "it has consumed what was never sent";
    return NULL;
}

static void tell_accepted(Received *received, uint64_t number)
{
    if (received->ops->accept != NULL)
        received->ops->accept(received, number);
}

static void take_numbered(Network *network, Peer *peer, Received *received,
                          const PacketHeader *header, int64_t now_ms, bool *moved)
{
    const uint64_t told = atomic_load_explicit(&peer->told_ack, memory_order_relaxed);
    const size_t size = received->size;
    const bool is_next = header->sequence == peer->receiver.received + 1;
    uint8_t *bytes = NULL;
    Parcel *parcel = NULL;

    if (is_next) {
        parcel = parcel_new(peer, received, header->n_messages, &bytes);
        if (parcel == NULL) {
            complain(network, received, peer, "there is no memory for it; it will come again");
            link_fault_clear(&peer->fault); /* it is no fault of the peer's */
            return;
        }
        *moved = parcel->holds_received;
        /* A packet counts as a whole or not at all. A wrong one is not acknowledged: it comes
         * again, and may only have been damaged on its way. */
        const char *const fault = parcel_unpack(parcel, bytes, size, header->n_messages);
        if (fault != NULL) {
            complain(network, *moved ? &parcel->received : received, peer, fault);
            parcel_drop(parcel);
            peer_note_fault(peer, fault, now_ms);
            return;
        }
    }
    switch (link_receiver_take(&peer->receiver, header->sequence, size, told, now_ms)) {
    case LINK_DUPLICATE:
        count(&network->n_duplicates, 1);
        break;
    case LINK_EARLY:
        count(&network->n_early, 1);
        peer_note_fault(peer, "later ones come instead", now_ms);
        break;
    case LINK_NEW:
        link_fault_clear(&peer->fault);
        atomic_store_explicit(&peer->advanced_ms, now_ms, memory_order_relaxed);
        atomic_store_explicit(&peer->received, peer->receiver.received, memory_order_relaxed);
        tell_accepted(*moved ? &parcel->received : received, peer->receiver.received);
        hand_over(network, parcel, header->n_messages);
        parcel_unref(parcel);
        break;
    }
}

/* Whether the packet comes from the node that made the handshake on its connection. */
static bool is_of_sender(const Received *received, const PacketHeader *header)
{
    return !received->is_answer &&
           (received->node == HANDSHAKE_ANY_NODE ||
            (header->sender == received->node &&
             (received->incarnation == 0 || header->incarnation == received->incarnation)));
}

static bool begin_direct(void *user, const Received *received, DirectRead *direct)
{
    Network *const network = user;
    uint16_t version;
    PacketKind kind;
    PacketHeader header;
    WireHeader message;

    if (wire_read_prefix(received->bytes, received->size, &version, &kind) != NULL ||
        kind != PACKET_LINK ||
        wire_read_packet_header(received->bytes, received->size, &header) != NULL ||
        header.n_messages != 1 || !is_of_sender(received, &header) ||
        wire_read_message(received->bytes + WIRE_PACKET_HEADER_BYTES,
                          received->size - WIRE_PACKET_HEADER_BYTES, &message) != NULL ||
        (message.kind != MESSAGE_REPLY && message.kind != MESSAGE_TENSOR) ||
        message.value_bytes != received->size - DIRECT_HEAD_BYTES)
        return false;
    Peer *const peer = find_sender(network, &header);
    const bool begins = peer != NULL && header.sequence == peer->receiver.received + 1 &&
                        network->handler.begin_direct(network->user, peer->number, &message,
                                                      received->bytes + DIRECT_HEAD_BYTES, direct);
    count(&network->n_direct_reads, begins);
    return begins;
}

static void end_direct(void *user, DirectRead *direct)
{
    const Network *const network = user;

    network->handler.end_direct(network->user, direct);
}

DirectReader network_direct_reader(Network *network)
{
    return network->drops_replies && network->handler.begin_direct != NULL
               ? (DirectReader){ .begin = begin_direct, .end = end_direct, .user = network }
               : (DirectReader){ 0 };
}

/* Handles a packet. *moved: another owner has it now. */
static void take_packet(Network *network, const Transport *transport, Received *received,
                        int64_t now_ms, bool *moved)
{
    uint16_t version;
    PacketKind kind;
    PacketHeader header;

    count(&network->n_packets_received, 1);
    count(&network->n_bytes_received, received->size);
    const char *fault = received->misshapen
                            ? "it does not consist of one part"
                            : wire_read_prefix(received->bytes, received->size, &version, &kind);
    if (fault == NULL && kind == PACKET_GREETING) {
        take_greeting(network, transport, received, version);
        return;
    }
    if (fault == NULL)
        fault = wire_read_packet_header(received->bytes, received->size, &header);
    if (fault == NULL && !is_of_sender(received, &header))
        fault = "it says that it is of another node than the one that sent it";
    if (fault != NULL) {
        Peer *const prover = network_find_prover(network, received);
        complain(network, received, prover, fault);
        if (prover != NULL)
            peer_note_fault(prover, fault, now_ms);
        return;
    }
    Peer *const peer = find_sender(network, &header);
    if (peer == NULL) {
        count(&network->n_strangers, 1);
        return;
    }
    fault = check_news(peer, &header);
    if (fault != NULL) {
        complain(network, received, peer, fault);
        peer_note_fault(peer, fault, now_ms);
        return;
    }
    atomic_store_explicit(&peer->heard_ms, now_ms, memory_order_relaxed);
    take_news(network, peer, &header, now_ms);
    if (header.sequence != 0)
        take_numbered(network, peer, received, &header, now_ms, moved);
}

static bool takes_more(const Network *network)
{
    return network->handler.takes_more == NULL || network->handler.takes_more(network->user);
}

/* Handles the packets that have come by one transport, up to a limit, or until the handler has
 * enough. The limits are each transport's own, so that none waits for another that always has
 * more. */
static Batch receive_from(Network *network, size_t i, bool only_seen, unsigned most, int64_t now_ms)
{
    Transport *const transport = network->transports[i];
    Received received;
    bool may_be_more = false;
    unsigned n = 0;

    while (!only_seen || network_glance(network, i) == GLANCE_SOME) {
        bool moved = false;
        may_be_more = n == most || (n > 0 && !takes_more(network));
        if (may_be_more)
            break;
        if (!transport->ops->receive(transport, &received)) {
            network->is_quiet[i] = false;
            break;
        }
        take_packet(network, transport, &received, now_ms, &moved);
        if (!moved)
            received.ops->release(&received);
        n++;
    }
    if (n == 0)
        return BATCH_NOTHING;
    network->giver = transport;
    if (network->handler.received != NULL)
        network->handler.received(network->user);
    return may_be_more ? BATCH_MORE : BATCH_SOME;
}

/* A connection was made again: serves all peers, which check whether it was theirs. */
static void note_resets(Network *network)
{
    for (uint32_t i = 0; i < network->n_nodes; i++) {
        Peer *const peer = network_peer(network, i);
        if (peer == NULL)
            continue;
        peer_set_pending(peer, PENDING_STATE);
        peer->touched = true;
    }
}

/* Handles the packets that have come, up to a limit. */
static Batch receive_batch(Network *network, Reach reach, unsigned most, int64_t now_ms)
{
    Batch batch = BATCH_NOTHING;

    if (reach == REACH_ALL || ++network->n_partial == MOST_PARTIAL) {
        reach = REACH_ALL;
        network->n_partial = 0;
    }
    for (size_t i = 0; i < network->n_transports; i++) {
        if (reach != REACH_ALL && !network->is_quiet[i])
            continue;
        Transport *const transport = network->transports[i];
        const Batch its_batch = receive_from(network, i, reach == REACH_SEEN, most, now_ms);
        if (transport->ops->take_resets != NULL && transport->ops->take_resets(transport))
            note_resets(network);
        batch = MAX(batch, its_batch);
    }
    return batch;
}

/* Sends what a peer must get. Returns when to call this again. */
static int64_t serve(Network *network, Peer *peer, int64_t now_ms)
{
    const uint64_t told = atomic_load_explicit(&peer->told_ack, memory_order_relaxed);
    const int64_t ack_due = link_receiver_due(&peer->receiver, told, now_ms);
    const int64_t resend_at = atomic_load_explicit(&peer->resend_at, memory_order_relaxed);
    const unsigned again_ms = link_least_wait_ms(network->resend_ms);

    if (ack_due <= now_ms)
        peer_set_pending(peer, PENDING_ACK);
    /* A sender that was asked a moment ago goes back when a round trip is over, and no sooner: see
     * link_sender_go_back. */
    if (link_fault_asks(&peer->fault, again_ms, now_ms))
        peer_set_pending(peer, PENDING_AGAIN);
    if (resend_at <= now_ms)
        peer_set_pending(peer, PENDING_RUN);
    if (atomic_load_explicit(&peer->n_waiters, memory_order_relaxed) > 0 &&
        now_ms - peer->asked_at >= (peer_loses_packets(peer) ? again_ms : network->resend_ms)) {
        peer->asked_at = now_ms; /* its last news may be lost */
        peer_set_pending(peer, PENDING_ASK);
    }
    peer_flush(peer);
    peer->touched = false;
    /* The I/O thread may sleep while a helper receives. Where nothing is lost, an acknowledgement
     * may wait for the tick. */
    if (ack_due > now_ms && peer_loses_packets(peer))
        network_note_timer(network, ack_due);
    return MIN(ack_due > now_ms ? ack_due : LINK_NEVER,
               resend_at > now_ms ? resend_at : LINK_NEVER);
}

/* Serves peers: all of them, or those from which packets came. */
static int64_t serve_peers(Network *network, int64_t now_ms, bool all)
{
    int64_t next = LINK_NEVER;

    for (uint32_t i = 0; i < network->n_nodes; i++) {
        Peer *const peer = network_peer(network, i);
        if (peer != NULL && (all || peer->touched)) {
            const int64_t its_next =
                serve(network, peer, now_ms); /* once: MIN would call it twice */

            next = MIN(next, its_next);
        }
    }
    return next;
}

Batch network_receive(Network *network, Reach reach, unsigned most, bool serve_all, int64_t now_ms,
                      int64_t *next)
{
    const Batch batch = receive_batch(network, reach, most, now_ms);

    /* Relaxed: the lock of the answers orders them. */
    if (atomic_load_explicit(&network->has_answers, memory_order_relaxed) &&
        atomic_exchange_explicit(&network->has_answers, false, memory_order_relaxed))
        network_send_answers(network);
    *next = serve_peers(network, now_ms, serve_all);
    return batch;
}
