/* The I/O thread: takes what comes, checks it, hands it over, and keeps the links' time.
 *
 * Threads: all functions run on the I/O thread, except incoming_free, which runs on any.
 *
 * No packet is trusted. A wrong one is counted, logged now and then, and dropped. A packet is
 * acknowledged once the handler has it. `consumed` tells that servers have handled its requests;
 * the other side's producers wait for that.
 *
 * DESIGN NOTE: the window
 *
 * Requests to a node are charged to its window when they are queued. A request gives back what it
 * takes when its server has answered it, or has handed it to a model that keeps it until a clock
 * comes (incoming_park). A server never waits. So all bytes under way are given back, whatever
 * workers do, and a thread that waits for room gets some as long as the node lives. If a parked Get
 * kept its bytes, the worker whose clock releases it might wait for them for ever.
 *
 * So the window does not bound parked requests. Each worker bounds them on its own side: it waits
 * for one call at a time, and tickets are limited to FlowSizes.ticket_bytes (ticket_start.c). A
 * worker's wait for its tickets ends, too: it is the same wait as if it had waited for each ticket
 * at once. The answer comes when the slowest worker of that table clocks. That is another worker,
 * because Gets at clocks up to the min clock are never parked. The unanswered requests of that
 * worker count for itself only and take no room from others.
 *
 * tests/spin/window.pml explores the exchange with this rule and with the other one. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <unistd.h>

#include "io/net/network_private.h"

/* Packets up to this size are copied out of the transport's memory, which may be a large buffer
 * that they share. */
#define COPIED_BYTES ((size_t)8 << 10)

/* A message that needs less than this part of the memory that it keeps is moved out of it. */
#define SMALL_PART 2

/* Packets handled in a batch, before timers and answers are served. */
#define BATCH_PACKETS 64

/* After so many batches that asked only some transports, all are asked. */
#define MOST_PARTIAL 64

/* At most one line of complaint in so many ms. */
#define COMPLAINT_MS 1000

/* A packet whose messages are being handled, and the messages. */
typedef struct {
    Peer *peer;
    size_t stride; /* from item to item */
    uint32_t n_items;
    size_t packet_bytes;
    _Atomic uint32_t refs;
    bool holds_received;
    bool is_lent; /* one reply, read in the transport's memory */
    Received received;
    _Alignas(16) uint8_t items[];
} Parcel;

typedef struct {
    Incoming incoming;
    size_t charge; /* bytes that it takes of its sender's window */
    size_t parked; /* bytes that it takes of what is kept for its sender */
    _Alignas(16) uint8_t room[];
} Item;

