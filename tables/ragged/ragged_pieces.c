/* Requests to ragged rows, cut into pieces. See ragged_request.h.
 *
 * Threads: see the header. */
#include <rubato/ragged_table.h>
#include <string.h>

#include "tables/client/client_private.h"
#include "tables/ragged/ragged_request_private.h"

enum {
    KEYS_OF_A_WRITE = 2048,
    KEYS_OF_A_READ = 4096,
    BYTES_OF_A_PIECE = 256 << 10, /* of rows; a longer row is a piece by itself */
};

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
            sizeof(uint32_t) + ragged_given_bytes(request, ragged_place_of(slice, request->at + i));

        if (!request->ask.is_whole && i > 0 && *n_bytes + more > BYTES_OF_A_PIECE)
            n = i;
        else
            *n_bytes += more;
    }
    return n;
}

static void write_arguments(const RaggedRequest *request, RaggedPiece *piece)
{
    const size_t n = piece->slice.keys.n;
    unsigned char *to = piece->arguments + n * sizeof(uint32_t);

    for (size_t i = 0; i < n; i++) {
        const size_t place = ragged_place_of(&piece->slice, i);
        const size_t n_bytes = ragged_given_bytes(request, place);

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
    RaggedPiece *piece;

    if (n_bytes + n * sizeof(RubatoKey) > RUBATO_HANDLER_MOST_BYTES)
        return fail_large(request, n_bytes, error);
    piece = g_try_malloc(sizeof *piece + n_bytes);
    if (piece == NULL)
        return table_client_fail_memory(request->client, error);
    memset(piece, 0, sizeof *piece);
    piece->slice = part_of_slice(slice, request->at, n);
    piece->call =
        (HandlerCall){ .ops = request->ops, .arguments = piece->arguments, .n_bytes = n_bytes };
    if (request->ask.writes)
        piece->call.number = table_client_number_call(request->client);
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

bool ragged_pieces_cut(RaggedRequest *request, size_t most_bytes, GError **error)
{
    while (request->slice < request->n_slices && request->piece_bytes < most_bytes)
        if (!cut_piece(request, error))
            return false;
    return true;
}

void ragged_pieces_drop(RaggedRequest *request)
{
    for (guint i = 0; i < request->pieces->len; i++) {
        RaggedPiece *const piece = g_ptr_array_index(request->pieces, i);

        handler_answer_clear(&piece->call.answer);
        g_free(piece);
    }
    g_ptr_array_set_size(request->pieces, 0);
    request->piece_bytes = 0;
}
