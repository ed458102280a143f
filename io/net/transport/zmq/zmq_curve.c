/* CURVE (https://rfc.zeromq.org/spec/26) with keys that are made from the secret of the run.
 *
 * The connecting end must know the public key of the listener before it can say anything, because
 * its first message is encrypted for that key. The key is never sent. The listener must know the
 * secret half to decrypt the message. Both keys come from the run's secret, so each end has proved
 * the secret to the other. The proof holds for this connection alone, because both ends draw new
 * keys for each connection. Then the connecting end sends its own public key, encrypted, and ZeroMQ
 * hands it to an authenticator (ZAP, https://rfc.zeromq.org/spec/27). The authenticator knows the
 * keys of all nodes, and tells ZeroMQ the node's name, which ZeroMQ attaches to each message.
 *
 * Threads: the authenticator is a thread of its own with two sockets, which the owner made. It ends
 * when the context is terminated. Everything else is constant after zmq_curve_new. */
#include "io/net/transport/zmq/zmq_curve.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <zmq.h>

#include <rubato/error.h>

#include "io/net/monotonic.h"
#include "io/net/secure/curve_keys.h"

#define ZAP_ADDRESS "inproc://zeromq.zap.01"
#define ZAP_DOMAIN "rubato"
#define MONITOR_ADDRESS "inproc://refused"

/* Between two lines in the log, because there may be many attempts. */
#define WARNING_MS 5000

#define REFUSED                                                                   \
    (ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | \
     ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)

struct ZmqCurve {
    /* immutable */
    RunSecret secret;
    CurveKeys own; /* as who connects */
    uint32_t n_nodes;
    pthread_t thread;

    /* the thread's */
    void *requests, *refusals;
    uint8_t (*nodes)[CURVE_KEY_BYTES]; /* the nodes' public keys as connecting ends, by number */
    int64_t warned_ms;
    uint64_t n_unsaid; /* refusals since then */
};

/* ---- the authenticator ---- */

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

/* The node whose key this is; n_nodes: none. */
static uint32_t find_node(const ZmqCurve *self, const ZapPart *key)
{
    uint32_t node = 0;

    if (key->size != CURVE_KEY_BYTES)
        return self->n_nodes;
    while (node < self->n_nodes && memcmp(self->nodes[node], key->bytes, CURVE_KEY_BYTES) != 0)
        node++;
    return node;
}

