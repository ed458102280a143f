/* What a replica that is made gets from its primary: see server_copies.c.
 *
 * A model cannot be looked into. So it is taken apart, as for a part that moves, and what it held
 * goes to a new model here and to that of the replica, in the same order.
 *
 * Thread: the server's owner. */
#include "engine/server/replicas/copy.h"

#include "engine/server/replicas/server_answers.h"
#include "engine/server/replicas/server_calls.h"
#include "engine/server/replicas/server_feed.h"
#include "engine/server/replicas/server_inputs.h"
#include "engine/server/request_ops.h"
#include "io/net/handler_call.h"
#include "models/handlers/call_records.h"
#include "models/ragged/ragged.h"

static void push(Copy *copy, Message *piece, uint8_t kind)
{
    copy->n_bytes += server_input_bytes(piece);
    copy->is_starved =
        copy->is_starved || !server_try_push_input(copy->server, copy->fed, copy->to, piece, kind);
}

/* Sends a request of the image, in pieces of the size of a message. */
static void push_request(Copy *copy, const Message *request)
{
    const RubatoKeys all = request->request.keys;
    const size_t most = post_office_max_keys(request->row_bytes);
    const char *const rows = request->request.input;
    size_t begin = 0;

    do {
        const size_t n = MIN(most, all.n - begin);
        Message piece = *request;

        piece.number = 0;
        piece.request.keys = message_keys_from(&all, begin, n);
        /* a selection's positions count from the start of all rows */
        if (rows != NULL)
            piece.request.input = rows + (all.at != NULL ? 0 : begin * request->row_bytes);
        push(copy, &piece, (uint8_t)request->kind);
        begin += n;
    } while (begin < all.n);
}

static bool push_state(void *user, Message *message, GError **error)
{
    Copy *const copy = user;

    (void)error;
    push_request(copy, message);
    return !copy->is_starved;
}

static void push_piece(void *user, Message *message, uint8_t fed_kind)
{
    push(user, message, fed_kind);
}

static bool push_assignment(void *user, const RubatoKeys *keys, const HandlerCall *assigning,
                            GError **error)
{
    Copy *const copy = user;

    (void)error;
    copy->is_starved = assigning == NULL ||
                       !server_push_assignment(keys, assigning, push_piece, copy) ||
                       copy->is_starved;
    return !copy->is_starved;
}

static void push_had(Copy *copy, uint32_t epoch, const InputSequences *had)
{
    Message message = { .epoch = epoch,
                        .row_bytes = sizeof had->senders[0],
                        .request = { .keys = { .n = had->n_senders }, .input = had->senders } };

    message.kind = (MessageKind)FEED_HAD;
    push_request(copy, &message);
}

void copy_push_mark(Copy *copy, uint32_t map, uint8_t kind)
{
    Message message = { .number = kind == FEED_COPY ? copy->fed->feed.n_inputs : 0,
                        .request = { .worker = copy->server->number, .clock = map } };

    push(copy, &message, kind);
}

/* ---- its tasks ---- */

static uint32_t node_of_rank(const Binding *binding, uint32_t rank)
{
    uint32_t node = 0;

    for (uint32_t first = 0; node < binding->n_nodes; node++) {
        if (rank - first < binding->workers_of[node])
            break;
        first += binding->workers_of[node];
    }
    return node;
}

static void copy_clocks(Copy *copy, uint32_t epoch, RubatoModel *fresh, uint32_t first, uint32_t n,
                        const uint64_t *clocks)
{
    const Message message = { .kind = MESSAGE_SET_CLOCKS,
                              .epoch = epoch,
                              .row_bytes = sizeof *clocks,
                              .request = { .keys = { .first = first, .n = n }, .input = clocks } };

    model_set_clocks(fresh, first, n, clocks);
    push_request(copy, &message);
}

/* Workers are lost at the clock at which they stood. */
static void copy_losses(Copy *copy, const Binding *binding, const RubatoModel *old,
                        RubatoModel *fresh)
{
    const bool by_worker = old->ops->traits.per_worker_clocks;
    ModelLoss loss;

    for (uint32_t i = 0; model_find_loss(old, i, &loss); i++) {
        const uint32_t node = node_of_rank(binding, loss.first);
        Message message = { .kind = (MessageKind)FEED_LOSS,
                            .epoch = binding->epoch,
                            .request = { .worker = node,
                                         .clock = (uint64_t)loss.first << 32 | loss.n } };

        copy_clocks(copy, binding->epoch, fresh, by_worker ? loss.first : node, 1, &loss.clock);
        model_lose_workers(fresh, node, loss.first, loss.n);
        push_request(copy, &message);
    }
}

