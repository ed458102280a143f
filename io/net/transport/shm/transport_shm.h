/* The shared-memory transport from inside: what its receiving and its sending side share.
 *
 * Threads: told at each field and function. */
#ifndef RUBATO_IO_NET_TRANSPORT_SHM_TRANSPORT_SHM_H
#define RUBATO_IO_NET_TRANSPORT_SHM_TRANSPORT_SHM_H

#include "io/net/transport/sender.h"
#include "io/net/transport/shm/shm_ring.h"
#include "io/net/transport/shm/shm_socket.h"
#include "io/net/transport/transport_ops.h"

/* In memory that a receiver shares with all who send to it. */
typedef struct {
    _Atomic uint32_t asleep; /* 1: whoever writes into a ring rings the bell */
} ShmBell;

#define SHM_BELL_BYTES ((size_t)4096)

/* The receiver is about to sleep. It looks into the rings once more afterwards. */
static inline void shm_bell_set(ShmBell *bell)
{
    /* seq_cst: against the load in shm_bell_take, see shm_ring.c */
    atomic_store_explicit(&bell->asleep, 1, memory_order_seq_cst);
}

/* It does not sleep. Whether the bell is being rung all the same. */
static inline bool shm_bell_clear(ShmBell *bell)
{
    /* Relaxed: a sender that still sees it set rings in vain. */
    return atomic_exchange_explicit(&bell->asleep, 0, memory_order_relaxed) == 0;
}

/* After a record was written: whether to ring. Who writes first after the receiver has gone to
 * sleep does; the others need not. */
static inline bool shm_bell_take(ShmBell *bell)
{
    /* seq_cst: as what ring_write did before, see shm_ring.c. Relaxed: it reads the 1 that the load
     * has seen, or what came after it. */
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
    int bell_fd;   /* an eventfd: ringing is writing to it */
    ShmBell *bell; /* for those who send to us */

    /* the I/O thread only */
    GPtrArray *receivers; /* of ShmReceiver */
    guint next_receiver;
    uint32_t n_receivers_ever;
    bool armed;       /* our bell is set to ring */
    bool rung;        /* and it has rung: the epoll says so until it is asked */
    unsigned unheard; /* rounds since the epoll was asked */

    _Atomic bool unfinished; /* a sender has more to write than it did in one go */
    Senders senders;         /* any thread */
} ShmTransport;

/* What an event of the epoll is about. */
enum {
    SHM_EVENT_BELL,
    SHM_EVENT_LISTENER,
    SHM_EVENT_RECEIVER,
    SHM_EVENT_SENDER,
};

bool shm_transport_watch(const ShmTransport *transport, int fd, uint32_t events, uint32_t kind,
                         uint32_t id);

/* What a handshake of this node begins with. */
HandshakeConfig shm_transport_handshake(const ShmTransport *transport);

/* Takes it out and closes it: a process that was forked off may still have it open. */
void shm_transport_close(const ShmTransport *transport, int fd);

/* ---- transport_shm_send.c ---- */

/* A channel to whoever listens at the name. (transfer full) */
Channel *shm_sender_new(ShmTransport *transport, const char *name, const ChannelTarget *target);

#endif
