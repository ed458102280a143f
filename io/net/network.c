/* The network's life: opening, greetings, joining, stopping; and what can be asked of it.
 *
 * Threads: told in network.h. Sending is in network_send.c, the I/O thread in network_receive.c. */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <rubato/error.h>

#include "io/net/flow_sizes.h"
#include "io/net/network_private.h"

#define DEFAULT_TICK_MS 50
#define DEFAULT_RESEND_MS 200
#define DEFAULT_STOP_MS 2000
#define DEFAULT_TIMEOUT_MS 3000

/* What a link has out without an acknowledgement: replies are not held to the window. */
#define LINK_WINDOWS 2

/* The most requests of one peer that are not done with. A sender stays far below that: see
 * post_office.c. */
#define TAKEN_WINDOWS ((size_t)64)

/* The part of the memory that one peer's parked Gets may take, and their rows to come. */
#define LEAST_PARKED_BYTES ((size_t)1 << 30)
#define PARKED_PART ((size_t)4)

/* Closed sockets may go on sending for so long. */
#define LINGER_MS 100

/* Channels kept for greetings, beyond one for each node. */
#define SPARE_GREETED 16

/* Answers that may wait for the I/O thread, beyond two for each node: a process that gets none asks
 * again. */
#define SPARE_ANSWERS 64

int64_t network_now_ms(void)
{
    return monotonic_ms();
}

static void init_lock(Network *network)
{
    pthread_mutex_init(&network->lock, NULL);
    pthread_mutex_init(&network->greeting_lock, NULL);
    pthread_mutex_init(&network->receiving, NULL);
    monotonic_cond_init(&network->room);
}

static void close_greeted(gpointer channel)
{
    ((Channel *)channel)->ops->close(channel, LINGER_MS);
}

/* The opened transport of an address, NULL if it is not open. */
static Transport *find_transport(const Network *network, const char *endpoint, GError **error)
{
    const TransportOps *const ops =
        network->instead != NULL ? network->instead : transport_of(endpoint, error);

    for (size_t i = 0; ops != NULL && i < network->n_transports; i++)
        if (network->transports[i]->ops == ops)
            return network->transports[i];
    if (ops != NULL)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "%s cannot be reached: this node has no address of transport \"%s\"", endpoint,
                    ops->name);
    return NULL;
}

/* Opens the transport, unless it is. */
static Transport *open_transport(Network *network, const TransportOps *ops, GError **error)
{
    struct epoll_event event = { .events = EPOLLIN };

    for (size_t i = 0; i < network->n_transports; i++)
        if (network->transports[i]->ops == ops)
            return network->transports[i];
    g_assert(network->n_transports < NETWORK_MOST_TRANSPORTS);
    const TransportConfig config = { .n_nodes = network->n_nodes,
                                     .timeout_ms = network->timeout_ms,
                                     .self = network->self,
                                     .incarnation = network->incarnation,
                                     .secret = network->has_secret ? &network->secret : NULL,
                                     .encrypt = network->encrypt,
                                     .authenticate = network->authenticate };
    Transport *const transport = ops->create(&config, error);
    if (transport == NULL)
        return NULL;
    network->transports[network->n_transports++] = transport;
    const int fd = ops->poll_fd(transport);
    if (fd == -1 || epoll_ctl(network->news_fd, EPOLL_CTL_ADD, fd, &event) == 0)
        return transport;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK, "cannot watch the transport \"%s\": %s",
                ops->name, g_strerror(errno));
    return NULL;
}

