/* The transports "zmq" and "ipc": ZeroMQ, over TCP and over Unix sockets with abstract names.
 *
 * One ROUTER is bound to all of the node's addresses and only receives. One DEALER for each channel
 * only sends. So no peer can make another peer's packets wait, and routing ids that strangers
 * choose have no effect. The queue of a DEALER has no limit: the link above bounds what is in
 * flight, and a socket that is never full never drops silently. The ROUTER takes a bounded number
 * of messages ahead from each connection. It drops none either: a process that sends faster than
 * this node handles its messages has to wait.
 *
 * If there is a secret, both ends of a connection prove it by CURVE, which also encrypts: see
 * zmq_curve.h. zmq_gate.h tells of strangers.
 *
 * Threads: the ROUTER belongs to the I/O thread. A DEALER goes from holder to holder. ZeroMQ allows
 * this if the handover is a full fence; the send token of the peer is one (network_send.c).
 * ZeroMQ's own thread gives back packets that it sent without a copy; packet_unref may be called on
 * any thread. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <zmq.h>

#include <rubato/error.h>

#include "io/net/transport/tcp/host_address.h"
#include "io/net/transport/tcp/tcp_address.h"
#include "io/net/transport/zmq/zmq_gate.h"

#define ZMQ "zmq"
#define IPC "ipc"

/* Packets up to this size are copied into the socket's queue. This is cheaper than giving them back
 * from another thread. */
#define COPIED_BYTES 2048

/* How many messages of a connection may wait in the ROUTER. */
#define MOST_WAITING 1000

/* A stranger that connects and says nothing is cut off after this time. */
#define HANDSHAKE_MS 5000

#define RECONNECT_MS 50
#define LONGEST_RECONNECT_MS 1000

/* Parts of the timeout: how long a connection may go without an acknowledgement, how long an
 * attempt to connect may take, and the longest pause between two attempts. */
#define PATIENCE_PART 4
#define ATTEMPT_PART 12
#define PAUSE_PART 32

typedef struct {
    Transport base;
    void *context;
    void *router;
    char *identity;  /* of the host; only for "ipc" */
    ZmqCurve *curve; /* NULL: there is no secret to prove */
    ZmqGate *gate;
    unsigned timeout_ms;
    /* The number of packets on their way through ZeroMQ. The counter orders the thread that sends a
     * packet and the thread that gives it back. ZeroMQ's queues order them too, but a race detector
     * cannot see that. */
    _Atomic uint64_t n_handed_over;
} ZmqTransport;

typedef struct {
    Channel base;
    ZmqTransport *transport;
    void *dealer;
    void *monitor; /* NULL: it could not be made */
    NetworkPeerState state;
    uint32_t n_connected; /* how often */
} ZmqChannel;

static void fail(GError **error, const char *what, const char *endpoint, const char *hint)
{
    const int number = zmq_errno();

    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK, "cannot %s %s: %s%s", what, endpoint,
                zmq_strerror(number), number == EADDRINUSE ? hint : "");
}

