/* A primary makes replicas of its parts in the place of lost ones (docs/replication.md).
 *
 * Within one call as the server's owner the primary sends the new replica all that the part has:
 * rows and what belongs to them, and, for each task, its clocks, the requests that the model keeps,
 * and what was had of each worker. From then on it passes inputs on to it as to any replica, behind
 * the image on the same way. No answer waits for it yet. Its first position says that it has the
 * image. Then answers wait for it; and FEED_WHOLE tells it so, behind all that was acknowledged or
 * shown without it. A replica that has not had FEED_WHOLE is never made a primary.
 *
 * One part after the other: while one is copied, no more than its bytes wait to be sent to its
 * replica, and inputs of as many bytes, or of some windows (COPY_WINDOWS). Once more follow,
 * answers wait for the replica although it does not count yet. So other nodes do not get room back
 * for more, and workers of this node find no room to the replica's node, which the image has taken.
 * That ends with the replica's first positions, or when it is dropped: it cannot be made, or its
 * node is lost.
 *
 * A model cannot be looked into. So it is taken apart, as for a part that moves, and what it held
 * goes to a new model here and to that of the replica, in the same order.
 *
 * Thread: the server's owner. */
#include "engine/server/server_copies.h"

#include "engine/server/part_state.h"
#include "engine/server/request_ops.h"
#include "engine/server/server_calls.h"
#include "engine/server/server_feed.h"
#include "io/net/handler_call.h"
#include "io/net/network/network.h"
#include "models/handlers/call_records.h"

/* Behind a small image inputs of so many windows may follow: as many as another node may have under
 * way. */
#define COPY_WINDOWS 16

typedef struct {
    uint32_t table, part;
    uint32_t server; /* that gets the replica */
    uint32_t map;
} Order;

typedef struct ServerCopies {
    GArray *orders; /* of Order */
    guint next;     /* the present one, or the next */
    bool is_under_way;
    uint32_t n_made;
    int64_t begun_us;
} ServerCopies;

static FedPart *find_fed(const Server *server, const Order *order)
{
    const ServerTable *table = server_find_table(server, order->table);

    return table != NULL && order->part < table->n_parts ? table->parts[order->part].fed : NULL;
}

void server_order_copies(Server *server, const PartPlace *place)
{
    Order order = { .table = place->table, .part = place->part, .map = place->map };
    const FedPart *const fed = find_fed(server, &order);

    for (uint32_t i = 0; fed != NULL && i < place->n_replicas; i++) {
        bool is_there = false;

        order.server = place->replicas[i];
        for (uint32_t j = 0; j < fed->feed.n_replicas; j++)
            is_there = is_there || fed->feed.replicas[j].server == order.server;
        if (is_there || order.server == server->number)
            continue;
        if (server->copies == NULL) {
            server->copies = g_new0(ServerCopies, 1);
            server->copies->orders = g_array_new(FALSE, FALSE, sizeof(Order));
            server->copies->begun_us = g_get_monotonic_time();
        }
        g_array_append_val(server->copies->orders, order);
    }
}

void server_forget_copies(Server *server)
{
    if (server->copies == NULL)
        return;
    g_array_unref(server->copies->orders);
    g_clear_pointer(&server->copies, g_free);
}

/* ---- a part's image ---- */

typedef struct {
    Server *server;
    FedPart *fed;
    uint32_t to;     /* a server's number */
    size_t n_bytes;  /* of what was sent */
    bool is_starved; /* there was no memory to send a piece: no more are sent */
} Copy;

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

static void push_of_call(void *user, Message *message, uint8_t fed_kind)
{
    push(user, message, fed_kind);
}