static bool bind_all(Network *network, const NetworkConfig *config, GError **error)
{
    if (network->instead != NULL && open_transport(network, network->instead, error) == NULL)
        return false;
    for (size_t i = 0; i < config->n_bind_endpoints; i++) {
        const char *const endpoint = config->bind_endpoints[i];
        const TransportOps *const ops =
            network->instead != NULL ? network->instead : transport_of(endpoint, error);
        Transport *const transport = ops != NULL ? open_transport(network, ops, error) : NULL;
        if (transport == NULL || !ops->bind(transport, endpoint, &network->endpoints[i], error))
            return false;
        network->n_endpoints++;
    }
    /* Greetings go over TCP. */
    return network->instead != NULL || open_transport(network, &transport_tcp, error) != NULL;
}

/* Parked Gets may need much memory where many workers ask for much. So the limit is far from any
 * usual need, and still leaves memory for the rest. */
static size_t usual_parked_bytes(void)
{
    const long n_pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);

    return n_pages <= 0 || page_bytes <= 0
               ? LEAST_PARKED_BYTES
               : MAX(LEAST_PARKED_BYTES, (size_t)n_pages / PARKED_PART * (size_t)page_bytes);
}

static void set_sizes(Network *network, const NetworkConfig *config)
{
    const FlowSizes usual = FLOW_SIZES_USUAL;

    network->window_bytes = config->window_bytes > 0 ? config->window_bytes : usual.window_bytes;
    network->out_bytes =
        config->out_bytes > 0 ? config->out_bytes : LINK_WINDOWS * network->window_bytes;
    network->joined_bytes = config->joined_bytes > 0 ? config->joined_bytes : usual.joined_bytes;
    network->turn_bytes = config->turn_bytes > 0 ? config->turn_bytes : usual.turn_bytes;
    network->taken_bytes = config->taken_bytes > 0
                               ? config->taken_bytes
                               : TAKEN_WINDOWS * MAX(network->window_bytes, usual.window_bytes);
    network->parked_bytes = config->parked_bytes > 0 ? config->parked_bytes : usual_parked_bytes();
}

Network *network_new(const NetworkConfig *config, const NetworkHandler *handler, void *user,
                     GError **error)
{
    struct epoll_event news = { .events = EPOLLIN };

    assert(handler->receive != NULL && handler->greeted != NULL && handler->tick != NULL);
    if (config->transport != NULL && transport_find(config->transport, error) == NULL)
        return NULL;
    Network *const network = g_new0(Network, 1);
    network->instead = config->transport_ops;
    network->wanted = g_strdup(config->transport);
    network->handler = *handler;
    network->user = user;
    network->self = config->self;
    network->n_nodes = config->n_nodes;
    network->incarnation = config->incarnation;
    set_sizes(network, config);
    network->room_bytes = config->room_bytes;
    network->drops_replies = config->drops_replies;
    network->has_secret = config->secret != NULL;
    if (config->secret != NULL)
        network->secret = *config->secret;
    network->encrypt = config->encrypt;
    network->authenticate = config->authenticate;
    g_queue_init(&network->answers);
    network->tick_ms = config->tick_ms > 0 ? config->tick_ms : DEFAULT_TICK_MS;
    network->resend_ms = config->resend_ms > 0 ? config->resend_ms : DEFAULT_RESEND_MS;
    network->stop_ms = config->stop_ms > 0 ? config->stop_ms : DEFAULT_STOP_MS;
    network->timeout_ms = config->timeout_ms > 0 ? config->timeout_ms : DEFAULT_TIMEOUT_MS;
    network->complained_at = INT64_MIN / 2;
    network->endpoints = g_new0(char *, config->n_bind_endpoints + 1);
    network->greeted = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, close_greeted);
    network->pool = block_pool_new();
    spinner_init(&network->helper);
    init_lock(network);

    network->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    network->help_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    network->news_fd = epoll_create1(EPOLL_CLOEXEC);
    network->turn_fd = epoll_create1(EPOLL_CLOEXEC);
    if (network->wake_fd == -1 || network->help_fd == -1 || network->news_fd == -1 ||
        network->turn_fd == -1 ||
        epoll_ctl(network->turn_fd, EPOLL_CTL_ADD, network->news_fd, &news) != 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "cannot make eventfds and epolls: %s", g_strerror(errno));
        goto free_network;
    }
    if (!bind_all(network, config, error))
        goto free_network;
    return network;

