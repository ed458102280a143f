/* The post office: local actors, news for other nodes, and the requests that wait for an answer.
 *
 * A request to another node gets a slot in `pending` before it leaves; its id is the slot and the
 * request's number, which no other request of this office has. So a late answer to a cancelled
 * request finds another id and is dropped. Later requests have greater ids: a primary knows by them
 * what it has had of a worker (docs/replication.md). The thread that takes a slot out, under the
 * lock, ends its part of the call: the I/O thread with the answer, or the thread that cancels. So
 * each part ends once, and no thread writes into a caller's memory after its call has ended. */
#include "io/net/post_office/post_office_private.h"

#include <assert.h>
#include <string.h>

/* Values are sent as they are in memory. */
G_STATIC_ASSERT(G_BYTE_ORDER == G_LITTLE_ENDIAN);

#define NO_SLOT UINT32_MAX

/* An id has its slot in so many bits. A million requests a second use up the other bits, which are
 * the request's number, in half a year. */
#define MOST_SLOTS (1u << POST_OFFICE_SLOT_BITS)

/* Until the engine sets it. */
#define USUAL_STALL_MS 10000

void post_office_init(PostOffice *office, uint32_t self, uint32_t n_nodes, const uint32_t *node_ids,
                      const uint32_t *servers_of, const FlowSizes *sizes)
{
    uint32_t server = 0;

    assert(sizes->piece_bytes <= POST_OFFICE_MAX_VALUE_BYTES);
    assert(sizes->near_piece_bytes <= POST_OFFICE_MAX_VALUE_BYTES);
    assert(sizes->high_piece_bytes <= POST_OFFICE_MAX_VALUE_BYTES);
    assert(sizes->near_high_piece_bytes <= sizes->high_piece_bytes);
    *office = (PostOffice){ .self = self,
                            .n_nodes = n_nodes,
                            .sizes = *sizes,
                            .stall_ms = USUAL_STALL_MS,
                            .first_free = NO_SLOT };
    post_office_init_receive(office, servers_of[self]);
    office->node_ids = g_memdup2(node_ids, n_nodes * sizeof *node_ids);
    for (uint32_t node = 0; node < n_nodes; node++)
        office->n_servers += servers_of[node];
    office->servers = g_new0(ServerAddress, office->n_servers);
    for (uint32_t node = 0; node < n_nodes; node++)
        for (uint32_t i = 0; i < servers_of[node]; i++)
            office->servers[server++].node = node;
    office->is_lost = g_new0(bool, n_nodes);
    post_office_init_clocks(office);
    pthread_mutex_init(&office->lock, NULL);
}

/* ---- requests that wait for another node's answer ---- */

uint64_t post_office_add_pending(PostOffice *office, const Message *message, const RubatoKeys *keys,
                                 const char *input, char *output)
{
    PendingRequest *slot;
    uint64_t id;

    pthread_mutex_lock(&office->lock);
    if (office->first_free == NO_SLOT) {
        const uint32_t n = office->n_pending_slots;
        const uint32_t grown = MAX(64, n * 2);

        slot = grown > MOST_SLOTS ? NULL : g_try_renew(PendingRequest, office->pending, grown);
        if (slot == NULL) {
            pthread_mutex_unlock(&office->lock);
            return 0;
        }
        office->pending = slot;
        for (uint32_t i = n; i < grown; i++)
            office->pending[i] = (PendingRequest){ .next_free = i + 1 < grown ? i + 1 : NO_SLOT };
        office->n_pending_slots = grown;
        office->first_free = n;
    }
    slot = &office->pending[office->first_free];
    slot->id = id = ++office->n_asked << POST_OFFICE_SLOT_BITS | office->first_free;
    office->first_free = slot->next_free;
    slot->call = message->call;
    slot->keys = *keys;
    slot->output = output;
    slot->direct = NULL;
    slot->row_bytes = output != NULL && keys->n > 0 ? message->row_bytes : 0;
    slot->epoch = message->epoch;
    slot->node = office->servers[message->server].node;
    slot->kind = message->kind;
    slot->table = message->table;
    slot->part = message->part;
    slot->worker = message->request.worker;
    slot->clock = message->request.clock;
    slot->input = input;
    slot->input_row_bytes = message->row_bytes;
    if (message->kind == MESSAGE_ANNOUNCE)
        slot->n_announced = post_office_n_announced(message, keys->n);
    else
        slot->tuning = message->request.tuning;
    slot->answer = message->kind == MESSAGE_HANDLER && !message->request.handler_call->is_kept
                       ? &message->request.handler_call->answer
                       : NULL;
    slot->handler_call =
        message->kind == MESSAGE_HANDLER && message->request.handler_call->comes_again
            ? message->request.handler_call
            : NULL;
    slot->pieces = NULL;
    slot->n_come = 0;
    pthread_mutex_unlock(&office->lock);
    return id;
}

