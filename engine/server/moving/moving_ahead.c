/* The rows of a part that moves are sent ahead while requests to it go on, so that its senders wait
 * for what has changed since, and not for all of it.
 *
 * The shard notes which rows change from the beginning on (models/shard/ahead.h). Rows are read in
 * slices, each within one call as the server's owner, and sent outside of it; the next one when the
 * other server has handled the one before. So no request waits for more than a slice, on either
 * server. When all rows have been sent, those that have changed meanwhile are sent again, and so
 * on, until they are few or this has been done ROUNDS times: then they change as fast as they are
 * sent. What has changed since goes along when the part moves (moving_rows.c).
 *
 * A row that is sent again replaces what came before. One that was evicted since it was sent, or
 * that had expired when a write came to it that was not admitted, is removed at the other server. A
 * row that has expired is sent as any other, and has expired at the other server, too; sweeps are
 * held meanwhile. If there is no memory for the notes, all rows go when the part moves.
 *
 * A part of a table with max_bytes has as many bytes there as here. So the other server may evict
 * rows on the way, as for new rows: those of the keys that it cannot place as they are placed here.
 * With each slice it gets the counts of uses, which say how old the marks of rows are.
 *
 * Why the wait ends: the other server handles each message without a wait, and room in the window
 * to it comes by that. If its node is lost, or the run ends, the wait ends with an error.
 *
 * Threads: that of the engine's calls. */
#include <string.h>

#include "engine/server/moving/moving_part.h"
#include "engine/server/moving/part_state.h"
#include "engine/server/server_private.h"
#include "io/net/handler_call.h"
#include "models/shard/ahead.h"
#include "models/shard/image.h"

enum {
    ROUNDS = 5,
    WINDOW_SLICES = 4,
    LEAST_SLICE_BYTES = 16 << 10, /* with a small window: to wait for a slice takes as long */
};

/* A request that has been made, with its own copies. */
typedef struct {
    Message message;
    HandlerCall assigning; /* of ragged rows; its answer is this one's */
    RubatoKey *keys;
    void *bytes; /* its input, or the arguments of the call */
} Made;

typedef struct {
    uint32_t table, part;
    size_t slice_bytes;
    PartSlice slice;
    GArray *changed; /* of RubatoKey: rows that are sent again; NULL: not yet */
    size_t n_looked; /* of these: whether they have rows */
    size_t n_again;  /* of these, if they have */
    size_t n_slices; /* since `changed` began */
    GPtrArray *made; /* of Made: the present slice */
    bool is_ahead;   /* the shard notes what changes */
    bool lacks_memory;
} Ahead;

static void free_made(void *user)
{
    Made *const made = user;

    handler_answer_clear(&made->assigning.answer);
    g_free(made->keys);
    g_free(made->bytes);
    g_free(made);
}

/* ---- as the server's owner ---- */

/* Keeps a request. False: there is no memory. */
static bool keep(Ahead *ahead, const Message *message, const void *bytes, size_t n_bytes)
{
    const RubatoKeys *const keys = &message->request.keys;
    Made *const made = g_new0(Made, 1);

    made->message = *message;
    made->bytes = g_try_malloc(n_bytes + 1);
    if (keys->keys != NULL)
        made->keys = g_try_new(RubatoKey, keys->n);
    if (made->bytes == NULL || (keys->keys != NULL && made->keys == NULL)) {
        free_made(made);
        ahead->lacks_memory = true;
        return false;
    }
    if (n_bytes > 0)
        memcpy(made->bytes, bytes, n_bytes);
    if (keys->keys != NULL)
        memcpy(made->keys, keys->keys, keys->n * sizeof *made->keys);
    made->message.request.keys.keys = made->keys;
    g_ptr_array_add(ahead->made, made);
    return true;
}

static bool keep_request(void *user, Message *message, GError **error)
{
    Ahead *const ahead = user;
    const size_t n_bytes = message->request.keys.n * message->row_bytes;

    (void)error;
    return keep(ahead, message, message->request.input, n_bytes);
}

static bool keep_assignment(void *user, const RubatoKeys *keys, const HandlerCall *assigning,
                            GError **error)
{
    Ahead *const ahead = user;
    const Message message = { .kind = MESSAGE_HANDLER,
                              .request = { .worker = BAD_GRADIENTS_NO_WORKER, .keys = *keys } };
    Made *made;

    (void)error;
    if (assigning == NULL || !keep(ahead, &message, assigning->arguments, assigning->n_bytes)) {
        ahead->lacks_memory = true;
        return false;
    }
    made = g_ptr_array_index(ahead->made, ahead->made->len - 1);
    made->assigning.ops = assigning->ops;
    made->assigning.arguments = made->bytes;
    made->assigning.n_bytes = assigning->n_bytes;
    return true;
}