free_network:
    network_free(network);
    return NULL;
}

bool network_start(Network *network, GError **error)
{
    sigset_t all, before;

    assert(!network->started);
    /* Signals are for the threads of the program. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int code = pthread_create(&network->thread, NULL, network_run, network);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK, "cannot start the I/O thread: %s",
                    g_strerror(code));
        return false;
    }
    pthread_setname_np(network->thread, "rubato-io");
    network->started = true;
    return true;
}

void network_wake_io_thread(Network *network)
{
    const uint64_t one = 1;

    if (write(network->wake_fd, &one, sizeof one) == -1)
        assert(errno == EAGAIN || errno == EINTR); /* it is awake anyhow */
}

void network_wake(Network *network)
{
    /* Release: pairs with the I/O thread's acquire. */
    atomic_store_explicit(&network->woken, true, memory_order_release);
    network_wake_io_thread(network);
}

static void close_peers(Network *network)
{
    for (uint32_t i = 0; i < network->n_nodes; i++) {
        Peer *const peer = network_peer(network, i);
        if (peer != NULL)
            peer_close(peer, LINGER_MS);
    }
}

void network_stop(Network *network)
{
    if (atomic_load_explicit(&network->stopped, memory_order_relaxed))
        return;
    atomic_store_explicit(&network->stop_at_ms, network_now_ms() + network->stop_ms,
                          memory_order_relaxed);
    /* Release: the I/O thread that sees it sees stop_at_ms. */
    atomic_store_explicit(&network->stopping, true, memory_order_release);
    network_wake_waiters(network);
    for (uint32_t i = 0; i < network->n_nodes; i++)
        network_flush(network, i);
    if (network->started) {
        network_wake(network);
        pthread_join(network->thread, NULL);
        network->started = false;
    }
    atomic_store_explicit(&network->stopped, true, memory_order_relaxed);
    close_peers(network);
}

static void free_peers(Network *network)
{
    if (network->peers == NULL)
        return;
    for (uint32_t i = 0; i < network->n_nodes; i++)
        free(network->peers[i]);
    g_free(network->peers);
}

static void free_answer(gpointer data)
{
    packet_unref(((Answer *)data)->packet);
    g_free(data);
}

void network_free(Network *network)
{
    if (network == NULL)
        return;
    network_stop(network);
    close_peers(network); /* frames that were pushed since */
    g_hash_table_unref(network->greeted);
    g_queue_clear_full(&network->answers, free_answer);
    for (size_t i = 0; i < network->n_transports; i++)
        network->transports[i]->ops->destroy(network->transports[i]);
    const int fds[] = { network->wake_fd, network->help_fd, network->turn_fd, network->news_fd };
    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++)
        if (fds[i] != -1)
            close(fds[i]);
    g_free(network->wanted);
    free_peers(network);
    for (size_t i = 0; i < network->n_endpoints; i++)
        g_free(network->endpoints[i]);
    g_free(network->endpoints);
    pthread_cond_destroy(&network->room);
    pthread_mutex_destroy(&network->greeting_lock);
    pthread_mutex_destroy(&network->receiving);
    pthread_mutex_destroy(&network->lock);
    block_pool_free(network->pool);
    run_secret_clear(&network->secret);
    g_free(network);
}

const char *network_endpoint(const Network *network, size_t i)
{
    assert(i < network->n_endpoints);
    return network->endpoints[i];
}

/* ---- greetings ---- */

/* The channel for greetings to an endpoint, made when first asked for. Called with the lock
 * held. */
