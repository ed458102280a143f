/* The sending side of the shared-memory transport: an outlet for each channel.
 *
 * An outlet makes its ring, connects to the receiver's socket and hands the ring over; the receiver
 * hands back its bell. Writing need not wait for that: a receiver that comes by a ring looks into
 * it, and the bell is rung once when it comes. What does not fit into the ring waits in a list; the
 * receiver tells over the socket when there is room, and whoever hears it goes on writing.
 *
 * When the connection breaks the ring is forgotten with all that is in it, and a new one is made for
 * the next attempt; the link sends again what got lost.
 *
 * Threads: the holder of the channel, and the I/O thread when something comes on its socket; so each
 * outlet has a lock. The transport's lock keeps an outlet alive while the I/O thread is at it, and
 * is taken before the outlet's. */
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/net/transport_shm.h"

/* Written without a pause, beyond one record. */
#define WRITE_BYTES ((size_t)1 << 20)

/* Between two attempts to connect. */
#define RETRY_MS 20

/* A packet that waits, or the rest of it. */
typedef struct {
    Packet *packet;
    size_t at; /* written up to here */
} Waiting;

typedef struct {
    Channel base;

    /* immutable */
    ShmTransport *transport;
    uint32_t id;
    char *name; /* of the receiver's socket */

    pthread_mutex_t lock;
    /* guarded by lock */
    int fd; /* -1: not connected */
    RingWriter writer;
    ShmBell *bell; /* NULL: has not come yet */
    int bell_fd;
    GQueue waiting; /* of Waiting */
    NetworkPeerState state;
    int64_t retry_ms;   /* no attempt to connect before */
    int64_t give_up_ms; /* once it is being closed */
} Outlet;

/* ---- the connection: the lock is held ---- */

static void disconnect(Outlet *outlet)
{
    Waiting *const first = g_queue_peek_head(&outlet->waiting);

    if (outlet->fd == -1)
        return;
    shm_transport_close(outlet->transport, outlet->fd);
    outlet->fd = -1;
    ring_close(&outlet->writer.ring);
    if (outlet->bell != NULL) {
        munmap(outlet->bell, SHM_BELL_BYTES);
        close(outlet->bell_fd);
        outlet->bell = NULL;
    }
    if (outlet->state == NETWORK_CONNECTED)
        outlet->state = NETWORK_DISCONNECTED;
    if (first != NULL)
        first->at = 0;
    outlet->retry_ms = network_now_ms() + RETRY_MS;
}

static void try_to_connect(Outlet *outlet)
{
    int ring_fd;

    if (outlet->fd != -1 || network_now_ms() < outlet->retry_ms)
        return;
    outlet->retry_ms = network_now_ms() + RETRY_MS;
    const int fd = shm_socket_connect(outlet->name);
    if (fd == -1)
        return;
    if (!ring_new(outlet->transport->ring_capacity, &outlet->writer, &ring_fd)) {
        close(fd);
        return;
    }
    outlet->fd = fd;
    const bool told = shm_socket_send_hello(fd, outlet->writer.ring.capacity, &ring_fd, 1);
    close(ring_fd); /* the mapping stays */
    if (!told || !shm_transport_watch(outlet->transport, fd, EPOLLIN, SHM_EVENT_OUTLET, outlet->id))
        disconnect(outlet);
}

static void ring_bell(const Outlet *outlet)
{
    const uint64_t one = 1;

    /* Sequentially consistent, as is what ring_write did before: see shm_ring.c. Who writes first
     * after the receiver has gone to sleep rings; the others need not. */
    if (outlet->bell == NULL || atomic_load(&outlet->bell->asleep) == 0 ||
        atomic_exchange(&outlet->bell->asleep, 0) == 0)
        return;
    if (write(outlet->bell_fd, &one, sizeof one) == -1)
        g_assert(errno == EAGAIN || errno == EINTR); /* it has been rung often enough */
}

