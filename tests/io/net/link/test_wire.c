/* The headers of packets and messages: their bytes, and what is refused. */
#include "io/net/link/wire.h"

#include "io/net/link/packet.h"
#include "tests/support/runner.h"

static const PacketHeader packet_header = {
    .sender = 0x04030201,
    .flags = PACKET_ASK | PACKET_AGAIN,
    .run_id = 0x1112131415161718,
    .incarnation = 0x2122232425262728,
    .sequence = 0x3132333435363738,
    .ack = 0x4142434445464748,
    .consumed = 0x5152535455565758,
    .payload_bytes = 96,
    .n_messages = 1,
};

static const WireHeader add_header = {
    .kind = MESSAGE_ADD,
    .epoch = 5,
    .keys = WIRE_KEYS_LIST,
    .key_bytes = 16,
    .value_bytes = 12,
    .request = { .id = 9,
                 .table = 6,
                 .part = 3,
                 .server = 7,
                 .worker = 8,
                 .clock = 0x0102030405060708,
                 .n_keys = 2,
                 .first_key = 10 },
};

/* The members of other kinds. */
static const WireHeader announce_header = { .kind = MESSAGE_ANNOUNCE,
                                            .request = { .worker = 2, .n_announced = 1 << 20 } };
static const WireHeader tune_header = {
    .kind = MESSAGE_TUNE, .request = { .tuning = { RUBATO_HYPER_LEARNING_RATE, 0.25 } }
};
static const WireHeader clock_header = {
    .kind = MESSAGE_CLOCK,
    .epoch = 5,
    .clock = { .table = 6, .source = 7, .clock = 8, .node_clock = UINT64_MAX, .slowest = 9 }
};
static const WireHeader reply_header = { .kind = MESSAGE_REPLY,
                                         .value_bytes = 5,
                                         .reply = { .request_id = UINT64_MAX - 1,
                                                    .status = CALL_REFUSED,
                                                    .min_clock = 11,
                                                    .more_bytes = (uint64_t)1 << 40 } };
static const WireHeader handler_header = {
    .kind = MESSAGE_HANDLER,
    .request = { .n_keys = 4, .piece = { .serial = UINT64_MAX, .n_bytes = 1 << 20 } }
};

static const WireHeader feed_header = { .kind = MESSAGE_FEED,
                                        .epoch = 5,
                                        .request = { .table = 6,
                                                     .part = 3,
                                                     .worker = 8,
                                                     .n_keys = 4,
                                                     .input = { .sequence = UINT64_MAX - 1,
                                                                .hyper = RUBATO_HYPER_LEARNING_RATE,
                                                                .kind = MESSAGE_TUNE,
                                                                .number = UINT64_MAX - 2 } } };

/* A packet with add_header as its only message, in a buffer of just its size. */
typedef struct {
    uint8_t *bytes;
    size_t size;
} Bytes;

static Bytes whole_message(const WireHeader *header)
{
    const size_t size = wire_message_bytes(header);
    const Bytes message = { g_malloc0(size), size };

    wire_write_message_header(message.bytes, header);
    return message;
}

START_TEST(packet_header_comes_back_as_it_was_written)
{
    uint8_t bytes[WIRE_PACKET_HEADER_BYTES + 96] = { 0 };
    PacketHeader read;
    uint16_t version;
    PacketKind kind;

    wire_write_packet_header(bytes, &packet_header);
    ck_assert_ptr_null(wire_read_prefix(bytes, sizeof bytes, &version, &kind));
    ck_assert_uint_eq(version, WIRE_VERSION);
    ck_assert_uint_eq(kind, PACKET_LINK);
    ck_assert_ptr_null(wire_read_packet_header(bytes, sizeof bytes, &read));
    ck_assert_uint_eq(read.sender, packet_header.sender);
    ck_assert_uint_eq(read.flags, packet_header.flags);
    ck_assert_uint_eq(read.run_id, packet_header.run_id);
    ck_assert_uint_eq(read.incarnation, packet_header.incarnation);
    ck_assert_uint_eq(read.sequence, packet_header.sequence);
    ck_assert_uint_eq(read.ack, packet_header.ack);
    ck_assert_uint_eq(read.consumed, packet_header.consumed);
    ck_assert_uint_eq(read.payload_bytes, packet_header.payload_bytes);
    ck_assert_uint_eq(read.n_messages, packet_header.n_messages);
}
END_TEST

