/* The transport "shm": rings in memory that two processes of one host share.
 *
 * DESIGN NOTE
 *
 * Each channel has a ring of its own; only its sender writes it and only the receiver reads it
 * (shm_ring.h). The receiver listens at a socket (shm_socket.h). The sender makes the ring and
 * hands it over on a connection to that socket, after the handshake. The connection stays open,
 * because its end shows that the other process has ended. All memory is in nameless files, and all
 * sockets have abstract names. So nothing remains of a process that dies, however it dies; records
 * that it had completed are still read.
 *
 * A receiver that has nothing to read sleeps in poll(), on an epoll that has the listener, the
 * sockets and the bell, an eventfd that all senders have. Ringing the bell is a system call, so a
 * sender does it only if the receiver sleeps. Before receive says that there is nothing, it sets
 * `asleep` and checks every ring again. A sender makes a record visible and then checks `asleep`.
 * All four operations are sequentially consistent, so either the receiver finds the record or the
 * sender finds the flag. A sender that has no bell yet rings when it gets the bell. A faulty sender
 * may fail to ring, so the I/O thread's tick also checks the rings.
 *
 * Packets of one record are lent from the ring itself. Larger ones are assembled in memory of their
 * own, so a ring can be much smaller than the largest packet.
 *
 * Threads: told in transport_ops.h; sending is in transport_shm_send.c. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rubato/error.h>

#include "io/net/monotonic.h"
#include "io/net/transport/shm/transport_shm.h"
#include "io/net/transport/tcp/host_address.h"

#define SCHEME "shm"

/* Most bytes of the rings of all senders to a node together, and of one ring. */
#define ALL_RINGS_BYTES ((size_t)64 << 20)
#define LARGEST_RING_BYTES ((size_t)4 << 20)

/* After finding nothing this many times, receive asks the epoll about the sockets. */
#define MOST_UNHEARD 32

/* Connections beyond two for each node: for processes that were started again. */
#define SPARE_RECEIVERS 64

/* What Received.memory holds. */
typedef struct {
    ShmReceiver *receiver;
    RingRecord record;
    uint8_t *own; /* not NULL: the packet is here */
    pid_t pid;
    char text[16];
} ShmReceived;

G_STATIC_ASSERT(sizeof(ShmReceived) <= sizeof(((Received *)NULL)->memory));

static ShmReceived *inside(Received *received)
{
    return (ShmReceived *)(void *)received->memory;
}

/* ---- what was received ---- */

static void tell_room(ShmReceiver *receiver)
{
    if (ring_wants_telling(&receiver->reader))
        shm_socket_send_room(receiver->fd);
}

static void received_release(Received *received)
{
    ShmReceived *const self = inside(received);

    if (self->own != NULL) {
        g_free(self->own);
        return;
    }
    ring_release(&self->receiver->reader, &self->record);
    tell_room(self->receiver);
}

static void received_move(Received *to, Received *from)
{
    g_assert(!from->lent);
    *to = *from;
}

static void received_accept(Received *received, uint64_t number)
{
    ring_accept(&inside(received)->receiver->reader, number);
}

static const char *received_address(Received *received)
{
    ShmReceived *const self = inside(received);

    g_snprintf(self->text, sizeof self->text, "process %d", (int)self->pid);
    return self->text;
}

static const ReceivedOps received_ops = {
    .release = received_release,
    .move = received_move,
    .address = received_address,
    .accept = received_accept,
};

/* ---- descriptors ---- */

HandshakeConfig shm_transport_handshake(const ShmTransport *transport)
{
    return (HandshakeConfig){
        .secret = transport->config.secret,
        .node = transport->config.self,
        .incarnation = transport->config.incarnation,
        .wanted_node = HANDSHAKE_ANY_NODE,
    };
}

