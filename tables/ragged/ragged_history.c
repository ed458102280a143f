/* What goes into the history of a request to ragged rows: a record for each piece. See
 * ragged_request.h.
 *
 * Threads: the client's worker; of a ticket that reads, the one that ended the call. */
#include <string.h>

#include "tables/client/client_private.h"
#include "tables/ragged/ragged_request_private.h"

static HistoryRaggedOp op_of(const char *name)
{
    static const char *const names[] = {
        [HISTORY_RAGGED_LENGTHS] = "ragged.lengths", [HISTORY_RAGGED_GET] = "ragged.get",
        [HISTORY_RAGGED_ADD] = "ragged.add",         [HISTORY_RAGGED_ASSIGN] = "ragged.assign",
        [HISTORY_RAGGED_APPEND] = "ragged.append",   [HISTORY_RAGGED_ERASE] = "ragged.erase",
    };
    size_t op = HISTORY_RAGGED_LENGTHS;

    while (op < HISTORY_RAGGED_ERASE && strcmp(names[op], name) != 0)
        op++;
    return (HistoryRaggedOp)op;
}

/* A piece that reads has been answered, and its answer was checked. */
static HistoryRagged record_of(const RaggedRequest *request, const RaggedPiece *piece)
{
    const bool writes = request->ask.writes;
    const char *const bytes =
        writes ? piece->call.arguments : (const char *)piece->call.answer.bytes;
    const bool has_lengths = !writes || request->ask.given_lengths != NULL;
    const HistoryRaggedOp op = op_of(request->ask.name);

    return (HistoryRagged){
        .op = op,
        .number = piece->call.number,
        .part = piece->slice.part,
        .keys = piece->slice.keys,
        .lengths = has_lengths ? bytes : NULL,
        .rows = has_lengths && op != HISTORY_RAGGED_LENGTHS
                    ? bytes + piece->slice.keys.n * sizeof(uint32_t)
                    : NULL,
    };
}

void ragged_history_note(const RaggedRequest *request, unsigned flags)
{
    for (guint i = 0; i < request->pieces->len; i++) {
        HistoryRagged record = record_of(request, g_ptr_array_index(request->pieces, i));

        record.flags = flags;
        table_client_note_ragged(request->client, &record);
    }
}

void ragged_history_note_late(const RaggedRequest *request, uint64_t clock, uint64_t n_adds)
{
    for (guint i = 0; i < request->pieces->len; i++) {
        HistoryRagged record = record_of(request, g_ptr_array_index(request->pieces, i));

        record.flags = HISTORY_OF_TICKET;
        record.clock = clock;
        record.n_adds = n_adds;
        table_client_note_late_ragged(request->client, &record);
    }
}
