/* Parts that move to another server, of this process or of another node, also while workers use
 * them.
 *
 * DESIGN NOTE
 *
 * A part's shard moves and, for each task that uses the table, its model: clocks, parked Gets, kept
 * Adds, announcements. No Add may be lost, doubled, or overtake an earlier one. No Get may see more
 * or less than its model promises. No clock may be lost, or be early. The scheduler leads all nodes
 * through six steps. Each begins when all nodes have finished the one before
 * (engine/scheduler/scheduler_collective.c, engine/parts/engine_parts.c):
 *
 *   PREPARE  The new server makes an empty shard, and an empty model for each task, if it is on
 *            another node than the old one.
 *   AHEAD    The old server sends rows there, while requests go on (moving_ahead.c).
 *   CLOSE    Each node closes the table's map. Then none of its threads is sending anything that
 *            cannot be sent again, and none will (tables/part_map.h). It tells the clocks of its
 *            workers, sends a fence to the old server, behind all that it sent before, and waits
 *            for the answer.
 *   SEND     The old server takes the part out. If the new one is on another node, the part's state
 *            is sent there (moving_part.c), as far as its rows have not been sent ahead.
 *   INSTALL  The new server puts the part in, and the old one frees it. Within a node the shard and
 *            the models change hands here, and nothing is copied.
 *   OPEN     Each node tells the clocks of its workers again, and opens its map with the part on
 *            the new server.
 *
 * If a step up to SEND fails on a node, TAKE_BACK and REOPEN follow instead: the old server puts
 * the part back in, the new one drops what it has.
 *
 * Adds. The old server handles all that was sent by the old map before it takes the part out (the
 * fences). Nothing is sent by the new map before the new server has the part. So each Add takes
 * effect once, in order. The same holds for announcements, tunings, and Gets for which no worker
 * waits.
 *
 * Gets for which the worker waits are not held up, so that they cost nothing. They may come to the
 * old server while the part moves, or later. A Get that comes before the part is taken out is a Get
 * like any other. Otherwise the server answers CALL_MOVED, and the worker sends the Get again once
 * its map is open. While the worker waits, it does not add or clock: its Get still comes before its
 * later Adds and clocks. A Get for which no worker waits could not be sent again like this. By then
 * its worker may have clocked, and under BSP its Get would see Adds of its own clock.
 *
 * Parked Gets move with the model. Between servers of a node any server may answer. If the part
 * moves to another node, the old server sends each parked Get on, in the model's order, and passes
 * the answer on to the worker or node that asked. The new server has parked them again before any
 * node opens its map, and so before it hears of a later clock.
 *
 * Clocks go to all servers. A clock that comes to a server while it does not have the part has no
 * effect on the part. No clock is lost by this: in OPEN each node tells its clocks again, before it
 * opens its map. No clock is early: a clock that a worker tells by itself meanwhile is the same, is
 * older, or comes later. A node that has no worker left in a task says so to the scheduler after it
 * has seen the map open. Its last clock has come to the part by then: it was told before the fence
 * of CLOSE, or in OPEN, before the fence that follows. (If it was told after OPEN, the part hears
 * it as all other parts do.)
 *
 * Why each wait ends. A sender at a closed map waits for the move. The move waits for three things.
 * Senders that are posting wait for nothing. Fences end, and room in the window to the new server
 * comes, because servers handle each message without a wait (parked requests take no room). Each
 * node's thread of the engine's calls does its step, and has no other work. None of these waits for
 * a worker. So it does not matter which worker is the slowest, or whether it waits at the map. The
 * messages with the state are no larger than others, so the I/O thread works for a bounded time on
 * each. If a lost node ends the run, its tasks end as always, and with them these waits; the move
 * then fails with that cause. If the run goes on, no step waits for the lost node (engine_parts.c).
 *
 * A loss in a run that goes on. If the node is neither that of the old server nor that of the new
 * one, the move goes on. If it is one of the two, TAKE_BACK and REOPEN follow, or, once INSTALL has
 * begun, OPEN. Then the part may be on the lost node alone, and the run ends, as it does whenever
 * a part is lost. If it is on the old server, and models had been sent to the new one, their tasks
 * fail. The steps that follow the loss begin when the move has ended. An old server that is lost
 * later takes with it the answers to what it had sent on: see engine_recovery.c.
 *
 * What replicas can use: the number of the map says, when it opens, which map a sender has.
 * CALL_MOVED and sending again would be the same for a part that is gone because its server died.
 *
 * Threads: functions named servers_… from any thread that is not a server's owner; the rest as a
 * server's owner. */
#include "engine/server/server_parts.h"

#include "engine/server/server_private.h"

/* ---- the arrival ---- */

static void drop_arriving_models(Server *server)
{
    for (guint i = 0; i < server->bindings->len; i++) {
        Binding *binding = &g_array_index(server->bindings, Binding, i);

        if (binding->arriving != NULL)
            server_end_model(server, g_steal_pointer(&binding->arriving));
    }
}

