/* A node's network: the I/O thread with its sockets, and a link to every other node.
 *
 * Frames pushed for a node arrive there once each, in the order in which they were pushed, as long
 * as both nodes live: links number packets, acknowledge, send again and drop duplicates. Nothing is
 * said about frames for different nodes.
 *
 * Before the nodes know each other they exchange greetings, which may get lost and are repeated by
 * whoever sends them. A greeting is answered on the connection by which it came. network_join then
 * brings the links into being. Greetings go over TCP, whatever links go over.
 *
 * Nodes are told apart by their number: the index in the cluster's nodes sorted by id.
 *
 * Threads: network_new, _start, _join, _stop and _free from the owner, one at a time, network_join
 * from the handler too; everything else from any thread, the handler's calls included, except
 * network_wait_room, which the I/O thread must never call. */
#ifndef RUBATO_IO_NET_NETWORK_H
#define RUBATO_IO_NET_NETWORK_H

#include "io/net/link/frame.h"
#include "io/net/secure/secret.h"

typedef struct Network Network;
typedef struct TransportOps TransportOps;

/* A message that came from another node. */
typedef struct {
    uint32_t node; /* number of its sender */
    WireHeader header;
    const RubatoKey *keys; /* aligned, in the host's order; NULL where the keys are no list */
    const uint8_t *deltas; /* WIRE_KEYS_DELTAS: header.key_bytes bytes for key_codec_decode */
    const void *values;    /* aligned, as they came; NULL where there are none */
    size_t value_bytes;
    void *room;   /* NetworkConfig.room_bytes zeroed bytes for the handler, aligned to 16 */
    void *packet; /* what it came in: the network's */
} Incoming;

/* Gives the message back; its sender may then send as much again. NULL is allowed. Any thread. */
void incoming_free(Incoming *incoming);

/* The message stays with whoever has it for a time that its sender may have to end: gives back now
 * what it takes of the sender's window, as incoming_free would do later. Whoever has the
 * message. */
void incoming_park(Incoming *incoming);

/* Where a greeting came from. */
typedef struct {
    const char *address; /* of its socket, for messages only */
    bool is_answer;      /* it came back on a connection on which this node has greeted */
    uint64_t asker;      /* for network_answer; 0: it is an answer, and is not answered */
} GreetingSource;

/* What a network calls, one at a time: on its I/O thread, or (all but the tick) on a thread in
 * network_help. None may block; each may push and flush frames. */
typedef struct {
    /* A message came. (transfer full) */
    void (*receive)(void *user, Incoming *incoming);

    /* The packets that had come were handed over: a good time to flush what answers them. May be
     * NULL. */
    void (*received)(void *user);

    /* A greeting came, from a node of wire version `version` that has proved to know the secret.
     * The body is normal and otherwise unchecked; it is the caller's. */
    void (*greeted)(void *user, uint16_t version, GVariant *body, const GreetingSource *source);

    /* Every tick_ms, and soon after network_wake. */
    void (*tick)(void *user, int64_t now_ms);
} NetworkHandler;

typedef struct {
    const char *transport;             /* its name: the one for links; NULL: the nearest */
    const TransportOps *transport_ops; /* not NULL: this one for all (tests wrap the real one) */
    uint32_t self;
    uint32_t n_nodes;
    uint64_t incarnation; /* differs between any two processes that ever were this node */
    const char *const *bind_endpoints; /* "tcp://host:port"; port 0: any free one */
    size_t n_bind_endpoints;
    size_t window_bytes;     /* requests in flight to one node; 0: as FLOW_SIZES_USUAL */
    size_t out_bytes;        /* packets on their way to one node; 0: two windows */
    size_t joined_bytes;     /* small messages in one packet; 0: as FLOW_SIZES_USUAL */
    size_t turn_bytes;       /* packed before a sender looks at its other duties; 0: the same */
    size_t room_bytes;       /* see Incoming.room */
    bool drops_replies;      /* the handler frees each reply before its receive returns */
    const RunSecret *secret; /* what nodes prove to one another; copied. NULL: there is none */
    bool encrypt;            /* nobody but nodes can read what crosses between hosts, or this one */
    bool authenticate;       /* packets have a MAC between nodes of one host, too */
    unsigned tick_ms;        /* 0: 50 */
    unsigned resend_ms;      /* 0: 200 */
    unsigned stop_ms;        /* the longest that network_stop waits for the others; 0: 2000 */
    unsigned timeout_ms;     /* who is silent for so long counts as lost by the caller; 0: 3000 */
} NetworkConfig;

typedef struct {
    const char *endpoint; /* or several with commas between, from the farthest to the nearest */
    uint64_t incarnation;
} NetworkPeer;

/* How a peer's connection was when the I/O thread last looked. */
typedef enum {
    NETWORK_UNKNOWN, /* no links yet, or this node itself */
    NETWORK_CONNECTING,
    NETWORK_CONNECTED,
    NETWORK_DISCONNECTED, /* was connected; tries again */
    NETWORK_FORGOTTEN,
} NetworkPeerState;

