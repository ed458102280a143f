/* The state of a part, sent to the server of another node that expects it.
 *
 * It goes as ordinary requests, so that the other server checks and handles it like any request:
 * Sets for the rows, Sets of state for what the update rule keeps beside them, tunings, and counts
 * of bad deltas; then for each model its clocks, its kept Adds, tunings and announcements, and its
 * parked Gets. The other server takes such requests only for a part that it expects, and only from
 * the node that sends it.
 *
 * A parked Get stays here as well: its message belongs to a worker of this node, or is a request of
 * another node. It is answered with the answer to the Get that was sent on. If its rows have no
 * memory yet, they get some now, not when the answer comes.
 *
 * These requests take room in the window to the other node, like any request, and give it back when
 * they have been handled or parked. Nobody else waits for what is sent here, so the wait for room
 * ends as every such wait does.
 *
 * Threads: that of the engine's calls, which owns the part. Answers come on the thread that
 * receives, or that cancels. */
#include "engine/server/server_parts.h"

#include <rubato/error.h>

#include "io/net/handler_call.h"
#include "io/net/stall_clock.h"
#include "models/model.h"
#include "models/shard/shard.h"
#include "models/spec.h"
#include "models/update/rule.h"

/* About so many bytes of rows are read at a time. */
#define BLOCK_BYTES ((size_t)256 << 10)

static bool is_cancelled(void *user)
{
    const PartWay *way = user;

    /* seq_cst: set likewise before post_office_cancel sweeps */
    return atomic_load_explicit(way->cancelled, memory_order_seq_cst);
}

static uint32_t node_of(const PartWay *way)
{
    return way->office->servers[way->server].node;
}

static bool fail_cancelled(GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "the run has ended");
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
                              stall_clock_left_ms(&clock))) {
        if (is_cancelled((void *)(uintptr_t)way))
            return fail_cancelled(error);
        if (stall_clock_strikes(&clock))
            g_message("a part of table %s that moves waits for node %u to take in more of it (for "
                      "%.1f s so far)",
                      way->table_name, way->office->node_ids[node_of(way)], stall_clock_s(&clock));
    }
    return true;
}

/* Sends a request; its call gets a part. message: all but what is the same for all. */
static bool ask(const MovingPart *moving, const PartWay *way, Message *message, GError **error)
{
    if (!wait_room(way, error))
        return false;
    message->table = moving->table;
    message->part = moving->part;
    message->server = way->server;
    message->node = way->office->self;
    message->end = message_end_call;
    call_add_parts(message->call, 1);
    if (message->kind == MESSAGE_HANDLER)
        post_office_call_handler(way->office, message);
    else
        post_office_ask(way->office, message);
    post_office_flush(way->office);
    if (is_cancelled((void *)(uintptr_t)way)) /* it may have come behind the sweep */
        post_office_cancel(way->office, POST_OFFICE_ALL_EPOCHS);
    return true;
}

static CallStatus finish(const PartWay *way, Call *call)
{
    StallClock clock;

    call_sent(call);
    stall_clock_start(&clock, way->stall_ms);
    while (!post_office_wait(way->office, call, stall_clock_left_ms(&clock)))
        if (stall_clock_strikes(&clock))
            g_message("a part of table %s that moves waits for an answer of node %u (for %.1f s so "
                      "far)",
                      way->table_name, way->office->node_ids[node_of(way)], stall_clock_s(&clock));
    /* relaxed: the call has ended, which orders it */
    return (CallStatus)atomic_load_explicit(&call->status, memory_order_relaxed);
}

