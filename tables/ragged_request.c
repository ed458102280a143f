/* Requests to tables whose rows have different lengths: cutting, sending, taking the answers apart.
 *
 * All requests go as an Add goes while a part moves: the map of parts stays as it is while a piece
 * is posted. So none is ever answered CALL_MOVED. Between two pieces the worker may wait: for room
 * on the way to a node, or for a move.
 *
 * What answers of other nodes say is checked before it is used.
 *
 * Threads: see the header. */
#include "tables/ragged_request.h"

#include <rubato/ragged_table.h>
#include <string.h>

#include "io/net/handler_call.h"
#include "tables/client/client_private.h"

enum {
    KEYS_OF_A_WRITE = 2048,
    KEYS_OF_A_READ = 4096,
    BYTES_OF_A_PIECE = 256 << 10, /* of rows; a longer row is a piece by itself */
    BYTES_OF_A_ROUND = 4 << 20,   /* that a blocking request has under way */
    BYTES_OF_ASKING = 512,        /* of a piece beside its keys and rows, here and on its server */
};

typedef struct {
    Slice slice;
    bool is_sent;
    HandlerCall call;
    Message message;
    unsigned char arguments[]; /* lengths, then rows */
} Piece;

struct RaggedRequest {
    TableClient *client;
    RaggedAsk ask;
    const RubatoHandlerOps *ops;
    size_t value_bytes;
    Slicer slicer;
    uint32_t n_slices;
    uint64_t *offsets;  /* by key: where its row begins in ask.given, in bytes; NULL: no rows */
    RubatoKey *keys;    /* a copy; NULL: they are the caller's */
    uint32_t slice;     /* that is to be cut next, */
    size_t at;          /* and where in it */
    GPtrArray *pieces;  /* of Piece */
    size_t piece_bytes; /* of their keys and rows */
};

/* ---- keys, and their places in the caller's arrays ---- */

static size_t place_of(const Slice *slice, size_t i)
{
    return slice->keys.at != NULL ? slice->keys.at[i] : slice->row + i;
}

static Slice part_of_slice(const Slice *slice, size_t begin, size_t n)
{
    Slice part = *slice;

    part.keys.n = n;
    part.row += begin;
    if (part.keys.at != NULL)
        part.keys.at += begin;
    else if (part.keys.keys != NULL)
        part.keys.keys += begin;
    else
        part.keys.first += begin;
    return part;
}

static size_t given_bytes(const RaggedRequest *request, size_t place)
{
    return request->ask.given_lengths[place] * request->value_bytes;
}

/* ---- cutting ---- */

/* How many keys of the present slice make the next piece, and the bytes of their rows. */
static size_t measure_piece(const RaggedRequest *request, size_t *n_bytes)
{
    const Slice *const slice = &request->slicer.slices[request->slice];
    const size_t left = slice->keys.n - request->at;
    const size_t most = request->ask.writes ? KEYS_OF_A_WRITE : KEYS_OF_A_READ;
    size_t n = request->ask.is_whole ? left : MIN(left, most);

    *n_bytes = 0;
    for (size_t i = 0; i < n && request->ask.given_lengths != NULL; i++) {
        const size_t more =
            sizeof(uint32_t) + given_bytes(request, place_of(slice, request->at + i));

        if (!request->ask.is_whole && i > 0 && *n_bytes + more > BYTES_OF_A_PIECE)
            n = i;
        else
            *n_bytes += more;
    }
    return n;
}

static void write_arguments(const RaggedRequest *request, Piece *piece)
{
    const size_t n = piece->slice.keys.n;
    unsigned char *to = piece->arguments + n * sizeof(uint32_t);

    for (size_t i = 0; i < n; i++) {
        const size_t place = place_of(&piece->slice, i);
        const size_t n_bytes = given_bytes(request, place);

        memcpy(piece->arguments + i * sizeof(uint32_t), &request->ask.given_lengths[place],
               sizeof(uint32_t));
        if (n_bytes > 0)
            memcpy(to, (const char *)request->ask.given + request->offsets[place], n_bytes);
        to += n_bytes;
    }
}