START_TEST(message_header_comes_back_as_it_was_written)
{
    const Bytes message = whole_message(&add_header);
    WireHeader read;

    ck_assert_ptr_null(wire_read_message(message.bytes, message.size, &read));
    ck_assert_uint_eq(read.kind, add_header.kind);
    ck_assert_uint_eq(read.epoch, add_header.epoch);
    ck_assert_uint_eq(read.request.id, add_header.request.id);
    ck_assert_uint_eq(read.request.table, add_header.request.table);
    ck_assert_uint_eq(read.request.part, add_header.request.part);
    ck_assert_uint_eq(read.request.server, add_header.request.server);
    ck_assert_uint_eq(read.request.worker, add_header.request.worker);
    ck_assert_uint_eq(read.request.clock, add_header.request.clock);
    ck_assert_uint_eq(read.keys, add_header.keys);
    ck_assert_uint_eq(read.request.n_keys, add_header.request.n_keys);
    ck_assert_uint_eq(read.request.first_key, add_header.request.first_key);
    ck_assert_uint_eq(read.key_bytes, add_header.key_bytes);
    ck_assert_uint_eq(read.value_bytes, add_header.value_bytes);
    g_free(message.bytes);
}
END_TEST

/* The bytes are written out, so that a change of the format fails the case. */
START_TEST(each_kind_carries_its_own)
{
    const Bytes announcement = whole_message(&announce_header),
                tuning = whole_message(&tune_header), clock = whole_message(&clock_header),
                reply = whole_message(&reply_header), handler = whole_message(&handler_header);
    WireHeader read;

    ck_assert_ptr_null(wire_read_message(announcement.bytes, announcement.size, &read));
    ck_assert_uint_eq(read.request.worker, announce_header.request.worker);
    ck_assert_uint_eq(read.request.n_announced, announce_header.request.n_announced);
    ck_assert_ptr_null(wire_read_message(tuning.bytes, tuning.size, &read));
    ck_assert_uint_eq(read.request.tuning.hyper, tune_header.request.tuning.hyper);
    ck_assert_double_eq(read.request.tuning.value, tune_header.request.tuning.value);
    ck_assert_ptr_null(wire_read_message(clock.bytes, clock.size, &read));
    ck_assert_uint_eq(read.epoch, clock_header.epoch);
    ck_assert_uint_eq(read.clock.table, clock_header.clock.table);
    ck_assert_uint_eq(read.clock.source, clock_header.clock.source);
    ck_assert_uint_eq(read.clock.clock, clock_header.clock.clock);
    ck_assert_uint_eq(read.clock.node_clock, clock_header.clock.node_clock);
    ck_assert_uint_eq(read.clock.slowest, clock_header.clock.slowest);
    ck_assert_ptr_null(wire_read_message(reply.bytes, reply.size, &read));
    ck_assert_uint_eq(read.reply.request_id, reply_header.reply.request_id);
    ck_assert_uint_eq(read.reply.status, reply_header.reply.status);
    ck_assert_uint_eq(read.reply.min_clock, reply_header.reply.min_clock);
    ck_assert_uint_eq(read.reply.more_bytes, reply_header.reply.more_bytes);
    ck_assert_ptr_null(wire_read_message(handler.bytes, handler.size, &read));
    ck_assert_uint_eq(read.request.n_keys, handler_header.request.n_keys);
    ck_assert_uint_eq(read.request.piece.serial, handler_header.request.piece.serial);
    ck_assert_uint_eq(read.request.piece.n_bytes, handler_header.request.piece.n_bytes);
    g_free(announcement.bytes);
    g_free(tuning.bytes);
    g_free(clock.bytes);
    g_free(reply.bytes);
    g_free(handler.bytes);
}
END_TEST

