/* The state of a part, sent to the server of another node that expects it.
 *
 * It goes as ordinary requests, so that the other server checks and handles it like any request:
 * first the rows and what else belongs to the shard (moving_rows.c); then for each model its
 * clocks, its kept Adds, tunings, announcements and calls, and its parked Gets. The other server
 * takes such requests only for a part that it expects, and only from the node that sends it.
 *
 * A parked Get stays here as well: its message belongs to a worker of this node, or is a request of
 * another node. It is answered with the answer to the Get that was sent on. If its rows have no
 * memory yet, they get some now, not when the answer comes. So does a kept call of a handler whose
 * caller waits.
 *
 * These requests take room in the window to the other node, like any request, and give it back when
 * they have been handled or parked. Nobody else waits for what is sent here, so the wait for room
 * ends as every such wait does.
 *
 * If the other node is lost in a run that goes on, nothing comes from it any more: then the
 * requests that wait for its answers are ended here.
 *
 * Threads: the one that owns the part: that of the engine's calls, or of part steps in a HAND_OVER.
 * Answers come on the thread that receives, or that cancels. */
#include "engine/server/moving/moving_part.h"

#include <rubato/error.h>

#include "engine/server/replicas/replica_feed.h"
#include "engine/server/request_ops.h"
#include "io/net/handler_call.h"
#include "io/net/stall_clock.h"
#include "models/model.h"
#include "models/shard/shard.h"

static uint32_t node_of(const PartWay *way)
{
    return way->office->servers[way->server].node;
}

static bool is_lost(const PartWay *way)
{
    return way->is_lost != NULL && way->is_lost(way->user, node_of(way));
}

static bool has_ended(const PartWay *way)
{
    /* seq_cst: set likewise before post_office_cancel sweeps */
    return atomic_load_explicit(way->cancelled, memory_order_seq_cst);
}

static bool is_cancelled(void *user)
{
    const PartWay *way = user;

    return has_ended(way) || is_lost(way);
}

static bool fail_cancelled(const PartWay *way, GError **error)
{
    if (has_ended(way) || !is_lost(way))
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "the run has ended");
    else
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST,
                    "table %s: a part could not move to server %u: node %u was lost",
                    way->table_name, way->server, way->office->node_ids[node_of(way)]);
    return false;
}

static bool wait_room(const PartWay *way, GError **error)
{
    Network *network = way->office->network;
    StallClock clock;

    if (network_has_room(network, node_of(way)))
        return true;
    stall_clock_start(&clock, way->stall_ms);
    while (!network_wait_room(network, node_of(way), is_cancelled, (void *)(uintptr_t)way,
                              stall_clock_look_ms(&clock, PART_WAY_LOOK_MS))) {
        if (is_cancelled((void *)(uintptr_t)way))
            return fail_cancelled(way, error);
        if (stall_clock_strikes(&clock))
            g_message("a part of table %s that moves waits for node %u to take in more of it (for "
                      "%.1f s so far)",
                      way->table_name, way->office->node_ids[node_of(way)], stall_clock_s(&clock));
    }
    return true;
}

bool moving_part_ask(const MovingPart *moving, const PartWay *way, Message *message, GError **error)
{
    if (!way->goes_at_once && !wait_room(way, error))
        return false;
    message->table = moving->table;
    message->part = moving->part;
    message->server = way->server;
    message->node = way->office->self;
    message->end = message_end_call;
    call_add_parts(message->call, 1);
    if (message->kind == MESSAGE_HANDLER)
        post_office_call_handler(way->office, message);
    else /* the input is used again before the call has ended */
        (void)post_office_tell(way->office, message);
    post_office_flush(way->office);
    if (has_ended(way)) /* it may have come behind the sweep */
        post_office_cancel(way->office, POST_OFFICE_ALL_EPOCHS);
    return true;
}

static bool is_call(const Call *call, const void *data)
{
    return call == data;
}

CallStatus moving_part_finish(const PartWay *way, Call *call)
{
    StallClock clock;

    call_sent(call);
    stall_clock_start(&clock, way->stall_ms);
    while (!post_office_wait(way->office, call, stall_clock_look_ms(&clock, PART_WAY_LOOK_MS))) {
        if (is_lost(way))
            post_office_leave_calls(way->office, node_of(way), is_call, call);
        if (stall_clock_strikes(&clock))
            g_message("a part of table %s that moves waits for an answer of node %u (for %.1f s so "
                      "far)",
                      way->table_name, way->office->node_ids[node_of(way)], stall_clock_s(&clock));
    }
    /* relaxed: the call has ended, which orders it */
    return (CallStatus)atomic_load_explicit(&call->status, memory_order_relaxed);
}

