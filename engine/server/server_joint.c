/* Gets and Adds of all parts of a table at once, by a thread that owns all of their servers for a
 * moment, or shares them.
 *
 * DESIGN NOTE
 *
 * Order. The thread goes on only if all servers were idle, with empty mailboxes: so everything that
 * it has sent before has been handled. It then does what server_handle would do with one message
 * for each part: it tells the clock that a Get brings, asks whether the model may keep the Get, and
 * reads the rows. No model keeps a Get of a clock up to its min clock and staleness, and Adds come
 * here for models that apply them as they come. Under others a worker defers its Adds whole; they
 * come to the rows here when a Get has brought the clock that makes them due, or in the worker's
 * turn, if the models would apply them at once. If not, or if some parts have had them, each part
 * takes its own (server_deferred.c).
 *
 * No deadlock. The thread takes the tokens without waiting for any. While it has several, it
 * handles no messages: these may be anything, and wait for another server.
 *
 * Several workers. A Get that has no clock to bring changes nothing, so workers share the servers
 * for it, and read at the same time. A Get may be answered so if its rows have all Adds that it has
 * to see. Where Adds are applied as they come, those of clocks below the node's clock have been
 * posted before the worker read that clock (tables/clocks.c). The mailbox is empty while the worker
 * shares the server, so they have been applied: the clock counts although the model has not heard
 * it. Where Adds are deferred, the part's turn tells which have been applied. Each worker is the
 * owner in its turn, and has its Adds applied on its own processor (client_deferred.c). The last
 * one goes on from being the owner to sharing, because the others read then, too.
 *
 * One token. To take two tokens, for the two parts of an Add, takes longer than the Add if their
 * cache lines come from another processor. So workers lend the tokens of all servers but one
 * (io/net/actor_several.c): then an Add takes one, and needs no cut. A message to one server ends
 * that; now and then a worker begins it again.
 *
 * Beside owners. Where rows have a single value, a Get that has no clock to bring need not even
 * share the servers. Their gates let it in (io/net/actor.h), if all that was posted to them before
 * has been handled: so it sees what a Get that shares them would see. Meanwhile owners may handle
 * Gets and clocks, which change no row, and Adds to a list of keys, which store each row at once;
 * all else closes the gate first (server_handle). So a reader sees each row as it is between two
 * Adds, but some rows before an Add and others behind it, as a Get of several parts does. What it
 * goes by to find the rows changes in no message that is handled beside it.
 *
 * A request that cannot be handled so is not: its worker then cuts it, and sends it. So nothing
 * here answers with an error.
 *
 * Threads: a worker's, while it owns the servers. */
#include "engine/server/server_joint.h"

#include "engine/server/server_private.h"
#include "io/net/processors.h"
#include "models/shard/joint_shards.h"
#include "models/update/rule.h"

/* The servers, and what they have of the table. */
typedef struct {
    uint32_t n;
    Actor *actors[JOINT_SHARDS_MOST];
    Binding *bindings[JOINT_SHARDS_MOST];
    RubatoShard *shards[JOINT_SHARDS_MOST]; /* of part i */
} Joint;

/* Finds the servers of all parts. False: one of them has more than one part, or is on another node.
 */
static bool find_servers(const TableRoute *route, Joint *joint)
{
    joint->n = route->map->n_parts;
    for (uint32_t part = 0; part < joint->n; part++) {
        Actor *const actor = route->office->servers[part_map_server(route->map, part)].actor;

        if (actor == NULL)
            return false;
        for (uint32_t before = 0; before < part; before++)
            if (joint->actors[before] == actor)
                return false;
        joint->actors[part] = actor;
    }
    return true;
}

/* Becomes the owner of the servers of all parts. False: one of them is busy, too. */
static bool take_servers(const TableRoute *route, Joint *joint)
{
    return find_servers(route, joint) && actors_try_take(joint->actors, joint->n);
}