PendingRequest post_office_take_slot(PostOffice *office, uint32_t index)
{
    PendingRequest *slot = &office->pending[index];
    const PendingRequest taken = *slot;

    if (slot->direct != NULL)
        direct_read_revoke(slot->direct);
    slot->direct = NULL;
    slot->call = NULL;
    slot->next_free = office->first_free;
    office->first_free = index;
    return taken;
}

/* Which requests that wait for an answer are cancelled. */
typedef struct {
    uint32_t epoch;                                     /* or POST_OFFICE_ALL_EPOCHS */
    bool (*is_one)(const Call *call, const void *data); /* NULL: all */
    const void *data;
    uint32_t node; /* with is_one: whose answers they wait for */
} Cancelling;

/* The lock is held. */
static bool is_cancelled(const PendingRequest *request, const Cancelling *which)
{
    if (request->call == NULL ||
        (which->epoch != POST_OFFICE_ALL_EPOCHS && request->epoch != which->epoch))
        return false;
    return which->is_one == NULL ||
           (request->node == which->node && which->is_one(request->call, which->data));
}

static void cancel_pending(PostOffice *office, const Cancelling *which)
{
    for (uint32_t i = 0;; i++) {
        PendingRequest taken = { 0 };

        pthread_mutex_lock(&office->lock);
        while (i < office->n_pending_slots && !is_cancelled(&office->pending[i], which))
            i++;
        if (i < office->n_pending_slots)
            taken = post_office_take_slot(office, i);
        pthread_mutex_unlock(&office->lock);
        if (taken.call == NULL)
            return;
        post_office_free_pieces(taken.pieces);
        call_end_part(taken.call, CALL_CANCELLED, UINT64_MAX);
    }
}

void post_office_clear(PostOffice *office)
{
    cancel_pending(office, &(Cancelling){ .epoch = POST_OFFICE_ALL_EPOCHS });
    pthread_mutex_destroy(&office->lock);
    post_office_clear_clocks(office);
    g_clear_pointer(&office->pending, g_free);
    g_clear_pointer(&office->is_lost, g_free);
    g_clear_pointer(&office->servers, g_free);
    g_clear_pointer(&office->node_ids, g_free);
}

void post_office_leave_calls(PostOffice *office, uint32_t node,
                             bool (*is_one)(const Call *call, const void *data), const void *data)
{
    cancel_pending(office, &(Cancelling){ .epoch = POST_OFFICE_ALL_EPOCHS,
                                          .is_one = is_one,
                                          .data = data,
                                          .node = node });
}

void post_office_end(PostOffice *office)
{
    /* relaxed: what follows is sent to servers, which orders the two */
    atomic_store_explicit(&office->has_ended, true, memory_order_relaxed);
}

void post_office_cancel(PostOffice *office, uint32_t epoch)
{
    if (epoch == POST_OFFICE_ALL_EPOCHS)
        post_office_end(office);
    cancel_pending(office, &(Cancelling){ .epoch = epoch });
    if (office->network != NULL)
        network_revoke_direct(office->network);
}

/* Whether the request asks only whether a server of a lost node has handled what was sent before.
 * The lock is held. */
