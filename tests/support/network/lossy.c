/* The transport that loses packets. Each channel has its own seeded random numbers, so its faults
 * depend only on how often it was asked to send.
 *
 * Threads: as for any transport. Invariant: a packet that a channel holds back is sent with a later
 * packet, or when the channel's state is asked for. So nothing stays for ever. */
#include "tests/support/network/lossy.h"

#define MOST_DELAYED 8

typedef struct {
    Transport base;
    Transport *inner;
    uint32_t self;
    _Atomic uint32_t n_channels;
} LossyTransport;

typedef struct {
    Channel base;
    Channel *inner;
    uint32_t from, to;
    GRand *random;
    Packet *delayed[MOST_DELAYED];
    size_t n_delayed;
} LossyChannel;

static Lossy faults;
static _Atomic double loss;

static const TransportOps *inner_ops(void)
{
    return transport_at(0);
}

static void release_delayed(LossyChannel *channel)
{
    while (channel->n_delayed > 0) {
        Packet *const packet = channel->delayed[--channel->n_delayed];
        channel->inner->ops->send(channel->inner, packet);
        packet_unref(packet);
    }
}

static void lossy_send(Channel *channel, Packet *packet)
{
    LossyChannel *const self = (LossyChannel *)channel;
    Packet *const changed =
        faults.change != NULL ? faults.change(self->from, self->to, packet) : packet;

    if (changed != packet) {
        if (changed == NULL)
            return;
        self->inner->ops->send(self->inner, changed);
        packet_unref(changed);
        return;
    }
    if (g_rand_double(self->random) < atomic_load(&loss))
        return;
    if (g_rand_double(self->random) < faults.delay && self->n_delayed < MOST_DELAYED) {
        packet_ref(packet);
        self->delayed[self->n_delayed++] = packet;
        return;
    }
    self->inner->ops->send(self->inner, packet);
    if (g_rand_double(self->random) < faults.doubling)
        self->inner->ops->send(self->inner, packet);
    if (g_rand_boolean(self->random))
        release_delayed(self);
}

static NetworkPeerState lossy_state(Channel *channel)
{
    LossyChannel *const self = (LossyChannel *)channel;

    release_delayed(self);
    return self->inner->ops->state(self->inner);
}

static uint32_t lossy_n_resets(Channel *channel)
{
    Channel *const inner = ((LossyChannel *)channel)->inner;

    return inner->ops->n_resets != NULL ? inner->ops->n_resets(inner) : 0;
}

static void lossy_close(Channel *channel, unsigned linger_ms)
{
    LossyChannel *const self = (LossyChannel *)channel;

    release_delayed(self);
    self->inner->ops->close(self->inner, linger_ms);
    g_rand_free(self->random);
    g_free(self);
}

static const ChannelOps channel_ops = {
    .send = lossy_send,
    .state = lossy_state,
    .n_resets = lossy_n_resets,
    .close = lossy_close,
};

static Transport *lossy_create(const TransportConfig *config, GError **error);

static void lossy_destroy(Transport *transport)
{
    LossyTransport *const self = (LossyTransport *)transport;

    inner_ops()->destroy(self->inner);
    g_free(self);
}

static bool lossy_bind(Transport *transport, const char *endpoint, char **resolved, GError **error)
{
    return inner_ops()->bind(((LossyTransport *)transport)->inner, endpoint, resolved, error);
}

static int lossy_poll_fd(Transport *transport)
{
    return inner_ops()->poll_fd(((LossyTransport *)transport)->inner);
}

static bool lossy_take_resets(Transport *transport)
{
    Transport *const inner = ((LossyTransport *)transport)->inner;

    return inner_ops()->take_resets != NULL && inner_ops()->take_resets(inner);
}

static bool lossy_receive(Transport *transport, Received *received)
{
    return inner_ops()->receive(((LossyTransport *)transport)->inner, received);
}

static Channel *lossy_connect(Transport *transport, const char *endpoint,
                              const ChannelTarget *target, GError **error)
{
    LossyTransport *const self = (LossyTransport *)transport;
    Channel *const inner = inner_ops()->connect(self->inner, endpoint, target, error);

    if (inner == NULL)
        return NULL;
    LossyChannel *const channel = g_new0(LossyChannel, 1);
    channel->base.ops = &channel_ops;
    channel->inner = inner;
    channel->from = self->self;
    channel->to = target != NULL ? target->node : HANDSHAKE_ANY_NODE;
    channel->random = g_rand_new_with_seed(faults.seed + atomic_fetch_add(&self->n_channels, 1));
    return &channel->base;
}

static void lossy_answer(Transport *transport, uint32_t connection, Packet *packet)
{
    inner_ops()->answer(((LossyTransport *)transport)->inner, connection, packet);
}

static const TransportOps lossy_ops = {
    .name = "lossy",
    .create = lossy_create,
    .destroy = lossy_destroy,
    .bind = lossy_bind,
    .poll_fd = lossy_poll_fd,
    .receive = lossy_receive,
    .take_resets = lossy_take_resets,
    .connect = lossy_connect,
    .answer = lossy_answer,
};

static Transport *lossy_create(const TransportConfig *config, GError **error)
{
    Transport *const inner = inner_ops()->create(config, error);

    if (inner == NULL)
        return NULL;
    LossyTransport *const transport = g_new0(LossyTransport, 1);
    transport->base.ops = &lossy_ops;
    transport->inner = inner;
    transport->self = config->self;
    return &transport->base;
}

const TransportOps *lossy_transport(const Lossy *lossy)
{
    faults = *lossy;
    lossy_set_loss(lossy->loss);
    return &lossy_ops;
}

void lossy_set_loss(double new_loss)
{
    atomic_store(&loss, new_loss);
}
