/* Which tables cannot have replicas, and what changes for an engine that has some
 * (docs/replication.md). Where they lie: engine_placement.c.
 *
 * Threads: that of the engine's calls. */
#include "engine/engine_private.h"
#include "engine/server/replica_feed.h"
#include "models/model.h"
#include "models/storage/expiry/expiry.h"

/* While the run goes on without a lost node, there is a tick so often. */
#define LONGEST_TICK_MS 20

static uint32_t count_nodes_with_servers(const RubatoEngine *engine)
{
    uint32_t n = 0;

    for (uint32_t node = 0; node < engine->n_nodes; node++)
        n += engine->servers_of[node] > 0;
    return n;
}

/* Why the table cannot have replicas; NULL: it can. */
static const char *find_obstacle(const RubatoTableSpec *spec)
{
    const RubatoExpiryOps *const ops = expiry_find(spec->expire);

    if (spec->shape == RUBATO_SHAPE_RAGGED)
        return "its rows are ragged";
    if (spec->create_on_get)
        return "its Gets create rows";
    if (spec->max_bytes > 0)
        return "it evicts rows (max_bytes)";
    if (ops != NULL && ops->unit == RUBATO_TIME_SECONDS)
        return "its rows expire by the clocks of its nodes (expire)";
    if (model_traits(spec)->takes_announcements)
        return "its model takes announcements of keys";
    return NULL;
}

bool engine_check_replicas(const RubatoEngine *engine, const RubatoTableSpec *spec, GError **error)
{
    const uint32_t n_nodes = count_nodes_with_servers(engine);
    const char *const obstacle = find_obstacle(spec);

    if (spec->replicas == 0)
        return true;
    if (obstacle != NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "table %s cannot have replicas: %s",
                    spec->name, obstacle);
        return false;
    }
    if (n_nodes > spec->replicas && spec->replicas <= REPLICA_FEED_MOST)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "table %s: %u replicas need servers on %u nodes, and %u nodes have some; there are "
                "%u replicas at most",
                spec->name, spec->replicas, spec->replicas + 1, n_nodes,
                MIN(n_nodes - 1, REPLICA_FEED_MOST));
    return false;
}

/* What other nodes send to a primary, and what its own workers add in one call of any size, it
 * passes on to its replicas. So there is no bound beyond which a node must be wrong. And a loss is
 * found at a tick. */
void engine_prepare_replicas(RubatoEngine *engine)
{
    atomic_store_explicit(&engine->goes_on, true, memory_order_relaxed);
    atomic_store_explicit(&engine->office.goes_on, true, memory_order_relaxed);
    if (engine->network != NULL)
        network_take_any(engine->network, LONGEST_TICK_MS);
}