/* As long as the request takes itself. */
static uint64_t work_ns(const TableRoute *route, const JointAsk *ask)
{
    const RubatoKeys keys = { .keys = ask->keys, .n = ask->n_keys };

    return message_rows_ns(&keys, route->row_bytes);
}

static void give_servers_back(const Joint *joint, const JointAsk *ask)
{
    if (ask->lends)
        actors_lend(joint->actors, joint->n);
    actors_give_back(joint->actors, joint->n);
}

/* Finds what the servers have. False: a part has moved away, or has got replicas, or its server
 * counts messages. */
static bool find_parts(const TableRoute *route, Joint *joint)
{
    for (uint32_t part = 0; part < joint->n; part++) {
        Server *const server = (Server *)joint->actors[part];
        Binding *const binding = server_find_binding(server, route->epoch, route->table);

        if (binding == NULL || part >= binding->n_parts || binding->parts[part].model == NULL ||
            binding->parts[part].fed != NULL || server->actor.handle != server_handle)
            return false;
        joint->bindings[part] = binding;
        joint->shards[part] = binding->parts[part].shard;
    }
    return true;
}

/* See model_iterate. Keys are announced for Gets of other workers, and there are none: so the
 * announcement has no keys. */
static void begin_iteration(RubatoModel *model, const JointAsk *ask)
{
    RubatoRequest announcing = { .worker = ask->worker, .clock = ask->clock };

    model_take_announcement(model, &announcing);
    model_clock(model, ask->worker, ask->clock);
}

/* Tells a part the clock that a Get brings. False: its model may keep the Get. */
static bool prepare_get(const Joint *joint, const TableRoute *route, uint32_t part,
                        const JointAsk *ask, uint64_t *min_clock)
{
    Server *const server = (Server *)joint->actors[part];
    const Binding *const binding = joint->bindings[part];
    RubatoModel *const model = binding->parts[part].model;
    const RubatoLead lead = model->ops->traits.lead;

    if (binding->adds != NULL)
        server_take_clock(
            binding, part,
            &(MessageClock){ .source = route->office->self, .clock = ask->node_clock });
    else if (ask->begins_iteration)
        begin_iteration(model, ask);
    else if (ask->node_clock > 0)
        model_clock(model, route->office->self, ask->node_clock);
    if (G_UNLIKELY(*model->outbox != NULL))
        server_empty_outbox(server, model);
    if (G_UNLIKELY(server->starved)) {
        server_starve(server, binding);
        return false;
    }
    const uint64_t min = rubato_model_min_clock(model);

    *min_clock = MIN(*min_clock, min);
    return lead == RUBATO_LEAD_UNBOUNDED || ask->clock <= min ||
           (lead == RUBATO_LEAD_STALENESS && ask->clock - min <= route->spec->staleness);
}

static void apply_whole(void *user, RubatoRequest *request)
{
    const Joint *const joint = user;

    joint_shards_add(joint->shards, joint->n, request->worker, request->keys.keys, request->keys.n,
                     request->input);
}

/* Brings all parts the clock of a Get and the whole Adds that it makes due, before the turn `end`,
 * as far as that is possible. What is not done here is done for each part. */
static void bring_whole(Joint *joint, const TableRoute *route, uint64_t clock, uint64_t end)
{
    if (clock == 0 || !joint_shards_can_add(joint->shards, joint->n))
        return;
    for (uint32_t part = 0; part < joint->n; part++) {
        const RubatoModel *const model = joint->bindings[part]->parts[part].model;

        if (joint->bindings[part]->adds != route->deferred || !server_adds_may_come_later(model) ||
            rubato_model_min_clock(model) > clock)
            return;
    }
    for (uint32_t part = 0; part < joint->n; part++)
        model_clock(joint->bindings[part]->parts[part].model, route->office->self, clock);
    (void)deferred_adds_take_whole(route->deferred, end, apply_whole, joint);
}