static bool is_fence_of_lost(const PostOffice *office, const PendingRequest *request)
{
    return request->call != NULL && office->is_lost[request->node] &&
           request->kind == MESSAGE_FENCE && request->table == MESSAGE_NO_TABLE;
}

void post_office_end_fences(PostOffice *office)
{
    for (uint32_t i = 0;; i++) {
        PendingRequest taken = { 0 };

        pthread_mutex_lock(&office->lock);
        while (i < office->n_pending_slots && !is_fence_of_lost(office, &office->pending[i]))
            i++;
        if (i < office->n_pending_slots)
            taken = post_office_take_slot(office, i);
        pthread_mutex_unlock(&office->lock);
        if (taken.call == NULL)
            return;
        call_end_part(taken.call, CALL_OK, UINT64_MAX);
    }
}

void post_office_lose_node(PostOffice *office, uint32_t node)
{
    pthread_mutex_lock(&office->lock);
    office->is_lost[node] = true;
    pthread_mutex_unlock(&office->lock);
    post_office_end_fences(office);
}

/* No process makes so many requests: at a million a second it would take three days. */
#define MOST_ASKED_BITS 38

bool post_office_count_from(PostOffice *office, uint32_t n_before)
{
    if (n_before >> (64 - POST_OFFICE_SLOT_BITS - MOST_ASKED_BITS) != 0)
        return false;
    pthread_mutex_lock(&office->lock);
    office->n_asked = (uint64_t)n_before << MOST_ASKED_BITS;
    pthread_mutex_unlock(&office->lock);
    /* relaxed: nobody calls a handler before this process has joined */
    atomic_store_explicit(&office->n_handler_calls, (uint64_t)n_before << MOST_ASKED_BITS,
                          memory_order_relaxed);
    return true;
}

/* A fence that was sent to the lost process is in its slot by now, because the link to the new one
 * has been opened before; those that come later reach the new one. */
void post_office_regain_node(PostOffice *office, uint32_t node)
{
    post_office_end_fences(office);
    pthread_mutex_lock(&office->lock);
    office->is_lost[node] = false;
    pthread_mutex_unlock(&office->lock);
}

bool post_office_waits_for(PostOffice *office, const Call *call, uint32_t *node)
{
    bool found = false;

    pthread_mutex_lock(&office->lock);
    for (uint32_t i = 0; i < office->n_pending_slots && !found; i++)
        if (office->pending[i].call == call) {
            *node = office->pending[i].node;
            found = true;
        }
    pthread_mutex_unlock(&office->lock);
    return found;
}

bool post_office_wait(PostOffice *office, Call *call, int timeout_ms)
{
    return call->is_remote ? network_help(office->network, call, timeout_ms)
                           : call_wait(call, timeout_ms);
}

static void scatter(const PendingRequest *request, const char *rows)
{
    const RubatoKeys *keys = &request->keys;
    const size_t row_bytes = request->row_bytes;

    if (keys->at == NULL) {
        memcpy(request->output, rows, keys->n * row_bytes);
        return;
    }
    if (row_bytes == 4) { /* the usual row of one float */
        for (size_t i = 0; i < keys->n; i++)
            memcpy(request->output + (size_t)keys->at[i] * 4, rows + i * 4, 4);
        return;
    }
    for (size_t i = 0; i < keys->n; i++)
        memcpy(request->output + keys->at[i] * row_bytes, rows + i * row_bytes, row_bytes);
}

/* The slot of the request of this id; NULL: it does not wait any more. The lock is held. */
static PendingRequest *find_request(PostOffice *office, uint64_t id)
{
    const uint32_t index = (uint32_t)(id % MOST_SLOTS);

    if (index >= office->n_pending_slots)
        return NULL;
    PendingRequest *const slot = &office->pending[index];

    if (slot->call == NULL)
        return NULL;
    if (slot->id != id) /* it was for an earlier request */
        return NULL;
    return slot;
}