static bool set_int(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

/* The options that both kinds of socket have in common. */
static bool set_up(void *socket)
{
    return set_int(socket, ZMQ_LINGER, 0) && set_int(socket, ZMQ_SNDHWM, 0) &&
           set_int(socket, ZMQ_RCVHWM, MOST_WAITING) && set_int(socket, ZMQ_SNDTIMEO, 0) &&
           set_int(socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS);
}

static void zmq_transport_destroy(Transport *transport)
{
    ZmqTransport *const self = (ZmqTransport *)transport;

    if (self->router != NULL)
        zmq_close(self->router);
    if (self->context != NULL)
        while (zmq_ctx_term(self->context) == -1 && zmq_errno() == EINTR)
            ;
    zmq_gate_free(self->gate);
    zmq_curve_free(self->curve);
    g_free(self->identity);
    g_free(self);
}

static Transport *create(const TransportOps *ops, const TransportConfig *config, GError **error)
{
    if (config->encrypt && config->secret == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "the transport \"%s\" encrypts nothing without a secret", ops->name);
        return NULL;
    }
    ZmqTransport *const self = g_new0(ZmqTransport, 1);
    /* A DEALER and two ends of a monitor for each peer, and room for greetings. */
    const uint64_t n_sockets = 3 * (uint64_t)config->n_nodes + 1024;
    const int64_t largest = (int64_t)WIRE_MAX_PACKET_BYTES;
    const ZmqGateUsers users = ops == &transport_ipc ? ZMQ_GATE_OWN_USER : ZMQ_GATE_ANY_USER;

    self->base.ops = ops;
    self->timeout_ms = config->timeout_ms;
    self->context = zmq_ctx_new();
    if (self->context == NULL ||
        zmq_ctx_set(self->context, ZMQ_MAX_SOCKETS, (int)MIN(n_sockets, 65535)) != 0 ||
        (self->router = zmq_socket(self->context, ZMQ_ROUTER)) == NULL || !set_up(self->router) ||
        !set_int(self->router, ZMQ_RCVHWM, MOST_WAITING) ||
        zmq_setsockopt(self->router, ZMQ_MAXMSGSIZE, &largest, sizeof largest) != 0 ||
        /* Nothing is sent on it. If that ever changes, packets must not be dropped silently. */
        !set_int(self->router, ZMQ_ROUTER_MANDATORY, 1)) {
        fail(error, "open", "a ZeroMQ socket", "");
        zmq_transport_destroy(&self->base);
        return NULL;
    }
    if ((config->secret != NULL && (self->curve = zmq_curve_new(config, error)) == NULL) ||
        (self->gate = zmq_gate_new(self->context, self->router, users, self->curve, error)) ==
            NULL) {
        zmq_transport_destroy(&self->base);
        return NULL;
    }
    return &self->base;
}

static Transport *zmq_transport_create(const TransportConfig *config, GError **error)
{
    return create(&transport_zmq, config, error);
}

static Transport *ipc_create(const TransportConfig *config, GError **error)
{
    Transport *const transport = create(&transport_ipc, config, error);

    if (transport != NULL)
        ((ZmqTransport *)transport)->identity = host_identity();
    return transport;
}

/* The address in ZeroMQ's form: it binds only numbers. (transfer full) */
static char *numeric_endpoint(const struct addrinfo *address, const char *port)
{
    char host[NI_MAXHOST];

    tcp_address_text(address->ai_addr, address->ai_addrlen, host, sizeof host);
    return tcp_address_join("tcp", host, (unsigned)strtoul(port, NULL, 10));
}

static bool zmq_transport_bind(Transport *transport, const char *endpoint, char **resolved,
                               GError **error)
{
    ZmqTransport *const self = (ZmqTransport *)transport;
    g_autofree char *host = NULL, *port = NULL;
    char bound[512];
    size_t length = sizeof bound;

    if (!tcp_address_split(ZMQ, endpoint, &host, &port, error))
        return false;
    struct addrinfo *const found = tcp_address_to_bind(endpoint, host, port, error);
    if (found == NULL)
        return false;
    const bool ipv6 = found->ai_family == AF_INET6;
    g_autofree char *inner = numeric_endpoint(found, port);
    freeaddrinfo(found);
    if (!set_int(self->router, ZMQ_IPV6, ipv6) || zmq_bind(self->router, inner) != 0 ||
        zmq_getsockopt(self->router, ZMQ_LAST_ENDPOINT, bound, &length) != 0) {
        fail(error, "bind", endpoint, TCP_ADDRESS_TAKEN);
        return false;
    }
    /* The host stays as it was written, because the others reach it by that name. */
    const char *const real_port = strrchr(bound, ':');
    *resolved = tcp_address_join(
        ZMQ, host, real_port != NULL ? (unsigned)strtoul(real_port + 1, NULL, 10) : 0);
    return true;
}

