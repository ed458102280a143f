/* Where the parts of tables and their replicas lie at first, and where they may move to.
 *
 * Each node makes the plan by itself. It follows from the cluster file and from the tables that are
 * there, which are the same on all nodes, and engine->call.lost is that of the present call.
 *
 * Threads: that of the engine's calls; of engine_check_move also that of part steps. */
#include "engine/control/place_text.h"
#include "engine/engine_private.h"
#include "engine/parts/engine_balance.h"
#include "engine/placement/cluster_limits.h"

/* The servers of nodes that are not lost, and are not drained. */
typedef struct {
    uint32_t n, n_nodes;
    PlacementServer servers[];
} LiveServers;

static void count_copy(PlacementServer *servers, uint32_t number, const PlacementLoad *load)
{
    placement_add(&servers[number].used, load);
    servers[number].n_parts++;
}

/* What all tables need of each server. The lock is held. (transfer full) */
static PlacementServer *list_servers(const RubatoEngine *engine)
{
    const PostOffice *const office = &engine->office;
    PlacementServer *servers = g_new0(PlacementServer, office->n_servers);

    for (uint32_t i = 0; i < office->n_servers; i++) {
        const uint32_t node = office->servers[i].node;

        servers[i] = (PlacementServer){ .number = i, .node = node };
        servers[i].limit = cluster_server_limit(engine->cluster, node);
    }
    for (guint i = 0; i < engine->tables->len; i++) {
        const Table *const table = g_ptr_array_index(engine->tables, i);
        const PartMap *const map = table->map;

        for (uint32_t part = 0; part < map->n_parts; part++) {
            const PlacementLoad load = table_part_load(table, part);

            count_copy(servers, part_map_server(map, part), &load);
            for (uint32_t k = 0; k < map->n_replicas; k++)
                if (part_map_replica(map, part, k) != part_map_server(map, part))
                    count_copy(servers, part_map_replica(map, part, k), &load);
        }
    }
    return servers;
}

/* (transfer full) */
static LiveServers *list_live_servers(RubatoEngine *engine)
{
    const PostOffice *const office = &engine->office;
    LiveServers *const live = g_malloc0(sizeof *live + office->n_servers * sizeof live->servers[0]);

    pthread_mutex_lock(&engine->lock);
    g_autofree PlacementServer *servers = list_servers(engine);
    for (uint32_t i = 0; i < office->n_servers; i++)
        if (!engine->call.lost[servers[i].node] && !engine->drains[servers[i].node])
            live->servers[live->n++] = servers[i];
    pthread_mutex_unlock(&engine->lock);
    for (uint32_t i = 0; i < live->n; i++)
        live->n_nodes += i == 0 || live->servers[i].node != live->servers[i - 1].node;
    return live;
}

/* By the number of the part: its server, then those of its replicas, as positions in `live`. */
static void set_map(const LiveServers *live, const uint32_t *places, uint32_t n_replicas,
                    Table *table)
{
    const uint32_t n_parts = table->map->n_parts;
    g_autofree uint32_t *replicas = g_new(uint32_t, (size_t)n_parts * n_replicas + 1);

    for (uint32_t part = 0; part < n_parts; part++) {
        const uint32_t *const at = places + (size_t)part * (1 + n_replicas);

        part_map_set_server(table->map, part, live->servers[at[0]].number);
        for (uint32_t k = 0; k < n_replicas; k++)
            replicas[(size_t)part * n_replicas + k] = live->servers[at[k + 1]].number;
    }
    if (table->spec->replicas > 0)
        part_map_set_replicas(table->map, n_replicas, replicas);
}

static const PlacementOps *strategy_of(const RubatoEngine *engine)
{
    return placement_find(engine->cluster == NULL ? placement_name(0) : engine->cluster->placement);
}

