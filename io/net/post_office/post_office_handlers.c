/* Calls of handlers, and their answers, between nodes.
 *
 * A call goes to another node as bytes. The request has these bytes as its input, and their numbers
 * as its "keys". So it is cut into pieces like any request. The server puts the pieces together
 * (engine/server/server_handlers.c) and answers each of them. The answer to the last one brings the
 * result.
 *
 * A large result comes as several replies to one request. Each reply says how many bytes still
 * follow. The bytes are collected with the request that waits for them. If it is cancelled
 * meanwhile, they are freed with it, and later replies are dropped.
 *
 * Threads: any. */
#include "io/net/post_office/post_office_private.h"

#include <string.h>

/* Some bytes of a result whose rest has not come. */
struct AnswerPiece {
    AnswerPiece *next;
    size_t n;
    unsigned char bytes[];
};

/* ---- calling ---- */

/* A call that is sent on for another node has its number already, by which its part may know it. A
 * worker's calls to a part come in the order of their numbers: one thread makes them. */
static void number(PostOffice *office, HandlerCall *call)
{
    /* relaxed: it only has to be another number each time, and a greater one for each thread */
    if (call->serial == 0)
        call->serial =
            1 + atomic_fetch_add_explicit(&office->n_handler_calls, 1, memory_order_relaxed);
}

void *post_office_write_call(const HandlerCall *call)
{
    void *const bytes = g_try_malloc(call->n_payload_bytes);

    if (bytes != NULL)
        handler_call_write(call, &call->sent_keys, bytes);
    return bytes;
}

static bool send_bytes(PostOffice *office, const Message *message)
{
    HandlerCall *const call = message->request.handler_call;
    const size_t n = handler_call_size(call, &message->request.keys);
    Message sent = *message;

    call->sent_keys = message->request.keys;
    call->n_payload_bytes = n;
    g_autofree void *bytes = post_office_write_call(call);
    if (bytes == NULL)
        return false;
    number(office, call);
    sent.row_bytes = 1;
    sent.request.keys = (RubatoKeys){ .n = n };
    sent.request.input = bytes;
    (void)post_office_send_pieces(office, &sent, POST_OFFICE_INPUT_GOES);
    return true;
}

void post_office_call_handler(PostOffice *office, Message *message)
{
    Actor *const actor = office->servers[message->server].actor;

    if (actor != NULL) {
        if (message->request.handler_call->comes_again)
            number(office, message->request.handler_call);
        actor_post(actor, message);
    } else if (!send_bytes(office, message)) {
        message->call->is_remote = true;
        call_end_part(message->call, CALL_NO_MEMORY, UINT64_MAX);
    }
}

void post_office_call_handler_here(PostOffice *office, Message *message)
{
    Actor *const actor = office->servers[message->server].actor;

    if (actor != NULL && message->request.handler_call->comes_again)
        number(office, message->request.handler_call);
    if (actor == NULL || !actor_try_handle_soon(actor, message, 0))
        post_office_call_handler(office, message);
}

/* ---- answering ---- */

static Frame *new_reply(PostOffice *office, uint64_t request_id, bool is_high, size_t n_bytes,
                        size_t n_more)
{
    const WireHeader header = {
        .kind = MESSAGE_REPLY,
        .is_high = is_high,
        .value_bytes = n_bytes,
        .reply = { .request_id = request_id, .more_bytes = n_more },
    };

    return network_new_frame(office->network, &header);
}

Frame *post_office_send_answer(PostOffice *office, uint32_t node, uint64_t request_id, bool is_high,
                               const HandlerCall *call, CallStatus *status)
{
    const HandlerAnswer *const answer = &call->answer;
    const bool failed = answer->failure != NULL;
    const char *const bytes = failed ? answer->failure : answer->bytes;
    const size_t n = failed ? strlen(bytes) : answer->n_bytes;

    if (*status != CALL_OK && *status != CALL_FAILED)
        return NULL;
    if (failed)
        *status = CALL_FAILED;
    for (size_t at = 0; at < n;) {
        const size_t some = MIN(n - at, POST_OFFICE_MAX_VALUE_BYTES);
        Frame *const reply = new_reply(office, request_id, is_high, some, n - at - some);

        if (reply == NULL) {
            *status = CALL_NO_MEMORY;
            return NULL;
        }
        memcpy(frame_values(reply), bytes + at, some);
        at += some;
        if (at == n)
            return reply;
        frame_header(reply)->reply.status = *status;
        network_push(office->network, node, reply);
    }
    return NULL;
}

/* ---- receiving an answer ---- */

void post_office_free_pieces(AnswerPiece *piece)
{
    for (AnswerPiece *next; piece != NULL; piece = next) {
        next = piece->next;
        g_free(piece);
    }
}

AnswerPiece *post_office_new_piece(const Incoming *incoming)
{
    AnswerPiece *const piece = g_try_malloc(sizeof *piece + incoming->value_bytes);

    if (piece == NULL)
        return NULL;
    piece->next = NULL;
    piece->n = incoming->value_bytes;
    if (piece->n > 0)
        memcpy(piece->bytes, incoming->values, piece->n);
    return piece;
}

AnswerPiece **post_office_piece_next(AnswerPiece *piece)
{
    return &piece->next;
}

bool post_office_take_answer(HandlerAnswer *answer, const AnswerPiece *pieces, size_t n_come,
                             const Incoming *incoming)
{
    const size_t n = n_come + incoming->value_bytes;
    char *bytes, *at;

    if (n == 0)
        return true;
    at = bytes = g_try_malloc(n + 1);
    if (bytes == NULL)
        return false;
    for (; pieces != NULL; pieces = pieces->next) {
        memcpy(at, pieces->bytes, pieces->n);
        at += pieces->n;
    }
    if (incoming->value_bytes > 0)
        memcpy(at, incoming->values, incoming->value_bytes);
    bytes[n] = '\0';
    handler_answer_clear(answer); /* only a liar answers twice */
    if (incoming->header.reply.status == CALL_FAILED) {
        answer->failure = g_utf8_make_valid(bytes, -1);
        g_free(bytes);
    } else {
        answer->bytes = bytes;
        answer->n_bytes = n;
    }
    return true;
}
