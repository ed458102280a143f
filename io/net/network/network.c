/* The network's life: opening, starting, stopping. network_private.h lists its other files.
 *
 * Threads: told in network.h. */
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
#include "io/net/log_sink.h"
#include "io/net/network/network_private.h"
#include "io/net/transport/faulty/faulty_channel.h"

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

Transport *network_find_transport(const Network *network, const char *endpoint, GError **error)
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
                                     .authenticate = network->authenticate,
                                     .direct = network_direct_reader(network) };
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
    network->high_out_bytes =
        MIN(network->out_bytes,
            config->high_out_bytes > 0 ? config->high_out_bytes : usual.high_out_bytes);
    network->near_high_out_bytes =
        MIN(network->high_out_bytes, config->near_high_out_bytes > 0 ? config->near_high_out_bytes
                                                                     : usual.near_high_out_bytes);
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
    network->faults = config->faults;
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
    network->tick_ms = wire_faults_tick_ms(config->faults,
                                           config->tick_ms > 0 ? config->tick_ms : DEFAULT_TICK_MS);
    atomic_init(&network->longest_tick_ms, network->tick_ms);
    atomic_init(&network->timer_at, INT64_MIN); /* the I/O thread begins with a look */
    network->resend_ms = config->resend_ms > 0 ? config->resend_ms : DEFAULT_RESEND_MS;
    network->stop_ms = config->stop_ms > 0 ? config->stop_ms : DEFAULT_STOP_MS;
    network->timeout_ms = config->timeout_ms > 0 ? config->timeout_ms : DEFAULT_TIMEOUT_MS;
    network->complained_at = INT64_MIN / 2;
    network->endpoints = g_new0(char *, config->n_bind_endpoints + 1);
    network->greeted = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, close_greeted);
    network->pool = block_pool_new();
    spinner_init(&network->helper);
    network->helper.is_patient = true;
    network_guard_init(&network->guard);
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
    const int code = log_sink_start_thread(&network->thread, network_run, network);
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

/* Relaxed: no memory is ordered by it. A thread that sets a timer while the I/O thread goes to
 * sleep, or begins a look, may read what was before. Then the timer is seen at the next tick. */
void network_note_timer(Network *network, int64_t at_ms)
{
    int64_t earliest_ms = atomic_load_explicit(&network->timer_at, memory_order_relaxed);

    do
        if (at_ms >= earliest_ms)
            return;
    while (!atomic_compare_exchange_weak_explicit(&network->timer_at, &earliest_ms, at_ms,
                                                  memory_order_relaxed, memory_order_relaxed));
    if (atomic_load_explicit(&network->sleeps, memory_order_relaxed))
        network_wake_io_thread(network);
}

void network_wake(Network *network)
{
    /* Release: pairs with the I/O thread's acquire. */
    atomic_store_explicit(&network->woken, true, memory_order_release);
    network_wake_io_thread(network);
}

/* Also those whose place others have taken: a thread may have pushed frames for them since. */
static void close_peers(Network *network)
{
    for (uint32_t i = 0; i < network->n_nodes; i++)
        for (Peer *peer = network_peer(network, i); peer != NULL; peer = peer->former)
            peer_close(peer, LINGER_MS);
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

void network_free(Network *network)
{
    if (network == NULL)
        return;
    network_stop(network);
    close_peers(network); /* frames that were pushed since */
    g_hash_table_unref(network->greeted);
    g_queue_clear_full(&network->answers, answer_free);
    for (size_t i = 0; i < network->n_transports; i++)
        network->transports[i]->ops->destroy(network->transports[i]);
    const int fds[] = { network->wake_fd, network->help_fd, network->turn_fd, network->news_fd };
    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++)
        if (fds[i] != -1)
            close(fds[i]);
    g_free(network->wanted);
    network_free_peers(network);
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