static bool fail_large(const RaggedRequest *request, size_t n_bytes, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "table %s: a request brings %zu bytes for one part; it may bring %zu at a time",
                request->client->route->spec->name, n_bytes, (size_t)RUBATO_HANDLER_MOST_BYTES);
    return false;
}

static bool cut_piece(RaggedRequest *request, GError **error)
{
    const Slice *const slice = &request->slicer.slices[request->slice];
    size_t n_bytes;
    const size_t n = measure_piece(request, &n_bytes);
    Piece *piece;

    if (n_bytes + n * sizeof(RubatoKey) > RUBATO_HANDLER_MOST_BYTES)
        return fail_large(request, n_bytes, error);
    piece = g_try_malloc(sizeof *piece + n_bytes);
    if (piece == NULL)
        return table_client_fail_memory(request->client, error);
    memset(piece, 0, sizeof *piece);
    piece->slice = part_of_slice(slice, request->at, n);
    piece->call =
        (HandlerCall){ .ops = request->ops, .arguments = piece->arguments, .n_bytes = n_bytes };
    if (n_bytes > 0)
        write_arguments(request, piece);
    g_ptr_array_add(request->pieces, piece);
    request->piece_bytes += n * sizeof(RubatoKey) + n_bytes;
    request->at += n;
    if (request->at == slice->keys.n) {
        request->slice++;
        request->at = 0;
    }
    return true;
}

/* Cuts pieces of so many bytes and, if there is one, at least one. */
static bool cut_pieces(RaggedRequest *request, size_t most_bytes, GError **error)
{
    while (request->slice < request->n_slices && request->piece_bytes < most_bytes)
        if (!cut_piece(request, error))
            return false;
    return true;
}

static void drop_pieces(RaggedRequest *request)
{
    for (guint i = 0; i < request->pieces->len; i++) {
        Piece *const piece = g_ptr_array_index(request->pieces, i);

        handler_answer_clear(&piece->call.answer);
        g_free(piece);
    }
    g_ptr_array_set_size(request->pieces, 0);
    request->piece_bytes = 0;
}

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
        offset += given_bytes(request, i);
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

    if (request != NULL && !cut_pieces(request, SIZE_MAX, error))
        g_clear_pointer(&request, ragged_request_free);
    return request;
}