/* The slot that waits for this reply of the node; NULL: none. The lock is held. */
static PendingRequest *find_slot(PostOffice *office, uint32_t node, const WireReply *reply)
{
    PendingRequest *const slot = find_request(office, reply->request_id);

    return slot != NULL && slot->node == node ? slot : NULL;
}

bool post_office_begin_direct(PostOffice *office, uint32_t node, const WireHeader *header,
                              DirectRead *direct)
{
    const WireReply *const reply = &header->reply;

    pthread_mutex_lock(&office->lock);
    PendingRequest *const slot = find_slot(office, node, reply);
    const bool begins = slot != NULL && slot->direct == NULL && slot->answer == NULL &&
                        reply->status == CALL_OK && reply->more_bytes == 0 && slot->row_bytes > 0 &&
                        slot->keys.at == NULL &&
                        header->value_bytes == slot->keys.n * slot->row_bytes;

    if (begins) {
        direct_read_start(direct, reply->request_id, slot->output, (size_t)header->value_bytes);
        slot->direct = direct;
    }
    pthread_mutex_unlock(&office->lock);
    return begins;
}

void post_office_end_direct(PostOffice *office, DirectRead *direct)
{
    pthread_mutex_lock(&office->lock);
    PendingRequest *const slot = find_request(office, direct->request_id);

    if (slot != NULL && slot->direct == direct)
        slot->direct = NULL;
    pthread_mutex_unlock(&office->lock);
}

/* A reply that others follow. False if the request takes it, or nobody waits for it. */
static bool is_last(PostOffice *office, const Incoming *incoming)
{
    const uint64_t n_more = incoming->header.reply.more_bytes;
    AnswerPiece *piece;

    if (G_LIKELY(n_more == 0))
        return true;
    piece = post_office_new_piece(incoming);
    if (piece == NULL)
        return true;
    pthread_mutex_lock(&office->lock);
    PendingRequest *const slot = find_slot(office, incoming->node, &incoming->header.reply);
    const bool takes = slot != NULL && slot->answer != NULL &&
                       n_more <= RUBATO_HANDLER_MOST_BYTES &&
                       slot->n_come + incoming->value_bytes <= RUBATO_HANDLER_MOST_BYTES - n_more;

    if (takes) {
        *(slot->pieces == NULL ? &slot->pieces : slot->pieces_end) = piece;
        slot->pieces_end = post_office_piece_next(piece);
        slot->n_come += incoming->value_bytes;
    }
    pthread_mutex_unlock(&office->lock);
    if (!takes)
        post_office_free_pieces(piece);
    return !takes;
}

/* Hands over what a reply brings. Sets *wrong only if something is wrong with it. */
static CallStatus take_values(const PendingRequest *taken, const Incoming *incoming,
                              const char **wrong)
{
    const WireReply *const reply = &incoming->header.reply;

    if (reply->more_bytes > 0) {
        if (taken->answer != NULL &&
            taken->n_come + incoming->value_bytes + reply->more_bytes <= RUBATO_HANDLER_MOST_BYTES)
            return CALL_NO_MEMORY;
        *wrong = "a reply with more bytes than a handler may answer";
        return CALL_REFUSED;
    }
    if (taken->answer != NULL && (reply->status == CALL_OK || reply->status == CALL_FAILED))
        return post_office_take_answer(taken->answer, taken->pieces, taken->n_come, incoming)
                   ? reply->status
                   : CALL_NO_MEMORY;
    if (reply->status == CALL_OK && taken->row_bytes > 0) {
        if (incoming->value_bytes != taken->keys.n * taken->row_bytes) {
            *wrong = "a reply with another number of rows than was asked for";
            return CALL_REFUSED;
        }
        if (incoming->values != taken->output) /* else they were read to their place */
            scatter(taken, incoming->values);
    }
    return reply->status;
}

