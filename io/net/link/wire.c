/* Writes and reads the headers of packets and messages. The layout is told in wire.h.
 *
 * Threads: any. Invariant: a reader that returns NULL has made sure that every size in the header
 * fits into the bytes that came; a reader that finds fault leaves its out-parameters alone. */
#include "io/net/link/wire.h"

#include "io/net/link/key_codec.h"

void wire_swap_values(void *values, size_t n, size_t value_size)
{
#if G_BYTE_ORDER == G_BIG_ENDIAN
    uint8_t *value = values;

    for (size_t i = 0; i < n; i++, value += value_size)
        for (size_t a = 0, b = value_size - 1; a < b; a++, b--) {
            const uint8_t byte = value[a];
            value[a] = value[b];
            value[b] = byte;
        }
#else
    (void)values;
    (void)n;
    (void)value_size;
#endif
}

static void write_prefix(uint8_t *at, uint16_t version, PacketKind kind)
{
    wire_store_u32(at, WIRE_MAGIC);
    wire_store_u16(at + 4, version);
    wire_store_u16(at + 6, (uint16_t)kind);
}

void wire_write_packet_header(void *at, const PacketHeader *header)
{
    uint8_t *bytes = at;

    write_prefix(bytes, WIRE_VERSION, PACKET_LINK);
    wire_store_u32(bytes + 8, header->sender);
    wire_store_u32(bytes + 12, header->flags);
    wire_store_u64(bytes + 16, header->run_id);
    wire_store_u64(bytes + 24, header->incarnation);
    wire_store_u64(bytes + 32, header->sequence);
    wire_store_u64(bytes + 40, header->ack);
    wire_store_u64(bytes + 48, header->consumed);
    wire_store_u32(bytes + 56, header->payload_bytes);
    wire_store_u32(bytes + 60, header->n_messages);
}

void wire_write_message_header(void *at, const WireHeader *header)
{
    uint8_t *bytes = at;

    wire_store_u16(bytes, (uint16_t)header->kind);
    wire_store_u16(bytes + 2, (uint16_t)header->key_encoding);
    wire_store_u32(bytes + 4, header->flags);
    wire_store_u32(bytes + 8, header->status);
    wire_store_u32(bytes + 12, header->epoch);
    wire_store_u32(bytes + 16, header->table);
    wire_store_u32(bytes + 20, header->server);
    wire_store_u32(bytes + 24, header->worker);
    wire_store_u32(bytes + 28, header->part);
    wire_store_u64(bytes + 32, header->clock);
    wire_store_u64(bytes + 40, header->request_id);
    wire_store_u64(bytes + 48, header->first_key);
    wire_store_u64(bytes + 56, header->n_keys);
    wire_store_u64(bytes + 64, header->key_bytes);
    wire_store_u64(bytes + 72, header->value_bytes);
}

void wire_write_greeting_prefix(void *at, uint16_t version, uint32_t body_bytes)
{
    uint8_t *bytes = at;

    write_prefix(bytes, version, PACKET_GREETING);
    wire_store_u32(bytes + 8, body_bytes);
    wire_store_u32(bytes + 12, 0);
}

const char *wire_read_prefix(const void *bytes, size_t size, uint16_t *version, PacketKind *kind)
{
    const uint8_t *at = bytes;

    if (size < WIRE_PREFIX_BYTES)
        return "it is too short for a packet";
    if (wire_load_u32(at) != WIRE_MAGIC)
        return "it does not begin like a packet of Rubato";
    const uint16_t number = wire_load_u16(at + 6);
    if (number != PACKET_LINK && number != PACKET_GREETING)
        return "its kind of packet is unknown";
    *version = wire_load_u16(at + 4);
    *kind = (PacketKind)number;
    return NULL;
}

