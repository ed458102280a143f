/* What a transport implements: how bytes cross between nodes.
 *
 * A transport has a receiving side, bound to addresses, from which packets of anybody come, and
 * channels, each of which sends to one address. Channels have ops of their own, so that nodes may
 * come to be connected by different transports, peer by peer.
 *
 * A transport keeps packets in order on each channel and may lose some when a connection breaks:
 * the link above it numbers, acknowledges and sends again. It need not be a reliable one.
 *
 * A new transport is a file transport_<name>.c of this folder that ends in its constant
 * TransportOps, and a line in the array of transport.c; tests/test_transport.c then holds it to all
 * this.
 *
 * Threads: told at each op. "The I/O thread" is one thread at a time, as is "the holder" of a
 * channel, which may be another thread from call to call; the handing over orders memory. */
#ifndef RUBATO_IO_NET_TRANSPORT_TRANSPORT_OPS_H
#define RUBATO_IO_NET_TRANSPORT_TRANSPORT_OPS_H

#include "io/net/link/packet.h"
#include "io/net/network.h"
#include "io/net/secure/handshake.h"

typedef struct Received Received;
typedef struct ChannelOps ChannelOps;

/* The bases of a transport and of a channel: the first members of their structs. */
typedef struct {
    const TransportOps *ops;
} Transport;

typedef struct {
    const ChannelOps *ops;
} Channel;

/* A packet that came, in the transport's memory. */
typedef struct {
    /* Gives the memory back. Any thread, where it is not lent. */
    void (*release)(Received *received);

    /* Moves it, where it is not lent; `from` needs no release afterwards. `to` is not initialised.
     * Any thread. */
    void (*move)(Received *to, Received *from);

    /* Where it came from, for messages; "an unknown address" where that cannot be told. Lives as
     * long as the packet. (transfer none) */
    const char *(*address)(Received *received);
} ReceivedOps;

struct Received {
    const ReceivedOps *ops;
    uint8_t *bytes; /* may be written to; not aligned */
    size_t size;
    bool misshapen; /* it came in a form that no channel sends */
    bool is_answer; /* it came back on a channel of our own, to whoever answers a greeting there */

    /* Who has proved to be its sender; HANDSHAKE_ANY_NODE: that was not asked. An incarnation of 0:
     * that one was not. */
    uint32_t node;
    uint64_t incarnation;

    uint32_t connection; /* by which it can be answered: see TransportOps.answer; 0: it cannot */
    bool lent; /* cannot be moved, and is released before the next receive, on the same thread */
    _Alignas(max_align_t) uint8_t memory[96]; /* the transport's */
};

/* What a glance shows. After all but the first poll_fd tells nothing until receive has found
 * nothing once more. */
typedef enum {
    GLANCE_NOT_WORTH_IT, /* did not look: poll_fd will tell */
    GLANCE_NOTHING,
    GLANCE_SOME,
} Glance;

/* What a transport is told of the network that it is for. */
typedef struct {
    uint32_t n_nodes;
    unsigned timeout_ms;     /* a node that is silent for so long counts as lost; never 0 */
    uint32_t self;           /* this node's number */
    uint64_t incarnation;    /* of this process */
    const RunSecret *secret; /* NULL: there is none. Outlives the transport */
    bool encrypt;            /* see NetworkConfig */
    bool authenticate;
} TransportConfig;

/* Whom a channel is for. */
typedef struct {
    uint32_t node;        /* number; HANDSHAKE_ANY_NODE: whoever listens there */
    uint64_t incarnation; /* 0: any */
    bool greets;          /* what comes back is received, too, as an answer */
} ChannelTarget;

struct TransportOps {
    const char *name; /* also of its addresses: "name://…" */
    bool is_memory;   /* sending bytes costs no more than copying them */

    /* The config is copied. (transfer full) Owner. */
    Transport *(*create)(const TransportConfig *config, GError **error);

    /* All channels are closed. Waits, if need be, for what they still had to send, as long as each
     * was told to linger. Owner. */
    void (*destroy)(Transport *transport);

    /* Listens at the address; *resolved becomes the same with the real port. Owner, before the
     * first poll. (transfer full) */
    bool (*bind)(Transport *transport, const char *endpoint, char **resolved, GError **error);

    /* What becomes readable when, after receive has found nothing, receive may find or do something
     * again. Stays the same. Any thread. */
    int (*poll_fd)(Transport *transport);

    /* Takes a packet that came; false: there is none. Does, too, what the transport's channels need
     * done when something comes on their connections. Never blocks. I/O thread. */
    bool (*receive)(Transport *transport, Received *received);

    /* A cheap look whether receive would find something, for whoever looks again and again instead
     * of going to sleep; NULL: there is no cheap way. I/O thread. */
    Glance (*glance)(Transport *transport);

    /* The processor on which the last packet was sent from this machine, or came in from another;
     * -1: that cannot be told. NULL: it never can. I/O thread. */
    int (*origin)(Transport *transport);

    /* Whether a channel's connection was made anew since this was last asked: then the holders of
     * channels ask for n_resets. NULL: that shows nowhere. I/O thread. */
    bool (*take_resets)(Transport *transport);

    /* Whether the address is one of this transport's that can be reached from here. NULL: all are.
     * Any thread. */
    bool (*reaches)(Transport *transport, const char *endpoint);

    /* A channel to the address, where nobody need be listening yet: packets wait. NULL for an
     * address that makes no sense. Any thread, one at a time. (transfer full) */
    Channel *(*connect)(Transport *transport, const char *endpoint, const ChannelTarget *target,
                        GError **error);

    /* Sends a packet back on the connection by which one came; drops it where that has ended, or
     * still has an answer to send. Takes a reference for as long as it needs the bytes. Never
     * blocks. NULL: connections go one way, and no greetings by them. I/O thread. */
    void (*answer)(Transport *transport, uint32_t connection, Packet *packet);
};

struct ChannelOps {
    /* Sends the packet, or drops it; takes a reference for as long as it needs the bytes. Never
     * blocks. The holder. */
    void (*send)(Channel *channel, Packet *packet);

    /* How the connection is. Asked for several times a second, so it may also be when a channel
     * tries again to connect. The holder. */
    NetworkPeerState (*state)(Channel *channel);

    /* How often the connection was made anew after it had broken: what was sent before the last
     * time may be lost, and can be sent again now. NULL: that is not known. The holder. */
    uint32_t (*n_resets)(Channel *channel);

    /* Drops the channel; what it has not yet sent may go out for another linger_ms in the
     * background. The holder. */
    void (*close)(Channel *channel, unsigned linger_ms);
};

/* The transport of this name, NULL means "tcp". NULL with RUBATO_ERROR_NOT_FOUND, which lists the
 * known ones. Any thread. */
const TransportOps *transport_find(const char *name, GError **error);

/* The one whose address that is. NULL with RUBATO_ERROR_NETWORK where it is none at all. Any
 * thread. */
const TransportOps *transport_of(const char *endpoint, GError **error);

/* Transport i in the order of the array, NULL beyond the last. Any thread. */
const TransportOps *transport_at(size_t i);

extern const TransportOps transport_tcp;
extern const TransportOps transport_zmq;
extern const TransportOps transport_ipc;
extern const TransportOps transport_shm;

#endif