static bool push_assignment(void *user, const RubatoKeys *keys, const HandlerCall *assigning,
                            GError **error)
{
    Copy *const copy = user;

    (void)error;
    copy->is_starved = assigning == NULL ||
                       !server_push_assignment(keys, assigning, push_of_call, copy) ||
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

/* The begin or the end of an image, as of the present input; or that there is to be none. */
static void push_mark(Copy *copy, uint32_t map, uint8_t kind)
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

static MessageKind kind_of(const RubatoRequest *kept)
{
    switch (kept->kind) {
    case RUBATO_REQUEST_TUNE:
        return MESSAGE_TUNE;
    case RUBATO_REQUEST_ANNOUNCE:
        return MESSAGE_ANNOUNCE;
    default:
        return MESSAGE_ADD;
    }
}

static void copy_kept_call(Copy *copy, uint32_t epoch, RubatoModel *fresh, RubatoRequest *kept)
{
    copy->is_starved = !server_push_kept_call(epoch, kept, push_of_call, copy) || copy->is_starved;
    model_call(fresh, kept);
    (void)model_take_answered(fresh); /* the request itself, if it has been answered before */
    model_free_kept(kept);
}

static void copy_kept(Copy *copy, uint32_t epoch, RubatoModel *fresh, RubatoRequest *kept)
{
    const MessageKind kind = kind_of(kept);
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
    server_push_failed_calls(binding->epoch, part->had, push_of_call, copy);
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

/* ---- one after the other ---- */

/* False: there is no memory. */
static bool push_image(Copy *copy, const Order *order)
{
    Server *const server = copy->server;
    PartState state = { .shard = server_find_shard(server, order->table, order->part),
                        .send = push_state,
                        .assign = push_assignment,
                        .user = copy };
    bool ok;

    if (!part_state_init(&state))
        return false;
    push_mark(copy, order->map, FEED_COPY);
    ok = part_state_send(&state, NULL) && part_state_send_uses(&state, NULL);
    part_state_clear(&state);
    push_had(copy, 0, copy->fed->had);
    server_push_failed_calls(0, copy->fed->had, push_of_call, copy);
    for (guint i = 0; i < server->bindings->len && ok; i++) {
        const Binding *const binding = &g_array_index(server->bindings, Binding, i);

        if (binding->table == order->table && binding->parts[order->part].model != NULL)
            ok = copy_task(copy, binding, &binding->parts[order->part]);
    }
    if (ok)
        push_mark(copy, order->map, FEED_COPIED);
    return ok && !copy->is_starved;
}

/* False: it cannot be made. */
static bool begin_copy(Server *server, const Order *order)
{
    Copy copy = { .server = server, .fed = find_fed(server, order), .to = order->server };

    if (copy.fed == NULL)
        return false;
    if (!push_image(&copy, order)) {
        copy.is_starved = false; /* if this is not sent, what has come is dropped by the next map */
        push_mark(&copy, order->map, FEED_GIVEN_UP);
        post_office_flush(server->office);
        return false;
    }
    post_office_flush(server->office);
    return replica_feed_add_copy(
        &copy.fed->feed, order->server, order->map,
        MAX(copy.n_bytes, COPY_WINDOWS * server->office->sizes.window_bytes));
}

/* Whether the present copy knows that it counts, or will never do so. If this node were lost when
 * the copy counts only here, the part would be lost with it: FEED_WHOLE may still be on its way. */
static bool has_ended(Server *server, const Order *order)
{
    const FedPart *const fed = find_fed(server, order);
    const FedReplica *const replica =
        fed == NULL ? NULL : replica_feed_find(&fed->feed, order->server, order->map);

    if (replica != NULL && replica->is_whole)
        server->copies->n_made++;
    return replica == NULL || replica->is_whole;
}

static void report(const Server *server)
{
    const ServerCopies *const copies = server->copies;
    const uint32_t n_missing = copies->orders->len - copies->n_made;
    const double seconds = (double)(g_get_monotonic_time() - copies->begun_us) / 1e6;

    if (server->tell_made != NULL)
        server->tell_made(server->user, server->number, copies->n_made, n_missing);
    if (n_missing == 0)
        g_message("server %u has made %u replica%s of its parts on other nodes, in %.2f s",
                  server->number, copies->n_made, copies->n_made == 1 ? "" : "s", seconds);
    else
        g_warning("server %u has made %u replicas of its parts on other nodes, and could not make "
                  "%u, for lack of memory or because their tables were dropped",
                  server->number, copies->n_made, n_missing);
}

void server_make_copies(Server *server)
{
    while (server->copies != NULL && server->copies->next < server->copies->orders->len) {
        ServerCopies *const copies = server->copies;
        const Order *const order = &g_array_index(copies->orders, Order, copies->next);

        if (!copies->is_under_way) {
            copies->is_under_way = begin_copy(server, order);
            copies->next += !copies->is_under_way;
            continue;
        }
        if (!has_ended(server, order))
            return;
        copies->is_under_way = false;
        copies->next++;
    }
    if (server->copies == NULL)
        return;
    report(server);
    server_forget_copies(server);
}
