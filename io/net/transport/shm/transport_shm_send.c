/* The sending side of the shared-memory transport.
 *
 * An outlet makes its ring, connects to the receiver's socket, shakes hands and hands the ring over; the
 * receiver hands back its bell. Writing need not wait for that: a receiver that comes by a ring looks into
 * it, and the bell is rung once when it comes. The receiver tells over the socket when there is room
 * in a ring that was full.
 *
 * When the connection breaks the ring is forgotten with all that is in it, and a new one is made for
 * the next attempt.
 *
 * Threads: those of outlet.h; all here but shm_outlet_new and outlet_free run with the outlet's lock
 * held. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/net/transport/shm/transport_shm.h"

#define LONGEST_PAUSE_MS 20

typedef struct {
    Outlet base;

    /* immutable */
    ShmTransport *transport;
    char *name; /* of the receiver's socket */
    ChannelTarget target;

    /* guarded by the outlet's lock; while it is open */
    int fd;
    Handshake handshake;
    int ring_fd; /* to be handed over; -1: that is done */
    RingWriter writer;
    ShmBell *bell; /* NULL: has not come yet */
    int bell_fd;
} ShmOutlet;

static void outlet_shut(Outlet *outlet)
{
    ShmOutlet *const self = (ShmOutlet *)outlet;

    handshake_clear(&self->handshake);
    if (self->ring_fd != -1)
        close(self->ring_fd);
    shm_transport_close(self->transport, self->fd);
    ring_close(&self->writer.ring);
    if (self->bell != NULL) {
        munmap(self->bell, SHM_BELL_BYTES);
        close(self->bell_fd);
        self->bell = NULL;
    }
}

static bool outlet_open(Outlet *outlet)
{
    ShmOutlet *const self = (ShmOutlet *)outlet;
    HandshakeConfig config = shm_transport_handshake(self->transport);
    uint8_t hello[HANDSHAKE_HELLO_BYTES];

    const int fd = shm_socket_connect(self->name);
    if (fd == -1)
        return false;
    if (!ring_new(self->transport->ring_capacity, &self->writer, &self->ring_fd)) {
        close(fd);
        return false;
    }
    self->fd = fd;
    config.wanted_node = self->target.node;
    config.wanted_incarnation = self->target.incarnation;
    handshake_init(&self->handshake, HANDSHAKE_CONNECTS, &config, NULL);
    const bool told = shm_socket_send_proof(fd, hello, handshake_begin(&self->handshake, hello));
    if (told && shm_transport_watch(self->transport, fd, EPOLLIN, SHM_EVENT_OUTLET, outlet->id))
        return true;
    outlet_shut(outlet);
    return false;
}

static void ring_bell(const ShmOutlet *self)
{
    const uint64_t one = 1;

    if (self->bell == NULL || !shm_bell_take(self->bell))
        return;
    if (write(self->bell_fd, &one, sizeof one) == -1)
        g_assert(errno == EAGAIN || errno == EINTR); /* it has been rung often enough */
}

/* Has the I/O thread come back to the outlet. */
static void ask_to_go_on(ShmOutlet *self)
{
    const uint64_t one = 1;

    /* Relaxed: it looks under the outlet's lock, which we hold. */
    atomic_store_explicit(&self->transport->unfinished, true, memory_order_relaxed);
    if (write(self->transport->bell_fd, &one, sizeof one) == -1)
        g_assert(errno == EAGAIN || errno == EINTR);
}

static OutletProgress outlet_write(Outlet *outlet, const Packet *packet, size_t *at, size_t *budget)
{
    ShmOutlet *const self = (ShmOutlet *)outlet;

    do {
        const size_t before = *at;

        if (*budget == 0) {
            ask_to_go_on(self);
            return OUTLET_LATER;
        }
        switch (ring_write(&self->writer, packet->bytes, packet->size, at)) {
        case RING_OK:
            ring_bell(self);
            *budget -= MIN(*budget, *at - before);
            break;
        case RING_BROKEN:
            return OUTLET_BROKEN;
        default:
            return OUTLET_LATER; /* the receiver tells when there is room */
        }
    } while (*at < packet->size);
    return OUTLET_DONE;
}

/* The receiver's proof; then it gets ours, and the ring. */
static bool shake_hands(ShmOutlet *self)
{
    const size_t wanted = handshake_wants(&self->handshake);
    uint8_t bytes[HANDSHAKE_HELLO_BYTES], output[HANDSHAKE_HELLO_BYTES];
    size_t n_output = 0;

    const ShmNews news = shm_socket_receive_proof(self->fd, bytes, wanted);
    if (news != SHM_MESSAGE)
        return news == SHM_NOTHING;
    if (handshake_take(&self->handshake, bytes, wanted, output, &n_output) != NULL ||
        !shm_socket_send_proof(self->fd, output, n_output) ||
        !shm_socket_send_hello(self->fd, self->writer.ring.capacity, &self->ring_fd, 1))
        return false;
    close(self->ring_fd); /* the mapping stays */
    self->ring_fd = -1;
    handshake_clear(&self->handshake);
    return true;
}

/* The receiver's bell. */
static bool take_bell(ShmOutlet *self)
{
    int fds[2];
    uint64_t capacity;

    switch (shm_socket_receive(self->fd, &capacity, fds, G_N_ELEMENTS(fds))) {
    case SHM_NOTHING:
        return true;
    case SHM_END:
        return false;
    case SHM_MESSAGE:
        break;
    }
    self->bell = shm_memory_map(fds[0], SHM_BELL_BYTES);
    close(fds[0]);
    if (self->bell == NULL) {
        close(fds[1]);
        return false;
    }
    self->bell_fd = fds[1];
    outlet_note_connected(&self->base);
    ring_bell(self); /* for what was written before we had it */
    return true;
}

/* The bell, or news of room, or the end. */
static bool outlet_hear(Outlet *outlet, uint32_t events)
{
    ShmOutlet *const self = (ShmOutlet *)outlet;
    ShmNews news;

    (void)events;
    if (self->ring_fd != -1 && !shake_hands(self))
        return false;
    if (self->ring_fd != -1)
        return true;
    if (self->bell == NULL && !take_bell(self))
        return false;
    if (self->bell == NULL)
        return true;
    while ((news = shm_socket_receive(self->fd, NULL, NULL, 0)) == SHM_MESSAGE)
        ;
    return news != SHM_END;
}

static void outlet_free(Outlet *outlet)
{
    g_free(((ShmOutlet *)outlet)->name);
    g_free(outlet);
}

static const OutletOps outlet_ops = {
    .open = outlet_open,
    .shut = outlet_shut,
    .write = outlet_write,
    .hear = outlet_hear,
    .free = outlet_free,
};

Channel *shm_outlet_new(ShmTransport *transport, const char *name, const ChannelTarget *target)
{
    ShmOutlet *const outlet = g_new0(ShmOutlet, 1);

    outlet->transport = transport;
    outlet->name = g_strdup(name);
    outlet->target = target != NULL ? *target : (ChannelTarget){ .node = HANDSHAKE_ANY_NODE };
    outlet_start(&outlet->base, &outlet_ops, &transport->outlets, LONGEST_PAUSE_MS);
    return &outlet->base.base;
}
