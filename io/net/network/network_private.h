/* The network from inside: what its files share.
 *
 *   network.c           its life: opening, starting, stopping
 *   network_join.c      the links to the other nodes
 *   network_greeting.c  greetings before nodes are joined, and their answers
 *   network_send.c      queues, packets that leave, room in the window
 *   network_receive.c   packets that come: checked, handed over
 *   network_parcel.c    the memory of a packet that has come, and what it takes of the window
 *   network_thread.c    the I/O thread
 *   network_help.c      a thread that waits for an answer and receives meanwhile
 *   network_guard.c     what becomes of packets while that thread is away for a moment
 *   network_lend.c      memory from which other nodes read values themselves
 *   network_faults.c    when a peer that sends nonsense counts as lost
 *   network_state.c     what can be asked: who was heard when, statistics
 *
 * Threads: told at each field and function. "The holder" is the thread that has a peer's token. */
#ifndef RUBATO_IO_NET_NETWORK_NETWORK_PRIVATE_H
#define RUBATO_IO_NET_NETWORK_NETWORK_PRIVATE_H

#include <pthread.h>

#include "io/net/link/link.h"
#include "io/net/link/link_fault.h"
#include "io/net/link/send_queue.h"
#include "io/net/monotonic.h"
#include "io/net/spinner.h"
#include "io/net/transport/transport_ops.h"

/* What the holder of a peer's token is asked to do besides emptying the queue. */
enum {
    PENDING_RUN = 1,      /* look at acknowledgements and at the time */
    PENDING_ACK = 2,      /* tell the peer what has come and what was consumed */
    PENDING_ASK = 4,      /* ask the peer to do the same */
    PENDING_AGAIN = 8,    /* ask the peer to go back */
    PENDING_GO_BACK = 16, /* go back: the peer has asked for it */
    PENDING_STATE = 32,   /* see how the connection is, and whether it was made anew */
    PENDING_REVOKE = 64,  /* read no values of callers any more (direct_write.h) */
};

typedef struct Peer Peer;

struct Peer {
    /* immutable */
    _Alignas(64) Network *network;
    uint32_t number;
    uint64_t incarnation;
    const TransportOps *transport;
    Peer *former; /* of the lost process whose place this one has taken; NULL: none */

    /* any thread */
    _Alignas(64) _Atomic(Frame *) queue; /* the newest frame first */
    _Atomic uint32_t pending;
    _Atomic uint32_t token; /* 1: somebody holds it */
    _Atomic bool forgotten;
    _Atomic bool broken;            /* the handler was told; nothing more is taken */
    _Atomic uint64_t pushed;        /* bytes of all requests of normal priority pushed so far */
    _Atomic uint64_t pushed_high;   /* of high priority */
    _Atomic uint64_t charged_taken; /* as of both, when the queue was last taken */

    _Alignas(64) _Atomic uint64_t consumed; /* bytes of its requests that we have done with */
    _Atomic uint64_t told_consumed;         /* as of that, what we last told it */
    _Atomic uint64_t told_ack;              /* and which packet we last acknowledged */
    _Atomic uint64_t parked;                /* bytes kept for its parked Gets: see incoming_park */
    _Atomic uint32_t n_waiters;             /* for room */

    /* written by the I/O thread, read by any */
    _Alignas(64) _Atomic uint64_t received; /* the packet up to which all have come */
    _Atomic uint64_t its_ack;
    _Atomic uint64_t its_consumed;
    _Atomic int64_t heard_ms;
    _Atomic int64_t advanced_ms; /* when `received` last grew */

    /* the holder only */
    _Alignas(64) LinkSender sender;
    SendQueue frames;  /* taken from the queue and not packed yet */
    Channel *channel;  /* NULL: closed, for good */
    uint32_t n_resets; /* of the channel, that were taken into account */

    /* written by the holder, read by any */
    _Atomic int64_t resend_at;
    _Atomic uint64_t highest_sent;
    _Atomic uint64_t direct_until; /* no packet after this one has values of a caller */
    _Atomic uint64_t kept_packets, kept_bytes;
    _Atomic bool held_back;  /* packets or frames wait for acknowledgements */
    _Atomic int64_t high_ms; /* when frames of high priority were last taken from the queue */
    _Atomic uint32_t state;  /* a NetworkPeerState */
    _Atomic bool is_refused; /* nobody listens there any more */
    _Atomic uint64_t n_packets_sent, n_bytes_sent, n_acks_sent, n_resent;
    _Atomic uint64_t n_messages_sent[MESSAGE_N_WIRE_KINDS];

