/* A request of a worker, or of the engine, to a table whose rows have different lengths.
 *
 * A request goes to servers as calls of the library's own handlers (models/ragged/ragged.h): one
 * piece for some keys of a part. Pieces are small, so that no server is held up for long, and so
 * that compaction keeps up with them; only an Add is one piece for each part, because it is done as
 * a whole or not at all.
 *
 * Threads: the client's worker; ragged_request_take on the thread that ended the call, too. */
#ifndef RUBATO_TABLES_RAGGED_REQUEST_H
#define RUBATO_TABLES_RAGGED_REQUEST_H

#include "tables/client/client.h"

/* What is asked. Of the arrays those that its name wants are given; see rubato/ragged_table.h. */
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

/* The same in steps. The first one checks it and makes all pieces; it copies keys and rows. NULL on
 * error. (transfer full) */
RaggedRequest *ragged_request_new(TableClient *client, const RaggedAsk *ask, GError **error);
void ragged_request_free(RaggedRequest *request);

/* What it takes here and on servers, and in how many parts of a call it goes. */
size_t ragged_request_bytes(const RaggedRequest *request);

/* Sends the pieces as parts of a call. False with RUBATO_ERROR_CANCELLED: some of them were not
 * sent, and one more part of the call has ended so. */
bool ragged_request_send(RaggedRequest *request, Call *call, GError **error);

/* The call has ended with this status, which is CALL_OK or CALL_FAILED: writes what was read where
 * it was asked for, or tells why a part failed. */
bool ragged_request_take(const RaggedRequest *request, CallStatus status, GError **error);

#endif
