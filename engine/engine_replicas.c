/* Where the replicas of parts are, and which tables cannot have any (docs/replication.md).
 *
 * Threads: that of the engine's calls. engine->call.lost is that of its present call. */
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

/* The servers of nodes that are not lost. */
typedef struct {
    uint32_t n, n_nodes;
    uint32_t numbers[];
} LiveServers;

/* (transfer full) */
static LiveServers *list_live_servers(const RubatoEngine *engine)
{
    const PostOffice *const office = &engine->office;
    LiveServers *const live = g_malloc0(sizeof *live + office->n_servers * sizeof live->numbers[0]);

    for (uint32_t server = 0; server < office->n_servers; server++)
        if (!engine->call.lost[office->servers[server].node])
            live->numbers[live->n++] = server;
    for (uint32_t i = 0; i < live->n; i++)
        live->n_nodes += i == 0 || office->servers[live->numbers[i]].node !=
                                       office->servers[live->numbers[i - 1]].node;
    return live;
}

/* n replicas, on the next servers behind the primary, each on a node of its own. */
static void place(const RubatoEngine *engine, const LiveServers *live, uint32_t at,
                  uint32_t *replicas, uint32_t n)
{
    uint32_t n_placed = 0;

    for (uint32_t i = 1; i < live->n && n_placed < n; i++) {
        const uint32_t server = live->numbers[(at + i) % live->n];

        if (!is_on(engine, engine->office.servers[server].node, live->numbers[at], replicas,
                   n_placed))
            replicas[n_placed++] = server;
    }
}

static void place_all(const RubatoEngine *engine, const LiveServers *live, Table *table)
{
    const uint32_t n_parts = table->map->n_parts;
    const uint32_t n = MIN(table->spec->replicas, live->n_nodes - 1);
    g_autofree uint32_t *replicas = g_new(uint32_t, (size_t)n_parts * n + 1);

    for (uint32_t part = 0; part < n_parts; part++)
        place(engine, live, part % live->n, replicas + (size_t)part * n, n);
    part_map_set_replicas(table->map, n, replicas);
    if (n < table->spec->replicas)
        g_message("each part of table %s has %u replicas and not %u: servers of %u nodes are left",
                  table->spec->name, n, table->spec->replicas, live->n_nodes);
}

/* What other nodes send to a primary, and what its own workers add in one call of any size, it
 * passes on to its replicas. So there is no bound beyond which a node must be wrong. And a loss is
 * found at a tick. */
static void prepare(RubatoEngine *engine)
{
    atomic_store_explicit(&engine->goes_on, true, memory_order_relaxed);
    if (engine->network != NULL)
        network_take_any(engine->network, LONGEST_TICK_MS);
}

bool engine_place_parts(RubatoEngine *engine, Table *table, GError **error)
{
    g_autofree LiveServers *live = list_live_servers(engine);

    if (live->n == 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST,
                    "table %s: all nodes with servers are lost", table->spec->name);
        return false;
    }
    for (uint32_t part = 0; part < table->map->n_parts; part++)
        part_map_set_server(table->map, part, live->numbers[part % live->n]);
    if (table->spec->replicas > 0)
        prepare(engine);
    if (table->spec->replicas > 0)
        place_all(engine, live, table);
    return true;
}