    /* guarded by the network's `receiving` */
    _Alignas(64) LinkReceiver receiver;
    LinkFault fault;
    uint64_t handed;      /* bytes of its requests of normal priority that the handler got */
    uint64_t handed_high; /* of high priority */
    int64_t asked_at;     /* what it has consumed; or when it last said so */
    bool touched;         /* something has come of it in this batch */

    /* I/O thread only */
    uint64_t acked;   /* its acknowledgement when this thread last looked */
    int64_t acked_ms; /* when it last grew, or there was nothing to acknowledge */
};

/* An answer to a greeting. */
typedef struct {
    Transport *transport;
    uint32_t connection;
    Packet *packet;
} Answer;

#define NETWORK_MOST_TRANSPORTS 4

/* The guard that the I/O thread stands while the helper is away: see network_guard.c. */
typedef struct {
    /* written under `receiving`, read by any thread */
    _Atomic bool stands;
    _Atomic uint64_t n_helps; /* helpers that have come */

    /* guarded by `receiving` */
    int64_t left_ns;   /* when a helper last left */
    uint32_t n_prompt; /* that came soon after one had left, less some for each that did not */
    uint32_t n_wanted; /* that many begin a guard */

    /* I/O thread only */
    int64_t stood_ns; /* the periods of this guard until now */
    unsigned n_tries; /* in a row, at the lock */
    uint64_t n_helps_seen;
    unsigned n_idle; /* periods in which none has come */
    bool has_ended;  /* and what was left for later is to be flushed */
} Guard;

struct Network {
    /* immutable */
    Transport *transports[NETWORK_MOST_TRANSPORTS]; /* those that have an address here, and TCP */
    size_t n_transports;
    const TransportOps *instead; /* of all others; NULL: as the addresses say */
    WireFaults *faults;          /* NULL: none */
    _Atomic uint32_t n_faulty;   /* channels with faults, ever */
    char *wanted;                /* the transport for links; NULL: the nearest */
    int news_fd;                 /* an epoll: something has come by one of the transports */
    int turn_fd;                 /* an epoll: the same, unless a helper is at it */
    int help_fd;                 /* an eventfd: the helper's call has ended */
    NetworkHandler handler;
    void *user;
    uint32_t self, n_nodes;
    uint64_t incarnation;
    size_t window_bytes, out_bytes, joined_bytes, turn_bytes;
    size_t high_out_bytes, near_high_out_bytes;
    size_t taken_bytes, parked_bytes;
    size_t room_bytes;
    bool drops_replies;
    RunSecret secret;
    bool has_secret, encrypt, authenticate;
    unsigned tick_ms, resend_ms, stop_ms, timeout_ms;
    _Atomic unsigned longest_tick_ms; /* a tick is due after this, if it is less than tick_ms */
    _Atomic bool takes_any;           /* taken_bytes bounds nobody any more */
    char **endpoints;
    size_t n_endpoints;
    int wake_fd;
    BlockPool *pool; /* of frames */

    /* immutable once joined is true: released by network_join, acquired by each reader */
    _Atomic bool joined;
    uint64_t run_id;
    uint32_t n_near; /* processes of this host, this one among them: they wait for one another */
    /* By node number; NULL for this node. network_replace alone changes one later. */
    _Atomic(Peer *) *peers;

    /* any thread */
    _Atomic bool woken;
    _Atomic uint32_t linked; /* bit i: some link goes over transport i; 0: there are no links yet */
    _Atomic bool has_answers;   /* the I/O thread is to send answers to greetings */
    _Atomic bool unflushed;     /* the I/O thread is to flush all peers */
    _Atomic bool sleeps;        /* the I/O thread does, until timer_at or its tick */
    _Atomic int64_t timer_at;   /* when the I/O thread looks at the timers of all peers, at its tick
                                 * at the latest */
    _Atomic bool stopping;      /* no more waits for room */
    _Atomic bool stopped;       /* no more frames */
    _Atomic int64_t stop_at_ms; /* the I/O thread ends then at the latest */

    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t room; /* somebody may go on */

    /* guarded by greeting_lock */
    pthread_mutex_t greeting_lock;
    GHashTable *greeted; /* endpoint → Channel */
    GQueue answers;      /* of Answer, that the I/O thread is to send */

    /* owner */
    pthread_t thread;
    bool started;

    /* I/O thread only */
    int64_t ticked_ms;

