/* What comes to the post office from other nodes: requests for servers of this node.
 *
 * Threads: the receiving thread, one at a time; a request's answer, any. */
#include "io/net/post_office/post_office_private.h"

#include "io/net/link/key_codec.h"

#include <string.h>

/* If a node has several servers, they share the work better on their own threads: the receiving
 * thread handles requests with at most this many values itself. For a single server inline_work.h
 * alone says how many. */
#define INLINE_OF_MANY 4096

/* The receiving thread handles no request with a longer list of keys. Whatever the requests before
 * took, each row of this one may be the first that is written on its page: so many take one to two
 * seconds then. */
#define INLINE_LISTED ((size_t)1 << 14)

/* A request of another node, kept in the room of its Incoming. */
typedef struct {
    Message message;
    PostOffice *office;
    Incoming *incoming;
    Frame *reply;              /* NULL until there is room for rows */
    const void *rows;          /* where the reply's rows lie; NULL: in the frame */
    RubatoKey *keys;           /* decoded, if they came as differences; else NULL */
    HandlerCall *handler_call; /* MESSAGE_HANDLER: when all of it has come; else NULL */
} RemoteRequest;

void post_office_init_receive(PostOffice *office, uint32_t n_own_servers)
{
    office->most_inline = n_own_servers > 1 ? INLINE_OF_MANY : SIZE_MAX;
    inline_work_init(&office->inline_work);
}

size_t post_office_room_bytes(void)
{
    return sizeof(RemoteRequest);
}

static void end_remote(Message *message);

static Frame *new_reply(const RemoteRequest *request, size_t value_bytes)
{
    WireHeader header;

    /* Member by member: to clear all of it first takes longer. */
    header.kind = MESSAGE_REPLY;
    header.is_high = request->message.is_high;
    header.epoch = 0;
    header.keys = WIRE_KEYS_RUN;
    header.key_bytes = 0;
    header.value_bytes = value_bytes;
    header.reply = (WireReply){ .request_id = request->incoming->header.request.id };
    return network_new_frame(request->office->network, &header);
}

static bool is_remote(const Message *message)
{
    return message->end == end_remote;
}

bool post_office_is_lent(const Message *message)
{
    return is_remote(message) && incoming_is_lent(((const RemoteRequest *)message)->incoming);
}

void post_office_own(Message *message)
{
    Incoming *const incoming = ((RemoteRequest *)message)->incoming;

    incoming_own(incoming);
    message->request.input = incoming->values;
}

Message *post_office_detach(Message *message)
{
    if (!is_remote(message))
        return message;
    Incoming *const shared = ((RemoteRequest *)message)->incoming;
    const bool is_list = message->request.keys.keys == shared->keys;
    Incoming *const own = incoming_detach(shared);
    RemoteRequest *const request = own->room;

    request->incoming = own;
    if (is_list)
        request->message.request.keys.keys = own->keys;
    if (request->message.request.input != NULL)
        request->message.request.input = own->values;
    return &request->message;
}