/* Has the I/O thread come back to the outlet. */
static void ask_to_go_on(Outlet *outlet)
{
    const uint64_t one = 1;

    /* Relaxed: it looks under the outlet's lock, which we hold. */
    atomic_store_explicit(&outlet->transport->unfinished, true, memory_order_relaxed);
    if (write(outlet->transport->bell_fd, &one, sizeof one) == -1)
        g_assert(errno == EAGAIN || errno == EINTR);
}

/* Writes as much of the packet as fits; whether that was all. A reader that is as fast as we are
 * could keep us at it for ever: *budget bytes are the most. */
static bool write_packet(Outlet *outlet, const Packet *packet, size_t *at, size_t *budget)
{
    do {
        const size_t before = *at;

        if (*budget == 0) {
            ask_to_go_on(outlet);
            return false;
        }
        switch (ring_write(&outlet->writer, packet->bytes, packet->size, at)) {
        case RING_OK:
            ring_bell(outlet);
            *budget -= MIN(*budget, *at - before);
            break;
        case RING_BROKEN:
            disconnect(outlet);
            return false;
        default:
            return false;
        }
    } while (*at < packet->size);
    return true;
}

static void write_waiting(Outlet *outlet, size_t *budget)
{
    Waiting *first;

    while (outlet->fd != -1 && (first = g_queue_peek_head(&outlet->waiting)) != NULL &&
           write_packet(outlet, first->packet, &first->at, budget)) {
        packet_unref(first->packet);
        g_free(g_queue_pop_head(&outlet->waiting));
    }
}

static void free_waiting(gpointer data)
{
    packet_unref(((Waiting *)data)->packet);
    g_free(data);
}

/* ---- the channel's ops ---- */

static void outlet_send(Channel *channel, Packet *packet)
{
    Outlet *const outlet = (Outlet *)channel;
    size_t at = 0, budget = WRITE_BYTES;

    pthread_mutex_lock(&outlet->lock);
    try_to_connect(outlet);
    write_waiting(outlet, &budget);
    if (outlet->fd == -1 || outlet->waiting.length > 0 ||
        !write_packet(outlet, packet, &at, &budget)) {
        Waiting *const waiting = g_new(Waiting, 1);
        packet_ref(packet);
        *waiting = (Waiting){ packet, outlet->fd == -1 ? 0 : at };
        g_queue_push_tail(&outlet->waiting, waiting);
    }
    pthread_mutex_unlock(&outlet->lock);
}

static NetworkPeerState outlet_state(Channel *channel)
{
    Outlet *const outlet = (Outlet *)channel;
    size_t budget = WRITE_BYTES;

    pthread_mutex_lock(&outlet->lock);
    try_to_connect(outlet);
    write_waiting(outlet, &budget);
    const NetworkPeerState state = outlet->state;
    pthread_mutex_unlock(&outlet->lock);
    return state;
}

