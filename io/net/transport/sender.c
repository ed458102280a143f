/* The code that all senders share: see sender.h. */
#include "io/net/transport/sender.h"

#include <sys/epoll.h>

#include "io/net/monotonic.h"

/* Bytes written without a pause. */
#define WRITE_BYTES ((size_t)1 << 20)

/* Between the first two attempts to connect. */
#define RETRY_MS 20u

/* So many attempts have to be refused, one after the other. */
#define REFUSALS 2u

/* A packet that waits, or the rest of it. */
typedef struct {
    Packet *packet;
    size_t at; /* written up to here */
} Waiting;

/* ---- the connection: the lock is held ---- */

static void pause_attempts(Sender *sender)
{
    sender->retry_ms = monotonic_ms() + sender->pause_ms;
    sender->pause_ms = MIN(2 * sender->pause_ms, sender->longest_pause_ms);
}

static void free_waiting(gpointer data)
{
    packet_unref(((Waiting *)data)->packet);
    g_free(data);
}

/* Whether packets sent now are dropped: see the top of sender.h. */
static bool is_between(const Sender *sender)
{
    return sender->state == NETWORK_PEER_DISCONNECTED && sender->give_up_ms == INT64_MAX;
}

void sender_note_connected(Sender *sender)
{
    const uint32_t n = atomic_load_explicit(&sender->n_connected, memory_order_relaxed);

    sender->state = NETWORK_PEER_CONNECTED;
    sender->n_refused = 0;
    sender->connected_ms = monotonic_ms();
    atomic_store_explicit(&sender->n_connected, n + 1, memory_order_relaxed);
    /* Release: a thread that sees it in senders_take_resets sees n_connected. */
    if (n > 0)
        atomic_store_explicit(&sender->among->was_reset, true, memory_order_release);
}

void sender_note_refused(Sender *sender)
{
    sender->was_refused = true;
    if (sender->n_refused < REFUSALS)
        sender->n_refused++;
}

/* An attempt has failed. If so many were refused before, only a connection disproves them. */
static void note_failed(Sender *sender)
{
    if (!sender->was_refused && sender->n_refused < REFUSALS)
        sender->n_refused = 0;
}

static void disconnect(Sender *sender)
{
    const bool was_connected = sender->state == NETWORK_PEER_CONNECTED;

    if (!sender->is_open)
        return;
    sender->ops->shut(sender);
    sender->is_open = false;
    if (was_connected) {
        sender->state = NETWORK_PEER_DISCONNECTED;
        sender->pause_ms = RETRY_MS;
    }
    if (is_between(sender))
        g_queue_clear_full(&sender->waiting, free_waiting);
    Waiting *const first = g_queue_peek_head(&sender->waiting);
    if (first != NULL)
        first->at = 0;
    if (!was_connected)
        note_failed(sender);
    /* A connection that has lasted may be made again at once. */
    if (!was_connected || monotonic_ms() - sender->connected_ms < RETRY_MS)
        pause_attempts(sender);
}

static void try_to_connect(Sender *sender)
{
    if (sender->is_open || monotonic_ms() < sender->retry_ms)
        return;
    sender->was_refused = false;
    sender->is_open = sender->ops->open(sender);
    if (sender->is_open)
        return;
    note_failed(sender);
    pause_attempts(sender);
}

/* Whether all of the packet is written. */
static bool write_packet(Sender *sender, Packet *packet, size_t *at, size_t *budget)
{
    const SenderProgress progress = sender->ops->write(sender, packet, at, budget);

    if (progress == SENDER_BROKEN)
        disconnect(sender);
    return progress == SENDER_DONE;
}

/* The work done from time to time, or before a write. */
static void look_after(Sender *sender)
{
    if (sender->is_open && sender->ops->look_after != NULL &&
        !sender->ops->look_after(sender, monotonic_ms())) {
        disconnect(sender);
        sender->retry_ms = 0; /* it took its time */
    }
    try_to_connect(sender);
}

