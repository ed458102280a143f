/* Finds peers that are connected, or seem to be, and yet do not behave as a node.
 *
 * The caller handles silence, because it knows which nodes must be heard. This file finds peers
 * from which something comes, although their link makes no progress:
 *
 * - their next packet cannot be read, or later ones come in its place, for timeout_ms and however
 *   often it was asked for (link_fault.h);
 * - they acknowledge nothing of what was sent to them for two timeouts, which also finds that two
 *   nodes do not reach one another while others reach both.
 *
 * Or they send more requests at once than any node may: then they do not keep to their window.
 *
 * A peer is identified by the run's and its own random numbers in a packet's header. If the header
 * cannot be read, the peer is identified by its connection, if it has proved on it that it knows
 * the secret. Packets of strangers count for no peer.
 *
 * Threads: as each function says. */
#include <inttypes.h>

#include "io/net/network/network_private.h"

/* This many timeouts without an acknowledgement. This is more than any outage that a run must
 * survive. */
#define ACK_TIMEOUTS 2

Peer *network_find_prover(const Network *network, const Received *received)
{
    Peer *const peer =
        network->has_secret && !received->is_answer ? network_peer(network, received->node) : NULL;

    return peer == NULL || received->incarnation != peer->incarnation || peer_is_gone(peer) ? NULL
                                                                                            : peer;
}

static void give_up(Peer *peer, const char *text)
{
    Network *const network = peer->network;

    /* Relaxed: the exchange lets one thread through; a thread that has not seen it yet takes one
     * more packet. */
    if (network->handler.broken != NULL && !peer_is_gone(peer) &&
        !atomic_exchange_explicit(&peer->broken, true, memory_order_relaxed))
        network->handler.broken(network->user, peer->number, peer->incarnation, text);
}

void network_give_up(Network *network, uint32_t node, const char *text)
{
    Peer *const peer = network_peer(network, node);

    if (peer != NULL)
        give_up(peer, text);
}

void peer_note_fault(Peer *peer, const char *fault, int64_t now_ms)
{
    link_fault_sign(&peer->fault, fault, peer->network->resend_ms / 2, now_ms);
    peer->touched = true; /* it is asked again */
    if (!link_fault_is_final(&peer->fault, peer->network->timeout_ms, now_ms))
        return;
    g_autofree char *text = g_strdup_printf("its next packet could not be taken for %.1f s: %s",
                                            (double)(now_ms - peer->fault.since_ms) / 1000, fault);
    give_up(peer, text);
}

void peer_check_window(Peer *peer)
{
    /* Relaxed: an old number may only be too low, by what was done with a moment ago. */
    const uint64_t done = atomic_load_explicit(&peer->consumed, memory_order_relaxed);
    const uint64_t handed = peer->handed + peer->handed_high;
    const uint64_t under_way = handed - MIN(handed, done);

    if (under_way <= peer->network->taken_bytes ||
        atomic_load_explicit(&peer->network->takes_any, memory_order_relaxed))
        return;
    g_autofree char *text = g_strdup_printf("it has sent %" PRIu64 " bytes of requests beyond "
                                            "those that were handled, and no node sends so many",
                                            under_way);
    give_up(peer, text);
}

void peer_check_acks(Peer *peer, bool stood_still, int64_t now_ms)
{
    const uint64_t acked = atomic_load_explicit(&peer->its_ack, memory_order_relaxed);

    if (stood_still || acked != peer->acked ||
        atomic_load_explicit(&peer->kept_packets, memory_order_relaxed) == 0) {
        peer->acked = acked;
        peer->acked_ms = now_ms;
    }
    if (now_ms - peer->acked_ms < ACK_TIMEOUTS * (int64_t)peer->network->timeout_ms)
        return;
    g_autofree char *text =
        g_strdup_printf("it has acknowledged nothing of what was sent to it for %.1f s",
                        (double)(now_ms - peer->acked_ms) / 1000);
    give_up(peer, text);
}
