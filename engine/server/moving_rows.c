/* The rows of a part that moves are sent as requests to the server that expects the part
 * (part_state.c). Rows of different lengths are sent as assignments.
 *
 * Threads: that of part steps, which owns the part. */
#include "engine/server/moving_part.h"
#include "engine/server/part_state.h"
#include "io/net/handler_call.h"
#include "models/handlers/handler.h"
#include "models/ragged/ragged.h"
#include "models/shard/shard.h"

typedef struct {
    const MovingPart *moving;
    const PartWay *way;
    Call *call;
    HandlerCall assigning; /* of ragged rows; it gets the answers until the call has ended */
} RowSender;

static bool send_request(void *user, Message *message, GError **error)
{
    const RowSender *const sender = user;

    message->call = sender->call;
    return moving_part_ask(sender->moving, sender->way, message, error);
}

/* ---- rows of different lengths ---- */

/* Runs a request on this shard. False: there is no memory. */
static bool ask_here(const RowSender *sender, const char *name, const RubatoKeys *keys,
                     HandlerAnswer *answer)
{
    HandlerCall call = { .ops = ragged_find(name), .arguments = "" };

    handler_run(&call, sender->moving->shard, keys);
    *answer = call.answer;
    return answer->failure == NULL && (answer->bytes != NULL || keys->n == 0);
}

/* Sends rows as an assignment: the result of a Get is what an assignment takes. */
static bool assign_there(RowSender *sender, const RubatoKeys *keys, GError **error)
{
    HandlerCall *const call = &sender->assigning;
    Message message = {
        .kind = MESSAGE_HANDLER,
        .call = sender->call,
        .request = { .worker = BAD_GRADIENTS_NO_WORKER, .keys = *keys, .handler_call = call }
    };
    HandlerAnswer rows;
    bool ok;

    if (!ask_here(sender, "ragged.get", keys, &rows)) {
        handler_answer_clear(&rows);
        return moving_part_check(sender->moving, sender->way, CALL_NO_MEMORY, error);
    }
    call->ops = ragged_find("ragged.assign");
    call->arguments = rows.bytes;
    call->n_bytes = rows.n_bytes;
    ok = moving_part_ask(sender->moving, sender->way, &message, error);
    handler_answer_clear(&rows); /* they were copied */
    return ok;
}

static RubatoKeys some_keys(const RubatoKeys *keys, size_t begin, size_t n)
{
    return (RubatoKeys){ .keys = keys->keys == NULL ? NULL : keys->keys + begin,
                         .first = keys->first + begin,
                         .n = n };
}

/* Sends rows of about PART_STATE_BLOCK_BYTES at a time, and one row at least. */
static bool send_ragged_rows(void *user, const RubatoKeys *keys, GError **error)
{
    RowSender *const sender = user;
    const size_t value_bytes = rubato_dtype_size(shard_spec(sender->moving->shard)->dtype);
    HandlerAnswer lengths;
    bool ok = true;

    if (!ask_here(sender, "ragged.lengths", keys, &lengths)) {
        handler_answer_clear(&lengths);
        return moving_part_check(sender->moving, sender->way, CALL_NO_MEMORY, error);
    }
    for (size_t begin = 0, i = 0; begin < keys->n && ok; begin = i) {
        for (size_t n_bytes = 0; i < keys->n && n_bytes < PART_STATE_BLOCK_BYTES; i++)
            n_bytes += value_bytes * ((const uint32_t *)lengths.bytes)[i];

        const RubatoKeys some = some_keys(keys, begin, i - begin);

        ok = assign_there(sender, &some, error);
    }
    handler_answer_clear(&lengths);
    return ok;
}

/* ---- all of it ---- */

bool moving_part_send_rows(MovingPart *moving, const PartWay *way, GError **error)
{
    const bool is_ragged = shard_spec(moving->shard)->shape == RUBATO_SHAPE_RAGGED;
    Call call;
    RowSender sender = { .moving = moving, .way = way, .call = &call };
    PartState state = { .shard = moving->shard,
                        .send = send_request,
                        .send_ragged = is_ragged ? send_ragged_rows : NULL,
                        .user = &sender };
    bool ok;

    if (!part_state_init(&state))
        return moving_part_check(moving, way, CALL_NO_MEMORY, error);
    call_begin(&call, NULL);
    ok = part_state_send(&state, error);
    const CallStatus status = moving_part_finish(way, &call);

    part_state_clear(&state);
    handler_answer_clear(&sender.assigning.answer);
    return ok && moving_part_check(moving, way, moving->starved ? CALL_NO_MEMORY : status, error);
}
