/* Gets and Adds of all parts of a table at once by several workers: they share the servers, take
 * turns, or read beside their owners. Order and deadlocks: see server_joint.c.
 *
 * DESIGN NOTE
 *
 * Sharing. A Get that has no clock to bring changes nothing, so workers share the servers
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
 * Gets, announcements and clocks, which change no row, and Adds to a list of keys, which store each
 * row at once; all else closes the gate first (server_handle). So a reader sees each row as it is
 * between two Adds, but some rows before an Add and others behind it, as a Get of several parts
 * does. What it goes by to find the rows changes in no message that is handled beside it.
 *
 * Threads: workers'. */
#include "engine/server/joint/joint_private.h"

/* As long as the request takes itself. */
static uint64_t work_ns(const TableRoute *route, const JointAsk *ask)
{
    const RubatoKeys keys = { .keys = ask->keys, .n = ask->n_keys };

    return message_rows_ns(&keys, route->row_bytes);
}

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

    if (!may_read_at(route, ask) || !joint_find_servers(route, &joint) ||
        !actors_enter(joint.actors, joint.n, ask->worker))
        return false;
    *min_clock = ask->node_clock;
    is_done =
        joint_find_parts(route, &joint) && joint_shards_can_read_beside(joint.shards, joint.n);
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
    if (!joint_find_servers(route, &joint) ||
        !actors_share_soon(joint.actors, joint.n, work_ns(route, ask)))
        return false;
    is_done = joint_find_parts(route, &joint) && all_show_all(&joint, route, ask, min_clock);
    if (is_done)
        read_rows(&joint, ask);
    if (is_done && route->reads_beside && ask->admits_readers)
        actors_admit_readers(joint.actors, joint.n);
    actors_end_share(joint.actors, joint.n);
    return is_done;
}

/* The part takes the Adds of the worker's turn. False: the server has starved. */
static bool bring_turn(const Joint *joint, const TableRoute *route, uint32_t part,
                       const JointAsk *ask)
{
    server_bring_adds(joint->bindings[part], part, route->office->self, ask->node_clock,
                      ask->worker);
    return joint_empty_outbox(joint, part);
}

static bool take_turn(const TableRoute *route, const JointAsk *ask, uint64_t *min_clock)
{
    const bool reads = ask->values != NULL;
    Joint joint;
    bool is_done;

    if (!joint_find_servers(route, &joint) ||
        !actors_take_soon(joint.actors, joint.n, work_ns(route, ask)))
        return false;
    is_done = joint_find_parts(route, &joint);
    if (is_done && route->defers_jointly)
        joint_bring_whole(&joint, route, ask->node_clock,
                          deferred_adds_turn_of(route->deferred, ask->node_clock - 1, ask->worker) +
                              1);
    for (uint32_t part = 0; part < joint.n && is_done; part++)
        is_done = joint.bindings[part]->adds != NULL && bring_turn(&joint, route, part, ask);
    if (is_done)
        joint_shards_find(joint.shards, joint.n, ask->places);
    if (is_done && reads)
        is_done = all_show_all(&joint, route, ask, min_clock);
    if (!is_done || !reads) {
        joint_give_servers_back(&joint, ask);
        return is_done;
    }
    if (ask->lends)
        actors_lend(joint.actors, joint.n);
    actors_share_on(joint.actors, joint.n);
    read_rows(&joint, ask);
    actors_end_share(joint.actors, joint.n);
    return true;
}

/* To take several tokens for an Add, or an announcement, would keep others from all of these
 * servers for longer than messages to each do: so it is done if one token stands for all, or to
 * make it so. */
static bool take_to_change(const TableRoute *route, const JointAsk *ask, Joint *joint)
{
    return joint_find_servers(route, joint) && (ask->lends ? actors_take_soon : actors_take_lent)(
                                                   joint->actors, joint->n, work_ns(route, ask));
}

static bool add_shared(const TableRoute *route, const JointAsk *ask)
{
    Joint joint;

    return take_to_change(route, ask, &joint) && joint_add_to(&joint, route, ask);
}

/* joint_find_parts; what the last owner has changed comes from its cache meanwhile. */
static bool fetch_parts(const TableRoute *route, Joint *joint)
{
    for (uint32_t part = 0; part < joint->n; part++)
        __builtin_prefetch(&joint->actors[part]->outbox, 1);
    if (!joint_find_parts(route, joint))
        return false;
    for (uint32_t part = 0; part < joint->n; part++)
        model_fetch_to_begin(joint->bindings[part]->parts[part].model);
    return true;
}

/* As model_iterate, without the Get, which then reads beside owners. */
static bool begin_shared(const TableRoute *route, const JointAsk *ask, const Slice *slices)
{
    Joint joint;
    bool is_done;

    if (!take_to_change(route, ask, &joint))
        return false;
    is_done = fetch_parts(route, &joint);
    for (uint32_t part = 0; part < joint.n && is_done; part++) {
        RubatoModel *const model = joint.bindings[part]->parts[part].model;

        joint_begin_iteration(model, ask, &slices[part].keys);
        joint_empty_outbox(&joint, part);
    }
    joint_give_servers_back(&joint, ask);
    return is_done;
}

/* More workers than processors, whose Adds are deferred: the first of them to come after a clock
 * has those of all applied, and those that run seldom meet. So nobody looks longer. */
static bool get_owning(const TableRoute *route, const JointAsk *ask, uint64_t *min_clock)
{
    Joint joint;

    return joint_find_servers(route, &joint) && actors_take_soon(joint.actors, joint.n, 0) &&
           joint_get_from(&joint, route, ask, min_clock);
}

const JointOps joint_owning_ops = { .get = get_owning };
const JointOps joint_shared_ops = { .get = get_shared, .add = add_shared, .begin = begin_shared };
const JointOps joint_turn_ops = { .get = get_shared, .take_turn = take_turn };