static bool check(const MovingPart *moving, const PartWay *way, CallStatus status, GError **error)
{
    const uint32_t node = way->office->node_ids[node_of(way)];

    switch (status) {
    case CALL_OK:
        return true;
    case CALL_CANCELLED:
        return fail_cancelled(error);
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

/* ---- rows, and what belongs to the shard ---- */

typedef struct {
    const MovingPart *moving;
    const PartWay *way;
    Call *call;
    size_t row_bytes, state_bytes;
    size_t most; /* rows at a time */
    void *values;
    RubatoKey *keys;
} RowSender;

static bool send_values(const RowSender *sender, MessageKind kind, const RubatoKeys *keys,
                        size_t row_bytes, GError **error)
{
    Message message = {
        .kind = kind,
        .call = sender->call,
        .row_bytes = row_bytes,
        .request = { .worker = BAD_GRADIENTS_NO_WORKER, .keys = *keys, .input = sender->values }
    };

    return ask(sender->moving, sender->way, &message, error);
}

static bool send_rows_of(const RowSender *sender, const RubatoKeys *keys, GError **error)
{
    RubatoShard *shard = sender->moving->shard;

    shard_get(shard, keys, sender->values);
    if (!send_values(sender, MESSAGE_SET, keys, sender->row_bytes, error))
        return false;
    if (sender->state_bytes == 0)
        return true;
    shard_get_state(shard, keys, sender->values);
    return send_values(sender, MESSAGE_SET_STATE, keys, sender->state_bytes, error);
}

static bool send_all_rows(const RowSender *sender, GError **error)
{
    RubatoShard *shard = sender->moving->shard;
    const bool is_range = rubato_table_spec_holds_range(shard_spec(shard));
    RubatoKey first;
    uint64_t n;

    shard_range(shard, &first, &n);
    if (!is_range)
        n = shard_n_rows(shard);
    for (uint64_t begin = 0; begin < n; begin += sender->most) {
        RubatoKeys keys = { .first = first + begin, .n = (size_t)MIN(n - begin, sender->most) };

        if (!is_range) {
            shard_list(shard, begin, keys.n, sender->keys);
            keys.keys = sender->keys;
        }
        if (!send_rows_of(sender, &keys, error))
            return false;
    }
    return true;
}

static bool send_counts(const RowSender *sender, GError **error)
{
    const BadGradients *bad = shard_bad_gradients(sender->moving->shard);
    const uint32_t n = bad_gradients_length(bad);
    const uint32_t most = (uint32_t)(BLOCK_BYTES / sizeof(BadCounts));

    for (uint32_t begin = 0; begin < n; begin += most) {
        const RubatoKeys numbers = { .first = begin, .n = MIN(n - begin, most) };

        bad_gradients_read(bad, begin, numbers.n, sender->values);
        if (!send_values(sender, MESSAGE_SET_BAD_GRADIENTS, &numbers, sizeof(BadCounts), error))
            return false;
    }
    return true;
}

static bool send_tunings(const RowSender *sender, GError **error)
{
    for (uint32_t i = 0; i < N_HYPERS; i++) {
        const RubatoHyper hyper = (RubatoHyper)i;
        Message message = { .kind = MESSAGE_TUNE,
                            .call = sender->call,
                            .request = { .worker = BAD_GRADIENTS_NO_WORKER } };
        double value;

        if (!shard_tuned(sender->moving->shard, hyper, &value))
            continue;
        message.request.tuning = (RubatoTuning){ .hyper = hyper, .value = value };
        if (!ask(sender->moving, sender->way, &message, error))
            return false;
    }
    return true;
}

bool moving_part_send_rows(MovingPart *moving, const PartWay *way, GError **error)
{
    const RubatoTableSpec *spec = shard_spec(moving->shard);
    Call call;
    RowSender sender = { .moving = moving,
                         .way = way,
                         .call = &call,
                         .row_bytes = spec_row_bytes(spec),
                         .state_bytes = spec_state_bytes(spec) };
    const size_t longest = MAX(sender.row_bytes, sender.state_bytes);
    bool ok;

    sender.most = MAX(1, BLOCK_BYTES / longest);
    g_autofree void *values = g_try_malloc(MAX(BLOCK_BYTES, longest));
    g_autofree RubatoKey *keys = g_try_new(RubatoKey, sender.most);
    if (values == NULL || keys == NULL)
        return check(moving, way, CALL_NO_MEMORY, error);
    sender.values = values;
    sender.keys = keys;
    call_begin(&call, NULL);
    ok = send_tunings(&sender, error) && send_all_rows(&sender, error) &&
         send_counts(&sender, error);
    const CallStatus status = finish(way, &call);

    return ok && check(moving, way, moving->starved ? CALL_NO_MEMORY : status, error);
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
        message.kind = MESSAGE_HANDLER;
        message.request.handler_call = &sent->handler_call;
    }
    ok = ask(moving, way, &message, error);
    if (!ok) {
        call_add_parts(&sent->call, 1);
        call_end_part(&sent->call, CALL_CANCELLED, UINT64_MAX);
    }
    call_sent(&sent->call); /* it may be gone from here on */
    return ok;
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
    return ask(moving, way, &message, error);
}

static MessageKind kind_of(const RubatoRequest *kept)
{
    switch (kept->kind) {
    case RUBATO_REQUEST_TUNE:
        return MESSAGE_TUNE;
    case RUBATO_REQUEST_ANNOUNCE:
        return MESSAGE_ANNOUNCE;
    case RUBATO_REQUEST_WRITE:
        return MESSAGE_HANDLER;
    default:
        return MESSAGE_ADD;
    }
}

static bool send_kept(const MovingPart *moving, const PartWay *way, uint32_t epoch,
                      const RubatoRequest *kept, Call *call, GError **error)
{
    Message message = { .kind = kind_of(kept),
                        .epoch = epoch,
                        .call = call,
                        .row_bytes = kept->input == NULL ? 0 : shard_row_bytes(moving->shard),
                        .request = *kept };

    return ask(moving, way, &message, error);
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
        ok = ok && send_kept(moving, way, moved->epoch, kept, &call, error);
        model_free_kept(kept);
    }
    for (; parked != NULL; parked = next) {
        next = parked->next;
        if (ok)
            ok = send_parked(moving, way, moved->epoch, parked, error);
        else
            end_parked(message_of_request(parked), CALL_CANCELLED);
    }
    status = finish(way, &call);
    /* CALL_CANCELLED: the task has ended there. CALL_NO_MEMORY: if it was there, that server fails
     * the task, too. */
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
    ok = ask(moving, way, &message, error);
    const CallStatus status = finish(way, &call);

    return ok && check(moving, way, status, error);
}

bool moving_part_send_models(MovingPart *moving, const PartWay *way, GError **error)
{
    bool ok = true;

    for (guint i = 0; i < moving->models->len; i++)
        ok &= send_model(moving, way, &g_array_index(moving->models, MovingModel, i),
                         ok ? error : NULL);
    g_array_set_size(moving->models, 0);
    return ok && fence(moving, way, error);
}

void moving_part_free(MovingPart *moving)
{
    shard_free(moving->shard);
    g_array_unref(moving->models);
    g_free(moving);
}
