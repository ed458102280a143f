/* The post office: local actors, frames for other nodes, and the requests that wait for an answer.
 *
 * A request to another node gets a slot in `pending` before it leaves; its id is the slot and the
 * slot's generation. So a late answer to a cancelled request finds another generation and is
 * dropped. The thread that takes a slot out, under the lock, ends its part of the call: the I/O
 * thread with the answer, or the thread that cancels. So each part ends once, and no thread writes
 * into a caller's memory after its call has ended. */
#include "io/net/post_office.h"

#include "io/net/link/block_pool.h"
#include "io/net/link/key_codec.h"

#include <assert.h>
#include <string.h>

/* Values are sent as they are in memory. */
G_STATIC_ASSERT(G_BYTE_ORDER == G_LITTLE_ENDIAN);

/* The memory of messages is reused: fresh pages cost more than filling them. */
G_STATIC_ASSERT(POST_OFFICE_MAX_VALUE_BYTES + (4 << 10) <= BLOCK_POOL_MOST_BYTES);

#define NO_SLOT UINT32_MAX

/* The thread that receives another node's request of at most so many values handles it itself.
 * Several servers share the work better on their own threads. For a single server, passing the
 * request on costs more than any wait. */
#define INLINE_OF_ONE (POST_OFFICE_MAX_VALUE_BYTES / sizeof(float))
#define INLINE_OF_MANY 4096

/* Heartbeats wait for the receiving thread. So its own work for one batch of packets is bounded: at
 * most a window of values, and requests released by a clock up to the size of one request. The
 * batch ends before it might go beyond that. Passing a request on to the server's thread would cost
 * more: that would be the third busy thread of two nodes. */
#define INLINE_OF_BATCH (8 * INLINE_OF_ONE)
#define INLINE_OF_CLOCK INLINE_OF_ONE

/* When piece sizes vary: the smallest piece is this fraction of the largest, and each of the last
 * pieces is this fraction of the rest. */
#define LEAST_PART 8
#define LAST_PART 4

struct PendingRequest {
    Call *call; /* NULL: the slot is free */
    RubatoKeys keys;
    char *output;
    size_t row_bytes; /* 0: the answer has no rows */
    uint32_t epoch;
    uint32_t node;
    uint32_t generation;
    uint32_t next_free;
};

void post_office_init(PostOffice *office, uint32_t self, uint32_t n_nodes, const uint32_t *node_ids,
                      const uint32_t *servers_of, const FlowSizes *sizes)
{
    uint32_t server = 0;

    assert(sizes->piece_bytes <= POST_OFFICE_MAX_VALUE_BYTES);
    assert(sizes->near_piece_bytes <= POST_OFFICE_MAX_VALUE_BYTES);
    *office =
        (PostOffice){ .self = self, .n_nodes = n_nodes, .sizes = *sizes, .first_free = NO_SLOT };
    office->most_inline = servers_of[self] > 1 ? INLINE_OF_MANY : INLINE_OF_ONE;
    office->inline_left = INLINE_OF_BATCH;
    office->node_ids = g_memdup2(node_ids, n_nodes * sizeof *node_ids);
    for (uint32_t node = 0; node < n_nodes; node++)
        office->n_servers += servers_of[node];
    office->servers = g_new0(ServerAddress, office->n_servers);
    for (uint32_t node = 0; node < n_nodes; node++)
        for (uint32_t i = 0; i < servers_of[node]; i++)
            office->servers[server++].node = node;
    pthread_mutex_init(&office->listener_lock, NULL);
    pthread_mutex_init(&office->lock, NULL);
}

void post_office_clear(PostOffice *office)
{
    pthread_mutex_destroy(&office->lock);
    pthread_mutex_destroy(&office->listener_lock);
    g_clear_pointer(&office->pending, g_free);
    g_clear_pointer(&office->servers, g_free);
    g_clear_pointer(&office->node_ids, g_free);
}

/* ---- requests that wait for another node's answer ---- */

