/* Messages of collectives between nodes: see tensor_router.h. */
#include "engine/collectives/tensor_router.h"

#include <string.h>

#include "engine/collectives/backend/backend_own.h"
#include "io/net/monotonic.h"

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
    TensorBackend *backend; /* NULL until nodes have met; there are no tasks before */
    void (*tell_scheduler)(void *user, const Control *control);
    void *user;

    pthread_mutex_t lock;
    pthread_cond_t unused; /* a port has no users any more */
    /* guarded by lock */
    GHashTable *ports; /* by epoch */
};

/* ---- the exchange's links ---- */

static TensorBackend *backend_of(void *user)
{
    return ((const Port *)user)->router->backend;
}

static void *new_message(void *user, uint32_t node, const TensorMessage *message, void **bytes)
{
    TensorBackend *const backend = backend_of(user);

    return backend->ways->new_message(backend, node, ((const Port *)user)->epoch, message, bytes);
}

static void *share_message(void *user, uint32_t node, const TensorMessage *message, void *first)
{
    TensorBackend *const backend = backend_of(user);

    return backend->ways->share_message == NULL
               ? NULL
               : backend->ways->share_message(backend, node, ((const Port *)user)->epoch, message,
                                              first);
}

static void *lend_message(void *user, uint32_t node, const TensorMessage *message, Call *readers)
{
    TensorBackend *const backend = backend_of(user);

    return backend->ways->lend_message == NULL
               ? NULL
               : backend->ways->lend_message(backend, node, ((const Port *)user)->epoch, message,
                                             readers);
}

static void revoke_lent(void *user)
{
    TensorBackend *const backend = backend_of(user);

    if (backend->ways->revoke != NULL)
        backend->ways->revoke(backend);
}

static void send_message(void *user, uint32_t node, void *message)
{
    TensorBackend *const backend = backend_of(user);

    backend->ways->send(backend, node, message);
}

static void send_with_next(void *user, uint32_t node, void *message)
{
    TensorBackend *const backend = backend_of(user);

    if (backend->ways->send_with_next != NULL)
        backend->ways->send_with_next(backend, node, message);
    else
        backend->ways->send(backend, node, message);
}

static void forget(void *user, uint32_t node, void *message)
{
    TensorBackend *const backend = backend_of(user);

    backend->ways->forget(backend, node, message);
}

static size_t best_bytes(void *user, uint32_t node)
{
    TensorBackend *const backend = backend_of(user);

    return backend->ways->best_bytes == NULL ? 0 : backend->ways->best_bytes(backend, node);
}

static void *keep(void *user, void *message, const void **bytes)
{
    TensorBackend *const backend = backend_of(user);

    return backend->ways->keep(backend, message, bytes);
}

static void drop(void *user, void *message)
{
    TensorBackend *const backend = backend_of(user);

    backend->ways->drop(backend, message);
}

static void tell(void *user, const char *notices)
{
    const Port *const port = user;

    port->router->tell_scheduler(
        port->router->user,
        &(Control){ .kind = CONTROL_ENQUEUE, .enqueue = { port->epoch, notices } });
}

static bool is_full(void *user, uint32_t node)
{
    TensorBackend *const backend = backend_of(user);

    return backend->ways->is_full(backend, node);
}

static bool wait_room(void *user, uint32_t node, bool (*is_over)(void *data), void *data,
                      int timeout_ms)
{
    TensorBackend *const backend = backend_of(user);

    return backend->ways->wait_room(backend, node, is_over, data, timeout_ms);
}

static bool reads_lent(void *user, uint32_t node)
{
    TensorBackend *const backend = backend_of(user);

    return backend->ways->reads_lent != NULL && backend->ways->reads_lent(backend, node);
}

/* Heartbeats come by the network, whatever the backend. */
static double silence_s(void *user, uint32_t node)
{
    const Network *const network = ((const Port *)user)->router->office->network;

    return (double)(network_now_ms() - network_heard_ms(network, node)) / 1000;
}

static void expect(void *user, bool expects)
{
    TensorBackend *const backend = backend_of(user);

    if (backend->ways->expect != NULL)
        backend->ways->expect(backend, expects);
}

static bool outlives_losses(void *user)
{
    return backend_of(user)->ways->outlives_losses;
}

static bool always_receives(void *user)
{
    return backend_of(user)->ways->expect == NULL;
}

/* Decisions come by the network, whatever the backend: so a worker helps to receive there. */
static void wait_call(void *user, Call *call, int timeout_ms)
{
    network_help(((const Port *)user)->router->office->network, call, timeout_ms);
}