bool post_office_park(Message *message, size_t row_bytes)
{
    const RemoteRequest *request = (RemoteRequest *)message;

    if (!is_remote(message))
        return true;
    const size_t key_bytes =
        request->keys == NULL ? 0 : message->request.keys.n * sizeof(RubatoKey);
    return incoming_park(request->incoming, key_bytes + row_bytes);
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

void post_office_give_call(Message *message, HandlerCall *call)
{
    ((RemoteRequest *)message)->handler_call = call;
}

bool post_office_lend(Message *message, const void *rows, size_t n_bytes)
{
    RemoteRequest *request = (RemoteRequest *)message;

    if (!is_remote(message))
        return false;
    if (rows != NULL && (!network_takes_values(request->office->network, message->node, n_bytes) ||
                         !post_office_make_room(message, n_bytes)))
        return false;
    request->rows = rows;
    return true;
}

/* Sends the reply, whose rows may change afterwards. */
static void push_lent(const RemoteRequest *request, Frame *reply)
{
    Network *const network = request->office->network;

    network_push_values(network, request->incoming->node, reply, request->rows);
    network_flush(network, request->incoming->node);
}

/* Whether nothing is answered: the run has ended for this node alone, as for one that does not hear
 * the scheduler any more, and goes on for the others. To them it is lost, if not yet. Then they ask
 * another node for what they have asked here; an answer would fail their task. If the run ends for
 * them too, they wait no longer either. */
static bool is_left_open(const PostOffice *office, const Message *message)
{
    /* relaxed: set before whatever cancels the request was sent to its server */
    return message->status == CALL_CANCELLED &&
           atomic_load_explicit(&office->has_ended, memory_order_relaxed) &&
           atomic_load_explicit(&office->goes_on, memory_order_relaxed);
}

static void end_remote(Message *message)
{
    RemoteRequest *request = (RemoteRequest *)message;
    Incoming *incoming = request->incoming;
    const bool answers =
        incoming->header.request.id != 0 && !is_left_open(request->office, message);

    if (request->handler_call != NULL && answers)
        request->reply =
            post_office_send_answer(request->office, incoming->node, incoming->header.request.id,
                                    message->is_high, request->handler_call, &message->status);

    if (answers) {
        Frame *reply =
            request->reply != NULL ? request->reply : post_office_need_frame(new_reply(request, 0));
        WireHeader *header = frame_header(reply);

        header->reply.status = message->status;
        header->reply.min_clock = message->min_clock;
        if (message->status != CALL_OK && message->status != CALL_FAILED)
            header->value_bytes = 0;
        if (request->rows != NULL && message->status == CALL_OK)
            push_lent(request, reply);
        else
            network_push(request->office->network, incoming->node, reply);
        if (message->is_high) /* before the rest of a batch is handled */
            network_flush(request->office->network, incoming->node);
    } else
        frame_free(request->reply);
    if (request->handler_call != NULL) {
        handler_answer_clear(&request->handler_call->answer);
        g_free(request->handler_call);
    }
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

bool post_office_handle_if_short(PostOffice *office, Actor *actor, Message *message, size_t n)
{
    InlineWork *const inline_work = &office->inline_work;
    const size_t most = inline_work_most(inline_work);
    size_t released;

    if (n > MIN(most, office->most_inline))
        return false;
    inline_work_begin(inline_work);
    if (!actor_try_handle_short(actor, message, most - n, &released))
        return false;
    inline_work_end(inline_work, n, released);
    return true;
}

bool post_office_takes_more(const PostOffice *office)
{
    return inline_work_takes_more(&office->inline_work);
}

void post_office_end_batch(PostOffice *office)
{
    inline_work_begin_batch(&office->inline_work);
    post_office_try_clocks(office);
    post_office_flush(office);
}

static void take_announcement(Message *to, const WireRequest *from)
{
    to->request.n_announced = from->n_announced;
}

static void take_tuning(Message *to, const WireRequest *from)
{
    to->request.tuning = from->tuning;
}

static void take_piece(Message *to, const WireRequest *from)
{
    to->request.piece.serial = from->piece.serial;
    to->request.piece.n_bytes = from->piece.n_bytes;
}

static void take_input(Message *to, const WireRequest *from)
{
    to->number = from->input.number;
    to->sequence = from->input.sequence;
    to->fed_kind = (uint8_t)from->input.kind;
    if (to->fed_kind == MESSAGE_ANNOUNCE)
        to->request.n_announced = from->input.hyper;
    if (to->fed_kind == MESSAGE_HANDLER)
        to->request.piece.n_bytes = from->input.hyper;
    if (to->fed_kind != MESSAGE_TUNE)
        return;
    /* it has no keys, so its value is where the first one would be */
    to->request.tuning.hyper = (RubatoHyper)from->input.hyper;
    memcpy(&to->request.tuning.value, &from->first_key, sizeof to->request.tuning.value);
}

/* By kind: takes from a header what the kind carries besides keys and input. NULL: nothing. */
static void (*const additions[MESSAGE_N_WIRE_KINDS])(Message *to, const WireRequest *from) = {
    [MESSAGE_ANNOUNCE] = take_announcement, [MESSAGE_TUNE] = take_tuning,
    [MESSAGE_HANDLER] = take_piece,         [MESSAGE_FEED] = take_input,
    [MESSAGE_POSITION] = take_input,
};

const char *post_office_receive_request(PostOffice *office, Incoming *incoming)
{
    const WireHeader *header = &incoming->header;
    const WireRequest *asked = &header->request;
    RemoteRequest *request = incoming->room;
    Message *message = &request->message;
    Actor *actor = asked->server < office->n_servers ? office->servers[asked->server].actor : NULL;
    const RubatoKey *keys = NULL;
    const char *wrong = NULL;

    request->office = office;
    request->incoming = incoming;
    request->reply = NULL;
    request->rows = NULL;
    request->keys = NULL;
    request->handler_call = NULL;
    if (actor == NULL)
        wrong = "a request for a server that is not here";
    else
        keys = list_keys(request, incoming, &wrong);
    if (wrong != NULL) {
        g_free(request->keys);
        incoming_free(incoming);
        return wrong;
    }
    *message = (Message){
        .kind = header->kind,
        .epoch = header->epoch,
        .table = asked->table,
        .part = asked->part,
        .server = asked->server,
        .node = incoming->node,
        .is_high = header->is_high,
        .is_packed = true, /* its memory is that of a packet, or a copy */
        .end = end_remote,
        .request = { .worker = asked->worker,
                     .clock = asked->clock,
                     .keys = { .keys = keys,
                               .first = asked->first_key,
                               .n = (size_t)asked->n_keys },
                     .input = incoming->values },
        .input_bytes = incoming->value_bytes,
        .sequence = asked->id,
        .node_clock =
            header->kind == MESSAGE_GET || header->kind == MESSAGE_ADD_GET ? asked->node_clock : 0,
    };
    if (additions[header->kind] != NULL)
        additions[header->kind](message, asked);
    if (incoming->deltas != NULL && keys == NULL) { /* the server reports this */
        message->status = CALL_NO_MEMORY;
        message->request.keys.n = 0;
    }
    /* nobody knows how long a handler takes */
    if (header->kind == MESSAGE_HANDLER || (keys != NULL && asked->n_keys > INLINE_LISTED) ||
        (header->kind == MESSAGE_FEED && message->fed_kind == MESSAGE_HANDLER) ||
        !post_office_handle_if_short(office, actor, message, message_n_values(message))) {
        if (post_office_is_lent(message))
            post_office_own(message);
        actor_post(actor, message);
    }
    return NULL;
}

const char *post_office_receive(PostOffice *office, Incoming *incoming)
{
    const char *wrong = NULL;

    switch (incoming->header.kind) {
    case MESSAGE_CLOCK:
        wrong = post_office_receive_clock(office, incoming);
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
