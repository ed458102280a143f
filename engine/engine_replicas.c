/* Where the replicas of parts are, and which tables cannot have any (docs/replication.md).
 *
 * Threads: that of the engine's calls. */
#include "engine/engine_private.h"
#include "engine/server/replica_feed.h"
#include "models/model.h"

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
    if (spec->shape == RUBATO_SHAPE_RAGGED)
        return "its rows are ragged";
    if (spec->create_on_get)
        return "its Gets create rows";
    if (spec->max_bytes > 0)
        return "it evicts rows (max_bytes)";
    if (model_traits(spec)->takes_announcements)
        return "its model takes announcements of keys";
    return NULL;
}

static bool check(const RubatoEngine *engine, const RubatoTableSpec *spec, GError **error)
{
    const uint32_t n_nodes = count_nodes_with_servers(engine);
    const char *const obstacle = find_obstacle(spec);

    if (obstacle != NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "table %s cannot have replicas: %s",
                    spec->name, obstacle);
        return false;
    }
    if (n_nodes > engine->n_replicas && engine->n_replicas <= REPLICA_FEED_MOST)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "table %s: %u replicas need servers on %u nodes, and %u nodes have some; there are "
                "%u replicas at most",
                spec->name, engine->n_replicas, engine->n_replicas + 1, n_nodes,
                MIN(n_nodes - 1, REPLICA_FEED_MOST));
    return false;
}

/* Whether the node has the part, or one of the n replicas. */
static bool is_on(const RubatoEngine *engine, uint32_t node, uint32_t primary,
                  const uint32_t *replicas, uint32_t n)
{
    const ServerAddress *const servers = engine->office.servers;
    bool is_there = servers[primary].node == node;

    for (uint32_t i = 0; i < n; i++)
        is_there = is_there || servers[replicas[i]].node == node;
    return is_there;
}

/* On the next servers behind the primary, each on a node of its own. */
static void place(const RubatoEngine *engine, uint32_t primary, uint32_t *replicas)
{
    const uint32_t n_servers = engine->office.n_servers;
    uint32_t n = 0;

    for (uint32_t i = 1; i < n_servers && n < engine->n_replicas; i++) {
        const uint32_t server = (primary + i) % n_servers;

        if (!is_on(engine, engine->office.servers[server].node, primary, replicas, n))
            replicas[n++] = server;
    }
}

bool engine_place_replicas(const RubatoEngine *engine, Table *table, GError **error)
{
    const uint32_t n_parts = table->map->n_parts;
    g_autofree uint32_t *replicas = NULL;

    if (engine->n_replicas == 0)
        return true;
    if (!check(engine, table->spec, error))
        return false;
    replicas = g_new(uint32_t, (size_t)n_parts * engine->n_replicas);
    for (uint32_t part = 0; part < n_parts; part++)
        place(engine, part_map_server(table->map, part),
              replicas + (size_t)part * engine->n_replicas);
    part_map_set_replicas(table->map, engine->n_replicas, replicas);
    return true;
}