START_TEST(the_number_of_an_input_is_no_id_and_its_kind_is_small)
{
    const Bytes feed = whole_message(&feed_header);
    WireHeader read;

    ck_assert_ptr_null(wire_read_message(feed.bytes, feed.size, &read));
    ck_assert_uint_eq(read.request.id, 0);
    ck_assert_uint_eq(read.request.part, feed_header.request.part);
    ck_assert_uint_eq(read.request.input.number, feed_header.request.input.number);
    ck_assert_uint_eq(read.request.input.kind, feed_header.request.input.kind);
    ck_assert_uint_eq(read.request.input.hyper, feed_header.request.input.hyper);
    ck_assert_uint_eq(read.request.input.sequence, feed_header.request.input.sequence);
    wire_store_u32(feed.bytes + 76, UINT8_MAX + 1);
    ck_assert_str_eq(wire_read_message(feed.bytes, feed.size, &read),
                     "its kind of input is unknown");
    g_free(feed.bytes);
}
END_TEST

/* A clock, a reply and a control message name no keys. _i: which. */
START_TEST(what_has_no_keys_is_refused_with_some)
{
    static const MessageKind kinds[] = { MESSAGE_CLOCK, MESSAGE_REPLY, MESSAGE_CONTROL };
    const WireHeader header = { .kind = kinds[_i], .key_bytes = 8 };
    const Bytes message = whole_message(&header);
    WireHeader read;

    const char *const found = wire_read_message(message.bytes, message.size, &read);
    ck_assert_ptr_nonnull(found);
    ck_assert_msg(strstr(found, "with keys") != NULL, "%s", found);
    g_free(message.bytes);
}
END_TEST

START_TEST(headers_are_little_endian_at_fixed_places)
{
    static const uint8_t packet[WIRE_PACKET_HEADER_BYTES] = {
        'R',  'B',  'T',  'O',  WIRE_VERSION, 0,    1,    0,    1,    2,    3,    4,    3,
        0,    0,    0,    0x18, 0x17,         0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27,
        0x26, 0x25, 0x24, 0x23, 0x22,         0x21, 0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32,
        0x31, 0x48, 0x47, 0x46, 0x45,         0x44, 0x43, 0x42, 0x41, 0x58, 0x57, 0x56, 0x55,
        0x54, 0x53, 0x52, 0x51, 96,           0,    0,    0,    1,    0,    0,    0,
    };
    static const uint8_t message[WIRE_MESSAGE_HEADER_BYTES] = {
        2, 0, 0,  0, 5, 0, 0, 0, 16, 0, 0, 0, 12, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0,
        0, 3, 0,  0, 0, 7, 0, 0, 0,  8, 0, 0, 0,  8, 7, 6, 5, 4, 3, 2, 1, 1, 0, 0, 0, 2, 0,
        0, 0, 10, 0, 0, 0, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    };
    uint8_t bytes[WIRE_MESSAGE_HEADER_BYTES];

    wire_write_packet_header(bytes, &packet_header);
    ck_assert_mem_eq(bytes, packet, sizeof packet);
    wire_write_message_header(bytes, &add_header);
    ck_assert_mem_eq(bytes, message, sizeof message);
}
END_TEST

START_TEST(cut_short_at_any_byte_is_refused)
{
    const Bytes message = whole_message(&add_header);
    uint8_t packet[WIRE_PACKET_HEADER_BYTES + 96] = { 0 };
    WireHeader message_read;
    PacketHeader packet_read = { .sender = 77 };

    for (size_t size = 0; size < message.size; size++) {
        uint8_t *const cut = g_memdup2(message.bytes, size); /* a sanitizer sees the end */
        ck_assert_ptr_nonnull(wire_read_message(cut, size, &message_read));
        g_free(cut);
    }
    wire_write_packet_header(packet, &packet_header);
    for (size_t size = WIRE_PREFIX_BYTES; size < sizeof packet; size++) {
        uint8_t *const cut = g_memdup2(packet, size);
        ck_assert_ptr_nonnull(wire_read_packet_header(cut, size, &packet_read));
        g_free(cut);
    }
    ck_assert_uint_eq(packet_read.sender, 77);
    g_free(message.bytes);
}
END_TEST

typedef struct {
    size_t at;
    uint64_t value;
    size_t bytes;
    const char *fault;
} Fault;