static void read_slice(const PartState *state, Ahead *ahead)
{
    size_t n_bytes = ahead->slice_bytes;

    if (!part_state_send_uses(state, NULL))
        return;
    if (ahead->changed == NULL)
        (void)part_state_send_rows(state, &ahead->slice, &n_bytes, NULL);
    else if (part_state_send_gone(state, ahead->changed, &ahead->n_looked, &n_bytes, NULL))
        (void)part_state_send_keys(state, ahead->changed, &ahead->n_again, &n_bytes, NULL);
}

/* Reads the next slice. */
static void go_ahead(Server *server, void *data)
{
    Ahead *const ahead = data;
    RubatoShard *const shard = server_find_shard(server, ahead->table, ahead->part);
    PartState state = {
        .shard = shard, .send = keep_request, .assign = keep_assignment, .user = ahead
    };

    ahead->n_slices++;
    if (!ahead->is_ahead && shard_has_pieces(shard)) {
        shard_begin_ahead(shard);
        ahead->is_ahead = true;
    }
    if (!ahead->is_ahead)
        return;
    ahead->lacks_memory = !part_state_init(&state);
    if (ahead->lacks_memory)
        return;
    read_slice(&state, ahead);
    part_state_clear(&state);
}

static void take_changed(Server *server, void *data)
{
    Ahead *const ahead = data;

    ahead->changed = shard_take_ahead(server_find_shard(server, ahead->table, ahead->part));
    ahead->n_looked = ahead->n_again = ahead->n_slices = 0;
}

static void end_ahead(Server *server, void *data)
{
    const Ahead *const ahead = data;
    RubatoShard *const shard = server_find_shard(server, ahead->table, ahead->part);

    if (shard != NULL)
        shard_end_ahead(shard);
}

void servers_end_ahead(Server *server, uint32_t table, uint32_t part)
{
    servers_run(server, 1, end_ahead, &(Ahead){ .table = table, .part = part });
}

/* ---- on the way ---- */

static bool send_slice(Ahead *ahead, const MovingPart *moving, const PartWay *way, GError **error)
{
    Call call;
    bool ok = true;

    call_begin(&call, NULL);
    for (guint i = 0; i < ahead->made->len && ok; i++) {
        Made *const made = g_ptr_array_index(ahead->made, i);

        made->message.call = &call;
        if (made->message.kind == MESSAGE_HANDLER)
            made->message.request.handler_call = &made->assigning;
        else
            made->message.request.input = made->bytes;
        ok = moving_part_ask(moving, way, &made->message, error);
    }
    const CallStatus status = moving_part_finish(way, &call);

    g_ptr_array_set_size(ahead->made, 0);
    return ok && moving_part_check(moving, way, status, error);
}

/* Sends slices until all rows have been sent, or all that are sent again. */
static bool send_slices(Ahead *ahead, const MovingPart *moving, const PartWay *way, GError **error)
{
    bool ok = true;

    do {
        servers_run(moving->server, 1, go_ahead, ahead);
        ok =
            moving_part_check(moving, way, ahead->lacks_memory ? CALL_NO_MEMORY : CALL_OK, error) &&
            send_slice(ahead, moving, way, error);
    } while (ok && ahead->is_ahead &&
             (ahead->changed == NULL ? !ahead->slice.has_all_rows
                                     : ahead->n_again < ahead->changed->len));
    return ok;
}

bool moving_part_send_ahead(Server *server, uint32_t table, uint32_t part, const PartWay *way,
                            GError **error)
{
    const MovingPart moving = { .server = server, .table = table, .part = part };
    Ahead ahead = { .table = table,
                    .part = part,
                    .slice_bytes = MAX((size_t)LEAST_SLICE_BYTES,
                                       server->office->sizes.window_bytes / WINDOW_SLICES),
                    .made = g_ptr_array_new_with_free_func(free_made) };
    bool ok = send_slices(&ahead, &moving, way, error);

    for (int round = 0; round < ROUNDS && ok && ahead.is_ahead && ahead.n_slices > 1; round++) {
        g_clear_pointer(&ahead.changed, g_array_unref);
        servers_run(server, 1, take_changed, &ahead);
        ok = send_slices(&ahead, &moving, way, error);
    }
    g_clear_pointer(&ahead.changed, g_array_unref);
    part_slice_clear(&ahead.slice);
    g_ptr_array_unref(ahead.made);
    return ok;
}