bool moving_part_check(const MovingPart *moving, const PartWay *way, CallStatus status,
                       GError **error)
{
    const uint32_t node = way->office->node_ids[node_of(way)];

    switch (status) {
    case CALL_OK:
        return true;
    case CALL_CANCELLED:
        return fail_cancelled(way, error);
    case CALL_NO_MEMORY:
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "table %s: there is no memory to move part %u to server %u (node %u)",
                    way->table_name, moving->part, way->server, node);
        return false;
    case CALL_FAILED:
    case CALL_REFUSED:
    case CALL_MOVED:
        break;
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "table %s: server %u refused part %u; the log of node %u says why", way->table_name,
                way->server, moving->part, node);
    return false;
}

/* ---- models ---- */

/* A parked Get that was sent on. */
typedef struct {
    Call call; /* first: its end finds it */
    Message *parked;
    HandlerCall handler_call; /* of the call of a handler: as sent on, for its answer */
} SentOn;

static void answer_parked(Call *call)
{
    SentOn *sent = (SentOn *)call;
    Message *parked = sent->parked;

    /* relaxed: the call has ended, which orders them */
    parked->status = (CallStatus)atomic_load_explicit(&call->status, memory_order_relaxed);
    parked->min_clock = atomic_load_explicit(&call->min_clock, memory_order_relaxed);
    if (parked->kind == MESSAGE_HANDLER)
        parked->request.handler_call->answer = sent->handler_call.answer;
    g_free(sent);
    message_end(parked);
}

static void end_parked(Message *parked, CallStatus status)
{
    parked->status = status;
    message_end(parked);
}

static bool send_parked(const MovingPart *moving, const PartWay *way, uint32_t epoch,
                        RubatoRequest *request, GError **error)
{
    Message *parked = message_of_request(request);
    const size_t row_bytes = shard_row_bytes(moving->shard);
    SentOn *sent;
    bool ok;

    if (parked->kind != MESSAGE_HANDLER && request->output == NULL && request->keys.n > 0 &&
        !post_office_make_room(parked, request->keys.n * row_bytes)) {
        end_parked(parked, CALL_NO_MEMORY);
        return true;
    }
    sent = g_new0(SentOn, 1);
    sent->parked = parked;
    call_begin(&sent->call, answer_parked);
    Message message = { .kind = MESSAGE_GET,
                        .epoch = epoch,
                        .call = &sent->call,
                        .row_bytes = row_bytes,
                        .request = { .worker = request->worker,
                                     .clock = request->clock,
                                     .keys = request->keys,
                                     .output = request->output } };
    if (parked->kind == MESSAGE_HANDLER) {
        sent->handler_call = *request->handler_call;
        sent->handler_call.record = NULL; /* of this part, which has left */
        /* if the next primary is lost, its caller may hear of that only after the answer */
        sent->handler_call.comes_again = shard_spec(moving->shard)->replicas > 0;
        message.kind = MESSAGE_HANDLER;
        message.request.handler_call = &sent->handler_call;
    }
    ok = moving_part_ask(moving, way, &message, error);
    if (!ok) {
        call_add_parts(&sent->call, 1);
        call_end_part(&sent->call, CALL_CANCELLED, UINT64_MAX);
    }
    call_sent(&sent->call); /* it may be gone from here on */
    return ok;
}

/* Sends a parked request on if all before it were sent; otherwise ends it. */
static bool move_parked(const MovingPart *moving, const PartWay *way, uint32_t epoch,
                        RubatoRequest *request, bool ok, GError **error)
{
    if (ok)
        return send_parked(moving, way, epoch, request, error);
    end_parked(message_of_request(request), CALL_CANCELLED);
    return false;
}

static bool send_clocks(const MovingPart *moving, const PartWay *way, const MovingModel *moved,
                        Call *call, GError **error)
{
    const uint32_t n = model_n_sources(moved->model);
    g_autofree uint64_t *clocks = g_new(uint64_t, n);
    Message message = { .kind = MESSAGE_SET_CLOCKS,
                        .epoch = moved->epoch,
                        .call = call,
                        .row_bytes = sizeof *clocks,
                        .request = { .keys = { .n = n }, .input = clocks } };

    for (uint32_t i = 0; i < n; i++)
        clocks[i] = rubato_model_clock(moved->model, i);
    return moving_part_ask(moving, way, &message, error);
}

static bool send_kept(const MovingPart *moving, const PartWay *way, uint32_t epoch,
                      const RubatoRequest *kept, Call *call, GError **error)
{
    Message message = { .kind = request_kind_of_kept(kept),
                        .epoch = epoch,
                        .call = call,
                        .row_bytes = kept->input == NULL ? 0 : shard_row_bytes(moving->shard),
                        .request = *kept };

    return moving_part_ask(moving, way, &message, error);
}