    /* written by the I/O thread, read by any (greetings sent: under greeting_lock) */
    _Atomic uint64_t n_packets_received, n_bytes_received;
    _Atomic uint64_t n_messages_received[MESSAGE_N_WIRE_KINDS];
    _Atomic uint64_t n_duplicates, n_early, n_strangers, n_bad, n_direct_reads;
    _Atomic uint64_t n_greetings_sent, n_greetings_received;

    /* guarded by receiving: held by the receiving thread, the I/O thread or a helper */
    pthread_mutex_t receiving;
    int64_t complained_at;
    uint64_t n_unsaid;                      /* complaints since then */
    unsigned n_partial;                     /* times that not all transports were asked, in a row */
    Transport *giver;                       /* by which the last packet came; NULL: none has */
    bool is_quiet[NETWORK_MOST_TRANSPORTS]; /* news_fd does not tell what comes by this transport */

    _Atomic bool helping; /* a thread that waits for an answer is the helper */
    Spinner helper;       /* the helper only; the I/O thread has its own */
    Guard guard;
};

/* Bytes of all requests pushed to the peer so far. */
static inline uint64_t peer_charged(const Peer *peer)
{
    /* Relaxed, both: see check_news and network_has_room, which need no more. */
    return atomic_load_explicit(&peer->pushed, memory_order_relaxed) +
           atomic_load_explicit(&peer->pushed_high, memory_order_relaxed);
}

/* Where tables have replicas, less is under way to a node of this host: what is, lies there until
 * all replicas have it, and there are copies of it on each way. If all these are larger than the
 * caches, each copy takes twice as long. In shared memory an answer takes microseconds, so this
 * part of a window is enough. */
#define NEAR_WINDOW_PART 4

/* The bytes of requests that may be under way to the peer. */
static inline size_t peer_window(const Peer *peer)
{
    const Network *const network = peer->network;

    /* Relaxed: while it is not seen, more may be under way. */
    return peer->transport->is_memory &&
                   atomic_load_explicit(&network->takes_any, memory_order_relaxed)
               ? network->window_bytes / NEAR_WINDOW_PART
               : network->window_bytes;
}

/* Whether packets may get lost while the peer's connection lives. In shared memory only faults on
 * demand lose some. */
static inline bool peer_loses_packets(const Peer *peer)
{
    return !peer->transport->is_memory || peer->network->faults != NULL;
}

/* Adds to a counter that one thread at a time writes: no locked instruction. */
static inline void count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* The peer of this number, NULL if there is none (yet). Any thread. */
static inline Peer *network_peer(const Network *network, uint32_t node)
{
    /* Acquire: pairs with network_join's release, so that what it set up is seen. */
    if (!atomic_load_explicit(&network->joined, memory_order_acquire) || node >= network->n_nodes)
        return NULL;
    /* Acquire: pairs with network_replace's release, in the same way. */
    return atomic_load_explicit(&network->peers[node], memory_order_acquire);
}

/* network.c */

/* The opened transport of an address; NULL with an error if it is not open. */
Transport *network_find_transport(const Network *network, const char *endpoint, GError **error);

/* Makes the I/O thread go through its loop once more. Any thread. */
void network_wake_io_thread(Network *network);

/* Makes the I/O thread look at the timers of all peers at this time, or sooner. It does so at each
 * tick in any case. Any thread. */
void network_note_timer(Network *network, int64_t at_ms);

/* network_join.c */

/* Frees the peers, which are closed. Owner. */
void network_free_peers(Network *network);

/* A channel of the transport, with the network's faults. NULL with an error. (transfer full) */
Channel *network_connect(Network *network, Transport *transport, const char *endpoint,
                         const ChannelTarget *target, GError **error);

/* network_send.c */

/* Does what is queued and pending. If another thread is doing this, that thread will do it. Any. */
void peer_flush(Peer *peer);

/* Adds flags to what is pending; peer_flush serves them. Any thread. */
void peer_set_pending(Peer *peer, uint32_t pending);

/* Drops everything and closes the channel, now and for good. Any thread. */
void peer_close(Peer *peer, unsigned linger_ms);

/* network_faults.c */

/* Whether nothing of the peer counts any more. Any thread: one with an old value takes one more
 * packet. */
static inline bool peer_is_gone(const Peer *peer)
{
    return atomic_load_explicit(&peer->forgotten, memory_order_relaxed) ||
           atomic_load_explicit(&peer->broken, memory_order_relaxed);
}

/* The peer that has proved to be the sender of a packet, whatever the packet's header says; NULL if
 * none has. Without a secret any process could say that it is this peer. Any thread. */
Peer *network_find_prover(const Network *network, const Received *received);

