/* The transport over UCX from inside: what its files share.
 *
 *   transport_ucx.c   its life, and receiving
 *   ucx_worker.c      UCX's worker: messages that leave and come, endpoints that are closed
 *   ucx_channel.c     channels
 *   ucx_meeting.c     how two nodes tell each other, over TCP, by what they meet in UCX
 *   ucx_library.c     UCX's functions
 *
 * Threads: UCX's worker, with all endpoints, is used by one thread at a time, under `lock`. Its
 * callbacks run in whatever thread makes it progress, with the lock held. The channel of the TCP
 * transport inside a channel belongs to the channel's holder, and is used without the lock. */
#ifndef RUBATO_IO_NET_TRANSPORT_UCX_TRANSPORT_UCX_H
#define RUBATO_IO_NET_TRANSPORT_UCX_TRANSPORT_UCX_H

#include <pthread.h>

#include "io/net/secure/agreed_key.h"
#include "io/net/secure/seal.h"
#include "io/net/transport/transport_ops.h"
#include "io/net/transport/ucx/ucx_library.h"

#define UCX_SCHEME "ucx"

/* Before each packet: its number on its way, from 0, and the tag of its seal. */
#define UCX_HEAD_BYTES (8 + SEAL_TAG_BYTES)

/* Ways in of nodes that have connected, one for each connection in UCX. */
typedef struct {
    uint32_t number;
    uint32_t node;
    uint64_t incarnation;
    Seal seal;
    char *address; /* of the node, in words */
    int64_t used_ms;
    int64_t warned_ms;  /* when a line told of packets that were dropped; 0: never */
    uint64_t n_dropped; /* since then */
} UcxLink;

typedef struct {
    Transport base;

    /* immutable */
    const UcxLibrary *ucx;
    TransportConfig config;
    ucp_context_h context;
    int poll_fd;        /* an epoll of the worker's descriptor, that of `meeting`, and wake_fd */
    int wake_fd;        /* an eventfd: another thread has used the worker */
    Transport *meeting; /* TCP, on which nodes meet; its ops are called as those of this one */
    ucp_address_t *address;
    size_t address_bytes;

    pthread_mutex_t lock;
    /* guarded by lock */
    ucp_worker_h worker;
    bool is_armed;        /* the worker's descriptor tells when there is something to do */
    bool was_reset;       /* a channel has met its node again */
    GHashTable *links;    /* number → UcxLink */
    GHashTable *channels; /* number → UcxChannel */
    uint32_t n_ever;      /* numbers given */
    GQueue inbox;         /* of UcxArrived */
    GPtrArray *coming;    /* messages of which a part has come */
    GQueue leaving;       /* endpoints that are being closed */
} UcxTransport;

/* An endpoint of UCX, which has a pointer to this until it is closed. */
typedef struct {
    ucp_ep_h endpoint;
    bool has_failed; /* UCX says so */
} UcxEnd;

/* A packet that came. */
typedef struct {
    size_t size;
    uint32_t node;
    uint64_t incarnation;
    char *address;
    _Alignas(16) uint8_t room[8]; /* so that the bytes are aligned */
    uint8_t head[UCX_HEAD_BYTES];
    uint8_t bytes[];
} UcxArrived;

typedef struct {
    Channel base;

    /* immutable */
    UcxTransport *transport;
    uint32_t number;
    char *endpoint;

    /* the holder's */
    Channel *meeting; /* to the same node, over TCP */
    uint32_t n_met;   /* connections there that were asked on, and one more */
    int64_t asked_ms; /* when the node was last asked */

    /* guarded by the transport's lock */
    bool is_asked;                   /* and no answer was taken */
    uint32_t turn;                   /* of what was asked last */
    uint8_t nonce[AGREED_KEY_BYTES]; /* in that turn */
    UcxEnd *end;                     /* NULL: not met */
    uint32_t link;                   /* the other end's number */
    Seal seal;                       /* valid while there is an end */
    uint32_t n_ready;                /* how often it has met its node */
    GQueue waiting;                  /* packets sent before that, the first time */
    bool has_warned;                 /* that UCX has no way there */
} UcxChannel;

/* ---- ucx_worker.c, with the lock held ---- */

/* Begins with the worker: its descriptor, its address. */
bool ucx_worker_begin(UcxTransport *transport, int *fd, GError **error);

/* Seals the packet and sends it. False: the endpoint is not worth keeping. */
bool ucx_worker_send(UcxChannel *channel, Packet *packet);

/* Closes an endpoint. What was sent still leaves, for as long as linger_ms. (transfer full) */
void ucx_worker_close(UcxTransport *transport, UcxEnd *end, unsigned linger_ms);

/* Does what there is to do. Whether an endpoint is being closed for which somebody waits. */
bool ucx_worker_go_on(UcxTransport *transport);

/* Destroys the worker, if there is one. */
void ucx_worker_end(UcxTransport *transport);

/* Gives the lock back after the worker was used: wakes the I/O thread if it sleeps, because it may
 * have missed something. Who has not used the worker just unlocks. */
void ucx_worker_leave(UcxTransport *transport);

/* ---- ucx_meeting.c ---- */

/* What the node must be asked. The lock is held. (transfer full) */
Packet *ucx_meeting_ask(UcxChannel *channel);

/* Takes what has come over TCP. I/O thread, without the lock. */
void ucx_meeting_take(UcxTransport *transport, Received *received);

void ucx_link_free(UcxLink *link);

/* ---- ucx_channel.c ---- */

Channel *ucx_channel_new(UcxTransport *transport, const char *endpoint, Channel *meeting);

/* The node has answered. The lock is held. */
void ucx_channel_met(UcxChannel *channel, const ucp_address_t *address, uint32_t link,
                     const Seal *seal);

#endif
