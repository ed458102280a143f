/* The answers of a request to ragged rows, taken apart. See ragged_request.h.
 *
 * What answers of other nodes say is checked before it is used.
 *
 * Threads: see the header. */
#include <rubato/error.h>
#include <string.h>

#include "tables/client/client_private.h"
#include "tables/ragged/ragged_request_private.h"

static bool fail_answer(const RaggedRequest *request, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                "table %s: a server has answered with rows that do not fit what was asked",
                request->client->route->spec->name);
    return false;
}

/* The lengths of a piece; *n_values gets more. */
static bool take_lengths(const RaggedRequest *request, const RaggedPiece *piece, uint64_t *n_values)
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
        request->ask.lengths[ragged_place_of(&piece->slice, i)] = length;
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
        const RaggedPiece *const piece = g_ptr_array_index(request->pieces, i);
        const size_t n = piece->slice.keys.n;
        const char *from = (const char *)piece->call.answer.bytes + n * sizeof(uint32_t);
        const size_t n_from = piece->call.answer.n_bytes - n * sizeof(uint32_t);

        if (piece->slice.keys.at == NULL && n_from > 0) /* they follow one another there too */
            memcpy(to + offsets[piece->slice.row], from, n_from);
        for (size_t j = 0; j < n && piece->slice.keys.at != NULL; j++) {
            const size_t place = ragged_place_of(&piece->slice, j);
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

bool ragged_answers_take(const RaggedRequest *request, GError **error)
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
