/* Frames, and the packets built of them.
 *
 * Threads: one owner at a time; only the count of a packet's references is shared. Invariant: keys
 * and values have the same place in a frame's bytes as in a packet that holds this frame alone. */
#include "io/net/link/frame.h"

#include <assert.h>
#include <string.h>

#include "io/net/link/packet.h"

#define PAYLOAD_AT (WIRE_PACKET_HEADER_BYTES + WIRE_MESSAGE_HEADER_BYTES)

Frame *frame_new(const WireHeader *header)
{
    return frame_new_from(NULL, header);
}

/* Sets all but the header and value_room, member by member: to clear all of it first takes
 * longer. */
static void init(Frame *frame, BlockPool *pool, size_t block_bytes)
{
    Packet *const packet = &frame->packet;

    packet->next = NULL;
    packet->sequence = 0;
    packet->bytes = frame->bytes;
    packet->size = 0;
    packet->n_messages = 0;
    packet->values = NULL;
    packet->values_bytes = 0;
    packet->mark.is_set = false;
    atomic_init(&packet->in_ring, NULL);
    packet->direct = NULL;
    packet->pool = pool;
    packet->block_bytes = block_bytes;
    atomic_init(&packet->refs, 1);
    frame->next = NULL;
    frame->follows = 0;
}

/* The bytes of keys and values together; SIZE_MAX: they are more than a message may have. */
static size_t payload_bytes(const WireHeader *header)
{
    if (header->key_bytes > WIRE_MAX_PAYLOAD_BYTES || header->value_bytes > WIRE_MAX_PAYLOAD_BYTES)
        return SIZE_MAX;
    const size_t payload =
        wire_padded((size_t)header->key_bytes) + wire_padded((size_t)header->value_bytes);
    return payload > WIRE_MAX_PAYLOAD_BYTES ? SIZE_MAX : payload;
}

Frame *frame_new_from(BlockPool *pool, const WireHeader *header)
{
    const size_t payload = payload_bytes(header);

    if (payload == SIZE_MAX)
        return NULL;
    const size_t block_bytes = sizeof(Frame) + PAYLOAD_AT + payload;
    Frame *const frame = block_pool_take(pool, block_bytes);
    if (frame == NULL)
        return NULL;
    init(frame, pool, block_bytes);
    frame->header = *header;
    frame->value_room = (size_t)header->value_bytes;
    return frame;
}

/* The direct write lies behind the keys and the values that have room here. */
Frame *frame_new_direct(BlockPool *pool, const WireHeader *header, const DirectWriteSource *source)
{
    const size_t align = _Alignof(DirectWrite);
    const size_t n_own = (size_t)header->value_bytes - source->n_bytes;
    const size_t direct_at =
        (PAYLOAD_AT + wire_padded((size_t)header->key_bytes) + n_own + align - 1) & ~(align - 1);
    const size_t block_bytes = sizeof(Frame) + direct_at + sizeof(DirectWrite);

    assert(header->value_bytes >= source->n_bytes && n_own % 8 == 0 && source->n_bytes % 8 == 0);
    if (payload_bytes(header) == SIZE_MAX)
        return NULL;
    Frame *const frame = block_pool_take(pool, block_bytes);
    if (frame == NULL)
        return NULL;
    init(frame, pool, block_bytes);
    frame->header = *header;
    frame->value_room = (size_t)header->value_bytes;
    frame->packet.direct = (DirectWrite *)(void *)(frame->bytes + direct_at);
    direct_write_start(frame->packet.direct, pool, source);
    return frame;
}

void frame_free(Frame *frame)
{
    if (frame != NULL)
        packet_unref(&frame->packet);
}

WireHeader *frame_header(Frame *frame)
{
    return &frame->header;
}

void *frame_keys(Frame *frame)
{
    return frame->bytes + PAYLOAD_AT;
}

void frame_set_keys(Frame *frame, const RubatoKeys *keys)
{
    uint8_t *const to = frame_keys(frame);

    assert(frame->header.keys == WIRE_KEYS_LIST && frame->header.key_bytes == 8 * keys->n);
    if (keys->keys == NULL)
        for (size_t i = 0; i < keys->n; i++)
            wire_store_key(to, i, keys->first + i);
    else if (keys->at == NULL)
        memcpy(to, keys->keys, 8 * keys->n); /* as they lie in memory */
    else
        for (size_t i = 0; i < keys->n; i++)
            wire_store_key(to, i, keys->keys[keys->at[i]]);
}

void *frame_values(Frame *frame)
{
    return frame->bytes + PAYLOAD_AT + wire_padded((size_t)frame->header.key_bytes);
}