/* The handler got requests of the peer: checks whether a node may have this many under way.
 * `receiving` is held. */
void peer_check_window(Peer *peer);

/* A packet of the peer came that cannot be read, or is not the next one. `receiving` is held. */
void peer_note_fault(Peer *peer, const char *fault, int64_t now_ms);

/* Looks whether the peer acknowledges what is sent to it. stood_still: this node has not read for
 * long. I/O thread, every tick. */
void peer_check_acks(Peer *peer, bool stood_still, int64_t now_ms);

/* network_thread.c */

/* The I/O thread. */
void *network_run(void *network);

/* network_receive.c */

typedef enum {
    BATCH_NOTHING,
    BATCH_SOME,
    BATCH_MORE, /* and there may be more */
} Batch;

/* How far to look for what has come. */
typedef enum {
    REACH_ALL,  /* by every transport, until nothing is found: then news_fd tells of more */
    REACH_NEAR, /* the same, but only by those transports about which news_fd tells nothing now */
    REACH_SEEN, /* by these, if a glance shows something; news_fd still tells nothing about them */
} Reach;

/* Takes in what has come, up to `most` packets of each transport, and answers it. Writes to *next
 * when a peer will need to be served. A caller may ask for less than REACH_ALL only right after
 * REACH_ALL has returned BATCH_SOME or BATCH_NOTHING. Now and then all transports are asked in any
 * case. now_ms was read after `receiving` was locked: whoever held it before may have held it for
 * long. The time is not read again, because a Get of one key would notice it. `receiving` is
 * held. */
Batch network_receive(Network *network, Reach reach, unsigned most, bool serve_all, int64_t now_ms,
                      int64_t *next);

/* By which transports read values to their place. */
DirectReader network_direct_reader(Network *network);

/* What a glance at a transport shows. `receiving` is held. */
static inline Glance network_glance(Network *network, size_t i)
{
    Transport *const transport = network->transports[i];
    const Glance seen =
        transport->ops->glance != NULL ? transport->ops->glance(transport) : GLANCE_NOT_WORTH_IT;

    if (seen != GLANCE_NOT_WORTH_IT)
        network->is_quiet[i] = true;
    return seen;
}

/* network_help.c */

/* Looks for packets for a while; stops when the call (which may be NULL) has ended. False: it did
 * not look at all; otherwise network_receive is to be called again before sleeping. *seen: a glance
 * shows something. `receiving` is held. */
bool network_spin(Network *network, Spinner *spinner, Call *call, bool *seen);

/* network_guard.c */

void network_guard_init(Guard *guard);

/* Whether the I/O thread does not receive, because the helper will soon be back. Any thread. */
static inline bool network_is_guarded(const Network *network)
{
    return atomic_load_explicit(&network->guard.stands, memory_order_relaxed);
}

/* A helper has come. `receiving` is held. */
void network_note_help(Network *network);

/* The helper leaves. Returns whether it may leave packets as they are. *begins: it then has to wake
 * the I/O thread, which does not yet stand guard. `receiving` is held. */
bool network_leave_to_guard(Network *network, bool *begins);

/* Stands guard for a period, which does not begin after until_ms. False: there is no guard, or the
 * thread was woken and has to do its duties once, as at until_ms. I/O thread. */
bool network_stand_guard(Network *network, int64_t until_ms);

/* Locks `receiving`. False: it is not locked, because the helper has it and there is a guard: the
 * thread has slept for a period, or was woken, and looks again for what it has to do. I/O
 * thread. */
bool network_take_turn(Network *network);

/* Whether an absence of the helper was short, where so many nodes take turns on a processor.
 * Pure. */
bool network_guard_is_prompt(int64_t absent_ns, unsigned n_sharing);

/* For how long a guard sleeps at a time once it has stood for so long. Pure. */
int64_t network_guard_period_ns(int64_t stood_ns);

/* A guard that stood for so long has ended while the helper was away. `receiving` is held. */
void network_guard_note_vain(Guard *guard, int64_t stood_ns);

/* Whether what was pushed is flushed later, at the latest by the I/O thread. Any thread. */
bool network_leave_for_later(Network *network);

/* network_greeting.c */

/* A GDestroyNotify for an Answer. */
void answer_free(gpointer answer);

/* The asker of a greeting that came by this connection of the transport. */
uint64_t network_asker(const Network *network, const Transport *transport, uint32_t connection);

/* Sends the answers that wait. I/O thread, which holds `receiving`. */
void network_send_answers(Network *network);

#endif