static Channel *greeting_channel(Network *network, const char *endpoint, GError **error)
{
    /* Any node: with another cluster file its number may be another one. */
    const ChannelTarget target = { .node = HANDSHAKE_ANY_NODE, .greets = true };
    Channel *channel = g_hash_table_lookup(network->greeted, endpoint);

    if (channel != NULL)
        return channel;
    if (g_hash_table_size(network->greeted) >= network->n_nodes + SPARE_GREETED)
        g_hash_table_remove_all(network->greeted);
    Transport *const transport = find_transport(network, endpoint, error);
    if (transport == NULL)
        return NULL;
    if (transport->ops->answer == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "%s is no address for greetings: these go over TCP", endpoint);
        return NULL;
    }
    channel = transport->ops->connect(transport, endpoint, &target, error);
    if (channel != NULL)
        g_hash_table_insert(network->greeted, g_strdup(endpoint), channel);
    return channel;
}

/* A greeting as a packet. (transfer full) */
static Packet *make_greeting(GVariant *body, GError **error)
{
    g_autoptr(GVariant) boxed = g_variant_ref_sink(g_variant_new_variant(body));
    const size_t size = g_variant_get_size(boxed);

    if (size > WIRE_MAX_GREETING_BYTES) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "a greeting of %zu bytes is too large: the most is %zu", size,
                    WIRE_MAX_GREETING_BYTES);
        return NULL;
    }
    Packet *const packet = packet_new(WIRE_PREFIX_BYTES + size);
    if (packet == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "no memory for a greeting of %zu bytes", size);
        return NULL;
    }
    wire_write_greeting_prefix(packet->bytes, WIRE_VERSION, (uint32_t)size);
    g_variant_store(boxed, packet->bytes + WIRE_PREFIX_BYTES);
    return packet;
}

bool network_greet(Network *network, const char *endpoint, GVariant *body, GError **error)
{
    g_autofree char *first = g_strndup(endpoint, strcspn(endpoint, ","));
    Packet *const packet = make_greeting(body, error);

    if (packet == NULL)
        return false;
    pthread_mutex_lock(&network->greeting_lock);
    Channel *const channel = greeting_channel(network, first, error);
    if (channel != NULL) {
        channel->ops->send(channel, packet);
        count(&network->n_greetings_sent, 1);
    }
    pthread_mutex_unlock(&network->greeting_lock);
    packet_unref(packet);
    return channel != NULL;
}

NetworkPeerState network_greeting_state(Network *network, const char *endpoint)
{
    g_autofree char *first = g_strndup(endpoint, strcspn(endpoint, ","));

    pthread_mutex_lock(&network->greeting_lock);
    Channel *const channel = g_hash_table_lookup(network->greeted, first);
    const NetworkPeerState state =
        channel != NULL ? channel->ops->state(channel) : NETWORK_PEER_UNKNOWN;
    pthread_mutex_unlock(&network->greeting_lock);
    return state;
}

/* An asker is the transport's place, from 1 on, and the connection's number. */
uint64_t network_asker(const Network *network, const Transport *transport, uint32_t connection)
{
    uint64_t i = 0;

    while (network->transports[i] != transport)
        i++;
    return connection == 0 ? 0 : (i + 1) << 32 | connection;
}

bool network_answer(Network *network, uint64_t asker, GVariant *body, GError **error)
{
    const uint64_t place = asker >> 32;
    Packet *const packet = make_greeting(body, error);

    if (packet == NULL)
        return false;
    assert(place >= 1 && place <= network->n_transports);
    pthread_mutex_lock(&network->greeting_lock);
    if (network->answers.length < 2 * (guint)network->n_nodes + SPARE_ANSWERS) {
        Answer *const answer = g_new(Answer, 1);
        *answer = (Answer){ network->transports[place - 1], (uint32_t)asker, packet };
        packet_ref(packet);
        g_queue_push_tail(&network->answers, answer);
        count(&network->n_greetings_sent, 1);
    }
    pthread_mutex_unlock(&network->greeting_lock);
    packet_unref(packet);
    /* Relaxed: the lock orders the queue, and the I/O thread is woken afterwards. */
    atomic_store_explicit(&network->has_answers, true, memory_order_relaxed);
    network_wake_io_thread(network);
    return true;
}