bool engine_place_parts(RubatoEngine *engine, Table *table, GError **error)
{
    g_autofree LiveServers *live = list_live_servers(engine);
    g_autofree uint32_t *places = NULL;
    uint32_t n_replicas;

    if (live->n == 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST,
                    "table %s: all nodes with servers are lost", table->spec->name);
        return false;
    }
    n_replicas = MIN(table->spec->replicas, live->n_nodes - 1);
    places = g_new(uint32_t, (size_t)table->map->n_parts * (1 + n_replicas));
    if (!table_lay(table, strategy_of(engine), n_replicas, live->servers, live->n, places, error))
        return false;
    if (table->spec->replicas > 0)
        engine_prepare_replicas(engine);
    set_map(live, places, n_replicas, table);
    if (n_replicas < table->spec->replicas)
        g_message("each part of table %s has %u replicas and not %u: servers of %u nodes are left",
                  table->spec->name, n_replicas, table->spec->replicas, live->n_nodes);
    return true;
}

bool engine_check_move(RubatoEngine *engine, const Table *table, uint32_t part, uint32_t to,
                       GError **error)
{
    g_autofree PlacementServer *servers = list_servers(engine);
    const PlacementLoad load = table_part_load(table, part);

    if (table->spec->no_split && table->map->n_parts > 1) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "table %s: part %u cannot move: no_split keeps its %u parts on one server",
                    table->spec->name, part, table->map->n_parts);
        return false;
    }
    if (part_map_server(table->map, part) == to || placement_has_room(&servers[to], &load))
        return true;
    g_autofree char *needs = placement_load_text(&load);
    g_autofree char *has = placement_server_text(&servers[to]);

    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "table %s: part %u cannot move to server %u: the part needs %s; the server has %s",
                table->spec->name, part, to, needs, has);
    return false;
}

/* ---- replicas in the place of lost ones ---- */

static const Table *find_by_id(const RubatoEngine *engine, uint32_t id)
{
    for (guint i = 0; i < engine->tables->len; i++)
        if (((const Table *)g_ptr_array_index(engine->tables, i))->id == id)
            return g_ptr_array_index(engine->tables, i);
    return NULL;
}

static bool has_copy_on(const RubatoEngine *engine, const PlaceSet *set, uint32_t node)
{
    bool has = false;

    for (uint32_t i = 0; i < set->n; i++)
        has = has || engine->office.servers[set->servers[i]].node == node;
    return has;
}

/* Whether the server's node is one that parts leave. The lock is held. */
static bool is_leaving(const RubatoEngine *engine, uint32_t server)
{
    return engine->drains[engine->office.servers[server].node];
}

static uint32_t count_staying(const RubatoEngine *engine, const PlaceSet *set)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < set->n; i++)
        n += !is_leaving(engine, set->servers[i]);
    return n;
}

/* The emptiest server for another replica; NULL: there is none. A table that is not to be split has
 * its replicas together, too: `beside`, if it can be. */
static PlacementServer *choose_server(const RubatoEngine *engine, PlacementServer *servers,
                                      const PlaceSet *set, const PlacementLoad *load,
                                      PlacementServer *beside)
{
    PlacementServer *best = NULL;

    for (uint32_t i = 0; i < engine->office.n_servers; i++) {
        PlacementServer *const server = &servers[i];

        if (engine->office.is_lost[server->node] || engine->drains[server->node] ||
            has_copy_on(engine, set, server->node) || !placement_has_room(server, load))
            continue;
        if (best == NULL || server == beside || (best != beside && server->n_parts < best->n_parts))
            best = server;
    }
    return best;
}

/* Why a part cannot leave a node, although copies are made wherever there is room for them. */
static void check_leaving(const RubatoEngine *engine, const Table *table, const PlaceSet *set,
                          uint32_t n_needed, GError **fault)
{
    if (*fault != NULL || count_staying(engine, set) >= n_needed)
        return;
    if (table->map->n_replicas == 0)
        g_set_error(fault, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "table %s has no replicas, and part %u of it is there; "
                    "rubato_engine_move_part moves it",
                    table->spec->name, set->part);
    else
        g_set_error(fault, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "part %u of table %s and its replicas need servers on %u other nodes, within "
                    "their limits, and there are %u",
                    set->part, table->spec->name, n_needed, count_staying(engine, set));
}