/* The address of a name in ZeroMQ's form. */
static char *ipc_endpoint(const char *name)
{
    return g_strconcat("ipc://@", name, NULL);
}

static bool ipc_bind(Transport *transport, const char *endpoint, char **resolved, GError **error)
{
    ZmqTransport *const self = (ZmqTransport *)transport;
    g_autofree char *name = NULL;

    if (!host_address_split(IPC, self->identity, endpoint, /* for_binding= */ true, &name, error))
        return false;
    g_autofree char *inner = ipc_endpoint(name);
    if (zmq_bind(self->router, inner) != 0) {
        fail(error, "bind", endpoint,
             "; another program, or another node, has it: choose another name, or * for any");
        return false;
    }
    *resolved = host_address_join(IPC, self->identity, name);
    return true;
}

static bool ipc_reaches(Transport *transport, const char *endpoint)
{
    g_autofree char *name = NULL;

    return host_address_split(IPC, ((ZmqTransport *)transport)->identity, endpoint,
                              /* for_binding= */ false, &name, NULL);
}

static int zmq_transport_poll_fd(Transport *transport)
{
    ZmqTransport *const self = (ZmqTransport *)transport;
    int fd = -1;
    size_t size = sizeof fd;

    zmq_getsockopt(self->router, ZMQ_FD, &fd, &size);
    return fd;
}

static zmq_msg_t *message_of(Received *received)
{
    _Static_assert(sizeof(zmq_msg_t) <= sizeof received->memory, "a message must fit");
    return (zmq_msg_t *)(void *)received->memory;
}

static void received_release(Received *received)
{
    zmq_msg_close(message_of(received));
}

static void point_at(Received *received)
{
    zmq_msg_t *const message = message_of(received);

    received->bytes = zmq_msg_data(message);
    received->size = zmq_msg_size(message);
    received->values = NULL;
}

static void received_move(Received *to, Received *from)
{
    to->ops = from->ops;
    to->misshapen = from->misshapen;
    to->lent = to->is_answer = false;
    to->node = from->node;
    to->incarnation = from->incarnation;
    to->connection = from->connection;
    zmq_msg_init(message_of(to));
    zmq_msg_move(message_of(to), message_of(from));
    point_at(to); /* small messages are in the zmq_msg_t itself */
}

static const char *received_address(Received *received)
{
    const char *const address = zmq_msg_gets(message_of(received), "Peer-Address");

    return address != NULL ? address : "an unknown address";
}

static const ReceivedOps received_ops = {
    .release = received_release,
    .move = received_move,
    .address = received_address,
};

static bool receive_part(void *socket, zmq_msg_t *message)
{
    int size;

    do
        size = zmq_msg_recv(message, socket, ZMQ_DONTWAIT);
    while (size == -1 && zmq_errno() == EINTR);
    return size != -1;
}

/* A channel sends one part, and the ROUTER puts the sender's routing id before it. A message of
 * another form was not sent by a channel. The socket checks for new messages before it says that
 * there is none, so its edge-triggered descriptor may be polled after that. */
static bool zmq_transport_receive(Transport *transport, Received *received)
{
    ZmqTransport *const self = (ZmqTransport *)transport;
    zmq_msg_t *const message = message_of(received);

    zmq_msg_init(message);
    if (!receive_part(self->router, message)) { /* the routing id */
        zmq_msg_close(message);
        return false;
    }
    bool more = zmq_msg_more(message) != 0;
    uint32_t n_parts = 0;
    while (more && n_parts < 1 && receive_part(self->router, message)) {
        more = zmq_msg_more(message) != 0;
        n_parts++;
    }
    received->misshapen = n_parts != 1 || more;
    while (more) {
        zmq_msg_t rest;
        zmq_msg_init(&rest);
        more = receive_part(self->router, &rest) && zmq_msg_more(&rest) != 0;
        zmq_msg_close(&rest);
    }
    received->ops = &received_ops;
    received->lent = received->is_answer = false;
    received->node =
        self->curve != NULL && n_parts == 1 ? zmq_curve_node_of(message) : HANDSHAKE_ANY_NODE;
    received->incarnation = 0;
    received->connection = 0;
    point_at(received);
    return true;
}

