/* Connections of the processes that send here: accepted, proved, their rings taken, dropped.
 *
 * Threads: the I/O thread. */
#include <sys/epoll.h>
#include <unistd.h>

#include "io/net/monotonic.h"
#include "io/net/transport/shm/transport_shm.h"

/* The most unproven connections beside one for each node, and the longest time that one may stay
 * unproven. */
#define MOST_STRANGERS 64
#define PROOF_MS 5000

void shm_connections_free(gpointer data)
{
    ShmReceiver *const receiver = data;

    if (receiver->opened)
        ring_close(&receiver->reader.ring);
    borrowed_memory_unref(receiver->borrowed);
    shm_transport_close(receiver->transport, receiver->fd);
    handshake_clear(&receiver->handshake);
    g_free(receiver->partial);
    g_free(receiver);
}

void shm_connections_thin_out(ShmTransport *self)
{
    const int64_t now_ms = monotonic_ms();
    guint n = 0;

    /* from the newest to the oldest, so that one that is removed does not move the rest */
    for (guint i = self->receivers->len; i-- > 0;) {
        const ShmReceiver *const receiver = g_ptr_array_index(self->receivers, i);
        if (receiver->is_proven || (++n <= MOST_STRANGERS + self->config.n_nodes &&
                                    now_ms - receiver->accepted_ms < PROOF_MS))
            continue;
        g_warning("dropped the connection of process %d: it has not proved that it belongs to this "
                  "run",
                  (int)receiver->pid);
        g_ptr_array_remove_index(self->receivers, i);
        n--;
    }
}

static guint count_proven(const ShmTransport *self)
{
    guint n = 0;

    for (guint i = 0; i < self->receivers->len; i++)
        n += ((const ShmReceiver *)g_ptr_array_index(self->receivers, i))->is_proven;
    return n;
}

void shm_connections_accept(ShmTransport *self, int listener)
{
    const HandshakeConfig config = shm_transport_handshake(self);
    pid_t pid;
    int fd;

    while ((fd = shm_socket_accept(listener, &pid)) != -1) {
        const uint32_t id = self->n_receivers_ever++;

        if (!shm_transport_watch(self, fd, EPOLLIN | EPOLLRDHUP, SHM_EVENT_RECEIVER, id)) {
            close(fd);
            continue;
        }
        ShmReceiver *const receiver = g_new0(ShmReceiver, 1);
        receiver->transport = self;
        receiver->id = id;
        receiver->fd = fd;
        receiver->pid = pid;
        receiver->accepted_ms = monotonic_ms();
        handshake_init(&receiver->handshake, HANDSHAKE_ROLE_ACCEPTS, &config, NULL);
        g_ptr_array_add(self->receivers, receiver);
        shm_connections_thin_out(self);
    }
}

/* Takes the next message of the handshake. When the handshake is done, the sender gets our bell.
 * False: the connection is to be closed. */
static bool shake_hands(ShmTransport *self, ShmReceiver *receiver)
{
    const int bell[] = { self->bell_memory_fd, self->bell_fd };
    const size_t wanted = handshake_wants(&receiver->handshake);
    uint8_t bytes[HANDSHAKE_HELLO_BYTES], output[HANDSHAKE_HELLO_BYTES];
    size_t n_output = 0;

    const ShmNews news = shm_socket_receive_proof(receiver->fd, bytes, wanted);
    if (news != SHM_MESSAGE)
        return news == SHM_NOTHING;
    const char *const fault =
        handshake_take(&receiver->handshake, bytes, wanted, output, &n_output);
    const bool is_sent = n_output == 0 || shm_socket_send_proof(receiver->fd, output, n_output);

    if (fault != NULL)
        g_warning("dropped the connection of process %d: %s", (int)receiver->pid, fault);
    if (fault != NULL || !is_sent)
        return false;
    if (receiver->handshake.state != HANDSHAKE_DONE)
        return true;
    if (count_proven(self) >= self->most_receivers)
        return false;
    receiver->is_proven = true;
    receiver->node = handshake_peer_node(&receiver->handshake);
    receiver->incarnation = handshake_peer_incarnation(&receiver->handshake);
    handshake_clear(&receiver->handshake);
    /* A sender that is already gone may have left a ring. */
    (void)shm_socket_send_hello(receiver->fd, 0, bell, G_N_ELEMENTS(bell));
    return true;
}

/* Receives the ring of a receiver, and the memory of its process. False: the connection is to be
 * closed. */
static bool open_receiver(ShmReceiver *receiver)
{
    uint64_t capacity;
    int fds[2];

    switch (shm_socket_receive(receiver->fd, &capacity, fds, G_N_ELEMENTS(fds))) {
    case SHM_NOTHING:
        return true;
    case SHM_END:
        return false;
    case SHM_MESSAGE:
        break;
    }
    receiver->opened =
        capacity <= RING_MOST_BYTES && ring_open(fds[0], (size_t)capacity, &receiver->reader);
    receiver->borrowed = borrowed_memory_new(fds[1]);
    close(fds[0]);
    close(fds[1]);
    return receiver->opened && receiver->borrowed != NULL;
}

void shm_connections_hear(ShmTransport *self, uint32_t id)
{
    guint i = 0;

    while (i < self->receivers->len &&
           ((ShmReceiver *)g_ptr_array_index(self->receivers, i))->id != id)
        i++;
    if (i == self->receivers->len)
        return;
    ShmReceiver *const receiver = g_ptr_array_index(self->receivers, i);
    if (!receiver->opened) {
        if (receiver->is_proven ? !open_receiver(receiver) : !shake_hands(self, receiver))
            g_ptr_array_remove_index(self->receivers, i);
        return; /* if the connection has also ended, the epoll says so again */
    }
    if (shm_socket_receive(receiver->fd, NULL, NULL, 0) != SHM_NOTHING) {
        receiver->ended = true;
        (void)epoll_ctl(self->epoll_fd, EPOLL_CTL_DEL, receiver->fd, NULL);
    }
}
