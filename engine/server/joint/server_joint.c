/* Gets and Adds of all parts of a table at once, by a thread that owns all of their servers for a
 * moment. joint_several.c has what several workers do that use them at once.
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
 * A request that cannot be handled so is not: its worker then cuts it, and sends it. So nothing
 * here answers with an error.
 *
 * Threads: a worker's, while it owns the servers. */
#include "engine/server/joint/server_joint.h"

#include "engine/server/joint/joint_private.h"
#include "io/net/processors.h"
#include "models/update/rule.h"

/* Becomes the owner of the servers of all parts. False: one of them is busy, too. */
static bool take_servers(const TableRoute *route, Joint *joint)
{
    return joint_find_servers(route, joint) && actors_try_take(joint->actors, joint->n);
}

static bool get(const TableRoute *route, const JointAsk *ask, uint64_t *min_clock)
{
    Joint joint;

    return take_servers(route, &joint) && joint_get_from(&joint, route, ask, min_clock);
}

static bool add(const TableRoute *route, const JointAsk *ask)
{
    Joint joint;

    return take_servers(route, &joint) && joint_add_to(&joint, route, ask);
}

static const JointOps alone_ops = { .get = get, .add = add };

/* ---- which tables ---- */

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

/* Whether rows are single values, which are changed by one store each. */
static bool can_read_beside(const TableRoute *route)
{
    return route->spec->width == 1 && rule_stores_whole(route->spec) &&
           route->spec->aggregate == RUBATO_AGGREGATE_NONE;
}

/* Whether workers begin their iterations as owners, and read beside them. Servers are told each
 * worker's clock there before its node shows it, so an iteration reads what a Get of the node's
 * clock sees, if that clock is high enough. */
static bool begins_beside(const TableRoute *route)
{
    return route->traits->per_worker_clocks && !route->traits->applies_by_clock &&
           can_read_beside(route);
}

/* Where Adds are deferred and workers take no turns, a Get brings what makes them due. Workers that
 * share a processor seldom meet at a server. If no token stands for all of several servers, they
 * gain nothing by sharing these, and one that does not run meanwhile keeps all of them from the
 * others. */
static const JointOps *find_shared_ops(const TableRoute *route)
{
    if (route->takes_turns)
        return &joint_turn_ops;
    if (route->deferred != NULL && route->map->n_parts > 1 && rule_is_plain(route->spec) &&
        can_defer_whole(route))
        return &joint_owning_ops;
    if (route->traits->takes_announcements)
        return begins_beside(route) ? &joint_shared_ops : NULL;
    return route->lazy_clocks && !route->traits->applies_by_clock &&
                   (route->map->n_parts == 1 || rule_is_plain(route->spec) ||
                    route->clocks->n_workers <= processors_count())
               ? &joint_shared_ops
               : NULL;
}

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

/* A worker that is alone takes a token from no other processor. For one of several, a token may
 * cost more than a cut and many keys. Reading beside owners takes none; a turn takes one, where a
 * message to a single part would take one, too; else it takes one for all parts, if they are lent,
 * and not each request of a few keys has some of more than one part. */
static size_t find_least_keys(const TableRoute *route, bool is_alone)
{
    const uint32_t n_parts = route->map->n_parts;

    if (is_alone || (route->takes_turns && n_parts == 1))
        return JOINT_LEAST_KEYS;
    return route->reads_beside || route->takes_turns || n_parts == 1 ? 1 : (size_t)2 * n_parts;
}

/* Several workers that run at the same time, and begin their iterations as owners of several
 * servers. With more keys they lose by that: while one is at a server, another one can be at the
 * next. */
static size_t find_most_keys(const TableRoute *route)
{
    const uint32_t n_workers = route->clocks->n_workers;

    return route->traits->takes_announcements && route->map->n_parts > 1 && n_workers > 1 &&
                   n_workers <= processors_count()
               ? JOINT_MOST_KEYS_TO_BEGIN
               : SIZE_MAX;
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
    route->joint = is_alone ? &alone_ops : find_shared_ops(route);
    route->reads_beside = route->joint == &joint_shared_ops && can_read_beside(route);
    route->least_joint_keys = find_least_keys(route, is_alone);
    route->most_joint_keys = find_most_keys(route);
    if (n_parts < 2 || !rule_is_plain(route->spec))
        return;
    route->defers_jointly = route->joint == &joint_owning_ops ||
                            ((is_alone || route->takes_turns) && can_defer_whole(route));
    route->adds_jointly =
        route->defers_jointly || (route->joint != NULL && !route->traits->applies_by_clock);
}