/* Returns 0 if there is no memory. */
static uint64_t add_pending(PostOffice *office, const Message *message, const RubatoKeys *keys,
                            char *output)
{
    PendingRequest *slot;
    uint64_t id;

    pthread_mutex_lock(&office->lock);
    if (office->first_free == NO_SLOT) {
        const uint32_t n = office->n_pending_slots;
        const uint32_t grown = MAX(64, n * 2);

        slot = g_try_renew(PendingRequest, office->pending, grown);
        if (slot == NULL) {
            pthread_mutex_unlock(&office->lock);
            return 0;
        }
        office->pending = slot;
        for (uint32_t i = n; i < grown; i++)
            office->pending[i] =
                (PendingRequest){ .next_free = i + 1 < grown ? i + 1 : NO_SLOT, .generation = 1 };
        office->n_pending_slots = grown;
        office->first_free = n;
    }
    slot = &office->pending[office->first_free];
    id = ((uint64_t)slot->generation << 32) | office->first_free;
    office->first_free = slot->next_free;
    slot->call = message->call;
    slot->keys = *keys;
    slot->output = output;
    slot->row_bytes = output != NULL && keys->n > 0 ? message->row_bytes : 0;
    slot->epoch = message->epoch;
    slot->node = office->servers[message->server].node;
    pthread_mutex_unlock(&office->lock);
    return id;
}

/* Frees the slot and hands its contents over; the lock is held. */
static PendingRequest take_slot(PostOffice *office, uint32_t index)
{
    PendingRequest *slot = &office->pending[index];
    const PendingRequest taken = *slot;

    slot->call = NULL;
    slot->generation++;
    slot->next_free = office->first_free;
    office->first_free = index;
    return taken;
}