void ragged_request_free(RaggedRequest *request)
{
    drop_pieces(request);
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

static void set_message(const RaggedRequest *request, Piece *piece, Call *call, uint32_t server)
{
    TableClient *const client = request->client;
    const TableRoute *const route = client->route;

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

static bool send_piece(const RaggedRequest *request, Piece *piece, Call *call, SendPiece how,
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
        Piece *const piece = g_ptr_array_index(request->pieces, i);

        if (!table_route_is_local(route, &piece->slice) &&
            !send_piece(request, piece, call, SEND_TO_SERVERS, error))
            return false;
    }
    return true;
}

/* All but the last go to their servers' threads, which work at the same time. */
static bool send_rest(const RaggedRequest *request, Call *call, GError **error)
{
    Piece *waiting = NULL;

    for (guint i = 0; i < request->pieces->len; i++) {
        Piece *const piece = g_ptr_array_index(request->pieces, i);

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
            request->piece_bytes + request->pieces->len * (uint64_t)TABLE_CLIENT_ADD_BYTES;
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

/* ---- answers ---- */

static bool fail_answer(const RaggedRequest *request, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                "table %s: a server has answered with rows that do not fit what was asked",
                request->client->route->spec->name);
    return false;
}

/* The lengths of a piece; *n_values gets more. */
static bool take_lengths(const RaggedRequest *request, const Piece *piece, uint64_t *n_values)
{
    const HandlerAnswer *const answer = &piece->call.answer;
    const size_t n = piece->slice.keys.n;
    const bool brings_rows = request->ask.taken != NULL || request->ask.fills;
    uint64_t n_here = 0;

    if (answer->n_bytes < n * sizeof(uint32_t))
        return false;
    for (size_t i = 0; i < n; i++) {
        uint32_t length;

        memcpy(&length, (const char *)answer->bytes + i * sizeof length, sizeof length);
        request->ask.lengths[place_of(&piece->slice, i)] = length;
        n_here += length;
    }
    *n_values += n_here;
    return answer->n_bytes - n * sizeof(uint32_t) ==
           (brings_rows ? n_here * request->value_bytes : 0);
}

static bool take_rows(const RaggedRequest *request, char *to)
{
    const RaggedAsk *const ask = &request->ask;
    g_autofree uint64_t *offsets = g_try_new(uint64_t, ask->n);
    uint64_t offset = 0;

    if (offsets == NULL)
        return false;
    for (size_t i = 0; i < ask->n; i++) {
        offsets[i] = offset;
        offset += ask->lengths[i] * (uint64_t)request->value_bytes;
    }
    for (guint i = 0; i < request->pieces->len; i++) {
        const Piece *const piece = g_ptr_array_index(request->pieces, i);
        const size_t n = piece->slice.keys.n;
        const char *from = (const char *)piece->call.answer.bytes + n * sizeof(uint32_t);
        const size_t n_from = piece->call.answer.n_bytes - n * sizeof(uint32_t);

        if (piece->slice.keys.at == NULL && n_from > 0) /* they follow one another there too */
            memcpy(to + offsets[piece->slice.row], from, n_from);
        for (size_t j = 0; j < n && piece->slice.keys.at != NULL; j++) {
            const size_t place = place_of(&piece->slice, j);
            const size_t n_bytes = ask->lengths[place] * request->value_bytes;

            if (n_bytes > 0)
                memcpy(to + offsets[place], from, n_bytes);
            from += n_bytes;
        }
    }
    return true;
}

static bool fail_room(const RaggedRequest *request, uint64_t n_values, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_RANGE,
                "table %s: the rows have %" G_GUINT64_FORMAT " values, and there is room for %zu",
                request->client->route->spec->name, n_values, request->ask.n_room);
    return false;
}

static bool take_answers(const RaggedRequest *request, GError **error)
{
    const RaggedAsk *const ask = &request->ask;
    uint64_t n_values = 0;
    char *to = ask->into;

    for (guint i = 0; i < request->pieces->len; i++)
        if (!take_lengths(request, g_ptr_array_index(request->pieces, i), &n_values))
            return fail_answer(request, error);
    if (ask->fills && n_values > ask->n_room)
        return fail_room(request, n_values, error);
    if (ask->taken != NULL && n_values > 0) {
        to = g_try_malloc_n(n_values, request->value_bytes);
        if (to == NULL)
            return table_client_fail_memory(request->client, error);
    }
    if (n_values > 0 && (ask->taken != NULL || ask->fills) && !take_rows(request, to)) {
        if (ask->taken != NULL)
            g_free(to);
        return table_client_fail_memory(request->client, error);
    }
    if (ask->taken != NULL)
        *ask->taken = to;
    return true;
}

bool ragged_request_take(const RaggedRequest *request, CallStatus status, GError **error)
{
    const char *failure = NULL;

    if (status == CALL_OK)
        return request->ask.writes || take_answers(request, error);
    for (guint i = 0; i < request->pieces->len && failure == NULL; i++)
        failure = ((const Piece *)g_ptr_array_index(request->pieces, i))->call.answer.failure;
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
        ok = ask->writes || take_answers(request, error);
    while (ok && request->slice < request->n_slices) {
        ok = cut_pieces(request, ask->writes ? BYTES_OF_A_ROUND : SIZE_MAX, error) &&
             run_round(request, error);
        drop_pieces(request);
    }
    if (request != NULL)
        ragged_request_free(request);
    return ok;
}