static void parcel_unref(Parcel *parcel)
{
    /* Release and acquire: the thread that frees it does so after all others have finished with
     * it. */
    if (atomic_fetch_sub_explicit(&parcel->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (parcel->holds_received)
        parcel->received.ops->release(&parcel->received);
    g_free(parcel);
}

/* Gives back the bytes that a message took of its sender's window. */
static void give_back(Peer *peer, size_t charge)
{
    if (charge == 0)
        return;
    /* Relaxed: these numbers order no other memory. */
    const uint64_t consumed =
        atomic_fetch_add_explicit(&peer->consumed, charge, memory_order_relaxed) + charge;
    const uint64_t told = atomic_load_explicit(&peer->told_consumed, memory_order_relaxed);
    if (consumed > told && consumed - told >= peer->network->window_bytes / 8) {
        peer_set_pending(peer, PENDING_ACK);
        peer_flush(peer);
    }
}

bool incoming_park(Incoming *incoming, size_t more_bytes)
{
    Item *const item = (Item *)(void *)incoming;
    Peer *const peer = ((Parcel *)incoming->packet)->peer;
    const size_t charge = item->charge;

    item->charge = 0;
    item->parked = sizeof *item + peer->network->room_bytes + charge + more_bytes;
    /* Relaxed: this number orders no other memory. */
    const uint64_t before =
        atomic_fetch_add_explicit(&peer->parked, item->parked, memory_order_relaxed);
    give_back(peer, charge);
    return before + item->parked <= peer->network->parked_bytes;
}

void incoming_free(Incoming *incoming)
{
    if (incoming == NULL)
        return;
    Parcel *const parcel = incoming->packet;
    Peer *const peer = parcel->peer;
    const size_t charge = ((Item *)(void *)incoming)->charge;
    const size_t parked = ((Item *)(void *)incoming)->parked;

    parcel_unref(parcel);
    if (parked > 0)
        atomic_fetch_sub_explicit(&peer->parked, parked, memory_order_relaxed);
    give_back(peer, charge);
}

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

/* Whether the packet is one reply, whose bytes are not needed after it has been handed over. */
static bool is_short_lived(const Network *network, const Received *received, uint32_t n_messages)
{
    WireHeader header;

    return network->drops_replies && n_messages == 1 &&
           wire_read_message(received->bytes + WIRE_PACKET_HEADER_BYTES,
                             received->size - WIRE_PACKET_HEADER_BYTES, &header) == NULL &&
           header.kind == MESSAGE_REPLY;
}

/* A parcel with aligned bytes: the packet as it came, or a copy. NULL: no memory. A lent packet is
 * copied, because its messages may live longer. Only the rows of a reply are read where they
 * are. */
static Parcel *parcel_new(Network *network, Peer *peer, Received *received, uint32_t n_messages,
                          uint8_t **bytes)
{
    const size_t stride = (sizeof(Item) + network->room_bytes + 15) & ~(size_t)15;
    const bool stays = received->size > COPIED_BYTES && (uintptr_t)received->bytes % 8 == 0 &&
                       (!received->lent || is_short_lived(network, received, n_messages));
    const size_t copied_bytes = stays ? 0 : received->size;
    Parcel *const parcel = g_try_malloc(sizeof *parcel + n_messages * stride + copied_bytes);

    if (parcel == NULL)
        return NULL;
    parcel->peer = peer;
    parcel->stride = stride;
    parcel->n_items = n_messages;
    parcel->packet_bytes = received->size;
    parcel->holds_received = stays && !received->lent;
    parcel->is_lent = stays && received->lent;
    /* One reference for each message, one for this thread. */
    atomic_init(&parcel->refs, n_messages + 1);
    if (parcel->holds_received) {
        received->ops->move(&parcel->received, received);
        *bytes = parcel->received.bytes;
    } else if (stays) {
        *bytes = received->bytes;
    } else {
        *bytes = parcel->items + n_messages * stride;
        memcpy(*bytes, received->bytes, received->size);
    }
    return parcel;
}

/* Fills the item from the message at `at`. */
static void unpack(Network *network, Parcel *parcel, Item *item, uint8_t *at,
                   const WireHeader *header)
{
    uint8_t *const keys = at + WIRE_MESSAGE_HEADER_BYTES;
    /* only a request has bytes of keys */
    const bool has_bytes = header->key_bytes > 0;
    const bool is_list = has_bytes && header->request.key_encoding == WIRE_KEYS_LIST;

    item->charge = wire_is_charged(header->kind) ? wire_message_bytes(header) : 0;
    item->parked = 0;
    item->incoming = (Incoming){
        .node = parcel->peer->number,
        .header = *header,
        .keys = is_list ? (const RubatoKey *)(const void *)keys : NULL,
        .deltas = has_bytes && !is_list ? keys : NULL,
        .values = header->value_bytes > 0 ? keys + wire_padded((size_t)header->key_bytes) : NULL,
        .value_bytes = (size_t)header->value_bytes,
        .room = item->room,
        .packet = parcel,
    };
    memset(item->room, 0, network->room_bytes);
}

static Item *item_of(Parcel *parcel, uint32_t i)
{
    return (Item *)(void *)(parcel->items + i * parcel->stride);
}

/* Bytes of memory that the messages of a parcel keep together. */
static size_t parcel_bytes(const Parcel *parcel)
{
    return sizeof *parcel + parcel->n_items * parcel->stride + parcel->packet_bytes;
}

Incoming *incoming_detach(Incoming *incoming)
{
    Parcel *const shared = incoming->packet;
    Network *const network = shared->peer->network;
    const size_t key_bytes = wire_padded((size_t)incoming->header.key_bytes);
    const size_t needed = sizeof *shared + shared->stride + key_bytes + incoming->value_bytes;

    if (needed * SMALL_PART > parcel_bytes(shared))
        return incoming;
    Parcel *const own = g_try_malloc(needed);
    if (own == NULL)
        return incoming;
    uint8_t *const keys = own->items + shared->stride;
    uint8_t *const values = keys + key_bytes;
    *own = (Parcel){ .peer = shared->peer, .stride = shared->stride, .n_items = 1 };
    atomic_init(&own->refs, 1);
    Item *const item = item_of(own, 0);
    memcpy(item, incoming, sizeof *item + network->room_bytes);
    item->incoming.packet = own;
    item->incoming.room = item->room;
    if (incoming->keys != NULL || incoming->deltas != NULL)
        memcpy(keys, incoming->keys != NULL ? (const void *)incoming->keys : incoming->deltas,
               (size_t)incoming->header.key_bytes);
    item->incoming.keys = incoming->keys != NULL ? (const RubatoKey *)(const void *)keys : NULL;
    item->incoming.deltas = incoming->deltas != NULL ? keys : NULL;
    if (incoming->values != NULL)
        item->incoming.values = memcpy(values, incoming->values, incoming->value_bytes);
    parcel_unref(shared);
    return &item->incoming;
}

/* Finds the messages of a packet. Returns NULL, or what is wrong with it; then none of them may be
 * used. */
static const char *unpack_all(Network *network, Parcel *parcel, uint8_t *bytes, size_t size,
                              uint32_t n_messages)
{
    size_t at = WIRE_PACKET_HEADER_BYTES;
    WireHeader header;

    for (uint32_t i = 0; i < n_messages; i++) {
        const char *const fault = wire_read_message(bytes + at, size - at, &header);
        if (fault != NULL)
            return fault;
        if (parcel->is_lent && header.kind != MESSAGE_REPLY)
            return "it has changed while it was read";
        unpack(network, parcel, item_of(parcel, i), bytes + at, &header);
        at += wire_message_bytes(&header);
    }
    return at != size ? "it has bytes behind its last message" : NULL;
}

/* Hands over the messages of a packet that is the next one of its link. */
static void hand_over(Network *network, Parcel *parcel, uint32_t n_messages)
{
    for (uint32_t i = 0; i < n_messages; i++) {
        Incoming *const incoming = &item_of(parcel, i)->incoming;

        count(&network->n_messages_received[incoming->header.kind], 1);
        parcel->peer->handed += item_of(parcel, i)->charge;
        network->handler.receive(network->user, incoming);
    }
    peer_check_window(parcel->peer);
}

/* Drops a packet of which no message was handed over. */
static void parcel_drop(Parcel *parcel)
{
    atomic_store_explicit(&parcel->refs, 1, memory_order_relaxed); /* no other thread knows it */
    parcel_unref(parcel);
}

/* Uses what the header tells about the other direction. */
static void take_news(Network *network, Peer *peer, const PacketHeader *header)
{
    const uint64_t its_ack = atomic_load_explicit(&peer->its_ack, memory_order_relaxed);
    const uint64_t its_consumed = atomic_load_explicit(&peer->its_consumed, memory_order_relaxed);

    if (header->ack > its_ack) {
        atomic_store_explicit(&peer->its_ack, header->ack, memory_order_relaxed);
        /* Otherwise there is no hurry: the next frame or the next tick does it. */
        if (atomic_load_explicit(&network->stopping, memory_order_relaxed) ||
            atomic_load_explicit(&peer->held_back, memory_order_relaxed) ||
            atomic_load_explicit(&peer->kept_bytes, memory_order_relaxed) >
                network->window_bytes / 8)
            peer_set_pending(peer, PENDING_RUN);
    }
    if (header->consumed > its_consumed) {
        /* Sequentially consistent, both: see network_has_room. */
        atomic_store(&peer->its_consumed, header->consumed);
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
    if (header->consumed > atomic_load_explicit(&peer->charged, memory_order_relaxed))
        return "it has consumed what was never sent";
    return NULL;
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
        parcel = parcel_new(network, peer, received, header->n_messages, &bytes);
        if (parcel == NULL) {
            complain(network, received, peer, "there is no memory for it; it will come again");
            link_fault_clear(&peer->fault); /* it is no fault of the peer's */
            return;
        }
        *moved = parcel->holds_received;
        /* A packet counts as a whole or not at all. A wrong one is not acknowledged: it comes
         * again, and may only have been damaged on its way. */
        const char *const fault = unpack_all(network, parcel, bytes, size, header->n_messages);
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
    take_news(network, peer, &header);
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

    if (ack_due <= now_ms)
        peer_set_pending(peer, PENDING_ACK);
    /* A sender that was asked a moment ago goes back no sooner: see link_sender_go_back. */
    if (link_fault_asks(&peer->fault, network->resend_ms / 2, now_ms))
        peer_set_pending(peer, PENDING_AGAIN);
    if (resend_at <= now_ms)
        peer_set_pending(peer, PENDING_RUN);
    if (atomic_load_explicit(&peer->n_waiters, memory_order_relaxed) > 0 &&
        now_ms - peer->asked_at >= network->resend_ms) {
        peer->asked_at = now_ms; /* its last news may be lost */
        peer_set_pending(peer, PENDING_ASK);
    }
    peer_flush(peer);
    peer->touched = false;
    return MIN(ack_due > now_ms ? ack_due : LINK_NEVER,
               resend_at > now_ms ? resend_at : LINK_NEVER);
}

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

Batch network_receive(Network *network, Reach reach, unsigned most, bool serve_all, int64_t *next)
{
    const Batch batch = receive_batch(network, reach, most, network_now_ms());

    /* Relaxed: the lock of the answers orders them. */
    if (atomic_load_explicit(&network->has_answers, memory_order_relaxed) &&
        atomic_exchange_explicit(&network->has_answers, false, memory_order_relaxed))
        network_send_answers(network);
    *next = serve_peers(network, network_now_ms(), serve_all);
    return batch;
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

static void wait_for_something(const Network *network, int64_t now_ms, int64_t next_ms)
{
    struct pollfd polled[] = { { .fd = network->turn_fd, .events = POLLIN },
                               { .fd = network->wake_fd, .events = POLLIN } };
    const int64_t timeout_ms = next_ms <= now_ms ? 0 : next_ms - now_ms;
    uint64_t n;

    if (poll(polled, G_N_ELEMENTS(polled), (int)MIN(timeout_ms, 1000)) > 0 &&
        (polled[1].revents & POLLIN) && read(network->wake_fd, &n, sizeof n) == -1)
        assert(errno == EAGAIN || errno == EINTR);
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
    /* Acquire: pairs with leave_to_io_thread, so that the frames left are seen. */
    if (!atomic_load_explicit(&network->unflushed, memory_order_relaxed) ||
        !atomic_exchange_explicit(&network->unflushed, false, memory_order_acquire))
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
    int64_t next_timer = next_tick;
    Spinner spinner;
    bool seen = false;

    spinner_init(&spinner);
    spinner.moves = true;
    for (;;) {
        int64_t now_ms = network_now_ms(), next;
        flush_what_was_left(network);
        const bool all = now_ms >= next_timer;
        pthread_mutex_lock(&network->receiving);
        const Reach reach = seen ? REACH_SEEN : REACH_ALL;
        const Batch batch = network_receive(network, reach, BATCH_PACKETS, all, &next);
        seen = false;
        if (batch != BATCH_NOTHING)
            spinner_note_origin(&spinner, find_origin(network));
        const bool spun = batch == BATCH_SOME && network_spin(network, &spinner, NULL, &seen);
        pthread_mutex_unlock(&network->receiving);
        next_timer = all ? next : MIN(next, next_timer);

        /* Acquire: pairs with network_wake, so that the tick sees what the waker did before. */
        const bool woken = atomic_load_explicit(&network->woken, memory_order_relaxed) &&
                           atomic_exchange_explicit(&network->woken, false, memory_order_acquire);
        now_ms = network_now_ms();
        if (woken || now_ms >= next_tick) {
            tick(network, now_ms);
            next_tick = now_ms + network->tick_ms;
            next_timer = now_ms; /* all peers are served once more before the thread sleeps */
        }

        /* Acquire: pairs with network_stop's release of stop_at_ms. */
        if (atomic_load_explicit(&network->stopping, memory_order_acquire) &&
            (is_done(network) ||
             now_ms >= atomic_load_explicit(&network->stop_at_ms, memory_order_relaxed)))
            break;
        if (reach == REACH_ALL && batch != BATCH_MORE && !spun)
            wait_for_something(network, now_ms, MIN(next_timer, next_tick));
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
