/* Calls of handlers that reach a server.
 *
 * A call of this process is complete. A call of another node comes as numbered bytes, in one
 * message or in several. The server collects them by node and call. It answers each message but the
 * last at once; the last one becomes the call. Messages of one call come in order, like all
 * messages of a sender to one server. A message with other bytes than the next ones ends the call.
 *
 * The collected bytes are bounded, for each call and for the server. They are dropped when their
 * task ends. A call may remain unfinished: its node had no memory for a piece, or the part moved
 * away meanwhile. A worker makes one call at a time, so its next call drops the unfinished one.
 *
 * Thread: the server's owner. */
#include "engine/server/server_private.h"
#include "io/memory_room.h"
#include "io/net/handler_call.h"
#include "models/handlers/handler.h"
#include "models/ragged/ragged.h"

#include <string.h>

/* The most bytes that a server collects, of all calls. Each call counts for its bytes and some
 * more, so that their number is bounded too, whatever a node sends. */
#define MOST_COLLECTED_BYTES (4 * (uint64_t)RUBATO_HANDLER_MOST_BYTES)
#define BYTES_OF_A_CALL ((uint64_t)64 << 10)

/* A call as the server keeps it: one block. */
typedef struct {
    HandlerCall call; /* first: post_office_give_call frees the block by it */
    _Alignas(8) unsigned char bytes[];
} ReceivedCall;

/* A call whose bytes have not all come. */
typedef struct {
    uint32_t node, epoch, table, part, worker;
    uint64_t serial, n_bytes, n_come;
    ReceivedCall *received;
} PartialCall;

/* ---- what is collected ---- */

static GArray *partial_calls(Server *server)
{
    if (server->partial_calls == NULL)
        server->partial_calls = g_array_new(FALSE, FALSE, sizeof(PartialCall));
    return server->partial_calls;
}

static ReceivedCall *take_partial(Server *server, guint i)
{
    GArray *const calls = server->partial_calls;
    PartialCall *const partial = &g_array_index(calls, PartialCall, i);
    ReceivedCall *const received = partial->received;

    server->collected_bytes -= partial->n_bytes + BYTES_OF_A_CALL;
    g_array_remove_index_fast(calls, i);
    return received;
}

void server_drop_calls(Server *server, uint32_t epoch)
{
    for (guint i = server->partial_calls == NULL ? 0 : server->partial_calls->len; i-- > 0;)
        if (epoch == SERVER_ALL_EPOCHS ||
            g_array_index(server->partial_calls, PartialCall, i).epoch == epoch)
            g_free(take_partial(server, i));
}

/* Of a call that began before. Returns its index, or partial_calls->len. */
static guint find_partial(Server *server, const Message *message)
{
    GArray *const calls = partial_calls(server);
    guint i = 0;

    for (; i < calls->len; i++) {
        const PartialCall *partial = &g_array_index(calls, PartialCall, i);

        if (partial->node == message->node && partial->serial == message->request.piece.serial &&
            partial->worker == message->request.worker && partial->epoch == message->epoch &&
            partial->table == message->table && partial->part == message->part)
            break;
    }
    return i;
}

/* A worker begins a call on a part: drops its earlier call on this part, which nobody finishes. So
 * does one that begins again. */
static void drop_earlier(Server *server, const Message *message)
{
    GArray *const calls = partial_calls(server);

    for (guint i = calls->len; i-- > 0;) {
        const PartialCall *partial = &g_array_index(calls, PartialCall, i);

        if (partial->node == message->node && partial->epoch == message->epoch &&
            partial->table == message->table && partial->part == message->part &&
            partial->worker == message->request.worker &&
            (message->epoch != 0 || partial->serial == message->request.piece.serial))
            g_free(take_partial(server, i));
    }
}

static ReceivedCall *new_received(uint64_t n_bytes)
{
    ReceivedCall *const received = memory_try_malloc(sizeof *received + (size_t)n_bytes);

    if (received != NULL)
        memset(received, 0, sizeof *received);
    return received;
}