bool shm_transport_watch(const ShmTransport *transport, int fd, uint32_t events, uint32_t kind,
                         uint32_t id)
{
    struct epoll_event event = { .events = events, .data.u64 = (uint64_t)kind << 32 | id };

    return epoll_ctl(transport->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

void shm_transport_close(const ShmTransport *transport, int fd)
{
    (void)epoll_ctl(transport->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    close(fd);
}

static void hear_all(ShmTransport *self)
{
    struct epoll_event events[16];
    const int n = epoll_wait(self->epoll_fd, events, G_N_ELEMENTS(events), 0);

    shm_connections_thin_out(self);
    for (int i = 0; i < n; i++) {
        const uint32_t id = (uint32_t)events[i].data.u64;
        switch (events[i].data.u64 >> 32) {
        case SHM_EVENT_LISTENER:
            shm_connections_accept(self, (int)id);
            break;
        case SHM_EVENT_RECEIVER:
            shm_connections_hear(self, id);
            break;
        case SHM_EVENT_SENDER:
            senders_hear(&self->senders, id, events[i].events);
            break;
        default: /* the bell: the rings are checked in any case */
            /* Relaxed: a sender that sets it again has rung the bell again. */
            if (atomic_exchange_explicit(&self->unfinished, false, memory_order_relaxed))
                senders_go_on(&self->senders);
            break;
        }
    }
}

/* ---- records ---- */

typedef enum {
    STEP_NOTHING,
    STEP_PIECE,  /* a piece was taken */
    STEP_PACKET, /* a packet is complete */
    STEP_BROKEN,
} Step;

static void fill(Received *received, ShmReceiver *receiver, uint8_t *bytes, size_t size)
{
    *received = (Received){ .ops = &received_ops,
                            .bytes = bytes,
                            .size = size,
                            .node = receiver->node,
                            .incarnation = receiver->incarnation };
    *inside(received) = (ShmReceived){ .receiver = receiver, .pid = receiver->pid };
}

/* Takes a piece of a packet that does not fit into one record. */
static Step take_piece(ShmReceiver *receiver, const RingRecord *record, Received *received)
{
    if (receiver->partial_bytes == 0) {
        if (record->packet_bytes > WIRE_MAX_PACKET_BYTES)
            return STEP_BROKEN;
        receiver->partial = g_try_malloc((size_t)record->packet_bytes);
        receiver->partial_bytes = (size_t)record->packet_bytes;
        receiver->partial_at = 0;
    }
    if (record->packet_bytes != receiver->partial_bytes || record->size == 0 ||
        record->size > receiver->partial_bytes - receiver->partial_at)
        return STEP_BROKEN;
    if (receiver->partial != NULL)
        memcpy(receiver->partial + receiver->partial_at, record->bytes, record->size);
    receiver->partial_at += record->size;
    ring_release(&receiver->reader, record);
    tell_room(receiver);
    if (receiver->partial_at < receiver->partial_bytes)
        return STEP_PIECE;
    const size_t size = receiver->partial_bytes;
    receiver->partial_bytes = 0;
    if (receiver->partial == NULL)
        return STEP_PIECE; /* the packet counts as lost: the link sends it again */
    fill(received, receiver, receiver->partial, size);
    inside(received)->own = g_steal_pointer(&receiver->partial);
    return STEP_PACKET;
}

static Step take_record(ShmReceiver *receiver, Received *received)
{
    RingRecord record;

    if (!receiver->opened)
        return STEP_NOTHING;
    switch (ring_read(&receiver->reader, &record)) {
    case RING_OK:
        break;
    case RING_EMPTY:
        tell_room(receiver);
        return STEP_NOTHING;
    default:
        return STEP_BROKEN;
    }
    if (record.size != record.packet_bytes || receiver->partial_bytes != 0)
        return take_piece(receiver, &record, received);
    fill(received, receiver, record.bytes, record.size);
    received->lent = true;
    inside(received)->record = record;
    return STEP_PACKET;
}

/* Checks each ring once, beginning behind the one that was served last. */
static Step look_into_rings(ShmTransport *self, Received *received)
{
    const guint n = self->receivers->len;
    Step best = STEP_NOTHING;

    for (guint i = 0, at = self->next_receiver; i < n && self->receivers->len == n; i++, at++) {
        at = at < n ? at : 0;
        ShmReceiver *const receiver = g_ptr_array_index(self->receivers, at);
        const Step step = take_record(receiver, received);
        if (step == STEP_PACKET) {
            self->next_receiver = at + 1;
            return STEP_PACKET;
        }
        if (step == STEP_PIECE)
            best = STEP_PIECE;
        if (step == STEP_BROKEN)
            g_warning("dropped the connection of process %d: what it writes makes no sense",
                      (int)receiver->pid);
        if (step == STEP_BROKEN || (step == STEP_NOTHING && receiver->ended)) {
            g_ptr_array_remove_index(self->receivers, at);
            best = STEP_PIECE; /* the order of the receivers has changed: check again */
        }
    }
    return best;
}

/* Whether to ask the epoll now: our bell has rung, or something else has woken us, or we have not
 * asked for long. */
static bool should_hear(ShmTransport *self, bool was_armed)
{
    if (!self->rung && !was_armed && ++self->unheard < MOST_UNHEARD)
        return false;
    self->rung = false;
    self->unheard = 0;
    return true;
}

static void disarm(ShmTransport *self)
{
    if (!self->armed)
        return;
    self->armed = false;
    if (shm_bell_clear(self->bell))
        self->rung = true;
}

static bool shm_receive(Transport *transport, Received *received)
{
    ShmTransport *const self = (ShmTransport *)transport;
    const bool was_armed = self->armed;
    bool heard = false, armed = false;

    for (;;) {
        const Step step = look_into_rings(self, received);

        if (step == STEP_PACKET) {
            disarm(self);
            return true;
        }
        if (step == STEP_PIECE)
            continue;
        if (armed)
            return false;
        if (!heard && should_hear(self, was_armed)) {
            disarm(self);
            hear_all(self);
            heard = true;
            continue;
        }
        shm_bell_set(self->bell); /* then the rings are checked again: see the top */
        self->armed = armed = true;
    }
}

static Glance shm_glance(Transport *transport)
{
    ShmTransport *const self = (ShmTransport *)transport;

    disarm(self);
    for (guint i = 0; i < self->receivers->len; i++) {
        const ShmReceiver *const receiver = g_ptr_array_index(self->receivers, i);
        if (receiver->opened && ring_has_some(&receiver->reader))
            return GLANCE_SOME;
    }
    return GLANCE_NOTHING;
}

/* ---- the transport's life ---- */

static void shm_destroy(Transport *transport)
{
    ShmTransport *const self = (ShmTransport *)transport;

    senders_finish(&self->senders, self->epoll_fd, SHM_EVENT_SENDER);
    senders_clear(&self->senders);
    g_ptr_array_unref(self->receivers);
    if (self->bell != NULL)
        munmap(self->bell, SHM_BELL_BYTES);
    if (self->bell_memory_fd != -1)
        close(self->bell_memory_fd);
    if (self->bell_fd != -1)
        close(self->bell_fd);
    for (guint i = 0; i < self->listeners->len; i++)
        close(g_array_index(self->listeners, int, i));
    g_array_unref(self->listeners);
    lent_memory_free(self->lent);
    if (self->epoll_fd != -1)
        close(self->epoll_fd);
    g_free(self->identity);
    g_free(self);
}

/* The largest power of two with which all rings together stay within bounds. */
static size_t choose_capacity(uint32_t n_nodes)
{
    size_t capacity = LARGEST_RING_BYTES;

    while (capacity > RING_LEAST_BYTES && capacity * n_nodes > ALL_RINGS_BYTES)
        capacity /= 2;
    return capacity;
}

static Transport *shm_create(const TransportConfig *config, GError **error)
{
    ShmTransport *const self = g_new0(ShmTransport, 1);

    self->base.ops = &transport_shm;
    self->config = *config;
    self->identity = host_identity();
    self->ring_capacity = choose_capacity(config->n_nodes);
    self->most_receivers = 2 * (size_t)config->n_nodes + SPARE_RECEIVERS;
    self->listeners = g_array_new(FALSE, FALSE, sizeof(int));
    self->receivers = g_ptr_array_new_with_free_func(shm_connections_free);
    senders_init(&self->senders);
    self->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    self->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    self->bell_memory_fd = shm_memory_new(SHM_BELL_BYTES);
    if (self->bell_memory_fd != -1)
        self->bell = shm_memory_map(self->bell_memory_fd, SHM_BELL_BYTES);
    if (self->bell != NULL)
        self->lent = lent_memory_new();
    if (self->epoll_fd != -1 && self->bell_fd != -1 && self->lent != NULL &&
        shm_transport_watch(self, self->bell_fd, EPOLLIN | EPOLLET, SHM_EVENT_BELL, 0))
        return &self->base;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK, "cannot share memory: %s",
                g_strerror(errno));
    shm_destroy(&self->base);
    return NULL;
}

static bool shm_bind(Transport *transport, const char *endpoint, char **resolved, GError **error)
{
    ShmTransport *const self = (ShmTransport *)transport;
    g_autofree char *name = NULL;

    if (!host_address_split(SCHEME, self->identity, endpoint, /* for_binding= */ true, &name,
                            error))
        return false;
    const int fd = shm_socket_listen(name);
    if (fd != -1 &&
        shm_transport_watch(self, fd, EPOLLIN | EPOLLET, SHM_EVENT_LISTENER, (uint32_t)fd)) {
        g_array_append_val(self->listeners, fd);
        *resolved = host_address_join(SCHEME, self->identity, name);
        return true;
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK, "cannot bind %s: %s%s", endpoint,
                g_strerror(errno),
                errno == EADDRINUSE ? "; another program, or another node, has it: choose another "
                                      "name, or * for any"
                                    : "");
    if (fd != -1)
        close(fd);
    return false;
}

static int shm_poll_fd(Transport *transport)
{
    return ((ShmTransport *)transport)->epoll_fd;
}

static bool shm_reaches(Transport *transport, const char *endpoint)
{
    g_autofree char *name = NULL;

    return host_address_split(SCHEME, ((ShmTransport *)transport)->identity, endpoint,
                              /* for_binding= */ false, &name, NULL);
}

static Channel *shm_connect(Transport *transport, const char *endpoint, const ChannelTarget *target,
                            GError **error)
{
    ShmTransport *const self = (ShmTransport *)transport;
    g_autofree char *name = NULL;

    if (!host_address_split(SCHEME, self->identity, endpoint, /* for_binding= */ false, &name,
                            error))
        return NULL;
    return shm_sender_new(self, name, target);
}

static LentMemory *shm_lends(Transport *transport)
{
    return ((ShmTransport *)transport)->lent;
}

/* The newest connection of the process, by which its packets come. */
static BorrowedMemory *shm_borrows(Transport *transport, uint32_t node, uint64_t incarnation)
{
    const ShmTransport *const self = (const ShmTransport *)transport;

    for (guint i = self->receivers->len; i-- > 0;) {
        const ShmReceiver *const receiver = g_ptr_array_index(self->receivers, i);

        if (receiver->opened && receiver->node == node && receiver->incarnation == incarnation)
            return borrowed_memory_ref(receiver->borrowed);
    }
    return NULL;
}

const TransportOps transport_shm = {
    .name = SCHEME,
    .is_memory = true,
    .sends_direct = true,
    .create = shm_create,
    .destroy = shm_destroy,
    .bind = shm_bind,
    .poll_fd = shm_poll_fd,
    .receive = shm_receive,
    .glance = shm_glance,
    .reaches = shm_reaches,
    .connect = shm_connect,
    .lends = shm_lends,
    .borrows = shm_borrows,
};
