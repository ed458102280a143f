/* All that a part has, without its tasks, as requests that bring it to an empty part of the same
 * table: for a part that moves, and for a replica that is made.
 *
 * Threads: the part's owner. */
#ifndef RUBATO_ENGINE_SERVER_PART_STATE_H
#define RUBATO_ENGINE_SERVER_PART_STATE_H

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

/* False: `send` has failed. Where rows come, their counts of uses grow; the second function sends
 * those counts alone, which a replica needs once more behind its rows. */
bool part_state_send(const PartState *state, GError **error);
bool part_state_send_uses(const PartState *state, GError **error);

#endif
