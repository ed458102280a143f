/* The gate of a node over ZeroMQ: a thread that is told how handshakes end.
 *
 * If there is a secret, ZeroMQ asks the gate about each process that has made a handshake (ZAP,
 * https://rfc.zeromq.org/spec/27). With or without a secret, ZeroMQ tells of each handshake that
 * has failed, and the gate writes it to the log. ZeroMQ bounds the time of a handshake. It has no
 * bound for the number of connections, nor for the parts of a message, and does not tell whose
 * handshake has failed.
 *
 * Over Unix sockets the kernel says whose process connects, and ZeroMQ drops those of other users
 * as soon as it has accepted them. This is necessary: ZeroMQ 4.3.4 ends the process if it cannot
 * accept a connection there because no descriptor is left, and other users could take all of them.
 *
 * Threads: a thread of its own with two sockets, which the owner made. It ends when the context is
 * terminated. */
#define _GNU_SOURCE
#include "io/net/transport/zmq/zmq_gate.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include <rubato/error.h>

#include "io/net/log_sink.h"
#include "io/net/monotonic.h"

#define ZAP_ADDRESS "inproc://zeromq.zap.01"
#define ZAP_DOMAIN "rubato"
#define MONITOR_ADDRESS "inproc://refused"

/* Between two lines in the log, because there may be many attempts. */
#define WARNING_MS 5000

#define REFUSED                                                                   \
    (ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | \
     ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)

struct ZmqGate {
    /* immutable */
    ZmqCurve *curve; /* NULL: there is no secret to prove */
    pthread_t thread;

    /* the thread's */
    void *requests, *refusals;
    int64_t warned_ms;
    uint64_t n_unsaid; /* refusals since then */
};

/* ---- who asks to come in ---- */

enum { ZAP_VERSION, ZAP_REQUEST_ID, ZAP_MECHANISM = 5, ZAP_CREDENTIALS, ZAP_MAX_PARTS };

typedef struct {
    uint8_t bytes[256];
    size_t size; /* of the part; if it is more than there is room, the part is cut */
} ZapPart;

static bool receive_request(void *socket, ZapPart parts[ZAP_MAX_PARTS], size_t *n_parts)
{
    int more = 1;
    size_t size = sizeof more;

    for (*n_parts = 0; more != 0; ++*n_parts) {
        ZapPart dropped, *const part = *n_parts < ZAP_MAX_PARTS ? &parts[*n_parts] : &dropped;
        int n;

        do
            n = zmq_recv(socket, part->bytes, sizeof part->bytes, 0);
        while (n == -1 && zmq_errno() == EINTR);
        if (n == -1 || zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &size) != 0)
            return false;
        part->size = (size_t)n;
    }
    return true;
}

static void answer_request(const ZmqGate *self, const ZapPart *parts, size_t n_parts)
{
    const bool is_curve = n_parts == ZAP_MAX_PARTS && parts[ZAP_MECHANISM].size == 5 &&
                          memcmp(parts[ZAP_MECHANISM].bytes, "CURVE", 5) == 0;
    const ZapPart *const key = &parts[ZAP_CREDENTIALS];
    const uint32_t node = is_curve && self->curve != NULL
                              ? zmq_curve_find_node(self->curve, key->bytes, key->size)
                              : HANDSHAKE_ANY_NODE;
    const bool is_known = node != HANDSHAKE_ANY_NODE;
    const size_t id_bytes = MIN(parts[ZAP_REQUEST_ID].size, sizeof parts[ZAP_REQUEST_ID].bytes);
    char name[16] = "";

    if (is_known)
        g_snprintf(name, sizeof name, "%u", node);
    (void)zmq_send(self->requests, "1.0", 3, ZMQ_SNDMORE);
    (void)zmq_send(self->requests, parts[ZAP_REQUEST_ID].bytes, id_bytes, ZMQ_SNDMORE);
    (void)zmq_send(self->requests, is_known ? "200" : "400", 3, ZMQ_SNDMORE);
    (void)zmq_send(self->requests, "", 0, ZMQ_SNDMORE);
    (void)zmq_send(self->requests, name, strlen(name), ZMQ_SNDMORE);
    (void)zmq_send(self->requests, "", 0, 0);
}

/* ---- who was refused ---- */

/* Why a connection to the ROUTER was dropped. Without detail: the time of the connection was over,
 * or its other end has ended it. An end that does not know the secret may do so first, because it
 * cannot accept this one either. */
static const char *name_refusal(const ZmqGate *self, uint16_t event)
{
    const bool has_ended = event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;

    if (event == ZMQ_EVENT_ACCEPT_FAILED)
        return "it is another user's";
    if (self->curve != NULL)
        return has_ended ? "it has ended, or its time has, before it proved that it belongs to "
                           "this run"
                         : "it does not know this run's secret";
    return has_ended ? "it has ended, or its time has, before its handshake was over"
                     : "its handshake makes no sense";
}

