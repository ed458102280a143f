/* The memory of a packet while its messages are handled, and the room that they take.
 *
 * Threads: incoming_park, incoming_detach and incoming_free from any; the rest from the thread that
 * receives. Invariant: a parcel stays as long as one of its messages does.
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
#include "io/net/network/network_parcel.h"

#include "io/net/network/network_private.h"

/* Packets up to this size are copied out of the transport's memory, which may be a large buffer
 * that they share. */
#define COPIED_BYTES ((size_t)8 << 10)

/* A message that needs less than this part of the memory that it keeps is moved out of it. */
#define SMALL_PART 2

void parcel_unref(Parcel *parcel)
{
    /* Release and acquire: the thread that frees it does so after all others have finished with
     * it. */
    if (atomic_fetch_sub_explicit(&parcel->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (parcel->holds_received)
        parcel->received.ops->release(&parcel->received);
    if (parcel->block != NULL)
        block_pool_give(parcel->peer->network->pool, parcel->block, parcel->packet_bytes);
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
    if (consumed > told && consumed - told >= peer_window(peer) / 8) {
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

/* An Add to a run of rows: besides its header, which is copied, it has values alone. */
static bool is_add_of_run(const WireHeader *header)
{
    return header->kind == MESSAGE_ADD && header->keys == WIRE_KEYS_RUN && header->key_bytes == 0;
}

/* What is lent and may be read there. A reply's bytes are not needed after it has been handed over;
 * an Add's may be. */
typedef enum { LENT_NOTHING, LENT_REPLY, LENT_ADD } Lent;

/* Of a packet of one message. */
static Lent find_lent(const Network *network, const Received *received, uint32_t n_messages)
{
    WireHeader header;

    if (!network->drops_replies || n_messages != 1 ||
        wire_read_message(received->bytes + WIRE_PACKET_HEADER_BYTES,
                          received->size - WIRE_PACKET_HEADER_BYTES, &header) != NULL)
        return LENT_NOTHING;
    if (header.kind == MESSAGE_REPLY)
        return LENT_REPLY;
    return is_add_of_run(&header) && received->size >= BLOCK_POOL_LEAST_BYTES ? LENT_ADD
                                                                              : LENT_NOTHING;
}

Parcel *parcel_new(Peer *peer, Received *received, uint32_t n_messages, uint8_t **bytes)
{
    const Network *const network = peer->network;
    const size_t stride = (sizeof(Item) + network->room_bytes + 15) & ~(size_t)15;
    const bool may_stay = received->size > COPIED_BYTES && (uintptr_t)received->bytes % 8 == 0;
    const Lent lent =
        may_stay && received->lent ? find_lent(network, received, n_messages) : LENT_NOTHING;
    const bool stays = may_stay && (!received->lent || lent != LENT_NOTHING);
    const size_t n_here = received->values == NULL ? received->size : received->head_bytes;
    const bool is_large = (!stays || lent == LENT_ADD) && n_here >= BLOCK_POOL_LEAST_BYTES;
    const size_t copied_bytes = stays || is_large ? 0 : n_here;
    Parcel *const parcel = g_try_malloc(sizeof *parcel + n_messages * stride + copied_bytes);
    uint8_t *const block = is_large ? block_pool_take(network->pool, n_here) : NULL;

    if (parcel == NULL || (is_large && block == NULL)) {
        block_pool_give(network->pool, block, n_here);
        g_free(parcel);
        return NULL;
    }
    parcel->peer = peer;
    parcel->block = block;
    parcel->stride = stride;
    parcel->n_items = n_messages;
    parcel->packet_bytes = n_here;
    parcel->holds_received = stays && !received->lent;
    parcel->is_lent = stays && received->lent;
    parcel->values = received->values; /* see network_direct_reader */
    /* One reference for each message, one for this thread. */
    atomic_init(&parcel->refs, n_messages + 1);
    if (parcel->holds_received) {
        received->ops->move(&parcel->received, received);
        *bytes = parcel->received.bytes;
    } else if (stays) {
        *bytes = received->bytes;
    } else {
        *bytes = is_large ? block : parcel->items + n_messages * stride;
        memcpy(*bytes, received->bytes, n_here);
    }
    return parcel;
}

/* Fills the item, whose header was read, from the message at `at`. */
static void unpack(Parcel *parcel, Item *item, uint8_t *at)
{
    Incoming *const incoming = &item->incoming;
    const WireHeader *const header = &incoming->header;
    uint8_t *const keys = at + WIRE_MESSAGE_HEADER_BYTES;
    /* only a request has bytes of keys */
    const bool has_bytes = header->key_bytes > 0;
    const bool is_list = has_bytes && header->keys == WIRE_KEYS_LIST;

    item->charge = wire_is_charged(header->kind) ? wire_message_bytes(header) : 0;
    item->parked = 0;
    incoming->node = parcel->peer->number;
    incoming->keys = is_list ? (const RubatoKey *)(const void *)keys : NULL;
    incoming->deltas = has_bytes && !is_list ? keys : NULL;
    incoming->values = header->value_bytes == 0 ? NULL
                       : parcel->values != NULL && header->kind == MESSAGE_REPLY
                           ? parcel->values
                           : keys + wire_padded((size_t)header->key_bytes);
    incoming->apart = header->kind == MESSAGE_TENSOR ? parcel->values : NULL;
    incoming->value_bytes = (size_t)header->value_bytes;
    incoming->room = item->room;
    incoming->packet = parcel;
}

/* Bytes of memory that the messages of a parcel keep together. */
static size_t parcel_bytes(const Parcel *parcel)
{
    return sizeof *parcel + parcel->n_items * parcel->stride + parcel->packet_bytes;
}

bool incoming_is_lent(const Incoming *incoming)
{
    const Parcel *const parcel = incoming->packet;

    return parcel->is_lent && parcel->block != NULL;
}

void incoming_own(Incoming *incoming)
{
    Parcel *const parcel = incoming->packet;

    incoming->values = memcpy(parcel->block, incoming->values, incoming->value_bytes);
    parcel->is_lent = false;
}

Incoming *incoming_detach(Incoming *incoming)
{
    Parcel *const shared = incoming->packet;
    Network *const network = shared->peer->network;
    const size_t key_bytes = wire_padded((size_t)incoming->header.key_bytes);
    const size_t needed =
        sizeof *shared + shared->stride + key_bytes + wire_padded(incoming->value_bytes);

    if (incoming->apart != NULL || needed * SMALL_PART > parcel_bytes(shared))
        return incoming;
    Parcel *const own = g_try_malloc(needed);
    if (own == NULL)
        return incoming;
    uint8_t *const keys = own->items + shared->stride;
    uint8_t *const values = keys + key_bytes;
    *own = (Parcel){ .peer = shared->peer, .stride = shared->stride, .n_items = 1 };
    atomic_init(&own->refs, 1);
    Item *const item = parcel_item(own, 0);
    memcpy(item, incoming, sizeof *item + network->room_bytes);
    item->incoming.packet = own;
    item->incoming.room = item->room;
    if (incoming->keys != NULL || incoming->deltas != NULL)
        memcpy(keys, incoming->keys != NULL ? (const void *)incoming->keys : incoming->deltas,
               (size_t)incoming->header.key_bytes);
    item->incoming.keys = incoming->keys != NULL ? (const RubatoKey *)(const void *)keys : NULL;
    item->incoming.deltas = incoming->deltas != NULL ? keys : NULL;
    if (incoming->values != NULL)
        item->incoming.values =
            memcpy(values, incoming->values, wire_padded(incoming->value_bytes));
    parcel_unref(shared);
    return &item->incoming;
}

const char *parcel_unpack(Parcel *parcel, uint8_t *bytes, size_t size, uint32_t n_messages)
{
    size_t at = WIRE_PACKET_HEADER_BYTES;

    for (uint32_t i = 0; i < n_messages; i++) {
        Item *const item = parcel_item(parcel, i);
        WireHeader *const header = &item->incoming.header;
        const char *const fault = wire_read_message(bytes + at, size - at, header);
        if (fault != NULL)
            return fault;
        if (parcel->is_lent &&
            !(parcel->block == NULL ? header->kind == MESSAGE_REPLY : is_add_of_run(header)))
            return "it has changed while it was read";
        unpack(parcel, item, bytes + at);
        at += wire_message_bytes(header);
    }
    return at != size ? "it has bytes behind its last message" : NULL;
}

void parcel_drop(Parcel *parcel)
{
    atomic_store_explicit(&parcel->refs, 1, memory_order_relaxed); /* no other thread knows it */
    parcel_unref(parcel);
}
