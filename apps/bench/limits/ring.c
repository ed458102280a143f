/* Bare processes of this host that add up arrays of doubles in a ring of sockets, TCP over
 * loopback: the limit of an allreduce over TCP. Each sends to the next one, and receives from the
 * one before, 2 (n - 1) shares of the array, as few bytes as there can be. In the first n - 1 steps
 * it adds its own values to what comes, a piece at a time, and in the others results come. It
 * sends on what it has of a share before the rest of that has come.
 *
 * They block where nothing can be sent or received, so they may be more than processors. The kernel
 * takes few bytes of a socket, so that its pages stay in a cache until they are read. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "apps/bench/limits/limits.h"

enum {
    PIECE_BYTES = 256 << 10,
    KEPT_BYTES = 256 << 10, /* of a socket, by the kernel */
    MOST_BYTES = 1 << 20,   /* of one system call */
};

struct RawRing {
    int to, from;
    uint32_t rank, n;
    double *piece; /* what has come of the piece that is to be added */
};

/* How far one direction is. */
typedef struct {
    uint32_t step;
    size_t at; /* bytes of the step's share */
} Place;

/* An allreduce on its way. */
typedef struct {
    RawRing *ring;
    const char *input;
    char *output;
    size_t n_values;
    Place sent, got;
    size_t n_piece; /* bytes in the ring's piece, which are behind `got` */
} Turn;

/* ---- connections ---- */

static void must(bool ok)
{
    if (!ok)
        g_error("no connections between processes of this host: %s", g_strerror(errno));
}

static int new_socket(void)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), kept = KEPT_BYTES, yes = 1;

    must(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kept, sizeof kept) == 0 &&
         setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) == 0);
    return fd;
}

RawRing *raw_ring_join(const Bench *bench, GError **error)
{
    const uint32_t n = rubato_worker_n_workers(bench->worker);
    const uint32_t rank = rubato_worker_rank(bench->worker);
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    g_autofree int64_t *ports = g_new0(int64_t, n);
    const RubatoTensor all = { .name = "bare ports",
                               .dtype = RUBATO_I64,
                               .n_dims = 1,
                               .shape = { n },
                               .input = ports,
                               .output = ports };
    const int listener = new_socket();

    must(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 1) == 0 &&
         getsockname(listener, (struct sockaddr *)&address, &size) == 0);
    ports[rank] = ntohs(address.sin_port);
    if (!rubato_worker_allreduce(bench->worker, &all, NULL, error)) {
        close(listener);
        return NULL;
    }
    RawRing *const ring = g_new(RawRing, 1);
    *ring = (RawRing){ .to = new_socket(), .rank = rank, .n = n };
    address.sin_port = htons((uint16_t)ports[(rank + 1) % n]);
    must(connect(ring->to, (struct sockaddr *)&address, size) == 0);
    ring->from = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    must(ring->from >= 0);
    close(listener);
    ring->piece = g_malloc0(PIECE_BYTES);
    return ring;
}

void raw_ring_leave(RawRing *ring)
{
    close(ring->to);
    close(ring->from);
    g_free(ring->piece);
    g_free(ring);
}

void raw_ring_meet(RawRing *ring)
{
    char byte = 0;

    for (uint32_t i = 1; i < ring->n; i++)
        must(send(ring->to, &byte, 1, MSG_NOSIGNAL) == 1 &&
             recv(ring->from, &byte, 1, MSG_WAITALL) == 1);
}

/* ---- shares ---- */

static uint32_t steps_of(const RawRing *ring)
{
    return 2 * (ring->n - 1);
}

/* What is received in a step is sent in the next one. The byte at which it begins, and how many. */
static size_t received_share(const Turn *turn, uint32_t step, size_t *n_bytes)
{
    const uint32_t n = turn->ring->n;
    const uint32_t share = (turn->ring->rank + 2 * n - 1 - step) % n;
    const size_t begin = turn->n_values * share / n * sizeof(double);

    *n_bytes = turn->n_values * (share + 1) / n * sizeof(double) - begin;
    return begin;
}

