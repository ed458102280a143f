/* A node's network: the I/O thread with its sockets, and a link to every other node.
 *
 * Frames pushed for a node arrive there once each, in the order in which they were pushed, as long
 * as both nodes live: links number packets, acknowledge, send again and drop duplicates. The order
 * of frames for different nodes is not defined.
 *
 * Before the nodes know each other they exchange greetings, which may get lost; their senders
 * repeat them. A greeting is answered on the connection by which it came. network_join then opens
 * the links. Greetings use TCP, whatever transport links use.
 *
 * Nodes are identified by their number: the index in the cluster's nodes sorted by id.
 *
 * Threads: network_new, _start, _join, _stop and _free from the owner, one at a time, network_join
 * from the handler too; everything else from any thread, the handler's calls included, except
 * network_wait_room, which the I/O thread must never call. */
#ifndef RUBATO_IO_NET_NETWORK_NETWORK_H
#define RUBATO_IO_NET_NETWORK_NETWORK_H

#include "io/net/direct_read.h"
#include "io/net/link/frame.h"
#include "io/net/secure/secret.h"
#include "io/net/transport/lent_memory.h"

typedef struct Network Network;
typedef struct TransportOps TransportOps;
typedef struct WireFaults WireFaults;

/* Before the values of a piece of a tensor that may be read to their place there are as many. */
#define NETWORK_DIRECT_FIRST_BYTES 24

/* A message that came from another node. */
typedef struct {
    uint32_t node; /* number of its sender */
    WireHeader header;
    const RubatoKey *keys; /* aligned, in the host's byte order; NULL if the keys are no list */
    const uint8_t *deltas; /* WIRE_KEYS_DELTAS: header.key_bytes bytes for key_codec_decode */
    const void *values;    /* aligned, as they came; NULL if there are none */
    const void *apart;     /* MESSAGE_TENSOR: where all but the first NETWORK_DIRECT_FIRST_BYTES of
                            * the values lie, which were read there; NULL: behind these */
    size_t value_bytes;
    void *room;   /* NetworkConfig.room_bytes bytes for the handler, not set, aligned to 16 */
    void *packet; /* the packet in which it came: the network's */
} Incoming;

/* Gives the message back. Its sender may then send the same number of bytes again. NULL is allowed.
 * Any thread. */
void incoming_free(Incoming *incoming);

/* The message is kept until an event that its sender may have to cause. So this gives back now the
 * bytes that it takes of the sender's window, as incoming_free would do later. From now on they
 * count, with more_bytes for what the message will need, among what is kept for the sender until
 * incoming_free. Returns whether that is at most NetworkConfig.parked_bytes. The message's
 * owner. */
bool incoming_park(Incoming *incoming, size_t more_bytes);

/* Whether its values lie in memory of the transport, where the sender may still change them, and
 * only until its handler's `receive` has returned: an Add. Who keeps it longer, or gives it to
 * another thread, has them copied first. The message's owner, on the thread that received it. */
bool incoming_is_lent(const Incoming *incoming);
void incoming_own(Incoming *incoming);

/* A message that may be parked. If it is a small part of the packet in which it came, and so keeps
 * much more memory than it needs, moves it to memory of its own: the header, the keys, the values
 * and the room's bytes. Returns the message, which may lie elsewhere now; if there is no memory, it
 * stays. (transfer full) The message's owner. */
Incoming *incoming_detach(Incoming *incoming);

/* Where a greeting came from. */
typedef struct {
    const char *address; /* of its socket, for messages only */
    bool is_answer;      /* it came on a connection on which this node has greeted */
    uint64_t asker;      /* for network_answer; 0: it is itself an answer */
} GreetingSource;

/* What a network calls, one at a time: on its I/O thread, or (all but the tick) on a thread in
 * network_help. None may block; each may push and flush frames. */