static const Fault message_faults[] = {
    { 0, 0, 2, "kind of message" },
    { 0, MESSAGE_INVOKE, 2, "kind of message" },
    { 0, 0xffff, 2, "kind of message" },
    { 48, 3, 4, "encoding of keys" },
    { 52, 1, 4, "their number" },
    { 52, 3, 4, "their number" },
    { 52, UINT32_MAX, 4, "their number" },
    { 52, (UINT32_C(1) << 29) + 2, 4, "their number" }, /* × 8 wraps to 16 */
    { 8, 17, 4, "keys are longer|values are longer|their number" },
    { 8, 15, 4, "their number" },
    { 8, UINT32_MAX, 4, "keys are longer" },
    { 8, UINT32_MAX - 6, 4, "keys are longer" }, /* rounded up it would be 0 */
    { 12, 17, 4, "values are longer" },
    { 12, UINT32_MAX, 4, "values are longer" },
    { 12, UINT32_MAX - 6, 4, "values are longer" },
};

static void store(uint8_t *bytes, const Fault *fault)
{
    for (size_t i = 0; i < fault->bytes; i++)
        bytes[fault->at + i] = (uint8_t)(fault->value >> (8 * i));
}

START_TEST(message_with_a_wrong_field_is_refused)
{
    const Fault *const fault = &message_faults[_i];
    const Bytes message = whole_message(&add_header);
    WireHeader read;

    store(message.bytes, fault);
    const char *const found = wire_read_message(message.bytes, message.size, &read);
    ck_assert_ptr_nonnull(found);
    ck_assert_msg(g_regex_match_simple(fault->fault, found, 0, 0), "%s is not %s", found,
                  fault->fault);
    g_free(message.bytes);
}
END_TEST

static const Fault packet_faults[] = {
    { 4, WIRE_VERSION + 1, 2, "wire version" },
    { 56, 95, 4, "size" },
    { 56, 0xffffffff, 4, "size" },
    { 60, 2, 4, "number of its messages" },
    { 60, 0xffffffff, 4, "number of its messages" },
    { 60, 0, 4, "without messages" },
    { 32, 0, 8, "without a number" },
};

START_TEST(packet_with_a_wrong_field_is_refused)
{
    const Fault *const fault = &packet_faults[_i];
    uint8_t bytes[WIRE_PACKET_HEADER_BYTES + 96] = { 0 };
    PacketHeader read = { .sender = 77 };

    wire_write_packet_header(bytes, &packet_header);
    store(bytes, fault);
    const char *const found = wire_read_packet_header(bytes, sizeof bytes, &read);
    ck_assert_ptr_nonnull(found);
    ck_assert_msg(strstr(found, fault->fault) != NULL, "%s is not %s", found, fault->fault);
    ck_assert_uint_eq(read.sender, 77);
}
END_TEST

START_TEST(a_reply_of_an_unknown_status_is_refused)
{
    const Bytes message = whole_message(&reply_header);
    WireHeader read;

    wire_store_u32(message.bytes + 24, CALL_MOVED + 1);
    const char *const found = wire_read_message(message.bytes, message.size, &read);
    ck_assert_ptr_nonnull(found);
    ck_assert_msg(strstr(found, "status") != NULL, "%s", found);
    g_free(message.bytes);
}
END_TEST

START_TEST(numbers_of_a_message_keep_all_their_bits)
{
    WireHeader header = add_header, read;

    header.request.id = 0x6162636465666768;
    header.request.first_key = 0x7172737475767778;
    const Bytes message = whole_message(&header);
    ck_assert_ptr_null(wire_read_message(message.bytes, message.size, &read));
    ck_assert_uint_eq(read.request.id, header.request.id);
    ck_assert_uint_eq(read.request.first_key, header.request.first_key);
    g_free(message.bytes);
}
END_TEST

/* Keys as differences take any number of bytes: what follows them begins at a multiple of 8, and
 * that has to be there. _i: bytes of values. */
START_TEST(padding_belongs_to_a_message)
{
    const WireHeader header = { .kind = MESSAGE_ADD,
                                .keys = WIRE_KEYS_DELTAS,
                                .key_bytes = 5,
                                .value_bytes = (uint64_t)_i,
                                .request = { .n_keys = 5 } };
    const Bytes message = whole_message(&header);
    WireHeader read;

    ck_assert_uint_eq(message.size, WIRE_MESSAGE_HEADER_BYTES + 8 + wire_padded((size_t)_i));
    ck_assert_ptr_null(wire_read_message(message.bytes, message.size, &read));
    for (size_t size = 0; size < message.size; size++)
        require_msg(wire_read_message(message.bytes, size, &read) != NULL, "of %u bytes",
                    (unsigned)size);
    g_free(message.bytes);
}
END_TEST

