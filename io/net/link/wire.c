/* Writes and reads the headers of packets and messages. wire.h describes the layout.
 *
 * Threads: any. Invariant: a reader that returns NULL has made sure that every size in the header
 * fits into the bytes that came; a reader that finds an error does not change its
 * out-parameters. */
#include "io/net/link/wire.h"

#include "io/net/link/key_codec.h"

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

/* ---- what each kind carries, from byte 16 on ---- */

typedef struct {
    void (*write)(uint8_t *bytes, const WireHeader *header);
    /* NULL, or what is wrong with it. */
    const char *(*read)(const uint8_t *bytes, WireHeader *header);
} WireForm;

static const char *check_keys(const WireHeader *header)
{
    const WireRequest *request = &header->request;

    switch (header->keys) {
    case WIRE_KEYS_RUN:
        if (header->key_bytes != 0)
            return "it has a run of keys and a list of them";
        if (request->n_keys > 0 && request->first_key > UINT64_MAX - (request->n_keys - 1))
            return "its run of keys goes past the last key";
        return NULL;
    case WIRE_KEYS_LIST:
        if (header->key_bytes % 8 != 0 || header->key_bytes / 8 != request->n_keys)
            return "the size of its keys is not that of their number";
        return NULL;
    case WIRE_KEYS_DELTAS:
        if (!key_codec_is_possible(request->n_keys, header->key_bytes))
            return "the size of its differences of keys is not that of their number";
        return NULL;
    }
    return "its encoding of keys is unknown";
}

static void write_request(uint8_t *bytes, const WireHeader *header)
{
    const WireRequest *request = &header->request;

    wire_store_u64(bytes + 16, request->id);
    wire_store_u32(bytes + 24, request->table);
    wire_store_u32(bytes + 28, request->part);
    wire_store_u32(bytes + 32, request->server);
    wire_store_u32(bytes + 36, request->worker);
    wire_store_u64(bytes + 40, request->clock);
    wire_store_u32(bytes + 48, (uint32_t)header->keys);
    wire_store_u32(bytes + 52, (uint32_t)request->n_keys);
    wire_store_u64(bytes + 56, request->first_key);
    wire_store_u64(bytes + 64, request->node_clock);
    wire_store_u64(bytes + 72, 0);
}

static const char *read_request(const uint8_t *bytes, WireHeader *header)
{
    if (wire_load_u32(bytes + 48) > WIRE_KEYS_DELTAS)
        return "its encoding of keys is unknown";
    header->keys = (WireKeys)wire_load_u32(bytes + 48);
    header->request = (WireRequest){
        .id = wire_load_u64(bytes + 16),
        .table = wire_load_u32(bytes + 24),
        .part = wire_load_u32(bytes + 28),
        .server = wire_load_u32(bytes + 32),
        .worker = wire_load_u32(bytes + 36),
        .clock = wire_load_u64(bytes + 40),
        .n_keys = wire_load_u32(bytes + 52),
        .first_key = wire_load_u64(bytes + 56),
        .node_clock = wire_load_u64(bytes + 64),
    };
    return check_keys(header);
}

static void write_announcement(uint8_t *bytes, const WireHeader *header)
{
    write_request(bytes, header);
    wire_store_u64(bytes + 64, header->request.n_announced);
}

static const char *read_announcement(const uint8_t *bytes, WireHeader *header)
{
    const char *const fault = read_request(bytes, header);

    header->request.n_announced = wire_load_u64(bytes + 64);
    return fault;
}

static void write_tuning(uint8_t *bytes, const WireHeader *header)
{
    uint64_t value;

    memcpy(&value, &header->request.tuning.value, sizeof value);
    write_request(bytes, header);
    wire_store_u64(bytes + 64, value);
    wire_store_u32(bytes + 72, header->request.tuning.hyper);
}

static const char *read_tuning(const uint8_t *bytes, WireHeader *header)
{
    const char *const fault = read_request(bytes, header);
    const uint64_t value = wire_load_u64(bytes + 64);

    header->request.tuning.hyper = (RubatoHyper)wire_load_u32(bytes + 72);
    memcpy(&header->request.tuning.value, &value, sizeof value);
    return fault;
}

static void write_handler(uint8_t *bytes, const WireHeader *header)
{
    write_request(bytes, header);
    wire_store_u64(bytes + 64, header->request.piece.serial);
    wire_store_u64(bytes + 72, header->request.piece.n_bytes);
}

static const char *read_handler(const uint8_t *bytes, WireHeader *header)
{
    const char *const fault = read_request(bytes, header);

    header->request.piece.serial = wire_load_u64(bytes + 64);
    header->request.piece.n_bytes = wire_load_u64(bytes + 72);
    return fault;
}

static void write_input(uint8_t *bytes, const WireHeader *header)
{
    write_request(bytes, header);
    wire_store_u64(bytes + 16, header->request.input.number);
    wire_store_u64(bytes + 64, header->request.input.sequence);
    wire_store_u32(bytes + 72, header->request.input.hyper);
    wire_store_u32(bytes + 76, header->request.input.kind);
}

static const char *read_input(const uint8_t *bytes, WireHeader *header)
{
    const char *const fault = read_request(bytes, header);

    header->request.id = 0;
    header->request.input.number = wire_load_u64(bytes + 16);
    header->request.input.sequence = wire_load_u64(bytes + 64);
    header->request.input.hyper = wire_load_u32(bytes + 72);
    header->request.input.kind = wire_load_u32(bytes + 76);
    return fault != NULL || header->request.input.kind <= UINT8_MAX
               ? fault
               : "its kind of input is unknown";
}