static void write_waiting(Sender *sender, size_t *budget)
{
    Waiting *first;

    while (sender->is_open && (first = g_queue_peek_head(&sender->waiting)) != NULL &&
           write_packet(sender, first->packet, &first->at, budget)) {
        packet_unref(first->packet);
        g_free(g_queue_pop_head(&sender->waiting));
    }
}

/* ---- the channel's ops ---- */

static void sender_send(Channel *channel, Packet *packet)
{
    Sender *const sender = (Sender *)channel;
    size_t at = 0, budget = WRITE_BYTES;

    if (!sender->ops->takes_values)
        packet_gather(packet);
    pthread_mutex_lock(&sender->lock);
    try_to_connect(sender);
    write_waiting(sender, &budget);
    const bool is_written = sender->is_open && sender->waiting.length == 0 && !is_between(sender) &&
                            write_packet(sender, packet, &at, &budget);
    if (!is_written && !is_between(sender)) {
        Waiting *const waiting = g_new(Waiting, 1);
        packet_ref(packet);
        *waiting = (Waiting){ packet, sender->is_open ? at : 0 };
        g_queue_push_tail(&sender->waiting, waiting);
    }
    packet_gather(packet); /* if nothing of it was written */
    pthread_mutex_unlock(&sender->lock);
}

static NetworkPeerState sender_state(Channel *channel)
{
    Sender *const sender = (Sender *)channel;
    size_t budget = WRITE_BYTES;

    pthread_mutex_lock(&sender->lock);
    look_after(sender);
    write_waiting(sender, &budget);
    const NetworkPeerState state = sender->state;
    pthread_mutex_unlock(&sender->lock);
    return state;
}

static uint64_t sender_accepted(Channel *channel)
{
    Sender *const sender = (Sender *)channel;
    uint64_t number = 0;

    if (sender->ops->accepted == NULL)
        return 0;
    pthread_mutex_lock(&sender->lock);
    if (sender->is_open)
        number = sender->ops->accepted(sender);
    pthread_mutex_unlock(&sender->lock);
    return number;
}

static uint32_t sender_n_resets(Channel *channel)
{
    const uint32_t n =
        atomic_load_explicit(&((Sender *)channel)->n_connected, memory_order_relaxed);

    return n > 0 ? n - 1 : 0;
}

static bool sender_is_refused(Channel *channel)
{
    Sender *const sender = (Sender *)channel;

    pthread_mutex_lock(&sender->lock);
    const bool is_refused = sender->n_refused == REFUSALS;
    pthread_mutex_unlock(&sender->lock);
    return is_refused;
}

static void sender_free(Sender *sender)
{
    disconnect(sender);
    g_queue_clear_full(&sender->waiting, free_waiting);
    pthread_mutex_destroy(&sender->lock);
    sender->ops->free(sender);
}

/* Whether a closed sender has nothing left to do, or no time left. */
static bool is_finished(Sender *sender, int64_t now_ms)
{
    pthread_mutex_lock(&sender->lock);
    const bool finished = sender->waiting.length == 0 || now_ms >= sender->give_up_ms;
    pthread_mutex_unlock(&sender->lock);
    return finished;
}

static gboolean finish(gpointer id, gpointer data, gpointer now_ms)
{
    Sender *const sender = data;

    (void)id;
    if (sender->give_up_ms == INT64_MAX || !is_finished(sender, *(const int64_t *)now_ms))
        return FALSE;
    sender_free(sender);
    return TRUE;
}

/* The lock of all is held. */
static void sweep(Senders *senders)
{
    int64_t now_ms = monotonic_ms();

    g_hash_table_foreach_remove(senders->senders, finish, &now_ms);
}

