/* All that a part has, without its tasks, as requests that bring it to an empty part of the same
 * table: for a part that moves, and for a replica that is made.
 *
 * Threads: the part's owner. */
#ifndef RUBATO_ENGINE_SERVER_MOVING_PART_STATE_H
#define RUBATO_ENGINE_SERVER_MOVING_PART_STATE_H

#include <glib.h>

#include "io/net/handler_call.h"
#include "io/net/message.h"
#include "models/shard/shard.h"

typedef struct {
    RubatoShard *shard;

    /* Sends a request, of which kind, keys, input and row_bytes are set, and copies what it needs.
     * False: no more is sent. */
    bool (*send)(void *user, Message *message, GError **error);

    /* Of a table whose rows have different lengths: sends some of them as a call that assigns them,
     * and copies its arguments; with a history, after them one that says how many writes have run.
     * NULL: there was no memory to read them. False: no more is sent. */
    bool (*assign)(void *user, const RubatoKeys *keys, const HandlerCall *assigning,
                   GError **error);
    void *user;

    /* as part_state_init makes them */
    size_t row_bytes, state_bytes;
    size_t most; /* rows at a time */
    void *values;
    RubatoKey *keys;
} PartState;

/* About so many bytes of rows are read at a time. */
#define PART_STATE_BLOCK_BYTES ((size_t)256 << 10)

/* Makes room for rows; shard, send, assign and user are set. False: there is no memory. */
bool part_state_init(PartState *state);
void part_state_clear(PartState *state);

/* If rows can be listed piece by piece (shard_has_pieces), they can be sent in slices, between
 * which requests are handled: each request that changes rows goes to the other part, too, behind
 * the slices before it. There it may come to a row that has not been sent, and makes something else
 * of it; that is over when the row comes. Where it depends on other rows which ones are there, and
 * whether a row is sent at all, or whether a request fails, the other part has to be told what a
 * request does (shard_tells_more). No handler may run until all rows have been sent, except
 * requests to rows of different lengths.
 *
 * What has been sent of the rows, and behind them of what admits keys. All zero at first. */
typedef struct {
    uint64_t next;     /* a dense row's number; in other storage a place */
    bool has_all_rows; /* they have been sent */
    uint64_t n_words;  /* of what admits keys that have been sent */
    bool at_end;       /* all has been sent */
    GArray *found;     /* of RubatoKey: the last rows up to that place */
    guint n_sent;      /* of these */
    bool has_walked;   /* there are no rows behind them */
} PartSlice;

void part_slice_clear(PartSlice *slice);

/* In three steps: what comes before rows; the next rows, of about so many bytes, and one row at
 * least, or of what admits keys as much; what comes behind them. False: `send` has failed. */
bool part_state_send_first(const PartState *state, GError **error);
bool part_state_send_slice(const PartState *state, PartSlice *slice, size_t n_bytes,
                           GError **error);
bool part_state_send_last(const PartState *state, GError **error);

/* The next rows alone; and those of keys from number *n_sent on, as far as they have rows, which
 * counts on. *n_bytes: about so many, and what is left of it. */
bool part_state_send_rows(const PartState *state, PartSlice *slice, size_t *n_bytes,
                          GError **error);
bool part_state_send_keys(const PartState *state, GArray *keys, size_t *n_sent, size_t *n_bytes,
                          GError **error);

/* The same of keys that have no rows any more, for the other part may have had them: it removes
 * them. All of these go before rows of the list: else it might evict others that stay. */
bool part_state_send_gone(const PartState *state, GArray *keys, size_t *n_looked, size_t *n_bytes,
                          GError **error);

/* As part_state_send, to a part that has had all rows but those of these keys. */
bool part_state_send_rest(const PartState *state, GArray *keys, GError **error);

/* False: `send` has failed. Where rows come, their counts of uses grow; the second function sends
 * those counts alone, which a part needs once more behind its rows if these came in slices. */
bool part_state_send(const PartState *state, GError **error);
bool part_state_send_uses(const PartState *state, GError **error);

#endif