const char *wire_read_packet_header(const void *bytes, size_t size, PacketHeader *header)
{
    const uint8_t *at = bytes;

    if (size < WIRE_PACKET_HEADER_BYTES)
        return "it is too short for its header";
    if (wire_load_u16(at + 4) != WIRE_VERSION)
        return "it has another wire version";
    const PacketHeader read = {
        .sender = wire_load_u32(at + 8),
        .flags = wire_load_u32(at + 12),
        .run_id = wire_load_u64(at + 16),
        .incarnation = wire_load_u64(at + 24),
        .sequence = wire_load_u64(at + 32),
        .ack = wire_load_u64(at + 40),
        .consumed = wire_load_u64(at + 48),
        .payload_bytes = wire_load_u32(at + 56),
        .n_messages = wire_load_u32(at + 60),
    };
    if (read.payload_bytes != size - WIRE_PACKET_HEADER_BYTES)
        return "its size is not what its header says";
    if (read.n_messages > read.payload_bytes / WIRE_MESSAGE_HEADER_BYTES)
        return "it is too short for the number of its messages";
    if ((read.sequence == 0) != (read.n_messages == 0))
        return "it has messages without a number, or a number without messages";
    if (read.n_messages == 0 && read.payload_bytes != 0)
        return "it has bytes that belong to no message";
    *header = read;
    return NULL;
}

const char *wire_read_greeting(const void *bytes, size_t size, size_t *body_bytes)
{
    const uint8_t *at = bytes;

    if (size < WIRE_PREFIX_BYTES)
        return "it is too short for a greeting";
    if (size - WIRE_PREFIX_BYTES > WIRE_MAX_GREETING_BYTES)
        return "it is too large for a greeting";
    const uint32_t body = wire_load_u32(at + 8);
    if (body != size - WIRE_PREFIX_BYTES)
        return "its size is not what its header says";
    *body_bytes = body;
    return NULL;
}

static const char *check_keys(const WireHeader *header)
{
    switch (header->key_encoding) {
    case WIRE_KEYS_RUN:
        if (header->key_bytes != 0)
            return "it has a run of keys and a list of them";
        if (header->n_keys > 0 && header->first_key > UINT64_MAX - (header->n_keys - 1))
            return "its run of keys goes past the last key";
        return NULL;
    case WIRE_KEYS_LIST:
        if (header->key_bytes % 8 != 0 || header->key_bytes / 8 != header->n_keys)
            return "the size of its keys is not that of their number";
        return NULL;
    case WIRE_KEYS_DELTAS:
        if (!key_codec_is_possible(header->n_keys, header->key_bytes))
            return "the size of its differences of keys is not that of their number";
        return NULL;
    }
    return "its encoding of keys is unknown";
}

const char *wire_read_message(const void *bytes, size_t size, WireHeader *header)
{
    const uint8_t *at = bytes;

    if (size < WIRE_MESSAGE_HEADER_BYTES)
        return "it is too short for a message's header";
    const uint16_t kind = wire_load_u16(at);
    if (kind < MESSAGE_GET || kind >= MESSAGE_N_WIRE_KINDS)
        return "its kind of message is unknown";
    const uint16_t key_encoding = wire_load_u16(at + 2);
    if (key_encoding > WIRE_KEYS_DELTAS)
        return "its encoding of keys is unknown";
    const WireHeader read = {
        .kind = (MessageKind)kind,
        .key_encoding = (WireKeys)key_encoding,
        .flags = wire_load_u32(at + 4),
        .status = wire_load_u32(at + 8),
        .epoch = wire_load_u32(at + 12),
        .table = wire_load_u32(at + 16),
        .server = wire_load_u32(at + 20),
        .worker = wire_load_u32(at + 24),
        .part = wire_load_u32(at + 28),
        .clock = wire_load_u64(at + 32),
        .request_id = wire_load_u64(at + 40),
        .first_key = wire_load_u64(at + 48),
        .n_keys = wire_load_u64(at + 56),
        .key_bytes = wire_load_u64(at + 64),
        .value_bytes = wire_load_u64(at + 72),
    };
    /* One after the other, so that no sum can wrap. What follows a message begins at a multiple of
     * 8, so the padding must be there too. */
    size_t rest = size - WIRE_MESSAGE_HEADER_BYTES;
    if (read.key_bytes > rest || wire_padded((size_t)read.key_bytes) > rest)
        return "its keys are longer than what came";
    rest -= wire_padded((size_t)read.key_bytes);
    if (read.value_bytes > rest || wire_padded((size_t)read.value_bytes) > rest)
        return "its values are longer than what came";
    const char *const fault = check_keys(&read);
    if (fault != NULL)
        return fault;
    if (read.status > CALL_NO_MEMORY)
        return "its status is unknown";
    *header = read;
    return NULL;
}
