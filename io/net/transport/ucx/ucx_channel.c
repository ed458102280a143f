/* Channels over UCX. A channel meets its node over TCP, and asks again when that connection was
 * made again, or when UCX says that its endpoint has failed. Packets sent before the first meeting
 * wait for it; those sent between two meetings are dropped, because the link sends them again.
 *
 * Threads: see transport_ucx.h. */
#include "io/net/monotonic.h"
#include "io/net/transport/ucx/transport_ucx.h"

/* A node that does not answer is asked again after so many ms. */
#define ASK_AGAIN_MS 500

/* The lock is held. */
static void part(UcxChannel *self, unsigned linger_ms)
{
    if (self->end == NULL)
        return;
    ucx_worker_close(self->transport, g_steal_pointer(&self->end), linger_ms);
    seal_clear(&self->seal);
}

static void hear_of_error(void *end, ucp_ep_h endpoint, ucs_status_t status)
{
    (void)endpoint;
    (void)status;
    ((UcxEnd *)end)->has_failed = true;
}

/* The lock is held, and there is an end. */
static void send_packet(UcxChannel *self, Packet *packet)
{
    if (!self->end->has_failed && !ucx_worker_send(self, packet))
        self->end->has_failed = true;
}

void ucx_channel_met(UcxChannel *self, const ucp_address_t *address, uint32_t link,
                     const Seal *seal)
{
    UcxTransport *const transport = self->transport;
    UcxEnd *const end = g_new0(UcxEnd, 1);
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .address = address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = { hear_of_error, end },
    };
    Packet *packet;

    const ucs_status_t status =
        transport->ucx->ucp_ep_create(transport->worker, &params, &end->endpoint);
    if (status != UCS_OK) {
        if (!self->has_warned)
            g_warning(
                "UCX has no way to %s: %s; UCX_TLS and UCX_NET_DEVICES must leave it a network "
                "that tells of a node's end, as TCP and InfiniBand do",
                self->endpoint, transport->ucx->ucs_status_string(status));
        self->has_warned = true;
        g_free(end);
        return;
    }
    self->end = end;
    self->is_asked = false;
    self->link = link;
    self->seal = *seal;
    if (++self->n_ready > 1)
        transport->was_reset = true;
    while ((packet = g_queue_pop_head(&self->waiting)) != NULL) {
        send_packet(self, packet);
        packet_unref(packet);
    }
}

/* Asks the node if that is necessary. It is called often, and seldom uses the worker: so it wakes
 * nobody then. */
static NetworkPeerState look_after(UcxChannel *self)
{
    UcxTransport *const transport = self->transport;
    const NetworkPeerState state = self->meeting->ops->state(self->meeting);
    const uint32_t n_met = self->meeting->ops->n_resets(self->meeting) + 1;
    const int64_t now_ms = monotonic_ms();
    Packet *packet = NULL;

    pthread_mutex_lock(&transport->lock);
    const bool is_new = state == NETWORK_PEER_CONNECTED && n_met != self->n_met;
    const bool has_failed = self->end != NULL && self->end->has_failed;
    const bool parts =
        self->end != NULL && (is_new || has_failed || state == NETWORK_PEER_DISCONNECTED);
    if (parts)
        part(self, 0);
    if (is_new)
        self->is_asked = false; /* perhaps another process is there now */
    if (state == NETWORK_PEER_CONNECTED && self->end == NULL &&
        (is_new || now_ms - self->asked_ms >= ASK_AGAIN_MS)) {
        packet = ucx_meeting_ask(self);
        self->asked_ms = now_ms;
        self->n_met = n_met;
    }
    const bool is_ready = self->end != NULL;
    const NetworkPeerState before =
        self->n_ready > 0 ? NETWORK_PEER_DISCONNECTED : NETWORK_PEER_CONNECTING;
    if (parts)
        ucx_worker_leave(transport);
    else
        pthread_mutex_unlock(&transport->lock);
    if (packet != NULL) {
        self->meeting->ops->send(self->meeting, packet);
        packet_unref(packet);
    }
    return is_ready || state == NETWORK_PEER_DISCONNECTED ? state : before;
}

static void channel_send(Channel *channel, Packet *packet)
{
    UcxChannel *const self = (UcxChannel *)channel;

    packet_gather(packet);
    (void)look_after(self);
    pthread_mutex_lock(&self->transport->lock);
    if (self->end != NULL) {
        send_packet(self, packet);
    } else if (self->n_ready == 0) {
        packet_ref(packet);
        g_queue_push_tail(&self->waiting, packet);
    }
    ucx_worker_leave(self->transport);
}

static NetworkPeerState channel_state(Channel *channel)
{
    return look_after((UcxChannel *)channel);
}

static uint32_t channel_n_resets(Channel *channel)
{
    UcxChannel *const self = (UcxChannel *)channel;

    (void)look_after(self);
    pthread_mutex_lock(&self->transport->lock);
    const uint32_t n = self->n_ready;
    pthread_mutex_unlock(&self->transport->lock);
    return n > 0 ? n - 1 : 0;
}

static bool channel_is_refused(Channel *channel)
{
    Channel *const meeting = ((UcxChannel *)channel)->meeting;

    return meeting->ops->is_refused(meeting);
}

static void channel_close(Channel *channel, unsigned linger_ms)
{
    UcxChannel *const self = (UcxChannel *)channel;
    UcxTransport *const transport = self->transport;

    self->meeting->ops->close(self->meeting, 0);
    pthread_mutex_lock(&transport->lock);
    g_hash_table_remove(transport->channels, GUINT_TO_POINTER(self->number));
    part(self, linger_ms);
    ucx_worker_leave(transport);
    g_queue_clear_full(&self->waiting, (GDestroyNotify)packet_unref);
    g_free(self->endpoint);
    g_free(self);
}

static const ChannelOps channel_ops = {
    .send = channel_send,
    .state = channel_state,
    .n_resets = channel_n_resets,
    .is_refused = channel_is_refused,
    .close = channel_close,
};

Channel *ucx_channel_new(UcxTransport *transport, const char *endpoint, Channel *meeting)
{
    UcxChannel *const self = g_new0(UcxChannel, 1);

    self->base.ops = &channel_ops;
    self->transport = transport;
    self->endpoint = g_strdup(endpoint);
    self->meeting = meeting;
    g_queue_init(&self->waiting);
    pthread_mutex_lock(&transport->lock);
    do
        self->number = ++transport->n_ever;
    while (g_hash_table_contains(transport->channels, GUINT_TO_POINTER(self->number)));
    g_hash_table_insert(transport->channels, GUINT_TO_POINTER(self->number), self);
    /* This waits in the connection until it is made: nobody may look at the channel then. */
    Packet *const packet = ucx_meeting_ask(self);
    self->asked_ms = monotonic_ms();
    self->n_met = 1;
    pthread_mutex_unlock(&transport->lock);
    if (packet != NULL) {
        meeting->ops->send(meeting, packet);
        packet_unref(packet);
    }
    return &self->base;
}