/* The node that has joined gets its share. If that is the scheduler's, whose process had ended, the
 * one before may have been about to do so for another node. (transfer full) of PlaceMove */
static GArray *balance(RubatoEngine *engine, const ControlRecover *recover,
                       PlacementServer *servers, GArray *sets)
{
    GArray *const moved = g_array_new(FALSE, FALSE, sizeof(PlaceMove));
    const bool is_schedulers = recover->node == engine->scheduler_node;

    if (recover->cause != CONTROL_CAUSE_JOIN && recover->cause != CONTROL_CAUSE_BALANCE)
        return moved;
    for (uint32_t node = 0; node < engine->n_nodes; node++)
        if ((is_schedulers || node == recover->node) && !engine->office.is_lost[node] &&
            !engine->drains[node])
            engine_balance(engine, node, servers, sets, moved);
    if (moved->len > 0)
        g_message("copies of %u parts are made, and take the place of others", moved->len);
    return moved;
}

void engine_place_copies(RubatoEngine *engine, const ControlRecover *recover, GString *plan,
                         GError **fault)
{
    g_autoptr(GError) cannot_leave = NULL;
    g_autoptr(GString) text = g_string_new(NULL);
    g_autoptr(GArray) sets = g_array_new(FALSE, FALSE, sizeof(PlaceSet));
    PlacementServer *beside = NULL;
    uint32_t n_made = 0, n_missing = 0, table_before = UINT32_MAX;
    const char *lines = recover->lines;
    PlaceSet set;

    pthread_mutex_lock(&engine->lock);
    g_autofree PlacementServer *servers = list_servers(engine);
    while (place_text_read_set(&lines, &set)) {
        const Table *const table = find_by_id(engine, set.table);
        const uint32_t most = table == NULL ? 0 : table->map->n_replicas + 1;
        const uint32_t n_before = set.n;
        uint32_t n_staying = count_staying(engine, &set);

        if (set.table != table_before)
            beside = NULL;
        table_before = set.table;
        for (; n_staying < most && set.n < PLACE_MOST_SERVERS && most > 1; n_staying++) {
            const PlacementLoad load = table_part_load(table, set.part);
            PlacementServer *const server =
                choose_server(engine, servers, &set, &load, table->spec->no_split ? beside : NULL);

            if (server == NULL)
                break;
            set.servers[set.n++] = server->number;
            count_copy(servers, server->number, &load);
            beside = server;
            n_made++;
        }
        n_missing += most > n_staying ? most - n_staying : 0;
        if (table != NULL && count_staying(engine, &set) < set.n)
            check_leaving(engine, table, &set, MIN(most, n_before), &cannot_leave);
        g_array_append_val(sets, set);
    }
    g_autoptr(GArray) moved = balance(engine, recover, servers, sets);
    pthread_mutex_unlock(&engine->lock);
    for (guint i = 0; i < sets->len; i++)
        place_text_write_set(text, &g_array_index(sets, PlaceSet, i));
    for (guint i = 0; i < moved->len; i++)
        place_text_write_move(text, &g_array_index(moved, PlaceMove, i));
    if (cannot_leave != NULL) {
        g_propagate_error(fault, g_steal_pointer(&cannot_leave));
        return;
    }
    if (n_missing > 0)
        g_message("%u replicas of parts are missing, for which no living node has room", n_missing);
    if (text->len > CONTROL_MAX_FILE)
        g_warning("there are more parts than nodes can tell one another after a loss: no replicas "
                  "are made in the place of lost ones");
    else if (n_made + moved->len > 0)
        g_string_append(plan, text->str);
}
