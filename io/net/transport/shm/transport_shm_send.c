/* The sending side of the shared-memory transport.
 *
 * A sender makes its ring, connects to the receiver's socket, shakes hands and hands the ring over;
 * the receiver hands back its bell. Writing need not wait for that: a receiver checks a ring when
 * it gets it, and the sender rings the bell once when it gets the bell. When there is room in a
 * ring that was full, the receiver says so over the socket.
 *
 * When the connection breaks, the ring is dropped with everything in it. The next attempt makes a
 * new one.
 *
 * Threads: those of sender.h; all here but shm_sender_new and sender_free run with the sender's
 * lock held. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/net/transport/shm/ring_values.h"
#include "io/net/transport/shm/transport_shm.h"

#define LONGEST_PAUSE_MS 20

typedef struct {
    Sender base;

    /* immutable */
    ShmTransport *transport;
    char *name; /* of the receiver's socket */
    ChannelTarget target;

    /* guarded by the sender's lock; valid while the sender is open */
    int fd;
    Handshake handshake;
    int ring_fd; /* to be handed over; -1: it was */
    RingWriter writer;
    RingValues kept; /* those of the ring that may be needed again */
    ShmBell *bell;   /* NULL: has not come yet */
    int bell_fd;
} ShmSender;

static void sender_shut(Sender *sender)
{
    ShmSender *const self = (ShmSender *)sender;

    handshake_clear(&self->handshake);
    if (self->ring_fd != -1)
        close(self->ring_fd);
    shm_transport_close(self->transport, self->fd);
    ring_values_clear(&self->kept);
    ring_close(&self->writer.ring);
    if (self->bell != NULL) {
        munmap(self->bell, SHM_BELL_BYTES);
        close(self->bell_fd);
        self->bell = NULL;
    }
}

static bool sender_open(Sender *sender)
{
    ShmSender *const self = (ShmSender *)sender;
    HandshakeConfig config = shm_transport_handshake(self->transport);
    uint8_t hello[HANDSHAKE_HELLO_BYTES];

    const int fd = shm_socket_connect(self->name);
    if (fd == -1 && errno == ECONNREFUSED)
        sender_note_refused(sender);
    if (fd == -1)
        return false;
    if (!ring_new(self->transport->ring_capacity, &self->writer, &self->ring_fd)) {
        close(fd);
        return false;
    }
    self->fd = fd;
    config.wanted_node = self->target.node;
    config.wanted_incarnation = self->target.incarnation;
    handshake_init(&self->handshake, HANDSHAKE_ROLE_CONNECTS, &config, NULL);
    const bool told = shm_socket_send_proof(fd, hello, handshake_begin(&self->handshake, hello));
    if (told && shm_transport_watch(self->transport, fd, EPOLLIN, SHM_EVENT_SENDER, sender->id))
        return true;
    sender_shut(sender);
    return false;
}

static void ring_bell(const ShmSender *self)
{
    const uint64_t one = 1;

    if (self->bell == NULL || !shm_bell_take(self->bell))
        return;
    if (write(self->bell_fd, &one, sizeof one) == -1)
        g_assert(errno == EAGAIN || errno == EINTR); /* EAGAIN: the counter is at its maximum, so
                                                      * the bell has rung */
}

/* Makes the I/O thread come back to the sender. */
static void ask_to_go_on(ShmSender *self)
{
    const uint64_t one = 1;

    /* Relaxed: the I/O thread checks it under the sender's lock, which we hold. */
    atomic_store_explicit(&self->transport->unfinished, true, memory_order_relaxed);
    if (write(self->transport->bell_fd, &one, sizeof one) == -1)
        g_assert(errno == EAGAIN || errno == EINTR);
}

/* As ring_reserve. */
static RingResult find_place(ShmSender *self, size_t size, size_t at, uint8_t **to, size_t *n)
{
    RingValues *const kept = &self->kept;

    ring_values_thin(kept);
    for (;;) {
        self->writer.needed = kept->first == NULL ? RING_NO_PLACE : kept->first->ring_place;
        const RingResult result = ring_reserve(&self->writer, size, at, to, n);
        if (result != RING_NEEDED)
            return result;
        ring_values_drop_first(kept); /* so it ends: a ring without any needs nothing */
    }
}

/* Writes the values of the packet, which is one record, from where they lie. They are in the ring
 * alone afterwards. */
static void write_values(ShmSender *self, Packet *packet, uint8_t *to)
{
    uint8_t *const values = to + packet->size - packet->values_bytes;

    memcpy(to, packet->bytes, packet->size - packet->values_bytes);
    memcpy(values, packet->values, packet->values_bytes);
    packet->values = NULL;
    ring_values_add(&self->kept, packet, values, self->writer.head);
}

