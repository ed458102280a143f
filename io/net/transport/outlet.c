/* What outlets have in common: see outlet.h. */
#include "io/net/transport/outlet.h"

#include <sys/epoll.h>

#include "io/net/monotonic.h"

/* Written without a pause. */
#define WRITE_BYTES ((size_t)1 << 20)

/* Between the first two attempts to connect. */
#define RETRY_MS 20u

/* A packet that waits, or the rest of it. */
typedef struct {
    Packet *packet;
    size_t at; /* written up to here */
} Waiting;

/* ---- the connection: the lock is held ---- */

static void pause_attempts(Outlet *outlet)
{
    outlet->retry_ms = monotonic_ms() + outlet->pause_ms;
    outlet->pause_ms = MIN(2 * outlet->pause_ms, outlet->longest_pause_ms);
}

static void free_waiting(gpointer data)
{
    packet_unref(((Waiting *)data)->packet);
    g_free(data);
}

/* Whether what is sent now comes to nothing: see the top of outlet.h. */
static bool is_between(const Outlet *outlet)
{
    return outlet->state == NETWORK_DISCONNECTED && outlet->give_up_ms == INT64_MAX;
}

void outlet_note_connected(Outlet *outlet)
{
    const uint32_t n = atomic_load_explicit(&outlet->n_connected, memory_order_relaxed);

    outlet->state = NETWORK_CONNECTED;
    outlet->connected_ms = monotonic_ms();
    atomic_store_explicit(&outlet->n_connected, n + 1, memory_order_relaxed);
    /* Release: who sees it by outlets_take_resets sees n_connected. */
    if (n > 0)
        atomic_store_explicit(&outlet->among->was_reset, true, memory_order_release);
}

static void disconnect(Outlet *outlet)
{
    const bool was_connected = outlet->state == NETWORK_CONNECTED;

    if (!outlet->is_open)
        return;
    outlet->ops->shut(outlet);
    outlet->is_open = false;
    if (was_connected) {
        outlet->state = NETWORK_DISCONNECTED;
        outlet->pause_ms = RETRY_MS;
    }
    if (is_between(outlet))
        g_queue_clear_full(&outlet->waiting, free_waiting);
    Waiting *const first = g_queue_peek_head(&outlet->waiting);
    if (first != NULL)
        first->at = 0;
    /* What has lasted may be made anew at once. */
    if (!was_connected || monotonic_ms() - outlet->connected_ms < RETRY_MS)
        pause_attempts(outlet);
}

static void try_to_connect(Outlet *outlet)
{
    if (outlet->is_open || monotonic_ms() < outlet->retry_ms)
        return;
    outlet->is_open = outlet->ops->open(outlet);
    if (!outlet->is_open)
        pause_attempts(outlet);
}

/* Whether all of the packet is written. */
static bool write_packet(Outlet *outlet, const Packet *packet, size_t *at, size_t *budget)
{
    const OutletProgress progress = outlet->ops->write(outlet, packet, at, budget);

    if (progress == OUTLET_BROKEN)
        disconnect(outlet);
    return progress == OUTLET_DONE;
}

/* What is done from time to time, or before something is written. */
static void look_after(Outlet *outlet)
{
    if (outlet->is_open && outlet->ops->look_after != NULL &&
        !outlet->ops->look_after(outlet, monotonic_ms())) {
        disconnect(outlet);
        outlet->retry_ms = 0; /* it took its time */
    }
    try_to_connect(outlet);
}

static void write_waiting(Outlet *outlet, size_t *budget)
{
    Waiting *first;

    while (outlet->is_open && (first = g_queue_peek_head(&outlet->waiting)) != NULL &&
           write_packet(outlet, first->packet, &first->at, budget)) {
        packet_unref(first->packet);
        g_free(g_queue_pop_head(&outlet->waiting));
    }
}

/* ---- the channel's ops ---- */

static void outlet_send(Channel *channel, Packet *packet)
{
    Outlet *const outlet = (Outlet *)channel;
    size_t at = 0, budget = WRITE_BYTES;

    pthread_mutex_lock(&outlet->lock);
    try_to_connect(outlet);
    write_waiting(outlet, &budget);
    const bool is_written = outlet->is_open && outlet->waiting.length == 0 && !is_between(outlet) &&
                            write_packet(outlet, packet, &at, &budget);
    if (!is_written && !is_between(outlet)) {
        Waiting *const waiting = g_new(Waiting, 1);
        packet_ref(packet);
        *waiting = (Waiting){ packet, outlet->is_open ? at : 0 };
        g_queue_push_tail(&outlet->waiting, waiting);
    }
    pthread_mutex_unlock(&outlet->lock);
}

static NetworkPeerState outlet_state(Channel *channel)
{
    Outlet *const outlet = (Outlet *)channel;
    size_t budget = WRITE_BYTES;

    pthread_mutex_lock(&outlet->lock);
    look_after(outlet);
    write_waiting(outlet, &budget);
    const NetworkPeerState state = outlet->state;
    pthread_mutex_unlock(&outlet->lock);
    return state;
}

static uint32_t outlet_n_resets(Channel *channel)
{
    const uint32_t n =
        atomic_load_explicit(&((Outlet *)channel)->n_connected, memory_order_relaxed);

    return n > 0 ? n - 1 : 0;
}

