/* A request of a worker, or of the engine, to a table whose rows have different lengths.
 *
 * A request is sent to servers in pieces, which are calls of the library's own handlers
 * (models/ragged/ragged.h). A piece is for some keys of a part. Pieces are small, so that no server
 * is busy with one for long, and compaction keeps up with them. Only an add is one piece for each
 * part, because it is done as a whole or not at all.
 *
 * Threads: the client's worker; ragged_request_take on the thread that ended the call, too. */
#ifndef RUBATO_TABLES_RAGGED_RAGGED_REQUEST_H
#define RUBATO_TABLES_RAGGED_RAGGED_REQUEST_H

#include "tables/client/client.h"

/* What is asked. Only the arrays that a request of this name needs are set; see
 * rubato/ragged_table.h. */
typedef struct {
    const char *name; /* "ragged.get" and so on */
    bool writes;
    bool is_whole; /* a part's keys are one piece */
    const RubatoKey *keys;
    size_t n;

    const uint32_t *given_lengths; /* with given; NULL: it brings no rows */
    const void *given;

    uint32_t *lengths; /* of a reading request */
    void **taken;      /* becomes an array of the rows, */
    void *into;        /* or they go here, where there is room for n_room values */
    size_t n_room;
    bool fills; /* there is `into`, which may be NULL without room */
} RaggedAsk;

typedef struct RaggedRequest RaggedRequest;

/* Makes a request, and waits for it. */
bool ragged_request_run(TableClient *client, const RaggedAsk *ask, GError **error);

/* The same in steps. The first step checks the request, copies keys and rows, and makes all pieces.
 * NULL on error. (transfer full) */
RaggedRequest *ragged_request_new(TableClient *client, const RaggedAsk *ask, GError **error);
void ragged_request_free(RaggedRequest *request);

/* The bytes that the request takes, here and on servers. */
size_t ragged_request_bytes(const RaggedRequest *request);

/* Sends the pieces as parts of a call. False with RUBATO_ERROR_CANCELLED: some of them were not
 * sent, and one more part of the call has ended as cancelled. */
bool ragged_request_send(RaggedRequest *request, Call *call, GError **error);

/* Called once the call has ended, with CALL_OK or CALL_FAILED: writes what was read to the arrays
 * of the request, or sets the error of a part that failed. */
bool ragged_request_take(const RaggedRequest *request, CallStatus status, GError **error);

/* ---- ragged_history.c ---- */

/* Records the pieces in the history, which is kept. They write, or have been taken. Flags: as in
 * HistoryRecord. The second is of a ticket that reads, begun at that clock after so many Adds. */
void ragged_history_note(const RaggedRequest *request, unsigned flags);
void ragged_history_note_late(const RaggedRequest *request, uint64_t clock, uint64_t n_adds);

#endif