typedef struct {
    /* A message came. (transfer full) */
    void (*receive)(void *user, Incoming *incoming);

    /* Asked between packets: whether it takes the next one before `received`. If not, the network
     * does its other work first, such as acknowledgements and ticks. NULL: always. */
    bool (*takes_more)(void *user);

    /* The packets of a batch were handed over: a good time to flush their answers. May be NULL. */
    void (*received)(void *user);

    /* A greeting came, from a node of wire version `version` that has proved its knowledge of the
     * secret. The body is in normal form and otherwise unchecked; the caller owns it. */
    void (*greeted)(void *user, uint16_t version, GVariant *body, const GreetingSource *source);

    /* A node of this run sends what makes no sense. text says what, in words that may follow its
     * name ("its next packet …"), and incarnation which process of that node it is. Nothing more is
     * taken from it. Called once for each process. Other nodes need not have noticed it. May be
     * NULL. */
    void (*broken)(void *user, uint32_t node, uint64_t incarnation, const char *text);

    /* A reply of the node, or a MESSAGE_TENSOR, is arriving with so many values that it is worth to
     * read them straight to their place: starts the direct read and returns true, or returns false.
     * That is of all values; of a MESSAGE_TENSOR of all but the first NETWORK_DIRECT_FIRST_BYTES,
     * which alone are in `first`. end_direct is called when the message was received, or when it is
     * known that it does not come this time; also while the network is freed. Both NULL: there is
     * no such place. Only for handlers that drop replies (NetworkConfig). */
    bool (*begin_direct)(void *user, uint32_t node, const WireHeader *header, const void *first,
                         DirectRead *direct);
    void (*end_direct)(void *user, DirectRead *direct);

    /* Every tick_ms, and soon after network_wake. */
    void (*tick)(void *user, int64_t now_ms);
} NetworkHandler;

typedef struct {
    const char *transport;             /* name of the transport for links; NULL: the nearest */
    const TransportOps *transport_ops; /* not NULL: this one for all (tests wrap the real one) */
    WireFaults *faults;                /* of all that is sent; outlives the network. NULL: none */
    uint32_t self;
    uint32_t n_nodes;
    uint64_t incarnation; /* differs between any two processes that were ever this node */
    const char *const *bind_endpoints; /* "tcp://host:port"; port 0: any free one */
    size_t n_bind_endpoints;
    size_t window_bytes; /* requests in flight to one node; 0: as FLOW_SIZES_USUAL */
    size_t out_bytes;    /* packets on their way to one node; 0: two windows */
    size_t taken_bytes;  /* requests of one node that are not done with; 0: 64 usual windows. A node
                          * that sends more is broken: no node does */
    size_t parked_bytes; /* see incoming_park; 0: a quarter of the memory, and at least 1 GiB */
    size_t high_out_bytes;      /* out_bytes while there are frames of high priority; 0: as
                            * FLOW_SIZES_USUAL */
    size_t near_high_out_bytes; /* the same to a peer in shared memory */
    size_t joined_bytes;        /* small messages in one packet; 0: as FLOW_SIZES_USUAL */
    size_t turn_bytes;          /* packed before a sender looks at its other duties; 0: the same */
    size_t room_bytes;          /* see Incoming.room */
    bool drops_replies;         /* before its receive returns, the handler frees each reply, and
                                 * has each lent Add that it keeps copied (incoming_own) */
    const RunSecret *secret; /* nodes prove to one another that they know it; copied. NULL: none */
    bool encrypt;            /* only nodes can read what is sent between hosts, or on this one */
    bool authenticate;       /* packets between nodes of one host have a MAC, too */
    unsigned tick_ms;        /* 0: 50 */
    unsigned resend_ms;      /* see link_sender_init; 0: 200 */
    unsigned stop_ms;        /* the longest that network_stop waits for the others; 0: 2000 */
    unsigned timeout_ms;     /* the caller calls a node lost after this silence; 0: 3000 */
} NetworkConfig;

typedef struct {
    const char *endpoint; /* or several, separated by commas, the widest reach first; NULL: the node
                           * is lost already, as after network_forget */
    uint64_t incarnation;

    /* What network_pushed and network_handed begin with for this pair of processes, the same on
     * both: 0, or what no earlier pair of these two nodes can reach. */
    uint64_t counted_from;
} NetworkPeer;

