/* CURVE (https://rfc.zeromq.org/spec/26) with keys that are made from the secret of the run.
 *
 * The connecting end must know the public key of the listener before it can say anything, because
 * its first message is encrypted for that key. The key is never sent. The listener must know the
 * secret half to decrypt the message. Both keys come from the run's secret, so each end has proved
 * the secret to the other. The proof holds for this connection alone, because both ends draw new
 * keys for each connection. Then the connecting end sends its own public key, encrypted. ZeroMQ
 * asks the gate (zmq_gate.h) whose key it is. The gate tells ZeroMQ the node's name, which ZeroMQ
 * attaches to each message.
 *
 * Threads: the public keys of the nodes are the gate's. Everything else is constant after
 * zmq_curve_new. */
#include "io/net/transport/zmq/zmq_curve.h"

#include <errno.h>
#include <stdlib.h>
#include <zmq.h>

#include <rubato/error.h>

#include "io/net/secure/curve_keys.h"

struct ZmqCurve {
    /* immutable */
    RunSecret secret;
    CurveKeys own; /* as who connects */
    uint32_t self, n_nodes;

    /* the gate's */
    uint8_t (*nodes)[CURVE_KEY_BYTES]; /* the nodes' public keys as connecting ends, by number */
};

ZmqCurve *zmq_curve_new(const TransportConfig *config, GError **error)
{
    if (zmq_has("curve") == 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "this ZeroMQ was built without CURVE, by which nodes prove the secret of the "
                    "run to one another: use the transport \"tcp\"");
        return NULL;
    }
    ZmqCurve *const self = g_new0(ZmqCurve, 1);

    self->secret = *config->secret;
    self->self = config->self;
    self->n_nodes = config->n_nodes;
    self->nodes = g_malloc0_n(MAX(config->n_nodes, 1), sizeof *self->nodes);
    curve_keys_derive(&self->secret, CURVE_ROLE_CONNECTS, config->self, &self->own);
    return self;
}

void zmq_curve_free(ZmqCurve *self)
{
    if (self == NULL)
        return;
    run_secret_clear(&self->secret);
    curve_keys_clear(&self->own);
    g_free(self->nodes);
    g_free(self);
}

/* ---- who connects to this node ---- */

bool zmq_curve_set_up_router(const ZmqCurve *self, void *router)
{
    const int one = 1;
    g_auto(CurveKeys) keys;

    curve_keys_derive(&self->secret, CURVE_ROLE_LISTENS, self->self, &keys);
    return zmq_setsockopt(router, ZMQ_CURVE_SERVER, &one, sizeof one) == 0 &&
           zmq_setsockopt(router, ZMQ_CURVE_SECRETKEY, keys.secret_key, CURVE_KEY_BYTES) == 0;
}

void zmq_curve_derive_nodes(ZmqCurve *self)
{
    for (uint32_t node = 0; node < self->n_nodes; node++) {
        g_auto(CurveKeys) keys;

        curve_keys_derive(&self->secret, CURVE_ROLE_CONNECTS, node, &keys);
        memcpy(self->nodes[node], keys.public_key, CURVE_KEY_BYTES);
    }
}

uint32_t zmq_curve_find_node(const ZmqCurve *self, const uint8_t *key, size_t size)
{
    uint32_t node = 0;

    if (size != CURVE_KEY_BYTES)
        return HANDSHAKE_ANY_NODE;
    while (node < self->n_nodes && memcmp(self->nodes[node], key, CURVE_KEY_BYTES) != 0)
        node++;
    return node < self->n_nodes ? node : HANDSHAKE_ANY_NODE;
}

uint32_t zmq_curve_node_of(void *message)
{
    const char *const name = zmq_msg_gets(message, "User-Id");

    return name != NULL && *name != '\0' ? (uint32_t)strtoul(name, NULL, 10) : HANDSHAKE_ANY_NODE;
}

/* ---- to whom this node connects ---- */

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