typedef struct {
    uint64_t packets_sent, packets_received; /* the first time each, those without messages too */
    uint64_t bytes_sent, bytes_received;
    uint64_t messages_sent[MESSAGE_N_WIRE_KINDS], messages_received[MESSAGE_N_WIRE_KINDS];
    uint64_t acks_sent; /* packets without messages */
    uint64_t packets_resent;
    uint64_t duplicates_dropped; /* had come before */
    uint64_t early_dropped;      /* one before them is missing */
    uint64_t strangers_dropped;  /* of another run, unknown or not yet joined nodes */
    uint64_t bad;                /* packets and messages that make no sense */
    uint64_t greetings_sent, greetings_received;
    uint64_t unacked_packets, unacked_bytes; /* kept at present */
} NetworkStats;

/* Binds the endpoints. NULL with RUBATO_ERROR_NETWORK, which names the address (a port that is
 * busy, a host that cannot be resolved), RUBATO_ERROR_NOT_FOUND (no such transport; lists the
 * known ones) or RUBATO_ERROR_MEMORY. The config is copied; the handler too. (transfer full) */
Network *network_new(const NetworkConfig *config, const NetworkHandler *handler, void *user,
                     GError **error);

/* Stops it first, if need be. NULL is allowed. Every Incoming must have been freed. */
void network_free(Network *network);

/* Starts the I/O thread. */
bool network_start(Network *network, GError **error);

/* Sends what is queued, waits for the others to acknowledge it, but no longer than stop_ms, and
 * ends the I/O thread. What is pushed later is dropped. Nobody waits for room any more. */
void network_stop(Network *network);

/* Bound endpoint i with the port that it really has. (transfer none) */
const char *network_endpoint(const Network *network, size_t i);

/* Sends a greeting to whoever is bound to the endpoint (of several, the first) and knows the
 * secret, now or in the next seconds: it may get lost. Answers come on the same connection. Takes a
 * floating body. False where the endpoint makes no sense, or the body is too large. */
bool network_greet(Network *network, const char *endpoint, GVariant *body, GError **error);

/* How the connection for greetings to the endpoint (of several, the first) is now; NETWORK_UNKNOWN:
 * there was no greeting to it. Any thread. */
NetworkPeerState network_greeting_state(Network *network, const char *endpoint);

/* Answers a greeting on the connection by which it came, soon: the answer may get lost. Takes a
 * floating body. False where the body is too large. */
bool network_answer(Network *network, uint64_t asker, GVariant *body, GError **error);

/* The nodes have found each other: opens the links, each over the nearest transport that both have
 * and that reaches there. peers has n_nodes entries; that of this node is ignored. Once only. False
 * where an endpoint makes no sense, or none can be reached; then no link exists. */
bool network_join(Network *network, uint64_t run_id, const NetworkPeer *peers, GError **error);

/* A frame for network_push, whose memory is used again. As frame_new. (transfer full) */
Frame *network_new_frame(Network *network, const WireHeader *header);

/* Queues a frame for another node; goes out with the next flush for that node, together with what
 * others queued meanwhile. Not before network_join. (transfer full) */
void network_push(Network *network, uint32_t node, Frame *frame);

/* Sends what is queued for the node, in as few packets as may be. Does not wait for the socket. */
void network_flush(Network *network, uint32_t node);

/* The same for what nobody waits for: where sending costs more than a copy, the I/O thread does it
 * soon, with what else is pushed until then. */
void network_flush_soon(Network *network, uint32_t node);

/* Both. */
void network_send(Network *network, uint32_t node, Frame *frame);

/* Whether less than window_bytes of requests are in flight to the node. Whoever makes requests asks
 * first; those of several threads at once may go past the window by one each. */
bool network_has_room(const Network *network, uint32_t node);

/* Bytes of requests on their way to the node, for messages to the user. */
uint64_t network_charged_bytes(const Network *network, uint32_t node);

/* Waits for room. False when timeout_ms (negative: for ever) is over or cancelled(user), asked now
 * and then and after network_wake_waiters, says true; at once where there will never be room: the
 * network was stopped. cancelled may be NULL. There is always room for a node that was
 * forgotten. */
bool network_wait_room(Network *network, uint32_t node, bool (*cancelled)(void *user), void *user,
                       int timeout_ms);

/* Whoever waits for room asks its cancelled() at once. */
void network_wake_waiters(Network *network);

/* The node is lost: drops what is queued for it and what is pushed later. */
void network_forget(Network *network, uint32_t node);

/* When anything last came from the node, in monotonic ms; at first, when the links were opened, and
 * -1 before. */
int64_t network_heard_ms(const Network *network, uint32_t node);

NetworkPeerState network_peer_state(const Network *network, uint32_t node);

/* Whether what goes to the node is only copied, so that making it smaller does not pay. */
bool network_is_memory(const Network *network, uint32_t node);

/* The name of the transport to the node; NULL where there is no link (yet). (transfer none) */
const char *network_peer_transport(const Network *network, uint32_t node);

/* "connected", "connecting", … (transfer none) */
const char *network_peer_state_name(NetworkPeerState state);

/* Waits for the end of a call, of which a part was asked of another node, up to timeout_ms
 * (negative: for ever); whether it has ended. Meanwhile the thread receives what comes, if no other
 * does so already: the answer then needs no hop from the I/O thread. The caller holds no lock that
 * the handler takes. */
bool network_help(Network *network, Call *call, int timeout_ms);

/* The handler's tick is called soon. */
void network_wake(Network *network);

/* Monotonic ms: what ticks and network_heard_ms count in. */
int64_t network_now_ms(void);

void network_stats(const Network *network, NetworkStats *stats);

#endif
