/* A connection between a follower and a program. */
#include "engine/serving/serving_line.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rubato/error.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/net/link/wire.h"
#include "io/net/monotonic.h"

/* Who is meant: no node has this number. So a node and a follower refuse each other. */
#define SERVING_NODE (UINT32_MAX - 1)

#define HEAD_BYTES (4 + SEAL_TAG_BYTES)

/* A host that is gone is noticed after a minute, also where nothing is sent. */
enum { KEEPALIVE_IDLE_S = 30, KEEPALIVE_INTERVAL_S = 10, KEEPALIVE_PROBES = 3 };

static bool fail_network(const char *what, GError **error)
{
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK, what);
    return false;
}

/* ---- bytes ---- */

/* Waits until the socket is ready. Poll returns at the caller's time at the latest, or when the
 * connection breaks or is shut down. */
static bool wait_until(int fd, short events, int64_t end_ms, GError **error)
{
    struct pollfd ready = { .fd = fd, .events = events };

    for (;;) {
        const int64_t left_ms = end_ms == SERVING_LINE_NEVER ? -1 : end_ms - monotonic_ms();
        const int n = left_ms < 0 && end_ms != SERVING_LINE_NEVER
                          ? 0
                          : poll(&ready, 1, (int)MIN(left_ms, G_MAXINT));

        if (n > 0)
            return true;
        if (n == 0 && (end_ms == SERVING_LINE_NEVER || monotonic_ms() < end_ms))
            continue;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_network(g_strerror(errno), error);
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_TIMEOUT,
                            "nothing has come or gone in time");
        return false;
    }
}

static bool send_all(int fd, const uint8_t *bytes, size_t n, int64_t end_ms, GError **error)
{
    while (n > 0) {
        const ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent >= 0) {
            bytes += sent;
            n -= (size_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_until(fd, POLLOUT, end_ms, error))
                return false;
        } else if (errno != EINTR) {
            return fail_network(g_strerror(errno), error);
        }
    }
    return true;
}

static bool receive_all(int fd, uint8_t *bytes, size_t n, int64_t end_ms, GError **error)
{
    while (n > 0) {
        const ssize_t got = recv(fd, bytes, n, MSG_DONTWAIT);

        if (got > 0) {
            bytes += got;
            n -= (size_t)got;
        } else if (got == 0) {
            return fail_network("the other end has closed the connection", error);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_until(fd, POLLIN, end_ms, error))
                return false;
        } else if (errno != EINTR) {
            return fail_network(g_strerror(errno), error);
        }
    }
    return true;
}

/* ---- its life ---- */

static void set_options(int fd)
{
    const int one = 1, idle = KEEPALIVE_IDLE_S, interval = KEEPALIVE_INTERVAL_S,
              probes = KEEPALIVE_PROBES;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

/* Ends in a number of steps that the handshake knows, or at end_ms. */
static bool shake(int fd, Handshake *handshake, int64_t end_ms, GError **error)
{
    uint8_t in[HANDSHAKE_HELLO_BYTES], out[HANDSHAKE_HELLO_BYTES];
    size_t n_out = handshake_begin(handshake, out);
    const char *fault = NULL;

    if (!send_all(fd, out, n_out, end_ms, error))
        return false;
    while (fault == NULL && handshake_wants(handshake) > 0) {
        const size_t n = handshake_wants(handshake);

        if (!receive_all(fd, in, n, end_ms, error))
            return false;
        fault = handshake_take(handshake, in, n, out, &n_out);
        if (!send_all(fd, out, n_out, end_ms, error))
            return false;
    }
    return fault == NULL || fail_network(fault, error);
}

bool serving_line_open(ServingLine *line, int fd, HandshakeRole role, const RunSecret *secret,
                       int64_t end_ms, GError **error)
{
    const HandshakeConfig config = {
        .secret = secret,
        .node = SERVING_NODE,
        .wanted_node = SERVING_NODE,
        .protection = secret != NULL ? PROTECTION_ENCRYPT : PROTECTION_CHECKSUM,
    };
    Handshake handshake;

    *line = (ServingLine){ .fd = fd };
    set_options(fd);
    handshake_init(&handshake, role, &config, /* seed= */ NULL);
    line->has_seals = shake(fd, &handshake, end_ms, error);
    if (line->has_seals)
        handshake_make_seals(&handshake, &line->sends, &line->receives);
    else
        serving_line_close(line);
    handshake_clear(&handshake);
    return line->has_seals;
}

void serving_line_close(ServingLine *line)
{
    if (line->has_seals) {
        seal_clear(&line->sends);
        seal_clear(&line->receives);
    }
    if (line->fd >= 0)
        close(line->fd);
    *line = (ServingLine){ .fd = -1 };
}

/* ---- messages ---- */

bool serving_line_send(ServingLine *line, uint8_t *bytes, size_t n, int64_t end_ms, GError **error)
{
    uint8_t head[HEAD_BYTES];

    wire_store_u32(head, (uint32_t)n);
    seal_close(&line->sends, bytes, n, bytes, head + 4);
    return send_all(line->fd, head, sizeof head, end_ms, error) &&
           send_all(line->fd, bytes, n, end_ms, error);
}

bool serving_line_wait(ServingLine *line, int64_t end_ms, GError **error)
{
    return wait_until(line->fd, POLLIN, end_ms, error);
}

bool serving_line_receive_head(ServingLine *line, ServingHead *head, size_t most, int64_t end_ms,
                               GError **error)
{
    uint8_t bytes[HEAD_BYTES];

    if (!receive_all(line->fd, bytes, sizeof bytes, end_ms, error))
        return false;
    head->n = wire_load_u32(bytes);
    memcpy(head->tag, bytes + 4, sizeof head->tag);
    if (head->n <= most)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "a message of %zu bytes, and %zu are the most", head->n, most);
    return false;
}

bool serving_line_receive(ServingLine *line, const ServingHead *head, uint8_t *bytes,
                          int64_t end_ms, GError **error)
{
    if (!receive_all(line->fd, bytes, head->n, end_ms, error))
        return false;
    return seal_open(&line->receives, bytes, head->n, head->tag) ||
           fail_network("a message is not what was sent", error);
}
