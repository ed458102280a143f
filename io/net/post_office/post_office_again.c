/* Requests that are sent again, because the server that had their part is lost, or may be.
 *
 * A request that waits for its answer is all that is needed: its caller keeps its keys, input and
 * output until the call has ended, and its slot has the rest. It is sent again with the id that it
 * had. So the server knows whether it has had the request, and only the first answer that comes
 * finds the slot.
 *
 * A call may be cancelled at any time, and its caller then frees what it has kept. So all that is
 * sent is copied under the lock. What goes to a server of this node is taken out of its slot, like
 * a request that was local from the beginning: its server always answers.
 *
 * Threads: any. A worker of this node that sends to the part meanwhile would come in between, so
 * the part's map is closed; but for requests to the server that had the part before, this does no
 * harm. */
#include "io/net/post_office/post_office_private.h"

static int compare(gconstpointer one, gconstpointer other)
{
    const uint64_t a = (*(const PendingRequest *const *)one)->id;
    const uint64_t b = (*(const PendingRequest *const *)other)->id;

    return a < b ? -1 : a > b;
}

/* By the order in which they were sent: to one node, or to any. The lock is held until the caller
 * has done with them. */
#define ANY_NODE UINT32_MAX
static GPtrArray *find_requests(PostOffice *office, uint32_t node, uint32_t table, uint32_t part)
{
    GPtrArray *const found = g_ptr_array_new();

    for (uint32_t i = 0; i < office->n_pending_slots; i++) {
        PendingRequest *const slot = &office->pending[i];

        if (slot->call != NULL && slot->table == table && slot->part == part &&
            (node == ANY_NODE || slot->node == node))
            g_ptr_array_add(found, slot);
    }
    g_ptr_array_sort(found, compare);
    return found;
}

static Message message_of(const PostOffice *office, const PendingRequest *request, uint32_t server)
{
    Message message = { .kind = request->kind,
                        .epoch = request->epoch,
                        .table = request->table,
                        .part = request->part,
                        .server = server,
                        .node = office->self,
                        .call = request->call,
                        .request = { .worker = request->worker,
                                     .clock = request->clock,
                                     .keys = request->keys,
                                     .input = request->input,
                                     .output = request->output },
                        .row_bytes = request->input_row_bytes,
                        .sequence = request->id };

    if (request->kind == MESSAGE_TUNE)
        message.request.tuning = request->tuning;
    if (request->kind == MESSAGE_ANNOUNCE)
        message.request.n_announced = request->n_announced;
    return message;
}

static void end_own(Message *message)
{
    message_end_call(message);
    g_free(message);
}

/* A direct read of an answer of the node that was asked before is over, as nothing is taken in from
 * it any more. */
static void set_node(PendingRequest *request, uint32_t node)
{
    if (request->node == node)
        return;
    if (request->direct != NULL)
        direct_read_revoke(request->direct);
    request->direct = NULL;
    request->node = node;
}

static void send_to_node(PostOffice *office, const GPtrArray *requests, uint32_t server)
{
    const uint32_t node = office->servers[server].node;

    for (guint i = 0; i < requests->len; i++) {
        PendingRequest *const request = g_ptr_array_index(requests, i);
        const Message message = message_of(office, request, server);
        Frame *const frame =
            post_office_make_frame(office, &message, &request->keys, request->input);

        if (frame == NULL)
            g_error("no memory to send a request again, to server %u, which has its part now; the "
                    "node ends here",
                    server);
        frame_header(frame)->request.id = request->id;
        set_node(request, node);
        network_push(office->network, node, frame);
    }
}

/* For a server of this node, in their order. */
static Message *take_here(PostOffice *office, const GPtrArray *requests, uint32_t server)
{
    Message *first = NULL, **last = &first;

    for (guint i = 0; i < requests->len; i++) {
        PendingRequest *const request = g_ptr_array_index(requests, i);
        Message *const message = g_new(Message, 1);

        *message = message_of(office, request, server);
        message->end = end_own;
        (void)post_office_take_slot(office, (uint32_t)(request - office->pending));
        *last = message;
        last = &message->next;
    }
    return first;
}

/* Takes the calls of handlers out of the list. (transfer full) */
static GArray *take_handlers(PostOffice *office, GPtrArray *requests)
{
    GArray *const handlers = g_array_new(FALSE, FALSE, sizeof(PendingRequest));

    for (guint i = requests->len; i-- > 0;) {
        const PendingRequest *const request = g_ptr_array_index(requests, i);

        if (request->kind != MESSAGE_HANDLER)
            continue;
        const PendingRequest taken =
            post_office_take_slot(office, (uint32_t)(request - office->pending));

        g_array_append_val(handlers, taken);
        g_ptr_array_remove_index(requests, i);
    }
    return handlers;
}