/* The owner brings the clock, reads, and gives the servers back. */
static bool get_from(Joint *joint, const TableRoute *route, const JointAsk *ask,
                     uint64_t *min_clock)
{
    bool is_done = find_parts(route, joint) && joint_shards_can_get(joint->shards, joint->n);

    *min_clock = UINT64_MAX;
    if (is_done && route->defers_jointly)
        bring_whole(joint, route, ask->node_clock,
                    deferred_adds_turn_of(route->deferred, ask->node_clock, 0));
    for (uint32_t part = 0; part < joint->n && is_done; part++)
        is_done = prepare_get(joint, route, part, ask, min_clock);
    if (is_done)
        joint_shards_get(joint->shards, joint->n, ask->keys, ask->n_keys, ask->values);
    give_servers_back(joint, ask);
    return is_done;
}

static bool get(const TableRoute *route, const JointAsk *ask, uint64_t *min_clock)
{
    Joint joint;

    return take_servers(route, &joint) && get_from(&joint, route, ask, min_clock);
}

/* The owner adds, and gives the servers back. */
static bool add_to(Joint *joint, const TableRoute *route, const JointAsk *ask)
{
    const bool is_done = find_parts(route, joint) && joint_shards_can_add(joint->shards, joint->n);

    if (is_done)
        joint_shards_add(joint->shards, joint->n, ask->worker, ask->keys, ask->n_keys, ask->deltas);
    give_servers_back(joint, ask);
    return is_done;
}

static bool add(const TableRoute *route, const JointAsk *ask)
{
    Joint joint;

    return take_servers(route, &joint) && add_to(&joint, route, ask);
}

static const JointOps joint_ops = { .get = get, .add = add };

/* ---- several workers ---- */

/* Whether the clock that a Get brings is high enough for it. */
static bool may_read_at(const TableRoute *route, const JointAsk *ask)
{
    const RubatoLead lead = route->traits->lead;

    return lead == RUBATO_LEAD_UNBOUNDED || ask->clock <= ask->node_clock ||
           (lead == RUBATO_LEAD_STALENESS &&
            ask->clock - ask->node_clock <= route->spec->staleness);
}

/* Reads rows of a single value beside the owners of the servers. */
static bool get_beside(const TableRoute *route, const JointAsk *ask, uint64_t *min_clock)
{
    Joint joint;
    bool is_done;

    if (!may_read_at(route, ask) || !find_servers(route, &joint) ||
        !actors_enter(joint.actors, joint.n, ask->worker))
        return false;
    *min_clock = ask->node_clock;
    is_done = find_parts(route, &joint) && joint_shards_can_read_beside(joint.shards, joint.n);
    if (is_done)
        joint_shards_read_beside(joint.shards, joint.n, ask->keys, ask->n_keys, ask->values);
    actors_leave(joint.actors, joint.n, ask->worker);
    return is_done;
}

/* Whether a part has all Adds that a Get has to see. Adds that are sent although others are
 * deferred are kept by the model up to its min clock. */
static bool shows_all(const Binding *binding, uint32_t part, const TableRoute *route,
                      const JointAsk *ask, uint64_t *min_clock)
{
    const RubatoModel *const model = binding->parts[part].model;
    const RubatoLead lead = model->ops->traits.lead;
    uint64_t min = rubato_model_min_clock(model);

    if (binding->adds == NULL)
        min = MAX(min, ask->node_clock);
    else if (deferred_adds_turn(binding->adds, part) <
             deferred_adds_turn_of(binding->adds, ask->clock, 0))
        return false;
    *min_clock = MIN(*min_clock, min);
    return lead == RUBATO_LEAD_UNBOUNDED || ask->clock <= min ||
           (lead == RUBATO_LEAD_STALENESS && ask->clock - min <= route->spec->staleness);
}

static bool all_show_all(const Joint *joint, const TableRoute *route, const JointAsk *ask,
                         uint64_t *min_clock)
{
    *min_clock = UINT64_MAX;
    for (uint32_t part = 0; part < joint->n; part++)
        if (!shows_all(joint->bindings[part], part, route, ask, min_clock))
            return false;
    return joint_shards_can_get(joint->shards, joint->n);
}