/* One line in the log in WARNING_MS; the others are counted. */
static void note_refusal(ZmqGate *self, const ZapPart *part)
{
    const int64_t now_ms = monotonic_ms();
    uint16_t event = 0;

    if (part->size >= sizeof event)
        memcpy(&event, part->bytes, sizeof event); /* in the host's order */
    if (now_ms - self->warned_ms < WARNING_MS) {
        self->n_unsaid++;
        return;
    }
    self->warned_ms = now_ms;
    g_warning("dropped a connection over ZeroMQ: %s; %" G_GUINT64_FORMAT
              " more since the last such line",
              name_refusal(self, event), self->n_unsaid);
    self->n_unsaid = 0;
}

/* Serves until the context is terminated. */
static void *keep(void *data)
{
    ZmqGate *const self = data;
    zmq_pollitem_t items[] = { { .socket = self->requests, .events = ZMQ_POLLIN },
                               { .socket = self->refusals, .events = ZMQ_POLLIN } };

    if (self->curve != NULL)
        zmq_curve_derive_nodes(self->curve);
    for (;;) {
        ZapPart parts[ZAP_MAX_PARTS] = { 0 };
        size_t n_parts;

        if (zmq_poll(items, G_N_ELEMENTS(items), -1) == -1) {
            if (zmq_errno() == EINTR)
                continue;
            break;
        }
        if ((items[0].revents & ZMQ_POLLIN) != 0) {
            if (!receive_request(self->requests, parts, &n_parts))
                break;
            answer_request(self, parts, n_parts);
        }
        if ((items[1].revents & ZMQ_POLLIN) != 0) {
            if (!receive_request(self->refusals, parts, &n_parts))
                break;
            note_refusal(self, &parts[0]);
        }
    }
    zmq_close(self->requests);
    zmq_close(self->refusals);
    return NULL;
}

/* ---- making it ---- */

static bool set_int(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

static void *open_socket(void *context, int kind)
{
    void *const socket = zmq_socket(context, kind);

    if (socket != NULL && set_int(socket, ZMQ_LINGER, 0) && set_int(socket, ZMQ_SNDHWM, 0) &&
        set_int(socket, ZMQ_RCVHWM, 0))
        return socket;
    if (socket != NULL)
        zmq_close(socket);
    return NULL;
}

static bool let_in(void *router, ZmqGateUsers users)
{
    const uid_t own = geteuid();

    return users == ZMQ_GATE_ANY_USER ||
           zmq_setsockopt(router, ZMQ_IPC_FILTER_UID, &own, sizeof own) == 0;
}

ZmqGate *zmq_gate_new(void *context, void *router, ZmqGateUsers users, ZmqCurve *curve,
                      GError **error)
{
    ZmqGate *const self = g_new0(ZmqGate, 1);
    /* Where any user may connect, what else keeps ZeroMQ from accepting a connection would be told
     * again and again. */
    const int events = users == ZMQ_GATE_OWN_USER ? REFUSED | ZMQ_EVENT_ACCEPT_FAILED : REFUSED;

    self->curve = curve;
    self->warned_ms = INT64_MIN / 2;
    if ((self->requests = open_socket(context, ZMQ_REP)) == NULL ||
        (self->refusals = open_socket(context, ZMQ_PAIR)) == NULL ||
        zmq_bind(self->requests, ZAP_ADDRESS) != 0 || !let_in(router, users) ||
        (curve != NULL &&
         (!zmq_curve_set_up_router(curve, router) ||
          zmq_setsockopt(router, ZMQ_ZAP_DOMAIN, ZAP_DOMAIN, strlen(ZAP_DOMAIN)) != 0)) ||
        zmq_socket_monitor(router, MONITOR_ADDRESS, events) != 0 ||
        zmq_connect(self->refusals, MONITOR_ADDRESS) != 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "cannot watch who connects over ZeroMQ: %s", zmq_strerror(zmq_errno()));
        goto close_sockets;
    }
    const int code = log_sink_start_thread(&self->thread, keep, self);
    if (code == 0) {
        pthread_setname_np(self->thread, "zmq gate");
        return self;
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                "cannot start the thread that watches who connects over ZeroMQ: %s",
                g_strerror(code));

close_sockets:
    if (self->requests != NULL)
        zmq_close(self->requests);
    if (self->refusals != NULL)
        zmq_close(self->refusals);
    g_free(self);
    return NULL;
}

void zmq_gate_free(ZmqGate *self)
{
    if (self == NULL)
        return;
    pthread_join(self->thread, NULL);
    g_free(self);
}