void network_send_answers(Network *network)
{
    Answer *answer;

    pthread_mutex_lock(&network->greeting_lock);
    while ((answer = g_queue_pop_head(&network->answers)) != NULL) {
        answer->transport->ops->answer(answer->transport, answer->connection, answer->packet);
        free_answer(answer);
    }
    pthread_mutex_unlock(&network->greeting_lock);
}

/* ---- joining ---- */

/* Whether links may go to this address. */
static bool is_usable(const Network *network, Transport *transport, const char *endpoint)
{
    return (network->wanted == NULL || strcmp(network->wanted, transport->ops->name) == 0) &&
           (transport->ops->reaches == NULL || transport->ops->reaches(transport, endpoint));
}

/* A channel to the last of several addresses that can be used. */
static Channel *connect_nearest(Network *network, const char *endpoints,
                                const ChannelTarget *target, const TransportOps **transport_ops,
                                GError **error)
{
    g_auto(GStrv) words = g_strsplit(endpoints, ",", -1);
    const guint n = g_strv_length(words);

    for (guint i = n; i-- > 0;) {
        Transport *const transport = find_transport(network, words[i], i == 0 ? error : NULL);
        if (transport != NULL && is_usable(network, transport, words[i])) {
            *transport_ops = transport->ops;
            return transport->ops->connect(transport, words[i], target, error);
        }
        if (i == 0 && transport == NULL)
            return NULL;
    }
    g_set_error(
        error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
        "the node at %s cannot be reached by the transport \"%s\": it is on another host, or "
        "has no such address",
        endpoints, network->wanted != NULL ? network->wanted : "nearest");
    return NULL;
}

static Peer *peer_new(Network *network, uint32_t number, const NetworkPeer *told, GError **error)
{
    const TransportOps *transport = NULL;
    const ChannelTarget target = { .node = number, .incarnation = told->incarnation };
    Channel *const channel = connect_nearest(network, told->endpoint, &target, &transport, error);

    if (channel == NULL)
        return NULL;
    /* g_malloc does not align to cache lines. */
    Peer *const peer = aligned_alloc(_Alignof(Peer), sizeof *peer);
    if (peer == NULL) {
        channel->ops->close(channel, 0);
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no memory for the link to %s",
                    told->endpoint);
        return NULL;
    }
    memset(peer, 0, sizeof *peer);
    peer->network = network;
    peer->number = number;
    peer->incarnation = told->incarnation;
    peer->transport = transport;
    peer->channel = channel;
    atomic_init(&peer->state, NETWORK_PEER_CONNECTING);
    atomic_init(&peer->heard_ms, network_now_ms());
    atomic_init(&peer->advanced_ms, network_now_ms());
    peer->acked_ms = network_now_ms();
    atomic_init(&peer->resend_at, LINK_NEVER);
    link_sender_init(&peer->sender, network->resend_ms, network->out_bytes);
    return peer;
}

bool network_join(Network *network, uint64_t run_id, const NetworkPeer *peers, GError **error)
{
    uint32_t linked = 0;

    assert(network->peers == NULL);
    network->run_id = run_id;
    network->peers = g_new0(Peer *, network->n_nodes);
    for (uint32_t i = 0; i < network->n_nodes; i++) {
        if (i == network->self)
            continue;
        network->peers[i] = peer_new(network, i, &peers[i], error);
        if (network->peers[i] == NULL)
            goto close_channels;
        for (size_t k = 0; k < network->n_transports; k++)
            if (network->transports[k]->ops == network->peers[i]->transport)
                linked |= UINT32_C(1) << k;
    }
    atomic_store_explicit(&network->linked, linked, memory_order_relaxed);
    /* Release: pairs with network_peer. */
    atomic_store_explicit(&network->joined, true, memory_order_release);
    /* Those who joined earlier may have sent what we, not knowing them, have dropped. */
    for (uint32_t i = 0; i < network->n_nodes; i++)
        if (i != network->self) {
            peer_set_pending(network->peers[i], PENDING_AGAIN);
            peer_flush(network->peers[i]);
        }
    return true;

close_channels:
    for (uint32_t i = 0; i < network->n_nodes; i++)
        if (network->peers[i] != NULL)
            peer_close(network->peers[i], /* linger_ms= */ 0);
    free_peers(network);
    network->peers = NULL;
    return false;
}