START_TEST(a_list_has_eight_bytes_for_each_key)
{
    WireHeader header = { .kind = MESSAGE_GET, .keys = WIRE_KEYS_LIST, .request = { .n_keys = 2 } };
    WireHeader read;

    for (header.key_bytes = 14; header.key_bytes < 26; header.key_bytes++) {
        const Bytes message = whole_message(&header);

        require_msg((wire_read_message(message.bytes, message.size, &read) == NULL) ==
                        (header.key_bytes == 16),
                    "%u bytes", (unsigned)header.key_bytes);
        g_free(message.bytes);
    }
}
END_TEST

START_TEST(a_packet_without_messages_has_no_other_bytes)
{
    PacketHeader header = packet_header, read;
    uint8_t bytes[WIRE_PACKET_HEADER_BYTES + 96] = { 0 };

    header.sequence = 0;
    header.n_messages = 0;
    wire_write_packet_header(bytes, &header);
    ck_assert_ptr_nonnull(wire_read_packet_header(bytes, sizeof bytes, &read));
    header.payload_bytes = 0;
    wire_write_packet_header(bytes, &header);
    ck_assert_ptr_null(wire_read_packet_header(bytes, WIRE_PACKET_HEADER_BYTES, &read));
}
END_TEST

START_TEST(run_of_keys_may_end_with_the_last_key_but_not_beyond)
{
    WireHeader header = {
        .kind = MESSAGE_GET,
        .keys = WIRE_KEYS_RUN,
        .request = { .first_key = UINT64_MAX - 4, .n_keys = 5 },
    };
    uint8_t bytes[WIRE_MESSAGE_HEADER_BYTES];
    WireHeader read;

    wire_write_message_header(bytes, &header);
    ck_assert_ptr_null(wire_read_message(bytes, sizeof bytes, &read));
    header.request.n_keys = 6;
    wire_write_message_header(bytes, &header);
    ck_assert_ptr_nonnull(wire_read_message(bytes, sizeof bytes, &read));
    header.request.n_keys = UINT32_MAX;
    header.request.first_key = UINT64_MAX - 2;
    wire_write_message_header(bytes, &header);
    ck_assert_ptr_nonnull(wire_read_message(bytes, sizeof bytes, &read));
    header.request.n_keys = 0;
    wire_write_message_header(bytes, &header);
    ck_assert_ptr_null(wire_read_message(bytes, sizeof bytes, &read));
}
END_TEST

START_TEST(rubbish_is_no_packet)
{
    uint8_t bytes[WIRE_PREFIX_BYTES];
    uint16_t version = 77;
    PacketKind kind = PACKET_LINK;

    memset(bytes, 0xee, sizeof bytes);
    ck_assert_ptr_nonnull(wire_read_prefix(bytes, sizeof bytes, &version, &kind));
    wire_write_greeting_prefix(bytes, 1, 0);
    ck_assert_ptr_nonnull(wire_read_prefix(bytes, sizeof bytes - 1, &version, &kind));
    bytes[6] = 3;
    ck_assert_ptr_nonnull(wire_read_prefix(bytes, sizeof bytes, &version, &kind));
    ck_assert_uint_eq(version, 77);
}
END_TEST

START_TEST(greeting_of_another_version_can_be_read)
{
    uint8_t bytes[WIRE_PREFIX_BYTES + 5] = { 0 };
    uint16_t version;
    PacketKind kind;
    size_t body_bytes = 77;

    wire_write_greeting_prefix(bytes, WIRE_VERSION + 41, 5);
    ck_assert_ptr_null(wire_read_prefix(bytes, sizeof bytes, &version, &kind));
    ck_assert_uint_eq(version, WIRE_VERSION + 41);
    ck_assert_uint_eq(kind, PACKET_GREETING);
    ck_assert_ptr_nonnull(wire_read_greeting(bytes, sizeof bytes - 1, &body_bytes));
    ck_assert_uint_eq(body_bytes, 77);
    ck_assert_ptr_null(wire_read_greeting(bytes, sizeof bytes, &body_bytes));
    ck_assert_uint_eq(body_bytes, 5);
}
END_TEST