/* ZeroMQ has sent the packet, or given it up. On ZeroMQ's thread, or the one that closes the
 * socket. */
static void give_back(void *bytes, void *transport)
{
    ZmqTransport *const self = transport;

    /* Acquire: pairs with zmq_channel_send's release, before the packet is first looked at. */
    (void)atomic_load_explicit(&self->n_handed_over, memory_order_acquire);
    packet_unref(packet_of_bytes(bytes));
}

static void zmq_channel_send(Channel *channel, Packet *packet)
{
    ZmqChannel *const self = (ZmqChannel *)channel;
    zmq_msg_t message;
    int sent;

    if (packet->size <= COPIED_BYTES) {
        if (zmq_msg_init_size(&message, packet->size) != 0)
            return;
        memcpy(zmq_msg_data(&message), packet->bytes, packet->size);
    } else {
        if (zmq_msg_init_data(&message, packet->bytes, packet->size, give_back, self->transport) !=
            0)
            return;
        packet_ref(packet);
        /* Release: pairs with give_back's acquire. */
        atomic_fetch_add_explicit(&self->transport->n_handed_over, 1, memory_order_release);
    }
    do
        sent = zmq_msg_send(&message, self->dealer, ZMQ_DONTWAIT);
    while (sent == -1 && zmq_errno() == EINTR);
    /* A packet that the socket does not take is lost, and the link sends it again. */
    if (sent == -1)
        zmq_msg_close(&message);
}

static NetworkPeerState zmq_channel_state(Channel *channel)
{
    ZmqChannel *const self = (ZmqChannel *)channel;
    zmq_msg_t part;

    if (self->monitor == NULL)
        return NETWORK_PEER_UNKNOWN;
    zmq_msg_init(&part);
    while (receive_part(self->monitor, &part)) {
        uint16_t event = 0;
        if (zmq_msg_size(&part) >= sizeof event)
            memcpy(&event, zmq_msg_data(&part), sizeof event); /* in the host's order */
        if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
            self->state = NETWORK_PEER_CONNECTED;
            self->n_connected++;
        } else if (event == ZMQ_EVENT_DISCONNECTED && self->state == NETWORK_PEER_CONNECTED)
            self->state = NETWORK_PEER_DISCONNECTED;
        while (zmq_msg_more(&part) && receive_part(self->monitor, &part))
            ;
    }
    zmq_msg_close(&part);
    return self->state;
}

static uint32_t zmq_channel_n_resets(Channel *channel)
{
    const ZmqChannel *const self = (const ZmqChannel *)channel;

    return self->n_connected > 0 ? self->n_connected - 1 : 0;
}

static void zmq_channel_close(Channel *channel, unsigned linger_ms)
{
    ZmqChannel *const self = (ZmqChannel *)channel;

    if (self->dealer != NULL) {
        zmq_socket_monitor(self->dealer, NULL, 0);
        set_int(self->dealer, ZMQ_LINGER, (int)linger_ms);
        zmq_close(self->dealer);
    }
    if (self->monitor != NULL)
        zmq_close(self->monitor);
    g_free(self);
}

static const ChannelOps channel_ops = {
    .send = zmq_channel_send,
    .state = zmq_channel_state,
    .n_resets = zmq_channel_n_resets,
    .close = zmq_channel_close,
};

/* Watches the DEALER's connection. If that fails, the channel works without. */
static void watch(ZmqTransport *transport, ZmqChannel *channel)
{
    g_autofree char *name = g_strdup_printf("inproc://monitor-%p", (void *)channel);
    void *const monitor = zmq_socket(transport->context, ZMQ_PAIR);

    if (monitor == NULL)
        return;
    /* With a limit, many events of one connection could block ZeroMQ's own thread. */
    if (!set_up(monitor) ||
        zmq_socket_monitor(channel->dealer, name,
                           ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED) != 0 ||
        zmq_connect(monitor, name) != 0) {
        zmq_close(monitor);
        return;
    }
    channel->monitor = monitor;
    channel->state = NETWORK_PEER_CONNECTING;
}