/* What a model held is lost. */
static void fail_task(const MovingPart *moving, const PartWay *way, uint32_t epoch)
{
    const Server *server = moving->server;
    g_autofree char *text = g_strdup_printf(
        "table %s: what the task has on part %u could not be moved to server %u "
        "(node %u), for lack of memory",
        way->table_name, moving->part, way->server, way->office->node_ids[node_of(way)]);

    if (server->fail_task != NULL)
        server->fail_task(server->user, epoch, RUBATO_ERROR_MEMORY, text);
}

static bool send_model(const MovingPart *moving, const PartWay *way, const MovingModel *moved,
                       GError **error)
{
    RubatoRequest *kept, *next;
    CallStatus status;
    Call call;
    bool ok;

    call_begin(&call, NULL);
    ok = send_clocks(moving, way, moved, &call, error);
    RubatoRequest *parked = model_take_apart(moved->model, &kept);

    for (; kept != NULL; kept = next) {
        next = kept->next;
        if (model_is_parked_call(kept)) { /* it has its place among the others */
            ok = move_parked(moving, way, moved->epoch, kept, ok, error);
            continue;
        }
        ok = ok && send_kept(moving, way, moved->epoch, kept, &call, error);
        model_free_kept(kept);
    }
    for (; parked != NULL; parked = next) {
        next = parked->next;
        ok = move_parked(moving, way, moved->epoch, parked, ok, error);
    }
    status = moving_part_finish(way, &call);
    /* CALL_CANCELLED: the task has ended there, or the node is lost, of which moving_part_lose
     * knows. CALL_NO_MEMORY: if it was there, that server fails the task, too. */
    if (ok && status != CALL_OK && status != CALL_CANCELLED)
        fail_task(moving, way, moved->epoch);
    return ok;
}

/* A fence: what was sent before has been handled, or is parked. */
static bool fence(const MovingPart *moving, const PartWay *way, GError **error)
{
    Call call;
    Message message = { .kind = MESSAGE_FENCE, .call = &call };
    bool ok;

    call_begin(&call, NULL);
    ok = moving_part_ask(moving, way, &message, error);
    const CallStatus status = moving_part_finish(way, &call);

    return ok && moving_part_check(moving, way, status, error);
}

bool moving_part_send_models(MovingPart *moving, const PartWay *way, GError **error)
{
    bool ok = true;

    for (guint i = 0; i < moving->models->len; i++) {
        MovingModel *const moved = &g_array_index(moving->models, MovingModel, i);

        ok &= send_model(moving, way, moved, ok ? error : NULL);
        moved->model = NULL;
    }
    return ok && fence(moving, way, error);
}

static bool is_sent_on(const Call *call, const void *data)
{
    (void)data;
    return call->ended == answer_parked;
}

void moving_part_lose(const MovingPart *moving, const PartWay *way)
{
    const Server *const server = moving->server;
    const uint32_t node = way->office->node_ids[node_of(way)];

    for (guint i = 0; i < moving->models->len; i++) {
        const MovingModel *const moved = &g_array_index(moving->models, MovingModel, i);
        g_autofree char *text = NULL;

        if (moved->model != NULL || server->fail_task == NULL)
            continue;
        text = g_strdup_printf("node %u was lost, and what the task has on part %u of table %s was "
                               "on its way to its server %u",
                               node, moving->part, way->table_name, way->server);
        server->fail_task(server->user, moved->epoch, RUBATO_ERROR_NODE_LOST, text);
    }
    /* behind the cause: their workers fail, too */
    post_office_leave_calls(way->office, node_of(way), is_sent_on, NULL);
}

void moving_part_send_parked(MovingPart *moving, const PartWay *way)
{
    for (guint i = 0; i < moving->models->len; i++) {
        MovingModel *const moved = &g_array_index(moving->models, MovingModel, i);
        RubatoRequest *kept, *next;
        RubatoRequest *parked = model_take_apart(moved->model, &kept);

        for (; kept != NULL; kept = next) {
            next = kept->next;
            if (model_is_parked_call(kept))
                (void)send_parked(moving, way, moved->epoch, kept, NULL);
            else
                model_free_kept(kept);
        }
        for (; parked != NULL; parked = next) {
            next = parked->next;
            (void)send_parked(moving, way, moved->epoch, parked, NULL);
        }
        moving_model_clear(moved);
    }
    g_array_set_size(moving->models, 0);
}

void moving_model_clear(MovingModel *moved)
{
    g_clear_pointer(&moved->had, input_sequences_free);
}

void moving_part_free(MovingPart *moving)
{
    shard_free(moving->shard);
    g_array_unref(moving->models);
    g_free(moving);
}
