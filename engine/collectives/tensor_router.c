/* Messages of collectives between nodes: see tensor_router.h. */
#include "engine/collectives/tensor_router.h"

#include <string.h>

#include "io/net/monotonic.h"

enum {
    LOOK_MS = 200,    /* between two looks whether a wait for room is over */
    FULL_WINDOWS = 4, /* on their way to a node: others than waiting threads send no more */
};

/* An exchange and its task. */
typedef struct {
    TensorRouter *router;
    uint32_t epoch;
    TensorExchange *exchange;
    uint32_t n_users; /* threads that are in it; guarded by the router's lock */
} Port;

struct TensorRouter {
    /* immutable */
    PostOffice *office;
    void (*tell_scheduler)(void *user, const Control *control);
    void *user;

    pthread_mutex_t lock;
    pthread_cond_t unused; /* a port has no users any more */
    /* guarded by lock */
    GHashTable *ports; /* by epoch */
};

/* ---- the exchange's links ---- */

static void *new_message(void *user, const TensorMessage *message, void **bytes)
{
    const Port *const port = user;
    Frame *const frame = network_new_frame(
        port->router->office->network,
        &(WireHeader){ .kind = MESSAGE_TENSOR,
                       .epoch = port->epoch,
                       .value_bytes = TENSOR_MESSAGE_HEADER_BYTES + message->n_bytes });

    if (frame == NULL)
        return NULL;
    uint8_t *const values = frame_values(frame);
    tensor_message_write(message, values);
    *bytes = values + TENSOR_MESSAGE_HEADER_BYTES;
    return frame;
}

static void send_message(void *user, uint32_t node, void *message)
{
    network_send(((const Port *)user)->router->office->network, node, message);
}

static void forget(void *user, void *message)
{
    (void)user;
    frame_free(message);
}

static void *keep(void *user, void *message, const void **bytes)
{
    Incoming *const kept = incoming_detach(message);

    (void)user;
    *bytes = (const uint8_t *)kept->values + TENSOR_MESSAGE_HEADER_BYTES;
    if (incoming_park(kept, 0))
        return kept;
    incoming_free(kept);
    return NULL;
}

static void drop(void *user, void *message)
{
    (void)user;
    incoming_free(message);
}

static void tell(void *user, const char *wishes)
{
    const Port *const port = user;

    port->router->tell_scheduler(
        port->router->user,
        &(Control){ .kind = CONTROL_ENQUEUE, .enqueue = { port->epoch, wishes } });
}

static bool is_full(void *user, uint32_t node)
{
    return network_is_full(((const Port *)user)->router->office->network, node, FULL_WINDOWS);
}

static void wait_room(void *user, uint32_t node, bool (*is_over)(void *data), void *data)
{
    Network *const network = ((const Port *)user)->router->office->network;

    while (!is_over(data) && !network_is_stopping(network) &&
           !network_wait_room(network, node, is_over, data, LOOK_MS))
        continue;
}

static void wait_call(void *user, Call *call, int timeout_ms)
{
    network_help(((const Port *)user)->router->office->network, call, timeout_ms);
}

static const TensorLinks links = {
    .carrier = { .new_message = new_message,
                 .send = send_message,
                 .forget = forget,
                 .keep = keep,
                 .drop = drop },
    .tell = tell,
    .is_full = is_full,
    .wait_room = wait_room,
    .wait = wait_call,
};

/* ---- life ---- */

TensorRouter *tensor_router_new(PostOffice *office,
                                void (*tell_scheduler)(void *user, const Control *control),
                                void *user)
{
    TensorRouter *const router = g_new0(TensorRouter, 1);

    router->office = office;
    router->tell_scheduler = tell_scheduler;
    router->user = user;
    pthread_mutex_init(&router->lock, NULL);
    monotonic_cond_init(&router->unused);
    router->ports = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    return router;
}

void tensor_router_free(TensorRouter *router)
{
    if (router == NULL)
        return;
    g_hash_table_unref(router->ports);
    pthread_cond_destroy(&router->unused);
    pthread_mutex_destroy(&router->lock);
    g_free(router);
}

void tensor_router_add(TensorRouter *router, uint32_t epoch, TensorExchange *exchange)
{
    Port *const port = g_new0(Port, 1);

    *port = (Port){ .router = router, .epoch = epoch, .exchange = exchange };
    tensor_exchange_link(exchange, &links, port);
    pthread_mutex_lock(&router->lock);
    g_hash_table_insert(router->ports, GUINT_TO_POINTER(epoch), port);
    pthread_mutex_unlock(&router->lock);
}

void tensor_router_remove(TensorRouter *router, uint32_t epoch)
{
    pthread_mutex_lock(&router->lock);
    Port *const port = g_hash_table_lookup(router->ports, GUINT_TO_POINTER(epoch));
    if (port != NULL) {
        g_hash_table_steal(router->ports, GUINT_TO_POINTER(epoch));
        while (port->n_users > 0)
            pthread_cond_wait(&router->unused, &router->lock);
    }
    pthread_mutex_unlock(&router->lock);
    g_free(port);
}

/* ---- what comes ---- */

/* NULL: no such task has collectives here. */
static Port *enter(TensorRouter *router, uint32_t epoch)
{
    pthread_mutex_lock(&router->lock);
    Port *const port = g_hash_table_lookup(router->ports, GUINT_TO_POINTER(epoch));
    if (port != NULL)
        port->n_users++;
    pthread_mutex_unlock(&router->lock);
    return port;
}

static void leave(Port *port)
{
    TensorRouter *const router = port->router;

    pthread_mutex_lock(&router->lock);
    if (--port->n_users == 0)
        pthread_cond_broadcast(&router->unused);
    pthread_mutex_unlock(&router->lock);
}

const char *tensor_router_receive(TensorRouter *router, Incoming *incoming)
{
    TensorMessage message;
    const char *wrong = tensor_message_read(incoming->values, incoming->value_bytes, &message);
    Port *const port = wrong == NULL ? enter(router, incoming->header.epoch) : NULL;

    if (port == NULL) { /* nonsense, or late: the task has ended here */
        incoming_free(incoming);
        return wrong;
    }
    wrong = tensor_exchange_receive(port->exchange, incoming->node, &message, incoming);
    if (wrong != NULL)
        incoming_free(incoming);
    leave(port);
    return wrong;
}

bool tensor_router_decide(TensorRouter *router, const ControlTensors *decide)
{
    Port *const port = enter(router, decide->epoch);

    if (port == NULL)
        return true;
    const bool ok = tensor_exchange_hear(port->exchange, decide->lines);
    leave(port);
    return ok;
}
