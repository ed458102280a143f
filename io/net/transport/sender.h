/* The sending side of a transport that writes by itself, without a library's queue: a sender for
 * each channel.
 *
 * Packets that a connection does not take at once wait in a list, in order. The thread that learns
 * of room continues to write. Packets sent before the first connection wait for it. When a
 * connection breaks, waiting packets are dropped, as are packets sent before the next connection.
 * They follow packets that got lost with the connection, and the link sends all of them again, in
 * order, on the next one. Only a channel that is being closed, which its link has forgotten, keeps
 * its waiting packets and sends the first one again from its beginning.
 *
 * Threads: the holder of the channel, and the I/O thread when something comes on its connection; so
 * each sender has a lock. The lock of all senders keeps a sender alive while the I/O thread uses
 * it, and is taken before the sender's lock. */
#ifndef RUBATO_IO_NET_TRANSPORT_SENDER_H
#define RUBATO_IO_NET_TRANSPORT_SENDER_H

#include <pthread.h>

#include "io/net/transport/transport_ops.h"

typedef struct Sender Sender;

/* The senders of a transport, those that are being closed too. */
typedef struct {
    pthread_mutex_t lock;
    /* guarded by lock */
    GHashTable *senders; /* id → Sender */
    uint32_t n_ever;

    _Atomic bool was_reset; /* one was connected anew; any thread */
} Senders;

typedef enum {
    SENDER_DONE,   /* all of the packet is written */
    SENDER_LATER,  /* not yet: a connection event, or the I/O thread, will tell when */
    SENDER_BROKEN, /* the connection is not worth keeping */
} SenderProgress;

/* What senders do differently. All but `free` are called with the sender's lock held. */
typedef struct {
    /* Tries to connect, or to begin to; calls sender_note_connected once it is done. False: not
     * now. */
    bool (*open)(Sender *sender);

    /* Ends the connection. */
    void (*shut)(Sender *sender);

    /* Writes the packet from *at on, and advances *at. Writes at most *budget bytes and reduces
     * *budget by what it wrote: otherwise a reader as fast as the writer could keep it busy for
     * ever. */
    SenderProgress (*write)(Sender *sender, Packet *packet, size_t *at, size_t *budget);

    /* Whether `write` takes a packet whose values are not in its bytes yet, when *at is 0. */
    bool takes_values;

    /* What the other end of the open connection has accepted (ChannelOps.accepted). NULL: 0. */
    uint64_t (*accepted)(const Sender *sender);

    /* Something has come on the connection; epoll's `events` say what. False: the connection has
     * ended. */
    bool (*hear)(Sender *sender, uint32_t events);

    /* Checks the open connection from time to time. False: it is given up. NULL: no check is
     * needed. */
    bool (*look_after)(Sender *sender, int64_t now_ms);

    /* Frees the sender, which is shut. */
    void (*free)(Sender *sender);
} SenderOps;

/* The first member of a sender's struct. */
struct Sender {
    Channel base;

    /* immutable */
    const SenderOps *ops;
    Senders *among;
    uint32_t id;
    unsigned
        longest_pause_ms; /* between two attempts to connect: 20 ms at first, then twice as long */

    pthread_mutex_t lock;
    /* guarded by lock */
    bool is_open;   /* there is a connection, or one in the making */
    GQueue waiting; /* packets, and how far the first is written */
    NetworkPeerState state;
    int64_t connected_ms; /* since when it is */
    unsigned pause_ms;    /* before the next attempt to connect */
    int64_t retry_ms;     /* no attempt before */
    bool was_refused;     /* the last attempt */
    unsigned n_refused;   /* attempts, one after the other, since the last connection, if any */
    int64_t give_up_ms;   /* once it is being closed; written with the lock of all held, too */

    _Atomic uint32_t n_connected; /* how often; read by the holder without the lock */
};

void senders_init(Senders *senders);

/* All are finished. */
void senders_clear(Senders *senders);

/* Makes a channel of the sender, whose memory is zero but for what is its transport's, and tries to
 * connect it. Any thread. */
void sender_start(Sender *sender, const SenderOps *ops, Senders *among, unsigned longest_pause_ms);

/* The connection is made. The lock is held. */
void sender_note_connected(Sender *sender);

/* An attempt to connect, or to begin to, was refused: nobody listens there, or another process than
 * the wanted one. The lock is held. */
void sender_note_refused(Sender *sender);

/* For TransportOps.take_resets. */
bool senders_take_resets(Senders *senders);

/* Something has come on the connection of this sender, if there is one. Any thread. */
void senders_hear(Senders *senders, uint32_t id, uint32_t events);

/* Makes all senders continue that have packets to write, or must connect. Any thread. */
void senders_go_on(Senders *senders);

/* Sends what closed channels still have to send, until the time of each is over, then frees them.
 * Their connections are in the epoll, with `kind` << 32 | id as their data. Owner. */
void senders_finish(Senders *senders, int epoll_fd, uint32_t kind);

#endif
