/* Requests to tables whose rows have different lengths: their life, how they are sent, the wait.
 *
 *   ragged_pieces.c   cuts a request into pieces
 *   ragged_answers.c  takes the answers of the pieces apart
 *   ragged_history.c  tells the history of them
 *
 * All requests go as an Add goes while a part moves: the map of parts stays as it is while a piece
 * is posted. So none is ever answered CALL_MOVED. Between two pieces the worker may wait: for room
 * on the way to a node, or for a move.
 *
 * Threads: see the header. */
#include "tables/ragged/ragged_request.h"

#include <rubato/ragged_table.h>
#include <string.h>

#include "tables/client/client_private.h"
#include "tables/ragged/ragged_request_private.h"

enum {
    BYTES_OF_A_ROUND = 4 << 20, /* that a blocking request has under way */
    BYTES_OF_ASKING = 512,      /* of a piece beside its keys and rows, here and on its server */
};

/* ---- the request ---- */

static bool check_lengths(const TableClient *client, const RaggedAsk *ask, GError **error)
{
    const size_t most =
        RUBATO_RAGGED_MOST_ROW_BYTES / rubato_dtype_size(client->route->spec->dtype);

    for (size_t i = 0; i < ask->n && ask->given_lengths != NULL; i++)
        if (ask->given_lengths[i] > most) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "table %s: %u values are given for key %" G_GUINT64_FORMAT
                        "; a row may have %zu",
                        client->route->spec->name, ask->given_lengths[i], ask->keys[i], most);
            return false;
        }
    return true;
}

static bool find_offsets(RaggedRequest *request)
{
    uint64_t offset = 0;

    if (request->ask.given_lengths == NULL)
        return true;
    request->offsets = g_try_new(uint64_t, request->ask.n);
    for (size_t i = 0; i < request->ask.n && request->offsets != NULL; i++) {
        request->offsets[i] = offset;
        offset += ragged_given_bytes(request, i);
    }
    return request->offsets != NULL;
}

typedef enum {
    REQUEST_KEYS_STAY, /* the caller's do */
    REQUEST_KEYS_COPIED,
} RequestKeys;

static bool prepare(RaggedRequest *request, RequestKeys kept)
{
    const Partition *const partition = request->client->route->partition;
    const RubatoKey *keys = request->ask.keys;

    if (kept == REQUEST_KEYS_COPIED) {
        request->keys = g_try_new(RubatoKey, request->ask.n);
        if (request->keys == NULL)
            return false;
        memcpy(request->keys, keys, request->ask.n * sizeof *keys);
        keys = request->keys;
    }
    if (!find_offsets(request))
        return false;
    request->n_slices = slicer_cut(&request->slicer, partition, keys, request->ask.n);
    return request->n_slices != SLICER_NO_MEMORY;
}

static RaggedRequest *begin_request(TableClient *client, const RaggedAsk *ask, RequestKeys kept,
                                    GError **error)
{
    const RubatoHandlerCall call = { .handler = ask->name, .scope = RUBATO_SCOPE_KEYS };
    const TableRoute *const route = client->route;
    const RubatoHandlerOps *const ops = route->find_handler(route->spec, &call, error);
    RaggedRequest *request;

    if (ops == NULL || !table_client_check(client, ask->keys, ask->n, error) ||
        !check_lengths(client, ask, error))
        return NULL;
    request = g_new0(RaggedRequest, 1);
    request->client = client;
    request->ask = *ask;
    request->ops = ops;
    request->value_bytes = rubato_dtype_size(route->spec->dtype);
    request->pieces = g_ptr_array_new();
    slicer_init(&request->slicer, route->partition);
    if (ask->n == 0 || prepare(request, kept))
        return request;
    request->n_slices = 0;
    ragged_request_free(request);
    table_client_fail_memory(client, error);
    return NULL;
}

RaggedRequest *ragged_request_new(TableClient *client, const RaggedAsk *ask, GError **error)
{
    RaggedRequest *request = begin_request(client, ask, REQUEST_KEYS_COPIED, error);

    if (request != NULL && !ragged_pieces_cut(request, SIZE_MAX, error))
        g_clear_pointer(&request, ragged_request_free);
    return request;
}

void ragged_request_free(RaggedRequest *request)
{
    ragged_pieces_drop(request);
    g_ptr_array_unref(request->pieces);
    slicer_clear(&request->slicer);
    g_free(request->offsets);
    g_free(request->keys);
    g_free(request);
}

size_t ragged_request_bytes(const RaggedRequest *request)
{
    return request->piece_bytes + request->pieces->len * (size_t)BYTES_OF_ASKING;
}

/* ---- sending ---- */

static void set_message(const RaggedRequest *request, RaggedPiece *piece, Call *call,
                        uint32_t server)
{
    TableClient *const client = request->client;
    const TableRoute *const route = client->route;

    /* also one that reads: its worker need not ask again, and a ticket's cannot */
    piece->call.comes_again = route->map->n_replicas > 0;
    piece->message = (Message){
        .kind = MESSAGE_HANDLER,
        .epoch = route->epoch,
        .table = route->table,
        .part = piece->slice.part,
        .server = server,
        .node = route->office->self,
        .call = call,
        .end = handler_call_end,
        .request = { .worker = client->rank,
                     .clock = client->clock,
                     .keys = piece->slice.keys,
                     .handler_call = &piece->call },
    };
    if (!request->ask.writes && post_office_is_local(route->office, server))
        piece->message.node_clock = table_client_clock_to_tell(client);
}

typedef enum {
    SEND_TO_SERVERS,
    SEND_LAST, /* this thread has nothing else to send, so it may do a server's work */
} SendPiece;

