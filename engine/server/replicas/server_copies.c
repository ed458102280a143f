/* A primary makes replicas of its parts in the place of lost ones (docs/replication.md).
 *
 * The primary sends the new replica all that the part has: its image. Within one call as the
 * server's owner it sends what the part has besides rows: for each task, its clocks, the requests
 * that the model keeps, and what was had of each worker (copy.c). From then on it passes inputs on
 * to it as to any replica, on the same way. The rows follow in slices, each within one call, and
 * the next one when the replica has had the one before. So no request waits for more than a slice:
 * not here, not at the replica's server, and not on the way between, which it may share with the
 * inputs of other parts. A replica has had a slice after a bounded number of messages, without a
 * wait, or its node is lost, which ends the copy.
 *
 * An input that comes between two slices makes of rows that the replica does not have yet whatever
 * it makes of them: these rows come later, and replace that. Where rows are evicted or expire, or
 * not all keys are admitted, what came of it could stay: a row that leaves the primary before it is
 * sent never comes. There the replica is told which rows each input makes, in front of the input
 * (models/shard/shard_roles.h): it makes these, and changes those that it has. So after each input,
 * each of its rows is that of the primary. Likewise it is told which requests to ragged rows fail.
 * Three orders keep this true. The image begins, and a slice is read, between two inputs. What is
 * told, the input and the slices go the same way, in this order. What admits keys comes behind all
 * rows: the replica asks nothing until then.
 *
 * Tables that have no slices (part_state.h) send all rows within the first call. A handler that
 * writes may look at any row. So all rows are sent before it runs, within one call, too. Requests
 * to ragged rows look at their own alone.
 *
 * No answer waits for the replica yet. Its first position says that it has the image. Then answers
 * wait for it; and FEED_WHOLE tells it so, behind all that was acknowledged or shown without it. A
 * replica that has not had FEED_WHOLE is never made a primary.
 *
 * One part after the other: while one is copied, no more than a slice waits to be sent to its
 * replica, or of some tables all of the part; and inputs of as many bytes, or of some windows
 * (COPY_WINDOWS). Once more are under way, answers wait for the replica although it does not count
 * yet. So other nodes do not get room back for more. That ends when the replica has had the next
 * slice or the image, or when it is dropped: it cannot be made, or its node is lost.
 *
 * Thread: the server's owner. */
#include "engine/server/replicas/server_copies.h"

#include "engine/server/replicas/copy.h"
#include "engine/server/replicas/server_feed.h"
#include "io/net/network/network.h"
#include "models/shard/image.h"
#include "models/shard/shard_roles.h"

/* Beside a small image inputs of so many windows may be under way: as many as another node may have
 * under way. */
#define COPY_WINDOWS 16

/* So many slices are a window: a worker of this node that sends to the replica's node has room. */
#define WINDOW_SLICES 4

typedef struct {
    uint32_t table, part;
    uint32_t server; /* that gets the replica */
    uint32_t map;
} Order;

typedef struct ServerCopies {
    GArray *orders; /* of Order */
    guint next;     /* the present one, or the next */
    bool is_under_way;
    PartSlice slice; /* of the present one */
    uint32_t n_made;
    int64_t begun_us;
} ServerCopies;

static FedPart *find_fed(const Server *server, const Order *order)
{
    const ServerTable *table = server_find_table(server, order->table);

    return table != NULL && order->part < table->n_parts ? table->parts[order->part].fed : NULL;
}

/* The replica of the present copy; NULL: it is none any more. */
static const FedReplica *find_copy(const Server *server, const Order *order)
{
    const FedPart *const fed = find_fed(server, order);

    return fed == NULL ? NULL : replica_feed_find(&fed->feed, order->server, order->map);
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
    part_slice_clear(&server->copies->slice);
    g_clear_pointer(&server->copies, g_free);
}

/* ---- one after the other ---- */

static size_t slice_bytes(const Server *server)
{
    return MAX(1, server->office->sizes.window_bytes / WINDOW_SLICES);
}

static Copy copy_of(Server *server, const Order *order)
{
    return (Copy){ .server = server, .fed = find_fed(server, order), .to = order->server };
}

/* It cannot be made: answers that wait for it leave. If there is no memory to tell the replica,
 * what has come of it is dropped by the next map. */
static void give_up(Copy *copy, const Order *order)
{
    copy->is_starved = false;
    copy_push_mark(copy, order->map, FEED_GIVEN_UP);
    post_office_flush(copy->server->office);
    if (find_copy(copy->server, order) != NULL)
        server_drop_replica(copy->server, copy->fed, order->server);
}