static void outlet_free(Outlet *outlet)
{
    disconnect(outlet);
    g_queue_clear_full(&outlet->waiting, free_waiting);
    pthread_mutex_destroy(&outlet->lock);
    outlet->ops->free(outlet);
}

/* Whether a closed outlet has nothing left to do, or no time left. */
static bool is_finished(Outlet *outlet, int64_t now_ms)
{
    pthread_mutex_lock(&outlet->lock);
    const bool finished = outlet->waiting.length == 0 || now_ms >= outlet->give_up_ms;
    pthread_mutex_unlock(&outlet->lock);
    return finished;
}

static gboolean finish(gpointer id, gpointer data, gpointer now_ms)
{
    Outlet *const outlet = data;

    (void)id;
    if (outlet->give_up_ms == INT64_MAX || !is_finished(outlet, *(const int64_t *)now_ms))
        return FALSE;
    outlet_free(outlet);
    return TRUE;
}

/* The lock of all is held. */
static void sweep(Outlets *outlets)
{
    int64_t now_ms = monotonic_ms();

    g_hash_table_foreach_remove(outlets->outlets, finish, &now_ms);
}

static void outlet_close(Channel *channel, unsigned linger_ms)
{
    Outlet *const outlet = (Outlet *)channel;
    Outlets *const among = outlet->among;

    pthread_mutex_lock(&among->lock);
    pthread_mutex_lock(&outlet->lock);
    outlet->give_up_ms = monotonic_ms() + linger_ms;
    pthread_mutex_unlock(&outlet->lock);
    sweep(among);
    pthread_mutex_unlock(&among->lock);
}

static const ChannelOps outlet_channel_ops = {
    .send = outlet_send,
    .state = outlet_state,
    .n_resets = outlet_n_resets,
    .close = outlet_close,
};

/* ---- the outlets of a transport ---- */

void outlets_init(Outlets *outlets)
{
    *outlets = (Outlets){ .outlets = g_hash_table_new(g_direct_hash, g_direct_equal) };
    pthread_mutex_init(&outlets->lock, NULL);
}

void outlets_clear(Outlets *outlets)
{
    g_assert(g_hash_table_size(outlets->outlets) == 0);
    g_hash_table_unref(outlets->outlets);
    pthread_mutex_destroy(&outlets->lock);
}

bool outlets_take_resets(Outlets *outlets)
{
    /* Acquire: pairs with outlet_note_connected. */
    return atomic_load_explicit(&outlets->was_reset, memory_order_relaxed) &&
           atomic_exchange_explicit(&outlets->was_reset, false, memory_order_acquire);
}

void outlet_start(Outlet *outlet, const OutletOps *ops, Outlets *among, unsigned longest_pause_ms)
{
    outlet->base.ops = &outlet_channel_ops;
    outlet->ops = ops;
    outlet->among = among;
    outlet->longest_pause_ms = longest_pause_ms;
    outlet->state = NETWORK_CONNECTING;
    outlet->pause_ms = RETRY_MS;
    outlet->give_up_ms = INT64_MAX;
    g_queue_init(&outlet->waiting);
    pthread_mutex_init(&outlet->lock, NULL);
    pthread_mutex_lock(&among->lock);
    sweep(among);
    outlet->id = among->n_ever++;
    g_hash_table_insert(among->outlets, GUINT_TO_POINTER(outlet->id), outlet);
    pthread_mutex_unlock(&among->lock);
    (void)outlet_state(&outlet->base);
}

void outlets_hear(Outlets *outlets, uint32_t id, uint32_t events)
{
    size_t budget = WRITE_BYTES;

    pthread_mutex_lock(&outlets->lock);
    Outlet *const outlet = g_hash_table_lookup(outlets->outlets, GUINT_TO_POINTER(id));
    if (outlet != NULL) {
        pthread_mutex_lock(&outlet->lock);
        if (outlet->is_open && !outlet->ops->hear(outlet, events)) {
            disconnect(outlet);
            try_to_connect(outlet);
        }
        write_waiting(outlet, &budget);
        pthread_mutex_unlock(&outlet->lock);
    }
    sweep(outlets);
    pthread_mutex_unlock(&outlets->lock);
}

void outlets_go_on(Outlets *outlets)
{
    GHashTableIter each;
    gpointer outlet;

    pthread_mutex_lock(&outlets->lock);
    g_hash_table_iter_init(&each, outlets->outlets);
    while (g_hash_table_iter_next(&each, NULL, &outlet))
        (void)outlet_state(outlet);
    sweep(outlets);
    pthread_mutex_unlock(&outlets->lock);
}

/* Whether none is left. */
static bool are_finished(Outlets *outlets)
{
    pthread_mutex_lock(&outlets->lock);
    sweep(outlets);
    const bool finished = g_hash_table_size(outlets->outlets) == 0;
    pthread_mutex_unlock(&outlets->lock);
    return finished;
}

void outlets_finish(Outlets *outlets, int epoll_fd, uint32_t kind)
{
    while (!are_finished(outlets)) {
        struct epoll_event events[16];

        outlets_go_on(outlets);
        const int n = epoll_wait(epoll_fd, events, G_N_ELEMENTS(events), RETRY_MS);
        for (int i = 0; i < n; i++)
            if (events[i].data.u64 >> 32 == kind)
                outlets_hear(outlets, (uint32_t)events[i].data.u64, events[i].events);
    }
}
