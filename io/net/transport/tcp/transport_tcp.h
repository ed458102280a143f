/* The TCP transport from inside: what its receiving and its sending side share.
 *
 * Threads: told at each field and function. */
#ifndef RUBATO_IO_NET_TRANSPORT_TCP_TRANSPORT_TCP_H
#define RUBATO_IO_NET_TRANSPORT_TCP_TRANSPORT_TCP_H

#include <netdb.h>
#include <sys/epoll.h>

#include "io/net/link/block_pool.h"
#include "io/net/spinner.h"
#include "io/net/transport/sender.h"
#include "io/net/transport/tcp/tcp_receiver.h"

#define TCP_SCHEME "tcp"
#define TCP_MOST_EVENTS 32

typedef struct {
    Transport base;

    /* immutable once bound */
    int poll_fd;  /* an epoll around the other */
    int epoll_fd; /* has the listeners and all connections */
    TransportConfig config;
    size_t most_receivers;
    unsigned timeout_ms;
    BlockPool *pool;   /* for large packets */
    GArray *listeners; /* of descriptors */

    /* the I/O thread only */
    GHashTable *receivers; /* id → TcpReceiver: of nodes that have proved who they are */
    GHashTable *strangers; /* the same of those who have not yet */
    uint32_t n_receivers_ever;
    TcpReceiver *current; /* what was read of it is taken out first; NULL: none */
    TcpReceiver *last;    /* of which the last packet came; NULL: it is gone */
    struct epoll_event events[TCP_MOST_EVENTS]; /* not looked at yet: from next_event on */
    int next_event, n_events;
    bool is_armed;     /* poll_fd tells what comes */
    unsigned n_vain;   /* glances since a packet came */
    Spinner spinner;   /* for the rest of a large packet */
    int64_t check_ms;  /* when connections are looked through next */
    int64_t warned_ms; /* when somebody was last complained of */
    uint64_t n_unsaid; /* complaints since then */

    Senders senders; /* any thread */
} TcpTransport;

/* What an event of the epoll is about. */
enum {
    TCP_EVENT_LISTENER,
    TCP_EVENT_RECEIVER,
    TCP_EVENT_SENDER,
};

/* Puts a descriptor into the epoll, or says anew of one that is in it what it is watched for. */
bool tcp_transport_watch(const TcpTransport *transport, int fd, uint32_t events, uint32_t kind,
                         uint32_t id);
void tcp_transport_watch_for(const TcpTransport *transport, int fd, uint32_t events, uint32_t kind,
                             uint32_t id);

/* A connection on which nothing goes ends some time after its other end has vanished. */
void tcp_transport_keep_alive(const TcpTransport *transport, int fd);

/* ---- transport_tcp_send.c ---- */

/* A channel to whoever listens there. (transfer full) */
Channel *tcp_sender_new(TcpTransport *transport, const struct addrinfo *address,
                        const ChannelTarget *target);

/* ---- transport_tcp.c ---- */

/* Has what comes back on a connection received, whose other end has proved who it is. I/O
 * thread. */
void tcp_transport_take_answers(TcpTransport *transport, int fd, const Handshake *done,
                                const Seal *receives);

#endif