/* The worker has had the rows fetched, as far as it knew where they are. */
static void read_rows(const Joint *joint, const JointAsk *ask)
{
    joint_shards_find(joint->shards, joint->n, ask->places);
    if (joint->n == 1)
        shard_get(joint->shards[0], &(RubatoKeys){ .keys = ask->keys, .n = ask->n_keys },
                  ask->values);
    else
        joint_shards_get(joint->shards, joint->n, ask->keys, ask->n_keys, ask->values);
}

static bool get_shared(const TableRoute *route, const JointAsk *ask, uint64_t *min_clock)
{
    Joint joint;
    bool is_done;

    if (route->reads_beside && get_beside(route, ask, min_clock))
        return true;
    if (!route->takes_turns && ask->places->n > 0) /* before the others have to wait for it */
        row_places_fetch(ask->places, ask->keys, ask->n_keys);
    if (!find_servers(route, &joint) ||
        !actors_share_soon(joint.actors, joint.n, work_ns(route, ask)))
        return false;
    is_done = find_parts(route, &joint) && all_show_all(&joint, route, ask, min_clock);
    if (is_done)
        read_rows(&joint, ask);
    if (is_done && route->reads_beside && ask->admits_readers)
        actors_admit_readers(joint.actors, joint.n);
    actors_end_share(joint.actors, joint.n);
    return is_done;
}

/* The part takes the Adds of the worker's turn. False: the server has starved. */
static bool bring_turn(Server *server, const Binding *binding, uint32_t part, const JointAsk *ask)
{
    RubatoModel *const model = binding->parts[part].model;

    server_bring_adds(binding, part, server->office->self, ask->node_clock, ask->worker);
    if (G_UNLIKELY(*model->outbox != NULL))
        server_empty_outbox(server, model);
    if (G_LIKELY(!server->starved))
        return true;
    server_starve(server, binding);
    return false;
}

static bool take_turn(const TableRoute *route, const JointAsk *ask, uint64_t *min_clock)
{
    const bool reads = ask->values != NULL;
    Joint joint;
    bool is_done;

    if (!find_servers(route, &joint) ||
        !actors_take_soon(joint.actors, joint.n, work_ns(route, ask)))
        return false;
    is_done = find_parts(route, &joint);
    if (is_done && route->defers_jointly)
        bring_whole(&joint, route, ask->node_clock,
                    deferred_adds_turn_of(route->deferred, ask->node_clock - 1, ask->worker) + 1);
    for (uint32_t part = 0; part < joint.n && is_done; part++)
        is_done = joint.bindings[part]->adds != NULL &&
                  bring_turn((Server *)joint.actors[part], joint.bindings[part], part, ask);
    if (is_done)
        joint_shards_find(joint.shards, joint.n, ask->places);
    if (is_done && reads)
        is_done = all_show_all(&joint, route, ask, min_clock);
    if (!is_done || !reads) {
        give_servers_back(&joint, ask);
        return is_done;
    }
    if (ask->lends)
        actors_lend(joint.actors, joint.n);
    actors_share_on(joint.actors, joint.n);
    read_rows(&joint, ask);
    actors_end_share(joint.actors, joint.n);
    return true;
}

/* To take several tokens for an Add would keep others from all of these servers for longer than
 * messages to each do: so it is done if one token stands for all, or to make it so. */
static bool add_shared(const TableRoute *route, const JointAsk *ask)
{
    Joint joint;

    if (!find_servers(route, &joint))
        return false;
    if (!(ask->lends ? actors_take_soon : actors_take_lent)(joint.actors, joint.n,
                                                            work_ns(route, ask)))
        return false;
    return add_to(&joint, route, ask);
}