/* The state of a peer's connection when the I/O thread last looked. */
typedef enum {
    NETWORK_PEER_UNKNOWN, /* no links yet, or this node itself */
    NETWORK_PEER_CONNECTING,
    NETWORK_PEER_CONNECTED,
    NETWORK_PEER_DISCONNECTED, /* was connected; tries again */
    NETWORK_PEER_FORGOTTEN,
} NetworkPeerState;

typedef struct {
    uint64_t packets_sent, packets_received; /* each counted once, also those without messages */
    uint64_t bytes_sent, bytes_received;
    uint64_t messages_sent[MESSAGE_N_WIRE_KINDS], messages_received[MESSAGE_N_WIRE_KINDS];
    uint64_t acks_sent; /* packets without messages */
    uint64_t packets_resent;
    uint64_t duplicates_dropped; /* had come before */
    uint64_t direct_reads;       /* that began: values that are read to their place */
    uint64_t early_dropped;      /* one before them is missing */
    uint64_t strangers_dropped;  /* of another run, of unknown nodes, or before joining */
    uint64_t bad;                /* packets and messages that make no sense */
    uint64_t greetings_sent, greetings_received;
    uint64_t unacked_packets, unacked_bytes; /* kept at present */
} NetworkStats;

/* Binds the endpoints. NULL with RUBATO_ERROR_NETWORK, which names the address (a port that is
 * busy, a host that cannot be resolved), RUBATO_ERROR_NOT_FOUND (no such transport; lists the
 * known ones) or RUBATO_ERROR_MEMORY. The config is copied; the handler too. (transfer full) */
Network *network_new(const NetworkConfig *config, const NetworkHandler *handler, void *user,
                     GError **error);

/* Stops it first, if necessary. NULL is allowed. Every Incoming must have been freed. */
void network_free(Network *network);

/* Starts the I/O thread. */
bool network_start(Network *network, GError **error);

/* Sends what is queued, waits at most stop_ms until the others acknowledge it, and ends the I/O
 * thread. Frames pushed later are dropped. No thread waits for room any more. */
void network_stop(Network *network);

/* Bound endpoint i with its real port. (transfer none) */
const char *network_endpoint(const Network *network, size_t i);

/* Sends a greeting to the process that is bound to the endpoint (of several, the first) and knows
 * the secret, now or in the next seconds. It may get lost. Answers come on the same connection.
 * Takes a floating body. False if the endpoint makes no sense, or the body is too large. */
bool network_greet(Network *network, const char *endpoint, GVariant *body, GError **error);

/* The present state of the connection for greetings to the endpoint (of several, the first).
 * NETWORK_PEER_UNKNOWN: there was no greeting to it. Any thread. */
NetworkPeerState network_greeting_state(Network *network, const char *endpoint);

/* Answers a greeting soon, on the connection by which it came. The answer may get lost. Takes a
 * floating body. False if the body is too large. */
bool network_answer(Network *network, uint64_t asker, GVariant *body, GError **error);

/* The nodes have found each other: opens the links, each over the nearest transport that both nodes
 * have and that reaches the other. peers has n_nodes entries; this node's own is ignored. Call it
 * once only. False if an endpoint makes no sense, or none can be reached; then no link exists. */
bool network_join(Network *network, uint64_t run_id, const NetworkPeer *peers, GError **error);

/* Another process has taken the place of a node that was forgotten: opens a link to it. When this
 * returns, nothing more of the earlier process is handed over: its packets are a stranger's. What a
 * thread pushes that does not see the new link yet is dropped. False as network_join: then the node
 * stays forgotten. One thread at a time, and not in the handler's calls. */
bool network_replace(Network *network, uint32_t node, const NetworkPeer *peer, GError **error);

/* The same in the handler's `greeted`, and there alone. The node need not have been forgotten. */
bool network_replace_greeted(Network *network, uint32_t node, const NetworkPeer *peer,
                             GError **error);

/* As network_join was told. Once it has returned. */
uint64_t network_run_id(const Network *network);

/* A frame for network_push, whose memory is reused. As frame_new. (transfer full) */
Frame *network_new_frame(Network *network, const WireHeader *header);

/* Whether a request with this many bytes of values is better sent by a frame that has its values
 * with the caller; and such a frame, as frame_new_direct. (transfer full) */
