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

/* Whether a request is that for whose answer the caller of a handler waits: the last piece. */
static bool is_whole_call(const PendingRequest *request)
{
    const HandlerCall *const call = request->handler_call;

    return call != NULL && request->keys.first + request->keys.n == call->n_payload_bytes;
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
    if (request->kind == MESSAGE_HANDLER) { /* the whole */
        message.request.handler_call = request->handler_call;
        message.request.keys = request->handler_call->sent_keys;
        message.request.input = NULL;
    }
    return message;
}

static void end_own(Message *message)
{
    if (message->kind == MESSAGE_HANDLER)
        handler_call_end(message);
    else
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

static void push_again(PostOffice *office, const Message *message, const RubatoKeys *keys,
                       const char *input, uint64_t id)
{
    Frame *const frame = post_office_make_frame(office, message, keys, input);

    if (frame == NULL)
        g_error("no memory to send a request again, to server %u, which has its part now; the "
                "node ends here",
                message->server);
    frame_header(frame)->request.id = id;
    network_push(office->network, office->servers[message->server].node, frame);
}

/* All pieces: the server that had got some of them is lost. Nobody waits for the answers to any but
 * the last one. What had come of an answer is not of the server that is asked now. */
static void push_call_again(PostOffice *office, PendingRequest *request, uint32_t server)
{
    const HandlerCall *const call = request->handler_call;
    const size_t most = post_office_max_keys(1), n = call->n_payload_bytes;
    g_autofree char *bytes = post_office_write_call(call);
    Message message = message_of(office, request, server);

    if (bytes == NULL)
        g_error("no memory to send the call of a handler again, to server %u, which has its part "
                "now; the node ends here",
                server);
    message.row_bytes = 1;
    for (size_t begin = 0; begin < n; begin += most) {
        const RubatoKeys keys = { .first = begin, .n = MIN(most, n - begin) };
        const bool is_last = begin + keys.n == n;

        push_again(office, &message, &keys, bytes + begin, is_last ? request->id : 0);
    }
    post_office_free_pieces(request->pieces);
    request->pieces = NULL;
    request->n_come = 0;
    /* as for the piece that it is now, if it is sent again once more */
    request->keys = (RubatoKeys){ .first = 0, .n = n };
}

static void send_to_node(PostOffice *office, const GPtrArray *requests, uint32_t server)
{
    for (guint i = 0; i < requests->len; i++) {
        PendingRequest *const request = g_ptr_array_index(requests, i);
        const Message message = message_of(office, request, server);

        if (request->kind == MESSAGE_HANDLER)
            push_call_again(office, request, server);
        else
            push_again(office, &message, &request->keys, request->input, request->id);
        set_node(request, office->servers[server].node);
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
        post_office_free_pieces(request->pieces); /* of a server that is lost */
        request->pieces = NULL;
        (void)post_office_take_slot(office, (uint32_t)(request - office->pending));
        *last = message;
        last = &message->next;
    }
    return first;
}

/* Takes out of the list the calls of handlers that cannot be sent again, and the pieces of others
 * but the last ones, which are sent with these. (transfer full) */
static GArray *take_handlers(PostOffice *office, GPtrArray *requests)
{
    GArray *const handlers = g_array_new(FALSE, FALSE, sizeof(PendingRequest));

    for (guint i = requests->len; i-- > 0;) {
        const PendingRequest *const request = g_ptr_array_index(requests, i);

        if (request->kind != MESSAGE_HANDLER || is_whole_call(request))
            continue;
        const PendingRequest taken =
            post_office_take_slot(office, (uint32_t)(request - office->pending));

        g_array_append_val(handlers, taken);
        g_ptr_array_remove_index(requests, i);
    }
    return handlers;
}

/* They cannot be sent again from here. A caller that waits calls again by the next map; the others
 * say that the node was lost. A piece has been sent again, with the last one of its call. */
static void end_as_moved(const GArray *requests)
{
    for (guint i = 0; i < requests->len; i++) {
        const PendingRequest *const taken = &g_array_index(requests, PendingRequest, i);
        const bool is_piece = taken->handler_call != NULL;

        post_office_free_pieces(taken->pieces);
        if (!is_piece)
            call_note_mover(taken->call, taken->node | CALL_MOVER_LOST);
        call_end_part(taken->call, is_piece ? CALL_OK : CALL_MOVED, UINT64_MAX);
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

        if (request->kind == MESSAGE_HANDLER)
            continue; /* whether it has failed, its part says */
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
