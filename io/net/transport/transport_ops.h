/* What a transport implements: sending bytes between nodes.
 *
 * A transport has a receiving side, bound to addresses, which gets packets from any process, and
 * channels, each of which sends to one address. Channels have ops of their own, so that each pair
 * of nodes may use a different transport.
 *
 * A transport keeps packets in order on each channel and may lose some when a connection breaks:
 * the link above it numbers, acknowledges and sends again. The transport need not be reliable.
 *
 * A new transport is a folder here with a file transport_<name>.c, which ends in its constant
 * TransportOps, and a line in the array of transport.c. All this is then checked by
 * tests/io/net/transport/test_transport.c.
 *
 * Threads: told at each op. "The I/O thread" is one thread at a time, as is "the holder" of a
 * channel, which may be another thread at each call; passing the channel on orders memory. */
#ifndef RUBATO_IO_NET_TRANSPORT_TRANSPORT_OPS_H
#define RUBATO_IO_NET_TRANSPORT_TRANSPORT_OPS_H

#include "io/net/link/packet.h"
#include "io/net/network/network.h"
#include "io/net/secure/handshake.h"
#include "io/net/transport/lent_memory.h"

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
    /* Gives the memory back. Any thread, unless it is lent. */
    void (*release)(Received *received);

    /* Moves it, unless it is lent; `from` needs no release afterwards. `to` is not initialised. Any
     * thread. */
    void (*move)(Received *to, Received *from);

    /* The address of its sender, for messages; "an unknown address" if it is unknown. Lives as long
     * as the packet. (transfer none) */
    const char *(*address)(Received *received);

    /* The link has taken the packets up to this number, of which this is one. Tells the channel
     * that sent them, if that takes no packet: see ChannelOps.accepted. NULL: it would. Before the
     * next receive, on the same thread. */
    void (*accept)(Received *received, uint64_t number);
} ReceivedOps;

struct Received {
    const ReceivedOps *ops;
    uint8_t *bytes; /* may be written to; not aligned */
    size_t size;
    const uint8_t *values; /* where what is behind the head lies (DirectReader); NULL: in `bytes` */
    size_t head_bytes;     /* if it does: those in `bytes` */
    bool misshapen;        /* it came in a form that no channel sends */
    bool is_answer;        /* it came as an answer on a channel that this process opened */

    /* The node that has proved to be its sender; HANDSHAKE_ANY_NODE: no proof was asked.
     * incarnation 0: no proof of the incarnation was asked. */
    uint32_t node;
    uint64_t incarnation;

    uint32_t connection; /* the connection for its answer: see TransportOps.answer; 0: none */
    bool lent; /* cannot be moved, and is released before the next receive, on the same thread */
    _Alignas(max_align_t) uint8_t memory[96]; /* the transport's */
};

/* The result of a glance. After any of them but the first, poll_fd shows nothing until receive has
 * again found nothing. */
typedef enum {
    GLANCE_NOT_WORTH_IT, /* did not look: poll_fd will tell */
    GLANCE_NOTHING,
    GLANCE_SOME,
} Glance;

/* The head of a packet that has one message without keys: what is before its values. */
#define DIRECT_HEAD_BYTES ((size_t)WIRE_PACKET_HEADER_BYTES + WIRE_MESSAGE_HEADER_BYTES)

/* The first values may belong to the head, too. */
#define DIRECT_MOST_HEAD_BYTES (DIRECT_HEAD_BYTES + NETWORK_DIRECT_FIRST_BYTES)

/* By this a transport may read the values of a message straight to where they go. The receiving
 * thread. */
typedef struct {
    /* A packet is arriving: `received` is as it will be, but of its bytes only the first
     * DIRECT_MOST_HEAD_BYTES are there. True: the direct read was started, of so many bytes as are
     * behind the head; they go there. */
    bool (*begin)(void *user, const Received *received, DirectRead *direct);

    /* The packet was handed over and released, or does not come this time. */
    void (*end)(void *user, DirectRead *direct);

    void *user;
} DirectReader;

/* What a transport must know about its network. */
typedef struct {
    uint32_t n_nodes;
    unsigned timeout_ms;     /* a node that is silent for this long is lost; never 0 */
    uint32_t self;           /* this node's number */
    uint64_t incarnation;    /* of this process */
    const RunSecret *secret; /* NULL: there is none. Outlives the transport */
    bool encrypt;            /* see NetworkConfig */
    bool authenticate;
    DirectReader direct; /* all NULL: there is no place for values */
} TransportConfig;

/* The node to which a channel sends. */
typedef struct {
    uint32_t node;        /* number; HANDSHAKE_ANY_NODE: any process that listens there */
    uint64_t incarnation; /* 0: any */
    bool greets;          /* packets that come back are received, too, as answers */
} ChannelTarget;

