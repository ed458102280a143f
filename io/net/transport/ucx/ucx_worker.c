/* UCX's worker: messages that leave and come, and endpoints that are closed. Packets are messages
 * with a tag, the number of the way, and all of them are sent eagerly: so nothing that comes makes
 * this node ask the sender for the rest, and they keep their order where UCX uses one network.
 *
 * They are no active messages, because those make UCX 1.13 exchange the numbers of endpoints first,
 * and it aborts if a node dies meanwhile (an assertion in ucp_request_send_state_ff that 1.14 does
 * not have any more).
 *
 * Threads: see transport_ucx.h. */
#include <errno.h>
#include <inttypes.h>
#include <rubato/error.h>
#include <string.h>
#include <unistd.h>

#include "io/net/link/wire.h"
#include "io/net/monotonic.h"
#include "io/net/transport/ucx/transport_ucx.h"

void ucx_worker_leave(UcxTransport *self)
{
    const bool slept = self->is_armed;
    const uint64_t one = 1;

    self->is_armed = false;
    pthread_mutex_unlock(&self->lock);
    if (slept && write(self->wake_fd, &one, sizeof one) == -1)
        g_assert(errno == EAGAIN || errno == EINTR); /* EAGAIN: it is readable anyway */
}

/* ---- what leaves ---- */

/* A message on its way. */
typedef struct {
    const UcxLibrary *ucx;
    uint8_t head[UCX_HEAD_BYTES];
    Packet *packet;     /* whose bytes they are */
    uint8_t *sealed;    /* or these, which are encrypted */
    ucp_dt_iov_t of[2]; /* the head, and the bytes */
} Sending;

static void free_sending(Sending *sending)
{
    packet_unref(sending->packet);
    g_free(sending->sealed);
    g_free(sending);
}

static void sent(void *request, ucs_status_t status, void *data)
{
    Sending *const sending = data;

    (void)status; /* the endpoint's handler tells of an error */
    sending->ucx->ucp_request_free(request);
    free_sending(sending);
}

bool ucx_worker_send(UcxChannel *channel, Packet *packet)
{
    const UcxLibrary *const ucx = channel->transport->ucx;
    Sending *const sending = g_new0(Sending, 1);
    const ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb = { .send = sent },
        .datatype = UCP_DATATYPE_IOV,
        .user_data = sending,
    };

    packet_ref(packet);
    sending->ucx = ucx;
    sending->packet = packet;
    if (channel->seal.protection == PROTECTION_ENCRYPT)
        sending->sealed = g_try_malloc(packet->size);
    if (channel->seal.protection == PROTECTION_ENCRYPT && sending->sealed == NULL) {
        free_sending(sending);
        return false; /* the nodes meet again, and the link sends it again */
    }
    wire_store_u64(sending->head, channel->seal.n_pieces);
    seal_close(&channel->seal, packet->bytes, packet->size, sending->sealed, sending->head + 8);
    sending->of[0] = (ucp_dt_iov_t){ sending->head, sizeof sending->head };
    sending->of[1] =
        (ucp_dt_iov_t){ sending->sealed != NULL ? sending->sealed : packet->bytes, packet->size };
    void *const request = ucx->ucp_tag_send_nbx(channel->end->endpoint, sending->of,
                                                G_N_ELEMENTS(sending->of), channel->link, &param);
    if (request == NULL || UCS_PTR_IS_ERR(request))
        free_sending(sending);
    return request == NULL || !UCS_PTR_IS_ERR(request);
}

/* ---- what comes ---- */

/* A message of which the rest is still coming. If its sender ends before, it stays until the worker
 * ends: UCX does not tell. */
typedef struct {
    UcxTransport *transport;
    uint32_t link; /* its tag */
    UcxArrived *arrived;
} Coming;

/* Packets of a link that are dropped are told so often. */
#define WARN_AGAIN_MS 5000