static bool begin_partial(Server *server, const Message *message)
{
    const uint64_t n_bytes = message->request.piece.n_bytes;
    PartialCall partial = {
        .node = message->node,
        .epoch = message->epoch,
        .table = message->table,
        .part = message->part,
        .worker = message->request.worker,
        .serial = message->request.piece.serial,
        .n_bytes = n_bytes,
    };

    drop_earlier(server, message);
    if (n_bytes + BYTES_OF_A_CALL > MOST_COLLECTED_BYTES - server->collected_bytes)
        return false;
    partial.received = new_received(n_bytes);
    if (partial.received == NULL)
        return false;
    server->collected_bytes += n_bytes + BYTES_OF_A_CALL;
    g_array_append_val(server->partial_calls, partial);
    return true;
}

/* Takes a message's bytes in. Returns the call if it is complete; otherwise the message is
 * answered. */
static ReceivedCall *collect(Server *server, Message *message)
{
    const RubatoRequest *const request = &message->request;
    const uint64_t at = request->keys.first;
    const size_t n = request->keys.n;
    guint i;

    if (at == 0 && n == request->piece.n_bytes) {
        ReceivedCall *const whole = new_received(n);

        if (whole != NULL)
            memcpy(whole->bytes, request->input, n);
        else
            server_answer(server, message, CALL_NO_MEMORY);
        return whole;
    }
    if (at == 0 && !begin_partial(server, message)) {
        server_answer(server, message, CALL_NO_MEMORY);
        return NULL;
    }
    i = find_partial(server, message);
    if (i == server->partial_calls->len) { /* its beginning was answered so */
        server_answer(server, message, CALL_NO_MEMORY);
        return NULL;
    }
    PartialCall *const partial = &g_array_index(server->partial_calls, PartialCall, i);

    if (partial->n_come != at || partial->n_bytes != request->piece.n_bytes) {
        g_free(take_partial(server, i));
        server_refuse(server, message,
                      "bytes of a handler's call that do not follow the last ones");
        return NULL;
    }
    memcpy(partial->received->bytes + at, request->input, n);
    partial->n_come += n;
    if (partial->n_come == partial->n_bytes)
        return take_partial(server, i);
    server_answer(server, message, CALL_OK);
    return NULL;
}

/* ---- making a call of it ---- */

static const char *read_call(const RubatoShard *shard, ReceivedCall *received, size_t n_bytes,
                             RubatoKeys *keys)
{
    const char *name;
    const char *fault = handler_call_read(received->bytes, n_bytes, &received->call, keys, &name);

    if (fault != NULL)
        return fault;
    received->call.ops = handler_find(name);
    if (received->call.ops == NULL)
        return "a call of a handler that is not registered here";
    return handler_find_fault(shard, &received->call, keys);
}

static Message *receive(Server *server, const RubatoShard *shard, Message *message)
{
    const size_t n_bytes = (size_t)message->request.piece.n_bytes;
    const uint64_t serial = message->request.piece.serial;
    ReceivedCall *const received = collect(server, message);
    RubatoKeys keys;

    if (received == NULL)
        return NULL;
    const char *fault = read_call(shard, received, n_bytes, &keys);
    if (fault == NULL && ragged_is_of_move(received->call.ops) &&
        !server_is_arriving(server, message))
        fault = "the count of writes of a part that does not move";
    if (fault != NULL) {
        g_free(received);
        server_refuse(server, message, fault);
        return NULL;
    }
    message = post_office_detach(message); /* it may wait for a clock */
    message->request.keys = keys;
    message->request.input = NULL;
    message->request.handler_call = &received->call;
    received->call.n_payload_bytes = n_bytes;
    received->call.serial = serial;
    post_office_give_call(message, &received->call);
    return message;
}

Message *server_take_call(Server *server, RubatoShard *shard, Message *message)
{
    if (message->node != server->office->self)
        message = receive(server, shard, message);
    if (message == NULL)
        return NULL;
    message->request.handler_call->in_task = message->epoch != 0;
    handler_call_note_caller(message->request.handler_call, message);
    return message;
}
