/* What the files of a request to ragged rows share. See ragged_request.c.
 *
 * Threads: as ragged_request.h says. */
#ifndef RUBATO_TABLES_RAGGED_RAGGED_REQUEST_PRIVATE_H
#define RUBATO_TABLES_RAGGED_RAGGED_REQUEST_PRIVATE_H

#include "io/net/handler_call.h"
#include "tables/ragged/ragged_request.h"

/* Some keys of a part, with what is brought for them. */
typedef struct {
    Slice slice;
    bool is_sent;
    HandlerCall call;
    Message message;
    unsigned char arguments[]; /* lengths, then rows */
} RaggedPiece;

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
    GPtrArray *pieces;  /* of RaggedPiece */
    size_t piece_bytes; /* of their keys and rows */
};

/* The place of a slice's key in the caller's arrays, and the bytes that are given for it. */
static inline size_t ragged_place_of(const Slice *slice, size_t i)
{
    return slice->keys.at != NULL ? slice->keys.at[i] : slice->row + i;
}

static inline size_t ragged_given_bytes(const RaggedRequest *request, size_t place)
{
    return request->ask.given_lengths[place] * request->value_bytes;
}

/* ---- ragged_pieces.c ---- */

/* Cuts pieces of so many bytes and, if there is one, at least one. */
bool ragged_pieces_cut(RaggedRequest *request, size_t most_bytes, GError **error);
void ragged_pieces_drop(RaggedRequest *request);

/* ---- ragged_answers.c ---- */

/* All pieces have been answered with success: writes what was read to the caller's arrays. */
bool ragged_answers_take(const RaggedRequest *request, GError **error);

#endif