static void outlet_free(gpointer data)
{
    Outlet *const outlet = data;

    disconnect(outlet);
    g_queue_clear_full(&outlet->waiting, free_waiting);
    pthread_mutex_destroy(&outlet->lock);
    g_free(outlet->name);
    g_free(outlet);
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

static void sweep(ShmTransport *transport)
{
    int64_t now_ms = network_now_ms();

    g_hash_table_foreach_remove(transport->outlets, finish, &now_ms);
}

static void outlet_close(Channel *channel, unsigned linger_ms)
{
    Outlet *const outlet = (Outlet *)channel;
    ShmTransport *const transport = outlet->transport;

    pthread_mutex_lock(&transport->lock);
    pthread_mutex_lock(&outlet->lock);
    outlet->give_up_ms = network_now_ms() + linger_ms;
    pthread_mutex_unlock(&outlet->lock);
    sweep(transport);
    pthread_mutex_unlock(&transport->lock);
}

static const ChannelOps outlet_ops = {
    .send = outlet_send,
    .state = outlet_state,
    .close = outlet_close,
};

Channel *shm_outlet_new(ShmTransport *transport, const char *name)
{
    Outlet *const outlet = g_new0(Outlet, 1);

    outlet->base.ops = &outlet_ops;
    outlet->transport = transport;
    outlet->name = g_strdup(name);
    outlet->fd = -1;
    outlet->state = NETWORK_CONNECTING;
    outlet->give_up_ms = INT64_MAX;
    g_queue_init(&outlet->waiting);
    pthread_mutex_init(&outlet->lock, NULL);
    pthread_mutex_lock(&transport->lock);
    sweep(transport);
    outlet->id = transport->n_outlets_ever++;
    g_hash_table_insert(transport->outlets, GUINT_TO_POINTER(outlet->id), outlet);
    pthread_mutex_unlock(&transport->lock);
    (void)outlet_state(&outlet->base);
    return &outlet->base;
}

/* ---- what comes on the socket ---- */

/* The receiver's bell. The lock is held. */
static bool take_bell(Outlet *outlet)
{
    int fds[2];
    uint64_t capacity;

    switch (shm_socket_receive(outlet->fd, &capacity, fds, G_N_ELEMENTS(fds))) {
    case SHM_NOTHING:
        return true;
    case SHM_END:
        return false;
    case SHM_MESSAGE:
        break;
    }
    outlet->bell = shm_memory_map(fds[0], SHM_BELL_BYTES);
    close(fds[0]);
    if (outlet->bell == NULL) {
        close(fds[1]);
        return false;
    }
    outlet->bell_fd = fds[1];
    outlet->state = NETWORK_CONNECTED;
    ring_bell(outlet); /* for what was written before we had it */
    return true;
}

static bool hear(Outlet *outlet)
{
    size_t budget = WRITE_BYTES;
    ShmNews news;

    if (outlet->bell == NULL && !take_bell(outlet))
        return false;
    if (outlet->bell == NULL)
        return true;
    while ((news = shm_socket_receive(outlet->fd, NULL, NULL, 0)) == SHM_MESSAGE)
        ;
    write_waiting(outlet, &budget);
    return news != SHM_END;
}

void shm_outlet_hear(ShmTransport *transport, uint32_t id)
{
    pthread_mutex_lock(&transport->lock);
    Outlet *const outlet = g_hash_table_lookup(transport->outlets, GUINT_TO_POINTER(id));
    if (outlet != NULL) {
        pthread_mutex_lock(&outlet->lock);
        if (outlet->fd != -1 && !hear(outlet))
            disconnect(outlet);
        pthread_mutex_unlock(&outlet->lock);
    }
    sweep(transport);
    pthread_mutex_unlock(&transport->lock);
}

void shm_outlets_go_on(ShmTransport *transport)
{
    GHashTableIter outlets;
    gpointer outlet;

    /* Relaxed: who sets it again has rung the bell again. */
    if (!atomic_exchange_explicit(&transport->unfinished, false, memory_order_relaxed))
        return;
    pthread_mutex_lock(&transport->lock);
    g_hash_table_iter_init(&outlets, transport->outlets);
    while (g_hash_table_iter_next(&outlets, NULL, &outlet))
        (void)outlet_state(outlet);
    sweep(transport);
    pthread_mutex_unlock(&transport->lock);
}

void shm_outlets_finish(ShmTransport *transport)
{
    for (;;) {
        struct epoll_event events[16];
        GHashTableIter outlets;
        gpointer outlet;

        pthread_mutex_lock(&transport->lock);
        sweep(transport);
        const bool done = g_hash_table_size(transport->outlets) == 0;
        g_hash_table_iter_init(&outlets, transport->outlets);
        while (g_hash_table_iter_next(&outlets, NULL, &outlet))
            (void)outlet_state(outlet);
        pthread_mutex_unlock(&transport->lock);
        if (done)
            return;
        const int n = epoll_wait(transport->epoll_fd, events, G_N_ELEMENTS(events), RETRY_MS);
        for (int i = 0; i < n; i++)
            if (events[i].data.u64 >> 32 == SHM_EVENT_OUTLET)
                shm_outlet_hear(transport, (uint32_t)events[i].data.u64);
    }
}