/* Whether workers may defer Adds whole. Called once. */
static bool can_defer_whole(const TableRoute *route)
{
    RubatoKey firsts[JOINT_SHARDS_MOST];
    uint64_t n;

    if (route->deferred == NULL || route->spec->aggregate != RUBATO_AGGREGATE_NONE)
        return false;
    for (uint32_t part = 0; part < route->map->n_parts; part++)
        partition_range(route->partition, part, &firsts[part], &n);
    return deferred_adds_allow_whole(route->deferred, firsts);
}

/* More workers than processors, whose Adds are deferred: the first of them to come after a clock
 * has those of all applied, and those that run seldom meet. So nobody looks longer. */
static bool get_owning(const TableRoute *route, const JointAsk *ask, uint64_t *min_clock)
{
    Joint joint;

    return find_servers(route, &joint) && actors_take_soon(joint.actors, joint.n, 0) &&
           get_from(&joint, route, ask, min_clock);
}

static const JointOps owning_ops = { .get = get_owning };
static const JointOps shared_ops = { .get = get_shared, .add = add_shared };
static const JointOps turn_ops = { .get = get_shared, .take_turn = take_turn };

/* Where Adds are deferred and workers take no turns, a Get brings what makes them due. Workers that
 * share a processor seldom meet at a server. If no token stands for all of several servers, they
 * gain nothing by sharing these, and one that does not run meanwhile keeps all of them from the
 * others. */
static const JointOps *find_shared_ops(const TableRoute *route)
{
    if (route->takes_turns)
        return &turn_ops;
    if (route->deferred != NULL && route->map->n_parts > 1 && rule_is_plain(route->spec) &&
        can_defer_whole(route))
        return &owning_ops;
    return route->lazy_clocks && !route->traits->applies_by_clock &&
                   (route->map->n_parts == 1 || rule_is_plain(route->spec) ||
                    route->clocks->n_workers <= processors_count())
               ? &shared_ops
               : NULL;
}

/* ---- which tables ---- */

/* Whether the parts are ranges of a dense table, each with keys. */
static bool are_dense(const TableRoute *route)
{
    const Partition *const partition = route->partition;
    bool has_keys = partition->dense && partition->kind == PARTITION_RANGE &&
                    route->spec->shape == RUBATO_SHAPE_EVEN;

    for (uint32_t part = 0; part < partition->n_parts && has_keys; part++) {
        RubatoKey first;
        uint64_t n;

        partition_range(partition, part, &first, &n);
        has_keys = n > 0;
    }
    return has_keys;
}

/* Whether each part has a server of this process for itself that counts no messages. Parts may move
 * later; then requests find that out. */
static bool have_servers(const TableRoute *route)
{
    bool has = true;

    for (uint32_t part = 0; part < route->map->n_parts && has; part++) {
        const uint32_t server = part_map_server(route->map, part);
        const Actor *const actor = route->office->servers[server].actor;

        has = actor != NULL && actor->handle == server_handle;
        for (uint32_t before = 0; before < part && has; before++)
            has = part_map_server(route->map, before) != server;
    }
    return has;
}

void server_join_parts(TableRoute *route)
{
    const uint32_t n_parts = route->map->n_parts;

    if (route->clocks->n_workers == 0 || route->office->n_nodes > 1 || route->map->n_replicas > 0 ||
        n_parts > JOINT_SHARDS_MOST || !are_dense(route) || !have_servers(route) ||
        !model_answers_in_reach(route->spec))
        return;
    const bool is_alone = route->clocks->n_workers == 1;

    if (is_alone && n_parts < 2)
        return;
    route->joint = is_alone ? &joint_ops : find_shared_ops(route);
    route->reads_beside = route->joint == &shared_ops && rule_stores_whole(route->spec) &&
                          route->spec->aggregate == RUBATO_AGGREGATE_NONE;
    if (n_parts < 2 || !rule_is_plain(route->spec))
        return;
    route->defers_jointly =
        route->joint == &owning_ops || ((is_alone || route->takes_turns) && can_defer_whole(route));
    route->adds_jointly =
        route->defers_jointly || (route->joint != NULL && !route->traits->applies_by_clock);
}
