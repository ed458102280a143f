/* Joining: the links to other nodes are opened when all have met, and when another process takes
 * the place of a lost node.
 *
 * Such a process has a peer of its own: nothing that was under way to the lost one, or from it,
 * reaches it. The lost one's peer stays in memory, closed, until the network is freed, because any
 * thread may still use it. What such a thread pushes is dropped, as it was before.
 *
 * Bytes of requests are counted from a number that both ends are told, beyond all that was counted
 * with the processes before. So a position (network_pushed) that a third node has told of one of
 * those is never ahead of what has come of the new process (network_handed).
 *
 * Threads: told in network.h. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <rubato/error.h>

#include "io/net/network/network_private.h"
#include "io/net/transport/faulty/faulty_channel.h"

/* Whether links may go to this address. */
static bool is_usable(const Network *network, Transport *transport, const char *endpoint)
{
    return (network->wanted == NULL || strcmp(network->wanted, transport->ops->name) == 0) &&
           (transport->ops->reaches == NULL || transport->ops->reaches(transport, endpoint));
}

Channel *network_connect(Network *network, Transport *transport, const char *endpoint,
                         const ChannelTarget *target, GError **error)
{
    Channel *const channel = transport->ops->connect(transport, endpoint, target, error);

    if (channel == NULL || network->faults == NULL)
        return channel;
    /* relaxed: a number of its own is all that a channel wants */
    const uint32_t number = atomic_fetch_add_explicit(&network->n_faulty, 1, memory_order_relaxed);
    return faulty_channel_new(channel, network->faults, network->self, target->node, number);
}

/* A channel to the last of several addresses that can be used. */
static Channel *connect_nearest(Network *network, const char *endpoints,
                                const ChannelTarget *target, const TransportOps **transport_ops,
                                GError **error)
{
    g_auto(GStrv) words = g_strsplit(endpoints, ",", -1);
    const guint n = g_strv_length(words);

    for (guint i = n; i-- > 0;) {
        Transport *const transport =
            network_find_transport(network, words[i], i == 0 ? error : NULL);
        if (transport != NULL && is_usable(network, transport, words[i])) {
            *transport_ops = transport->ops;
            return network_connect(network, transport, words[i], target, error);
        }
        if (i == 0 && transport == NULL)
            return NULL;
    }
    g_set_error(
        error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
        "the node at %s cannot be reached by the transport \"%s\": it is on another host, or "
        "has no such address",
        endpoints, network->wanted != NULL ? network->wanted : "nearest");
    return NULL;
}

/* A peer without a channel. */
static Peer *peer_alloc(Network *network, uint32_t number, const NetworkPeer *told,
                        const TransportOps *transport, GError **error)
{
    /* g_malloc does not align to cache lines. */
    Peer *const peer = aligned_alloc(_Alignof(Peer), sizeof *peer);

    if (peer == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no memory for the link to %s",
                    told->endpoint != NULL ? told->endpoint : "a lost node");
        return NULL;
    }
    memset(peer, 0, sizeof *peer);
    peer->network = network;
    peer->number = number;
    peer->incarnation = told->incarnation;
    peer->transport = transport;
    atomic_init(&peer->state, NETWORK_PEER_CONNECTING);
    atomic_init(&peer->heard_ms, network_now_ms());
    atomic_init(&peer->advanced_ms, network_now_ms());
    peer->acked_ms = network_now_ms();
    atomic_init(&peer->resend_at, LINK_NEVER);
    atomic_init(&peer->high_ms, INT64_MIN / 2);
    atomic_init(&peer->pushed, told->counted_from);
    atomic_init(&peer->charged_taken, told->counted_from);
    atomic_init(&peer->consumed, told->counted_from);
    atomic_init(&peer->told_consumed, told->counted_from);
    atomic_init(&peer->its_consumed, told->counted_from);
    peer->handed = told->counted_from;
    send_queue_init(&peer->frames);
    /* In shared memory nothing is lost: the timer need not be quick. */
    link_sender_init(&peer->sender, network->resend_ms,
                     peer_loses_packets(peer) ? link_least_wait_ms(network->resend_ms)
                                              : network->resend_ms,
                     network->out_bytes);
    return peer;
}

/* The peer of a node that is lost already: as after network_forget. */
static Peer *peer_new_lost(Network *network, uint32_t number, const NetworkPeer *told,
                           GError **error)
{
    Peer *const peer = peer_alloc(network, number, told, network->transports[0]->ops, error);

    if (peer == NULL)
        return NULL;
    atomic_init(&peer->forgotten, true);
    atomic_init(&peer->state, NETWORK_PEER_FORGOTTEN);
    return peer;
}