static bool push_end(Copy *copy, const Order *order)
{
    copy_push_answers(copy);
    copy_push_mark(copy, order->map, FEED_COPIED);
    post_office_flush(copy->server->office);
    return !copy->is_starved;
}

/* All that does not go in slices. False: there is no memory. */
static bool push_first(Copy *copy, const Order *order)
{
    PartState state;
    bool ok;

    if (!copy_open_state(copy, &state))
        return false;
    copy_push_mark(copy, order->map, FEED_COPY);
    ok = copy_push_tasks(copy);
    if (ok && shard_has_pieces(state.shard) && !copy->keeps_calls) {
        ok = part_state_send_first(&state, NULL);
    } else if (ok) {
        ok = part_state_send(&state, NULL) && part_state_send_uses(&state, NULL);
        copy->server->copies->slice.at_end = true;
    }
    part_state_clear(&state);
    return ok && !copy->is_starved;
}

/* The next rows of the present copy, n_bytes of them; and the end, if these are the last ones.
 * False: there is no memory. */
static bool push_slice(Copy *copy, const Order *order, size_t n_bytes)
{
    PartSlice *const slice = &copy->server->copies->slice;
    PartState state;
    bool ok;

    if (!copy_open_state(copy, &state))
        return false;
    ok = part_state_send_slice(&state, slice, n_bytes, NULL) &&
         (!slice->at_end || part_state_send_last(&state, NULL)) &&
         part_state_send_uses(&state, NULL); /* rows that have come were counted as uses there */
    part_state_clear(&state);
    if (!ok)
        return false;
    if (slice->at_end) {
        replica_feed_tell_more(&copy->fed->feed, order->server, false);
        return push_end(copy, order);
    }
    copy_push_mark(copy, order->map, FEED_SLICED);
    post_office_flush(copy->server->office);
    replica_feed_send_slice(&copy->fed->feed, order->server);
    return !copy->is_starved;
}

/* The replica follows from now on, and the first slice is sent. */
static bool push_begin(Copy *copy, const Order *order)
{
    Server *const server = copy->server;
    ReplicaFeed *const feed = &copy->fed->feed;
    const RubatoShard *const shard = server_find_shard(server, order->table, order->part);

    if (!replica_feed_add_copy(
            feed, order->server, order->map,
            MAX(copy->n_bytes, COPY_WINDOWS * server->office->sizes.window_bytes)))
        return false;
    if (server->copies->slice.at_end)
        return push_end(copy, order);
    replica_feed_tell_more(feed, order->server, shard_tells_more(shard));
    return push_slice(copy, order, slice_bytes(server));
}

/* False: it cannot be made. */
static bool begin_copy(Server *server, const Order *order)
{
    ServerCopies *const copies = server->copies;
    Copy copy = copy_of(server, order);

    part_slice_clear(&copies->slice);
    if (copy.fed == NULL)
        return false;
    if (!push_first(&copy, order) || !push_begin(&copy, order)) {
        give_up(&copy, order);
        return false;
    }
    return true;
}

/* The replica has had the slice before. False: the copy has been given up. */
static bool go_on(Server *server, const Order *order, size_t n_bytes)
{
    Copy copy = copy_of(server, order);

    if (push_slice(&copy, order, n_bytes))
        return true;
    give_up(&copy, order);
    return false;
}

void server_end_slices(Server *server, uint32_t table, uint32_t part)
{
    const ServerCopies *const copies = server->copies;
    const Order *order;

    if (copies == NULL || !copies->is_under_way || copies->slice.at_end)
        return;
    order = &g_array_index(copies->orders, Order, copies->next);
    if (order->table != table || order->part != part || find_copy(server, order) == NULL)
        return;
    if (shard_spec(server_find_shard(server, table, part))->shape != RUBATO_SHAPE_RAGGED)
        (void)go_on(server, order, SIZE_MAX);
}

/* Whether the present copy knows that it counts, or will never do so. If this node were lost when
 * the copy counts only here, the part would be lost with it: FEED_WHOLE may still be on its way. */
static bool has_ended(Server *server, const Order *order)
{
    const FedReplica *const replica = find_copy(server, order);

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
        if (!has_ended(server, order)) {
            if (copies->slice.at_end || find_copy(server, order)->has_slice_under_way ||
                go_on(server, order, slice_bytes(server)))
                return;
        }
        copies->is_under_way = false;
        copies->next++;
    }
    if (server->copies == NULL)
        return;
    report(server);
    server_forget_copies(server);
}