bool network_sends_direct(const Network *network, uint32_t node, size_t n_bytes);
Frame *network_new_direct_frame(Network *network, const WireHeader *header,
                                const DirectWriteSource *source);

/* The values of all frames pushed before are not read from their callers' memory any more, if there
 * is memory for copies (direct_write.h). Another thread that sends to a node at the moment may do
 * this, a moment later. */
void network_revoke_direct(Network *network);

/* Whether values are on their way to the node that lie with their caller, or were copied since:
 * it has not acknowledged them. For messages to the user. */
bool network_reads_direct(const Network *network, uint32_t node);

/* Queues a frame for another node. It is sent with the next flush for that node, together with what
 * others have queued. Not before network_join. (transfer full) */
void network_push(Network *network, uint32_t node, Frame *frame);

/* Sends what is queued for the node, in as few packets as possible. Does not wait for the
 * socket. */
void network_flush(Network *network, uint32_t node);

/* The same for frames that no thread waits for. If sending costs more than a copy, the I/O thread
 * does it soon, together with all frames pushed until then. */
void network_flush_soon(Network *network, uint32_t node);

/* The same for frames that are wanted, but not before this node's next ones: if a worker of this
 * node sends requests in quick succession, they leave with its next request, or after a fraction of
 * a millisecond. */
void network_flush_later(Network *network, uint32_t node);

/* network_push and network_flush. */
void network_send(Network *network, uint32_t node, Frame *frame);

/* Whether this many bytes of values are better pushed by network_push_values. */
bool network_takes_values(const Network *network, uint32_t node, size_t n_bytes);

/* Queues a frame whose values lie at `values` and are not in the frame. They are not needed there
 * any longer when this returns. If what is sent to the node is encrypted or goes through shared
 * memory, and no other thread is sending to it, the frame is sent at once: the values are encrypted
 * where they lie, or copied from there to shared memory, and not to the frame before. value_bytes
 * is a multiple of 8. (transfer full) */
void network_push_values(Network *network, uint32_t node, Frame *frame, const void *values);

/* The same for keys and values that lie one behind the other as on the wire, with their padding, if
 * what is sent to the node goes through shared memory: such bytes have come from another node, or
 * are kept to be sent again. (transfer full) */
bool network_takes_packed(const Network *network, uint32_t node, size_t n_bytes);
void network_push_packed(Network *network, uint32_t node, Frame *frame, const void *packed);

/* How many bytes of requests of normal priority were pushed for the node so far, and how many of
 * the node's the handler got: its receive has returned for them, or was called. A thread that has
 * pushed a request, or has seen that another one did, and then reads network_pushed here, gets a
 * position. Once the node's network_handed is not below it, the node's handler has had that
 * request. Requests of high priority have no place in this order.
 *
 * Why. Each request is counted before it is queued, and requests of normal priority leave in the
 * order in which they were queued. As long as a request r that was queued before the position was
 * read has not been handed over, all that were handed over were queued before r. So they were
 * counted in the position, and so was r: they are at least the bytes of r below it.
 *
 * Nothing more comes of a node that was forgotten: its network_handed is UINT64_MAX.
 *
 * network_pushed: any thread. network_handed: the handler's calls only. */
uint64_t network_pushed(const Network *network, uint32_t node);
uint64_t network_handed(const Network *network, uint32_t node);

/* Whether less than window_bytes of requests are in flight to the node. A thread that makes a
 * request asks this first. Several threads at once may exceed the window by one request each. */
bool network_has_room(const Network *network, uint32_t node);

/* Whether this many windows of requests are in flight to the node. */
bool network_is_full(const Network *network, uint32_t node, unsigned n_windows);

/* Whether requests of high priority were sent to the node a moment ago. If so, large requests
 * should be cut into small pieces. */
bool network_hurries(const Network *network, uint32_t node);

/* Whether network_stop was called: then no wait for room ends with room. */
bool network_is_stopping(const Network *network);

/* Bytes of requests on their way to the node, for messages to the user. */
uint64_t network_charged_bytes(const Network *network, uint32_t node);