static Peer *peer_new(Network *network, uint32_t number, const NetworkPeer *told, GError **error)
{
    const TransportOps *transport = NULL;
    const ChannelTarget target = { .node = number, .incarnation = told->incarnation };

    if (told->endpoint == NULL)
        return peer_new_lost(network, number, told, error);
    Channel *const channel = connect_nearest(network, told->endpoint, &target, &transport, error);
    if (channel == NULL)
        return NULL;
    Peer *const peer = peer_alloc(network, number, told, transport, error);
    if (peer == NULL) {
        channel->ops->close(channel, 0);
        return NULL;
    }
    peer->channel = channel;
    return peer;
}

/* The bit of the transport by which the peer is linked; none of a lost one. */
static uint32_t link_bit(const Network *network, const Peer *peer)
{
    uint32_t linked = 0;

    for (size_t k = 0; peer->channel != NULL && k < network->n_transports; k++)
        if (network->transports[k]->ops == peer->transport)
            linked = UINT32_C(1) << k;
    return linked;
}

/* The other end may have sent what this one, not knowing it, has dropped. */
static void ask_again(Peer *peer)
{
    peer_set_pending(peer, PENDING_AGAIN);
    peer_flush(peer);
}

static Peer *own_peer(const Network *network, uint32_t node)
{
    /* Relaxed: the calling thread, or one before it, has set it. */
    return atomic_load_explicit(&network->peers[node], memory_order_relaxed);
}

bool network_join(Network *network, uint64_t run_id, const NetworkPeer *peers, GError **error)
{
    uint32_t linked = 0;

    assert(network->peers == NULL);
    network->run_id = run_id;
    network->n_near = 1;
    network->peers = g_new0(_Atomic(Peer *), network->n_nodes);
    for (uint32_t i = 0; i < network->n_nodes; i++) {
        if (i == network->self)
            continue;
        Peer *const peer = peer_new(network, i, &peers[i], error);
        if (peer == NULL)
            goto close_channels;
        atomic_init(&network->peers[i], peer);
        linked |= link_bit(network, peer);
        network->n_near += peer->transport->is_memory;
    }
    atomic_store_explicit(&network->linked, linked, memory_order_relaxed);
    /* Release: pairs with network_peer. */
    atomic_store_explicit(&network->joined, true, memory_order_release);
    for (uint32_t i = 0; i < network->n_nodes; i++)
        if (i != network->self)
            ask_again(own_peer(network, i));
    return true;

close_channels:
    for (uint32_t i = 0; i < network->n_nodes; i++)
        if (own_peer(network, i) != NULL)
            peer_close(own_peer(network, i), /* linger_ms= */ 0);
    network_free_peers(network);
    return false;
}

/* The calling thread may be the one that receives. */
static bool replace(Network *network, uint32_t node, const NetworkPeer *told, bool is_receiving,
                    GError **error)
{
    Peer *const former = network_peer(network, node);

    assert(former != NULL && told->endpoint != NULL);
    network_forget(network, node); /* also a process that was to take the place, and has not */
    pthread_mutex_lock(&network->greeting_lock); /* one thread at a time connects */
    Peer *const peer = peer_new(network, node, told, error);
    pthread_mutex_unlock(&network->greeting_lock);
    if (peer == NULL)
        return false;
    peer->former = former;
    atomic_fetch_or_explicit(&network->linked, link_bit(network, peer), memory_order_relaxed);
    if (!is_receiving)
        pthread_mutex_lock(&network->receiving); /* nothing of the former is being handed over */
    /* Release: pairs with network_peer. */
    atomic_store_explicit(&network->peers[node], peer, memory_order_release);
    if (!is_receiving)
        pthread_mutex_unlock(&network->receiving);
    ask_again(peer);
    return true;
}

bool network_replace(Network *network, uint32_t node, const NetworkPeer *told, GError **error)
{
    return replace(network, node, told, /* is_receiving= */ false, error);
}

bool network_replace_greeted(Network *network, uint32_t node, const NetworkPeer *told,
                             GError **error)
{
    return replace(network, node, told, /* is_receiving= */ true, error);
}

void network_free_peers(Network *network)
{
    for (uint32_t i = 0; network->peers != NULL && i < network->n_nodes; i++)
        for (Peer *peer = own_peer(network, i), *former; peer != NULL; peer = former) {
            former = peer->former;
            free(peer);
        }
    g_clear_pointer(&network->peers, g_free);
}