void post_office_cancel(PostOffice *office, uint32_t epoch)
{
    for (uint32_t i = 0;; i++) {
        PendingRequest taken = { 0 };

        pthread_mutex_lock(&office->lock);
        while (i < office->n_pending_slots &&
               (office->pending[i].call == NULL ||
                (epoch != POST_OFFICE_ALL_EPOCHS && office->pending[i].epoch != epoch)))
            i++;
        if (i < office->n_pending_slots)
            taken = take_slot(office, i);
        pthread_mutex_unlock(&office->lock);
        if (taken.call == NULL)
            return;
        call_end_part(taken.call, CALL_CANCELLED, UINT64_MAX);
    }
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

const char *post_office_receive_reply(PostOffice *office, const Incoming *incoming)
{
    const WireReply *const reply = &incoming->header.reply;
    const uint64_t id = reply->request_id;
    const uint32_t index = (uint32_t)id;
    CallStatus status = reply->status;
    PendingRequest taken = { 0 };
    const char *wrong = NULL;

    pthread_mutex_lock(&office->lock);
    if (index < office->n_pending_slots && office->pending[index].call != NULL &&
        office->pending[index].generation == (uint32_t)(id >> 32) &&
        office->pending[index].node == incoming->node)
        taken = take_slot(office, index);
    pthread_mutex_unlock(&office->lock);
    if (taken.call == NULL)
        return NULL;
    if (status == CALL_OK && taken.row_bytes > 0) {
        if (incoming->value_bytes == taken.keys.n * taken.row_bytes) {
            scatter(&taken, incoming->values);
        } else {
            status = CALL_REFUSED;
            wrong = "a reply with another number of rows than was asked for";
        }
    }
    call_end_part(taken.call, status, reply->min_clock);
    return wrong;
}

/* ---- to other nodes ---- */

static void gather_input(void *to, const RubatoKeys *keys, const char *input, size_t row_bytes)
{
    char *out = to;

    if (keys->at == NULL) {
        memcpy(out, input, keys->n * row_bytes);
        return;
    }
    for (size_t i = 0; i < keys->n; i++)
        memcpy(out + i * row_bytes, input + keys->at[i] * row_bytes, row_bytes);
}

static RubatoKeys keys_from(const RubatoKeys *keys, size_t begin, size_t n)
{
    RubatoKeys part = *keys;

    part.n = n;
    if (keys->at != NULL)
        part.at += begin;
    else if (keys->keys != NULL)
        part.keys += begin;
    else
        part.first += begin;
    return part;
}

/* The number of keys of a whole announcement, for one of its pieces; 0 if the piece is the
 * whole. */
static uint64_t pieced_keys(const Message *message, const RubatoKeys *piece)
{
    return piece->n == message->request.keys.n ? 0 : message->request.keys.n;
}

/* A piece of a request: some of its keys, and where their input and output begin. */
typedef struct {
    RubatoKeys keys;
    const char *input;
    char *output;
} Piece;

/* Sends one message of keys, whose input and output are at most POST_OFFICE_MAX_VALUE_BYTES. False
 * if there is no memory for it. */
static bool send_piece(PostOffice *office, const Message *message, const Piece *piece)
{
    const RubatoKeys *keys = &piece->keys;
    const uint32_t node = office->servers[message->server].node;
    const size_t delta_bytes =
        keys->keys == NULL || network_is_memory(office->network, node) ? 0 : key_codec_size(keys);
    WireHeader header = {
        .kind = message->kind,
        .epoch = message->epoch,
        .key_bytes = keys->keys == NULL ? 0
                     : delta_bytes > 0  ? delta_bytes
                                        : keys->n * sizeof(RubatoKey),
        .value_bytes = piece->input != NULL ? keys->n * message->row_bytes : 0,
        .request = { .table = message->table,
                     .part = message->part,
                     .server = message->server,
                     .worker = message->request.worker,
                     .clock = message->request.clock,
                     .key_encoding = keys->keys == NULL ? WIRE_KEYS_RUN
                                     : delta_bytes > 0  ? WIRE_KEYS_DELTAS
                                                        : WIRE_KEYS_LIST,
                     .n_keys = keys->n,
                     .first_key = delta_bytes == 0   ? keys->first
                                  : keys->at == NULL ? keys->keys[0]
                                                     : keys->keys[keys->at[0]] },
    };
    if (message->kind == MESSAGE_ANNOUNCE)
        header.request.n_announced = pieced_keys(message, keys);
    else if (message->kind == MESSAGE_TUNE)
        header.request.tuning = message->request.tuning;
    Frame *frame = network_new_frame(office->network, &header);

    if (frame == NULL)
        return false;
    if (message->call != NULL) {
        const uint64_t id = add_pending(office, message, keys, piece->output);

        if (id == 0) {
            frame_free(frame);
            return false;
        }
        frame_header(frame)->request.id = id;
    }
    if (delta_bytes > 0)
        key_codec_encode(keys, frame_keys(frame));
    else if (keys->keys != NULL)
        frame_set_keys(frame, keys);
    if (header.value_bytes > 0)
        gather_input(frame_values(frame), keys, piece->input, message->row_bytes);
    network_push(office->network, node, frame);
    return true;
}

size_t post_office_max_keys(size_t row_bytes)
{
    return MAX(1, POST_OFFICE_MAX_VALUE_BYTES / MAX(row_bytes, 1));
}

/* The number of keys in a piece for a node. A list of keys takes room too. */
static size_t piece_keys(const PostOffice *office, uint32_t node, const Message *message)
{
    const FlowSizes *const sizes = &office->sizes;
    const RubatoRequest *const request = &message->request;
    const size_t row_bytes =
        request->input != NULL || request->output != NULL ? message->row_bytes : 0;
    const size_t bytes =
        network_is_memory(office->network, node) ? sizes->near_piece_bytes : sizes->piece_bytes;

    return MAX(1, bytes / MAX(row_bytes, request->keys.keys != NULL ? sizeof(RubatoKey) : 1));
}

/* How many keys the pieces of a request have. */
typedef struct {
    size_t least, most;
} PieceSizes;

/* For a request with output the first piece is small, so that the answer begins to come soon. The
 * last ones are small too, because no other work is done while the very last is read. If bytes are
 * only copied, or for input, this saves less than the pieces cost. */
static PieceSizes find_sizes(const PostOffice *office, uint32_t node, const Message *message)
{
    const size_t most = piece_keys(office, node, message);
    const bool is_graded =
        message->request.output != NULL && !network_is_memory(office->network, node);
    const size_t part = most / LEAST_PART;

    return (PieceSizes){ .least = is_graded ? MAX(1, part) : most, .most = most };
}

/* The number of keys in the next piece, out of those left. */
static size_t next_piece(PieceSizes sizes, size_t left, bool is_first)
{
    if (is_first && left > sizes.most)
        return sizes.least;
    if (is_first)
        return left;
    return MIN(left, CLAMP(left / LAST_PART, sizes.least, sizes.most));
}

static uint32_t count_pieces(PieceSizes sizes, size_t n_keys)
{
    uint32_t n = 0;

    for (size_t at = 0; at < n_keys; n++)
        at += next_piece(sizes, n_keys - at, n == 0);
    return MAX(1, n);
}

/* If there is no memory for a piece, its part of the call ends with CALL_NO_MEMORY. Without a call
 * nothing more is sent, and this returns false. */
static bool send_pieces(PostOffice *office, const Message *message)
{
    const uint32_t node = office->servers[message->server].node;
    const RubatoRequest *request = &message->request;
    const RubatoKeys *keys = &request->keys;
    const PieceSizes sizes = find_sizes(office, node, message);
    const size_t input_bytes = request->input != NULL ? message->row_bytes : 0;
    const size_t key_bytes = keys->keys != NULL ? sizeof(RubatoKey) : 0;
    size_t begin = 0, waiting_bytes = 0;
    bool all = true;

    if (message->call != NULL)
        message->call->is_remote = true;
    if (message->call != NULL && keys->n > sizes.most)
        call_add_parts(message->call, count_pieces(sizes, keys->n) - 1);
    do {
        const size_t n = next_piece(sizes, keys->n - begin, begin == 0);
        /* a selection's positions count from the start of all rows */
        const size_t at = keys->at != NULL ? 0 : begin * message->row_bytes;
        const Piece piece = {
            .keys = keys_from(keys, begin, n),
            .input = request->input == NULL ? NULL : (const char *)request->input + at,
            .output = request->output == NULL ? NULL : (char *)request->output + at,
        };

        if (!send_piece(office, message, &piece)) {
            all = false;
            if (message->call == NULL)
                break;
            call_end_part(message->call, CALL_NO_MEMORY, UINT64_MAX);
        }
        waiting_bytes += n * (key_bytes + input_bytes);
        /* So the other side can work meanwhile; but several small pieces are sent to it at once. */
        if (begin + n < keys->n &&
            (begin == 0 || waiting_bytes >= office->sizes.worth_sending_bytes)) {
            network_flush(office->network, node);
            waiting_bytes = 0;
        }
        begin += n;
    } while (begin < keys->n);
    return all;
}

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

void post_office_ask(PostOffice *office, Message *message)
{
    Actor *actor = office->servers[message->server].actor;

    if (actor == NULL)
        (void)send_pieces(office, message);
    else if (!actor_try_handle_soon(actor, message))
        actor_post(actor, message);
}

size_t post_office_tell(PostOffice *office, Message *message)
{
    Actor *actor = office->servers[message->server].actor;
    Message *copy;

    if (actor == NULL)
        return send_pieces(office, message) ? 0 : POST_OFFICE_UNSENT;
    message->end = message->call != NULL ? message_end_call : NULL;
    if (actor_try_handle_soon(actor, message))
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
    if (!actor_try_handle_soon(actor, message))
        actor_post(actor, message_copy_clock(message));
}

/* A message of a few hundred bytes for which a thread would otherwise wait for ever. */
static Frame *need_frame(Frame *frame)
{
    if (frame == NULL)
        g_error("no memory for a message without keys or rows; the node ends here");
    return frame;
}

void post_office_tell_clock(PostOffice *office, uint32_t epoch, uint32_t table, uint32_t source,
                            uint64_t clock, uint64_t node_clock, uint32_t slowest)
{
    const WireHeader header = { .kind = MESSAGE_CLOCK,
                                .epoch = epoch,
                                .clock = { .table = table,
                                           .source = source,
                                           .clock = clock,
                                           .node_clock = node_clock,
                                           .slowest = slowest } };

    for (uint32_t node = 0; node < office->n_nodes; node++) {
        if (node != office->self)
            network_push(office->network, node, need_frame(frame_new(&header)));
    }
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

void post_office_flush_soon(PostOffice *office)
{
    flush_all(office, network_flush_soon);
}

/* ---- from other nodes ---- */

/* A request of another node, kept in the room of its Incoming. */
typedef struct {
    Message message;
    PostOffice *office;
    Incoming *incoming;
    Frame *reply;    /* NULL until there is room for rows */
    RubatoKey *keys; /* decoded, if they came as differences; else NULL */
} RemoteRequest;

size_t post_office_room_bytes(void)
{
    return sizeof(RemoteRequest);
}

static void end_remote(Message *message);

static Frame *new_reply(const RemoteRequest *request, size_t value_bytes)
{
    const WireHeader header = { .kind = MESSAGE_REPLY,
                                .value_bytes = value_bytes,
                                .reply = { .request_id = request->incoming->header.request.id } };

    return network_new_frame(request->office->network, &header);
}

static bool is_remote(const Message *message)
{
    return message->end == end_remote;
}

void post_office_park(Message *message)
{
    if (is_remote(message))
        incoming_park(((RemoteRequest *)message)->incoming);
}

bool post_office_make_room(Message *message, size_t n_bytes)
{
    RemoteRequest *request = (RemoteRequest *)message;

    if (!is_remote(message))
        return false;
    request->reply = new_reply(request, n_bytes);
    if (request->reply == NULL)
        return false;
    message->request.output = frame_values(request->reply);
    return true;
}

static void end_remote(Message *message)
{
    RemoteRequest *request = (RemoteRequest *)message;
    Incoming *incoming = request->incoming;

    if (incoming->header.request.id != 0) {
        Frame *reply = request->reply != NULL ? request->reply : need_frame(new_reply(request, 0));
        WireHeader *header = frame_header(reply);

        header->reply.status = message->status;
        header->reply.min_clock = message->min_clock;
        if (message->status != CALL_OK)
            header->value_bytes = 0;
        network_push(request->office->network, incoming->node, reply);
    } else
        frame_free(request->reply);
    g_free(request->keys);
    incoming_free(incoming); /* this frees the request too */
}

/* The request's keys as a list; NULL if there is no memory for it. Sets *wrong only if something is
 * wrong with them. The wire has checked that there are not more keys than bytes of keys. */
static const RubatoKey *list_keys(RemoteRequest *request, const Incoming *incoming,
                                  const char **wrong)
{
    const WireHeader *header = &incoming->header;

    if (incoming->deltas == NULL)
        return incoming->keys;
    request->keys = g_try_new(RubatoKey, header->request.n_keys);
    if (request->keys != NULL &&
        !key_codec_decode(incoming->deltas, (size_t)header->key_bytes, header->request.first_key,
                          (size_t)header->request.n_keys, request->keys))
        *wrong = "a request with keys that cannot be read";
    return request->keys;
}

/* The receiving thread handles a message of n values itself. It does not handle the waiting
 * messages of a busy server, nor a message that may take long: meanwhile nothing would be received
 * or sent, not even a heartbeat. */
static bool handle_if_short(PostOffice *office, Actor *actor, Message *message, size_t n)
{
    size_t work;

    if (n > office->inline_left ||
        !actor_try_handle_short(actor, message, MIN(office->inline_left - n, INLINE_OF_CLOCK),
                                &work))
        return false;
    office->inline_left -= n + work;
    return true;
}

bool post_office_takes_more(const PostOffice *office)
{
    return office->inline_left >= INLINE_OF_ONE;
}

void post_office_end_batch(PostOffice *office)
{
    office->inline_left = INLINE_OF_BATCH;
    post_office_flush(office);
}

const char *post_office_receive_request(PostOffice *office, Incoming *incoming)
{
    const WireHeader *header = &incoming->header;
    const WireRequest *asked = &header->request;
    RemoteRequest *request = incoming->room;
    Message *message = &request->message;
    Actor *actor = asked->server < office->n_servers ? office->servers[asked->server].actor : NULL;
    const RubatoKey *keys = NULL;
    const char *wrong = NULL;

    if (actor == NULL)
        wrong = "a request for a server that is not here";
    else
        keys = list_keys(request, incoming, &wrong);
    if (wrong != NULL) {
        g_free(request->keys);
        incoming_free(incoming);
        return wrong;
    }
    request->office = office;
    request->incoming = incoming;
    *message = (Message){
        .kind = header->kind,
        .epoch = header->epoch,
        .table = asked->table,
        .part = asked->part,
        .server = asked->server,
        .node = incoming->node,
        .end = end_remote,
        .request = { .worker = asked->worker,
                     .clock = asked->clock,
                     .keys = { .keys = keys,
                               .first = asked->first_key,
                               .n = (size_t)asked->n_keys },
                     .input = incoming->values },
        .input_bytes = incoming->value_bytes,
    };
    if (header->kind == MESSAGE_ANNOUNCE)
        message->request.n_announced = asked->n_announced;
    else if (header->kind == MESSAGE_TUNE)
        message->request.tuning = asked->tuning;
    if (incoming->deltas != NULL && keys == NULL) { /* the server reports this */
        message->status = CALL_NO_MEMORY;
        message->request.keys.n = 0;
    }
    const size_t n_values = MAX((size_t)asked->n_keys, incoming->value_bytes / sizeof(double));
    if (n_values > office->most_inline || !handle_if_short(office, actor, message, n_values))
        actor_post(actor, message);
    return NULL;
}

void post_office_listen(PostOffice *office, ClockListener *listener)
{
    pthread_mutex_lock(&office->listener_lock);
    listener->next = office->listeners;
    office->listeners = listener;
    pthread_mutex_unlock(&office->listener_lock);
}

void post_office_unlisten(PostOffice *office, ClockListener *listener)
{
    ClockListener **link = &office->listeners;

    pthread_mutex_lock(&office->listener_lock);
    while (*link != NULL && *link != listener)
        link = &(*link)->next;
    if (*link != NULL)
        *link = listener->next;
    pthread_mutex_unlock(&office->listener_lock);
}

static void let_hear(PostOffice *office, const Incoming *incoming)
{
    const WireClock *const clock = &incoming->header.clock;

    pthread_mutex_lock(&office->listener_lock);
    for (ClockListener *one = office->listeners; one != NULL; one = one->next)
        if (one->epoch == incoming->header.epoch && one->table == clock->table)
            one->hear(one, incoming->node, clock);
    pthread_mutex_unlock(&office->listener_lock);
}

void post_office_receive_clock(PostOffice *office, const Incoming *incoming)
{
    const WireClock *heard = &incoming->header.clock;
    const Message message = { .kind = MESSAGE_CLOCK,
                              .epoch = incoming->header.epoch,
                              .table = heard->table,
                              .node = incoming->node,
                              .clock = { .source = heard->source, .clock = heard->clock } };

    let_hear(office, incoming);
    for (uint32_t server = 0; server < office->n_servers; server++)
        if (office->servers[server].actor != NULL) {
            Message told = message;

            told.server = server;
            if (!handle_if_short(office, office->servers[server].actor, &told, 0))
                actor_post(office->servers[server].actor, message_copy_clock(&told));
        }
}

const char *post_office_receive(PostOffice *office, Incoming *incoming)
{
    const char *wrong = NULL;

    switch (incoming->header.kind) {
    case MESSAGE_CLOCK:
        post_office_receive_clock(office, incoming);
        incoming_free(incoming);
        break;
    case MESSAGE_REPLY:
        wrong = post_office_receive_reply(office, incoming);
        incoming_free(incoming);
        break;
    default:
        wrong = post_office_receive_request(office, incoming);
        break;
    }
    return wrong;
}