START_TEST(frame_that_cannot_be_is_refused)
{
    static const uint64_t sizes[][2] = {
        { 0, WIRE_MAX_PAYLOAD_BYTES + 1 },
        { WIRE_MAX_PAYLOAD_BYTES + 1, 0 },
        { WIRE_MAX_PAYLOAD_BYTES / 2 + 8, WIRE_MAX_PAYLOAD_BYTES / 2 + 8 },
        { UINT64_MAX, 8 },
        { UINT64_MAX - 7, UINT64_MAX - 7 },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++)
        ck_assert_ptr_null(frame_new(&(WireHeader){
            .kind = MESSAGE_ADD, .key_bytes = sizes[i][0], .value_bytes = sizes[i][1] }));
}
END_TEST

static Frame *frame_of(uint64_t n_keys, uint64_t value_bytes)
{
    return frame_new(&(WireHeader){ .kind = MESSAGE_ADD,
                                    .keys = WIRE_KEYS_LIST,
                                    .key_bytes = 8 * n_keys,
                                    .value_bytes = value_bytes,
                                    .request = { .n_keys = n_keys } });
}

START_TEST(frame_takes_keys_as_list_selection_and_run)
{
    static const RubatoKey keys[] = { 10, 11, 12, 13 };
    static const uint32_t at[] = { 3, 1 };
    static const struct {
        RubatoKeys keys;
        RubatoKey expected[2];
    } cases[] = {
        { { .keys = keys, .n = 2 }, { 10, 11 } },
        { { .keys = keys, .at = at, .n = 2 }, { 13, 11 } },
        { { .first = 7, .n = 2 }, { 7, 8 } },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        Frame *const frame = frame_of(2, 0);
        frame_set_keys(frame, &cases[i].keys);
        for (size_t k = 0; k < 2; k++)
            ck_assert_uint_eq(wire_load_u64((uint8_t *)frame_keys(frame) + 8 * k),
                              cases[i].expected[k]);
        frame_free(frame);
    }
}
END_TEST

START_TEST(frame_has_aligned_keys_and_values)
{
    for (uint64_t n = 0; n < 4; n++) {
        Frame *const frame = frame_of(n, 3);
        ck_assert_uint_eq((uintptr_t)frame_keys(frame) % 8, 0);
        ck_assert_uint_eq((uintptr_t)frame_values(frame) % 8, 0);
        frame_free(frame);
    }
    frame_free(NULL);
}
END_TEST

#define JOINED_BYTES ((size_t)64 << 10)

START_TEST(small_frames_share_a_packet_and_large_ones_go_alone)
{
    static const uint64_t value_bytes[] = { 4, 8, 12, 70000, 4, 4, JOINED_BYTES / PACKET_SMALL_PART,
                                            4 };
    static const uint32_t expected[] = { 3, 1, 2, 1, 1 };
    Frame *first = NULL, *frames[G_N_ELEMENTS(value_bytes)];

    for (size_t i = G_N_ELEMENTS(value_bytes); i-- > 0;) {
        frames[i] = frame_of(1, value_bytes[i]);
        memset(frame_values(frames[i]), (int)i + 1, wire_padded(value_bytes[i])); /* padding too */
        frames[i]->next = first;
        first = frames[i];
    }
    size_t n_frames = 0;
    for (size_t i = 0; i < G_N_ELEMENTS(expected); i++) {
        Packet *const packet = packet_take(&first, JOINED_BYTES, UINT32_MAX);
        size_t at = WIRE_PACKET_HEADER_BYTES;
        ck_assert_uint_eq(packet->n_messages, expected[i]);
        for (uint32_t m = 0; m < packet->n_messages; m++, n_frames++) {
            WireHeader read;
            ck_assert_ptr_null(wire_read_message(packet->bytes + at, packet->size - at, &read));
            ck_assert_uint_eq(read.value_bytes, value_bytes[n_frames]);
            const uint8_t *const values = packet->bytes + at + WIRE_MESSAGE_HEADER_BYTES + 8;
            for (size_t b = 0; b < wire_padded(read.value_bytes); b++)
                ck_assert_uint_eq(values[b], b < read.value_bytes ? n_frames + 1 : 0);
            at += wire_message_bytes(&read);
        }
        ck_assert_uint_eq(at, packet->size);
        packet_unref(packet);
    }
    ck_assert_ptr_null(first);
    ck_assert_uint_eq(n_frames, G_N_ELEMENTS(value_bytes));
}
END_TEST

