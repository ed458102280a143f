/* The rows of a part that moves are sent as requests to the server that expects the part
 * (part_state.c). Rows of different lengths are sent as assignments.
 *
 * Threads: that of part steps, which owns the part. */
#include "engine/server/moving/moving_part.h"
#include "engine/server/moving/part_state.h"
#include "io/net/handler_call.h"
#include "models/handlers/handler.h"
#include "models/ragged/ragged.h"
#include "models/shard/ahead.h"
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

static bool assign_there(void *user, const RubatoKeys *keys, const HandlerCall *assigning,
                         GError **error)
{
    RowSender *const sender = user;
    Message message = { .kind = MESSAGE_HANDLER,
                        .call = sender->call,
                        .request = { .worker = BAD_GRADIENTS_NO_WORKER,
                                     .keys = *keys,
                                     .handler_call = &sender->assigning } };

    if (assigning == NULL)
        return moving_part_check(sender->moving, sender->way, CALL_NO_MEMORY, error);
    sender->assigning.ops = assigning->ops;
    sender->assigning.arguments = assigning->arguments;
    sender->assigning.n_bytes = assigning->n_bytes;
    return moving_part_ask(sender->moving, sender->way, &message, error);
}

/* ---- all of it ---- */

bool moving_part_send_rows(MovingPart *moving, const PartWay *way, GError **error)
{
    Call call;
    RowSender sender = { .moving = moving, .way = way, .call = &call };
    PartState state = {
        .shard = moving->shard, .send = send_request, .assign = assign_there, .user = &sender
    };
    bool ok;

    if (!part_state_init(&state))
        return moving_part_check(moving, way, CALL_NO_MEMORY, error);
    call_begin(&call, NULL);
    if (shard_is_ahead(moving->shard)) {
        g_autoptr(GArray) changed = shard_take_ahead(moving->shard);

        ok = part_state_send_rest(&state, changed, error);
    } else {
        ok = part_state_send(&state, error);
    }
    const CallStatus status = moving_part_finish(way, &call);

    part_state_clear(&state);
    handler_answer_clear(&sender.assigning.answer);
    return ok && moving_part_check(moving, way, moving->starved ? CALL_NO_MEMORY : status, error);
}