static void write_clock(uint8_t *bytes, const WireHeader *header)
{
    memset(bytes + 16, 0, WIRE_MESSAGE_HEADER_BYTES - 16);
    wire_store_u64(bytes + 16, header->clock.clock);
    wire_store_u32(bytes + 24, header->clock.table);
    wire_store_u32(bytes + 28, header->clock.source);
    wire_store_u64(bytes + 32, header->clock.node_clock);
    wire_store_u32(bytes + 40, header->clock.slowest);
    wire_store_u32(bytes + 44, header->clock.map);
}

static const char *read_clock(const uint8_t *bytes, WireHeader *header)
{
    header->clock = (WireClock){
        .clock = wire_load_u64(bytes + 16),
        .table = wire_load_u32(bytes + 24),
        .source = wire_load_u32(bytes + 28),
        .node_clock = wire_load_u64(bytes + 32),
        .slowest = wire_load_u32(bytes + 40),
        .map = wire_load_u32(bytes + 44),
    };
    if (header->value_bytes % sizeof(WirePosition) != 0)
        return "it is a clock with a part of a position";
    return header->key_bytes != 0 ? "it is a clock with keys" : NULL;
}

static void write_reply(uint8_t *bytes, const WireHeader *header)
{
    memset(bytes + 16, 0, WIRE_MESSAGE_HEADER_BYTES - 16);
    wire_store_u64(bytes + 16, header->reply.request_id);
    wire_store_u32(bytes + 24, header->reply.status);
    wire_store_u64(bytes + 32, header->reply.min_clock);
    wire_store_u64(bytes + 40, header->reply.more_bytes);
}

static const char *read_reply(const uint8_t *bytes, WireHeader *header)
{
    if (wire_load_u32(bytes + 24) > CALL_MOVED)
        return "its status is unknown";
    header->reply = (WireReply){
        .request_id = wire_load_u64(bytes + 16),
        .status = (CallStatus)wire_load_u32(bytes + 24),
        .min_clock = wire_load_u64(bytes + 32),
        .more_bytes = wire_load_u64(bytes + 40),
    };
    return header->key_bytes != 0 ? "it is a reply with keys" : NULL;
}

static void write_control(uint8_t *bytes, const WireHeader *header)
{
    (void)header;
    memset(bytes + 16, 0, WIRE_MESSAGE_HEADER_BYTES - 16);
}

static const char *read_control(const uint8_t *bytes, WireHeader *header)
{
    (void)bytes;
    return header->key_bytes != 0 ? "it is a control message with keys" : NULL;
}

static const char *read_service(const uint8_t *bytes, WireHeader *header)
{
    (void)bytes;
    return header->key_bytes != 0 ? "it is a message of a service with keys" : NULL;
}

static const char *read_tensor(const uint8_t *bytes, WireHeader *header)
{
    (void)bytes;
    return header->key_bytes != 0 ? "it is a piece of a tensor with keys" : NULL;
}

/* The kinds that carry more, or less, than a request to a server. */
static const WireForm forms[MESSAGE_N_WIRE_KINDS] = {
    [MESSAGE_CLOCK] = { write_clock, read_clock },
    [MESSAGE_REPLY] = { write_reply, read_reply },
    [MESSAGE_CONTROL] = { write_control, read_control },
    [MESSAGE_ANNOUNCE] = { write_announcement, read_announcement },
    [MESSAGE_TUNE] = { write_tuning, read_tuning },
    [MESSAGE_HANDLER] = { write_handler, read_handler },
    [MESSAGE_SERVICE] = { write_control, read_service },
    [MESSAGE_TENSOR] = { write_control, read_tensor },
    [MESSAGE_FEED] = { write_input, read_input },
    [MESSAGE_POSITION] = { write_input, read_input },
};

void wire_write_message_header(void *at, const WireHeader *header)
{
    uint8_t *bytes = at;

    wire_store_u16(bytes, (uint16_t)header->kind);
    wire_store_u16(bytes + 2, (uint16_t)header->is_high);
    wire_store_u32(bytes + 4, header->epoch);
    wire_store_u32(bytes + 8, (uint32_t)header->key_bytes);
    wire_store_u32(bytes + 12, (uint32_t)header->value_bytes);
    if (forms[header->kind].write != NULL)
        forms[header->kind].write(bytes, header);
    else
        write_request(bytes, header);
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

const char *wire_read_message(const void *bytes, size_t size, WireHeader *header)
{
    const uint8_t *at = bytes;

    if (size < WIRE_MESSAGE_HEADER_BYTES)
        return "it is too short for a message's header";
    const uint16_t kind = wire_load_u16(at);
    if (kind < MESSAGE_GET || kind >= MESSAGE_N_WIRE_KINDS)
        return "its kind of message is unknown";
    const uint16_t priority = wire_load_u16(at + 2);
    if (priority > 1)
        return "its priority is unknown";
    /* Member by member: to clear all of it first takes longer than the rest. */
    header->kind = (MessageKind)kind;
    header->is_high = priority;
    header->epoch = wire_load_u32(at + 4);
    header->keys = WIRE_KEYS_RUN;
    header->key_bytes = wire_load_u32(at + 8);
    header->value_bytes = wire_load_u32(at + 12);
    /* Checked one after the other, so that no sum can overflow. Padding cannot either, because
     * lengths have 32 bits. The next message begins at a multiple of 8, so the padding must be
     * there too. */
    size_t rest = size - WIRE_MESSAGE_HEADER_BYTES;
    if (wire_padded((size_t)header->key_bytes) > rest)
        return "its keys are longer than what came";
    rest -= wire_padded((size_t)header->key_bytes);
    if (wire_padded((size_t)header->value_bytes) > rest)
        return "its values are longer than what came";
    const WireForm *const form = &forms[kind];
    return form->read != NULL ? form->read(at, header) : read_request(at, header);
}