START_TEST(joined_packets_stay_below_their_bound)
{
    Frame *first = NULL;
    uint32_t n = 0;

    for (size_t i = 0; i < 1000; i++) {
        Frame *const frame = frame_of(1, 500);
        frame->next = first;
        first = frame;
    }
    while (first != NULL) {
        Packet *const packet = packet_take(&first, JOINED_BYTES, UINT32_MAX);
        ck_assert_uint_le(packet->size, JOINED_BYTES);
        ck_assert_uint_gt(packet->n_messages, first != NULL ? 90 : 0);
        n += packet->n_messages;
        packet_unref(packet);
    }
    ck_assert_uint_eq(n, 1000);
}
END_TEST

START_TEST(values_of_a_frame_may_shrink)
{
    Frame *frame = frame_of(0, 800);
    WireHeader read;

    frame_header(frame)->value_bytes = 10;
    frame->next = NULL;
    Packet *const packet = packet_take(&frame, JOINED_BYTES, UINT32_MAX);
    ck_assert_uint_eq(packet->size, WIRE_PACKET_HEADER_BYTES + WIRE_MESSAGE_HEADER_BYTES + 16);
    ck_assert_ptr_null(wire_read_message(packet->bytes + WIRE_PACKET_HEADER_BYTES,
                                         packet->size - WIRE_PACKET_HEADER_BYTES, &read));
    ck_assert_uint_eq(read.value_bytes, 10);
    packet_unref(packet);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("wire");
    TCase *const headers = tcase_create("headers");
    TCase *const frames = tcase_create("frames");

    tcase_add_test(headers, packet_header_comes_back_as_it_was_written);
    tcase_add_test(headers, message_header_comes_back_as_it_was_written);
    tcase_add_test(headers, each_kind_carries_its_own);
    tcase_add_test(headers, the_number_of_an_input_is_no_id_and_its_kind_is_small);
    tcase_add_loop_test(headers, what_has_no_keys_is_refused_with_some, 0, 3);
    tcase_add_test(headers, a_reply_of_an_unknown_status_is_refused);
    tcase_add_test(headers, headers_are_little_endian_at_fixed_places);
    tcase_add_test(headers, cut_short_at_any_byte_is_refused);
    tcase_add_loop_test(headers, message_with_a_wrong_field_is_refused, 0,
                        G_N_ELEMENTS(message_faults));
    tcase_add_loop_test(headers, packet_with_a_wrong_field_is_refused, 0,
                        G_N_ELEMENTS(packet_faults));
    tcase_add_test(headers, numbers_of_a_message_keep_all_their_bits);
    tcase_add_loop_test(headers, padding_belongs_to_a_message, 0, 10);
    tcase_add_test(headers, a_list_has_eight_bytes_for_each_key);
    tcase_add_test(headers, a_packet_without_messages_has_no_other_bytes);
    tcase_add_test(headers, run_of_keys_may_end_with_the_last_key_but_not_beyond);
    tcase_add_test(headers, rubbish_is_no_packet);
    tcase_add_test(headers, greeting_of_another_version_can_be_read);
    tcase_add_test(frames, frame_that_cannot_be_is_refused);
    tcase_add_test(frames, frame_takes_keys_as_list_selection_and_run);
    tcase_add_test(frames, frame_has_aligned_keys_and_values);
    tcase_add_test(frames, small_frames_share_a_packet_and_large_ones_go_alone);
    tcase_add_test(frames, joined_packets_stay_below_their_bound);
    tcase_add_test(frames, values_of_a_frame_may_shrink);
    suite_add_tcase(suite, headers);
    suite_add_tcase(suite, frames);
    return run_suite(suite);
}
