/* The transport with faults. Each channel has random numbers of its own, so its faults depend only
 * on the seed and on how often it was asked to send.
 *
 * Threads: as for any transport. Invariant: a packet that a channel holds back is sent with a later
 * packet, or when the channel's state is asked for. So nothing stays for ever. */
#include "io/net/transport/faulty/transport_faulty.h"

#include <rubato/mix.h>

#include "io/net/monotonic.h"

#define MOST_DELAYED 8
#define USUAL_CUT_MS 100

typedef struct {
    Transport base;
    Transport *inner;
    WireFaults *faults;
    uint32_t self;
    _Atomic uint32_t n_channels;
} FaultyTransport;

typedef struct {
    Channel base;
    Channel *inner;
    WireFaults *faults;
    uint32_t from, to;
    uint64_t random;
    int64_t cut_until_ms;
    Packet *delayed[MOST_DELAYED];
    size_t n_delayed;
} FaultyChannel;

static const TransportOps *const inner_ops = &transport_tcp;

/* Whether something of this chance happens now. */
static bool happens(FaultyChannel *self, double chance)
{
    if (chance <= 0)
        return false;
    self->random += UINT64_C(0x9e3779b97f4a7c15);
    return (double)(rubato_mix64(self->random) >> 11) * 0x1p-53 < chance;
}

static void release_delayed(FaultyChannel *self)
{
    while (self->n_delayed > 0) {
        Packet *const packet = self->delayed[--self->n_delayed];
        self->inner->ops->send(self->inner, packet);
        packet_unref(packet);
    }
}

static bool is_cut(FaultyChannel *self)
{
    const RubatoWireFaults *const faults = &self->faults->of_packets;
    const int64_t now_ms = faults->cut > 0 ? monotonic_ms() : 0;

    if (happens(self, faults->cut))
        self->cut_until_ms = now_ms + (faults->cut_ms > 0 ? faults->cut_ms : USUAL_CUT_MS);
    return now_ms < self->cut_until_ms;
}

static void faulty_send(Channel *channel, Packet *packet)
{
    FaultyChannel *const self = (FaultyChannel *)channel;
    WireFaults *const faults = self->faults;
    Packet *const changed =
        faults->change != NULL ? faults->change(self->from, self->to, packet) : packet;

    if (changed != packet) {
        if (changed == NULL)
            return;
        self->inner->ops->send(self->inner, changed);
        packet_unref(changed);
        return;
    }
    /* relaxed: a test has no order to expect between it and packets */
    if (atomic_load_explicit(&faults->drops_all, memory_order_relaxed) || is_cut(self) ||
        happens(self, faults->of_packets.loss))
        return;
    if (self->n_delayed < MOST_DELAYED && happens(self, faults->of_packets.delay)) {
        packet_ref(packet);
        self->delayed[self->n_delayed++] = packet;
        return;
    }
    self->inner->ops->send(self->inner, packet);
    if (happens(self, faults->of_packets.doubling))
        self->inner->ops->send(self->inner, packet);
    if (self->n_delayed > 0 && happens(self, 0.5))
        release_delayed(self);
}

static NetworkPeerState faulty_state(Channel *channel)
{
    FaultyChannel *const self = (FaultyChannel *)channel;

    release_delayed(self);
    return self->inner->ops->state(self->inner);
}

static uint32_t faulty_n_resets(Channel *channel)
{
    Channel *const inner = ((FaultyChannel *)channel)->inner;

    return inner->ops->n_resets != NULL ? inner->ops->n_resets(inner) : 0;
}

static void faulty_close(Channel *channel, unsigned linger_ms)
{
    FaultyChannel *const self = (FaultyChannel *)channel;

    release_delayed(self);
    self->inner->ops->close(self->inner, linger_ms);
    g_free(self);
}

static const ChannelOps channel_ops = {
    .send = faulty_send,
    .state = faulty_state,
    .n_resets = faulty_n_resets,
    .close = faulty_close,
};

static Transport *faulty_create(const TransportConfig *config, GError **error)
{
    Transport *const inner = inner_ops->create(config, error);

    if (inner == NULL)
        return NULL;
    FaultyTransport *const transport = g_new0(FaultyTransport, 1);
    transport->base.ops = &transport_faulty;
    transport->inner = inner;
    transport->faults = config->faults;
    transport->self = config->self;
    return &transport->base;
}

static void faulty_destroy(Transport *transport)
{
    inner_ops->destroy(((FaultyTransport *)transport)->inner);
    g_free(transport);
}

static bool faulty_bind(Transport *transport, const char *endpoint, char **resolved, GError **error)
{
    return inner_ops->bind(((FaultyTransport *)transport)->inner, endpoint, resolved, error);
}

static int faulty_poll_fd(Transport *transport)
{
    return inner_ops->poll_fd(((FaultyTransport *)transport)->inner);
}

static bool faulty_take_resets(Transport *transport)
{
    Transport *const inner = ((FaultyTransport *)transport)->inner;

    return inner_ops->take_resets != NULL && inner_ops->take_resets(inner);
}

static bool faulty_receive(Transport *transport, Received *received)
{
    return inner_ops->receive(((FaultyTransport *)transport)->inner, received);
}

static Channel *faulty_connect(Transport *transport, const char *endpoint,
                               const ChannelTarget *target, GError **error)
{
    FaultyTransport *const self = (FaultyTransport *)transport;
    Channel *const inner = inner_ops->connect(self->inner, endpoint, target, error);

    if (inner == NULL)
        return NULL;
    FaultyChannel *const channel = g_new0(FaultyChannel, 1);
    channel->base.ops = &channel_ops;
    channel->inner = inner;
    channel->faults = self->faults;
    channel->from = self->self;
    channel->to = target != NULL ? target->node : HANDSHAKE_ANY_NODE;
    /* relaxed: a number of its own is all that a channel wants */
    const uint32_t number = atomic_fetch_add_explicit(&self->n_channels, 1, memory_order_relaxed);
    channel->random = rubato_mix64(self->faults->of_packets.seed + 1) ^
                      rubato_mix64(((uint64_t)self->self << 32) + number + 1);
    return &channel->base;
}

static void faulty_answer(Transport *transport, uint32_t connection, Packet *packet)
{
    inner_ops->answer(((FaultyTransport *)transport)->inner, connection, packet);
}

const TransportOps transport_faulty = {
    .name = "tcp", /* its addresses are those of TCP */
    .create = faulty_create,
    .destroy = faulty_destroy,
    .bind = faulty_bind,
    .poll_fd = faulty_poll_fd,
    .receive = faulty_receive,
    .take_resets = faulty_take_resets,
    .connect = faulty_connect,
    .answer = faulty_answer,
};
