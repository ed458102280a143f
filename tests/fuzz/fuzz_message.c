/* Gives a network arbitrary packets, over a transport without sockets: all code from the socket to
 * the handler, links included.
 *
 * The input is a row of packets: a byte that says how to treat it, two bytes of length, the packet.
 * Few random packets would pass the first checks, so the treatment may correct the prefix, the run,
 * the sender, the number and the sizes. */
#include <stdlib.h>

#include "io/net/link/key_codec.h"
#include "io/net/network/network_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    PUT_RIGHT = 1,    /* everything but acknowledgement, consumed and messages */
    PREFIX_RIGHT = 2, /* a packet of a link */
    GREETING = 4,     /* a greeting with its body in the box that it comes in */
    MISSHAPEN = 8,
    OTHER_SENDER = 32, /* another node has shaken hands on the connection than the packet says */
    SPLIT = 16,        /* offset by one byte in memory, so that nothing is aligned */
};

#define RUN_ID 7
#define INCARNATION 8

typedef struct {
    Transport base;
    const uint8_t *data;
    size_t size;
    uint64_t sequence;
} FakeTransport;

static FakeTransport *fake; /* of the network that is being made */

static void fake_release(Received *received)
{
    void *block;

    memcpy(&block, received->memory, sizeof block);
    free(block);
}

static void fake_move(Received *to, Received *from)
{
    *to = *from;
}

static const char *fake_address(Received *received)
{
    (void)received;
    return "nowhere";
}

static const ReceivedOps received_ops = {
    .release = fake_release,
    .move = fake_move,
    .address = fake_address,
};

static void put_right(FakeTransport *transport, uint8_t treatment, uint8_t *bytes, size_t size)
{
    if ((treatment & GREETING) && size >= WIRE_PREFIX_BYTES) {
        wire_write_greeting_prefix(bytes, wire_load_u16(bytes + 4),
                                   (uint32_t)(size - WIRE_PREFIX_BYTES));
    } else if ((treatment & (PUT_RIGHT | PREFIX_RIGHT)) && size >= WIRE_PACKET_HEADER_BYTES) {
        PacketHeader header = {
            .sender = wire_load_u32(bytes + 8),
            .flags = wire_load_u32(bytes + 12),
            .run_id = wire_load_u64(bytes + 16),
            .incarnation = wire_load_u64(bytes + 24),
            .sequence = wire_load_u64(bytes + 32),
            .ack = wire_load_u64(bytes + 40) % 3,
            .consumed = wire_load_u64(bytes + 48),
            .payload_bytes = wire_load_u32(bytes + 56),
            .n_messages = wire_load_u32(bytes + 60),
        };
        if (treatment & PUT_RIGHT) {
            header.sender = 1;
            header.run_id = RUN_ID;
            header.incarnation = INCARNATION;
            header.consumed = 0;
            header.payload_bytes = (uint32_t)(size - WIRE_PACKET_HEADER_BYTES);
            header.sequence = header.n_messages > 0 ? ++transport->sequence : 0;
        }
        wire_write_packet_header(bytes, &header);
    }
}

static bool fake_receive(Transport *transport, Received *received)
{
    FakeTransport *const self = (FakeTransport *)transport;

    if (self->size < 3)
        return false;
    const uint8_t treatment = self->data[0];
    const size_t told = wire_load_u16(self->data + 1);
    const size_t size = MIN(told, self->size - 3);
    const size_t shift = treatment & SPLIT ? 1 : 0;
    /* A copy of exactly this size, so that a sanitizer sees a read beyond its end. */
    uint8_t *const block = malloc(size + shift + (size + shift == 0));
    if (block == NULL)
        return false;
    memcpy(block + shift, self->data + 3, size);
    self->data += 3 + size;
    self->size -= 3 + size;
    put_right(self, treatment, block + shift, size);
    *received = (Received){ .ops = &received_ops,
                            .bytes = block + shift,
                            .size = size,
                            .node = treatment & OTHER_SENDER ? 0 : HANDSHAKE_ANY_NODE,
                            .connection = treatment & GREETING ? 1 : 0,
                            .misshapen = (treatment & MISSHAPEN) != 0 };
    memcpy(received->memory, &block, sizeof block);
    return true;
}

static void fake_send(Channel *channel, Packet *packet)
{
    (void)channel;
    (void)packet;
}

static NetworkPeerState fake_state(Channel *channel)
{
    (void)channel;
    return NETWORK_PEER_CONNECTED;
}

static void fake_close(Channel *channel, unsigned linger_ms)
{
    (void)linger_ms;
    g_free(channel);
}

static const ChannelOps channel_ops = {
    .send = fake_send,
    .state = fake_state,
    .close = fake_close,
};