/* They cannot be sent again from here. A caller that waits calls again by the next map; the others
 * say that the node was lost. */
static void end_as_moved(const GArray *requests)
{
    for (guint i = 0; i < requests->len; i++) {
        const PendingRequest *const taken = &g_array_index(requests, PendingRequest, i);

        post_office_free_pieces(taken->pieces);
        call_note_mover(taken->call, taken->node | CALL_MOVER_LOST);
        call_end_part(taken->call, CALL_MOVED, UINT64_MAX);
    }
}

/* The lock is held. The messages are for a server of this node; NULL: they have been sent. */
static Message *send_all(PostOffice *office, const GPtrArray *requests, uint32_t server)
{
    if (post_office_is_local(office, server))
        return take_here(office, requests, server);
    send_to_node(office, requests, server);
    return NULL;
}

static void post_all(PostOffice *office, Message *here, uint32_t server)
{
    for (Message *next; here != NULL; here = next) {
        next = here->next;
        actor_post(office->servers[server].actor, here);
    }
}

void post_office_send_again(PostOffice *office, uint32_t table, uint32_t part, uint32_t server)
{
    pthread_mutex_lock(&office->lock);
    g_autoptr(GPtrArray) requests = find_requests(office, ANY_NODE, table, part);
    g_autoptr(GArray) handlers = take_handlers(office, requests);
    Message *const here = send_all(office, requests, server);
    pthread_mutex_unlock(&office->lock);

    post_all(office, here, server);
    end_as_moved(handlers);
    post_office_flush(office);
}

/* Takes out of the list, and out of their slots, those that were handled and have no rows to
 * read. (transfer full) */
static GArray *take_handled(PostOffice *office, GPtrArray *requests)
{
    GArray *const handled = g_array_new(FALSE, FALSE, sizeof(PendingRequest));

    for (guint i = requests->len; i-- > 0;) {
        PendingRequest *const request = g_ptr_array_index(requests, i);

        if (request->row_bytes > 0) {
            request->input = NULL;
            request->kind = request->kind == MESSAGE_ADD_GET ? MESSAGE_GET : request->kind;
            continue;
        }
        const PendingRequest taken =
            post_office_take_slot(office, (uint32_t)(request - office->pending));

        g_array_append_val(handled, taken);
        g_ptr_array_remove_index(requests, i);
    }
    return handled;
}

void post_office_ask_again(PostOffice *office, uint32_t node, uint32_t table, uint32_t part,
                           uint32_t server)
{
    pthread_mutex_lock(&office->lock);
    g_autoptr(GPtrArray) requests = find_requests(office, node, table, part);
    g_autoptr(GArray) handlers = take_handlers(office, requests);
    g_autoptr(GArray) handled = take_handled(office, requests);
    Message *const here = send_all(office, requests, server);
    pthread_mutex_unlock(&office->lock);

    post_all(office, here, server);
    for (guint i = 0; i < handled->len; i++)
        call_end_part(g_array_index(handled, PendingRequest, i).call, CALL_OK, UINT64_MAX);
    end_as_moved(handlers);
    post_office_flush(office);
}

static gint compare_parts(gconstpointer one, gconstpointer other)
{
    const AskedPart *const a = one, *const b = other;

    if (a->table != b->table)
        return a->table < b->table ? -1 : 1;
    return a->part < b->part ? -1 : a->part > b->part;
}

GArray *post_office_list_asked(PostOffice *office, uint32_t node)
{
    GArray *const parts = g_array_new(FALSE, FALSE, sizeof(AskedPart));

    pthread_mutex_lock(&office->lock);
    for (uint32_t i = 0; i < office->n_pending_slots; i++) {
        const PendingRequest *const slot = &office->pending[i];

        if (slot->call != NULL && slot->node == node && slot->table != MESSAGE_NO_TABLE)
            g_array_append_val(parts, ((AskedPart){ slot->table, slot->part }));
    }
    pthread_mutex_unlock(&office->lock);
    g_array_sort(parts, compare_parts);
    for (guint i = parts->len; i-- > 1;)
        if (compare_parts(&g_array_index(parts, AskedPart, i),
                          &g_array_index(parts, AskedPart, i - 1)) == 0)
            g_array_remove_index(parts, i);
    return parts;
}
