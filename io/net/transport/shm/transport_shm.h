/* The shared-memory transport from inside: what its receiving and its sending side share.
 *
 * Threads: told at each field and function. */
#ifndef RUBATO_IO_NET_TRANSPORT_SHM_TRANSPORT_SHM_H
#define RUBATO_IO_NET_TRANSPORT_SHM_TRANSPORT_SHM_H

#include "io/net/transport/lent_memory.h"
#include "io/net/transport/sender.h"
#include "io/net/transport/shm/shm_ring.h"
#include "io/net/transport/shm/shm_socket.h"
#include "io/net/transport/transport_ops.h"

/* The bell: in memory that a receiver shares with all of its senders. */
typedef struct {
    _Atomic uint32_t asleep; /* 1: a sender that writes into a ring rings the bell */
} ShmBell;

#define SHM_BELL_BYTES ((size_t)4096)

/* The receiver is about to sleep. It checks the rings again afterwards. */
static inline void shm_bell_set(ShmBell *bell)
{
    /* seq_cst: pairs with the load in shm_bell_take, see shm_ring.c */
    atomic_store_explicit(&bell->asleep, 1, memory_order_seq_cst);
}

/* The receiver does not sleep. Returns whether a sender rings the bell nevertheless. */
static inline bool shm_bell_clear(ShmBell *bell)
{
    /* Relaxed: a sender that still sees it set rings in vain. */
    return atomic_exchange_explicit(&bell->asleep, 0, memory_order_relaxed) == 0;
}

/* After a record was written: whether to ring. Only the first sender that writes after the receiver
 * has gone to sleep rings. */
static inline bool shm_bell_take(ShmBell *bell)
{
    /* The load is seq_cst, as is the store in ring_write before it: see shm_ring.c. The exchange is
     * relaxed: it reads the 1 that the load has seen, or a later value. */
    return atomic_load_explicit(&bell->asleep, memory_order_seq_cst) != 0 &&
           atomic_exchange_explicit(&bell->asleep, 0, memory_order_relaxed) != 0;
}

typedef struct {
    Transport base;

    /* immutable once bound */
    TransportConfig config;
    char *identity;       /* of this host */
    size_t ring_capacity; /* of rings that are made here */
    size_t most_receivers;
    int epoll_fd;
    GArray *listeners; /* of descriptors */
    int bell_memory_fd;
    int bell_fd;   /* an eventfd: a write to it rings the bell */
    ShmBell *bell; /* for our senders */
    LentMemory *lent;

    /* the I/O thread only */
    GPtrArray *receivers; /* of ShmReceiver */
    guint next_receiver;
    uint32_t n_receivers_ever;
    bool armed;       /* our bell is set to ring */
    bool rung;        /* and has rung: the epoll says so until it is asked */
    unsigned unheard; /* rounds since the epoll was last asked */

    _Atomic bool unfinished; /* a sender has written its budget and has more to write */
    Senders senders;         /* any thread */
} ShmTransport;

/* The receiving end of one sender's packets. */
typedef struct {
    const ShmTransport *transport;
    uint32_t id;
    int fd;
    pid_t pid;
    int64_t accepted_ms;
    Handshake handshake;
    bool is_proven;           /* the handshake is done */
    bool opened;              /* its ring has come */
    BorrowedMemory *borrowed; /* came with the ring */
    uint32_t node;            /* the other end, once that is proven */
    uint64_t incarnation;
    bool ended; /* the other process is gone: no more records will follow those in the ring */
    RingReader reader;

    /* the packet that is arriving in pieces: partial_bytes > 0 */
    uint8_t *partial; /* NULL: there was no memory for the packet, and it is dropped */
    size_t partial_bytes, partial_at;
} ShmReceiver;

/* The kinds of descriptors in the epoll. */
enum {
    SHM_EVENT_BELL,
    SHM_EVENT_LISTENER,
    SHM_EVENT_RECEIVER,
    SHM_EVENT_SENDER,
};

bool shm_transport_watch(const ShmTransport *transport, int fd, uint32_t events, uint32_t kind,
                         uint32_t id);

/* The beginning of this node's handshakes. */
HandshakeConfig shm_transport_handshake(const ShmTransport *transport);

/* Takes the descriptor out of the epoll and closes it. Closing is not enough: a forked process may
 * still have it open. */
void shm_transport_close(const ShmTransport *transport, int fd);

/* ---- shm_connections.c: the I/O thread ---- */

/* Accepts the connections that wait at a listener. */
void shm_connections_accept(ShmTransport *transport, int listener);

/* Something has come on the socket of receiver number id: a proof, its ring, or its end. */
void shm_connections_hear(ShmTransport *transport, uint32_t id);

/* Drops unproven connections whose time is over, and the oldest one if there are too many. */
void shm_connections_thin_out(ShmTransport *transport);

/* A GDestroyNotify for a ShmReceiver. */
void shm_connections_free(gpointer receiver);

/* ---- transport_shm_send.c ---- */

/* A channel to the process that listens at the name. (transfer full) */
Channel *shm_sender_new(ShmTransport *transport, const char *name, const ChannelTarget *target);

#endif