struct TransportOps {
    const char *name;  /* also of its addresses: "name://…" */
    bool is_memory;    /* sending bytes costs no more than copying them */
    bool sends_direct; /* its channels read packets by packet_lock or packet_read, so that their
                        * values may lie with the caller */

    /* The config is copied. (transfer full) Owner. */
    Transport *(*create)(const TransportConfig *config, GError **error);

    /* All channels are closed. Waits, if necessary, until they have sent what they still had, at
     * most for their linger times. Owner. */
    void (*destroy)(Transport *transport);

    /* Listens at the address; *resolved becomes the same with the real port. Owner, before the
     * first poll. (transfer full) */
    bool (*bind)(Transport *transport, const char *endpoint, char **resolved, GError **error);

    /* A descriptor. After receive has found nothing, it becomes readable when receive may find or
     * do something again. It stays the same. Any thread. */
    int (*poll_fd)(Transport *transport);

    /* Takes a packet that came; false: there is none. Also does the work of the transport's
     * channels when something comes on their connections. Never blocks. I/O thread. */
    bool (*receive)(Transport *transport, Received *received);

    /* A cheap check whether receive would find something, for a thread that polls instead of
     * sleeping. NULL: there is no cheap way. I/O thread. */
    Glance (*glance)(Transport *transport);

    /* The processor that sent the last packet, if from this machine, or on which it came in from
     * another; -1: unknown. NULL: always unknown. I/O thread. */
    int (*origin)(Transport *transport);

    /* Whether a channel's connection was made again since the last call: then the holders of
     * channels ask for n_resets. NULL: the transport does not know. I/O thread. */
    bool (*take_resets)(Transport *transport);

    /* Whether the address is one of this transport's that can be reached from here. NULL: all are.
     * Any thread. */
    bool (*reaches)(Transport *transport, const char *endpoint);

    /* A channel to the address. No process need listen there yet: packets wait. NULL for an address
     * that makes no sense. Any thread, one at a time. (transfer full) */
    Channel *(*connect)(Transport *transport, const char *endpoint, const ChannelTarget *target,
                        GError **error);

    /* Sends a packet back on the connection on which one came. Drops it if the connection has
     * ended, or still has an answer to send. Takes a reference for as long as it needs the bytes.
     * Never blocks. NULL: connections go one way only, and carry no greetings. I/O thread. */
    void (*answer)(Transport *transport, uint32_t connection, Packet *packet);

    /* The memory of this process that the other ends of channels read. NULL: there is none. Any
     * thread. (transfer none) */
    LentMemory *(*lends)(Transport *transport);

    /* That of a process which has sent a packet here. NULL: it has none, or its connection is gone.
     * NULL, if `lends` is. I/O thread. (transfer full) */
    BorrowedMemory *(*borrows)(Transport *transport, uint32_t node, uint64_t incarnation);
};

struct ChannelOps {
    /* Sends the packet, or drops it; takes a reference for as long as it needs the bytes. Never
     * blocks. The holder. */
    void (*send)(Channel *channel, Packet *packet);

    /* Whether packets may come with values that are not in their bytes (packet.h). They are there
     * when send returns, or the bytes are encrypted, or the packet is in a ring. */
    bool takes_values;

    /* The state of the connection. It is called several times a second, so a channel may also use
     * the call to try to connect again. The holder. */
    NetworkPeerState (*state)(Channel *channel);

    /* The number of the last packet that the other end's link has taken, as far as the channel
     * knows; 0: it knows nothing. The other end may say any number. NULL: it never knows. The
     * holder. */
    uint64_t (*accepted)(Channel *channel);

    /* How often the connection was made again after it had broken. Packets sent before the last
     * time may be lost, and can be sent again now. NULL: unknown. The holder. */
    uint32_t (*n_resets)(Channel *channel);

    /* Whether the connection has broken since it was made, and attempts to make it again were
     * refused: nobody listens at the address any more, or who listens there proves to be another
     * process than the target. A network that is out of order refuses nothing. NULL: unknown. The
     * holder. */
    bool (*is_refused)(Channel *channel);

    /* Drops the channel. Packets not yet sent may be sent in the background for another linger_ms.
     * The holder. */
    void (*close)(Channel *channel, unsigned linger_ms);
};

/* The transport of this name, NULL means "tcp". NULL with RUBATO_ERROR_NOT_FOUND, which lists the
 * known ones. Any thread. */
const TransportOps *transport_find(const char *name, GError **error);

/* The transport of that address. NULL with RUBATO_ERROR_NETWORK if no transport has such addresses.
 * Any thread. */
const TransportOps *transport_of(const char *endpoint, GError **error);

/* Transport i in the order of the array; NULL beyond the last. Any thread. */
const TransportOps *transport_at(size_t i);

extern const TransportOps transport_tcp;
extern const TransportOps transport_zmq;
extern const TransportOps transport_ipc;
extern const TransportOps transport_shm;
extern const TransportOps transport_ucx; /* where RUBATO_HAS_UCX */

#endif