/* A stranger who speaks UCX can write any packet. It is dropped, and does no more harm than that:
 * the link still opens the next packet of its node, which has a number of its own. */
static void drop(UcxLink *link, UcxArrived *arrived)
{
    const int64_t now_ms = monotonic_ms();

    link->n_dropped++;
    if (link->warned_ms == 0 || now_ms - link->warned_ms >= WARN_AGAIN_MS) {
        g_warning("dropped packets that came over UCX as of %s, %" PRIu64 " in number: changed on "
                  "their way, or forged",
                  link->address, link->n_dropped);
        link->warned_ms = now_ms;
        link->n_dropped = 0;
    }
    g_free(arrived);
}

/* Whether it is a packet of the node, and later than those before it. What is missing in between
 * the node sends again. */
static bool open_packet(UcxLink *link, UcxArrived *arrived)
{
    const uint64_t number = wire_load_u64(arrived->head), expected = link->seal.n_pieces;

    if (number < expected)
        return false;
    link->seal.n_pieces = number;
    if (seal_open(&link->seal, arrived->bytes, arrived->size, arrived->head + 8))
        return true;
    link->seal.n_pieces = expected;
    return false;
}

/* All of the message is here. A number that nobody has given is of a link that was dropped. */
static void take(UcxTransport *self, uint32_t number, UcxArrived *arrived)
{
    UcxLink *const link = g_hash_table_lookup(self->links, GUINT_TO_POINTER(number));

    if (link == NULL) {
        g_free(arrived);
        return;
    }
    if (!open_packet(link, arrived)) {
        drop(link, arrived);
        return;
    }
    arrived->node = link->node;
    arrived->incarnation = link->incarnation;
    arrived->address = g_strdup(link->address);
    link->used_ms = monotonic_ms();
    g_queue_push_tail(&self->inbox, arrived);
}

/* UCX has no more of it. */
static void end_coming(Coming *coming, ucs_status_t status)
{
    g_ptr_array_remove_fast(coming->transport->coming, coming);
    if (status == UCS_OK)
        take(coming->transport, coming->link, coming->arrived);
    else
        g_free(coming->arrived);
    g_free(coming);
}

static void come(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *data)
{
    Coming *const coming = data;

    (void)info;
    coming->transport->ucx->ucp_request_free(request);
    end_coming(coming, status);
}

/* Takes the rest of a message whose begin has come. */
static void receive(UcxTransport *self, const ucp_tag_recv_info_t *info, ucp_tag_message_h message)
{
    /* what no channel has sent, and what there is no memory for, is cut off */
    const bool is_packet = info->length >= UCX_HEAD_BYTES && info->sender_tag <= UINT32_MAX &&
                           info->length <= UCX_HEAD_BYTES + WIRE_MAX_PACKET_BYTES;
    const size_t size = is_packet ? info->length - UCX_HEAD_BYTES : 0;
    UcxArrived *const memory = is_packet ? g_try_malloc(sizeof(UcxArrived) + size) : NULL;
    UcxArrived *const arrived = memory != NULL ? memory : g_new(UcxArrived, 1);
    Coming *const coming = g_new(Coming, 1);
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb = { .recv = come },
        .user_data = coming,
    };

    /* no link has the number 0 */
    *coming = (Coming){ self, memory != NULL ? (uint32_t)info->sender_tag : 0, arrived };
    coming->arrived->size = size;
    g_ptr_array_add(self->coming, coming);
    void *const request = self->ucx->ucp_tag_msg_recv_nbx(
        self->worker, coming->arrived->head, memory != NULL ? info->length : 0, message, &param);
    if (!UCS_PTR_IS_PTR(request)) /* at once: nothing is called back */
        end_coming(coming, UCS_PTR_RAW_STATUS(request));
}