int64_t network_heard_ms(const Network *network, uint32_t node)
{
    Peer *const peer = network_peer(network, node);

    return peer != NULL ? atomic_load_explicit(&peer->heard_ms, memory_order_relaxed) : -1;
}

int64_t network_advanced_ms(const Network *network, uint32_t node)
{
    Peer *const peer = network_peer(network, node);

    return peer != NULL ? atomic_load_explicit(&peer->advanced_ms, memory_order_relaxed) : -1;
}

NetworkPeerState network_peer_state(const Network *network, uint32_t node)
{
    Peer *const peer = network_peer(network, node);

    return peer != NULL ? atomic_load_explicit(&peer->state, memory_order_relaxed)
                        : NETWORK_PEER_UNKNOWN;
}

bool network_is_memory(const Network *network, uint32_t node)
{
    const Peer *const peer = network_peer(network, node);

    return peer != NULL && peer->transport->is_memory;
}

const char *network_peer_transport(const Network *network, uint32_t node)
{
    const Peer *const peer = network_peer(network, node);

    return peer != NULL ? peer->transport->name : NULL;
}

const char *network_peer_state_name(NetworkPeerState state)
{
    static const char *const names[] = {
        [NETWORK_PEER_UNKNOWN] = "unknown",     [NETWORK_PEER_CONNECTING] = "connecting",
        [NETWORK_PEER_CONNECTED] = "connected", [NETWORK_PEER_DISCONNECTED] = "disconnected",
        [NETWORK_PEER_FORGOTTEN] = "given up",
    };

    return (size_t)state < G_N_ELEMENTS(names) ? names[state] : "?";
}

static uint64_t read_count(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void network_stats(const Network *network, NetworkStats *stats)
{
    NetworkStats sum = {
        .packets_received = read_count(&network->n_packets_received),
        .bytes_received = read_count(&network->n_bytes_received),
        .duplicates_dropped = read_count(&network->n_duplicates),
        .early_dropped = read_count(&network->n_early),
        .strangers_dropped = read_count(&network->n_strangers),
        .bad = read_count(&network->n_bad),
        .greetings_sent = read_count(&network->n_greetings_sent),
        .greetings_received = read_count(&network->n_greetings_received),
    };

    for (size_t kind = 0; kind < MESSAGE_N_WIRE_KINDS; kind++)
        sum.messages_received[kind] = read_count(&network->n_messages_received[kind]);
    for (uint32_t i = 0; i < network->n_nodes; i++) {
        const Peer *const peer = network_peer(network, i);
        if (peer == NULL)
            continue;
        sum.packets_sent += read_count(&peer->n_packets_sent);
        sum.bytes_sent += read_count(&peer->n_bytes_sent);
        sum.acks_sent += read_count(&peer->n_acks_sent);
        sum.packets_resent += read_count(&peer->n_resent);
        sum.unacked_packets += read_count(&peer->kept_packets);
        sum.unacked_bytes += read_count(&peer->kept_bytes);
        for (size_t kind = 0; kind < MESSAGE_N_WIRE_KINDS; kind++)
            sum.messages_sent[kind] += read_count(&peer->n_messages_sent[kind]);
    }
    *stats = sum;
}