const char *post_office_receive_reply(PostOffice *office, const Incoming *incoming)
{
    PendingRequest taken = { 0 };
    const char *wrong = NULL;

    if (!is_last(office, incoming))
        return NULL;
    pthread_mutex_lock(&office->lock);
    PendingRequest *const slot = find_slot(office, incoming->node, &incoming->header.reply);
    if (slot != NULL) {
        if (incoming->values == slot->output) /* its direct read has ended, and is not revoked */
            slot->direct = NULL;
        taken = post_office_take_slot(office, (uint32_t)(slot - office->pending));
    }
    pthread_mutex_unlock(&office->lock);
    if (taken.call == NULL)
        return NULL;
    const CallStatus status = take_values(&taken, incoming, &wrong);

    post_office_free_pieces(taken.pieces);
    if (G_UNLIKELY(status == CALL_MOVED))
        call_note_mover(taken.call, incoming->node);
    call_end_part(taken.call, status, incoming->header.reply.min_clock);
    return wrong;
}

/* ---- sending ---- */

/* There is no memory to copy the message: a busy server of this process handles it, and the caller
 * waits until it has. (A server handles an Add or an announcement at once.) */
static void tell_and_wait(Actor *actor, Message *message)
{
    Call *const asked = message->call;
    Call call;

    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    message->call = &call;
    message->end = message_end_call;
    actor_post(actor, message);
    call_sent(&call);
    call_wait(&call, -1);
    if (asked != NULL)
        call_end_part(asked, (CallStatus)atomic_load_explicit(&call.status, memory_order_relaxed),
                      atomic_load_explicit(&call.min_clock, memory_order_relaxed));
}

/* Whether workers share processors, and the message is a Get that brings a clock. It may find Adds
 * of all of them that are due with it. Whoever applies those has the rows in its cache, so such
 * Gets are left to that one. */
static inline bool is_of_crowd(const Message *message)
{
    return message_brings_clock(message) && message->call != NULL &&
           message->call->spinner != NULL && message->call->spinner->n_sharing > 1;
}

/* How long to look for a busy server. */
static inline uint64_t work_ns(const Message *message)
{
    return is_of_crowd(message) ? 0 : message_rows_ns(&message->request.keys, message->row_bytes);
}

void post_office_ask(PostOffice *office, Message *message)
{
    Actor *actor = office->servers[message->server].actor;

    if (actor == NULL)
        (void)post_office_send_pieces(office, message, POST_OFFICE_INPUT_STAYS);
    else if (!actor_try_handle_soon(actor, message, work_ns(message)))
        actor_post(actor, message);
}

size_t post_office_tell(PostOffice *office, Message *message)
{
    Actor *actor = office->servers[message->server].actor;
    Message *copy;

    if (actor == NULL)
        return post_office_send_pieces(office, message, POST_OFFICE_INPUT_GOES)
                   ? 0
                   : POST_OFFICE_UNSENT;
    message->end = message->call != NULL ? message_end_call : NULL;
    if (actor_try_handle_soon(actor, message, work_ns(message)))
        return 0;
    copy = message_copy_request(message);
    if (copy == NULL) {
        tell_and_wait(actor, message);
        return 0;
    }
    actor_post(actor, copy);
    return message->request.keys.n * (message->row_bytes + sizeof(RubatoKey)) + sizeof(Message);
}

void post_office_tell_local_clock(PostOffice *office, Message *message)
{
    Actor *actor = office->servers[message->server].actor;

    message->call = NULL;
    message->end = NULL;
    if (!actor_try_handle_soon(actor, message, 0))
        actor_post(actor, message_copy_clock(message));
}

Frame *post_office_need_frame(Frame *frame)
{
    if (frame == NULL)
        g_error("no memory for a message without keys or rows; the node ends here");
    return frame;
}

static void flush_all(PostOffice *office, void (*flush)(Network *network, uint32_t node))
{
    if (office->network == NULL)
        return;
    for (uint32_t node = 0; node < office->n_nodes; node++)
        if (node != office->self)
            flush(office->network, node);
}

void post_office_flush(PostOffice *office)
{
    flush_all(office, network_flush);
}

void post_office_flush_later(PostOffice *office)
{
    flush_all(office, network_flush_later);
}

void post_office_flush_soon(PostOffice *office)
{
    flush_all(office, network_flush_soon);
}