/* Writes the header and clears the padding, so that no bytes of old memory leave the process. */
static void finish(Frame *frame)
{
    const WireHeader *const header = &frame->header;
    const size_t value_bytes = (size_t)header->value_bytes;

    assert(value_bytes <= frame->value_room);
    wire_write_message_header(frame->bytes + WIRE_PACKET_HEADER_BYTES, header);
    memset((uint8_t *)frame_keys(frame) + header->key_bytes, 0,
           wire_padded((size_t)header->key_bytes) - (size_t)header->key_bytes);
    if (frame->packet.direct != NULL)
        return; /* the values lie elsewhere, and need no padding */
    memset((uint8_t *)frame_values(frame) + value_bytes, 0, wire_padded(value_bytes) - value_bytes);
}

Packet *packet_new(size_t size)
{
    Frame *const frame = block_pool_take(NULL, sizeof *frame + size);

    if (frame == NULL)
        return NULL;
    init(frame, NULL, sizeof *frame + size);
    frame->packet.size = size;
    return &frame->packet;
}

static Packet *take_one(Frame **frames)
{
    Frame *const frame = *frames;

    *frames = frame->next;
    finish(frame);
    frame->packet.size = WIRE_PACKET_HEADER_BYTES + wire_message_bytes(&frame->header);
    frame->packet.n_messages = 1;
    return &frame->packet;
}

Packet *packet_take(Frame **frames, size_t joined_bytes, uint32_t most)
{
    size_t size = WIRE_PACKET_HEADER_BYTES;
    uint32_t n = 0;

    for (const Frame *frame = *frames; frame != NULL && n < most; frame = frame->next, n++) {
        const size_t bytes = wire_message_bytes(&frame->header);
        if (packet_is_alone(bytes, joined_bytes) || size + bytes > joined_bytes)
            break;
        assert(frame->packet.direct == NULL);
        size += bytes;
    }
    /* If there is no memory, frames are sent one by one. */
    Packet *const packet = n > 1 ? packet_new(size) : NULL;
    if (packet == NULL)
        return take_one(frames);

    uint8_t *to = packet->bytes + WIRE_PACKET_HEADER_BYTES;
    for (uint32_t i = 0; i < n; i++) {
        Frame *const frame = *frames;
        const size_t bytes = wire_message_bytes(&frame->header);
        *frames = frame->next;
        finish(frame);
        memcpy(to, frame->bytes + WIRE_PACKET_HEADER_BYTES, bytes);
        to += bytes;
        frame_free(frame);
    }
    packet->n_messages = n;
    return packet;
}

Packet *packet_of_values(Frame *frame, const void *values, size_t n_bytes)
{
    Packet *const packet = take_one(&frame);

    assert(n_bytes % 8 == 0 && n_bytes <= packet->size - PAYLOAD_AT);
    packet->values = values;
    packet->values_bytes = n_bytes;
    return packet;
}

void packet_gather(Packet *packet)
{
    if (packet->values == NULL)
        return;
    memcpy(packet->bytes + packet->size - packet->values_bytes, packet->values,
           packet->values_bytes);
    packet->values = NULL;
}

PacketParts packet_lock(const Packet *packet, size_t at, size_t n)
{
    if (packet->direct == NULL)
        return (PacketParts){ .head = packet->bytes + at, .n_head = n, .rest = packet->bytes };

    const size_t rest_at = packet->size - packet->direct->source.n_bytes;
    const size_t n_head = at < rest_at ? MIN(n, rest_at - at) : 0;
    const uint8_t *const values = direct_write_lock(packet->direct);

    return (PacketParts){ .head = packet->bytes + MIN(at, rest_at),
                          .n_head = n_head,
                          .rest = values + (at + n_head - MIN(at + n_head, rest_at)),
                          .n_rest = n - n_head };
}

void packet_read(const Packet *packet, size_t at, size_t n, uint8_t *to)
{
    const PacketParts parts = packet_lock(packet, at, n);

    memcpy(to, parts.head, parts.n_head);
    memcpy(to + parts.n_head, parts.rest, parts.n_rest);
    packet_unlock(packet);
}

Packet *packet_copy(const Packet *packet)
{
    Packet *const copy = packet_new(packet->size);

    if (copy == NULL)
        return NULL;
    copy->sequence = packet->sequence;
    copy->n_messages = packet->n_messages;
    packet_read(packet, 0, packet->size, copy->bytes);
    return copy;
}

void packet_unref(Packet *packet)
{
    /* Release: what this holder did to the bytes happens before the last one frees them. Acquire:
     * the last holder sees it. */
    if (atomic_fetch_sub_explicit(&packet->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (packet->mark.is_set)
        seal_mark_clear(&packet->mark);
    if (packet->direct != NULL)
        direct_write_finish(packet->direct);
    block_pool_give(packet->pool, packet, packet->block_bytes);
}
