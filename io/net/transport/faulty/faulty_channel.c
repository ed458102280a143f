/* The channel with faults. It has random numbers of its own, so its faults depend only on the seed
 * and on how often it was asked to send; cuts that come every so often depend on the time of day,
 * which nodes of several hosts have in common.
 *
 * Threads: as for any channel. Invariant: a packet that the channel holds back is sent with a later
 * packet, or when the channel's state is asked for, at each tick (wire_faults_tick_ms). So nothing
 * stays for ever. */
#include "io/net/transport/faulty/faulty_channel.h"

#include <rubato/mix.h>

#include "io/net/monotonic.h"

#define MOST_REORDERED 8
#define MOST_LATE 4096 /* more are dropped */
#define USUAL_CUT_MS 100

typedef struct {
    Packet *packet;
    int64_t due_ms;
} LatePacket;

typedef struct {
    Channel base;
    Channel *inner;
    WireFaults *faults;
    uint32_t from, to;
    uint64_t random;
    int64_t cut_until_ms;
    Packet *reordered[MOST_REORDERED];
    size_t n_reordered;
    GQueue late; /* of LatePacket, by due_ms */
} FaultyChannel;

/* Whether something of this chance happens now. */
static bool happens(FaultyChannel *self, double chance)
{
    if (chance <= 0)
        return false;
    self->random += UINT64_C(0x9e3779b97f4a7c15);
    return (double)(rubato_mix64(self->random) >> 11) * 0x1p-53 < chance;
}

static void send_due(FaultyChannel *self, int64_t now_ms)
{
    const LatePacket *first;

    while ((first = g_queue_peek_head(&self->late)) != NULL && first->due_ms <= now_ms) {
        LatePacket *const late = g_queue_pop_head(&self->late);
        self->inner->ops->send(self->inner, late->packet);
        packet_unref(late->packet);
        g_free(late);
    }
}

static void send_now_or_late(FaultyChannel *self, Packet *packet)
{
    const uint32_t delay_ms = self->faults->of_packets.delay_ms;

    if (delay_ms == 0) {
        self->inner->ops->send(self->inner, packet);
        return;
    }
    const int64_t now_ms = monotonic_ms();
    send_due(self, now_ms);
    if (g_queue_get_length(&self->late) == MOST_LATE)
        return;
    LatePacket *const late = g_new(LatePacket, 1);
    *late = (LatePacket){ packet, now_ms + delay_ms };
    packet_ref(packet);
    g_queue_push_tail(&self->late, late);
}

static void release_reordered(FaultyChannel *self)
{
    while (self->n_reordered > 0) {
        Packet *const packet = self->reordered[--self->n_reordered];
        send_now_or_late(self, packet);
        packet_unref(packet);
    }
}

/* Both nodes of a pair find the same cuts, so both directions are cut together. */
static bool is_cut_by_time(const FaultyChannel *self)
{
    const RubatoWireFaults *const faults = &self->faults->of_packets;

    if (faults->cut_every_ms == 0)
        return false;
    const uint64_t pair = ((uint64_t)MIN(self->from, self->to) << 32) + MAX(self->from, self->to);
    const uint64_t phase = rubato_mix64(faults->seed + rubato_mix64(pair + 1));
    const uint64_t now_ms = (uint64_t)(g_get_real_time() / 1000);
    return (now_ms + phase % faults->cut_every_ms) % faults->cut_every_ms <
           (faults->cut_ms > 0 ? faults->cut_ms : USUAL_CUT_MS);
}

static bool is_cut(FaultyChannel *self)
{
    const RubatoWireFaults *const faults = &self->faults->of_packets;
    const int64_t now_ms = faults->cut > 0 ? monotonic_ms() : 0;

    if (happens(self, faults->cut))
        self->cut_until_ms = now_ms + (faults->cut_ms > 0 ? faults->cut_ms : USUAL_CUT_MS);
    return now_ms < self->cut_until_ms || is_cut_by_time(self);
}

static void send_with_faults(FaultyChannel *self, Packet *packet)
{
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
    if (self->n_reordered < MOST_REORDERED && happens(self, faults->of_packets.reordering)) {
        packet_ref(packet);
        self->reordered[self->n_reordered++] = packet;
        return;
    }
    send_now_or_late(self, packet);
    if (happens(self, faults->of_packets.doubling))
        send_now_or_late(self, packet);
    if (self->n_reordered > 0 && happens(self, 0.5))
        release_reordered(self);
}

/* A `change` reads the packet's bytes, so they have to be in one place. */
static void faulty_send(Channel *channel, Packet *packet)
{
    FaultyChannel *const self = (FaultyChannel *)channel;
    Packet *const whole = self->faults->change != NULL && packet->direct != NULL
                              ? packet_copy(packet)
                              : (packet_ref(packet), packet);

    if (whole == NULL)
        return; /* lost: there is no memory */
    send_with_faults(self, whole);
    packet_unref(whole);
}

static NetworkPeerState faulty_state(Channel *channel)
{
    FaultyChannel *const self = (FaultyChannel *)channel;

    release_reordered(self);
    if (!g_queue_is_empty(&self->late))
        send_due(self, monotonic_ms());
    return self->inner->ops->state(self->inner);
}

static uint32_t faulty_n_resets(Channel *channel)
{
    Channel *const inner = ((FaultyChannel *)channel)->inner;

    return inner->ops->n_resets != NULL ? inner->ops->n_resets(inner) : 0;
}

static bool faulty_is_refused(Channel *channel)
{
    Channel *const inner = ((FaultyChannel *)channel)->inner;

    return inner->ops->is_refused != NULL && inner->ops->is_refused(inner);
}

static void faulty_close(Channel *channel, unsigned linger_ms)
{
    FaultyChannel *const self = (FaultyChannel *)channel;

    release_reordered(self);
    send_due(self, INT64_MAX);
    self->inner->ops->close(self->inner, linger_ms);
    g_free(self);
}

/* It takes no packets with values that are not in their bytes: the values would be gone when a
 * packet that is held back is sent. */
static const ChannelOps channel_ops = {
    .send = faulty_send,
    .state = faulty_state,
    .n_resets = faulty_n_resets,
    .is_refused = faulty_is_refused,
    .close = faulty_close,
};

Channel *faulty_channel_new(Channel *inner, WireFaults *faults, uint32_t from, uint32_t to,
                            uint32_t number)
{
    FaultyChannel *const channel = g_new0(FaultyChannel, 1);

    channel->base.ops = &channel_ops;
    channel->inner = inner;
    channel->faults = faults;
    channel->from = from;
    channel->to = to;
    channel->random = rubato_mix64(faults->of_packets.seed + 1) ^
                      rubato_mix64(((uint64_t)from << 32) + number + 1);
    g_queue_init(&channel->late);
    return &channel->base;
}