/* As ring_write. The values of the packet may lie with the caller. */
static RingResult write_piece(ShmSender *self, Packet *packet, size_t *at)
{
    uint8_t *to;
    size_t n;

    if (self->kept.first == NULL && packet->values == NULL && packet->direct == NULL) {
        self->writer.needed = RING_NO_PLACE;
        return ring_write(&self->writer, packet->bytes, packet->size, at);
    }
    if (packet_is_in_ring(packet)) /* it is sent again, and those behind it will be */
        ring_values_clear(&self->kept);
    if (packet->size > ring_piece_bytes(self->writer.ring.capacity))
        packet_gather(packet);
    const RingResult result = find_place(self, packet->size, *at, &to, &n);
    if (result != RING_OK)
        return result;
    if (packet->values != NULL)
        write_values(self, packet, to);
    else
        packet_read(packet, *at, n, to);
    *at += n;
    ring_commit(&self->writer, n);
    return RING_OK;
}

static SenderProgress sender_write(Sender *sender, Packet *packet, size_t *at, size_t *budget)
{
    ShmSender *const self = (ShmSender *)sender;

    do {
        const size_t before = *at;

        if (*budget == 0) {
            ask_to_go_on(self);
            return SENDER_LATER;
        }
        switch (write_piece(self, packet, at)) {
        case RING_OK:
            ring_bell(self);
            *budget -= MIN(*budget, *at - before);
            break;
        case RING_BROKEN:
            return SENDER_BROKEN;
        default:
            return SENDER_LATER; /* the receiver says when there is room */
        }
    } while (*at < packet->size);
    return SENDER_DONE;
}

/* Memory of packets that were let go is not kept until the next one is written. */
static bool sender_look_after(Sender *sender, int64_t now_ms)
{
    (void)now_ms;
    ring_values_thin(&((ShmSender *)sender)->kept);
    return true;
}

static uint64_t sender_accepted(const Sender *sender)
{
    return ring_accepted(&((const ShmSender *)sender)->writer);
}

/* Takes the receiver's proof; then sends ours, and the ring. */
static bool shake_hands(ShmSender *self)
{
    const size_t wanted = handshake_wants(&self->handshake);
    const int memory[] = { self->ring_fd, lent_memory_fd(self->transport->lent) };
    uint8_t bytes[HANDSHAKE_HELLO_BYTES], output[HANDSHAKE_HELLO_BYTES];
    size_t n_output = 0;

    const ShmNews news = shm_socket_receive_proof(self->fd, bytes, wanted);
    if (news != SHM_MESSAGE)
        return news == SHM_NOTHING;
    if (handshake_take(&self->handshake, bytes, wanted, output, &n_output) != NULL) {
        if (self->handshake.is_another)
            sender_note_refused(&self->base);
        return false;
    }
    if (!shm_socket_send_proof(self->fd, output, n_output) ||
        !shm_socket_send_hello(self->fd, self->writer.ring.capacity, memory, G_N_ELEMENTS(memory)))
        return false;
    close(self->ring_fd); /* the mapping stays */
    self->ring_fd = -1;
    handshake_clear(&self->handshake);
    return true;
}

/* Takes the receiver's bell. */
static bool take_bell(ShmSender *self)
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
    sender_note_connected(&self->base);
    ring_bell(self); /* for records that were written before the bell came */
    return true;
}

/* Something has come: the bell, the news that there is room, or the end of the connection. */
static bool sender_hear(Sender *sender, uint32_t events)
{
    ShmSender *const self = (ShmSender *)sender;
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

static void sender_free(Sender *sender)
{
    g_free(((ShmSender *)sender)->name);
    g_free(sender);
}

static const SenderOps sender_ops = {
    .open = sender_open,
    .shut = sender_shut,
    .write = sender_write,
    .takes_values = true,
    .accepted = sender_accepted,
    .hear = sender_hear,
    .look_after = sender_look_after,
    .free = sender_free,
};

Channel *shm_sender_new(ShmTransport *transport, const char *name, const ChannelTarget *target)
{
    ShmSender *const sender = g_new0(ShmSender, 1);

    sender->transport = transport;
    sender->name = g_strdup(name);
    sender->target = target != NULL ? *target : (ChannelTarget){ .node = HANDSHAKE_ANY_NODE };
    sender_start(&sender->base, &sender_ops, &transport->senders, LONGEST_PAUSE_MS);
    return &sender->base.base;
}