static bool send_piece(const RaggedRequest *request, RaggedPiece *piece, Call *call, SendPiece how,
                       GError **error)
{
    TableClient *const client = request->client;

    if (!table_client_check_cancelled(client, error) ||
        !table_client_wait_room(client, &piece->slice, 1, error) ||
        !table_client_begin_sending(client, error))
        return false;
    set_message(request, piece, call, table_route_server(client->route, &piece->slice));
    piece->is_sent = true;
    call_add_parts(call, 1);
    if (how == SEND_LAST)
        post_office_call_handler_here(client->route->office, &piece->message);
    else
        post_office_call_handler(client->route->office, &piece->message);
    table_client_end_sending(client);
    return true;
}

static bool send_away(const RaggedRequest *request, Call *call, GError **error)
{
    const TableRoute *const route = request->client->route;

    for (guint i = 0; i < request->pieces->len; i++) {
        RaggedPiece *const piece = g_ptr_array_index(request->pieces, i);

        if (!table_route_is_local(route, &piece->slice) &&
            !send_piece(request, piece, call, SEND_TO_SERVERS, error))
            return false;
    }
    return true;
}

/* All but the last go to their servers' threads, which work at the same time. */
static bool send_rest(const RaggedRequest *request, Call *call, GError **error)
{
    RaggedPiece *waiting = NULL;

    for (guint i = 0; i < request->pieces->len; i++) {
        RaggedPiece *const piece = g_ptr_array_index(request->pieces, i);

        if (piece->is_sent)
            continue;
        if (waiting != NULL && !send_piece(request, waiting, call, SEND_TO_SERVERS, error))
            return false;
        waiting = piece;
    }
    return waiting == NULL || send_piece(request, waiting, call, SEND_LAST, error);
}

static void count_write(const RaggedRequest *request)
{
    TableClient *const client = request->client;

    client->stats.n_adds++;
    if (client->route->max_kept_bytes > 0)
        client->adding_bytes +=
            request->piece_bytes +
            request->pieces->len * (TABLE_CLIENT_ADD_BYTES + sizeof(HandlerCall));
}

bool ragged_request_send(RaggedRequest *request, Call *call, GError **error)
{
    TableClient *const client = request->client;
    PostOffice *const office = client->route->office;
    bool ok = !request->ask.writes || table_client_wait_to_add(client, error);

    if (ok && office->network != NULL) {
        ok = send_away(request, call, error);
        post_office_flush(office);
        table_client_cancel_if_late(client);
    }
    ok = ok && send_rest(request, call, error);
    if (office->network != NULL) { /* a part may have moved away since */
        post_office_flush(office);
        table_client_cancel_if_late(client);
    }
    if (request->ask.writes)
        count_write(request);
    if (!ok) {
        call_add_parts(call, 1);
        call_end_part(call, CALL_CANCELLED, UINT64_MAX);
    }
    return ok;
}

/* ---- the end ---- */

bool ragged_request_take(const RaggedRequest *request, CallStatus status, GError **error)
{
    const char *failure = NULL;

    if (status == CALL_OK)
        return request->ask.writes || ragged_answers_take(request, error);
    for (guint i = 0; i < request->pieces->len && failure == NULL; i++)
        failure = ((const RaggedPiece *)g_ptr_array_index(request->pieces, i))->call.answer.failure;
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        failure != NULL ? failure : "a server did not say why a request failed");
    return false;
}

/* ---- with a wait ---- */

static bool wait_for(const RaggedRequest *request, Call *call, GError **error)
{
    TableClient *const client = request->client;
    GError *found = NULL;
    const bool ok = request->ask.writes ? table_client_wait_clock(client, call, 0, &found)
                                        : table_client_wait(client, call, &found);

    if (!ok && !g_error_matches(found, RUBATO_ERROR, RUBATO_ERROR_HANDLER)) {
        g_propagate_error(error, found);
        return false;
    }
    g_clear_error(&found);
    return ragged_request_take(request, ok ? CALL_OK : CALL_FAILED, error);
}

/* Under a model that keeps writes, the servers have them then. */
static void note(const RaggedRequest *request, bool is_done)
{
    const TableRoute *const route = request->client->route;
    const bool is_kept = route->clocks != NULL && route->traits->applies_by_clock;

    if (request->ask.writes)
        ragged_history_note(request,
                            (is_kept ? HISTORY_UNTOLD : 0) | (is_done ? 0 : HISTORY_FAILED));
    else if (is_done)
        ragged_history_note(request, 0);
}

/* The pieces that are cut. */
static bool run_round(RaggedRequest *request, GError **error)
{
    TableClient *const client = request->client;
    GError *found = NULL;
    Call call;

    call_begin(&call, NULL);
    call.spinner = &client->spinner;
    const bool is_sent = ragged_request_send(request, &call, &found);

    call_sent(&call);
    const bool ok = wait_for(request, &call, is_sent ? error : NULL);

    if (G_UNLIKELY(client->history != NULL))
        note(request, is_sent && ok);
    if (!is_sent)
        g_propagate_error(error, found);
    if (!ok || !is_sent)
        return false;
    if (!request->ask.writes)
        table_client_count_get(client, &call);
    client->unheard_bytes = 0;
    return true;
}

bool ragged_request_run(TableClient *client, const RaggedAsk *ask, GError **error)
{
    RaggedRequest *const request = begin_request(client, ask, REQUEST_KEYS_STAY, error);
    bool ok = request != NULL;

    if (ok && ask->n == 0)
        ok = ask->writes || ragged_answers_take(request, error);
    while (ok && request->slice < request->n_slices) {
        ok = ragged_pieces_cut(request, ask->writes ? BYTES_OF_A_ROUND : SIZE_MAX, error) &&
             run_round(request, error);
        ragged_pieces_drop(request);
    }
    if (request != NULL)
        ragged_request_free(request);
    return ok;
}
