/* Packets over UCX: the networks for RDMA (InfiniBand, RoCE) and what else UCX knows.
 *
 * UCX chooses the network, and who runs the program limits that by UCX's own variables
 * (UCX_NET_DEVICES, UCX_TLS). Two nodes meet over a connection of the TCP transport, at the address
 * of the transport (ucx_meeting.c): so strangers meet what nodes over TCP meet them with, and the
 * end of a node shows by the end of that connection.
 *
 * The worker's descriptor tells of news only after the worker was armed, which must be the last
 * thing that is done with it. Other threads send, too. So whoever uses the worker while the I/O
 * thread sleeps writes to an eventfd (ucx_worker_leave), and the I/O thread arms it again.
 *
 * Threads: see transport_ucx.h. */
#include <errno.h>
#include <rubato/error.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "io/net/transport/ucx/transport_ucx.h"

/* ---- receiving ---- */

static UcxArrived *arrived_of(Received *received)
{
    UcxArrived *arrived;

    memcpy(&arrived, received->memory, sizeof arrived);
    return arrived;
}

static void free_arrived(UcxArrived *arrived)
{
    g_free(arrived->address);
    g_free(arrived);
}

static void received_release(Received *received)
{
    free_arrived(arrived_of(received));
}

static void received_move(Received *to, Received *from)
{
    *to = *from;
}

static const char *received_address(Received *received)
{
    return arrived_of(received)->address;
}

static const ReceivedOps received_ops = {
    .release = received_release,
    .move = received_move,
    .address = received_address,
};

static void hand_over(UcxArrived *arrived, Received *received)
{
    received->ops = &received_ops;
    received->bytes = arrived->bytes;
    received->size = arrived->size;
    received->values = NULL;
    received->misshapen = received->lent = received->is_answer = false;
    received->node = arrived->node;
    received->incarnation = arrived->incarnation;
    received->connection = 0;
    memcpy(received->memory, &arrived, sizeof arrived);
}

/* What has come over TCP. */
static void meet(UcxTransport *self)
{
    Received received;

    while (self->meeting->ops->receive(self->meeting, &received)) {
        ucx_meeting_take(self, &received);
        received.ops->release(&received);
    }
}

/* Takes out a packet; NULL: there is none, and unless *is_busy the worker is armed. */
static UcxArrived *look(UcxTransport *self, bool *is_busy)
{
    UcxArrived *arrived;
    uint64_t n;

    pthread_mutex_lock(&self->lock);
    self->is_armed = *is_busy = false;
    arrived = g_queue_pop_head(&self->inbox);
    if (arrived == NULL) {
        if (read(self->wake_fd, &n, sizeof n) == -1)
            g_assert(errno == EAGAIN || errno == EINTR); /* nobody has written */
        (void)ucx_worker_go_on(self);
        arrived = g_queue_pop_head(&self->inbox);
    }
    if (arrived == NULL) {
        const ucs_status_t status = self->ucx->ucp_worker_arm(self->worker);

        *is_busy = status == UCS_ERR_BUSY;
        self->is_armed = status == UCS_OK;
    }
    pthread_mutex_unlock(&self->lock);
    return arrived;
}

static bool ucx_receive(Transport *transport, Received *received)
{
    UcxTransport *const self = (UcxTransport *)transport;
    UcxArrived *arrived;
    bool is_busy;

    meet(self);
    do
        arrived = look(self, &is_busy);
    while (arrived == NULL && is_busy);
    if (arrived != NULL)
        hand_over(arrived, received);
    return arrived != NULL;
}

static bool ucx_take_resets(Transport *transport)
{
    UcxTransport *const self = (UcxTransport *)transport;
    const bool on_meeting = self->meeting->ops->take_resets(self->meeting);

    pthread_mutex_lock(&self->lock);
    const bool was_reset = self->was_reset;
    self->was_reset = false;
    pthread_mutex_unlock(&self->lock);
    return on_meeting || was_reset;
}

static int ucx_poll_fd(Transport *transport)
{
    return ((UcxTransport *)transport)->poll_fd;
}

/* ---- the transport's life ---- */

/* What closed channels still have to send. */
static void finish(UcxTransport *self)
{
    bool is_done = false;

    while (!is_done) {
        struct epoll_event event;

        pthread_mutex_lock(&self->lock);
        is_done = !ucx_worker_go_on(self);
        pthread_mutex_unlock(&self->lock);
        if (!is_done)
            (void)epoll_wait(self->poll_fd, &event, 1, 1); /* some steps of a close are polled */
    }
}

static void ucx_destroy(Transport *transport)
{
    UcxTransport *const self = (UcxTransport *)transport;

    if (self->address != NULL)
        finish(self);
    ucx_worker_end(self);
    if (self->context != NULL)
        self->ucx->ucp_cleanup(self->context);
    if (self->meeting != NULL)
        self->meeting->ops->destroy(self->meeting);
    g_queue_clear_full(&self->inbox, (GDestroyNotify)free_arrived);
    g_hash_table_unref(self->links);
    g_hash_table_unref(self->channels);
    if (self->wake_fd != -1)
        close(self->wake_fd);
    if (self->poll_fd != -1)
        close(self->poll_fd);
    pthread_mutex_destroy(&self->lock);
    g_free(self);
}