static void sender_close(Channel *channel, unsigned linger_ms)
{
    Sender *const sender = (Sender *)channel;
    Senders *const among = sender->among;

    pthread_mutex_lock(&among->lock);
    pthread_mutex_lock(&sender->lock);
    sender->give_up_ms = monotonic_ms() + linger_ms;
    pthread_mutex_unlock(&sender->lock);
    sweep(among);
    pthread_mutex_unlock(&among->lock);
}

static const ChannelOps sender_channel_ops = {
    .send = sender_send,
    .takes_values = true,
    .state = sender_state,
    .accepted = sender_accepted,
    .n_resets = sender_n_resets,
    .is_refused = sender_is_refused,
    .close = sender_close,
};

/* ---- the senders of a transport ---- */

void senders_init(Senders *senders)
{
    *senders = (Senders){ .senders = g_hash_table_new(g_direct_hash, g_direct_equal) };
    pthread_mutex_init(&senders->lock, NULL);
}

void senders_clear(Senders *senders)
{
    g_assert(g_hash_table_size(senders->senders) == 0);
    g_hash_table_unref(senders->senders);
    pthread_mutex_destroy(&senders->lock);
}

bool senders_take_resets(Senders *senders)
{
    /* Acquire: pairs with sender_note_connected. */
    return atomic_load_explicit(&senders->was_reset, memory_order_relaxed) &&
           atomic_exchange_explicit(&senders->was_reset, false, memory_order_acquire);
}

void sender_start(Sender *sender, const SenderOps *ops, Senders *among, unsigned longest_pause_ms)
{
    sender->base.ops = &sender_channel_ops;
    sender->ops = ops;
    sender->among = among;
    sender->longest_pause_ms = longest_pause_ms;
    sender->state = NETWORK_PEER_CONNECTING;
    sender->pause_ms = RETRY_MS;
    sender->give_up_ms = INT64_MAX;
    g_queue_init(&sender->waiting);
    pthread_mutex_init(&sender->lock, NULL);
    pthread_mutex_lock(&among->lock);
    sweep(among);
    sender->id = among->n_ever++;
    g_hash_table_insert(among->senders, GUINT_TO_POINTER(sender->id), sender);
    pthread_mutex_unlock(&among->lock);
    (void)sender_state(&sender->base);
}

void senders_hear(Senders *senders, uint32_t id, uint32_t events)
{
    size_t budget = WRITE_BYTES;

    pthread_mutex_lock(&senders->lock);
    Sender *const sender = g_hash_table_lookup(senders->senders, GUINT_TO_POINTER(id));
    if (sender != NULL) {
        pthread_mutex_lock(&sender->lock);
        if (sender->is_open && !sender->ops->hear(sender, events)) {
            disconnect(sender);
            try_to_connect(sender);
        }
        write_waiting(sender, &budget);
        pthread_mutex_unlock(&sender->lock);
    }
    sweep(senders);
    pthread_mutex_unlock(&senders->lock);
}

void senders_go_on(Senders *senders)
{
    GHashTableIter each;
    gpointer sender;

    pthread_mutex_lock(&senders->lock);
    g_hash_table_iter_init(&each, senders->senders);
    while (g_hash_table_iter_next(&each, NULL, &sender))
        (void)sender_state(sender);
    sweep(senders);
    pthread_mutex_unlock(&senders->lock);
}

/* Whether none is left. */
static bool are_finished(Senders *senders)
{
    pthread_mutex_lock(&senders->lock);
    sweep(senders);
    const bool finished = g_hash_table_size(senders->senders) == 0;
    pthread_mutex_unlock(&senders->lock);
    return finished;
}

void senders_finish(Senders *senders, int epoll_fd, uint32_t kind)
{
    while (!are_finished(senders)) {
        struct epoll_event events[16];

        senders_go_on(senders);
        const int n = epoll_wait(epoll_fd, events, G_N_ELEMENTS(events), RETRY_MS);
        for (int i = 0; i < n; i++)
            if (events[i].data.u64 >> 32 == kind)
                senders_hear(senders, (uint32_t)events[i].data.u64, events[i].events);
    }
}
