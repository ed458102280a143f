/* Frames, and the packets built of them.
 *
 * Threads: one owner at a time; only the count of a packet's references is shared. Invariant: keys
 * and values have the same place in a frame's bytes as in a packet that holds this frame alone. */
#include "io/net/link/frame.h"

#include <assert.h>

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
    packet->pool = pool;
    packet->block_bytes = block_bytes;
    atomic_init(&packet->refs, 1);
    frame->next = NULL;
    frame->follows = 0;
}

Frame *frame_new_from(BlockPool *pool, const WireHeader *header)
{
    if (header->key_bytes > WIRE_MAX_PAYLOAD_BYTES || header->value_bytes > WIRE_MAX_PAYLOAD_BYTES)
        return NULL;
    const size_t payload =
        wire_padded((size_t)header->key_bytes) + wire_padded((size_t)header->value_bytes);
    if (payload > WIRE_MAX_PAYLOAD_BYTES)
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
    const size_t small_bytes = joined_bytes / PACKET_SMALL_PART;
    size_t size = WIRE_PACKET_HEADER_BYTES;
    uint32_t n = 0;

    for (const Frame *frame = *frames; frame != NULL && n < most; frame = frame->next, n++) {
        const size_t bytes = wire_message_bytes(&frame->header);
        if (bytes > small_bytes || size + bytes > joined_bytes)
            break;
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

Packet *packet_of_values(Frame *frame, const void *values)
{
    Packet *const packet = take_one(&frame);

    packet->values = values;
    packet->values_bytes = (size_t)((Frame *)packet)->header.value_bytes;
    assert(packet->values_bytes % 8 == 0);
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

void packet_unref(Packet *packet)
{
    /* Release: what this holder did to the bytes happens before the last one frees them. Acquire:
     * the last holder sees it. */
    if (atomic_fetch_sub_explicit(&packet->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (packet->mark.is_set)
        seal_mark_clear(&packet->mark);
    block_pool_give(packet->pool, packet, packet->block_bytes);
}