/* What UCX's variables do not change. All messages are sent eagerly. And UCX need not look after
 * the nodes: the connections on which they meet do. */
static const struct {
    const char *name, *value;
} settings[] = { { "RNDV_THRESH", "inf" }, { "KEEPALIVE_INTERVAL", "inf" } };

static bool make_context(UcxTransport *self, GError **error)
{
    const UcxLibrary *const ucx = self->ucx;
    const ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME,
                                  .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
                                  .name = "rubato" };
    ucp_config_t *config;
    ucs_status_t status = ucx->ucp_config_read(NULL, NULL, &config);

    for (size_t i = 0; status == UCS_OK && i < G_N_ELEMENTS(settings); i++) {
        status = ucx->ucp_config_modify(config, settings[i].name, settings[i].value);
        if (status != UCS_OK)
            ucx->ucp_config_release(config);
    }
    if (status == UCS_OK) {
        status =
            ucx->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &self->context);
        ucx->ucp_config_release(config);
    }
    if (status != UCS_OK)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK, "cannot begin with UCX: %s",
                    ucx->ucs_status_string(status));
    return status == UCS_OK;
}

/* The transport on which nodes meet. Its packets have no values that could go anywhere. */
static bool make_meeting(UcxTransport *self, GError **error)
{
    TransportConfig config = self->config;

    memset(&config.direct, 0, sizeof config.direct);
    self->meeting = transport_tcp.create(&config, error);
    return self->meeting != NULL;
}

static bool watch(UcxTransport *self, int worker_fd, GError **error)
{
    const int fds[] = { worker_fd, self->wake_fd, self->meeting->ops->poll_fd(self->meeting) };
    struct epoll_event event = { .events = EPOLLIN };

    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++)
        if (epoll_ctl(self->poll_fd, EPOLL_CTL_ADD, fds[i], &event) != 0) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK, "cannot wait for UCX: %s",
                        g_strerror(errno));
            return false;
        }
    return true;
}

static void free_link(gpointer link)
{
    ucx_link_free(link);
}

static Transport *ucx_create(const TransportConfig *config, GError **error)
{
    const UcxLibrary *const ucx = ucx_library_load(error);
    int worker_fd;

    if (ucx == NULL)
        return NULL;
    UcxTransport *const self = g_new0(UcxTransport, 1);
    self->base.ops = &transport_ucx;
    self->ucx = ucx;
    self->config = *config;
    self->links = g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, free_link);
    self->channels = g_hash_table_new(g_direct_hash, g_direct_equal);
    g_queue_init(&self->inbox);
    g_queue_init(&self->leaving);
    self->coming = g_ptr_array_new();
    pthread_mutex_init(&self->lock, NULL);
    self->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    self->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (make_meeting(self, error) && make_context(self, error) &&
        ucx_worker_begin(self, &worker_fd, error) && watch(self, worker_fd, error))
        return &self->base;
    ucx_destroy(&self->base);
    return NULL;
}

/* The address of the same place in the other scheme. NULL: it is none of `from`. (transfer full) */
static char *translate(const char *endpoint, const char *from, const char *to, GError **error)
{
    const size_t n = strlen(from);

    if (strncmp(endpoint, from, n) == 0 && g_str_has_prefix(endpoint + n, "://"))
        return g_strconcat(to, endpoint + n, NULL);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                "\"%s\" is no address: write %s://HOST:PORT with a port from 0 to 65535", endpoint,
                from);
    return NULL;
}

static bool ucx_bind(Transport *transport, const char *endpoint, char **resolved, GError **error)
{
    UcxTransport *const self = (UcxTransport *)transport;
    g_autofree char *inner = translate(endpoint, UCX_SCHEME, transport_tcp.name, error);
    g_autofree char *bound = NULL;

    if (inner == NULL || !self->meeting->ops->bind(self->meeting, inner, &bound, error)) {
        if (inner != NULL)
            g_prefix_error(error, "%s: ", endpoint);
        return false;
    }
    *resolved = translate(bound, transport_tcp.name, UCX_SCHEME, error);
    return *resolved != NULL;
}

static Channel *ucx_connect(Transport *transport, const char *endpoint, const ChannelTarget *target,
                            GError **error)
{
    UcxTransport *const self = (UcxTransport *)transport;
    g_autofree char *inner = translate(endpoint, UCX_SCHEME, transport_tcp.name, error);
    ChannelTarget asked = target != NULL ? *target : (ChannelTarget){ .node = HANDSHAKE_ANY_NODE };

    if (inner == NULL)
        return NULL;
    asked.greets = true; /* the answer comes back */
    Channel *const meeting = self->meeting->ops->connect(self->meeting, inner, &asked, error);
    if (meeting == NULL)
        g_prefix_error(error, "%s: ", endpoint);
    return meeting != NULL ? ucx_channel_new(self, endpoint, meeting) : NULL;
}

const TransportOps transport_ucx = {
    .name = UCX_SCHEME,
    .create = ucx_create,
    .destroy = ucx_destroy,
    .bind = ucx_bind,
    .poll_fd = ucx_poll_fd,
    .receive = ucx_receive,
    .take_resets = ucx_take_resets,
    .connect = ucx_connect,
};