static void answer_request(const ZmqCurve *self, const ZapPart *parts, size_t n_parts)
{
    const bool is_curve = n_parts == ZAP_MAX_PARTS && parts[ZAP_MECHANISM].size == 5 &&
                          memcmp(parts[ZAP_MECHANISM].bytes, "CURVE", 5) == 0;
    const uint32_t node = is_curve ? find_node(self, &parts[ZAP_CREDENTIALS]) : self->n_nodes;
    const bool is_known = node < self->n_nodes;
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

/* One line in the log for so many ms; the others are counted. A failure without detail: the time of
 * the connection was over, or its other end has ended it. An end that does not know the secret may
 * do so first, because it cannot accept this one either. */
static void note_refusal(ZmqCurve *self, const ZapPart *event)
{
    const int64_t now_ms = monotonic_ms();
    uint16_t what = 0;

    if (event->size >= sizeof what)
        memcpy(&what, event->bytes, sizeof what);
    if (now_ms - self->warned_ms < WARNING_MS) {
        self->n_unsaid++;
        return;
    }
    self->warned_ms = now_ms;
    g_warning("dropped a connection over ZeroMQ: %s; %" G_GUINT64_FORMAT
              " more since the last such line",
              what == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL
                  ? "it has ended, or its time has, before it proved that it belongs to this run"
                  : "it does not know this run's secret",
              self->n_unsaid);
    self->n_unsaid = 0;
}

/* Serves until the context is terminated. */
static void *authenticate(void *data)
{
    ZmqCurve *const self = data;
    zmq_pollitem_t items[] = { { .socket = self->requests, .events = ZMQ_POLLIN },
                               { .socket = self->refusals, .events = ZMQ_POLLIN } };

    for (uint32_t node = 0; node < self->n_nodes; node++) {
        g_auto(CurveKeys) keys;

        curve_keys_derive(&self->secret, CURVE_ROLE_CONNECTS, node, &keys);
        memcpy(self->nodes[node], keys.public_key, CURVE_KEY_BYTES);
    }
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

static bool set_up_router(const ZmqCurve *self, void *router, uint32_t node)
{
    g_auto(CurveKeys) keys;

    curve_keys_derive(&self->secret, CURVE_ROLE_LISTENS, node, &keys);
    return set_int(router, ZMQ_CURVE_SERVER, 1) &&
           zmq_setsockopt(router, ZMQ_CURVE_SECRETKEY, keys.secret_key, CURVE_KEY_BYTES) == 0 &&
           zmq_setsockopt(router, ZMQ_ZAP_DOMAIN, ZAP_DOMAIN, strlen(ZAP_DOMAIN)) == 0 &&
           zmq_socket_monitor(router, MONITOR_ADDRESS, REFUSED) == 0;
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

ZmqCurve *zmq_curve_new(void *context, void *router, const TransportConfig *config, GError **error)
{
    ZmqCurve *const self = g_new0(ZmqCurve, 1);

    self->secret = *config->secret;
    self->n_nodes = config->n_nodes;
    self->nodes = g_malloc0_n(MAX(config->n_nodes, 1), sizeof *self->nodes);
    self->warned_ms = INT64_MIN / 2;
    curve_keys_derive(&self->secret, CURVE_ROLE_CONNECTS, config->self, &self->own);
    if (zmq_has("curve") == 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "this ZeroMQ was built without CURVE, by which nodes prove the secret of the "
                    "run to one another: use the transport \"tcp\"");
        goto free_keys;
    }
    if ((self->requests = open_socket(context, ZMQ_REP)) == NULL ||
        (self->refusals = open_socket(context, ZMQ_PAIR)) == NULL ||
        zmq_bind(self->requests, ZAP_ADDRESS) != 0 || !set_up_router(self, router, config->self) ||
        zmq_connect(self->refusals, MONITOR_ADDRESS) != 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK, "cannot set up CURVE: %s",
                    zmq_strerror(zmq_errno()));
        goto close_sockets;
    }
    const int code = pthread_create(&self->thread, NULL, authenticate, self);
    if (code == 0)
        return self;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                "cannot start the thread that authenticates nodes: %s", g_strerror(code));

close_sockets:
    if (self->requests != NULL)
        zmq_close(self->requests);
    if (self->refusals != NULL)
        zmq_close(self->refusals);
free_keys:
    run_secret_clear(&self->secret);
    curve_keys_clear(&self->own);
    g_free(self->nodes);
    g_free(self);
    return NULL;
}

void zmq_curve_free(ZmqCurve *self)
{
    if (self == NULL)
        return;
    pthread_join(self->thread, NULL);
    run_secret_clear(&self->secret);
    curve_keys_clear(&self->own);
    g_free(self->nodes);
    g_free(self);
}

bool zmq_curve_set_up_dealer(const ZmqCurve *self, void *dealer, uint32_t node)
{
    g_auto(CurveKeys) its = { 0 };

    if (node == HANDSHAKE_ANY_NODE) {
        errno = EINVAL; /* it names no node, and so no key */
        return false;
    }
    curve_keys_derive(&self->secret, CURVE_ROLE_LISTENS, node, &its);
    return zmq_setsockopt(dealer, ZMQ_CURVE_SERVERKEY, its.public_key, CURVE_KEY_BYTES) == 0 &&
           zmq_setsockopt(dealer, ZMQ_CURVE_PUBLICKEY, self->own.public_key, CURVE_KEY_BYTES) ==
               0 &&
           zmq_setsockopt(dealer, ZMQ_CURVE_SECRETKEY, self->own.secret_key, CURVE_KEY_BYTES) == 0;
}

uint32_t zmq_curve_node_of(void *message)
{
    const char *const name = zmq_msg_gets(message, "User-Id");

    return name != NULL && *name != '\0' ? (uint32_t)strtoul(name, NULL, 10) : HANDSHAKE_ANY_NODE;
}