void server_drop_arrival(Server *server)
{
    drop_arriving_models(server);
    g_clear_pointer(&server->arrival.shard, shard_free);
}

typedef struct {
    Arrival arrival;
    GError *error;
} Expecting;

static void expect(Server *server, void *data)
{
    Expecting *expecting = data;

    server->arrival = expecting->arrival;
    shard_set_alarm(server->arrival.shard, &server->starved);
    server_place_shard(server, server->arrival.shard, server->arrival.table, server->arrival.part);
    for (guint i = 0; i < server->bindings->len && expecting->error == NULL; i++) {
        Binding *binding = &g_array_index(server->bindings, Binding, i);

        if (binding->table == server->arrival.table)
            binding->arriving =
                server_begin_model(server, binding, server->arrival.shard, &expecting->error);
    }
    if (expecting->error != NULL)
        server_drop_arrival(server);
}

bool servers_expect_part(Server *server, const Arrival *arrival, GError **error)
{
    Expecting expecting = { .arrival = *arrival };

    servers_run(server, 1, expect, &expecting);
    if (expecting.error != NULL)
        g_propagate_error(error, expecting.error);
    return expecting.error == NULL;
}

static void drop_arrival(Server *server, void *data)
{
    (void)data;
    server_drop_arrival(server);
}

void servers_drop_arrival(Server *server)
{
    servers_run(server, 1, drop_arrival, NULL);
}

/* ---- out of a server, and into one ---- */

void server_unbind_part(Binding *binding, uint32_t part)
{
    uint32_t n_left = 0;

    for (uint32_t i = 0; i < binding->n_here; i++)
        if (binding->here[i] != part)
            binding->here[n_left++] = binding->here[i];
    binding->n_here = n_left;
    binding->parts[part] = (BoundPart){ 0 };
}

void server_bind_part(Binding *binding, uint32_t part, const BoundPart *bound)
{
    uint32_t i = binding->n_here++;

    for (; i > 0 && binding->here[i - 1] > part; i--)
        binding->here[i] = binding->here[i - 1];
    binding->here[i] = part;
    binding->parts[part] = *bound;
}

static void add_model(Binding *binding, uint32_t part, RubatoShard *shard, RubatoModel *model)
{
    server_bind_part(binding, part, &(BoundPart){ .shard = shard, .model = model });
}

static void take_out(Server *server, void *data)
{
    MovingPart *moving = data;
    ServerTable *table = server_find_table(server, moving->table);

    for (guint i = 0; i < server->bindings->len; i++) {
        Binding *binding = &g_array_index(server->bindings, Binding, i);
        RubatoModel *model;

        if (binding->table != moving->table || binding->parts[moving->part].model == NULL)
            continue;
        model = binding->parts[moving->part].model;
        server_catch_up(server, binding, moving->part);
        server_empty_outbox(server, model);
        if (G_UNLIKELY(server->starved))
            server_starve(server, binding);
        model_set_outbox(model, &moving->outbox);
        g_array_append_val(moving->models,
                           ((MovingModel){ .epoch = binding->epoch, .model = model }));
        server_unbind_part(binding, moving->part);
    }
    moving->shard = g_steal_pointer(&table->parts[moving->part].shard);
    shard_set_alarm(moving->shard, &moving->starved);
}

MovingPart *servers_take_part(Server *server, uint32_t table, uint32_t part)
{
    MovingPart *moving = g_new0(MovingPart, 1);

    moving->server = server;
    moving->table = table;
    moving->part = part;
    moving->models = g_array_new(FALSE, FALSE, sizeof(MovingModel));
    servers_run(server, 1, take_out, moving);
    return moving;
}

/* A task that has ended here meanwhile ends for the part too. */
static void put_in(Server *server, void *data)
{
    const MovingPart *moving = data;

    server_add_shard(server, moving->table, moving->part, moving->shard);
    for (guint i = 0; i < moving->models->len; i++) {
        const MovingModel *moved = &g_array_index(moving->models, MovingModel, i);
        Binding *binding = server_find_binding(server, moved->epoch, moving->table);

        if (moved->model == NULL)
            continue;
        model_set_outbox(moved->model, &server->actor.outbox);
        if (binding != NULL)
            add_model(binding, moving->part, moving->shard, moved->model);
        else
            server_end_model(server, moved->model);
    }
}

void servers_put_part(Server *server, MovingPart *moving)
{
    servers_run(server, 1, put_in, moving);
    g_array_unref(moving->models);
    g_free(moving);
}

static void keep_arrival(Server *server, void *data)
{
    const Arrival *arrival = &server->arrival;

    (void)data;
    for (guint i = 0; i < server->bindings->len; i++) {
        Binding *binding = &g_array_index(server->bindings, Binding, i);

        if (binding->arriving != NULL)
            add_model(binding, arrival->part, arrival->shard, g_steal_pointer(&binding->arriving));
    }
    server_add_shard(server, arrival->table, arrival->part,
                     g_steal_pointer(&server->arrival.shard));
}

void servers_keep_arrival(Server *server)
{
    servers_run(server, 1, keep_arrival, NULL);
}
