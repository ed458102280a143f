/* What can be asked of the network: when a peer was heard, how its connection is, statistics.
 *
 * Threads: any. */
#include "io/net/network/network_private.h"

int64_t network_heard_ms(const Network *network, uint32_t node)
{
    Peer *const peer = network_peer(network, node);

    return peer != NULL ? atomic_load_explicit(&peer->heard_ms, memory_order_relaxed) : -1;
}

int64_t network_advanced_ms(const Network *network, uint32_t node)
{
    Peer *const peer = network_peer(network, node);

    return peer != NULL ? atomic_load_explicit(&peer->advanced_ms, memory_order_relaxed) : -1;
}

uint64_t network_incarnation(const Network *network, uint32_t node)
{
    const Peer *const peer = network_peer(network, node);

    return peer != NULL ? peer->incarnation : 0;
}

uint64_t network_run_id(const Network *network)
{
    return network->run_id;
}

NetworkPeerState network_peer_state(const Network *network, uint32_t node)
{
    Peer *const peer = network_peer(network, node);

    return peer != NULL ? atomic_load_explicit(&peer->state, memory_order_relaxed)
                        : NETWORK_PEER_UNKNOWN;
}

bool network_is_refused(const Network *network, uint32_t node)
{
    const Peer *const peer = network_peer(network, node);

    return peer != NULL && atomic_load_explicit(&peer->is_refused, memory_order_relaxed);
}

void network_take_any(Network *network, unsigned tick_ms)
{
    /* relaxed: the caller's next message to another node, or from it, comes later */
    atomic_store_explicit(&network->takes_any, true, memory_order_relaxed);
    atomic_store_explicit(&network->longest_tick_ms, tick_ms, memory_order_relaxed);
}

bool network_is_memory(const Network *network, uint32_t node)
{
    const Peer *const peer = network_peer(network, node);

    return peer != NULL && peer->transport->is_memory;
}

const char *network_peer_transport(const Network *network, uint32_t node)
{
    const Peer *const peer = network_peer(network, node);

    return peer != NULL ? peer->transport->name : NULL;
}

const char *network_peer_state_name(NetworkPeerState state)
{
    static const char *const names[] = {
        [NETWORK_PEER_UNKNOWN] = "unknown",     [NETWORK_PEER_CONNECTING] = "connecting",
        [NETWORK_PEER_CONNECTED] = "connected", [NETWORK_PEER_DISCONNECTED] = "disconnected",
        [NETWORK_PEER_FORGOTTEN] = "given up",
    };

    return (size_t)state < G_N_ELEMENTS(names) ? names[state] : "?";
}

static uint64_t read_count(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void add_peer(NetworkStats *sum, const Peer *peer)
{
    sum->packets_sent += read_count(&peer->n_packets_sent);
    sum->bytes_sent += read_count(&peer->n_bytes_sent);
    sum->acks_sent += read_count(&peer->n_acks_sent);
    sum->packets_resent += read_count(&peer->n_resent);
    sum->unacked_packets += read_count(&peer->kept_packets);
    sum->unacked_bytes += read_count(&peer->kept_bytes);
    for (size_t kind = 0; kind < MESSAGE_N_WIRE_KINDS; kind++)
        sum->messages_sent[kind] += read_count(&peer->n_messages_sent[kind]);
}

void network_stats(const Network *network, NetworkStats *stats)
{
    NetworkStats sum = {
        .packets_received = read_count(&network->n_packets_received),
        .bytes_received = read_count(&network->n_bytes_received),
        .duplicates_dropped = read_count(&network->n_duplicates),
        .direct_reads = read_count(&network->n_direct_reads),
        .early_dropped = read_count(&network->n_early),
        .strangers_dropped = read_count(&network->n_strangers),
        .bad = read_count(&network->n_bad),
        .greetings_sent = read_count(&network->n_greetings_sent),
        .greetings_received = read_count(&network->n_greetings_received),
    };

    for (size_t kind = 0; kind < MESSAGE_N_WIRE_KINDS; kind++)
        sum.messages_received[kind] = read_count(&network->n_messages_received[kind]);
    for (uint32_t i = 0; i < network->n_nodes; i++)
        for (const Peer *peer = network_peer(network, i); peer != NULL; peer = peer->former)
            add_peer(&sum, peer);
    *stats = sum;
}