/* Whether there was anything to do. */
static bool progress(UcxTransport *self)
{
    ucp_tag_recv_info_t info;
    ucp_tag_message_h message;
    bool was_busy = self->ucx->ucp_worker_progress(self->worker) > 0;

    while ((message = self->ucx->ucp_tag_probe_nb(self->worker, 0, 0, 1, &info)) != NULL) {
        receive(self, &info, message);
        was_busy = true;
    }
    return was_busy;
}

/* ---- endpoints that are closed ---- */

/* So long UCX may take to close an endpoint at once. */
#define CLOSE_MS 1000

typedef struct {
    UcxEnd *end;
    void *request;    /* UCX's; NULL: none is under way */
    int64_t until_ms; /* nobody waits for it any longer then */
} Leaving;

/* Whether nothing is under way any more. */
static bool has_ended(const UcxLibrary *ucx, Leaving *leaving)
{
    if (leaving->request == NULL)
        return true;
    if (ucx->ucp_request_check_status(leaving->request) == UCS_INPROGRESS)
        return false;
    ucx->ucp_request_free(leaving->request);
    return true;
}

void ucx_worker_close(UcxTransport *self, UcxEnd *end, unsigned linger_ms)
{
    const bool lingers = linger_ms > 0 && !end->has_failed;
    const ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                        .flags = lingers ? 0 : UCP_EP_CLOSE_FLAG_FORCE };
    Leaving *const leaving = g_new(Leaving, 1);

    *leaving = (Leaving){ .end = end,
                          .request = self->ucx->ucp_ep_close_nbx(end->endpoint, &param),
                          .until_ms = monotonic_ms() + (lingers ? linger_ms : CLOSE_MS) };
    if (UCS_PTR_IS_ERR(leaving->request))
        leaving->request = NULL;
    g_queue_push_tail(&self->leaving, leaving);
}

bool ucx_worker_go_on(UcxTransport *self)
{
    const int64_t now_ms = monotonic_ms();
    bool is_awaited = false;

    while (progress(self) && g_queue_is_empty(&self->inbox))
        ;
    for (guint n = self->leaving.length; n > 0; n--) {
        Leaving *const leaving = g_queue_pop_head(&self->leaving);

        if (has_ended(self->ucx, leaving)) {
            g_free(leaving->end);
            g_free(leaving);
            continue;
        }
        is_awaited = is_awaited || now_ms < leaving->until_ms;
        g_queue_push_tail(&self->leaving, leaving);
    }
    return is_awaited;
}

void ucx_worker_end(UcxTransport *self)
{
    Leaving *leaving;

    /* A worker must not end before the requests are given back that nobody waits for any longer. */
    for (GList *at = self->leaving.head; at != NULL; at = at->next) {
        Leaving *const late = at->data;

        if (late->request != NULL)
            self->ucx->ucp_request_free(late->request);
    }
    if (self->address != NULL)
        self->ucx->ucp_worker_release_address(self->worker, self->address);
    if (self->worker != NULL)
        self->ucx->ucp_worker_destroy(self->worker);
    while (self->coming->len > 0)
        end_coming(g_ptr_array_index(self->coming, 0), UCS_ERR_CANCELED);
    g_ptr_array_unref(self->coming);
    while ((leaving = g_queue_pop_head(&self->leaving)) != NULL) {
        g_free(leaving->end);
        g_free(leaving);
    }
}

/* ---- its begin ---- */

bool ucx_worker_begin(UcxTransport *self, int *fd, GError **error)
{
    const UcxLibrary *const ucx = self->ucx;
    const ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
        .events = UCP_WAKEUP_RX | UCP_WAKEUP_TX,
    };
    ucs_status_t status = ucx->ucp_worker_create(self->context, &params, &self->worker);

    if (status == UCS_OK)
        status = ucx->ucp_worker_get_efd(self->worker, fd);
    if (status == UCS_OK)
        status = ucx->ucp_worker_get_address(self->worker, &self->address, &self->address_bytes);
    if (status != UCS_OK)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK, "cannot make a worker of UCX: %s",
                    ucx->ucs_status_string(status));
    return status == UCS_OK;
}