/* A network may fail silently: see the design note of transport_tcp.c. */
static bool set_patience(const ZmqTransport *self, void *dealer)
{
    const int longest_ms =
        (int)MIN(MAX(self->timeout_ms / PAUSE_PART, 1), (unsigned)LONGEST_RECONNECT_MS);

    return set_int(dealer, ZMQ_RECONNECT_IVL, MIN(RECONNECT_MS, longest_ms)) &&
           set_int(dealer, ZMQ_RECONNECT_IVL_MAX, longest_ms) &&
           set_int(dealer, ZMQ_CONNECT_TIMEOUT, (int)MAX(self->timeout_ms / ATTEMPT_PART, 1)) &&
           set_int(dealer, ZMQ_TCP_MAXRT, (int)MAX(self->timeout_ms / PATIENCE_PART, 1));
}

/* `inner` is the endpoint in ZeroMQ's form. */
static Channel *connect_channel(ZmqTransport *self, const char *endpoint, const char *inner,
                                bool ipv6, const ChannelTarget *target, GError **error)
{
    const uint32_t node = target != NULL ? target->node : HANDSHAKE_ANY_NODE;
    ZmqChannel *const channel = g_new0(ZmqChannel, 1);

    channel->base.ops = &channel_ops;
    channel->transport = self;
    channel->dealer = zmq_socket(self->context, ZMQ_DEALER);
    if (channel->dealer == NULL || !set_up(channel->dealer) ||
        !set_patience(self, channel->dealer) || !set_int(channel->dealer, ZMQ_IPV6, ipv6) ||
        (self->curve != NULL && !zmq_curve_set_up_dealer(self->curve, channel->dealer, node)))
        goto close_channel;
    watch(self, channel);
    if (zmq_connect(channel->dealer, inner) != 0)
        goto close_channel;
    return &channel->base;

close_channel:
    fail(error, "connect to", endpoint, "");
    zmq_channel_close(&channel->base, 0);
    return NULL;
}

static Channel *zmq_transport_connect(Transport *transport, const char *endpoint,
                                      const ChannelTarget *target, GError **error)
{
    g_autofree char *host = NULL, *port = NULL;

    if (!tcp_address_split(ZMQ, endpoint, &host, &port, error))
        return NULL;
    const bool ipv6 = !g_hostname_is_ip_address(host) || strchr(host, ':') != NULL;
    g_autofree char *inner = g_strconcat("tcp", endpoint + strlen(ZMQ), NULL);
    return connect_channel((ZmqTransport *)transport, endpoint, inner, ipv6, target, error);
}

static Channel *ipc_connect(Transport *transport, const char *endpoint, const ChannelTarget *target,
                            GError **error)
{
    ZmqTransport *const self = (ZmqTransport *)transport;
    g_autofree char *name = NULL;

    if (!host_address_split(IPC, self->identity, endpoint, /* for_binding= */ false, &name, error))
        return NULL;
    g_autofree char *inner = ipc_endpoint(name);
    return connect_channel(self, endpoint, inner, /* ipv6= */ false, target, error);
}

const TransportOps transport_zmq = {
    .name = ZMQ,
    .create = zmq_transport_create,
    .destroy = zmq_transport_destroy,
    .bind = zmq_transport_bind,
    .poll_fd = zmq_transport_poll_fd,
    .receive = zmq_transport_receive,
    .connect = zmq_transport_connect,
};

const TransportOps transport_ipc = {
    .name = IPC,
    .create = ipc_create,
    .destroy = zmq_transport_destroy,
    .bind = ipc_bind,
    .poll_fd = zmq_transport_poll_fd,
    .receive = zmq_transport_receive,
    .reaches = ipc_reaches,
    .connect = ipc_connect,
};
