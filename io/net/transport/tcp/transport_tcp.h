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
    GHashTable *strangers; /* the same, of connections that have not yet */
    uint32_t n_receivers_ever;
    TcpReceiver *current; /* its bytes that were read are taken first; NULL: none */
    TcpReceiver *last;    /* the receiver of the last packet; NULL: it is gone */
    struct epoll_event events[TCP_MOST_EVENTS]; /* from next_event on they are not handled yet */
    int next_event, n_events;
    bool is_armed;     /* poll_fd becomes readable when something comes */
    unsigned n_vain;   /* glances since the last packet */
    Spinner spinner;   /* for the rest of a large packet */
    int64_t check_ms;  /* when connections are checked next */
    int64_t warned_ms; /* when the last complaint was logged */
    uint64_t n_unsaid; /* complaints since then */

    Senders senders; /* any thread */
} TcpTransport;

/* The kinds of descriptors in the epoll. */
enum {
    TCP_EVENT_LISTENER,
    TCP_EVENT_RECEIVER,
    TCP_EVENT_SENDER,
};

/* Puts a descriptor into the epoll, or changes the events for which it is watched. */
bool tcp_transport_watch(const TcpTransport *transport, int fd, uint32_t events, uint32_t kind,
                         uint32_t id);
void tcp_transport_watch_for(const TcpTransport *transport, int fd, uint32_t events, uint32_t kind,
                             uint32_t id);

/* Makes a quiet connection end some time after its other end has vanished. */
void tcp_transport_keep_alive(const TcpTransport *transport, int fd);

/* ---- transport_tcp_send.c ---- */

/* A channel to the process that listens there. (transfer full) */
Channel *tcp_sender_new(TcpTransport *transport, const struct addrinfo *address,
                        const ChannelTarget *target);

/* ---- tcp_connections.c: the I/O thread ---- */

/* Accepts all connections that wait at a listener. */
void tcp_connections_accept(TcpTransport *transport, int listener);

/* Reads from a connection. False: it was dropped. */
bool tcp_connections_read(TcpTransport *transport, TcpReceiver *receiver);

void tcp_connections_drop(TcpTransport *transport, TcpReceiver *receiver);

/* Logs now and then why a connection from this address is dropped. */
void tcp_connections_complain(TcpTransport *transport, const char *address, const char *what);

/* From time to time: drops strangers whose time for a proof is over, and accepts connections that
 * could not be accepted before. */
void tcp_connections_check(TcpTransport *transport, int64_t now_ms);

/* Receives what comes back on a connection, whose other end has proved its identity. */
void tcp_transport_take_answers(TcpTransport *transport, int fd, const Handshake *done,
                                const Seal *receives);

#endif