static const TensorLinks links = {
    .carrier = { .new_message = new_message,
                 .share_message = share_message,
                 .lend_message = lend_message,
                 .send = send_message,
                 .send_with_next = send_with_next,
                 .forget = forget,
                 .best_bytes = best_bytes,
                 .keep = keep,
                 .drop = drop },
    .revoke = revoke_lent,
    .reads_lent = reads_lent,
    .tell = tell,
    .is_full = is_full,
    .wait_room = wait_room,
    .silence_s = silence_s,
    .wait = wait_call,
    .always_receives = always_receives,
    .outlives_losses = outlives_losses,
    .expect = expect,
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

static const char *receive(void *user, uint32_t node, uint32_t epoch, const TensorMessage *message,
                           void *owner);

static void broke(void *user, const char *text)
{
    const TensorRouter *const router = user;

    router->tell_scheduler(router->user, &(Control){ .kind = CONTROL_STOP, .stop = { text } });
}

bool tensor_router_open(TensorRouter *router, const char *name, GError **error)
{
    const TensorBackendOps *const ops = tensor_backend_find(name, error);

    if (ops != NULL)
        router->backend = ops->open(
            &(TensorBackendPlace){
                .office = router->office, .receive = receive, .broke = broke, .user = router },
            error);
    return router->backend != NULL;
}

void tensor_router_close(TensorRouter *router, unsigned patience_ms)
{
    if (router->backend != NULL)
        router->backend->ops->close(router->backend, patience_ms);
    router->backend = NULL;
}

void tensor_router_free(TensorRouter *router)
{
    if (router == NULL)
        return;
    tensor_router_close(router, 0);
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
    if (port != NULL)
        tensor_exchange_unlink(port->exchange);
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

/* From the backend. A port has been added since it was opened, so its users see it. */
static const char *receive(void *user, uint32_t node, uint32_t epoch, const TensorMessage *message,
                           void *owner)
{
    Port *const port = enter(user, epoch);

    if (port == NULL) { /* late: the task has ended here */
        TensorBackend *const backend = ((const TensorRouter *)user)->backend;

        backend->ways->drop(backend, owner);
        return NULL;
    }
    const char *const wrong = tensor_exchange_receive(port->exchange, node, message, owner);
    leave(port);
    return wrong;
}

const char *tensor_router_receive(TensorRouter *router, Incoming *incoming)
{
    TensorMessage message;
    const char *wrong = backend_own_take(router->office->network, incoming, &message);
    Port *const port = wrong == NULL ? enter(router, incoming->header.epoch) : NULL;

    if (port == NULL) { /* nonsense, or late: the task has ended here, or in the process before */
        backend_own_drop(incoming);
        return wrong;
    }
    if (router->backend->ops != &tensor_backend_own)
        wrong = "a piece of a tensor, which does not go by the network in this run";
    else if (message.bytes == NULL)
        wrong = "a piece of a tensor in memory that it does not lend";
    else
        wrong = tensor_exchange_receive(port->exchange, incoming->node, &message, incoming);
    if (wrong != NULL)
        backend_own_drop(incoming);
    leave(port);
    return wrong;
}

bool tensor_router_begin_direct(TensorRouter *router, uint32_t node, const WireHeader *header,
                                const void *first, DirectRead *direct)
{
    TensorMessage message;

    /* of what is lent no more than the head is read: it is smaller than all that comes here */
    if (tensor_message_read(first, (size_t)header->value_bytes, &message) != NULL)
        return false;
    Port *const port = enter(router, header->epoch);
    if (port == NULL)
        return false;
    const DirectPiece piece = { header->epoch, node, message.number };
    const bool begins = router->backend->ops == &tensor_backend_own &&
                        tensor_exchange_begin_direct(port->exchange, &message, &piece, direct);
    leave(port);
    return begins;
}

void tensor_router_end_direct(TensorRouter *router, DirectRead *direct)
{
    Port *const port = router == NULL ? NULL : enter(router, direct->piece.epoch);

    if (port == NULL) /* its operation has ended */
        return;
    tensor_exchange_end_direct(port->exchange, direct);
    leave(port);
}

void tensor_router_tick(TensorRouter *router)
{
    g_autoptr(GPtrArray) ports = g_ptr_array_new();
    GHashTableIter iter;
    gpointer port;

    pthread_mutex_lock(&router->lock);
    g_hash_table_iter_init(&iter, router->ports);
    while (g_hash_table_iter_next(&iter, NULL, &port)) {
        ((Port *)port)->n_users++;
        g_ptr_array_add(ports, port);
    }
    pthread_mutex_unlock(&router->lock);
    for (guint i = 0; i < ports->len; i++) {
        tensor_exchange_tick(((const Port *)ports->pdata[i])->exchange);
        leave(ports->pdata[i]);
    }
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