static void copy_kept_call(Copy *copy, uint32_t epoch, RubatoModel *fresh, RubatoRequest *kept)
{
    copy->keeps_calls = copy->keeps_calls || !ragged_is_request(kept->handler_call->ops);
    copy->is_starved = !server_push_kept_call(epoch, kept, push_piece, copy) || copy->is_starved;
    model_call(fresh, kept);
    (void)model_take_answered(fresh); /* the request itself, if it has been answered before */
    model_free_kept(kept);
}

static void copy_kept(Copy *copy, uint32_t epoch, RubatoModel *fresh, RubatoRequest *kept)
{
    const MessageKind kind = request_kind_of_kept(kept);
    const RubatoTableSpec *const spec = shard_spec(fresh->shard);
    const RequestOps *const ops = request_ops[kind];
    const Message message = {
        .kind = kind,
        .epoch = epoch,
        .row_bytes = ops->rows == REQUEST_NO_ROWS ? 0 : request_row_bytes(ops, spec),
        .request = *kept,
    };

    push_request(copy, &message);
    ops->in_task(fresh, kept);
    (void)model_take_answered(fresh); /* the request itself, which nobody waits for */
    model_free_kept(kept);
}

/* A Get that waits, or the call of a handler. Its message stays parked. */
static void put_back(RubatoModel *fresh, RubatoRequest *parked)
{
    if (parked->kind == RUBATO_REQUEST_WRITE)
        call_record_wait(parked->handler_call->record, parked);
    else if (parked->kind == RUBATO_REQUEST_READ)
        model_call(fresh, parked);
    else
        model_get(fresh, parked);
}

/* Without memory to send it, the task goes on here all the same. False: there is no memory. */
static bool copy_task(Copy *copy, const Binding *binding, BoundPart *part)
{
    RubatoModel *const old = part->model;
    const uint32_t n_sources = model_n_sources(old);
    RubatoModel *const fresh = server_begin_model(copy->server, binding, part->shard, NULL);
    g_autofree uint64_t *clocks = fresh == NULL ? NULL : g_try_new(uint64_t, n_sources + 1);
    RubatoRequest *kept, *parked, *next;

    if (clocks == NULL) {
        if (fresh != NULL)
            server_end_model(copy->server, fresh);
        return false;
    }
    for (uint32_t i = 0; i < n_sources; i++)
        clocks[i] = rubato_model_clock(old, i);
    copy->is_starved =
        copy->is_starved || !server_feed_task_to(copy->server, copy->fed, copy->to, binding);
    push_had(copy, binding->epoch, part->had);
    server_push_failed_calls(binding->epoch, part->had, push_piece, copy);
    copy_losses(copy, binding, old, fresh);
    copy_clocks(copy, binding->epoch, fresh, 0, n_sources, clocks);
    parked = model_take_apart(old, &kept);
    part->model = fresh;
    for (; kept != NULL; kept = next) {
        next = kept->next;
        if (kept->kind == RUBATO_REQUEST_WRITE)
            copy_kept_call(copy, binding->epoch, fresh, kept);
        else
            copy_kept(copy, binding->epoch, fresh, kept);
    }
    for (; parked != NULL; parked = next) {
        next = parked->next;
        put_back(fresh, parked);
    }
    server_empty_fed(copy->server, part);
    if (G_UNLIKELY(copy->server->starved))
        g_error("server %u: no memory for what a task has on a part that gets a replica; the node "
                "ends here",
                copy->server->number);
    return !copy->is_starved;
}

bool copy_push_tasks(Copy *copy)
{
    Server *const server = copy->server;
    bool ok = true;

    push_had(copy, 0, copy->fed->had);
    server_push_failed_calls(0, copy->fed->had, push_piece, copy);
    for (guint i = 0; i < server->bindings->len && ok; i++) {
        const Binding *const binding = &g_array_index(server->bindings, Binding, i);

        if (binding->table == copy->fed->table && binding->parts[copy->fed->part].model != NULL)
            ok = copy_task(copy, binding, &binding->parts[copy->fed->part]);
    }
    return ok && !copy->is_starved;
}

void copy_push_answers(Copy *copy)
{
    const Server *const server = copy->server;

    for (guint i = 0; i < server->bindings->len; i++) {
        const Binding *const binding = &g_array_index(server->bindings, Binding, i);
        const BoundPart *const part = &binding->parts[copy->fed->part];

        if (binding->table == copy->fed->table && part->model != NULL)
            server_push_answers(binding->epoch, part->had, push_piece, copy);
    }
}

bool copy_open_state(Copy *copy, PartState *state)
{
    *state =
        (PartState){ .shard = server_find_shard(copy->server, copy->fed->table, copy->fed->part),
                     .send = push_state,
                     .assign = push_assignment,
                     .user = copy };
    return part_state_init(state);
}
