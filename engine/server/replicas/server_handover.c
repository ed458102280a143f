/* A primary gives its part to one of its replicas, on purpose: see docs/replication.md.
 *
 * When SETTLE comes, each node has closed its maps, and its fence has ended: the primary has
 * handled all changes that were sent to it. Its last input is FEED_LAST. After that it passes
 * nothing on: clocks are told again to the next primary, and that one hears of the end of a task
 * from its own node. It still answers Gets, from rows that all replicas have. When the replicas
 * that count have had FEED_LAST, each of them is what the primary is, and no answer waits for any
 * of them.
 *
 * In PROMOTE the part leaves the server. A Get that comes later is answered CALL_MOVED, and is sent
 * again. Gets and calls that the models had parked are kept until OPEN, and then go to the next
 * primary like requests of this node, which passes the answers on. If their task ends here before,
 * server_end_task cancels them: OPEN may never come to this node. Nobody opens a map before all
 * nodes have done PROMOTE. So the next primary takes no change before the old one has left.
 *
 * If another node is lost in between, CLOSE and PROMOTE come again. A primary that has settled, and
 * stays, goes on with the next number. Its replicas take that, and also the input of another
 * primary: they know that there may be one, since they have had FEED_LAST.
 *
 * Thread: the server's owner. */
#include "engine/server/replicas/server_handover.h"

#include "engine/server/replicas/server_feed.h"
#include "engine/server/replicas/server_replicas.h"

static FedPart *find_fed(const Server *server, const PartPlace *place)
{
    const ServerTable *const table = server_find_table(server, place->table);

    return table != NULL && place->part < table->n_parts ? table->parts[place->part].fed : NULL;
}

/* ---- SETTLE ---- */

void server_settle_part(Server *server, const PartPlace *place)
{
    FedPart *const fed = find_fed(server, place);

    if (fed != NULL && !fed->is_settled && place->primary != server->number)
        server_feed_last(server, fed);
}

/* ---- PROMOTE ---- */

void server_keep_part(Server *server, const PartPlace *place)
{
    FedPart *const fed = find_fed(server, place);

    server_keep_replicas(server, fed, place->replicas, place->n_replicas);
    server_feed_go_on(server, fed);
}

void server_give_part(Server *server, const PartPlace *place)
{
    ServerTable *const table = server_find_table(server, place->table);
    MovingPart *const given = g_new0(MovingPart, 1);

    given->server = server;
    given->table = place->table;
    given->part = place->part;
    given->models = g_array_new(FALSE, FALSE, sizeof(MovingModel));
    for (guint i = 0; i < server->bindings->len; i++) {
        Binding *const binding = &g_array_index(server->bindings, Binding, i);
        BoundPart *const part = &binding->parts[place->part];

        if (binding->table != place->table || part->model == NULL)
            continue;
        server_empty_fed(server, part);
        model_set_outbox(part->model, &given->outbox);
        g_array_append_val(given->models,
                           ((MovingModel){ binding->epoch, part->model, part->had }));
        server_unbind_part(binding, place->part);
    }
    given->shard = g_steal_pointer(&table->parts[place->part].shard);
    shard_set_alarm(given->shard, &given->starved);
    fed_part_free(g_steal_pointer(&table->parts[place->part].fed));
    if (server->given == NULL)
        server->given = g_ptr_array_new();
    g_ptr_array_add(server->given, given);
    post_office_flush(server->office);
}

/* ---- OPEN ---- */

GPtrArray *server_take_given(Server *server)
{
    return g_steal_pointer(&server->given);
}

void server_drop_given_part(MovingPart *given)
{
    for (guint i = 0; i < given->models->len; i++) {
        MovingModel *const moved = &g_array_index(given->models, MovingModel, i);

        server_end_model(given->server, moved->model);
        moving_model_clear(moved);
    }
    shard_free(given->shard);
    g_array_unref(given->models);
    g_free(given);
}

void server_drop_given(Server *server)
{
    for (guint i = 0; server->given != NULL && i < server->given->len; i++)
        server_drop_given_part(g_ptr_array_index(server->given, i));
    g_clear_pointer(&server->given, g_ptr_array_unref);
}