/* Waits for room. False when timeout_ms (negative: for ever) is over, or when cancelled(user)
 * returns true. That function is asked now and then and after network_wake_waiters; it may be NULL.
 * False at once if the network was stopped, since there will never be room. There is always room
 * for a node that was forgotten. */
bool network_wait_room(Network *network, uint32_t node, bool (*cancelled)(void *user), void *user,
                       int timeout_ms);

/* All threads that wait for room ask their cancelled() at once. */
void network_wake_waiters(Network *network);

/* The handler has found that a node of this run sends what makes no sense. Calls its `broken`,
 * unless the node was given up before. The handler's calls only. */
void network_give_up(Network *network, uint32_t node, const char *text);

/* The node is lost: drops the frames queued for it and those pushed later. */
void network_forget(Network *network, uint32_t node);

/* When anything last came from the node, in monotonic ms. Before the first packet: when the links
 * were opened; before that, -1. */
int64_t network_heard_ms(const Network *network, uint32_t node);

/* When a packet with messages last came from the node, in its order: what it sends with each of its
 * heartbeats. Before the first: when the links were opened; before that, -1. */
int64_t network_advanced_ms(const Network *network, uint32_t node);

/* Which process the node is, for this one: as in NetworkPeer. 0: there is no link yet. */
uint64_t network_incarnation(const Network *network, uint32_t node);

NetworkPeerState network_peer_state(const Network *network, uint32_t node);

/* Whether nobody, or another process, listened at the node's address when the I/O thread last tried
 * again to connect: its process has ended, even if there was never a connection to it, because a
 * process listens before it can be told to others. False also if that cannot be known. */
bool network_is_refused(const Network *network, uint32_t node);

/* Whether bytes for the node are only copied, so that compressing them saves no time. */
bool network_is_memory(const Network *network, uint32_t node);

/* From now on another node may send any number of bytes of requests that are not done with, and
 * there is a tick every tick_ms or more often. */
void network_take_any(Network *network, unsigned tick_ms);

/* Memory from which the node reads values itself (lent_memory.h). */
typedef struct {
    void *values;
    LentPlace place;
} NetworkLoan;

/* Whether so many bytes of values are better written to such memory, of which the node then reads
 * them. False if it is on another host, or each packet to it needs a MAC. */
bool network_lends(const Network *network, uint32_t node, size_t n_bytes);

/* Whether some of it is free. */
bool network_has_loans(const Network *network, uint32_t node);

/* Lends memory to the node, to which network_lends. False: none is free. A message that says where
 * the values are is pushed behind network_note_loan; otherwise network_end_loan takes the memory
 * back. */
bool network_lend(const Network *network, uint32_t node, size_t n_bytes, NetworkLoan *loan);
void network_note_loan(const Network *network, uint32_t node, LentPlace place);
void network_end_loan(const Network *network, uint32_t node, LentPlace place);

/* The same memory to one more node, to which network_lends, before that message is pushed; both are
 * done as above with the place that each was told. False: it cannot be. */
bool network_share_loan(const Network *network, uint32_t node, LentPlace first, LentPlace *place);

/* The memory of the node whose message is being received. NULL: it has none. The handler's calls
 * only. (transfer full) */
BorrowedMemory *network_borrow(const Network *network, uint32_t node);

/* The name of the transport to the node; NULL if there is no link (yet). (transfer none) */
const char *network_peer_transport(const Network *network, uint32_t node);

/* "connected", "connecting", … (transfer none) */
const char *network_peer_state_name(NetworkPeerState state);

/* Waits up to timeout_ms (negative: for ever) for the end of a call that has asked another node for
 * a part. Returns whether the call has ended. Meanwhile the thread receives packets, if no other
 * thread does so already. The answer then needs no hop from the I/O thread. The caller holds no
 * lock that the handler takes. */
bool network_help(Network *network, Call *call, int timeout_ms);

/* Makes the I/O thread call the handler's tick soon. */
void network_wake(Network *network);

/* Monotonic ms: the time of ticks and network_heard_ms. */
int64_t network_now_ms(void);

void network_stats(const Network *network, NetworkStats *stats);

#endif
