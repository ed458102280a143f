/* The parts of a table, for a thread that owns the servers of all of them: see server_joint.c. */
#include "engine/server/joint/joint_private.h"

bool joint_find_servers(const TableRoute *route, Joint *joint)
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

void joint_give_servers_back(const Joint *joint, const JointAsk *ask)
{
    if (ask->lends)
        actors_lend(joint->actors, joint->n);
    actors_give_back(joint->actors, joint->n);
}

bool joint_find_parts(const TableRoute *route, Joint *joint)
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

/* See model_iterate. */
void joint_begin_iteration(RubatoModel *model, const JointAsk *ask, const RubatoKeys *keys)
{
    RubatoRequest announcing = { .worker = ask->worker, .clock = ask->clock, .keys = *keys };

    model_take_announcement(model, &announcing);
    model_clock(model, ask->worker, ask->clock);
}

bool joint_empty_outbox(const Joint *joint, uint32_t part)
{
    Server *const server = (Server *)joint->actors[part];
    const Binding *const binding = joint->bindings[part];
    RubatoModel *const model = binding->parts[part].model;

    if (G_UNLIKELY(*model->outbox != NULL))
        server_empty_outbox(server, model);
    if (G_LIKELY(!server->starved))
        return true;
    server_starve(server, binding);
    return false;
}

/* Tells a part the clock that a Get brings. False: its model may keep the Get. */
static bool prepare_get(const Joint *joint, const TableRoute *route, uint32_t part,
                        const JointAsk *ask, uint64_t *min_clock)
{
    const Binding *const binding = joint->bindings[part];
    RubatoModel *const model = binding->parts[part].model;
    const RubatoLead lead = model->ops->traits.lead;

    if (binding->adds != NULL)
        server_take_clock(
            binding, part,
            &(MessageClock){ .source = route->office->self, .clock = ask->node_clock });
    else if (ask->begins_iteration) /* keys are announced for Gets of others, and there are none */
        joint_begin_iteration(model, ask, &(RubatoKeys){ .n = 0 });
    else if (ask->node_clock > 0)
        model_clock(model, route->office->self, ask->node_clock);
    if (!joint_empty_outbox(joint, part))
        return false;
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

void joint_bring_whole(Joint *joint, const TableRoute *route, uint64_t clock, uint64_t end)
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

bool joint_get_from(Joint *joint, const TableRoute *route, const JointAsk *ask, uint64_t *min_clock)
{
    bool is_done = joint_find_parts(route, joint) && joint_shards_can_get(joint->shards, joint->n);

    *min_clock = UINT64_MAX;
    if (is_done && route->defers_jointly)
        joint_bring_whole(joint, route, ask->node_clock,
                          deferred_adds_turn_of(route->deferred, ask->node_clock, 0));
    for (uint32_t part = 0; part < joint->n && is_done; part++)
        is_done = prepare_get(joint, route, part, ask, min_clock);
    if (is_done)
        joint_shards_get(joint->shards, joint->n, ask->keys, ask->n_keys, ask->values);
    joint_give_servers_back(joint, ask);
    return is_done;
}

bool joint_add_to(Joint *joint, const TableRoute *route, const JointAsk *ask)
{
    const bool is_done =
        joint_find_parts(route, joint) && joint_shards_can_add(joint->shards, joint->n);

    if (is_done)
        joint_shards_add(joint->shards, joint->n, ask->worker, ask->keys, ask->n_keys, ask->deltas);
    joint_give_servers_back(joint, ask);
    return is_done;
}
