/* Gets and Adds of all parts of a table at once, by a thread that owns all of their servers for a
 * moment.
 *
 * DESIGN NOTE
 *
 * Order. The thread goes on only if all servers were idle, with empty mailboxes: so everything that
 * it has sent before has been handled. It then does what server_handle would do with one message
 * for each part: it tells the clock that a Get brings, asks whether the model may keep the Get, and
 * reads the rows. No model keeps a Get of a clock up to its min clock and staleness, and Adds come
 * here for models that apply them as they come. Under others a worker defers its Adds whole; they
 * come to the rows here when a Get has brought the clock that makes them due, if the models would
 * apply them at once. If not, or if some parts have had them, each part takes its own
 * (server_deferred.c).
 *
 * No deadlock. The thread takes the tokens without waiting for any. While it has several, it
 * handles no messages: these may be anything, and wait for another server.
 *
 * A request that cannot be handled so is not: its worker then cuts it, and sends it. So nothing
 * here answers with an error.
 *
 * Threads: a worker's, while it owns the servers. */
#include "engine/server/server_joint.h"

#include "engine/server/server_private.h"
#include "models/shard/joint_shards.h"
#include "models/update/rule.h"

/* The servers, and what they have of the table. */
typedef struct {
    uint32_t n;
    Actor *actors[JOINT_SHARDS_MOST];
    Binding *bindings[JOINT_SHARDS_MOST];
    RubatoShard *shards[JOINT_SHARDS_MOST]; /* of part i */
} Joint;

/* Becomes the owner of the servers of all parts. False: one of them is busy, or has more than one
 * part, or is on another node. */
static bool take_servers(const TableRoute *route, Joint *joint)
{
    joint->n = route->map->n_parts;
    for (uint32_t part = 0; part < joint->n; part++) {
        joint->actors[part] = route->office->servers[part_map_server(route->map, part)].actor;
        if (joint->actors[part] == NULL)
            return false;
    }
    return actors_try_take(joint->actors, joint->n);
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

/* Brings all parts the clock of a Get and the whole Adds that it makes due, as far as that is
 * possible. What is not done here is done for each part. */
static void bring_whole(Joint *joint, const TableRoute *route, uint64_t clock)
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
    (void)deferred_adds_take_whole(route->deferred, clock, apply_whole, joint);
}

static bool get(const TableRoute *route, const JointAsk *ask, uint64_t *min_clock)
{
    Joint joint;
    bool is_done;

    if (!take_servers(route, &joint))
        return false;
    *min_clock = UINT64_MAX;
    is_done = find_parts(route, &joint) && joint_shards_can_get(joint.shards, joint.n);
    if (is_done && route->defers_jointly)
        bring_whole(&joint, route, ask->node_clock);
    for (uint32_t part = 0; part < joint.n && is_done; part++)
        is_done = prepare_get(&joint, route, part, ask, min_clock);
    if (is_done)
        joint_shards_get(joint.shards, joint.n, ask->keys, ask->n_keys, ask->values);
    actors_give_back(joint.actors, joint.n);
    return is_done;
}

static bool add(const TableRoute *route, const JointAsk *ask)
{
    Joint joint;
    bool is_done;

    if (!take_servers(route, &joint))
        return false;
    is_done = find_parts(route, &joint) && joint_shards_can_add(joint.shards, joint.n);
    if (is_done)
        joint_shards_add(joint.shards, joint.n, ask->worker, ask->keys, ask->n_keys, ask->deltas);
    actors_give_back(joint.actors, joint.n);
    return is_done;
}

static const JointOps joint_ops = { .get = get, .add = add };

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

/* Whether the table's one worker may defer its Adds whole. Called once. */
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

void server_join_parts(TableRoute *route)
{
    const uint32_t n_parts = route->map->n_parts;

    if (route->clocks->n_workers != 1 || route->office->n_nodes > 1 || route->map->n_replicas > 0 ||
        n_parts < 2 || n_parts > JOINT_SHARDS_MOST || !are_dense(route) || !have_servers(route) ||
        !model_answers_in_reach(route->spec))
        return;
    route->joint = &joint_ops;
    if (!rule_is_plain(route->spec))
        return;
    route->defers_jointly = can_defer_whole(route);
    route->adds_jointly = !route->traits->applies_by_clock || route->defers_jointly;
}