static size_t sent_share(const Turn *turn, uint32_t step, size_t *n_bytes)
{
    return received_share(turn, step + turn->ring->n - 1, n_bytes);
}

/* To the next step, past shares that are empty. */
static void go_on(const Turn *turn, Place *place, size_t (*share)(const Turn *, uint32_t, size_t *))
{
    size_t n_bytes;

    while (place->step < steps_of(turn->ring) &&
           (share(turn, place->step, &n_bytes), place->at == n_bytes))
        *place = (Place){ .step = place->step + 1 };
}

/* ---- sending and receiving: false if the kernel has no room, or nothing ---- */

static bool send_some(Turn *turn)
{
    size_t n_bytes;

    if (turn->sent.step == steps_of(turn->ring) || turn->sent.step > turn->got.step + 1)
        return false;
    const size_t begin = sent_share(turn, turn->sent.step, &n_bytes);
    const size_t end = turn->sent.step == turn->got.step + 1 ? turn->got.at : n_bytes;
    if (end == turn->sent.at)
        return false;
    const char *const from = turn->sent.step == 0 ? turn->input : turn->output;
    const ssize_t n = send(turn->ring->to, from + begin + turn->sent.at,
                           MIN(end - turn->sent.at, MOST_BYTES), MSG_DONTWAIT | MSG_NOSIGNAL);
    must(n > 0 || errno == EAGAIN || errno == EINTR);
    turn->sent.at += (size_t)MAX(n, 0);
    go_on(turn, &turn->sent, sent_share);
    return n > 0;
}

/* Adds what has come of a piece, once all has. */
static void add_piece(Turn *turn, size_t at, size_t n_wanted)
{
    if (turn->n_piece < n_wanted)
        return;
    raw_sum((double *)(void *)(turn->output + at), (const double *)(const void *)(turn->input + at),
            turn->ring->piece, n_wanted / sizeof(double));
    turn->got.at += n_wanted;
    turn->n_piece = 0;
}

static bool receive_some(Turn *turn)
{
    const RawRing *const ring = turn->ring;
    size_t n_bytes;

    if (turn->got.step == steps_of(ring))
        return false;
    const bool adds = turn->got.step < ring->n - 1;
    const size_t at = received_share(turn, turn->got.step, &n_bytes) + turn->got.at;
    const size_t n_left = n_bytes - turn->got.at;
    const size_t n_wanted = adds ? MIN(n_left, PIECE_BYTES) : MIN(n_left, MOST_BYTES);
    char *const to = adds ? (char *)ring->piece + turn->n_piece : turn->output + at;
    const ssize_t n = recv(ring->from, to, n_wanted - turn->n_piece, MSG_DONTWAIT);
    must(n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)));
    if (n <= 0)
        return false;
    if (adds) {
        turn->n_piece += (size_t)n;
        add_piece(turn, at, n_wanted);
    } else {
        turn->got.at += (size_t)n;
    }
    go_on(turn, &turn->got, received_share);
    return true;
}

/* Ends, because the process before sends all that this one lacks, and the next one reads. */
static void wait_for_more(const Turn *turn)
{
    const bool lacks = turn->got.step < steps_of(turn->ring);
    const bool has = turn->sent.step < turn->got.step + 1 ||
                     (turn->sent.step == turn->got.step + 1 && turn->sent.at < turn->got.at);
    struct pollfd polled[] = {
        { .fd = lacks ? turn->ring->from : -1, .events = POLLIN },
        { .fd = has && turn->sent.step < steps_of(turn->ring) ? turn->ring->to : -1,
          .events = POLLOUT },
    };

    (void)poll(polled, G_N_ELEMENTS(polled), -1);
}

void raw_ring_reduce(RawRing *ring, const double *input, double *output, size_t n)
{
    Turn turn = {
        .ring = ring, .input = (const char *)input, .output = (char *)output, .n_values = n
    };

    go_on(&turn, &turn.sent, sent_share);
    go_on(&turn, &turn.got, received_share);
    while (turn.sent.step < steps_of(ring) || turn.got.step < steps_of(ring)) {
        const bool received = receive_some(&turn);

        if (!send_some(&turn) && !received)
            wait_for_more(&turn);
    }
}