static Transport *fake_create(const TransportConfig *config, GError **error)
{
    (void)config;
    (void)error;
    return &fake->base;
}

static void fake_destroy(Transport *transport)
{
    (void)transport;
}

static int fake_poll_fd(Transport *transport)
{
    (void)transport;
    return -1; /* poll() ignores it */
}

static Channel *fake_connect(Transport *transport, const char *endpoint,
                             const ChannelTarget *target, GError **error)
{
    (void)target;
    Channel *const channel = g_new0(Channel, 1);

    (void)transport;
    (void)endpoint;
    (void)error;
    channel->ops = &channel_ops;
    return channel;
}

static const TransportOps transport_ops = {
    .name = "fake",
    .create = fake_create,
    .destroy = fake_destroy,
    .poll_fd = fake_poll_fd,
    .receive = fake_receive,
    .connect = fake_connect,
};

/* Decodes differences as the post office does, into just so much memory. */
static void decode(const Incoming *incoming, uint64_t *sum)
{
    const size_t n = (size_t)incoming->header.request.n_keys;

    if (n == 0)
        return;
    RubatoKey *const keys = malloc(n * sizeof *keys);
    if (keys != NULL && key_codec_decode(incoming->deltas, (size_t)incoming->header.key_bytes,
                                         incoming->header.request.first_key, n, keys))
        for (size_t i = 0; i < n; i++)
            *sum += keys[i];
    free(keys);
}

/* Reads everything that the header promises, so that a sanitizer sees missing bytes. */
static void on_receive(void *user, Incoming *incoming)
{
    uint64_t *const sum = user;

    if (incoming->node != 1 || incoming->header.kind < MESSAGE_GET ||
        (uint32_t)incoming->header.kind >= MESSAGE_N_WIRE_KINDS ||
        (uintptr_t)incoming->keys % 8 != 0 || (uintptr_t)incoming->values % 8 != 0)
        abort();
    if (incoming->keys != NULL)
        for (uint64_t i = 0; i < incoming->header.request.n_keys; i++)
            *sum += incoming->keys[i];
    if (incoming->deltas != NULL) {
        const size_t n = (size_t)incoming->header.request.n_keys; /* no more than bytes */
        RubatoKey *const keys = g_new(RubatoKey, n);

        if (key_codec_decode(incoming->deltas, (size_t)incoming->header.key_bytes,
                             incoming->header.request.first_key, n, keys))
            *sum += keys[n - 1];
        g_free(keys);
    }
    if (incoming->deltas != NULL)
        decode(incoming, sum);
    for (size_t i = 0; i < incoming->value_bytes; i++)
        *sum += ((const uint8_t *)incoming->values)[i];
    memset(incoming->room, 1, 24);
    incoming_free(incoming);
}

static void on_greeted(void *user, uint16_t version, GVariant *body, const GreetingSource *source)
{
    g_autofree char *text = g_variant_print(body, TRUE);

    *(uint64_t *)user += version + strlen(text) + strlen(source->address);
}

static void on_tick(void *user, int64_t now_ms)
{
    (void)user;
    (void)now_ms;
}

static GLogWriterOutput drop_log(GLogLevelFlags level, const GLogField *fields, gsize n_fields,
                                 gpointer user)
{
    (void)level;
    (void)fields;
    (void)n_fields;
    (void)user;
    return G_LOG_WRITER_HANDLED;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool silenced;
    static const NetworkPeer peers[] = { { .endpoint = "a", .incarnation = 1 },
                                         { .endpoint = "b", .incarnation = INCARNATION } };
    FakeTransport transport = { .base = { &transport_ops }, .data = data, .size = size };
    const NetworkHandler handler = { .receive = on_receive,
                                     .greeted = on_greeted,
                                     .tick = on_tick };
    const NetworkConfig config = { .transport_ops = &transport_ops,
                                   .n_nodes = 2,
                                   .incarnation = 1,
                                   .room_bytes = 24,
                                   .window_bytes = 1000,
                                   .stop_ms = 1 };
    uint64_t sum = 0;

    if (!silenced) {
        g_log_set_writer_func(drop_log, NULL, NULL);
        silenced = true;
    }
    fake = &transport;
    Network *const network = network_new(&config, &handler, &sum, NULL);
    if (network == NULL || !network_join(network, RUN_ID, peers, NULL))
        abort();
    /* Two packets that a peer may acknowledge. */
    for (uint64_t i = 0; i < 2; i++)
        network_send(network, 1, frame_new(&(WireHeader){ .kind = MESSAGE_CONTROL }));
    /* The I/O thread's loop, here: being told to stop it goes round once for each batch. */
    atomic_store(&network->stopping, true);
    do
        network_run(network);
    while (transport.size >= 3);
    network_free(network);
    return 0;
}
